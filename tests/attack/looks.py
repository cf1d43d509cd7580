# SPDX-License-Identifier: Apache-2.0
"""Attack looks at the rows: answers that stop as soon as their radius fits.

Budgets are drawn around the radius of a first look, so that it fits, just fits, or
leaves steps to be made by a Hessian that is older than the answer; the anchor stays for
many requests, or moves every few. What was accepted must be within its radius of the
minimiser, and within what the budget allows.
"""

from dataclasses import replace
from math import isfinite
from typing import Any
from unittest.mock import patch

import numpy as np

from expunge import Budget, Rows
from expunge.private_model import answers
from expunge.private_model.model import PrivateModel
from expunge.private_model.training_rows import RowChange
from expunge.promise.radius import best_radius
from expunge.removal import measure_gradient

from . import draws
from .core import MECHANISMS, objective_of
from .draws import Generator, Task, chance, pick
from .judge import Checker
from .losses import Array
from .oracle import minimise

REQUESTS = 8
LOOSEST = Budget(sigma=1e200)


def attack(rng: Generator, checker: Checker) -> None:
    """Fit a problem, find what a first look shows, and ask under a budget near that."""
    task = draws.task(rng, draws.STRANGERS)
    if chance(rng, 0.3):  # ill-conditioned
        X = task.sample.X
        X *= 10.0 ** rng.uniform(-3.0, 3.0, X.shape[1])
    inside = task.rows_of(draws.first_people(rng, task))
    if not task.sample.weight[inside].any():
        return
    mechanism = MECHANISMS[pick(rng, "newton", "jackknife", p=[0.8, 0.2])]
    small, often = chance(rng, 0.7), pick(rng, "1", "4", "64", p=[0.1, 0.2, 0.7])
    with (
        patch.object(answers, "LOOKS_PER_ANCHOR", int(often)),
        patch.object(answers, "FEW_LOOKS", int(often)),
    ):
        with checker.note_refusals() as refusal:
            objective = objective_of(task.aim)
            rows = objective.rows(task.sample.X, task.sample.y, task.sample.weight)
            first = rows.take(inside)
            free = PrivateModel.fit(objective, first, mechanism=mechanism)
            masks = _draw(rng, task, inside)
            budget = _budget(rng, _first_look(free, rows, masks))
            fitted = PrivateModel.fit(
                objective, first, mechanism=mechanism, budget=budget
            )
        if not refusal:
            fitted = replace(fitted, terms=replace(fitted.terms, looks=small))
            _ask(rng, checker, task, (fitted, rows, masks))


def _ask(
    rng: Generator, checker: Checker, task: Task, begun: tuple[PrivateModel, Rows, Any]
) -> None:
    """Let people leave and come while the model answers, and check each answer."""
    fitted, rows, masks = begun
    (gone, come, after), here = masks, fitted
    weight = task.sample.take((after | gone) & ~come).total
    for _ in range(REQUESTS):
        if not task.sample.weight[after].any():
            return
        with checker.note_refusals() as refusal:
            here = here.change(_change(rows, gone, come), remaining=rows.take(after))
        if refusal:
            return
        answer, aim = here.answer, task.aim
        checker.note_decisions(answer.decisions)
        truth = minimise(aim, task.sample.take(after), weight, answer.draft.theta)
        theta, radius = answer.draft.theta, answer.radius.value
        checker.check_radius(radius, theta, truth, answer.decisions[-1])
        assert here.budget is not None
        allowed = here.budget.removal_budget(theta.size)
        checker.check(answer.fits(here.budget), f"{radius:.3g} of {allowed:.3g}")
        gone, come, after = _draw(rng, task, after)


def _draw(rng: Generator, task: Task, inside: Array) -> tuple[Array, Array, Array]:
    """Return who leaves and who comes next, and who is there afterwards, as masks."""
    here = np.unique(task.owners[inside]).tolist()
    leaving, coming = draws.change(rng, task, here)
    gone, come = task.rows_of(leaving), task.rows_of(coming)
    return gone, come, np.asarray((inside & ~gone) | come)


def _change(rows: Rows, gone: Array, come: Array) -> RowChange:
    return RowChange(
        removed=rows.take(gone),
        added=rows.take(come),
        n_subjects_removed=1,
        n_subjects_added=1,
    )


def _first_look(free: PrivateModel, rows: Rows, masks: tuple[Array, ...]) -> float:
    """Return the radius that a first look at the next answer shows."""
    gone, come, after = masks
    left = rows.take(after)
    state = free.terms.mechanism.update(
        free.answer.state, rows.take(gone), added=rows.take(come)
    )
    state, draft = free.terms.mechanism.step(state.weighing(left.total_weight))
    seen = measure_gradient(state, draft, remaining=left)
    return best_radius(state, seen, remaining=left).value


def _budget(rng: Generator, radius: float) -> Budget:
    """Return a budget that allows a little more than this radius, or less."""
    allowed = LOOSEST.removal_budget(1)
    if not (isfinite(radius) and radius > 0.0) or chance(rng, 0.1):
        return Budget(sigma=float(10.0 ** rng.uniform(-6.0, 1.0)))
    kind = pick(rng, "just", "hardly", "not", "by far", p=[0.25, 0.25, 0.4, 0.1])
    factor = {"just": 1.0 + 1e-6, "hardly": 1.0 - 1e-6, "by far": 30.0}.get(kind)
    factor = float(10.0 ** rng.uniform(-6.0, 0.0)) if factor is None else factor
    sigma = LOOSEST.deviation * radius * factor / allowed
    return Budget(sigma=float(np.clip(sigma, 1e-200, 1e200)))
