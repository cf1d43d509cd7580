# SPDX-License-Identifier: Apache-2.0
"""Adoption of pipelines: preprocessing and model are those of fitting them again."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import linear_model as rivals
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    StandardScaler,
)

from expunge.adopt import AdoptionWarning, from_sklearn
from expunge.exceptions import InvalidInput, Unsupported
from expunge.linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from expunge.linear_model.base import private_model
from expunge.linear_model.fitting import fit_copy
from expunge.promise.budget import Budget
from expunge.promise.scope import CHOSEN, Scope
from tests.test_adopt import EXACT, logistic, scores, svc

N_GONE = 30


@cache
def table() -> tuple[Any, Any, Any, Any]:
    """Return a table of numbers, words and gaps; a class, a target and weights."""
    rng = np.random.default_rng(5)
    n = 400
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n).astype(float),
            "income": rng.lognormal(9.0, 1.0, n),
            "rate": rng.normal(size=n),
            "town": rng.choice(["Ulm", "Ulm", "Bonn", "Kiel", "Jena"], n),
            "plan": rng.choice(["a", "b"], n),
        }
    )
    frame.loc[rng.random(n) < 0.1, "age"] = np.nan
    frame.loc[:2, "town"] = "Trier"  # goes with the first people who leave
    eta = 0.03 * (frame["age"].fillna(40.0) - 40.0) + frame["rate"]
    eta = eta + (frame["town"] == "Bonn") + rng.logistic(size=n)
    label = np.where(eta > 0.5, "stays", "goes")
    label[eta > 2.5] = "pays"
    weight = rng.integers(1, 4, n).astype(float)
    return frame, label, eta.to_numpy(), weight


def mixed(**words: Any) -> ColumnTransformer:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    encoder = OneHotEncoder(handle_unknown="ignore", **words)
    return ColumnTransformer(
        [
            ("numbers", numbers, ["age", "income", "rate"]),
            ("words", encoder, ["town", "plan"]),
        ]
    )


def selected(scaler: Any = None) -> ColumnTransformer:
    numbers = make_pipeline(SimpleImputer(strategy="median"), scaler or MinMaxScaler())
    return ColumnTransformer(
        [("numbers", numbers, make_column_selector(dtype_include="number"))]
    )


PIPELINES: list[tuple[Any, str, type]] = [
    (make_pipeline(mixed(), logistic()), "two", LogisticRegression),
    (
        make_pipeline(mixed(drop="first"), logistic(fit_intercept=False)),
        "two",
        LogisticRegression,
    ),
    (
        make_pipeline(mixed(), logistic(solver="saga", l1_ratio=0.5, C=0.3)),
        "two",
        LogisticRegression,
    ),
    (
        make_pipeline(mixed(), logistic(class_weight={"goes": 3.0})),
        "two",
        LogisticRegression,
    ),
    (make_pipeline(mixed(), logistic(solver="newton-cg")), "three", SoftmaxRegression),
    (make_pipeline(mixed(), rivals.RidgeClassifier(3.0)), "three", LogisticRegression),
    (make_pipeline(selected(), svc(dual=False)), "two", LogisticRegression),
    (make_pipeline(mixed(), rivals.Ridge(3.0)), "number", LinearRegression),
    (
        make_pipeline(selected(MaxAbsScaler()), rivals.Lasso(0.01, **EXACT)),
        "number",
        LinearRegression,
    ),
    (
        Pipeline(
            [
                ("nothing", "passthrough"),
                ("table", selected()),
                ("net", rivals.ElasticNet(alpha=0.02, l1_ratio=0.4, **EXACT)),
            ]
        ),
        "number",
        LinearRegression,
    ),
]


def target(kind: str) -> Any:
    _, label, number, _ = table()
    if kind == "number":
        return number
    return np.where(label == "pays", "stays", label) if kind == "two" else label


def fit(pipeline: Any, X: Any, y: Any, weight: Any) -> Any:
    """Fit a pipeline, the weights going to its last step, as people do."""
    given = {} if weight is None else {f"{last(pipeline)}__sample_weight": weight}
    return clone(pipeline).fit(X, y, **given)


def last(pipeline: Any) -> str:
    return str(pipeline.steps[-1][0])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("pipeline", "kind", "adopted"), PIPELINES)
def test_adopted_pipeline_is_that_of_scikit_learn_before_and_after_a_removal(
    pipeline: Any, kind: str, adopted: type, weighted: bool
) -> None:
    X, _, _, weight = table()
    y, people = target(kind), [f"p{i // 2}" for i in range(len(X))]
    given = weight if weighted else None
    fitted = fit(pipeline, X, y, given)
    model = from_sklearn(fitted, X, y, people, sample_weight=given, mechanism="retrain")
    assert type(model) is adopted
    assert model.adoption_.relative_shift < 1e-6
    np.testing.assert_allclose(scores(model, X), scores(fitted, X), atol=2e-6)

    model.forget(people[:N_GONE])
    rest = slice(N_GONE, None)
    again = fit(pipeline, X[rest], y[rest], weight[rest] if weighted else None)
    found, wanted = scores(model, X[rest]), scores(again, X[rest])
    np.testing.assert_allclose(found, wanted, atol=2e-6)
    if kind != "number":
        np.testing.assert_array_equal(model.predict(X[rest]), again.predict(X[rest]))


def test_the_given_pipeline_stays_as_it_was() -> None:
    X, *_ = table()
    y = target("two")
    fitted = fit(make_pipeline(mixed(), logistic()), X, y, None)
    before = fitted.decision_function(X)
    model = from_sklearn(fitted, X, y)
    assert not hasattr(model.preprocessing, "transformers_")
    model.forget(rows=range(N_GONE))
    np.testing.assert_array_equal(fitted.decision_function(X), before)
    with pytest.raises(InvalidInput, match="feature_names_in_"):
        from_sklearn(fitted, X[X.columns[::-1]], y)


def test_one_newton_step_of_a_pipeline_is_near_retraining() -> None:
    X, *_ = table()
    y = target("two")
    pipeline = make_pipeline(mixed(), logistic())
    fitted = fit(pipeline, X, y, None)
    model = from_sklearn(fitted, X, y).forget(rows=range(3, N_GONE))
    rest = np.r_[:3, N_GONE : len(X)]
    again = fit(pipeline, X.iloc[rest], y[rest], None)
    left = np.linalg.norm(scores(model, X) - scores(again, X))
    assert left < 0.2 * np.linalg.norm(scores(fitted, X) - scores(again, X))


def test_shift_of_a_pipeline_is_in_the_warning() -> None:
    X, *_ = table()
    y = target("two")
    rough = rivals.LogisticRegression(C=0.5, tol=1.0)
    with pytest.warns(AdoptionWarning, match="stopped short.* % of"):
        model = from_sklearn(fit(make_pipeline(mixed(), rough), X, y, None), X, y)
    exact = fit(make_pipeline(mixed(), logistic()), X, y, None)
    np.testing.assert_allclose(scores(model, X), scores(exact, X), atol=1e-6)


def test_balanced_weights_do_not_weigh_the_scaler() -> None:
    X, *_ = table()
    y = target("two")
    fitted = fit(make_pipeline(mixed(), logistic(class_weight="balanced")), X, y, None)
    model = from_sklearn(fitted, X, y)
    np.testing.assert_allclose(scores(model, X), scores(fitted, X), atol=1e-6)
    assert model.class_weight == "balanced"


def test_adopted_weights_do_not_weigh_the_scaler_of_a_later_fit() -> None:
    X, _, _, weight = table()
    y = target("two")
    fitted = fit(make_pipeline(mixed(), logistic()), X, y, weight)
    model = from_sklearn(fitted, X, y, sample_weight=weight)
    again = fit_copy(
        model, X, y, subjects=None, sample_weight=weight, scope=Scope()
    ).public
    np.testing.assert_allclose(again.coefficients[0], model.coef_, atol=1e-6)


def test_promise_covers_the_preprocessing() -> None:
    X, *_ = table()
    y, people = target("two"), [f"p{i // 2}" for i in range(len(X))]
    fitted = fit(make_pipeline(mixed(), logistic(C=0.01)), X, y, None)
    budget = Budget(sigma=5.0, allow_seeded=True)
    model = from_sklearn(fitted, X, y, people, budget=budget, random_state=0)
    assert model.forget(people[:4]).certificate_.status == "certified"


def test_search_over_a_pipeline() -> None:
    X, *_ = table()
    y = target("two")
    pipeline = make_pipeline(mixed(), logistic())
    grid = {"logisticregression__C": [0.01, 0.1, 1.0]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    model = from_sklearn(search, X, y, mechanism="retrain")
    assert model.certificate_.selection == "not covered"
    assert CHOSEN in model.certificate_.not_covered
    model.forget(rows=range(N_GONE))
    again = fit(search.best_estimator_, X[N_GONE:], y[N_GONE:], None)
    np.testing.assert_allclose(scores(model, X), scores(again, X), atol=1e-6)


def test_cross_validation_as_the_last_step() -> None:
    X, *_ = table()
    y = target("number")
    pipeline = make_pipeline(mixed(), rivals.RidgeCV([0.1, 1.0, 10.0]))
    fitted = fit(pipeline, X, y, None)
    model = from_sklearn(fitted, X, y, mechanism="retrain").forget(rows=range(N_GONE))
    assert model.certificate_.selection == "not covered"
    again = make_pipeline(mixed(), rivals.Ridge(fitted[-1].alpha_))
    again.fit(X[N_GONE:], y[N_GONE:])
    np.testing.assert_allclose(scores(model, X), scores(again, X), atol=1e-6)


def test_search_and_cross_validation_are_both_named() -> None:
    X, *_ = table()
    y = target("number")
    pipeline = make_pipeline(mixed(), rivals.RidgeCV([0.1, 1.0]))
    search = GridSearchCV(pipeline, {"ridgecv__fit_intercept": [True, False]}, cv=3)
    search.fit(X, y)
    model = from_sklearn(search, X, y)
    assert model.certificate_.selection == "not covered"
    assert private_model(model).scope.declared == ("RidgeCV", "GridSearchCV")


def test_what_cannot_be_unlearned_is_refused() -> None:
    X, *_ = table()
    y, numbers = target("two"), ["income", "rate"]
    reduced = make_pipeline(StandardScaler(), PCA(1), logistic()).fit(X[numbers], y)
    with pytest.raises(Unsupported, match="PCA as preprocessing"):
        from_sklearn(reduced, X[numbers], y)
    weighed = ColumnTransformer(
        [("numbers", StandardScaler(), numbers)], transformer_weights={"numbers": 2.0}
    )
    doubled = make_pipeline(weighed, logistic()).fit(X, y)
    with pytest.raises(Unsupported, match="transformer_weights"):
        from_sklearn(doubled, X, y)
    with pytest.raises(Unsupported, match="ends without an estimator"):
        from_sklearn(make_pipeline(mixed(), "passthrough").fit(X, y), X, y)
