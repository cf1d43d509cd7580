# SPDX-License-Identifier: Apache-2.0
"""Fits, and retraining as a mechanism.

``learn`` fits an objective and returns the state that mechanisms start from. It refuses
a solution whose measured residual is above the tolerance: every later claim is about
the minimiser.

``Retrain`` solves again on the remaining rows, from the last answer. It is the target
of every other mechanism and the only one that always has an answer. Its state knows how
much is left and where to start, and holds no matrix.
"""

from dataclasses import dataclass
from typing import ClassVar

from ..core.arrays import Vector
from ..core.objective import Objective
from ..core.rows import RowSource
from ..core.solver import Solution, find_minimiser, require_converged
from ..core.values import stored
from ..exceptions import NotConverged, NotPositiveDefinite
from .state import Draft, Mechanism, State, draft_of, require_rows, summarise


def learn(
    objective: Objective, rows: RowSource, *, start: Vector | None = None
) -> State:
    """Fit the objective to the rows and return the state at the minimiser."""
    solution = find_minimiser(objective, rows, start=start)
    require_converged(objective, rows, solution=solution)
    return summarise(objective, rows, theta=solution.theta)


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
