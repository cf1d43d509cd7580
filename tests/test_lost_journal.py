# SPDX-License-Identifier: Apache-2.0
"""A journal that lost something: it is noticed, and nobody comes back meanwhile."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from expunge.exceptions import (
    ExpungeError,
    InvalidInput,
    JournalDamaged,
    LedgerCorrupt,
    NeedsRestore,
    StoreFailed,
)
from expunge.registry import Registry, Request, rebuild_journal
from tests.registries import (
    JournalIncomplete,
    by_name,
    catch_up,
    crash_at,
    crash_with_a_line_in_the_journal_alone,
    crash_with_a_statement_in_the_journal_alone,
    data,
    data_without,
    dump_of,
    estimator,
    harm,
    knows_its_journal,
    lose_database,
    marked_like,
    put_back,
    registry_at,
    rename_in_journal,
    require_consistent,
    skipped,
    working,
)

ONE = "a" * 32
Damage = Callable[[bytes, random.Random, bytes], bytes | None]


def flipped(content: bytes, chance: random.Random, older: bytes) -> bytes:
    place = chance.randrange(len(content))
    changed = bytearray(content)
    changed[place] ^= 1 << chance.randrange(8)
    return bytes(changed)


def zeroed(content: bytes, chance: random.Random, older: bytes) -> bytes:
    place = chance.randrange(len(content))
    return content[:place] + bytes(len(content) - place)


DAMAGES: dict[str, Damage] = {
    "cut": lambda content, chance, older: content[: chance.randrange(len(content))],
    "zeroed": zeroed,
    "flipped": flipped,
    "empty": lambda content, chance, older: b"",
    "older": lambda content, chance, older: older,
    "missing": lambda content, chance, older: None,
}


def everything(folder: Path) -> dict[str, bytes]:
    """Return all files but those that are there while a database is open."""
    return {
        str(path): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def damaged(folder: Path, damage: str, seed: int = 0) -> bytes:
    """Damage the journal; return what it was."""
    path, older = folder / "journal", folder.with_name("backup") / "journal"
    content = path.read_bytes()
    left = DAMAGES[damage](content, random.Random(seed), older.read_bytes())
    path.unlink()
    if left is not None:
        path.write_bytes(left)
        path.chmod(0o600)
    return content


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """Return a registry that forgot person 2 since it was copied to ``backup``."""
    shutil.copytree(template, tmp_path / "backup")
    folder = Path(shutil.copytree(template, tmp_path / "registry"))
    with Registry.open(folder) as registry:
        registry.forget(["person 2"], ONE)
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
class TestIsNoticed:
    def test_when_a_registry_is_opened(self, folder: Path, damage: str) -> None:
        for seed in range(10):
            content = damaged(folder, damage, seed)
            before = everything(folder)
            for come_back in (Registry.open, Registry.create):
                with pytest.raises(JournalDamaged, match="newest copy"):
                    come_back(folder)
            assert everything(folder) == before
            (folder / "journal").write_bytes(content)
        Registry.open(folder).close()

    def test_by_one_that_is_open(self, folder: Path, damage: str) -> None:
        """A flipped bit shows at the next look at the whole, a lost end at once."""
        X, y, subjects = data()
        with Registry.open(folder) as registry:
            damaged(folder, damage)
            with pytest.raises(JournalDamaged):
                registry.status()
            with pytest.raises(JournalDamaged):
                registry.fit("again", estimator(), X, y, subjects=subjects)
            with pytest.raises(JournalDamaged):
                registry.forget(["person 3"])
            assert registry.models.names() == ["all", "half"]

    @pytest.mark.parametrize("database", ["in use", "lost", "from the backup"])
    def test_before_anything_is_restored(
        self, folder: Path, damage: str, database: str
    ) -> None:
        backup = folder.with_name("backup")
        if database != "in use":
            for path in folder.glob("expunge.db*"):
                path.unlink()
        if database == "from the backup":
            shutil.copy(backup / "expunge.db", folder)
        for seed in range(5):
            content = damaged(folder, damage, seed)
            before = everything(folder)
            with pytest.raises(JournalDamaged):
                Registry.restore(folder, backup)
            assert everything(folder) == before
            (folder / "journal").write_bytes(content)
        with Registry.restore(folder, backup) as registry:
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            require_consistent(registry)

    def test_by_the_database_alone(self, folder: Path, damage: str) -> None:
        """The mark beside the journal may be lost with it."""
        (folder / "journal.mark").unlink()
        damaged(folder, damage)
        with pytest.raises(JournalDamaged):
            Registry.open(folder)
        with pytest.raises(JournalDamaged):
            Registry.restore(folder, folder.with_name("backup"))


class TestAnOlderOnePutBack:
    """Under a process that had the registry open before the rest was written."""

    @pytest.mark.parametrize("act", ["accept", "readmit", "ship", "withdraw", "rotate"])
    def test_is_not_written_to(self, template: Path, tmp_path: Path, act: str) -> None:
        folder = Path(shutil.copytree(template, tmp_path / "registry"))
        file, older = tmp_path / "model.safetensors", (folder / "journal").read_bytes()
        waiting = [Request((f"person {i}",)) for i in range(3, 33)]
        with Registry.open(folder) as first:
            left = first.models.ship("all", file)
            older = (folder / "journal").read_bytes()
            acts: dict[str, Callable[[], object]] = {
                "accept": lambda: first.requests.accept(waiting),
                "readmit": lambda: first.requests.readmit(["person 1"]),
                "ship": lambda: first.models.ship("all", file),
                "withdraw": lambda: first.models.withdraw("all", left.number),
                "rotate": first.keys.rotate_signing_key,
            }
            with Registry.open(folder) as second:
                second.forget(["person 2"], ONE)
            (folder / "journal").write_bytes(older)
            before = everything(folder)
            with pytest.raises(JournalDamaged):
                acts[act]()
            assert everything(folder) == before

    def test_is_told_by_the_mark_beside_it_alone(
        self, template: Path, tmp_path: Path
    ) -> None:
        """The database was put back as well."""
        folder = Path(shutil.copytree(template, tmp_path / "registry"))
        with Registry.open(folder) as first:
            with Registry.open(folder) as second:
                second.forget(["person 2"], ONE)
            for path in folder.glob("expunge.db*"):
                path.unlink()
            for name in ("expunge.db", "journal"):
                shutil.copy(template / name, folder / name)
            with pytest.raises(JournalDamaged):
                first.requests.accept([Request(("person 4",))])
        with pytest.raises(JournalDamaged):
            Registry.restore(folder, template)


class TestAfterACrash:
    """A statement that only the journal had is taken in, with the mark after it."""

    @pytest.fixture
    def recovered(self, template: Path, tmp_path: Path) -> Path:
        shutil.copytree(template, tmp_path / "backup")
        folder = Path(shutil.copytree(template, tmp_path / "registry"))
        with Registry.open(folder) as registry:
            with crash_with_a_line_in_the_journal_alone():
                registry.requests.accept([Request(("person 2",), ONE)])
        self.require_marked(folder)
        with Registry.open(folder) as registry:
            with crash_with_a_statement_in_the_journal_alone():
                registry.requests.apply()
        self.require_marked(folder)
        return folder

    def require_marked(self, folder: Path) -> None:
        """See that the database knows the whole journal, once it has caught up."""
        with Registry.open(folder) as registry:
            catch_up(registry)
            assert knows_its_journal(registry)

    def test_a_flipped_bit_is_noticed_without_the_mark_beside_it(
        self, recovered: Path
    ) -> None:
        journal = recovered / "journal"
        content = bytearray(journal.read_bytes())
        content[-100] ^= 1
        journal.write_bytes(content)
        (recovered / "journal.mark").unlink()
        with pytest.raises(JournalDamaged):
            Registry.open(recovered)

    def test_the_journal_can_be_rebuilt(self, recovered: Path) -> None:
        with Registry.open(recovered) as registry:
            receipt = registry.requests.receipt(ONE)
        journal = recovered / "journal"
        content = bytearray(journal.read_bytes())
        content[-100] ^= 1
        journal.write_bytes(content)
        assert rebuild_journal(recovered) == 0
        with Registry.open(recovered) as registry:
            assert registry.requests.receipt(ONE) == receipt
            require_consistent(registry)


class TestOnPostgresql:
    def test_an_older_dump_with_a_shorter_journal(
        self, tmp_path: Path, database_url: str
    ) -> None:
        folder, backup = tmp_path / "registry", tmp_path / "backup"
        with registry_at(folder, database_url) as registry:
            dump = dump_of(registry)
            shutil.copytree(folder, backup)
            registry.forget(["person 2"], ONE)
            put_back(registry, dump)
        for damage in DAMAGES:
            content = damaged(folder, damage)
            for come_back in (Registry.open, lambda at: Registry.restore(at, backup)):
                with pytest.raises(JournalDamaged):
                    come_back(folder)
            (folder / "journal").write_bytes(content)
        with Registry.restore(folder, backup) as registry:
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            require_consistent(registry)


class TestRestoring:
    def test_never_contradicts_a_head_that_is_in_use(
        self, folder: Path, tmp_path: Path
    ) -> None:
        """Even where every mark was lost, the database knows what was signed."""
        backup = folder.with_name("backup")
        shutil.copy(backup / "journal", folder)
        (folder / "journal.mark").unlink()
        with Registry.open(backup) as other, marked_like(other):
            with pytest.raises(LedgerCorrupt, match="signed head"):
                Registry.restore(folder, backup)

    def test_says_when_it_cannot_know_who_was_forgotten(self, folder: Path) -> None:
        """A journal that tells of a completion and not of whom it was about."""
        backup = folder.with_name("backup")
        rename_in_journal(folder, ONE, "b" * 32)
        lose_database(folder)
        with pytest.raises(StoreFailed, match=r"who some completed requests \(1\)"):
            Registry.restore(folder, backup)

    @pytest.mark.parametrize("missing", ["checkpoints", "keys"])
    def test_needs_the_folders_of_the_registry(
        self, folder: Path, missing: str
    ) -> None:
        (folder / missing).rename(folder.with_name("elsewhere"))
        before = everything(folder)
        with pytest.raises(StoreFailed, match=f"{missing} is missing"):
            Registry.restore(folder, folder.with_name("backup"))
        assert everything(folder) == before


class TestRebuilding:
    @pytest.mark.parametrize("damage", DAMAGES)
    def test_leaves_nothing_out_but_names(self, folder: Path, damage: str) -> None:
        """Who was forgotten is known as far as lines are whole; else it is told."""
        backup = folder.with_name("backup")
        with Registry.open(folder) as registry:
            waiting = registry.requests.accept([Request(("person 4",))])[0].request
            receipt, export = registry.requests.receipt(ONE), registry.ledger.export()
        damaged(folder, damage)
        n_unnamed = rebuild_journal(folder)
        assert n_unnamed is not None and n_unnamed <= 2
        if damage in ("empty", "missing"):
            assert n_unnamed == 2  # of person 1 and of person 2
        assert rebuild_journal(folder) is None  # nothing is left to be done
        with Registry.open(folder) as registry:
            assert (registry.requests.receipt(ONE), registry.ledger.export()) == (
                receipt,
                export,
            )
            registry.requests.apply()
            assert registry.requests.status(waiting).stage == "completed"
            final = registry.requests.receipt(waiting)
            require_consistent(registry)
        rest = by_name(data_without("person 1", "person 2", "person 4"))
        with Registry.open(folder) as registry:
            if n_unnamed:
                with pytest.warns(JournalIncomplete, match="does not say who"):
                    registry.fit("new", estimator(), **rest)
            else:
                registry.fit("new", estimator(), **rest)
        shutil.rmtree(backup)
        shutil.copytree(folder, backup)
        with Registry.restore(folder, backup) as registry:
            assert registry.requests.receipt(waiting) == final
            require_consistent(registry)

    def test_an_older_backup_is_refused_if_names_are_lost(self, folder: Path) -> None:
        damaged(folder, "missing")
        assert rebuild_journal(folder) == 2
        with pytest.raises(StoreFailed, match=r"who some completed requests \(1\)"):
            Registry.restore(folder, folder.with_name("backup"))

    def test_an_older_backup_comes_back_if_none_are(self, folder: Path) -> None:
        """Only the last line is lost, which tells of the completion."""
        path = folder / "journal"
        path.write_bytes(path.read_bytes()[:-9])
        assert rebuild_journal(folder) == 0
        with Registry.open(folder) as registry:
            receipt = registry.requests.receipt(ONE)
        with Registry.restore(folder, folder.with_name("backup")) as registry:
            assert registry.requests.receipt(ONE) == receipt
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            require_consistent(registry)

    def test_is_refused_from_a_database_that_is_older(self, folder: Path) -> None:
        backup = folder.with_name("backup")
        for name in ("expunge.db", "keys/sealing"):
            shutil.copy(backup / name, folder / name)
        damaged(folder, "cut")
        with pytest.raises(NeedsRestore, match="put back from a backup"):
            rebuild_journal(folder)

    def test_brings_back_what_left(self, folder: Path, tmp_path: Path) -> None:
        with Registry.open(folder) as registry:
            registry.models.ship("all", tmp_path / "model.safetensors")
            registry.forget(["person 4"])
            before = registry.status().outstanding
        shutil.rmtree(folder.with_name("backup"))
        shutil.copytree(folder, folder.with_name("backup"))
        damaged(folder, "empty")
        rebuild_journal(folder)
        with Registry.restore(folder, folder.with_name("backup")) as registry:
            assert registry.status().outstanding == before != ()


class TestTornBackups:
    """Copied file by file while the registry was in use, or damaged since."""

    @pytest.mark.parametrize(
        "how",
        [
            "a certificate that is no text",
            "another certificate",
            "another entry",
            "rows of zeros",
            "other keys",
            "a request without a name",
        ],
    )
    def test_are_refused(self, folder: Path, how: str) -> None:
        backup = folder.with_name("backup")
        harm(backup, how)
        before = everything(folder)
        with pytest.raises(InvalidInput, match="take another one: nothing was"):
            Registry.restore(folder, backup)
        assert everything(folder) == before

    def test_of_a_database_and_a_checkpoint_of_two_moments(self, folder: Path) -> None:
        backup = folder.with_name("backup")
        shutil.rmtree(backup / "checkpoints")
        shutil.copytree(folder / "checkpoints", backup / "checkpoints")
        before = everything(folder)
        with pytest.raises(ExpungeError):
            Registry.restore(folder, backup)
        assert everything(folder) == before


class TestKilledWhileRestoring:
    def test_leaves_nothing_behind_for_good(self, folder: Path) -> None:
        """Neither the staged database nor a draft outlives the next opening."""
        with (
            skipped("destroying the copy of a backup"),
            crash_at("replacing the database"),
        ):
            Registry.restore(folder, folder.with_name("backup"))
        drafts = [folder / ".expunge.db.new-wal", folder / "keys" / ".sealing.new"]
        for path in drafts:
            path.write_bytes(b"secret")
        assert (folder / ".expunge.db.new").exists()
        with Registry.open(folder) as first:
            with working(first):
                Registry.open(folder).close()  # somebody is at work: nothing is touched
        assert not list(folder.rglob(".*"))
