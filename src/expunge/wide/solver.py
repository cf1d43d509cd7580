# SPDX-License-Identifier: Apache-2.0
"""Solve a wide model: by products where it is smooth, on the support where it is not.

A kink keeps most coefficients at zero (or the rank small), and the minimiser is that of
a small problem: the columns with a coefficient, those of whole groups, or for the
nuclear norm the space that the coefficients span. Each round fits the small problem
with the ordinary solver, then measures the gradient over *all* columns. What breaks
optimality there joins the next round. The measured gradient, with the subgradient that
cancels most of it, says when to stop, and nothing else does.

Nearly all the time goes into Hessians of small problems. While nothing joins, a round
takes over the problem of the round before with its Hessian, and so does a request that
of the last answer.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from ..core.arrays import Matrix, Vector, norm
from ..core.objective import Objective
from ..core.penalties import WorkingSet, span
from ..core.rows import Rows, RowSource, in_memory
from ..core.solver import (
    TOLERANCE,
    Model,
    Solution,
    Stop,
    choose_start,
    hessian_model,
    minimise,
)
from ..core.values import Private
from .measurement import Measurement, measure
from .newton_cg import WideSolution, minimise_by_products
from .preconditioner import Near, ShortCut, make_preconditioner

MANY = 1024  # parameters, beyond which steps by a Hessian cost more than passes
MAX_ROUNDS = 40
LOOSEST = 0.01  # of the residual may be left of a round
PATIENCE = 3  # rounds in a row that do not halve the residual
AHEAD = 1.1  # columns join that would if their gradient were so many times as long


def minimise_wide(
    objective: Objective,
    rows: RowSource,
    *,
    start: Measurement,
    goal: float,
    short_cut: ShortCut | None = None,
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
    short_cut
        One made earlier, from these rows or more.
    """
    known: Any = short_cut
    if objective.smooth:  # then it is a preconditioner
        return minimise_by_products(
            objective, rows, start=start, goal=goal, preconditioner=known
        )
    problem = None
    here, before, best, n_steps, stalled = start, start, start, 0, 0
    least = residual_norm(objective, start)
    while least > goal and n_steps < MAX_ROUNDS and stalled < PATIENCE:
        small = _choose_small(objective, rows, here=here, before=before)
        if problem is None or not _holds(problem.small, small):
            problem = _pose_small(objective, rows, here=here, small=small, known=known)
        before = here
        # While the small problem is not the right one, its minimiser is not either.
        enough = max(0.3 * goal, LOOSEST * residual_norm(objective, here))
        problem, inside = _solve_small(
            problem, restrict(objective, problem.small, v=here.theta), goal=enough
        )
        size = here.theta.size
        theta = extend(objective, problem.small, v=inside, size=size)
        here = measure(objective, rows, theta=theta)
        left = residual_norm(objective, here)
        stalled = 0 if left < 0.5 * least else stalled + 1
        if left < least:
            best, least = here, left
        n_steps += 1
    if problem is not None:
        short_cut = _keep_step(objective, problem, theta=best.theta)
    return WideSolution(best, short_cut, n_steps, 0)


def solve(
    objective: Objective, rows: RowSource, *, start: Vector | None = None
) -> Solution:
    """Return the minimiser, found by products where there are many parameters.

    A Hessian of several outputs costs as much as hundreds of passes. What asks for one
    afterwards computes it once, at the minimiser, and not at every step.
    """
    size = rows.n_columns * objective.loss.outputs
    if size <= MANY or not objective.smooth:
        return minimise(objective, rows, start=start)
    at = measure(objective, rows, theta=choose_start(objective, rows, start=start))
    found = minimise_by_products(objective, rows, start=at, goal=0.5 * TOLERANCE)
    if norm(found.at.gradient) > TOLERANCE:
        return minimise(objective, rows, start=found.at.theta)
    theta, gradient = found.at.theta, found.at.gradient
    assert found.short_cut is not None
    near = Near(theta, gradient, found.at.curvature)
    # How far a step from here would lead, as for every solution.
    step = norm(found.short_cut.advance(objective, near) - theta)
    return Solution(theta, gradient, np.zeros(size), step, found.n_steps, 0)


def residual_norm(objective: Objective, at: Measurement) -> float:
    """Return the norm of the gradient with the subgradient that cancels most of it."""
    return norm(at.gradient + objective.nearest_subgradient(at.theta, at.gradient))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SupportStep(Private):
    """A proximal Newton step in a small problem whose Hessian is at hand."""

    objective: Objective
    small: WorkingSet
    model: Model
    largest_eigenvalue: ClassVar[float] = inf

    def advance(self, objective: Objective, near: Near) -> Vector:
        """Return the minimiser of the small problem's model."""
        inside = self.model(
            restrict(objective, self.small, v=near.theta),
            restrict(objective, self.small, v=near.gradient),
        )
        return extend(objective, self.small, v=inside.x, size=near.theta.size)


def restrict(objective: Objective, small: WorkingSet, *, v: Vector) -> Vector:
    """Return the part of v in the small problem, with that of free intercepts."""
    end = v.size - objective.n_free
    table = v[:end].reshape(-1, objective.loss.outputs)
    return np.concatenate([small.restrict(table).ravel(), v[end:]])


def extend(objective: Objective, small: WorkingSet, *, v: Vector, size: int) -> Vector:
    """Return a vector of the small problem as one of the large."""
    outputs, end = objective.loss.outputs, v.size - objective.n_free
    width = (size - objective.n_free) // outputs
    table = small.extend(v[:end].reshape(-1, outputs), width)
    return np.concatenate([table.ravel(), v[end:]])


def _choose_small(
    objective: Objective, rows: RowSource, *, here: Measurement, before: Measurement
) -> WorkingSet:
    """Return the small problem that the next round solves.

    A space is spanned by the coefficients, by the residual after the preconditioner,
    and by the coefficients of the round before: with these three a sequence of small
    problems converges like conjugate gradients (Knyazev, *Toward the optimal
    preconditioned eigensolver*, SIAM J. Sci. Comput. 23, 2001).
    """
    if not objective.penalty.spans:
        return _choose_columns(objective, here=here)
    theta, gradient = (_table(objective, v) for v in (here.theta, here.gradient))
    made = make_preconditioner(objective, rows, hessian=here.hessian)
    nearest = objective.nearest_subgradient(here.theta, here.gradient)
    way = made.at(objective, here.curvature)(here.gradient + nearest)
    parts = [theta, _table(objective, way), _table(objective, before.theta), gradient]
    return WorkingSet(objective.penalty, np.arange(0), span(parts))


def _choose_columns(
    objective: Objective, *, here: Measurement, ahead: float = 1.0
) -> WorkingSet:
    """Return the columns in play, as if gradients were so many times as long."""
    theta, gradient = (_table(objective, v) for v in (here.theta, here.gradient))
    return objective.penalty.working_set(theta, gradient * (ahead / objective.alpha))


def _table(objective: Objective, v: Vector) -> Matrix:
    """Return the penalised part of a vector as a matrix of coefficients."""
    return v[: v.size - objective.n_free].reshape(-1, objective.loss.outputs)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SmallProblem(Private):
    """The coefficients in play, the rows in their terms, and a model that leads on."""

    objective: Objective
    small: WorkingSet
    rows: RowSource
    model: Model | None


def _holds(small: WorkingSet, wanted: WorkingSet) -> bool:
    """Whether a small problem has all that is wanted, and not much more."""
    if small.basis is not None or wanted.basis is not None:
        return False
    if len(small.columns) > 2 * len(wanted.columns):
        return False
    return bool(np.isin(wanted.columns, small.columns).all())


def _pose_small(
    objective: Objective,
    rows: RowSource,
    *,
    here: Measurement,
    small: WorkingSet,
    known: SupportStep | None,
) -> SmallProblem:
    """Return the small problem, or the one known if that will do, with its model."""
    if known is not None and _holds(known.small, small):
        inner = replace(objective, penalty=known.small.penalty)
        if inner == known.objective:  # or else its kink is another
            reduced = _reduce(rows, known.small, free=objective.n_free > 0)
            return SmallProblem(inner, known.small, reduced, known.model)
    if small.basis is None:  # what is about to join spares the next round a Hessian
        small = _choose_columns(objective, here=here, ahead=AHEAD)
    inner = replace(objective, penalty=small.penalty)
    reduced = _reduce(rows, small, free=objective.n_free > 0)
    return SmallProblem(inner, small, reduced, None)


def _solve_small(
    problem: SmallProblem, start: Vector, *, goal: float
) -> tuple[SmallProblem, Vector]:
    """Return the minimiser over the coefficients that are in play."""
    inner, rows, model = problem.objective, problem.rows, problem.model
    if model is None:
        model = hessian_model(inner, rows, theta=start).model
    found = minimise(inner, rows, start=start, chord=model, stop=Stop(at=goal))
    # A model that was given up led too slowly.
    leading = None if found.n_hessians else model
    return replace(problem, model=leading), found.theta


def _keep_step(
    objective: Objective, problem: SmallProblem, *, theta: Vector
) -> SupportStep:
    """Return the step on the support, by a model made at theta if none leads on."""
    inner, small, model = problem.objective, problem.small, problem.model
    if model is None:
        inside = restrict(objective, small, v=theta)
        model = hessian_model(inner, problem.rows, theta=inside).model
    return SupportStep(inner, small, model)


def _reduce(rows: RowSource, small: WorkingSet, *, free: bool) -> Rows:
    """Return the rows in terms of the small problem's columns."""
    rows = in_memory(rows, "a penalty with a kink, without matrices,")
    X: Any = rows.X
    if small.basis is not None:
        spanned: Matrix = X[:, : len(small.basis)] @ small.basis
        columns = [spanned, np.ones((len(spanned), 1))] if free else [spanned]
        return replace(rows, X=np.ascontiguousarray(np.hstack(columns)))
    last = [X.shape[1] - 1] if free else []
    some = np.concatenate([small.columns, np.array(last, dtype=np.intp)])
    reduced: Any = X[:, some]
    if not sparse.issparse(reduced):
        reduced = np.ascontiguousarray(reduced)
    return replace(rows, X=reduced)
