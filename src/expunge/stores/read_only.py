# SPDX-License-Identifier: Apache-2.0
"""Read-only: a SQLite file that can be looked at and not written.

A reader of a file in WAL mode writes as well: it shares an index of the log with others
(``-shm``). Where it cannot, there are three ways, and each shows what is committed:

    log and index there    SQLite reads them as they are, and locks as ever
    a log alone            read without locks, the index made in memory
    no log, or an empty    the file is all there is, and read without locks

Nothing is written, and nothing of it lies elsewhere. Without locks somebody who may
write, by another mount say, could write meanwhile: then what was read does not count.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from ..exceptions import Busy
from ..rights import may

Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Of the file, its log and the log's index: which file, how long, changed when."""


def only_readable(path: Path) -> bool:
    """Whether a database is there that this user cannot write."""
    there = os.path.exists(path)
    return there and not (may(path, os.W_OK) and may(path.parent, os.W_OK))


def connect(path: Path, wait: float) -> sqlite3.Connection:
    """Return a connection to a file that cannot be written, by what lies beside it."""
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
        check_same_thread=False,  # SQLAlchemy sees to it
    )
    if has_log and index is None:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")  # an index in memory
    return connection


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Raise Busy if somebody wrote meanwhile to a file that was read without locks."""
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
