# SPDX-License-Identifier: Apache-2.0
r"""Rescaled: the jackknife with each removed gradient divided by 1 - leverage.

For one row under "sum" scaling this is the Newton step, by Woodbury's identity:
(H - x c x')^-1 x g = H^-1 x (1 - c x'H^-1 x)^-1 g. With k outputs the leverage is
the k x k matrix C_i X_i H^-1 X_i'. Rows are corrected one by one, so a batch is
still a sum; what their interplay leaves over shows in the residual.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .._typing import Matrix, Vector
from ..blocks import tilted_slopes
from ..exceptions import CannotRemove, Unsupported
from ..linalg import Symmetric
from ..objective import Objective
from ..rows import Rows
from ..solvers import Model, with_quadratic
from ..summary import Summary
from .base import answer
from .downdate import LEVERAGE_MARGIN, factored_inverse, what_remains
from .jackknife import Jackknife
from .state import Draft, State


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
            H = with_quadratic(summary.objective, summary.hessian)
            state = state.having(inverse=_support_inverse(H, summary.theta))
        return state.having(tilted=state.gradient)

    def update(self, state: State, removed: Rows, *, spend: bool = False) -> State:
        """Subtract the rows' rescaled gradients beside the plain ones."""
        what_remains(state, removed)
        if not len(removed):
            return state
        tilted = _drop_tilted(state, removed)
        lighter = Jackknife(self.certified).update(state, removed, spend=spend)
        return lighter.having(tilted=tilted)

    def step(self, state: State, remaining: Rows | None = None) -> tuple[State, Draft]:
        """Return the minimiser of the jackknife's model at the rescaled gradient."""
        del remaining
        assert state.tilted is not None
        gradient = state.tilted + state.scale * state.pull
        return answer(state, self.model(state)(state.anchor, gradient))

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


def _support_inverse(H: Symmetric, theta: Vector) -> Symmetric:
    """Return the inverse on the support of theta, zero elsewhere."""
    support = np.flatnonzero(theta)
    padded = np.zeros((theta.size, theta.size))
    if support.size:
        inverse = factored_inverse(H.submatrix(support)).dense()
        padded[np.ix_(support, support)] = inverse
    return Symmetric.from_dense(padded)


def _drop_tilted(state: State, removed: Rows) -> Vector:
    """Return the rescaled gradient without the removed rows."""
    assert state.tilted is not None
    slopes, beyond = tilted_slopes(
        state.objective.loss,
        removed,
        state.anchor,
        _sum_inverse(state),
        1.0 - LEVERAGE_MARGIN,
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
