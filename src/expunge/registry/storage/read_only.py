# SPDX-License-Identifier: Apache-2.0
"""Reading a SQLite file that cannot be written.

A reader of a file in WAL mode writes as well: it shares an index of the log with others
(``-shm``). Where it cannot, there are three ways, and each shows what is committed:

    log and index exist    SQLite reads them as they are, and locks as usual
    a log alone            read without locks, with the index in memory
    no log, or an empty    only the file counts, and is read without locks

Without locks another process that may write, through another mount for instance, could
write meanwhile: then what was read does not count.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from ...disk import is_allowed
from ...exceptions import Busy

Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Of the file, its log and the log's index: inode, length, time of change."""


def is_read_only(path: Path) -> bool:
    """Return whether there is a database that this user cannot write."""
    there = os.path.exists(path)
    return there and not (
        is_allowed(path, os.W_OK) and is_allowed(path.parent, os.W_OK)
    )


def connect_read_only(path: Path, wait: float) -> sqlite3.Connection:
    """Return a connection to a file that cannot be written."""
    _, log, index = _stamp(path)
    has_log = log is not None and log[1] > 0
    if log is not None and index is not None:
        how = ""
    elif has_log:
        how = "&vfs=unix-none"
    else:
        how = "&immutable=1"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro{how}",
        uri=True,
        timeout=wait,
        isolation_level=None,
        check_same_thread=False,  # SQLAlchemy takes care of that
    )
    if has_log and index is None:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")  # an index in memory
    return connection


@contextmanager
def require_unchanged(path: Path) -> Iterator[None]:
    """Raise Busy if a file that was read without locks was written meanwhile."""
    before = _stamp(path)
    yield
    after = _stamp(path)
    locked = before[2] is not None and after[2] is not None
    if before != after and not locked:
        raise Busy(
            "another process changed the database while it was read without the right "
            "to lock it; run the command again"
        )


def _stamp(path: Path) -> Stamp:
    """Return what changes when the database does."""
    stamps: list[tuple[int, int, int] | None] = []
    for end in ("", "-wal", "-shm"):
        try:
            found = os.stat(f"{path}{end}")
        except FileNotFoundError:
            stamps.append(None)
        else:
            stamps.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(stamps)
