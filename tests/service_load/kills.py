# SPDX-License-Identifier: Apache-2.0
"""Kills: a service ends at any moment under load, and keeps what it promised.

Some kills come while it starts. Requests that had no answer are sent again later, with
the same id, as a careful client does. A receiver of webhooks hears of each request that
is completed: at least once, and always under the same id.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from expunge.registry import Registry
from tests.receivers import Receiver, receiving
from tests.services import wait_until_ready

from .asking import Ask, Promises, draw_asks
from .calls import AsyncLine
from .crowd import Crowd, lend_store
from .load import make_delete, make_post, wait_until_answered
from .processes import CONFIG, Plan, free_port, serve

START = 3.0  # seconds in which a service starts
LONGEST = 1.5  # seconds under load
PAUSE = 0.04  # seconds between two calls of a client: all must be told in the end
MOST_ASKS = 200_000
EARLY = 0.2  # share of kills while it starts
PATIENCE = 120.0  # seconds for messages
HOOKS = """
allow_private = true
callback_hosts = ["127.0.0.1"]
callback_ports = [{port}]
"""
NO_ANSWER = (OSError, EOFError)


@dataclass(frozen=True)
class KillPlan:
    """How often, and under what load."""

    n_kills: int = 100
    store: str = "sqlite"
    seed: int = 0
    n_clients: int = 8
    extras: str = "none"
    crowd: Crowd = field(default_factory=lambda: Crowd(n_people=1000, n_features=5))


class Storm:
    """Clients who send, send again and cancel, until the service is gone.

    Parameters
    ----------
    port, token
        Of the service.
    asks
        What to send.
    chance
        What each client does next.
    """

    def __init__(
        self, port: int, token: str, *, asks: Iterator[Ask], chance: Random
    ) -> None:
        self._port, self._token = port, token
        self._asks, self._chance = asks, chance
        self._over = False
        self.promises = Promises()
        self.unanswered: list[Ask] = []

    async def rage(self, n_clients: int, *, seconds: float, kill: Any) -> None:
        """Send from all clients, and kill the service after some time."""
        self._over = False
        clients = [asyncio.ensure_future(self._act()) for _ in range(n_clients)]
        await asyncio.sleep(seconds)
        self._over = True
        await asyncio.to_thread(kill)
        # All of them, so that none is left with an open connection.
        for ended in await asyncio.gather(*clients, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def _act(self) -> None:
        line = AsyncLine(self._port)
        try:
            while not self._over:
                try:
                    await line.open()
                    await self._send(line, self._choose())
                    await asyncio.sleep(PAUSE)
                except NO_ANSWER:
                    await asyncio.sleep(0.01)
        finally:
            await line.close()

    def _choose(self) -> Ask:
        if self.unanswered and self._chance.random() < 0.5:
            return self.unanswered.pop(self._chance.randrange(len(self.unanswered)))
        return next(self._asks)

    async def _send(self, line: AsyncLine, ask: Ask) -> None:
        self.promises.asked[ask.id] = ask
        try:
            answer = await line.send(make_post(ask, self._token))
        except NO_ANSWER:
            self.unanswered.append(ask)
            raise
        assert answer.code == 201, answer
        self.promises.accepted.add(ask.id)
        if self._chance.random() < 0.1:
            await self._cancel(line, ask)

    async def _cancel(self, line: AsyncLine, ask: Ask) -> None:
        try:
            answer = await line.send(make_delete(ask, self._token))
        except NO_ANSWER:
            self.promises.doubtful.add(ask.id)
            raise
        assert answer.code in (200, 409), answer
        if answer.code == 200:
            self.promises.cancelled.add(ask.id)


def kill_often(plan: KillPlan) -> str:
    """Kill a service often and see that it kept its promises; return what there was."""
    with ExitStack() as stack:
        name = stack.enter_context(TemporaryDirectory())
        url = stack.enter_context(lend_store(plan.store))
        receiver = stack.enter_context(receiving(None))
        folder = Path(name) / "registry"
        token = plan.crowd.build(folder, url)["request"]
        with Registry.open(folder) as registry:
            registry.deliveries.add_endpoint(f"http://127.0.0.1:{receiver.port}/")
        config = CONFIG + HOOKS.format(port=receiver.port)
        started = Plan(folder, 1, plan.extras, config)
        storm = rage_and_kill(plan, started, token=token)
        with serve(started):
            wait_until_answered(folder, storm.promises, seconds=120)
            wait_until_told(folder, receiver, promises=storm.promises)
        with Registry.open(folder) as registry:
            storm.promises.require_kept(registry, plan.crowd)
    seen = storm.promises
    return (
        f"{plan.n_kills} kills on {plan.store}: {len(seen.asked)} requests sent, "
        f"{len(seen.accepted)} accepted, {len(seen.cancelled)} cancelled, "
        f"{len(storm.unanswered)} without an answer, {len(receiver.received)} messages "
        "received; nothing lost, nothing twice"
    )


def rage_and_kill(plan: KillPlan, started: Plan, *, token: str) -> Storm:
    """Start a service again and again, and kill it; return what it was asked for."""
    chance, port = Random(plan.seed), free_port()
    asks = iter(draw_asks(plan.crowd, MOST_ASKS, seed=plan.seed, stay=0.5))
    storm = Storm(port, token, asks=asks, chance=chance)
    for number in range(plan.n_kills):
        service = started.start(port)
        is_early = chance.random() < EARLY
        if not is_early:
            wait_until_ready(service)
        seconds = chance.uniform(0, START if is_early else LONGEST)
        asyncio.run(storm.rage(plan.n_clients, seconds=seconds, kill=service.kill))
        if chance.random() < 0.5:  # or the service is the first to open the store
            require_nothing_lost(started.folder, storm.promises, number=number)
    return storm


def wait_until_told(folder: Path, receiver: Receiver, *, promises: Promises) -> None:
    """See that each completed request was told, under one id however often."""
    with Registry.open(folder) as registry:
        found = registry.requests.statuses(sorted(promises.asked))
    done = {id_ for id_, one in found.items() if one.stage == "completed"}
    end = monotonic() + PATIENCE
    while done - list_told(receiver).keys() and monotonic() < end:
        sleep(0.2)
    told = list_told(receiver)
    assert not done - told.keys(), f"{len(done - told.keys())} requests were not told"
    assert all(len(ids) == 1 for ids in told.values()), "told under several ids"


def list_told(receiver: Receiver) -> dict[str, set[str]]:
    """Return the ids of the messages that tell of each completed request."""
    told: dict[str, set[str]] = {}
    for message in list(receiver.received):
        if len(message.body) < int(message.headers["content-length"]):
            continue  # its sender was killed
        said = json.loads(message.body)
        if said["type"] == "request.completed":
            ids = told.setdefault(said["data"]["request"], set())
            ids.add(message.headers["webhook-id"])
    return told


def require_nothing_lost(folder: Path, promises: Promises, *, number: int) -> None:
    """See that everything accepted is there after a kill."""
    with Registry.open(folder) as registry:
        lost = list(promises.list_lost(registry))
    assert not lost, (f"after kill {number}", lost[:5])


def print_kills(options: Any) -> int:
    """Kill a service as often as asked, and print what there was."""
    plan = KillPlan(
        n_kills=options.count or 100,
        store=options.store,
        seed=options.seed,
        extras=options.extras,
    )
    print(kill_often(plan))
    return 0
