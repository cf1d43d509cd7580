# SPDX-License-Identifier: Apache-2.0
"""Newton removal: one step with the Hessian of the rows as they are, kept exactly.

    H_U s = -c_U,    or the prox of f alpha kink in the norm of H_U.

Removed rows are subtracted from H_U and added ones are added; under "mean" scaling
H_U also loses, or gains, a multiple of the identity, which no low-rank formula covers.
Refinement, or conjugate gradients, therefore solve with the exact H_U, preconditioned
by an updated inverse that is never trusted. This is the paper's TA in O(d^2) a row
instead of O(d^3) a request.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from ..core.arrays import Vector, norm
from ..core.linalg import NOT_IN_TRAINING_DATA, CgSolution, conjugate_gradients
from ..core.objective import add_quadratic
from ..core.prox import Minimum
from ..core.rows import Rows, RowSource
from ..core.solver import Model
from ..core.values import stored
from ..exceptions import NotPositiveDefinite
from .changes import (
    SignedRows,
    apply_rows,
    change_gradient,
    change_matrices,
    gram_product,
    is_small_batch,
    scaled_rows,
    woodbury_rows,
)
from .state import (
    Draft,
    State,
    initial_state,
    invert,
    keep_sums,
    kink_model,
    make_answer,
    make_draft,
    smooth_minimum,
    succeed,
)
from .summary import Summary

# Beyond this many refinements conjugate gradients take over, and beyond this many steps
# of theirs a fresh factor is cheaper.
REFINEMENTS = 4
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
    follows_features: ClassVar[bool] = True

    def init(self, summary: Summary) -> State:
        """Keep the Hessian, and its inverse as the first preconditioner."""
        state = keep_sums(initial_state(summary), summary, moment=self.certified)
        if summary.objective.smooth:
            H = add_quadratic(summary.objective, summary.loss_hessian)
            state = state.replace(inverse=invert(H))
        return state

    def update(
        self,
        state: State,
        removed: Rows | None = None,
        *,
        added: Rows | None = None,
        spend: bool = False,
    ) -> State:
        """Change gradient and Hessian; carry the preconditioner along."""
        apply = partial(_apply, spend=spend)
        return apply_rows(state, removed, added=added, apply=apply)

    def step(
        self, state: State, remaining: RowSource | None = None, *, enough: float = 0.0
    ) -> tuple[State, Draft]:
        """Return the minimiser of the model with the remaining rows' Hessian."""
        del remaining
        if state.objective.smooth:
            refined = _refine(state, enough) if enough > 0.0 else None
            if refined is not None:
                return state.answered(refined.theta, refined.residual), refined
            solved = _solve(
                state, state.smooth_gradient, start=state.anchor - state.last
            )
            if not solved.converged:
                state = refresh_preconditioner(state)
                solved = _solve(state, state.smooth_gradient, start=solved.x)
            return make_answer(state, smooth_minimum(state.anchor - solved.x))
        return make_answer(
            state, self.model(state)(state.anchor, state.smooth_gradient)
        )

    def model(self, state: State) -> Model:
        """Return the quadratic model: H_U, the Hessian of the remaining rows."""
        if not state.objective.smooth:
            return kink_model(state, state.smooth_hessian())

        def argmin(theta: Vector, gradient: Vector) -> Minimum:
            solved = _solve(state, gradient, start=np.zeros_like(gradient))
            return smooth_minimum(theta - solved.x)

        return argmin


def _apply(state: State, change: SignedRows, *, spend: bool) -> State:
    """Return the state after rows leave or come."""
    rows, sign = change.rows, change.sign
    after = change_gradient(state, change)
    if state.inverse is None:  # a kink: the prox needs no preconditioner
        after = change_matrices(after, change, spend=spend)
        return succeed(after, state, spend=spend)
    Z = scaled_rows(state, rows) if is_small_batch(state, rows) else None
    V = None if Z is None else woodbury_rows(state.inverse, Z, sign=sign)
    if V is None:  # a fresh factor may not exist: keep the old state until then
        after = change_matrices(after, change, spend=False)
        after = refresh_preconditioner(after.answered(state.last))
    else:
        assert Z is not None
        curved = sign * gram_product(Z, state.last - state.anchor)
        unsolved = _carry_residual(state, after, curved=curved)
        after = change_matrices(after, change, spend=spend, Z=Z)
        inverse = state.inverse.update(-float(sign), V, spend=spend)
        after = after.replace(inverse=inverse, unsolved=unsolved)
    return succeed(after, state, spend=spend)


def refresh_preconditioner(state: State) -> State:
    """Return the state with a new preconditioner, the inverse of H_U."""
    try:
        inverse = invert(state.smooth_hessian())
    except NotPositiveDefinite as error:
        raise NotPositiveDefinite(NOT_IN_TRAINING_DATA) from error
    return state.replace(inverse=inverse)


def _refine(state: State, enough: float) -> Draft | None:
    """Return an answer with a residual of at most ``enough``; None if that takes long.

    s <- s - w P q(s), each residual q computed from H_U. The preconditioner P was made
    with f = 1, or with f as it was when P was made again: the eigenvalues of P H_U lie
    between f and 1, so that w = 2 / (1 + f) shrinks q by |1 - f| / (1 + f), measured in
    the norm of P.
    """
    inverse, gradient = state.inverse, state.smooth_gradient
    assert inverse is not None
    product, length = state.hessian_operator(), 2.0 / (1.0 + state.scale)
    s = state.last - state.anchor
    q = gradient + product(s) if state.unsolved is None else state.unsolved
    for _ in range(REFINEMENTS):
        s = s - length * (inverse @ q)
        q = gradient + product(s)
        if norm(q) <= enough:
            draft = make_draft(smooth_minimum(state.anchor + s))
            return replace(draft, residual=q)
    return None


def _carry_residual(before: State, after: State, *, curved: Vector) -> Vector | None:
    """Return the residual of the last answer after a change; None if unknown.

    Found from the one before, without a product; ``curved`` is what the changed rows'
    Hessian makes of the last step. It only says where to go: the residual
    of every answer is computed from H_U.
    """
    if before.unsolved is None:
        return None
    pull = before.objective.quadratic_gradient(before.last)
    change = after.gradient - before.gradient + (after.scale - before.scale) * pull
    return before.unsolved + change + curved


def _solve(state: State, right: Vector, *, start: Vector) -> CgSolution:
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
