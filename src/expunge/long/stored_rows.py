# SPDX-License-Identifier: Apache-2.0
"""StoredRows: rows that passes read block by block from where they lie.

They give the same sums as rows in memory, to the bit: blocks are cut to ``block_rows``
rows whatever the row groups of files, and terms are added in the same tree. Blocks can
be read in any order, here or in another process on another machine that sees the same
files: a pickle holds where the rows lie, and no row.

Workers, where there are any, read a group of blocks and return the sum of their terms.
A group is a complete part of the tree in which blocks are added, so a pass gives the
bits that it would give in this process, whatever the size of groups.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Vector
from ..core.losses import Loss
from ..core.rows import (
    BLOCK_ROWS,
    Rows,
    RowSource,
    Terms,
    join_rows,
    most_additions,
    most_rows,
    pairwise_sum,
)
from ..core.split import SplitMatrix
from ..engines import AT_ONCE, Workers
from ..private_model.labels import ClassCoding
from .file_arrays import FileArray
from .raw_table import RawTable, require_positions, runs_of

Value = TypeVar("Value")

# Blocks that a worker sums at a time, powers of two: with fewer it waits for work more
# than it works.
GROUP, LARGEST_GROUP = 16, 256


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class StoredRows(RowSource):
    """Rows of a table as a model sees them, read when a pass needs them.

    Attributes
    ----------
    table
        Where the rows lie.
    code
        What makes labels of targets.
    intercept
        Whether a column of ones follows the features.
    absent
        Sorted positions of rows that are removed: they count for nothing.
    total
        The sum of the weights of the others.
    changes, width, split
        What is made of rows after that, one after the other, how many columns that
        leaves, and whether it splits them; None for those of the table.
    added
        Rows in memory that follow those of the table; None if there are none. They are
        cut into blocks by themselves, and their sum is added to that of the table.
    workers
        Who reads the blocks in passes; this process if not given.
    """

    table: RawTable
    code: Callable[[NDArray[Any]], Vector]
    intercept: bool
    absent: Index
    total: float
    changes: tuple[Callable[[Rows], Rows], ...] = ()
    width: int | None = None
    split: bool = False
    added: Rows | None = None
    workers: Workers | None = None

    def __repr__(self) -> str:
        return f"StoredRows({len(self)} x {self.n_columns})"

    def __len__(self) -> int:
        added = 0 if self.added is None else len(self.added)
        return self.table.n_rows - len(self.absent) + added

    @property
    def n_columns(self) -> int:
        """The number of columns, intercept included."""
        plain = self.table.n_features + self.intercept
        return plain if self.width is None else self.width

    @property
    def block_rows(self) -> int:
        """How many rows a block has."""
        return most_rows(self.n_columns, split=self.split)

    @property
    def total_weight(self) -> float:
        """W: the sum of the weights."""
        return self.total + (0.0 if self.added is None else self.added.total_weight)

    @property
    def n_positions(self) -> int:
        """How many rows the blocks have, those that are absent included."""
        return self.table.n_rows

    @property
    def n_additions(self) -> int:
        """Through how many additions a term may pass; one more where rows follow."""
        own = most_additions(self.n_positions, self.block_rows)
        return own if self.added is None else max(own, self.added.n_additions) + 1

    @property
    def n_blocks(self) -> int:
        """How many blocks the table has."""
        return -(-self.table.n_rows // self.block_rows)

    def read_block(self, number: int) -> Rows:
        """Return a block, counted from 0; what is absent is zero, and so its weight."""
        left, present = self._read_present(number)
        return present if left.all() else _spread(present, left)

    def map_blocks(self, term: Callable[[Rows], Value]) -> Iterator[Value]:
        """Yield what a term makes of each block, in order."""
        if self.workers is None:
            yield from map(term, self._read_group(range(self.n_blocks)))
        else:
            groups = self._map_groups(lambda blocks: [*map(term, blocks)])
            yield from chain.from_iterable(groups)
        if self.added is not None:
            yield from self.added.map_blocks(term)
        self.require_unchanged()

    def sum_blocks(self, term: Callable[[Rows], Terms]) -> Terms:
        """Return the sum of a term over the blocks; workers add their groups."""
        if self.added is not None:
            parts = (replace(self, added=None), self.added)
            return pairwise_sum(part.sum_blocks(term) for part in parts)
        if self.workers is None:
            return RowSource.sum_blocks(self, term)  # no super() with slots
        total = pairwise_sum(
            self._map_groups(lambda blocks: pairwise_sum(map(term, blocks)))
        )
        self.require_unchanged()
        return total

    def on(self, workers: Workers) -> Self:
        """Return the rows with their passes on these workers."""
        return replace(self, workers=workers)

    def _map_groups(self, work: Callable[[Iterator[Rows]], Value]) -> Iterator[Value]:
        """Yield what workers make of each group of blocks, in order."""
        assert self.workers is not None
        rows, n_blocks = replace(self, added=None, workers=None), self.n_blocks
        size = group_size(n_blocks)
        groups = (
            range(begin, min(begin + size, n_blocks))
            for begin in range(0, n_blocks, size)
        )
        return self.workers.stream(lambda group: work(rows._read_group(group)), groups)

    def _read_group(self, group: range) -> Iterator[Rows]:
        return map(self.read_block, group)

    def require_unchanged(self) -> None:
        """Raise InvalidInput if the rows may be others than when they were opened."""
        self.table.require_unchanged()

    def map_present(self, term: Callable[[Rows], Value]) -> Iterator[Value]:
        """Yield what a term makes of each block without the rows that are absent."""
        for number in range(self.n_blocks):
            yield term(self._read_present(number)[1])
        if self.added is not None:
            yield from self.added.map_present(term)
        self.require_unchanged()

    def convert(
        self, change: Callable[[Rows], Rows], *, n_columns: int, split: bool = False
    ) -> "StoredRows":
        """Return what a change makes of the rows, when a pass reads them."""
        added = None if self.added is None else change(self.added)
        changes = (*self.changes, change)
        return replace(self, changes=changes, width=n_columns, split=split, added=added)

    def recode(self, code: Callable[[Vector], Vector]) -> "StoredRows":
        """Return the rows with their labels coded otherwise."""
        change = partial(Rows.recode, code=code)
        return self.convert(change, n_columns=self.n_columns, split=self.split)

    def followed_by(self, added: Rows) -> Self:
        """Return the rows, and after them these, which lie in memory."""
        if not len(added):
            return self
        before = self.added
        return replace(
            self, added=added if before is None else join_rows(before, added)
        )

    def take(self, positions: Index) -> Rows:
        """Return the rows at these positions, in memory."""
        require_positions(positions, self.table.n_rows)
        distinct, back = np.unique(positions, return_inverse=True)
        parts = [self._see(begin, end) for begin, end in runs_of(distinct)]
        joined = Rows(
            np.concatenate([part.dense() for part in parts]),
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.weight for part in parts]),
        )
        return joined.take(back)

    def _read_present(self, number: int) -> tuple[NDArray[np.bool], Rows]:
        """Return which rows of a block are there, and these rows."""
        begin = number * self.block_rows
        end = min(begin + self.block_rows, self.table.n_rows)
        some = slice(*np.searchsorted(self.absent, [begin, end]))
        left = np.ones(end - begin, dtype=bool)
        left[self.absent[some] - begin] = False
        return left, self._see(begin, end, left=left)

    def _see(
        self, begin: int, end: int, *, left: NDArray[np.bool] | None = None
    ) -> Rows:
        """Return rows of the table as the model sees them, in arrays of their own."""
        raw = self.table.read_design(begin, end, intercept=self.intercept)
        X, y = raw.X, raw.y
        weight = np.ones(len(raw)) if raw.weight is None else raw.weight
        if left is not None and not left.all():
            # What is written over a target need not be one.
            X, y, weight = X[left], y[left], weight[left]
        rows = Rows(X, self.code(y.copy()), weight)
        for change in self.changes:
            rows = change(rows)
        return rows


def group_size(n_blocks: int) -> int:
    """Return how many blocks a worker sums at a time: a power of two."""
    wanted = 1 << max(0, (n_blocks // AT_ONCE).bit_length() - 1)
    return min(max(GROUP, wanted), LARGEST_GROUP)


def _spread(rows: Rows, left: NDArray[np.bool]) -> Rows:
    """Return rows at the positions that are left, and zeros at the others."""
    y, weight = np.zeros((2, len(left)))
    y[left], weight[left] = rows.y, rows.weight
    if isinstance(rows.X, SplitMatrix):
        return Rows(rows.X.spread(left), y, weight)
    X = np.zeros((len(left), rows.n_columns))
    X[left] = rows.dense()
    return Rows(X, y, weight)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TargetCoding:
    """Makes the labels that rows keep of a table's targets; it can be pickled."""

    loss: Loss
    classes: ClassCoding | None

    def __call__(self, y: Any) -> Vector:
        """Return the labels."""
        if self.classes is not None:
            words = np.asarray(y, dtype=str) if y.dtype == object else y
            return self.classes(words)
        return self.loss.labels(np.asarray(y, dtype=np.float64))


def sum_weights(table: RawTable, weights: FileArray | None, *, absent: Index) -> float:
    """Return the sum of the weights that are left, as ``Rows.total_weight`` adds them.

    Weights of one add up exactly in any order.
    """
    if weights is None:
        return float(table.n_rows - len(absent))

    def parts() -> Iterator[tuple[float]]:
        for begin in range(0, table.n_rows, BLOCK_ROWS):
            end = min(begin + BLOCK_ROWS, table.n_rows)
            weight = weights.read(begin, end)
            some = slice(*np.searchsorted(absent, [begin, end]))
            weight[absent[some] - begin] = 0.0
            yield (float(np.add.reduce(weight)),)

    return pairwise_sum(parts())[0]
