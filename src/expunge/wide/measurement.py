# SPDX-License-Identifier: Apache-2.0
"""Measurement: what one pass over the rows tells of a point.

The objective, its gradient, how the predictors are curved there, and the Hessian as its
products, one further pass each. Every claim about a wide model rests on a measurement
at its answer, and none on how that was found.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from ..core.arrays import Matrix, Vector, slice_rows
from ..core.losses import Curvature, Loss
from ..core.objective import Objective
from ..core.rows import Rows, RowSource, block_sum
from ..core.sums import lift_slopes, overview, predict
from ..core.values import Private


class HessianProduct:
    """The Hessian of sum w loss at a point, by its products: one pass each."""

    __slots__ = ("_curvatures", "_loss", "_rows", "_theta")

    def __init__(
        self,
        loss: Loss,
        rows: RowSource,
        *,
        theta: Vector,
        curvatures: list[Curvature] | None,
    ) -> None:
        self._loss = loss
        self._rows = rows
        self._theta = theta
        self._curvatures = curvatures

    def __matmul__(self, v: Vector) -> Vector:
        """Return X'(w C (X v))."""
        loss, curvature = self._loss, self._curvature()

        def term(block: Rows) -> tuple[Vector]:  # it may be sent: nothing of self
            change = predict(loss, block, theta=v)
            return (lift_slopes(block, curvature(block).times(change)),)

        return block_sum(term, self._rows)[0]

    def _curvature(self) -> Callable[[Rows], Curvature]:
        """Return what tells the curvature of each block, in order if it was kept."""
        loss, theta = self._loss, self._theta
        if self._curvatures is not None:
            kept = iter(self._curvatures)
            return lambda block: next(kept)
        return lambda block: loss.curvature_parts(
            block.y, predict(loss, block, theta=theta)
        )

    def diagonal(self) -> Vector:
        """Return the diagonal: sum w c x^2 for each column and output."""
        curvature = self._curvature()

        def term(block: Rows) -> tuple[Vector]:
            curved = curvature(block)
            diagonal = curved.diagonal
            if curved.factor is not None:
                diagonal = diagonal - curved.factor**2
            squared = replace(block, X=_square_entries(block.X))
            return (lift_slopes(squared, diagonal),)

        return block_sum(term, self._rows)[0]


def _square_entries(X: Any) -> Any:
    """Return the design with each entry squared; a sparse one shares its indices."""
    squared: Any = slice_rows(X, slice(None))
    if not sparse.issparse(squared):
        return squared * squared
    entries: Any = squared
    entries.data = entries.data * entries.data
    return entries


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Measurement(Private):
    """What one pass over the rows tells of a point.

    Attributes
    ----------
    theta
        The point, (d k,).
    value, steepness
        The objective there, and (1/W) sum w |slope|^2.
    loss_gradient, gradient
        (1/W) sum w grad loss, and the gradient of the whole smooth part.
    curvature
        (1/W) sum w C with C the curvature of a row's predictors, (k, k).
    lever
        (1/W) sum w c x with c the diagonal of C, (d, k), where an intercept is free and
        outputs do not interact; None otherwise.
    hessian
        The Hessian of sum w loss at theta, by its products.
    """

    theta: Vector
    value: float
    steepness: float
    loss_gradient: Vector
    gradient: Vector
    curvature: Matrix
    lever: Matrix | None
    hessian: HessianProduct


@np.errstate(over="ignore", invalid="ignore")
def measure(objective: Objective, rows: RowSource, *, theta: Vector) -> Measurement:
    """Return what one pass at theta tells."""
    loss, total = objective.loss, rows.total_weight
    lever = objective.n_free > 0 and loss.independent
    # Kept, they save the products half of a pass; but they are as long as the rows.
    curvatures: list[Curvature] | None = [] if rows.keeps_terms else None
    sums = overview(loss, rows, theta=theta, lever=lever, curvatures=curvatures)
    mean = sums.gradient / total
    return Measurement(
        theta,
        sums.loss / total + objective.penalty_value(theta),
        sums.steepness / total,
        mean,
        mean + objective.quadratic_gradient(theta),
        sums.curvature / total,
        None if sums.lever is None else sums.lever / total,
        HessianProduct(loss, rows, theta=theta, curvatures=curvatures),
    )
