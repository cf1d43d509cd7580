# SPDX-License-Identifier: Apache-2.0
"""A registry that cannot be written: it can be looked at, and shows all there is."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from expunge.cli.app import app
from expunge.exceptions import Busy, StoreFailed
from expunge.ledger import check_export
from expunge.registry import Registry, Request
from tests.registries import (
    by_name,
    data_without,
    erase_log,
    estimator,
    folder_of,
    reading,
    require_consistent,
    writing,
)
from tests.users import NOBODY, as_nobody, give, in_a_child, needs_root, reachable_copy

ONE = "a" * 32
# What a process leaves that is killed: a log with what it committed, and its index.
LEFT = {"log and index": (), "log": ("-shm",), "nothing": ("-shm", "-wal")}
MOUNT = """
set -e
mount --bind "$1" "$1"
mount -o remount,ro,bind "$1"
shift
exec "$@"
"""
EXPUNGE = "from expunge.cli import main; main()"
WRITER = """
import sys
from expunge.registry import Request, Registry
with Registry.open(sys.argv[1]) as registry:
    for word in sys.stdin:
        if word == "accept\\n":
            registry.requests.accept([Request(("person 2",), "a" * 32)])
        else:
            registry.requests.apply()
        print("done", flush=True)
"""


@pytest.fixture
def folder(template: Path) -> Iterator[Path]:
    """Lend a registry that forgot person 1, in a place that every user can get to."""
    with reachable_copy(template) as folder:
        yield folder


@contextmanager
def only_readable(folder: Path) -> Iterator[None]:
    """Be somebody whose registry this is, and who may not write to it."""
    give(folder, NOBODY)
    paths = [folder, *folder.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        with as_nobody():
            yield
    finally:
        for path, mode in modes.items():
            if path.exists():
                path.chmod(mode)
        give(folder, 0)


def content(folder: Path) -> dict[str, bytes | None]:
    """Return every file there is."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def killed_after(folder: Path, work: Callable[[Registry], object]) -> None:
    """Work on a registry in a process that is killed then."""

    def child() -> None:
        registry = Registry.open(folder)
        work(registry)
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_child(child) == -signal.SIGKILL


@contextmanager
def writer(folder: Path) -> Iterator[Callable[[str], None]]:
    """Lend a process of root's, who may write anywhere, that does what it is told."""
    command = [sys.executable, "-c", WRITER, str(folder)]
    os.seteuid(0)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    os.seteuid(NOBODY)
    with process:
        assert process.stdin is not None and process.stdout is not None

        def tell(word: str) -> None:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"

        yield tell
        process.stdin.close()


@needs_root
class TestLooking:
    @pytest.mark.parametrize("left", LEFT)
    def test_shows_all_that_was_committed(self, folder: Path, left: str) -> None:
        """A request that is in the log alone was accepted all the same."""
        killed_after(
            folder,
            lambda one: one.requests.accept([Request(("person 2",), ONE)]),
        )
        assert (folder / "expunge.db-wal").stat().st_size > 0
        if left == "nothing":
            Registry.open(folder).close()  # moves the log into the database
        else:
            for end in LEFT[left]:
                (folder / f"expunge.db{end}").unlink()
        before = content(folder)
        assert {*LEFT[left]}.isdisjoint(
            name.removeprefix("expunge.db") for name in before
        )
        with only_readable(folder), Registry.open(folder) as registry:
            assert [one.request for one in registry.status().pending] == [ONE]
            assert registry.requests.status(ONE).stage == "accepted"
            assert registry.requests.find_models(["person 1"]) == {"person 1": ()}
            require_consistent(registry)
        assert content(folder) == before

    def test_while_another_process_works(self, folder: Path) -> None:
        with only_readable(folder), writer(folder) as tell:
            tell("accept")
            assert (folder / "expunge.db-shm").exists()
            with Registry.open(folder) as registry:
                assert len(registry.status().pending) == 1
                tell("apply")
                assert registry.status().pending == ()
                require_consistent(registry)

    def test_sees_what_others_do_between_two_looks(self, folder: Path) -> None:
        with only_readable(folder), Registry.open(folder) as registry:
            assert registry.status().n_requests == 1
            with writer(folder) as tell:
                tell("accept")
                tell("apply")
            assert registry.status().n_requests == 2
            assert registry.requests.receipt(ONE)

    def test_does_not_mix_two_moments(self, folder: Path) -> None:
        """Without locks a look can be torn: then it does not count."""
        with only_readable(folder):
            with pytest.raises(Busy, match="run the command again"), reading(folder):
                with writer(folder) as tell:
                    tell("accept")

    def test_commands(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        export = folder.with_name("ledger")
        export.touch()
        os.chown(export, NOBODY, NOBODY)
        calls = (
            ["status", "-r", str(folder)],
            ["log", "-r", str(folder)],
            ["log", "-r", str(folder), "--export", str(export)],
            ["verify", str(export), "--key", str(folder / "public.pem")],
        )
        with only_readable(folder):
            for call in calls:
                with pytest.raises(SystemExit) as ended:
                    app(call)
                assert ended.value.code == 0, capsys.readouterr().err
        assert "VALID" in capsys.readouterr().out
        pem = (folder / "public.pem").read_text()
        assert check_export(export.read_bytes(), pem).valid


CHANGES: dict[str, Callable[[Registry], object]] = {
    "accept": lambda one: one.requests.accept([Request(("person 3",))]),
    "apply": lambda one: one.requests.apply(),
    "forget": lambda one: one.forget(["person 3"]),
    "fit": lambda one: one.fit("x", estimator(), **by_name(data_without("person 1"))),
    "ship": lambda one: one.models.ship("all", folder_of(one) / "m.safetensors"),
    "withdraw": lambda one: one.models.withdraw("all", 1),
    "remove": lambda one: one.models.remove("all"),
    "readmit": lambda one: one.requests.readmit(["person 1"]),
    "reanchor": lambda one: one.models.reanchor("all"),
    "rotate signing": lambda one: one.keys.rotate_signing_key(),
    "rotate tags": lambda one: one.keys.rotate_tag_key(),
}


@needs_root
class TestChanging:
    @pytest.mark.parametrize("change", CHANGES)
    def test_is_refused(self, folder: Path, change: str) -> None:
        before = content(folder)
        with only_readable(folder), Registry.open(folder) as registry:
            with pytest.raises(StoreFailed, match="write"):
                CHANGES[change](registry)
        assert content(folder) == before

    @pytest.mark.parametrize("left", LEFT)
    def test_of_the_database_says_why(self, folder: Path, left: str) -> None:
        killed_after(
            folder,
            lambda one: one.requests.accept([Request(("person 2",), ONE)]),
        )
        for end in LEFT[left]:
            (folder / f"expunge.db{end}").unlink()
        with only_readable(folder):
            with pytest.raises(StoreFailed, match="can only be read here"):
                erase_log(folder)
            with pytest.raises(StoreFailed, match="can only be read here"):
                with writing(folder):
                    pass

    def test_is_not_made_up_for_later(self, folder: Path) -> None:
        """A journal on a disk that can be written must not have what was refused."""
        journal = folder.with_name("journal")
        (folder / "journal").rename(journal)
        (folder / "journal").symlink_to(journal)
        os.chown(journal, NOBODY, NOBODY)
        before = journal.read_bytes()
        with only_readable(folder):
            os.seteuid(0)
            journal.chmod(0o600)
            os.seteuid(NOBODY)
            with Registry.open(folder) as registry:
                with pytest.raises(StoreFailed, match="can only be read here"):
                    registry.requests.accept([Request(("person 2",), ONE)])
        assert journal.read_bytes() == before

    def test_is_not_needed_to_create_what_is_there(self, folder: Path) -> None:
        with only_readable(folder), Registry.create(folder) as registry:
            assert registry.status().n_requests == 1

    def test_on_postgresql(self, template: Path, database_url: str) -> None:
        with reachable_copy(template) as place:
            shutil.rmtree(place)
            with Registry.create(place, url=database_url) as registry:
                registry.fit("all", estimator(), **by_name(data_without()))
            with only_readable(place), Registry.open(place) as registry:
                assert registry.status().n_requests == 0
                require_consistent(registry)
                for change in ("forget", "rotate tags", "readmit"):
                    with pytest.raises(StoreFailed, match="write"):
                        CHANGES[change](registry)
                assert registry.status().n_requests == 0


MOUNT_IN_PART = """
set -e
mount --bind "$1" "$1"
mount --bind "$2" "$1/checkpoints"
mount -o remount,ro,bind "$1"
shift 2
exec "$@"
"""


def can_mount() -> bool:
    """Whether this machine lets a process have mounts of its own."""
    if shutil.which("unshare") is None:
        return False
    tried = ["unshare", "-m", "sh", "-c", "mount --bind /mnt /mnt"]
    return subprocess.run(tried, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="mounts of one's own are not allowed here")
class TestMount:
    """Root may write anywhere, but not to a disk that is mounted to be read."""

    def expunge(self, folder: Path, *call: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", EXPUNGE, *call, "-r", str(folder)]
        mounted = ["unshare", "-m", "sh", "-c", MOUNT, "sh", str(folder), *command]
        return subprocess.run(mounted, capture_output=True, text=True, check=False)

    def test_can_be_looked_at(self, folder: Path) -> None:
        killed_after(
            folder,
            lambda one: one.requests.accept([Request(("person 2",), ONE)]),
        )
        (folder / "expunge.db-shm").unlink()
        before = content(folder)
        done = self.expunge(folder, "status")
        assert (done.returncode, done.stderr) == (0, "") and ONE in done.stdout
        assert self.expunge(folder, "log").returncode == 0
        assert content(folder) == before

    @pytest.mark.parametrize("call", [("forget", "person 3"), ("rotate", "tags")])
    def test_is_not_changed(self, folder: Path, call: tuple[str, ...]) -> None:
        before = content(folder)
        done = self.expunge(folder, *call)
        assert done.returncode == 8
        assert "can only be read" in done.stderr
        assert content(folder) == before


@pytest.mark.skipif(not can_mount(), reason="mounts of one's own are not allowed here")
def test_a_leftover_where_alone_it_could_be_deleted(folder: Path) -> None:
    """Checkpoints lie on a disk of their own, and the lock on one that is read."""
    disk = Path(shutil.copytree(folder / "checkpoints", folder.with_name("disk")))
    (disk / ".owner.new").write_bytes(b"x")
    command = [sys.executable, "-c", EXPUNGE, "status", "--registry", str(folder)]
    mounted = ["unshare", "-m", "sh", "-c", MOUNT_IN_PART, "sh"]
    mounted += [str(folder), str(disk), *command]
    done = subprocess.run(mounted, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
