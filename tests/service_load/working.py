# SPDX-License-Identifier: Apache-2.0
"""Work: how much processor time the intake spends on known and on unknown people.

No enemy sees it so exactly, and a busy machine does not blur it. Each request names
many people, all known or all unknown, so that a difference of a microsecond shows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import thread_time
from typing import Any

import numpy as np

from expunge.registry import Registry, Request
from expunge.service.intake import Intake, Submission, read_person
from expunge.service.settings import ServiceSettings

from .crowd import Crowd, address_of, lend_store, name_person
from .telling import Separation, is_telling, separate_all

MICRO = 1e6


@dataclass(frozen=True)
class WorkPlan:
    """How many requests, and about how many people each."""

    n_asks: int = 4000
    n_people: int = 500
    store: str = "sqlite"
    seed: int = 0


@dataclass(frozen=True)
class Work:
    """Seconds of each request, who is known, and how people were named."""

    seconds: dict[str, list[float]]
    known: list[bool]
    by_address: list[float]

    def separate(self) -> list[Separation]:
        """Return how well the time tells who is known."""
        return separate_all(self.seconds, self.known, groups=self.by_address)

    def difference(self, what: str) -> float:
        """Return the median of known people less that of unknown ones, by ways."""
        every, known = np.array(self.seconds[what]), np.array(self.known)
        ways = np.array(self.by_address)
        medians = [
            [np.median(every[(known == one) & (ways == way)]) for one in (True, False)]
            for way in (0.0, 1.0)
        ]
        return float(np.mean([known - unknown for known, unknown in medians]))


def measure_work(plan: WorkPlan) -> Work:
    """Accept requests about many people, and measure the time of the thread."""
    crowd = Crowd(n_people=5000, n_features=3, seed=plan.seed)
    chance = Random(plan.seed)
    found = Work({"send": [], "send again": [], "look": []}, [], [])
    with TemporaryDirectory() as name, lend_store(plan.store) as url:
        crowd.build(Path(name) / "registry", url)
        with Registry.open(Path(name) / "registry") as registry:
            intake = Intake(registry, ServiceSettings())
            for _ in range(plan.n_asks):
                is_known, by_address = chance.random() < 0.5, chance.random() < 0.5
                group = crowd.known if is_known else crowd.unknown
                people = chance.sample(group, plan.n_people)
                sent = make_submission(people, by_address=by_address)
                note_work(intake, sent, seconds=found.seconds)
                found.known.append(is_known)
                found.by_address.append(float(by_address))
    return found


def make_submission(people: list[int], *, by_address: bool) -> Submission:
    """Return a request about many people."""
    named = [
        {"email": address_of(one)} if by_address else {"id": name_person(one)}
        for one in people
    ]
    return Submission(
        Request((), sender="desk", envelope="the same"),
        tuple(read_person(one, ("id",)) for one in named),
    )


def note_work(
    intake: Intake, sent: Submission, *, seconds: dict[str, list[float]]
) -> None:
    """Accept a request, then again, and show it; note how long each took."""
    id_ = sent.asked.request
    seconds["send"].append(measure(lambda: intake._accept([(sent,)])))
    again = [measure(lambda: intake._accept([(sent,)])) for _ in range(3)]
    seconds["send again"].append(min(again))
    seconds["look"].append(
        min(measure(lambda: intake.show(id_, "desk")) for _ in "abc")
    )


def measure(act: Callable[[], object]) -> float:
    """Return the seconds of this thread that something takes."""
    started = thread_time()
    act()
    return thread_time() - started


def print_work(options: Any) -> int:
    """Measure the work, and print how well it tells."""
    plan = WorkPlan(options.count or 4000, store=options.store, seed=options.seed)
    work = measure_work(plan)
    for what in work.seconds:
        each = MICRO * work.difference(what) / plan.n_people
        print(f"{what}: known people take {each:+.3f} microseconds more, each")
    found = work.separate()
    print(*found, sep="\n")
    return int(is_telling(found))
