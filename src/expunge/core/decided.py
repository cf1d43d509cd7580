# SPDX-License-Identifier: Apache-2.0
r"""Rounding that is decided: the nearest number of a grid to what sums determine.

What floating-point arithmetic returns depends on the library, on its threads and on the
processor. So it is not published. Each approximation comes with a bound on its error;
where no midpoint of the grid lies within the bound, the nearest number of the grid is
known, and it is a function of the sums alone. Where one does, more digits are computed
until none does. ``docs/exact.md`` has the proofs.

    quotients     integers, divided once: IEEE 754 rounds correctly
    logarithms    NumPy's, then ``decimal``, whose logarithms are rounded correctly
    solutions     A x = b in integers: see ``Solver``
"""

from collections.abc import Callable, Iterator, Mapping
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from math import frexp, ldexp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ..exceptions import CannotFit
from .arrays import Matrix, Vector
from .values import Private
from .whole_sums import PART_BITS, Whole

ROUNDOFF = 2.0**-53
LOG_BITS = 32  # of the grid of logarithms, after the point
# NumPy holds its logarithm to four units in the last place; the rest is for the
# quotient that it is taken of.
LOG_ERROR = 16.0 * 2.0**-52
FRESH_BITS = 56  # of a correction that are carried on
SLOW_WIDTH = 100  # of a matrix that is eliminated in fractions: some seconds
SAFETY = 1.0 + 2.0**-20  # for the few operations that a bound itself takes


def quotients(numerators: NDArray[Any], denominators: NDArray[Any]) -> Vector:
    """Return quotients of integers, each rounded once."""
    top, bottom = np.broadcast_arrays(numerators, denominators)
    small = (np.abs(top) < 2**53) & (bottom < 2**53)
    found = np.array(top, dtype=np.float64) / np.array(bottom, dtype=np.float64)
    for place in zip(*np.nonzero(~small), strict=True):
        found[place] = int(top[place]) / int(bottom[place])  # Python rounds correctly
    return found


def round_logs(
    approximate: Vector,
    exact: Callable[[int], Mapping[Fraction, int]],
    *,
    error: Vector | None = None,
) -> Vector:
    """Return logarithms on the grid of 2^-LOG_BITS, each the nearest to its own.

    Parameters
    ----------
    approximate
        What NumPy says; an infinite one stays.
    exact
        Returns the number whose logarithm is meant, by its flat position: its factors,
        all positive, with their powers.
    error
        How far what NumPy says may be off; by default, if it took one logarithm.
    """
    flat = approximate.ravel()
    finite = np.isfinite(flat)
    scaled = np.where(finite, flat, 0.0) * 2.0**LOG_BITS
    rounded = np.rint(scaled)
    off = LOG_ERROR * (1.0 + np.abs(np.where(finite, flat, 0.0)))
    off = 2.0**LOG_BITS * (off if error is None else error.ravel())
    for place in np.flatnonzero(np.abs(scaled - rounded) + off >= 0.5).tolist():
        rounded[place] = _round_log(exact(place))
    published = np.where(finite, rounded * 2.0**-LOG_BITS, flat)
    return (published + 0.0).reshape(approximate.shape)


def _round_log(factors: Mapping[Fraction, int]) -> int:
    """Return the nearest multiple of 2^-LOG_BITS to a logarithm, times 2^LOG_BITS.

    The logarithm of a rational number is zero or irrational, and no midpoint of the
    grid is either: some number of digits settles it.
    """
    digits = 40
    while True:
        with localcontext(Context(prec=digits)):
            total = size = Decimal(0)
            for factor, power in factors.items():
                top, bottom = (Decimal(n).ln() for n in factor.as_integer_ratio())
                total += power * (top - bottom)
                size += power * (top + bottom + 1)
            scaled = total * 2**LOG_BITS
            error = size * 2**LOG_BITS * len(factors) * Decimal(10) ** (3 - digits)
            low, high = (
                int((scaled + sign * error).to_integral_value()) for sign in (-1, 1)
            )
        if low == high:
            return low
        digits *= 2


class Enclosure(NamedTuple):
    """Where a solution lies: |x_j 2^t_j - numbers_j 2^-bits| <= error 2^-bits."""

    numbers: list[int]
    bits: int
    error: int
    scale: list[int]

    def round(self, place: int, grid: int) -> tuple[int, int]:
        """Return between which multiples of 2^-grid an entry, rounded, lies."""
        shift = self.bits + self.scale[place] - grid
        low, high = (self.numbers[place] + sign * self.error for sign in (-1, 1))
        return shift_half_even(low, shift), shift_half_even(high, shift)


def shift_half_even(number: int, shift: int) -> int:
    """Return 2^-shift number as the nearest integer, the even one of two."""
    if shift <= 0:
        return number << -shift
    down, rest = number >> shift, number & ((1 << shift) - 1)
    half = 1 << (shift - 1)
    return down + (rest > half or (rest == half and down & 1))


class Solver(Private):
    """A x = b, for a symmetric positive definite matrix of integers, in enclosures.

    With M near the inverse of the scaled matrix A' = T A T (T powers of two) and a
    bound q < 1 on the rows of |I - M A'|, whatever z is, and r = T b - A' z computed
    in integers,

        |A'^-1 T b - z| <= max |M r| / (1 - q) .

    Each step adds M r to z and so gains about as many digits as the first.

    Parameters
    ----------
    parts
        The matrix, (l, d, d), as ``WholeSums`` has it.
    """

    def __init__(self, parts: Whole) -> None:
        negative = parts[-1] < 0
        size = np.where(negative, -parts, parts)
        for low in range(len(size) - 1):
            size[low + 1] += size[low] >> PART_BITS
            size[low] &= (1 << PART_BITS) - 1
        while len(size) > 1 and not size[-1].any():
            size = size[:-1]
        sign = np.where(negative, -1.0, 1.0)
        self.parts = [sign * part.astype(np.float64) for part in size]
        self.width = parts.shape[1]
        self.diagonal = [
            sum(int(part[j, j]) << (PART_BITS * at) for at, part in enumerate(size))
            for j in range(self.width)
        ]
        self.scale = [(one.bit_length() + 1) // 2 for one in self.diagonal]
        # Of a solution's common denominator, by Hadamard's inequality.
        self.denominator_bits = sum(one.bit_length() for one in self.diagonal)
        # Exact digits of a vector that the parts are multiplied by.
        most = max(int(part.max(initial=0)).bit_length() for part in size)
        self.digit = 52 - most - self.width.bit_length()
        if self.digit < 1:
            raise CannotFit(
                f"{self.width} columns, and products of this size: exact sums carry "
                "fewer; take fewer columns"
            )
        self.inverse, self.contraction = self._invert()

    @classmethod
    def near(cls, A: Matrix, inverse: Matrix, *, contraction: float) -> "Solver":
        """Return the solver for integers in doubles, and an inverse that is at hand.

        ``contraction`` bounds the row sums of I - inverse A; nothing is scaled.
        """
        solver = object.__new__(cls)
        solver.parts, solver.width = [A], len(A)
        solver.diagonal = [int(one) for one in A.diagonal()]
        solver.scale = [0] * len(A)
        solver.denominator_bits = sum(one.bit_length() for one in solver.diagonal)
        solver.digit = 52 - int(A.max()).bit_length() - len(A).bit_length()
        solver.inverse, solver.contraction = inverse, contraction
        return solver

    def _invert(self) -> tuple[Matrix, float]:
        """Return M and q; infinite if the matrix is too near to a singular one."""
        scale = np.array(self.scale)
        exponents = -(scale[:, None] + scale)
        scaled = np.zeros((self.width, self.width))
        for at, part in reversed(list(enumerate(self.parts))):
            scaled += np.ldexp(part, exponents + PART_BITS * at)
        factor, failed = lapack.dpotrf(scaled, lower=1)
        if not failed:
            inverse, failed = lapack.dpotri(factor, lower=1)
        if failed:
            return np.zeros_like(scaled), np.inf
        lower = np.tril(inverse)
        inverse = lower + np.tril(inverse, -1).T
        left = np.abs(np.eye(self.width) - inverse @ scaled).sum(axis=1)
        sizes = np.abs(inverse) @ np.abs(scaled).sum(axis=1)
        rounding = (self.width + len(self.parts) + 8) * ROUNDOFF
        return inverse, float(np.max(left + 2.0 * rounding * (1.0 + sizes)) * SAFETY)

    def enclose(self, right: list[int]) -> Iterator[Enclosure]:
        """Yield ever narrower enclosures of A^-1 right; the last one is exact."""
        if not self.contraction < 0.5 and self.width > SLOW_WIDTH:
            raise CannotFit(
                f"the {self.width} columns are so nearly dependent that doubles cannot "
                f"tell, and fractions are for {SLOW_WIDTH} at most; raise alpha, or "
                "leave columns out"
            )
        if not self.contraction < 0.5:
            yield from self._enclose_slowly(right)
            return
        numbers, bits = [0] * self.width, 0
        top = max(self.scale)
        sizes = np.abs(self.inverse)
        rounding = 2.0 * (self.width + 4) * ROUNDOFF
        while True:
            lifted = [z << (top - t) for z, t in zip(numbers, self.scale, strict=True)]
            image = self._times(lifted)
            left = [(b << (bits + top)) - y for b, y in zip(right, image, strict=True)]
            if not any(left):
                yield Enclosure(numbers, bits, 0, self.scale)
                return
            # In floats of one exponent, which may be far out of their range.
            shift = max(map(int.bit_length, left)) - FRESH_BITS
            exponent = shift - bits - top
            short = [
                ldexp(n >> shift if shift > 0 else n << -shift, -t)
                for n, t in zip(left, self.scale, strict=True)
            ]
            residual = np.array(short)
            step = self.inverse @ residual
            # What was cut off below 2^shift is a unit of the residual, at most.
            worst = np.abs(step) + sizes @ (rounding * np.abs(residual) + 2.0)
            bound = float(worst.max()) / (1.0 - self.contraction) * SAFETY
            # 2^exponent bound, in units of 2^-bits.
            error = _ceil_shifted(bound, exponent + bits)
            yield Enclosure(numbers, bits, error, self.scale)
            fresh = FRESH_BITS - exponent - frexp(float(np.abs(step).max()))[1]
            more = max(fresh - bits, 0)
            moved = [_round_shifted(float(s), exponent + bits + more) for s in step]
            numbers = [(z << more) + m for z, m in zip(numbers, moved, strict=True)]
            bits += more

    def _times(self, vector: list[int]) -> list[int]:
        """Return the product with a vector of integers, exactly."""
        digit, mask = self.digit, (1 << self.digit) - 1
        n_digits = max(map(int.bit_length, vector)) // digit + 1
        signs = [-1 if one < 0 else 1 for one in vector]
        cut = np.array(
            [
                [s * ((abs(one) >> (digit * at)) & mask) for at in range(n_digits)]
                for s, one in zip(signs, vector, strict=True)
            ],
            dtype=np.float64,
        )
        total = [0] * self.width
        for power, part in enumerate(self.parts):
            for row, found in enumerate((part @ cut).astype(np.int64).tolist()):
                value = 0
                for one in reversed(found):
                    value = (value << digit) + one
                total[row] += value << (PART_BITS * power)
        return total

    def _enclose_slowly(self, right: list[int]) -> Iterator[Enclosure]:
        """Yield the exact solution, by elimination in fractions."""
        numerators, denominator = eliminate(self._integers(), right)
        if not denominator:
            raise CannotFit(
                "the columns are linearly dependent, so that no one solution is best; "
                "leave a column out, or penalise (alpha above zero)"
            )
        bits = self.denominator_bits + max(map(int.bit_length, numerators)) + 4
        while True:
            numbers = [
                (n << (bits + t)) // denominator
                for n, t in zip(numerators, self.scale, strict=True)
            ]
            yield Enclosure(numbers, bits, 1, self.scale)
            bits *= 2

    def _integers(self) -> list[list[int]]:
        total = np.zeros((self.width, self.width), dtype=object)
        for part in reversed(self.parts):
            total = (total << PART_BITS) + part.astype(np.int64).astype(object)
        rows: list[list[int]] = total.tolist()
        return rows


def eliminate(matrix: list[list[int]], right: list[int]) -> tuple[list[int], int]:
    """Return numerators and the denominator of A^-1 right; zero if A is singular.

    Bareiss 1968: every division is exact, and every entry a minor.
    """
    rows = [[*row, b] for row, b in zip(matrix, right, strict=True)]
    size, before = len(rows), 1
    for k in range(size):
        pivot = next((i for i in range(k, size) if rows[i][k]), None)
        if pivot is None:
            return [0] * size, 0
        if pivot != k:
            rows[k], rows[pivot] = [-one for one in rows[pivot]], rows[k]
        head = rows[k]
        for i in range(size):
            if i == k:
                continue
            row, factor = rows[i], rows[i][k]
            rows[i] = [
                (head[k] * one - factor * other) // before
                for one, other in zip(row, head, strict=True)
            ]
        before = head[k]
    return [row[-1] for row in rows], before


def _ceil_shifted(value: float, exponent: int) -> int:
    """Return 2^exponent value as an integer, rounded up."""
    top, bottom = value.as_integer_ratio()
    top, bottom = (
        (top << exponent, bottom) if exponent >= 0 else (top, bottom << -exponent)
    )
    return -(-top // bottom)


def _round_shifted(value: float, exponent: int) -> int:
    """Return 2^exponent value as an integer, rounded down."""
    top, bottom = value.as_integer_ratio()
    top, bottom = (
        (top << exponent, bottom) if exponent >= 0 else (top, bottom << -exponent)
    )
    return top // bottom


def solve_rounded(solver: Solver, right: list[int], *, grid: list[int]) -> list[int]:
    """Return the solution in multiples of 2^-grid_j, each the nearest to its own.

    If a midpoint of the grid is closer than the common denominator allows for any other
    number, it is the solution, and the even neighbour is taken.
    """
    for found in solver.enclose(right):
        ends = [found.round(j, grid[j]) for j in range(len(grid))]
        if all(low == high for low, high in ends):
            break
        far = max(0, *(g + 1 for g in grid)) + max(found.scale) + 2
        if found.bits - found.error.bit_length() > solver.denominator_bits + far:
            break
    return [low if low == high or not low & 1 else high for low, high in ends]
