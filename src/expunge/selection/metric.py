# SPDX-License-Identifier: Apache-2.0
r"""How long rows are in the norm of a fold model's Hessian.

Where alpha is small, some directions have almost no curvature, and the floor of the
curvature says little: but rows hardly extend in those directions either. With
\|x\|^H the norm in H^-1, H the Hessian H_U at the anchor, a ``Metric`` holds

    floor      no more than the smallest eigenvalue of H
    longest    no less than |x|^H for every row that the model trains on
    spread     no less than the sum of w (\|x\|^H)^2 over the rows that judge it

It is measured where the sums are taken, at the price of the Hessian, and follows
removals without rows: if the rows that leave have the Hessian D at the anchor, and
D <= c H_U, then what H was is at most (P / P_U + c) H_U (docs/radii.md, "Rows in
the norm of a Hessian").
"""

from dataclasses import dataclass
from math import exp, inf, isfinite, sqrt

import numpy as np

from ..core.arrays import SAFETY, UNIT_ROUNDOFF, Matrix, norm
from ..core.linalg import Cholesky, Inverse, weighted_sum
from ..core.rows import Rows
from ..core.values import UNDERFLOW, Private, stored
from ..exceptions import NotPositiveDefinite
from ..promise.floor import NumberFloor, curvature_floor, strong_convexity
from ..promise.rounding import Rounding
from ..removal import State
from ..removal.sums import Sums

# What the Hessian of the rows that leave is tried to be at most, over that of the rest.
SHARES = (0.25, 1.0, 4.0, 16.0, 64.0)
# Rows that are made dense at once.
AT_ONCE = 256
# The most that rounding may be of what it is about.
DOUBT = 1e-3
FAR = 2.0


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Metric(Private):
    """Bounds in the norm of a Hessian; see the module docstring."""

    floor: float
    longest: float = inf
    spread: float = inf

    @classmethod
    def plain(cls, state: State) -> "Metric":
        """Return the floor alone."""
        return cls(curvature_floor(Rounding(state)))

    @classmethod
    def measure(cls, state: State, rows: Rows, *, held: Rows) -> "Metric":
        """Return the metric at the anchor of these rows, and of those that judge."""
        metric, loss = cls.plain(state), state.objective.loss
        if not (isfinite(loss.self_concordance) and loss.independent and metric.floor):
            return (
                metric  # nothing asks for more, or a row has as many norms as outputs
            )
        H = state.smooth_hessian()
        size, trace = H.size, float(np.abs(H.diagonal).sum())
        doubt = 16.0 * UNIT_ROUNDOFF * (size + 2) * trace + Rounding(state).matrix
        doubt /= metric.floor
        if not doubt <= DOUBT:
            return metric
        factor = H.cholesky(overwrite=True)
        longest, squares = 0.0, np.zeros(len(factor.factors))
        for block in rows.blocks(AT_ONCE):
            own = _squares(factor, block.dense())[:, block.weight > 0.0]
            longest = max(longest, float(own.max(initial=0.0)))
        for block in held.blocks(AT_ONCE):
            squares += _squares(factor, block.dense()) @ block.weight
        safe = (1.0 + 4.0 * doubt) * SAFETY
        spread = float(np.max(squares)) * safe + UNDERFLOW
        return cls(metric.floor, sqrt(longest * safe) + UNDERFLOW, spread)

    def without(self, left: Sums, *, before: State, state: State) -> "Metric":
        """Return the metric of a state from which rows with these sums left."""
        if not isfinite(self.spread):
            return self.plain(state)
        rounding = Rounding(state)
        P, P_before = state.penalty_weight, before.penalty_weight
        share, tested = _share(left, state)
        error = (tested + (1.0 + share) * rounding.matrix) / self.floor
        factor = (P_before / P) * (1.0 + 4.0 * rounding.weight / P) + share
        if not error * factor <= DOUBT:
            return self.plain(state)
        factor *= (1.0 + 2.0 * error * factor) * SAFETY
        floor = max(self.floor / factor, strong_convexity(rounding))
        return Metric(floor, self.longest * sqrt(factor), self.spread * factor)

    def at(self, state: State, *, moved: float) -> "Metric | None":
        """Return the metric of the same rows at another anchor; None if not known.

        ``moved`` bounds how far the predictor of one of them has moved. Beyond ``FAR``
        nothing is measured: another anchor will follow.
        """
        b = state.objective.loss.self_concordance * moved * SAFETY
        if not b <= FAR:
            return self.plain(state)
        if not isfinite(self.spread):
            return None
        factor = exp(b) * SAFETY
        floor = max(self.floor / factor, strong_convexity(Rounding(state)))
        return Metric(floor, self.longest * sqrt(factor), self.spread * factor)

    def norm_at(self, state: State) -> NumberFloor:
        """Return the norm of this state's Hessian, with its rounding."""
        return NumberFloor(self.floor, Rounding(state), self.longest)


def _squares(factor: Cholesky, X: Matrix) -> Matrix:
    """Return the squared length of each row in the inverse, a line for each block."""
    images = (factor.half_solve(block, X.T) for block in range(len(factor.factors)))
    return np.array([np.einsum("ij,ij->j", image, image) for image in images])


def _share(left: Sums, state: State) -> tuple[float, float]:
    """Return a c with D <= c H_U + error, and the error."""
    H, unit = state.smooth_hessian(), 8.0 * UNIT_ROUNDOFF * (state.anchor.size + 4)
    size = float(np.abs(H.diagonal).sum())
    if left.few is not None:
        assert isinstance(state.preconditioner, Inverse)
        factor, Z = state.preconditioner.factor, left.few.hessian
        blocks = Z if Z.ndim == 3 else Z[None]
        images = (factor.half_solve(k, block.T) for k, block in enumerate(blocks))
        share = max(norm((image.T @ image).ravel()) for image in images)
        return share, unit * size * share * (1.0 + len(blocks[0]))
    D = left.loss_hessian
    added = float(np.abs(D.diagonal).sum())
    for share in SHARES:
        try:
            weighted_sum([(share, H), (-1.0, D)]).cholesky(overwrite=True)
        except NotPositiveDefinite:
            continue
        return share, unit * (share * size + added)
    return inf, inf
