# SPDX-License-Identifier: Apache-2.0
"""Newton's answer, improved on the remaining rows at every request.

    theta <- argmin of Newton's model around theta with the *true* gradient,

a chord step of O(n d) each. The package does so only where an answer does not fit its
budget; here it is a contender.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from expunge import Newton, Rows
from expunge.core.arrays import Vector
from expunge.core.prox import Minimum
from expunge.core.rows import RowSource
from expunge.core.solver import StepRule, Stop, minimise
from expunge.removal import Draft, Mechanism, State
from expunge.removal.newton import hessian_step
from expunge.removal.state import draft_of, require_rows


@dataclass(frozen=True, slots=True)
class Polish(Mechanism):
    """Newton's step, then at most ``steps`` measured ones.

    Parameters
    ----------
    newton
        Its step is the start, its model the chord.
    steps
        How many passes over the remaining rows to spend at most.
    """

    newton: Newton = field(default_factory=Newton)
    steps: int = 3
    needs_rows: ClassVar[bool] = True

    def init(self, state: State) -> State:
        """Return Newton's state."""
        return self.newton.init(state)

    def update(
        self,
        state: State,
        removed: Rows | None = None,
        *,
        added: Rows | None = None,
        overwrite: bool = False,
    ) -> State:
        """Return Newton's update."""
        return self.newton.update(state, removed, added=added, overwrite=overwrite)

    def step(
        self, state: State, remaining: RowSource | None = None, *, enough: float = 0.0
    ) -> tuple[State, Draft]:
        """Return Newton's answer, polished on the remaining rows."""
        rows = require_rows(state, remaining)
        state, _ = self.newton.step(state.weighing(rows.total_weight), enough=enough)
        solution = minimise(
            state.objective.after(state.kept),
            rows,
            start=state.last,
            chord=chord(state),
            stop=Stop(self.steps),
        )
        return state.replace(last=solution.theta), draft_of(solution, rows)


def chord(state: State) -> StepRule:
    """Return the step by H_U for the mean over the rows."""
    step, weight = hessian_step(state), state.sums.weight

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        minimum = step(theta, weight * gradient)
        return Minimum(minimum.x, minimum.subgradient / weight)

    return argmin
