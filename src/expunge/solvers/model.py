# SPDX-License-Identifier: Apache-2.0
r"""Quadratic models of an objective: what one Newton step minimises.

A model maps a point theta and the smooth gradient g there to

    argmin_x  g'(x - theta) + (x - theta)'B(x - theta)/2 + scale alpha kink(x)

and a subgradient of the scaled kink at the answer (zero if there is no kink).
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from .._typing import Vector
from ..blocks import largest_hessian, loss_hessian
from ..exceptions import NotPositiveDefinite
from ..linalg import Kink, Minimum, Symmetric, scaled_prox
from ..objective import Objective
from ..rows import Rows

Model: TypeAlias = Callable[[Vector, Vector], Minimum]


def scaled_kink(objective: Objective, scale: float = 1.0) -> Kink:
    """Return scale times alpha times the kink of the penalty."""

    def shrink(v: Vector, step: float | Vector) -> Vector:
        return objective.shrink(v, scale * step)

    return Kink(shrink, objective.penalty.separable)


def smooth_model(B: Symmetric) -> Model:
    """Return the model of a smooth objective: one Cholesky solve a step."""
    factor = B.cholesky()

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        return Minimum(theta - factor.solve(gradient), np.zeros_like(theta))

    return argmin


def proximal_model(B: Symmetric, kink: Kink, start: Vector | None = None) -> Model:
    """Return the model with a kink: one B-norm prox a step.

    The prox looks for its answer near ``start``, or near theta if not given.
    """

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        near = theta if start is None else start
        return scaled_prox(B, B @ theta - gradient, kink, near)

    return argmin


def with_quadratic(
    objective: Objective, hessian: Symmetric, scale: float = 1.0
) -> Symmetric:
    """Return the loss's Hessian plus scale times the objective's quadratic."""
    diagonal, gauge = objective.quadratic_form(hessian.size)
    shifted = hessian.plus_diagonal(scale * diagonal)
    return shifted if gauge is None else shifted.update(scale, gauge[None, :])


class Fresh(NamedTuple):
    """A model made at a point, and whether its Hessian is the true one there."""

    model: Model
    exact: bool


def hessian_model(objective: Objective, rows: Rows, theta: Vector) -> Fresh:
    """Return the model with the Hessian of these rows at theta.

    Where that is flat (every row beyond Huber's threshold, say), the largest Hessian
    the loss can have takes its place: its steps are short, and always descend.
    """
    loss = loss_hessian(objective.loss, rows, theta) / rows.total_weight
    B = with_quadratic(objective, Symmetric.from_dense(loss))
    try:
        _require_held(objective, B)
        return Fresh(_model(objective, B), exact=True)
    except NotPositiveDefinite:
        steepest = largest_hessian(objective.loss, rows) / rows.total_weight
        bound = with_quadratic(objective, Symmetric.from_dense(steepest))
        return Fresh(_model(objective, bound), exact=False)


def _model(objective: Objective, B: Symmetric) -> Model:
    if objective.smooth:
        return smooth_model(B)
    return proximal_model(B, scaled_kink(objective))


def _require_held(objective: Objective, B: Symmetric) -> None:
    """Raise if a parameter that nothing penalises has no curvature either."""
    if objective.n_free and not (B.diagonal[-objective.n_free :] > 0.0).all():
        raise NotPositiveDefinite("the intercept has no curvature here")
