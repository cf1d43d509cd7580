# SPDX-License-Identifier: Apache-2.0
"""Whatever file holds the rows, models have the bits of rows in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from expunge import LogisticRegression
from expunge.exceptions import InvalidInput
from expunge.linear_model.base import private_model
from expunge.long import open_npy, open_parquet
from tests.long_tables import NAMES, Columns, make_columns, make_table, write_files

N_ROWS = 20_011
NAMED: Any = {"target": "label", "subject": "id", "weight": "weight"}


def _theta(model: Any) -> Any:
    return private_model(model).answer.draft.theta


def _arrays(columns: Columns) -> dict[str, Any]:
    of_rows = {"subject": np.array(columns.subjects), "weight": columns.weight}
    return {"target": columns.words, **of_rows}


def _same_as_memory(table: Any, X: Any, columns: Columns) -> None:
    """Fit and forget in a table and in memory, and compare the bits."""
    held = LogisticRegression(alpha=0.01)
    of_rows: Any = {"subjects": columns.subjects, "sample_weight": columns.weight}
    held.fit(X, columns.words, **of_rows)
    with table:
        model = LogisticRegression(alpha=0.01).fit(table)
        assert np.array_equal(_theta(model), _theta(held))
        for people in (["person 7"], ["person 0", "person 3000"]):
            model.forget(subjects=people)
            held.forget(subjects=people)
            assert np.array_equal(_theta(model), _theta(held))
        again = [private_model(one) for one in (model, held)]
        rows: list[Any] = [one.remaining_rows() for one in again]
        pairs = zip(again, rows, strict=True)
        anchored = [one.reanchor(left).answer.draft.theta for one, left in pairs]
        assert np.array_equal(anchored[0], anchored[1])


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("kind", ["parquet", "npy", "mapped"])
def test_tables_of_every_kind_have_the_bits_of_memory(
    kind: str, cache: bool, tmp_path: Path
) -> None:
    columns = make_columns(N_ROWS)
    if kind == "parquet":
        lake = write_files(tmp_path / "lake", columns, columns.words)
        table = open_parquet(lake, features=NAMES, cache=cache, **NAMED)
    else:
        path = tmp_path / "x.npy"
        np.save(path, columns.X)
        X = path if kind == "npy" else np.load(path, mmap_mode="r")
        table = open_npy(X, cache=cache, **_arrays(columns))
    _same_as_memory(table, columns.X, columns)


@pytest.mark.parametrize("kind", ["pandas", "arrow", "array", "sparse"])
def test_what_is_in_memory_is_for_fit(kind: str) -> None:
    columns = make_columns(3_000)
    arrow = make_table(columns, columns.signs)
    given = {
        "pandas": arrow.to_pandas(),
        "arrow": arrow,
        "array": columns.X,
        "sparse": sparse.csr_array(columns.X),
    }
    with pytest.raises(InvalidInput, match=r"in memory.* pass them to fit\(X, y"):
        open_npy(given[kind], target=columns.signs)
