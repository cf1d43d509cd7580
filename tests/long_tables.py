# SPDX-License-Identifier: Apache-2.0
"""Long tables for tests: the same rows in memory and in files."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from numpy.typing import NDArray

NAMES = tuple(f"f{place}" for place in range(6))


@dataclass(frozen=True, eq=False)
class Columns:
    """Rows in memory: features, a score, weights, and three rows for each person."""

    X: NDArray[Any]
    score: NDArray[Any]
    weight: NDArray[Any]
    subjects: list[str]

    @property
    def signs(self) -> NDArray[Any]:
        return np.asarray(np.where(self.score > 0.0, 1.0, -1.0))

    @property
    def classes(self) -> NDArray[Any]:
        return np.asarray(np.digitize(self.score, [-1.0, 1.0]), dtype=np.int64)

    @property
    def words(self) -> NDArray[Any]:
        return np.asarray(np.array(["low", "middle", "high"])[self.classes])


def make_columns(n_rows: int, dtype: Any = np.float64) -> Columns:
    """Return rows whose number no block divides."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(n_rows, len(NAMES))).astype(dtype)
    score = X @ rng.normal(size=len(NAMES)) + rng.normal(size=n_rows)
    people = [f"person {row // 3}" for row in range(n_rows)]
    return Columns(X, score, rng.random(n_rows) + 0.5, people)


def make_table(columns: Columns, target: Any) -> Any:
    """Return an Arrow table of the rows."""
    features = {name: columns.X[:, place] for place, name in enumerate(NAMES)}
    more = {"label": target, "weight": columns.weight, "id": columns.subjects}
    return pa.table(features | more)


def write_files(folder: Path, columns: Columns, target: Any) -> Path:
    """Write the rows into three files, with row groups that no block divides."""
    table, n_rows = make_table(columns, target), len(columns.X)
    folder.mkdir(exist_ok=True)
    cuts = [0, n_rows // 3, n_rows // 2, n_rows]
    for number, (begin, end) in enumerate(itertools.pairwise(cuts)):
        part = table.slice(begin, end - begin)
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=3001)
    return folder
