# SPDX-License-Identifier: Apache-2.0
"""``preprocessing="auto"``: what is done with a table that nobody described."""

import datetime
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from expunge import Budget, LinearRegression, LogisticRegression, load
from expunge.exceptions import InvalidInput, Unsupported
from expunge.linear_model.base import private_model, public_model
from expunge.preprocessing.automatic import ColumnsWarning
from expunge.promise.scope import COLUMNS_GUESSED, QUANTA_GUESSED
from tests.attack.pipelines import is_near

N = 400


def make_frame() -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40.0, 12.0, N).round(),
            "spent": np.where(rng.random(N) < 0.2, np.nan, rng.exponential(80.0, N)),
            "member": rng.random(N) < 0.3,
            "town": rng.choice(["Ulm", "Jena", "Bern"], N),
            "since": pd.date_range("2019-01-01", periods=N, freq="61h"),
        }
    )
    frame.loc[::9, "town"] = None
    frame.loc[::7, "since"] = pd.NaT
    bent = np.abs(frame["age"] - 40.0) < 8.0
    return frame, (bent ^ (rng.random(N) < 0.1)).to_numpy()


def names_of(model: Any) -> tuple[str, ...]:
    public: Any = public_model(model)
    names: tuple[str, ...] = public.preprocessing.names
    return names


def test_numbers_bend_dates_have_parts_and_words_are_categories() -> None:
    frame, y = make_frame()
    model = LogisticRegression(preprocessing="auto", budget=Budget())
    model.fit(frame, y, subjects=[str(i) for i in range(N)])
    names = names_of(model)
    for wanted in (
        *("age", "spent", "since day", "spent missing", "since day missing"),
        *("member_True", "town_Ulm", "town_nan", "since month_12", "since weekday_0"),
    ):
        assert wanted in names
    assert any(" < age <= " in name for name in names)
    assert model.score(frame, y) > 0.85  # a straight line has 0.6
    assert {COLUMNS_GUESSED, QUANTA_GUESSED} <= {*model.certificate_.not_covered}
    model.forget(["1", "2"])
    assert model.certificate_.status == "certified"


def test_it_is_guessed_once_and_stays(tmp_path: Any) -> None:
    frame, y = make_frame()
    model = LogisticRegression(preprocessing="auto").fit(frame, y)
    first = private_model(model).encoding
    model.forget(rows=np.arange(300))
    rest = LogisticRegression(preprocessing=first.recipe.described)  # type: ignore[attr-defined]
    rest.fit(frame[300:], y[300:])
    assert names_of(model) == names_of(rest)
    assert is_near(model.predict_proba(frame), rest.predict_proba(frame), 1e-6)
    model.save(tmp_path / "model")
    assert names_of(load(tmp_path / "model")) == names_of(model)


def test_polars_and_pandas_are_the_same_table() -> None:
    polars = pytest.importorskip("polars")
    frame, y = make_frame()
    model = LogisticRegression(preprocessing="auto").fit(frame, y)
    rows = {name: frame[name].to_list() for name in frame}
    for name in ("since", "spent", "town"):
        rows[name] = [None if one != one else one for one in rows[name]]
    given = polars.DataFrame(rows)
    other = LogisticRegression(preprocessing="auto").fit(given, y)
    assert names_of(other) == names_of(model)
    assert is_near(other.predict_proba(given), model.predict_proba(frame))
    days = given.with_columns(polars.col("since").cast(polars.Date))
    LogisticRegression(preprocessing="auto").fit(days, y)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0] * N, "constant"),
        (["one"] * N, "constant"),
        ([None] * N, "empty"),
        (range(N), "counts the rows"),
        ([f"q{i}" for i in range(N)], "an id"),
        ([f"I have {i} things to say" for i in range(N)], "free text"),
        ([f"q{i // 4}" for i in range(N)], "fewer than 10 rows"),
        ([*["12", "13", "14"] * 130, *["none"] * 10], "mostly numbers"),
    ],
)
def test_columns_are_left_out_and_named(values: Any, said: str) -> None:
    frame, y = make_frame()
    with pytest.warns(ColumnsWarning, match=f"'odd': .*{said}"):
        LogisticRegression(preprocessing="auto").fit(frame.assign(odd=values), y)


def test_a_good_table_is_no_reason_to_warn() -> None:
    frame, y = make_frame()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnsWarning)
        LogisticRegression(preprocessing="auto").fit(frame, y)


def test_dates_of_python_and_long_tails() -> None:
    rng = np.random.default_rng(1)
    day = datetime.date(2020, 1, 1)
    frame = pd.DataFrame(
        {
            "day": [day + datetime.timedelta(int(i)) for i in rng.integers(0, 900, N)],
            "word": [f"w{min(int(i), 45)}" for i in rng.exponential(8.0, N)],
        }
    )
    y = rng.normal(size=N)
    model = LinearRegression(preprocessing="auto", budget=Budget()).fit(frame, y)
    assert "word_infrequent_sklearn" in names_of(model)
    assert "day month_1" in names_of(model)


def test_arrays_of_numbers_and_what_cannot_be() -> None:
    frame, y = make_frame()
    X = frame[["age", "spent"]].to_numpy()
    model = LogisticRegression(preprocessing="auto").fit(X, y)
    assert names_of(model)[:2] == ("0", "1")
    plain = LogisticRegression(preprocessing="auto", keep_data=False).fit(X, y)
    assert names_of(plain) == ("0", "1")  # bins take the rows
    with pytest.raises(InvalidInput, match="leaves no column"):
        LogisticRegression(preprocessing="auto").fit(np.ones((N, 2)), y)
    with pytest.raises(Unsupported, match="dense rows"):
        LogisticRegression(preprocessing="auto").fit(sparse.csr_array(np.eye(N)), y)
    lists: Any = [[1]] * N
    with pytest.raises(InvalidInput, match="neither text nor numbers"):
        LogisticRegression(preprocessing="auto").fit(frame.assign(age=lists), y)
    with pytest.raises(ValueError, match="preprocessing"):
        LogisticRegression(preprocessing="automatic").fit(X, y)


@pytest.mark.parametrize("kind", ["pandas", "polars", "numpy", "gaps"])
def test_a_table_without_preprocessing_is_told_of_it(kind: str) -> None:
    rng = np.random.default_rng(0)
    size: Any = rng.normal(size=60)
    y = size > 0.0
    table: Any = pd.DataFrame({"size": size, "town": ["Ulm", "Jena", None] * 20})
    if kind == "polars":
        table = pl.from_pandas(table)
    elif kind == "numpy":
        table = table.to_numpy()
    elif kind == "gaps":
        table = np.column_stack([size, np.where(size > 1.0, np.nan, size)])
    with pytest.raises(InvalidInput, match=r"; preprocessing='auto' takes words"):
        LogisticRegression().fit(table, y)
    LogisticRegression(preprocessing="auto").fit(table, y)
    with pytest.raises(ValueError, match="infinity"):
        LogisticRegression().fit(np.full((60, 1), np.inf), y)
