# SPDX-License-Identifier: Apache-2.0
"""Local distances: how far a minimiser can be, where the curvature fades slowly."""

from math import inf, log1p

import numpy as np

from ..core.arrays import Vector


def local_distance(decrement: float, R: float) -> float:
    """Return -ln(1 - R decrement) / R, a bound on the distance to the minimiser.

    Let D be the way from theta to theta*, decrement a bound on the dual norm of the
    gradient at theta, and let the curvature fall by no more than e^(-R |D| t) on the
    first part t of that way. The gradient vanishes at theta* and is monotone, so

        decrement |D| >= |D|^2 int_0^1 e^(-R |D| t) dt = |D| (1 - e^(-R |D|)) / R,

    which is the bound, solved for |D|. If R decrement < 1, theta* exists; otherwise
    nothing is known and the bound is infinite. At R = 0 it is the decrement itself.
    Losses whose third derivative is at most c times the second behave like this, R
    being c times the norm of the longest row: Bach, *Self-concordant analysis for
    logistic regression*, Electronic Journal of Statistics 4 (2010); Sun and Tran-Dinh,
    *Generalized self-concordant functions*, Mathematical Programming 178 (2019).
    """
    reach = R * decrement
    if not reach < 1.0:
        return inf
    # As a factor of what it is near zero: R times a small decrement may underflow.
    return decrement * (-log1p(-reach) / reach if reach else 1.0)


def local_distances(decrements: Vector, R: float) -> Vector:
    """Return ``local_distance`` of each decrement.

    Written out, because a loop over rows would cost more than the rest of a bound, and
    NumPy's logarithm can differ from the C library's in the last bit.
    """
    reach = R * decrements
    positive, inside = reach > 0.0, reach < 1.0
    usable = np.where(positive & inside, reach, 0.5)
    factor = np.where(positive, -np.log1p(-usable) / usable, 1.0)
    return np.where(inside, decrements * factor, inf)
