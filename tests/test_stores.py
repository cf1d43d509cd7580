# SPDX-License-Identifier: Apache-2.0
"""What a store keeps in files: keys and sealed checkpoints."""

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from expunge.exceptions import NeedsRestore, StoreFailed
from expunge.ledger import UnusableKey
from expunge.registry.storage import Checkpoints, Keystore
from expunge.registry.storage.keystore import FIRST, new_key, place_of, seal, unseal


class TestKeystore:
    @pytest.fixture
    def keystore(self, tmp_path: Path) -> Keystore:
        (tmp_path / "keys").mkdir()
        return keystore_in(tmp_path / "keys")

    def test_numbers_go_on_and_keys_come_back(self, keystore: Keystore) -> None:
        assert keystore.end() == FIRST
        first, rest = keystore.add(), keystore.add(200)
        assert [*first] == [1] and [*rest] == [*range(2, 202)]
        assert len({*first.values(), *rest.values()}) == 201
        assert keystore.load([201, 1, 1, 2]) == {
            1: first[1],
            2: rest[2],
            201: rest[201],
        }
        assert keystore.load(range(FIRST, 202)) == first | rest
        assert keystore.load([]) == {} == keystore.load([0, 202, 5000])

    def test_a_destroyed_key_is_nowhere_and_its_number_is_not_used_again(
        self, keystore: Keystore
    ) -> None:
        keys = keystore.add(7)
        assert keystore.shred([2, 3, 5, 7]) == 1
        content = keystore.path.read_bytes()
        for one in (2, 3, 5, 7):
            assert keys[one] not in content
        assert keystore.load(keys) == {one: keys[one] for one in (1, 4, 6)}
        assert [*keystore.add()] == [8]

    def test_destroying_again_or_what_never_was_changes_no_key(
        self, keystore: Keystore
    ) -> None:
        keys = keystore.add(3)
        for count in (1, 2):
            assert keystore.shred([2, 0, 99]) == count
        assert keystore.load(keys).keys() == {1, 3} and keystore.end() == 4

    def test_a_file_that_is_older_or_lacks_a_key_is_refused(
        self, keystore: Keystore
    ) -> None:
        before = keystore.path.read_bytes()
        keystore.add(3)
        middle = keystore.path.read_bytes()
        count = keystore.shred([2])
        keystore.require_current(made=4, shredded=count, used={"m": 3})
        keystore.require_current(made=2, shredded=0, used={})  # after a crash
        with pytest.raises(NeedsRestore, match="the state of model 'm' is destroyed"):
            keystore.require_current(made=4, shredded=count, used={"m": 2})
        for older in (before, middle):
            keystore.path.write_bytes(older)
            with pytest.raises(NeedsRestore, match="is older than the database"):
                keystore.require_current(made=4, shredded=count, used={})

    def test_of_a_backup_no_number_is_used_again(
        self, keystore: Keystore, tmp_path: Path
    ) -> None:
        (tmp_path / "backup").mkdir()
        keys = keystore.add(4)
        backup = keystore_in(tmp_path / "backup")
        backup.path.write_bytes(keystore.path.read_bytes())
        keystore.shred([2])
        keystore.shred([3])
        keystore.add(5)
        keystore.replace(backup)
        assert keystore.load(range(FIRST, 20)) == keys and keystore.end() == 10
        assert keystore.shred([]) == 3  # it counts on from what it was
        keystore.path.unlink()
        keystore.replace(backup)
        assert keystore.load(range(FIRST, 20)) == keys and keystore.end() == 5
        keystore.replace(backup, end=9)  # as somebody knows who lost the file
        assert keystore.load(range(FIRST, 20)) == keys and keystore.end() == 9
        assert stat.S_IMODE(keystore.path.stat().st_mode) == 0o600

    @pytest.mark.parametrize(
        "content", [b"", b"{}", bytes(32), bytes(64), b"expunge keys 1\n"]
    )
    def test_a_damaged_file(self, keystore: Keystore, content: bytes) -> None:
        keystore.path.write_bytes(content)
        for act in (keystore.end, keystore.add, lambda: keystore.load([1])):
            with pytest.raises(UnusableKey, match="damaged"):
                act()
        assert keystore.path.read_bytes() == content

    def test_a_file_that_is_replaced_while_it_is_read(
        self, keystore: Keystore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys = keystore.add(2)
        really_read = os.pread

        def replace_and_read(opened: int, n: int, at: int) -> bytes:
            if at:
                monkeypatch.setattr(os, "pread", really_read)
                keystore.replace(keystore)  # what this one opened is erased
            return really_read(opened, n, at)

        monkeypatch.setattr(os, "pread", replace_and_read)
        assert keystore.load(keys) == keys

    def test_of_another_registry_is_refused(self, keystore: Keystore) -> None:
        keystore.add(3)
        content = keystore.path.read_bytes()
        keystore.require_owner("")
        keystore.require_owner("00" * 32)
        for owner in ("ab" * 32, "00" * 8 + "01" * 24):
            with pytest.raises(StoreFailed, match="of another registry"):
                keystore.require_owner(owner)
            steps: list[Callable[[], object]] = [
                keystore.add,
                lambda: keystore.load([1]),
                lambda: keystore.shred([1]),
                lambda: keystore.replace(Keystore(keystore.path)),
            ]
            for step in steps:
                with pytest.raises(StoreFailed, match="of another registry"):
                    step()
        assert keystore.path.read_bytes() == content

    def test_of_a_backup_has_its_owner(self, tmp_path: Path) -> None:
        owner = "ab" * 32
        backup = Keystore(tmp_path / "backup")
        backup.create(owner)
        lost = Keystore(tmp_path / "lost")
        lost.require_owner(owner)
        lost.replace(backup)
        lost.require_owner(owner)
        assert lost.end() == 1
        with pytest.raises(StoreFailed, match="of another registry"):
            lost.require_owner("cd" * 32)

    def test_a_part_of_a_key_that_a_full_disk_left(self, keystore: Keystore) -> None:
        keys = keystore.add(2)
        with keystore.path.open("ab") as file:
            file.write(b"half a key")
        assert keystore.end() == 3
        keys |= keystore.add()
        assert keystore.load(keys) == keys and keystore.path.stat().st_size == 4 * 32

    def test_a_missing_file_and_one_open_to_others(self, keystore: Keystore) -> None:
        keystore.path.chmod(0o640)
        for act in (keystore.end, keystore.add):
            with pytest.raises(UnusableKey, match="chmod 600"):
                act()
        keystore.path.unlink()
        for act in (keystore.end, keystore.add):
            with pytest.raises(UnusableKey, match="cannot be read"):
                act()
        assert not keystore.path.exists()

    def test_two_who_add_at_once_get_different_numbers(
        self, keystore: Keystore
    ) -> None:
        with ThreadPoolExecutor(4) as threads:
            made = [*threads.map(keystore.add, [3] * 40)]
        assert sorted(number for keys in made for number in keys) == [*range(1, 121)]
        every = {number: key for keys in made for number, key in keys.items()}
        assert keystore.load(every) == every


class TestCheckpoints:
    @pytest.fixture
    def checkpoints(self, tmp_path: Path) -> Checkpoints:
        made = Checkpoints(tmp_path / "checkpoints", Keystore(tmp_path / "sealing"))
        made.create()
        return made

    def write(self, checkpoints: Checkpoints, *said: bytes) -> Path:
        number = checkpoints.write("m", map(memoryview, said))
        return checkpoints.path("m", number)

    def read(self, checkpoints: Checkpoints, path: Path) -> bytes:
        return checkpoints.read("m", int(path.name.removeprefix("m.")))

    def test_files_go_with_their_keys(self, checkpoints: Checkpoints) -> None:
        first, late = (self.write(checkpoints, b"of before") for _ in range(2))
        second = self.write(checkpoints, b"state ", b"of it")
        checkpoints.delete_dead()
        assert first.exists() and late.exists()
        checkpoints.keystore.shred([1])
        checkpoints.delete_dead()
        # What somebody is about to commit stays.
        assert {*checkpoints.folder.iterdir()} == {late, second}
        assert self.read(checkpoints, second) == b"state of it"
        with pytest.raises(NeedsRestore, match="the state of model 'm' is destroyed"):
            self.read(checkpoints, first)

    def test_one_in_pieces_larger_than_a_buffer(self, checkpoints: Checkpoints) -> None:
        pieces = [bytes([n]) * size for n, size in enumerate((3 << 20, 0, 7, 1 << 20))]
        path = self.write(checkpoints, *pieces)
        assert self.read(checkpoints, path) == b"".join(pieces)

    def test_one_that_is_missing(self, checkpoints: Checkpoints) -> None:
        path = self.write(checkpoints, b"state")
        path.unlink()
        with pytest.raises(NeedsRestore, match="from the same backup"):
            self.read(checkpoints, path)

    def test_one_that_was_altered_cut_or_moved(self, checkpoints: Checkpoints) -> None:
        path, other = (self.write(checkpoints, b"state") for _ in range(2))
        sealed, foreign = path.read_bytes(), other.read_bytes()
        for altered in (
            sealed[:-1],
            b"",
            sealed[:20] + b"?" + sealed[21:],
            foreign,
        ):
            path.write_bytes(altered)
            with pytest.raises(StoreFailed, match="altered"):
                self.read(checkpoints, path)

    def test_the_file_is_for_its_owner_alone(self, checkpoints: Checkpoints) -> None:
        path = self.write(checkpoints, b"state")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert b"state" not in path.read_bytes()


def keystore_in(folder: Path) -> Keystore:
    """Return a file of keys in a folder."""
    made = Keystore(folder / "sealing")
    made.create()
    return made


class TestSealing:
    def test_places_say_which_key(self) -> None:
        """So it does not open if its key is put under another number."""
        key = new_key()
        sealed = seal(b"rows", key, place=place_of(5, "rows"))
        assert unseal(sealed, key, place=place_of(5, "rows")) == b"rows"
        for place in (place_of(6, "rows"), place_of(5, "other rows")):
            with pytest.raises(StoreFailed, match="altered"):
                unseal(sealed, key, place=place)

    def test_it_opens_under_its_key_at_its_place_alone(self) -> None:
        key = new_key()
        sealed = seal(b"rows", key, place="here")
        assert unseal(sealed, key, place="here") == b"rows" and b"rows" not in sealed
        for other, place in ((new_key(), "here"), (key, "there"), (b"short", "here")):
            with pytest.raises(StoreFailed, match=f"holds as {place}"):
                unseal(sealed, other, place=place)

    def test_no_byte_can_be_changed_or_cut_off(self) -> None:
        key = new_key()
        sealed = seal(b"rows", key, place="here")
        changed = [
            sealed[:i] + bytes([sealed[i] ^ 1]) + sealed[i + 1 :]
            for i in range(len(sealed))
        ]
        for altered in (*changed, *(sealed[:i] for i in range(len(sealed)))):
            with pytest.raises(StoreFailed):
                unseal(altered, key, place="here")

    def test_the_same_thing_never_looks_the_same(self) -> None:
        key = new_key()
        assert len({seal(b"rows", key, place="here") for _ in range(50)}) == 50
