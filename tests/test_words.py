# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's words mean what they mean there: C, class weights, tol, max_iter.

The oracle is scikit-learn itself, fitted to the rows that are left.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import linear_model as rivals
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from expunge import Budget, load, read_shipped, ship, verify
from expunge.exceptions import InvalidInput
from expunge.linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from expunge.linear_model.base import private_model

GONE = np.arange(0, 60, 3)
BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=0.3, allow_seeded=True)


def data(name: str) -> tuple[Any, Any, Any]:
    """Return features, labels as words or targets, and weights."""
    loaders = {"cancer": load_breast_cancer, "iris": load_iris}
    X, y = loaders.get(name, load_diabetes)(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    weight = np.random.default_rng(7).uniform(0.2, 3.0, len(X))
    return X, y if name == "diabetes" else np.array(["no", "maybe", "yes"])[y], weight


def exact(**given: Any) -> Any:
    """Return scikit-learn's logistic regression, solved as far as it can be."""
    return rivals.LogisticRegression(
        solver="newton-cholesky", tol=1e-12, max_iter=1000, **given
    )


def same_model(ours: Any, theirs: Any, X: Any) -> None:
    """Require the same coefficients; for softmax up to what shifts all scores."""
    if hasattr(theirs, "decision_function"):
        np.testing.assert_allclose(
            ours.decision_function(X), theirs.decision_function(X), atol=1e-7
        )
    else:
        np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-9)


def without(*arrays: Any) -> list[Any]:
    """Return arrays without the rows that go."""
    return [None if a is None else np.delete(a, GONE, axis=0) for a in arrays]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("ours", "theirs", "name"),
    [
        (LogisticRegression, exact(C=0.3), "cancer"),
        (SoftmaxRegression, exact(C=0.3), "iris"),
        (LogisticRegression, OneVsRestClassifier(exact(C=0.3)), "iris"),
        (LinearRegression, rivals.Ridge(alpha=1.0 / 0.3), "diabetes"),
    ],
)
def test_c_is_that_of_scikit_learn(
    ours: Any, theirs: Any, name: str, weighted: bool
) -> None:
    X, y, weight = data(name)
    if not weighted or isinstance(theirs, OneVsRestClassifier):  # takes no weights
        weight = None
    model = ours(C=0.3, mechanism="retrain").fit(X, y, sample_weight=weight)
    fitted = {} if weight is None else {"sample_weight": weight}
    same_model(model, clone(theirs).fit(X, y, **fitted), X)
    model.forget(rows=GONE)
    left_X, left_y, left_weight = without(X, y, weight)
    fitted = {} if weight is None else {"sample_weight": left_weight}
    same_model(model, clone(theirs).fit(left_X, left_y, **fitted), X)
    again = clone(model).fit(left_X, left_y, sample_weight=left_weight)
    same_model(model, again, X)


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5])
def test_c_is_certified_against_scikit_learn(l1_ratio: float) -> None:
    X, y, weight = data("cancer")
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    model = LogisticRegression(
        C=0.1, l1_ratio=l1_ratio, budget=BUDGET, random_state=0
    ).fit(X, y, sample_weight=weight)
    model.forget(rows=GONE)
    assert verify(model.certificate_, model.record_).stands
    left_X, left_y, left_weight = without(X, y, weight)
    rival = rivals.LogisticRegression(
        C=0.1, l1_ratio=l1_ratio, solver="saga", tol=1e-12, max_iter=100_000
    ).fit(left_X, left_y, sample_weight=left_weight)
    theirs = np.append(np.ravel(rival.coef_), rival.intercept_)
    radius = model.record_.radius
    assert radius is not None and model.certificate_.status == "certified"
    answer = private_model(model).answer.draft.theta
    assert np.linalg.norm(answer - theirs) <= radius + 1e-7  # their own tolerance


def test_a_certificate_states_c_and_nothing_that_tells_row_counts() -> None:
    X, y, weight = data("cancer")
    X = X / np.linalg.norm(X, axis=1, keepdims=True)

    def public(rows: slice) -> list[str]:
        model = LogisticRegression(C=0.5, budget=BUDGET, random_state=0)
        model.fit(X[rows], y[rows], sample_weight=weight[rows])
        stated = [model.certificate_]
        stated.append(model.forget(rows=[0, 1]).certificate_)
        assert stated[1].objective == stated[0].objective
        assert stated[1].objective["C"] == 0.5 and "alpha" not in stated[1].objective
        return [one.replace(commitment="00" * 32).to_json() for one in stated]

    assert public(slice(None)) == public(slice(0, 400))


def test_c_is_kept_by_files(tmp_path: Path) -> None:
    X, y, weight = data("iris")
    model = SoftmaxRegression(C=2.0).fit(X, y, sample_weight=weight)
    model.forget(rows=GONE[:5])
    model.save(tmp_path / "model")
    ship(model, tmp_path / "model.safetensors")
    assert read_shipped(tmp_path / "model.safetensors").C == 2.0
    again = load(tmp_path / "model")
    assert again.get_params() == model.get_params()
    for one in (model, again):
        one.forget(rows=GONE[5:])
    np.testing.assert_array_equal(model.coef_, again.coef_)
    left_X, left_y, left_weight = without(X, y, weight)
    theirs = exact(C=2.0).fit(left_X, left_y, sample_weight=left_weight)
    assert np.abs(again.predict_proba(X) - theirs.predict_proba(X)).max() < 0.01
    assert again.certificate_.objective["C"] == 2.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"alpha": 0.1}, "C=1.0 and alpha=0.1; pass one of them"),
        ({"scaling": "mean"}, "C=1.0 and scaling='mean'; C means scaling='sum'"),
        ({"ridge": 0.1}, "C=1.0 and ridge=0.1; C counts the sum"),
        ({"C": 0.0}, "C=0.0; it must be a positive number"),
        ({"C": float("nan")}, "C=nan; it must be a positive number"),
        ({"C": 1e60}, r"C=1e\+60; it must be between"),
    ],
)
def test_c_goes_with_nothing_that_means_something_else(
    given: dict[str, Any], message: str
) -> None:
    model = LogisticRegression(C=1.0).set_params(**given)
    with pytest.raises(InvalidInput, match=message):
        model.fit(np.eye(4), [0, 1, 0, 1])


def test_c_with_scaling_sum_or_without_weight() -> None:
    X, y, _ = data("diabetes")
    plain, stated = LinearRegression(C=1.0), LinearRegression(C=1.0, scaling="sum")
    np.testing.assert_array_equal(plain.fit(X, y).coef_, stated.fit(X, y).coef_)
    with pytest.raises(ValueError, match="weight"):  # some versions of scikit-learn's
        plain.fit(X, y, sample_weight=np.zeros(len(X)))
