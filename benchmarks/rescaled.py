# SPDX-License-Identifier: Apache-2.0
"""Rescaled influence functions (RIF), as a mechanism of one's own.

The jackknife's step, the gradient of each removed row divided by 1 - its leverage
first. For one row under "sum" scaling that is the Newton step, by Woodbury's identity:
(H - x c x')^-1 x g = H^-1 x (1 - c x'H^-1 x)^-1 g. With k outputs the leverage is the
k x k matrix C_i X_i H^-1 X_i'. A row that comes is divided by 1 + its leverage, by the
same identity. Rows are corrected one by one, so a batch is still a sum; what their
interplay leaves over shows in the residual, and so does a row that came and left again.

It is not part of the package: Newton's step is as cheap and nearer. It shows all that a
mechanism must write (docs/mechanisms.md), and every law of the others holds for it.
"""

from dataclasses import dataclass, replace

import numpy as np

from expunge import Jackknife
from expunge.core.arrays import Matrix, Vector, catch_lapack_errors
from expunge.core.linalg import NOT_DEFINITE, Symmetric
from expunge.core.losses import Loss
from expunge.core.rows import Rows, RowSource
from expunge.core.sums import curvature_columns, lift_slopes, predict
from expunge.core.values import stored
from expunge.exceptions import CannotRemove, NotPositiveDefinite, Unsupported
from expunge.removal import Draft, Mechanism, State
from expunge.removal.jackknife import JackknifeCache
from expunge.removal.newton import LEVERAGE_MARGIN
from expunge.removal.state import Cache, kink_step, make_answer, smooth_minimum


@stored
@dataclass(frozen=True, repr=False, eq=False)
class RescaledCache(Cache):
    """The jackknife's cache, H^-1 on the support, and the rescaled gradient."""

    jackknife: JackknifeCache
    inverse: Matrix
    gradient: Vector

    @property
    def preconditioner(self) -> Symmetric | None:
        """The inverse at the anchor."""
        return self.jackknife.preconditioner


@stored
@dataclass(frozen=True, slots=True)
class Rescaled(Mechanism):
    """Rescaled influence function, smooth and for separable penalties.

    Parameters
    ----------
    certified
        As for Jackknife.
    """

    certified: bool = True

    def init(self, state: State) -> State:
        """Factor the Hessian at the anchor, on the support if there is a kink."""
        objective = state.objective
        if not objective.penalty.separable:
            raise Unsupported(
                f"Rescaled cannot serve {type(objective.penalty).__name__}: a row's "
                "leverage is defined on a fixed support; use Newton or Jackknife"
            )
        H = state.smooth_hessian().dense()
        sums, state = state.sums, Jackknife(self.certified).init(state)
        inside = np.ones(len(H), bool) if objective.smooth else state.anchor != 0.0
        inverse = np.zeros_like(H)
        try:
            inverse[np.ix_(inside, inside)] = np.linalg.inv(H[np.ix_(inside, inside)])
        except np.linalg.LinAlgError as error:
            raise NotPositiveDefinite(NOT_DEFINITE) from error
        assert isinstance(state.cache, JackknifeCache)
        cache = RescaledCache(state.cache, inverse, sums.gradient)
        return state.replace(cache=cache)

    def update(
        self,
        state: State,
        removed: Rows | None = None,
        *,
        added: Rows | None = None,
        overwrite: bool = False,
    ) -> State:
        """Change the rescaled gradient beside the plain one."""
        cache, loss = _cache(state), state.objective.loss
        after = Jackknife(self.certified).update(state, removed, added=added)
        if after is state:
            return state
        gradient = cache.gradient
        for rows, sign in ((added, 1.0), (removed, -1.0)):
            if rows is not None and len(rows):
                slopes = tilted_slopes(
                    loss, rows, theta=state.anchor, inverse=-sign * cache.inverse
                )
                gradient = gradient + sign * slopes
        if overwrite:
            vars(state).clear()
        return after.replace(cache=replace(cache, gradient=gradient))

    def step(
        self, state: State, remaining: RowSource | None = None, *, enough: float = 0.0
    ) -> tuple[State, Draft]:
        """Return the minimiser of the jackknife's model at the rescaled gradient."""
        del remaining, enough  # there is nothing to iterate
        cache = _cache(state)
        gradient = cache.gradient + state.objective.quadratic_gradient(
            state.anchor, scale=state.penalty_weight
        )
        if cache.jackknife.inverse is not None:
            s = cache.jackknife.inverse @ gradient
            return make_answer(state, smooth_minimum(state.anchor - s))
        assert cache.jackknife.metric is not None
        step = kink_step(state, cache.jackknife.metric)
        return make_answer(state, step(state.anchor, gradient))


def _cache(state: State) -> RescaledCache:
    assert isinstance(state.cache, RescaledCache)
    return state.cache


def tilted_slopes(loss: Loss, rows: Rows, *, theta: Vector, inverse: Matrix) -> Vector:
    """Return sum w x slope / (1 - leverage); raise if a leverage is one.

    ``inverse`` is that of the Hessian H of sum w loss + quadratic, negative for rows
    that are added. With C a row's curvature, w C X H^-1 X' is its leverage, (k, k), X
    its (k, d k) design.
    """
    k, X = loss.outputs, rows.dense()
    eta, d = predict(loss, rows, theta=theta), X.shape[1]
    spread = np.einsum("ia,acbe,ib->ice", X, inverse.reshape(d, k, d, k), X)
    if k > 1 and not loss.independent:
        curvature = loss.curvature(rows.y, eta)
    else:
        curvature = curvature_columns(loss, rows.y, eta)[:, :, None] * np.eye(k)
    leverage = rows.weight[:, None, None] * (curvature @ spread)
    with catch_lapack_errors():
        largest = np.linalg.eigvals(leverage).real.max(axis=1)
        if (largest >= 1.0 - LEVERAGE_MARGIN).any():
            raise CannotRemove(
                "a row to remove determines the model alone in some direction, and "
                "Rescaled divides by 1 - its leverage; use Newton or Retrain"
            )
        slope = loss.slope(rows.y, eta)
        tilted = np.linalg.solve(np.eye(k) - leverage, slope.reshape(-1, k, 1))
    return lift_slopes(rows, tilted.reshape(slope.shape))
