# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's naive Bayes and centroids, adopted with their rows."""

from typing import Any

import numpy as np
import pytest
from sklearn import naive_bayes, neighbors
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import expunge
from expunge import Budget, from_sklearn
from expunge.exceptions import InvalidInput, Unsupported

FITTED = [
    naive_bayes.MultinomialNB(alpha=0.5),
    naive_bayes.MultinomialNB(fit_prior=False),
    naive_bayes.MultinomialNB(class_prior=[0.2, 0.3, 0.5]),
    naive_bayes.ComplementNB(norm=True),
    naive_bayes.BernoulliNB(binarize=1.0),
    neighbors.NearestCentroid(),
]
RESULTS = ("feature_log_prob_", "centroids_")
PEOPLE = [f"person {row // 2}" for row in range(200)]


@pytest.fixture
def counts(rng: np.random.Generator) -> tuple[Any, Any]:
    y = rng.integers(0, 3, 200)
    return rng.poisson(1.0 + y[:, None], (200, 9)).astype(float), y


@pytest.mark.parametrize("plain", FITTED, ids=repr)
def test_it_goes_on_as_scikit_learn_fitted_again(
    plain: Any, counts: tuple[Any, Any]
) -> None:
    X, y = counts
    model = from_sklearn(clone(plain).fit(X, y), X, y, PEOPLE)
    assert type(model) is getattr(expunge, type(plain).__name__)
    model.forget(["person 3", "person 70"])
    stay = ~np.isin(PEOPLE, ["person 3", "person 70"])
    again = clone(plain).fit(X[stay], y[stay])
    assert (model.predict(X) == again.predict(X)).all()
    (result,) = (one for one in RESULTS if hasattr(again, one))
    assert np.allclose(getattr(model, result), getattr(again, result), atol=1e-6)
    assert model.certificate_.status == "exact"


@pytest.mark.parametrize("plain", FITTED, ids=repr)
def test_other_rows_are_refused(plain: Any, counts: tuple[Any, Any]) -> None:
    X, y = counts
    fitted = clone(plain).fit(X, y)
    for rows, labels in ((X + (X == 1.0), y), (X[:150], y[:150]), (X, y + 1)):
        with pytest.raises(InvalidInput, match="does not follow from these rows"):
            from_sklearn(fitted, rows, labels)


def test_weights_and_decimals_are_taken_along(counts: tuple[Any, Any]) -> None:
    X, y = counts
    weight = np.arange(200) % 3
    fitted = naive_bayes.MultinomialNB().fit(X / 4.0, y, sample_weight=weight)
    model = from_sklearn(fitted, X / 4.0, y, sample_weight=weight, decimals=2)
    assert np.allclose(model.feature_log_prob_, fitted.feature_log_prob_, atol=1e-7)
    with pytest.raises(InvalidInput, match="decimals"):
        from_sklearn(fitted, X / 4.0, y, sample_weight=weight)


def test_what_does_not_fit_is_named(counts: tuple[Any, Any]) -> None:
    X, y = counts
    fitted = naive_bayes.MultinomialNB().fit(X, y)
    with pytest.raises(InvalidInput, match=r"does not take budget for MultinomialNB"):
        from_sklearn(fitted, X, y, budget=Budget())
    shrunk = neighbors.NearestCentroid(shrink_threshold=0.1).fit(X, y)
    with pytest.raises(Unsupported, match=r"shrink_threshold=0\.1 is not a function"):
        from_sklearn(shrunk, X, y)
    with pytest.raises(NotFittedError):
        from_sklearn(naive_bayes.MultinomialNB(), X, y)
    with pytest.raises(InvalidInput, match="does not take decimals"):
        from sklearn.linear_model import Ridge

        from_sklearn(Ridge().fit(X, y), X, y, decimals=2)
