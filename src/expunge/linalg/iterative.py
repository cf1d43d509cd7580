# SPDX-License-Identifier: Apache-2.0
"""Conjugate gradients with a preconditioner that is never trusted.

The preconditioner only shapes the search; what is returned is judged by the
residual of the true matrix.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from .._typing import Vector
from ..exceptions import NotPositiveDefinite
from ..magnitude import SMALLEST, norm

Linear: TypeAlias = Callable[[Vector], Vector]

ROUNDING = 2.0**-52


NOT_THERE = (
    "the Hessian of the remaining rows is not positive definite; were all removed "
    "rows really in the training data? If so, retrain, or set ridge > 0"
)


class CgSolution(NamedTuple):
    """What conjugate gradients found, and whether it got down to rounding."""

    x: Vector
    n_steps: int
    converged: bool


def conjugate_gradients(
    product: Linear, b: Vector, *, precondition: Linear, start: Vector, max_steps: int
) -> CgSolution:
    """Solve A x = b for a positive definite A given by its product.

    Stops when the residual is at rounding level or after ``max_steps``; raises
    NotPositiveDefinite on a direction of no curvature.
    """
    size, direction, previous, steepest = norm(b), np.zeros_like(b), 1.0, 0.0
    if 0.0 < size < SMALLEST:  # squares would underflow: solve for a longer one
        unit = conjugate_gradients(
            product,
            b / size,
            precondition=precondition,
            start=np.zeros_like(b),
            max_steps=max_steps,
        )
        return unit._replace(x=size * unit.x)
    x = start.copy()
    residual = b - product(x)
    for n_steps in range(max_steps + 1):
        # No product with A can tell residuals apart below |b| + |A| |x| roundings.
        if norm(residual) <= ROUNDING * (size + steepest * norm(x)):
            return CgSolution(x, n_steps, converged=True)
        z = precondition(residual)
        energy = float(residual @ z)
        if not energy > 0.0:  # the preconditioner has drifted out of definiteness
            return CgSolution(x, n_steps, converged=False)
        direction = z + (energy / previous if n_steps else 0.0) * direction
        curved = product(direction)
        curvature = float(direction @ curved)
        if not curvature > 0.0:
            raise NotPositiveDefinite(NOT_THERE)
        span = norm(direction)
        steepest = max(steepest, curvature / span / span)
        length = energy / curvature
        x += length * direction
        residual = residual - length * curved
        previous = energy
    return CgSolution(x, max_steps, converged=False)
