# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's words mean what they mean there: C, class weights, tol, max_iter.

The oracle is scikit-learn itself, fitted to the rows that are left.
"""

import inspect
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import linear_model as rivals
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge import Budget, load, read_shipped, ship, verify
from expunge.core.sums import loss_slopes
from expunge.exceptions import InvalidInput, NoPrivateState, NotConverged
from expunge.linear_model import (
    LinearRegression,
    LogisticRegression,
    NoPromiseWarning,
    SoftmaxRegression,
    TunedClassifier,
    TunedRegressor,
)
from expunge.linear_model.base import private_model
from expunge.linear_model.parameters import (
    INSTEAD,
    UnknownParameter,
    warn_without_budget,
)
from expunge.linear_model.rows import ClassWeightWarning
from expunge.promise.scope import CLASS_WEIGHT
from expunge.registry import Registry
from tests.registries import private_model_of

GONE = np.arange(0, 60, 3)
BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=0.3, allow_seeded=True)


def data(name: str) -> tuple[Any, Any, Any]:
    """Return features, labels as words or targets, and weights."""
    loaders = {"cancer": load_breast_cancer, "iris": load_iris}
    X, y = loaders.get(name, load_diabetes)(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    weight = np.random.default_rng(7).uniform(0.2, 3.0, len(X))
    words = {"cancer": ["no", "yes"], "iris": ["no", "maybe", "yes"]}.get(name)
    return X, y if words is None else np.array(words)[y], weight


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
    assert verify(model.certificate_, model.record_).valid
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


BY_CLASS = {"no": 3.0, "yes": 0.25}  # and 1 for "maybe"
CLASSIFIERS = [
    (LogisticRegression, "cancer"),
    (SoftmaxRegression, "iris"),
    (LogisticRegression, "iris"),
]


def people(n_rows: int) -> list[str]:
    """Return owners of two rows each."""
    return [f"person {i // 2}" for i in range(n_rows)]


def weights_of(y: Any, weight: Any) -> Any:
    """Return weights of rows, by hand."""
    by_class = np.array([BY_CLASS.get(label, 1.0) for label in y])
    return by_class if weight is None else by_class * weight


def forget_by(way: str, model: Any, X: Any, y: Any, weight: Any) -> None:
    """Forget the rows that go: by person, position or content."""
    given = {"subjects": people(len(X))} if way == "person" else {}
    model.fit(X, y, sample_weight=weight, **given)
    if way == "person":
        model.forget([f"person {i}" for i in range(20)])
    elif way == "position":
        model.forget(rows=np.arange(40))
    else:
        part = None if weight is None else weight[:40]
        model.forget(X=X[:40], y=y[:40], sample_weight=part)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("way", ["person", "position", "content", "content alone"])
@pytest.mark.parametrize("given", [{"alpha": 0.01}, {"C": 0.3}])
@pytest.mark.parametrize(("kind", "name"), CLASSIFIERS)
def test_class_weights_multiply_weights(
    kind: Any, name: str, given: dict[str, Any], way: str, weighted: bool
) -> None:
    X, y, weight = data(name)
    order = np.random.default_rng(3).permutation(len(X))
    X, y, weight = X[order], y[order], weight[order] if weighted else None
    kept = {"keep_data": way != "content alone"}
    ours = kind(class_weight=dict(BY_CLASS), **given, **kept)
    forget_by(way, ours, X, y, weight)
    plain = kind(**given, **kept)
    forget_by(way, plain, X, y, weights_of(y, weight))
    np.testing.assert_array_equal(ours.coef_, plain.coef_)
    assert not np.allclose(kind(**given).fit(X, y).coef_, ours.coef_, atol=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("kind", "name"), CLASSIFIERS[:2])
def test_class_weights_are_those_of_scikit_learn(
    kind: Any, name: str, weighted: bool
) -> None:
    X, y, weight = data(name)
    weight = weight if weighted else None
    ours = kind(C=0.3, class_weight=dict(BY_CLASS), mechanism="retrain")
    ours.fit(X, y, sample_weight=weight).forget(rows=GONE)
    left_X, left_y, left_weight = without(X, y, weight)
    full = {label: BY_CLASS.get(label, 1.0) for label in np.unique(y)}
    theirs = exact(C=0.3, class_weight=full)
    same_model(ours, theirs.fit(left_X, left_y, sample_weight=left_weight), X)


def test_class_weights_hold_when_a_class_loses_its_last_row() -> None:
    X, y, weight = data("iris")
    for declared in (None, ["maybe", "no", "yes"]):
        model = SoftmaxRegression(
            C=0.3,
            class_weight={"maybe": 1.0, **BY_CLASS},
            classes=declared,
            penalize_intercept=declared is not None,
            mechanism="retrain",
        ).fit(X, y, sample_weight=weight, subjects=y)
        model.forget(["no"])
        left = y != "no"
        again = clone(model).fit(X[left], y[left], sample_weight=weight[left])
        np.testing.assert_allclose(model.coef_, again.coef_, atol=1e-9)
        np.testing.assert_array_equal(model.classes_, again.classes_)


def test_class_weights_of_numbers_are_kept_by_files(tmp_path: Path) -> None:
    X, y, weight = data("iris")
    y = np.unique(y, return_inverse=True)[1] + 1
    by_class = {1: 2.0, np.int64(3): 0.5}
    model = SoftmaxRegression(class_weight=by_class, keep_data=False)
    model.fit(X, y, sample_weight=weight)
    by_class[1] = 77.0  # a change after the fit
    model.set_params(class_weight=None)
    model.save(tmp_path / "model")
    ship(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model")
    assert again.class_weight == {1: 2.0, 3: 0.5}
    assert read_shipped(tmp_path / "model.safetensors").class_weight == {1: 2.0, 3: 0.5}
    for one in (model, again):
        one.forget(X=X[:4], y=y[:4], sample_weight=weight[:4])
    np.testing.assert_array_equal(model.coef_, again.coef_)


def test_class_weights_reach_a_registry(tmp_path: Path) -> None:
    X, y, weight = data("cancer")
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    model = LogisticRegression(
        C=0.1, class_weight=dict(BY_CLASS), budget=BUDGET, random_state=0
    )
    owners = people(len(X))
    with Registry.create(tmp_path / "registry") as registry:
        given = {"subjects": owners, "sample_weight": weight}
        registry.fit("model", model, X, y, **given)
        registry.forget(["person 3", "person 5"])
        registry.models.ship("model", tmp_path / "model.safetensors")
        answer = private_model_of(registry, "model").answer
        kept = registry.models.case("model").rows.weight
    assert read_shipped(tmp_path / "model.safetensors").class_weight == BY_CLASS
    left = ~np.isin(owners, ["person 3", "person 5"])
    np.testing.assert_array_equal(np.sort(kept), np.sort(weights_of(y, weight)[left]))
    again = clone(model).set_params(budget=None)
    again.fit(X[left], y[left], sample_weight=weight[left])
    theta = private_model(again).answer.draft.theta
    assert np.linalg.norm(answer.draft.theta - theta) <= answer.radius.value


@pytest.mark.parametrize("way", ["person", "position", "content"])
@pytest.mark.parametrize(("kind", "name"), CLASSIFIERS[:2])
def test_class_weights_and_c_reach_a_model_with_preprocessing(
    kind: Any, name: str, way: str
) -> None:
    X, y, weight = data(name)
    X = 3.0 * X + 7.0
    order = np.random.default_rng(3).permutation(len(X))
    X, y = X[order], y[order]
    full = {label: BY_CLASS.get(label, 1.0) for label in np.unique(y)}
    ours = kind(C=0.3, class_weight=full, preprocessing=StandardScaler())
    forget_by(way, ours.set_params(mechanism="retrain"), X, y, None)
    theirs = make_pipeline(StandardScaler(), exact(C=0.3, class_weight=full))
    same_model(ours, theirs.fit(X[40:], y[40:]), X)
    assert ours.certificate_.objective["C"] == 0.3
    assert CLASS_WEIGHT in ours.certificate_.assumptions
    ours.fit(X, y, sample_weight=weight)  # which count for the model alone
    step = {f"{theirs.steps[-1][0]}__sample_weight": weight}
    same_model(ours, theirs.fit(X, y, **step), X)


def test_tuned_classifiers_take_class_weights() -> None:
    X, y, weight = data("cancer")
    ours = TunedClassifier(class_weight=dict(BY_CLASS), fold_key="key")
    plain = TunedClassifier(fold_key="key")
    ours.fit(X, y, sample_weight=weight, subjects=people(len(X)))
    plain.fit(X, y, sample_weight=weights_of(y, weight), subjects=people(len(X)))
    for one in (ours, plain):
        one.forget(["person 1", "person 7"])
    assert ours.alpha_ == plain.alpha_
    np.testing.assert_array_equal(ours.coef_, plain.coef_)


def test_certificates_say_that_classes_have_weights() -> None:
    X, y, _ = data("cancer")
    plain = LogisticRegression().fit(X, y).certificate_
    model = LogisticRegression(class_weight=dict(BY_CLASS)).fit(X, y)
    for row in (5, 6):
        stated = model.certificate_
        assert stated.assumptions == (*plain.assumptions, CLASS_WEIGHT)
        assert verify(stated, model.record_).valid
        model.forget(rows=[row])


def test_weights_of_unknown_classes() -> None:
    X, y, _ = data("cancer")
    declared = LogisticRegression(class_weight={"Yes": 2.0}, classes=["no", "yes"])
    with pytest.raises(InvalidInput, match="class_weight names 'Yes', which is not"):
        declared.fit(X, y)
    with pytest.warns(ClassWeightWarning, match="class_weight names 'Yes', which no"):
        learnt = LogisticRegression(class_weight={"Yes": 2.0}).fit(X, y)
    np.testing.assert_array_equal(learnt.coef_, LogisticRegression().fit(X, y).coef_)
    # A class may have left: then nothing is wrong.
    every = {"maybe": 1.0, "no": 2.0, "yes": 3.0}
    LogisticRegression(class_weight=every).fit(X, y)
    with pytest.raises(InvalidInput, match=r"class_weight=.*; a regression has none"):
        LinearRegression(class_weight=every).fit(X, np.arange(len(X)))


def test_tol_is_the_gradient_that_a_fit_may_end_with() -> None:
    X, y, weight = data("cancer")
    plain = LogisticRegression(C=1.0).fit(X, y, sample_weight=weight)
    for tol in (1.0, 1e-4, 1e-9):
        model = LogisticRegression(C=1.0, tol=tol).fit(X, y, sample_weight=weight)
        np.testing.assert_array_equal(model.coef_, plain.coef_)
        objective = private_model(model).objective
        rows = objective.rows(X, np.where(y == "yes", 1.0, -1.0), weight)
        theta = private_model(model).answer.draft.theta
        slopes = loss_slopes(objective.loss, rows, theta=theta) / rows.total_weight
        gradient = slopes + objective.quadratic_gradient(theta)
        assert np.linalg.norm(gradient) <= tol
    model = LogisticRegression(C=1.0, tol=1e-30)
    with pytest.raises(NotConverged, match=r"larger than tol=1e-30; raise it"):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_max_iter_limits_the_steps_and_never_the_answer(l1_ratio: float) -> None:
    X, y, _ = data("cancer")
    plain = LogisticRegression(l1_ratio=l1_ratio).fit(X, y)
    assert 2 < plain.n_iter_ < 100
    for max_iter in (100, 10_000):
        model = LogisticRegression(l1_ratio=l1_ratio, max_iter=max_iter, tol=1e-8)
        model.fit(X, y)
        np.testing.assert_array_equal(model.coef_, plain.coef_)
    with pytest.raises(NotConverged, match="took more than max_iter=2 steps"):
        LogisticRegression(l1_ratio=l1_ratio, max_iter=2).fit(X, y)
    exactly = LogisticRegression(l1_ratio=l1_ratio, max_iter=plain.n_iter_).fit(X, y)
    assert exactly.n_iter_ == plain.n_iter_
    with pytest.raises(NoPrivateState):  # it depends on all rows
        _ = deepcopy(exactly).n_iter_
    with pytest.raises(AttributeError, match="steps of a fit"):  # it tells who left
        _ = exactly.forget(rows=[3]).n_iter_


@pytest.mark.parametrize("kind", [LogisticRegression, SoftmaxRegression])
def test_a_problem_whose_residual_is_zero_is_solved(kind: Any) -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        X = rng.normal(size=(200, 1)) * 10.0 ** rng.uniform(-2, 3)
        y = (rng.random(200) < 0.5).astype(int)
        model = kind(alpha=2.0, fit_intercept=False, max_iter=100).fit(X, y)
        assert model.n_iter_ < 50


def test_coefficients_that_all_stay_at_zero_are_solved() -> None:
    X, y = np.array([[1.0], [2.0], [3.0]]), np.array([0.1, -0.1, 0.2])
    settings: dict[str, Any] = {"alpha": 7.0, "l1_ratio": 1.0, "ridge": 0.1}
    model = LinearRegression(**settings, fit_intercept=False, max_iter=100).fit(X, y)
    assert not model.coef_.any() and model.n_iter_ < 10


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (LogisticRegression, "penality", "did you mean penalty?"),
        (LogisticRegression, "solver", "there is one solver"),
        (LogisticRegression, "n_jobs", "OMP_NUM_THREADS"),
        (LogisticRegression, "dual", "there is one solver"),
        (LogisticRegression, "multi_class", "SoftmaxRegression all classes together"),
        (SoftmaxRegression, "Cs", "TunedClassifier and TunedRegressor cross-validate"),
        (LinearRegression, "weather", "it takes alpha, l1_ratio, penalty"),
        (TunedClassifier, "C", "give candidates as alphas=[...]"),
        (TunedClassifier, "tol", "there is one solver"),
        (TunedRegressor, "alpha", "give candidates as alphas=[...]"),
    ],
)
def test_an_unknown_parameter_is_named_with_the_class_called(
    kind: Any, given: str, message: str
) -> None:
    with pytest.raises(UnknownParameter) as caught:
        kind(**{given: 1})
    assert str(caught.value).startswith(f"{kind.__name__} has no parameter {given!r}: ")
    assert message in str(caught.value) and isinstance(caught.value, TypeError)


ESTIMATORS = (
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
    TunedClassifier,
    TunedRegressor,
)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_constructors_show_their_parameters(kind: Any) -> None:
    shown = inspect.signature(kind).parameters
    assert sorted(shown) == sorted(kind().get_params())
    assert all(one.kind is one.POSITIONAL_OR_KEYWORD for one in shown.values())


def test_advice_is_about_parameters_that_some_estimator_lacks() -> None:
    for name in INSTEAD:
        assert any(name not in kind().get_params() for kind in ESTIMATORS)


def test_a_model_without_a_budget_says_once_that_it_promises_nothing() -> None:
    X, y, _ = data("cancer")
    warn_without_budget.cache_clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
        LogisticRegression(budget=BUDGET, random_state=0).fit(X, y)
        assert not said
        model = LogisticRegression().fit(X, y)
        model.forget(rows=[3])
        LinearRegression().fit(X, np.arange(len(X)))
    assert [one.category for one in said] == [NoPromiseWarning]
    assert said[0].filename == __file__ and "promises nothing" in str(said[0].message)
    warn_without_budget.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # as an error it is not said, so it is said again
            with pytest.raises(NoPromiseWarning):
                model.set_params(alpha=1.0).fit(X, y)
    assert model.certificate_.n_subjects_removed == 1  # the old fit stands
