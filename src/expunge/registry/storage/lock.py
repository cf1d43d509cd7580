# SPDX-License-Identifier: Apache-2.0
"""Lock: one process applies requests, and the others wait.

The lock ends with the process, however that ends: it is the system's lock on a file
beside SQLite, which needs a POSIX system, and an advisory lock of a session in
PostgreSQL. Either can be lost while its process lives on, when the session ends or the
file is deleted, and another process then works beside it. The lock is there to prevent
that; where processes write, a row of the database makes sure that it does no harm
(``registry.log``).
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep

from sqlalchemy import func, select

from ...disk import open_or_create
from ...exceptions import Busy, StoreFailed
from .engine import PATIENCE, Store, translate_errors

# Any number will do, as long as nobody else uses it in the same database.
ADVISORY = int.from_bytes(b"expunge", "big")
_LOCK = select(func.pg_try_advisory_lock(ADVISORY))
# All that this session holds: nothing, where another process did the work meanwhile.
_UNLOCK = select(func.pg_advisory_unlock_all())


@contextmanager
def hold_worker_lock(
    store: Store,
    path: Path,
    *,
    wait: float,
    is_done: Callable[[], bool] = lambda: False,
) -> Iterator[bool]:
    """Hold the worker's lock; give False, without it, once ``is_done``.

    Parameters
    ----------
    store
        The database.
    path
        The lock's file, for SQLite.
    wait
        Seconds to wait for another process before Busy is raised.
    is_done
        Returns whether nothing is left to do: the holder of the lock may do our work.
    """
    holding = _file_lock(path) if store.dialect == "sqlite" else _session_lock(store)
    with holding as try_lock, _thread_lock(store, try_lock) as try_both:
        until = monotonic() + wait
        pause = 0.001
        while not (locked := try_both()):
            if is_done():
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
def lock_file(path: Path, *, wait: float = PATIENCE) -> Iterator[int]:
    """Open and lock a file; if there is none, make it for its owner alone.

    Raises Busy after so many seconds.
    """
    until, pause = monotonic() + wait, 0.0005
    while True:
        with _open(path) as descriptor:
            while not _try_lock(descriptor):
                if monotonic() > until:
                    raise Busy(
                        f"another process is writing to {path.name} and did not finish "
                        f"within {wait:g} s; end it, and run the command again"
                    )
                sleep(pause)
                pause = min(2 * pause, 0.01)
            if _is_at(descriptor, path):  # and not replaced while we waited
                yield descriptor
                return


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _open(path: Path) -> Iterator[int]:
    with translate_errors():
        descriptor = open_or_create(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _thread_lock(
    store: Store, try_lock: Callable[[], bool]
) -> Iterator[Callable[[], bool]]:
    """Give a function that tries to lock out other threads, then other processes.

    Threads share memory, so they must never work at once, even if the lock between
    processes is lost.
    """
    held = False

    def try_both() -> bool:
        nonlocal held
        held = held or store.thread_lock.acquire(blocking=False)
        return held and try_lock()

    try:
        yield try_both
    finally:
        if held:
            store.thread_lock.release()


@contextmanager
def _file_lock(path: Path) -> Iterator[Callable[[], bool]]:
    """Give a function that tries to lock a file."""
    with ExitStack() as stack:
        descriptor = stack.enter_context(_open(path))

        def try_lock() -> bool:
            nonlocal descriptor
            if not _is_at(
                descriptor, path
            ):  # it was deleted: lock the file that others lock
                descriptor = stack.enter_context(_open(path))
            return _try_lock(descriptor) and _is_at(descriptor, path)

        yield try_lock


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file is the one that has this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def _session_lock(store: Store) -> Iterator[Callable[[], bool]]:
    """Give a function that tries to lock the database for a session of its own.

    All that the holder then does, it does in this session: if that ends, so does the
    work.
    """
    with store.hold_session() as session:

        def try_lock() -> bool:
            # Outside a transaction: one that idles for long would hold up the vacuum.
            with store.read(snapshot=False) as connection:
                return bool(connection.scalar(_LOCK))

        try:
            yield try_lock
        except BaseException:
            session.invalidate()  # the session ends, and its lock with it
            raise
        try:
            with store.read(snapshot=False) as connection:
                connection.scalar(_UNLOCK)
        except StoreFailed:
            session.invalidate()  # it had ended by itself; the work is done
