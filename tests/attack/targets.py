# SPDX-License-Identifier: Apache-2.0
"""Attack targets in any unit: noise and radii follow their deviation, exactly."""

from dataclasses import replace
from typing import Any

import numpy as np

from . import draws
from .draws import Generator, Task, chance, pick
from .estimators import RequestMaker, estimator, public_parameters, unit_of
from .judge import Checker
from .peek import draft_of, units_of
from .streams import stream

# Noise beyond so many deviations has no probability worth a name.
FAR = 12.0


def attack(rng: Generator, checker: Checker) -> None:
    """Fit a regression to targets of an awkward size; let people leave and come."""
    task = draws.task(rng, ("squared",))
    if task.aim.l1_ratio or task.aim.groups is not None:
        task = replace(task, aim=replace(task.aim, l1_ratio=0.0, groups=None))
    task = replace(task, sample=replace(task.sample, y=_awkward(rng, task.sample.y)))
    maker = RequestMaker(pick(rng, "person", "content", "position", p=[0.5, 0.4, 0.1]))
    keep = maker.way != "content" or chance(rng, 0.5)
    model = estimator(rng, task, keep_data=keep)
    if model.budget is not None and chance(rng, 0.5):  # tight, and nobody notices it
        model.set_params(budget=replace(model.budget, sigma=None))
    stream(rng, checker, task, model, maker, also=check_units)


def _awkward(rng: Generator, y: Any) -> Any:
    """Return targets of another size: far from zero, with outliers, mostly equal."""
    kind = pick(rng, "plain", "offset", "outlier", "few", "constant")
    y = np.array(y)
    if kind == "offset":
        y += (np.abs(y).max() or 1.0) * 10.0 ** rng.uniform(0.0, 3.0)
    elif kind == "outlier":  # without whom the rest is small
        y[rng.integers(0, len(y))] *= 10.0 ** rng.uniform(1.0, 5.0)
    elif kind == "few":  # constant without one person or two
        y[:] = 3.0
        y[rng.integers(0, len(y), 2)] = rng.standard_normal(2)
    elif kind == "constant":
        y[:] = rng.standard_normal()
    return y * 10.0 ** rng.uniform(-6.0, 6.0)


def check_units(checker: Checker, model: Any, task: Task, inside: Any) -> None:
    """Compare the units of a release with those of the rows that are in the model."""
    if model.budget is None:
        return
    rest = task.sample.take(inside)
    mean, deviation = unit_of(model, rest)
    units = units_of(model)
    assert units is not None
    same = (units.mean == mean).all() and (units.deviation == deviation).all()
    checker.check(same, "mean or deviation is not that of the rows, to the bit")
    sigma = model.certificate_.sigma
    grid = model.certificate_.noise_grid
    published, shift = public_parameters(model, task.aim), np.zeros(1)
    if task.aim.intercept:
        shift = np.append(np.zeros(published.size - 1), mean)
    place = np.abs(draft_of(model) - shift) / deviation
    if place.max() < 2.0**52 * grid:  # beyond, a parameter is put at the end
        apart = np.abs(published - draft_of(model)) / deviation
        room = FAR * sigma + grid + 1e-12 * (np.abs(published).max() / deviation)
        checker.check(apart.max() <= room, "the release is not near the answer")
    steps = (published - shift) / deviation / grid
    doubt = 8e-16 * (np.abs(published) + np.abs(shift)) / deviation / grid
    sure = doubt < 0.05
    off = np.abs(steps - np.rint(steps))[sure]
    checker.check(not (off > 0.1).any(), "a release off the grid of its units")
