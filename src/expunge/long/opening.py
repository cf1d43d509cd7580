# SPDX-License-Identifier: Apache-2.0
"""Open a long table: files, arrays, data frames or sparse matrices."""

import os
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from scipy import sparse

from ..core.rows import BLOCK_ROWS
from ..display.progress import OnProgress, be_silent
from ..exceptions import InvalidInput
from .held import FrameTable, SparseTable
from .memory import DEFAULT_MEMORY, rows_at_once
from .npy import NpyTable
from .parquet import Columns, ParquetTable, find_files
from .raw_table import RawTable
from .table import LongTable


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
