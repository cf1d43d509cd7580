# SPDX-License-Identifier: Apache-2.0
"""Jackknife: one step with the Hessian of *all* rows, factored once at the fit.

    s = -H^-1 c_U,    or the prox of f alpha kink in the norm of H.

Removing a row costs O(d), and reading the model one product with H^-1. This is the
paper's Algorithm 1 with its regulariser and its proximal start corrected
(docs/paper.md).

``Rescaled`` divides the gradient of each removed row by 1 - its leverage first. For one
row under "sum" scaling that is the Newton step, by Woodbury's identity: (H - x c x')^-1
x g = H^-1 x (1 - c x'H^-1 x)^-1 g. With k outputs the leverage is the k x k matrix C_i
X_i H^-1 X_i'. Rows are corrected one by one, so a batch is still a sum; what their
interplay leaves over shows in the residual.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core.arrays import Index, Matrix, Vector
from ..core.linalg import Symmetric
from ..core.objective import Objective
from ..core.packing import stored
from ..core.rows import Rows
from ..core.solver import Model, add_quadratic
from ..core.sums import tilted_slopes
from ..exceptions import CannotRemove, Unsupported
from .state import (
    LEVERAGE_MARGIN,
    Draft,
    State,
    count_remaining,
    drop_gradient,
    drop_matrices,
    initial_state,
    inverse_model,
    invert,
    keep_sums,
    kink_model,
    make_answer,
    make_draft,
    succeed,
)
from .summary import Summary


@stored
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
        H = add_quadratic(summary.objective, summary.hessian)
        if summary.objective.smooth:
            state = state.replace(inverse=invert(H))
        else:
            state = state.replace(metric=H)
        if self.certified:
            state = keep_sums(state, summary, moment=True)
        return state

    def update(self, state: State, removed: Rows, *, spend: bool = False) -> State:
        """Subtract the rows' gradients, and their Hessian if certified."""
        weight, n_rows = count_remaining(state, removed)
        if not len(removed):
            return state
        gradient = drop_gradient(state, removed)
        lighter = state.replace(weight=weight, n_rows=n_rows, gradient=gradient)
        if state.hessian is not None:
            lighter = drop_matrices(lighter, removed, spend=spend)
        return succeed(lighter, state, spend=spend)

    def step(self, state: State, remaining: Rows | None = None) -> tuple[State, Draft]:
        """Return the minimiser of the model with the anchor's Hessian."""
        del remaining
        minimum = self.model(state)(state.anchor, state.smooth_gradient)
        if state.metric is None:  # a product needs no start
            return state, make_draft(minimum)
        return make_answer(state, minimum)

    def model(self, state: State) -> Model:
        """Return the quadratic model: H as it was at the anchor."""
        if state.metric is not None:
            return kink_model(state, state.metric)
        assert state.inverse is not None
        return inverse_model(state.inverse)


@stored
@dataclass(frozen=True, slots=True)
class Rescaled:
    """Rescaled influence function (RIF), smooth and for separable penalties.

    Parameters
    ----------
    certified
        As for Jackknife.
    """

    certified: bool = True
    needs_rows: ClassVar[bool] = False

    def init(self, summary: Summary) -> State:
        """Factor the Hessian at the anchor, on the support if there is a kink."""
        require_separable(summary.objective)
        state = Jackknife(self.certified).init(summary)
        if state.inverse is None:
            H = add_quadratic(summary.objective, summary.hessian)
            support = np.flatnonzero(summary.theta)
            state = state.replace(inverse=support_inverse(H, support))
        return state.replace(tilted=state.gradient)

    def update(self, state: State, removed: Rows, *, spend: bool = False) -> State:
        """Subtract the rows' rescaled gradients beside the plain ones."""
        count_remaining(state, removed)
        if not len(removed):
            return state
        tilted = _drop_tilted(state, removed)
        lighter = Jackknife(self.certified).update(state, removed, spend=spend)
        return lighter.replace(tilted=tilted)

    def step(self, state: State, remaining: Rows | None = None) -> tuple[State, Draft]:
        """Return the minimiser of the jackknife's model at the rescaled gradient."""
        del remaining
        assert state.tilted is not None
        gradient = state.tilted + state.scale * state.pull
        return make_answer(state, self.model(state)(state.anchor, gradient))

    def model(self, state: State) -> Model:
        """Return the jackknife's model."""
        return Jackknife(self.certified).model(state)


def require_separable(objective: Objective) -> None:
    """Raise Unsupported for a penalty under which a row has no leverage."""
    if not objective.penalty.separable:
        raise Unsupported(
            f"Rescaled cannot serve {type(objective.penalty).__name__}: a row's "
            "leverage is defined on a fixed support, and this penalty is curved on "
            "its support; use Newton or Jackknife"
        )


def support_inverse(H: Symmetric, support: Index) -> Symmetric:
    """Return the inverse of H on a support, zero elsewhere."""
    padded = np.zeros((H.size, H.size))
    if support.size:
        inverse = invert(H.submatrix(support)).dense()
        padded[np.ix_(support, support)] = inverse
    return Symmetric.from_dense(padded)


def _drop_tilted(state: State, removed: Rows) -> Vector:
    """Return the rescaled gradient without the removed rows."""
    assert state.tilted is not None
    slopes, beyond = tilted_slopes(
        state.objective.loss,
        removed,
        state.anchor,
        solve=_sum_inverse(state),
        limit=1.0 - LEVERAGE_MARGIN,
    )
    if beyond:
        raise CannotRemove(
            "a row to remove determines the model alone in some direction (leverage "
            "one): Rescaled cannot divide by what is left; use Newton or Retrain"
        )
    return state.tilted - slopes / state.anchor_weight


def _sum_inverse(state: State) -> Callable[[Matrix], Matrix]:
    """Return the product with the inverse Hessian in units of sums, not means."""
    inverse, weight = state.inverse, state.anchor_weight
    assert inverse is not None
    return lambda columns: (inverse @ columns) / weight
