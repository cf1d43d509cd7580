# SPDX-License-Identifier: Apache-2.0
"""Spying: everything that a sender of requests can see and time, for many people.

Requests are sent in rounds, each in a window. While a round is pending its requests are
sent again, looked at and some cancelled; they are looked at again while they are in
progress, and after they are answered. Known and unknown people come in random order,
half of them by id and half by e-mail address.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

import numpy as np

from expunge.service.windows import Windows
from tests.registries import Window, now

from .asking import PATH, Ask
from .calls import Answer, Line, format_call
from .crowd import Crowd, lend_store
from .load import make_delete, make_post
from .processes import Plan, serve
from .telling import Separation, is_telling, separate_all

REPEATS = 3  # an enemy looks again, and takes the quickest
CANCELLED = 0.2  # share of requests
# These say when, which call, or which request, and have the same length for all.
OWN = ("date", "x-request-id", "etag", "location", "content-disposition")
LEAST = 12  # 2 * 0.5 ** 12 is one in two thousand
BUSY = 0.8  # share of a window in which requests are sent
MARGIN = 50  # milliseconds around the moments at which states change


@dataclass(frozen=True)
class SpyPlan:
    """How many people, in windows of which length."""

    n_asks: int = 6000
    window: int = 30
    store: str = "sqlite"
    extras: str = "none"
    seed: int = 0

    @property
    def crowd(self) -> Crowd:
        """Nobody is asked for twice, and some stay."""
        return Crowd(n_people=round(0.6 * self.n_asks), n_features=5, seed=self.seed)


@dataclass
class Sight:
    """What was seen of one request: times in seconds, and shapes of answers."""

    ask: Ask
    times: dict[str, float] = field(default_factory=dict)
    shapes: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def note(self, what: str, answers: list[Answer]) -> None:
        """Keep the shape of answers to one call, and the shortest time."""
        self.times[what] = min(one.seconds for one in answers)
        self.shapes[what] = tuple(dict.fromkeys(map(describe_shape, answers)))


def describe_shape(answer: Answer) -> tuple[Any, ...]:
    """Return everything of an answer that does not name the call or the request."""
    headers = tuple(
        (name, len(value) if name in OWN else value) for name, value in answer.headers
    )
    keys: tuple[str, ...] = ()
    if answer.body[:1] == b"{":
        keys = tuple(sorted(answer.json()))
    return answer.code, headers, len(answer.body), keys


class Spy:
    """A sender with a stopwatch.

    Parameters
    ----------
    line, token
        To the service.
    windows
        When it answers.
    chance
        Which requests are cancelled.
    """

    def __init__(
        self, line: Line, token: str, *, windows: Windows, chance: Random
    ) -> None:
        self._line, self._token = line, token
        self._windows, self._chance = windows, chance

    def watch(self, asks: Iterator[Ask]) -> list[Sight]:
        """Send as many requests as a window has time for; return what was seen."""
        window = self._wait_for_window()
        length = window.close - window.start
        sights, gone = [], set()
        for ask in asks:
            sight = self._send(ask)
            sights.append(sight)
            if self._chance.random() < CANCELLED:
                self._cancel(sight)
                gone.add(ask.id)
            if now() > window.start + BUSY * length:
                break
        stay = [one for one in sights if one.ask.id not in gone]
        self._look(stay, "in progress", start=window.close, end=window.answer)
        # The next window may be used up: there are requests for many more.
        self._look(stay, "answered", start=window.answer, end=window.close + length)
        return sights

    def _wait_for_window(self) -> Window:
        """Return the next window when it has begun."""
        sleep_until(self._windows.at(now()).close + 50)
        return self._windows.at(now())

    def _send(self, ask: Ask) -> Sight:
        sight = Sight(ask)
        self._see(sight, "send", self._make_post, repeats=1)
        self._see(sight, "send again", self._make_post)
        self._see(sight, "look", self._make_get)
        self._see(sight, "ask for receipt", self._make_receipt, repeats=1)
        return sight

    def _cancel(self, sight: Sight) -> None:
        self._see(sight, "cancel", lambda ask: make_delete(ask, self._token))
        self._see(sight, "look at cancelled", self._make_get)

    def _look(self, sights: list[Sight], when: str, *, start: int, end: int) -> None:
        """Look at requests while they are in a state, as long as they are."""
        sleep_until(start + MARGIN)
        for sight in self._chance.sample(sights, len(sights)):
            before = Sight(sight.ask, {**sight.times}, {**sight.shapes})
            self._see(sight, f"look, {when}", self._make_get, repeats=1)
            self._see(sight, f"send, {when}", self._make_post, repeats=1)
            self._see(sight, f"receipt, {when}", self._make_receipt, repeats=1)
            if now() > end - MARGIN:  # the last ones may be of the next state
                sight.times, sight.shapes = before.times, before.shapes
                return

    def _see(
        self,
        sight: Sight,
        what: str,
        make: Callable[[Ask], bytes],
        *,
        repeats: int = REPEATS,
    ) -> None:
        call = make(sight.ask)
        sight.note(what, [self._line.send(call) for _ in range(repeats)])

    def _make_post(self, ask: Ask) -> bytes:
        return make_post(ask, self._token)

    def _make_get(self, ask: Ask) -> bytes:
        return format_call("GET", f"{PATH}/{ask.id}", token=self._token)

    def _make_receipt(self, ask: Ask) -> bytes:
        return format_call("GET", f"{PATH}/{ask.id}/receipt", token=self._token)


def sleep_until(moment: int) -> None:
    """Return at a moment in milliseconds since 1970."""
    sleep(max(0.0, (moment - now()) / 1000))


def draw_people(crowd: Crowd, count: int, *, seed: int) -> list[Ask]:
    """Return requests about as many known as unknown people, each asked for once."""
    chance = Random(seed)
    some = [(one, True) for one in crowd.known[: count // 2]]
    some += [(one, False) for one in crowd.unknown[: count // 2]]
    chance.shuffle(some)
    return [
        Ask(f"{chance.getrandbits(128):032x}", who, is_known, chance.random() < 0.5)
        for who, is_known in some
    ]


def gather_sights(plan: SpyPlan) -> list[Sight]:
    """Spy on a service, round after round."""
    asks = draw_people(plan.crowd, plan.n_asks, seed=plan.seed)
    with TemporaryDirectory() as name, lend_store(plan.store) as url:
        folder = Path(name) / "registry"
        token = plan.crowd.build(folder, url)["request"]
        started = Plan(folder, plan.window, plan.extras)
        with serve(started) as (_, port), Line(port) as line:
            windows, chance = Windows(plan.window), Random(plan.seed)
            spy = Spy(line, token, windows=windows, chance=chance)
            left: Iterator[Ask] = iter(asks)
            sights: list[Sight] = []
            while len(sights) < len(asks):  # each round takes two windows
                sights += spy.watch(left)
            return sights


def list_differences(sights: list[Sight]) -> Iterator[str]:
    """Yield every answer that one of both kinds of people gets, and the other never.

    A call that was late, and saw the next state, does not count: only answers that
    chance would give to one kind alone once in two thousand times. What became of a
    request may be told once it is answered; see ``list_allowed``.
    """
    for what in dict.fromkeys(name for sight in sights for name in sight.shapes):
        if what.endswith("answered"):
            continue
        seen = [
            Counter(
                one.shapes[what] for one in sights if what in one.shapes and kind(one)
            )
            for kind in (is_known, is_unknown)
        ]
        for shape in seen[0].keys() ^ seen[1].keys():
            if max(some[shape] for some in seen) >= LEAST:
                who = "known" if shape in seen[0] else "unknown"
                yield f"{what}: only {who} people get {shape}"


def list_allowed(sights: list[Sight]) -> Iterator[str]:
    """Yield what the sender may see to differ after the answer."""
    for what in ("look, answered", "send, answered"):
        for kind in (is_known, is_unknown):
            sizes = {
                (shape[0][0], shape[0][2])
                for one in sights
                if what in one.shapes and kind(one)
                for shape in [one.shapes[what]]
            }
            who = kind.__name__.removeprefix("is_")
            yield f"{what}: {who} people get (code, bytes) {sorted(sizes)}"


def is_known(sight: Sight) -> bool:
    """Whether a request is about somebody in the model."""
    return sight.ask.is_known


def is_unknown(sight: Sight) -> bool:
    """Whether a request is about a stranger."""
    return not sight.ask.is_known


def tell_apart(sights: list[Sight]) -> list[Separation]:
    """Return how well times and shapes tell known people, all together first."""
    names = list(dict.fromkeys(name for one in sights for name in one.times))
    features = {name: [one.times.get(name, np.nan) for one in sights] for name in names}
    for name in names:
        if not name.endswith("answered"):
            features[f"shape of {name}"] = number_shapes(sights, name)
    ways = [float(one.ask.by_address) for one in sights]
    return separate_all(features, [is_known(one) for one in sights], groups=ways)


def number_shapes(sights: list[Sight], name: str) -> list[float]:
    """Return which of the shapes of an answer each request got; NaN if none."""
    every = list({one.shapes[name]: None for one in sights if name in one.shapes})
    numbers = {shape: float(place) for place, shape in enumerate(every)}
    return [
        numbers[one.shapes[name]] if name in one.shapes else np.nan for one in sights
    ]


def print_spying(options: Any) -> int:
    """Spy, and print how well an enemy does."""
    plan = SpyPlan(
        n_asks=options.count or 6000,
        store=options.store,
        extras=options.extras,
        seed=options.seed,
        window=options.window,
    )
    sights = gather_sights(plan)
    differences = list(list_differences(sights))
    found = tell_apart(sights)
    print(f"{len(sights)} people")
    print(*differences, *found, *list_allowed(sights), sep="\n")
    return int(bool(differences) or is_telling(found))
