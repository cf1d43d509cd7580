# SPDX-License-Identifier: Apache-2.0
"""Retrain: solve again on the remaining rows, started from the last answer.

The target of every other mechanism, and the only one that cannot be refused. Its
state knows how much is left and where to start, and no matrix.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from ..exceptions import InvalidInput, RowsRequired
from ..rows import Rows
from ..solvers import Model, Solution, minimise, require_converged
from ..solvers.newton import MAX_STEPS
from ..summary import Summary
from .downdate import initial_state, what_remains
from .state import Draft, State


@dataclass(frozen=True, slots=True)
class Retrain:
    """Retraining on the remaining rows (RT), warm-started."""

    needs_rows: ClassVar[bool] = True

    def init(self, summary: Summary) -> State:
        """Remember the weight and the start."""
        return initial_state(summary)

    def update(self, state: State, removed: Rows, *, spend: bool = False) -> State:
        """Count the rows off; the remaining ones come with ``step``."""
        del spend  # there is nothing to overwrite
        weight, n_rows = what_remains(state, removed)
        return replace(state, weight=weight, n_rows=n_rows)

    def step(self, state: State, remaining: Rows | None = None) -> tuple[State, Draft]:
        """Return the minimiser over the remaining rows."""
        rows = required_rows(state, remaining)
        solution = resolve(state, rows)
        require_converged(state.objective.after(state.kept), rows, solution)
        return measured_answer(state, solution)


def required_rows(state: State, remaining: Rows | None) -> Rows:
    """Return the remaining rows, or raise if they are not what must remain."""
    if remaining is None:
        raise RowsRequired(
            "this mechanism looks at the remaining rows: pass step(state, remaining)"
        )
    weight = remaining.total_weight
    if len(remaining) != state.n_rows or abs(weight - state.weight) > 1e-9 * weight:
        raise InvalidInput(
            "the rows handed over are not those that remain: pass all training rows "
            "but the removed ones, with the weights of the fit"
        )
    return remaining


def resolve(
    state: State, rows: Rows, *, chord: Model | None = None, max_steps: int = MAX_STEPS
) -> Solution:
    """Minimise the objective of the remaining rows, from the last answer."""
    objective = state.objective.after(state.kept)
    return minimise(objective, rows, state.last, chord=chord, max_steps=max_steps)


def measured_answer(state: State, solution: Solution) -> tuple[State, Draft]:
    """Return a solution on the remaining rows as a draft in units of G_U."""
    kept = state.kept  # G_U is kept times the objective of the remaining rows
    measured = kept * (solution.gradient + solution.subgradient)
    draft = Draft(solution.theta, kept * solution.subgradient, measured)
    return replace(state, last=solution.theta), draft
