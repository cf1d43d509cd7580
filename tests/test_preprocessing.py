# SPDX-License-Identifier: Apache-2.0
"""Transformers forget exactly: what is left is a fit on the remaining rows."""

import copy
import pickle
import unittest
import warnings
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import isqrt, prod
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pytest
import sklearn.preprocessing
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import SkipTestWarning
from sklearn.utils.estimator_checks import estimator_checks_generator

from expunge.exceptions import (
    CannotRemove,
    InvalidInput,
    NoPrivateState,
    UnknownRows,
    Unsupported,
)
from expunge.preprocessing import Changes, MeanImputer, OneHotEncoder, StandardScaler
from expunge.preprocessing.exact_sums import BLOCK, UNIT, exact_sums

Table: TypeAlias = NDArray[Any]

# Values whose sums round: scales from 1e-8 to 1e8, repeats, extremes, gaps.
MANTISSAS = st.floats(-10.0, 10.0, allow_subnormal=False)
NUMBERS = st.one_of(
    st.builds(lambda m, e: m * 10.0**e, MANTISSAS, st.integers(-8, 8)),
    st.sampled_from([0.0, -0.0, 0.1, 1.0, 1e8, 1e8 + 1e-8, -1e8, 5e-324, 1e150]),
)
ENTRIES = st.one_of(NUMBERS, NUMBERS, st.just(np.nan))
WEIGHTS = st.one_of(st.just(1.0), st.sampled_from([0.1, 2.0, 1e-8, 1e8, 1.0 / 3.0]))

TRANSFORMERS: list[Any] = [
    StandardScaler(),
    StandardScaler(with_mean=False),
    MeanImputer(),
    MeanImputer(empty_value=-1.0),
    OneHotEncoder(),
    OneHotEncoder(min_count=2),
]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Table, Table, list[list[int]]]:
    """Return rows, weights, and which rows are forgotten, batch by batch."""
    n_rows, n_columns = draw(st.integers(2, 12)), draw(st.integers(1, 3))
    column = st.lists(ENTRIES, min_size=n_rows, max_size=n_rows)
    X = np.array([draw(column) for _ in range(n_columns)]).T
    weight = np.array(draw(st.lists(WEIGHTS, min_size=n_rows, max_size=n_rows)))
    leaving = draw(st.permutations(range(n_rows)))[: draw(st.integers(1, n_rows - 1))]
    cuts = sorted(draw(st.sets(st.integers(0, len(leaving)))) | {0, len(leaving)})
    batches = [list(leaving[a:b]) for a, b in pairwise(cuts)]
    return X, weight, batches


def remaining(n_rows: int, batches: list[list[int]]) -> Table:
    return np.setdiff1d(np.arange(n_rows), [i for batch in batches for i in batch])


def same(a: Any, b: Any) -> bool:
    """Whether two transformers transform alike, bit for bit."""
    return bool(a.fingerprint() == b.fingerprint())


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=repr)
@given(history=histories(), weighted=st.booleans())
def test_forgetting_is_fitting_the_remaining_rows(
    transformer: Any, history: tuple[Table, Table, list[list[int]]], weighted: bool
) -> None:
    X, weight, batches = history
    own: Callable[[Any], Any] = lambda i: weight[i] if weighted else None  # noqa: E731
    forgetful = clone(transformer).fit(X, sample_weight=own(slice(None)))
    for batch in batches:
        forgetful.forget(X[batch], own(batch))
    left = remaining(len(X), batches)
    fresh = clone(transformer).fit(X[left], sample_weight=own(left))
    assert same(forgetful, fresh)


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=repr)
@given(history=histories())
def test_neither_order_of_rows_nor_of_requests_matters(
    transformer: Any, history: tuple[Table, Table, list[list[int]]]
) -> None:
    X, weight, batches = history
    one = clone(transformer).fit(X, sample_weight=weight)
    other = clone(transformer).fit(X[::-1], sample_weight=weight[::-1])
    assert same(one, other)
    for batch in batches:
        one.forget(X[batch], weight[batch])
    for batch in batches[::-1]:
        other.forget(X[batch], weight[batch])
    assert same(one, other)


def test_running_moments_do_not_forget_exactly(rng: np.random.Generator) -> None:
    """Welford's downdate keeps rounding that depends on the removed row."""
    x = rng.normal(size=50)
    loud = 1e8
    mean, squares = x.mean(), float(((x - x.mean()) ** 2).sum())
    grown = mean + (loud - mean) / 51
    squares += (loud - mean) * (loud - grown)
    back = grown + (grown - loud) / 50
    squares -= (loud - back) * (loud - grown)
    scaler = StandardScaler().fit(np.append(x, loud)[:, None]).forget([[loud]])
    fresh = StandardScaler().fit(x[:, None])
    assert abs(np.sqrt(abs(squares) / 50) - fresh.scale_[0]) > 1e-3
    assert back != fresh.mean_[0]
    assert scaler.mean_ == fresh.mean_
    assert scaler.scale_ == fresh.scale_


@given(values=st.lists(NUMBERS, min_size=1, max_size=20))
def test_mean_and_scale_are_rounded_once(values: list[float]) -> None:
    scaler = StandardScaler().fit(np.array(values)[:, None])
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    variance = sum(((x - mean) ** 2 for x in exact), Fraction(0)) / len(exact)
    assert scaler.mean_[0] == float(mean)
    bits = 4000
    root = Fraction(isqrt(int(variance * 4**bits)), 2**bits)
    assert scaler.scale_[0] == (float(root) or 1.0)


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


def test_no_limb_overflows() -> None:
    largest = np.full(BLOCK + 3, np.nextafter(2.0, 1.0))
    (total,) = exact_sums(
        [largest] * 3, np.zeros(len(largest), dtype=np.intp), n_bins=1
    )
    assert Fraction(total, 2 ** (3 * UNIT)) == len(largest) * Fraction(largest[0]) ** 3


def test_scaler_is_scikit_learns(rng: np.random.Generator) -> None:
    X = rng.normal(size=(200, 4)) * [1.0, 1e-8, 1e8, 3.0] + [0.0, 1.0, -1e8, 1e5]
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:, 3] = 0.1
    weight = rng.random(200)
    for given_weight in (None, weight):
        ours = StandardScaler().fit(X, sample_weight=given_weight)
        theirs = sklearn.preprocessing.StandardScaler().fit(X, None, given_weight)
        np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-12)
        np.testing.assert_allclose(ours.scale_, theirs.scale_, rtol=1e-7)
        np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-6)


@pytest.mark.parametrize(
    "transformer", [StandardScaler(with_mean=False), MeanImputer()], ids=repr
)
def test_sparse_rows_are_dense_ones(transformer: Any, rng: np.random.Generator) -> None:
    X = rng.normal(size=(30, 4)) * (rng.random((30, 4)) < 0.4)
    X[3, 1] = X[4, 2] = np.nan
    S, weight = sparse.csr_array(X), rng.random(30)
    dense = clone(transformer).fit(X, sample_weight=weight)
    thin = clone(transformer).fit(S, sample_weight=weight)
    assert same(dense, thin)
    assert same(dense.forget(X[:9], weight[:9]), thin.forget(S[:9], weight[:9]))
    np.testing.assert_array_equal(thin.transform(S).toarray(), dense.transform(X))


def test_sparse_rows_are_not_centred() -> None:
    with pytest.raises(Unsupported, match="with_mean=False"):
        StandardScaler().fit(sparse.csr_array(np.eye(3)))


def test_whole_weights_count_rows(rng: np.random.Generator) -> None:
    X, weight = rng.normal(size=(20, 2)).round(1), rng.integers(0, 4, size=20)
    for transformer in TRANSFORMERS:
        weighted = clone(transformer).fit(X, sample_weight=weight)
        assert same(weighted, clone(transformer).fit(np.repeat(X, weight, axis=0)))


def test_rows_without_weight_come_and_go() -> None:
    X = [[1.0], [2.0], [5.0]]
    for transformer in TRANSFORMERS:
        fitted = clone(transformer).fit(X, sample_weight=[1.0, 0.0, 1.0])
        before = fitted.fingerprint()
        assert fitted.forget(X[1:2], [0.0]).fingerprint() == before
        for weight in ([1.0], [1.0, np.nan, 1.0], [1.0, -1.0, 1.0]):
            with pytest.raises(InvalidInput, match="sample_weight"):
                clone(transformer).fit(X, sample_weight=weight)


def test_column_emptied_by_a_removal_is_filled_with_the_stated_value() -> None:
    X = np.array([[1.0, 5.0], [2.0, np.nan], [4.0, np.nan]])
    imputer = MeanImputer(empty_value=-7.0).fit(X)
    assert not imputer.empty_.any()
    imputer.forget(X[:1])
    np.testing.assert_array_equal(imputer.empty_, [False, True])
    np.testing.assert_array_equal(imputer.statistics_, [3.0, -7.0])
    np.testing.assert_array_equal(imputer.transform(X)[1:], [[2.0, -7.0], [4.0, -7.0]])
    assert imputer.changes_ == Changes()


STRANGERS: list[tuple[Any, list[list[Any]], list[list[Any]]]] = [
    (StandardScaler(), [[1.0], [2.0]], [[1.0], [2.0], [1.0]]),  # more than there are
    (StandardScaler(), [[1.0], [2.0]], [[5.0]]),  # no variance is negative
    (StandardScaler(), [[1.0], [np.nan]], [[2.0]]),  # a sum of nothing is zero
    (StandardScaler(), [[1.0], [np.nan], [3.0]], [[np.nan], [np.nan]]),
    (MeanImputer(), [[1.0], [np.nan]], [[3.0]]),
    (OneHotEncoder(), [["a"], ["b"]], [["c"]]),
    (OneHotEncoder(), [["a"], ["b"], ["b"]], [["a"], ["a"]]),
]


@pytest.mark.parametrize(("transformer", "rows", "strangers"), STRANGERS)
def test_rows_that_were_never_there_are_refused(
    transformer: Any, rows: list[Any], strangers: list[Any]
) -> None:
    transformer = clone(transformer).fit(rows)
    before = transformer.fingerprint()
    with pytest.raises(UnknownRows, match="nothing was removed"):
        transformer.forget(strangers)
    assert transformer.fingerprint() == before
    transformer.forget(rows[:1])


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=repr)
def test_last_row_stays(transformer: Any) -> None:
    transformer = clone(transformer).fit([[1.0], [2.0]])
    with pytest.raises(CannotRemove, match="nothing was removed"):
        transformer.forget([[1.0], [2.0]])
    with pytest.raises(InvalidInput, match="weights"):
        clone(transformer).fit([[1.0], [2.0]], sample_weight=[0.0, 0.0])


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=repr)
def test_sums_do_not_travel(transformer: Any) -> None:
    transformer = clone(transformer).fit([[1.0], [2.0]])
    for travelled in (
        pickle.loads(pickle.dumps(transformer)),
        copy.deepcopy(transformer),
        copy.copy(transformer),
    ):
        assert same(travelled, transformer)
        with pytest.raises(NoPrivateState):
            travelled.forget([[1.0]])
    assert "private" in repr(transformer._tally)


CITIES = ["ulm", "bonn", "ulm", "bonn", "ulm", "jena", "kiel", "jena"]


def test_encoder_is_scikit_learns(rng: np.random.Generator) -> None:
    X = np.array([rng.choice(CITIES, 60), rng.choice(["x", "y"], 60)], dtype=object).T
    for min_count in (1, 9, 100):
        ours = OneHotEncoder(min_count=min_count).fit(X)
        gone = rng.choice(60, 25, replace=False)
        ours.forget(X[gone])
        left = np.delete(X, gone, axis=0)
        theirs = sklearn.preprocessing.OneHotEncoder(
            min_frequency=min_count, handle_unknown="ignore"
        ).fit(left)
        expected = theirs.transform(left).toarray()
        np.testing.assert_array_equal(ours.transform(left).toarray(), expected)
        names = [
            name.replace("_sklearn", "") for name in theirs.get_feature_names_out()
        ]
        assert ours.get_feature_names_out().tolist() == names


def test_category_disappears_or_joins_the_infrequent() -> None:
    X = np.array(CITIES, dtype=object)[:, None]
    encoder = OneHotEncoder(min_count=2, sparse_output=False).fit(X)
    assert encoder.categories_ == [["bonn", "jena", "ulm"]]
    assert encoder.infrequent_categories_ == [["kiel"]]
    encoder.forget([["jena"], ["kiel"]])
    assert encoder.categories_ == [["bonn", "ulm"]]
    assert encoder.infrequent_categories_ == [["jena"]]
    assert encoder.changes_ == Changes(lost=(1,))
    np.testing.assert_array_equal(
        encoder.transform([["jena"], ["kiel"], ["ulm"]]),
        [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
    )
    encoder.forget([["jena"], ["bonn"]])
    assert encoder.get_feature_names_out().tolist() == ["x0_ulm", "x0_infrequent"]
    assert encoder.changes_ == Changes(lost=(0,))


def test_infrequent_column_may_be_gained() -> None:
    encoder = OneHotEncoder(min_count=2).fit([["a"], ["a"], ["b"], ["b"], ["b"]])
    encoder.forget([["a"]])
    assert encoder.changes_ == Changes(lost=(0,), gained=(1,))


def test_unknown_categories() -> None:
    rows, stranger = [["a"], ["a"], ["b"]], [["z"]]
    ignoring = OneHotEncoder(min_count=2).fit(rows)
    assert ignoring.transform(stranger).toarray().tolist() == [[0.0, 0.0]]
    joining = clone(ignoring).set_params(handle_unknown="infrequent_if_exist").fit(rows)
    assert joining.transform(stranger).toarray().tolist() == [[0.0, 1.0]]
    strict = clone(ignoring).set_params(handle_unknown="error").fit(rows)
    with pytest.raises(InvalidInput, match="unknown categories"):
        strict.transform(stranger)
    with pytest.raises(InvalidInput, match="handle_unknown"):
        OneHotEncoder(handle_unknown="drop").fit(rows)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="min_count"):
        OneHotEncoder(min_count=np.nan).fit(rows)
    with pytest.raises(InvalidInput, match="cannot be sorted"):
        OneHotEncoder().fit(np.array([["a"], [1]], dtype=object))


def test_missing_is_a_category_and_equal_numbers_are_one() -> None:
    X = pd.DataFrame({"n": [0.0, -0.0, np.nan, 1], "w": ["a", None, pd.NA, "b"]})
    encoder = OneHotEncoder().fit(X)
    names = ["n_0", "n_1", "n_None", "w_a", "w_b", "w_None"]
    assert encoder.get_feature_names_out().tolist() == names
    encoder.forget(X[1:3])
    assert encoder.get_feature_names_out().tolist() == ["n_0", "n_1", "w_a", "w_b"]
    assert same(encoder, OneHotEncoder().fit(X.iloc[[0, 3]]))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_in_and_out(library: str) -> None:
    kind = pytest.importorskip(library)
    X = kind.DataFrame({"age": [1.0, 3.0, 5.0], "size": [2.0, 2.0, 8.0]})
    for transformer in TRANSFORMERS:
        dense = {"sparse_output": False} if hasattr(transformer, "min_count") else {}
        fitted = clone(transformer).set_params(**dense).set_output(transform=library)
        out = fitted.fit_transform(X)
        assert isinstance(out, kind.DataFrame)
        assert list(out.columns) == list(fitted.get_feature_names_out())
        assert same(fitted.forget(X[:1]), clone(transformer).fit(X[1:]))


def scikit_learn_checks() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)
        return [
            pair for one in TRANSFORMERS for pair in estimator_checks_generator(one)
        ]


@pytest.mark.parametrize(("estimator", "check"), scikit_learn_checks())
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    try:
        check(estimator)
    except unittest.SkipTest as reason:
        pytest.skip(str(reason))
