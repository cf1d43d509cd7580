# SPDX-License-Identifier: Apache-2.0
"""StoredRows: rows that passes read block by block from where they lie.

They give the same sums as rows in memory, to the bit: blocks are cut to ``block_rows``
rows whatever the row groups of files, and terms are added in the same tree. Blocks can
be read in any order, here or in another process on another machine that sees the same
files: a pickle holds where the rows lie, and no row.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Vector
from ..core.rows import Rows, RowSource, pairwise_sum
from .npy import FileArray
from .raw_table import RawTable, require_positions, runs_of

Value = TypeVar("Value")
NO_ROWS: Index = np.array([], dtype=np.intp)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class StoredRows(RowSource):
    """Rows of a table as a model sees them, read when a pass needs them.

    Attributes
    ----------
    table
        Where the rows lie.
    codes
        What makes labels of targets, one after the other.
    intercept
        Whether a column of ones follows the features.
    absent
        Sorted positions of rows that are removed: they count for nothing.
    total
        The sum of the weights of the others.
    """

    table: RawTable
    codes: tuple[Callable[[NDArray[Any]], Vector], ...]
    intercept: bool
    absent: Index
    total: float

    def __repr__(self) -> str:
        return f"StoredRows({len(self)} x {self.n_columns})"

    def __len__(self) -> int:
        return self.table.n_rows - len(self.absent)

    @property
    def n_columns(self) -> int:
        """The number of columns, intercept included."""
        return self.table.n_features + self.intercept

    @property
    def total_weight(self) -> float:
        """W: the sum of the weights."""
        return self.total

    @property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.table.n_rows // self.block_rows)

    def read_block(self, number: int) -> Rows:
        """Return a block, counted from 0; what is absent is zero, and so its weight."""
        begin = number * self.block_rows
        end = min(begin + self.block_rows, self.table.n_rows)
        some = slice(*np.searchsorted(self.absent, [begin, end]))
        return self._see(begin, end, gone=self.absent[some] - begin)

    def map_blocks(self, term: Callable[[Rows], Value]) -> Iterator[Value]:
        """Yield what a term makes of each block, in order."""
        for number in range(self.n_blocks):
            yield term(self.read_block(number))
        self.table.require_unchanged()

    def recode(self, code: Callable[[Vector], Vector]) -> Self:
        """Return the rows with their labels coded otherwise."""
        return replace(self, codes=(*self.codes, code))

    def take(self, positions: Index) -> Rows:
        """Return the rows at these positions, in memory."""
        require_positions(positions, self.table.n_rows)
        places, back = np.unique(positions, return_inverse=True)
        parts = [self._see(begin, end) for begin, end in runs_of(places)]
        joined = Rows(
            np.concatenate([np.asarray(part.X) for part in parts]),
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.weight for part in parts]),
        )
        return joined.take(back)

    def _see(self, begin: int, end: int, *, gone: Index = NO_ROWS) -> Rows:
        """Return rows of the table as the model sees them, in arrays of their own."""
        raw = self.table.read_design(begin, end, intercept=self.intercept)
        X, n_rows = raw.X, len(raw)
        weight = np.ones(n_rows) if raw.weight is None else raw.weight
        if not gone.size:
            return Rows(X, self._code(raw.y), weight)
        # What is written over a target need not be one.
        left = np.ones(n_rows, dtype=bool)
        left[gone] = False
        coded, y = self._code(raw.y[left]), np.zeros(n_rows)
        y[left] = coded
        X[gone], weight[gone] = 0.0, 0.0
        return Rows(X, y, weight)

    def _code(self, targets: NDArray[Any]) -> Vector:
        """Return targets as labels."""
        y = targets.copy()
        for code in self.codes:
            y = code(y)
        return y


def sum_weights(
    table: RawTable, weights: FileArray | None, *, absent: Index, block_rows: int
) -> float:
    """Return the sum of the weights that are left, as ``Rows.total_weight`` adds them.

    Weights of one add up exactly in any order.
    """
    if weights is None:
        return float(table.n_rows - len(absent))

    def parts() -> Iterator[tuple[float]]:
        for begin in range(0, table.n_rows, block_rows):
            end = min(begin + block_rows, table.n_rows)
            weight = weights.read(begin, end)
            some = slice(*np.searchsorted(absent, [begin, end]))
            weight[absent[some] - begin] = 0.0
            yield (float(np.add.reduce(weight)),)

    return pairwise_sum(parts())[0]
