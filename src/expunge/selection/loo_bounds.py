# SPDX-License-Identifier: Apache-2.0
r"""How far a left-out row's predictor can be from what retraining would give.

With theta* the minimiser without row i and D = theta_i - theta*, the gradient at
theta_i is q_i + T_i, T_i what the quadratic model misses. All norms are those of B,
common to all rows: |x| means (x'B^-1 x)^1/2 below, and H_i >= (1 - h_i) B with
h_i = a_i |x_i|^2 the leverage. Three bounds on |x_i.D|, of which the smallest counts:

local   for self-concordant losses. No predictor moves by more than b along the step,
        so that (1 - h_i) e^-b B bounds the Hessian at theta_i from below, and
        |T_i| <= psi(b) sum (w_j/W0) l''_j |x_j| (x_j.s_i)^2. From theta_i towards
        theta* the curvature falls by no more than e^(-E |D| t), E the longest row.
        Hence, with g = e^b |q_i + T_i| / (1 - h_i), |D| <= -ln(1 - E g) / E; theta*
        exists if E g < 1.
near    for a curvature that jumps by J. With k_j the distance of row j to its kink,
        |T_i| <= J sum (w_j/W0) |x_j| (|x_j.s_i| - k_j)_+. Within r of theta_i the
        Hessian is at least c B, where c is 1 - h_i less J sum (w_j/W0) |x_j|^2 over
        the rows that have curvature to lose and k_j <= |x_j.s_i| + |x_j| r. If
        |q_i + T_i| <= c r, then theta* lies there and |D| <= |q_i + T_i| / c. Only
        rows near a kink are asked how far they move: |x_j.s_i| <= |x_j| |s_i|.
global  |x_i| |q_i + T_i| / (f_i mu) in Euclidean norms, by strong convexity.

Rounding counts against the bound everywhere.

What the bars of all rows stand on: sizes in the norm of B, measured on the rows.

|v| stands for (v'B^-1 v)^1/2 where v is a row or a gradient, for (v'B v)^1/2 where it
is a step. Everything is bounded from the safe side, rounding included.
"""

from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import (
    SAFETY,
    UNDERFLOW,
    UNIT_ROUNDOFF,
    Index,
    Matrix,
    Private,
    Vector,
    norm,
)
from ..core.linalg import Symmetric
from ..core.rows import Rows
from ..core.sums import BLOCK_ROWS, KINK_EDGES, loss_hessian, predict
from ..promise.radius import (
    curvature_floor,
    hessian_error,
    prediction_error,
    product_error,
    sum_error,
    underflow_error,
)
from .loo_problems import Answers, Common, Removals, directions, dots, lengths

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


# How far around a model kinks are counted, in units of the bound if there were none.
ROOM = 4.0


def predictor_errors(
    shared: Common, base: Ground, gone: Removals, found: Answers
) -> Vector:
    """Return bounds on |x_i.(theta_i - theta*)|, infinite where nothing is known."""
    with np.errstate(all="ignore"):  # an infinite ingredient makes an infinite bound
        pull = dual_norms(shared, base, found)
        own, left = np.sqrt(base.squares[gone.index]), left_over(shared, base, gone)
        if shared.state.objective.loss.curvature_jump > 0.0:
            bound = own * _near(shared, base, gone, found, (pull, left))
        else:
            bound = own * _local(shared, base, gone, found, (pull, left))
        bound = np.fmin(bound, _global(shared, gone, found))
    return np.where(np.isnan(bound), inf, bound) * SAFETY + UNDERFLOW


def local_distance(pull: Vector, b: Vector, left: Vector, longest: float) -> Vector:
    """Return a bound on |D| from a gradient of norm ``pull`` at theta_i."""
    decrement = np.where(left > 0.0, np.exp(b) * pull / left + UNDERFLOW, inf)
    reach = longest * decrement
    positive = reach > 0.0
    factor = -np.log1p(-reach) / np.where(positive, reach, 1.0)
    return decrement * np.where(reach < 1.0, np.where(positive, factor, 1.0), inf)


def near_distance(
    shared: Common,
    base: Ground,
    gone: Removals,
    S: Matrix,
    known: tuple[Vector, Vector],
) -> Vector:
    """Return a bound on |D| from a gradient of norm ``pull``, where curvature jumps."""
    (pull, left), kinks = known, base.kinks
    assert kinks is not None
    pull = pull + UNDERFLOW
    room, moves = ROOM * pull / left, _near_moves(shared, kinks, gone, S)
    counted = kinks.curved & (moves + kinks.norm * room[:, None] >= kinks.distance)
    jump = shared.state.objective.loss.curvature_jump
    left = left - jump * (counted @ (kinks.share * kinks.norm**2)) * SAFETY
    within = sizes(shared, S) + room < kinks.beyond
    holds = within & (left > 0.0) & (pull <= left * room)
    return np.where(holds, pull / left, inf)


def _local(
    shared: Common,
    base: Ground,
    gone: Removals,
    found: Answers,
    known: tuple[Vector, Vector],
) -> Vector:
    """Return bounds on |D| for self-concordant losses."""
    (pull, left), loss = known, shared.state.objective.loss
    concordance = loss.self_concordance
    if not isfinite(concordance):
        return np.full(len(pull), inf)
    b, missed = np.zeros(len(pull)), np.zeros(len(pull))
    if loss.third_bound > 0.0:
        if base.moment is None:
            return np.full(len(pull), inf)
        moved = base.longest * sizes(shared, found.step)
        b = concordance * np.minimum(base.row_norm * lengths(found.step), moved)
        size, unit = directions(found.step)
        form = dots(unit, (base.moment @ unit.T).T)
        own = np.sqrt(base.squares[gone.index]) * dots(gone.X, unit) ** 2
        form = np.maximum(form - gone.curvature * own, 0.0)
        form += _moment_error(shared, base)
        missed = np.minimum(
            concordance * _psi(b) * size * form * size,
            third_orders(shared, gone, found.step) / np.sqrt(base.floor),
        )
    return local_distance(pull + missed, b, left, concordance * base.longest)


def _near(
    shared: Common,
    base: Ground,
    gone: Removals,
    found: Answers,
    known: tuple[Vector, Vector],
) -> Vector:
    """Return bounds on |D| for a curvature that jumps."""
    (pull, left), kinks = known, base.kinks
    assert kinks is not None
    moves = _near_moves(shared, kinks, gone, found.step)
    crossed = np.maximum(moves - kinks.distance, 0.0) @ (kinks.share * kinks.norm)
    jump = shared.state.objective.loss.curvature_jump
    pull = pull + jump * crossed * SAFETY
    return near_distance(shared, base, gone, found.step, (pull, left))


def _near_moves(shared: Common, kinks: Kinks, gone: Removals, S: Matrix) -> Matrix:
    """Return how far the steps move each row near a kink.

    A row left out moves nothing, unless rounding decides on which side of its kink it
    was when the Hessian was summed.
    """
    longest = S[np.argmax(lengths(S))]
    rounding = prediction_error(shared.state, longest) * shared.state.scales.row_norm
    moves = np.abs(S @ kinks.X.T) + rounding
    absent = (gone.index[:, None] == kinks.index) & (kinks.distance > 0.0)
    return np.where(absent, -inf, moves)


def _global(shared: Common, gone: Removals, found: Answers) -> Vector:
    """Return the bounds by strong convexity; infinite where there is none."""
    objective = shared.state.objective
    if objective.n_free or objective.quadratic == 0.0:
        return np.full(len(gone.X), inf)
    missed = third_orders(shared, gone, found.step)
    pull = lengths(found.residual) + missed + found.slack
    scale = np.maximum(gone.scale - sum_error(shared.lighter), 0.0)
    bound: Vector = lengths(gone.X) * pull / (scale * objective.quadratic)
    return bound


def third_orders(shared: Common, gone: Removals, S: Matrix) -> Vector:
    """Return bounds on T_i, as ``radius.third_order_bound`` does for one step.

    The row itself is taken off the moment; near kinks it may stay, which errs to the
    safe side.
    """
    state, loss = shared.lighter, shared.state.objective.loss
    size, unit = directions(S)
    if loss.curvature_jump > 0.0:
        assert state.kinks is not None
        rounded = prediction_error(state, state.anchor)
        edges = np.maximum(KINK_EDGES * (1.0 - 1e-12) - rounded, 0.0)
        mass = np.maximum(size[:, None] - edges, 0.0) @ state.kinks
        rounding = sum_error(state) * state.scales.square_norm + underflow_error(state)
        return loss.curvature_jump * (mass + rounding * size) * SAFETY
    if loss.third_bound == 0.0:
        return np.zeros(len(S))
    assert state.moment is not None
    form = dots(unit, (state.moment @ unit.T).T)
    form -= gone.share * lengths(gone.X) * dots(gone.X, unit) ** 2
    rounding = sum_error(state) * state.scales.moment
    rounding += (1.0 + state.scales.row_norm) * underflow_error(state)
    form = np.maximum(form, 0.0) + rounding
    return 0.5 * loss.third_bound * size * form * size


def _moment_error(shared: Common, base: Ground) -> float:
    """Return the rounding of the moment's form over |s|^2.

    Its terms are those of the Hessian times a norm, and so is their error.
    """
    return (
        2.0
        * base.longest
        * (hessian_error(shared.lighter) + product_error(shared.state))
    )


def _psi(b: Vector) -> Vector:
    """Return (e^b - 1 - b)/b^2, from above where the difference would cancel."""
    small = b < 1e-3
    large = np.where(small, 1.0, b)
    return np.where(small, 0.5 * (1.0 + b), (np.expm1(large) - large) / large**2)
