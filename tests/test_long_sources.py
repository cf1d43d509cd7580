# SPDX-License-Identifier: Apache-2.0
"""Whatever holds the rows, one entry opens them, with the bits of rows in memory."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import sparse

from expunge import L2, Logistic, LogisticRegression, Objective
from expunge.exceptions import InvalidInput, Unsupported
from expunge.linear_model.snapshots import private_model
from expunge.long import open_table
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
@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "files", "npy"])
def test_tables_of_every_kind_have_the_bits_of_memory(
    kind: str, cache: bool, tmp_path: Path
) -> None:
    columns = make_columns(N_ROWS)
    arrow = make_table(columns, columns.words)
    options: Any = NAMED | {"features": NAMES, "cache": cache}
    if kind == "pandas":
        data: Any = arrow.to_pandas()
    elif kind == "polars":
        data = pl.DataFrame(arrow)
    elif kind == "arrow":
        data = arrow
    elif kind == "files":
        data = str(write_files(tmp_path / "lake", columns, columns.words))
    else:
        data, options = tmp_path / "x.npy", _arrays(columns) | {"cache": cache}
        np.save(data, columns.X)
    _same_as_memory(open_table(data, **options), columns.X, columns)


@pytest.mark.parametrize("mapped", [True, False])
def test_sparse_rows_stay_sparse_and_may_be_mapped(
    mapped: bool, tmp_path: Path
) -> None:
    columns = make_columns(30_001)
    X: Any = sparse.csr_array(np.where(np.abs(columns.X) > 1.0, columns.X, 0.0))
    given = X
    if mapped:
        parts = []
        for name in ("data", "indices", "indptr"):
            np.save(tmp_path / f"{name}.npy", getattr(X, name))
            parts.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
        given = sparse.csr_array(tuple(parts), shape=X.shape)
    table = open_table(given, **_arrays(columns))
    seen: set[bool] = set()

    def look(block: Any) -> tuple[int]:
        seen.add(sparse.issparse(block.X))
        return (len(block),)

    held = LogisticRegression(alpha=0.01).fit(X, columns.words)
    objective = private_model(held).objective
    assert table.rows(objective, code=np.zeros_like).sum_blocks(look) == (30_001,)
    assert seen == {True}
    _same_as_memory(table, X, columns)


def test_what_is_no_number_in_a_sparse_matrix_is_refused_by_its_place() -> None:
    columns = make_columns(5_000)
    X = columns.X.copy()
    X[4_321, 2] = np.nan
    with pytest.raises(InvalidInput, match=r"column 'x2' holds NaN.* in row 4321 "):
        open_table(sparse.csr_array(X), target=columns.signs)


def test_frames_are_checked_like_files() -> None:
    columns = make_columns(3_000)
    frame = make_table(columns, columns.signs).to_pandas()
    with pytest.raises(InvalidInput, match="no column 'late' in the table; it has"):
        open_table(frame, target="late")
    holed = frame.assign(f1=frame["f1"].where(frame.index != 2_500))
    with pytest.raises(InvalidInput, match=r"column 'f1' holds NaN.* in row 2500 "):
        open_table(holed, **NAMED)
    with pytest.raises(InvalidInput, match="holds 'person 0' in row 0, which is no"):
        open_table(frame, target="label")
    with pytest.raises(InvalidInput, match="has a name that is not text"):
        open_table(frame.rename(columns={"f1": 1}), target="label")


def test_rows_in_memory_do_not_travel_in_a_pickle() -> None:
    columns = make_columns(3_000)
    objective = Objective(Logistic(), L2(), 0.01)
    frame = make_table(columns, columns.signs)
    sparse_rows = sparse.csr_array(columns.X)
    for table in (
        open_table(frame, **NAMED),
        open_table(sparse_rows, target=columns.signs),
    ):
        with table, pytest.raises(Unsupported, match="do not leave this process"):
            pickle.dumps(table.rows(objective))


def test_a_matrix_takes_arrays_and_no_names() -> None:
    columns = make_columns(3_000)
    X = sparse.csr_array(columns.X)
    with pytest.raises(InvalidInput, match="a matrix has no names"):
        open_table(X, target=columns.signs, features=["f1"])
    with pytest.raises(InvalidInput, match=r"target has shape \(2,\) and features"):
        open_table(X, target=columns.signs[:2])
    with pytest.raises(InvalidInput, match="leave cache out"):
        open_table(X, target=columns.signs, cache=True)
    with pytest.raises(InvalidInput, match="memory=1000 bytes is too little"):
        open_table(X, target=columns.signs, memory=1_000)
