# SPDX-License-Identifier: Apache-2.0
"""Plain pipelines: what a stranger does with ``to_sklearn()`` gives our predictions."""

import io
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from expunge.exceptions import MissingExtra
from expunge.linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from expunge.linear_model.base import snapshot_of
from tests.raw_tables import (
    EVERYTHING,
    LABELS,
    LENIENT,
    NEW,
    STRICT,
    TABLE,
    fill,
    make_labels,
    one_hot,
    rows_for,
)

JOBLIB = import_module("joblib")
# What scikit-learn says where it encodes an unknown category and drops one.
pytestmark = pytest.mark.filterwarnings("ignore:Found unknown categories")


def fitted(preprocessing: Any, table: Any = TABLE) -> Any:
    model = LogisticRegression(preprocessing=preprocessing, alpha=1e-2)
    return model.fit(table, LABELS)


def require_same(plain: Any, model: Any, rows: Any, seen: Any = None) -> None:
    """Assert that both predict the same; ``seen`` are the rows as our model is fed."""
    wanted = model.predict_proba(rows if seen is None else seen)
    np.testing.assert_allclose(plain.predict_proba(rows), wanted, rtol=1e-10)


def table_of(model: Any) -> Any:
    plain = model.to_sklearn()
    assert type(plain) is Pipeline
    return plain.named_steps["preprocessing"]


@pytest.mark.parametrize("name", LENIENT | STRICT)
def test_pipeline_is_loaded_and_predicts(name: str) -> None:
    model, file = fitted((LENIENT | STRICT)[name]), io.BytesIO()
    JOBLIB.dump(model.to_sklearn(), file)
    require_same(JOBLIB.load(file), model, rows_for(name))


def test_our_package_is_not_needed(tmp_path: Path) -> None:
    model = fitted(EVERYTHING)
    JOBLIB.dump((model.to_sklearn(), NEW, model.predict_proba(NEW)), tmp_path / "m")
    script = (
        "import sys; sys.modules['expunge'] = None\n"
        "import joblib, numpy\n"
        "plain, rows, wanted = joblib.load(sys.argv[1])\n"
        "assert numpy.allclose(plain.predict_proba(rows), wanted)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "m")], check=True)


@pytest.mark.parametrize(
    "estimator", [LinearRegression(), SoftmaxRegression(), LogisticRegression()]
)
def test_every_model_has_a_pipeline(estimator: Any) -> None:
    y = make_labels(TABLE, 3)
    model = clone(estimator).set_params(preprocessing=EVERYTHING).fit(TABLE, y)
    plain = model.to_sklearn()
    np.testing.assert_allclose(plain.predict(NEW), model.predict(NEW), rtol=1e-10)
    if hasattr(model, "predict_proba"):
        require_same(plain, model, NEW)


def test_what_is_unknown_is_refused_there_too() -> None:
    for name in ("refused", "refused and rare"):
        plain = fitted(STRICT[name]).to_sklearn()
        with pytest.raises(ValueError, match="Found unknown categories"):
            plain.predict(NEW)


@pytest.mark.parametrize("name", ["ignored", "rare", "frequent", "everything"])
def test_none_nan_and_na_are_the_same(name: str) -> None:
    model = fitted(LENIENT[name])
    plain = model.to_sklearn()
    for missing in (None, np.nan, pd.NA):
        rows = NEW.astype({"city": object, "smokes": object, "grade": object})
        for column in ("city", "smokes", "grade"):
            rows[column] = [missing if pd.isna(v) else v for v in rows[column]]
        require_same(plain, model, rows)
    require_same(plain, model, NEW.astype({"city": "string", "smokes": "boolean"}))
    require_same(plain, model, NEW.astype({"city": "category", "ward": "Int64"}))


@pytest.mark.parametrize("name", ["ignored", "everything", "frequent"])
def test_arrays_without_names(name: str) -> None:
    places = {column: place for place, column in enumerate(TABLE.columns)}
    numbered = clone(LENIENT[name])
    numbered.transformers = [
        (part, step, [places[column] for column in columns])
        for part, step, columns in numbered.transformers
    ]
    array, rows = TABLE.to_numpy(dtype=object), NEW.to_numpy(dtype=object)
    model = fitted(numbered, array)
    require_same(model.to_sklearn(), model, rows)
    # As our model was fitted, but with None in place of NaN.
    gaps = rows.copy()
    gaps[pd.isna(rows)] = None
    require_same(model.to_sklearn(), model, gaps)


def test_numbers_as_categories_in_arrays_of_any_type() -> None:
    array = TABLE[["ward", "heat"]].to_numpy()
    preprocessing = ColumnTransformer(
        [("flags", one_hot(), [0]), ("number", StandardScaler(), [1])]
    )
    model = fitted(preprocessing, array)
    for kind in (np.float64, object):
        require_same(model.to_sklearn(), model, array.astype(kind))
    whole = array.astype(np.int64)
    require_same(model.to_sklearn(), model, whole)


def test_text_arrays() -> None:
    array = TABLE[["city", "grade"]].fillna("none").to_numpy().astype("U")
    model = fitted(OneHotEncoder(drop="first"), array)
    require_same(model.to_sklearn(), model, array)


def test_columns_may_be_more_and_in_another_order() -> None:
    """As scikit-learn has it: columns are found by name, and others do not matter."""
    model = fitted(EVERYTHING)
    plain = model.to_sklearn()
    more = NEW.assign(extra=1.0)[["extra", *NEW.columns[::-1]]]
    require_same(plain, model, more, NEW)
    require_same(plain, model, NEW.drop(columns=["note", "spare"]), NEW)
    with pytest.raises(ValueError, match="columns are missing"):
        plain.predict(NEW.drop(columns=["city"]))


def test_polars_frames() -> None:
    model = fitted(LENIENT["ignored"])
    plain = NEW.astype(object).where(NEW.notna(), None)
    rows = pl.DataFrame({name: plain[name].to_list() for name in plain})
    assert rows.schema["city"] == pl.String and rows.schema["smokes"] == pl.Boolean
    require_same(model.to_sklearn(), model, rows, NEW)


# scikit-learn says so of any pipeline that was fitted before set_output.
@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("name", LENIENT)
def test_features_have_the_names_that_ours_have(name: str) -> None:
    model = fitted(LENIENT[name])
    table = table_of(model)
    encoded = table.set_output(transform="pandas").transform(NEW)
    names = list(table.get_feature_names_out())
    assert list(encoded.columns) == names
    ours: Any = snapshot_of(model).public.preprocessing
    assert names == list(ours.names)
    wanted = ours.encode(NEW)
    np.testing.assert_allclose(encoded.to_numpy(dtype=float), wanted, rtol=1e-10)


def test_column_in_two_groups() -> None:
    preprocessing = ColumnTransformer(
        [
            ("flags", one_hot(), ["ward"]),
            ("number", make_pipeline(fill(), MinMaxScaler()), ["ward"]),
            ("again", make_pipeline(fill(), StandardScaler()), ["ward", "pay"]),
        ]
    )
    model = fitted(preprocessing)
    require_same(model.to_sklearn(), model, NEW)
    names = table_of(model).get_feature_names_out()
    assert len(set(names)) == len(names)


def test_after_forgetting_it_is_the_pipeline_of_the_others() -> None:
    table = TABLE.copy()
    table.loc[5, "city"] = "Atlantis"
    model = fitted(LENIENT["ignored"], table)
    assert "city_Atlantis" in table_of(model).get_feature_names_out()
    model.forget(rows=[5])
    require_same(model.to_sklearn(), model, NEW)
    file = io.BytesIO()
    JOBLIB.dump(model.to_sklearn(), file)
    assert b"Atlantis" not in file.getvalue()


def test_without_pandas_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    array = TABLE[["city", "grade"]].to_numpy(dtype=object)
    model = fitted(one_hot(), array)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match="run pip install pandas"):
        model.to_sklearn()
