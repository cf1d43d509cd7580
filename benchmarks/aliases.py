# SPDX-License-Identifier: Apache-2.0
"""What aliases cost: importing a million of them, and finding people by ten thousand.

The import is set against what the store itself needs for lines of that length, inserted
in the same order in one transaction, past every library. Look-ups are made in turns, in
a registry that has answered no request and in one that has answered twenty thousand,
each of which deleted aliases. On SQLite, and on PostgreSQL where there is one.
"""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from expunge.registry import Registry
from expunge.registry.storage.engine import PRAGMAS
from expunge.rights import Identifier

from .registry import (
    BATCH,
    SMALL_D,
    empty_store,
    forget_together,
    name_of,
    postgres,
    registry_of,
)
from .report import Section, Target, timings_table
from .timing import Measurement, progress, take_turns, time_call

TAG, SEALED = 81, 40  # bytes of a tag, and of a short id sealed
STEP = 10_000
COLUMNS = "tag text not null primary key, person text not null"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many aliases are imported and found, and after how many batches."""

    imported: int = 1_000_000
    found: int = 10_000
    shared: int = 100_000
    batches: int = 20
    repeats: int = 15


FULL = Sizes()


def alias(number: int) -> Identifier:
    """Return one of many addresses."""
    return Identifier("email", f"person{number}@example.org")


def pairs(n: int) -> list[tuple[object, Identifier]]:
    """Return n aliases, two for each person."""
    return [(number // 2, alias(number)) for number in range(n)]


def bare_lines(n: int) -> list[tuple[str, str, bytes]]:
    """Return lines as long as those of aliases, in the same order."""

    def word() -> str:
        return os.urandom(TAG // 2 + 1).hex()[:TAG]

    return sorted((word(), word(), os.urandom(SEALED)) for _ in range(n))


def bare_import(
    folder: Path, url: str | None, *, lines: list[tuple[str, str, bytes]]
) -> None:
    """Insert lines into a table with the same indexes, in one transaction."""
    mark, kind = ("?", "blob") if url is None else ("%s", "bytea")
    with closing(_connect(folder, url)) as connection:
        cursor = connection.cursor()
        cursor.execute(f"CREATE TABLE bare ({COLUMNS}, sealed {kind} not null)")
        cursor.execute("CREATE INDEX ix_bare ON bare (person)")
        cursor.execute("BEGIN")
        statement = f"INSERT INTO bare VALUES ({mark}, {mark}, {mark})"
        for start in range(0, len(lines), STEP):
            cursor.executemany(statement, lines[start : start + STEP])
        cursor.execute("COMMIT")


def _connect(folder: Path, url: str | None) -> Any:
    """Return a connection of the driver, set up as a registry's."""
    if url is not None:
        return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    for pragma in PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    return connection


def bulk(folder: Path, url: str | None, sizes: Sizes = FULL) -> Section:
    """Return what an import costs, and look-ups right after it."""
    n = sizes.imported
    progress(f"{n} aliases, {name_of(url)}")
    given, lines = pairs(n), bare_lines(n)
    _, bare = time_call(partial(bare_import, folder, url, lines=lines))
    del lines
    with Registry.create(folder / "registry", url=url) as registry:
        _, taken = time_call(partial(registry.aliases.add, given))
        _, again = time_call(partial(registry.aliases.add, given))
        wanted = _spread(range(n), sizes.found)
        looked_up = take_turns(
            {f"look-up of {sizes.found}": partial(registry.aliases.find, wanted)},
            sizes.repeats,
        )
    timings = [
        Measurement.of(f"import of {n}", [taken]),
        Measurement.of("the same again", [again]),
        Measurement.of("the store alone", [bare]),
    ]
    return Section(
        f"Aliases, {name_of(url)}",
        [timings_table([*timings, *looked_up.values()], "s")],
        [Target("import / inserting alone", taken / bare, high=5.0)],
    )


def _spread(numbers: range, wanted: int) -> list[Identifier]:
    """Return some aliases, from all over."""
    return [alias(numbers[7919 * one % len(numbers)]) for one in range(wanted)]


def late(
    folder: Path, urls: tuple[str | None, str | None], sizes: Sizes = FULL
) -> Section:
    """Return what look-ups cost after many requests against before any."""
    n_people = BATCH * sizes.batches + 500
    # Of people who stay: both registries find them all.
    wanted = _spread(range(2 * n_people, sizes.shared), sizes.found)
    with (
        registry_of(folder / "young", n_people, SMALL_D, urls[0]) as young,
        registry_of(folder / "old", n_people, SMALL_D, urls[1]) as old,
    ):
        for one in (young, old):
            one.aliases.add(pairs(sizes.shared))
        progress(f"{sizes.batches} batches, then look-ups")
        people = count()
        for _ in range(sizes.batches):
            forget_together(old, people)
        found = take_turns(
            {
                "early": partial(young.aliases.find, wanted),
                "late": partial(old.aliases.find, wanted),
            },
            sizes.repeats,
        )
    return Section(
        f"Look-ups of {sizes.found} among {sizes.shared}, {name_of(urls[0])}",
        [timings_table(found.values(), "ms")],
        [Target("look-up late / early", found["late"].over(found["early"]), high=1.1)],
    )


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield what aliases cost on each store."""
    del data_dir
    with postgres() as given:
        for server in (None,) if given is None else (None, given):
            with tempfile.TemporaryDirectory() as folder, empty_store(server) as url:
                yield bulk(Path(folder), url)
            with (
                tempfile.TemporaryDirectory() as folder,
                empty_store(server) as young,
                empty_store(server) as old,
            ):
                yield late(Path(folder), (young, old))
