# SPDX-License-Identifier: Apache-2.0
r"""-P_ij / P_jj of an inverse P = A^-1, for thousands of columns, each rounded once.

A is a matrix of non-negative integers, symmetric and positive definite. With P' near P,
R = I - A P' and |R| < 1 (in Frobenius' norm), P = P' (I - R)^-1, so that

    |p_j - p'_j|_i  <=  |p'_i| |r_j| / (1 - |R|) ,

in Euclidean norms. R costs two thirds of all the work. It is computed in blocks of
columns of A, so that few roundings add up; what they may do is bounded by

    |fl(r_j) - r_j|  <=  g |A| |p'_j| ,   g = (block + 2 n / block + 8) u .

That settles all but some entries in a hundred thousand. For the columns of these, r_j
is computed without rounding, and P' r_j takes off nearly all of the error; what is
left then is solved one by one (``core.decided.Solver``).
"""

from fractions import Fraction
from math import frexp

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ..exceptions import CannotFit
from .arrays import Matrix, Vector
from .decided import ROUNDOFF, SAFETY, Solver

RATIO_BITS = 20  # of the grid: a millionth
BLOCK = 128
COLUMNS = 512  # that are worked on at a time
Ratios = NDArray[np.int32]


def ratios(A: Matrix) -> Ratios:
    """Return the nearest multiples of 2^-RATIO_BITS to -P_ij / P_jj; 0 for i = j.

    Raises CannotFit where A is too near to a singular matrix.
    """
    n = len(A)
    inverse = _invert(A)
    if inverse is None:
        raise CannotFit(TOO_SMALL)
    lengths = np.linalg.norm(inverse, axis=0) * SAFETY
    residuals, sums = _residuals(A, inverse)
    roundings = _rounding(n) * float(np.linalg.norm(A)) * SAFETY * lengths
    bounds = residuals + roundings
    whole = float(np.linalg.norm(bounds)) * SAFETY
    contraction = float(np.max(sums + np.sqrt(n) * roundings)) * SAFETY
    if not max(whole, contraction) < 0.25:
        raise CannotFit(TOO_SMALL)
    found = np.empty((n, n), dtype=np.int32)
    left: list[int] = []
    for begin in range(0, n, COLUMNS):
        at = np.arange(begin, min(begin + COLUMNS, n))
        columns = inverse[:, at]
        errors = np.outer(lengths, bounds[at] / (1.0 - whole) * SAFETY)
        rounded, sure = _round(columns, errors, at=at)
        found[:, at] = rounded
        left += at[~sure.all(axis=0)].tolist()
    solver = None
    for begin in range(0, len(left), COLUMNS):
        at = np.array(left[begin : begin + COLUMNS])
        rounded, sure = _refine(A, inverse, at=at, lengths=lengths, whole=whole)
        found[:, at] = rounded
        for place, j in enumerate(at.tolist()):
            if not sure[:, place].all():
                solver = solver or Solver.near(A, inverse, contraction=contraction)
                found[:, j] = _solve(solver, j)
    return found


TOO_SMALL = (
    "l2 is so small beside the numbers of users that rounding has no bound; raise it"
)


def _rounding(n: int) -> float:
    """Return g, see above."""
    return (BLOCK + 2.0 * n / BLOCK + 8.0) * ROUNDOFF * SAFETY


def _invert(A: Matrix) -> Matrix | None:
    """Return the inverse, symmetric to the last bit; None if it has none."""
    factor, failed = lapack.dpotrf(A, lower=1)
    if failed:
        return None
    inverse, failed = lapack.dpotri(factor, lower=1, overwrite_c=1)
    if failed:
        return None
    whole: Matrix = np.tril(inverse)
    whole += np.tril(inverse, -1).T
    return whole


def _residuals(A: Matrix, inverse: Matrix) -> tuple[Vector, Vector]:
    """Return the lengths of the columns of I - A P', and sums of their sizes."""
    n = len(A)
    lengths, sums = np.empty(n), np.empty(n)
    for begin in range(0, n, COLUMNS):
        at = slice(begin, min(begin + COLUMNS, n))
        left = np.zeros((n, at.stop - begin))
        left[np.arange(begin, at.stop), np.arange(at.stop - begin)] = 1.0
        for first in range(0, n, BLOCK):
            some = slice(first, first + BLOCK)
            left -= A[:, some] @ inverse[some, at]
        lengths[at] = np.linalg.norm(left, axis=0)
        sums[at] = np.abs(left).sum(axis=0)
    return lengths * SAFETY, sums * SAFETY


def _round(
    columns: Matrix, errors: Matrix, *, at: NDArray[np.intp]
) -> tuple[Ratios, NDArray[np.bool]]:
    """Return rounded ratios of columns that are off by so much, and if sure."""
    places = np.arange(len(at))
    own, off = columns[at, places], errors[at, places]
    quotients = -columns / own
    size = np.abs(quotients)
    worst = (errors + size * off) / np.maximum(own - off, 0.0) + 4.0 * ROUNDOFF * size
    scaled = quotients * 2.0**RATIO_BITS
    rounded = np.rint(scaled)
    sure = np.abs(scaled - rounded) + worst * 2.0**RATIO_BITS * SAFETY < 0.5
    rounded[at, places], sure[at, places] = 0.0, own > off
    if np.abs(rounded).max(initial=0.0) >= 2.0**31:
        raise CannotFit(TOO_SMALL)
    return rounded.astype(np.int32), sure


def _refine(
    A: Matrix,
    inverse: Matrix,
    *,
    at: NDArray[np.intp],
    lengths: Vector,
    whole: float,
) -> tuple[Ratios, NDArray[np.bool]]:
    """Return rounded ratios of columns whose residual is computed without rounding.

    A column is cut into digits whose products with A doubles add exactly. They are put
    together modulo 2^64, which no residual exceeds.
    """
    n = len(A)
    columns = inverse[:, at]
    scale = 52 - frexp(float(np.abs(columns).max()))[1]
    numbers = np.rint(columns * 2.0**scale).astype(np.int64)
    digit = 52 - int(A.max()).bit_length() - n.bit_length()
    if digit < 1 or not whole * 2.0**scale < 2.0**62:
        return np.zeros((n, len(at)), np.int32), np.zeros((n, len(at)), bool)
    left = np.zeros((n, len(at)), dtype=np.uint64)
    if scale < 64:
        left[at, np.arange(len(at))] = np.uint64(1 << scale)
    signs, sizes, power = np.sign(numbers), np.abs(numbers), 0
    while sizes.any():
        cut = (signs * (sizes & ((1 << digit) - 1))).astype(np.float64)
        product = (A @ cut).astype(np.int64).astype(np.uint64)
        left -= product << np.uint64(power) if power < 64 else np.uint64(0)
        sizes >>= digit
        power += digit
    residual = left.astype(np.int64).astype(np.float64) * 2.0**-scale
    moved = numbers * 2.0**-scale + inverse @ residual
    size = np.linalg.norm(residual, axis=0) * (whole / (1.0 - whole) + n * 2.0**-51)
    errors = np.outer(lengths, size * SAFETY) + 2.0 * ROUNDOFF * np.abs(moved)
    return _round(moved, errors, at=at)


def _solve(solver: Solver, j: int) -> Ratios:
    """Return the rounded ratios of one column, from ever narrower enclosures."""
    n = solver.width
    right = [0] * n
    right[j] = 1
    most = solver.denominator_bits + RATIO_BITS + 2
    for found in solver.enclose(right):
        below = found.numbers[j] - found.error, found.numbers[j] + found.error
        if below[0] <= 0:
            continue
        ends = [
            [
                round(Fraction(-(z + s * found.error) << RATIO_BITS, d))
                for s in (-1, 1)
                for d in below
            ]
            for z in found.numbers
        ]
        ends[j] = [0]
        narrow = found.bits - found.error.bit_length() > 2 * most
        if narrow or all(min(some) == max(some) for some in ends):
            break
    # Still undecided they are midpoints: the even neighbour.
    lows = [(min(some), max(some)) for some in ends]
    best = [low if low == high or not low & 1 else high for low, high in lows]
    return np.array(best, dtype=np.int32)


def lower_triangle(packed: NDArray[np.int64], n: int) -> Matrix:
    """Return the symmetric matrix whose lower triangle is packed row by row."""
    whole = np.zeros((n, n))
    for i in range(n):
        begin = i * (i + 1) // 2
        whole[i, : i + 1] = packed[begin : begin + i + 1]
    diagonal = whole.diagonal().copy()
    whole += whole.T
    whole[np.arange(n), np.arange(n)] = diagonal
    return whole
