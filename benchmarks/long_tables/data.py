# SPDX-License-Identifier: Apache-2.0
"""A long table in Parquet files, written a row group at a time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FILES = 4
GROUP_ROWS = 100_000
BLOCK_ROWS = 2048


class LongShape(NamedTuple):
    """Rows and columns of a table, and the type of its features."""

    n_rows: int
    n_columns: int
    dtype: str

    def __str__(self) -> str:
        return f"{self.n_rows} x {self.n_columns} {self.dtype}"


def write_table(folder: Path, shape: LongShape) -> list[Path]:
    """Write normal features, a noisy label, and an owner of about two rows each.

    Returns the files, which are equally long: the first half is a table half as long.
    """
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    rng = np.random.default_rng(11)
    direction = rng.normal(size=shape.n_columns) / np.sqrt(shape.n_columns)
    left = shape.n_rows
    paths = [folder / f"{number}.parquet" for number in range(FILES)]
    for number, path in enumerate(paths):
        rows = left // (FILES - number)
        left -= rows
        writer: Any = None
        while rows:
            n = min(rows, GROUP_ROWS)
            rows -= n
            X = rng.standard_normal((n, shape.n_columns)).astype(shape.dtype)
            y = (X @ direction + rng.normal(size=n) > 0.0).astype(np.int8)
            columns: dict[str, Any] = {f"x{j}": X[:, j] for j in range(X.shape[1])}
            columns |= {"label": y, "id": rng.integers(shape.n_rows // 2 + 1, size=n)}
            table = pa.table(columns)
            if writer is None:
                writer = pq.ParquetWriter(path, table.schema)
            writer.write_table(table, row_group_size=GROUP_ROWS)
        if writer is not None:
            writer.close()
    return paths


def read_rows(path: Path, n_columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the features, labels and owners of the first rows of a file."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        table = file.read_row_group(0)
    X = np.column_stack([table[f"x{j}"].to_numpy() for j in range(n_columns)])
    return X, table["label"].to_numpy(), table["id"].to_numpy()


def decode_table(paths: Sequence[Path], n_columns: int) -> None:
    """Decode all features into contiguous float64, a batch at a time, and drop them."""
    import pyarrow.parquet as pq

    names = [f"x{j}" for j in range(n_columns)]
    for path in paths:
        with pq.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            for batch in file.iter_batches(65_536, columns=names, use_threads=False):
                columns = [column.to_numpy() for column in batch.columns]
                # A block that stays in the cache: filling it by columns is fast then.
                for begin in range(0, batch.num_rows, BLOCK_ROWS):
                    end = min(begin + BLOCK_ROWS, batch.num_rows)
                    X = np.empty((end - begin, n_columns))
                    for place, column in enumerate(columns):
                        X[:, place] = column[begin:end]
