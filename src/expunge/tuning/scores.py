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
from dataclasses import dataclass, replace
from math import inf, isfinite, sqrt

import numpy as np

from .._typing import Vector
from ..blocks import losses_at_each
from ..private import Private
from ..radius.ingredients import UNIT_ROUNDOFF, inverse_norm, prediction_error
from ..rows import Rows
from .cells import Cell
from .choice import Interval
from .yardstick import Yardstick

# What rounding adds to a sum over folds.
SLACK = 1e-14


@dataclass(frozen=True, slots=True, repr=False)
class Sizes(Private):
    """Of the validation rows: sum w |x|, sum w |x|^2, and so on.

    Attributes
    ----------
    n_rows, norm, square
        Their number, sum w |x| and sum w |x|^2.
    leverage
        Sum w |x|^2 in the norm of H_U^-1.
    """

    n_rows: int
    norm: float
    square: float
    leverage: float = inf


def scored(
    cells: Sequence[Cell], yardsticks: Sequence[Yardstick], rows: Rows, fold: int
) -> list[Interval]:
    """Return the interval of each cell's summed loss over its fold's own rows."""
    loss = cells[0].state.objective.loss
    thetas = np.array([cell.draft.theta for cell in cells])
    values, slopes = losses_at_each(loss, rows, thetas)
    norms = rows.norms()
    weight = rows.weight
    sizes = Sizes(len(rows), float(weight @ norms), float(weight @ norms**2))
    found = zip(cells, yardsticks, values, slopes, strict=True)
    return [
        _interval(
            cell,
            float(value),
            slope,
            replace(sizes, leverage=_leverage(cell, yardstick, fold)),
        )
        for cell, yardstick, value, slope in found
    ]


def pooled(intervals: Sequence[Interval], weight: float) -> Interval:
    """Return where the mean over the rows of several folds must lie."""
    return Interval(
        low=sum(part.low for part in intervals) / weight * (1.0 - SLACK),
        value=sum(part.value for part in intervals) / weight,
        high=sum(part.high for part in intervals) / weight * (1.0 + SLACK),
    )


def _interval(cell: Cell, value: float, slope: Vector, sizes: Sizes) -> Interval:
    """Return where the sum must lie, rounding included."""
    if sizes.square == 0.0:  # nobody is left in this fold
        return Interval(0.0, 0.0, 0.0)
    loss, theta, reach = cell.state.objective.loss, cell.draft.theta, cell.reach
    if not isfinite(reach.radius):
        return Interval(0.0, value, inf)
    ulps = 2.0 * UNIT_ROUNDOFF * (sizes.n_rows + theta.size + 16)
    # A loss of curvature k2 that is never negative has slopes below sqrt(2 k2 loss),
    # so this is at least the sum w |slope| |x| that cancels in the gradient.
    error = ulps * sqrt(2.0 * loss.curvature_bound * value * sizes.square)
    gradient = float(np.linalg.norm(slope)) + error
    rounding = ulps * value + gradient * prediction_error(cell.state, theta)
    first, second = gradient * reach.radius, sizes.square * reach.radius**2
    if isfinite(reach.energy):
        first = min(first, _energetic(cell, slope, error))
        moved = (reach.energy * reach.stretch) ** 2
        second = min(second, moved * sizes.leverage)
    second *= 0.5 * loss.curvature_bound
    bound = loss.slope_bound * sizes.norm * reach.radius
    low = value - min(first, bound) - rounding
    return Interval(max(low, 0.0), value, value + min(first + second, bound) + rounding)


def _energetic(cell: Cell, slope: Vector, error: float) -> float:
    """Return a bound on |g.(theta* - theta)| by the norms of H and its inverse."""
    state, reach = cell.state, cell.reach
    z = None if cell.factor is None else cell.factor.solve(slope)
    length = inverse_norm(state, slope, reach.floor, z) + error / sqrt(reach.floor)
    return reach.stretch * length * reach.energy


def _leverage(cell: Cell, yardstick: Yardstick, fold: int) -> float:
    """Return a bound on the validation rows' sum w |x|^2 in the norm of H_U^-1."""
    return yardstick.leverages[fold] / cell.kappa if cell.kappa else inf
