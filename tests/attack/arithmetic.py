# SPDX-License-Identifier: Apache-2.0
"""Means and deviations of a column, from integers without rounding.

What the package claims to be equal to the last bit is computed here a second time, by
other means: every double is a fraction with a power of two below.
"""

from math import isqrt

import numpy as np

from .losses import Array

BITS = 256  # of a square root, far beyond the 53 that are kept


def whole(column: Array) -> tuple[list[int], int]:
    """Return the numbers as integers over a common denominator."""
    ratios = [float(x).as_integer_ratio() for x in column]
    below = max((under for _, under in ratios), default=1)
    return [above * (below // under) for above, under in ratios], below


def mean_and_deviation(column: Array, weight: Array) -> tuple[float, float]:
    """Return the weighted mean and standard deviation of the observed values.

    NaN if nothing is observed, or nothing with a positive weight.
    """
    seen = ~np.isnan(column)
    xs, x_below = whole(column[seen])
    ws, _ = whole(weight[seen])
    zeroth = sum(ws)
    if zeroth == 0:
        return float("nan"), float("nan")
    first = sum(w * x for w, x in zip(ws, xs, strict=True))
    second = sum(w * x * x for w, x in zip(ws, xs, strict=True))
    mean = first / (zeroth * x_below)
    square = zeroth * second - first * first
    root = isqrt(square << (2 * BITS))
    return mean, root / ((zeroth * x_below) << BITS)
