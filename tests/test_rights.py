# SPDX-License-Identifier: Apache-2.0
"""Whose files are, who may change them, and what others are told."""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from expunge.exceptions import ExpungeError, StoreFailed
from expunge.ledger import UnusableKey
from expunge.registry import Registry, rebuild_journal
from tests.registries import (
    by_name,
    data_without,
    estimator,
    folder_of,
    require_consistent,
)
from tests.users import (
    NOBODY,
    as_nobody,
    give,
    killed_at,
    needs_root,
    owners,
    reachable_copy,
)

OPENING = {"open": Registry.open, "create": Registry.create}
KEYS = ("keys/sealing", "keys/tags-0", "keys/signing-0.pem")


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """Return a registry that forgot person 1."""
    return Path(shutil.copytree(template, tmp_path / "registry"))


@pytest.fixture
def theirs(template: Path) -> Iterator[Path]:
    """Lend such a registry of a user without rights."""
    with reachable_copy(template) as folder:
        give(folder, NOBODY)
        yield folder


def drafts(folder: Path) -> list[str]:
    """Return the names of what is not in its place."""
    return sorted(name for name in os.listdir(folder) if name.startswith("."))


def changes(registry: Registry, folder: Path) -> None:
    """Do whatever makes or replaces files."""
    registry.forget(["person 2"])
    registry.keys.rotate_signing_key()
    registry.keys.rotate_tag_key()
    rest = data_without("person 1", "person 2")
    registry.fit("third", estimator(), **by_name(rest))
    registry.models.ship("third", folder / "model.safetensors")
    registry.forget(["person 3"])


@needs_root
class TestRoot:
    """Who runs one command as root does not shut the owner out."""

    def test_leaves_every_file_to_the_owner_of_the_folder(self, theirs: Path) -> None:
        (theirs / "worker.lock").unlink()  # made again
        with Registry.open(theirs) as registry:
            changes(registry, theirs)
            assert (theirs / "expunge.db-wal").exists()
            assert (theirs / "expunge.db-shm").exists()
            assert {*owners(theirs).values()} == {(NOBODY, NOBODY)}
        assert {*owners(theirs).values()} == {(NOBODY, NOBODY)}
        with as_nobody(), Registry.open(theirs) as registry:
            registry.forget(["person 4"])
            require_consistent(registry)

    def test_restores_for_the_owner(self, theirs: Path) -> None:
        backup = Path(shutil.copytree(theirs, theirs.with_name("backup")))
        with Registry.open(theirs) as registry:
            registry.forget(["person 2"])
        assert {*owners(backup).values()} == {(0, 0)}  # a copy that root made
        with Registry.restore(theirs, backup):
            pass
        assert {*owners(theirs).values()} == {(NOBODY, NOBODY)}
        with as_nobody(), Registry.open(theirs) as registry:
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}

    def test_rebuilds_a_journal_in_a_shared_folder_for_the_owner(
        self, theirs: Path
    ) -> None:
        disk = theirs.with_name("disk")
        disk.mkdir()
        disk.chmod(0o1777)
        journal = disk / "journal"
        (theirs / "journal").rename(journal)
        (theirs / "journal").symlink_to(journal)
        journal.write_bytes(journal.read_bytes()[:-9])
        rebuild_journal(theirs)
        assert journal.stat().st_uid == NOBODY
        with as_nobody(), Registry.open(theirs) as registry:
            registry.forget(["person 2"])

    def test_makes_a_registry_in_the_folder_of_another(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o700)
        os.chown(tmp_path, NOBODY, NOBODY)
        with Registry.create(tmp_path) as registry:
            registry.fit("all", estimator(), **by_name(data_without()))
        found = owners(tmp_path)
        assert {"keys", "checkpoints", "registry.json", "journal"} <= {*found}
        assert {*found.values()} == {(NOBODY, NOBODY)}

    def test_keeps_what_is_root_s_own(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
        assert {*owners(folder).values()} == {(0, 0)}


@needs_root
class TestWhatIsSaid:
    @pytest.mark.parametrize("name", ["registry.json", "expunge.db", "journal", *KEYS])
    def test_of_a_file_that_root_left_behind(self, theirs: Path, name: str) -> None:
        """The only current key is there: nobody is told to put an older one back."""
        path = theirs / name
        os.chown(path, 0, 0)
        with as_nobody(), pytest.raises(ExpungeError) as refusal:
            Registry.open(theirs)
        said = str(refusal.value)
        assert f"{path} belongs to root and this user is nobody" in said
        assert f"run chown nobody {path}" in said
        assert "backup" not in said and "restore" not in said
        assert isinstance(refusal.value, UnusableKey if name in KEYS else StoreFailed)
        os.chown(path, NOBODY, NOBODY)
        with as_nobody(), Registry.open(theirs) as registry:
            registry.forget(["person 2"])

    def test_of_a_lock_that_root_left_behind(self, theirs: Path) -> None:
        path = theirs / "worker.lock"
        os.chown(path, 0, 0)
        with as_nobody(), Registry.open(theirs) as registry:
            said = f"{path} belongs to root and this user is nobody; run chown nobody"
            with pytest.raises(StoreFailed, match=said):
                registry.forget(["person 2"])

    @pytest.mark.parametrize("name", ["keys", "checkpoints"])
    def test_of_a_folder_that_root_left_behind(self, theirs: Path, name: str) -> None:
        os.chown(theirs / name, 0, 0)
        said = f"{theirs / name} belongs to root and .* run chown nobody"
        with as_nobody(), pytest.raises(StoreFailed, match=said):
            Registry.open(theirs)

    def test_to_the_wrong_user(self, theirs: Path) -> None:
        give(theirs, 0)
        said = f"json cannot be used: {theirs} belongs to root .*; run this as root"
        with as_nobody(), pytest.raises(StoreFailed, match=said):
            Registry.open(theirs)

    @pytest.mark.parametrize(
        ("name", "mode", "private"),
        [
            ("keys/sealing", 0o000, 600),
            ("keys", 0o000, 700),
            ("journal", 0o200, 600),
        ],
    )
    def test_of_a_mode_that_shuts_the_owner_out(
        self, theirs: Path, name: str, mode: int, private: int
    ) -> None:
        path = theirs / name
        path.chmod(mode)
        said = rf"{path} has mode {mode:04o}, .* run chmod {private} {path}"
        with as_nobody(), pytest.raises(ExpungeError, match=said):
            Registry.open(theirs)

    def test_of_a_missing_key(self, folder: Path) -> None:
        (folder / "keys/sealing").unlink()
        with pytest.raises(UnusableKey, match="put it back from its newest copy"):
            Registry.open(folder)


class TestOpenToOthers:
    """What others may change is refused, as a key that others may read is."""

    FILES = ("registry.json", "public.pem", "expunge.db", "journal")

    @pytest.mark.parametrize("how", OPENING)
    @pytest.mark.parametrize("more", [0o020, 0o002])
    @pytest.mark.parametrize("name", [".", "keys", "checkpoints", *FILES])
    def test_is_refused(self, folder: Path, name: str, more: int, how: str) -> None:
        path = folder / name
        mode = path.stat().st_mode & 0o777
        path.chmod(mode | more)
        said = f"mode {mode | more:04o}: others may change it; .* chmod go-w {path}"
        with pytest.raises(StoreFailed, match=said):
            OPENING[how](folder)
        path.chmod(mode)
        OPENING[how](folder).close()

    @pytest.mark.parametrize("end", ["-wal", "-shm"])
    def test_beside_the_database(self, folder: Path, end: str) -> None:
        with Registry.open(folder) as registry:
            registry.models.names()
            path = folder / f"expunge.db{end}"
            path.chmod(0o606)
            with pytest.raises(StoreFailed, match=f"chmod go-w {path}"):
                Registry.open(folder)

    @pytest.mark.parametrize("mode", [0o620, 0o602, 0o640])
    @pytest.mark.parametrize("name", KEYS)
    def test_keys(self, folder: Path, name: str, mode: int) -> None:
        (folder / name).chmod(mode)
        with pytest.raises(UnusableKey, match=rf"mode {mode:04o}.*chmod 600"):
            Registry.open(folder)

    def test_at_a_restore(self, folder: Path, template: Path) -> None:
        folder.chmod(0o777)
        with pytest.raises(StoreFailed, match="mode 0777"):
            Registry.restore(folder, template)

    def test_before_a_registry_is_made(self, tmp_path: Path) -> None:
        folder = tmp_path / "registry"
        folder.mkdir()
        folder.chmod(0o775)
        with pytest.raises(StoreFailed, match="mode 0775"):
            Registry.create(folder)
        assert os.listdir(folder) == []

    def test_on_each_store(self, registry: Registry) -> None:
        folder = folder_of(registry)
        registry.close()
        (folder / "journal").chmod(0o622)
        with pytest.raises(StoreFailed, match="mode 0622"):
            Registry.open(folder)
        (folder / "journal").chmod(0o600)
        Registry.open(folder).close()

    def test_what_others_may_read_is_no_matter(self, folder: Path) -> None:
        for path in (folder, folder / "checkpoints", folder / "public.pem"):
            path.chmod(0o755)
        Registry.open(folder).close()


class TestJournalOnAnotherDisk:
    """It may be a link: a backup of the journal's disk is another than of the rest."""

    @pytest.fixture
    def journal(self, folder: Path, tmp_path: Path) -> Path:
        """Return the file to which the journal of the folder is a link."""
        place = tmp_path / "disk"
        place.mkdir(mode=0o755)
        (folder / "journal").rename(place / "journal")
        (folder / "journal").symlink_to("../disk/journal")
        return place / "journal"

    def test_is_written_there(self, folder: Path, journal: Path) -> None:
        before = journal.stat()
        with Registry.open(folder) as registry:
            assert registry.status().n_requests == 1
            registry.forget(["person 2"])
        after = journal.stat()
        assert after.st_ino == before.st_ino and after.st_size > before.st_size
        assert (folder / "journal").is_symlink()

    def test_is_read_there_at_a_restore(
        self, folder: Path, journal: Path, template: Path
    ) -> None:
        with Registry.open(folder) as registry:
            receipt = registry.forget(["person 2"], "a" * 32)
        size = journal.stat().st_size
        with Registry.restore(folder, template) as registry:
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            assert registry.requests.receipt("a" * 32) == receipt
            require_consistent(registry)
        assert journal.stat().st_size > size and (folder / "journal").is_symlink()

    def test_keeps_no_leftovers_there(self, folder: Path, journal: Path) -> None:
        """Whenever a rebuild is killed, nothing with tags in it stays on that disk."""
        journal.write_bytes(journal.read_bytes()[:-9])
        damaged, place, left = journal.read_bytes(), 0, 0
        (journal.parent / ".strangers.new").touch()
        before = folder.with_name("before")
        shutil.copytree(folder, before, symlinks=True)
        while killed_at(place, partial(rebuild_journal, folder)):
            left += len(drafts(journal.parent)) > 1
            rebuild_journal(folder)
            Registry.open(folder).close()
            assert drafts(journal.parent) == [".strangers.new"]
            shutil.rmtree(folder)
            shutil.copytree(before, folder, symlinks=True)
            journal.write_bytes(damaged)
            place += 1
        assert left > 3

    @pytest.mark.parametrize("fault", ["missing", "no disk", "itself"])
    def test_that_is_not_there_is_refused(
        self, folder: Path, journal: Path, template: Path, fault: str
    ) -> None:
        """Without it people would come back, and a new one would be begun."""
        if fault == "missing":
            journal.unlink()
        elif fault == "no disk":
            shutil.rmtree(journal.parent)
        else:
            (folder / "journal").unlink()
            (folder / "journal").symlink_to("journal")
        for come_back in OPENING.values():
            with pytest.raises(StoreFailed, match="journal"):
                come_back(folder)
        with pytest.raises(StoreFailed, match="journal"):
            Registry.restore(folder, template)
        assert not (folder / "journal").exists()

    @pytest.mark.parametrize(
        ("mode", "of_folder"), [(0o602, 0o755), (0o600, 0o777), (0o620, 0o755)]
    )
    def test_that_others_may_change_is_refused(
        self, folder: Path, journal: Path, mode: int, of_folder: int
    ) -> None:
        journal.chmod(mode)
        journal.parent.chmod(of_folder)
        with pytest.raises(StoreFailed, match="others may change it"):
            Registry.open(folder)

    def test_among_files_that_others_cannot_replace(
        self, folder: Path, journal: Path
    ) -> None:
        journal.parent.chmod(0o1777)
        Registry.open(folder).close()
