# SPDX-License-Identifier: Apache-2.0
"""What a store keeps in files: the journal, keys, sealed checkpoints."""

import errno
import json
import os
import random
import stat
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from expunge import disk
from expunge.exceptions import Busy, JournalDamaged, NeedsRestore, StoreFailed
from expunge.ledger import UnusableKey
from expunge.registry.storage import Checkpoints, Journal, Vault
from expunge.registry.storage.journal import STATEMENT
from expunge.registry.storage.marks import BEGINNING, PIECE, Digest, Mark
from expunge.registry.storage.vault import new_key, seal, unseal


def said(journal: Journal, start: int = 0) -> list[dict[str, Any]]:
    """Return what a journal says from a place on."""
    return [line for _, line in journal.read(start)]


def digest_of(data: bytes) -> str:
    digest = Digest()
    digest.update(data)
    return digest.hexdigest()


class TestDigest:
    def test_is_that_of_the_pieces(self) -> None:
        data = random.Random(0).randbytes(2 * PIECE + 17)
        parts = (data[:PIECE], data[PIECE : 2 * PIECE], data[2 * PIECE :])
        joined = b"".join(sha256(part).digest() for part in parts)
        assert digest_of(data) == sha256(joined).hexdigest()
        assert digest_of(b"") == sha256(sha256().digest()).hexdigest()

    def test_is_the_same_however_it_is_made(self, tmp_path: Path) -> None:
        chance = random.Random(1)
        data = chance.randbytes(4 * PIECE + 1000)
        path = tmp_path / "file"
        path.write_bytes(data)
        with path.open("rb") as file:
            for _ in range(20):
                middle, end = sorted(chance.choices(range(len(data) + 1), k=2))
                if chance.random() < 0.3:
                    middle -= middle % PIECE
                one = Digest()
                one.read(file.fileno(), 0, end=middle)
                other = one.copy()
                one.read(file.fileno(), middle, end=end)
                assert one.hexdigest() == digest_of(data[:end])
                assert other.hexdigest() == digest_of(data[:middle])


def journal_in(folder: Path) -> Journal:
    """Return the journal in a folder, as a process has it that begins."""
    return Journal(folder / "journal", folder / "journal.mark")


class TestJournal:
    @pytest.fixture
    def journal(self, tmp_path: Path) -> Journal:
        return journal_in(tmp_path)

    def test_lines_come_back_from_any_place_that_was_returned(
        self, journal: Journal
    ) -> None:
        ends = [0, *(journal.append([{"n": n}, {"m": n}]).end for n in range(3))]
        for first, end in enumerate(ends):
            numbers = [line["n"] for line in said(journal, end) if "n" in line]
            assert numbers == list(range(first, 3))
        assert [end for end, line in journal.read(0) if "m" in line] == ends[1:]
        for path in (journal.path, journal.mark_path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_one_that_was_never_written_is_empty(self, journal: Journal) -> None:
        assert said(journal) == []
        journal.require(BEGINNING)

    @pytest.mark.parametrize("lost", [1, 2, 20, 5000])
    def test_a_line_torn_by_a_crash_is_left_out_and_overwritten(
        self, journal: Journal, tmp_path: Path, lost: int
    ) -> None:
        whole = journal.append([{"n": 0}])
        elsewhere = journal_in(tmp_path / "elsewhere")
        elsewhere.path.parent.mkdir()
        elsewhere.append([{"long": "x" * 9000}])
        with journal.path.open("ab") as file:
            file.write(elsewhere.path.read_bytes()[:-lost])
        journal.require(whole)
        assert said(journal) == [{"n": 0}]
        journal.append([{"n": 1}])
        assert said(journal) == [{"n": 0}, {"n": 1}]
        assert said(journal, whole.end) == [{"n": 1}]

    def test_a_damaged_line_with_others_behind_it_is_noticed(
        self, journal: Journal
    ) -> None:
        first = journal.append([{"accepted": [{"tags": ["0a1b"], "n": 17}]}])
        journal.append([{"n": 1}])
        content = journal.path.read_bytes()
        unnoticed = []
        for place in range(first.end - 1):
            flipped = content[place] ^ 1
            journal.path.write_bytes(
                content[:place] + bytes([flipped]) + content[place + 1 :]
            )
            try:
                said(journal)
            except JournalDamaged as error:
                assert "is damaged" in str(error) and "newest copy" in str(error)
            else:
                unnoticed.append(place)
        assert unnoticed == []

    def test_a_place_beyond_the_end_is_refused(self, journal: Journal) -> None:
        end = journal.append([{"n": 0}]).end
        with pytest.raises(JournalDamaged, match=f"ends at byte {end}, and held"):
            said(journal, end + 1)

    def test_a_statement_is_made_once(self, journal: Journal, tmp_path: Path) -> None:
        """Of two that both looked at the same place, the first one counts."""
        other = journal_in(tmp_path)
        start = journal.append([{"n": 0}]).end
        with other.lock_for_statement(start) as write:
            write({STATEMENT: ["first"]})
        journal.append([{"n": 1}])
        with pytest.raises(Busy, match="another process has written"):
            with journal.lock_for_statement(start) as write:
                write({STATEMENT: ["second"]})
        (first,) = (line[STATEMENT] for line in said(journal) if STATEMENT in line)
        assert first == ["first"]
        with journal.lock_for_statement(journal.append([{"n": 2}]).end) as write:
            write({STATEMENT: ["next"]})

    def test_processes_that_append_at_once_do_not_mix(self, journal: Journal) -> None:
        program = (
            "import sys; from pathlib import Path; "
            "from expunge.registry.storage import Journal; "
            "j = Journal(Path(sys.argv[1]), Path(sys.argv[1] + '.mark')); "
            "[j.append([{'who': sys.argv[2], 'n': n, 'pad': 'x' * 997 * (n % 7)}]) "
            "for n in range(40)]"
        )
        started = [
            subprocess.Popen([sys.executable, "-c", program, journal.path, who])
            for who in "ab"
        ]
        assert [process.wait() for process in started] == [0, 0]
        lines = said(journal)
        for who in "ab":
            mine = [line["n"] for line in lines if line["who"] == who]
            assert mine == list(range(40))
        end = journal.path.stat().st_size
        journal.require(Mark(0, end, digest_of(journal.path.read_bytes())))

    def test_an_interrupt_while_lines_of_others_are_read_is_no_damage(
        self, journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journal.append([{"n": 0}])
        journal_in(tmp_path).append([{"n": 1}])
        journal.mark_path.unlink()
        update = Digest.update

        def interrupted(digest: Digest, data: bytes) -> None:
            update(digest, data)
            if b'"n":1' in data:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Digest, "update", interrupted)
            journal.append([{"n": 2}])
        journal.append([{"n": 3}])
        assert said(journal) == [{"n": 0}, {"n": 1}, {"n": 3}]

    def test_a_full_disk_leaves_it_as_it_was(
        self, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journal.append([{"n": 0}])
        before = journal.path.read_bytes()
        write, calls = os.pwrite, iter(range(9))

        def half(descriptor: int, data: bytes, place: int) -> int:
            if next(calls):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(descriptor, data[: len(data) // 2], place)

        monkeypatch.setattr(os, "pwrite", half)
        with pytest.raises(StoreFailed, match="make room"):
            journal.append([{"n": 1, "pad": "x" * 100}])
        monkeypatch.undo()
        assert journal.path.read_bytes() == before
        journal.append([{"n": 2}])
        assert [line["n"] for line in said(journal)] == [0, 2]


class TestMarks:
    """A journal that lost something is not taken for one that never had it."""

    @pytest.fixture
    def journal(self, tmp_path: Path) -> Journal:
        journal = journal_in(tmp_path)
        for n in range(5):
            journal.append([{"n": n, "pad": "x" * 200}])
        return journal

    def marks(self, journal: Journal) -> list[Mark]:
        content = journal.path.read_bytes()
        ends = [end for end, _ in journal.read(0)]
        return [Mark(0, end, digest_of(content[:end])) for end in ends]

    def test_they_hold_for_what_was_written(
        self, journal: Journal, tmp_path: Path
    ) -> None:
        *earlier, last = self.marks(journal)
        assert journal.append([{"n": 5}]) > last > earlier[-1]
        assert str(last) > str(earlier[-1])
        assert Mark.parse(str(last)) == last
        for one in (journal, journal_in(tmp_path)):
            one.require(BEGINNING, *earlier, last)

    @pytest.mark.parametrize("kept", [True, False], ids=["beside it", "elsewhere"])
    def test_every_cut_flip_and_loss_is_noticed(
        self, journal: Journal, tmp_path: Path, kept: bool
    ) -> None:
        content, mark = journal.path.read_bytes(), self.marks(journal)[-1]
        known = () if kept else (mark,)
        if not kept:
            journal.mark_path.unlink()
        chance = random.Random(0)
        places = [chance.randrange(len(content)) for _ in range(60)]
        damaged = [content[:place] for place in places]
        damaged += [content[:place] + bytes(len(content) - place) for place in places]
        damaged += [
            content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
            for place in places
        ]
        for one in [b"", *damaged]:
            journal.path.write_bytes(one)
            for reader in (journal, journal_in(tmp_path)):
                with pytest.raises(JournalDamaged):
                    reader.require(*known)
        journal.path.unlink()
        with pytest.raises(JournalDamaged, match="is missing"):
            journal_in(tmp_path).require(*known)
        journal.path.write_bytes(content)
        journal_in(tmp_path).require(mark)

    def test_another_journal_of_the_same_length_is_refused(
        self, journal: Journal, tmp_path: Path
    ) -> None:
        mark = self.marks(journal)[-1]
        journal.path.unlink()
        journal.mark_path.unlink()
        other = journal_in(tmp_path)
        for n in reversed(range(5)):
            other.append([{"n": n, "pad": "x" * 200}])
        assert other.path.stat().st_size == mark.end
        with pytest.raises(JournalDamaged, match="is not the journal"):
            other.require(mark)

    def test_an_open_one_that_is_cut_or_replaced_is_not_written_to(
        self, journal: Journal, tmp_path: Path
    ) -> None:
        content = journal.path.read_bytes()
        os.truncate(journal.path, len(content) - 1)
        with pytest.raises(JournalDamaged, match="ends at byte"):
            journal.append([{"n": 5}])
        other = tmp_path / "other"
        other.write_bytes(content[::-1] + b"more")
        other.replace(journal.path)
        with pytest.raises(JournalDamaged, match="is damaged at byte 0"):
            journal.append([{"n": 5}])
        assert journal.path.read_bytes() == content[::-1] + b"more"

    def test_a_torn_mark_says_nothing(self, journal: Journal, tmp_path: Path) -> None:
        os.truncate(journal.mark_path, 40)
        journal_in(tmp_path).require(*self.marks(journal))


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
