# SPDX-License-Identifier: Apache-2.0
"""Rounding: what floating-point arithmetic can add to a sum, a product or a gradient.

A radius is a bound only if it counts what its own computation loses. These errors are
computed from a certified state, from above. Notation as in ``removal.state``.
"""

from math import inf, sqrt

from ..core.arrays import UNIT_ROUNDOFF, Vector, norm
from ..core.linalg import MOST_RECENT
from ..core.sums import KINK_EDGES
from ..core.values import SMALLEST, UNDERFLOW
from ..removal import Draft, State

# Roundings of an entry where the features have changed: of both rows and of the map.
LIFTED = 64


def sum_error(state: State) -> float:
    """Return the rounding of a sum over the rows, over the sum of its terms' sizes."""
    return 2.0 * UNIT_ROUNDOFF * _rounding_count(state)


def weight_error(state: State) -> float:
    """Return the rounding of f, and of a mean of numbers of size one.

    Weights are found by adding those of the rows that come and subtracting those of the
    rows that leave: what was ever summed may be several times the weight at the anchor.
    """
    return sum_error(state) * state.scales.weight


def _rounding_count(state: State) -> float:
    """Return how many roundings a sum over the rows, then changed, may hold.

    n terms are added, at the anchor or since, and those of the removed rows subtracted
    again; every update rounds the whole array once. n additions bound every order of
    summation: the tree of ``core.sums``, and sums over folds on top of it. A source
    that knows a lower bound for its own order has told the scales (docs/paper.md,
    "Beyond the paper: sums on a device"). The rows that were ever summed are never
    fewer than those that remain, so nothing here is negative.
    """
    scales = state.scales
    n_removed = scales.n_rows - state.n_rows
    return float(
        min(scales.n_rows, scales.n_additions)
        + 2 * n_removed
        + state.n_updates
        + 2 * state.anchor.size
        + (16 if state.features is None else LIFTED)
    )


def underflow_error(state: State) -> float:
    """Return what products below the smallest normal number can hide from a sum.

    Of gradients, Hessians and masses near kinks alike: in each term a factor of at most
    |x|^2 is multiplied by what was lost, and the sum is divided by W0.
    """
    reach = 1.0 + state.scales.row_norm
    shares = 1.0 + 1.0 / state.anchor_weight
    return UNDERFLOW * _rounding_count(state) * reach * reach * shares


def prediction_error(state: State, theta: Vector, *, summed: bool = False) -> float:
    """Return by how much rounding may move a predictor, over |x|.

    Of any row, or of one that was ``summed`` in the state: those have few entries if
    they are sparse, and neither a product with zero nor adding zero rounds
    (docs/paper.md, "Beyond the paper: wide models"). Products that underflow move it
    too, if x is not zero: then |x| is not tiny.
    """
    width, size = float(theta.size // state.objective.loss.outputs), norm(theta)
    if summed:
        width = min(width, state.scales.n_entries)
    if state.offset is not None:
        width += LIFTED + state.offset.size
        size = state.stretch * (state.stretch * size + norm(state.offset))
    return (width + 2) * (UNIT_ROUNDOFF * size + UNDERFLOW / SMALLEST)


def hessian_error(state: State) -> float:
    """Return a bound on the error of the kept Hessian, by rounding alone."""
    loss, scales = state.objective.loss, state.scales
    error = sum_error(state) * scales.hessian + underflow_error(state)
    moved = prediction_error(state, state.anchor, summed=True)
    if loss.curvature_jump > 0.0:
        # Rows that rounding moves across a kink lie in the first bin, whose
        # distance counts as zero; if it moves them further, nothing is known.
        return error if moved < KINK_EDGES[1] else inf
    return error + loss.third_bound * moved * scales.moment


def product_error(state: State) -> float:
    """Return the error of a product with H_U, over the vector's norm."""
    objective, size = state.objective, state.anchor.size
    norm = state.scales.hessian + state.scale * (objective.quadratic + 1.0) * sqrt(size)
    # Twice, for the triangle and for the recent rows beside it.
    return 2.0 * (size + MOST_RECENT + 4) * UNIT_ROUNDOFF * norm


def gradient_error(state: State, draft: Draft, *, step: float) -> float:
    """Return the rounding of a gradient over the rows at a step from the anchor."""
    objective, scales, theta = state.objective, state.scales, draft.theta
    bound = objective.loss.curvature_bound * scales.square_norm
    error = sum_error(state) * (scales.slope + bound * step) + underflow_error(state)
    error += bound * prediction_error(state, theta, summed=True)
    error += bound * prediction_error(state, state.anchor, summed=True)
    kink = 0.0 if objective.smooth else norm(draft.subgradient)
    # f is above one where rows were added, and multiplies every quadratic term.
    factor = max(1.0, state.scale)
    rest = kink + factor * norm(state.pull)
    rest += (scales.hessian + factor * objective.quadratic) * norm(theta)
    pull = norm(objective.quadratic_gradient(theta))
    drift = weight_error(state) * (pull + kink / state.scale)
    return error + 16.0 * UNIT_ROUNDOFF * rest + drift


def residual_error(state: State, draft: Draft, *, s: Vector) -> float:
    """Return the rounding in q(s) and in the bound on T(s)."""
    size = norm(s)
    if state.offset is not None:
        size += state.stretch * norm(state.offset)
    matrix = hessian_error(state) + product_error(state)
    return gradient_error(state, draft, step=0.0) + matrix * size
