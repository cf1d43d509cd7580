# SPDX-License-Identifier: Apache-2.0
"""Solve a wide model: by products where it is smooth, on the support where it is not.

By products it is Newton's method. Each step solves H s = -gradient by preconditioned
conjugate gradients, one pass over the rows a product, then searches along s. The solve
is stopped where a better one would be wasted: at a share of the gradient that falls
with it, and at what is needed in the end (Eisenstat and Walker, *Choosing the forcing
terms in an inexact Newton method*, SIAM J. Sci. Comput. 17, 1996).

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

from ..core.arrays import UNIT_ROUNDOFF, Matrix, Vector, norm
from ..core.linalg import Linear
from ..core.objective import Objective
from ..core.penalties import WorkingSet, span
from ..core.rows import Rows, RowSource, in_memory
from ..core.solver import (
    Model,
    Stop,
    hessian_model,
    minimise,
)
from ..core.values import Private
from .measurement import Measurement, measure
from .preconditioner import Near, Preconditioner, ShortCut, make_preconditioner

MAX_STEPS = 100
MAX_PRODUCTS = 200
MAX_HALVINGS = 30
ARMIJO = 1e-4
LOOSEST_SYSTEM = 0.1  # of the gradient may be left of a step's system
PATIENT_STEPS = 2  # steps in a row that do not halve the gradient
MAX_ROUNDS = 40
LOOSEST_ROUND = 0.01  # of the residual may be left of a round
PATIENT_ROUNDS = 3  # rounds in a row that do not halve the residual
AHEAD = 1.1  # columns join that would if their gradient were so many times as long


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class WideSolution(Private):
    """The last measurement, what led there, and how many steps and products it took."""

    at: Measurement
    short_cut: ShortCut | None
    n_steps: int
    n_products: int


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
    while least > goal and n_steps < MAX_ROUNDS and stalled < PATIENT_ROUNDS:
        small = _choose_small(objective, rows, here=here, before=before)
        if problem is None or not _holds(problem.small, small):
            problem = _pose_small(objective, rows, here=here, small=small, known=known)
        before = here
        # While the small problem is not the right one, its minimiser is not either.
        enough = max(0.3 * goal, LOOSEST_ROUND * residual_norm(objective, here))
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


def minimise_by_products(
    objective: Objective,
    rows: RowSource,
    *,
    start: Measurement,
    goal: float,
    preconditioner: Preconditioner | None = None,
) -> WideSolution:
    """Return a point whose gradient is at most ``goal``, or where it stops falling.

    Parameters
    ----------
    objective, rows
        What to minimise: smooth, of any width.
    start
        A measurement on these rows.
    goal
        The norm of the gradient to reach.
    preconditioner
        One made earlier, from these rows or more; made here if not given.
    """
    if preconditioner is None:
        preconditioner = make_preconditioner(objective, rows, hessian=start.hessian)
    here, n_steps, n_products, stalled = start, 0, 0, 0
    while (
        norm(here.gradient) > goal and n_steps < MAX_STEPS and stalled < PATIENT_STEPS
    ):
        solve = preconditioner.at(objective, here.curvature)
        way, spent = _newton_step(objective, rows, here=here, solve=solve, goal=goal)
        n_products += spent
        there = _search(objective, rows, here=here, way=way)
        if there is None:
            break
        n_steps += 1
        fallen = norm(there.gradient) <= 0.5 * norm(here.gradient)
        falling = here.value - there.value > 1e-12 * abs(here.value)
        stalled = 0 if fallen or falling else stalled + 1
        here = there if fallen or falling else min(here, there, key=_residual)
    return WideSolution(here, preconditioner, n_steps, n_products)


def _residual(point: Measurement) -> float:
    return norm(point.gradient)


def _newton_step(
    objective: Objective,
    rows: RowSource,
    *,
    here: Measurement,
    solve: Linear,
    goal: float,
) -> tuple[Vector, int]:
    """Return s with H s near -gradient, and how many products that took."""
    diagonal, gauge = objective.quadratic_form(here.theta.size)
    total = rows.total_weight

    def product(v: Vector) -> Vector:
        image = (here.hessian @ v) / total + diagonal * v
        return image if gauge is None else image + (gauge @ v) * gauge

    size = norm(here.gradient)
    enough = max(min(LOOSEST_SYSTEM, np.sqrt(size)) * size, 0.3 * goal)
    x, residual, previous = np.zeros_like(here.gradient), -here.gradient, 0.0
    direction = np.zeros_like(x)
    for n_products in range(MAX_PRODUCTS):
        if n_products and norm(residual) <= enough:
            return x, n_products
        z = solve(residual)
        energy = float(residual @ z)
        if not energy > 0.0:
            break
        direction = z + (energy / previous if n_products else 0.0) * direction
        curved = product(direction)
        curvature = float(direction @ curved)
        if not curvature > 0.0:  # flat to rounding: go where the search leads
            x = direction if not n_products else x
            break
        x += (energy / curvature) * direction
        residual = residual - (energy / curvature) * curved
        previous = energy
    return x, n_products


def _search(
    objective: Objective, rows: RowSource, *, here: Measurement, way: Vector
) -> Measurement | None:
    """Return the first point along the way where the objective falls enough."""
    predicted = float(here.gradient @ way)
    slack = 64.0 * UNIT_ROUNDOFF * abs(here.value)
    length = 1.0
    for _ in range(MAX_HALVINGS):
        there = measure(objective, rows, theta=here.theta + length * way)
        if there.value <= here.value + ARMIJO * length * predicted + slack:
            return there
        length *= 0.5
    return None


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
