# SPDX-License-Identifier: Apache-2.0
"""What it costs that a request is durable, proved and erased, beside the removal.

One request at d = 784, from accepted to completed, against what no such registry can do
without: one write of the packed state that is on disk, four bare commits, one Newton
update. Then batches of 1000 requests. Then the first thousand requests of a registry,
one after another, in turns with the hundredth thousand of another, which answered those
before in batches. On SQLite, and on PostgreSQL: on the server that TEST_DATABASE_URL
names, with a role that may create databases, or one of our own, where PostgreSQL is
installed.
"""

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from expunge import Budget, LogisticRegression, Rows
from expunge.core.rows import in_memory
from expunge.private_model.model import require_optimised
from expunge.registry import Registry, Request
from expunge.registry.loaded_model import LoadedModel, dump_checkpoint
from tests.postgres import Missing, Server, lent_database

from .report import Section, Target, timings_table
from .timing import Measurement, progress, take_turns, time_call

D, N, REPEATS, BATCH, BATCHES = 784, 8000, 60, 1000, 5
SMALL_D, AGE, WINDOW = 20, 99, 1000
# At most so many times the floor: each statement is a round trip to PostgreSQL.
GOALS = {"SQLite": 2.0, "PostgreSQL": 2.5}
# Wide: what is timed is the usual answer, without a look at the rows.
BUDGET = Budget(sigma=100.0)


def registry_of(folder: Path, n: int, d: int, url: str | None = None) -> Registry:
    """Return a registry with one model of n people, generated."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) / np.sqrt(d)
    y = (X[:, 0] > 0.1 * rng.standard_normal(n)).astype(int)
    registry = Registry.create(folder, url=url)
    model = LogisticRegression(alpha=1e-2, fit_intercept=False, budget=BUDGET)
    registry.fit("model", model, X, y, subjects=range(n))
    return registry


@dataclass(frozen=True, slots=True)
class Floor:
    """What any durable registry must do, on the state of one."""

    registry: Registry
    folder: Path
    commit: Callable[[], None]

    def actions(self) -> dict[str, Callable[[], object]]:
        """Return each part as something to time."""
        loaded = self.own()
        parts = dump_checkpoint(loaded.snapshot, files=loaded.files)
        state = b"".join(parts)
        kept = loaded.private.kept_rows()
        assert kept is not None
        rows = in_memory(kept)
        # From the end: requests come from the beginning.
        people = iter(range(len(rows) - 1, 0, -1))
        bare, whole = [require_optimised(loaded.private)], [self.own().private]

        def one() -> Rows:
            return rows.take(np.array([next(people)]))

        def newton() -> None:
            mechanism, answer = bare[0].terms.mechanism, bare[0].answer
            after = mechanism.update(answer.state, one(), overwrite=True)
            state = mechanism.step(after, None)[0]
            bare[0] = replace(bare[0], answer=replace(answer, state=state))

        def with_radius() -> None:
            whole[0] = whole[0].forget(one(), overwrite=True)

        return {
            "write of the packed state": lambda: self.write(state),
            "bare commit": self.commit,
            "Newton update": newton,
            "Newton update with its radius": with_radius,
        }

    def own(self) -> LoadedModel:
        """Return the model as loaded for this purpose, to be updated beside."""
        self.registry._context.cache.clear()
        loaded = self.registry._context.load_model("model")
        self.registry._context.cache.clear()
        return loaded

    def write(self, state: bytes) -> None:
        """Write a state and see it on disk."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        descriptor = os.open(self.folder / "state", flags)
        try:
            os.write(descriptor, state)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def bare_commits(folder: Path, url: str | None) -> Iterator[Callable[[], None]]:
    """Give a function that commits one short row, durably, past every library."""
    if url is None:
        opened: Any = sqlite3.connect(folder / "bare.db", isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            opened.execute(f"PRAGMA {pragma}")
    else:
        opened = psycopg.connect(url.replace("+psycopg", ""), autocommit=True)
    with closing(opened) as connection:
        connection.execute("CREATE TABLE bare(word TEXT)")

        def commit() -> None:
            connection.execute("BEGIN IMMEDIATE" if url is None else "BEGIN")
            connection.execute("INSERT INTO bare(word) VALUES ('accepted')")
            connection.execute("COMMIT")

        yield commit


def single(folder: Path, url: str | None) -> Section:
    """Return what one request costs against the floor, and in a batch."""
    with (
        registry_of(folder / "registry", N, D, url) as registry,
        bare_commits(folder, url) as commit_one,
    ):
        people = count()
        floor = Floor(registry, folder, commit_one).actions()

        def request() -> None:
            registry.forget([next(people)])

        found = take_turns({"request": request, **floor}, REPEATS, warm_up=3)
        batches = [
            time_call(partial(forget_together, registry, people))[1]
            for _ in range(BATCHES)
        ]
    each = Measurement.of(f"request in a batch of {BATCH}", batches).per(BATCH)
    write, commit, bare, whole = (found[name].median for name in floor)
    least = write + 4.0 * commit + bare
    cost = found["request"].median
    store = name_of(url)
    return Section(
        f"A request at d = {D}, from accepted to completed, {store}",
        [timings_table([*found.values(), each], "ms")],
        [
            Target(
                "request / (write + 4 commits + Newton)",
                cost / least,
                high=GOALS[store],
            ),
            Target(f"ms a request in {BATCH}", 1e3 * each.median, high=0.5),
        ],
        [
            f"with the radius counted to the Newton update, which the certificate "
            f"needs, the first ratio is {cost / (least - bare + whole):.3g}",
        ],
    )


def forget_together(registry: Registry, people: Iterator[int]) -> None:
    """Forget the next people, each by a request of their own, in one batch."""
    asked = [Request((str(next(people)),)) for _ in range(BATCH)]
    registry.requests.accept(asked)
    registry.requests.apply()


def name_of(url: str | None) -> str:
    """Return the name of a store."""
    return "SQLite" if url is None else "PostgreSQL"


def growth(folder: Path, young_url: str | None, old_url: str | None) -> Section:
    """Return what the hundredth thousand of requests costs against the first."""
    n = (AGE + 1) * WINDOW + 500
    with (
        registry_of(folder / "young", n, SMALL_D, young_url) as young,
        registry_of(folder / "old", n, SMALL_D, old_url) as old,
    ):
        first, last = count(), count()
        progress(f"{AGE} batches, then {WINDOW} requests, one after another")
        for _ in range(AGE):
            forget_together(old, last)
        found = take_turns(
            {
                "in the 1st thousand": lambda: young.forget([next(first)]),
                f"in the {AGE + 1}th thousand": lambda: old.forget([next(last)]),
            },
            WINDOW,
            warm_up=3,
        )
    ratio = found[f"in the {AGE + 1}th thousand"].over(found["in the 1st thousand"])
    return Section(
        f"Requests one after another, d = {SMALL_D}, {name_of(young_url)}",
        [timings_table(found.values(), "ms")],
        [Target(f"{AGE + 1}th thousand / 1st thousand", ratio, high=1.1)],
    )


@contextmanager
def postgres() -> Iterator[str | None]:
    """Give the address of a server, given or of our own; None if there is none."""
    given = os.environ.get("TEST_DATABASE_URL")
    if given is not None:
        yield given
        return
    try:
        server = Server()
    except Missing as reason:
        progress(f"without PostgreSQL: {reason}")
        yield None
        return
    with server:
        yield server.url


@contextmanager
def empty_store(server: str | None) -> Iterator[str | None]:
    """Give the address of an empty database on a server; None for SQLite."""
    if server is None:
        yield None
        return
    with lent_database(server) as url:
        yield url


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield the cost of one request and of an old registry, on each store."""
    del data_dir
    with postgres() as given:
        for server in (None,) if given is None else (None, given):
            with tempfile.TemporaryDirectory() as folder, empty_store(server) as url:
                progress(f"one request, d = {D}")
                yield single(Path(folder), url)
            with (
                tempfile.TemporaryDirectory() as folder,
                empty_store(server) as young,
                empty_store(server) as old,
            ):
                yield growth(Path(folder), young, old)
