# SPDX-License-Identifier: Apache-2.0
"""Open a long table: files, arrays, data frames or sparse matrices.

Data frames, Arrow tables and sparse matrices, which the caller holds, are sliced block
by block and never copied whole. Sparse blocks stay sparse; the arrays of such a matrix
may be memory maps.
"""

import os
from collections.abc import Sequence
from typing import Any, NoReturn, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.objective import sparse_design
from ..core.rows import BLOCK_ROWS
from ..display.progress import OnProgress, be_silent
from ..exceptions import InvalidInput, Unsupported
from ..preprocessing.columns import names_of, take_column, to_numbers
from .file_arrays import NpyTable
from .parquet import Columns, ParquetTable, find_files, require_columns
from .raw_table import (
    BLOCKS_AT_ONCE,
    DEFAULT_MEMORY,
    NUMBER,
    RawRows,
    RawTable,
    rows_at_once,
)
from .table import LongTable

ENTRY_BYTES = 16  # of a sparse matrix: a number and its column


class LongTableOptions(TypedDict, total=False):
    """What may be said of any long table.

    Attributes
    ----------
    subject, weight
        The owner of each row, and its weight: a column, or an array.
    memory
        How many bytes the rows in memory may take at any time.
    cache
        Whether to keep decoded rows in a private folder until the table is closed:
        later passes are faster, and a removal overwrites the person's rows there.
    folder
        Where to make the private folder; the system's temporary folder if not given.
    on_progress
        Called with how many rows the first pass has read, of how many.
    raw
        Whether features may be words, and values missing, for estimators with
        ``preprocessing``; of Parquet files alone.
    """

    subject: Any
    weight: Any
    memory: int
    cache: bool
    folder: str | os.PathLike[str] | None
    on_progress: OnProgress
    raw: bool


def open_table(
    data: Any,
    *,
    target: Any,
    features: Sequence[str] | None = None,
    **options: Unpack[LongTableOptions],
) -> LongTable:
    """Look through rows once, wherever they are, and return them as a table.

    Parameters
    ----------
    data
        Parquet files, as ``open_parquet`` takes them; a data frame of pandas or polars,
        or an Arrow table; a matrix in a .npy file, mapped or in memory; a sparse one.
    target
        The labels: the name of a column, or for a matrix an array.
    features
        The columns that the model sees, in this order; all others if not given.
    options
        As for ``open_parquet``; for a matrix, arrays in place of columns.
    """
    if hasattr(data, "columns"):
        return _open_frame(data, target=target, features=features, **options)
    if _names_parquet(data):
        return open_parquet(data, target=target, features=features, **options)
    if features is not None:
        raise InvalidInput("a matrix has no names; leave features out, or slice it")
    if sparse.issparse(data):
        return _open_sparse(data, target=target, **options)
    return open_npy(data, target=target, **options)


def _names_parquet(data: Any) -> bool:
    """Whether this is a path, or several, and no .npy file."""
    if isinstance(data, str | os.PathLike):
        return not os.fspath(data).endswith(".npy")
    return isinstance(data, list | tuple) and all(
        isinstance(one, str | os.PathLike) for one in data
    )


def _open_frame(
    frame: Any,
    *,
    target: str,
    features: Sequence[str] | None,
    **options: Unpack[LongTableOptions],
) -> LongTable:
    """Return a data frame, or an Arrow table, as a long table."""
    subject, weight = options.get("subject"), options.get("weight")
    table = FrameTable(frame, Columns(target, subject, weight, features))
    memory = options.get("memory", DEFAULT_MEMORY)
    step = rows_at_once(memory, n_columns=table.n_features + 3)
    return _look_at(table, options, step=step)


def _open_sparse(
    X: Any, *, target: Any, **options: Unpack[LongTableOptions]
) -> LongTable:
    """Return a sparse matrix as a long table."""
    subject, weight = options.get("subject"), options.get("weight")
    table = SparseTable(X, target, weight=weight, subject=subject)
    table.require_memory(options.get("memory", DEFAULT_MEMORY))
    if options.get("cache", False):
        raise InvalidInput(
            "cache=True for a sparse matrix: its rows need no decoding; leave cache out"
        )
    return _look_at(table, options, step=BLOCK_ROWS)


def _look_at(table: RawTable, options: LongTableOptions, *, step: int) -> LongTable:
    """Look through rows that are decoded already, and copy them only if asked to."""
    if options.get("raw", False):
        raise InvalidInput(
            "raw=True is for Parquet files; pass a table in memory to fit as it is, "
            "with y and subjects beside it"
        )
    return LongTable(
        table,
        rows_at_once=step,
        owned=options.get("subject") is not None,
        cache=options.get("cache", False),
        folder=options.get("folder"),
        on_progress=options.get("on_progress", be_silent),
    )


def open_parquet(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    target: str,
    features: Sequence[str] | None = None,
    **options: Unpack[LongTableOptions],
) -> LongTable:
    """Look through Parquet files once and return them as a table to fit models to.

    Parameters
    ----------
    paths
        A file, several, or a folder: its files in the order of their names.
    target
        The column with the labels.
    features
        The columns that the model sees, in this order; all others if not given.
    options
        ``subject=`` and ``weight=``, the columns with the owner of each row and with
        its weight; ``memory=``, how many bytes the rows in memory may take;
        ``cache=False`` to decode the files in every pass; ``folder=``, where to keep
        decoded rows and the index of people; ``raw=True`` for features that an
        estimator's ``preprocessing`` encodes.
    """
    subject, weight = options.get("subject"), options.get("weight")
    table = ParquetTable(
        find_files(paths),
        Columns(target, subject, weight, features),
        memory=options.get("memory", DEFAULT_MEMORY),
        raw=options.get("raw", False),
    )
    return LongTable(
        table,
        rows_at_once=table.batch_rows,
        owned=subject is not None,
        cache=options.get("cache", True),
        folder=options.get("folder"),
        on_progress=options.get("on_progress", be_silent),
    )


def open_npy(
    features: Any, *, target: Any, **options: Unpack[LongTableOptions]
) -> LongTable:
    """Look through arrays once and return them as a table to fit models to.

    Parameters
    ----------
    features
        The matrix of features: a .npy file, or a memory map.
    target
        A label for each row: a .npy file, a memory map, or an array.
    options
        As for ``open_parquet``, with arrays in place of columns. The rows are decoded
        already, and copied only with ``cache=True``.
    """
    subject, weight = options.get("subject"), options.get("weight")
    table = NpyTable(features, target, weight=weight, subject=subject)
    memory = options.get("memory", DEFAULT_MEMORY)
    step = rows_at_once(memory, n_columns=table.n_features + 3)
    return _look_at(table, options, step=step)


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
                "a column of the table has a name that is not text; name all columns "
                "by text: frame.columns = [...]"
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
