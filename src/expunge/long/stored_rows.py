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
from scipy import sparse

from ..core.arrays import Index, Vector
from ..core.losses import Loss
from ..core.rows import JoinedRows, Rows, RowSource, pairwise_sum
from ..private_model.labels import ClassCoding
from .file_arrays import FileArray
from .raw_table import RawTable, require_positions, runs_of

Value = TypeVar("Value")


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
    changes, width
        What is made of rows after that, one after the other, and how many columns that
        leaves; None for those of the table.
    """

    table: RawTable
    codes: tuple[Callable[[NDArray[Any]], Vector], ...]
    intercept: bool
    absent: Index
    total: float
    changes: tuple[Callable[[Rows], Rows], ...] = ()
    width: int | None = None

    def __repr__(self) -> str:
        return f"StoredRows({len(self)} x {self.n_columns})"

    def __len__(self) -> int:
        return self.table.n_rows - len(self.absent)

    @property
    def n_columns(self) -> int:
        """The number of columns, intercept included."""
        plain = self.table.n_features + self.intercept
        return plain if self.width is None else self.width

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
        left, present = self._read_present(number)
        return present if left.all() else _spread(present, left)

    def map_blocks(self, term: Callable[[Rows], Value]) -> Iterator[Value]:
        """Yield what a term makes of each block, in order."""
        for number in range(self.n_blocks):
            yield term(self.read_block(number))
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """Raise InvalidInput if the rows may be others than when they were opened."""
        self.table.require_unchanged()

    def map_present(self, term: Callable[[Rows], Value]) -> Iterator[Value]:
        """Yield what a term makes of each block without the rows that are absent."""
        for number in range(self.n_blocks):
            yield term(self._read_present(number)[1])
        self.table.require_unchanged()

    def convert(
        self, change: Callable[[Rows], Rows], *, n_columns: int
    ) -> "StoredRows":
        """Return what a change makes of the rows, when a pass reads them."""
        return replace(self, changes=(*self.changes, change), width=n_columns)

    def recode(self, code: Callable[[Vector], Vector]) -> Self:
        """Return the rows with their labels coded otherwise."""
        return replace(self, codes=(*self.codes, code))

    def followed_by(self, added: Rows) -> JoinedRows:
        """Return the rows, and after them these, which lie in memory."""
        return JoinedRows(self, added)

    def take(self, positions: Index) -> Rows:
        """Return the rows at these positions, in memory."""
        require_positions(positions, self.table.n_rows)
        places, back = np.unique(positions, return_inverse=True)
        parts = [self._see(begin, end) for begin, end in runs_of(places)]
        stack: Any = sparse.vstack if sparse.issparse(parts[0].X) else np.concatenate
        joined = Rows(
            stack([part.X for part in parts]),
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
        rows = Rows(X, self._code(y), weight)
        for change in self.changes:
            rows = change(rows)
        return rows

    def _code(self, targets: NDArray[Any]) -> Vector:
        """Return targets as labels."""
        y = targets.copy()
        for code in self.codes:
            y = code(y)
        return y


def _spread(rows: Rows, left: NDArray[np.bool]) -> Rows:
    """Return rows at the places that are left, and zeros at the others."""
    y, weight = np.zeros((2, len(left)))
    y[left], weight[left] = rows.y, rows.weight
    if not sparse.issparse(rows.X):
        X = np.zeros((len(left), rows.n_columns))
        X[left] = rows.X
        return Rows(X, y, weight)
    lengths = np.zeros(len(left) + 1, dtype=rows.X.indptr.dtype)
    lengths[1:][left] = np.diff(rows.X.indptr)
    parts = (rows.X.data, rows.X.indices, np.cumsum(lengths, dtype=lengths.dtype))
    return Rows(sparse.csr_array(parts, shape=(len(left), rows.n_columns)), y, weight)


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
