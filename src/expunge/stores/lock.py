# SPDX-License-Identifier: Apache-2.0
"""Lock: one process applies requests, and the others wait.

The lock ends with the process, however that ends: it is the system's lock on a file
beside SQLite, and a session's advisory lock in PostgreSQL. Should a PostgreSQL session
break while its process lives on, another may get the lock; what the first one writes
then is refused by the generation of the checkpoint, which only moves on by one.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from sqlalchemy import exc, func, select

from ..durable import NO_LINKS, OWNER_ALONE
from ..exceptions import Busy
from .engine import Store, translated

# Any number will do, as long as nobody else uses it in the same database.
ADVISORY = int.from_bytes(b"expunge", "big")
_LOCK = select(func.pg_try_advisory_lock(ADVISORY))
# All that this session holds: nothing, where another process did the work meanwhile.
_UNLOCK = select(func.pg_advisory_unlock_all())


@contextmanager
def alone(
    store: Store, path: Path, wait: float, needless: Callable[[], bool] = lambda: False
) -> Iterator[bool]:
    """Hold the worker's lock; give False, without it, once it is needless.

    Parameters
    ----------
    store
        The database.
    path
        The lock's file, for SQLite.
    wait
        Seconds to wait for another process before Busy is raised.
    needless
        Whether there is nothing left to do: whoever holds the lock may do our work.
    """
    holding = _file_lock(path) if store.dialect == "sqlite" else _session_lock(store)
    with holding as try_lock:
        until = monotonic() + wait
        pause = 0.001
        while not (locked := try_lock()):
            if needless():
                break
            if monotonic() > until:
                raise Busy(
                    f"another process is applying requests and did not finish within "
                    f"{wait:g} s; what was accepted is safe, run the command again"
                )
            sleep(pause)
            pause = min(2 * pause, 0.1)
        yield locked


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Open a file, made for its owner alone if need be, while nobody else does."""
    with _opened(path) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NO_LINKS
    with translated():
        descriptor = os.open(path, flags, OWNER_ALONE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _file_lock(path: Path) -> Iterator[Callable[[], bool]]:
    """Give a function that tries to lock a file."""
    with _opened(path) as descriptor:

        def try_lock() -> bool:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        yield try_lock


@contextmanager
def _session_lock(store: Store) -> Iterator[Callable[[], bool]]:
    """Give a function that tries to lock the database for a session of its own."""
    with translated(), store.engine.connect() as connection:
        # Outside a transaction: one that idles for long would hold up the vacuum.
        connection = connection.execution_options(isolation_level="AUTOCOMMIT")

        def try_lock() -> bool:
            return bool(connection.scalar(_LOCK))

        try:
            yield try_lock
        except BaseException:
            connection.invalidate()  # the session ends, and its lock with it
            raise
        try:
            connection.scalar(_UNLOCK)
        except exc.DBAPIError:
            connection.invalidate()  # it had ended by itself; what was done is done
