# SPDX-License-Identifier: Apache-2.0
"""Engine: transactions on SQLite or PostgreSQL that are on disk when they return.

SQLite runs in WAL mode with synchronous=FULL, so that a commit survives a power cut,
and with secure_delete, so that deleted content is overwritten. Deleted bytes may still
be in the write-ahead log; ``erase_deleted`` moves it into the database and truncates
it. A reader can hold that up: then it raises, and nothing counts as erased.

PostgreSQL keeps deleted bytes in its heap and log whatever one does, so there whatever
must vanish is sealed under a key that is kept elsewhere.

A SQLite file that cannot be written can still be read: see ``read_only``.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from threading import Lock, local
from time import monotonic, sleep
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Table,
    create_engine,
    event,
    exc,
    make_url,
)
from sqlalchemy.pool import NullPool

from ...disk import find_inode, store_failure
from ...exceptions import Busy, ExpungeError, InvalidInput, StoreFailed, needing
from .read_only import connect_read_only, is_read_only, require_unchanged

# How long a statement waits for another process's transaction, in seconds.
PATIENCE = 30.0
IN_MEMORY = "temp_store=MEMORY"  # sorting must leave no copy of a row in a file
PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "secure_delete=ON",
    "foreign_keys=ON",
    IN_MEMORY,
)
READ_ONLY, FILE = "read-only file", "file"
AUTOCOMMIT = "AUTOCOMMIT"
# How SQLite begins what PostgreSQL begins at each of these levels.
BEGIN = "begin"
BEGINNINGS = {
    "REPEATABLE READ": "BEGIN",
    "READ COMMITTED": "BEGIN IMMEDIATE",
    AUTOCOMMIT: "",
}
# Whatever the server's defaults are.
SESSION = (
    "synchronous_commit=on",  # committed means on disk
    # By default a few hundred keys are looked up by reading the whole table, which then
    # takes longer with every request that was ever answered.
    "random_page_cost=1.1",
    f"lock_timeout={int(PATIENCE * 1000)}",  # others may hold a lock for ever
)
CHUNK = 500  # values in one statement
# States of PostgreSQL: lock timeout, deadlock, serialisation failure.
OTHERS_IN_THE_WAY = ("55P03", "40P01", "40001")


T = TypeVar("T")


class Collision(StoreFailed):
    """Another process wrote the same unique value first; nothing was written."""


class Store:
    """A database: transactions to read and to write, and real erasure.

    Parameters
    ----------
    engine
        From ``sqlite_engine`` or ``postgresql_engine``.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.thread_lock = Lock()  # held by the thread that works
        self._within = local()

    @property
    def dialect(self) -> str:
        """The kind of database: "sqlite" or "postgresql"."""
        return self.engine.dialect.name

    @property
    def has_log(self) -> bool:
        """Whether deleted rows must be erased from a log."""
        return self.dialect == "sqlite"

    @property
    def read_only_file(self) -> Path | None:
        """The SQLite file, if this user can read it but not write it."""
        path: Path | None = self.engine.get_execution_options().get(READ_ONLY)
        return path

    @contextmanager
    def hold_session(self) -> Iterator[Connection]:
        """Keep one session for all transactions of this thread, until the block ends.

        PostgreSQL is then asked once, and not by every transaction, whether the session
        still lives; and nothing is written once a session that holds a lock has ended.
        """
        current: Connection | None = getattr(self._within, "session", None)
        if current is not None:
            yield current
            return
        with translate_errors(), self.engine.connect() as session:
            try:
                self._within.session = session
                yield session
            finally:
                self._within.session = None

    @contextmanager
    def read(self, *, snapshot: bool = True) -> Iterator[Connection]:
        """Give a connection that sees one moment and changes nothing.

        Inside another transaction of the same thread it is that one. Without a
        ``snapshot`` each statement sees a moment of its own, which is cheaper: for one
        statement alone, or for a worker, whose turn is refused if another one wrote in
        between.
        """
        current: Connection | None = getattr(self._within, "connection", None)
        if current is not None:
            yield current
            return
        file = self.read_only_file
        moment = nullcontext() if file is None else require_unchanged(file)
        with self._report_replaced(), moment, self.hold_session() as session:
            self._set_up(session, "REPEATABLE READ" if snapshot else AUTOCOMMIT)
            try:
                with self._be_within(session):
                    yield session
            finally:
                session.rollback()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Give a transaction that is committed, durably, if nothing raises."""
        self.require_writable()
        assert getattr(self._within, "connection", None) is None, "end the other first"
        with self._report_replaced(), self.hold_session() as session:
            self._set_up(session, "READ COMMITTED")
            with session.begin(), self._be_within(session):
                yield session

    @contextmanager
    def _be_within(self, session: Connection) -> Iterator[None]:
        """Let what this thread reads in the block be read by this transaction."""
        try:
            self._within.connection = session
            yield
        finally:
            self._within.connection = None

    def _set_up(self, session: Connection, level: str) -> None:
        """Say what the next transaction of a session is for."""
        if self.dialect == "postgresql":  # whatever the server's defaults are
            session.execution_options(isolation_level=level)
            return
        if session.info.get(FILE) != find_inode(self.engine.url.database):
            session.invalidate()  # another file has replaced it: connect to that one
        session.execution_options(**{BEGIN: BEGINNINGS[level]})

    @contextmanager
    def _report_replaced(self) -> Iterator[None]:
        """Translate errors; whatever fails while a restore replaces the file is Busy.

        SQLite finds the log by its name, and takes that of the new file for the old's.
        """
        file = self.engine.url.database if self.dialect == "sqlite" else None
        before = find_inode(file)
        try:
            with translate_errors():
                yield
        except StoreFailed as error:
            if find_inode(file) == before:
                raise
            raise Busy(
                "the database was replaced meanwhile, as by a restore; run the command "
                "again"
            ) from error

    def erase_deleted(self, wait: float = PATIENCE) -> None:
        """Erase what was deleted from disk, or raise Busy."""
        if not self.has_log:
            return
        self.require_writable()
        with translate_errors():
            raw = self.engine.raw_connection()
            try:
                _truncate(raw.cursor(), wait)
            finally:
                raw.close()
            # The empty log must be on disk too, or a power cut brings the old one back.
            _sync(Path(f"{self.engine.url.database}-wal"))

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def require_writable(self) -> None:
        """Refuse to change a database that can only be read."""
        if self.read_only_file is not None:
            raise StoreFailed(
                f"{self.read_only_file} can only be read here, so nothing can be "
                "changed; give this user the right to write the registry's folder and "
                "files, or mount them writable"
            )


def sqlite_engine(path: Path) -> Engine:
    """Return an engine on a SQLite file, which is made if it is missing.

    A file that this user cannot write can still be read.
    """
    if is_read_only(path):
        return _read_only_engine(path)
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        hide_parameters=True,  # tags would be in logs and tracebacks
        connect_args={"timeout": PATIENCE, "isolation_level": None},
    )
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "checkout", partial(_require_same_file, path))
    event.listen(engine, "begin", _begin)
    return engine


def _read_only_engine(path: Path) -> Engine:
    """Return an engine on a SQLite file that cannot be written."""
    engine = create_engine(
        "sqlite://",
        creator=lambda: connect_read_only(path, PATIENCE),
        hide_parameters=True,
        poolclass=NullPool,  # each transaction opens the file as it is then
        execution_options={READ_ONLY: path},
    )
    event.listen(engine, "connect", _prepare_read_only)
    event.listen(engine, "begin", _begin)
    return engine


@contextmanager
def closed_to_others(path: Path) -> Iterator[None]:
    """Let nobody else open a SQLite file, under whatever name it has meanwhile.

    It is left without a log; who opens it next makes one again.
    """
    with translate_errors(), closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.rollback()


def postgresql_engine(url: str) -> Engine:
    """Return an engine on a PostgreSQL database."""
    try:
        parsed = make_url(url)
    except exc.ArgumentError:
        raise InvalidInput(
            "the store URL cannot be parsed; write postgresql://user@host/database"
        ) from None
    if parsed.get_backend_name() != "postgresql":
        raise InvalidInput(
            f"a store of kind {parsed.get_backend_name()!r}; omit the URL to use "
            "SQLite, or write postgresql://user@host/database"
        )
    with needing("registry,files", "PostgreSQL"):
        return create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            hide_parameters=True,
            pool_pre_ping=True,
            connect_args={"options": " ".join(f"-c {one}" for one in SESSION)},
        )


def analyse(connection: Connection, *columns: str) -> None:
    """Let PostgreSQL gather statistics on columns, each given as "table (columns)".

    Otherwise it guesses for minutes after a bulk write, and may read a whole table to
    find a few lines by their key. Leave out columns of tags and rows: statistics hold
    samples of the values.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"ANALYZE {', '.join(columns)}")


def chunks(values: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """Yield the values a few hundred at a time: a statement takes only so many."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def write_exactly(
    connection: Connection,
    statement: Any,
    *,
    rows: Sequence[dict[str, Any]],
    n: int,
    refusal: Exception,
) -> None:
    """Execute a write for each row of values; refuse unless n lines change in all."""
    # Of one row as one statement: the driver begins a pipeline for a list.
    written = connection.execute(statement, rows[0] if len(rows) == 1 else rows)
    if written.rowcount != n:
        raise refusal


def insert_lines(
    connection: Connection, table: Table, *, lines: Sequence[tuple[Any, ...]]
) -> None:
    """Insert many lines, each with a value for every column in order.

    Past SQLAlchemy, which spends as much on a line as the database does.
    """
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    columns = [column.name for column in table.columns]
    marks = ", ".join([mark] * len(columns))
    connection.exec_driver_sql(
        f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({marks})",
        [tuple(line) for line in lines],
    )


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn errors of database and files into ones that an operator can act on."""
    try:
        yield
    except exc.IntegrityError as error:
        raise collision_error() from error
    except exc.DBAPIError as error:
        raise driver_failure(error.orig) from error
    except exc.SQLAlchemyError as error:
        raise StoreFailed(f"the store failed: {type(error).__name__}") from error
    except sqlite3.Error as error:
        raise driver_failure(error) from error
    except (ExpungeError, FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise store_failure(error) from error


def collision_error() -> Collision:
    """Return the error that another process wrote the same unique value."""
    return Collision(
        "another process wrote the same thing at the same time; run the command again"
    )


def driver_failure(error: BaseException | None) -> Exception:
    """Return the exception to raise for an error of the driver."""
    # Driver messages may quote values: only harmless ones are passed on.
    said = str(error).partition("\n")[0] if isinstance(error, sqlite3.Error) else ""
    state = getattr(error, "sqlstate", None)
    if "locked" in said or "busy" in said or state in OTHERS_IN_THE_WAY:
        return Busy(
            "another process holds the database; wait for it, or raise --wait, and "
            "run the command again"
        )
    if "full" in said:
        return StoreFailed(
            "no room is left on the disk (database or disk is full); make room and run "
            "the command again"
        )
    if "disk I/O" in said:  # what SQLite says of a full disk, too, where it maps a file
        return StoreFailed(
            f"the disk is full or failing ({said}); make room, check the "
            "disk, and run the command again"
        )
    if "readonly" in said or "unable to open" in said:
        return StoreFailed(
            f"the database cannot be written ({said}); give this user the right to "
            "write the registry's folder and files"
        )
    if "malformed" in said or "not a database" in said:
        return StoreFailed(
            f"the database is damaged ({said}); put it back from a backup and run "
            "expunge restore"
        )
    kind = type(error).__name__
    return StoreFailed(
        f"the database failed ({kind}{': ' + said if said else ''}); check that it "
        "runs and can be reached, and run the command again"
    )


def _sync(path: Path) -> None:
    """Flush a file to disk, if there is one."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_same_file(path: Path, _: object, record: Any, *rest: object) -> None:
    """Reconnect if another file has replaced the database."""
    del rest
    with suppress(FileNotFoundError):
        file = path.stat().st_ino
        if record.info.setdefault(FILE, file) != file:
            raise exc.DisconnectionError


def _prepare(connection: Any, record: object) -> None:
    """Set up a new SQLite connection."""
    del record
    cursor = connection.cursor()
    for pragma in PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _prepare_read_only(connection: Any, record: object) -> None:
    """Set up a SQLite connection that can only read."""
    del record
    connection.execute(f"PRAGMA {IN_MEMORY}").close()


def _begin(connection: Connection) -> None:
    """Begin a SQLite transaction; one that will write takes the lock at once.

    A reader that turns into a writer may find that another process wrote in between,
    and waiting does not help it.
    """
    statement = connection.get_execution_options().get(BEGIN, "BEGIN")
    if statement:
        connection.exec_driver_sql(statement)


def _truncate(cursor: Any, wait: float) -> None:
    """Cut the write-ahead log to nothing, waiting for readers."""
    until = monotonic() + wait
    cursor.execute("PRAGMA busy_timeout=100")
    try:
        while cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            if monotonic() > until:
                raise Busy(
                    "another process reads the database and keeps deleted rows in its "
                    "log; end it and run the command again, which finishes the "
                    "erasure"
                )
            sleep(0.01)
    finally:
        cursor.execute(f"PRAGMA busy_timeout={int(PATIENCE * 1000)}")
