# SPDX-License-Identifier: Apache-2.0
"""Changed windows: a service is killed, and each time starts with another setting.

Its clock is the story's: each process goes on where the last one was, some windows
later. Webhooks are handed to the client, who keeps them, in place of a connection.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from expunge.exceptions import UnknownRequest
from expunge.registry import Outcome, Registry
from expunge.service.outbound import Message, Outbox, Policy
from expunge.service.outbound import outbox as outbound
from expunge.service.windows import Windows, format_moment, show_at
from tests.registries import DAY, SECOND, Window, now, run_clock

from .client import Line
from .phases import put
from .processes import Life, Moment, Worker, judged
from .story import Step
from .trial import FURY, SHORT, Trial, begin_story
from .verdict import complaints_about
from .writer import ERASURES, Theme

LENGTHS = (1, 2, 60, 900, 3600, 86_400)
QUEUEING, SENDING = "queueing webhooks", "sending webhooks"
# Longer than a process needs for a request and its answer, in seconds.
LONGEST = 0.3
ENDPOINT = "https://hooks.example.com/"


@dataclass
class Promised:
    """What a client was told of requests, and when it is.

    Attributes
    ----------
    time
        The clock, in milliseconds since 1970.
    length
        The setting of the last process, in seconds.
    windows
        The window of each request.
    answered
        When the answer of each was shown.
    told
        The messages about each: id and body.
    """

    time: int
    length: int
    windows: dict[str, Window]
    answered: dict[str, int]
    told: dict[str, set[tuple[str, str]]]


class ChangedWindows(Trial):
    """A trial in which each process of a service has another window."""

    def _theme(self) -> Theme:
        # Whatever is applied together, each request changes the same models.
        return ERASURES

    def lives(self, n_strikes: int) -> Iterator[Life]:
        """Strike so often at the most; yield the life of each process."""
        memory = self.memory
        with begin_story(self._setting, self.story) as folder:
            self._promised = Promised(now(), 0, {}, {}, {})
            judged(_listen, folder)
            n_left = min(n_strikes, FURY * len(self.story.steps))
            while not (memory.finished or memory.complaints):
                memory.found = memory.store_failed = ""
                length = self._chance.choice(LENGTHS)
                seed = self._chance.randrange(1 << 30)

                def job(line: Line, length: int = length, seed: int = seed) -> None:
                    _Service(self, folder, line=line, length=length, seed=seed).serve()

                worker = self._setting.worker(memory, job)
                life = worker.live(self._moment() if n_left else None, Worker.kill)
                self._hear(length)
                n_left -= life.struck
                yield life
            if not memory.complaints:
                memory.complaints += judged(self._judge, folder)

    def _moment(self) -> Moment:
        if self._chance.random() < 0.5:
            return Moment(self._chance.uniform(0.0, LONGEST))
        phases = [*self._setting.phases_of("accept"), QUEUEING, SENDING]
        phase = self._chance.choice(phases)
        return Moment(self._chance.uniform(0.0, SHORT), phase)

    def _hear(self, length: int) -> None:
        """Take in what the process said of windows and webhooks."""
        promised, memory = self._promised, self.memory
        promised.length = length
        for said in memory.windows:
            what: list[Any] = json.loads(said)
            match what:
                case "time", time:
                    promised.time = time
                case "window", request, start, close:
                    window = Window(start, close)
                    if promised.windows.setdefault(request, window) != window:
                        memory.hear("its window moved", request)
                case "answered", request, moment:
                    if promised.answered.setdefault(request, moment) != moment:
                        memory.hear("answered at another time", request)
                case "told", request, message, body:
                    promised.told.setdefault(request, set()).add((message, body))
        memory.windows.clear()

    def _judge(self, folder: Path) -> list[str]:
        """Return what does not hold, by the clock of the story."""
        promised = self._promised
        run_clock(pytest.MonkeyPatch(), lambda: promised.time)
        found = complaints_about(self.story, folder, self.memory, {})
        with Registry.open(folder) as registry:
            statuses = registry.requests.statuses(sorted(self.story.requests()))
        for request, status in statuses.items():
            shown = show_at(status, promised.time)
            if promised.answered.get(request) != shown.answered:
                found.append(f"{request}: answered at another time than was shown")
            messages = promised.told.get(request, set())
            if len(messages) != 1:
                found.append(f"{request}: {len(messages)} messages, and not one")
            for _, body in messages:
                answered = json.loads(body)["data"]["answered"]
                moment = format_moment(shown.answered or 0)
                if not status.window.is_none and answered != moment:
                    found.append(f"{request}: told at {answered}, shown at {moment}")
        return found


def _listen(folder: Path) -> list[str]:
    with Registry.open(folder) as registry:
        registry.deliveries.add_endpoint(ENDPOINT, ["request.completed"])
    return []


class _Service:
    """One process of a service: takes requests in, applies, tells."""

    def __init__(
        self,
        trial: ChangedWindows,
        folder: Path,
        *,
        line: Line,
        length: int,
        seed: int,
    ) -> None:
        self._story = trial.story
        self._promised = trial._promised
        self._folder, self._line = folder, line
        self._length, self._chance = length, random.Random(seed)
        self._time = self._promised.time
        self._accepted = {*trial.memory.accepted}

    def serve(self) -> None:
        """Send what was not acknowledged, and see everything answered and told."""
        run_clock(pytest.MonkeyPatch(), lambda: self._time)
        put(outbound, "post", self._post)
        if self._promised.length not in (0, self._length):
            self._line.say("found", "another window")
        with self._line.at("opening"):
            registry = Registry.open(self._folder)
        with registry:
            self._outbox = Outbox(
                registry,
                Policy(("*.example.com",)),
                windows=Windows(self._length),
                composers={},
            )
            self._look(registry, sorted(self._accepted))
            for step in self._story.steps:
                if any(one.request not in self._accepted for one in step.asked):
                    self._ask(registry, step)
                    seconds = self._chance.choice((0, 1, self._length, 3600))
                    self._pass(registry, round(seconds * SECOND * 1.2))
            # A day closes every window, and another shows every answer.
            for _ in range(3):
                self._pass(registry, DAY + DAY // 10)
            for request in sorted(self._story.requests()):
                receipt = registry.requests.receipt(request)
                if receipt is None:
                    self._line.say("no receipt after days", request)
                else:
                    self._line.say("receipt", request, receipt)

    def _ask(self, registry: Registry, step: Step) -> None:
        """Send requests, as a sender of the service or by a command."""
        asked = [replace(one, window=self._length) for one in step.asked]
        if step.how == "forget":
            (one,) = step.asked
            with self._line.at("forgetting"):
                receipt = registry.forget(one.subjects, one.request)
            self._line.say("receipt", one.request, receipt)
        else:
            with self._line.at("accepting"):
                registry.requests.accept(asked)
        self._look(registry, [one.request for one in asked])
        for one in asked:
            self._line.say("accepted", one.request)
            self._accepted.add(one.request)

    def _pass(self, registry: Registry, milliseconds: int) -> None:
        """Let time pass, apply what has closed, and tell of it."""
        self._say("time", self._time + milliseconds)
        self._time += milliseconds
        with self._line.at("applying"):
            registry.requests.apply()
        with self._line.at(QUEUEING):
            self._outbox.queue_changes(self._time)
        with self._line.at(SENDING):
            self._outbox.send_due(self._time)
        self._look(registry, sorted(self._accepted))

    def _look(self, registry: Registry, requests: Sequence[str]) -> None:
        """Say what the service shows of requests."""
        for request in requests:
            try:
                status = registry.requests.status(request)
            except UnknownRequest:
                self._line.say("acknowledged, and forgotten", request)
                continue
            shown = show_at(status, self._time)
            self._say("window", request, shown.window.start, shown.window.close)
            if shown.answered is not None:
                self._say("answered", request, shown.answered)
            elif request in self._promised.answered:
                self._line.say("its answer is not shown any more", request)
            early = shown.state == "pending" and status.stage != "accepted"
            if early or (status.stage == "accepted" and status.error):
                self._line.say("applied early, or not", request, status.error)

    def _post(self, url: str, message: Message, **how: object) -> Outcome:
        """Hand a message to the client."""
        said = json.loads(message.body)
        request = said["data"]["request"]
        # As moments: of texts, "03Z" would come after "03.250Z".
        stated, reached = said["timestamp"], format_moment(self._time)
        if datetime.fromisoformat(stated) > datetime.fromisoformat(reached):
            self._line.say("told before it may be seen", request)
        self._say("told", request, message.headers["webhook-id"], message.body.decode())
        return Outcome(204)

    def _say(self, *what: object) -> None:
        self._line.say("windows", json.dumps(what))
