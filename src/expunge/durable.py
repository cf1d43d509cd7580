# SPDX-License-Identifier: Apache-2.0
"""Durable: files that a power cut leaves whole, and secrets that replacing destroys.

``fsync`` of a file is not enough to find it after a power cut: its name must be on disk
too. And a replaced file lies on the disk until its blocks are used again, so a private
one is overwritten with zeros first. What a file system, a backup or a solid-state disk
keeps beyond that is out of reach.

A file is written beside its place, under a name that begins with a dot and ends in what
it is: new, old, or 16 hexadecimal digits. The process that writes holds a lock on it
until it has its place, so that a killed one's leftovers can be told and swept away.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from .rights import hand_over

if os.name == "posix":
    import fcntl

OWNER_ALONE, ANYONE = 0o600, 0o666  # the latter less the umask
OWNERS_FOLDER = 0o700
NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
# A database that waits for its place may have files of its own beside it.
LEFTOVER = re.compile(
    r"\.(?P<whole>.+)\.(?P<kind>new(-wal|-shm|-journal)?|old|[0-9a-f]{16})", re.DOTALL
)


def flush(folder: Path) -> None:
    """See the names in a folder on disk, where the system knows how."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder for its owner alone, and see its name on disk; keep one there."""
    try:
        folder.mkdir(mode=OWNERS_FOLDER)
    except FileExistsError:
        return
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | NO_LINKS)
        try:
            hand_over(descriptor, folder.parent)
        finally:
            os.close(descriptor)
    flush(folder.parent)


def open_new(path: Path, mode: int = OWNER_ALONE) -> int:
    """Make a file, with its mode from the start, and hold it; return its descriptor.

    It belongs to the owner of its folder, should root make it.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        _hold(descriptor)
        hand_over(descriptor, path.parent)
    except BaseException:
        os.close(descriptor)
        path.unlink()
        raise
    return descriptor


def open_kept(path: Path) -> int:
    """Open a file to read and write, made for its owner alone if there is none."""
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR | os.O_CLOEXEC | NO_LINKS)
        with suppress(FileExistsError):  # somebody else makes it at this moment
            os.close(open_new(path))


def write_new(path: Path, data: bytes, mode: int = OWNER_ALONE) -> None:
    """Write a new file, with its mode from the start, and see its content on disk."""
    with os.fdopen(open_new(path, mode), "wb", buffering=0) as file:
        _write(file, data)


@contextmanager
def drafted(draft: Path, data: bytes, mode: int = OWNER_ALONE) -> Iterator[None]:
    """Give the time in which a new file, on disk, is ours to put in its place.

    It is destroyed if anything fails before it has that.
    """
    with os.fdopen(open_new(draft, mode), "wb", buffering=0) as file:
        try:
            _write(file, data)
            yield
        except BaseException:
            if os.fstat(file.fileno()).st_nlink == 1:
                destroy(draft)
            else:  # a second name is its place
                draft.unlink(missing_ok=True)
            raise


def replace_file(path: Path, data: bytes, mode: int = OWNER_ALONE) -> None:
    """Put these bytes in the place of a file: after a crash it is the old or the new.

    What an earlier crash left beside it is destroyed.
    """
    clear(path)
    draft = beside(path, "new")
    with drafted(draft, data, mode), scrubbed(path):
        draft.replace(path)


def clear(path: Path) -> None:
    """Destroy what a crash left of an unfinished replacement of this file."""
    _discard(beside(path, "new"))
    _drop_old(path)


def sweep(folder: Path) -> None:
    """Destroy what killed processes left of unfinished writes in a folder.

    What a living process is writing is left alone, and so is the only copy of a file.
    """
    for found in leftovers(folder):
        if found["kind"] != "old":
            _discard(folder / found[0])
        elif (folder / found["whole"]).exists():
            _drop_old(folder / found["whole"])


def leftovers(folder: Path) -> list[re.Match[str]]:
    """Return the files in a folder that have no place yet, or none any more."""
    return [
        found
        for entry in os.scandir(folder)
        if (found := LEFTOVER.fullmatch(entry.name))
        if entry.is_file(follow_symlinks=False)
    ]


def _discard(draft: Path) -> None:
    """Destroy a draft, unless a living process has it or it has got its place."""
    try:
        descriptor = os.open(draft, os.O_WRONLY | NO_LINKS)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        if not _hold(descriptor):
            return
        # Who held it before may have put it in its place since it was opened here.
        with suppress(FileNotFoundError):
            found = draft.stat(follow_symlinks=False)
            if os.path.samestat(found, os.fstat(descriptor)):
                if found.st_nlink == 1:  # a second name is its place
                    zero(file)
                draft.unlink()


def _hold(descriptor: int) -> bool:
    """Lock a file until it is closed; return whether nobody else holds it."""
    if os.name == "posix":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _write(file: IO[bytes], data: bytes) -> None:
    """Write all of it and see it on disk."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
    os.fsync(file.fileno())


def destroy(path: Path) -> None:
    """Overwrite a file and remove it; nothing if there is none."""
    try:
        descriptor = os.open(path, os.O_WRONLY | NO_LINKS)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        zero(file)
    path.unlink(missing_ok=True)  # somebody else may destroy it at this moment


@contextmanager
def scrubbed(path: Path) -> Iterator[None]:
    """See what takes this place on disk, then overwrite the file that was there.

    Until then the old file has another name, by which it is found after a crash.
    """
    _drop_old(path)
    if path.exists():
        os.link(path, beside(path, "old"))
    yield
    if not _drop_old(path):
        flush(path.parent)


def _drop_old(path: Path) -> bool:
    """Destroy the file that had this place before, once its successor is on disk.

    Returns whether that was seen to.
    """
    old = beside(path, "old")
    if not old.exists():
        return False
    if path.exists() and old.samefile(path):
        old.unlink()  # nothing had taken its place yet
        return False
    flush(path.parent)
    destroy(old)
    return True


def beside(path: Path, ending: str) -> Path:
    """Return the name of a file for the time before it has its place, or after."""
    return path.with_name(f".{path.name}.{ending}")


def zero(file: IO[bytes]) -> None:
    """Overwrite an open file with zeros as long as it is, and see them on disk."""
    left = os.fstat(file.fileno()).st_size
    while left:
        left -= file.write(bytes(min(left, 1 << 20)))
    os.fsync(file.fileno())
