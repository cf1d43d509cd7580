# SPDX-License-Identifier: Apache-2.0
"""A model that forgets beside a rival that is fitted again, in turns.

Times are seconds of the processor, and everything runs on one thread: what others do on
the machine then changes little, and ratios less.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import nan
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from expunge.core.measurement import measure
from expunge.core.objective import Objective
from expunge.core.rows import Rows
from expunge.linear_model import LogisticRegression, SoftmaxRegression
from expunge.linear_model.base import private_model

from ..report import Table, number
from ..timing import Measurement, collection_off, time_call
from .data import Labelled

Model: TypeAlias = LogisticRegression | SoftmaxRegression
LOOK = ("accepted",)
NEVER = Measurement("never", nan, nan, nan, 0)


@dataclass(frozen=True, slots=True)
class Contest:
    """Two ways to keep a model of the same data, and how many times each is timed.

    Attributes
    ----------
    data
        The rows.
    model
        Returns a new model of ours, not fitted.
    rivals
        By name, what fits a rival.
    turns, requests
        Fits of everything, and requests to the model after each.
    """

    data: Labelled
    model: Callable[[], Model]
    rivals: dict[str, Callable[[], Any]]
    turns: int
    requests: int


@dataclass(slots=True)
class Seconds:
    """Seconds of everything that was timed, as they come in."""

    fits: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)
    rivals: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a contest found.

    Attributes
    ----------
    fit, rivals
        Times of the fits.
    first
        The first request after a fit.
    later
        All others; ``looks`` and ``passes`` are those that read no row but the
        removed, and those that read all.
    gradient
        The norm of the gradient at our fit.
    mechanism, certified
        How requests were answered, and whether every release was certified.
    fitted
        The rivals as they were fitted last.
    """

    fit: Measurement
    rivals: dict[str, Measurement]
    first: Measurement
    later: Measurement
    looks: Measurement
    passes: Measurement
    gradient: float
    mechanism: str
    certified: bool
    fitted: dict[str, Any]

    @property
    def times(self) -> list[Measurement]:
        """Everything timed, for a table."""
        found = (self.fit, self.first, self.looks, self.passes)
        return [*self.rivals.values(), *(item for item in found if item.n)]


def compete(contest: Contest) -> Outcome:
    """Fit all in turn, and send requests of one person each to our model."""
    taken = Seconds(rivals={name: [] for name in contest.rivals})
    people = np.arange(len(contest.data.y))
    leaving = np.random.default_rng(1).permutation(people)
    fitted: dict[str, Any] = {}
    gradient, certified = 0.0, True
    with collection_off():
        for turn in range(contest.turns):
            for name, fit in contest.rivals.items():
                fitted[name], seconds = time_processor(fit)
                taken.rivals[name].append(seconds)
            model = contest.model()
            taken.fits.append(
                time_processor(partial(fit_model, model, contest.data))[1]
            )
            gradient = max(gradient, gradient_norm(model, contest.data))
            certified &= model.certificate_.status == "certified"
            start = turn * contest.requests
            for person in leaving[start : start + contest.requests].tolist():
                certified &= _request(model, contest.data, taken=taken, person=person)
            mechanism = model.certificate_.mechanism
            del model
            gc.collect()
    return _summarise(taken, gradient, mechanism, certified=certified, fitted=fitted)


def _request(model: Model, data: Labelled, *, taken: Seconds, person: int) -> bool:
    """Time the request of one person; return whether the release is certified."""
    first = len(taken.fits) > len(taken.first)
    _, seconds = time_processor(partial(forget_person, model, data, person))
    if first:
        taken.first.append(seconds)
    else:
        taken.later.append(seconds)
        look = model.record_.decisions == LOOK
        (taken.looks if look else taken.passes).append(seconds)
    return model.certificate_.status == "certified"


def _summarise(
    taken: Seconds, gradient: float, mechanism: str, *, certified: bool, fitted: Any
) -> Outcome:
    """Return medians and quartiles of what was timed."""
    return Outcome(
        fit=Measurement.of("our fit", taken.fits),
        rivals={
            name: Measurement.of(name, all_) for name, all_ in taken.rivals.items()
        },
        first=spread("our first request after it", taken.first),
        later=spread("our requests", taken.later),
        looks=spread("our other requests, no pass", taken.looks),
        passes=spread("our other requests, with passes", taken.passes),
        gradient=gradient,
        mechanism=mechanism,
        certified=certified,
        fitted=fitted,
    )


def spread(name: str, seconds: list[float]) -> Measurement:
    """Return the measurement of these times, or one of nothing."""
    return Measurement.of(name, seconds) if seconds else replace(NEVER, name=name)


def time_processor(action: Callable[[], Any]) -> tuple[Any, float]:
    """Return what one call returns and the processor's seconds that it took."""
    return time_call(action, time.process_time)


def fit_model(model: Model, data: Labelled) -> Model:
    """Fit our model: each row is a person, if the model keeps its rows."""
    owners = np.arange(len(data.y)) if model.keep_data else None
    model.fit(data.X, data.y, subjects=owners)
    return model


def forget_person(model: Model, data: Labelled, person: int) -> None:
    """Forget a person, by name if the model keeps its rows, and else by their row."""
    if model.keep_data:
        model.forget([person])
    else:
        rows = slice(person, person + 1)
        model.forget(X=data.X[rows], y=data.y[rows])


def gradient_norm(model: Model, data: Labelled) -> float:
    """Return the norm of the gradient at our answer, before noise, by a pass."""
    private = private_model(model)
    rows = make_rows(private.objective, data)
    return residual(private.objective, rows, private.answer.draft.theta)


def make_rows(objective: Objective, data: Labelled) -> Rows:
    """Return the rows with their labels as the loss wants them."""
    signed = objective.loss.outputs == 1
    return objective.rows(data.X, 2 * data.y - 1 if signed else data.y)


def residual(objective: Objective, rows: Rows, theta: NDArray[np.float64]) -> float:
    """Return the norm of the gradient, with the subgradient that cancels most."""
    at = measure(objective, rows, theta=theta)
    return at.with_subgradient(objective).residual


def parameters_of(rival: Any, *, intercept: bool) -> NDArray[np.float64]:
    """Return the parameters of scikit-learn's model as ours are ordered."""
    table = np.asarray(rival.coef_).T
    if intercept:
        table = np.vstack([table, rival.intercept_])
    return np.ascontiguousarray(table).ravel()


def trace_memory(action: Callable[[], Any]) -> int:
    """Return the most bytes that were allocated at once since tracing began."""
    gc.collect()
    tracemalloc.reset_peak()
    action()
    return tracemalloc.get_traced_memory()[1]


def facts_table(outcomes: dict[str, Outcome]) -> Table:
    """Return how each contest's requests were answered."""
    rows = [
        (
            name,
            outcome.mechanism,
            number(outcome.gradient),
            str(outcome.looks.n),
            str(outcome.passes.n),
            "all" if outcome.certified else "NOT ALL",
        )
        for name, outcome in outcomes.items()
    ]
    headers = ("model", "mechanism", "gradient", "looks", "passes", "certified")
    return Table(headers, rows)
