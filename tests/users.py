# SPDX-License-Identifier: Apache-2.0
"""Other users, and processes that are killed where a test wants it."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534  # without rights, on every system
CALLS = (
    *("open", "fsync", "link", "replace", "rename", "unlink", "mkdir", "fdopen"),
    *("pwrite", "ftruncate"),
)

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can be somebody else"
)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Be a user without rights."""
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@contextmanager
def reachable_copy(folder: Path) -> Iterator[Path]:
    """Lend a copy of a folder in a place that every user can get to."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        yield Path(shutil.copytree(folder, Path(place) / "registry"))


def give(folder: Path, user: int) -> None:
    """Give a folder and all that lies in it to a user."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user, follow_symlinks=False)


def owners(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the owner and group of a folder and of all that lies in it, by path."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        status = path.lstat()
        found[str(path.relative_to(folder))] = status.st_uid, status.st_gid
    return found


def in_a_child(work: Callable[[], object]) -> int:
    """Do something in a process of its own; return how that ended."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def killed_at(place: int, work: Callable[[], object]) -> bool:
    """Do something in a process that is killed before its n-th call to the system.

    Returns whether it was: False once there are fewer calls.
    """
    code = in_a_child(lambda: _killed(place, work))
    assert code in (0, -signal.SIGKILL), code
    return code != 0


def _killed(place: int, work: Callable[[], object]) -> None:
    count = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal count
            count += 1
            if count > place:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    work()
