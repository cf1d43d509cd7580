# SPDX-License-Identifier: Apache-2.0
"""Sessions of a store: what a reader sees, and one session for many transactions."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event, text

from expunge.exceptions import StoreFailed
from expunge.registry.storage import Store, create_tables
from expunge.registry.storage.tables import read_metadata, write_metadata
from tests.stores import store_at

COUNT = text("SELECT count(*) FROM metadata")


def write_later(store: Store) -> None:
    """Write a line, as another thread."""
    with store.write() as connection:
        write_metadata(connection, "a moment", value="later")


def test_a_reader_sees_one_moment(store: Store) -> None:
    with store.read() as connection, ThreadPoolExecutor(1) as another:
        before = connection.scalar(COUNT)
        another.submit(write_later, store).result()
        assert connection.scalar(COUNT) == before
    with store.read() as connection:
        assert connection.scalar(COUNT) == before + 1


def test_without_a_snapshot_each_statement_sees_its_own_moment(store: Store) -> None:
    with store.read(snapshot=False) as connection, ThreadPoolExecutor(1) as another:
        before = connection.scalar(COUNT)
        another.submit(write_later, store).result()
        assert connection.scalar(COUNT) == before + 1


def test_a_reader_does_not_write(store: Store) -> None:
    with store.read(), pytest.raises(AssertionError), store.write():
        pass


def test_a_writer_reads_in_its_own_transaction(store: Store) -> None:
    with store.write() as connection:
        write_metadata(connection, "a moment", value="now")
        with store.read() as inside:
            assert read_metadata(inside, "a moment") == "now"
        write_metadata(connection, "another", value="later")
    with store.read() as connection:
        assert read_metadata(connection, "a moment") == "now"
        assert read_metadata(connection, "another") == "later"


def test_a_session_is_held_for_all_transactions_of_a_thread(store: Store) -> None:
    opened: list[object] = []
    event.listen(store.engine, "checkout", lambda *record: opened.append(record))
    with store.hold_session():
        for _ in range(3):
            with store.read() as connection:
                connection.scalar(text("SELECT 1"))
            with store.write() as connection:
                write_metadata(connection, "a session", value="held")
    assert len(opened) == 1
    with store.read(snapshot=False) as connection:
        assert read_metadata(connection, "a session") == "held"
    assert len(opened) == 2


def test_a_held_session_follows_a_database_that_was_replaced(tmp_path: Path) -> None:
    for name in ("one", "another"):
        folder = tmp_path / name
        folder.mkdir()
        store = store_at(folder, None)
        create_tables(store)
        with store.write() as connection:
            write_metadata(connection, "file", value=name)
        store.erase_deleted()
        store.close()
    with closing(store_at(tmp_path / "one", None)) as store, store.hold_session():
        with store.read() as connection:
            assert read_metadata(connection, "file") == "one"
        (tmp_path / "another/expunge.db").replace(tmp_path / "one/expunge.db")
        with store.read(snapshot=False) as connection:
            assert read_metadata(connection, "file") == "another"


def test_nothing_is_written_after_a_held_session_ended(
    tmp_path: Path, database_url: str
) -> None:
    store, other = store_at(tmp_path, database_url), store_at(tmp_path, database_url)
    create_tables(store)
    end = text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with closing(store), closing(other), store.hold_session():
        with pytest.raises(StoreFailed), store.write() as connection:
            write_metadata(connection, "a moment", value="lost")
            with other.read(snapshot=False) as administrator:
                administrator.execute(end)
        with store.read(snapshot=False) as connection:  # in a new session
            assert read_metadata(connection, "a moment") == ""
