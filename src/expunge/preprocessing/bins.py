# SPDX-License-Identifier: Apache-2.0
"""Bins: where ranges of numbers end, as a function of the values that rows have.

A value that more than N/k of N rows have is a range of its own. Edges of the others are
quantiles of the different values: the smallest v with k D(v) >= j D, in integers, D(v)
the number of different values up to v, and D of all. Where the same values come again
and again, more than twice each, there are as many edges at quantiles of the rows:
either alone tells little where few values are common and many are rare. Edges are
rounded to a declared quantum. Where no value lies between some, the one beside a common
value stays, or else the lowest, so that no range is empty.

So the rows that remain have, to the bit, the edges that a fit to them has: integers are
compared, and one value at a time is rounded. Edges are public, as categories are.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import floor, log10

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Vector

# A guessed quantum is at most this share of how far edges typically are apart, those of
# so many parts at least.
QUANTA, PARTS = 10, 8
MANY = 1000
MOST_BINS = 10_000  # more take memory, and no column has as many that help


def find_edges(values: Vector, n_bins: int, *, quantum: float) -> Vector:
    """Return where ranges end, each with its end, in order.

    Parameters
    ----------
    values
        The observed values, sorted.
    n_bins
        Into how many parts quantiles divide them.
    quantum
        What quantiles are rounded to.
    """
    if not values.size:
        return values
    ends = np.append(np.flatnonzero(values[1:] != values[:-1]), len(values) - 1)
    distinct, counts = values[ends], np.diff(ends, prepend=-1)
    common = counts * n_bins > len(values)
    alone, others = distinct[common], distinct[~common]
    quantiles = [others[_quantiles(np.ones(len(others), dtype=np.int64), n_bins)]]
    repeated = counts[~common]
    if 2 * len(others) < repeated.sum():
        quantiles.append(others[_quantiles(repeated, n_bins)])
    rounded = np.concatenate(quantiles)
    with np.errstate(over="ignore", under="ignore"):
        near = np.rint(rounded / quantum) * quantum
    rounded = np.where(np.isfinite(near), near, rounded)
    around = np.concatenate([np.nextafter(alone, -np.inf), alone])
    edges = np.concatenate([around, rounded]) + 0.0
    own = np.arange(len(edges)) < len(around)
    below = np.searchsorted(values, edges, side="right")
    order = np.lexsort((edges, ~own, below))
    order = order[(below[order] > 0) & (below[order] < len(values))]
    first = np.unique(below[order], return_index=True)[1]
    found: Vector = edges[order[first]]
    return found


def _quantiles(sizes: NDArray[np.int64], n_bins: int) -> Index:
    """Return where the sum of sizes first reaches j of ``n_bins`` parts of all."""
    if not sizes.size:
        return np.empty(0, dtype=np.intp)
    reached = n_bins * np.cumsum(sizes)
    wanted = np.arange(1, n_bins) * int(sizes.sum())
    return np.asarray(np.searchsorted(reached, wanted))


def guess_quantum(values: Vector, n_bins: int) -> float:
    """Return a quantum for a column: 1, 2 or 5 times a power of ten.

    Of whole numbers it is one at least.

    Parameters
    ----------
    values
        The observed values, in any order.
    n_bins
        Into how many parts quantiles will divide them.
    """
    distinct = np.unique(values)
    sizes = np.ones(len(distinct), dtype=np.int64)
    # Of two bins there is one edge, and no gap to go by.
    edges = np.unique(distinct[_quantiles(sizes, max(n_bins, PARTS))])
    edges = edges if len(edges) > 1 else distinct
    if len(edges) < 2:
        return 1.0
    gaps = np.sort(np.diff(edges / QUANTA))
    # The lower of two in the middle: of two gaps one may lead to a single odd value.
    step = float(gaps[(len(gaps) - 1) // 2])
    if step < 1.0 and (distinct == np.rint(distinct)).all():
        return 1.0
    power = 10.0 ** floor(log10(step))
    fitting = [times * power for times in (1, 2, 5) if times * power <= step]
    return max(fitting, default=power)


def find_bins(edges: Vector, x: Vector) -> Index:
    """Return the range of each value; the number after the last for a missing one."""
    if len(x) < MANY:  # NaN is sorted behind everything
        return np.searchsorted(np.append(edges, np.inf), x)
    # Halving for all at once: NumPy's search waits for each comparison of each value.
    step = 1 << len(edges).bit_length()
    ends = np.append(edges, np.full(step - 1 - len(edges), np.inf))
    found = np.zeros(len(x), dtype=np.intp)
    while step > 1:
        step >>= 1
        found += step * (ends[found + (step - 1)] < x)
    found[np.isnan(x)] = len(edges) + 1
    return found


def name_bins(x: str, edges: Sequence[float]) -> list[str]:
    """Return the names of all ranges of x, and last that of a missing value."""
    if not edges:
        return [f"{x} known", f"{x} missing"]
    inner = [
        f"{x} = {high:.12g}"
        if np.nextafter(high, -np.inf) == low
        else f"{low:.12g} < {x} <= {high:.12g}"
        for low, high in pairwise(edges)
    ]
    first, last = f"{x} <= {edges[0]:.12g}", f"{x} > {edges[-1]:.12g}"
    return [first, *inner, last, f"{x} missing"]
