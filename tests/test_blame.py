# SPDX-License-Identifier: Apache-2.0
"""A fit that cannot be certified names the columns to blame, a removal never does."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from expunge import Budget, LinearRegression, LogisticRegression, TunedClassifier
from expunge.core.rows import BLOCK_ROWS, Rows
from expunge.core.sums import column_sizes
from expunge.exceptions import NotCertifiable
from expunge.linear_model.base import private_model
from expunge.linear_model.rows import blame_columns
from expunge.private_model.answers import retrain_answer

BUDGET = Budget(sigma=0.1)
N_ROWS = 400


def _raw_table() -> tuple[pd.DataFrame, Any]:
    """Return columns as people store them: ages, wages, weights of a survey."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40.0, 10.0, N_ROWS),
            "wage": rng.lognormal(10.5, 0.5, N_ROWS),
            "fnlwgt": rng.lognormal(12.0, 0.7, N_ROWS),
            "married": rng.integers(0, 2, N_ROWS),
        }
    )
    return frame, (frame["age"] + rng.normal(0.0, 5.0, N_ROWS) > 40.0).to_numpy(int)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(budget=BUDGET),
        LinearRegression(budget=BUDGET, fit_intercept=False),
        TunedClassifier(alphas=(1e-3,), budget=BUDGET),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_columns_to_blame_are_named_with_the_line_that_mends_it(model: Any) -> None:
    frame, y = _raw_table()
    with pytest.raises(NotCertifiable) as caught:
        model.fit(frame, y)
    words = str(caught.value)
    assert "'fnlwgt' (about 10^5 times as large as most), 'wage' (about 10^5" in words
    assert "'married'" not in words
    assert words.endswith("; preprocessing=StandardScaler() works")
    standard = (frame - frame.mean()) / frame.std()
    assert model.fit(standard, y).certificate_.status == "certified"


@pytest.mark.parametrize(
    "kind", [LogisticRegression, LinearRegression], ids=lambda kind: kind.__name__
)
def test_the_line_mends_it(kind: Any) -> None:
    model = kind(preprocessing=StandardScaler(), budget=BUDGET).fit(*_raw_table())
    assert model.certificate_.status == "certified"


def test_columns_without_names_are_blamed_by_position() -> None:
    frame, y = _raw_table()
    with pytest.raises(NotCertifiable, match=r"to blame: 2 \(about 10\^5 times"):
        LogisticRegression(budget=BUDGET).fit(frame.to_numpy(), y)


def test_no_value_of_the_table_is_told() -> None:
    frame, y = _raw_table()
    with pytest.raises(NotCertifiable) as caught:
        LogisticRegression(budget=BUDGET).fit(frame, y)
    powers = np.log10(frame[["fnlwgt", "wage"]].mean())
    assert set(np.rint(powers)) == {5.0}
    # Ten per cent more of everything is another table, and the same words.
    with pytest.raises(NotCertifiable) as again:
        LogisticRegression(budget=BUDGET).fit(1.1 * frame, y)
    assert str(again.value) == str(caught.value)


def test_a_removal_that_cannot_be_certified_says_nothing_of_the_rows() -> None:
    frame, y = _raw_table()
    model = LogisticRegression().fit(frame, y)
    private = private_model(model)
    rows = private.remaining_rows()
    assert isinstance(rows, Rows) and blame_columns(model, rows)
    terms = replace(private.terms, budget=BUDGET)
    messages = set()
    for gone in ([0], [1, 2, 3], list(range(200))):
        with pytest.raises(NotCertifiable) as caught:
            retrain_answer(terms, rows.without(np.array(gone)), start=None)
        messages.add(str(caught.value))
    (constant,) = messages
    assert "blame" not in constant


def test_columns_of_like_size_are_not_blamed() -> None:
    frame, y = _raw_table()
    standard = (frame - frame.mean()) / frame.std()
    model = LogisticRegression(budget=Budget(sigma=1e-9, tau=1e-14))
    with pytest.raises(NotCertifiable) as caught:
        model.fit(standard, y)
    assert "blame" not in str(caught.value)


def test_a_lone_large_column_is_blamed_and_an_empty_one_is_not() -> None:
    model = LogisticRegression()
    model.n_features_in_ = 2
    model.feature_names_in_ = np.array(["salary", "nothing"], dtype=object)
    X = np.column_stack([np.full(9, 5e4), np.zeros(9), np.ones(9)])
    rows = Rows(X, np.ones(9), np.ones(9))
    assert blame_columns(model, rows).startswith("columns to blame: 'salary' (about")
    assert blame_columns(model, Rows(0.0 * X, np.ones(9), np.ones(9))) == ""


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_sizes_of_columns_are_weighted_means(make: Any) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(BLOCK_ROWS + 100, 3)) * [1.0, 1e5, 1e-3]
    weight = rng.uniform(0.0, 2.0, len(X))
    expected = np.average(np.abs(X), axis=0, weights=weight)
    sizes = column_sizes(Rows(make(X), np.ones(len(X)), weight))
    assert sizes == pytest.approx(expected, rel=1e-12)
