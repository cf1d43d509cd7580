# SPDX-License-Identifier: Apache-2.0
"""Rows of numbers and categories: every product is that of the dense matrix."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from expunge import Budget, Logistic, Objective
from expunge.core import split as module
from expunge.core.arrays import row_norms, slice_rows, transpose
from expunge.core.losses import Multinomial
from expunge.core.penalties import L2, NuclearNorm
from expunge.core.rows import Rows, most_rows
from expunge.core.split import SplitMatrix
from expunge.core.sums import entries_term
from expunge.linear_model import (
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
    TunedClassifier,
)
from expunge.linear_model.base import private_model
from expunge.preprocessing.learned import Learned
from expunge.removal.sums import Sums, sum_rows
from tests.splits import DRAWS, Drawn, draw_rows

Array = NDArray[np.float64]
U = 2.0**-53


@pytest.fixture(params=["tabmat", "numpy"])
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Multiply by each of the two; without tabmat as if it were not installed."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setitem(sys.modules, "tabmat", None)
        module._find_tabmat.cache_clear()
        yield str(request.param)
    module._find_tabmat.cache_clear()


@pytest.mark.parametrize("drawn", DRAWS, ids=str)
def test_split_rows_are_the_dense_rows_to_the_bit(drawn: Drawn) -> None:
    """What is subtracted, a dense row alone, is what was summed in a split block."""
    X, dense, encode = draw_rows(drawn)
    assert X.toarray().tobytes() == dense.tobytes()
    alone = [encode(row).toarray() for row in range(len(dense))]
    assert np.concatenate(alone).tobytes() == dense.tobytes()


@pytest.mark.parametrize("drawn", DRAWS, ids=str)
def test_products_are_those_of_the_dense_matrix(drawn: Drawn, kernel: str) -> None:
    """By no more than each sum of so many terms may round, whatever its order."""
    X, D, _ = draw_rows(drawn)
    (n, d), rng = D.shape, np.random.default_rng(1)
    theta, slopes = rng.normal(size=(d, 2)), rng.normal(size=(n, 2))
    scale = rng.normal(size=n)
    size = np.linalg.norm
    off = (d + 2) * U * size(D, axis=1)[:, None] * size(theta, axis=0)
    # Twice: the dense product rounds as well.
    assert (abs(X @ theta - D @ theta) <= 2 * off).all()
    for k in range(2):
        np.testing.assert_array_equal(X @ theta[:, k], (X @ theta)[:, k])
    count = 2 * (n + 2 * d + 16) * U
    assert (abs(X.T @ slopes - D.T @ slopes) <= count * (abs(D).T @ abs(slopes))).all()
    np.testing.assert_array_equal(X.T @ slopes[:, 0], (X.T @ slopes)[:, 0])
    sizes = (abs(D).T * abs(scale)) @ abs(D)
    assert (abs(X.gram(scale) - (D.T * scale) @ D) <= count * sizes).all()
    np.testing.assert_allclose(row_norms(X), size(D, axis=1), rtol=1e-13)
    np.testing.assert_array_equal(abs(X).toarray(), abs(D))
    assert X.n_entries >= np.count_nonzero(D, axis=1).max(initial=0)


@pytest.mark.parametrize("drawn", DRAWS, ids=str)
def test_rows_and_columns_are_taken(drawn: Drawn, kernel: str) -> None:
    X, D, _ = draw_rows(drawn)
    (n, d), rng = D.shape, np.random.default_rng(2)
    v, mask = rng.normal(size=d), rng.random(n) < 0.5
    for rows in (slice(1, n), mask, rng.permutation(n)[: n // 2]):
        np.testing.assert_array_equal(X[rows].toarray(), D[rows])
        np.testing.assert_allclose(X[rows] @ v, D[rows] @ v, rtol=1e-9, atol=1e-9)
    block: Any = slice_rows(X, slice(0, n))
    assert np.shares_memory(block.numbers, X.numbers)
    some = rng.permutation(d)[: d // 2 + 1]
    np.testing.assert_array_equal(X.columns(some).toarray(), D[:, some])
    spread = X[mask].spread(mask)
    np.testing.assert_array_equal(spread.toarray()[mask], D[mask])
    np.testing.assert_allclose(
        transpose(spread) @ np.where(mask, 1.0, 0.0), D[mask].sum(axis=0), atol=1e-8
    )


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=str)
def test_sums_are_those_of_dense_rows(loss: Any, kernel: str) -> None:
    """Blocks included: rows of which two fill a block, and some are left over."""
    rng = np.random.default_rng(3)
    X, D, _ = draw_rows(Drawn(7, 600, scaled="flags"))
    copies = 2 * most_rows(D.shape[1], split=True) // 600 + 2
    index = np.tile(np.arange(600), copies)
    y: Array = rng.integers(0, 3, len(index)).astype(np.float64)
    if loss.outputs == 1:
        y = np.where(y == 2.0, 1.0, -1.0)
    weight = rng.random(len(index))
    theta = rng.normal(size=D.shape[1] * loss.outputs) / 100.0
    found, wanted = (
        sum_rows(loss, Rows(design, y, weight), theta=theta)
        for design in (X[index], D[index])
    )
    _assert_close(found, wanted)
    assert found.sizes.n_entries <= wanted.sizes.n_entries


def _assert_close(one: Sums, other: Sums) -> None:
    assert one.weight == other.weight
    for name in ("gradient", "curvature", "kinks"):
        ours, theirs = getattr(one, name), getattr(other, name)
        if theirs is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    for name in ("hessian", "moment"):
        ours, theirs = (getattr(each, name).dense() for each in (one, other))
        size = np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12 * size)


def test_entries_are_counted_for_predictors() -> None:
    X, _, _ = draw_rows(Drawn(1, 20, scaled="numbers"))
    rows = Rows(X, np.ones(20), np.ones(20))
    assert entries_term(rows)[0].value == X.n_entries < X.shape[1]


def test_a_pass_takes_one_thread_and_gives_it_back() -> None:
    pytest.importorskip("tabmat")
    X, _, _ = draw_rows(Drawn(2, 30))
    with module.multiplying(X):
        libraries = module._openmp()
        assert libraries
        before = [library.get_num_threads() for library in libraries]
        assert set(before) == {1}
    for library in libraries:
        library.set_num_threads(2)
    try:
        with module.multiplying(X):
            assert {library.get_num_threads() for library in libraries} == {1}
        assert {library.get_num_threads() for library in libraries} == {2}
    finally:
        for library in libraries:
            library.set_num_threads(1)


def test_tabmat_leaves_small_numbers_as_they_are() -> None:
    """A library built with -ffast-math may make zeros of them, in all of a process."""
    pytest.importorskip("tabmat")
    code = (
        "import tabmat, numpy as np; x = np.array([2.0**-1074, 2.0**-1040]);"
        "assert (x + 0.0 == [5e-324, 2.0**-1040]).all() and (x * 1.0 > 0.0).all()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def make_table(n: int, seed: int = 0) -> tuple[pd.DataFrame, Array]:
    """Return a table with numbers far from zero and a category of one person."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40.0, 10.0, n),
            "income": 1e6 + rng.normal(size=n),
            "job": rng.choice(["a", "b", "c", "d"], n, p=[0.6, 0.3, 0.07, 0.03]),
            "town": rng.choice([f"t{k}" for k in range(12)], n),
            "country": "one",
        }
    )
    frame.loc[3, "job"] = "alone"
    eta = (frame["age"] - 40.0) / 10.0 + (frame["job"] == "b") - 0.3
    return frame, (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).to_numpy().astype(int)


def make_steps(scaler: Any = None) -> Any:
    """Return scaled numbers beside flags, which a scaler may follow."""
    flags = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    words = flags if scaler is None else make_pipeline(flags, scaler)
    return make_column_transformer(
        (StandardScaler(), ["age", "income"]), (words, ["job", "town", "country"])
    )


MODELS: dict[str, Any] = {
    "logistic": lambda **more: LogisticRegression(alpha=1e-2, **more),
    "no intercept": lambda **more: LogisticRegression(
        alpha=1e-2, fit_intercept=False, **more
    ),
    "balanced": lambda **more: LogisticRegression(
        alpha=1e-2, class_weight="balanced", **more
    ),
    "without matrices": lambda **more: LogisticRegression(
        alpha=1e-2, mechanism="matrix-free", **more
    ),
    "l1 without matrices": lambda **more: LogisticRegression(
        alpha=1e-2, l1_ratio=1.0, ridge=1e-3, mechanism="matrix-free", **more
    ),
    "retrained": lambda **more: LogisticRegression(
        alpha=1e-2, mechanism="retrain", **more
    ),
    "nuclear without matrices": lambda **more: SoftmaxRegression(
        alpha=1e-2,
        penalty=NuclearNorm(),
        ridge=1e-3,
        mechanism="matrix-free",
        **more,
    ),
    "softmax": lambda **more: SoftmaxRegression(alpha=1e-2, **more),
    "tuned": lambda **more: TunedClassifier(
        alphas=(1e-3, 1e-1), fold_key="key", **more
    ),
    "ridge": lambda **more: LinearRegression(alpha=1e-2, **more),
}


@pytest.mark.parametrize("scaler", [None, StandardScaler(), MinMaxScaler()], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_people_leave_as_if_rows_were_dense(
    name: str, scaler: Any, kernel: str
) -> None:
    """Fits and requests give what dense rows give, and never write them out."""
    frame, y = make_table(700)
    leaving: list[Any] = [[3], [5, 6, 7], [*range(100, 160)]]

    def life(dense: bool) -> list[Array]:
        model = MODELS[name](preprocessing=make_steps(scaler))
        with pytest.MonkeyPatch.context() as patch:
            if dense:
                _write_out(patch)
            else:
                _refuse_dense(patch)
            model.fit(frame, y, subjects=np.arange(len(frame)))
            found = [_theta(model)]
            for people in leaving:
                model.forget(people)
                found.append(_theta(model))
        return found

    for ours, theirs in zip(life(dense=False), life(dense=True), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)


def _theta(model: Any) -> Array:
    theta: Array = private_model(model).answer.draft.theta
    return theta


def _write_out(patch: pytest.MonkeyPatch) -> None:
    """Let all rows be dense, as a reference."""
    patch.setattr("expunge.preprocessing.features.Features.has_categories", False)


def _refuse_dense(patch: pytest.MonkeyPatch) -> None:
    """Fail where many rows are written out."""
    write = SplitMatrix.toarray

    def few(self: SplitMatrix) -> Array:
        assert len(self) <= 256
        return write(self)

    patch.setattr(SplitMatrix, "toarray", few)


def test_a_release_fits_its_budget_after_a_look() -> None:
    frame, y = make_table(3_000)
    budget = Budget(epsilon=1, delta=1e-5, sigma=1e-2)
    model = LogisticRegression(alpha=1e-2, preprocessing=make_steps(), budget=budget)
    model.fit(frame, y, subjects=np.arange(len(frame)))
    for person in (3, 4, 5):
        model.forget([person])
        assert model.record_ is not None
    left = np.setdiff1d(np.arange(len(frame)), [3, 4, 5])
    fresh = LogisticRegression(alpha=1e-2, preprocessing=make_steps())
    fresh.fit(frame.iloc[left], y[left])
    gap = float(np.linalg.norm(_theta(model) - _theta(fresh)))
    radius = model.record_.radius
    assert radius is not None and gap <= radius + 1e-7
    learned = private_model(model).encoding
    assert isinstance(learned, Learned) and learned.features.has_categories


def test_rows_that_are_no_number_are_refused() -> None:
    objective = Objective(Logistic(), L2(), alpha=1e-2, intercept=True)
    X, _, _ = draw_rows(Drawn(4, 20))
    X.numbers[3, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        objective.rows(X, np.ones(20))
    X.numbers[3, 0] = 1e60
    with pytest.raises(ValueError, match="norm 1e\\+60"):
        objective.rows(X, np.ones(20))


def test_a_table_of_one_category_and_of_one_level() -> None:
    frame, y = make_table(60)
    for columns in (["country"], ["job"], ["country", "town"]):
        steps = make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), columns)
        )
        model = LogisticRegression(alpha=1e-2, preprocessing=steps, mechanism="retrain")
        model.fit(frame, y, subjects=np.arange(60)).forget([3])
        dense = OneHotEncoder(sparse_output=False)
        left = np.delete(np.arange(60), 3)
        rows = dense.fit_transform(frame[columns].iloc[left])
        fresh = LogisticRegression(alpha=1e-2).fit(rows, y[left])
        np.testing.assert_allclose(_theta(model), _theta(fresh), atol=1e-6)
