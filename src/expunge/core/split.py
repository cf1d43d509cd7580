# SPDX-License-Identifier: Apache-2.0
r"""Split: rows of numbers and categories, which no pass writes out as zeros and ones.

A table becomes a matrix X = Z M. Z has the numbers as they are, and for each column of
categories one column of zeros and ones a level, of which a row has one: it is kept as
a code. M is a map that no row has a say in: it multiplies a flag by what a scaler makes
of it, adds what the scaler subtracts, leaves out levels without a feature, and puts
features in their order. So products with X are those with Z, and with M once a pass:

    X v = Z (M v),    X'u = M'(Z'u),    X'DX = M'(Z'DZ) M .

Where tabmat is installed (``expunge[tables]``), its split matrices multiply by Z;
otherwise NumPy does, in several times as long. Both add terms in orders of their own,
and radii rest on none. tabmat runs on one thread, so that a pass gives the same bits
each time, on every machine with its build.

M is applied without a difference: what scalers subtract is one of the terms that are
added up, as in a dense row. A mean subtracted afterwards would cancel, where nearly
all rows have one level, and round by more than radii pay for (docs/radii.md,
"Rounding").
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exceptions import MissingExtra, needing

Index: TypeAlias = NDArray[np.intp]
Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.int32]


class Flags(NamedTuple):
    """What the features of one column of categories are in a row, by its level.

    Attributes
    ----------
    at
        Where the features are among the columns of X, one for each level.
    hit
        A feature in rows of its level.
    other
        The same feature in all other rows; None where that is zero.
    """

    at: Index
    hit: Vector
    other: Vector | None

    @property
    def n_levels(self) -> int:
        """The number of levels; rows of none of them have this as their code."""
        return len(self.at)

    def apply(self, v: Vector) -> Vector:
        """Return M v: what a row of each level, and of none, has of a predictor."""
        own = self.hit * v[self.at]
        if self.other is None:
            return np.append(own, 0.0)
        others = self.other * v[self.at]
        return np.append(own + _sum_others(others), np.add.reduce(others))

    def transpose(self, sums: Matrix) -> Matrix:
        """Return M'b for sums over the rows of each level, and of none."""
        shape = (-1, *[1] * (sums.ndim - 1))
        levels, none = sums[:-1], sums[-1]
        own: Matrix = self.hit.reshape(shape) * levels
        if self.other is not None:
            own += self.other.reshape(shape) * (_sum_others(levels) + none)
        return own


def _sum_others(terms: Matrix) -> Matrix:
    """Return for each entry the sum of all others, without a subtraction."""
    before = np.cumsum(terms, axis=0)
    after = np.cumsum(terms[::-1], axis=0)[::-1]
    others = np.zeros_like(terms)
    others[1:] += before[:-1]
    others[:-1] += after[1:]
    return others


class Transposed(NamedTuple):
    """The transpose of a split matrix, for products with rows."""

    of: "SplitMatrix"

    def __matmul__(self, u: Matrix) -> Matrix:
        """Return X'u, for a vector or a matrix's columns."""
        if u.ndim == 2:
            products = [self @ column for column in u.T]
            return np.array(products).reshape(u.shape[1], -1).T
        with multiplying(self.of) as Z:
            sums = Z.transpose_matvec(np.ascontiguousarray(u))
        return self.of._transpose(sums)


class Multiplier(Protocol):
    """Products with Z: numbers, then a column for each level of each category."""

    def matvec(self, v: Vector) -> Vector:
        """Return Z v."""

    def transpose_matvec(self, u: Vector) -> Vector:
        """Return Z'u."""

    def sandwich(self, d: Vector) -> Matrix:
        """Return Z' diag(d) Z."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SplitMatrix:
    """Rows of numbers and of categories by their codes, as a matrix.

    Attributes
    ----------
    numbers
        The columns that are numbers, the intercept's among them, (n, p).
    at
        Where they are among the columns of X.
    codes
        The level of each row in each column of categories, (columns, n).
    flags
        What becomes of each of these columns.
    """

    numbers: Matrix
    at: Index
    codes: Codes
    flags: tuple[Flags, ...]

    def __repr__(self) -> str:
        return f"SplitMatrix({self.shape[0]} x {self.shape[1]})"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of X."""
        width = len(self.at) + sum(flags.n_levels for flags in self.flags)
        return len(self.numbers), width

    @property
    def n_entries(self) -> int:
        """The most entries of a row that need not be zero."""
        return len(self.at) + sum(
            1 if flags.other is None else flags.n_levels for flags in self.flags
        )

    @property
    def T(self) -> "Transposed":  # noqa: N802
        """The transpose, for products from the left."""
        return Transposed(self)

    def __matmul__(self, v: Matrix) -> Matrix:
        """Return X v, for a vector or a matrix's columns."""
        if v.ndim == 2:
            columns = [self @ column for column in v.T]
            return np.array(columns).reshape(v.shape[1], len(self)).T
        parts = [v[self.at], *[flags.apply(v) for flags in self.flags]]
        with multiplying(self) as Z:
            return Z.matvec(np.concatenate(parts))

    def gram(self, scale: Vector) -> Matrix:
        """Return X' diag(scale) X."""
        with multiplying(self) as Z:
            product = Z.sandwich(scale)
        return self._transpose(self._transpose(product).T)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> "SplitMatrix":
        """Return some rows; consecutive ones in the same memory."""
        codes = self.codes[:, rows]
        if not isinstance(rows, slice):  # NumPy would keep the codes of a row together
            codes = np.ascontiguousarray(codes)
        return replace(self, numbers=self.numbers[rows], codes=codes)

    def map(self, function: Callable[[Matrix], Matrix]) -> "SplitMatrix":
        """Return the rows with each entry mapped by a function that keeps zero."""
        flags = tuple(
            Flags(
                one.at,
                function(one.hit),
                None if one.other is None else function(one.other),
            )
            for one in self.flags
        )
        return replace(self, numbers=function(self.numbers), flags=flags)

    def __abs__(self) -> "SplitMatrix":
        return self.map(np.abs)

    def spread(self, places: NDArray[np.bool]) -> "SplitMatrix":
        """Return the rows at these of more places, and rows without weight between."""
        numbers = np.zeros((len(places), self.numbers.shape[1]))
        numbers[places] = self.numbers
        codes = np.zeros((len(self.codes), len(places)), dtype=np.int32)
        codes[:, places] = self.codes
        return replace(self, numbers=numbers, codes=codes)

    def toarray(self) -> Matrix:
        """Return the rows as a dense array (for a few)."""
        dense = np.zeros(self.shape)
        dense[:, self.at] = self.numbers
        for flags, codes in zip(self.flags, self.codes, strict=True):
            if flags.other is not None:
                dense[:, flags.at] = flags.other
            rows = np.flatnonzero(codes < flags.n_levels)
            levels = codes[rows]
            dense[rows, flags.at[levels]] = flags.hit[levels]
        return dense

    def columns(self, some: Index) -> Any:
        """Return some columns as a sparse matrix."""
        return sparse.hstack([self._column(j) for j in some.tolist()], format="csr")

    def _column(self, j: int) -> Any:
        found = np.flatnonzero(self.at == j)
        column = self.numbers[:, found]
        for flags, codes in zip(self.flags, self.codes, strict=True):
            for level in np.flatnonzero(flags.at == j).tolist():
                other = 0.0 if flags.other is None else flags.other[level]
                column = np.where(codes == level, flags.hit[level], other)[:, None]
        return sparse.csc_array(column)

    def _transpose(self, sums: Matrix) -> Matrix:
        """Return M'b, for sums over rows by columns of Z."""
        mapped = np.empty((self.shape[1], *sums.shape[1:]))
        begin = len(self.at)
        mapped[self.at] = sums[:begin]
        for flags in self.flags:
            end = begin + flags.n_levels + 1
            mapped[flags.at] = flags.transpose(sums[begin:end])
            begin = end
        return mapped


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _ByNumpy:
    """Products with Z by NumPy: a look-up or a count for each column of codes."""

    numbers: Matrix
    codes: Codes
    sizes: Sequence[int]

    def matvec(self, v: Vector) -> Vector:
        """Return Z v."""
        image: Vector = self.numbers.dot(v[: self.numbers.shape[1]])
        for codes, (begin, end) in zip(self.codes, self._parts(), strict=True):
            image += v[begin:end][codes]
        return image

    def transpose_matvec(self, u: Vector) -> Vector:
        """Return Z'u."""
        pairs = zip(self.codes, self.sizes, strict=True)
        counts = [np.bincount(codes, u, size) for codes, size in pairs]
        return np.concatenate([u.dot(self.numbers), *counts])

    def sandwich(self, d: Vector) -> Matrix:
        """Return Z' diag(d) Z."""
        scaled, parts = self.numbers * d[:, None], self._parts()
        product, width = np.zeros((parts[-1][1],) * 2), scaled.shape[1]
        product[:width, :width] = scaled.T @ self.numbers
        for k, (codes, (begin, end)) in enumerate(zip(self.codes, parts, strict=True)):
            size, rows = end - begin, codes.astype(np.intp)
            for j in range(width):
                product[begin:end, j] = np.bincount(rows, scaled[:, j], size)
            product[:width, begin:end] = product[begin:end, :width].T
            counts = np.bincount(rows, d, size)
            product[begin:end, begin:end] = np.diag(counts)
            for other, (first, last) in zip(self.codes[:k], parts[:k], strict=True):
                cells = rows * (last - first) + other
                block = np.bincount(cells, d, size * (last - first))
                product[begin:end, first:last] = block.reshape(size, -1)
                product[first:last, begin:end] = product[begin:end, first:last].T
        return product

    def _parts(self) -> list[tuple[int, int]]:
        ends = self.numbers.shape[1] + np.cumsum(self.sizes)
        return list(zip((ends - self.sizes).tolist(), ends.tolist(), strict=True))


@contextmanager
def multiplying(X: SplitMatrix) -> Iterator[Multiplier]:
    """Yield what multiplies by Z: tabmat on one thread, or NumPy."""
    sizes = [flags.n_levels + 1 for flags in X.flags]
    tabmat = _find_tabmat()
    if tabmat is None or not len(X):
        yield _ByNumpy(X.numbers, X.codes, sizes)
        return
    matrices = [tabmat.DenseMatrix(X.numbers)] if X.numbers.shape[1] else []
    for codes, size in zip(X.codes, sizes, strict=True):
        # Given all codes, it looks for the largest by a loop in Python.
        column = tabmat.CategoricalMatrix(codes[:1], categories=np.arange(size))
        column.indices, column.shape = codes, (len(codes), size)
        matrices.append(column)
    libraries = [(one, one.get_num_threads()) for one in _openmp()]
    try:
        # The setting is the calling thread's. On several, tabmat adds what they summed
        # in whatever order they end, and a forked child would wait for them for ever.
        for library, _ in libraries:
            library.set_num_threads(1)
        yield tabmat.SplitMatrix(matrices)
    finally:
        for library, n_threads in libraries:
            library.set_num_threads(n_threads)


@cache
def _find_tabmat() -> Any:
    """Return tabmat, or None where it is not installed."""
    with suppress(MissingExtra), needing("tables", "a pass over codes by tabmat"):
        import tabmat

        return tabmat
    return None


@cache
def _openmp() -> list[Any]:
    """Return the libraries of OpenMP in this process, tabmat's included."""
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().select(user_api="openmp")
    return list(found.lib_controllers)
