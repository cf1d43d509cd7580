# SPDX-License-Identifier: Apache-2.0
"""Adoption of searches: the choice is kept, and stated as not covered."""

import importlib
from typing import Any

import numpy as np
import pytest
from scipy.stats import loguniform
from sklearn import linear_model as rivals
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import expunge
from expunge.adopt import from_sklearn
from expunge.exceptions import InvalidInput, Unsupported
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


def test_one_vs_rest_can_be_searched() -> None:
    X, y, _ = data("iris")
    rest = OneVsRestClassifier(logistic())
    search = GridSearchCV(rest, {"estimator__C": CS}, cv=3).fit(X, y)
    model = from_sklearn(search, X, y, mechanism="retrain").forget(rows=GONE.tolist())
    again = clone(search.best_estimator_).fit(X[30:], y[30:])
    np.testing.assert_allclose(scores(model, X), scores(again, X), atol=1e-6)


def test_a_choice_voids_the_promise() -> None:
    X, y, _ = data("cancer")
    search = GridSearchCV(logistic(), {"C": CS}, cv=3).fit(X, y)
    budget = Budget(sigma=5.0, allow_seeded=True)
    model = from_sklearn(search, X, y, budget=budget, random_state=0)
    assert model.forget(rows=[3]).certificate_.status == "no promise"
    assert verify(model.certificate_, model.record_).valid


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


STRENGTHS = [1.0 / C for C in CS]
# Each with the parameters beside the grid, and what scikit-learn fits at strength s.
COMPARED: list[tuple[Any, str, str, Any]] = [
    (
        GridSearchCV(logistic(), {"C": CS, "tol": [1e-6, 1e-8]}),
        "cancer", "TunedClassifier", lambda s: logistic(C=1 / s),
    ),
    (
        GridSearchCV(
            make_pipeline(StandardScaler(), logistic(class_weight="balanced")),
            {"logisticregression__C": CS},
        ),
        "cancer",
        "TunedClassifier preprocessing=StandardScaler() class_weight='balanced'",
        lambda s: make_pipeline(
            StandardScaler(), logistic(C=1 / s, class_weight="balanced")
        ),
    ),
    (
        GridSearchCV(svc(tol=1e-6), [{"C": [0.1]}, {"C": [0.01, 1.0]}]),
        "cancer", "TunedClassifier penalize_intercept=True loss=SquaredHinge()",
        lambda s: svc(C=1 / s),
    ),
    (
        GridSearchCV(OneVsRestClassifier(logistic()), {"estimator__C": CS}),
        "iris", "TunedClassifier", lambda s: OneVsRestClassifier(logistic(C=1 / s)),
    ),
    (
        logistic_cv(fit_intercept=False),
        "cancer", "TunedClassifier fit_intercept=False",
        lambda s: logistic(C=1 / s, fit_intercept=False),
    ),
    (
        rivals.RidgeClassifierCV(STRENGTHS),
        "cancer", "TunedClassifier loss=HalfSquared(outputs=1)",
        lambda s: rivals.RidgeClassifier(alpha=s),
    ),
    (
        rivals.RidgeCV(STRENGTHS),
        "diabetes", "TunedRegressor", lambda s: rivals.Ridge(alpha=s),
    ),
]  # fmt: skip


def advice(fitted: Any, X: Any, y: Any) -> str:
    options: dict[str, Any] = {"retune": True}
    with pytest.raises(InvalidInput, match="does not take retune") as refused:
        from_sklearn(fitted, X, y, **options)
    return str(refused.value).partition(", call ")[2]


@pytest.mark.parametrize(("chooser", "source", "words", "plain"), COMPARED)
def test_the_refusal_of_retune_prints_the_call_that_chooses_again(
    chooser: Any, source: str, words: str, plain: Any
) -> None:
    X, y, _ = data(source)
    X, y = X[:150], y[:150]  # so many show it as well, and trainings are short
    said = advice(clone(chooser).fit(X, y), X, y)
    kind, *others = words.split()
    assert said.startswith(f"{kind}(alphas=[")
    assert said.split("]")[1] == ", ".join(["", *others]) + ").fit(X, y, subjects)"

    subjects = [f"p{i // 3}" for i in range(len(X))]
    known = {name: getattr(expunge, name) for name in expunge.__all__}
    known |= {"StandardScaler": StandardScaler, "X": X, "y": y, "subjects": subjects}
    model = eval(said, known)
    assert model.alphas == pytest.approx([s / len(X) for s in STRENGTHS], rel=1e-5)
    model.set_params(fold_key="fixed", mechanism="retrain").fit(X, y, subjects)
    model.forget(subjects[:30:3])
    again = clone(model).fit(X[30:], y[30:], subjects[30:])
    assert model.alpha_ == again.alpha_
    assert model.certificate_.selection == "certified"
    theirs = plain(model.alpha_ * len(X[30:])).fit(X[30:], y[30:])
    np.testing.assert_allclose(scores(model, X), scores(theirs, X), atol=2e-6)


def test_two_hyper_parameters_are_printed_as_a_grid() -> None:
    X, y, _ = data("diabetes")
    net = rivals.ElasticNetCV(alphas=[0.1, 0.3], l1_ratio=[0.3, 0.7], cv=4).fit(X, y)
    said = "TunedRegressor(alphas=[0.3, 0.1], l1_ratios=[0.7, 0.3]).fit(X, y, subjects)"
    assert advice(net, X, y) == said


def test_without_a_grid_that_was_fixed_beforehand_no_grid_is_printed() -> None:
    X, y, _ = data("diabetes")
    for fitted, said in (
        (rivals.LassoCV(), "TunedRegressor(l1_ratios=[1.0]).fit"),
        (rivals.Ridge(), "TunedRegressor().fit"),
        (
            GridSearchCV(rivals.Ridge(), {"positive": [True, False]}),
            "TunedRegressor().fit",
        ),
        (GridSearchCV(rivals.RidgeCV(), {"cv": [2, 3]}), "TunedRegressor().fit"),
    ):
        assert advice(fitted.fit(X, y), X, y).startswith(said)
    X, y, _ = data("iris")
    assert advice(logistic_cv().fit(X, y), X, y).startswith("TunedClassifier(alphas=[")


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
