# SPDX-License-Identifier: Apache-2.0
"""Newton: one step with the Hessian of the *remaining* rows, kept exactly.

    H_U s = -c_U,    or the prox of f alpha kink in the norm of H_U.

Each removed row is subtracted from H_U; under "mean" scaling H_U also loses a multiple
of the identity, which no low-rank formula covers. Conjugate gradients therefore solve
with the exact H_U, preconditioned by an updated inverse that is never trusted. This is
the paper's TA in O(d^2) a row instead of O(d^3) a request.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core.arrays import Vector
from ..core.linalg import NOT_IN_TRAINING_DATA, CgSolution, conjugate_gradients
from ..core.packing import stored
from ..core.prox import Minimum
from ..core.rows import Rows
from ..core.solver import Model, add_quadratic
from ..exceptions import NotPositiveDefinite
from .state import (
    Draft,
    State,
    count_remaining,
    drop_gradient,
    drop_matrices,
    initial_state,
    invert,
    is_small_batch,
    keep_sums,
    kink_model,
    make_answer,
    scaled_rows,
    smooth_minimum,
    succeed,
    woodbury_rows,
)
from .summary import Summary

# Beyond this many steps a fresh factor is cheaper than the iteration.
CG_STEPS = 20


@stored
@dataclass(frozen=True, slots=True)
class Newton:
    """Newton removal (the paper's TA), smooth and proximal.

    Parameters
    ----------
    certified
        Keep the norm moment, which a certificate without rows needs.
    """

    certified: bool = True
    needs_rows: ClassVar[bool] = False

    def init(self, summary: Summary) -> State:
        """Keep the Hessian, and its inverse as the first preconditioner."""
        state = keep_sums(initial_state(summary), summary, moment=self.certified)
        if summary.objective.smooth:
            H = add_quadratic(summary.objective, summary.hessian)
            state = state.replace(inverse=invert(H))
        return state

    def update(self, state: State, removed: Rows, *, spend: bool = False) -> State:
        """Subtract the rows' gradients and Hessian; carry the preconditioner along."""
        weight, n_rows = count_remaining(state, removed)
        if not len(removed):
            return state
        gradient = drop_gradient(state, removed)
        lighter = state.replace(weight=weight, n_rows=n_rows, gradient=gradient)
        if state.inverse is None:  # a kink: the prox needs no preconditioner
            lighter = drop_matrices(lighter, removed, spend=spend)
            return succeed(lighter, state, spend=spend)
        rows = None
        if is_small_batch(state, removed):
            rows = woodbury_rows(state.inverse, scaled_rows(state, removed))
        if rows is None:  # a fresh factor may not exist: keep the old state until then
            lighter = refresh_preconditioner(
                drop_matrices(lighter, removed, spend=False)
            )
        else:
            lighter = drop_matrices(lighter, removed, spend=spend)
            inverse = state.inverse.update(1.0, rows, spend=spend)
            lighter = lighter.replace(inverse=inverse)
        return succeed(lighter, state, spend=spend)

    def step(self, state: State, remaining: Rows | None = None) -> tuple[State, Draft]:
        """Return the minimiser of the model with the remaining rows' Hessian."""
        del remaining
        if state.objective.smooth:
            solved = _solve(state, state.smooth_gradient, state.anchor - state.last)
            if not solved.converged:
                state = refresh_preconditioner(state)
                solved = _solve(state, state.smooth_gradient, solved.x)
            return make_answer(state, smooth_minimum(state.anchor - solved.x))
        return make_answer(
            state, self.model(state)(state.anchor, state.smooth_gradient)
        )

    def model(self, state: State) -> Model:
        """Return the quadratic model: H_U, the Hessian of the remaining rows."""
        if not state.objective.smooth:
            return kink_model(state, state.smooth_hessian())

        def argmin(theta: Vector, gradient: Vector) -> Minimum:
            solved = _solve(state, gradient, np.zeros_like(gradient))
            return smooth_minimum(theta - solved.x)

        return argmin


def refresh_preconditioner(state: State) -> State:
    """Return the state with a new preconditioner, the inverse of H_U."""
    try:
        inverse = invert(state.smooth_hessian())
    except NotPositiveDefinite as error:
        raise NotPositiveDefinite(NOT_IN_TRAINING_DATA) from error
    return state.replace(inverse=inverse)


def _solve(state: State, right: Vector, start: Vector) -> CgSolution:
    """Solve H_U x = right down to rounding, or return that it took too long."""
    inverse = state.inverse
    assert inverse is not None
    return conjugate_gradients(
        state.hessian_operator(),
        right,
        precondition=inverse.__matmul__,
        start=start,
        max_steps=CG_STEPS,
    )
