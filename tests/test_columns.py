# SPDX-License-Identifier: Apache-2.0
"""Columns of a table become the features that scikit-learn makes of them, or nothing.

What cannot be done exactly as scikit-learn does it is refused with one line.
"""

from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

from expunge import Budget, LinearRegression, LogisticRegression
from expunge.exceptions import InvalidInput, Unsupported
from expunge.linear_model.base import private_model, public_model
from expunge.linear_model.rows import refuse_missing_dates
from expunge.preprocessing.columns import (
    as_frame,
    find_categories,
    take_column,
    take_rows,
    to_numbers,
)

N_ROWS = 24


def frame() -> pd.DataFrame:
    """Return numbers near and far from zero, text, gaps, and nothing at all."""
    rng = np.random.default_rng(7)
    table = pd.DataFrame(
        {
            "age": np.round(rng.normal(40.0, 12.0, N_ROWS)),
            "year": 1e6 + rng.normal(size=N_ROWS),
            "gaps": np.where(np.arange(N_ROWS) % 5 == 1, np.nan, rng.normal(size=24)),
            "city": np.array(["ulm", "bonn", "jena", "ulm"], dtype=object)[
                np.arange(N_ROWS) % 4
            ],
            "word": np.array(["z", None, "a", "z", "b", "z"], dtype=object)[
                np.arange(N_ROWS) % 6
            ],
            "grade": np.array(["low", "high"], dtype=object)[np.arange(N_ROWS) % 2],
            "code": np.arange(N_ROWS) % 3,
            "truth": np.arange(N_ROWS) % 3 == 1,
            "flat": 3.25,
            "empty": np.nan,
        }
    )
    table.loc[0, "city"] = "kiel"
    return table


def one_hot(**settings: Any) -> OneHotEncoder:
    return OneHotEncoder(sparse_output=False, **settings)


def on(columns: list[str], *steps: Any) -> ColumnTransformer:
    """Return steps for some columns; the others are left out."""
    return ColumnTransformer([("own", make_pipeline(*steps), columns)])


CASES = [
    on(["age", "year", "flat"], StandardScaler()),
    on(["age", "code"], StandardScaler(with_mean=False)),
    on(["age", "year"], StandardScaler(with_std=False)),
    on(["age", "year", "flat"], MinMaxScaler((-1.0, 2.0))),
    on(["age", "year", "flat"], MaxAbsScaler()),
    on(["gaps", "age"], SimpleImputer(), StandardScaler()),
    on(["gaps", "age"], SimpleImputer(add_indicator=True), MinMaxScaler()),
    on(["gaps", "age"], StandardScaler(), SimpleImputer(strategy="median")).set_params(
        own__standardscaler=MaxAbsScaler()
    ),
    on(["gaps", "age"], SimpleImputer(strategy="most_frequent"), StandardScaler()),
    *(
        on(["gaps", "empty", "age"], SimpleImputer(strategy=how, add_indicator=flag))
        for how in ("mean", "median", "most_frequent", "constant")
        for flag in (False, True)
    ),
    on(["gaps"], SimpleImputer(strategy="constant", fill_value=-1)),
    on(["city"], one_hot()),
    on(["city", "grade", "truth", "code"], one_hot(drop="if_binary")),
    on(["city"], one_hot(drop="first"), StandardScaler()),
    on(["word"], one_hot()),
    on(["word"], SimpleImputer(strategy="constant"), one_hot()).set_params(
        own__simpleimputer__missing_values=None
    ),
    on(["city"], one_hot(min_frequency=np.int64(5))),
    on(["city"], one_hot(min_frequency=0.2, drop="first")),
    on(["city"], one_hot(max_categories=2, handle_unknown="infrequent_if_exist")),
    on(
        ["word"],
        SimpleImputer(strategy="most_frequent"),
        one_hot(categories=[["a", "b", "c", "z"]]),
    ),
    on(["city"], one_hot(categories=[["bonn", "jena", "kiel", "trier", "ulm"]])),
    on(["grade"], OrdinalEncoder(categories=[["low", "high"]])),
    ColumnTransformer(
        [
            ("kept", "passthrough", ["code"]),
            ("left out", "drop", ["age"]),
            ("text", one_hot(), make_column_selector(dtype_include=bool)),
        ]
    ),
    ColumnTransformer(
        [("first", one_hot(), ["city"])], remainder=StandardScaler()
    ).set_params(remainder="drop"),
]


@pytest.mark.filterwarnings("ignore:Skipping features")
@pytest.mark.parametrize("transformer", CASES, ids=lambda one: repr(one)[:60])
def test_features_are_scikit_learns(transformer: Any) -> None:
    table, y = frame(), np.arange(float(N_ROWS))
    for step in _inside(transformer):  # pandas' None is scikit-learn's NaN here
        if isinstance(step, SimpleImputer):
            step.set_params(missing_values=np.nan)
    theirs = clone(transformer).fit(table.replace({None: np.nan}))
    model = LinearRegression(alpha=0.1, preprocessing=transformer).fit(table, y)
    expected = theirs.transform(table.replace({None: np.nan})).astype(float)
    fitted = public_model(model).preprocessing  # type: ignore[union-attr]
    assert fitted is not None
    np.testing.assert_allclose(fitted.encode(table), expected, rtol=1e-9, atol=1e-9)
    plain = model.to_sklearn()
    np.testing.assert_allclose(plain.predict(table), model.predict(table), atol=1e-9)


def _inside(transformer: ColumnTransformer) -> list[Any]:
    """Return the steps of all parts."""
    found = []
    for _, part, _ in transformer.transformers:
        found += [step for _, step in part.steps] if hasattr(part, "steps") else [part]
    return found


def test_declared_missing_value_of_an_order_stays_missing() -> None:
    column = np.array(["low", "high", np.nan, "low"], dtype=object)
    table, y = pd.DataFrame({"grade": column}), np.arange(4.0)
    order = OrdinalEncoder(categories=[["low", "high", np.nan]])
    steps = make_pipeline(order, SimpleImputer())
    model = LinearRegression(alpha=0.1, preprocessing=steps).fit(table, y)
    expected = clone(steps).fit_transform(table)
    fitted = public_model(model).preprocessing  # type: ignore[union-attr]
    assert fitted is not None
    np.testing.assert_allclose(fitted.encode(table), expected)
    np.testing.assert_allclose(model.to_sklearn().predict(table), model.predict(table))
    with pytest.raises(InvalidInput, match="has missing values"):
        LinearRegression(preprocessing=order).fit(table, y)


def test_huge_and_tiny_numbers_are_scaled() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=30), rng.normal(size=30)
    plain = LinearRegression(alpha=0.1, preprocessing=StandardScaler())
    expected = clone(plain).fit(x[:, None], y).coef_
    for size in (1e200, 1e-200):
        scaled = clone(plain).fit(size * x[:, None], y)
        np.testing.assert_allclose(scaled.coef_, expected, rtol=1e-12)
        scaled.forget(rows=[3])


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (PCA(), Unsupported, "PCA as preprocessing"),
    (FunctionTransformer(lambda X: X), Unsupported, "FunctionTransformer"),
    (MinMaxScaler(clip=True), Unsupported, "clip"),
    (MinMaxScaler((1.0, 1.0)), InvalidInput, "feature_range"),
    (OrdinalEncoder(), Unsupported, "declare it"),
    (OneHotEncoder(drop=["a"]), Unsupported, "drop"),
    (OneHotEncoder(categories=[["a"]]), InvalidInput, "categories of 1 columns"),
    (SimpleImputer(missing_values=-1), Unsupported, "missing_values"),
    (SimpleImputer(keep_empty_features=True), Unsupported, "keep_empty_features"),
    (SimpleImputer(strategy=np.nanmax), Unsupported, "strategy"),
    (
        SimpleImputer(strategy="constant", fill_value="x"),
        InvalidInput,
        "give a number",
    ),
    (
        SimpleImputer(strategy="constant", fill_value=np.inf),
        InvalidInput,
        "give a number",
    ),
    (make_pipeline(StandardScaler(), OneHotEncoder()), Unsupported, "at this place"),
    (make_pipeline(StandardScaler(), MinMaxScaler()), Unsupported, "at this place"),
    (make_pipeline(SimpleImputer(), SimpleImputer()), Unsupported, "at this place"),
    (
        make_pipeline(SimpleImputer(add_indicator=True), OneHotEncoder()),
        Unsupported,
        "add_indicator",
    ),
    (
        make_pipeline(StandardScaler(), ColumnTransformer([])),
        Unsupported,
        "after another step",
    ),
    (ColumnTransformer([("all", "drop", [0, 1])]), InvalidInput, "no column"),
    (StandardScaler, Unsupported, "is a class; make one"),
]


@pytest.mark.parametrize(
    ("step", "kind", "words"), REFUSED, ids=[words for *_, words in REFUSED]
)
def test_other_steps_are_refused(step: Any, kind: Any, words: str) -> None:
    X, y = np.arange(12.0).reshape(6, 2) % 5.0, np.arange(6.0)
    X[0, 0] = np.nan
    with pytest.raises(kind, match=words):
        LinearRegression(preprocessing=step).fit(X, y)


BAD_TABLES: list[tuple[Any, Any, str]] = [
    (StandardScaler(), [[1.0], [np.nan]], "column 0 has missing values"),
    (
        ColumnTransformer([("all", "passthrough", [0])]),
        [[1.0], [np.nan]],
        "column 0 has missing values",
    ),
    (StandardScaler(), [[1.0], [np.inf]], "column 0 holds an infinite value in row 1"),
    (StandardScaler(), [[1.0], ["tall"]], "column 0 holds 'tall' in row 1"),
    (OneHotEncoder(), [["a"], [1]], "mixes text and numbers"),
    (
        OneHotEncoder(categories=[["a"]], handle_unknown="ignore"),
        [["a"], ["b"]],
        "holds 'b', which is none of its 1 declared categories",
    ),
    (StandardScaler(), [1.0, 2.0], "shape"),
    (SimpleImputer(), [[np.nan], [np.nan]], "leaves no column"),
]


@pytest.mark.parametrize(("step", "rows", "words"), BAD_TABLES, ids=str)
def test_bad_tables_are_refused(step: Any, rows: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        LinearRegression(preprocessing=step).fit(rows, [1.0, 2.0])
    if np.ndim(rows) == 2:
        table = pd.DataFrame(rows)
        with pytest.raises(InvalidInput, match=words):
            LinearRegression(preprocessing=step).fit(table, [1.0, 2.0])


def test_what_cannot_be_promised_is_refused() -> None:
    X, y = np.arange(8.0)[:, None], np.arange(8.0)
    needy = (
        MinMaxScaler(),
        MaxAbsScaler(),
        SimpleImputer(strategy="median"),
        SimpleImputer(strategy="most_frequent"),
    )
    for step in needy:
        with pytest.raises(InvalidInput, match="set keep_data=True"):
            LinearRegression(preprocessing=step, keep_data=False).fit(X, y)
    scaled = LinearRegression(preprocessing=StandardScaler())
    budget = Budget(sigma=1.0, row_norm=5.0, allow_seeded=True)
    with pytest.raises(InvalidInput, match="leave row_norm out"):
        clone(scaled).set_params(budget=budget).fit(X, y)
    with pytest.raises(Unsupported, match="dense rows"):
        clone(scaled).fit(sparse.csr_array(X), y)
    stale = clone(scaled).set_params(mechanism="jackknife", keep_data=False)
    with pytest.raises(InvalidInput, match="only 'newton' can follow"):
        stale.fit(X, y)


def test_unknown_categories_at_prediction() -> None:
    table = pd.DataFrame({"city": ["ulm"] * 4 + ["bonn"] * 4 + ["kiel"]})
    y, stranger = np.arange(9.0), pd.DataFrame({"city": ["york", None]})
    for settings in (
        {"handle_unknown": "ignore"},
        {"handle_unknown": "infrequent_if_exist", "min_frequency": 2},
    ):
        steps = one_hot(**settings)
        model = LinearRegression(alpha=0.1, preprocessing=steps).fit(table, y)
        theirs = clone(steps).fit(table)
        fitted = public_model(model).preprocessing  # type: ignore[union-attr]
        assert fitted is not None
        np.testing.assert_array_equal(
            fitted.encode(stranger), theirs.transform(stranger)
        )
    strict = LinearRegression(preprocessing=one_hot()).fit(table, y)
    assert strict.predict(table[:0]).shape == (0,)
    with pytest.raises(InvalidInput, match="'york', which is none of its 3"):
        strict.predict(stranger)
    with pytest.raises(ValueError, match="city"):
        strict.predict(pd.DataFrame({"town": ["ulm"]}))


def test_columns_are_found_as_they_were_fitted() -> None:
    table, y = frame()[["age", "year"]], np.arange(float(N_ROWS))
    model = LinearRegression(alpha=0.1, preprocessing=StandardScaler())
    named, bare = clone(model).fit(table, y), clone(model).fit(table.to_numpy(), y)
    np.testing.assert_array_equal(named.coef_, bare.coef_)
    lists = clone(model).fit(table.to_numpy().tolist(), y)
    np.testing.assert_array_equal(lists.coef_, bare.coef_)
    with pytest.raises(ValueError, match="feature names"):
        named.predict(table[["year", "age"]])
    with pytest.raises(ValueError, match="features"):
        bare.predict(table.to_numpy()[:, :1])
    twice = pd.concat([table["age"], table["age"]], axis=1)
    with pytest.raises(InvalidInput, match="columns of one name"):
        clone(model).fit(twice, y)


TIMES = np.array(["2020-01-01", "NaT", "2020-03-01", "2021-01-01"], "datetime64[ns]")
DATED: dict[str, Any] = {
    "array": TIMES.reshape(-1, 1),
    "days": TIMES.astype("datetime64[D]").reshape(-1, 1),
    "differences": (TIMES - TIMES[0]).reshape(-1, 1),
    "frame": pd.DataFrame({"when": TIMES}),
    "frame of differences": pd.DataFrame({"when": TIMES - TIMES[0]}),
    "frame in UTC": pd.DataFrame({"when": pd.Series(TIMES).dt.tz_localize("UTC")}),
    "arrow": import_module("pyarrow").table({"when": TIMES}),
    "objects": np.array([[1.0], [np.datetime64("NaT", "D")], [3.0], [4.0]], object),
}


@pytest.mark.parametrize("name", DATED)
def test_a_missing_date_is_a_gap_and_no_number(name: str) -> None:
    X, y = DATED[name], [0, 1, 0, 1]
    steps = make_pipeline(SimpleImputer(), StandardScaler())
    model = LogisticRegression(preprocessing=steps, alpha=0.1).fit(X, y)
    features = private_model(model).remaining_rows().X[:, 0]  # type: ignore[union-attr]
    assert features[1] == pytest.approx(0.0, abs=1e-9)  # filled with the mean
    assert np.abs(features).max() < 2.0
    assert np.abs(model.decision_function(X)).max() < 10.0
    with pytest.raises(InvalidInput, match="missing value"):
        LogisticRegression(preprocessing=StandardScaler()).fit(X, y)


@pytest.mark.parametrize("kind", [LogisticRegression, LinearRegression])
@pytest.mark.parametrize("name", sorted({*DATED} - {"arrow"}))  # scikit-learn has none
def test_a_missing_date_is_refused_where_nothing_fills_it(kind: Any, name: str) -> None:
    X, y = DATED[name], [0, 1, 0, 1]
    with pytest.raises(InvalidInput, match="missing date"):
        kind(alpha=0.1).fit(X, y)
    if kind is LogisticRegression:
        with pytest.raises(InvalidInput, match="missing date"):
            kind(alpha=0.1, class_weight="balanced").fit(X, y)
    there = [0, 2, 3]
    known = X.iloc[there] if hasattr(X, "iloc") else X[there]
    model = kind(alpha=0.1).fit(known, [0, 1, 0])
    with pytest.raises(InvalidInput, match="missing date"):
        model.predict(X)
    with pytest.raises(InvalidInput, match="missing date"):
        model.add(X, y)
    with pytest.raises(InvalidInput, match="missing date"):
        model.forget(X=X, y=y)


def test_the_lowest_integer_is_a_number() -> None:
    lowest = np.array([-(2**63), 5])
    np.testing.assert_array_equal(to_numbers(lowest, 0), lowest.astype(float))
    for X in (lowest.reshape(-1, 1), lowest.reshape(-1, 1).tolist()):
        refuse_missing_dates(X, lowest.reshape(-1, 1).astype(float))


def test_a_missing_date_is_no_target() -> None:
    X, days = np.eye(4), [1, 2, 3, 4]
    for y in (TIMES, TIMES - TIMES[0], np.array([TIMES, TIMES]).T):
        with pytest.raises(InvalidInput, match="y has a missing date"):
            LinearRegression(alpha=0.1).fit(X, y)
        with pytest.raises(InvalidInput, match="y has a missing date"):
            LinearRegression(alpha=0.1, preprocessing=StandardScaler()).fit(X, y)
    model = LinearRegression(alpha=0.1).fit(X, days)
    with pytest.raises(InvalidInput, match="y has a missing date"):
        model.add(X, TIMES)


def _frames() -> dict[str, Any]:
    """Return one table as pandas, polars and pyarrow have it."""
    pa: Any = import_module("pyarrow")
    table = pa.table(
        {
            "whole": pa.array([3, None, 1, 3]),
            "half": pa.array([0.5, None, -0.0, 2.0], pa.float32()),
            "truth": pa.array([True, None, False, True]),
            "day": pa.array([3, None, 5, 7], pa.timestamp("ms")),
            "word": pa.array(["b", None, "a", "b"]),
            "numbered": pa.array(["b", None, "a", "b"]).dictionary_encode(),
        }
    )
    polars: Any = import_module("polars")
    plain: Any = table.to_pandas()
    nullable = plain.convert_dtypes().astype({"numbered": "category"})
    return {
        "pandas": plain,
        "pandas with NA": nullable,
        "pandas of Arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
        "polars": polars.from_arrow(table),
        "pyarrow": table,
    }


@pytest.mark.parametrize("name", _frames())
def test_a_table_reads_the_same_whoever_made_it(name: str) -> None:
    X = _frames()[name]
    for source, expected in (
        ("whole", [3.0, np.nan, 1.0, 3.0]),
        ("half", [0.5, np.nan, 0.0, 2.0]),
        ("truth", [1.0, np.nan, 0.0, 1.0]),
        ("day", [3.0, np.nan, 5.0, 7.0]),
        (1, [0.5, np.nan, 0.0, 2.0]),
    ):
        found = to_numbers(take_column(X, source), source)
        np.testing.assert_array_equal(found, expected)
        assert not np.signbit(found[2])
    for source in ("word", "numbered", "whole", "truth"):
        keys, places = find_categories(take_column(X, source), source)
        there = {"whole": [3, None, 1, 3], "truth": [True, None, False, True]}
        read = [keys[place] for place in places]
        assert read == there.get(source, ["b", None, "a", "b"])
        assert keys[-1] is None
    assert as_frame(X).columns[0] == "whole"
    some = take_rows(X, np.array([3, 0]))
    assert type(some) is type(X)
    np.testing.assert_array_equal(take_column(some, "half"), [2.0, 0.5])
    column = X["half"]
    assert list(take_rows(column, np.array([2, 3])).to_numpy()) == [0.0, 2.0]
    with pytest.raises(InvalidInput, match="no column 'age'; it has 'whole', 'half'"):
        take_column(X, "age")
