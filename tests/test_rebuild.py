# SPDX-License-Identifier: Apache-2.0
"""A rebuilt journal: nothing older passes for it, and a kill leaves a way on."""

import errno
import os
import shutil
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from expunge.exceptions import (
    ExpungeError,
    JournalDamaged,
    NeedsRestore,
    StoreFailed,
)
from expunge.registry import Registry, Request, rebuild_journal
from tests.registries import (
    after,
    crash_at,
    crash_with_a_line_in_the_journal_alone,
    dump_of,
    failing_at,
    put_back,
    registry_at,
    require_consistent,
)
from tests.thorough import either
from tests.users import killed_at

ONE, OTHER = "a" * 32, "b" * 32
DAMAGES = ["flipped", "cut", "missing", "ahead"]
MANY = [Request((f"person {i}",)) for i in range(31, 56)]


def flip(path: Path, place: int = 300) -> None:
    """Flip a bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def put_database_back(folder: Path, backup: Path) -> None:
    """Put database, keys and checkpoints back by hand."""
    for path in folder.glob("expunge.db*"):
        path.unlink()
    for name in ("expunge.db", "keys/sealing"):
        shutil.copy(backup / name, folder / name)
    shutil.rmtree(folder / "checkpoints")
    shutil.copytree(backup / "checkpoints", folder / "checkpoints")


def hidden(folder: Path) -> list[Path]:
    return list(folder.rglob(".*"))


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """Return a registry that forgot person 2 since it was copied to ``backup``."""
    shutil.copytree(template, tmp_path / "backup")
    folder = Path(shutil.copytree(template, tmp_path / "registry"))
    with Registry.open(folder) as registry:
        registry.forget(["person 2"], ONE)
    return folder


def test_a_withdrawal_survives(folder: Path, tmp_path: Path) -> None:
    """An entry has the day alone; the release left at some hour of that day."""
    with Registry.open(folder) as registry:
        left = registry.models.ship("all", tmp_path / "model.safetensors")
        registry.forget(["person 3"])
    later = shutil.copytree(folder, tmp_path / "later")
    with Registry.open(folder) as registry:
        assert [one.number for one in registry.status().outstanding] == [left.number]
        registry.models.withdraw("all", left.number)
    (folder / "journal").unlink()
    rebuild_journal(folder)
    with Registry.restore(folder, later) as registry:
        assert registry.status().outstanding == ()
        require_consistent(registry)


class TestAnOlderDatabase:
    """Put back by hand after the journal was rebuilt."""

    @pytest.fixture
    def rebuilt(self, template: Path, tmp_path: Path) -> Path:
        """Return a registry whose journal is shorter since it was rebuilt."""
        folder = Path(shutil.copytree(template, tmp_path / "registry"))
        with Registry.open(folder) as registry:
            registry.requests.accept(MANY)
            registry.requests.apply()
        shutil.copytree(folder, tmp_path / "backup")
        (folder / "journal").unlink()
        assert rebuild_journal(folder) == 1 + len(MANY)
        shutil.copy(folder / "journal", tmp_path / "rebuilt")
        with Registry.open(folder) as registry:
            registry.forget(["person 2"], ONE)
        put_database_back(folder, tmp_path / "backup")
        return folder

    @pytest.mark.parametrize("journal", ["newest", "rebuilt", "backup/journal", None])
    def test_cannot_write_the_journal_again(
        self, rebuilt: Path, tmp_path: Path, journal: str | None
    ) -> None:
        newest = (rebuilt / "journal").read_bytes()
        if journal is None:
            (rebuilt / "journal").unlink()
        elif journal != "newest":
            shutil.copy(tmp_path / journal, rebuilt / "journal")
        there = (rebuilt / "journal").exists()
        with pytest.raises((JournalDamaged, NeedsRestore)):
            Registry.open(rebuilt)
        with pytest.raises(NeedsRestore, match="put back from a backup"):
            rebuild_journal(rebuilt)
        assert (rebuilt / "journal").exists() == there
        (rebuilt / "journal").write_bytes(newest)
        with Registry.restore(rebuilt, tmp_path / "backup") as registry:
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            assert registry.requests.receipt(ONE)
            require_consistent(registry)

    def test_is_noticed_by_the_journal_alone(self, rebuilt: Path) -> None:
        (rebuilt / "journal.mark").unlink()
        for act in (Registry.open, rebuild_journal):
            with pytest.raises(NeedsRestore, match="put back from a backup"):
                act(rebuilt)

    def test_is_noticed_by_who_has_it_open(self, folder: Path) -> None:
        backup = folder.with_name("backup")
        with Registry.open(folder) as registry:
            flip(folder / "journal")
            rebuild_journal(folder)
            put_database_back(folder, backup)
            with pytest.raises(NeedsRestore):
                registry.status()
            with pytest.raises(NeedsRestore):
                registry.requests.accept([Request(("person 3",))])

    def test_comes_back_by_a_restore(self, folder: Path) -> None:
        """No name was lost, so nothing is in the way."""
        journal, backup = folder / "journal", folder.with_name("backup")
        journal.write_bytes(journal.read_bytes()[:-9])
        assert rebuild_journal(folder) == 0
        put_database_back(folder, backup)
        with Registry.restore(folder, backup) as registry:
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            require_consistent(registry)
            registry.forget(["person 3"])
        Registry.open(folder).close()

    def test_comes_back_on_postgresql(self, tmp_path: Path, database_url: str) -> None:
        folder, backup = tmp_path / "registry", tmp_path / "backup"
        with registry_at(folder, database_url) as registry:
            dump = dump_of(registry)
            shutil.copytree(folder, backup)
            receipt = registry.forget(["person 2"], ONE)
        journal = folder / "journal"
        journal.write_bytes(journal.read_bytes()[:-9])
        assert rebuild_journal(folder) == 0
        with Registry.open(folder) as registry:
            put_back(registry, dump)
        with pytest.raises(NeedsRestore):
            Registry.open(folder)
        with Registry.restore(folder, backup) as registry:
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            assert registry.requests.receipt(ONE) == receipt
            require_consistent(registry)


def test_a_request_that_is_not_completed_yet_counts(folder: Path) -> None:
    """It was killed before its statement, and the line with its people is lost."""
    with Registry.open(folder) as registry:
        registry.requests.accept([Request(("person 3",))])
        with crash_at("stating"):
            registry.requests.apply()
    journal = folder / "journal"
    *lines, _ = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines))
    assert rebuild_journal(folder) == 1


class TestAnOlderMark:
    @pytest.mark.parametrize("damage", ["missing", "flipped"])
    def test_does_no_harm(self, folder: Path, damage: str) -> None:
        """A power cut may bring back the mark from before the rebuild."""
        journal, mark = folder / "journal", folder / "journal.mark"
        older = mark.read_bytes()
        flip(journal)
        if damage == "missing":
            journal.unlink()
        rebuild_journal(folder)
        mark.write_bytes(older)
        with Registry.open(folder) as registry:
            registry.status()
        journal.unlink()
        mark.write_bytes(older)
        rebuild_journal(folder)
        with Registry.open(folder) as registry:
            registry.forget(["person 3"])
            require_consistent(registry)

    def test_is_flushed_when_the_journal_is_rebuilt(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, flushed = os.fsync, []

        def fsync(descriptor: int) -> None:
            real(descriptor)
            flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))

        flip(folder / "journal")
        monkeypatch.setattr(os, "fsync", fsync)
        rebuild_journal(folder)
        assert str(folder / "journal.mark") in flushed


class TestAFullDisk:
    def test_leaves_no_draft(self, folder: Path) -> None:
        flip(folder / "journal")
        no_room = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with failing_at("placing a new journal", no_room):
            with pytest.raises(StoreFailed, match="make room"):
                rebuild_journal(folder)
        assert not hidden(folder)
        rebuild_journal(folder)
        Registry.open(folder).close()


class TestOthersAtWork:
    def test_one_that_stays_open_goes_on(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            flip(folder / "journal")
            rebuild_journal(folder)
            registry.forget(["person 3"], OTHER)
            require_consistent(registry)
        assert OTHER.encode() in (folder / "journal").read_bytes()

    def test_a_request_accepted_meanwhile_is_in_the_new_one(self, folder: Path) -> None:
        """It waits, or comes first; either way it is in both, and survives a loss."""
        waiting = Request(("person 7",), OTHER)

        def send() -> None:
            sender.start()
            sender.join(0.3)

        with Registry.open(folder) as first:
            sender = Thread(target=lambda: first.requests.accept([waiting]))
            with Registry.open(folder) as second:
                second.requests.accept([Request(("person 5",))])
            journal = folder / "journal"
            journal.write_bytes(journal.read_bytes()[:-9])
            with after("finding lines for a new journal", send):
                rebuild_journal(folder)
            sender.join()
            assert first.requests.status(OTHER).stage == "accepted"
        for path in folder.glob("expunge.db*"):
            path.unlink()
        with Registry.restore(folder, folder.with_name("backup")) as registry:
            assert registry.requests.status(OTHER).stage == "accepted"


class TestKilled:
    """At calls to the system, by a signal that nobody can catch.

    Each damage begins at another call, so that together they come to all of them.
    """

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_anywhere_while_it_is_rebuilt(
        self, folder: Path, tmp_path: Path, damage: str
    ) -> None:
        with Registry.open(folder) as registry:
            registry.requests.accept([Request(("person 7",), OTHER)])
            receipt, export = registry.requests.receipt(ONE), registry.ledger.export()
            if damage == "ahead":  # a crash left a line in the journal alone
                self.accept_in_the_journal_alone(registry)
        journal = folder / "journal"
        if damage == "cut":
            journal.write_bytes(journal.read_bytes()[:-9])
        elif damage == "missing":
            journal.unlink()
        else:
            flip(journal)
        latest = Path(shutil.copytree(folder, tmp_path / "latest"))
        place = either(DAMAGES.index(damage), thorough=0)
        while killed_at(place, partial(rebuild_journal, folder)):
            self.go_on(folder)
            with Registry.open(folder) as registry:
                assert registry.requests.receipt(ONE) == receipt
                assert registry.ledger.export() == export
                assert registry.requests.status(OTHER).stage == "accepted"
                registry.requests.apply()
                require_consistent(registry)
            assert not hidden(folder)
            shutil.rmtree(folder)
            shutil.copytree(latest, folder)
            place += either(len(DAMAGES), thorough=1)
        assert place > 15

    def accept_in_the_journal_alone(self, registry: Registry) -> None:
        with crash_with_a_line_in_the_journal_alone():
            registry.requests.accept([Request(("person 8",))])

    def go_on(self, folder: Path) -> None:
        """Open the registry, or do first what the refusal says."""
        try:
            Registry.open(folder).close()
        except ExpungeError as error:
            assert "restore --journal" in str(error), error
            rebuild_journal(folder)


def test_damage_beyond_every_mark_is_mended(folder: Path) -> None:
    (folder / "journal.mark").unlink()
    lines = (folder / "journal").read_bytes().splitlines(keepends=True)
    accepted = next(line for line in lines if b'"accepted"' in line)
    with (folder / "journal").open("ab") as journal:
        journal.write(b"no line of a journal\n" + accepted)
    with pytest.raises(JournalDamaged):
        Registry.open(folder)
    assert rebuild_journal(folder) == 0
    assert rebuild_journal(folder) is None  # it is sound now
    with Registry.open(folder) as registry:
        require_consistent(registry)
