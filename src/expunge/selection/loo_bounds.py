# SPDX-License-Identifier: Apache-2.0
r"""Error bounds of leave-one-out: how far a row's predictor is from a refit without it.

With theta* the minimiser without row i and D = theta_i - theta*, the gradient at
theta_i is q_i + T_i, where T_i is what the quadratic model misses. All norms are those
of B, shared by all rows: |v| is (v'B^-1 v)^1/2 if v is a row or a gradient, (v'B v)^1/2
if it is a step. H_i >= (1 - h_i) B with h_i = a_i |x_i|^2 the leverage. There are three
bounds on |x_i.D|, and the smallest counts:

local   for self-concordant losses. If no predictor moves by more than b along the step,
        (1 - h_i) e^-b B bounds the Hessian at theta_i from below, and
        |T_i| <= psi(b) sum (w_j/W0) l''_j |x_j| (x_j.s_i)^2. From theta_i towards
        theta* the curvature falls by no more than e^(-E |D| t), E being the longest
        row. With g = e^b |q_i + T_i| / (1 - h_i), |D| <= -ln(1 - E g) / E, and theta*
        exists if E g < 1 (``promise.bounds.local_distance``).
kinks   for a curvature that jumps by J. With k_j the distance of row j from its kink,
        |T_i| <= J sum (w_j/W0) |x_j| (|x_j.s_i| - k_j)_+. Within r of theta_i the
        Hessian is at least c B, where c is 1 - h_i less J sum (w_j/W0) |x_j|^2 over the
        rows that have curvature to lose and k_j <= |x_j.s_i| + |x_j| r. If
        |q_i + T_i| <= c r, then theta* lies there and |D| <= |q_i + T_i| / c. Moves are
        computed for rows near a kink alone; for others |x_j.s_i| <= |x_j| |s_i|.
global  |x_i| |q_i + T_i| / (f_i mu) in Euclidean norms, by strong convexity.

Every quantity is bounded from the safe side, rounding included.
"""

from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import SAFETY, UNIT_ROUNDOFF, Index, Matrix, Vector, norm, row_norms
from ..core.blocks import SymmetricMatrix
from ..core.rows import BLOCK_ROWS, Rows
from ..core.sums import KINK_EDGES, loss_hessian, predict
from ..core.values import UNDERFLOW, Private
from ..promise.bounds import (
    hessian_error,
    local_distances,
    prediction_error,
    product_error,
    sum_error,
    underflow_error,
    weight_error,
)
from ..promise.radius import curvature_floor
from .loo_problems import LeftOutRows, LooModels, SharedTerms, row_products, unit_rows

# Rows whose moves are computed: the nearest to a kink, one block of them.
NEAREST = BLOCK_ROWS
# How far around a model kinks are counted, in units of the bound without any.
ROOM = 4.0


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RowsNearKinks(Private):
    """The rows nearest to a jump of the curvature.

    Attributes
    ----------
    index, X
        Their positions among all rows, and their design.
    distance
        Distance of their predictors from the kink, less rounding.
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
class RowGeometry(Private):
    """Sizes of the rows in the norm of B, from which every bound is made.

    Attributes
    ----------
    floor
        At most the smallest eigenvalue of B as computed; zero if unknown.
    row_norm
        R: at least the Euclidean norm of every row.
    squares
        At least x_i'B^-1 x_i, for each row.
    moment
        (1/W0) sum w l'' |x| x x'; None for a loss without a third derivative.
    kinks
        The rows near a jump of the curvature; None for a loss without jumps.
    """

    floor: float
    row_norm: float
    squares: Vector
    moment: SymmetricMatrix | None
    kinks: RowsNearKinks | None

    @property
    def longest(self) -> float:
        """E: at least the norm of every row."""
        return float(np.sqrt(self.squares.max()))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LocalTerms(Private):
    """What the bounds on |D| start from, for each row.

    Attributes
    ----------
    pull
        At least the dual norm of the gradient at theta_i.
    share
        At most 1 - h_i: the share of B that H_i keeps.
    """

    pull: Vector
    share: Vector


def measure_geometry(
    shared: SharedTerms, rows: Rows, *, row_norm: float
) -> RowGeometry:
    """Return the geometry, by passes over the rows that cost as much as a Hessian."""
    loss, floor = shared.state.objective.loss, _eigenvalue_floor(shared)
    blocks = (block.dense() for block in rows.blocks(BLOCK_ROWS))
    squares = np.concatenate([inverse_squares(shared, X, floor=floor) for X in blocks])
    moment = kinks = None
    if loss.curvature_jump > 0.0:
        kinks = _rows_near_kinks(shared, rows, norms=np.sqrt(squares))
    elif loss.third_bound > 0.0 and isfinite(squares.max()):
        tilted = Rows(rows.X, rows.y, rows.weight * np.sqrt(squares))
        total = loss_hessian(loss, tilted, theta=shared.state.anchor)
        moment = total / shared.state.anchor_weight
    return RowGeometry(floor, row_norm, squares, moment, kinks)


def inverse_squares(shared: SharedTerms, V: Matrix, *, floor: float) -> Vector:
    """Return bounds on v'B^-1 v for each row v.

    v'B^-1 v = v'z + z'r + r'B^-1 r with r = v - B z holds for *any* z, and the error of
    z as a solution enters squared.
    """
    if shared.inverse is None or floor <= 0.0:
        return np.where(row_norms(V) > 0.0, inf, 0.0)
    Z = (shared.inverse @ V.T).T
    size = row_norms(Z)
    left = row_norms(V - (shared.B @ Z.T).T) + product_error(shared.state) * size
    left += 4.0 * (V.shape[1] + 4) * UNIT_ROUNDOFF * row_norms(V)
    return np.maximum(row_products(V, Z) + size * left + left**2 / floor, 0.0) * SAFETY


def predictor_error_bounds(
    shared: SharedTerms, geometry: RowGeometry, *, gone: LeftOutRows, models: LooModels
) -> Vector:
    """Return bounds on |x_i.(theta_i - theta*)|, infinite where nothing is known."""
    with np.errstate(all="ignore"):  # an infinite ingredient makes an infinite bound
        terms = local_terms(shared, geometry, gone=gone, models=models)
        own = np.sqrt(geometry.squares[gone.index])
        jumps = shared.state.objective.loss.curvature_jump > 0.0
        bound_of = _distance_at_kinks if jumps else _local_distance
        bound = own * bound_of(shared, geometry, gone=gone, models=models, terms=terms)
        bound = np.fmin(bound, _global_bounds(shared, gone, models=models))
    return np.where(np.isnan(bound), inf, bound) * SAFETY + UNDERFLOW


def local_terms(
    shared: SharedTerms, geometry: RowGeometry, *, gone: LeftOutRows, models: LooModels
) -> LocalTerms:
    """Return the dual norms of the residuals, and the shares 1 - h_i.

    The Hessian's error counts twice, because a row's curvature is computed again.
    """
    pull = residual_norms(shared, geometry, models=models)
    error = 2.0 * hessian_error(shared.lighter) / np.float64(geometry.floor)
    leverage = gone.curvature * geometry.squares[gone.index] * SAFETY
    return LocalTerms(pull, 1.0 - leverage - error)


def residual_norms(
    shared: SharedTerms, geometry: RowGeometry, *, models: LooModels
) -> Vector:
    """Return bounds on the dual norms of the residuals, rounding included."""
    size, unit = unit_rows(models.residual)
    norms = size * np.sqrt(inverse_squares(shared, unit, floor=geometry.floor))
    total: Vector = norms + models.rounding / np.sqrt(geometry.floor)
    return total


def distance_from_moves(terms: LocalTerms, b: Vector, *, longest: float) -> Vector:
    """Return a bound on |D| for self-concordant losses.

    ``b`` and ``longest`` are the largest move of a predictor and E, both times the
    loss's self-concordance.
    """
    share = terms.share
    decrement = np.where(share > 0.0, np.exp(b) * terms.pull / share + UNDERFLOW, inf)
    return local_distances(decrement, longest)


def distance_near_kinks(
    shared: SharedTerms,
    geometry: RowGeometry,
    *,
    gone: LeftOutRows,
    S: Matrix,
    terms: LocalTerms,
) -> Vector:
    """Return a bound on |D| where the curvature jumps."""
    kinks = geometry.kinks
    assert kinks is not None
    pull, share = terms.pull + UNDERFLOW, terms.share
    room, moves = ROOM * pull / share, _moves_near_kinks(shared, kinks, gone=gone, S=S)
    counted = kinks.curved & (moves + kinks.norm * room[:, None] >= kinks.distance)
    jump = shared.state.objective.loss.curvature_jump
    share = share - jump * (counted @ (kinks.share * kinks.norm**2)) * SAFETY
    within = _hessian_norms(shared, S) + room < kinks.beyond
    holds = within & (share > 0.0) & (pull <= share * room)
    return np.where(holds, pull / share, inf)


def _local_distance(
    shared: SharedTerms,
    geometry: RowGeometry,
    *,
    gone: LeftOutRows,
    models: LooModels,
    terms: LocalTerms,
) -> Vector:
    """Return bounds on |D| for self-concordant losses, from the state's sums alone."""
    pull, loss = terms.pull, shared.state.objective.loss
    concordance = loss.self_concordance
    if not isfinite(concordance):
        return np.full(len(pull), inf)
    b, missed = np.zeros(len(pull)), np.zeros(len(pull))
    if loss.third_bound > 0.0:
        if geometry.moment is None:
            return np.full(len(pull), inf)
        moved = geometry.longest * _hessian_norms(shared, models.step)
        b = concordance * np.minimum(geometry.row_norm * row_norms(models.step), moved)
        size, unit = unit_rows(models.step)
        form = row_products(unit, (geometry.moment @ unit.T).T)
        own = np.sqrt(geometry.squares[gone.index]) * row_products(gone.X, unit) ** 2
        form = np.maximum(form - gone.curvature * own, 0.0)
        form += _moment_error(shared, geometry)
        missed = np.minimum(
            concordance * _psi(b) * size * form * size,
            _third_orders(shared, gone, S=models.step) / np.sqrt(geometry.floor),
        )
    terms = LocalTerms(pull + missed, terms.share)
    return distance_from_moves(terms, b, longest=concordance * geometry.longest)


def _distance_at_kinks(
    shared: SharedTerms,
    geometry: RowGeometry,
    *,
    gone: LeftOutRows,
    models: LooModels,
    terms: LocalTerms,
) -> Vector:
    """Return bounds on |D| where the curvature jumps, from the state's sums alone."""
    kinks = geometry.kinks
    assert kinks is not None
    moves = _moves_near_kinks(shared, kinks, gone=gone, S=models.step)
    crossed = np.maximum(moves - kinks.distance, 0.0) @ (kinks.share * kinks.norm)
    jump = shared.state.objective.loss.curvature_jump
    terms = LocalTerms(terms.pull + jump * crossed * SAFETY, terms.share)
    return distance_near_kinks(shared, geometry, gone=gone, S=models.step, terms=terms)


def _global_bounds(
    shared: SharedTerms, gone: LeftOutRows, *, models: LooModels
) -> Vector:
    """Return the bounds by strong convexity; infinite where there is none."""
    objective = shared.state.objective
    if objective.n_free or objective.quadratic == 0.0:
        return np.full(len(gone.X), inf)
    missed = _third_orders(shared, gone, S=models.step)
    pull = row_norms(models.residual) + missed + models.rounding
    scale = np.maximum(gone.scale - weight_error(shared.lighter), 0.0)
    bound: Vector = row_norms(gone.X) * pull / (scale * objective.quadratic)
    return bound


def _moves_near_kinks(
    shared: SharedTerms, kinks: RowsNearKinks, *, gone: LeftOutRows, S: Matrix
) -> Matrix:
    """Return how far the steps move each row near a kink.

    A row that is left out moves nothing, unless rounding decides on which side of its
    kink it was when the Hessian was summed.
    """
    longest = S[np.argmax(row_norms(S))]
    rounding = prediction_error(shared.state, longest) * shared.state.scales.row_norm
    moves = np.abs(S @ kinks.X.T) + rounding
    absent = (gone.index[:, None] == kinks.index) & (kinks.distance > 0.0)
    return np.where(absent, -inf, moves)


def _rows_near_kinks(
    shared: SharedTerms, rows: Rows, *, norms: Vector
) -> RowsNearKinks:
    """Return the rows nearest to a kink, in units of their norms."""
    state, loss = shared.state, shared.state.objective.loss
    eta = predict(loss, rows, theta=state.anchor)
    distance = loss.kink_distance(rows.y, eta)
    # Rounding may move a predictor here, and when the Hessian was summed.
    distance -= 2.0 * prediction_error(state, state.anchor) * rows.norms()
    ratio = np.where(norms > 0.0, distance / np.where(norms > 0.0, norms, 1.0), inf)
    order = np.argsort(ratio)
    index = order[:NEAREST]
    curved = (loss.curvature(rows.y, eta) > 0.0) | (distance <= 0.0)
    return RowsNearKinks(
        index=index,
        X=rows.take(index).dense(),
        distance=distance[index],
        norm=norms[index],
        share=rows.weight[index] / state.anchor_weight,
        curved=curved[index],
        beyond=float(ratio[order[NEAREST]]) if len(rows) > NEAREST else inf,
    )


def _eigenvalue_floor(shared: SharedTerms) -> float:
    """Return a lower bound on the smallest eigenvalue of B as computed.

    The penalty's own or, often much larger, one over the norm of the inverse, whose
    error is bounded by how far B times it is from the identity.
    """
    floor = curvature_floor(shared.lighter) - hessian_error(shared.lighter)
    if shared.inverse is None:
        return max(floor, 0.0)
    inverse = shared.inverse.dense()
    size = norm(inverse.ravel()) * SAFETY
    gap = norm((np.eye(len(inverse)) - shared.B @ inverse).ravel())
    gap += product_error(shared.state) * size
    return max(floor, (1.0 - gap) / size, 0.0)


def _hessian_norms(shared: SharedTerms, S: Matrix) -> Vector:
    """Return bounds on |s_i| in the norm of B."""
    size, unit = unit_rows(S)
    square = row_products(unit, (shared.B @ unit.T).T) + product_error(shared.state)
    return size * np.sqrt(np.maximum(square, 0.0)) * SAFETY


def _third_orders(shared: SharedTerms, gone: LeftOutRows, *, S: Matrix) -> Vector:
    """Return bounds on T_i, as ``promise.radius.third_order_bound`` does for one step.

    The row itself is taken off the moment; near kinks it may stay, which is safe.
    """
    state, loss = shared.lighter, shared.state.objective.loss
    size, unit = unit_rows(S)
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
    form = row_products(unit, (state.moment @ unit.T).T)
    form -= gone.share * row_norms(gone.X) * row_products(gone.X, unit) ** 2
    rounding = sum_error(state) * state.scales.moment
    rounding += (1.0 + state.scales.row_norm) * underflow_error(state)
    form = np.maximum(form, 0.0) + rounding
    return 0.5 * loss.third_bound * size * form * size


def _moment_error(shared: SharedTerms, geometry: RowGeometry) -> float:
    """Return the rounding of the moment's form over |s|^2.

    Its terms are those of the Hessian times a norm, and so is their error.
    """
    matrix = hessian_error(shared.lighter) + product_error(shared.state)
    return 2.0 * geometry.longest * matrix


def _psi(b: Vector) -> Vector:
    """Return (e^b - 1 - b)/b^2, from above where the difference would cancel."""
    small = b < 1e-3
    large = np.where(small, 1.0, b)
    return np.where(small, 0.5 * (1.0 + b), (np.expm1(large) - large) / large**2)
