# SPDX-License-Identifier: Apache-2.0
"""Statistics forget exactly: what is learned is, to the bit, a fit of what remains."""

import warnings
from fractions import Fraction
from itertools import pairwise
from math import isqrt, prod
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from expunge import LinearRegression
from expunge.core.exact_sums import (
    BLOCK,
    MOST_KEYS,
    UNIT,
    ColumnSums,
    exact_sums,
)
from expunge.core.rows import Rows
from expunge.exceptions import CannotRemove, InvalidInput, UnknownRows, Unsupported
from expunge.linear_model.base import private_model, public_model
from expunge.preprocessing.columns import Recipe, learn_columns, read_columns
from expunge.preprocessing.description import (
    FitRange,
    Group,
    Preprocessing,
    Standardise,
)
from expunge.preprocessing.features import Features, FittedPreprocessing
from expunge.preprocessing.learning import (
    drop_categories,
    learn,
    learn_again,
    learn_features,
    publish_columns,
    standardise,
)
from expunge.preprocessing.sklearn_steps import describe
from expunge.preprocessing.statistics import Statistics
from tests.attack.pipelines import is_near
from tests.attack.raw_tables import awkward_rows, draw_table

Table: TypeAlias = NDArray[Any]
Learned: TypeAlias = tuple[Recipe, Statistics, Features]

# Values whose sums round: scales from 1e-8 to 1e8, repeats, extremes, gaps.
MANTISSAS = st.floats(-10.0, 10.0, allow_subnormal=False)
NUMBERS = st.one_of(
    st.builds(lambda m, e: m * 10.0**e, MANTISSAS, st.integers(-8, 8)),
    st.sampled_from([0.0, -0.0, 0.1, 1.0, 1e8, 1e8 + 1e-8, -1e8, 5e-324, 1e150]),
)
ENTRIES = st.one_of(NUMBERS, NUMBERS, st.just(np.nan))
WEIGHTS = st.one_of(st.just(1.0), st.sampled_from([0.1, 2.0, 1e-8, 1e8, 1.0 / 3.0]))

STEPS: list[Any] = [
    make_pipeline(SimpleImputer(), StandardScaler()),
    make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()),
    make_pipeline(SimpleImputer(strategy="constant"), StandardScaler(with_mean=False)),
    make_pipeline(StandardScaler(), SimpleImputer(strategy="median")),
    make_pipeline(SimpleImputer(strategy="median"), MinMaxScaler((-1.0, 2.0))),
    make_pipeline(SimpleImputer(strategy="most_frequent"), MaxAbsScaler()),
    make_pipeline(RobustScaler(), SimpleImputer()),
    make_pipeline(
        SimpleImputer(strategy="constant", add_indicator=True),
        RobustScaler(quantile_range=(10.0, 60.0), unit_variance=True),
    ),
    OneHotEncoder(),
    OneHotEncoder(min_frequency=2, drop="first", handle_unknown="infrequent_if_exist"),
    OneHotEncoder(min_frequency=0.3, drop="if_binary", handle_unknown="ignore"),
    make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(max_categories=2)
    ),
    make_pipeline(OneHotEncoder(sparse_output=False), StandardScaler()),
    make_pipeline(OneHotEncoder(sparse_output=False), RobustScaler()),
]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Table, list[list[int]]]:
    """Return rows, and which of them are forgotten, batch by batch."""
    n_rows, n_columns = draw(st.integers(2, 12)), draw(st.integers(1, 3))
    column = st.lists(ENTRIES, min_size=n_rows, max_size=n_rows)
    X = np.array([draw(column) for _ in range(n_columns)]).T
    leaving = draw(st.permutations(range(n_rows)))[: draw(st.integers(1, n_rows - 1))]
    cuts = sorted(draw(st.sets(st.integers(0, len(leaving)))) | {0, len(leaving)})
    batches = [list(leaving[a:b]) for a, b in pairwise(cuts)]
    return X, [batch for batch in batches if batch]


def fit(steps: Any, X: Table) -> tuple[Learned, Table]:
    """Return what is learned from a table, and its raw rows."""
    described = describe(steps, X)
    columns = learn_columns(described, X)
    raw = read_columns(columns, X, described.made)
    rows = Rows(raw, np.zeros(len(X)), np.ones(len(X)))
    return learn(Recipe(described, columns), rows), raw


def forget(learned: Learned, raw: Table) -> Learned:
    """Return what is learned without these rows, as a model does it."""
    recipe, statistics, features = learned
    statistics = statistics.without(raw)
    after = drop_categories(recipe, statistics)
    if after is recipe:
        return recipe, statistics, learn_again(recipe, statistics, before=features)
    return after, statistics, learn_features(after, statistics)


def show(learned: Learned) -> tuple[Any, ...]:
    """Return everything public about what was learned, to the bit."""
    recipe, statistics, features = learned
    columns = publish_columns(recipe, statistics)
    fitted = FittedPreprocessing.of(recipe.described, columns, features=features)
    now = fitted.features
    numbers = (now.centre, now.scale, now.offset, now.missing)
    layout = (now.layout.names, now.layout.columns.tolist(), now.layout.codes)
    return fitted.columns, layout, [part.tobytes() for part in numbers]


def try_fit(steps: Any, X: Table) -> tuple[Any, ...] | str:
    """Return what is learned from a table, or that no column is left of it."""
    try:
        return show(fit(steps, X)[0])
    except InvalidInput as error:
        assert "leaves no column" in str(error)
        return "nothing"


@pytest.mark.parametrize("steps", STEPS, ids=range(len(STEPS)))
@given(history=histories())
def test_forgetting_is_fitting_the_remaining_rows(
    steps: Any, history: tuple[Table, list[list[int]]]
) -> None:
    X, batches = history
    left = np.setdiff1d(np.arange(len(X)), np.concatenate(batches).astype(int))
    expected = try_fit(steps, X[left])
    try:
        learned, raw = fit(steps, X)
        for batch in batches:
            learned = forget(learned, raw[batch])
    except InvalidInput:  # no column is left
        assert expected == "nothing"
        return
    assert show(learned) == expected


@pytest.mark.parametrize("steps", STEPS[:7], ids=range(7))
@given(history=histories())
def test_neither_order_of_rows_nor_of_requests_matters(
    steps: Any, history: tuple[Table, list[list[int]]]
) -> None:
    X, batches = history
    try:
        one, raw = fit(steps, X)
        other, _ = fit(steps, X[::-1])
        assert show(one) == show(other)
        for batch in batches:
            one = forget(one, raw[batch])
        for batch in batches[::-1]:
            other = forget(other, raw[batch])
    except InvalidInput:  # no column is left
        return
    assert show(one) == show(other)


@pytest.mark.parametrize("seed", range(60))
def test_features_after_removals_are_scikit_learns(seed: int) -> None:
    """Fit scikit-learn's own transformer to the remaining rows, whatever they are."""
    rng = np.random.default_rng([seed, 5])
    table = draw_table(rng, 40, sums_only=False)
    steps, X = table.preprocessing(), table.rows
    stay = np.ones(40, dtype=bool)
    if not table.made(stay).shape[1]:
        return
    learned, raw = fit(steps, X)
    for _ in range(3):
        gone = next(awkward_rows(rng, table, stay))
        gone[rng.integers(0, 40)] = True
        gone &= stay
        if not gone.any() or stay.sum() - gone.sum() < 5:
            continue
        try:
            learned = forget(learned, raw[gone])
        except InvalidInput:
            assert not table.made(stay & ~gone).shape[1]
            return
        stay &= ~gone
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                typed = pd.DataFrame(X[stay]).infer_objects()  # ufuncs take no objects
                theirs = clone(steps).fit_transform(typed).astype(float)
            except ValueError:  # nothing is left of a column that it encodes
                return
        ours = learned[2].encode(raw[stay])
        assert ours.shape == theirs.shape
        assert is_near(ours, theirs, 1e-9)


def test_running_moments_do_not_forget_exactly(rng: np.random.Generator) -> None:
    """Welford's downdate keeps rounding that depends on the removed row."""
    x = rng.normal(size=50)
    loud = 1e8
    mean, squares = x.mean(), float(((x - x.mean()) ** 2).sum())
    grown = mean + (loud - mean) / 51
    squares += (loud - mean) * (loud - grown)
    back = grown + (grown - loud) / 50
    squares -= (loud - back) * (loud - grown)
    learned, raw = fit(StandardScaler(), np.append(x, loud)[:, None])
    learned = forget(learned, raw[-1:])
    fresh, _ = fit(StandardScaler(), x[:, None])
    assert abs(np.sqrt(abs(squares) / 50) - fresh[2].scale[0]) > 1e-3
    assert back != fresh[2].centre[0]
    assert show(learned) == show(fresh)


@given(values=st.lists(NUMBERS, min_size=1, max_size=20))
def test_mean_and_scale_are_rounded_once(values: list[float]) -> None:
    sums = ColumnSums.of(np.array(values)[:, None], None, highest=2)
    column = tuple(powers[0] for powers in sums.powers)
    mean, scale, _ = standardise(Standardise(), column)
    exact = [Fraction(value) for value in values]
    expected = sum(exact, Fraction(0)) / len(exact)
    variance = sum(((x - expected) ** 2 for x in exact), Fraction(0)) / len(exact)
    assert mean == float(expected)
    bits = 4000
    root = float(Fraction(isqrt(int(variance * 4**bits)), 2**bits))
    noise = len(values) * float(np.finfo(float).eps)  # scikit-learn's test
    assert scale == (1.0 if root <= 1.01 * noise * abs(mean) else root) or (
        scale == 1.0 and root <= 1.1 * noise * abs(mean)
    )


@given(
    st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), WEIGHTS)),
    st.integers(1, 3),
)
def test_sums_are_exact(pairs: list[tuple[float, float]], n_factors: int) -> None:
    values = np.array([value for value, _ in pairs])
    weight = np.array([w for _, w in pairs])
    factors = [weight, values, values][:n_factors]
    bins = np.arange(len(pairs)) % 2
    for place, total in enumerate(exact_sums(factors, bins, n_bins=2)):
        terms = zip(
            *[factor[bins == place].tolist() for factor in factors], strict=True
        )
        products = [prod(map(Fraction, term), start=Fraction(1)) for term in terms]
        assert Fraction(total, 2 ** (n_factors * UNIT)) == sum(products)


@pytest.mark.parametrize("n_factors", [1, 2, 3])
def test_no_limb_overflows(n_factors: int) -> None:
    largest = np.full(BLOCK + 3, np.nextafter(2.0, 1.0))
    (total,) = exact_sums(
        [largest] * n_factors, np.zeros(len(largest), dtype=np.intp), n_bins=1
    )
    term = Fraction(largest[0]) ** n_factors
    assert Fraction(total, 2 ** (n_factors * UNIT)) == len(largest) * term


def test_sums_of_many_bins_are_exact(rng: np.random.Generator) -> None:
    values = np.ldexp(rng.normal(size=3_000), rng.integers(-900, 900, size=3_000))
    bins = rng.permutation(np.arange(3_000) % 1_000)
    assert 1_000 * 1_000 > MOST_KEYS
    for place, total in enumerate(exact_sums([values], bins, n_bins=1_000)):
        own = sum(map(Fraction, values[bins == place].tolist()))
        assert Fraction(total, 2**UNIT) == own


def test_scaler_is_scikit_learns(rng: np.random.Generator) -> None:
    X = rng.normal(size=(200, 4)) * [1.0, 1e-8, 1e8, 3.0] + [0.0, 1.0, -1e8, 1e5]
    X[:, 3] = 0.1
    learned, raw = fit(StandardScaler(), X)
    theirs = StandardScaler().fit(X)
    np.testing.assert_allclose(learned[2].centre, theirs.mean_, rtol=1e-12)
    np.testing.assert_allclose(learned[2].scale, theirs.scale_, rtol=1e-7)
    np.testing.assert_allclose(learned[2].encode(raw), theirs.transform(X), atol=1e-6)


@pytest.mark.parametrize("unit_variance", [False, True])
@pytest.mark.parametrize("ends", [(25.0, 75.0), (0.0, 100.0), (7.3, 61.9)])
def test_robust_scaler_is_scikit_learns_to_the_bit(
    ends: tuple[float, float], unit_variance: bool, rng: np.random.Generator
) -> None:
    if unit_variance and ends[1] == 100.0:
        return
    step = RobustScaler(quantile_range=ends, unit_variance=unit_variance)
    for n in (1, 2, 3, 4, 7, 50, 101):
        X = rng.normal(size=(n, 4)) * [1.0, 1e-8, 1e8, 3.0] + [0.0, 1.0, -1e8, 1e5]
        X[:, 3] = np.round(X[:, 3] - 1e5)
        X[rng.random(X.shape) < 0.2] = np.nan
        X[0] = 0.25
        filled = make_pipeline(SimpleImputer(strategy="constant", fill_value=2), step)
        learned, raw = fit(filled, X)
        theirs = clone(filled).fit(X)[-1]
        np.testing.assert_array_equal(learned[2].centre, theirs.center_)
        np.testing.assert_array_equal(learned[2].scale, theirs.scale_)
        after = make_pipeline(clone(step), SimpleImputer())
        learned, raw = fit(after, X)
        theirs = clone(step).fit(X)
        np.testing.assert_array_equal(learned[2].centre, theirs.center_)
        np.testing.assert_array_equal(learned[2].scale, theirs.scale_)
        np.testing.assert_allclose(
            learned[2].encode(raw)[~np.isnan(X)],
            theirs.transform(X)[~np.isnan(X)],
            rtol=1e-15,
        )


@given(
    counts=st.lists(st.tuples(*[st.integers(0, 3)] * 2), min_size=2, max_size=12),
    data=st.data(),
)
def test_weights_of_terms_are_scikit_learns(
    counts: list[tuple[int, int]], data: st.DataObject
) -> None:
    X = np.array(counts, dtype=float)
    leaving = st.sets(st.integers(0, len(X) - 1), max_size=len(X) - 1)
    gone = sorted(data.draw(leaving))
    learned, raw = fit(TfidfTransformer(norm=None), X)
    for row in gone:
        learned = forget(learned, raw[[row]])
    left = np.setdiff1d(np.arange(len(X)), gone)
    assert show(learned) == show(fit(TfidfTransformer(norm=None), X[left])[0])
    theirs = TfidfTransformer(norm=None).fit(X[left])
    np.testing.assert_allclose(1.0 / learned[2].scale, theirs.idf_, rtol=1e-15)
    expected = theirs.transform(X).toarray()
    np.testing.assert_allclose(learned[2].encode(raw), expected, rtol=1e-15)


@pytest.mark.parametrize(
    "steps",
    [
        TfidfTransformer(norm=None, smooth_idf=False),
        TfidfTransformer(norm=None, sublinear_tf=True),
        make_pipeline(SimpleImputer(), TfidfTransformer(norm=None)),
        make_pipeline(TfidfTransformer(norm=None), SimpleImputer()),
        make_pipeline(TfidfTransformer(norm=None), StandardScaler()),
    ],
    ids=range(5),
)
def test_other_weights_of_terms_are_refused(steps: Any) -> None:
    with pytest.raises(Unsupported):
        fit(steps, np.eye(3))


@pytest.mark.parametrize(
    "options",
    [
        {"quantile_range": (75.0, 25.0)},
        {"quantile_range": (-1.0, 25.0)},
        {"quantile_range": (0.0, 50.0), "unit_variance": True},
        {"quantile_range": (50.0, 50.0), "unit_variance": True},
    ],
)
def test_quantiles_without_a_distance_are_refused(options: Any) -> None:
    with pytest.raises(InvalidInput, match="RobustScaler"):
        fit(RobustScaler(**options), np.arange(6.0)[:, None])


STRANGERS: list[tuple[Any, list[list[Any]], list[list[Any]]]] = [
    (StandardScaler(), [[1.0], [2.0], [2.5]], [[5.0]]),  # no variance is negative
    (SimpleImputer(), [[np.nan], [1.0], [np.nan]], [[2.0]]),  # nothing sums to zero
    (SimpleImputer(), [[1.0], [np.nan], [3.0]], [[np.nan], [np.nan]]),
    (MinMaxScaler(), [[1.0], [2.0], [3.0]], [[2.5]]),
    (MinMaxScaler(), [[1.0], [2.0], [3.0], [4.0]], [[2.0], [2.0]]),
    (OneHotEncoder(), [["a"], ["b"], ["b"], ["c"]], [["a"], ["a"]]),
    (TfidfTransformer(norm=None), [[0.0], [2.0], [0.0]], [[1.0], [1.0]]),
    (TfidfTransformer(norm=None), [[1.0], [2.0], [2.0], [0.0]], [[0.0], [0.0]]),
]


@pytest.mark.parametrize(("steps", "rows", "strangers"), STRANGERS)
def test_rows_that_were_never_there_are_refused(
    steps: Any, rows: list[Any], strangers: list[Any]
) -> None:
    learned, raw = fit(steps, np.array(rows, dtype=object))
    before = show(learned)
    unknown = read_columns(learned[0].columns, np.array(strangers, dtype=object))
    with pytest.raises(UnknownRows, match="nothing was removed"):
        forget(learned, unknown)
    assert show(learned) == before
    forget(learned, raw[:1])


@pytest.mark.parametrize("steps", STEPS, ids=range(len(STEPS)))
def test_last_row_stays(steps: Any) -> None:
    learned, raw = fit(steps, np.array([[1.0], [1.0], [2.0]]))
    with pytest.raises(CannotRemove, match="nothing was removed"):
        forget(learned, raw)


def test_missing_is_a_category_and_equal_numbers_are_one() -> None:
    X = np.array([[0.0, "a"], [-0.0, None], [np.nan, np.nan], [1, "b"]], dtype=object)
    learned, raw = fit(OneHotEncoder(), X)
    names = ("0_0", "0_1", "0_nan", "1_a", "1_b", "1_nan")
    assert learned[2].layout.names == names
    learned = forget(learned, raw[1:3])
    assert learned[2].layout.names == ("0_0", "0_1", "1_a", "1_b")
    assert show(learned) == show(fit(OneHotEncoder(), X[[0, 3]])[0])


@pytest.mark.parametrize("scaler", [MaxAbsScaler(), MinMaxScaler(), StandardScaler()])
def test_a_huge_value_leaves_like_any_other(
    rng: np.random.Generator, scaler: Any
) -> None:
    # By what the others teach, its own row would be too long to encode.
    X, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    X[7, 1] = 1e150
    model = LinearRegression(alpha=0.1, preprocessing=scaler).fit(X, y)
    model.forget(rows=[7])
    fresh = clone(model).fit(np.delete(X, 7, axis=0), np.delete(y, 7))
    np.testing.assert_allclose(model.coef_, fresh.coef_, rtol=1e-9)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(library: str) -> None:
    kind = pytest.importorskip(library)
    columns = {"age": [1.0, 3.0, 5.0], "town": ["ulm", "bonn", "ulm"]}
    X, y = kind.DataFrame(columns), [1.0, 2.0, 4.0]
    order = OrdinalEncoder(categories=[["bonn", "ulm"]])
    steps = {"age": StandardScaler(), "town": order}
    for name, step in steps.items():
        model = LinearRegression(alpha=0.1, preprocessing=step).fit(X[[name]], y)
        public: Any = public_model(model)
        assert public.preprocessing.names == (name,)
        model.forget(rows=[0])
        fresh = clone(model).fit(X[[name]][1:], y[1:])
        np.testing.assert_allclose(model.coef_, fresh.coef_, atol=1e-12)


def test_declared_range_needs_no_unlearning() -> None:
    ages = pd.DataFrame({"age": np.r_[20.0:60.0, 119.0]})
    described = Preprocessing((Group(("age",), scale=FitRange(ends=(0.0, 120.0))),))
    y = np.arange(len(ages)) % 7
    model = LinearRegression(alpha=0.1, preprocessing=described, keep_data=False)
    model.fit(ages, y)
    before: Any = private_model(model)
    assert not before.encoding.statistics.ordered  # no value is kept
    model.forget(X=ages.tail(1), y=y[-1:])
    after: Any = private_model(model)
    assert after.encoding.features.equals(before.encoding.features)
    np.testing.assert_array_equal(after.encoding.features.scale, [120.0])
    again = model.to_sklearn()
    np.testing.assert_allclose(again.predict(ages), model.predict(ages), rtol=1e-12)
