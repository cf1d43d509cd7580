# SPDX-License-Identifier: Apache-2.0
"""Lakes to test with: Parquet files, a registry that reads them, the same in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from expunge import LogisticRegression
from expunge.long import LongTable, open_parquet
from expunge.registry import Lake, Registry
from tests.long_tables import NAMES, Columns, make_columns, write_files
from tests.registries import BUDGET, private_model_of

N_ROWS = 4_501
COLUMNS: dict[str, Any] = {"target": "label", "subject": "id", "weight": "weight"}


def make_lake(folder: Path, n_rows: int = N_ROWS) -> Columns:
    """Write a lake of three files, and return its rows."""
    columns = make_columns(n_rows)
    write_files(folder, columns, columns.words)
    return columns


def open_lake(folder: Path, **options: Any) -> LongTable:
    """Return the table of a lake."""
    return open_parquet(folder, **(COLUMNS | {"features": NAMES} | options))


def model(**changes: Any) -> LogisticRegression:
    """Return an estimator under a budget."""
    settings: dict[str, Any] = {"alpha": 0.01, "budget": BUDGET} | changes
    return LogisticRegression(**settings)


def fit_lake(
    registry: Registry, lake: Path, name: str = "late", **choices: Any
) -> None:
    """Fit a model to a lake."""
    with open_lake(lake) as table:
        registry.fit(name, model(), Lake(table, **({"source": "orders"} | choices)))


def named(X: Any) -> pd.DataFrame:
    """Return features under their names."""
    return pd.DataFrame(X, columns=list(NAMES))


def fit_memory(registry: Registry, columns: Columns, name: str = "memory") -> None:
    """Fit the same model to the same rows in memory."""
    X = named(columns.X)
    of_rows: Any = {"subjects": columns.subjects, "sample_weight": columns.weight}
    registry.fit(name, model(), X, columns.words, **of_rows)


def theta(registry: Registry, name: str) -> Any:
    """Return the noise-free parameters of a model."""
    return private_model_of(registry, name).answer.draft.theta


def retrained(columns: Columns, *people: str) -> Any:
    """Return the noise-free parameters that a fit without these people has."""
    from expunge.linear_model.base import private_model

    stay = np.array([one not in people for one in columns.subjects])
    fitted = model(budget=None).fit(
        columns.X[stay], columns.words[stay], sample_weight=columns.weight[stay]
    )
    return private_model(fitted).answer.draft.theta


def require_close(registry: Registry, name: str, expected: Any) -> None:
    """See that a model is as near to others as its radius says."""
    private = private_model_of(registry, name)
    gap = np.linalg.norm(private.answer.draft.theta - expected)
    assert gap <= private.answer.radius.value + 1e-9


def touch(path: Path) -> None:
    """Write a file again with one other number in it."""
    table = pq.read_table(path)
    first = table.column(NAMES[0]).to_numpy().copy()
    first[0] += 1.0
    changed = table.set_column(0, NAMES[0], [first])
    pq.write_table(changed, path, row_group_size=3001)
