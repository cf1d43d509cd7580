# SPDX-License-Identifier: Apache-2.0
r"""Sums of floating-point numbers without rounding, so that terms can be removed.

Every double is an integer times 2^-UNIT, every product of k of them an integer times
2^-(k UNIT), and Python's integers have room for any number of these:

    S_p = sum_i w_i x_i^p ,   p = 0, 1, 2 .

Such sums do not depend on the order of rows, and subtracting or adding rows gives
exactly the integers that summing the rows after it gives. Running means do neither:
they round at every step, and what rounding leaves behind depends on the row.

Most of the work is vectorised: mantissas are cut into limbs whose products fit 64
bits, and entries of equal exponent are added in 64 bits before Python's integers
take over.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt, nan

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exceptions import CannotRemove, UnknownRows
from .arrays import Design, Index, Vector
from .values import Private, stored

MANTISSA_BITS = 53
LOWEST_EXPONENT = -1073  # of the smallest double, as frexp gives it
UNIT = MANTISSA_BITS - LOWEST_EXPONENT

# A product of three mantissas has limbs below 2^46, of which 2^16 fit 63 bits.
LIMB_BITS = 14
N_LIMBS = 4
BLOCK = 2**16
CHUNK = 2**20  # entries of a dense design that are laid out at a time
ROOT_BITS = 256  # of what a square root is taken of, at least
MOST_KEYS = 2**18  # of a table with a place for each, which saves sorting
FEW = 8  # rows that are summed faster one by one

STRANGERS = (
    "these rows cannot all have been fitted, or not with these weights; pass the rows "
    "exactly as they were fitted; nothing was removed"
)
NOBODY_LEFT = "no row with positive weight would be left; nothing was removed"


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ColumnSums(Private):
    """Exact sums over the observed entries of each column.

    Attributes
    ----------
    total
        Weight of all rows, in units of 2^-UNIT.
    powers
        S_p of each column, in units of 2^-((p + 1) UNIT); S_0 is the weight of the
        observed entries.
    """

    total: int
    powers: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, X: Design, weight: Vector | None, highest: int) -> "ColumnSums":
        """Return the sums of these rows up to the ``highest`` power; NaN is missing."""
        if X.shape[0] <= FEW and not sparse.issparse(X):
            return _sum_few(X, weight, highest)
        total = total_weight(weight, X.shape[0])
        powers: list[list[int]] = [[] for _ in range(highest + 1)]
        for entries in _columns(X, weight):
            missing = np.isnan(entries.values)
            absent = entries.where(missing).sums(0)
            powers[0] += [total - part for part in absent]
            present = entries.where(~missing & (entries.values != 0.0))
            for p in range(1, highest + 1):
                powers[p] += present.sums(p)
        return cls(total, tuple(tuple(sums) for sums in powers))

    def add(self, come: "ColumnSums") -> "ColumnSums":
        """Return the sums with these rows too."""
        powers = tuple(
            tuple(a + b for a, b in zip(mine, theirs, strict=True))
            for mine, theirs in zip(self.powers, come.powers, strict=True)
        )
        return ColumnSums(self.total + come.total, powers)

    def subtract(self, gone: "ColumnSums") -> "ColumnSums":
        """Return the sums without these rows.

        Raises UnknownRows if no rows could have the sums that would be left, and
        CannotRemove if no rows would be left.
        """
        powers = tuple(
            tuple(a - b for a, b in zip(mine, theirs, strict=True))
            for mine, theirs in zip(self.powers, gone.powers, strict=True)
        )
        left = ColumnSums(self.total - gone.total, powers)
        if left.total < 0 or not all(map(left._possible, zip(*powers, strict=True))):
            raise UnknownRows(STRANGERS)
        if left.total == 0:
            raise CannotRemove(NOBODY_LEFT)
        return left

    def _possible(self, column: tuple[int, ...]) -> bool:
        """Whether some rows have these sums: S_0 >= 0 and S_0 S_2 >= S_1^2."""
        weight, *rest = column
        if weight == 0:
            return not any(rest)
        varied = len(rest) < 2 or weight * rest[1] >= rest[0] ** 2
        return 0 < weight <= self.total and varied


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Entries(Private):
    """Numbers with the bin that each is added to, and its weight if it has one."""

    values: Vector
    bins: Index
    n_bins: int
    weight: Vector | None

    def where(self, mask: NDArray[np.bool]) -> "Entries":
        """Return the entries at which the mask is true."""
        weight = None if self.weight is None else self.weight[mask]
        return Entries(self.values[mask], self.bins[mask], self.n_bins, weight)

    def sums(self, power: int) -> list[int]:
        """Return sum w x^power of each bin, in units of 2^-((power + 1) UNIT)."""
        factors = [self.values] * power
        if self.weight is not None:
            return exact_sums([*factors, self.weight], self.bins, n_bins=self.n_bins)
        if not factors:
            counts = np.bincount(self.bins, minlength=self.n_bins)
            return [count << UNIT for count in counts.tolist()]
        return [s << UNIT for s in exact_sums(factors, self.bins, n_bins=self.n_bins)]


def _sum_few(X: Design, weight: Vector | None, highest: int) -> ColumnSums:
    """Return the sums of a few rows, one entry after the other."""
    weights = [1 << UNIT] * X.shape[0]
    if weight is not None:
        weights = [to_units(w) for w in weight.tolist()]
    columns = []
    for column in np.asarray(X).T.tolist():
        sums = [0] * (highest + 1)
        for x, w in zip(column, weights, strict=True):
            if x == x:
                unit, term = to_units(x), w
                for p in range(highest + 1):
                    sums[p] += term
                    term *= unit
        columns.append(sums)
    powers = tuple(tuple(sums[p] for sums in columns) for p in range(highest + 1))
    return ColumnSums(sum(weights), powers)


def total_weight(weight: Vector | None, n_rows: int) -> int:
    """Return the exact sum of weights, 1 each if not given, in units of 2^-UNIT."""
    if weight is None:
        return n_rows << UNIT
    return exact_sums([weight], np.zeros(n_rows, dtype=np.intp), n_bins=1)[0]


def exact_sums(factors: Sequence[Vector], bins: Index, *, n_bins: int) -> list[int]:
    """Return, for each bin, the sum of products of up to three finite factors.

    In units of 2^-(k UNIT) for k factors.
    """
    totals = [0] * n_bins
    for begin in range(0, len(bins), BLOCK):
        part = slice(begin, begin + BLOCK)
        _add_block(totals, [factor[part] for factor in factors], bins=bins[part])
    return totals


def _add_block(totals: list[int], factors: Sequence[Vector], *, bins: Index) -> None:
    """Add the products of a block of entries to the totals."""
    limbs, exponents = _limbs(factors[0])
    for factor in factors[1:]:
        more, powers = _limbs(factor)
        limbs, exponents = _product(limbs, more), exponents + powers
    first, low = int(bins.min()), int(exponents.min())
    width = int(exponents.max()) - low + 1
    keys = (bins - first) * width + (exponents - low)
    groups, sums = _sum_groups(limbs, keys, small=len(factors) < 3)
    for group, parts in zip(groups.tolist(), sums.T.tolist(), strict=True):
        value = sum(part << (LIMB_BITS * i) for i, part in enumerate(parts))
        totals[first + group // width] += value << (low + group % width)


def _sum_groups(
    limbs: NDArray[np.int64], keys: Index, *, small: bool
) -> tuple[Index, NDArray[np.int64]]:
    """Return the keys that there are, and the sums of the limbs of each.

    The limbs of one or two factors are ``small``: a block of them, each below 2^30,
    adds up to less than 2^46, which doubles hold exactly.
    """
    if small and int(keys.max()) < MOST_KEYS:
        groups = np.flatnonzero(np.bincount(keys))
        parts = [np.bincount(keys, weights=part)[groups] for part in limbs]
        return groups, np.stack(parts).astype(np.int64)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(keys) != 0]))
    return keys[starts], np.add.reduceat(limbs[:, order], starts, axis=1)


def _limbs(x: Vector) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return mantissas as signed limbs, lowest first, and exponents from zero up."""
    fraction, exponent = np.frexp(x)
    mantissa = np.ldexp(fraction, MANTISSA_BITS).astype(np.int64)
    mask = (1 << LIMB_BITS) - 1
    low = [(mantissa >> (LIMB_BITS * i)) & mask for i in range(N_LIMBS - 1)]
    high = mantissa >> (LIMB_BITS * (N_LIMBS - 1))
    # The exponent of zero is zero, which is as good as any.
    return np.stack([*low, high]), exponent.astype(np.int64) - LOWEST_EXPONENT


def _product(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the limbs of the products, without carrying."""
    limbs = np.zeros((len(a) + len(b) - 1, a.shape[1]), dtype=np.int64)
    for i, part in enumerate(a):
        limbs[i : i + len(b)] += part * b
    return limbs


def _columns(X: Design, weight: Vector | None) -> Iterator[Entries]:
    """Yield the entries column by column, some columns at a time.

    A sparse design yields what it stores: a zero adds nothing to S_1 and S_2.
    """
    n_rows, n_columns = X.shape
    if sparse.issparse(X):
        by_column = sparse.csc_array(X)
        by_column.sum_duplicates()
        bins = np.repeat(np.arange(n_columns), np.diff(by_column.indptr))
        own = None if weight is None else weight[by_column.indices]
        yield Entries(by_column.data, bins, n_columns, own)
        return
    step = max(1, CHUNK // n_rows)
    for begin in range(0, n_columns, step):
        part = np.asarray(X)[:, begin : begin + step]
        width = part.shape[1]
        own = None if weight is None else np.tile(weight, width)
        bins = np.repeat(np.arange(width), n_rows)
        yield Entries(part.ravel(order="F"), bins, width, own)


def find_mean(weight: int, first: int) -> float:
    """Return S_1 / S_0, correctly rounded; NaN if nothing was summed."""
    if not weight:
        return nan
    zeros = (weight & -weight).bit_length() - 1
    return _scale(first, weight >> zeros, exponent=-UNIT - zeros)


def find_deviation(sums: Sequence[int]) -> float:
    """Return sqrt(S_0 S_2 - S_1^2) / S_0, rounded once; NaN if nothing was summed.

    The difference is exact: however far the mean is from zero, nothing is lost.
    """
    weight, first, second = sums
    if not weight:
        return nan
    square = weight * second - first**2
    if not square:
        return 0.0
    # Zeros at the end say nothing: a short number has the same root.
    zeros = ((square & -square).bit_length() - 1) // 2 * 2
    square >>= zeros
    more = max(0, ROOT_BITS - square.bit_length() + 1) // 2 * 2
    root, exponent = isqrt(square << more), (zeros - more) // 2 - UNIT
    zeros = (weight & -weight).bit_length() - 1
    return _scale(root, weight >> zeros, exponent=exponent - zeros)


def _scale(numerator: int, denominator: int, *, exponent: int) -> float:
    """Return 2^exponent numerator / denominator, correctly rounded."""
    if exponent >= 0:
        return (numerator << exponent) / denominator
    return numerator / (denominator << -exponent)


def to_units(value: float) -> int:
    """Return a double in units of 2^-UNIT."""
    numerator, denominator = value.as_integer_ratio()
    return (numerator << UNIT) // denominator
