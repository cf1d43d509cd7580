# SPDX-License-Identifier: Apache-2.0
"""Attack the map of features: states summed over rows e, radii about rows A'e.

The anchor is anywhere, not only near a minimiser: then the third order counts, and a
bound on it that is too small shows.
"""

from collections.abc import Iterator

import numpy as np

from expunge import Newton, Rows
from expunge.core.feature_map import FeatureMap
from expunge.promise.radius import Radii, best_radius
from expunge.removal import Draft, State, measure_gradient
from expunge.removal.state import lift_state, summarise

from . import draws
from .core import objective_of
from .draws import Generator, Task, chance
from .judge import Checker
from .losses import Array
from .oracle import Sample, minimise


def attack(rng: Generator, checker: Checker) -> None:
    """Sum over some rows, change the features, remove rows, and check all radii."""
    task = draws.task(rng)
    features = draw_map(rng, task)
    e = draw_rows(rng, task, features)
    X = e @ dense_map(features)
    sample = task.sample
    objective = objective_of(task.aim)
    with checker.note_refusals() as refusal:
        rows = Rows(e, objective.loss.labels(sample.y), sample.weight)
        theta = draw_anchor(rng, features)
        state = Newton().init(summarise(objective, rows, theta=theta))
    if refusal:
        return
    stay = np.ones(len(sample.y), dtype=bool)
    for people in ([], *draws.requests(rng, task, 2)):
        gone = stay & task.rows_of(people)
        stay = stay & ~gone
        if not sample.weight[stay].any():
            return
        with checker.note_refusals() as refusal:
            state = Newton().update(state, rows.take(np.flatnonzero(gone)))
            lifted, draft = Newton().step(lift_state(state, features))
            present = Rows(X, rows.y, rows.weight).take(np.flatnonzero(stay))
            claims = list(radii(lifted, draft, present))
        if refusal:
            return
        width = X.shape[1] - task.aim.intercept
        rest = Sample(X[stay, :width], sample.y[stay], sample.weight[stay])
        truth = minimise(task.aim, rest, sample.total, draft.theta)
        for what, claimed in claims:
            checker.check_radius(claimed, draft.theta, truth, what)


def radii(state: State, draft: Draft, present: Rows) -> Iterator[tuple[str, float]]:
    """Yield every radius of an answer about changed features."""
    yield "best", best_radius(state, draft).value
    yield "measured", Radii(state, draft).measured()
    R = state.magnitude.row_norm
    yield "measured-local", Radii(state, draft, R).measured_local()
    seen = measure_gradient(state, draft, remaining=present)
    on_rows = Radii(state, seen)
    yield "residual", on_rows.residual()
    yield "residual-local", on_rows.residual_local()
    yield "quick on rows", on_rows.residual_local(quick=True)
    yield "best on rows", best_radius(state, seen, remaining=present).value


def draw_map(rng: Generator, task: Task) -> FeatureMap:
    """Return a map to as many features: scales, a shift, and flags that count."""
    n_features, n_flags = task.sample.X.shape[1], int(rng.integers(0, 3))
    spread = float(rng.choice([0.0, 0.3, 1.0]))
    centre = float(rng.uniform(-1.0, 1.0))
    ratio = 10.0 ** (centre + spread * rng.standard_normal(n_features))
    shift = np.zeros(n_features)
    if chance(rng, 0.6):
        shift = 10.0 ** rng.uniform(-2.0, 1.0) * rng.standard_normal(n_features)
    to = rng.integers(0, n_features, n_flags)
    entries = 10.0 ** rng.uniform(-2.0, 0.5) * rng.standard_normal(n_flags)
    last = [n_features] * task.aim.intercept
    columns = np.concatenate([np.arange(n_features), to, last]).astype(np.intp)
    order = np.argsort(columns, kind="stable")
    size = n_features + n_flags + 1
    flags = np.arange(n_features, n_features + n_flags)
    main = np.concatenate([np.ones(n_features), np.zeros(n_flags), np.ones(len(last))])[
        order
    ]
    return FeatureMap(
        rows=np.concatenate([np.arange(n_features), flags, [size - 1] * len(last)])[
            order
        ].astype(np.intp),
        columns=columns[order],
        values=np.concatenate([ratio, entries, np.ones(len(last))])[order],
        shift=shift,
        size=size,
        intercept=task.aim.intercept,
        main=main > 0.0,
        share=main,
        outputs=task.aim.loss.outputs,
    )


def draw_rows(rng: Generator, task: Task, features: FeatureMap) -> Array:
    """Return the rows that are summed over: numbers, flags, and a constant."""
    X = task.sample.X
    n_flags = features.size - 1 - X.shape[1]
    flags = (rng.random((len(X), n_flags)) < 0.3).astype(float)
    size = 10.0 ** rng.uniform(-1.5, 0.5) / max(1e-9, float(np.abs(X).max()))
    if chance(rng, 0.3):
        size = 1.0
    return np.hstack([X * size, flags, np.ones((len(X), 1))])


def draw_anchor(rng: Generator, features: FeatureMap) -> Array:
    """Return parameters of e: anywhere, or of the form that the map gives."""
    theta = rng.standard_normal(features.size * features.outputs)
    theta *= 10.0 ** rng.uniform(-3.0, 0.7)
    if chance(rng, 0.5):
        theta = features.lift(features.back(theta))
    return theta


def dense_map(features: FeatureMap) -> Array:
    """Return A as a matrix, (e, x)."""
    A = np.zeros((features.size, features.width))
    np.add.at(A, (features.rows, features.columns), features.values)
    A[-1, : len(features.shift)] += features.shift
    return A
