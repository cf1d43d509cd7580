# SPDX-License-Identifier: Apache-2.0
r"""Bounds that radii are made of: rounding, local distances, a form below a Hessian.

Rounding: a radius is a bound only if it counts what its own computation loses. What
floating-point arithmetic can add to a sum, a product or a gradient is computed from a
certified state, from above. Notation as in ``removal.state``.

Where the curvature of a loss fades slowly, a small gradient means a near minimiser:
``local_distance``.

Nothing penalises a free intercept, so |r| / mu_U bounds nothing there: the rows
themselves must hold it. Let M = (1/W0) sum w C over the remaining rows at the answer, C
the curvature of a row's k predictors, and N = (1/W0) sum w C x', the coupling with the
coefficients V. The Hessian of the loss is positive semidefinite, and so is its Schur
complement; the penalty adds A = f (alpha_2 + ridge) to each coefficient. Hence

    H >= A |V|^2 + |b + M^+ N V|^2_M ,

a form of two numbers once |M^+ N| is known. With e the smallest eigenvalue of M and
kappa = |M^+ N|, and tr = A + e (1 + kappa^2),

    floor of H            2 A e / (tr + sqrt(tr^2 - 4 A e))
    |r|^2 in H^-1         |r_v - N'M^+ r_b|^2 / A + r_b'M^+ r_b
    longest row in H^-1   E^2 <= (|x| + kappa)^2 / A + 1 / e ,

and the local radius of a self-concordant loss follows as in ``radius``: the way D to
the minimiser has |D|_H <= -ln(1 - c E |r|) / (c E) and |D| <= |D|_H / sqrt(floor).

Outputs that do not interact have one e and one mean row xbar = N / e each, known
exactly. For outputs that do, N is too large to keep, and the Cauchy-Schwarz inequality
bounds it: |M^+ N v|^2 <= v'H v / e <= k2 g |v|^2 / e, g the largest eigenvalue of the
mean of x x', or the mean of |x|^2, which is no less. For softmax M is flat along the
sum of the outputs, where the gauge stands in with curvature f; e is the smaller of the
two, which is sound because M^+ N is orthogonal to that direction.

All sums belong to the answer itself: a matrix-free answer is its own anchor.
"""

from math import inf, log1p, sqrt
from typing import NamedTuple

import numpy as np

from ..core.arrays import (
    SAFETY,
    UNIT_ROUNDOFF,
    Matrix,
    Vector,
    catch_lapack_errors,
    norm,
)
from ..core.linalg import MOST_RECENT
from ..core.sums import KINK_EDGES
from ..core.values import SMALLEST, UNDERFLOW
from ..removal import Draft, State

# Roundings of an entry where the features have changed: of both rows and of the map.
LIFTED = 64
# Of e, what pays for the rounding of a mean row: (a + h)^2 >= (1 - t) a^2 - h^2 / t.
SHARE = 1e-6


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


def matrix_error(state: State) -> float:
    """Return the error of a product with the kept H_U, over the vector's norm."""
    return hessian_error(state) + product_error(state)


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


def local_distance(decrement: float, R: float) -> float:
    """Return -ln(1 - R decrement) / R, a bound on the distance to the minimiser.

    Let D be the way from theta to theta*, decrement a bound on the dual norm of the
    gradient at theta, and let the curvature fall by no more than e^(-R |D| t) on the
    first part t of that way. The gradient vanishes at theta* and is monotone, so

        decrement |D| >= |D|^2 int_0^1 e^(-R |D| t) dt = |D| (1 - e^(-R |D|)) / R,

    which is the bound, solved for |D|. If R decrement < 1, theta* exists; otherwise
    nothing is known and the bound is infinite. At R = 0 it is the decrement itself.
    Losses whose third derivative is at most c times the second behave like this, R
    being c times the norm of the longest row: Bach, *Self-concordant analysis for
    logistic regression*, Electronic Journal of Statistics 4 (2010); Sun and Tran-Dinh,
    *Generalized self-concordant functions*, Mathematical Programming 178 (2019).
    """
    reach = R * decrement
    if not reach < 1.0:
        return inf
    # As a factor of what it is near zero: R times a small decrement may underflow.
    return decrement * (-log1p(-reach) / reach if reach else 1.0)


def local_distances(decrements: Vector, R: float) -> Vector:
    """Return ``local_distance`` of each decrement.

    Written out, because a loop over rows would cost more than the rest of a bound, and
    NumPy's logarithm can differ from the C library's in the last bit.
    """
    reach = R * decrements
    positive, inside = reach > 0.0, reach < 1.0
    usable = np.where(positive & inside, reach, 0.5)
    factor = np.where(positive, -np.log1p(-usable) / usable, 1.0)
    return np.where(inside, decrements * factor, inf)


class Form(NamedTuple):
    """The form that is below the Hessian: A |v|^2 + e |b + K v|^2.

    ``e`` and ``kappa``, a bound on |K|, have one entry for each output that is apart;
    ``K`` holds the mean row of each where it is known.
    """

    A: float
    e: Vector
    kappa: Vector
    K: Matrix | None


def form_floor(A: float, *, e: Vector, kappa: Vector) -> float:
    """Return the smallest eigenvalue of A |v|^2 + e |b + K v|^2, |K| <= kappa.

    The smallest over several e and kappa.
    """
    trace, product = A + e * (1.0 + kappa**2), A * e
    root = np.sqrt(np.maximum(trace**2 - 4.0 * product, 0.0))
    return float(np.min(2.0 * product / (trace + root))) / SAFETY


def norm_by_form(form: Form, gradient: Matrix) -> float:
    """Return the norm of a gradient (d, k) in the inverse of the form, from above."""
    slopes, free = gradient[:-1], gradient[-1]
    if form.K is None:
        along = norm(slopes) + float(form.kappa[0]) * norm(free)
    else:
        along = norm(slopes - form.K * free)
    return sqrt(along**2 / form.A + float(np.sum(free**2 / form.e))) * SAFETY


def penalised_curvature(state: State) -> float:
    """Return A = f mu, the curvature of what is penalised, from below."""
    return max(0.0, state.scale - weight_error(state)) * state.objective.quadratic


def intercept_form(state: State) -> Form | None:
    """Return the form at an anchor that is the answer; None if rows hold too little."""
    return _joint_form(state) if state.lever is None else _separate_forms(state)


def _curvature_error(state: State) -> float:
    """Return the rounding of a mean curvature, and of the predictors behind it.

    The mean of |x| over what was ever summed is at most the root of its weight times
    the mean of |x|^2, both in units of W0.
    """
    loss, scales = state.objective.loss, state.scales
    moved = prediction_error(state, state.anchor, summed=True)
    error = weight_error(state) * loss.curvature_bound + underflow_error(state)
    return error + loss.third_bound * moved * sqrt(scales.weight * scales.square_norm)


def _separate_forms(state: State) -> Form | None:
    """Return A, e, |xbar| and xbar of each output."""
    assert state.lever is not None
    lever, error = state.lever, _curvature_error(state)
    e = lever[-1] - error
    if not (e > 0.0).all():
        return None
    mean = lever[:-1] / lever[-1]
    kappa = np.sqrt(np.einsum("ij,ij->j", mean, mean)) * SAFETY
    # How far rounding may have moved a mean row.
    doubt = error * (2.0 + 2.0 * sqrt(state.scales.square_norm) + kappa) / e
    A = penalised_curvature(state) - float(np.max(e * doubt**2)) / SHARE
    return Form(A, (1.0 - SHARE) * e, kappa, mean) if A > 0.0 else None


def _joint_form(state: State) -> Form | None:
    """Return A, the smallest curvature of the outputs, and a bound on |M^+ N|."""
    assert state.curvature is not None
    M, k = state.curvature, len(state.curvature)
    gauge = 0.0
    if state.objective.loss.shift_invariant:
        gauge = max(0.0, state.scale - weight_error(state))
    whole = M + gauge / k
    error = (
        2.0 * k * (_curvature_error(state) + 4.0 * k * UNIT_ROUNDOFF * (1.0 + gauge))
    )
    with catch_lapack_errors():
        e = float(np.linalg.eigvalsh(whole)[0]) - error
    A = penalised_curvature(state)
    if not (e > 0.0 and A > 0.0):
        return None
    spread = min(state.scales.square_norm, state.gram_norm)
    kappa = sqrt(state.objective.loss.curvature_bound * spread / e) * SAFETY
    return Form(A, np.array([e]), np.array([kappa]), None)
