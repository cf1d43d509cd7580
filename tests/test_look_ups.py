# SPDX-License-Identifier: Apache-2.0
"""What a batch of requests costs a store: so much for each, however much there is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert

from expunge.registry.request import (
    find_requests,
    insert_requests,
    mark_applied,
    read_tags,
    to_line,
)
from expunge.registry.storage import Keystore, Store, people_table, releases_table
from expunge.registry.storage.engine import CHUNK, analyse
from expunge.registry.storage.tables import releases
from tests.registries import status_of
from tests.stores import rows_in

# So many that PostgreSQL no longer reads a whole table for a few hundred keys.
N = 40_000
TAGS = [f"{i:081x}" for i in range(N)]
IDS = [f"{i:032x}" for i in range(N)]
# Spread over the whole model.
SOME = slice(0, N, N // CHUNK)
# For each person, in steps of SQLite's machine or in lines that PostgreSQL looks at.
# Each look-up by an index costs SQLite about 15; reading all lines once for these few
# people would cost each of them 800.
MOST = {"sqlite": 250.0, "postgresql": 10.0}
MODEL = {"name": "m", "created": 0, "number": 1, "key": 0}


def taken_in(store: Store, path: Path) -> None:
    """Take in a model, and a request of everybody."""
    with store.write() as connection:
        releases_table.insert_model(connection, MODEL)
        keystore = Keystore(path / "sealing")
        keystore.create()
        people = [(tag, b"rows") for tag in TAGS]
        people_table.insert_people(
            connection, keystore, model="m", fit=1, people=people
        )
        near = {tag: f"near {tag}" for tag in TAGS}
        people_table.write_near(connection, near)
        lines = [
            to_line(status_of(one), [tag], near=[near[tag]])
            for one, tag in zip(IDS, TAGS, strict=True)
        ]
        insert_requests(connection, lines)


@contextmanager
def counted(store: Store, connection: Connection) -> Iterator[list[float]]:
    """Give a list that holds what each statement looked at, when all is done."""
    seen: list[float] = []
    if store.dialect == "sqlite":
        raw: Any = connection.connection.dbapi_connection
        raw.set_progress_handler(lambda: seen.append(10.0), 10)
        yield seen
        raw.set_progress_handler(None, 0)
        return

    def explain(conn: Any, cursor: Any, statement: str, given: Any, *_: Any) -> None:
        with conn.connection.dbapi_connection.transaction(force_rollback=True):
            explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
            for one in given if isinstance(given, list) else [given]:
                cursor.execute(explained, one)
                (plan,) = cursor.fetchone()[0]
                seen.append(lines_in(plan["Plan"]))

    event.listen(store.engine, "before_cursor_execute", explain)
    yield seen
    event.remove(store.engine, "before_cursor_execute", explain)


def lines_in(plan: dict[str, Any]) -> float:
    """Return how many lines a plan of PostgreSQL looked at."""
    names = [name for name in plan if name.startswith("Rows Removed")]
    own = sum(plan[name] for name in ("Actual Rows", *names)) * plan["Actual Loops"]
    return float(own + sum(map(lines_in, plan.get("Plans", ()))))


@pytest.mark.slow
def test_a_batch_reads_no_table_to_find_a_few_lines(
    store: Store, tmp_path: Path
) -> None:
    taken_in(store, tmp_path)
    some, ids = TAGS[SOME], IDS[SOME]
    with store.read() as connection:
        found = rows_in(connection, "m", tags=[*some, "stranger"])
        assert people_table.models_by_tag(connection, some) == {
            tag: {"m"} for tag in some
        }
        assert read_tags(connection, ids) == dict(
            zip(ids, ([tag] for tag in some), strict=True)
        )
    assert [one.tag for one in found] == some
    steps: dict[str, Callable[[Connection], object]] = {
        "known": lambda connection: people_table.models_by_tag(connection, some),
        "sent before": lambda connection: find_requests(connection, ids),
        "named": lambda connection: read_tags(connection, ids),
        "rows": lambda connection: rows_in(connection, "m", tags=some),
        "struck": lambda connection: people_table.delete_rows(connection, found),
        "tags": lambda connection: people_table.delete_unused_tags(
            connection, [one.subject for one in found]
        ),
        "applied": lambda connection: mark_applied(
            connection, [status_of(one, outcome="done") for one in ids]
        ),
    }
    for name, step in steps.items():
        with store.write() as connection, counted(store, connection) as seen:
            step(connection)
        assert 0.0 < sum(seen) / len(some) < MOST[store.dialect], name
    with store.read() as connection:
        assert connection.scalar(people_table.count_people("m")) == N - len(some)


@pytest.mark.slow
def test_a_release_is_found_among_any_number(store: Store) -> None:
    n_releases = 20_000
    line = {"model": "m", "made": 0, "certificate": "{}", "superseded": 1}
    with store.write() as connection:
        releases_table.insert_model(connection, MODEL | {"number": n_releases})
        lines = [
            line | {"number": number, "digest": f"{number:064x}"}
            for number in range(n_releases)
        ]
        connection.execute(insert(releases), lines)
        newest = line | {"number": n_releases, "digest": "f" * 64, "superseded": None}
        connection.execute(insert(releases), newest)
        analyse(connection, "releases (model, digest, superseded)")
    for step in (
        lambda connection: releases_table.read_newest_digests(connection, ["m"]),
        lambda connection: releases_table.has_certificate(
            connection, "m", digest=f"{15_000:064x}"
        ),
    ):
        with store.write() as connection, counted(store, connection) as seen:
            step(connection)
        assert sum(seen) < 2 * MOST[store.dialect]
    with store.read() as connection:
        (found,) = releases_table.read_newest_digests(connection, ["m"])
    assert (found.digest, found.before) == ("f" * 64, f"{n_releases - 1:064x}")
