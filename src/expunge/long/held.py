# SPDX-License-Identifier: Apache-2.0
"""Tables that the caller holds: data frames, Arrow tables and sparse matrices.

They are sliced block by block and never copied whole. Sparse blocks stay sparse; the
arrays of such a matrix may be memory maps.
"""

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.objective import sparse_design
from ..core.rows import BLOCK_ROWS
from ..exceptions import InvalidInput, Unsupported
from ..preprocessing.columns import names_of, take_column, to_numbers
from .memory import BLOCKS_AT_ONCE
from .parquet import Columns, require_columns
from .raw_table import NUMBER, RawRows, RawTable

ENTRY_BYTES = 16  # of a sparse matrix: a number and its column


class _Held(RawTable):
    """A table that no file holds, or none that we know of."""

    def __getstate__(self) -> NoReturn:
        """Refuse to be pickled: it would take all rows along."""
        raise Unsupported(
            "the rows of this table are in memory, and do not leave this process; "
            "write them to Parquet files for other processes to read"
        )

    def require_unchanged(self) -> None:
        """Trust the caller: what is in memory cannot be compared with what it was."""

    def close(self) -> None:
        """Do nothing: nothing was opened."""

    def locate(self, position: int) -> str:
        """Return the number of the row."""
        return f"row {position}"


class FrameTable(_Held):
    """A data frame of pandas or polars, or an Arrow table."""

    def __init__(self, frame: Any, columns: Columns) -> None:
        self._frame = frame
        names = names_of(frame)
        if not all(isinstance(name, str) for name in names):
            raise InvalidInput(
                "a column of the table has a name that is no text; name all columns by "
                "text: frame.columns = [...]"
            )
        self._columns = require_columns(names, columns)
        self.names = tuple(self._columns.features or ())
        self.n_rows = int(frame.shape[0])
        self.weighted = columns.weight is not None
        self.dtype = NUMBER

    def read(self, begin: int, end: int, *, subjects: bool = False) -> RawRows:
        """Return the rows from one position to another."""
        part = _slice(self._frame, begin, end=min(end, self.n_rows))
        X = np.empty((part.shape[0], self.n_features))
        for place, name in enumerate(self.names):
            X[:, place] = to_numbers(take_column(part, name), name)
        kinds, weight, owners = self._columns, None, None
        if kinds.weight is not None:
            weight = to_numbers(take_column(part, kinds.weight), kinds.weight)
        if subjects and kinds.subject is not None:
            owners = np.asarray(take_column(part, kinds.subject))
        return RawRows(X, np.asarray(take_column(part, kinds.target)), weight, owners)


def _slice(frame: Any, begin: int, *, end: int) -> Any:
    """Return some rows of a frame, in the same memory."""
    if hasattr(frame, "iloc"):
        return frame.iloc[begin:end]
    return frame.slice(begin, end - begin)


class SparseTable(_Held):
    """A sparse matrix of features, with arrays of targets, weights and owners."""

    def __init__(self, X: Any, target: Any, *, weight: Any, subject: Any) -> None:
        self._X = sparse.csr_array(X)
        self.n_rows, width = self._X.shape
        self._y = _require_length("target", target, n_rows=self.n_rows)
        self._weight = None
        if weight is not None:
            self._weight = _require_length("weight", weight, n_rows=self.n_rows)
        self._subjects = None
        if subject is not None:
            self._subjects = _require_length("subject", subject, n_rows=self.n_rows)
        self.names = tuple(f"x{place}" for place in range(width))
        self.dtype, self.weighted = NUMBER, weight is not None

    def read(self, begin: int, end: int, *, subjects: bool = False) -> RawRows:
        """Return the rows from one position to another, their features sparse."""
        part = slice(begin, min(end, self.n_rows))
        weight = owners = None
        if self._weight is not None:
            weight = np.array(self._weight[part], dtype=np.float64)
        if subjects and self._subjects is not None:
            owners = self._subjects[part]
        return RawRows(self._X[part], self._y[part], weight, owners)

    def read_design(self, begin: int, end: int, *, intercept: bool) -> RawRows:
        """Return the rows as passes use them, with the bits of those in memory."""
        raw = self.read(begin, end)
        return RawRows(sparse_design(raw.X, intercept), raw.y, raw.weight)

    def require_memory(self, memory: int) -> None:
        """Raise InvalidInput if a block may take more bytes than that."""
        ends = np.append(np.arange(0, self.n_rows, BLOCK_ROWS), self.n_rows)
        largest = int(np.diff(self._X.indptr[ends]).max(initial=0))
        least = BLOCKS_AT_ONCE * (ENTRY_BYTES * (largest + BLOCK_ROWS) + 1)
        if not memory >= least:
            raise InvalidInput(
                f"memory={memory} bytes is too little for blocks of {largest} entries; "
                f"give at least {least}"
            )


def _require_length(name: str, values: Any, *, n_rows: int) -> NDArray[Any]:
    """Return an array with a value for each row, or raise InvalidInput."""
    array: NDArray[Any] = np.asarray(values)
    if array.shape != (n_rows,):
        raise InvalidInput(
            f"{name} has shape {array.shape} and features have {n_rows} rows; give one "
            "value for each row"
        )
    return array
