# SPDX-License-Identifier: Apache-2.0
"""Attack survival: people who are rows for each interval that they reached.

The oracle knows of no interval but by a loop of its own: a person until a time is a
Poisson count for each interval, over the time spent there.
"""

from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np

from expunge import PiecewiseExponential

from . import draws
from .core import MECHANISMS
from .draws import Generator, Task, chance, pick
from .estimators import budget_of, check_against_fit
from .judge import Checker
from .losses import Array, Loss
from .oracle import Sample

REQUESTS = 4


def attack(rng: Generator, checker: Checker) -> None:
    """Fit a random study, let people go and come, and compare with a refit.

    Some events and losses of sight fall on a break; most people have one row, others
    several, of which each has intervals.
    """
    n, d = int(rng.integers(8, 60)), int(rng.integers(1, 5))
    breaks = np.sort(10.0 ** rng.uniform(-1.0, 1.0, int(rng.integers(0, 4))))
    X = draws.design(rng, n, d)
    time = 10.0 ** rng.uniform(-1.5, 1.5, n)
    if len(breaks):
        time = np.where(rng.random(n) < 0.2, rng.choice(breaks, n), time)
    seen = np.column_stack([time, rng.random(n) < rng.uniform(0.2, 1.0)])
    aim = replace(draws.aim(rng, ("poisson",), d), groups=None)
    aim = replace(aim, loss=Loss("poisson", offset=True))
    people = Sample(X, seen, draws.weights(rng, n))
    task = Task(aim, people, draws.owners(rng, n))
    owners, by_person, kept = task.owners, chance(rng, 0.6), chance(rng, 0.7)
    mechanism = pick(rng, *(MECHANISMS if kept else ("newton", "jackknife")))
    model = PiecewiseExponential(
        breaks=breaks.tolist(),
        alpha=aim.alpha,
        l1_ratio=aim.l1_ratio,
        ridge=aim.ridge,
        scaling=aim.scaling,
        fit_intercept=aim.intercept,
        penalize_intercept=aim.intercept and not aim.free,
        mechanism=MECHANISMS[mechanism],
        budget=budget_of(rng),
        random_state=int(rng.integers(0, 1000)),
        keep_data=kept,
    )
    inside = task.rows_of(draws.first_people(rng, task))
    with checker.note_refusals() as refusal:
        model.fit(**_take(people, inside), subjects=owners[inside].tolist())
    if refusal:
        return
    first = _spread(people.take(inside), breaks).total
    for _ in range(REQUESTS):
        leaving, coming = draws.change(rng, task, np.unique(owners[inside]).tolist())
        if not by_person or not kept:
            coming = []
        gone, come = task.rows_of(leaving) & inside, task.rows_of(coming)
        with checker.note_refusals() as refusal:
            if leaving and by_person and kept:
                model.forget(leaving)
            elif gone.any():
                model.forget(**_take(people, gone))
        if not refusal:
            inside = inside & ~gone
            if come.any():
                with checker.note_refusals() as refusal:
                    model.add(**_take(people, come), subjects=owners[come].tolist())
                inside = inside | come
        if refusal:
            return
        rest = _spread(people.take(inside), breaks)
        check_against_fit(checker, model, (aim, rest, np.array([])), first)


def _take(people: Sample, mask: Array) -> dict[str, Any]:
    part = people.take(mask)
    return {"X": part.X, "y": part.y, "sample_weight": part.weight}


def _spread(people: Sample, breaks: Array) -> Sample:
    """Return a count for each person and interval, over the time spent there."""
    ends = [0.0, *breaks.tolist(), inf]
    rows: list[tuple[Array, tuple[float, float], float]] = []
    for x, (time, event), weight in zip(people.X, people.y, people.weight, strict=True):
        for index, (start, end) in enumerate(pairwise(ends)):
            if time <= start:
                break
            here = bool(event) and time <= end
            level = [1.0 * (index == k) for k in range(len(ends) - 1)]
            x_here = np.append(x, level if len(breaks) else [])
            spent = float(np.exp(np.log(min(time, end) - start)))
            rows.append((x_here, (float(here), spent), float(weight)))
    X, y, weights = (np.array(one) for one in zip(*rows, strict=True))
    return Sample(X, y, weights)
