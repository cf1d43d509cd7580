# SPDX-License-Identifier: Apache-2.0
"""Estimators fitted to long tables: they fit, forget and release as in memory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from expunge import (
    Budget,
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
    TunedClassifier,
)
from expunge.core.rows import RowSource
from expunge.exceptions import InvalidInput, UnknownSubject, Unsupported
from expunge.linear_model.base import private_model
from expunge.long import LongTable, StoredRows, open_parquet
from expunge.private_model.answers import MEASURED
from expunge.promise.scope import ROWS_IN_FILES
from tests.long_tables import NAMES, Columns, make_columns, write_files

N_ROWS = 9_001
BUDGET = Budget(epsilon=2.0, delta=1e-6, sigma=0.05, releases=20)


def _open(lake: Path, columns: Columns, target: Any, **options: Any) -> LongTable:
    write_files(lake, columns, target)
    named: Any = {"target": "label", "subject": "id", "weight": "weight"} | options
    return open_parquet(lake, **({"features": NAMES} | named))


def _theta(model: Any) -> Any:
    return private_model(model).answer.draft.theta


def _count_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets an entry for every pass over files."""
    passes: list[int] = []
    plain: Callable[..., Iterator[Any]] = StoredRows.map_blocks

    def counted(self: StoredRows, term: Any) -> Iterator[Any]:
        passes.append(self.n_blocks)
        return plain(self, term)

    monkeypatch.setattr(StoredRows, "map_blocks", counted)
    return passes


MODELS = [
    (LogisticRegression, "signs"),
    (LogisticRegression, "words"),
    (SoftmaxRegression, "classes"),
    (LinearRegression, "score"),
]


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("kind, target", MODELS)
def test_a_model_of_files_is_that_of_memory_before_and_after(
    kind: Any, target: str, cache: bool, tmp_path: Path
) -> None:
    columns = make_columns(N_ROWS)
    y = getattr(columns, target)
    held = kind(alpha=0.01)
    held.fit(columns.X, y, subjects=columns.subjects, sample_weight=columns.weight)
    with _open(tmp_path / "lake", columns, y, cache=cache) as table:
        model = kind(alpha=0.01).fit(table)
        assert np.array_equal(model.coef_, held.coef_)
        assert np.array_equal(model.intercept_, held.intercept_)
        assert model.feature_names_in_.tolist() == list(NAMES)
        if kind is not LinearRegression:
            assert model.classes_.tolist() == held.classes_.tolist()
        for people in (["person 7"], ["person 0", "person 3000"]):
            model.forget(subjects=people)
            held.forget(subjects=people)
            assert np.array_equal(_theta(model), _theta(held))
        assert len(table) == N_ROWS - 7
        after = [private_model(one) for one in (model, held)]
        anchored = [one.reanchor(_rows(one)).answer.draft.theta for one in after]
        assert np.array_equal(anchored[0], anchored[1])
        with pytest.raises(UnknownSubject, match="1 of 1 people"):
            model.forget(subjects=["person 7"])


def _rows(private: Any) -> RowSource:
    rows: RowSource = private.remaining_rows()
    return rows


def test_a_request_reads_the_rows_of_the_person_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = make_columns(N_ROWS)
    with _open(tmp_path / "lake", columns, columns.signs) as table:
        model = LogisticRegression(alpha=0.01, budget=BUDGET).fit(table)
        assert model.certificate_.status == "certified"
        assert ROWS_IN_FILES in model.certificate_.not_covered
        passes = _count_passes(monkeypatch)
        model.forget(subjects=["person 5"])
        assert not passes
        assert model.record_.n_removed == 3


def test_a_look_is_one_pass_and_sees_what_memory_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = make_columns(20_001)
    held = LogisticRegression(alpha=0.01, budget=Budget(releases=100, sigma=0.003))
    of_rows: Any = {"subjects": columns.subjects, "sample_weight": columns.weight}
    held.fit(columns.X, columns.signs, **of_rows)
    people = [f"person {number}" for number in range(150)]
    with _open(tmp_path / "lake", columns, columns.signs) as table:
        model = LogisticRegression(**held.get_params()).fit(table)
        passes = _count_passes(monkeypatch)
        for one in (model, held):
            one.forget(subjects=people)
        answers = [private_model(one).answer for one in (model, held)]
        assert [one.decisions for one in answers] == [(MEASURED,)] * 2
        assert len(passes) == 1
        assert answers[0].radius == answers[1].radius
        assert np.array_equal(_theta(model), _theta(held))


def test_a_model_that_looks_at_rows_finds_the_person_gone(tmp_path: Path) -> None:
    columns = make_columns(N_ROWS)
    with _open(tmp_path / "lake", columns, columns.classes) as table:
        model = LogisticRegression(alpha=0.01, mechanism="retrain").fit(table)
        model.forget(subjects=["person 11", "person 12"])
        stay = np.ones(N_ROWS, dtype=bool)
        stay[33:39] = False
        fresh = LogisticRegression(alpha=0.01).fit(
            columns.X[stay], columns.classes[stay], sample_weight=columns.weight[stay]
        )
        np.testing.assert_allclose(_theta(model), _theta(fresh), atol=1e-9)
        again = LogisticRegression(alpha=0.01).fit(table)
        np.testing.assert_allclose(_theta(again), _theta(fresh), atol=1e-9)


def test_a_model_without_matrices_reads_files_too(tmp_path: Path) -> None:
    columns = make_columns(3_000)
    held = LogisticRegression(alpha=0.01, mechanism="matrix-free")
    held.fit(columns.X, columns.signs, subjects=columns.subjects)
    lake = tmp_path / "lake"
    with _open(lake, columns, columns.signs, weight=None, cache=False) as table:
        model = LogisticRegression(alpha=0.01, mechanism="matrix-free").fit(table)
        for one in (model, held):
            one.forget(subjects=["person 8"])
        assert np.array_equal(_theta(model), _theta(held))


def test_a_file_that_changed_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    columns = make_columns(3_000)
    lake = tmp_path / "lake"
    with _open(lake, columns, columns.signs, cache=False) as table:
        model = LogisticRegression(alpha=0.01).fit(table)
        before = _theta(model)
        (lake / "1.parquet").unlink()
        with pytest.raises(InvalidInput, match="file 1 changed, or is gone"):
            model.forget(subjects=["person 8"])
        assert np.array_equal(_theta(model), before)
        assert len(table) == 3_000


def test_a_class_goes_with_its_last_row(tmp_path: Path) -> None:
    columns = make_columns(3_000)
    y = columns.words.astype(object)
    y[y == "high"] = "low"
    y[[30, 31]] = "rare"
    with _open(tmp_path / "lake", columns, y.astype(str)) as table:
        model = LogisticRegression(alpha=0.01).fit(table)
        assert model.classes_.tolist() == ["low", "middle", "rare"]
        model.forget(subjects=["person 10"])
        assert model.classes_.tolist() == ["low", "middle"]
        fresh = LogisticRegression(alpha=0.01).fit(table)
        assert fresh.classes_.tolist() == ["low", "middle"]
        np.testing.assert_allclose(_theta(model), _theta(fresh), atol=1e-9)


def test_rows_without_owners_are_forgotten_by_position(tmp_path: Path) -> None:
    columns = make_columns(3_000)
    held = LogisticRegression(alpha=0.01).fit(columns.X, columns.signs)
    options = {"subject": None, "weight": None}
    with _open(tmp_path / "lake", columns, columns.signs, **options) as table:
        model = LogisticRegression(alpha=0.01).fit(table)
        for one in (model, held):
            one.forget(rows=[17, 2_999])
        assert np.array_equal(_theta(model), _theta(held))
        with pytest.raises(UnknownSubject, match="1 of 2 rows"):
            model.forget(rows=[17, 18])
        with pytest.raises(UnknownSubject, match="1 of 1 rows"):
            model.forget(rows=[3_000])
        with pytest.raises(InvalidInput, match="fitted without subjects"):
            model.forget(subjects=["person 1"])


def test_a_table_serves_the_model_fitted_last(tmp_path: Path) -> None:
    columns = make_columns(3_000)
    with _open(tmp_path / "lake", columns, columns.signs) as table:
        first = LogisticRegression(alpha=0.01).fit(table)
        second = LogisticRegression(alpha=0.02).fit(table)
        with pytest.raises(InvalidInput, match="another model was fitted to this"):
            first.forget(subjects=["person 1"])
        second.forget(subjects=["person 1"])
    with pytest.raises(InvalidInput, match="the table was closed"):
        second.forget(subjects=["person 2"])


def test_what_a_long_table_does_not_serve_is_refused(tmp_path: Path) -> None:
    columns = make_columns(3_000)
    with _open(tmp_path / "lake", columns, columns.signs) as table:
        with pytest.raises(InvalidInput, match=r"leave y\s+out"):
            LogisticRegression().fit(table, columns.signs)
        with pytest.raises(InvalidInput, match="leave keep_data out"):
            LogisticRegression(keep_data=False).fit(table)
        with pytest.raises(Unsupported, match="class_weight is not for long tables"):
            LogisticRegression(class_weight={1.0: 2.0}).fit(table)
        with pytest.raises(Unsupported, match="needs rows in memory"):
            TunedClassifier(alphas=[0.1, 0.01]).fit(table)
        model = LogisticRegression(alpha=0.01).fit(table)
        before, first = _theta(model), pd.DataFrame(columns.X[:1], columns=NAMES)
        with pytest.raises(Unsupported, match="lie in the files of a long table"):
            model.forget(X=first, y=columns.signs[:1])
        with pytest.raises(Unsupported, match="lie in the files of a long table"):
            model.add(first, columns.signs[:1], **_of_rows(columns))
        with pytest.raises(Unsupported, match="lie in the files of a long table"):
            model.save(tmp_path / "model")
        assert np.array_equal(_theta(model), before)
        assert len(table) == 3_000


def _of_rows(columns: Columns) -> dict[str, Any]:
    return {"subjects": ["new"], "sample_weight": columns.weight[:1]}


def test_a_classifier_of_numbers_and_a_regression_of_words_are_refused(
    tmp_path: Path,
) -> None:
    columns = make_columns(12_000)
    with _open(tmp_path / "a", columns, columns.score) as table:
        with pytest.raises(ValueError, match="continuous"):
            LogisticRegression().fit(table)
    with _open(tmp_path / "b", columns, columns.words) as table:
        with pytest.raises(ValueError, match="could not convert"):
            LinearRegression().fit(table)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_tables_in_memory_need_no_opening(make: Callable[[Any], Any]) -> None:
    columns = make_columns(600)
    frame = make({name: columns.X[:, i] for i, name in enumerate(NAMES)})
    model = LogisticRegression(alpha=0.01).fit(frame, columns.signs)
    plain = LogisticRegression(alpha=0.01).fit(columns.X, columns.signs)
    assert np.array_equal(model.coef_, plain.coef_)
