# SPDX-License-Identifier: Apache-2.0
"""Fits: minimisers over rows with all sums there, and retraining as a mechanism.

``learn`` fits an objective and returns the state that mechanisms start from. It refuses
a solution whose measured residual is above the tolerance: every later claim is about
the minimiser.

``Retrain`` solves again on the remaining rows, from the last answer. It is the target
of every other mechanism and the only one that always has an answer. Its state knows how
much is left and where to start, and holds no matrix.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from ..core.arrays import Vector, norm
from ..core.measurement import measure
from ..core.objective import Objective
from ..core.rows import RowSource
from ..core.solver import (
    TOLERANCE,
    Solution,
    choose_start,
    minimise,
    minimise_by_products,
    require_converged,
)
from ..core.values import stored
from ..exceptions import (
    InvalidInput,
    NotConverged,
    NotPositiveDefinite,
    RowsRequired,
)
from .state import Draft, Mechanism, State
from .sums import Sums, sum_rows

MANY = 1024  # parameters, beyond which steps by a Hessian cost more than passes


def find_minimiser(
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
    solution = minimise_by_products(objective, rows, start=at, goal=0.5 * TOLERANCE)
    if solution.residual > TOLERANCE:
        return minimise(objective, rows, start=solution.theta)
    assert solution.short_cut is not None and solution.at.seen is not None
    curvature = solution.at.seen.curvature / rows.total_weight
    there = solution.short_cut.advance(
        objective, solution.theta, gradient=solution.gradient, curvature=curvature
    )
    # Without what is as long as the rows, or as large as a matrix.
    bare = replace(solution.at, seen=None, hessian=None)
    return replace(solution, at=bare, step=norm(there - solution.theta), short_cut=None)


def learn(
    objective: Objective, rows: RowSource, *, start: Vector | None = None
) -> State:
    """Fit the objective to the rows and return the state at the minimiser."""
    solution = find_minimiser(objective, rows, start=start)
    require_converged(objective, rows, solution=solution)
    return summarise(objective, rows, theta=solution.theta)


def summarise(
    objective: Objective, rows: RowSource, *, theta: Vector, moment: bool = True
) -> State:
    """Return the state of these rows with theta as the anchor: T(S) of the paper.

    Without the ``moment``, which certificates without rows rest on, it takes half the
    time.
    """
    if not rows.total_weight > 0.0:
        raise InvalidInput("no rows with positive weight: there is nothing to sum")
    intercept_columns = objective.n_free > 0 and objective.loss.independent
    sums = sum_rows(
        objective.loss,
        rows,
        theta=theta,
        moment=moment,
        intercept_columns=intercept_columns,
    )
    return anchor_state(objective, sums)


def anchor_state(objective: Objective, sums: Sums) -> State:
    """Return the state of rows with these sums, from which nobody was removed."""
    return State(objective, sums, sums.weight, sums.theta, cache=None)


@stored
@dataclass(frozen=True, slots=True)
class Retrain(Mechanism):
    """Retraining on the remaining rows (RT), warm-started."""

    needs_rows: ClassVar[bool] = True
    retrains: ClassVar[bool] = True

    def init(self, state: State) -> State:
        """Remember the weight and the start."""
        return state.replace(sums=state.sums.keeping())

    def step(
        self, state: State, remaining: RowSource | None = None, *, enough: float = 0.0
    ) -> tuple[State, Draft]:
        """Return the minimiser over the remaining rows."""
        del enough  # the solver's tolerance holds
        rows = require_rows(state, remaining)
        state = state.weighing(rows.total_weight)
        objective = state.objective.after(state.kept)
        solution = retrain(objective, rows, start=state.last)
        return state.replace(last=solution.theta), draft_of(solution, rows)


def require_rows(state: State, remaining: RowSource | None) -> RowSource:
    """Return the remaining rows, or raise if they are not what must remain."""
    if remaining is None:
        raise RowsRequired(
            "this mechanism looks at the remaining rows: pass step(state, remaining)"
        )
    # The state's weight was found by sums: it is as exact as all that was ever summed.
    doubt = abs(remaining.total_weight - state.sums.weight)
    summed = state.magnitude.weight
    if len(remaining) != state.sums.n_rows or doubt > 1e-9 * summed:
        raise InvalidInput(
            "the rows handed over are not those that remain: pass all training rows "
            "but the removed ones, and those that were added, with their weights"
        )
    return remaining


def retrain(objective: Objective, rows: RowSource, *, start: Vector | None) -> Solution:
    """Return the minimiser over the remaining rows, or raise NotConverged.

    From the start given and, should that lead nowhere, from nothing.
    """
    try:
        solution = find_minimiser(objective, rows, start=start)
        require_converged(objective, rows, solution=solution)
    except (NotConverged, NotPositiveDefinite):
        solution = find_minimiser(objective, rows)
        require_converged(objective, rows, solution=solution)
    return solution


def draft_of(solution: Solution, rows: RowSource) -> Draft:
    """Return a solution on the remaining rows as a draft: sums, where it has means."""
    weight = rows.total_weight
    measured = weight * (solution.gradient + solution.subgradient)
    return Draft(solution.theta, weight * solution.subgradient, measured)
