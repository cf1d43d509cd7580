# SPDX-License-Identifier: Apache-2.0
"""Adoption of searches: the choice is stated as not covered, or made again."""

import importlib
from typing import Any

import numpy as np
import pytest
from scipy.stats import loguniform
from sklearn import linear_model as rivals
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneOut,
    RandomizedSearchCV,
    RepeatedKFold,
    StratifiedKFold,
)
from sklearn.multiclass import OneVsRestClassifier

from expunge.adopt import from_sklearn
from expunge.exceptions import InvalidInput, Unsupported
from expunge.linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from expunge.linear_model.tuned import TunedClassifier, TunedRegressor
from expunge.promise.budget import Budget
from expunge.promise.scope import CHOSEN
from expunge.promise.verification import verify
from tests.test_adopt import EXACT, GONE, data, logistic, scores, svc

CS = [0.01, 0.1, 1.0]
ALPHAS = [0.1, 1.0, 10.0]


def logistic_cv(**settings: Any) -> Any:
    quiet = {
        "l1_ratios": (0.0,),
        "use_legacy_attributes": False,
        "scoring": "neg_log_loss",
        "cv": 3,
        "solver": "newton-cholesky",
    }
    return rivals.LogisticRegressionCV(**quiet | {"Cs": CS} | EXACT | settings)


# Each with its plain estimator, at the hyper-parameters that it chose.
CHOSEN_BY: list[tuple[Any, str, Any]] = [
    (
        logistic_cv(),
        "cancer",
        lambda cv: logistic(C=float(np.ravel(cv.C_)[0])),
    ),
    (
        logistic_cv(use_legacy_attributes=True, fit_intercept=False),
        "cancer",
        lambda cv: logistic(C=float(np.ravel(cv.C_)[0]), fit_intercept=False),
    ),
    (
        logistic_cv(l1_ratios=(0.2, 0.8), solver="saga", Cs=[0.05], tol=1e-10),
        "cancer",
        lambda cv: logistic(
            C=0.05, solver="saga", l1_ratio=float(np.ravel(cv.l1_ratio_)[0])
        ),
    ),
    (
        logistic_cv(use_legacy_attributes=True),
        "iris",
        lambda cv: logistic(C=float(np.ravel(cv.C_)[0])),
    ),
    (rivals.RidgeCV(ALPHAS), "diabetes", lambda cv: rivals.Ridge(alpha=cv.alpha_)),
    (
        rivals.RidgeCV(ALPHAS, fit_intercept=False, cv=4),
        "diabetes",
        lambda cv: rivals.Ridge(alpha=cv.alpha_, fit_intercept=False),
    ),
    (
        rivals.RidgeClassifierCV(ALPHAS, class_weight={0: 2.0}),
        "iris",
        lambda cv: rivals.RidgeClassifier(alpha=cv.alpha_, class_weight={0: 2.0}),
    ),
    (
        rivals.LassoCV(alphas=ALPHAS, cv=4, **EXACT),
        "diabetes",
        lambda cv: rivals.Lasso(alpha=cv.alpha_, **EXACT),
    ),
    (
        rivals.ElasticNetCV(alphas=[0.1, 0.3], l1_ratio=[0.3, 0.7], cv=4, **EXACT),
        "diabetes",
        lambda cv: rivals.ElasticNet(alpha=cv.alpha_, l1_ratio=cv.l1_ratio_, **EXACT),
    ),
    (
        GridSearchCV(logistic(), {"C": CS}, cv=3),
        "cancer",
        lambda search: clone(search.best_estimator_),
    ),
    (
        RandomizedSearchCV(
            rivals.Ridge(), {"alpha": loguniform(0.1, 10)}, n_iter=3, random_state=0
        ),
        "diabetes",
        lambda search: clone(search.best_estimator_),
    ),
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("chooser", "source", "plain"), CHOSEN_BY)
def test_what_was_chosen_is_adopted_and_the_choice_is_not_covered(
    chooser: Any, source: str, plain: Any, weighted: bool
) -> None:
    X, y, weight = data(source)
    weight = weight if weighted else np.ones(len(X))
    fitted = clone(chooser).fit(X, y, sample_weight=weight)
    model = from_sklearn(fitted, X, y, sample_weight=weight, mechanism="retrain")
    assert model.adoption_.relative_shift < 1e-6
    assert model.certificate_.selection == "not covered"
    assert CHOSEN in model.certificate_.not_covered

    model.forget(rows=GONE.tolist())
    again = plain(fitted).fit(X[30:], y[30:], sample_weight=weight[30:])
    np.testing.assert_allclose(scores(model, X), scores(again, X), atol=2e-6)
    assert model.certificate_.selection == "not covered"


def test_one_vs_rest_can_be_searched_and_retuned() -> None:
    X, y, _ = data("iris")
    rest = OneVsRestClassifier(logistic())
    search = GridSearchCV(rest, {"estimator__C": CS}, cv=3).fit(X, y)
    model = from_sklearn(search, X, y, mechanism="retrain").forget(rows=GONE.tolist())
    again = clone(search.best_estimator_).fit(X[30:], y[30:])
    np.testing.assert_allclose(scores(model, X), scores(again, X), atol=1e-6)
    tuned: Any = from_sklearn(search, X, y, retune=True)
    assert type(tuned) is TunedClassifier and tuned.folds == 3
    assert len(tuned.forget(rows=[3]).coef_) == 3


def test_a_choice_voids_the_promise() -> None:
    X, y, _ = data("cancer")
    search = GridSearchCV(logistic(), {"C": CS}, cv=3).fit(X, y)
    budget = Budget(sigma=5.0, allow_seeded=True)
    model = from_sklearn(search, X, y, budget=budget, random_state=0)
    assert model.forget(rows=[3]).certificate_.status == "radius-only"
    assert verify(model.certificate_, model.record_).stands


def test_halving_searches_are_searches() -> None:
    importlib.import_module("sklearn.experimental.enable_halving_search_cv")
    halving: Any = importlib.import_module("sklearn.model_selection")
    X, y, _ = data("cancer")
    search = halving.HalvingGridSearchCV(
        logistic(), {"C": CS}, cv=3, min_resources=100, random_state=0
    ).fit(X, y)
    model = from_sklearn(search, X, y)
    assert model.C == search.best_params_["C"]
    assert model.certificate_.selection == "not covered"
    tuned: Any = from_sklearn(search, X, y, retune=True)
    assert tuned.alphas == pytest.approx([1.0 / (C * len(X)) for C in CS])


STRENGTHS = [1.0 / C for C in CS]
# Each with our class, its folds, and what scikit-learn fits at strength s = alpha W.
RETUNED: list[tuple[Any, str, Any, Any, Any]] = [
    (
        GridSearchCV(logistic(), {"C": CS}, cv=3),
        "cancer", TunedClassifier, 3, lambda s: logistic(C=1 / s),
    ),
    (
        GridSearchCV(logistic(), {"C": CS, "tol": [1e-6, 1e-8]}, cv=KFold(4)),
        "cancer", TunedClassifier, 4, lambda s: logistic(C=1 / s),
    ),
    (
        logistic_cv(cv=StratifiedKFold(4), fit_intercept=False),
        "cancer", TunedClassifier, 4, lambda s: logistic(C=1 / s, fit_intercept=False),
    ),
    (
        GridSearchCV(svc(tol=1e-6), [{"C": [0.1]}, {"C": [0.01, 1.0]}]),
        "cancer", TunedClassifier, 5, lambda s: svc(C=1 / s),
    ),
    (
        rivals.RidgeClassifierCV(STRENGTHS),
        "cancer", TunedClassifier, "loo", lambda s: rivals.RidgeClassifier(alpha=s),
    ),
    (
        rivals.RidgeCV(STRENGTHS),
        "diabetes", TunedRegressor, "loo", lambda s: rivals.Ridge(alpha=s),
    ),
    (
        GridSearchCV(
            rivals.Ridge(), {"alpha": STRENGTHS}, cv=LeaveOneOut(),
            scoring="neg_mean_squared_error",
        ),
        "diabetes", TunedRegressor, "loo", lambda s: rivals.Ridge(alpha=s),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("chooser", "source", "kind", "folds", "plain"), RETUNED)
def test_a_choice_can_be_made_again_on_the_same_grid(
    chooser: Any, source: str, kind: Any, folds: Any, plain: Any
) -> None:
    X, y, weight = data(source)
    people = [f"p{i // 3}" for i in range(len(X))]
    model: Any = from_sklearn(
        clone(chooser).fit(X, y), X, y, people, sample_weight=weight,
        retune=True, fold_key="fixed beforehand", mechanism="retrain",
    )  # fmt: skip
    assert type(model) is kind and model.folds == folds
    assert model.alphas == pytest.approx([s / weight.sum() for s in STRENGTHS])

    model.forget(people[:30:3])
    again = clone(model).fit(X[30:], y[30:], people[30:], sample_weight=weight[30:])
    assert model.alpha_ == again.alpha_
    assert model.certificate_.selection == "certified"
    theirs = plain(model.alpha_ * weight[30:].sum())
    theirs.fit(X[30:], y[30:], sample_weight=weight[30:])
    np.testing.assert_allclose(scores(model, X), scores(theirs, X), atol=2e-6)


def test_two_hyper_parameters_are_tuned_as_a_full_grid() -> None:
    X, y, _ = data("diabetes")
    net = rivals.ElasticNetCV(alphas=[0.1, 0.3], l1_ratio=[0.3, 0.7], cv=4).fit(X, y)
    people = [f"p{i // 2}" for i in range(len(X))]
    model: Any = from_sklearn(net, X, y, people, retune=True, fold_key="k")
    assert (model.alphas, model.l1_ratios) == ((0.3, 0.1), (0.7, 0.3))
    model.forget(["p0", "p1"])
    again = clone(model).fit(X[4:], y[4:], subjects=people[4:])
    assert (model.alpha_, model.l1_ratio_) == (again.alpha_, again.l1_ratio_)
    np.testing.assert_allclose(model.coef_, again.coef_, rtol=1e-6, atol=1e-6)


def test_retuning_keeps_classes_balanced() -> None:
    X, y, _ = data("cancer")
    search = GridSearchCV(logistic(class_weight="balanced"), {"C": CS}, cv=3).fit(X, y)
    model = from_sklearn(search, X, y, retune=True)
    assert model.class_weight == "balanced"
    assert model.certificate_.selection == "certified"


def cancer(estimator: Any) -> Any:
    X, y, _ = data("cancer")
    return estimator.fit(X, y), X, y


def iris(estimator: Any) -> Any:
    X, y, _ = data("iris")
    return estimator.fit(X, y), X, y


def diabetes(estimator: Any) -> Any:
    X, y, _ = data("diabetes")
    return estimator.fit(X, y), X, y


NOT_RETUNED: list[tuple[Any, Any, str]] = [
    (
        cancer,
        GridSearchCV(logistic(), {"class_weight": [None, {0: 2.0}], "C": CS}),
        "varies more",
    ),
    (cancer, GridSearchCV(logistic(), {"fit_intercept": [True, False]}), "varies more"),
    (
        cancer,
        GridSearchCV(
            logistic(solver="saga", C=0.01),
            [{"C": [0.01], "l1_ratio": [0.0, 1.0]}, {"C": [0.02], "l1_ratio": [0.5]}],
            cv=2,
        ),
        "did not compare every strength",
    ),
    (cancer, GridSearchCV(logistic(), {"C": CS}, cv=RepeatedKFold()), "RepeatedKFold"),
    (iris, GridSearchCV(logistic(), {"C": CS}), "no tuned estimator here minimises"),
    (diabetes, rivals.LassoCV(), "computed from the data"),
]


@pytest.mark.parametrize(("fit", "chooser", "message"), NOT_RETUNED)
def test_grids_without_a_counterpart_are_refused(
    fit: Any, chooser: Any, message: str
) -> None:
    fitted, X, y = fit(clone(chooser))
    with pytest.raises(Unsupported, match=message):
        from_sklearn(fitted, X, y, retune=True)
    kinds = LogisticRegression | LinearRegression | SoftmaxRegression
    assert isinstance(from_sklearn(fitted, X, y), kinds)


def test_a_search_without_a_model_is_refused() -> None:
    X, y, _ = data("cancer")
    search = GridSearchCV(logistic(), {"C": CS}, refit=False).fit(X, y)
    with pytest.raises(Unsupported, match="refit=False leaves no model"):
        from_sklearn(search, X, y)
    with pytest.raises(Unsupported, match="refit=False averages"):
        from_sklearn(logistic_cv(refit=False).fit(X, y), X, y)
    Y = np.c_[y, np.random.default_rng(0).normal(size=len(y))]
    apart = rivals.RidgeCV([1e-3, 1e5], alpha_per_target=True).fit(X, Y)
    assert len(set(apart.alpha_)) == 2
    with pytest.raises(Unsupported, match="different values for different"):
        from_sklearn(apart, X, Y)


def test_options_that_do_not_go_together_are_refused() -> None:
    X, y, _ = data("cancer")
    search = GridSearchCV(logistic(), {"C": CS}, cv=3).fit(X, y)
    with pytest.raises(InvalidInput, match="needs one search"):
        from_sklearn(search.best_estimator_, X, y, retune=True)
    with pytest.raises(InvalidInput, match="fold_key without retune=True"):
        from_sklearn(search, X, y, fold_key="k")
    with pytest.raises(InvalidInput, match="always keeps its rows"):
        from_sklearn(search, X, y, retune=True, keep_data=False)
