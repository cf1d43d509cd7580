# SPDX-License-Identifier: Apache-2.0
"""The last signed head outside the folder: what it notices, and what it holds up."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from expunge.exceptions import (
    InvalidInput,
    LedgerCorrupt,
    NeedsRestore,
    StoreFailed,
)
from expunge.ledger import Head, Restored
from expunge.registry import Registry, Request, rebuild_journal
from tests.registries import (
    crash_at,
    dump_of,
    put_back,
    registry_at,
    require_consistent,
    stages_of,
)
from tests.services import serve_in_process

ONE = "a" * 32


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """Return a folder on another disk."""
    disk = tmp_path / "other disk"
    disk.mkdir()
    return disk


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "registry"))


@pytest.fixture
def kept(folder: Path, disk: Path) -> Path:
    """Return a registry that keeps its heads, and forgot person 2 since its backup."""
    Registry.create(folder, head_file=disk).close()
    shutil.copytree(folder, folder.with_name("backup"))
    with Registry.open(folder) as registry:
        registry.forget(["person 2"], ONE)
    return folder


def put_folder_back(folder: Path) -> None:
    """Put everything back that a folder held: database, log, mark, keys, settings."""
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("backup"), folder)


def head_in(disk: Path) -> Head:
    (path,) = disk.iterdir()
    return Head.from_json(json.loads(path.read_text())["head"])


def size_of(registry: Registry) -> int:
    return registry.status().ledger_size


class TestAFolderThatIsPutBackWhole:
    def test_is_noticed_by_nobody_without_a_head_file(self, folder: Path) -> None:
        """So far as the folder goes, nothing ever happened: people are back."""
        shutil.copytree(folder, folder.with_name("backup"))
        with Registry.open(folder) as registry:
            registry.forget(["person 2"], ONE)
        put_folder_back(folder)
        with Registry.open(folder) as registry:
            assert registry.requests.find_models(["person 2"])["person 2"]
            assert registry.status().head_file == ""

    def test_is_refused_with_one(self, kept: Path) -> None:
        put_folder_back(kept)
        for come_back in (Registry.open, Registry.create):
            with pytest.raises(NeedsRestore, match="whole folder was put back"):
                come_back(kept)

    def test_may_not_have_its_log_rebuilt(self, kept: Path) -> None:
        put_folder_back(kept)
        (kept / "journal").unlink()
        with pytest.raises(NeedsRestore, match="whole folder was put back"):
            rebuild_journal(kept)

    def test_comes_back_by_a_restore_with_the_newest_log(self, kept: Path) -> None:
        newest = (kept / "journal").read_bytes()
        put_folder_back(kept)
        with pytest.raises(LedgerCorrupt, match="in the head file"):
            Registry.restore(kept, kept.with_name("backup"))
        (kept / "journal").write_bytes(newest)
        with Registry.restore(kept, kept.with_name("backup")) as registry:
            assert registry.requests.find_models(["person 2"]) == {"person 2": ()}
            require_consistent(registry)

    def test_is_accepted_by_an_entry(self, kept: Path, disk: Path) -> None:
        put_folder_back(kept)
        with Registry.restore(kept, accept_mark=True) as registry:
            last = list(registry.ledger.entries())[-1]
            assert isinstance(last, Restored) and last.n_replayed == 0
            assert head_in(disk).size == size_of(registry)
            registry.forget(["person 2"], ONE)
            require_consistent(registry)
        Registry.open(kept).close()

    def test_or_by_a_restore_that_says_so(self, kept: Path, disk: Path) -> None:
        put_folder_back(kept)
        backup = kept.with_name("backup")
        with Registry.restore(kept, backup, accept_mark=True) as registry:
            assert head_in(disk).size == size_of(registry)
            require_consistent(registry)
        Registry.open(kept).close()

    def test_on_postgresql(self, tmp_path: Path, disk: Path, database_url: str) -> None:
        folder = tmp_path / "registry"
        with registry_at(folder, database_url) as registry:
            Registry.create(folder, head_file=disk).close()
            dump = dump_of(registry)
            shutil.copytree(folder, tmp_path / "backup")
        with Registry.open(folder) as registry:
            registry.forget(["person 2"], ONE)
            put_back(registry, dump)
        put_folder_back(folder)
        with pytest.raises(NeedsRestore, match="whole folder was put back"):
            Registry.open(folder)


class TestTheFile:
    def test_has_the_last_head_after_each_statement(
        self, folder: Path, disk: Path, tmp_path: Path
    ) -> None:
        with Registry.create(folder, head_file=disk) as registry:
            steps: list[Callable[[], object]] = [
                lambda: registry.forget(["person 2"]),
                registry.keys.rotate_signing_key,
                lambda: registry.models.remove("half"),
            ]
            assert head_in(disk).size == size_of(registry)
            for step in steps:
                step()
                assert head_in(disk).size == size_of(registry)
                assert head_in(disk).to_json() == registry.ledger.head()

    def test_is_one_for_each_registry_in_a_folder(
        self, folder: Path, disk: Path, tmp_path: Path
    ) -> None:
        Registry.create(folder, head_file=disk).close()
        registry_at(tmp_path / "second").close()
        Registry.create(tmp_path / "second", head_file=disk).close()
        assert len([*disk.iterdir()]) == 2
        for one in (folder, tmp_path / "second"):
            Registry.open(one).close()

    def test_of_another_registry_is_not_overwritten(
        self, folder: Path, disk: Path, tmp_path: Path
    ) -> None:
        path = disk / "head"
        Registry.create(folder, head_file=path).close()
        before = path.read_bytes()
        with registry_at(tmp_path / "second"):
            pass
        with pytest.raises(InvalidInput, match="of another registry"):
            Registry.create(tmp_path / "second", head_file=path)
        assert path.read_bytes() == before
        Registry.open(tmp_path / "second").close()  # as it was, without a head file

    def test_is_behind_by_no_more_than_a_crash(self, kept: Path, disk: Path) -> None:
        """Killed after the statement and before the file: the next worker writes it."""
        with Registry.open(kept) as registry:
            with crash_at("keeping the head", nth=3):
                registry.forget(["person 3"])
        with Registry.open(kept) as registry:
            assert head_in(disk).size < size_of(registry)
            registry.requests.apply()
            assert head_in(disk).size == size_of(registry)

    @pytest.mark.parametrize("content", ["my notes", '{"a": 1}', "[]"])
    def test_does_not_take_the_place_of_another_file(
        self, folder: Path, disk: Path, content: str
    ) -> None:
        notes = disk / "notes"
        notes.write_text(content)
        with pytest.raises(InvalidInput, match="would be overwritten"):
            Registry.create(folder, head_file=notes)
        with pytest.raises(InvalidInput, match="would be overwritten"):
            Registry.create(folder.with_name("new"), head_file=notes)
        assert notes.read_text() == content
        Registry.open(folder).close()

    def test_is_not_in_the_folder_that_it_watches(self, folder: Path) -> None:
        for inside in (folder, folder / "heads", folder / "keys" / "heads"):
            with pytest.raises(InvalidInput, match="would be put back with"):
                Registry.create(folder, head_file=inside)
        new = folder.with_name("new")
        with pytest.raises(InvalidInput, match="would be put back with"):
            Registry.create(new, head_file=new / "heads")
        Registry.create(new).close()


def close_to_writers(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let no file be made in a folder, as on a disk that is full or read-only."""
    real = os.open

    def refused(path: str | Path, flags: int, *rest: int, **options: object) -> int:
        makes = flags & (os.O_CREAT | getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY)
        if makes and Path(path).absolute().is_relative_to(folder):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refused)


class TestAFileThatCannotBeUsed:
    def test_says_so_where_it_can_be_read_and_not_written(
        self, kept: Path, disk: Path
    ) -> None:
        asked = Request(("person 3",))
        with Registry.open(kept) as registry:
            size = size_of(registry)
            with pytest.MonkeyPatch.context() as patch:
                close_to_writers(patch, disk)
                assert "Read-only file system" in registry.status().unsigned
                registry.requests.accept([asked])
                with pytest.raises(StoreFailed, match="requests wait: mount its disk"):
                    registry.requests.apply()
                assert size_of(registry) == size
            assert registry.status().unsigned == ""
            registry.requests.apply()
            assert stages_of(registry, asked) == ["completed"]

    def test_is_accepted_by_no_entry(self, kept: Path, disk: Path) -> None:
        """Whoever goes on without the lost head writes it before anything is signed."""
        put_folder_back(kept)
        before = (kept / "journal").read_bytes()
        for backup in (None, kept.with_name("backup")):
            with pytest.MonkeyPatch.context() as patch:
                close_to_writers(patch, disk)
                with pytest.raises(StoreFailed, match="Read-only file system"):
                    Registry.restore(kept, backup, accept_mark=True)
            assert (kept / "journal").read_bytes() == before
        with pytest.raises(NeedsRestore, match="whole folder was put back"):
            Registry.open(kept)

    def test_of_another_registry_says_what_to_do(
        self, kept: Path, disk: Path, tmp_path: Path
    ) -> None:
        (path,) = disk.iterdir()
        other = tmp_path / "other head"
        registry_at(tmp_path / "second").close()
        Registry.create(tmp_path / "second", head_file=other).close()
        shutil.copy(other, path)
        steps: list[Callable[[], object]] = [
            lambda: Registry.open(kept),
            lambda: Registry.restore(kept, accept_mark=True),
        ]
        for step in steps:
            with pytest.raises(StoreFailed, match="move the other one away"):
                step()
        path.unlink()
        with Registry.restore(kept, accept_mark=True) as registry:
            assert head_in(disk).size == size_of(registry)

    def test_holds_up_what_would_be_signed(self, kept: Path, disk: Path) -> None:
        """Requests are accepted and wait; once the disk is back they are applied."""
        asked = Request(("person 3",))
        with Registry.open(kept) as registry:
            size = size_of(registry)
            away = disk.rename(disk.with_name("unmounted"))
            disk.touch()
            registry.requests.accept([asked])
            for _ in range(2):
                with pytest.raises(StoreFailed, match="requests wait: mount its disk"):
                    registry.requests.apply()
            assert stages_of(registry, asked) == ["accepted"]
            assert size_of(registry) == size
            assert "mount its disk" in registry.status().unsigned
            with serve_in_process(registry) as service:
                shown = service.call("GET", "/api/v1/status").json()
                assert shown["unsigned"] == registry.status().unsigned
            with pytest.raises(StoreFailed, match="mount its disk"):
                registry.models.remove("half")
            disk.unlink()
            away.rename(disk)
            registry.requests.apply()
            assert stages_of(registry, asked) == ["completed"]
            assert registry.status().unsigned == ""
            assert head_in(disk).size == size_of(registry)

    @pytest.mark.parametrize("how", ["missing", "damaged"])
    def test_is_refused_by_every_start(self, kept: Path, disk: Path, how: str) -> None:
        (path,) = disk.iterdir()
        if how == "missing":
            path.unlink()
        else:
            path.write_bytes(b"{")
        with pytest.raises(StoreFailed, match="run expunge restore --accept-mark"):
            Registry.open(kept)
        with Registry.restore(kept, accept_mark=True) as registry:
            assert head_in(disk).size == size_of(registry)
        Registry.open(kept).close()


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert not list((tmp_path / "other disk").glob(".*"))
