# SPDX-License-Identifier: Apache-2.0
r"""What the bars of all rows stand on: sizes in the norm of B, measured on the rows.

|v| stands for (v'B^-1 v)^1/2 where v is a row or a gradient, for (v'B v)^1/2 where it
is a step. Everything is bounded from the safe side, rounding included.
"""

from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from ..._typing import Index, Matrix, Vector
from ...blocks import BLOCK_ROWS, loss_hessian, predict
from ...linalg import Symmetric, norm
from ...magnitude import UNIT_ROUNDOFF
from ...private import Private
from ...radius.ingredients import (
    curvature_floor,
    hessian_error,
    prediction_error,
    product_error,
)
from ...rows import Rows
from .family import Answers, Common, Removals, directions, dots, lengths

SAFETY = 1.0 + 1e-12
# Rows that are asked for their moves: the nearest to a kink, one block of them.
NEAREST = BLOCK_ROWS


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Kinks(Private):
    """The rows nearest to a jump of the curvature.

    Attributes
    ----------
    index, X
        Where they are among all rows, and their design.
    distance
        Of their predictors from the kink, rounding taken off.
    norm, share
        |x_j|, and w_j / W0.
    curved
        Whether there is curvature to lose.
    beyond
        Every other row's distance over its norm is at least this.
    """

    index: Index
    X: Matrix
    distance: Vector
    norm: Vector
    share: Vector
    curved: NDArray[np.bool]
    beyond: float


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Ground(Private):
    """What every row's bounds stand on: sizes in the norm of B.

    Attributes
    ----------
    floor
        Below the smallest eigenvalue of B as it was computed; zero if unknown.
    row_norm
        R: above the Euclidean norm of every row.
    squares
        Above x_i'B^-1 x_i, for each row.
    moment
        (1/W0) sum w l'' |x| x x'; None for a loss without a third derivative.
    kinks
        The rows near a jump of the curvature; None for a loss without jumps.
    """

    floor: float
    row_norm: float
    squares: Vector
    moment: Symmetric | None
    kinks: Kinks | None

    @property
    def longest(self) -> float:
        """E: above the norm of every row."""
        return float(np.sqrt(self.squares.max()))


def ground(shared: Common, rows: Rows, row_norm: float) -> Ground:
    """Return the ground, by passes over the rows that cost what a Hessian does."""
    loss, floor = shared.state.objective.loss, _floor(shared)
    blocks = (block.dense() for block in rows.blocks(BLOCK_ROWS))
    squares = np.concatenate([inverse_squares(shared, floor, X) for X in blocks])
    moment = kinks = None
    if loss.curvature_jump > 0.0:
        kinks = _nearest(shared, rows, np.sqrt(squares))
    elif loss.third_bound > 0.0 and isfinite(squares.max()):
        tilted = Rows(rows.X, rows.y, rows.weight * np.sqrt(squares))
        total = loss_hessian(loss, tilted, shared.state.anchor)
        moment = Symmetric.from_dense(total / shared.state.anchor_weight)
    return Ground(floor, row_norm, squares, moment, kinks)


def inverse_squares(shared: Common, floor: float, V: Matrix) -> Vector:
    """Return bounds on v'B^-1 v, a row v each.

    v'B^-1 v = v'z + z'r + r'B^-1 r with r = v - B z, for *any* z: what z lacks of a
    solution enters squared.
    """
    if shared.inverse is None or floor <= 0.0:
        return np.where(lengths(V) > 0.0, inf, 0.0)
    Z = (shared.inverse @ V.T).T
    size = lengths(Z)
    left = lengths(V - (shared.B @ Z.T).T) + product_error(shared.state) * size
    left += 4.0 * (V.shape[1] + 4) * UNIT_ROUNDOFF * lengths(V)
    return np.maximum(dots(V, Z) + size * left + left**2 / floor, 0.0) * SAFETY


def dual_norms(shared: Common, base: Ground, found: Answers) -> Vector:
    """Return bounds on the residuals' dual norms, rounding included."""
    size, unit = directions(found.residual)
    norms = size * np.sqrt(inverse_squares(shared, base.floor, unit))
    total: Vector = norms + found.slack / np.sqrt(base.floor)
    return total


def left_over(shared: Common, base: Ground, gone: Removals) -> Vector:
    """Return 1 - h_i: the share of B that is left under H_i, rounding taken off.

    The Hessian's error counts twice: a row's curvature is computed again.
    """
    error = 2.0 * hessian_error(shared.lighter) / np.float64(base.floor)
    return 1.0 - gone.curvature * base.squares[gone.index] * SAFETY - error


def sizes(shared: Common, S: Matrix) -> Vector:
    """Return |s_i| in the norm of B, from above."""
    size, unit = directions(S)
    square = dots(unit, (shared.B @ unit.T).T) + product_error(shared.state)
    return size * np.sqrt(np.maximum(square, 0.0)) * SAFETY


def _nearest(shared: Common, rows: Rows, sizes: Vector) -> Kinks:
    """Return the rows nearest to a kink, in units of their norms."""
    state, loss = shared.state, shared.state.objective.loss
    eta = predict(loss, rows, state.anchor)
    distance = loss.kink_distance(rows.y, eta)
    # What rounding may move a predictor by, here and when the Hessian was summed.
    distance -= 2.0 * prediction_error(state, state.anchor) * rows.norms()
    ratio = np.where(sizes > 0.0, distance / np.where(sizes > 0.0, sizes, 1.0), inf)
    order = np.argsort(ratio)
    index = order[:NEAREST]
    curved = (loss.curvature(rows.y, eta) > 0.0) | (distance <= 0.0)
    return Kinks(
        index=index,
        X=rows.take(index).dense(),
        distance=distance[index],
        norm=sizes[index],
        share=rows.weight[index] / state.anchor_weight,
        curved=curved[index],
        beyond=float(ratio[order[NEAREST]]) if len(rows) > NEAREST else inf,
    )


def _floor(shared: Common) -> float:
    """Return a lower bound on the smallest eigenvalue of B as computed.

    The penalty's own or, often much larger, one over the norm of the inverse, which
    is off by no more than B times it is off the identity.
    """
    floor = curvature_floor(shared.lighter) - hessian_error(shared.lighter)
    if shared.inverse is None:
        return max(floor, 0.0)
    inverse = shared.inverse.dense()
    size = norm(inverse.ravel()) * SAFETY
    gap = norm((np.eye(len(inverse)) - shared.B @ inverse).ravel())
    gap += product_error(shared.state) * size
    return max(floor, (1.0 - gap) / size, 0.0)
