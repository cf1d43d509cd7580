# SPDX-License-Identifier: Apache-2.0
"""RawTable: rows as files hold them, read by position, a few of them at once.

Positions count the rows of a table from 0, over all its files in their order. A table
can be pickled: it knows where its rows lie, and holds none of them.

How many rows are in memory at once follows from a ceiling that the user sets. It covers
rows: batches that are being decoded, the block that a pass works on, and the arrays a
term makes of it. The model's own matrices are not rows; they come on top, and do not
grow with the table.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Vector
from ..core.rows import BLOCK_ROWS
from ..exceptions import InvalidInput
from .raw_columns import Words

NUMBER = np.dtype(np.float64)
DEFAULT_MEMORY = 1 << 28
LARGEST_BATCH = 1 << 16
# Copies of a block while a term works on it: as read, with its intercept, scaled.
BLOCKS_AT_ONCE = 6
# What decoding takes for each column whatever the batch: buffers, pages, dictionaries.
COLUMN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RawRows:
    """Consecutive rows of a table.

    Attributes
    ----------
    X
        Features, (n, d), float32 or float64.
    y
        A target for each row: numbers, or words.
    weight
        A weight for each row; None if the table has none.
    subjects
        The owner of each row; None if they were not read.
    """

    X: Any
    y: NDArray[Any]
    weight: Vector | None
    subjects: Any = None

    def __len__(self) -> int:
        return int(self.X.shape[0])


class RawTable(ABC):
    """Rows in files: how many, of which features, and those at some positions."""

    n_rows: int
    names: tuple[str, ...]
    dtype: np.dtype[Any]
    weighted: bool
    # Of raw columns: their words, and a table of them without rows. Else None.
    words: Words | None = None
    header: Any = None

    @property
    def n_features(self) -> int:
        """The number of features."""
        return len(self.names)

    @abstractmethod
    def read(self, begin: int, end: int, *, subjects: bool = False) -> RawRows:
        """Return the rows from one position to another, the last one excluded."""

    def read_design(self, begin: int, end: int, *, intercept: bool) -> RawRows:
        """Return the rows as passes use them: float64, perhaps with a column of ones.

        Their arrays are nobody else's.
        """
        raw = self.read(begin, end)
        X = np.empty((len(raw), self.n_features + intercept))
        X[:, : self.n_features] = raw.X
        X[:, self.n_features :] = 1.0
        return RawRows(X, raw.y, raw.weight)

    @abstractmethod
    def require_unchanged(self) -> None:
        """Raise InvalidInput if the files are not what they were at first."""

    @abstractmethod
    def locate(self, position: int) -> str:
        """Return where a row lies, as errors say it: by number, never by name."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open."""


def runs_of(positions: Index) -> list[tuple[int, int]]:
    """Return sorted positions as runs: each from its first to after its last."""
    if not len(positions):
        return []
    cuts = np.flatnonzero(np.diff(positions) != 1) + 1
    parts = np.split(positions, cuts)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts]


def require_positions(positions: Index, n_rows: int) -> None:
    """Raise InvalidInput for a position outside the table."""
    if len(positions) and not 0 <= positions.min() <= positions.max() < n_rows:
        raise InvalidInput(
            f"a position is outside the {n_rows} rows of the table; count from 0"
        )


def rows_at_once(memory: int, *, n_columns: int) -> int:
    """Return how many rows to decode at once, a multiple of a block.

    Raises InvalidInput for a ceiling under which not even one block fits.
    """
    block = max(BLOCK_ROWS, 1 << n_columns.bit_length())
    row = 8 * (n_columns + 2)
    fixed = BLOCKS_AT_ONCE * block * row + COLUMN_BYTES * n_columns
    least = fixed + 2 * block * row
    if not memory >= least:
        raise InvalidInput(
            f"memory={memory} bytes is too little for blocks of {block} rows of "
            f"{n_columns} columns; give at least {least}"
        )
    # A batch, and the one that Arrow is about to hand over.
    n_blocks = (memory - fixed) // (2 * block * row)
    return min(n_blocks * block, max(LARGEST_BATCH, block))
