# SPDX-License-Identifier: Apache-2.0
"""Solve a wide model: by products where it is smooth, on the support where it is not.

A kink keeps most coefficients at zero (or the rank small), and the minimiser is that of
a small problem: the columns with a coefficient, those of whole groups, or for the
nuclear norm the space that the coefficients span. Each round fits the small problem
with the ordinary solver, then measures the gradient over *all* columns. What breaks
optimality there joins the next round. The measured gradient, with the subgradient that
cancels most of it, says when to stop, and nothing else does.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from .arrays import norm
from .newton_cg import Measurement, WideSolution, measure, minimise_by_products
from .objective import Objective, Rows
from .penalties import WorkingSet
from .preconditioner import Preconditioner
from .solver import minimise

MAX_ROUNDS = 40
PATIENCE = 3  # rounds in a row that do not halve the residual


def minimise_wide(
    objective: Objective,
    rows: Rows,
    *,
    start: Measurement,
    goal: float,
    preconditioner: Preconditioner | None = None,
) -> WideSolution:
    """Return a point whose residual is at most ``goal``, or where it stops falling.

    Parameters
    ----------
    objective, rows
        What to minimise.
    start
        A measurement on these rows.
    goal
        The norm of the gradient to reach, with the subgradient that is nearest.
    preconditioner
        One made earlier, from these rows or more, for a smooth objective.
    """
    if objective.smooth:
        return minimise_by_products(
            objective, rows, start=start, goal=goal, preconditioner=preconditioner
        )
    here, best, n_steps, stalled = start, start, 0, 0
    least = residual_norm(objective, start)
    while least > goal and n_steps < MAX_ROUNDS and stalled < PATIENCE:
        here = _solve_small(objective, rows, here=here)
        left = residual_norm(objective, here)
        stalled = 0 if left < 0.5 * least else stalled + 1
        if left < least:
            best, least = here, left
        n_steps += 1
    return WideSolution(best, None, np.inf, n_steps, 0)


def residual_norm(objective: Objective, at: Measurement) -> float:
    """Return the norm of the gradient with the subgradient that cancels most of it."""
    return norm(at.gradient + objective.nearest_subgradient(at.theta, at.gradient))


def _solve_small(objective: Objective, rows: Rows, *, here: Measurement) -> Measurement:
    """Return the minimiser over the coefficients that are in play, measured."""
    outputs, free = objective.loss.outputs, objective.n_free
    end = here.theta.size - free
    theta, gradient = (
        v[:end].reshape(-1, outputs) for v in (here.theta, here.gradient)
    )
    small = objective.penalty.working_set(theta, gradient / objective.alpha)
    inner = replace(objective, penalty=small.penalty)
    start = np.concatenate([small.restrict(theta).ravel(), here.theta[end:]])
    solution = minimise(inner, _reduce(rows, small, free=bool(free)), start=start)
    size = start.size - free
    inside = solution.theta[:size].reshape(-1, outputs)
    whole = small.extend(inside, len(theta)).ravel()
    found = np.concatenate([whole, solution.theta[size:]])
    return measure(objective, rows, theta=found)


def _reduce(rows: Rows, small: WorkingSet, *, free: bool) -> Rows:
    """Return the rows in terms of the small problem's columns."""
    X: Any = rows.X
    if small.basis is not None:
        spanned = X[:, : len(small.basis)] @ small.basis
        columns = [spanned, np.ones((len(spanned), 1))] if free else [spanned]
        return replace(rows, X=np.ascontiguousarray(np.hstack(columns)))
    last = [X.shape[1] - 1] if free else []
    some = np.concatenate([small.columns, np.array(last, dtype=np.intp)])
    X = X[:, some]
    small_X: Any = X if sparse.issparse(X) else np.ascontiguousarray(X)
    return replace(rows, X=small_X)
