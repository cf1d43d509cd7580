# SPDX-License-Identifier: Apache-2.0
"""Attack the parity of outcomes: a request is answered or refused as a fit would be.

Whoever sees an answer where a fit to the remaining rows raises an error knows that
people left, whatever the noise. Most problems are drawn where rounding decides: tau is
a small multiple of what the fit can show of itself.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from expunge import Budget, MatrixFree
from expunge.private_model.model import PrivateModel
from expunge.private_model.target_units import TargetUnits, has_free_units
from expunge.private_model.training_rows import RowChange
from expunge.promise.noise import make_noise

from . import draws
from .core import MECHANISMS, objective_of
from .draws import Generator, chance, pick
from .judge import Checker

REQUESTS = 4


def attack(rng: Generator, checker: Checker) -> None:
    """Fit near the limit, let people leave and come, and fit again to compare."""
    task = draws.task(rng, draws.STRANGERS)
    _make_hard(rng, task.sample.X, task.sample.y, classes=task.classes)
    mechanism = {**MECHANISMS, "wide": MatrixFree()}[
        pick(rng, *MECHANISMS, "wide", p=[0.35, 0.15, 0.1, 0.25, 0.15])
    ]
    inside = task.rows_of(draws.first_people(rng, task))
    if not task.sample.weight[inside].any():
        return
    with checker.note_refusals() as refusal:
        objective = objective_of(task.aim)
        rows = objective.rows(task.sample.X, task.sample.y, task.sample.weight)
        first = rows.take(inside)
        free = PrivateModel.fit(objective, first, mechanism=mechanism)
        scaled, unit = chance(rng, 0.5) and has_free_units(objective), 1.0
        if scaled:
            unit = TargetUnits.of(first).unit
        budget = _budget(rng, free.answer.radius.value / unit)
        model = PrivateModel.fit(
            objective,
            first,
            mechanism=mechanism,
            budget=budget,
            targets=first if scaled else None,
        )
    if refusal:
        return
    weight, keeps = first.total_weight, chance(rng, 0.8)
    for _ in range(REQUESTS):
        here = np.unique(task.owners[inside]).tolist()
        leaving, coming = draws.change(rng, task, here)
        gone, come = task.rows_of(leaving), task.rows_of(coming)
        inside = (inside & ~gone) | come
        if not task.sample.weight[inside].any():
            return
        left = rows.take(inside)
        change = RowChange(
            removed=rows.take(gone),
            added=rows.take(come),
            n_subjects_removed=max(1, len(leaving)),
            n_subjects_added=max(1, len(coming)),
        )

        after = objective.after(left.total_weight / weight)
        targets = left if scaled else None
        refit = partial(
            PrivateModel.fit, mechanism=mechanism, budget=budget, targets=targets
        )
        fresh = _outcome(checker, partial(refit, after, left))
        if keeps or mechanism.needs_rows:
            request = partial(model.change, change, remaining=left)
            ours = _outcome(checker, request)
            same = type(ours) is type(fresh)
            checker.check(same, f"{_name(ours)} where a fit gives {_name(fresh)}")
        else:  # a refusal for want of rows is disclosed, an answer must be a fit's too
            ours = _outcome(checker, partial(model.change, change))
            answered = isinstance(fresh, PrivateModel)
            fine = answered or not isinstance(ours, PrivateModel)
            checker.check(fine, f"answered where a fit gives {_name(fresh)}")
        if not isinstance(ours, PrivateModel):
            return
        checker.note_decisions(ours.answer.decisions)
        tau = ours.answer.unit * budget.solver_error(ours.answer.draft.theta.size)
        if mechanism is MECHANISMS["retrain"]:
            checker.check(ours.answer.radius.value <= tau, "retrained, beyond tau")
        model = ours


def _make_hard(rng: Generator, X: Any, y: Any, *, classes: int) -> None:
    """Shift or scale columns, or targets, so that sums cancel; mostly not at all."""
    kind = pick(rng, "plain", "offset", "scaled", "targets", p=[0.5, 0.2, 0.15, 0.15])
    if kind == "offset":
        X += 10.0 ** rng.uniform(1.0, 5.0)
    elif kind == "scaled":
        X *= 10.0 ** rng.uniform(-4.0, 4.0, X.shape[1])
    elif kind == "targets" and not classes:
        y *= 10.0 ** rng.uniform(2.0, 6.0)


def _budget(rng: Generator, radius: float) -> Budget:
    """Return a budget whose tau is near this radius of a fit; or an ordinary one."""
    ordinary = Budget(sigma=float(10.0 ** rng.uniform(-4.0, 1.0)), allow_seeded=True)
    if chance(rng, 0.15) or not (isfinite(radius) and radius > 0.0):
        return ordinary
    tau = radius * float(10.0 ** rng.uniform(-0.2, 0.8))
    sigma = ordinary.deviation * tau / ordinary.solver_error(1)
    return replace(ordinary, sigma=float(np.clip(sigma, 1e-200, 1e200)))


def _outcome(
    checker: Checker, make: Callable[[], PrivateModel]
) -> PrivateModel | Exception:
    """Return the model that was released, or the error that came instead."""
    with checker.note_refusals() as refusal:
        model = make()
        assert model.budget is not None
        return model.release(make_noise(model.budget, 0))[0]
    assert refusal.error is not None
    return refusal.error


def _name(outcome: object) -> str:
    if isinstance(outcome, PrivateModel):
        return "an answer"
    return type(outcome).__name__
