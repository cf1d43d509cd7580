# SPDX-License-Identifier: Apache-2.0
"""Learn: fit an objective to rows and keep what removal needs to know.

The first verb. It refuses a solution whose measured residual is above the
tolerance: every later claim is about the minimiser.
"""

from ._typing import Vector
from .objective import Objective
from .rows import Rows
from .solvers import minimise, require_converged
from .summary import Summary, summarise


def learn(objective: Objective, rows: Rows, start: Vector | None = None) -> Summary:
    """Fit the objective to the rows and return the Summary at the minimiser."""
    solution = minimise(objective, rows, start)
    require_converged(objective, rows, solution)
    return summarise(objective, rows, solution.theta, solution.subgradient)
