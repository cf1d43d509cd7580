# SPDX-License-Identifier: Apache-2.0
"""Balanced classes: the weights of the remaining rows, and radii that hold."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model as rivals
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_class_weight

from expunge import (
    Budget,
    LogisticRegression,
    SoftmaxRegression,
    TunedClassifier,
    load,
)
from expunge.core.rows import Rows
from expunge.exceptions import Unsupported
from expunge.linear_model.base import private_model
from expunge.preprocessing.balance import Balance
from expunge.private_model.answers import retrain_answer
from expunge.private_model.training_rows import RowChange
from expunge.registry import Registry
from expunge.removal.state import summarise


def problem(seed: int, n_classes: int = 2) -> tuple[Any, Any, Any]:
    """Return rows on several scales, uneven classes, and weights."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(80, 250)), int(rng.integers(2, 6))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1, d) + rng.normal(size=d)
    eta = (X / X.std(axis=0)) @ rng.normal(size=d) + rng.normal(size=n)
    cuts = np.quantile(eta, [0.8] if n_classes == 2 else [0.6, 0.85])
    return X, np.digitize(eta, cuts), rng.integers(1, 4, n).astype(float)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_factors_are_scikit_learns(n_classes: int) -> None:
    _, y, _ = problem(1, n_classes)
    signs = 2.0 * y - 1.0 if n_classes == 2 else y.astype(float)
    rows = Rows(np.ones((len(y), 1)), signs, np.ones(len(y)))
    ours = Balance.of(rows, n_classes).factors()
    theirs = compute_class_weight("balanced", classes=np.unique(y), y=y)
    np.testing.assert_allclose(ours, theirs, rtol=1e-15)


def test_weights_after_removal_are_those_of_counting_again() -> None:
    _, y, weight = problem(2)
    rows = Rows(np.ones((len(y), 1)), 2.0 * y - 1.0, weight / 3.0)
    gone = np.arange(0, len(y), 7)
    after = Balance.of(rows, 2).after(RowChange(removed=rows.take(gone)))
    assert after.totals == Balance.of(rows.without(gone), 2).totals
    back = after.after(RowChange(added=rows.take(gone)))
    assert back.totals == Balance.of(rows, 2).totals
    assert after.total == pytest.approx(float(np.delete(weight / 3.0, gone).sum()))


def test_oracle_is_scikit_learn_on_the_remaining_rows() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    settings: dict[str, Any] = {"C": 0.05, "class_weight": "balanced"}
    ours = LogisticRegression(**settings, mechanism="retrain").fit(X, y)
    gone = np.flatnonzero(y == 0)[:60]
    ours.forget(rows=gone)
    left = np.setdiff1d(np.arange(len(X)), gone)
    theirs = rivals.LogisticRegression(**settings, tol=1e-12, max_iter=10_000)
    theirs.fit(X[left], y[left])
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-7)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-7)


@pytest.mark.parametrize("seed", range(12))
def test_answers_are_within_their_radius(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_classes = 2 + seed % 2
    X, y, weight = problem(seed, n_classes)
    kind: Any = LogisticRegression if seed % 4 else SoftmaxRegression
    settings: dict[str, Any] = {
        "class_weight": "balanced",
        "preprocessing": StandardScaler() if rng.random() < 0.6 else None,
        "alpha": 10.0 ** rng.uniform(-3, -1),
        "scaling": ["mean", "sum"][seed % 2],
        "l1_ratio": 0.5 * (seed % 3 == 0),
        "penalize_intercept": bool(seed % 5 == 0),
    }
    if kind is LogisticRegression and n_classes == 2 and seed % 3 == 1:
        settings["loss"] = "squared_hinge"
    given = weight if seed % 2 else None
    model = kind(**settings).fit(X, y, np.arange(len(X)), sample_weight=given)
    left = np.arange(len(X))
    for _ in range(3):
        gone = rng.choice(left, int(rng.integers(1, 12)), replace=False)
        model.forget(gone)
        left = np.setdiff1d(left, gone)
        private = private_model(model)
        rows = private.remaining_rows()
        assert isinstance(rows, Rows)
        exact = retrain_answer(private.terms, rows, start=None)
        distance = np.linalg.norm(exact.draft.theta - private.answer.draft.theta)
        assert distance <= private.answer.radius.value + exact.radius.value
        by_class = [rows.weight[np.maximum(rows.y, 0) == c].sum() for c in range(2)]
        assert by_class[0] == pytest.approx(by_class[1])


def test_sums_of_classes_make_up_the_sums_of_the_remaining_rows() -> None:
    X, y, weight = problem(3)
    model = LogisticRegression(class_weight="balanced", alpha=0.01)
    model.fit(X, y, np.arange(len(X)), sample_weight=weight)
    before: Any = private_model(model)
    model.forget(range(0, 30, 2))
    after: Any = private_model(model)
    sums = after.encoding.sums.combine(after.encoding.balance)
    rows = after.remaining_rows()
    direct = summarise(after.objective, rows, theta=before.answer.state.anchor)
    fresh: Any = direct.sums
    for ours, theirs in (
        (sums.weight, fresh.weight),
        (sums.gradient, fresh.gradient),
        (sums.hessian.dense(), fresh.hessian.dense()),
        (sums.moment.dense(), fresh.moment.dense()),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-11)


def test_a_class_that_empties_leaves_the_others_balanced() -> None:
    X, y, _ = problem(5, 3)
    model = SoftmaxRegression(class_weight="balanced", alpha=0.01)
    model.fit(X, y, np.arange(len(X)))
    model.forget(np.flatnonzero(y == 2))
    fresh = LogisticRegression(class_weight="balanced", alpha=0.01)
    private = private_model(model)
    rows = private.remaining_rows()
    assert isinstance(rows, Rows) and model.classes_.tolist() == [0, 1]
    fresh.fit(X[y < 2], y[y < 2])
    again = private_model(fresh).remaining_rows()
    assert isinstance(again, Rows)
    np.testing.assert_allclose(rows.weight, again.weight, rtol=1e-15)
    model.forget([int(np.flatnonzero(y == 0)[0])])  # and goes on


def test_promise_files_and_registry(tmp_path: Any) -> None:
    X, y, _ = problem(6)
    people = [f"p{i // 2}" for i in range(len(X))]
    budget = Budget(sigma=2.0)
    model = LogisticRegression(class_weight="balanced", alpha=0.05, budget=budget)
    model.fit(X, y, people).save(tmp_path / "model")
    again = load(tmp_path / "model").forget(["p3"])
    assert again.certificate_.status == "certified"
    assert again.class_weight == "balanced"
    with Registry.create(tmp_path / "registry") as registry:
        fresh = LogisticRegression(
            class_weight="balanced", alpha=0.05, budget=Budget(sigma=2.0)
        )
        registry.fit("model", fresh, X, y, subjects=people)
        registry.forget(["p3"])
        registry.models.reanchor("model")
        registry.forget(["p4"])
        assert registry.model("model").certificate_.n_subjects_removed == 2


def test_rows_are_forgotten_by_content() -> None:
    X, y, weight = problem(7)
    model = LogisticRegression(class_weight="balanced", keep_data=False, alpha=0.1)
    model.fit(X, y, sample_weight=weight)
    model.forget(X=X[:2], y=y[:2], sample_weight=weight[:2])
    assert private_model(model).n_removed == 2


def test_tuning_balances_every_fold() -> None:
    X, y, _ = problem(8)
    people = np.arange(len(X))
    settings: dict[str, Any] = {"class_weight": "balanced", "fold_key": "key"}
    model = TunedClassifier(**settings).fit(X, y, people).forget(people[:20])
    fresh = TunedClassifier(**settings).fit(X[20:], y[20:], people[20:])
    assert model.alpha_ == fresh.alpha_
    np.testing.assert_allclose(model.curve_.errors, fresh.curve_.errors, rtol=1e-12)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("mechanism", ["newton", "retrain", "matrix-free"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_sparse_rows_are_balanced_as_dense_ones(
    n_classes: int, mechanism: str, intercept: bool, tmp_path: Any
) -> None:
    X, y, weight = problem(9, n_classes)
    X = X * (np.arange(X.size).reshape(X.shape) % 3 > 0)  # a third are zeros
    people, n = np.arange(len(X)), len(X) - 6
    settings: dict[str, Any] = {"alpha": 0.05, "mechanism": mechanism}
    settings |= {"class_weight": "balanced", "fit_intercept": intercept}
    found = []
    for kind in (np.asarray, sparse.csr_array, sparse.csc_matrix):
        model = LogisticRegression(**settings)
        model.fit(kind(X[:n]), y[:n], people[:n], sample_weight=weight[:n])
        model.forget(people[:9])
        model.add(kind(X[n:]), y[n:], subjects=people[n:], sample_weight=weight[n:])
        model.forget(X=kind(X[10:12]), y=y[10:12], sample_weight=weight[10:12])
        private: Any = private_model(model)
        rows = private.remaining_rows()
        assert sparse.issparse(rows.X) == (kind is not np.asarray)
        exact = retrain_answer(private.terms, rows, start=None)
        distance = np.linalg.norm(exact.draft.theta - private.answer.draft.theta)
        assert distance <= private.answer.radius.value + exact.radius.value
        model.save(tmp_path / kind.__name__)
        again = load(tmp_path / kind.__name__).forget(people[20:22])
        np.testing.assert_allclose(
            again.coef_, model.forget(people[20:22]).coef_, rtol=1e-12
        )
        found.append((model.coef_, model.predict(kind(X)), rows.weight))
    for theirs in found[1:]:
        np.testing.assert_allclose(theirs[0], found[0][0], rtol=1e-7, atol=1e-9)
        np.testing.assert_array_equal(theirs[1], found[0][1])
        np.testing.assert_array_equal(theirs[2], found[0][2])


@pytest.mark.parametrize("kind", [SoftmaxRegression, TunedClassifier])
def test_sparse_rows_are_balanced_by_other_estimators(kind: Any) -> None:
    X, y, _ = problem(10)
    settings: dict[str, Any] = {"class_weight": "balanced"}
    if kind is TunedClassifier:
        settings["fold_key"] = "key"
    people = np.arange(len(X))
    dense = kind(**settings).fit(X, y, people).forget(people[:5])
    ours = kind(**settings).fit(sparse.csr_array(X), y, people).forget(people[:5])
    np.testing.assert_allclose(ours.coef_, dense.coef_, rtol=1e-6, atol=1e-9)


def test_sparse_rows_are_kept_sparse_by_content_and_in_a_registry(
    tmp_path: Any,
) -> None:
    X, y, _ = problem(11)
    table = sparse.csr_array(X)
    model = LogisticRegression(class_weight="balanced", keep_data=False, alpha=0.1)
    model.fit(table, y).forget(X=table[:2], y=y[:2]).forget(X=X[2:4], y=y[2:4])
    assert private_model(model).n_removed == 4
    plain = LogisticRegression(class_weight="balanced", alpha=0.1).fit(table, y)
    plain.forget(rows=range(20))
    np.testing.assert_array_equal(table.toarray(), X)  # the caller's own stay
    people = [f"p{i // 2}" for i in range(len(X))]
    with Registry.create(tmp_path / "registry") as registry:
        fresh = LogisticRegression(
            class_weight="balanced", alpha=0.05, budget=Budget(sigma=2.0)
        )
        registry.fit("model", fresh, table, y, subjects=people)
        registry.forget(["p3"])
        registry.models.reanchor("model")
        registry.forget(["p4"])
        assert registry.model("model").certificate_.n_subjects_removed == 2


def test_sparse_rows_are_refused_by_preprocessing() -> None:
    X, y, _ = problem(9)
    model = LogisticRegression(class_weight="balanced", preprocessing=StandardScaler())
    with pytest.raises(Unsupported, match="dense"):
        model.fit(sparse.csr_array(X), y)


@pytest.mark.parametrize("mechanism", ["newton", "retrain"])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("c", [0, 1, 2])
@pytest.mark.parametrize(
    "kind", [LogisticRegression, SoftmaxRegression, TunedClassifier]
)
def test_any_class_may_be_without_weight(
    kind: Any, c: int, scaled: bool, mechanism: str
) -> None:
    """First, middle or last: at a fit, and when the last person with it leaves."""
    X, y, _ = problem(4, 3)
    tuned = kind is TunedClassifier
    declared = kind(
        class_weight="balanced",
        classes=[0, 1, 2],
        penalize_intercept=True,
        mechanism=mechanism,
        preprocessing=StandardScaler() if scaled else None,
        **({"folds": 3, "fold_key": "k"} if tuned else {"alpha": 0.1}),
    )

    def assert_equal(ours: Any, X: Any, y: Any, who: Any) -> None:
        fresh = clone(declared).fit(X, y, who)
        gap = np.linalg.norm(draft(ours) - draft(fresh))
        assert gap <= ours.record_.radius + fresh.record_.radius
        assert mechanism == "newton" or gap < 1e-6

    who = np.where(y == c, "the only one", [f"p{i}" for i in range(len(y))])
    there = y != c
    model = clone(declared).fit(X, y, who).forget(["the only one"])
    assert_equal(model, X[there], y[there], who[there])
    if not tuned:  # a tuned model takes in no rows: somebody of the class comes again
        came = ["new"] * int((y == c).sum())
        model.add(X[y == c], y[y == c], subjects=came)
        assert_equal(model, X, y, who)
    weight = np.where(there, 1.0, 0.0)
    model = clone(declared).fit(X, y, who, sample_weight=weight)
    model.forget([who[there][0]]).forget(["the only one"])
    left = np.flatnonzero(there)[1:]
    assert_equal(model, X[left], y[left], who[left])


def draft(model: Any) -> Any:
    """Return the parameters of a model without noise."""
    return private_model(model).answer.draft.theta
