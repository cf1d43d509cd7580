# SPDX-License-Identifier: Apache-2.0
"""Mechanisms that look at the remaining rows: retraining and polishing.

``Retrain`` solves again on the remaining rows, from the last answer. It is the target
of every other mechanism and the only one that always has an answer. Its state knows how
much is left and where to start, and holds no matrix.

``Polish`` improves another mechanism's answer on the remaining rows,

    theta <- argmin of the base's model around theta with the *true* gradient,

a chord step of O(n d) each. The solver searches along every step, computes a new
Hessian when the base's no longer contracts, and stops after ``steps``. Undamped chord
steps fail on heavy-tailed rows.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from ..core.arrays import Vector
from ..core.objective import Objective
from ..core.packing import stored
from ..core.prox import Minimum
from ..core.rows import Rows
from ..core.solver import MAX_STEPS, Model, Solution, minimise, require_converged
from ..exceptions import InvalidInput, NotConverged, NotPositiveDefinite, RowsRequired
from .newton import Newton
from .state import Draft, Mechanism, State, count_remaining, initial_state
from .summary import Summary


@stored
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
        weight, n_rows = count_remaining(state, removed)
        return state.replace(weight=weight, n_rows=n_rows)

    def step(self, state: State, remaining: Rows | None = None) -> tuple[State, Draft]:
        """Return the minimiser over the remaining rows."""
        rows = require_rows(state, remaining)
        state = measure_weight(state, rows)
        objective = state.objective.after(state.kept)
        return make_measured_answer(state, retrain(objective, rows, start=state.last))


def require_rows(state: State, remaining: Rows | None) -> Rows:
    """Return the remaining rows, or raise if they are not what must remain."""
    if remaining is None:
        raise RowsRequired(
            "this mechanism looks at the remaining rows: pass step(state, remaining)"
        )
    # The state's weight was found by subtraction: it is as exact as the first one.
    doubt = abs(remaining.total_weight - state.weight)
    if len(remaining) != state.n_rows or doubt > 1e-9 * state.anchor_weight:
        raise InvalidInput(
            "the rows handed over are not those that remain: pass all training rows "
            "but the removed ones, with the weights of the fit"
        )
    return remaining


def measure_weight(state: State, rows: Rows) -> State:
    """Return the state with the weight of its remaining rows, exactly."""
    return state.replace(weight=rows.total_weight)


def retrain(objective: Objective, rows: Rows, *, start: Vector | None) -> Solution:
    """Return the minimiser over the remaining rows, or raise NotConverged.

    From the start given and, should that lead nowhere, from nothing.
    """
    try:
        solution = minimise(objective, rows, start=start)
        require_converged(objective, rows, solution)
    except (NotConverged, NotPositiveDefinite):
        solution = minimise(objective, rows)
        require_converged(objective, rows, solution)
    return solution


def resolve(
    state: State, rows: Rows, *, chord: Model | None = None, max_steps: int = MAX_STEPS
) -> Solution:
    """Minimise the objective of the remaining rows, from the last answer."""
    objective = state.objective.after(state.kept)
    return minimise(objective, rows, start=state.last, chord=chord, max_steps=max_steps)


def make_measured_answer(state: State, solution: Solution) -> tuple[State, Draft]:
    """Return a solution on the remaining rows as a draft in units of G_U."""
    kept = state.kept  # G_U is kept times the objective of the remaining rows
    measured = kept * (solution.gradient + solution.subgradient)
    draft = Draft(solution.theta, kept * solution.subgradient, measured)
    return state.replace(last=solution.theta), draft


class ModelMechanism(Mechanism, Protocol):
    """A mechanism that steps to the minimiser of a quadratic model."""

    def model(self, state: State) -> Model:
        """Return the model of G_U."""


@stored
@dataclass(frozen=True, slots=True)
class Polish:
    """Another mechanism's step, then at most ``steps`` measured ones.

    Parameters
    ----------
    base
        Newton or Jackknife: its step is the start, its model the chord.
    steps
        How many passes over the remaining rows to spend at most.
    """

    base: ModelMechanism = field(default_factory=Newton)
    steps: int = 3
    needs_rows: ClassVar[bool] = True

    def init(self, summary: Summary) -> State:
        """Return the base's state."""
        return self.base.init(summary)

    def update(self, state: State, removed: Rows, *, spend: bool = False) -> State:
        """Return the base's update."""
        return self.base.update(state, removed, spend=spend)

    def step(self, state: State, remaining: Rows | None = None) -> tuple[State, Draft]:
        """Return the base's answer, polished on the remaining rows."""
        rows = require_rows(state, remaining)
        state, _ = self.base.step(measure_weight(state, rows))
        chord = rescale_model(self.base.model(state), state.kept)
        solution = resolve(state, rows, chord=chord, max_steps=self.steps)
        return make_measured_answer(state, solution)


def rescale_model(model: Model, kept: float) -> Model:
    """Return a model of G_U as one of the remaining rows' own objective.

    G_U is ``kept`` times that objective: gradients go in times kept, subgradients
    come out over kept, and the minimiser is the same.
    """

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        minimum = model(theta, kept * gradient)
        return Minimum(minimum.x, minimum.subgradient / kept)

    return argmin
