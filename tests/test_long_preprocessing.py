# SPDX-License-Identifier: Apache-2.0
"""Preprocessing of long tables: learned block by block, with the bits of memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

from expunge import Budget, LinearRegression, LogisticRegression
from expunge.exceptions import InvalidInput, Unsupported
from expunge.linear_model.base import private_model
from expunge.long import open_parquet
from expunge.preprocessing.learned import Learned

FEATURES = ["age", "load", "town", "grade", "late", "region"]
GRADES = ["low", "middle", "high"]
SCALED = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
FLAGGED = OneHotEncoder(handle_unknown="ignore", min_frequency=20)
ORDERED = OrdinalEncoder(categories=[GRADES])


def _make_frame(n_rows: int) -> pd.DataFrame:
    """Return rows with gaps, words, truth values and numbers that are names."""
    rng = np.random.default_rng(5)
    age, load = rng.normal(40.0, 12.0, n_rows), rng.lognormal(0.0, 1.0, n_rows)
    age[rng.random(n_rows) < 0.1] = np.nan
    towns = np.array(["Bonn", "Köln", "Ulm", None], dtype=object)
    town = towns[rng.integers(4, size=n_rows)]
    town[:3] = "Trier"  # the rows of one person
    score = np.nan_to_num(age, nan=40.0) / 20.0 - 2.0 + load - (town == "Ulm")
    return pd.DataFrame(
        {
            "age": age,
            "load": load,
            "town": town,
            "grade": rng.choice(GRADES, n_rows),
            "late": rng.random(n_rows) < 0.3,
            "region": rng.integers(3, size=n_rows),
            "score": score,
            "label": np.where(score + rng.normal(size=n_rows) > 0.5, "yes", "no"),
            "weight": rng.random(n_rows) + 0.5,
            "id": [f"person {row // 3}" for row in range(n_rows)],
        }
    )


def _make_preprocessing() -> Any:
    return ColumnTransformer(
        [
            ("numbers", SCALED, ["age", "load"]),
            ("words", FLAGGED, ["town", "region", "late"]),
            ("order", ORDERED, ["grade"]),
        ]
    )


def _write(frame: pd.DataFrame, folder: Path) -> Path:
    folder.mkdir()
    cut = len(frame) // 3
    for number, part in enumerate((frame[:cut], frame[cut:])):
        part.to_parquet(folder / f"{number}.parquet", row_group_size=3001)
    return folder


def _open(folder: Path, **options: Any) -> Any:
    named: Any = {"target": "label", "subject": "id", "weight": "weight", "raw": True}
    return open_parquet(folder, **(named | {"features": FEATURES} | options))


def _learned(model: Any) -> Learned:
    found = private_model(model).encoding
    assert isinstance(found, Learned)
    return found


def _same_features(one: Any, other: Any) -> bool:
    ours, theirs = _learned(one), _learned(other)
    sums = [each.statistics.sums for each in (ours, theirs)]
    same = sums[0].total == sums[1].total and sums[0].powers == sums[1].powers
    return same and ours.features.equals(theirs.features)


def _same_draft(one: Any, other: Any) -> bool:
    drafts = [private_model(model).answer.draft.theta for model in (one, other)]
    return np.array_equal(drafts[0], drafts[1])


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_pipeline_of_files_is_that_of_memory_before_and_after(
    cache: bool, intercept: bool, tmp_path: Path
) -> None:
    frame = _make_frame(100_003 if cache and intercept else 20_011)
    folder = _write(frame, tmp_path / "lake")
    options: Any = {"alpha": 0.01, "fit_intercept": intercept}
    options["preprocessing"] = _make_preprocessing()
    held = LogisticRegression(**options)
    of_rows: Any = {"subjects": frame["id"], "sample_weight": frame["weight"]}
    held.fit(frame[FEATURES], frame["label"], **of_rows)
    with _open(folder, cache=cache) as table:
        model = LogisticRegression(**options).fit(table)
        assert _same_features(model, held)
        assert _same_draft(model, held)
        assert np.array_equal(model.coef_, held.coef_)
        few = frame[FEATURES][:50]
        assert np.array_equal(model.predict(few), held.predict(few))
        for people in (["person 7"], ["person 1", "person 3000"]):
            model.forget(subjects=people)
            held.forget(subjects=people)
            assert _same_features(model, held)
            assert _same_draft(model, held)


def test_a_word_leaves_with_the_last_who_had_it(tmp_path: Path) -> None:
    frame = _make_frame(9_001)
    folder = _write(frame, tmp_path / "lake")
    steps = make_pipeline(OneHotEncoder())
    left = frame[3:]
    fresh = LogisticRegression(alpha=0.01, preprocessing=steps)
    fresh.fit(left[["town"]], left["label"], sample_weight=left["weight"])
    with _open(folder, features=["town"]) as table:
        model = LogisticRegression(alpha=0.01, preprocessing=steps).fit(table)
        names = _learned(model).features.layout.names
        assert names == ("town_Bonn", "town_Köln", "town_Trier", "town_Ulm", "town_nan")
        model.forget(subjects=["person 0"])
        assert "town_Trier" not in _learned(model).features.layout.names
        assert np.allclose(model.coef_, fresh.coef_, atol=1e-4)
        again = LogisticRegression(alpha=0.01, preprocessing=steps).fit(table)
        assert "town_Trier" not in _learned(again).features.layout.names
        assert np.allclose(again.coef_, fresh.coef_, rtol=1e-9)


def test_a_certified_pipeline_looks_at_rows_in_files(tmp_path: Path) -> None:
    frame = _make_frame(9_001)
    folder = _write(frame, tmp_path / "lake")
    options: Any = {"alpha": 0.01, "preprocessing": _make_preprocessing()}
    options |= {"budget": Budget(releases=50, allow_seeded=True), "random_state": 3}
    gone = [f"person {number}" for number in range(1, 3_000, 2)]
    left = frame[~frame["id"].isin(gone)]
    fresh = LogisticRegression(alpha=0.01, preprocessing=_make_preprocessing())
    fresh.fit(left[FEATURES], left["label"], sample_weight=left["weight"])
    with _open(folder) as table:
        model = LogisticRegression(**options).fit(table)
        model.forget(subjects=gone)
        assert len(table) == len(left)
        assert model.certificate_.epsilon is not None
        assert _same_features(model, fresh)
        # Half of the people left: the rows were read, and the answer is a fit's.
        drafts = [private_model(one).answer.draft.theta for one in (model, fresh)]
        assert np.allclose(drafts[0], drafts[1], atol=1e-6)


def test_what_raw_columns_cannot_have_is_refused(tmp_path: Path) -> None:
    frame = _make_frame(3_001)
    folder = _write(frame, tmp_path / "lake")
    scaled = LogisticRegression(preprocessing=StandardScaler())
    with _open(folder) as table:
        with pytest.raises(InvalidInput, match="nothing encodes its columns"):
            LogisticRegression().fit(table)
        with pytest.raises(InvalidInput, match="column 'age' has missing values"):
            scaled.fit(table)
        ranged = ColumnTransformer([("ends", MinMaxScaler(), ["load"])])
        with pytest.raises(Unsupported, match="are not for long tables"):
            LogisticRegression(preprocessing=ranged).fit(table)
        median = ColumnTransformer([("a", SimpleImputer(strategy="median"), ["age"])])
        with pytest.raises(Unsupported, match="medians"):
            LogisticRegression(preprocessing=median).fit(table)
        worded = ColumnTransformer([("a", StandardScaler(), ["town"])])
        with pytest.raises(InvalidInput, match="column 'town'"):
            LogisticRegression(preprocessing=worded).fit(table)
    with _open(folder, features=["load", "region"], raw=False) as table:
        with pytest.raises(InvalidInput, match="open the table with raw=True"):
            scaled.fit(table)
    with pytest.raises(InvalidInput, match="column 'id' has more than 10000 different"):
        long = _make_frame(31_000)
        _open(_write(long, tmp_path / "long"), subject=None, features=["id"])


def test_numbers_may_be_scaled_truth_values_too(tmp_path: Path) -> None:
    frame = _make_frame(5_003)
    folder = _write(frame, tmp_path / "lake")
    columns = ["load", "late", "region"]
    held = LinearRegression(alpha=0.01, preprocessing=StandardScaler())
    held.fit(frame[columns], frame["score"], subjects=frame["id"])
    with _open(folder, features=columns, target="score", weight=None) as table:
        model = LinearRegression(alpha=0.01, preprocessing=StandardScaler()).fit(table)
        model.forget(subjects=["person 12"])
        held.forget(subjects=["person 12"])
        assert _same_features(model, held)
        assert _same_draft(model, held)


def test_an_infinite_value_is_refused_by_its_place(tmp_path: Path) -> None:
    frame = _make_frame(5_003)
    frame.loc[4_500, "load"] = np.inf
    with pytest.raises(InvalidInput, match=r"column 'load' holds infinity, in file 1"):
        _open(_write(frame, tmp_path / "lake"))


def test_a_class_leaves_a_pipeline_with_its_last_row(tmp_path: Path) -> None:
    frame = _make_frame(6_001)
    frame.loc[:2, "label"] = "maybe"  # the rows of one person
    folder = _write(frame, tmp_path / "lake")
    steps = _make_preprocessing()
    left = frame[3:]
    fresh = LogisticRegression(alpha=0.01, preprocessing=steps)
    fresh.fit(left[FEATURES], left["label"], sample_weight=left["weight"])
    with _open(folder) as table:
        model = LogisticRegression(alpha=0.01, preprocessing=steps).fit(table)
        assert model.classes_.tolist() == ["maybe", "no", "yes"]
        model.forget(subjects=["person 0"])
        assert model.classes_.tolist() == ["no", "yes"]
        assert _names(model) == _names(fresh)
        drafts = [private_model(one).answer.draft.theta for one in (model, fresh)]
        assert np.allclose(drafts[0], drafts[1], atol=1e-8)


def _names(model: Any) -> tuple[str, ...]:
    return _learned(model).features.layout.names


def test_a_pipeline_that_retrains_reads_the_files(tmp_path: Path) -> None:
    frame = _make_frame(6_001)
    folder = _write(frame, tmp_path / "lake")
    options: Any = {"alpha": 0.01, "preprocessing": _make_preprocessing()}
    options["mechanism"] = "retrain"
    held = LogisticRegression(**options)
    of_rows: Any = {"subjects": frame["id"], "sample_weight": frame["weight"]}
    held.fit(frame[FEATURES], frame["label"], **of_rows)
    with _open(folder, cache=False) as table:
        model = LogisticRegression(**options).fit(table)
        for one in (model, held):
            one.forget(subjects=["person 4", "person 1000"])
        assert _same_features(model, held)
        drafts = [private_model(one).answer.draft.theta for one in (model, held)]
        assert np.allclose(drafts[0], drafts[1], atol=1e-10)
        before = private_model(model)
        path = folder / "1.parquet"
        path.write_bytes(path.read_bytes() + b" ")
        with pytest.raises(InvalidInput, match="file 1 changed"):
            model.forget(subjects=["person 7"])
        assert private_model(model) is before
        assert len(table) == 6_001 - 6
