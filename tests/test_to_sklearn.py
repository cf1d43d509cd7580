# SPDX-License-Identifier: Apache-2.0
"""The way back: a plain scikit-learn estimator that predicts as the release does."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn import linear_model as rivals
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from expunge.adopt import from_sklearn
from expunge.core.losses import HalfSquared, Huber
from expunge.linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from expunge.promise.budget import Budget
from tests.test_adopt import GONE, data, scores

SERVED: list[tuple[Any, str, Any]] = [
    (LogisticRegression(), "cancer", rivals.LogisticRegression),
    (LogisticRegression(fit_intercept=False), "cancer", rivals.LogisticRegression),
    (LogisticRegression(), "iris", OneVsRestClassifier),
    (LogisticRegression(loss="squared_hinge"), "cancer", LinearSVC),
    (LogisticRegression(loss="squared_hinge"), "iris", LinearSVC),
    (LogisticRegression(loss=HalfSquared()), "iris", LinearSVC),
    (SoftmaxRegression(), "iris", rivals.LogisticRegression),
    (SoftmaxRegression(), "cancer", rivals.LogisticRegression),
    (LinearRegression(), "diabetes", rivals.LinearRegression),
    (LinearRegression(loss=Huber(200.0)), "diabetes", rivals.LinearRegression),
]


@pytest.mark.parametrize(("estimator", "source", "kind"), SERVED)
def test_plain_estimator_predicts_the_same(
    estimator: Any, source: str, kind: Any
) -> None:
    X, y, _ = data(source)
    model = clone(estimator).fit(X, y).forget(rows=GONE.tolist())
    plain = model.to_sklearn()
    assert isinstance(plain, kind)
    np.testing.assert_allclose(scores(plain, X), scores(model, X), rtol=1e-12)
    np.testing.assert_array_equal(plain.predict(X), model.predict(X))
    if hasattr(plain, "predict_proba"):
        np.testing.assert_allclose(
            plain.predict_proba(X), model.predict_proba(X), atol=1e-12
        )
    np.testing.assert_array_equal(
        scores(pickle.loads(pickle.dumps(plain)), X), scores(plain, X)
    )
    with pytest.raises(ValueError, match="features"):
        plain.predict(X[:, 1:])


def test_plain_estimator_of_several_targets() -> None:
    X, y, _ = data("diabetes")
    model = LinearRegression().fit(X, np.c_[y, np.sqrt(y)])
    np.testing.assert_allclose(model.to_sklearn().predict(X), model.predict(X))


def test_plain_estimator_holds_the_release_and_no_row_count() -> None:
    X, y, _ = data("cancer")
    model = LogisticRegression(
        alpha=1e-2, budget=Budget(sigma=5.0, allow_seeded=True), random_state=0
    ).fit(X, y)
    copied = copy.deepcopy(model)  # the release alone
    plain = copied.to_sklearn()
    np.testing.assert_array_equal(plain.coef_, model.coef_)
    assert not np.shares_memory(plain.coef_, copied.coef_)
    assert plain.get_params() == rivals.LogisticRegression().get_params()


def test_plain_estimator_comes_back() -> None:
    X, y, _ = data("iris")
    model = SoftmaxRegression(alpha=1e-2, scaling="sum").fit(X, y)
    plain = model.to_sklearn().set_params(C=1.0 / (1e-2 * len(X)))
    again = from_sklearn(plain, X, y)
    np.testing.assert_allclose(again.coef_, model.coef_, atol=1e-9)


def test_what_is_not_ours_has_no_plain_estimator() -> None:
    with pytest.raises(NotFittedError):
        LogisticRegression().to_sklearn()
