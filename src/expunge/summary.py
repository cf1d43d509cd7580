# SPDX-License-Identifier: Apache-2.0
r"""Summary: T(S), all that removal may know of the training set.

Sums over the rows at one point theta, the anchor: d- and d x d-sized, never
rows. Everything is in units of the weight W at the anchor and covers the *loss*
alone; the quadratic of the objective is added where it is used, because under
"mean" scaling a removal changes it by a full-rank term.
"""

from dataclasses import dataclass

import numpy as np

from ._typing import Vector
from .blocks import loss_hessian, loss_slopes, norm_moment
from .exceptions import InvalidInput
from .linalg import Symmetric
from .objective import Objective
from .rows import Rows


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Summary:
    """Sums over the rows at the anchor.

    Attributes
    ----------
    objective
        What theta minimises (up to the solver's residual) on these rows.
    theta
        The anchor, (d k,).
    gradient
        (1/W) sum w grad loss at theta.
    hessian
        (1/W) sum w Hessian of the loss at theta, (d k, d k).
    moment
        (1/W) sum w |x| x x', (d, d).
    weight, n_rows
        W and the number of rows.
    """

    objective: Objective
    theta: Vector
    gradient: Vector
    hessian: Symmetric
    moment: Symmetric
    weight: float
    n_rows: int

    def __repr__(self) -> str:
        return f"Summary({self.theta.size} parameters)"


def summarise(objective: Objective, rows: Rows, theta: Vector) -> Summary:
    """Return the sums over these rows with theta as the anchor."""
    weight = rows.total_weight
    if not weight > 0.0:
        raise InvalidInput("no rows with positive weight: there is nothing to sum")
    if theta.size != rows.X.shape[1] * objective.loss.outputs:
        raise InvalidInput(
            f"theta has {theta.size} parameters; the rows call for "
            f"{rows.X.shape[1] * objective.loss.outputs}"
        )
    anchor = np.array(theta, dtype=np.float64)
    return Summary(
        objective=objective,
        theta=anchor,
        gradient=loss_slopes(objective.loss, rows, anchor) / weight,
        hessian=Symmetric.from_dense(
            loss_hessian(objective.loss, rows, anchor) / weight
        ),
        moment=Symmetric.from_dense(norm_moment(rows) / weight),
        weight=weight,
        n_rows=len(rows),
    )
