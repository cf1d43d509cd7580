# SPDX-License-Identifier: Apache-2.0
"""Newton removal: one step with the Hessian of the rows as they are, kept exactly.

    H_U s = -c_U,    or the prox of P alpha kink in the norm of H_U.

Removed rows are subtracted from H_U and added ones are added; under "mean" scaling
H_U also loses, or gains, a multiple of the identity, which no low-rank formula covers.
Refinement, or conjugate gradients, therefore solve with the exact H_U, preconditioned
by an updated inverse that is never trusted. This is the paper's TA in O(d^2) a row
instead of O(d^3) a request.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import ClassVar

import numpy as np

from ..core.arrays import Matrix, Vector, catch_lapack_errors, norm
from ..core.feature_map import FeatureMap
from ..core.linalg import (
    NOT_IN_TRAINING_DATA,
    CgSolution,
    Inverse,
    Operator,
    Symmetric,
    conjugate_gradients,
)
from ..core.rows import RowSource
from ..core.solver import StepRule, smooth_step
from ..core.values import stored
from ..exceptions import NotPositiveDefinite
from .state import (
    Cache,
    Draft,
    Mechanism,
    State,
    invert,
    kink_step,
    make_answer,
    make_draft,
    smooth_minimum,
)
from .sums import Sums

# Beyond this many refinements conjugate gradients take over, and beyond this many steps
# of theirs a fresh factor is cheaper.
REFINEMENTS = 4
CG_STEPS = 20
# A leverage this close to one leaves the updated inverse without digits.
LEVERAGE_MARGIN = 1e-6


@stored
@dataclass(frozen=True, repr=False, eq=False)
class NewtonCache(Cache):
    """An updated inverse of H_U, and about the residual of the last answer.

    ``inverse`` is None where a kink asks for a prox, which needs no preconditioner, and
    ``last_residual`` where nobody knows. Both only say where to go. Updates call for a
    dense one.
    """

    inverse: Symmetric | Inverse | None = None
    last_residual: Vector | None = None

    @property
    def preconditioner(self) -> Symmetric | Inverse | None:
        """About the inverse of H_U."""
        return self.inverse

    def mapped(self, features: FeatureMap) -> "NewtonCache":
        """Return S P S', and no residual: it was another model's."""
        if not isinstance(self.inverse, Symmetric):
            return NewtonCache()
        return NewtonCache(features.map_inverse(self.inverse))


@stored
@dataclass(frozen=True, slots=True)
class Newton(Mechanism):
    """Newton removal (the paper's TA), smooth and proximal.

    Parameters
    ----------
    certified
        Keep the norm moment, which a certificate without rows needs.
    """

    certified: bool = True
    follows_features: ClassVar[bool] = True

    def init(self, state: State) -> State:
        """Keep the Hessian, and its inverse as the first preconditioner."""
        inverse = None
        if state.objective.smooth:
            inverse = invert(state.smooth_hessian())
        sums = state.sums.keeping(hessian=True, moment=self.certified)
        return state.replace(sums=sums, cache=NewtonCache(inverse))

    def apply(
        self, state: State, change: Sums, *, leaving: bool, overwrite: bool
    ) -> State:
        """Change gradient and Hessian; carry the preconditioner along."""
        cache, sign = newton_cache(state), -1.0 if leaving else 1.0
        combine = state.sums.minus if leaving else state.sums.plus
        if cache.inverse is None:  # a kink: the prox needs no preconditioner
            return state.replace(sums=combine(change, overwrite=overwrite))
        inverse = cache.inverse
        Z = None if change.few is None else change.few.hessian
        V = None
        if Z is not None and isinstance(inverse, Symmetric):
            V = woodbury_rows(inverse, Z, sign=sign)
        if Z is None or V is None or not isinstance(inverse, Symmetric):
            # A fresh factor may not exist: the old state stays whole until then.
            return refresh_preconditioner(state.replace(sums=combine(change)))
        last_residual = cache.last_residual
        if last_residual is not None:
            # What the change makes of the last answer's residual, without a product.
            last_residual = last_residual + sign * (
                change.gradient + gram_product(Z, state.last - state.anchor)
            )
            if state.objective.scaling == "mean":
                last_residual += state.objective.quadratic_gradient(
                    state.last, scale=sign * change.weight
                )
        sums = combine(change, overwrite=overwrite)
        inverse = inverse.update(-sign, V, overwrite=overwrite)
        return state.replace(sums=sums, cache=NewtonCache(inverse, last_residual))

    def step(
        self, state: State, remaining: RowSource | None = None, *, enough: float = 0.0
    ) -> tuple[State, Draft]:
        """Return the minimiser of the model with the remaining rows' Hessian."""
        del remaining
        if state.objective.smooth:
            refined = _refine(state, enough) if enough > 0.0 else None
            if refined is not None:
                draft, left = refined
                cache = replace(newton_cache(state), last_residual=left)
                return state.replace(last=draft.theta, cache=cache), draft
            gradient = state.step_gradient
            solved = _solve(state, gradient, start=state.anchor - state.last)
            if not solved.converged:
                state = refresh_preconditioner(state)
                solved = _solve(state, gradient, start=solved.x)
            cache = NewtonCache(newton_cache(state).inverse)
            minimum = smooth_minimum(state.anchor - solved.x)
            return make_answer(state.replace(cache=cache), minimum)
        step = kink_step(state, state.smooth_hessian())
        return make_answer(state, step(state.anchor, state.step_gradient))

    def after_look(self, state: State, draft: Draft) -> State:
        """Return the state whose next step starts from an answer that was looked at."""
        after = Mechanism.after_look(self, state, draft)  # no super() with slots
        cache = replace(newton_cache(state), last_residual=draft.measured)
        return after.replace(cache=cache)


def newton_cache(state: State) -> NewtonCache:
    """Return what a state keeps for Newton."""
    assert isinstance(state.cache, NewtonCache)
    return state.cache


def refresh_preconditioner(state: State, *, dense: bool = True) -> State:
    """Return the state with a new preconditioner, the inverse of H_U.

    ``dense`` if it is to be updated, or multiplied more often than there are columns.
    """
    try:
        inverse: Symmetric | Inverse
        if dense:
            inverse = invert(state.smooth_hessian())
        else:
            inverse = Inverse(state.smooth_hessian().cholesky(overwrite=True))
    except NotPositiveDefinite as error:
        raise NotPositiveDefinite(NOT_IN_TRAINING_DATA) from error
    return state.replace(cache=NewtonCache(inverse))


def _refine(state: State, enough: float) -> tuple[Draft, Vector] | None:
    """Return an answer and what it leaves, at most ``enough``; None if it takes long.

    s <- s - w B q(s), each residual q computed from H_U. The preconditioner B was made
    when P had its value at the anchor, or when B was made again. With f = P / that,
    the eigenvalues of B H_U lie between f and 1, so that w = 2 / (1 + f) shrinks q by
    |1 - f| / (1 + f), measured in the norm of B.
    """
    cache, gradient = newton_cache(state), state.step_gradient
    assert cache.inverse is not None
    product = state.hessian_operator()
    length = 2.0 / (1.0 + state.penalty_weight / state.anchor_weight)
    s = state.last - state.anchor
    q = gradient + product(s) if cache.last_residual is None else cache.last_residual
    for _ in range(REFINEMENTS):
        s = s - length * (cache.inverse @ q)
        q = gradient + product(s)
        if norm(q) <= enough:
            draft = make_draft(smooth_minimum(state.anchor + s))
            # With what was missed beside it, q is not that of the sums alone.
            return (
                draft if state.missed is not None else replace(draft, residual=q)
            ), q
    return None


def _solve(state: State, right: Vector, *, start: Vector) -> CgSolution:
    """Solve H_U x = right down to rounding, or return that it took too long."""
    inverse = state.preconditioner
    assert inverse is not None
    solved = conjugate_gradients(
        state.hessian_operator(),
        right,
        precondition=inverse.__matmul__,
        start=start,
        max_steps=CG_STEPS,
    )
    if solved.flat is not None:
        raise NotPositiveDefinite(NOT_IN_TRAINING_DATA)
    return solved


def hessian_step(state: State) -> StepRule:
    """Return the step by H_U, which the state must keep, from any point."""
    if not state.objective.smooth:
        return kink_step(state, state.smooth_hessian())
    known = state.preconditioner
    if known is None:
        return smooth_step(state.smooth_hessian().cholesky(overwrite=True))
    product = state.hessian_operator()
    H = Operator(product, known.__matmul__, lambda _: 0.0, max_steps=CG_STEPS)
    return smooth_step(H)


def gram_product(Z: Matrix, v: Vector) -> Vector:
    """Return Z'Z v for rows as ``update`` takes them."""
    if Z.ndim == 2:
        image: Vector = Z.T @ (Z @ v)
        return image
    parts = v.reshape(Z.shape[2], -1)
    if len(Z) == 1:
        return np.asarray(Z[0].T @ (Z[0] @ parts)).ravel()
    along = Z @ parts.T[:, :, None]
    images = Z.transpose(0, 2, 1) @ along
    return np.asarray(images[:, :, 0].T).ravel()


def woodbury_rows(inverse: Symmetric, Z: Matrix, *, sign: float) -> Matrix | None:
    """Return V with (A + sign Z'Z)^-1 = A^-1 - sign V'V, by Woodbury's identity.

    None where rows leave and a leverage is too near one, or beyond: the caller factors
    again.
    """
    if Z.ndim == 2:
        return _woodbury_block(inverse, Z, sign=sign)
    found = np.empty_like(Z)
    for index, block in enumerate(inverse.blocks):
        rows = _woodbury_block(block, Z[index], sign=sign)
        if rows is None:
            return None
        found[index] = rows
    return found


def _woodbury_block(inverse: Symmetric, Z: Matrix, *, sign: float) -> Matrix | None:
    if len(Z) == 1:
        image = inverse @ Z[0]
        left = 1.0 + sign * float(Z[0] @ image)
        return None if left <= LEVERAGE_MARGIN else image[None, :] / sqrt(left)
    images = inverse @ Z.T
    with catch_lapack_errors():
        values, vectors = np.linalg.eigh(np.eye(len(Z)) + sign * (Z @ images))
    if values[0] <= LEVERAGE_MARGIN:
        return None
    return np.ascontiguousarray((vectors / np.sqrt(values)).T @ images.T)
