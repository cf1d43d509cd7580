# SPDX-License-Identifier: Apache-2.0
"""Radii: sound upper bounds on the distance to the retrained model.

Each starts from one computed residual, and none assumes anything about the mechanism.
With theta* = argmin G_U and grad G_U(theta_bar) = q(s) + T(s), s the step from the
anchor:

measured        (|q| + |T|) / mu_U: strong convexity, no rows needed.
measured-local  the same in the norm of H_U, for self-concordant losses; also where
                nothing penalises an intercept, and finite only if theta* exists.
residual        |r| / mu_U with r the gradient measured on the remaining rows.
residual-local  the local bound from r, and from the largest move of a predictor.
two-step        |s2| + the radius of theta_bar + s2, s2 a further Newton step.

(The sixth kind, a-priori, knows constants alone: see ``capacity``.)

The ingredients come first: the curvature floor and the third-order term; ``bounds``
has others, and what their computation can add. All are computed from a certified state
and err on the safe side: floors are bounded from below, norms and errors from above.
Notation as in ``removal.state``.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import exp, expm1, inf, isfinite, sqrt

import numpy as np

from ..core.arrays import SAFETY, UNIT_ROUNDOFF, Vector, norm, row_norms
from ..core.blocks import SymmetricMatrix
from ..core.linalg import conjugate_gradients
from ..core.rows import RowSource
from ..core.sums import KINK_EDGES, largest_move
from ..core.values import UNDERFLOW, Private, stored
from ..exceptions import NotPositiveDefinite
from ..removal import Draft, State, residual
from .bounds import (
    form_floor,
    gradient_error,
    hessian_error,
    intercept_form,
    local_distance,
    matrix_error,
    norm_by_form,
    penalised_curvature,
    prediction_error,
    product_error,
    residual_error,
    sum_error,
    underflow_error,
)
from .verification import RadiusKind

# Of the smallest eigenvalue as guessed, what the Cholesky test is tried with.
SHARES = (0.98, 0.9, *(0.5**k for k in range(1, 40)))


def strong_convexity(state: State) -> float:
    """Return mu_U = f mu: zero where nothing penalises some direction."""
    return 0.0 if state.objective.n_free else penalised_curvature(state)


def curvature_floor(state: State) -> float:
    """Return a lower bound on the smallest eigenvalue of H_U.

    mu_U where everything is penalised. Otherwise a shift t for which H_U - t I has
    a Cholesky factor, less the error of that test: an eigenvalue solve would cost
    twenty times as much.
    """
    if strong_convexity(state) > 0.0:
        return strong_convexity(state)
    H = state.smooth_hessian()
    error = hessian_error(state) + 2.0 * UNIT_ROUNDOFF * (H.size + 2) * float(
        np.abs(H.diagonal).sum()
    )
    guess = _smallest_eigenvalue(state, H)
    for share in SHARES:
        shift = share * guess
        if shift <= error:
            break
        try:
            H.add_diagonal(np.full(H.size, -shift)).cholesky()
        except NotPositiveDefinite:
            continue
        return shift - error
    return 0.0


def quick_floor(state: State) -> float:
    """Return a lower bound on the smallest eigenvalue of H_U in O(d k), or zero.

    For several outputs that do not interact, each with a free intercept. Let (g, e) be
    the intercept's column of an output's Hessian of the loss, and A = f mu. A sum of
    squares is at least its part along one column, so that the output's block of H_U is
    at least A |v|^2 + e (b + g.v / e)^2 for coefficients v and an intercept b. Of this,
    eigenvalues are A and two of sum A + e + |g|^2/e and product A e, the smaller of
    which falls with |g| and grows with e (docs/paper.md, "Independent outputs"). The
    test of ``curvature_floor`` may find more, at a thousand times the work.
    """
    if not _has_quick_floor(state):
        return 0.0
    A, error = penalised_curvature(state), hessian_error(state) + product_error(state)
    columns = np.array([block.last_row for block in state.loss_hessian.blocks])
    e = columns[:, -1] - error
    g = row_norms(columns[:, :-1]) * SAFETY + error
    if not (e > 0.0).all():
        return 0.0
    return form_floor(A, e=e, kappa=g / e * SAFETY)


def known_floor(state: State) -> float:
    """Return a floor of the curvature that costs no factor: zero if there is none."""
    return strong_convexity(state) or quick_floor(state)


def _has_quick_floor(state: State) -> bool:
    n_blocks = 0 if state.hessian is None else len(state.hessian.per_output)
    return 1 < n_blocks == state.objective.n_free


def _smallest_eigenvalue(state: State, H: SymmetricMatrix) -> float:
    """Return a guess at the smallest eigenvalue of H_U; nothing rests on it."""
    solve: Callable[[Vector], Vector]
    if state.inverse is None or state.metric is not None:
        try:
            solve = H.cholesky().solve
        except NotPositiveDefinite:
            return 0.0
    else:
        solve = state.inverse.__matmul__
    v = np.ones(H.size)
    for _ in range(20):
        v = solve(v)
        v /= norm(v) or 1.0
    inverse = float(v @ solve(v))
    return 1.0 / inverse if inverse > 0.0 else 0.0


def third_order_bound(state: State, s: Vector) -> float:
    """Return a bound on |T(s)|, the gradient that the quadratic model misses.

    (k3/2) s'K_U s for a Lipschitz curvature, summed over outputs, or the root of a sum
    of squares if they do not interact; where it jumps by J, J sum w |x|^2 (|s| -
    distance/|x|)_+ / W0 over the remaining rows. All are about the features that were
    summed, times kappa if the features have changed.
    """
    loss, lifted = state.objective.loss, state.lift(s)
    if loss.curvature_jump > 0.0:
        assert state.kinks is not None
        size = norm(lifted)
        # Rounding may have counted a row one bin too far, and a bin's mass is a sum
        # that rows were subtracted from, like every other.
        edges = KINK_EDGES * (1.0 - 1e-12) - prediction_error(state, state.anchor)
        mass = float(state.kinks @ np.maximum(size - np.maximum(edges, 0.0), 0.0))
        rounding = sum_error(state) * state.scales.square_norm
        rounding += underflow_error(state)
        return loss.curvature_jump * state.stretch * (mass + rounding * size) * SAFETY
    if loss.third_bound == 0.0:
        return 0.0
    forms = moment_forms(state, lifted)
    return _root_of_squares(0.5 * loss.third_bound * forms * forms)


def moment_forms(state: State, s: Vector) -> float | Vector:
    """Return sqrt(kappa s'K_U s), its rounding included, s a step as it was summed.

    One for each output, or a number for all of them together if they interact.
    """
    assert state.moment is not None
    size, s = split_length(s)
    loss, parts = state.objective.loss, s.reshape(-1, state.objective.loss.outputs)
    error = sum_error(state) * state.scales.moment
    lost = (1.0 + state.scales.row_norm) * underflow_error(state)
    if loss.outputs == 1 or not loss.independent:
        form = sum(float(part @ (state.moment @ part)) for part in parts.T)
        return size * sqrt(state.stretch * (max(form, 0.0) + (error + lost)))
    forms = np.maximum(np.einsum("ac,ac->c", parts, state.moment @ parts), 0.0)
    forms += error * np.einsum("ac,ac->c", parts, parts) + lost
    found: Vector = size * np.sqrt(state.stretch * forms)
    return found


def _root_of_squares(parts: float | Vector) -> float:
    """Return the norm of bounds on the parts of a vector; a number is that already."""
    return norm(parts) if isinstance(parts, np.ndarray) else parts


def hessian_form(state: State, s: Vector) -> float:
    """Return |s| in the norm of the loss's part of H_U, its rounding included.

    If the features have changed, |A s + offset| <= |A s| + |offset|, each in the norm
    of the Hessian that was summed.
    """
    size, s = split_length(s)
    form = float(s @ (state.loss_hessian @ s))
    length = size * sqrt(max(form, 0.0) + hessian_error(state))
    if state.offset is None:
        return length
    return length + sqrt(state.scales.hessian) * norm(state.offset)


def split_length(v: Vector) -> tuple[float, Vector]:
    """Return |v| and v / |v|, whose squares cannot underflow; zero stays zero."""
    size = norm(v)
    return size, v / size if size else v


@dataclass(frozen=True, slots=True, repr=False)
class InverseNorm(Private):
    """Bounds on |v| in the norm of H_U^-1, and on |z - H_U^-1 v| in that of H_U."""

    length: float
    miss: float


def inverse_norm(state: State, v: Vector, *, floor: float) -> float:
    """Return an upper bound on |v| in the norm of H_U^-1."""
    size, unit = split_length(v)
    if size == 0.0 or floor <= 0.0:
        return inf if size else 0.0
    z, error = approximate_solution(state, unit), matrix_error(state)
    found = inverse_norm_by(state, unit, z=z, floor=floor, error=error)
    return size * found.length


def inverse_norm_by(
    state: State, v: Vector, *, z: Vector, floor: float, error: float
) -> InverseNorm:
    """Return bounds by a z near H_U^-1 v, for a positive floor.

    |v|^2 <= v'z + |v - H_U z| |v| / floor for *any* z, so that it does not matter
    how well z solves H_U z = v. ``error`` is the state's ``matrix_error``.
    """
    size, v = split_length(v)
    if size == 0.0:
        return InverseNorm(0.0, inf if z.any() else 0.0)
    z = z / size
    left = norm(v - state.hessian_operator()(z)) + error * norm(z)
    square = max(float(v @ z), 0.0) + left / floor
    length = min(sqrt(square), 1.0 / sqrt(floor))
    return InverseNorm(size * length * SAFETY, size * left / sqrt(floor) * SAFETY)


def approximate_solution(state: State, v: Vector) -> Vector:
    """Return some z near H_U^-1 v; zero where rounding leaves a direction flat."""
    if state.inverse is not None and state.metric is None:
        precondition = state.inverse.__matmul__
    else:
        diagonal = state.smooth_hessian().diagonal
        scale = 1.0 / np.maximum(diagonal, 1e-12 * float(diagonal.max()))

        def precondition(r: Vector) -> Vector:
            return scale * r

    with suppress(NotPositiveDefinite):
        return conjugate_gradients(
            state.hessian_operator(),
            v,
            precondition=precondition,
            start=np.zeros_like(v),
            max_steps=30,
        ).x
    return np.zeros_like(v)


def growth(b: float) -> float:
    """Return (e^b - 1 - b)/b, how much self-concordant curvature adds over a step."""
    if b < 1e-5:
        return 0.5 * b * (1.0 + b)
    return (expm1(b) - b) / b if b < 700.0 else inf


def half_exponential(b: float) -> float:
    """Return e^(b/2), infinite where it overflows."""
    return exp(0.5 * b) if b < 1400.0 else inf


@stored
@dataclass(frozen=True, slots=True, repr=False)
class Radius(Private):
    """A bound and how it was found. Private: it is a function of removed rows."""

    value: float
    kind: RadiusKind


def measured_radius(state: State, draft: Draft) -> float:
    """Return (|q| + |T| + rounding) / mu_U, or over the floor for squared loss."""
    floor = strong_convexity(state)
    if floor == 0.0 and state.objective.loss.third_bound == 0.0:
        floor = curvature_floor(state)
    s = draft.theta - state.anchor
    pull = norm(residual(state, draft))
    return _over(
        pull + third_order_bound(state, s) + residual_error(state, draft, s=s), floor
    )


def measured_local_radius(
    state: State, draft: Draft, *, row_norm: float, quick: bool = False
) -> float:
    """Return the local radius from q(s), for self-concordant losses.

    If ``quick``, by a floor of the curvature that needs no factor.
    """
    concordance = state.objective.loss.self_concordance
    if not isfinite(concordance):
        return inf
    s, R = draft.theta - state.anchor, concordance * row_norm
    b = R * norm(state.lift(s))
    floor = quick_floor(state) if quick else curvature_floor(state)
    if floor <= 0.0:
        return inf
    rounding = residual_error(state, draft, s=s) / sqrt(floor)
    pull = _dual_norm(state, residual(state, draft), floor=floor, quick=quick)
    pull += rounding
    missed = min(
        growth(b) * hessian_form(state, s), third_order_bound(state, s) / sqrt(floor)
    )
    decrement = half_exponential(b) * (pull + missed)
    return _local(decrement, R, floor=_floor_after(state, floor, b=b))


def residual_radius(state: State, draft: Draft) -> float:
    """Return |r| / mu_U from the gradient that the draft's mechanism measured."""
    if draft.measured is None:
        return inf
    return _over(_measured_norm(state, draft), strong_convexity(state))


def residual_local_radius(
    state: State, draft: Draft, *, move: float, row_norm: float, quick: bool = False
) -> float:
    """Return the local radius from r and the largest move of a predictor.

    ``move`` is how far the step from the anchor moves any remaining row's predictors,
    as ``sums.largest_move`` computes it; ``quick`` as above.
    """
    loss = state.objective.loss
    if draft.measured is None or not isfinite(loss.self_concordance):
        return inf
    s = draft.theta - state.anchor
    floor = quick_floor(state) if quick else curvature_floor(state)
    if floor <= 0.0:
        return inf
    move = move + prediction_error(state, s) * row_norm
    b = loss.self_concordance * move * SAFETY
    rounding = gradient_error(state, draft, step=norm(s)) / sqrt(floor)
    pull = _dual_norm(state, draft.measured, floor=floor, quick=quick) + rounding
    decrement = half_exponential(b) * pull
    R = loss.self_concordance * row_norm
    return _local(decrement, R, floor=_floor_after(state, floor, b=b))


def intercept_radius(state: State, draft: Draft, *, row_norm: float) -> float:
    """Return the local radius of an answer that is its own anchor.

    Infinite for a loss that is not self-concordant, and where the rows do not hold the
    intercepts.
    """
    concordance = state.objective.loss.self_concordance
    if draft.measured is None or not isfinite(concordance):
        return inf
    if not np.array_equal(draft.theta, state.anchor):  # the sums are another point's
        return inf
    form = intercept_form(state)
    if form is None:
        return inf
    A, e, kappa = form.A, form.e, form.kappa
    pull = norm_by_form(form, draft.measured.reshape(-1, state.objective.loss.outputs))
    reach = sqrt(float(np.max((row_norm + kappa) ** 2 / A + 1.0 / e))) * SAFETY
    floor = form_floor(A, e=e, kappa=kappa)
    pull += gradient_error(state, draft, step=0.0) / sqrt(floor)
    way = local_distance(pull * SAFETY, concordance * reach)
    return way / sqrt(floor) * SAFETY


def two_step_radius(state: State, draft: Draft) -> float:
    """Return |s2| plus the radius of theta_bar + s2, without a second pass.

    Smooth objectives only: a subgradient at theta_bar is none at theta_bar + s2.
    """
    objective, floor = state.objective, strong_convexity(state)
    k3 = objective.loss.third_bound
    if draft.measured is None or not objective.smooth or not isfinite(k3):
        return inf
    if state.features is not None:  # measured on rows: anchoring there costs as little
        return inf
    s2 = -approximate_solution(state, draft.measured)
    left = draft.measured + state.hessian_operator()(s2)
    pull, size = norm(left), norm(s2)
    moved = norm(draft.theta - state.anchor)
    if k3:
        first = moment_forms(state, draft.theta - state.anchor)
        second = moment_forms(state, s2)
        pull += _root_of_squares(k3 * second * (first + 0.5 * second))
    matrix = hessian_error(state) + product_error(state)
    pull += gradient_error(state, draft, step=moved) + matrix * size
    return size + _over(pull, floor)


def best_radius(
    state: State,
    draft: Draft,
    *,
    remaining: RowSource | None = None,
    row_norm: float | None = None,
    enough: float = 0.0,
) -> Radius:
    """Return the smallest sound radius of a draft, and its kind.

    Parameters
    ----------
    state, draft
        A certified state and the answer read from it.
    remaining
        The remaining rows, for the kinds that look at them; their gradient must
        have been measured by the draft's mechanism.
    row_norm
        A bound on every row's norm promised in advance; if not given, the largest
        norm among the rows at the anchor.
    enough
        What need not be improved: the kinds are tried from the cheapest to the
        dearest, up to the first that is not above.
    """
    R = state.scales.row_norm if row_norm is None else row_norm
    best = Radius(inf, "residual")
    for kind, bound in _bounds(state, draft, remaining=remaining, row_norm=R):
        value = bound()
        if value < best.value:
            best = Radius(value, kind)
        if best.value <= enough:
            break
    return best


def _bounds(
    state: State, draft: Draft, *, remaining: RowSource | None, row_norm: float
) -> Iterator[tuple[RadiusKind, Callable[[], float]]]:
    """Yield the kinds that can be computed, from the cheapest to the dearest."""
    quick = _has_quick_floor(state)
    yield "residual", lambda: residual_radius(state, draft)
    if state.curvature is not None and state.objective.n_free:
        yield (
            "residual-local",
            lambda: intercept_radius(state, draft, row_norm=row_norm),
        )
    if state.moment is not None:
        yield "measured", lambda: measured_radius(state, draft)
        local = partial(measured_local_radius, state, draft, row_norm=row_norm)
        if quick:
            yield "measured-local", partial(local, quick=True)
        yield "measured-local", local
        yield "two-step", lambda: two_step_radius(state, draft)
    if remaining is not None and state.hessian is not None and state.features is None:
        step = draft.theta - state.anchor
        move = 0.0  # an answer at the anchor moves no row: no need to look
        if draft.moved is not None and np.array_equal(draft.moved[0], step):
            move = draft.moved[1]
        elif step.any():
            move = largest_move(state.objective.loss, remaining, step=step)
        local = partial(
            residual_local_radius, state, draft, move=move, row_norm=row_norm
        )
        if quick:
            yield "residual-local", partial(local, quick=True)
        yield "residual-local", local


def _dual_norm(state: State, v: Vector, *, floor: float, quick: bool) -> float:
    """Return a bound on |v| in the norm of H_U^-1."""
    return norm(v) / sqrt(floor) if quick else inverse_norm(state, v, floor=floor)


def _measured_norm(state: State, draft: Draft) -> float:
    """Return |r| with its rounding."""
    assert draft.measured is not None
    moved = norm(draft.theta - state.anchor)
    return norm(draft.measured) + gradient_error(state, draft, step=moved)


def _floor_after(state: State, floor: float, *, b: float) -> float:
    """Return a floor of the curvature at the draft, b away in predictor space."""
    return max(strong_convexity(state), floor * exp(-b) if b < 700.0 else 0.0)


def _local(decrement: float, R: float, *, floor: float) -> float:
    """Return -(1/R) ln(1 - R decrement / sqrt(floor)), its limit at R = 0."""
    if floor <= 0.0 or not isfinite(decrement):
        return inf
    return local_distance(decrement / sqrt(floor) * SAFETY + UNDERFLOW, R) * SAFETY


def _over(pull: float, floor: float) -> float:
    """Return pull / floor from above, infinite where there is no floor."""
    if not (floor > 0.0 and pull < inf):  # nor where an ingredient is no number
        return inf
    return pull / floor * SAFETY + UNDERFLOW
