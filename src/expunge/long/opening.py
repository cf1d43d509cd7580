# SPDX-License-Identifier: Apache-2.0
"""Open a long table: Parquet files, or a matrix in a NumPy file.

What is in memory already is passed to ``fit``, with y and subjects beside it.
"""

import os
from collections.abc import Sequence
from typing import Any

from ..display.progress import OnProgress, be_silent
from .file_arrays import NpyTable
from .parquet import Columns, ParquetTable, find_files
from .raw_table import DEFAULT_MEMORY, rows_at_once
from .table import LongTable


def open_parquet(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    target: str,
    features: Sequence[str] | None = None,
    subject: str | None = None,
    weight: str | None = None,
    raw: bool = False,
    memory: int = DEFAULT_MEMORY,
    cache: bool = True,
    folder: str | os.PathLike[str] | None = None,
    on_progress: OnProgress = be_silent,
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
    subject, weight
        The columns with the owner of each row, and with its weight.
    raw
        Whether features may be words, and values missing, for estimators with
        ``preprocessing``.
    memory
        How many bytes the rows in memory may take at any time.
    cache
        Whether to keep decoded rows in a private folder until the table is closed:
        later passes are faster, and a removal overwrites the person's rows there.
        Without it the files are decoded in every pass.
    folder
        Where to make the private folder, which also has the index of people; the
        system's temporary folder if not given.
    on_progress
        Called with how many rows the first pass has read, of how many.
    """
    columns = Columns(target, subject, weight, features)
    table = ParquetTable(find_files(paths), columns, memory=memory, raw=raw)
    return LongTable(
        table,
        rows_at_once=table.batch_rows,
        owned=subject is not None,
        cache=cache,
        folder=folder,
        on_progress=on_progress,
    )


def open_npy(
    features: Any,
    *,
    target: Any,
    subject: Any = None,
    weight: Any = None,
    memory: int = DEFAULT_MEMORY,
    cache: bool = False,
    folder: str | os.PathLike[str] | None = None,
    on_progress: OnProgress = be_silent,
) -> LongTable:
    """Look through arrays once and return them as a table to fit models to.

    ``fit`` takes a memory map too, and copies it: a model keeps rows of its own, which
    it overwrites when people leave. Here they stay in their file.

    Parameters
    ----------
    features
        The matrix of features: a .npy file, or a memory map.
    target
        A label for each row: a .npy file, a memory map, or an array.
    subject, weight
        The owner of each row, and its weight: files, maps or arrays as well.
    memory, cache, folder, on_progress
        As for ``open_parquet``. The rows are decoded already, and copied only with
        ``cache=True``.
    """
    table = NpyTable(features, target, weight=weight, subject=subject)
    return LongTable(
        table,
        rows_at_once=rows_at_once(memory, n_columns=table.n_features + 3),
        owned=subject is not None,
        cache=cache,
        folder=folder,
        on_progress=on_progress,
    )
