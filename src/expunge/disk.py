# SPDX-License-Identifier: Apache-2.0
"""Files on disk: durable through a power cut, private, and erased when replaced.

``fsync`` of a file is not enough to find it after a power cut: its name must be on disk
too. And the blocks of a replaced file keep their content until they are used again, so
a private file is overwritten with zeros first. What a file system, a backup or a
solid-state disk keeps beyond that is out of reach.

A file is written beside its place, under a hidden name that ends in what it is: new,
old, or 16 hexadecimal digits. The writing process holds a lock on it until it is in
place, so that the leftovers of a killed process can be recognised and deleted.

A file that root makes in somebody's folder is given to the owner of the folder:
otherwise one command run as root would shut the owner out. A file that cannot be used
is never reported as lost: restoring it from a backup would replace the only current
one.
"""

import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from .exceptions import StoreFailed

if os.name == "posix":
    import fcntl

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
READ_WRITE = os.R_OK | os.W_OK
NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
OWNER_ALONE, ANYONE = 0o600, 0o666  # the latter less the umask
OWNERS_FOLDER = 0o700
SCRATCH = "expunge-"
TRIAL = 1 << 12  # bytes written to see whether there is room
NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
# A database that waits for its place may have files of its own beside it.
LEFTOVER = re.compile(
    r"\.(?P<whole>.+)\.(?P<kind>new(-wal|-shm|-journal)?|old|[0-9a-f]{16})", re.DOTALL
)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder for its owner alone and flush its name; keep one that exists."""
    try:
        folder.mkdir(mode=OWNERS_FOLDER)
    except FileExistsError:
        return
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | NO_LINKS)
        try:
            give_to_folder_owner(descriptor, folder.parent)
        finally:
            os.close(descriptor)
    sync_folder(folder.parent)


def open_new(path: Path, mode: int = OWNER_ALONE, *, like: Path | None = None) -> int:
    """Make a file, with its mode from the start, and lock it; return its descriptor.

    A file that root makes belongs to the owner of ``like``, by default its folder.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        _lock(descriptor)
        give_to_folder_owner(descriptor, like or path.parent)
    except BaseException:
        os.close(descriptor)
        path.unlink()
        raise
    return descriptor


def open_or_create(path: Path) -> int:
    """Open a file to read and write; if there is none, make it for its owner alone."""
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR | os.O_CLOEXEC | NO_LINKS)
        with suppress(FileExistsError):  # another process makes it at this moment
            os.close(open_new(path))


def write_new_file(
    path: Path, data: bytes, *, mode: int = OWNER_ALONE, like: Path | None = None
) -> None:
    """Write a new file, as ``open_new`` makes it, and flush its content."""
    with os.fdopen(open_new(path, mode, like=like), "wb", buffering=0) as file:
        _write(file, data)


@contextmanager
def draft_file(draft: Path, data: bytes, *, mode: int = OWNER_ALONE) -> Iterator[None]:
    """Write and flush a draft; the block under ``with`` puts it in its place.

    The draft is destroyed if anything fails before that.
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


def replace_file(path: Path, data: bytes, *, mode: int = OWNER_ALONE) -> None:
    """Replace the content of a file: after a crash it is the old one or the new one.

    What an earlier crash left beside it is destroyed.
    """
    delete_draft(path)
    draft = hidden_path(path, "new")
    with draft_file(draft, data, mode=mode), erase_replaced(path):
        draft.replace(path)


def has_draft(path: Path) -> bool:
    """Return whether a crash left an unfinished replacement of a file."""
    return any(hidden_path(path, ending).exists() for ending in ("new", "old"))


def delete_draft(path: Path) -> None:
    """Destroy what a crash left of an unfinished replacement of a file."""
    discard(hidden_path(path, "new"))
    _drop_old(path)


def delete_leftovers(folder: Path) -> None:
    """Destroy what killed processes left of unfinished writes in a folder.

    What a living process is writing is kept, and so is the only copy of a file.
    """
    for found in find_leftovers(folder):
        if found["kind"] != "old":
            discard(folder / found[0])
        elif (folder / found["whole"]).exists():
            _drop_old(folder / found["whole"])


def find_leftovers(folder: Path) -> list[re.Match[str]]:
    """Return the files in a folder that are not in place yet, or no longer."""
    return [
        found
        for entry in os.scandir(folder)
        if (found := LEFTOVER.fullmatch(entry.name))
        if entry.is_file(follow_symlinks=False)
    ]


def discard(draft: Path) -> None:
    """Destroy a draft, unless a living process has it or it is in its place."""
    try:
        descriptor = os.open(draft, os.O_WRONLY | NO_LINKS)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        if not _lock(descriptor):
            return
        # Its writer may have put it in its place since it was opened here.
        with suppress(FileNotFoundError):
            found = draft.stat(follow_symlinks=False)
            if os.path.samestat(found, os.fstat(descriptor)):
                if found.st_nlink == 1:  # a second name is its place
                    overwrite(file)
                draft.unlink()


def _lock(descriptor: int) -> bool:
    """Lock a file until it is closed; return whether nobody else holds the lock."""
    if os.name == "posix":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _write(file: IO[bytes], data: bytes) -> None:
    """Write all of the data and flush it."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
    os.fsync(file.fileno())


def destroy(path: Path) -> None:
    """Overwrite a file with zeros and delete it, if there is one."""
    try:
        descriptor = os.open(path, os.O_WRONLY | NO_LINKS)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        overwrite(file)
    path.unlink(missing_ok=True)  # another process may destroy it at this moment


@contextmanager
def erase_replaced(path: Path) -> Iterator[None]:
    """Overwrite the file that the block under ``with`` replaces, once that is on disk.

    Until then the old file has a second name, by which it is found after a crash.
    """
    _drop_old(path)
    if path.exists():
        os.link(path, hidden_path(path, "old"))
    yield
    if not _drop_old(path):
        sync_folder(path.parent)


def _drop_old(path: Path) -> bool:
    """Destroy the file that was here before, once its successor is on disk.

    Returns whether the folder was flushed for that.
    """
    old = hidden_path(path, "old")
    if not old.exists():
        return False
    if path.exists() and old.samefile(path):
        old.unlink()  # nothing had taken its place yet
        return False
    sync_folder(path.parent)
    destroy(old)
    return True


def hidden_path(path: Path, ending: str) -> Path:
    """Return the hidden name of a file before it is in its place, or after."""
    return path.with_name(f".{path.name}.{ending}")


def try_writing(folder: Path) -> None:
    """Write a little in a folder and take it back, or raise OSError.

    The file has no name, so that a crash leaves nothing of it.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(TRIAL))
        file.flush()
        os.fsync(file.fileno())


def overwrite(file: IO[bytes]) -> None:
    """Overwrite an open file with zeros over its whole length, and flush them."""
    left = os.fstat(file.fileno()).st_size
    while left:
        left -= file.write(bytes(min(left, 1 << 20)))
    os.fsync(file.fileno())


def give_to_folder_owner(descriptor: int, folder: Path) -> None:
    """Give what root has just made in a folder to the folder's owner."""
    if os.name != "posix" or os.geteuid() != 0:
        return
    there = folder.stat()
    if there.st_uid != 0:
        os.fchown(descriptor, there.st_uid, there.st_gid)


def make_scratch_folder(parent: Path | None) -> tuple[Path, int]:
    """Make a folder for the owner alone, under a name that nobody can foresee.

    It is locked until the descriptor beside it is closed, so that those which killed
    processes left can be recognised: they are deleted here. ``parent`` is the system's
    temporary folder if not given.
    """
    place = Path(tempfile.gettempdir()) if parent is None else parent
    _delete_scratch(place)
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=place))
    # Nobody looks at the lock before it is held.
    descriptor = open_new(folder / ".lock")
    (folder / ".lock").rename(folder / "lock")
    return folder, descriptor


def delete_scratch_folder(folder: Path, descriptor: int) -> None:
    """Delete a scratch folder, and give up its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Lend a scratch folder, and delete it afterwards."""
    folder, descriptor = make_scratch_folder(parent)
    try:
        yield folder
    finally:
        delete_scratch_folder(folder, descriptor)


def _delete_scratch(place: Path) -> None:
    """Delete the scratch folders of this user that no living process has."""
    if os.name != "posix":
        return
    for entry in os.scandir(place):
        try:
            mine = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            if not (entry.name.startswith(SCRATCH) and mine):
                continue
            descriptor = os.open(Path(entry, "lock"), os.O_RDWR | NO_LINKS)
        except OSError:  # not one of ours, not ready, or gone meanwhile
            continue
        if _lock(descriptor):
            shutil.rmtree(entry, ignore_errors=True)
        os.close(descriptor)


def find_inode(path: str | Path | None) -> int | None:
    """Return which file has this name; None if there is none."""
    with suppress(OSError):
        return None if path is None else os.stat(path).st_ino
    return None


def is_allowed(path: Path, rights: int) -> bool:
    """Return whether this process has rights on a path, given as ``os.R_OK`` etc."""
    effective = os.access in os.supports_effective_ids
    return os.access(path, rights, effective_ids=effective)


def require_private(path: Path) -> None:
    """Refuse a file or folder that others may change, or this user cannot read.

    A missing one is accepted.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise store_failure(error) from None
    if os.name == "posix" and mode & OTHERS_WRITE:
        raise StoreFailed(
            f"{path} has mode {stat.S_IMODE(mode):04o}: others may change it; check "
            f"that they did not, and run chmod go-w {path}"
        )
    if not is_allowed(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)):
        raise StoreFailed(denied_message(path))


def store_failure(error: OSError) -> StoreFailed:
    """Return the exception to raise for an error of the operating system."""
    if error.errno in NO_ROOM:
        return StoreFailed(
            f"no room is left on the disk ({error.strerror}); make room and run the "
            "command again"
        )
    if isinstance(error.filename, str | os.PathLike):
        path = Path(error.filename)
        if error.errno == errno.EROFS:
            return StoreFailed(read_only_message(path))
        if error.errno in (errno.EACCES, errno.EPERM):
            return StoreFailed(denied_message(path))
    return StoreFailed(
        f"{error.filename or 'a file of the registry'} cannot be used "
        f"({error.strerror}); check that it is there and that this user may read and "
        "write it"
    )


def read_only_message(path: Path) -> str:
    """Return the message for an attempt to write to a read-only disk."""
    return (
        f"{path} is on a disk that can only be read, so nothing can be changed there; "
        "mount it writable, or only look at it (status, log)"
    )


def denied_message(path: Path) -> str:
    """Return the message why this user may not use a path, and what to do."""
    for place, rights in _needed_rights(path) if os.name == "posix" else ():
        try:
            found = place.stat()
        except OSError:
            continue  # not there, or behind a folder that is closed
        if is_allowed(place, rights):
            continue
        of_what = "" if place == path else f"{path.name} cannot be used: "
        if found.st_uid == os.geteuid():
            private = "700" if stat.S_ISDIR(found.st_mode) else "600"
            return (
                f"{of_what}{place} has mode {stat.S_IMODE(found.st_mode):04o}, so "
                f"this user cannot read and write it; run chmod {private} {place}"
            )
        owner, user = _user_name(found.st_uid), _user_name(os.geteuid())
        # In your own folder the file was left behind; elsewhere you are the wrong user.
        own = place.parent.stat().st_uid == os.geteuid()
        what = f"run chown {user} {place} as root" if own else f"run this as {owner}"
        return f"{of_what}{place} belongs to {owner} and this user is {user}; {what}"
    return f"{path} cannot be used; check that this user may read and write it"


def _needed_rights(path: Path) -> Iterator[tuple[Path, int]]:
    """Yield the rights that using a path needs, those on the path itself first."""
    yield path, READ_WRITE | (os.X_OK if os.path.isdir(path) else 0)
    yield path.parent, READ_WRITE | os.X_OK
    for folder in path.parent.parents:
        yield folder, os.X_OK


def _user_name(user: int) -> str:
    """Return the name of a user, or the number of one without a name."""
    from pwd import getpwuid  # POSIX alone

    try:
        return getpwuid(user).pw_name
    except KeyError:
        return str(user)
