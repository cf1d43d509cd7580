# SPDX-License-Identifier: Apache-2.0
r"""Jackknife: one step with the Hessian of *all* rows, factored once at fit.

    s = -H^-1 c_U,    or the prox of f alpha kink in the norm of H.

Removing a row costs O(d) and reading the model one product with H^-1. The paper's
Algorithm 1, with the regularised term and the proximal start put right.
"""

from dataclasses import dataclass
from typing import ClassVar

from ..rows import Rows
from ..solvers import Model, with_quadratic
from ..summary import Summary
from .base import answer, draft, inverse_model, kinked_model
from .downdate import (
    drop_gradient,
    drop_matrices,
    factored_inverse,
    initial_state,
    what_remains,
    with_sums,
)
from .state import Draft, State, successor


@dataclass(frozen=True, slots=True)
class Jackknife:
    """Infinitesimal jackknife (IJ), smooth and proximal.

    Parameters
    ----------
    certified
        Keep the remaining rows' Hessian and norm moment, which the residual and
        every certificate need, at O(d^2) an update. Without them an update is
        O(d) and the answer can only be certified with the rows at hand.
    """

    certified: bool = True
    needs_rows: ClassVar[bool] = False

    def init(self, summary: Summary) -> State:
        """Factor the Hessian at the anchor."""
        state = initial_state(summary)
        H = with_quadratic(summary.objective, summary.hessian)
        if summary.objective.smooth:
            state = state.having(inverse=factored_inverse(H))
        else:
            state = state.having(metric=H)
        if self.certified:
            state = with_sums(state, summary, moment=True)
        return state

    def update(self, state: State, removed: Rows, *, spend: bool = False) -> State:
        """Subtract the rows' gradients, and their Hessian if certified."""
        weight, n_rows = what_remains(state, removed)
        if not len(removed):
            return state
        gradient = drop_gradient(state, removed)
        lighter = state.having(weight=weight, n_rows=n_rows, gradient=gradient)
        if state.hessian is not None:
            lighter = drop_matrices(lighter, removed, spend=spend)
        return successor(lighter, state, spend=spend)

    def step(self, state: State, remaining: Rows | None = None) -> tuple[State, Draft]:
        """Return the minimiser of the model with the anchor's Hessian."""
        del remaining
        minimum = self.model(state)(state.anchor, state.smooth_gradient)
        if state.metric is None:  # a product needs no start
            return state, draft(minimum)
        return answer(state, minimum)

    def model(self, state: State) -> Model:
        """Return the quadratic model: H as it was at the anchor."""
        if state.metric is not None:
            return kinked_model(state, state.metric)
        assert state.inverse is not None
        return inverse_model(state.inverse)
