# SPDX-License-Identifier: Apache-2.0
r"""Newton's method for models too wide for a Hessian: products instead of matrices.

Each step solves H s = -gradient by preconditioned conjugate gradients, one pass over
the rows a product, then searches along s. The solve is stopped where a better one would
be wasted: at a share of the gradient that falls with it, and at what is needed in the
end (Eisenstat and Walker, *Choosing the forcing terms in an inexact Newton method*,
SIAM J. Sci. Comput. 17, 1996).
"""

from dataclasses import dataclass

import numpy as np

from ..core.arrays import UNIT_ROUNDOFF, Vector, norm
from ..core.linalg import Linear
from ..core.objective import Objective
from ..core.rows import RowSource
from ..core.values import Private
from .measurement import Measurement, measure
from .preconditioner import Preconditioner, ShortCut, make_preconditioner

MAX_STEPS = 100
MAX_PRODUCTS = 200
MAX_HALVINGS = 30
ARMIJO = 1e-4
LOOSEST = 0.1  # of the gradient may be left of a step's system
PATIENCE = 2  # steps in a row that do not halve the gradient


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class WideSolution(Private):
    """The last measurement, what led there, and how many steps and products it took."""

    at: Measurement
    short_cut: ShortCut | None
    n_steps: int
    n_products: int


def minimise_by_products(
    objective: Objective,
    rows: RowSource,
    *,
    start: Measurement,
    goal: float,
    preconditioner: Preconditioner | None = None,
) -> WideSolution:
    """Return a point whose gradient is at most ``goal``, or where it stops falling.

    Parameters
    ----------
    objective, rows
        What to minimise: smooth, of any width.
    start
        A measurement on these rows.
    goal
        The norm of the gradient to reach.
    preconditioner
        One made earlier, from these rows or more; made here if not given.
    """
    if preconditioner is None:
        preconditioner = make_preconditioner(objective, rows, hessian=start.hessian)
    here, n_steps, n_products, stalled = start, 0, 0, 0
    while norm(here.gradient) > goal and n_steps < MAX_STEPS and stalled < PATIENCE:
        solve = preconditioner.at(objective, here.curvature)
        way, spent = _newton_step(objective, rows, here=here, solve=solve, goal=goal)
        n_products += spent
        there = _search(objective, rows, here=here, way=way)
        if there is None:
            break
        n_steps += 1
        fallen = norm(there.gradient) <= 0.5 * norm(here.gradient)
        falling = here.value - there.value > 1e-12 * abs(here.value)
        stalled = 0 if fallen or falling else stalled + 1
        here = there if fallen or falling else min(here, there, key=_residual)
    return WideSolution(here, preconditioner, n_steps, n_products)


def _residual(point: Measurement) -> float:
    return norm(point.gradient)


def _newton_step(
    objective: Objective,
    rows: RowSource,
    *,
    here: Measurement,
    solve: Linear,
    goal: float,
) -> tuple[Vector, int]:
    """Return s with H s near -gradient, and how many products that took."""
    diagonal, gauge = objective.quadratic_form(here.theta.size)
    total = rows.total_weight

    def product(v: Vector) -> Vector:
        image = (here.hessian @ v) / total + diagonal * v
        return image if gauge is None else image + (gauge @ v) * gauge

    size = norm(here.gradient)
    enough = max(min(LOOSEST, np.sqrt(size)) * size, 0.3 * goal)
    x, residual, previous = np.zeros_like(here.gradient), -here.gradient, 0.0
    direction = np.zeros_like(x)
    for n_products in range(MAX_PRODUCTS):
        if n_products and norm(residual) <= enough:
            return x, n_products
        z = solve(residual)
        energy = float(residual @ z)
        if not energy > 0.0:
            break
        direction = z + (energy / previous if n_products else 0.0) * direction
        curved = product(direction)
        curvature = float(direction @ curved)
        if not curvature > 0.0:  # flat to rounding: go where the search leads
            x = direction if not n_products else x
            break
        x += (energy / curvature) * direction
        residual = residual - (energy / curvature) * curved
        previous = energy
    return x, n_products


def _search(
    objective: Objective, rows: RowSource, *, here: Measurement, way: Vector
) -> Measurement | None:
    """Return the first point along the way where the objective falls enough."""
    predicted = float(here.gradient @ way)
    slack = 64.0 * UNIT_ROUNDOFF * abs(here.value)
    length = 1.0
    for _ in range(MAX_HALVINGS):
        there = measure(objective, rows, theta=here.theta + length * way)
        if there.value <= here.value + ARMIJO * length * predicted + slack:
            return there
        length *= 0.5
    return None
