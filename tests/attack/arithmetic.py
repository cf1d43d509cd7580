# SPDX-License-Identifier: Apache-2.0
"""Means, deviations and categories of a column, from integers without rounding.

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


def standardise(X: Array, weight: Array) -> Array:
    """Return the columns minus their means, divided by their deviations."""
    figures = [mean_and_deviation(column, weight) for column in X.T]
    mean = np.array([m for m, _ in figures])
    scale = np.array([s if s != 0.0 else 1.0 for _, s in figures])
    return np.asarray((X - mean) / scale)


def fill_missing(X: Array, weight: Array) -> Array:
    """Return the columns with missing values replaced by the mean, or by zero."""
    means = np.array([mean_and_deviation(column, weight)[0] for column in X.T])
    return np.where(np.isnan(X), np.where(np.isnan(means), 0.0, means), X)


def indicators(X: Array, weight: Array, least: float) -> Array:
    """Return a column for each category of each feature; rare ones share one."""
    blocks = []
    for column in X.T:
        ws, below = whole(weight)
        there = sorted({x for x, w in zip(column, ws, strict=True) if w})
        mass = {
            x: sum(w for w, c in zip(ws, column, strict=True) if c == x) for x in there
        }
        own = [x for x in there if mass[x] >= least * below]
        rare = [x for x in there if mass[x] < least * below]
        blocks += [column == x for x in own]
        if rare:
            blocks.append(np.isin(column, rare))
    if not blocks:
        return np.zeros((len(X), 0))
    return np.column_stack(blocks).astype(float)
