# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server that lives no longer than the tests that started it."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import URL, MetaData, create_engine, make_url

ADVICE = "PostgreSQL is missing: apt install postgresql, or set TEST_DATABASE_URL"
DEBIAN = Path("/usr/lib/postgresql")
PATIENCE = 60.0
# Besides fsync. Tests make a database each: less is written for each, and nothing is
# tidied up in those that are about to go.
FAST = """
synchronous_commit = off
full_page_writes = off
wal_level = minimal
max_wal_senders = 0
max_wal_size = 1GB
checkpoint_timeout = 1h
autovacuum = off
"""

_END_OTHERS = """
    SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_SEQUENCES = "SELECT format('%I', sequencename), last_value FROM pg_sequences"
_SETTINGS = """
    SELECT FROM pg_db_role_setting AS setting
    JOIN pg_database AS base ON base.oid = setdatabase
    WHERE datname = current_database()
"""
# The system's own rows about tables: another version of one says that it was altered.
_SHAPE = """
    SELECT md5(string_agg(said, ' ' ORDER BY said)) FROM (
        SELECT format('%s %s', oid, xmin) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace
        UNION ALL
        SELECT format('%s %s %s', attrelid, attnum, a.xmin) FROM pg_attribute AS a
        JOIN pg_class AS c ON c.oid = attrelid AND relkind = 'r'
        WHERE relnamespace = 'public'::regnamespace
        UNION ALL SELECT format('%s %s', oid, xmin) FROM pg_constraint
        UNION ALL SELECT format('%s %s', oid, xmin) FROM pg_trigger
        UNION ALL SELECT format('%s %s', oid, xmin) FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace
    ) AS shape (said)
"""

# Its input ends when the process that started it does, however that ends.
KEEPER = 'read -r _; "$1" stop --silent -D "$2/data" -m immediate; rm -rf "$2"'


class Missing(Exception):
    """There is no PostgreSQL on this machine."""


def programs() -> Path:
    """Return the folder of PostgreSQL's programs: the path's, or Debian's newest."""
    found = shutil.which("initdb")
    installed = DEBIAN.glob("*/bin/initdb")
    newest = max(installed, key=lambda path: float(path.parts[-3]), default=found)
    if newest is None:
        raise Missing(ADVICE)
    return Path(found or newest).resolve().parent


class Server:
    """A server on 127.0.0.1 with a folder of its own; ``stop`` removes both.

    Parameters
    ----------
    fast : bool
        Leave out fsync, which matters only where the whole machine dies.
    """

    def __init__(self, *, fast: bool = False) -> None:
        self._programs = programs()
        # PostgreSQL refuses to run as root; its package brings an account.
        self._account = "postgres" if os.geteuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="expunge-postgresql-"))
        if self._account is not None:
            shutil.chown(self.folder, self._account)
        self._postmaster: subprocess.Popen[bytes] | None = None
        self._keeper = self._run(
            ["sh", "-c", KEEPER, "sh", self._programs / "pg_ctl", self.folder],
            stdin=subprocess.PIPE,
        )
        self._port = _free_port()
        self._password = secrets.token_hex(16)
        try:
            self._create(fast)
            self.restart()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """The address of its database ``postgres``, as SQLAlchemy writes one."""
        return (
            f"postgresql+psycopg://postgres:{self._password}"
            f"@127.0.0.1:{self._port}/postgres"
        )

    def database(self) -> str:
        """Make an empty database and return its address."""
        return create_database(self.url)

    def kill(self) -> None:
        """End every process of the server at once; files and port stay its own."""
        if self._postmaster is None:
            return
        # Stopped, it can neither start another child nor clear up after one.
        self._postmaster.send_signal(signal.SIGSTOP)
        children = [pid for pid in _processes() if _parent(pid) == self._postmaster.pid]
        for pid in [*children, self._postmaster.pid]:
            os.kill(pid, signal.SIGKILL)
        self._postmaster.wait()
        self._postmaster = None
        until(lambda: all(_parent(pid) is None for pid in children))

    def restart(self) -> None:
        """Start the server that ``kill`` ended, and wait until it answers."""
        self._postmaster = self._run([self._programs / "postgres", "-D", self._data])
        until(self._answers)

    def stop(self) -> None:
        """End the server and remove its folder."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait()
        if self._postmaster is not None:
            self._postmaster.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _run(
        self, command: Sequence[str | Path], stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C is for the tests, which then stop the server.
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=stdin,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                user=self._account,
                start_new_session=True,
            )

    def _create(self, fast: bool) -> None:
        secret = self.folder / "password"
        secret.write_text(self._password)
        if self._account is not None:
            shutil.chown(secret, self._account)
        options = ["--username=postgres", f"--pwfile={secret}", "--auth=scram-sha-256"]
        options += ["--encoding=UTF8", "--locale=C", "--no-sync"]
        initdb = self._run([self._programs / "initdb", "-D", self._data, *options])
        if initdb.wait() != 0:
            raise RuntimeError(f"initdb failed:\n{self._log()}")
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write(
                "listen_addresses = '127.0.0.1'\nunix_socket_directories = ''\n"
                f"port = {self._port}\nfsync = {'off' if fast else 'on'}\n"
            )
            if fast:
                settings.write(FAST)

    def _answers(self) -> bool:
        if self._postmaster is None or self._postmaster.poll() is not None:
            raise RuntimeError(f"PostgreSQL did not start:\n{self._log()}")
        try:
            connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True

    def _log(self) -> str:
        return (self.folder / "log").read_text()


def connect(url: str) -> psycopg.Connection[Any]:
    """Connect to an address in SQLAlchemy's form; every statement commits."""
    plain = _written(make_url(url).set(drivername="postgresql"))
    return psycopg.connect(plain, autocommit=True, connect_timeout=10)


def create_database(server: str, template: str | None = None) -> str:
    """Make a database and return its address; the role needs CREATEDB.

    It is empty, or a copy of one that nobody is connected to.
    """
    name = f"expunge_{uuid.uuid4().hex}"
    copied = make_url(template).database if template else "template1"
    with connect(server) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{copied}"')
    return _written(make_url(server).set(database=name))


@contextmanager
def lent_database(server: str, template: str | None = None) -> Iterator[str]:
    """Lend the address of a new database, dropped afterwards even if in use."""
    database = create_database(server, template)
    try:
        yield database
    finally:
        name = make_url(database).database
        with connect(server) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


class Lender:
    """A database that one test after another finds as the first one did.

    Making a database takes far longer than writing a few rows again.

    Parameters
    ----------
    server
        The role in its address needs CREATEDB.
    template
        What the database is a copy of; without one it is empty.
    """

    def __init__(self, server: str, template: str | None = None) -> None:
        self._server, self._template = server, template
        self._open = ExitStack()
        self._database: _Database | None = None
        self._times = 0

    @contextmanager
    def lend(self) -> Iterator[str]:
        """Lend the database's address; what was done to it is then undone."""
        if self._database is None:
            url = self._open.enter_context(lent_database(self._server, self._template))
            self._database = _Database(url)
        try:
            yield self._database.url
        finally:
            self._times += 1
            lent, self._database = self._database, None
            if lent.restore(tidy=self._times % 20 == 0):
                self._database = lent
            else:
                self._open.close()

    def close(self) -> None:
        """Drop the database."""
        self._open.close()


class _Database:
    """A database, and what was in it at first."""

    def __init__(self, url: str) -> None:
        self.url = url
        engine, schema = create_engine(url), MetaData()
        schema.reflect(engine)
        engine.dispose()
        # Rows that others refer to go last and come back first.
        self._tables = [table.name for table in schema.sorted_tables]
        with connect(url) as connection:
            self._shape = self._read_shape(connection)
            self._sequences = connection.execute(_SEQUENCES).fetchall()
            self._rows = {name: _read_rows(connection, name) for name in self._tables}

    def restore(self, *, tidy: bool) -> bool:
        """Undo what a test did; return whether that could be done."""
        with connect(self.url) as connection:
            connection.execute(_END_OTHERS)
            if not self._tables:
                connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            elif self._read_shape(connection) != self._shape:
                return False
            else:
                self._write_rows(connection)
            if tidy:
                connection.execute("VACUUM")
            return not connection.execute(_SETTINGS).fetchall()

    def _read_shape(self, connection: psycopg.Connection[Any]) -> Any:
        return connection.execute(_SHAPE).fetchone()

    def _write_rows(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            for name in reversed(self._tables):
                connection.execute(f'DELETE FROM "{name}"')
            for name in self._tables:
                with connection.cursor().copy(f'COPY "{name}" FROM STDIN') as copy:
                    copy.write(self._rows[name])
            for name, value in self._sequences:
                given = (name, value or 1, value is not None)
                connection.execute("SELECT setval(%s, %s, %s)", given)


def _read_rows(connection: psycopg.Connection[Any], name: str) -> bytes:
    with connection.cursor().copy(f'COPY "{name}" TO STDOUT') as copy:
        return b"".join(bytes(part) for part in copy)


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that a server does soon, or will never do."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"PostgreSQL took more than {PATIENCE:.0f} s")
        time.sleep(0.02)


def _written(url: URL) -> str:
    return url.render_as_string(hide_password=False)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _processes() -> list[int]:
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def _parent(pid: int) -> int | None:
    """Return a process's parent; None if it ended, even if nobody collected it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc(5): the name, in brackets, may hold anything; state and parent follow it.
    state, parent = stat.rpartition(")")[2].split()[:2]
    return None if state in "ZX" else int(parent)
