# SPDX-License-Identifier: Apache-2.0
r"""Scores: a fold's validation error, and how far the true one may be from it.

With theta* within rho of theta, V the weighted sum of losses over the validation rows
and g its gradient in theta, convexity gives

    -|g| rho  <=  V(theta*) - V(theta)  <=  |g| rho + (k2/2) rho^2 sum w |x|^2,

and a bounded slope |V(theta*) - V(theta)| <= k1 rho sum w |x|. The gradient of the
sum is much shorter than the sum of the gradients: where a model fits, they cancel.
The same holds in the norm of the Hessian, with |g| and |x| in that of its inverse.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt

from .._typing import Vector
from ..linalg import norm
from ..magnitude import UNDERFLOW, UNIT_ROUNDOFF
from ..mechanisms import State
from ..private import Private
from ..radius.ingredients import inverse_norm, prediction_error
from ..rows import Rows
from .choice import Interval
from .survey import Sighting
from .yardstick import Reach

# What rounding adds to a sum over folds.
SLACK = 1e-14


@dataclass(frozen=True, slots=True, repr=False)
class Judges(Private):
    """Sizes of the rows that judge a model: number, sums of w, w |x| and w |x|^2."""

    n_rows: int
    weight: float
    norm: float
    square: float


def judges_of(rows: Rows) -> Judges:
    """Return the sizes of a fold's own rows."""
    norms, weight = rows.norms(), rows.weight
    sizes = (float(weight @ norms), float(weight @ norms**2))
    return Judges(len(rows), rows.total_weight, *sizes)


def pooled(intervals: Sequence[Interval], weight: float) -> Interval:
    """Return where the mean over the rows of several folds must lie."""
    return Interval(
        low=max(
            sum(p.low for p in intervals) / weight * (1.0 - SLACK) - UNDERFLOW, 0.0
        ),
        value=sum(part.value for part in intervals) / weight,
        high=sum(part.high for part in intervals) / weight * (1.0 + SLACK) + UNDERFLOW,
    )


def scored(
    state: State, theta: Vector, reach: Reach, seen: Sighting, judges: Judges
) -> Interval:
    """Return where the sum over a model's judges must lie, rounding included.

    Parameters
    ----------
    state, theta
        The model: its state and its answer.
    reach
        How far the exact minimiser may be.
    seen
        What the judges say at the answer.
    judges
        Their sizes.
    """
    if judges.weight == 0.0:  # nobody is left in this fold
        return Interval(0.0, 0.0, 0.0)
    loss, value = state.objective.loss, seen.judged
    if not isfinite(reach.radius):
        return Interval(0.0, value, inf)
    ulps = 2.0 * UNIT_ROUNDOFF * (judges.n_rows + theta.size + 16)
    # Predictors are off by |x| times this, each in its own direction: nothing cancels.
    off, k2 = prediction_error(state, theta), loss.curvature_bound
    # A loss of curvature k2 that is never negative has slopes below sqrt(2 k2 loss),
    # so this is at least sum w |slope| |x|.
    hidden = UNDERFLOW * (judges.n_rows + judges.weight)
    steep = sqrt(2.0 * k2 * (value + hidden) * judges.square)
    steep += k2 * judges.square * off
    error = ulps * steep + k2 * judges.square * off
    gradient = norm(seen.judged_slopes) + error
    rounding = ulps * value + steep * off + hidden
    first = gradient * reach.radius
    second = judges.square * reach.radius * reach.radius
    if isfinite(reach.energy):
        z = reach.factor.solve(seen.judged_slopes)
        length = inverse_norm(state, seen.judged_slopes, reach.floor, z)
        length += error / sqrt(reach.floor)
        first = min(first, reach.stretch * length * reach.energy)
        moved = reach.energy * reach.stretch
        second = min(second, moved * reach.leverage * moved)
    second *= 0.5 * k2
    bound = loss.slope_bound * judges.norm * reach.radius
    low = value - min(first, bound) - rounding
    return Interval(max(low, 0.0), value, value + min(first + second, bound) + rounding)
