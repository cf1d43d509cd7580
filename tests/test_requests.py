# SPDX-License-Identifier: Apache-2.0
"""Requests that go wrong: the model stays whole, and no error tells of a row."""

from typing import Any

import numpy as np
import pytest

from benchmarks.rescaled import Rescaled
from expunge.exceptions import (
    CannotRemove,
    CapacityExceeded,
    ExpungeError,
    InvalidInput,
)
from expunge.linear_model import LinearRegression, LogisticRegression
from expunge.promise.budget import Budget
from expunge.promise.verification import verify

SEEDED = Budget(sigma=1.0, allow_seeded=True)


def test_a_request_that_fails_leaves_the_model_as_it_was() -> None:
    # A row of leverage one stops Rescaled, and no rows are kept to retrain with.
    rng = np.random.default_rng(0)
    X = np.c_[rng.standard_normal((60, 3)), np.zeros(60)]
    X[5, 3] = 1e4
    y = X[:, 0] + rng.standard_normal(60)
    model = LinearRegression(alpha=1e-6, mechanism=Rescaled(), keep_data=False)
    model.fit(X, y)
    refused = []
    for i in range(8):
        before = model.coef_.copy()
        try:
            model.forget(X=X[i : i + 1], y=y[i : i + 1])
        except CannotRemove as error:
            refused.append(i)
            assert "spent" not in str(error)
            assert np.array_equal(model.coef_, before)
    assert refused == [5]


def test_with_rows_at_hand_nothing_is_refused_that_can_be_fitted() -> None:
    # A row of leverage one stops Rescaled; retraining does not notice.
    rng = np.random.default_rng(1)
    X = np.c_[rng.standard_normal((60, 3)), np.zeros(60)]
    X[5, 3] = 1e4
    model = LinearRegression(
        alpha=1e-6, mechanism=Rescaled(), budget=SEEDED, random_state=0
    ).fit(X, X[:, 0])
    model.forget(rows=[5])
    assert model.record_.decisions == ("retrained",)
    assert model.certificate_.status == "certified"
    # All rows with curvature leave Huber's flat branches behind.
    targets = np.concatenate([rng.normal(size=30), 20.0 + 0.1 * rng.normal(size=31)])
    Z = rng.standard_normal((61, 2))
    huber = LinearRegression(loss="huber", alpha=1e-2).fit(Z, targets)
    near = np.flatnonzero(np.abs(huber.predict(Z) - targets) <= 1.35)
    huber.forget(rows=near.tolist())
    left = np.setdiff1d(np.arange(61), near)
    fresh = LinearRegression(loss="huber", alpha=1e-2).fit(Z[left], targets[left])
    assert np.allclose(huber.coef_, fresh.coef_, atol=1e-6)


@pytest.mark.parametrize("mechanism", ["newton", "retrain"])
@pytest.mark.parametrize("scaling", ["mean", "sum"])
def test_a_heavy_row_can_leave(mechanism: str, scaling: Any) -> None:
    rng = np.random.default_rng(2)
    X, weight = rng.standard_normal((60, 3)), 0.1 + rng.random(60)
    y, weight[0] = X[:, 0] + rng.standard_normal(60), 3e9 + 0.3
    model = LinearRegression(
        alpha=1e-2, scaling=scaling, mechanism=mechanism, penalize_intercept=True
    )
    model.fit(X, y, sample_weight=weight).forget(rows=[0])
    kept = weight[1:].sum() / weight.sum()
    alpha = 1e-2 if scaling == "mean" else 1e-2 / kept
    fresh = LinearRegression(alpha=alpha, penalize_intercept=True)
    fresh.fit(X[1:], y[1:], sample_weight=weight[1:])
    tolerance = 1e-9 if mechanism == "retrain" else 1e-4
    assert np.allclose(model.coef_, fresh.coef_, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("heavy", [1e14, 1e15, 1e18])
@pytest.mark.parametrize("scaling", ["mean", "sum"])
def test_a_row_that_outweighs_all_others_can_leave(scaling: Any, heavy: float) -> None:
    """Nothing of the sums is left then, and retraining on the rows answers."""
    rng = np.random.default_rng(2)
    X, weight = rng.standard_normal((60, 3)), np.ones(60)
    y, weight[0] = X[:, 0] + rng.standard_normal(60), heavy
    model = LinearRegression(alpha=1e-2, scaling=scaling, penalize_intercept=True)
    model.fit(X, y, sample_weight=weight).forget(rows=[0])
    assert model.record_.decisions == ("retrained",)
    alpha = 1e-2 if scaling == "mean" else 1e-2 * (heavy + 59.0) / 59.0
    fresh = LinearRegression(alpha=alpha, penalize_intercept=True)
    fresh.fit(X[1:], y[1:], sample_weight=weight[1:])
    assert np.allclose(model.coef_, fresh.coef_, rtol=1e-6, atol=1e-12)
    bare = LinearRegression(alpha=1e-2, penalize_intercept=True, keep_data=False)
    bare.fit(X, y, sample_weight=weight)
    with pytest.raises(CannotRemove, match="cannot be removed"):
        bare.forget(X=X[:1], y=y[:1], sample_weight=weight[:1])


def test_a_failed_fit_leaves_the_earlier_model_whole(cancer: Any) -> None:
    X, y = cancer
    model = LogisticRegression(alpha=0.1).fit(X, y)
    before = model.predict(X)
    with pytest.raises(InvalidInput):
        model.fit(X[:, :5], (y == "benign"), subjects=["x"])
    assert np.array_equal(model.predict(X), before)
    assert np.array_equal(model.forget(rows=[0]).classes_, ["benign", "malignant"])
    model.set_params(fit_intercept=False, loss="squared_hinge")
    assert model.coef_.shape == (1, X.shape[1])


def test_a_declaration_does_not_describe_another_release(cancer: Any) -> None:
    X, y = cancer
    model = LogisticRegression(
        alpha=0.1,
        penalize_intercept=True,
        budget=Budget(sigma=1e-3, allow_seeded=True),
        random_state=0,
        keep_data=False,
    ).fit(X, y)
    with pytest.raises(CapacityExceeded):
        model.forget(X=X[:100], y=y[:100])
    model.declare_tuned(object())
    assert model.certificate_.n_subjects_removed == 0
    assert model.certificate_.selection == "not covered"
    assert verify(model.certificate_, model.record_).valid


def test_mechanisms_that_need_rows_keep_the_data(cancer: Any) -> None:
    with pytest.raises(InvalidInput, match="set keep_data=True"):
        LogisticRegression(mechanism="retrain", keep_data=False).fit(*cancer)


def test_people_are_counted_not_rows(cancer: Any) -> None:
    X, y = cancer
    owners = [f"p{i // 5}" for i in range(len(X))]
    model = LogisticRegression(alpha=0.1).fit(X, y, subjects=owners)
    assert model.forget(X=X[:5], y=y[:5]).certificate_.n_subjects_removed == 1
    bad: Any
    for bad in (b"ab", np.zeros((2, 2))):
        with pytest.raises(InvalidInput, match="list of ids"):
            model.forget(bad)


def test_errors_of_a_removal_show_no_figure() -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 3))
    y = (X[:, 0] > 0).astype(int)
    model = LogisticRegression(mechanism="retrain").fit(X, y)
    with pytest.raises(ExpungeError) as one_class:
        model.forget(rows=np.flatnonzero(y == 1).tolist())
    with pytest.raises(ExpungeError) as everyone:
        model.forget(rows=range(60))
    for error in (one_class, everyone):
        assert not any(character.isdigit() for character in str(error.value))
