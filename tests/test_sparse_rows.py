# SPDX-License-Identifier: Apache-2.0
"""Sparse rows: their memory, and that they stay what the caller gave."""

import copy
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from expunge import L2, Logistic, Objective
from expunge.core.arrays import row_norms, row_squares
from expunge.core.sums import loss_gradient, row_sizes
from expunge.exceptions import InvalidInput, UnknownRows
from expunge.linear_model import LinearRegression, LogisticRegression
from expunge.linear_model.base import private_model
from expunge.linear_model.comparison import compare_releases
from expunge.private_model.training_rows import TrainingRows

N_ROWS, N_COLUMNS, ENTRIES = 20_000, 10_000, 30
PEOPLE = [f"person {i}" for i in range(200)]


def _text(rng: np.random.Generator, shape: tuple[int, int], entries: int) -> Any:
    """Return rows like counts of words: a few entries each, in any column."""
    n_rows, n_columns = shape
    columns = np.sort(rng.integers(0, n_columns, (n_rows, entries)), axis=1)
    pointers = np.arange(0, n_rows * entries + 1, entries)
    values = rng.uniform(0.1, 0.3, n_rows * entries)
    X = sparse.csr_array((values, columns.ravel(), pointers), shape=shape)
    X.sum_duplicates()
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


def _size(X: Any) -> int:
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)


def _peak(task: Callable[[], object]) -> int:
    """Return how much memory a task takes at most, beside what is there already."""
    tracemalloc.start()
    try:
        task()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("intercept", [False, True])
def test_rows_take_little_more_than_they_keep(
    intercept: bool, rng: np.random.Generator
) -> None:
    X = _text(rng, (N_ROWS, N_COLUMNS), ENTRIES)
    y = rng.choice([-1.0, 1.0], N_ROWS)
    objective = Objective(Logistic(), L2(), 1e-3, intercept=intercept)
    assert _peak(lambda: objective.rows(X, y)) <= (1.4 if intercept else 0.4) * _size(X)
    rows = objective.rows(X, y)
    theta = rng.normal(size=N_COLUMNS + intercept)
    for passes in (loss_gradient, row_sizes):
        taken = _peak(partial(passes, Logistic(), rows, theta=theta))
        assert taken <= 0.4 * _size(X)


def test_column_of_ones_is_the_last(rng: np.random.Generator) -> None:
    X = _text(rng, (50, 40), 3)
    X = sparse.csr_array(np.where(rng.random((50, 1)) < 0.3, 0.0, X.toarray()))
    objective = Objective(Logistic(), L2(), 1.0, intercept=True)
    found: Any = objective.rows(X, np.ones(50)).X
    assert np.array_equal(found.toarray(), np.hstack([X.toarray(), np.ones((50, 1))]))
    assert found.has_canonical_format


@pytest.mark.parametrize("intercept", [False, True])
def test_indices_are_as_narrow_as_they_can_be(
    intercept: bool, rng: np.random.Generator
) -> None:
    X = _text(rng, (50, 40), 3)
    wide = X.copy()
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    objective = Objective(Logistic(), L2(), 1.0, intercept=intercept)
    found: Any = objective.rows(wide, np.ones(50)).X
    assert found.indices.dtype == found.indptr.dtype == np.int32
    expected: Any = objective.rows(X, np.ones(50)).X
    assert np.array_equal(found.toarray(), expected.toarray())


@pytest.mark.parametrize("size", [1.0, 1e-170, 1e170])
def test_norms_are_those_of_the_dense_rows(
    size: float, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("expunge.core.arrays.SQUARED_AT_ONCE", 7)
    X = _text(rng, (50, 40), 3) * size
    dense = X.toarray()
    np.testing.assert_allclose(row_norms(X), row_norms(dense), rtol=1e-14)
    np.testing.assert_allclose(row_squares(X), row_squares(dense), rtol=1e-14)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_values_out_of_range_are_refused(bad: float, rng: np.random.Generator) -> None:
    X = _text(rng, (50, 40), 3)
    X.data[17] = bad
    with pytest.raises(InvalidInput):
        Objective(Logistic(), L2(), 1.0).rows(X, np.ones(50))


def _classified(rng: np.random.Generator) -> tuple[Any, Any, list[str]]:
    """Return many rows of few columns, so that the rows are what takes memory."""
    X = _text(rng, (N_ROWS, 60), ENTRIES)
    chance = 4.0 * (X[:, [0]].toarray().ravel() - 0.1) + rng.normal(size=N_ROWS)
    y = np.where(chance > 0.0, "spam", "other")
    return X, y, [f"person {i // 10}" for i in range(N_ROWS)]


def test_fit_and_requests_take_little_more_than_they_keep(
    rng: np.random.Generator,
) -> None:
    X, y, people = _classified(rng)
    model = LogisticRegression(alpha=1e-2, mechanism="retrain")
    # Three times the matrix: the caller's, the model's, and all that is not rows.
    taken = _peak(lambda: model.fit(X, y, subjects=people))
    assert taken <= 2.0 * _size(X)
    taken = _peak(lambda: model.forget(subjects=people[:1]))  # solves again
    assert taken <= 0.5 * _size(X)
    for predict in (model.predict, model.decision_function, model.predict_proba):
        assert _peak(partial(predict, X)) <= 0.5 * _size(X)


def test_estimators_do_not_make_rows_dense(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, people = _classified(rng)
    heights, toarray = [0], sparse.csr_array.toarray

    def counted(self: Any, *given: Any, **options: Any) -> Any:
        heights.append(self.shape[0])
        return toarray(self, *given, **options)

    monkeypatch.setattr(sparse.csr_array, "toarray", counted)
    model = LogisticRegression(alpha=1e-2).fit(X, y, subjects=people)
    before = copy.deepcopy(model)
    model.forget(subjects=people[:1])
    model.forget(X=X[17:23], y=y[17:23])
    model.forget(X=X[[30]].tocsc(), y=y[[30]])
    assert model.score(X, y) > 0.5
    compare_releases(before, model, X, y)
    assert max(heights) <= 61  # the columns and the intercept: a Hessian


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_rows_are_found_by_what_they_hold_dense_or_sparse(
    make: Any, rng: np.random.Generator
) -> None:
    X = _text(rng, (200, 12), 4).toarray()
    X[5] = X[6] = X[7] = 0.0
    y = rng.choice([0, 1], 200)
    y[5:8] = 1
    model = LogisticRegression(alpha=0.1, mechanism="retrain").fit(make(X), y)
    for place, given in ((3, X[[3]]), (4, sparse.csr_matrix(X[[4]])), (7, X[[5]])):
        model.forget(X=given, y=y[[place]])
        kept = private_model(model).training_rows
        assert isinstance(kept, TrainingRows) and not kept.alive[place]
    fresh = LogisticRegression(alpha=0.1)
    stay = np.delete(np.arange(200), [3, 4, 7])
    fresh.fit(X[stay], y[stay])
    np.testing.assert_allclose(model.coef_, fresh.coef_, atol=1e-9)
    with pytest.raises(UnknownRows):
        model.forget(X=X[[3]], y=y[[3]])


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_similar_rows_hold_all_that_are_equal(
    make: Any, rng: np.random.Generator
) -> None:
    X = _text(rng, (200, 12), 4).toarray()
    X[50] = X[150] = X[7]
    objective = Objective(Logistic(), L2(), 1.0)
    kept = TrainingRows(objective.rows(make(X), np.ones(200)), PEOPLE)
    kept.erase(np.array([50]))
    similar = kept.find_similar(objective.rows(X[[7, 9]], np.ones(2)))
    assert similar.tolist() == [7, 9, 150]


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_forgetting_leaves_the_arrays_of_the_caller_alone(
    kind: type, fit_intercept: bool, make: Any, rng: np.random.Generator
) -> None:
    X = make(_text(rng, (60, 8), 3).toarray().astype(kind))
    y, weight = rng.normal(size=60), rng.uniform(1.0, 2.0, 60)
    before = [X.copy(), y.copy(), weight.copy()]
    model = LinearRegression(alpha=0.1, fit_intercept=fit_intercept)
    model.fit(X, y, sample_weight=weight).forget(rows=[0, 7, 59])
    for now, then in zip((X, y, weight), before, strict=True):
        assert abs(now - then).max() == 0.0
