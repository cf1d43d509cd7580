# SPDX-License-Identifier: Apache-2.0
r"""Radii: sound upper bounds on the distance to the retrained model.

Each starts from one computed residual and none assumes anything about the
mechanism. With theta* = argmin G_U and grad G_U(theta_bar) = q(s) + T(s):

measured        (|q| + |T|) / mu_U: strong convexity, no rows needed.
measured-local  the same in the norm of H_U, for self-concordant losses; also where
                nothing penalises an intercept, and finite only if theta* exists.
residual        |r| / mu_U with r the gradient measured on the remaining rows.
residual-local  the local bound from r, and from the largest move of a predictor.
two-step        |s2| + the radius of theta_bar + s2, s2 a further Newton step.

(The sixth kind, a-priori, knows constants alone: see ``regularity``.)
"""

from dataclasses import dataclass
from math import exp, inf, isfinite, log1p, sqrt
from typing import Literal, TypeAlias

from ..blocks import largest_move
from ..linalg import norm
from ..magnitude import UNDERFLOW
from ..mechanisms import Draft, State, residual
from ..private import Private
from ..rows import Rows
from .ingredients import (
    approximate_solution,
    curvature_floor,
    gradient_error,
    growth,
    half_exponential,
    hessian_error,
    hessian_form,
    inverse_norm,
    moment_form,
    prediction_error,
    product_error,
    residual_error,
    strong_convexity,
    third_order,
)

RadiusKind: TypeAlias = Literal[
    "measured", "measured-local", "residual", "residual-local", "two-step", "a-priori"
]

SAFETY = 1.0 + 1e-12


@dataclass(frozen=True, slots=True, repr=False)
class Radius(Private):
    """A bound and how it was found. Private: it is a function of removed rows."""

    value: float
    kind: RadiusKind


def measured(state: State, draft: Draft) -> float:
    """Return (|q| + |T| + rounding) / mu_U, or over the floor for squared loss."""
    floor = strong_convexity(state)
    if floor == 0.0 and state.objective.loss.third_bound == 0.0:
        floor = curvature_floor(state)
    s = draft.theta - state.anchor
    pull = norm(residual(state, draft))
    return _over(pull + third_order(state, s) + residual_error(state, draft, s), floor)


def measured_local(state: State, draft: Draft, row_norm: float) -> float:
    """Return the local radius from q(s), for self-concordant losses."""
    concordance = state.objective.loss.self_concordance
    if not isfinite(concordance):
        return inf
    s, R = draft.theta - state.anchor, concordance * row_norm
    b, floor = R * norm(s), curvature_floor(state)
    if floor <= 0.0:
        return inf
    rounding = residual_error(state, draft, s) / sqrt(floor)
    pull = inverse_norm(state, residual(state, draft), floor) + rounding
    missed = min(
        growth(b) * hessian_form(state, s), third_order(state, s) / sqrt(floor)
    )
    decrement = half_exponential(b) * (pull + missed)
    return _local(decrement, R, _floor_after(state, floor, b))


def measured_on_rows(state: State, draft: Draft) -> float:
    """Return |r| / mu_U from the gradient that the draft's mechanism measured."""
    if draft.measured is None:
        return inf
    return _over(_measured_norm(state, draft), strong_convexity(state))


def residual_local(state: State, draft: Draft, move: float, row_norm: float) -> float:
    """Return the local radius from r and the largest move of a predictor.

    ``move`` is how far the step from the anchor moves any remaining row's predictors,
    as ``blocks.largest_move`` computes it.
    """
    loss = state.objective.loss
    if draft.measured is None or not isfinite(loss.self_concordance):
        return inf
    s, floor = draft.theta - state.anchor, curvature_floor(state)
    if floor <= 0.0:
        return inf
    move = move + prediction_error(state, s) * row_norm
    b = loss.self_concordance * move * SAFETY
    rounding = gradient_error(state, draft, norm(s)) / sqrt(floor)
    pull = inverse_norm(state, draft.measured, floor) + rounding
    decrement = half_exponential(b) * pull
    R = loss.self_concordance * row_norm
    return _local(decrement, R, _floor_after(state, floor, b))


def two_step(state: State, draft: Draft) -> float:
    """Return |s2| plus the radius of theta_bar + s2, without a second pass.

    Smooth objectives only: a subgradient at theta_bar is none at theta_bar + s2.
    """
    objective, floor = state.objective, strong_convexity(state)
    k3 = objective.loss.third_bound
    if draft.measured is None or not objective.smooth or not isfinite(k3):
        return inf
    s2 = -approximate_solution(state, draft.measured)
    left = draft.measured + state.hessian_operator()(s2)
    first = moment_form(state, draft.theta - state.anchor) if k3 else 0.0
    second = moment_form(state, s2) if k3 else 0.0
    size = norm(s2)
    moved = norm(draft.theta - state.anchor)
    pull = norm(left) + k3 * second * (first + 0.5 * second)
    matrix = hessian_error(state) + product_error(state)
    pull += gradient_error(state, draft, moved) + matrix * size
    return size + _over(pull, floor)


def best_radius(
    state: State,
    draft: Draft,
    remaining: Rows | None = None,
    row_norm: float | None = None,
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
    """
    R = state.scales.row_norm if row_norm is None else row_norm
    found = [Radius(measured_on_rows(state, draft), "residual")]
    if state.moment is not None:
        found += [
            Radius(measured(state, draft), "measured"),
            Radius(measured_local(state, draft, R), "measured-local"),
            Radius(two_step(state, draft), "two-step"),
        ]
    if remaining is not None and state.hessian is not None:
        step = draft.theta - state.anchor
        move = largest_move(state.objective.loss, remaining, step)
        found.append(Radius(residual_local(state, draft, move, R), "residual-local"))
    return min(found, key=lambda radius: radius.value)


def _measured_norm(state: State, draft: Draft) -> float:
    """Return |r| with its rounding."""
    assert draft.measured is not None
    moved = norm(draft.theta - state.anchor)
    return norm(draft.measured) + gradient_error(state, draft, moved)


def _floor_after(state: State, floor: float, b: float) -> float:
    """Return a floor of the curvature at the draft, b away in predictor space."""
    return max(strong_convexity(state), floor * exp(-b) if b < 700.0 else 0.0)


def _local(decrement: float, R: float, floor: float) -> float:
    """Return -(1/R) ln(1 - R decrement / sqrt(floor)), its limit at R = 0."""
    if floor <= 0.0 or not isfinite(decrement):
        return inf
    distance = decrement / sqrt(floor) * SAFETY + UNDERFLOW
    reach = R * distance
    if not reach < 1.0:
        return inf
    # As a factor of what it is near zero: R times a small distance may underflow.
    return distance * (-log1p(-reach) / reach if reach else 1.0) * SAFETY


def _over(pull: float, floor: float) -> float:
    """Return pull / floor from above, infinite where there is no floor."""
    if not (floor > 0.0 and pull < inf):  # nor where an ingredient is no number
        return inf
    return pull / floor * SAFETY + UNDERFLOW
