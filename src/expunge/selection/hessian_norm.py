# SPDX-License-Identifier: Apache-2.0
r"""Yardstick: distances to the minimiser in the norm of the Hessian.

A small alpha leaves directions that hardly bend: in the Euclidean norm nothing useful
can be said about them, and no validation row looks that way. In the norm of the
Hessian the bound is a hundred times tighter. With r the gradient measured at theta,
H the Hessian there, |.| its norm and lambda = |r|_{H^-1},

    spread = max_i |x_i|_{H^-1},
    |theta* - theta| <= -ln(1 - c spread lambda) / (c spread)

for a loss whose third derivative is at most c times the second: along the way to theta*
no predictor moves by more than spread |theta* - theta|, so that the curvature falls at
most by the exponential of c times that.

Spread and leverage need a pass of O(n d^2), so they are taken once for each candidate,
with the Hessian H_A of all rows. A fold's own is H_U >= kappa H_A, also after a
removal, which a Cholesky factor of the difference proves, and both grow by no more
than 1/sqrt(kappa) and 1/kappa.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, log1p, sqrt

import numpy as np

from ..core.arrays import SAFETY, UNDERFLOW, UNIT_ROUNDOFF, Private, Vector, norm
from ..core.linalg import Cholesky, Symmetric
from ..core.rows import Rows
from ..core.sums import BLOCK_ROWS
from ..exceptions import NotPositiveDefinite
from ..promise.radius import (
    curvature_floor,
    gradient_error,
    half_exponential,
    hessian_error,
    inverse_norm,
    prediction_error,
    residual_radius,
    split_length,
)
from ..removal import Draft, State

# What is tried for kappa. Nothing but logarithms rests on it: coarse steps will do.
KAPPAS = (0.5, 0.2, 0.05, 1e-2, 1e-3)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Yardstick(Private):
    """A Hessian over all rows, and how long rows are in the norm of its inverse.

    Attributes
    ----------
    hessian
        H_A, the quadratic included.
    floor
        A lower bound on its smallest eigenvalue; zero if none was found.
    spread
        Largest norm of a row in the norm of H_A^-1.
    leverages
        For each fold, the sum over its rows of weight times that norm squared.
    """

    hessian: Symmetric
    floor: float
    spread: float
    leverages: tuple[float, ...]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Sight(Private):
    """From where a draft is looked at.

    Attributes
    ----------
    factor
        Of H_U, to solve with; it is not trusted.
    move
        How far the step from the anchor moves any remaining row's predictor.
    floor
        A lower bound on the smallest eigenvalue of H_U.
    spread, leverage
        Bounds in the norm of H_U^-1: on any remaining row, and on the sum of squares
        over the judging rows.
    """

    factor: Cholesky
    move: float
    floor: float
    spread: float
    leverage: float


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Reach(Private):
    """How far a minimiser may be from a draft.

    Attributes
    ----------
    radius
        In the Euclidean norm.
    energy
        In the norm of the Hessian at the draft; infinite where that is not known.
    stretch
        By how much a norm in H_U^-1 may fall short of one in the Hessian's inverse at
        the draft.
    floor
        A lower bound on the smallest eigenvalue of H_U.
    leverage
        A bound on the judging rows' sum w |x|^2 in the norm of H_U^-1.
    factor
        Of H_U, to solve with; it is not trusted.
    """

    radius: float
    energy: float
    stretch: float
    floor: float
    leverage: float
    factor: Cholesky


def laid(state: State, folds: Sequence[Rows]) -> Yardstick:
    """Return the yardstick of a state of all rows, at its anchor.

    ``folds`` are the same rows, fold by fold.
    """
    hessian, floor = state.smooth_hessian(), curvature_floor(state)
    if not floor > 0.0:
        return Yardstick(hessian, 0.0, inf, (inf,) * len(folds))
    parts = [_lengths(state, hessian, floor, rows) for rows in folds]
    spread = sqrt(max(float(np.max(part, initial=0.0)) for part in parts))
    pairs = zip(folds, parts, strict=True)
    leverages = tuple(float(rows.weight @ part) for rows, part in pairs)
    return Yardstick(hessian, floor, spread * SAFETY, leverages)


def _lengths(state: State, hessian: Symmetric, floor: float, rows: Rows) -> Vector:
    """Return a bound on x'H_A^-1 x for each row, zero where it has no weight."""
    alive = rows.weight > 0.0
    lengths = rows.norms() ** 2 / floor * alive
    if state.objective.loss.outputs > 1:
        return lengths  # one norm for all outputs of a row: the floor's will do
    factor = hessian.cholesky()
    # A solve by a Cholesky factor errs by this much, relatively (Higham, 10.1).
    condition = float(hessian.diagonal.sum()) / floor
    error = 1.0 + 16.0 * hessian.size * UNIT_ROUNDOFF * condition
    blocks = rows.blocks(BLOCK_ROWS)
    found = [factor.squared_lengths(block.dense()) for block in blocks]
    return np.minimum(lengths, error * np.concatenate([[], *found]))


def shrinkage(yardstick: Yardstick, state: State) -> float:
    """Return some kappa with H_U >= kappa H_A, zero if none was found."""
    H, before = state.smooth_hessian(), yardstick.hessian
    size = float(H.diagonal.sum() + before.diagonal.sum())
    error = hessian_error(state) + 4.0 * UNIT_ROUNDOFF * (H.size + 2) * size
    for kappa in KAPPAS:
        try:
            Symmetric(H.lower - kappa * before.lower).cholesky(spend=True)
        except NotPositiveDefinite:
            continue
        # H_A >= floor, so that an error of the test costs error / floor of kappa.
        return max(0.0, kappa - error / yardstick.floor) if yardstick.floor else 0.0
    return 0.0


def reach_of(state: State, draft: Draft, sight: Sight) -> Reach:
    """Return how far the minimiser may be from a draft that looked at the rows."""
    euclidean, floor = residual_radius(state, draft), sight.floor
    c = state.objective.loss.self_concordance
    if not (isfinite(c) and floor > 0.0):
        return Reach(euclidean, inf, inf, floor, inf, sight.factor)
    assert draft.measured is not None
    s = draft.theta - state.anchor
    size, R = norm(s), state.scales.row_norm
    stretch = half_exponential(c * (sight.move + prediction_error(state, s) * R))
    z = sight.factor.solve(draft.measured)
    pull = inverse_norm(state, draft.measured, floor=floor, z=z)
    pull += gradient_error(state, draft, step=size) / sqrt(floor)
    energy = _energy(c * stretch * sight.spread, stretch * pull * SAFETY)
    return Reach(
        radius=min(euclidean, energy * stretch / sqrt(floor) + UNDERFLOW),
        energy=energy,
        stretch=stretch,
        floor=floor,
        leverage=sight.leverage,
        factor=sight.factor,
    )


def largest_step(yardstick: Yardstick, s: Vector) -> float:
    """Return a bound on how far a step from the anchor moves a training predictor."""
    size, s = split_length(s)
    square = float(s @ (yardstick.hessian @ s))
    rounding = 4.0 * UNIT_ROUNDOFF * s.size * float(yardstick.hessian.diagonal.sum())
    # Infinity times zero would be no number.
    return yardstick.spread * size * sqrt(max(square, 0.0) + rounding) if size else 0.0


def _energy(spread: float, decrement: float) -> float:
    """Return -ln(1 - spread decrement) / spread, its limit at zero."""
    if not isfinite(decrement) or not isfinite(spread):
        return inf
    decrement = decrement * SAFETY + UNDERFLOW
    a = spread * decrement
    if not a < 1.0:
        return inf
    return decrement * (-log1p(-a) / a if a else 1.0) * SAFETY
