# SPDX-License-Identifier: Apache-2.0
"""Discrete Gaussians from tables.

A discrete Gaussian of deviation s has P(x) proportional to exp(-x^2 / (2 s^2)) on the
integers. ``TableSampler`` adds five narrow ones,

    x = y_0 + 32 y_1 + 32^2 y_2 + 32^3 y_3 + 32^4 y_4,

each of deviation s_0 = s / sqrt(sum 32^2i) and drawn from a table of cumulative
probabilities. The sum has the law of the wide one up to a factor within 1 -+ 2e-136
(Poisson summation; Micciancio and Walter, CRYPTO 2017), and a table is off by less than
2^-242 in total variation: docs/noise.md derives both.

A draw compares 256 random bits with the table. The first 32 decide all but one draw in
a million; the others are asked for only then. Nothing here draws random bits: they
come from the function that a sampler is given.
"""

from bisect import bisect_right
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import lru_cache
from math import ceil, sqrt
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..exceptions import InvalidInput

if TYPE_CHECKING:  # SciPy takes a while to import, and a key is drawn without it
    from ..core.arrays import Vector

RandomBytes: TypeAlias = Callable[[int], bytes]

BASE, LEVELS = 32, 5
POWERS = np.array([float(BASE**level) for level in range(LEVELS)])
# Variance of the sum, in units of one term's.
VARIANCES = sum(BASE ** (2 * level) for level in range(LEVELS))
# What the proof covers: terms wide enough that 32 steps of one are smooth to the next.
NARROWEST, WIDEST = 2.0**27, 2.0**28
# Bits compared in all, and at first; cells of the guide go by half of the first.
BITS, FIRST_BITS, CELL_BITS = 256, 32, 16
# Deviations that a table covers. Beyond lies less than 2^-264.
REACH = 19
# Of the fixed-point numbers that tables are computed with, behind the point.
FRACTION_BITS = 400
# Bound on the total variation between a drawn coordinate and a discrete Gaussian.
VARIATION = 2.0**-240

UNSETTLED = np.iinfo(np.int16).min


class TableSampler:
    """Discrete Gaussians of deviation 2^27 to 2^28, many at a time.

    Parameters
    ----------
    scale
        Their deviation.
    random_bytes
        Returns as many fresh random bytes as asked for, from a secure source.
    """

    def __init__(self, scale: float, random_bytes: RandomBytes) -> None:
        self._random_bytes = random_bytes
        self._thresholds = make_thresholds(scale)
        self._first, self._guide = _make_guide(scale)
        self._offset = len(self._thresholds) // 2

    def __call__(self, size: int) -> "Vector":
        """Return this many independent draws, integers."""
        drawn = self._random_bytes(size * LEVELS * FIRST_BITS // 8)
        words = np.frombuffer(drawn, dtype=np.uint32)
        terms = self._guide[words >> CELL_BITS]
        unsettled = np.flatnonzero(terms == UNSETTLED)
        terms[unsettled] = self._search(words[unsettled])
        draws: Vector = terms.reshape(size, LEVELS).astype(np.float64) @ POWERS
        return draws

    def _search(self, words: NDArray[np.uint32]) -> NDArray[np.intp]:
        """Return the draws that words decide, with further bits where they do not."""
        # Both of one type: numpy would compare different ones as floats, inexactly.
        below = np.searchsorted(self._first, words, side="left")
        tied = self._first[np.minimum(below, len(self._first) - 1)] == words
        for index in np.flatnonzero(tied):
            below[index] = self._decide_tie(int(words[index]))
        return below - self._offset

    def _decide_tie(self, word: int) -> int:
        """Return the number of thresholds up to this word and further bits."""
        rest = BITS - FIRST_BITS
        further = int.from_bytes(self._random_bytes(rest // 8), "big")
        return bisect_right(self._thresholds, word << rest | further)


@lru_cache(maxsize=8)
def make_thresholds(scale: float) -> tuple[int, ...]:
    """Return floor(2^256 P(y < k)) for the term's values k, all but the smallest.

    A draw is the smallest value plus the number of thresholds that are at most 256
    random bits. The masses follow from each other, exp(-(y + 1)^2 c) = exp(-y^2 c)
    exp(-c) exp(-2c)^y, in integers with 400 bits behind the point.

    Parameters
    ----------
    scale
        Deviation of the sum of all terms.
    """
    if not NARROWEST <= scale < WIDEST:
        raise InvalidInput(
            f"scale={scale}; tables are made for deviations from 2^27 to 2^28 steps of "
            "the grid (Budget.grid chooses it so)"
        )
    with localcontext(prec=150):
        rate = (-Decimal(VARIANCES) / (2 * Decimal(scale) ** 2)).exp()
        ratio = int(rate * (1 << FRACTION_BITS))
    faster = ratio * ratio >> FRACTION_BITS
    masses = [1 << FRACTION_BITS]
    for _ in range(ceil(REACH * scale / sqrt(VARIANCES))):
        masses.append(masses[-1] * ratio >> FRACTION_BITS)
        ratio = ratio * faster >> FRACTION_BITS
    both_sides = masses[:0:-1] + masses
    total, below, thresholds = sum(both_sides), 0, []
    for mass in both_sides[:-1]:
        below += mass
        thresholds.append((below << BITS) // total)
    return tuple(thresholds)


@lru_cache(maxsize=8)
def _make_guide(scale: float) -> tuple[NDArray[np.uint32], NDArray[np.int16]]:
    """Return the thresholds' first bits, and the draw of each cell of words.

    A cell is all words with the same upper half. Where no threshold begins in it, all
    its words draw the same; elsewhere the guide says that you have to search.
    """
    thresholds = make_thresholds(scale)
    rest = BITS - FIRST_BITS
    first = np.array([threshold >> rest for threshold in thresholds], dtype=np.uint32)
    start = np.arange(1 << CELL_BITS, dtype=np.uint32) << np.uint32(CELL_BITS)
    end = start | np.uint32((1 << CELL_BITS) - 1)
    below = np.searchsorted(first, start, side="left")
    settled = below == np.searchsorted(first, end, side="right")
    guide = np.where(settled, below - len(thresholds) // 2, UNSETTLED)
    return first, guide.astype(np.int16)
