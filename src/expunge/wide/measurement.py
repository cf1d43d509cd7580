# SPDX-License-Identifier: Apache-2.0
"""Measurement: what one pass over the rows tells of a point.

The objective, its gradient, how the predictors are curved there, and the Hessian as its
products, one further pass each. Every claim about a wide model rests on a measurement
at its answer, and none on how that was found.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ..core.arrays import Matrix, Vector, row_squares, slice_rows
from ..core.losses import Curvature, Loss
from ..core.objective import Objective
from ..core.rows import Rows, RowSource, block_sum, number
from ..core.sums import Term, lift_slopes, predict
from ..core.values import Private


class Overview(NamedTuple):
    """What one pass at theta tells: sums of w times loss, gradient and curvature.

    ``steepness`` is sum w |slope|^2; ``curvature`` is that of the predictors, (k, k);
    ``lever`` is sum w x c with c the diagonal of a row's curvature, (d, k), and None if
    it was not asked for.
    """

    loss: float
    steepness: float
    gradient: Vector
    curvature: Matrix
    lever: Matrix | None


def overview(
    loss: Loss,
    rows: RowSource,
    *,
    theta: Vector,
    lever: bool = False,
    curvatures: list[Curvature] | None = None,
) -> Overview:
    """Return the sums at theta; put the curvature of each block into a list, if any."""
    term = overview_term(loss, theta=theta, lever=lever, curvatures=curvatures)
    return read_overview(loss, block_sum(term, rows))


def overview_term(
    loss: Loss,
    *,
    theta: Vector,
    lever: bool,
    curvatures: list[Curvature] | None = None,
) -> Term:
    """Return the term of ``overview``, for ``read_overview`` to read its sum."""
    moved = bool(theta.any())  # a fit starts at zero: the predictors are known there

    def zero(block: Rows) -> Vector:
        shape = (len(block), loss.outputs) if loss.outputs > 1 else (len(block),)
        return np.zeros_like(block.weight, shape=shape)

    def term(block: Rows) -> tuple[Any, ...]:
        eta = predict(loss, block, theta=theta) if moved else zero(block)
        slope = loss.slope(block.y, eta)
        curved = loss.curvature_parts(block.y, eta)
        if curvatures is not None:
            curvatures.append(curved)
        weight, steep = block.weight, row_squares(slope.reshape(len(block), -1))
        sums = (
            number(weight @ loss.value(block.y, eta)),
            number(weight @ steep),
            lift_slopes(block, slope),
            curved.total(weight),
        )
        return (*sums, lift_slopes(block, curved.diagonal)) if lever else sums

    return term


def read_overview(loss: Loss, sums: tuple[Any, ...]) -> Overview:
    """Return the sum of an ``overview_term`` by its names."""
    value, steepness, gradient, curvature, *rest = sums
    found = np.asarray(rest[0]).reshape(-1, loss.outputs) if rest else None
    return Overview(value, steepness, gradient, curvature, found)


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
