# SPDX-License-Identifier: Apache-2.0
"""Adoption: what scikit-learn fitted is taken over, and retrains as it would."""

import copy
import pickle
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import linear_model as rivals
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from expunge.adopt import AdoptionWarning, from_sklearn
from expunge.core.losses import HalfSquared, Huber, SquaredHinge
from expunge.exceptions import InvalidInput, NoPrivateState, Unsupported
from expunge.linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from expunge.linear_model.base import private_model
from expunge.promise.budget import Budget
from expunge.promise.scope import CLASS_WEIGHT
from expunge.promise.verification import verify

GONE = np.arange(30)
EXACT: dict[str, Any] = {"tol": 1e-12, "max_iter": 100_000}


@cache
def data(name: str) -> tuple[Any, Any, Any]:
    """Return standardised features, labels and integer weights."""
    loaders = {
        "cancer": load_breast_cancer,
        "diabetes": load_diabetes,
        "iris": load_iris,
    }
    X, y = loaders[name](return_X_y=True)
    X = StandardScaler().fit_transform(X)
    order = np.random.default_rng(0).permutation(len(X))
    weight = np.random.default_rng(1).integers(1, 4, len(X)).astype(float)
    return X[order], y[order], weight


def logistic(**settings: Any) -> Any:
    settings = {"solver": "newton-cholesky", "C": 0.5} | EXACT | settings
    return rivals.LogisticRegression(**settings)


CASES: list[tuple[Any, str, type]] = [
    (logistic(), "cancer", LogisticRegression),
    (logistic(fit_intercept=False), "cancer", LogisticRegression),
    (logistic(solver="saga", l1_ratio=1.0, C=0.05), "cancer", LogisticRegression),
    (logistic(solver="saga", l1_ratio=0.5, C=0.2), "cancer", LogisticRegression),
    (logistic(solver="liblinear", l1_ratio=1.0), "cancer", LogisticRegression),
    (logistic(class_weight={0: 2.0}), "cancer", LogisticRegression),
    (logistic(solver="newton-cg"), "iris", SoftmaxRegression),
    (logistic(solver="saga", l1_ratio=0.3), "iris", SoftmaxRegression),
    (rivals.Ridge(alpha=3.0), "diabetes", LinearRegression),
    (rivals.Ridge(alpha=3.0, fit_intercept=False), "diabetes", LinearRegression),
    (rivals.Lasso(alpha=3.0, **EXACT), "diabetes", LinearRegression),
    (
        rivals.ElasticNet(alpha=0.3, l1_ratio=0.4, **EXACT),
        "diabetes",
        LinearRegression,
    ),
    (
        rivals.Lasso(alpha=3.0, fit_intercept=False, **EXACT),
        "diabetes",
        LinearRegression,
    ),
    (rivals.RidgeClassifier(alpha=3.0), "cancer", LogisticRegression),
    (rivals.RidgeClassifier(alpha=3.0), "iris", LogisticRegression),
    (
        rivals.RidgeClassifier(alpha=3.0, fit_intercept=False, class_weight={0: 3.0}),
        "iris",
        LogisticRegression,
    ),
]


def name(case: Any) -> str | None:
    return type(case).__name__ if hasattr(case, "get_params") else None


def scores(model: Any, X: Any) -> Any:
    """Return what the model says of rows before it is rounded to classes."""
    if hasattr(model, "decision_function"):
        return model.decision_function(X)
    return model.predict(X)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("estimator", "source", "adopted"), CASES, ids=name)
def test_adopted_model_is_that_of_scikit_learn_before_and_after_a_removal(
    estimator: Any, source: str, adopted: type, weighted: bool
) -> None:
    X, y, weight = data(source)
    weight = weight if weighted else np.ones(len(X))
    fitted = clone(estimator).fit(X, y, sample_weight=weight)
    model = from_sklearn(fitted, X, y, sample_weight=weight, mechanism="retrain")
    assert type(model) is adopted
    np.testing.assert_allclose(scores(model, X), scores(fitted, X), atol=1e-6)
    assert model.adoption_.relative_shift < 1e-8
    assert model.adoption_.residual < 1e-8

    model.forget(rows=GONE.tolist())
    rest = np.delete(np.arange(len(X)), GONE)
    again = clone(estimator).fit(X[rest], y[rest], sample_weight=weight[rest])
    np.testing.assert_allclose(scores(model, X), scores(again, X), atol=1e-6)


def test_liblinear_penalises_its_intercept() -> None:
    X, y, _ = data("cancer")
    fitted = logistic(solver="liblinear").fit(X, y)
    model = from_sklearn(fitted, X, y, mechanism="retrain")
    assert model.penalize_intercept
    # liblinear stops at about 1e-8: the same objective by another solver is exact.
    with_ones = np.hstack([X, np.ones((len(X), 1))])
    model.forget(rows=GONE.tolist())
    again = logistic(fit_intercept=False).fit(with_ones[30:], y[30:])
    np.testing.assert_allclose(
        scores(model, X), scores(again, with_ones), atol=1e-6, rtol=0.0
    )


def svc(**settings: Any) -> Any:
    return LinearSVC(**{"C": 0.1, "tol": 1e-12, "max_iter": 1_000_000} | settings)


SUPPORT = [
    (svc(), "cancer"),
    (svc(fit_intercept=False, class_weight={1: 2.0}), "cancer"),
    (svc(penalty="l1", dual=False, tol=1e-9), "cancer"),
    (svc(dual=False), "iris"),
    (svc(fit_intercept=False), "iris"),
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("estimator", "source"), SUPPORT)
def test_support_vectors_are_squared_hinges(
    estimator: Any, source: str, weighted: bool
) -> None:
    X, y, weight = data(source)
    weight = weight if weighted else np.ones(len(X))
    fitted = clone(estimator).fit(X, y, sample_weight=weight)
    model = from_sklearn(fitted, X, y, sample_weight=weight, mechanism="retrain")
    assert type(model) is LogisticRegression
    assert model.adoption_.relative_shift < 1e-6  # where liblinear stops
    model.forget(rows=GONE.tolist())
    again = clone(estimator).fit(X[30:], y[30:], sample_weight=weight[30:])
    np.testing.assert_allclose(scores(model, X), scores(again, X), atol=2e-6)
    np.testing.assert_array_equal(model.predict(X), again.predict(X))


def test_one_vs_rest_is_one_model() -> None:
    X, y, _ = data("iris")
    estimator = OneVsRestClassifier(logistic())
    model = from_sklearn(
        clone(estimator).fit(X, y), X, y, mechanism="retrain", keep_data=True
    )
    assert isinstance(model, LogisticRegression)
    model.forget(rows=GONE.tolist())
    again = estimator.fit(X[30:], y[30:])
    np.testing.assert_allclose(scores(model, X), scores(again, X), atol=1e-6)
    np.testing.assert_array_equal(model.predict(X), again.predict(X))


@pytest.mark.parametrize("several", [False, True])
def test_stochastic_descent_is_near_the_model_that_adopts_it(several: bool) -> None:
    X, y, _ = data("iris" if several else "cancer")
    fitted = rivals.SGDClassifier(
        loss="log_loss", alpha=0.05, max_iter=2000, tol=None, random_state=0
    ).fit(X, y)
    model = from_sklearn(fitted, X, y, mechanism="retrain")
    assert model.certificate_.objective["scaling"] == "mean"
    assert 1e-6 < model.adoption_.relative_shift < 1e-3
    model.forget(rows=GONE.tolist())
    # Its alpha is per row: the same model with C = 1/(alpha n) on what remains.
    same = logistic(C=1.0 / (0.05 * (len(X) - 30)))
    exact = (OneVsRestClassifier(same) if several else same).fit(X[30:], y[30:])
    np.testing.assert_allclose(scores(model, X), scores(exact, X), atol=1e-6)


DESCENTS: list[tuple[Any, str, Any]] = [
    ("squared_hinge", "cancer", SquaredHinge()),
    ("squared_hinge", "iris", SquaredHinge()),
    ("squared_error", "cancer", HalfSquared()),
    ("huber", "cancer", Huber(0.1)),
    ("squared_error", "diabetes", HalfSquared()),
    ("huber", "diabetes", Huber(0.1)),
]


@pytest.mark.parametrize(("loss", "source", "ours"), DESCENTS)
def test_stochastic_descent_of_other_losses(loss: str, source: str, ours: Any) -> None:
    X, y, _ = data(source)
    y = (y - y.mean()) / y.std() if source == "diabetes" else y
    kind: Any = rivals.SGDRegressor if source == "diabetes" else rivals.SGDClassifier
    fitted = kind(
        loss=loss, alpha=0.05, max_iter=3000, tol=None, random_state=0, average=200_000,
        learning_rate="constant", eta0=2e-4,
    ).fit(X, y)  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdoptionWarning)
        model = from_sklearn(fitted, X, y, mechanism="retrain")
    assert (model.loss, model.alpha) == (ours, 0.05)
    assert model.certificate_.objective["scaling"] == "mean"
    assert model.adoption_.relative_shift < 0.01
    model.forget(rows=GONE.tolist())
    again = clone(fitted).fit(X[30:], y[30:])
    left = np.linalg.norm(scores(model, X) - scores(again, X))
    assert left < 0.01 * np.linalg.norm(scores(again, X))


@pytest.mark.parametrize(
    ("penalty", "ratio"), [("l2", 0.0), ("l1", 1.0), ("elasticnet", 0.15)]
)
def test_stochastic_descent_names_its_penalty(penalty: str, ratio: float) -> None:
    X, y, _ = data("cancer")
    fitted = rivals.SGDClassifier(
        loss="log_loss", penalty=penalty, alpha=0.05, random_state=0
    ).fit(X, y)
    with pytest.warns(AdoptionWarning, match="stopped short of the minimiser"):
        model = from_sklearn(fitted, X, y)
    assert (model.l1_ratio, model.alpha) == (ratio, 0.05)


@pytest.mark.parametrize("estimator", [logistic(), rivals.Ridge(alpha=3.0)], ids=name)
def test_integer_weights_are_repeated_rows(estimator: Any) -> None:
    X, y, weight = data("cancer")
    repeated = np.repeat(np.arange(len(X)), weight.astype(int))
    fitted = estimator.fit(X, y, sample_weight=weight)
    weighted = from_sklearn(fitted, X, y, sample_weight=weight)
    plain = from_sklearn(fitted, X[repeated], y[repeated])
    assert weighted.C == plain.C
    found, wanted = private_model(weighted).objective, private_model(plain).objective
    assert found.alpha == pytest.approx(wanted.alpha, rel=1e-14)
    np.testing.assert_allclose(weighted.coef_, plain.coef_, rtol=1e-8, atol=1e-10)


def test_certificates_state_what_was_fixed_and_not_the_number_of_rows() -> None:
    X, y, _ = data("cancer")
    weighed = logistic(C=0.5, class_weight={0: 2.0}).fit(X, y)
    model = from_sklearn(weighed, X, y, keep_data=False)
    stated = model.certificate_.objective
    assert stated["C"] == 0.5 and stated["scaling"] == "sum" and "alpha" not in stated
    assert CLASS_WEIGHT in model.certificate_.assumptions
    model.forget(X=X[:3], y=y[:3])  # weighed by class as at the fit
    ridge = from_sklearn(rivals.Ridge(alpha=4.0).fit(X, y), X, y)
    assert ridge.certificate_.objective["C"] == 0.25


def test_classes_without_weight_are_rows_without_weight() -> None:
    X, y, _ = data("iris")
    fitted = rivals.RidgeClassifier(class_weight={0: 0.0}).fit(X, y)
    model = from_sklearn(fitted, X, y, mechanism="retrain")
    np.testing.assert_allclose(scores(model, X), scores(fitted, X), atol=1e-6)


def test_one_newton_step_is_near_retraining() -> None:
    X, y, _ = data("cancer")
    fitted = logistic().fit(X, y)
    model = from_sklearn(fitted, X, y).forget(rows=GONE.tolist())
    again = logistic().fit(X[30:], y[30:])
    left = np.linalg.norm(model.coef_ - again.coef_)
    assert left < 0.2 * np.linalg.norm(fitted.coef_ - again.coef_)


def test_coefficients_that_stopped_early_are_reported() -> None:
    X, y, _ = data("cancer")
    fitted = rivals.LogisticRegression(C=0.5, tol=1.0).fit(X, y)
    with pytest.warns(AdoptionWarning) as caught:
        model = from_sklearn(fitted, X, y)
    adoption = model.adoption_
    change = np.r_[
        model.coef_.ravel() - fitted.coef_.ravel(),
        model.intercept_ - fitted.intercept_,
    ]
    assert adoption.shift == pytest.approx(np.linalg.norm(change))
    assert adoption.residual > 1e-6
    assert f" {100 * adoption.relative_shift:.0f} % of" in str(caught[0].message)
    assert "smaller tol" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_constant_in_all_intercepts_means_nothing() -> None:
    X, y, _ = data("iris")
    fitted = logistic(solver="newton-cg").fit(X, y)
    fitted.intercept_ = fitted.intercept_ + 5.0
    assert from_sklearn(fitted, X, y).adoption_.relative_shift < 1e-8


def test_other_rows_than_those_of_the_fit_are_noticed() -> None:
    X, y, weight = data("cancer")
    fitted = logistic().fit(X, y, sample_weight=weight)
    with pytest.warns(AdoptionWarning, match="check that X, y and sample_weight"):
        from_sklearn(fitted, X, y)


def test_adoption_is_private() -> None:
    X, y, _ = data("cancer")
    model = from_sklearn(logistic().fit(X, y), X, y)
    assert repr(model.adoption_) == "Adoption(private)"
    assert not hasattr(copy.deepcopy(model), "adoption_")
    with pytest.raises(TypeError, match="private"):
        pickle.dumps(model.adoption_)
    with pytest.raises(NoPrivateState):
        pickle.loads(pickle.dumps(model)).forget(rows=[0])


def test_balanced_classes_stay_balanced() -> None:
    X, y, _ = data("cancer")
    fitted = logistic(class_weight="balanced").fit(X, y)
    budget = Budget(sigma=5.0, allow_seeded=True)
    model = from_sklearn(
        fitted, X, y, budget=budget, random_state=0, mechanism="retrain"
    )
    for _ in range(2):
        certificate = model.certificate_
        assert (certificate.selection, certificate.status) == (
            "not known",
            "certified",
        )
        assert verify(certificate, model.record_).valid
        if certificate.n_releases == 1:
            model.forget(rows=GONE.tolist())
    plain = from_sklearn(fitted, X, y, mechanism="retrain").forget(rows=GONE.tolist())
    again = logistic(class_weight="balanced").fit(X[30:], y[30:])
    np.testing.assert_allclose(scores(plain, X), scores(again, X), atol=1e-6)


def test_budget_and_people_are_passed_on() -> None:
    X, y, _ = data("cancer")
    people = [f"p{i // 3}" for i in range(len(X))]
    budget = Budget(sigma=5.0, releases=2, allow_seeded=True)
    model = from_sklearn(
        logistic().fit(X, y), X, y, people, budget=budget, random_state=0
    )
    model.forget(["p0", "p1"])
    assert model.certificate_.status == "certified"
    assert model.certificate_.n_subjects_removed == 2
    assert model.record_.n_removed == 6


def test_sparse_rows_and_names_of_columns() -> None:
    X, y, _ = data("cancer")
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    fitted = logistic().fit(frame, y)
    named = from_sklearn(fitted, frame, y)
    assert list(named.to_sklearn().feature_names_in_) == list(frame.columns)
    thin = from_sklearn(logistic().fit(X, y), sparse.csr_array(X), y)
    np.testing.assert_allclose(thin.coef_, named.coef_, atol=1e-9)
    with pytest.raises(InvalidInput, match="feature_names_in_"):
        from_sklearn(fitted, frame[frame.columns[::-1]], y)


def test_sparse_coefficients_and_old_penalties_are_read() -> None:
    X, y, _ = data("cancer")
    fitted = logistic(solver="saga", l1_ratio=1.0, C=0.2).fit(X, y).sparsify()
    model = from_sklearn(fitted, X, y)
    assert model.adoption_.relative_shift < 1e-8
    for penalty, ratio in {"l1": 1.0, "l2": 0.0, "elasticnet": 0.5}.items():
        old = logistic(l1_ratio=0.5).set_params(solver="saga", C=0.2).fit(X, y)
        old.penalty = penalty
        if penalty == "elasticnet":
            assert from_sklearn(old, X, y).l1_ratio == ratio
        else:
            with pytest.warns(AdoptionWarning):
                assert from_sklearn(old, X, y).l1_ratio == ratio


def fitted_on(source: str, estimator: Any, **attributes: Any) -> Callable[[], Any]:
    """Return a maker of the fitted estimator, attributes set afterwards."""

    def make() -> Any:
        X, y, _ = data(source)
        fitted = clone(estimator).fit(X, y)
        for attribute, value in attributes.items():
            setattr(fitted, attribute, value)
        return fitted, X, y

    return make


def several_targets() -> Any:
    X, y, _ = data("diabetes")
    Y = np.c_[y, -y]
    return rivals.Ridge(alpha=[1.0, 2.0]).fit(X, Y), X, Y


def several_labels() -> Any:
    X, y, _ = data("iris")
    Y = np.c_[y > 0, y > 1].astype(int)
    return rivals.RidgeClassifier().fit(X, Y), X, Y


SGD = rivals.SGDClassifier(loss="log_loss", random_state=0)
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (
        fitted_on("diabetes", rivals.LinearRegression()),
        r"no penalty, .*; fit Ridge\(alpha=1e-3\)",
    ),
    (fitted_on("cancer", logistic(), C=np.inf), "no penalty"),
    (fitted_on("cancer", logistic(), penalty=None), "penalty=None"),
    (
        fitted_on("cancer", logistic(solver="liblinear", intercept_scaling=2.0)),
        "intercept_scaling=2.0 penalises",
    ),
    (fitted_on("cancer", logistic(), multi_class="multinomial"), "two classes twice"),
    (
        fitted_on("iris", OneVsRestClassifier(rivals.Perceptron())),
        "must hold a LogisticRegression",
    ),
    (
        fitted_on("iris", OneVsRestClassifier(logistic(class_weight="balanced"))),
        "for each class",
    ),
    (fitted_on("diabetes", rivals.Ridge(alpha=0.0)), "no penalty"),
    (fitted_on("diabetes", rivals.Ridge(positive=True)), "positive=True"),
    (several_targets, "from target to target"),
    (fitted_on("diabetes", rivals.Lasso(positive=True)), "positive=True"),
    (several_labels, "2 labels a row"),
    (fitted_on("cancer", svc(), loss="hinge"), "loss='hinge' has a kink"),
    (fitted_on("cancer", svc(intercept_scaling=2.0)), "intercept_scaling=2.0 pen"),
    (fitted_on("iris", svc(multi_class="crammer_singer")), "a loss of its own"),
    (fitted_on("iris", svc(dual=False, class_weight={0: 2.0})), "for each class"),
    (fitted_on("cancer", svc(), C=np.inf), "no penalty"),
    (fitted_on("cancer", rivals.SGDClassifier(loss="hinge")), "loss='hinge'"),
    (fitted_on("cancer", rivals.SGDClassifier(loss="modified_huber")), "modified_hub"),
    (
        fitted_on(
            "diabetes", rivals.SGDRegressor(tol=None), loss="epsilon_insensitive"
        ),
        "no counterpart here; fit it with one of 'huber', 'squared_error'",
    ),
    (
        fitted_on("cancer", clone(SGD).set_params(early_stopping=True)),
        "sets part of the rows aside",
    ),
    (fitted_on("cancer", SGD, penalty=None), "penalty=None"),
    (
        fitted_on("iris", clone(SGD).set_params(class_weight={0: 2.0})),
        "for each class",
    ),
    (
        fitted_on("cancer", clone(SGD).set_params(class_weight={0: 2.0})),
        "divides by the number of rows",
    ),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_what_has_no_counterpart_is_refused(
    make: Callable[[], Any], message: str
) -> None:
    fitted, X, y = make()
    with pytest.raises(Unsupported, match=message):
        from_sklearn(fitted, X, y)


def test_settings_that_contradict_each_other_are_refused() -> None:
    X, y, weight = data("cancer")
    balanced = logistic(class_weight="balanced").fit(X, y)
    with pytest.raises(Unsupported, match="with sample_weight"):
        from_sklearn(balanced, X, y, sample_weight=weight)
    with pytest.raises(InvalidInput, match="does not take alpha, which the fitted"):
        from_sklearn(balanced, X, y, alpha=1.0)  # type: ignore[call-arg]
    with pytest.raises(NotFittedError):
        from_sklearn(logistic(), X, y)


def test_rows_of_another_shape_are_refused() -> None:
    X, y, _ = data("cancer")
    fitted = logistic().fit(X, y)
    with pytest.raises(InvalidInput, match=r"shape \(1, 30\); the rows need"):
        from_sklearn(fitted, X[:, :29], y)
    with pytest.raises(InvalidInput, match="classes_ of the rows"):
        from_sklearn(fitted, X, y + 1)


@pytest.mark.parametrize("name", ["C", "ridge"])
def test_adopted_models_forget_within_their_radius(name: str) -> None:
    # Rows of norm one, as a budget needs them; scikit-learn retrains.
    X, y, _ = data("cancer")
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    target = y if name == "C" else 2.0 * y - 1.0
    rival: Any = logistic(C=0.1) if name == "C" else rivals.Ridge(alpha=5.0)
    budget = Budget(sigma=1.0, allow_seeded=True)
    model = from_sklearn(
        clone(rival).fit(X, target), X, target, budget=budget, random_state=0
    )
    model.forget(rows=GONE.tolist())
    assert model.certificate_.status == "certified"
    again = clone(rival).fit(np.delete(X, GONE, axis=0), np.delete(target, GONE))
    theirs = np.append(np.ravel(again.coef_), again.intercept_)
    ours = private_model(model).answer.draft.theta
    radius = model.record_.radius
    assert radius is not None
    assert np.linalg.norm(ours - theirs) <= radius + 1e-7  # their own tolerance
    assert verify(model.certificate_, model.record_).valid


def test_rows_without_weight_are_nothing_to_adopt() -> None:
    X, y, _ = data("diabetes")
    model = rivals.Ridge().fit(X, y)
    with pytest.raises(InvalidInput, match="no row has positive weight"):
        from_sklearn(model, X, y, sample_weight=np.zeros(len(X)))
