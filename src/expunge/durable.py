# SPDX-License-Identifier: Apache-2.0
"""Durable: files that a power cut leaves whole, and secrets that replacing destroys.

``fsync`` of a file is not enough to find it after a power cut: its name must be on disk
too. And a replaced file lies on the disk until its blocks are used again, so a private
one is overwritten with zeros first. What a file system, a backup or a solid-state disk
keeps beyond that is out of reach.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

OWNER_ALONE, ANYONE = 0o600, 0o666  # the latter less the umask
NO_LINKS = getattr(os, "O_NOFOLLOW", 0)


def flush(folder: Path) -> None:
    """See the names in a folder on disk, where the system knows how."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_new(path: Path, data: bytes, mode: int = OWNER_ALONE) -> None:
    """Write a new file, with its mode from the start, and see its content on disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def replace_file(path: Path, data: bytes, mode: int = OWNER_ALONE) -> None:
    """Put these bytes in the place of a file: after a crash it is the old or the new.

    What an earlier crash left beside it is destroyed.
    """
    clear(path)
    draft = _beside(path, "new")
    try:
        write_new(draft, data, mode)
        with scrubbed(path):
            draft.replace(path)
    except BaseException:
        destroy(draft)
        raise


def clear(path: Path) -> None:
    """Destroy what a crash left of an unfinished replacement of this file."""
    destroy(_beside(path, "new"))
    _drop_old(path)


def destroy(path: Path) -> None:
    """Overwrite a file and remove it; nothing if there is none."""
    try:
        descriptor = os.open(path, os.O_WRONLY | NO_LINKS)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        zero(file)
    path.unlink()


@contextmanager
def scrubbed(path: Path) -> Iterator[None]:
    """See what takes this place on disk, then overwrite the file that was there.

    Until then the old file has another name, by which it is found after a crash.
    """
    _drop_old(path)
    if path.exists():
        os.link(path, _beside(path, "old"))
    yield
    if not _drop_old(path):
        flush(path.parent)


def _drop_old(path: Path) -> bool:
    """Destroy the file that had this place before, once its successor is on disk.

    Returns whether that was seen to.
    """
    old = _beside(path, "old")
    if not old.exists():
        return False
    if path.exists() and old.samefile(path):
        old.unlink()  # nothing had taken its place yet
        return False
    flush(path.parent)
    destroy(old)
    return True


def _beside(path: Path, ending: str) -> Path:
    """Return the name of a file for the time of a replacement."""
    return path.with_name(f".{path.name}.{ending}")


def zero(file: IO[bytes]) -> None:
    """Overwrite an open file with zeros as long as it is, and see them on disk."""
    left = os.fstat(file.fileno()).st_size
    while left:
        left -= file.write(bytes(min(left, 1 << 20)))
    os.fsync(file.fileno())
