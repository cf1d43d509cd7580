# SPDX-License-Identifier: Apache-2.0
"""Rights: whose a file is, who may change it, and what to tell whoever may not.

A file that root makes in somebody's folder is that somebody's: otherwise one command
run as root would shut the owner out. What cannot be used is never called lost: putting
it back from a backup would replace the only current one.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from .exceptions import StoreFailed

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
READ_WRITE = os.R_OK | os.W_OK
NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def hand_over(descriptor: int, folder: Path) -> None:
    """Give what root has just made in a folder to the owner of the folder."""
    if os.name != "posix" or os.geteuid() != 0:
        return
    there = folder.stat()
    if there.st_uid != 0:
        os.fchown(descriptor, there.st_uid, there.st_gid)


def may(path: Path, rights: int) -> bool:
    """Whether this process has rights on a path, given as ``os.R_OK`` and the like."""
    effective = os.access in os.supports_effective_ids
    return os.access(path, rights, effective_ids=effective)


def require_closed(path: Path) -> None:
    """Refuse a file or folder that others may change, or this user cannot read.

    Nothing if it is not there.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise failed(error) from None
    if os.name == "posix" and mode & OTHERS_WRITE:
        raise StoreFailed(
            f"{path} has mode {stat.S_IMODE(mode):04o}: others may change it; see that "
            f"they did not, and run chmod go-w {path}"
        )
    if not may(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)):
        raise StoreFailed(denied(path))


def failed(error: OSError) -> StoreFailed:
    """Return the exception to raise for an error of the operating system."""
    if error.errno in NO_ROOM:
        return StoreFailed(
            f"no room is left on the disk ({error.strerror}); make room and run the "
            "command again"
        )
    if isinstance(error.filename, str | os.PathLike):
        path = Path(error.filename)
        if error.errno == errno.EROFS:
            return StoreFailed(read_only(path))
        if error.errno in (errno.EACCES, errno.EPERM):
            return StoreFailed(denied(path))
    return StoreFailed(
        f"{error.filename or 'a file of the registry'} cannot be used "
        f"({error.strerror}); see that it is there and that this user may read and "
        "write it"
    )


def read_only(path: Path) -> str:
    """Return what to tell whoever would write to a disk that can only be read."""
    return (
        f"{path} is on a disk that can only be read, so nothing can be changed there; "
        "mount it to write, or look at it (status, log)"
    )


def denied(path: Path) -> str:
    """Return why this user may not use a path, and what to do about that."""
    for place, rights in _needed(path) if os.name == "posix" else ():
        try:
            found = place.stat()
        except OSError:
            continue  # not there, or behind a folder that is closed
        if may(place, rights):
            continue
        of_what = "" if place == path else f"{path.name} cannot be used: "
        if found.st_uid == os.geteuid():
            private = "700" if stat.S_ISDIR(found.st_mode) else "600"
            return (
                f"{of_what}{place} has mode {stat.S_IMODE(found.st_mode):04o}, so that "
                f"this user may not read and write it; run chmod {private} {place}"
            )
        owner, user = _name(found.st_uid), _name(os.geteuid())
        # In one's own folder it was left behind; elsewhere one is the wrong user.
        own = place.parent.stat().st_uid == os.geteuid()
        what = f"run chown {user} {place} as root" if own else f"run this as {owner}"
        return f"{of_what}{place} belongs to {owner} and this user is {user}; {what}"
    return f"{path} cannot be used; see that this user may read and write it"


def _needed(path: Path) -> Iterator[tuple[Path, int]]:
    """Yield what must be allowed to use a path, the path itself first."""
    yield path, READ_WRITE | (os.X_OK if os.path.isdir(path) else 0)
    yield path.parent, READ_WRITE | os.X_OK
    for folder in path.parent.parents:
        yield folder, os.X_OK


def _name(user: int) -> str:
    """Return the name of a user, or the number of one without."""
    from pwd import getpwuid  # not on every system, as users are not

    try:
        return getpwuid(user).pw_name
    except KeyError:
        return str(user)
