# SPDX-License-Identifier: Apache-2.0
r"""Distances to the minimiser, in the norm of the Hessian.

A small alpha leaves directions of almost no curvature. In the Euclidean norm nothing
useful can be said about them; in the norm of the Hessian the bound is a hundred times
tighter, because validation rows hardly extend in those directions either. With r the
gradient measured at theta, H the Hessian there, |.| its norm and lambda = |r|_{H^-1},

    E = max_i |x_i|_{H^-1},    |theta* - theta| <= -ln(1 - c E lambda) / (c E)

for a loss whose third derivative is at most c times the second
(``promise.bounds.local_distance``): on the way to theta* no predictor moves by more
than E |theta* - theta|, and the curvature falls by at most the exponential of c times
that.

The way D = theta* - theta is not only short, its direction is known too. Without a
kink, r = -H' D for the mean H' of the Hessians on that way. They all lie between
e^-b H_U and e^b H_U, b being c times how far predictors move from the anchor to theta
and on to theta*. So D is close to the Newton step -H_U^-1 r: in the norm of H_U,

    |D + H_U^-1 r|  <=  (e^b - 1) |r|_{H_U^-1} ,

which is a small part of |D| where b is small.

E and the leverages take a pass of O(n d^2), so they are computed once per candidate,
with the Hessian H_A of all rows. A fold's own Hessian is H_U >= kappa H_A, also after a
removal; a Cholesky factor of the difference proves that. E then grows by at most
1/sqrt(kappa), a leverage by at most 1/kappa. A removal takes the same rows from all
folds, or fewer, so one test for each candidate proves how much of kappa it can cost.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, expm1, inf, isfinite, sqrt

import numpy as np

from ..core.arrays import SAFETY, UNIT_ROUNDOFF, Vector, norm
from ..core.blocks import SymmetricFactor, SymmetricMatrix, weighted_sum
from ..core.objective import add_quadratic
from ..core.rows import BLOCK_ROWS, Rows
from ..core.values import UNDERFLOW, Private, stored
from ..exceptions import NotPositiveDefinite
from ..promise.bounds import (
    gradient_error,
    hessian_error,
    local_distance,
    prediction_error,
)
from ..promise.radius import (
    InverseNorm,
    curvature_floor,
    half_exponential,
    inverse_norm_by,
    residual_radius,
    split_length,
    strong_convexity,
)
from ..removal import Draft, State

# Values tried for kappa. Only logarithms depend on it, so coarse steps will do.
KAPPAS = (1e-3, 1e-2, 0.05, 0.2, 0.4, 0.6, 0.8)
# Values tried for what a removal costs.
COSTS = (0.03, 0.1, 0.2)
# A removal that leaves this much of kappa, or this share of it, calls for no new test.
GOOD_KAPPA, SMALL_LOSS = 0.4, 0.9


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class HessianNorm(Private):
    """The Hessian over all rows, and how long rows are in the norm of its inverse.

    Attributes
    ----------
    hessian
        H_A, including the quadratic penalty.
    floor
        A lower bound on its smallest eigenvalue; zero if none was found.
    longest_row
        E: the largest norm of a row in the norm of H_A^-1.
    leverages
        For each fold, the sum over its rows of weight times that norm squared.
    """

    hessian: SymmetricMatrix
    floor: float
    longest_row: float
    leverages: tuple[float, ...]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FoldGeometry(Private):
    """What bounds the distance from one fold model to its minimiser.

    Attributes
    ----------
    factor
        Factor of H_U, used to solve with; no bound trusts it.
    move
        How far the step from the anchor moves any remaining row's predictor.
    floor
        A lower bound on the smallest eigenvalue of H_U.
    longest_row, leverage
        Bounds in the norm of H_U^-1: on every remaining row, and on the weighted sum of
        squares over the validation rows.
    error
        The error of a product with the kept H_U, over the vector's norm.
    """

    factor: SymmetricFactor
    move: float
    floor: float
    longest_row: float
    leverage: float
    error: float

    def inverse_norm(self, state: State, v: Vector, *, z: Vector) -> InverseNorm:
        """Return bounds on |v| in the norm of H_U^-1, by a z near H_U^-1 v."""
        return inverse_norm_by(state, v, z=z, floor=self.floor, error=self.error)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class DistanceBound(Private):
    """How far a minimiser can be from a draft.

    Attributes
    ----------
    radius
        In the Euclidean norm.
    local_radius
        In the norm of the Hessian at the draft; infinite where that is unknown.
    norm_ratio
        Bounds the norm in the inverse of the Hessian at the draft over that in H_U^-1.
    geometry
        What the bounds rest on.
    step
        A guess at the way from the draft to the minimiser: the Newton step.
    step_error
        Bounds how far that guess is off, in the norm of H_U; infinite if unknown.
    """

    radius: float
    local_radius: float
    norm_ratio: float
    geometry: FoldGeometry
    step: Vector
    step_error: float


def measure_hessian_norm(state: State, folds: Sequence[Rows]) -> HessianNorm:
    """Return the Hessian norm at the anchor of a state of all rows.

    ``folds`` are the same rows, fold by fold.
    """
    hessian, floor = state.smooth_hessian(), curvature_floor(state)
    if not floor > 0.0:
        return HessianNorm(hessian, 0.0, inf, (inf,) * len(folds))
    parts = [
        _squared_norms(state, rows, hessian=hessian, floor=floor) for rows in folds
    ]
    longest = sqrt(max(float(np.max(part, initial=0.0)) for part in parts))
    pairs = zip(folds, parts, strict=True)
    leverages = tuple(float(rows.weight @ part) for rows, part in pairs)
    return HessianNorm(hessian, floor, longest * SAFETY, leverages)


def _squared_norms(
    state: State, rows: Rows, *, hessian: SymmetricMatrix, floor: float
) -> Vector:
    """Return a bound on x'H_A^-1 x for each row, zero where the row has no weight."""
    weighted = rows.weight > 0.0
    squares = rows.norms() ** 2 / floor * weighted
    if not state.objective.loss.independent:
        return squares  # one norm must serve all outputs of a row
    factor = hessian.cholesky()
    # The relative error of a solve by a Cholesky factor (Higham, 10.1).
    condition = float(hessian.diagonal.sum()) / floor
    error = 1.0 + 16.0 * hessian.size * UNIT_ROUNDOFF * condition
    blocks = rows.blocks(BLOCK_ROWS)
    found = [factor.squared_lengths(block.dense()) for block in blocks]
    return np.minimum(squares, error * np.concatenate([[], *found]))


def remaining_share(
    hessian_norm: HessianNorm, state: State, *, before: float = 0.0, cost: float = inf
) -> float:
    """Return a kappa with H_U >= kappa H_A, or zero if none was found.

    ``before`` is one that held before a removal, and ``cost`` what that may cost of it.
    """
    if cost <= affordable_cost(before):
        return before - cost
    if not hessian_norm.floor > 0.0:
        return 0.0
    H = state.smooth_hessian()
    error = hessian_error(state) + _test_error(H, hessian_norm)

    def holds(kappa: float) -> bool:
        return _is_positive(weighted_sum([(1.0, H), (-kappa, hessian_norm.hessian)]))

    if before:
        # Costs add up to more than what was lost: a little above may hold again.
        likely = KAPPAS[: bisect_left(KAPPAS, before) + 1]
        found = next(filter(holds, reversed(likely)), 0.0)
    else:
        found = _find_largest(KAPPAS, holds)
    # Since H_A >= floor, the test's error costs error / floor of kappa.
    return max(0.0, found - error / hessian_norm.floor)


def affordable_cost(kappa: float) -> float:
    """Return how much of kappa a removal may cost without a new test."""
    return kappa - min(GOOD_KAPPA, SMALL_LOSS * kappa) if kappa else -inf


def _find_largest(values: Sequence[float], holds: Callable[[float], bool]) -> float:
    """Return the largest value for which it holds, or zero, by bisection."""
    found = 0.0
    while values:
        middle = len(values) // 2
        if holds(values[middle]):
            found, values = values[middle], values[middle + 1 :]
        else:
            values = values[:middle]
    return found


def cost_of_removal(
    hessian_norm: HessianNorm,
    before: Sequence[State],
    *,
    after: Sequence[State],
    steepest: SymmetricMatrix,
    most: float,
) -> float:
    """Return a share of H_A that no fold's H_U loses more than, or infinity.

    Parameters
    ----------
    hessian_norm
        That of the candidate.
    before, after
        The candidate's states of all folds, before and after a removal.
    steepest
        A bound on what the removed rows add to the Hessian of the loss, not divided
        by any weight.
    most
        A larger share would serve nobody.
    """
    costs = [cost for cost in COSTS if cost <= most]
    if not costs or not hessian_norm.floor > 0.0:
        return inf
    pairs = list(zip(before, after, strict=True))
    share = SAFETY / min(state.anchor_weight for state in before)
    fall = SAFETY * max(old.scale - new.scale for old, new in pairs)
    rows = weighted_sum([(share, steepest)])
    lost = add_quadratic(before[0].objective, rows, scale=fall)
    n_removed = max(old.n_rows - new.n_rows for old, new in pairs)
    error = _test_error(lost, hessian_norm, n_terms=n_removed)
    error += max(map(hessian_error, after))
    for cost in costs:
        if _is_positive(weighted_sum([(cost, hessian_norm.hessian), (-1.0, lost)])):
            return cost + error / hessian_norm.floor
    return inf


def _test_error(
    matrix: SymmetricMatrix, hessian_norm: HessianNorm, *, n_terms: int = 0
) -> float:
    """Return the rounding of a Cholesky test of a sum of so many terms beside H_A."""
    size = float(matrix.diagonal.sum() + hessian_norm.hessian.diagonal.sum())
    return 4.0 * UNIT_ROUNDOFF * (matrix.size + n_terms + 2) * size


def _is_positive(matrix: SymmetricMatrix) -> bool:
    """Return whether a matrix has a Cholesky factor; it is lost."""
    try:
        matrix.cholesky(spend=True)
    except NotPositiveDefinite:
        return False
    return True


def bound_distance(
    state: State, draft: Draft, *, geometry: FoldGeometry
) -> DistanceBound:
    """Return how far the minimiser can be from a draft with a measured gradient."""
    floor, penalised = geometry.floor, strong_convexity(state) > 0.0
    euclidean = residual_radius(state, draft) if penalised else inf
    c = state.objective.loss.self_concordance
    if not (isfinite(c) and floor > 0.0):
        nowhere = np.zeros_like(draft.theta)
        return DistanceBound(euclidean, inf, inf, geometry, nowhere, inf)
    assert draft.measured is not None
    s = draft.theta - state.anchor
    size, R = norm(s), state.scales.row_norm
    fade = c * (geometry.move + prediction_error(state, s) * R)
    ratio = half_exponential(fade)
    z = geometry.factor.solve(draft.measured)
    length = geometry.inverse_norm(state, draft.measured, z=z)
    rounding = gradient_error(state, draft, step=size) / sqrt(floor)
    pull, reach = length.length + rounding, c * ratio * geometry.longest_row
    radius = _local_radius(ratio * pull * SAFETY, reach)
    step_error = inf
    if state.objective.smooth and isfinite(radius):
        step_error = _excess(fade, reach * radius) * pull + length.miss + rounding
    return DistanceBound(
        radius=min(euclidean, radius * ratio / sqrt(floor) + UNDERFLOW),
        local_radius=radius,
        norm_ratio=ratio,
        geometry=geometry,
        step=-z,
        step_error=step_error * SAFETY,
    )


def _excess(fade: float, further: float) -> float:
    """Return a bound on the norm of 1 - H_U^(1/2) H'^-1 H_U^(1/2).

    The Hessian on the way t D lies within e^(fade + further t) of H_U. Their mean H' is
    at least e^-fade (1 - e^-b) / b of it, b = further, and b / (1 - e^-b) is at most
    1 + b/2 + b^2/12. H' may exceed H_U by the same factor, where less is lost.
    """
    if not fade < 700.0:
        return inf
    longer = further * (0.5 + further / 12.0)
    return (expm1(fade) + exp(fade) * longer) * SAFETY


def largest_predictor_move(hessian_norm: HessianNorm, s: Vector) -> float:
    """Return a bound on how far a step from the anchor moves a training predictor."""
    size, s = split_length(s)
    hessian = hessian_norm.hessian
    square = float(s @ (hessian @ s))
    rounding = 4.0 * UNIT_ROUNDOFF * s.size * float(hessian.diagonal.sum())
    # A zero step moves nothing, even where the longest row is infinite.
    longest = hessian_norm.longest_row
    return longest * size * sqrt(max(square, 0.0) + rounding) if size else 0.0


def _local_radius(decrement: float, longest_row: float) -> float:
    """Return the local bound on the distance, its own rounding included."""
    if not isfinite(decrement) or not isfinite(longest_row):
        return inf
    return local_distance(decrement * SAFETY + UNDERFLOW, longest_row) * SAFETY
