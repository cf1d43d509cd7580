# SPDX-License-Identifier: Apache-2.0
"""What a store keeps in files: keys and sealed checkpoints."""

import json
import os
import stat
from pathlib import Path

import pytest

from expunge import disk
from expunge.exceptions import NeedsRestore, StoreFailed
from expunge.ledger import UnusableKey
from expunge.registry.storage import Checkpoints, Vault
from expunge.registry.storage.vault import new_key, seal, unseal


class TestVault:
    @pytest.fixture
    def vault(self, tmp_path: Path) -> Vault:
        vault = Vault(tmp_path / "keys" / "vault.json")
        vault.path.parent.mkdir()
        vault.create()
        vault.create_keys("m")
        return vault

    def test_generations_that_have_a_key_and_those_that_have_none(
        self, vault: Vault
    ) -> None:
        vault.destroy_old_keys(lambda: {"m": 1})
        vault.destroy_old_keys(lambda: {"m": 2})
        keys = vault.read_keys("m")
        assert keys.key_of(2, "m") == keys.present and keys.key_of(3, "m") == keys.next
        with pytest.raises(NeedsRestore, match="put back from a backup"):
            keys.key_of(1, "m")
        with pytest.raises(NeedsRestore, match=r"vault\.json is out of date"):
            keys.key_of(4, "m")

    def test_a_destroyed_key_is_in_no_file(self, vault: Vault) -> None:
        old = vault.read_keys("m")
        inode = os.open(vault.path, os.O_RDONLY)  # the old file, still open
        vault.destroy_old_keys(lambda: {"m": 1})
        assert vault.read_keys("m").present == old.next
        files = [path.read_bytes() for path in vault.path.parent.iterdir()]
        with os.fdopen(inode, "rb") as replaced:
            files.append(replaced.read())
        for content in files:
            assert old.present not in content
            assert old.present.hex().encode() not in content

    def test_settling_again_writes_nothing(self, vault: Vault) -> None:
        vault.destroy_old_keys(lambda: {"m": 1})
        before = vault.path.stat().st_mtime_ns
        vault.destroy_old_keys(lambda: {"m": 1})
        vault.create_keys("m")
        vault.create()
        assert vault.path.stat().st_mtime_ns == before

    def test_a_model_without_a_key(self, vault: Vault) -> None:
        with pytest.raises(NeedsRestore, match="no key of model 'other'"):
            vault.read_keys("other")
        with pytest.raises(NeedsRestore, match="no key of model 'other'"):
            vault.destroy_old_keys(lambda: {"m": 1, "other": 1})

    @pytest.mark.parametrize(
        "content", ["", "{", "[]", '{"version": 2, "keys": {}}', '{"version": 1}']
    )
    def test_a_damaged_file(self, vault: Vault, content: str) -> None:
        vault.path.write_text(content)
        with pytest.raises(StoreFailed, match="damaged"):
            vault.read_keys("m")

    def test_a_file_that_is_replaced_while_it_is_read(
        self, vault: Vault, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys = vault.create_keys("m")
        really_look = os.fstat

        def replace_and_look(opened: int) -> os.stat_result:
            monkeypatch.setattr(os, "fstat", really_look)
            vault.create_keys("n")  # another thread: what this one opened is erased
            return really_look(opened)

        monkeypatch.setattr(os, "fstat", replace_and_look)
        found = vault.read_keys("m")
        assert (found.present, found.next) == (keys.present, keys.next)

    def test_a_missing_file_and_one_open_to_others(self, vault: Vault) -> None:
        vault.path.chmod(0o640)
        with pytest.raises(UnusableKey, match="chmod 600"):
            vault.read_keys("m")
        vault.path.unlink()
        with pytest.raises(UnusableKey, match="cannot be read"):
            vault.read_keys("m")

    @pytest.mark.parametrize("moment", ["before the rename", "while writing"])
    def test_a_crash_before_the_rename_leaves_the_old_keys(
        self, vault: Vault, monkeypatch: pytest.MonkeyPatch, moment: str
    ) -> None:
        before = vault.path.read_bytes()

        def crash(*arguments: object) -> None:
            raise KeyboardInterrupt

        if moment == "before the rename":
            monkeypatch.setattr(Path, "replace", crash)
        else:
            monkeypatch.setattr(os, "fsync", crash)
        # As if the process had died: nobody clears up.
        monkeypatch.setattr(disk, "destroy", lambda path: None)
        with pytest.raises(KeyboardInterrupt):
            vault.destroy_old_keys(lambda: {"m": 1})
        monkeypatch.undo()
        assert vault.path.read_bytes() == before
        vault.destroy_old_keys(lambda: {"m": 1})
        assert not list(vault.path.parent.glob(".*"))  # no draft is left
        assert (
            vault.read_keys("m").present.hex()
            == json.loads(before)["keys"]["m"]["next"]
        )


class TestCheckpoints:
    @pytest.fixture
    def checkpoints(self, tmp_path: Path) -> Checkpoints:
        made = Checkpoints(tmp_path / "checkpoints", Vault(tmp_path / "vault.json"))
        made.create()
        made.vault.create_keys("m")
        return made

    def write(self, checkpoints: Checkpoints, generation: int, *said: bytes) -> str:
        return checkpoints.write("m", generation, parts=map(memoryview, said))

    def test_only_what_is_committed_stays(self, checkpoints: Checkpoints) -> None:
        names = []
        for generation in (1, 2):
            late = self.write(checkpoints, generation, b"of one who was overtaken")
            names.append(self.write(checkpoints, generation, b"state ", b"of it"))
            assert late != names[-1]
            checkpoints.destroy_old(lambda: {"m": names[-1]})
            assert checkpoints.read(names[-1]) == b"state of it"
        there = {path.name for path in checkpoints.folder.iterdir()}
        assert there == {names[-1], "spare~m"}  # noise, kept for its blocks
        with pytest.raises(NeedsRestore):
            checkpoints.read(names[0])

    def test_what_somebody_is_about_to_commit_stays(
        self, checkpoints: Checkpoints
    ) -> None:
        first = self.write(checkpoints, 1, b"first")
        checkpoints.destroy_old(lambda: {"m": first})
        second = self.write(checkpoints, 2, b"second")
        checkpoints.destroy_old(lambda: {"m": first})
        assert checkpoints.read(second) == b"second"

    def test_one_in_pieces_larger_than_a_buffer(self, checkpoints: Checkpoints) -> None:
        pieces = [bytes([n]) * size for n, size in enumerate((3 << 20, 0, 7, 1 << 20))]
        name = self.write(checkpoints, 1, *pieces)
        assert checkpoints.read(name) == b"".join(pieces)

    def test_one_that_is_missing(self, checkpoints: Checkpoints) -> None:
        name = self.write(checkpoints, 1, b"state")
        (checkpoints.folder / name).unlink()
        with pytest.raises(NeedsRestore, match="from the same backup"):
            checkpoints.read(name)

    def test_one_that_was_altered_cut_or_moved(self, checkpoints: Checkpoints) -> None:
        name, other = (self.write(checkpoints, 1, b"state") for _ in range(2))
        sealed = (checkpoints.folder / name).read_bytes()
        foreign = (checkpoints.folder / other).read_bytes()
        for altered in (
            sealed[:-1],
            b"",
            sealed[:20] + b"?" + sealed[21:],
            foreign,
        ):
            (checkpoints.folder / name).write_bytes(altered)
            with pytest.raises(StoreFailed, match="altered"):
                checkpoints.read(name)

    def test_the_file_is_for_its_owner_alone(self, checkpoints: Checkpoints) -> None:
        path = checkpoints.folder / self.write(checkpoints, 1, b"state")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert b"state" not in path.read_bytes()


class TestSealing:
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
