# SPDX-License-Identifier: Apache-2.0
"""Rows wherever they lie, cut into blocks, and the order in which blocks are added.

A pass over rows is a sum of terms, one for each block. ``RowSource`` is all that a pass
needs to know of rows: how many there are, and what a term makes of each block. ``Rows``
lie in memory. Others may lie in files, on the workers of a cluster or on a GPU; what
fits and certifies models cannot tell.

All sources must add in the same order, because floating-point addition is not
associative:

1. Rows are cut into blocks of consecutive rows, numbered from 0; the last block may be
   shorter. A block has 2048 rows, or with more than 2048 columns as many as the next
   power of two at or above the number of columns: adding up gradients then costs no
   more than the predictors do. A block of split rows has 65536: a pass over them costs
   less than adding up the matrices of many blocks. The size depends on nothing else,
   neither on the number of threads nor on where the rows are stored.
2. The terms of the blocks are added in a binary tree that the number of blocks alone
   determines. Blocks 2i and 2i + 1 form a sum of level 1, two adjacent sums of level 1
   form a sum of level 2, and so on. Where n blocks are not a power of two, the binary
   digits of n say which complete sums are left over (13 = 8 + 4 + 1: blocks 0-7, 8-11
   and 12). These are added from the last and smallest to the first and largest:
   S(0-7) + (S(8-11) + S(12)).

Each term thus passes through at most ceil(log2 n) additions, where a plain loop has up
to n - 1, and rounding grows accordingly. ``pairwise_sum`` takes the terms as they
arrive and holds at most one partial sum for each level. Any source that computes the
same terms therefore gets the same bits, in whatever order it computed them. The order
of the additions *within* a block is that of BLAS.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from math import inf, isnan
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exceptions import InvalidInput, Unsupported
from .arrays import (
    Design,
    Index,
    Matrix,
    Vector,
    is_compressed,
    namespace,
    row_norms,
    slice_rows,
)
from .linalg import one_thread
from .split import SplitMatrix
from .values import NOT_STORED, stored

# 2048 rows of a thousand float64 features are 16 MiB: near the cache, and large
# enough for BLAS to run at full speed. The least rows of a block, a power of two.
BLOCK_ROWS = 2048
# Split rows take a hundred times less work, so that the cost of a block would show:
# a Hessian, and calls. For narrow ones that is little, and the fewer rows are added up
# in a block, the smaller the radii.
SPLIT_ROWS, SPLIT_ROWS_PER_COLUMN = 2**16, 64
# Columns up to which two threads of BLAS gain nothing on a block, and lose much where
# one of them waits for a processor.
NARROW = 128
Value = TypeVar("Value")
Terms = TypeVar("Terms", bound=tuple[Any, ...])


class RowSource(ABC):
    """Rows with labels and weights that passes run over, wherever they lie."""

    __slots__ = ()

    # Whether what is as long as the rows may be kept beside them for later passes.
    keeps_terms: ClassVar[bool] = False

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @property
    @abstractmethod
    def n_columns(self) -> int:
        """The number of columns, intercept included."""

    @property
    @abstractmethod
    def total_weight(self) -> float:
        """W: the sum of the weights, block by block, never the row count."""

    @abstractmethod
    def map_blocks(self, term: Callable[["Rows"], Value]) -> Iterator[Value]:
        """Yield what a term makes of each block of ``block_rows`` rows, in order."""

    @abstractmethod
    def recode(self, code: Callable[[Vector], Vector]) -> Self:
        """Return the rows with what ``code`` makes of their labels."""

    def convert(
        self, change: Callable[["Rows"], "Rows"], *, n_columns: int, split: bool = False
    ) -> "RowSource":
        """Return what a change makes of the rows, each by itself.

        It must say how many columns they then have, and whether they are split.
        """
        raise Unsupported(
            "preprocessing needs rows in memory or in files, and these are "
            f"{type(self).__name__}; leave the engine out"
        )

    def map_present(self, term: Callable[["Rows"], Value]) -> Iterator[Value]:
        """Yield what a term makes of the rows that are not absent, some at a time."""
        raise Unsupported(
            "preprocessing needs rows in memory or in files, and these are "
            f"{type(self).__name__}; leave the engine out"
        )

    def algebra(self) -> AbstractContextManager[None]:
        """Return a context in which matrices are factored where the rows lie."""
        return nullcontext()

    def followed_by(self, added: "Rows") -> "RowSource":
        """Return the rows, and after them these."""
        raise Unsupported(
            f"rows cannot be added to {type(self).__name__}; fit the model to rows in "
            "memory"
        )

    @property
    def block_rows(self) -> int:
        """How many rows a block has."""
        return most_rows(self.n_columns)

    @property
    def n_positions(self) -> int:
        """How many rows the blocks have, those that are absent included."""
        return len(self)

    @property
    def n_additions(self) -> int:
        """Through how many additions a term may pass: within its block, and the tree.

        Of two sets of rows one after the other it is no more than both have together,
        and of blocks that are shorter it is no more either.
        """
        return most_additions(self.n_positions, self.block_rows)

    def sum_blocks(self, term: Callable[["Rows"], Terms]) -> Terms:
        """Return the sum of a term over the blocks, in the order stated above."""
        narrow = self.n_columns <= NARROW
        with one_thread if narrow else nullcontext():
            return pairwise_sum(self.map_blocks(term))


AnyRows = TypeVar("AnyRows", bound=RowSource)


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Rows(RowSource):
    """Rows of a design with labels and weights, all float64.

    Attributes
    ----------
    X
        Design, (n, d), a C-ordered array or CSR, intercept column included.
    y
        Labels as the loss wants them.
    weight
        One non-negative weight a row.
    absent
        Positions in the arrays that hold no row, if there are any: their weight is
        zero and they count for nothing. Removed rows leave them behind, so that a
        request need not copy all others.
    """

    X: Design
    y: Vector
    weight: Vector
    absent: Index | None = field(default=None, metadata=NOT_STORED)
    keeps_terms: ClassVar[bool] = True

    def __repr__(self) -> str:
        return f"Rows({len(self)} x {self.n_columns})"

    def __len__(self) -> int:
        n_positions = int(self.X.shape[0])
        return n_positions if self.absent is None else n_positions - len(self.absent)

    @property
    def n_positions(self) -> int:
        """How many rows the blocks have, those that are absent included."""
        return int(self.X.shape[0])

    @property
    def n_columns(self) -> int:
        """The number of columns, intercept included."""
        return int(self.X.shape[1])

    @property
    def total_weight(self) -> float:
        """W: the sum of the weights, never the row count."""
        if len(self.weight) == 1:
            return float(self.weight[0])
        if len(self.weight) <= BLOCK_ROWS:
            return float(np.add.reduce(self.weight))
        whole = len(self.weight) // BLOCK_ROWS * BLOCK_ROWS
        sums = np.add.reduce(self.weight[:whole].reshape(-1, BLOCK_ROWS), axis=1)
        parts: list[tuple[float]] = [(one,) for one in sums.tolist()]
        if whole < len(self.weight):
            parts.append((float(np.add.reduce(self.weight[whole:])),))
        return pairwise_sum(parts)[0]

    @property
    def block_rows(self) -> int:
        """How many rows a block has."""
        return most_rows(self.n_columns, split=isinstance(self.X, SplitMatrix))

    def map_blocks(self, term: Callable[["Rows"], Value]) -> Iterator[Value]:
        """Yield what a term makes of each block, in order."""
        return map(term, self.blocks(self.block_rows))

    def recode(self, code: Callable[[Vector], Vector]) -> Self:
        """Return the rows with what ``code`` makes of their labels."""
        y = code(self.y)
        return self if y is self.y else replace(self, y=y)

    def convert(
        self, change: Callable[["Rows"], "Rows"], *, n_columns: int, split: bool = False
    ) -> "RowSource":
        """Return what a change makes of the rows, at once.

        Where a row is absent it makes the same as of the first one that is there: what
        was learnt without a row may not be able to take it.
        """
        del n_columns, split
        changed = change(self._with_stand_ins())
        assert changed.absent is self.absent, "a change must keep what is absent"
        return changed

    def _with_stand_ins(self) -> "Rows":
        """Return the rows with one that is there in the place of all that are not."""
        if self.absent is None or not len(self):
            return self
        there = np.ones(self.n_positions, dtype=bool)
        there[self.absent] = False
        X: Any = self.X.copy()
        X[self.absent] = X[there.argmax()]
        return replace(self, X=X)

    def map_present(self, term: Callable[["Rows"], Value]) -> Iterator[Value]:
        """Yield what a term makes of all rows that are not absent."""
        yield term(self if self.absent is None else self.gather())

    def followed_by(self, added: "Rows") -> "Rows":
        """Return the rows, and after them these; what was absent stays so."""
        return join_rows(self, added)

    def take(self, index: NDArray[Any] | slice) -> "Rows":
        """Return the rows at these positions (or where a mask is true)."""
        assert self.absent is None, "gather first: positions are those of rows"
        X: Any = self.X[index]
        return Rows(X, self.y[index], self.weight[index])

    def gather(self) -> "Rows":
        """Return a copy of the rows, with nothing absent."""
        keep = np.ones(self.X.shape[0], dtype=bool)
        if self.absent is not None:
            keep[self.absent] = False
        return replace(self, absent=None).take(keep)

    def without(self, index: NDArray[Any]) -> "Rows":
        """Return all rows but those at these positions."""
        keep = np.ones(len(self), dtype=bool)
        keep[index] = False
        return self.take(keep)

    def blocks(self, size: int) -> Iterator["Rows"]:
        """Yield consecutive blocks of at most ``size`` rows, in order, not copied.

        In a block, what is absent is a row like others, with weight zero.
        """
        for begin in range(0, self.X.shape[0], size):
            part = slice(begin, begin + size)
            yield Rows(slice_rows(self.X, part), self.y[part], self.weight[part])

    def dense(self) -> Matrix:
        """Return the design as a dense array (for a few rows)."""
        X: Any = self.X
        return X.toarray() if is_compressed(X) else np.asarray(X)

    def norms(self) -> Vector:
        """Return the Euclidean norm of each row, intercept included."""
        return row_norms(self.X)


def most_rows(n_columns: int, *, split: bool = False) -> int:
    """Return how many rows a block of so many columns has."""
    columns = 1 << (n_columns - 1).bit_length()
    if split:
        return min(SPLIT_ROWS, max(4 * BLOCK_ROWS, SPLIT_ROWS_PER_COLUMN * columns))
    return max(BLOCK_ROWS, columns)


def most_additions(n_rows: int, block: int) -> int:
    """Return through how many additions a term may pass, in blocks of so many rows."""
    return min(n_rows, block) + (-(-n_rows // block)).bit_length()


def join_rows(first: Rows, second: Rows) -> Rows:
    """Return rows followed by others; what was absent stays so."""
    return Rows(
        join_designs(first.X, second.X),
        np.concatenate([first.y, second.y]),
        np.concatenate([first.weight, second.weight]),
        absent=first.absent,
    )


def join_designs(first: Design, second: Design) -> Design:
    """Return one design above another: sparse if the first is."""
    if not sparse.issparse(first):
        below = second.toarray() if sparse.issparse(second) else second
        return np.concatenate([np.asarray(first), np.asarray(below)])
    return sparse.csr_array(sparse.vstack([first, sparse.csr_array(second)]))


def extend_rows(buffer: Rows, added: Rows, *, position: int) -> Rows:
    """Return arrays with the rows of ``buffer`` up to a position, then the added rows.

    Dense arrays keep room to spare, so that most additions copy the added rows alone.
    Sparse ones are copied.
    """
    y, weight = (
        _extend(old, new, position=position)
        for old, new in ((buffer.y, added.y), (buffer.weight, added.weight))
    )
    if sparse.issparse(buffer.X) or sparse.issparse(added.X):
        return Rows(join_designs(buffer.X[:position], added.X), y, weight)
    return Rows(_extend(buffer.X, np.asarray(added.X), position=position), y, weight)


def first_rows(buffer: Rows, end: int) -> Rows:
    """Return the first rows, not copied."""
    X = buffer.X if sparse.issparse(buffer.X) else buffer.X[:end]
    return Rows(X, buffer.y[:end], buffer.weight[:end])


def _extend(
    buffer: NDArray[np.float64], new: NDArray[np.float64], *, position: int
) -> NDArray[np.float64]:
    """Return an array with new entries at a position, a quarter longer if need be."""
    end = position + len(new)
    if end > len(buffer):
        longer = np.zeros((end + end // 4, *buffer.shape[1:]))
        longer[:position] = buffer[:position]
        buffer = longer
    buffer[position:end] = new
    return buffer


def in_memory(rows: RowSource, purpose: str = "this") -> Rows:
    """Return rows that lie in memory, or raise Unsupported; purpose is the subject."""
    if not isinstance(rows, Rows):
        raise Unsupported(
            f"{purpose} needs rows in memory, and these are {type(rows).__name__}; fit "
            "the model to rows in memory"
        )
    return rows


@dataclass(frozen=True, slots=True)
class Largest:
    """A figure of a block of which the largest counts: sums keep the larger one."""

    value: Any

    def __add__(self, other: "Largest") -> "Largest":
        """Return the larger of two, or NaN if one is."""
        xp = namespace(self.value)
        return Largest(xp.maximum(self.value, other.value))


def as_float(value: Any) -> Any:
    """Return a sum of a block as a float; one on a device as it is, not waited for."""
    return float(value) if isinstance(value, float | np.generic) else value


def block_sum(term: Callable[[Rows], Terms], rows: RowSource) -> Terms:
    """Return the sum of ``term`` over blocks of rows, in the order stated above."""
    if isinstance(rows, Rows) and rows.absent is None:
        if rows.X.shape[0] <= rows.block_rows:
            return term(rows)  # most requests
    return rows.sum_blocks(term)


class TermTuple(tuple[Any, ...]):
    """The values of one term beside those of others: added value by value."""

    __slots__ = ()

    def __add__(self, other: tuple[Any, ...]) -> "TermTuple":
        """Return the sum, value by value."""
        return _add(self, TermTuple(other))


def block_sums(
    terms: Sequence[Callable[[Rows], tuple[Any, ...]]], rows: RowSource
) -> tuple[tuple[Any, ...], ...]:
    """Return ``block_sum`` of each of several terms, by one pass for all of them."""

    def joint(block: Rows) -> tuple[TermTuple, ...]:
        return tuple(TermTuple(term(block)) for term in terms)

    return block_sum(joint, rows)


def block_max(term: Callable[[Rows], float], rows: RowSource) -> float:
    """Return the largest of what ``term`` makes of blocks, zero if there is none.

    What is no number may be of any size: one such block makes it infinite.
    """
    sizes = [*rows.map_blocks(term)]  # all, before one on a device is waited for
    found = float(np.max([float(size) for size in sizes], initial=0.0))
    return inf if isnan(found) else found


def pairwise_sum(terms: Iterable[Terms]) -> Terms:
    """Return the sum of the blocks' terms, given in the order of the blocks.

    A binary counter: adding a block carries for as long as the last partial sum is of
    the same level. It holds O(log n) partial sums at any time.
    """
    partial: list[tuple[int, Terms]] = []
    for total in terms:
        level = 0
        while partial and partial[-1][0] == level:
            total, level = _add(partial.pop()[1], total), level + 1
        partial.append((level, total))
    if not partial:
        raise InvalidInput("there are no blocks to add; give at least one")
    _, total = partial.pop()
    while partial:
        total = _add(partial.pop()[1], total)
    return total


def _add(a: Terms, b: Terms) -> Terms:
    """Return the sum of two blocks' terms, value by value."""
    return type(a)(x + y for x, y in zip(a, b, strict=True))
