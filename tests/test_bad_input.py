# SPDX-License-Identifier: Apache-2.0
"""Full disks, missing rights, wrong keys and damage: refused in words, nothing lost.

Each test breaks something, sees an error that an operator can act upon, mends it, and
sees every request completed, once.
"""

import errno
import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expunge.exceptions import ExpungeError, LedgerCorrupt, NeedsRestore, StoreFailed
from expunge.ledger import UnusableKey
from expunge.registry import Registry, Request
from tests.postgres import Missing, Server
from tests.registries import (
    SEALED,
    altered_ledger,
    by_name,
    data,
    data_without,
    erase_log,
    estimator,
    flip_bit,
    full_database,
    losing_lines,
    private_model_of,
    registry_at,
    require_consistent,
    retrained,
    working,
)
from tests.stores import without_postgres

WHO, REQUEST = "person 3", "a" * 32
DRIVERS = ("sqlalchemy", "sqlite3", "psycopg", "Traceback", "INSERT", "SELECT", "Errno")


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    """Return a registry that forgot person 1, in nobody's hands."""
    return Path(shutil.copytree(template, tmp_path / "registry"))


def told(error: BaseException) -> str:
    """Return what an operator reads; no one else's words, no person, no figure."""
    assert isinstance(error, ExpungeError), repr(error)
    said = str(error)
    assert not any(word in said for word in (WHO, *DRIVERS)), said
    assert ";" in said and len(said) < 400, said  # what was wrong; what to do
    return said


def refused(call: Callable[[], object]) -> str:
    """Return what an operator reads when a call must be refused."""
    with pytest.raises(Exception) as caught:
        call()
    return told(caught.value)


def require_finished(folder: Path, *names: str) -> None:
    """Send the request again, and see that it is done, once, and all is in order."""
    with Registry.open(folder) as registry:
        registry.forget([WHO], REQUEST)
        registry.requests.apply()
        gone = ["person 1", WHO, *names]
        assert set(registry.requests.find_models(gone).values()) == {()}
        assert registry.status().pending == ()
        for name, half in (("all", False), ("half", True)):
            custody = private_model_of(registry, name)
            assert custody.n_removed == 2 * len(gone)
            gap = custody.answer.draft.theta - retrained(gone, half=half)
            assert np.linalg.norm(gap) <= custody.answer.radius.value
        require_consistent(registry)


class Calls:
    """Calls of the system that write, of which some fail."""

    NAMES = ("open", "fsync", "pwrite", "ftruncate", "replace", "unlink")

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, self.fails = 0, range(0)
        self.error = errno.EIO
        for name in self.NAMES:
            patch.setattr(os, name, self.counted(name, getattr(os, name)))

    def counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR):
                return real(*arguments, **options)
            self.count += 1
            # A full disk still lets one cut and remove files.
            frees = self.error == errno.ENOSPC and name in ("ftruncate", "unlink")
            if self.count - 1 in self.fails and not frees:
                raise OSError(self.error, os.strerror(self.error))
            return real(*arguments, **options)

        return call


class TestFullDisk:
    @pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EACCES])
    def test_at_every_call_that_writes(
        self,
        template: Path,
        tmp_path: Path,
        error: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """ENOSPC from one call on until there is room; the others once."""
        raw = []
        place = 0
        while True:
            folder = Path(shutil.copytree(template, tmp_path / str(place)))
            with monkeypatch.context() as patch, Registry.open(folder) as registry:
                calls = Calls(patch)
                last = 10**6 if error == errno.ENOSPC else place + 1
                calls.fails, calls.error = range(place, last), error
                try:
                    registry.forget([WHO], REQUEST)
                except ExpungeError as caught:
                    told(caught)
                except OSError as caught:
                    raw.append((place, repr(caught)))
                calls.fails = range(0)
            if calls.count <= place:
                break
            require_finished(folder)
            shutil.rmtree(folder)
            place += 1
        assert place > 8
        assert raw == []

    @pytest.mark.parametrize("stage", ["accept", "complete", "fit"])
    def test_of_a_database_that_may_not_grow(self, folder: Path, stage: str) -> None:
        asked = [Request((WHO,), REQUEST)]
        others = [Request((f"person {5 + n % 20}",)) for n in range(150)]
        with Registry.open(folder) as registry:
            rest = data_without("person 1")
            if stage == "complete":
                registry.requests.accept([*asked, *others])
            with full_database(registry):
                if stage == "accept":
                    said = refused(lambda: registry.requests.accept([*asked, *others]))
                elif stage == "complete":
                    said = refused(registry.requests.apply)
                else:
                    said = refused(
                        lambda: registry.fit(
                            "third", estimator(), **by_name(data_without("person 1"))
                        )
                    )
            assert "make room" in said
            assert registry.models.names() == ["all", "half"]
        if stage == "fit":
            with Registry.open(folder) as registry:
                registry.fit("third", estimator(), **by_name(rest))
                assert registry.forget([WHO], REQUEST)
                require_consistent(registry)
            return
        if stage == "accept":
            with Registry.open(folder) as registry:
                assert registry.status().n_requests == 1  # what was refused is not kept
                registry.requests.accept(others)
        require_finished(folder, *(f"person {n}" for n in range(5, 25)))

    @pytest.mark.parametrize("size", [0, 1 << 12, 1 << 15, 1 << 16, 1 << 17, 3 << 16])
    def test_of_files_that_may_not_grow(self, folder: Path, size: int) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        with Registry.open(folder) as registry:
            # Python ignores the signal that comes with it: writing fails instead.
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
            try:
                registry.forget([WHO], REQUEST)
            except Exception as caught:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
                told(caught)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        require_finished(folder)


@contextmanager
def powerless(folder: Path) -> Iterator[None]:
    """Be somebody who may read a folder and not write to it."""
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, 65534, 65534)
        os.seteuid(65534)
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.seteuid(os.getuid())
        for path in paths:
            path.chmod(0o700 if path.is_dir() else 0o600)


class TestRights:
    @pytest.fixture
    def shared(self, template: Path) -> Iterator[Path]:
        """Return a registry in a place that anybody can get to."""
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o755)
            yield Path(shutil.copytree(template, Path(place) / "registry"))

    def test_a_folder_that_may_only_be_read(self, shared: Path) -> None:
        with Registry.open(shared) as registry:
            registry.requests.accept([Request((WHO,), REQUEST)])
        with powerless(shared):

            def forget() -> None:
                with Registry.open(shared) as registry:
                    registry.forget([WHO], REQUEST)

            def apply() -> None:
                with Registry.open(shared) as registry:
                    registry.requests.apply()

            for call in (forget, apply):
                assert "write" in refused(call)
        require_finished(shared)

    def test_a_folder_of_somebody_else(self, shared: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can be somebody else")
        os.seteuid(65534)
        try:
            said = refused(lambda: Registry.open(shared))
        finally:
            os.seteuid(0)
        assert "registry.json" in said
        require_finished(shared)


class TestKeys:
    @pytest.fixture
    def other(self, template: Path, tmp_path: Path) -> Path:
        """Return another registry with the same models and people."""
        with registry_at(tmp_path / "other") as registry:
            registry.forget(["person 1"])
        return tmp_path / "other"

    @pytest.mark.parametrize("wrong", [True, False])
    def test_of_signing(self, folder: Path, other: Path, wrong: bool) -> None:
        name = "keys/signing-0.pem"
        held = (folder / name).read_bytes()
        if wrong:
            shutil.copy(other / name, folder / name)
        else:
            (folder / name).unlink()
        with Registry.open(folder) as registry:
            assert "in force" in refused(lambda: registry.forget([WHO], REQUEST))
            assert registry.requests.status(REQUEST).stage == "applied"
        (folder / name).touch(0o600)
        (folder / name).write_bytes(held)
        require_finished(folder)

    @pytest.mark.parametrize("wrong", [True, False])
    @pytest.mark.parametrize("come_back", [Registry.open, Registry.create])
    def test_of_tags(
        self,
        folder: Path,
        other: Path,
        wrong: bool,
        come_back: Callable[[Path], Registry],
    ) -> None:
        """Nobody who is there may be told that they are not."""
        name = "keys/tags-0"
        held = (folder / name).read_bytes()
        if wrong:
            shutil.copy(other / name, folder / name)
        else:
            (folder / name).unlink()

        def forget() -> None:
            with come_back(folder) as registry:
                registry.forget([WHO], REQUEST)

        with pytest.raises(UnusableKey, match="tags-"):
            forget()
        (folder / name).touch(0o600)
        (folder / name).write_bytes(held)
        require_finished(folder)

    @pytest.mark.parametrize("fault", ["another", "missing", "older", "emptied"])
    def test_of_checkpoints(self, folder: Path, other: Path, fault: str) -> None:
        path = folder / "keys/sealing"
        older = path.read_bytes()
        if fault == "older":
            with Registry.open(folder) as registry:
                registry.forget(["person 5"])
                registry.forget(["person 6"])
        with Registry.open(folder) as registry:
            registry.requests.accept([Request((WHO,), REQUEST)])
            held = path.read_bytes()
            if fault == "missing":
                path.unlink()
            elif fault == "another":
                path.write_bytes((other / "keys/sealing").read_bytes())
            else:
                path.write_bytes(older if fault == "older" else held[:0])
            said = refused(
                registry.requests.apply
            )  # while it is open, and when opened again
            assert "put" in said or "restore" in said
        refused(lambda: Registry.open(folder).requests.apply())
        path.touch(0o600)
        path.write_bytes(held)
        require_finished(folder, *(["person 5", "person 6"] * (fault == "older")))


class TestDamage:
    @pytest.mark.parametrize("place", [0, 40, -1])
    @pytest.mark.parametrize("what", SEALED)
    def test_of_a_value(
        self, folder: Path, what: str, place: int, tmp_path: Path
    ) -> None:
        with Registry.open(folder) as registry:
            flip_bit(registry, what, place)
            said = refused(lambda: registry.forget([WHO], REQUEST))
            assert "backup" in said
            if what == "release":
                file = tmp_path / "model.safetensors"
                refused(lambda: registry.models.ship("all", file))
                assert not file.exists()
            flip_bit(registry, what, place)
        require_finished(folder)

    def test_of_a_checkpoint(self, folder: Path) -> None:
        for path in (folder / "checkpoints").glob("*.[0-9]*"):
            content = path.read_bytes()
            for altered in (content[:-1], bytes(len(content)), None):
                path.unlink()
                if altered is not None:
                    path.write_bytes(altered)

                def forget() -> None:
                    with Registry.open(folder) as registry:
                        registry.forget([WHO], REQUEST)

                assert "backup" in refused(forget)
                path.write_bytes(content)
                path.chmod(0o600)
        require_finished(folder)

    @pytest.mark.parametrize("fault", ["garbage", "cut", "tables"])
    def test_of_the_database(self, folder: Path, fault: str) -> None:
        path = folder / "expunge.db"
        content = path.read_bytes()
        with Registry.open(folder) as registry:
            registry.requests.accept([Request((WHO,), REQUEST)])
            erase_log(registry)
            content = path.read_bytes()
        altered = {
            "garbage": b"x" * len(content),
            "cut": content[: len(content) // 2],
            "tables": content[:4096] + bytes(len(content) - 4096),
        }
        path.write_bytes(altered[fault])

        def forget() -> None:
            with Registry.open(folder) as registry:
                registry.forget([WHO], REQUEST)

        assert "backup" in refused(forget)
        for rest in folder.glob("expunge.db-*"):
            rest.unlink()
        path.write_bytes(content)
        require_finished(folder)

    @pytest.mark.parametrize("table", ["nodes", "metadata"])
    def test_of_lines_that_are_gone(self, folder: Path, table: str) -> None:
        with Registry.open(folder) as registry:
            with losing_lines(registry, table):
                refused(lambda: registry.forget([WHO], REQUEST))
        require_finished(folder)

    def test_of_the_ledger(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            with altered_ledger(registry):
                with pytest.raises(LedgerCorrupt, match="altered"):
                    list(registry.ledger.entries())
        require_finished(folder)

    def test_of_the_journal(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            end = (folder / "journal").stat().st_size
            registry.requests.accept([Request((WHO,), REQUEST)])
            registry.requests.accept([Request(("person 5",))])
        content = (folder / "journal").read_bytes()
        (folder / "journal").write_bytes(content[:end] + b"?" + content[end + 1 :])
        assert "damaged" in refused(lambda: Registry.open(folder))
        (folder / "journal").write_bytes(content)
        require_finished(folder, "person 5")


def test_a_lost_database_is_not_taken_for_a_new_one(folder: Path) -> None:
    backup = Path(shutil.copytree(folder, folder.with_name("backup")))
    for path in folder.glob("expunge.db*"):
        path.unlink()
    for come_back in (Registry.open, Registry.create, Registry.open):
        with pytest.raises((NeedsRestore, StoreFailed), match="restore"):
            come_back(folder)
    Registry.restore(folder, backup).close()
    require_finished(folder)


def test_a_server_that_goes_and_comes_back(tmp_path: Path) -> None:
    try:
        server = Server(fast=True)
    except Missing as reason:
        without_postgres(reason)
    folder = tmp_path / "registry"
    with server, registry_at(folder, server.database()) as registry:
        registry.forget(["person 1"])
        server.kill()
        calls: list[Callable[[], object]] = [
            lambda: Registry.open(folder),
            lambda: registry.requests.accept([Request((WHO,), REQUEST)]),
            registry.requests.apply,
            registry.status,
            lambda: registry.requests.find_models([WHO]),
            lambda: registry.models.refit("all", estimator(), **by_name(data())),
        ]
        for call in calls:
            assert "can be reached" in refused(call)
        server.restart()
        registry.requests.accept([Request((WHO,), REQUEST)])
        with working(registry):
            server.kill()
            refused(registry.status)
            server.restart()
        assert registry.requests.status(REQUEST).stage == "accepted"
        require_finished(folder)
        registry.requests.apply()  # earlier connections were lost: no matter
