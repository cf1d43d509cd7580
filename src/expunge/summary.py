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
from .blocks import (
    kink_masses,
    largest_norm,
    loss_hessian,
    loss_slopes,
    norm_moment,
    slope_scale,
    square_norms,
)
from .exceptions import InvalidInput
from .linalg import Symmetric
from .objective import Objective
from .private import Private
from .rows import Rows


@dataclass(frozen=True, slots=True, repr=False)
class Scales(Private):
    """Sizes of what was summed, by which rounding and growth are bounded.

    Attributes
    ----------
    row_norm
        Largest norm of a row, intercept included.
    slope
        (1/W) sum w |slope| |x|.
    square_norm
        (1/W) sum w |x|^2.
    hessian, moment
        Traces of the Hessian and of the moment.
    n_rows
        Number of rows that were summed.
    """

    row_norm: float
    slope: float
    square_norm: float
    hessian: float
    moment: float
    n_rows: int


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Summary(Private):
    """Sums over the rows at the anchor.

    Attributes
    ----------
    objective
        What theta minimises (up to the solver's residual) on these rows.
    theta
        The anchor, (d k,).
    subgradient
        One of alpha times the kink at theta; None if nobody knows.
    gradient
        (1/W) sum w grad loss at theta.
    hessian
        (1/W) sum w Hessian of the loss at theta, (d k, d k).
    moment
        (1/W) sum w |x| x x', (d, d).
    kinks
        (1/W) sum w |x|^2 binned by the distance to a jump of the curvature; None
        for a loss without jumps.
    scales
        Sizes of what was summed.
    weight, n_rows
        W and the number of rows.
    """

    objective: Objective
    theta: Vector
    subgradient: Vector | None
    gradient: Vector
    hessian: Symmetric
    moment: Symmetric
    kinks: Vector | None
    scales: Scales
    weight: float
    n_rows: int


def summarise(
    objective: Objective,
    rows: Rows,
    theta: Vector,
    subgradient: Vector | None = None,
) -> Summary:
    """Return the sums over these rows with theta as the anchor.

    ``subgradient`` is one of alpha times the kink at theta, where it is known; a
    smooth objective needs none.
    """
    weight = rows.total_weight
    if not weight > 0.0:
        raise InvalidInput("no rows with positive weight: there is nothing to sum")
    if theta.size != rows.X.shape[1] * objective.loss.outputs:
        raise InvalidInput(
            f"theta has {theta.size} parameters; the rows call for "
            f"{rows.X.shape[1] * objective.loss.outputs}"
        )
    anchor, loss = np.array(theta, dtype=np.float64), objective.loss
    hessian = Symmetric.from_dense(loss_hessian(loss, rows, anchor) / weight)
    moment = Symmetric.from_dense(norm_moment(rows) / weight)
    jumps = loss.curvature_jump > 0.0
    return Summary(
        objective=objective,
        theta=anchor,
        subgradient=np.zeros(anchor.size) if objective.smooth else subgradient,
        gradient=loss_slopes(loss, rows, anchor) / weight,
        hessian=hessian,
        moment=moment,
        kinks=kink_masses(loss, rows, anchor) / weight if jumps else None,
        scales=Scales(
            row_norm=largest_norm(rows),
            slope=slope_scale(loss, rows, anchor) / weight,
            square_norm=square_norms(rows) / weight,
            hessian=float(hessian.diagonal.sum()),
            moment=float(moment.diagonal.sum()),
            n_rows=len(rows),
        ),
        weight=weight,
        n_rows=len(rows),
    )
