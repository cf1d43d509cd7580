# SPDX-License-Identifier: Apache-2.0
r"""Polish: a mechanism's answer improved on the remaining rows.

    theta <- argmin of the base's model around theta with the *true* gradient,

a chord step of O(n d) each. The solver searches along every step, refreshes the
Hessian when the base's no longer contracts, and stops after ``steps``: undamped
chord steps fail on heavy-tailed rows.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from .._typing import Vector
from ..linalg import Minimum
from ..rows import Rows
from ..solvers import Model
from ..summary import Summary
from .base import Mechanism
from .newton import Newton
from .retrain import measured_answer, required_rows, resolve, weighed
from .state import Draft, State


class ModelMechanism(Mechanism, Protocol):
    """A mechanism that steps to the minimiser of a quadratic model."""

    def model(self, state: State) -> Model:
        """Return the model of G_U."""


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
        rows = required_rows(state, remaining)
        state, _ = self.base.step(weighed(state, rows))
        chord = in_units_of_rows(self.base.model(state), state.kept)
        solution = resolve(state, rows, chord=chord, max_steps=self.steps)
        return measured_answer(state, solution)


def in_units_of_rows(model: Model, kept: float) -> Model:
    """Return a model of G_U as one of the remaining rows' own objective.

    G_U is ``kept`` times that objective: gradients go in times kept, subgradients
    come out over kept, and the minimiser is the same.
    """

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        minimum = model(theta, kept * gradient)
        return Minimum(minimum.x, minimum.subgradient / kept)

    return argmin
