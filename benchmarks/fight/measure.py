# SPDX-License-Identifier: Apache-2.0
"""The judges of the fair fight: what every contender is measured by.

All get the same people, in requests as ``measure_ring`` parts them. At each checkpoint
the model is held against retraining, and what would be published under the promise is
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
from ..timing import collection_off, timed
from .measure_ring import Entry
from .protocol import Problem, Promise, Session, noised

PROMISE = Promise(epsilon=1.0, delta=1e-5)
# The contract whose noise a radius must fit in, when we ask how long it holds.
CONTRACT_SIGMA = 0.1
# Accuracy is "fixed" at that of retraining, less one point.
POINT = 0.01
EPSILONS = tuple(float(10.0 ** (k / 4)) for k in range(-12, 13))
PROMISED = "accuracy at the promise"


@dataclass(frozen=True, slots=True)
class Round:
    """One stream of requests to one problem, and when to look.

    Attributes
    ----------
    problem, order
        The rows, and who leaves, first to last.
    stream, seed
        The name of the order, and the seed of everything random.
    checkpoints
        After how many removals the judges look.
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
        """Return what a figure of this round is about."""
        setting, alpha = self.problem.name, self.problem.objective.alpha
        about = partial(Place, "fight", setting, alpha, self.stream)
        return about(contender, quantity, removals)


def fight(entries: Sequence[Entry], bout: Round) -> list[Figure]:
    """Return every contender's figures; RT must be the first, it is the oracle."""
    found: list[Figure] = []
    truth: dict[int, Vector] = {}
    with collection_off():
        for entry in entries:
            # One that does not apply has no figures, one that gives up those it has.
            with suppress(ExpungeError):
                for figure in judged(entry, bout, truth):
                    found.append(figure)
    return found


def judged(entry: Entry, bout: Round, truth: dict[int, Vector]) -> Iterator[Figure]:
    """Yield a contender's figures; the first one's models become the truth."""
    oracle, name = not truth, entry.contender.name
    session, done = entry.contender.begin(bout.problem, bout.seed), 0
    all_seconds: list[float] = []
    for checkpoint in bout.checkpoints:
        if entry.most is not None and checkpoint > entry.most:
            break
        seconds = answer(session, bout.order[done:checkpoint], entry.singles)
        all_seconds += seconds
        done = checkpoint
        if oracle:
            truth[done] = session.theta().copy()
        place = bout.place(name, "seconds", done)
        yield Figure(place, float(np.median(seconds)), bout.seed, len(seconds))
        draws = 1 if entry.noise_fixed else bout.draws
        seen = looked_at(session, bout, truth[done], noise_fixed=entry.noise_fixed)
        for quantity, value in seen:
            times = draws if quantity == PROMISED else 1
            yield Figure(bout.place(name, quantity, done), value, bout.seed, times)
    for share in (50, 99):
        place = bout.place(name, f"p{share} seconds", done)
        value = float(np.percentile(all_seconds, share))
        yield Figure(place, value, bout.seed, len(all_seconds))
    if not entry.noise_fixed:
        goal = accuracy(bout.problem.test, truth[done]) - POINT
        place = bout.place(name, "epsilon at fixed accuracy", done)
        yield Figure(place, least_epsilon(session, bout, goal), bout.seed, bout.draws)


def answer(session: Session, leaving: Index, singles: int | None) -> list[float]:
    """Remove a batch, then single people; return the seconds of the single ones."""
    alone = leaving if singles is None else leaving[-singles:]
    batch = leaving[: len(leaving) - len(alone)]
    if len(batch):
        session.forget(batch)
    requests = np.split(alone, len(alone))
    return [timed(partial(session.forget, request))[1] for request in requests]


def looked_at(
    session: Session, bout: Round, truth: Vector, *, noise_fixed: bool
) -> Iterator[tuple[str, float]]:
    """Yield what the judges see at a checkpoint, by quantity."""
    theta = session.theta()
    yield "distance", float(np.linalg.norm(theta - truth))
    yield "accuracy", accuracy(bout.problem.test, theta)
    yield "retrainings", float(session.retrainings)
    yield "state bytes", float(session.state_bytes())
    sigma = session.noise(PROMISE)
    yield "noise", sigma
    if noise_fixed:
        published = session.release(PROMISE, np.random.default_rng(bout.seed))
        yield PROMISED, accuracy(bout.problem.test, published)
    elif isfinite(sigma):
        yield PROMISED, noised_accuracy(theta, sigma, bout)


def noised_accuracy(theta: Vector, sigma: float, bout: Round) -> float:
    """Return the mean accuracy over draws of the noise that a release adds.

    As ``release`` does it, which would find the same sigma again for every draw.
    """
    rng, test = np.random.default_rng(bout.seed), bout.problem.test
    drawn = (noised(theta, sigma, rng) for _ in range(bout.draws))
    return float(np.mean([accuracy(test, published) for published in drawn]))


def least_epsilon(session: Session, bout: Round, goal: float) -> float:
    """Return the smallest epsilon of a grid that keeps the accuracy, or infinity.

    More epsilon is less noise: the grid is bisected as if accuracy never fell with it.
    """
    theta = session.theta()

    def enough(epsilon: float) -> bool:
        sigma = session.noise(Promise(epsilon, PROMISE.delta))
        return isfinite(sigma) and noised_accuracy(theta, sigma, bout) >= goal

    first = bisect_left(EPSILONS, True, key=enough)
    return EPSILONS[first] if first < len(EPSILONS) else inf


def held_until(noise: Mapping[int, float], retrainings: Mapping[int, float]) -> int:
    """Return after how many removals a contract of fixed sigma last held.

    It ends where the noise that the removals need exceeds the contract's, or where
    the method first retrained by itself; zero if it never held.
    """
    last = 0
    for checkpoint in sorted(noise):
        if noise[checkpoint] > CONTRACT_SIGMA or retrainings[checkpoint] > 0:
            break
        last = checkpoint
    return last


def within(checkpoints: Sequence[int], removals: int) -> tuple[int, ...]:
    """Return the checkpoints that a setting reaches, its last request among them."""
    below = [checkpoint for checkpoint in checkpoints if checkpoint < removals]
    return (*below, removals)
