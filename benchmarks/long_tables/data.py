# SPDX-License-Identifier: Apache-2.0
"""A long table in Parquet files, written a row group at a time."""

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


def write_table(folder: Path, shape: LongShape) -> None:
    """Write normal features, a noisy label, and an owner of about two rows each."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    rng = np.random.default_rng(11)
    direction = rng.normal(size=shape.n_columns) / np.sqrt(shape.n_columns)
    left = shape.n_rows
    for number in range(FILES):
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
                path = folder / f"{number}.parquet"
                writer = pq.ParquetWriter(path, table.schema)
            writer.write_table(table, row_group_size=GROUP_ROWS)
        if writer is not None:
            writer.close()


def decode_table(folder: Path, n_columns: int) -> None:
    """Decode all features into contiguous float64, a batch at a time, and drop them."""
    import pyarrow.parquet as pq

    names = [f"x{j}" for j in range(n_columns)]
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(65_536, columns=names, use_threads=False):
                columns = [column.to_numpy() for column in batch.columns]
                # A block that stays in the cache: filling it by columns is fast then.
                for begin in range(0, batch.num_rows, BLOCK_ROWS):
                    end = min(begin + BLOCK_ROWS, batch.num_rows)
                    X = np.empty((end - begin, n_columns))
                    for place, column in enumerate(columns):
                        X[:, place] = column[begin:end]
