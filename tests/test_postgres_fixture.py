# SPDX-License-Identifier: Apache-2.0
"""The PostgreSQL of the tests: fresh, durable through a kill, and gone afterwards."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from psycopg import OperationalError
from sqlalchemy import create_engine, make_url, text

from tests import postgres, stores
from tests.postgres import ADVICE, Lender, Missing, Server, connect, until

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        started = Server()
    except Missing as reason:
        stores.without_postgres(reason)
    with started:
        yield started


def test_server_speaks_to_sqlalchemy(server: Server) -> None:
    engine = create_engine(server.database())
    with engine.connect() as connection:
        assert connection.execute(text("SHOW fsync")).scalar() == "on"
    engine.dispose()


def test_databases_are_fresh_and_apart(server: Server) -> None:
    one, other = server.database(), server.database()
    with connect(one) as connection:
        connection.execute("CREATE TABLE person (id int)")
    with connect(other) as connection:
        assert connection.execute("SELECT to_regclass('person')").fetchone() == (None,)


def test_what_was_committed_outlives_a_kill(server: Server) -> None:
    url = server.database()
    with connect(url) as connection:
        connection.execute("CREATE TABLE person (id int)")
        connection.execute("INSERT INTO person VALUES (17)")
        server.kill()
        with pytest.raises(OperationalError):
            connection.execute("SELECT id FROM person")
    with pytest.raises(OperationalError):
        connect(url)
    server.restart()
    with connect(url) as connection:
        assert connection.execute("SELECT id FROM person").fetchall() == [(17,)]


def test_database_goes_even_while_in_use(server: Server) -> None:
    with postgres.lent_database(server.url) as url:
        left_open = connect(url)
    with pytest.raises(OperationalError, match="does not exist"):
        connect(url)
    left_open.close()


@pytest.fixture(scope="module")
def lender(postgres_url: str) -> Iterator[Lender]:
    with postgres.lent_database(postgres_url) as url:
        with connect(url) as connection:
            connection.execute(
                "CREATE TABLE person (id int PRIMARY KEY, note text);"
                "CREATE TABLE line (id serial, person int REFERENCES person (id));"
                "INSERT INTO person VALUES (17, 'a\tb\\'), (18, NULL);"
                "INSERT INTO line (person) VALUES (17)"
            )
        with closing(Lender(postgres_url, template=url)) as lender:
            yield lender


class TestLender:
    """What a test did to a database that is lent again, the next one does not see."""

    @pytest.mark.parametrize(
        ("change", "is_kept"),
        [
            ("SELECT 1", True),
            ("DELETE FROM line; DELETE FROM person", True),
            ("UPDATE person SET id = 19 WHERE note IS NULL", True),
            ("INSERT INTO person VALUES (19); INSERT INTO line VALUES (9, 19)", True),
            ("SELECT nextval('line_id_seq')", True),
            ("ALTER TABLE person ADD COLUMN age int", False),
            ("ALTER TABLE person ALTER note SET DEFAULT 'x'", False),
            ("DROP TABLE line", False),
            ("CREATE TABLE other (id int)", False),
            ("CREATE INDEX other ON person (note)", False),
            ("DROP SCHEMA public CASCADE; CREATE SCHEMA public", False),
            ('ALTER DATABASE "{name}" SET statement_timeout = 1000', False),
        ],
    )
    def test_changes_are_undone(
        self, lender: Lender, change: str, *, is_kept: bool
    ) -> None:
        with lender.lend() as url:
            with connect(url) as connection:
                connection.execute(change.format(name=make_url(url).database))
        with lender.lend() as again, connect(again) as connection:
            assert (again == url) is is_kept
            people = connection.execute("SELECT id, note FROM person ORDER BY id")
            assert people.fetchall() == [(17, "a\tb\\"), (18, None)]
            lines = connection.execute("INSERT INTO line (person) VALUES (18)")
            numbers = connection.execute("SELECT id, person FROM line ORDER BY id")
            assert lines.rowcount == 1 and numbers.fetchall() == [(1, 17), (2, 18)]

    def test_sessions_that_were_left_are_ended(self, lender: Lender) -> None:
        with lender.lend() as url:
            left = connect(url)
            left.autocommit = False
            left.execute("DELETE FROM line")
        with lender.lend() as again, connect(again) as connection:
            assert again == url
            count = connection.execute("SELECT count(*) FROM line").fetchone()
            assert count == (1,)
        with pytest.raises(OperationalError):
            left.execute("SELECT 1")
        left.close()

    def test_an_empty_one_is_empty_again(self, postgres_url: str) -> None:
        with closing(Lender(postgres_url)) as lender:
            for _ in range(2):
                with lender.lend() as url, connect(url) as connection:
                    connection.execute("CREATE TABLE person (id int)")


ABANDONS = """
import os, signal
from tests.postgres import Server
server = Server(fast=True)
print(server.url, server.folder, sep='\\n', flush=True)
os.kill(os.getpid(), signal.{})
"""


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
def test_server_ends_with_the_process_that_started_it(how: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ABANDONS.format(how)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == -getattr(signal, how)
    url, folder = ended.stdout.splitlines()
    until(lambda: not Path(folder).exists())
    with pytest.raises(OperationalError, match="refused"):
        connect(url)


class TestWithoutPostgres:
    @pytest.fixture(autouse=True)
    def bare_machine(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(postgres, "DEBIAN", tmp_path)
        monkeypatch.delenv("CI", raising=False)
        monkeypatch.delenv("EXPUNGE_REQUIRE_POSTGRES", raising=False)

    def test_nothing_is_started(self) -> None:
        with pytest.raises(Missing, match="apt install postgresql"):
            Server()

    def test_tests_are_skipped(self) -> None:
        with pytest.raises(pytest.skip.Exception, match="apt install postgresql"):
            stores.without_postgres(Missing(ADVICE))

    @pytest.mark.parametrize("name", ["CI", "EXPUNGE_REQUIRE_POSTGRES"])
    def test_tests_fail_where_they_must_run(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(name, "1")
        with pytest.raises(pytest.fail.Exception, match="apt install postgresql"):
            stores.without_postgres(Missing(ADVICE))

    def test_newest_of_debian_is_taken(self, tmp_path: Path) -> None:
        for version in ("9.6", "15", "16"):
            folder = tmp_path / version / "bin"
            folder.mkdir(parents=True)
            (folder / "initdb").touch()
        assert postgres.programs() == tmp_path / "16" / "bin"


def test_every_store_has_its_turn(
    registry_url: str | None, request: pytest.FixtureRequest
) -> None:
    kind = make_url(registry_url or "sqlite://").get_backend_name()
    assert kind == request.node.callspec.params["registry_url"]


def test_lent_database_is_empty(database_url: str) -> None:
    with connect(database_url) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        )
        assert tables.fetchall() == []
