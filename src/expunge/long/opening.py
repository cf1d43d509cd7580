# SPDX-License-Identifier: Apache-2.0
"""Open a long table: Parquet files, or arrays in NumPy files."""

import os
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from ..display.progress import OnProgress, be_silent
from .memory import DEFAULT_MEMORY, rows_at_once
from .npy import NpyTable
from .parquet import Columns, ParquetTable, find_files
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
    """

    subject: Any
    weight: Any
    memory: int
    cache: bool
    folder: str | os.PathLike[str] | None
    on_progress: OnProgress


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
        decoded rows and the index of people.
    """
    subject, weight = options.get("subject"), options.get("weight")
    table = ParquetTable(
        find_files(paths),
        Columns(target, subject, weight, features),
        memory=options.get("memory", DEFAULT_MEMORY),
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
    return LongTable(
        table,
        rows_at_once=rows_at_once(memory, n_columns=table.n_features + 3),
        owned=subject is not None,
        cache=options.get("cache", False),
        folder=options.get("folder"),
        on_progress=options.get("on_progress", be_silent),
    )
