# SPDX-License-Identifier: Apache-2.0
"""Points as passes over the rows show them: the objective, its gradient, its Hessian.

``evaluate`` tells the objective and its gradient. ``measure`` tells by the same pass
how the predictors are curved there, so that the Hessian can be multiplied by a vector,
one further pass each. What is claimed of a model rests on such a point at its answer,
and not on how that was found.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .arrays import Vector, norm
from .losses import Curvature, Loss
from .objective import Objective
from .rows import Rows, RowSource, block_sum
from .sums import (
    Overview,
    lift_slopes,
    loss_gradient,
    overview,
    predict,
    square_entries,
)
from .values import Private


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
            squared = replace(block, X=square_entries(block.X))
            return (lift_slopes(squared, diagonal),)

        return block_sum(term, self._rows)[0]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Point(Private):
    """Parameters, and what a pass over the rows told of the objective there.

    Attributes
    ----------
    theta
        The parameters, (d k,).
    value, gradient
        The objective, and the gradient of its smooth part.
    subgradient
        A subgradient of alpha times the kink at theta; zero if smooth, and None as long
        as nobody asked for one.
    seen, hessian
        The sums of ``overview`` and the products of the Hessian of sum w loss; None
        where only value and gradient were asked for.
    """

    theta: Vector
    value: float
    gradient: Vector
    subgradient: Vector | None
    seen: Overview | None = None
    hessian: HessianProduct | None = None

    @property
    def residual(self) -> float:
        """|gradient + subgradient|: zero exactly at the minimiser."""
        assert self.subgradient is not None
        return norm(self.gradient + self.subgradient)

    def with_subgradient(self, objective: Objective) -> "Point":
        """Return the point with the subgradient that leaves the least residual."""
        if self.subgradient is not None:
            return self
        nearest = objective.nearest_subgradient(self.theta, self.gradient)
        return replace(self, subgradient=nearest)


def make_point(
    objective: Objective,
    rows: RowSource,
    *,
    theta: Vector,
    sums: tuple[float, Vector],
    subgradient: Vector | None = None,
) -> Point:
    """Return the point with these sums of w times loss and its gradient."""
    total, (loss, gradient) = rows.total_weight, sums
    value = loss / total + objective.penalty_value(theta)
    if objective.smooth:
        subgradient = np.zeros_like(theta)
    mean = gradient / total
    return Point(theta, value, mean + objective.quadratic_gradient(theta), subgradient)


# A trial step may go so far that the loss overflows: then it is no improvement.
@np.errstate(over="ignore", invalid="ignore")
def evaluate(
    objective: Objective,
    rows: RowSource,
    *,
    theta: Vector,
    subgradient: Vector | None = None,
) -> Point:
    """Return objective and smooth gradient at theta: one pass over the rows."""
    sums = loss_gradient(objective.loss, rows, theta=theta)
    return make_point(objective, rows, theta=theta, sums=sums, subgradient=subgradient)


@np.errstate(over="ignore", invalid="ignore")
def measure(objective: Objective, rows: RowSource, *, theta: Vector) -> Point:
    """Return the same with sums of the curvature and products of the Hessian."""
    loss = objective.loss
    intercept_columns = objective.n_free > 0 and loss.independent
    # Kept, they save the products half of a pass; but they are as long as the rows.
    curvatures: list[Curvature] | None = [] if rows.keeps_terms else None
    seen = overview(
        loss,
        rows,
        theta=theta,
        intercept_columns=intercept_columns,
        curvatures=curvatures,
    )
    sums = seen.loss, seen.gradient
    hessian = HessianProduct(loss, rows, theta=theta, curvatures=curvatures)
    point = make_point(objective, rows, theta=theta, sums=sums)
    return replace(point, seen=seen, hessian=hessian)
