# SPDX-License-Identifier: Apache-2.0
"""Other users, and processes that are killed where a test wants it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534  # without rights, on every system

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
