# SPDX-License-Identifier: Apache-2.0
"""Who works on a registry: with the lock, without it, or having lost it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection, event, text, update

from expunge.registry import Registry, context, lake, models, requests, worker
from expunge.registry import request as request_module
from expunge.registry.changes import Move, change_model, read_moves
from expunge.registry.context import Paths
from expunge.registry.fits import (
    JournalIncomplete,
    require_nobody_returns,
)
from expunge.registry.log import Log, Position, read_position
from expunge.registry.storage import (
    engine,
    people_table,
    releases_table,
)
from expunge.registry.storage.lock import ADVISORY
from expunge.registry.storage.tables import log as log_table

from .inside import Place, inside
from .points import wrap

_ALL_PAGES = 1_073_741_823

__all__ = ["JournalIncomplete"]

_END_LOCK = text(
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
    f"AND granted AND (classid::bigint << 32) + objid::bigint = {ADVISORY}"
)
_END_ALL = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


_BUSY = """
    SELECT activity.pid, application_name, locktype IS NOT NULL AS holds
    FROM pg_stat_activity AS activity
    LEFT JOIN pg_locks AS locks
      ON locks.pid = activity.pid AND granted AND locktype = 'advisory'
      AND classid = %(high)s AND objid = %(low)s
    WHERE datname = current_database() AND application_name LIKE %(name)s
      AND (locktype IS NOT NULL OR state IN ('active', 'idle in transaction'))
"""


def working(registry: Registry, wait: float = 5.0) -> AbstractContextManager[object]:
    """Be the one process that works on a registry."""
    return registry._context.hold_lock(wait)


def work_without_lock(registry: Registry) -> None:
    """Apply what waits, as a process does that believes it holds the lock."""
    with registry._context.take_turn():
        worker.apply_waiting(
            registry._context, 5.0, on_progress=lambda done, total: None
        )


def apply_and_stop(registry: Registry) -> None:
    """Apply what waits, and end before it is completed."""
    with working(registry):
        waiting = worker.recover(registry._context, 5.0)
        worker.apply_batch(registry._context, waiting)


def catch_up(registry: Registry) -> None:
    """Take into the database what only the journal has."""
    with working(registry):
        registry._context.log.catch_up()


def prepare_change(
    registry: Registry, request: str, model: str
) -> Callable[[], object]:
    """Change a model as a request wants; return what commits it."""
    found = registry._context
    with found.store.read() as connection:
        asked = people_table.find_asked_rows(connection, [request])
    move = Move([(one, None) for _, one in asked if one.model == model])
    reading = read_moves(found, moves={model: move})
    change = change_model(found, model, reading=reading)
    return lambda: worker.commit_changes(found, [change])


def require_may_return(registry: Registry, *people: str) -> None:
    """Raise what a fit raises that has these people."""
    require_nobody_returns(registry._context, people)


def lose_lock(registry: Registry) -> None:
    """Take the lock from its holder, which does not notice."""
    _lose(registry, _END_LOCK)


def lose_sessions(registry: Registry) -> None:
    """End all sessions with the server, and so take the lock from its holder."""
    _lose(registry, _END_ALL)


def _lose(registry: Registry, end: Any) -> None:
    """End sessions of others, or delete the lock's file; ``registry`` is not theirs."""
    found = registry._context
    if found.store.dialect == "sqlite":
        found.paths.lock.unlink()
        return
    with found.store.engine.connect() as connection:
        connection.execute(end)


class Session(NamedTuple):
    """A session with a server in which something is done, or that holds the lock."""

    id: int
    name: str
    holds_lock: bool


def busy_sessions(connection: Any, name: str) -> list[Session]:
    """Return the busy sessions of those whose name is like one, by psycopg."""
    key = {"high": ADVISORY >> 32, "low": ADVISORY & 0xFFFFFFFF, "name": name}
    return [Session(*line) for line in connection.execute(_BUSY, key)]


def delete_lock(folder: Path) -> bool:
    """Delete the file of the lock; return whether it was there."""
    path = Paths(folder).lock
    if not path.exists():
        return False
    path.unlink()
    return True


@contextmanager
def without_fences() -> Iterator[None]:
    """Let a worker go on, whatever the turn is, though it was overtaken."""

    def require_own(self: Log, known: Position) -> None:
        self.turn = known.turn

    def take_turn(self: Log, connection: Connection, turn: str) -> None:
        connection.execute(update(log_table).values(turn=turn))

    def write(connection: Connection, statement: Any, *, rows: Any, **_: Any) -> None:
        connection.execute(statement, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "_require_own", require_own)
        patch.setattr(Log, "_take_turn", take_turn)
        for table in (request_module, releases_table):
            patch.setattr(table, "write_exactly", write)
        patch.setattr(context.Context, "_was_overtaken", lambda self: False)
        yield


def forget_loaded_models(registry: Registry) -> None:
    """Let a registry read models again when it needs them next."""
    registry._context.cache.clear()


def is_collision(error: Exception) -> bool:
    """Return whether an error says that another process wrote the same value first."""
    return isinstance(error, engine.Collision)


def set_batch(patch: pytest.MonkeyPatch, size: int) -> None:
    """Let workers apply so many requests at a time."""
    patch.setattr(worker, "BATCH", size)


def set_patience(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let everybody wait so long for others."""
    patch.setattr(models, "WAIT", seconds)
    patch.setattr(engine, "PATIENCE", seconds)
    patch.setattr(engine, "SESSION", (f"lock_timeout={round(seconds * 1000)}",))


def set_most_in_memory(patch: pytest.MonkeyPatch, size: int) -> None:
    """Let a registry keep no more bytes of a lake's rows than these."""
    patch.setattr(lake, "MOST_IN_MEMORY", size)


# Transactions.


@contextmanager
def reading(at: Place) -> Iterator[None]:
    """Keep a look at the database open."""
    with inside(at) as found, found.store.read() as connection:
        connection.execute(text("SELECT count(*) FROM rows"))
        yield


@contextmanager
def writing(at: Place) -> Iterator[None]:
    """Keep a transaction open that writes."""
    with inside(at) as found, found.store.write():
        yield


@contextmanager
def writing_in_turn(registry: Registry) -> Iterator[None]:
    """Keep a transaction of a worker open."""
    with registry._context.log.batch() as connection:
        read_position(connection, lock=True)  # which on SQLite nobody else can now
        yield


def erase_log(at: Place) -> None:
    """Move what SQLite's log has into its file, so that none is left to copy."""
    with inside(at) as found:
        found.store.erase_deleted(30.0)


# What a database may not do.


@contextmanager
def full_database(registry: Registry) -> Iterator[None]:
    """Let a SQLite file not grow."""

    def limit(connection: Any, record: object) -> None:
        connection.execute("PRAGMA max_page_count=1")  # SQLite: as many as there are

    store = registry._context.store
    store.close()
    event.listen(store.engine, "connect", limit)
    yield
    event.remove(store.engine, "connect", limit)
    store.close()


def limit_growth(may_grow: Callable[[], bool]) -> None:
    """Ask, as each transaction begins, whether SQLite's file may grow; for good."""

    def wrapper(real: Callable[[Connection], None]) -> Callable[[Connection], None]:
        def begin(connection: Connection) -> None:
            real(connection)
            # SQLite takes one page for as many as there are.
            pages = _ALL_PAGES if may_grow() else 1
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

        return begin

    wrap("beginning a transaction", wrapper)


@contextmanager
def read_only_server(registry: Registry) -> Iterator[None]:
    """Let all new sessions with a database on a server read alone."""
    _set_read_only(registry, "on")
    yield
    _set_read_only(registry, "off")


def _set_read_only(registry: Registry, value: str) -> None:
    connection = registry._context.store.engine.connect()
    with connection.execution_options(isolation_level="AUTOCOMMIT") as session:
        name = session.scalar(text("SELECT current_database()"))
        setting = f"default_transaction_read_only = {value}"
        session.exec_driver_sql(f'ALTER DATABASE "{name}" SET {setting}')


@contextmanager
def accepting_by(number: int) -> Iterator[None]:
    """Accept so many requests at once where many are submitted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "BATCH", number)
        yield
