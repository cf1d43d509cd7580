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

    What an earlier crash left half written beside it is destroyed.
    """
    draft = path.with_name(f".{path.name}.new")
    destroy(draft)
    try:
        write_new(draft, data, mode)
        with scrubbed(path):
            draft.replace(path)
    except BaseException:
        destroy(draft)
        raise


def destroy(path: Path) -> None:
    """Overwrite a file and remove it; nothing if there is none."""
    try:
        with path.open("r+b", buffering=0) as file:
            zero(file)
    except FileNotFoundError:
        return
    path.unlink()


@contextmanager
def scrubbed(path: Path) -> Iterator[None]:
    """See what takes this place on disk, then overwrite the file that was there."""
    if not path.exists():
        yield
        flush(path.parent)
        return
    descriptor = os.open(path, os.O_WRONLY | NO_LINKS)
    with os.fdopen(descriptor, "wb", buffering=0) as old:
        yield
        flush(path.parent)  # the new name must be on disk before the old bytes go
        zero(old)


def zero(file: IO[bytes]) -> None:
    """Overwrite an open file with zeros as long as it is, and see them on disk."""
    left = os.fstat(file.fileno()).st_size
    while left:
        left -= file.write(bytes(min(left, 1 << 20)))
    os.fsync(file.fileno())
