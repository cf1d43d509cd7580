# SPDX-License-Identifier: Apache-2.0
"""Load: many clients at once, beside a route that only writes a row.

Blocks of requests take turns with blocks of the same bodies sent to the plain route, so
that both meet the same machine. Between blocks some requests are sent again and some
cancelled.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter, sleep
from typing import Any

import numpy as np

from expunge.registry import Registry

from .asking import PATH, Ask, Promises, draw_asks, quantiles
from .calls import Answer, AsyncLine, format_call
from .crowd import Crowd, lend_store
from .processes import Applied, Memory, Plan, read_applied, serve

AGAIN, CANCELLED = 0.05, 0.02  # shares of requests
WARM_UP = 2  # blocks that do not count


@dataclass(frozen=True)
class LoadPlan:
    """How much load, and of what kind."""

    n_requests: int = 20_000
    n_clients: int = 64
    block: int = 1000
    window: int = 10
    store: str = "sqlite"
    crowd: Crowd = field(default_factory=Crowd)


@dataclass(frozen=True)
class LoadReport:
    """What was measured.

    Attributes
    ----------
    real, plain
        Requests a second in each block, of the service and of the plain route.
    accepting
        Seconds until each request was accepted.
    memory
        Seconds and mebibytes.
    applied
        How long each batch took.
    """

    real: list[float]
    plain: list[float]
    accepting: list[float]
    memory: list[tuple[float, float]]
    applied: list[Applied]

    @property
    def ratio(self) -> float:
        """The service's throughput over that of the plain route, block by block."""
        pairs = zip(self.real[WARM_UP:], self.plain[WARM_UP:], strict=True)
        return float(np.median([ours / theirs for ours, theirs in pairs]))

    @property
    def growth(self) -> float:
        """Mebibytes at the end over those after a third of the time."""
        sizes = [size for _, size in self.memory]
        early = sizes[len(sizes) // 3 : len(sizes) // 2]
        return float(np.median(sizes[-max(1, len(sizes) // 6) :]) - np.median(early))

    def lines(self) -> Iterable[str]:
        """Yield the report."""
        median, high = quantiles(self.accepting, 0.5, 0.99)
        rate, plain = (np.median(one[WARM_UP:]) for one in (self.real, self.plain))
        yield f"accepting   p50 {median} ms, p99 {high} ms"
        yield f"throughput  {rate:.0f} requests a second; a plain row: {plain:.0f}"
        yield f"ratio       {self.ratio:.2f}"
        every = self.memory[:: max(1, len(self.memory) // 12)]
        seen = ", ".join(f"{time:.0f} s: {size:.0f}" for time, size in every)
        yield f"memory      {seen} MiB; {self.growth:+.0f}"
        seconds = ", ".join(f"{one.seconds:.2f}" for one in self.applied)
        yield f"applied     {seconds} s after each window"
        yield f"machine     load {os.getloadavg()[0]:.1f}"


class Clients:
    """Some clients, each with a connection of its own.

    Parameters
    ----------
    port, token
        Of the service.
    count
        How many.
    """

    def __init__(self, port: int, token: str, count: int) -> None:
        self._token = token
        self._lines = [AsyncLine(port) for _ in range(count)]

    async def send_all(
        self,
        asks: Sequence[Ask],
        make: Callable[[Ask, str], bytes],
        *,
        note: Callable[[Ask, Answer], None],
    ) -> float:
        """Send a call for each ask, as fast as answers come; return the seconds."""
        calls = iter([(one, make(one, self._token)) for one in asks])

        async def work(line: AsyncLine) -> None:
            for ask, call in calls:
                note(ask, await line.send(call))

        started = perf_counter()
        await asyncio.gather(*(work(line) for line in self._lines))
        return perf_counter() - started

    async def close(self) -> None:
        """Hang up."""
        for line in self._lines:
            await line.close()


def make_post(ask: Ask, token: str, *, path: str = PATH) -> bytes:
    """Return the call that sends a request."""
    return format_call("POST", path, token=token, body=ask.body)


def make_delete(ask: Ask, token: str) -> bytes:
    """Return the call that cancels a request."""
    return format_call("DELETE", f"{PATH}/{ask.id}", token=token)


@dataclass
class Notes:
    """Writes down what was answered."""

    promises: Promises
    accepting: list[float] = field(default_factory=list)

    def note_plain(self, ask: Ask, answer: Answer) -> None:
        """See that a plain row was written."""
        assert answer.code == 201, answer

    def note_sent(self, ask: Ask, answer: Answer) -> None:
        """Remember that a request was accepted."""
        assert answer.code == 201, answer
        self.promises.asked[ask.id] = ask
        self.promises.accepted.add(ask.id)
        self.accepting.append(answer.seconds)

    def note_again(self, ask: Ask, answer: Answer) -> None:
        """See that a request that was sent again is the same."""
        assert (answer.code, answer.json()["id"]) == (201, ask.id), answer

    def note_cancelled(self, ask: Ask, answer: Answer) -> None:
        """Remember that a request was cancelled, unless its window had closed."""
        assert answer.code in (200, 409), answer
        if answer.code == 200:
            self.promises.cancelled.add(ask.id)


async def run_blocks(
    plan: LoadPlan, port: int, *, token: str, notes: Notes
) -> tuple[list[float], list[float]]:
    """Send everything; return requests a second, block by block."""
    chance = Random(1)
    asks = draw_asks(plan.crowd, plan.n_requests, seed=plan.crowd.seed)
    clients = Clients(port, token, plan.n_clients)
    real, plain = [], []
    to_plain = partial(make_post, path="/baseline")
    for start in range(0, len(asks), plan.block):
        block = asks[start : start + plan.block]
        took = await clients.send_all(block, make_post, note=notes.note_sent)
        real.append(len(block) / took)
        took = await clients.send_all(block, to_plain, note=notes.note_plain)
        plain.append(len(block) / took)
        again = chance.sample(block, round(AGAIN * len(block)))
        await clients.send_all(again, make_post, note=notes.note_again)
        gone = chance.sample(block, round(CANCELLED * len(block)))
        await clients.send_all(gone, make_delete, note=notes.note_cancelled)
    await clients.close()
    return real, plain


def wait_until_answered(folder: Path, promises: Promises, *, seconds: float) -> None:
    """Return when every request is completed or cancelled."""
    end = monotonic() + seconds
    waiting = sorted(promises.asked)
    with Registry.open(folder) as registry:
        while monotonic() < end:
            found = registry.requests.statuses(waiting)
            waiting = [id_ for id_ in waiting if id_ in found and found[id_].is_open]
            if not waiting:
                return
            sleep(0.2)
    raise AssertionError(f"{len(waiting)} requests are still open")


def measure_load(plan: LoadPlan) -> LoadReport:
    """Put a service under load, see that it kept its promises, and report."""
    with TemporaryDirectory() as name, lend_store(plan.store) as url:
        folder = Path(name) / "registry"
        tokens = plan.crowd.build(folder, url)
        started = Plan(folder, plan.window, "baseline")
        notes = Notes(Promises())
        with serve(started) as (service, port):
            with Memory(service.process.pid) as memory:
                running = run_blocks(plan, port, token=tokens["request"], notes=notes)
                real, plain = asyncio.run(running)
                wait_until_answered(folder, notes.promises, seconds=600)
        with Registry.open(folder) as registry:
            notes.promises.require_kept(registry, plan.crowd)
        applied = read_applied(started)
    return LoadReport(real, plain, notes.accepting, memory.seen, applied)


def print_load(options: Any) -> int:
    """Measure, print, and return whether the service was too slow."""
    crowd = Crowd(n_people=options.people)
    report = measure_load(
        LoadPlan(
            n_requests=options.count or 20_000,
            window=options.window,
            store=options.store,
            crowd=crowd,
        )
    )
    print(*report.lines(), sep="\n")
    return int(report.ratio < 0.5)
