# SPDX-License-Identifier: Apache-2.0
"""What is measured of every contender.

All get the same people, in requests as ``schedule`` groups them. At each checkpoint the
model is compared with retraining, and what would be published under the promise is
scored on test rows.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite

import numpy as np

from expunge.core.arrays import Index, Vector
from expunge.exceptions import ExpungeError

from ..experiments.curves import accuracy
from ..experiments.figures import Figure, Place
from ..timing import collection_off, time_call
from .protocol import Problem, Promise, Session, add_noise
from .schedule import Schedule

PROMISE = Promise(epsilon=1.0, delta=1e-5)
# The budget whose noise a radius must fit in, when we ask how long it lasts.
BUDGET_SIGMA = 0.1
# Accuracy is "fixed" at that of retraining, less one point.
POINT = 0.01
EPSILONS = tuple(float(10.0 ** (k / 4)) for k in range(-12, 13))
PROMISED = "accuracy at the promise"


@dataclass(frozen=True, slots=True)
class ComparisonRun:
    """One stream of requests to one problem, and when to measure.

    Attributes
    ----------
    problem, order
        The rows, and who leaves, first to last.
    stream, seed
        The name of the order, and the seed of everything random.
    checkpoints
        After how many removals to measure.
    draws
        Noise drawn for each accuracy under a promise.
    """

    problem: Problem
    order: Index
    stream: str
    seed: int
    checkpoints: tuple[int, ...]
    draws: int

    def place(self, contender: str, quantity: str, removals: int) -> Place:
        """Return what a figure of this run is about."""
        setting, alpha = self.problem.name, self.problem.objective.alpha
        about = partial(Place, "comparison", setting, alpha, self.stream)
        return about(contender, quantity, removals)


def compare(schedules: Sequence[Schedule], run: ComparisonRun) -> list[Figure]:
    """Return every contender's figures; RT must be the first, it is the oracle."""
    found: list[Figure] = []
    truth: dict[int, Vector] = {}
    with collection_off():
        for schedule in schedules:
            # One that does not apply has no figures, one that gives up those it has.
            with suppress(ExpungeError):
                for figure in measure_contender(schedule, run, truth):
                    found.append(figure)
    return found


def measure_contender(
    schedule: Schedule, run: ComparisonRun, truth: dict[int, Vector]
) -> Iterator[Figure]:
    """Yield a contender's figures; the first one's models become the truth."""
    oracle, name = not truth, schedule.contender.name
    session, done = schedule.contender.start(run.problem, run.seed), 0
    all_seconds: list[float] = []
    for checkpoint in run.checkpoints:
        if schedule.most is not None and checkpoint > schedule.most:
            break
        seconds = time_requests(session, run.order[done:checkpoint], schedule.singles)
        all_seconds += seconds
        done = checkpoint
        if oracle:
            truth[done] = session.theta().copy()
        place = run.place(name, "seconds", done)
        yield Figure(place, float(np.median(seconds)), run.seed, len(seconds))
        draws = 1 if schedule.noise_fixed else run.draws
        seen = measure_session(
            session, run, truth[done], noise_fixed=schedule.noise_fixed
        )
        for quantity, value in seen:
            times = draws if quantity == PROMISED else 1
            yield Figure(run.place(name, quantity, done), value, run.seed, times)
    for share in (50, 99):
        place = run.place(name, f"p{share} seconds", done)
        value = float(np.percentile(all_seconds, share))
        yield Figure(place, value, run.seed, len(all_seconds))
    if not schedule.noise_fixed:
        goal = accuracy(run.problem.test, truth[done]) - POINT
        place = run.place(name, "epsilon at fixed accuracy", done)
        yield Figure(place, least_epsilon(session, run, goal), run.seed, run.draws)


def time_requests(session: Session, leaving: Index, singles: int | None) -> list[float]:
    """Remove a batch, then single people; return the seconds of the single ones."""
    alone = leaving if singles is None else leaving[-singles:]
    batch = leaving[: len(leaving) - len(alone)]
    if len(batch):
        session.forget(batch)
    requests = np.split(alone, len(alone))
    return [time_call(partial(session.forget, request))[1] for request in requests]


def measure_session(
    session: Session, run: ComparisonRun, truth: Vector, *, noise_fixed: bool
) -> Iterator[tuple[str, float]]:
    """Yield what is measured at a checkpoint, by quantity."""
    theta = session.theta()
    yield "distance", float(np.linalg.norm(theta - truth))
    yield "accuracy", accuracy(run.problem.test, theta)
    yield "retrainings", float(session.retrainings)
    yield "state bytes", float(session.state_bytes())
    sigma = session.noise(PROMISE)
    yield "noise", sigma
    if noise_fixed:
        published = session.release(PROMISE, np.random.default_rng(run.seed))
        yield PROMISED, accuracy(run.problem.test, published)
    elif isfinite(sigma):
        yield PROMISED, noised_accuracy(theta, sigma, run)


def noised_accuracy(theta: Vector, sigma: float, run: ComparisonRun) -> float:
    """Return the mean accuracy over draws of the noise that a release adds.

    As ``release`` does it, which would find the same sigma again for every draw.
    """
    rng, test = np.random.default_rng(run.seed), run.problem.test
    drawn = (add_noise(theta, sigma, rng) for _ in range(run.draws))
    return float(np.mean([accuracy(test, published) for published in drawn]))


def least_epsilon(session: Session, run: ComparisonRun, goal: float) -> float:
    """Return the smallest epsilon of a grid that keeps the accuracy, or infinity.

    More epsilon is less noise: the grid is bisected as if accuracy never fell with it.
    """
    theta = session.theta()

    def enough(epsilon: float) -> bool:
        sigma = session.noise(Promise(epsilon, PROMISE.delta))
        return isfinite(sigma) and noised_accuracy(theta, sigma, run) >= goal

    first = bisect_left(EPSILONS, True, key=enough)
    return EPSILONS[first] if first < len(EPSILONS) else inf


def removals_within_budget(
    noise: Mapping[int, float], retrainings: Mapping[int, float]
) -> int:
    """Return after how many removals a budget of fixed sigma was still enough.

    It ends where the noise that the removals need exceeds the budget's, or where
    the method first retrained by itself; zero if it never was.
    """
    last = 0
    for checkpoint in sorted(noise):
        if noise[checkpoint] > BUDGET_SIGMA or retrainings[checkpoint] > 0:
            break
        last = checkpoint
    return last


def checkpoints_up_to(checkpoints: Sequence[int], removals: int) -> tuple[int, ...]:
    """Return the checkpoints that a setting reaches, its last request among them."""
    below = [checkpoint for checkpoint in checkpoints if checkpoint < removals]
    return (*below, removals)
