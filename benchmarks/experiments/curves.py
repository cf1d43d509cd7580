# SPDX-License-Identifier: Apache-2.0
"""The paper's curves: runtime and accuracy against the number of removals.

IJ, and the algorithm as printed, are run request by request and every request is
timed. The others are timed at the points of the curve, and what lies between is
interpolated: RT and TA read all rows, whatever number of people leaves, so they get
one request a point; Newton gets a batch, which is not timed, and then one person.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from expunge import Rows
from expunge.core.arrays import Index, Vector
from expunge.exceptions import ExpungeError, Unsupported

from ..comparison.protocol import Contender, Problem, Session
from ..timing import collection_off, time_call
from .figures import Figure, Place

EVERY_REQUEST = frozenset({"IJ", "printed"})
# Their time does not depend on how many rows leave at once.
ONE_REQUEST_A_POINT = frozenset({"RT", "TA"})
NOISE_DRAWS = 10
NOTHING = "no removal"


@dataclass(frozen=True, slots=True)
class Run:
    """One stream of requests to one problem.

    Attributes
    ----------
    problem, order
        The rows, and who leaves, first to last.
    stream, seed
        The name of the order, and the seed of everything random.
    points
        After how many removals models are read.
    sigma
        The paper's fixed noise, for "noised accuracy".
    """

    problem: Problem
    order: Index
    stream: str
    seed: int
    points: tuple[int, ...]
    sigma: float


@dataclass(frozen=True, slots=True)
class Reading:
    """A model on a curve, with the requests timed since the last one."""

    removals: int
    theta: Vector
    seconds: Sequence[float]
    cumulative: float
    interpolated: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """A contender's first fit and readings; too few of them if it gave up."""

    contender: str
    start: Vector
    readings: list[Reading] = field(default_factory=list)


def points(removals: int, count: int) -> tuple[int, ...]:
    """Return so many counts of removals, evenly from 1 to the last."""
    spaced = np.linspace(1, removals, count).round().astype(int)
    return tuple(np.unique(spaced).tolist())


def measure_curves(contenders: Sequence[Contender], run: Run) -> list[Figure]:
    """Return the figures of all curves; retraining comes first and is the oracle."""
    with collection_off():
        traced = [trace(contender, run) for contender in contenders]
    curves = [curve for curve in traced if curve is not None]
    oracle = next(curve for curve in curves if curve.contender == "RT")
    truth = {reading.removals: reading.theta for reading in oracle.readings}
    found: list[Figure] = []
    for curve in curves:
        for reading in curve.readings:
            found += figures(curve.contender, reading, truth[reading.removals], run)
    stayed = [replace(reading, theta=oracle.start) for reading in oracle.readings]
    for reading in stayed:  # the first fit, had nobody been forgotten
        both = figures(NOTHING, reading, truth[reading.removals], run)
        found += [item for item in both if "seconds" not in item.place.quantity]
    return found


def trace(contender: Contender, run: Run) -> Curve | None:
    """Return a contender's curve, or None where its method does not apply."""
    try:
        session = contender.start(run.problem, run.seed)
    except Unsupported:
        return None
    curve = Curve(contender.name, session.theta().copy())
    # One that gives up on the way has a curve that ends there.
    with suppress(ExpungeError):
        for reading in readings(contender.name, session, run):
            curve.readings.append(reading)
    return curve


def readings(name: str, session: Session, run: Run) -> Iterator[Reading]:
    """Yield the models at the points, with what it took to get there."""
    done, total, before = 0, 0.0, None
    interpolated = name not in EVERY_REQUEST
    for point in run.points:
        requests = timed_requests(name, session, run.order[done:point])
        seconds = [
            time_call(partial(session.forget, request))[1] for request in requests
        ]
        if interpolated:
            # Between two points a request takes what lies between their times.
            now = seconds[0]
            total += 0.5 * (now + (now if before is None else before)) * (point - done)
            before = now
        else:
            total += sum(seconds)
        done = point
        yield Reading(point, session.theta().copy(), seconds, total, interpolated)


def timed_requests(name: str, session: Session, leaving: Index) -> Sequence[Index]:
    """Return the requests that are timed, after the others were answered."""
    if name in EVERY_REQUEST:
        return np.split(leaving, len(leaving))
    if name in ONE_REQUEST_A_POINT:
        return [leaving]
    if len(leaving) > 1:
        session.forget(leaving[:-1])
    return [leaving[-1:]]


def figures(name: str, reading: Reading, truth: Vector, run: Run) -> Iterator[Figure]:
    """Yield the figures of one reading."""
    problem = run.problem
    setting, alpha = problem.name, problem.objective.alpha
    about = partial(Place, "curves", setting, alpha, run.stream, name)

    def figure(quantity: str, value: float, repetitions: int = 1) -> Figure:
        place = about(quantity, reading.removals)
        return Figure(place, value, run.seed, repetitions)

    timings = len(reading.seconds)
    yield figure("seconds", float(np.mean(reading.seconds)), timings)
    cumulative = figure("cumulative seconds", reading.cumulative, timings)
    yield replace(cumulative, interpolated=reading.interpolated)
    yield figure("accuracy", accuracy(problem.test, reading.theta))
    yield figure("distance", float(np.linalg.norm(reading.theta - truth)))
    rng = np.random.default_rng((run.seed, reading.removals))
    noisy = reading.theta + run.sigma * rng.normal(size=(NOISE_DRAWS, truth.size))
    scores = [accuracy(problem.test, theta) for theta in noisy]
    yield figure("noised accuracy", float(np.mean(scores)), NOISE_DRAWS)


def accuracy(test: Rows, theta: Vector) -> float:
    """Return the share of test rows on the right side."""
    return float(np.mean(np.where(test.X @ theta > 0.0, 1.0, -1.0) == test.y))
