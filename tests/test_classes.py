# SPDX-License-Identifier: Apache-2.0
"""A class that loses its last row: every classifier answers as retraining would.

Learnt classes go with their rows, declared ones stay, and where retraining has no
minimiser the request is refused with the error that a fit to the rest raises.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import linear_model as foreign
from sklearn.base import clone
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from expunge import (
    Budget,
    HalfSquared,
    LinearRegression,
    LogisticRegression,
    NuclearNorm,
    SoftmaxRegression,
    from_sklearn,
    load,
    verify,
)
from expunge.core.rows import Rows
from expunge.exceptions import EmptyClass, InvalidInput
from expunge.linear_model.base import private_model
from expunge.linear_model.fitting import read_shipped, ship
from expunge.linear_model.tuned import TunedClassifier
from expunge.private_model.training_rows import RowChange
from expunge.promise.scope import CLASS_REFUSED
from expunge.registry import Registry
from tests.registries import private_model_of

CLASSES = ["HIV+", "flu", "well"]
N_ROWS = 90


def patients() -> tuple[Any, Any, list[str]]:
    """Return rows, diagnoses and people; one person has all rows of one class."""
    rng = np.random.default_rng(7)
    y = np.array(CLASSES)[rng.integers(1, 3, size=N_ROWS)]
    y[:4] = "HIV+"
    X = rng.normal(size=(N_ROWS, 3)) + (y == "flu")[:, None]
    people = [f"p{row // 2}" for row in range(N_ROWS)]
    people[:4] = ["ada"] * 4
    return X, y, people


def without_ada() -> tuple[Any, Any, list[str]]:
    X, y, people = patients()
    return X[4:], y[4:], people[4:]


def theta(model: Any) -> Any:
    """Return the noise-free parameters of a fitted model."""
    return private_model(model).answer.draft.theta


def near(ours: Any, theirs: Any, record: Any) -> bool:
    """Whether parameters are as near to retraining as the record says."""
    # What retraining stops short of comes on top.
    return bool(np.linalg.norm(ours - theirs) <= record.radius + 1e-8)


MODELS: list[Any] = [
    LogisticRegression(alpha=1e-2),
    LogisticRegression(alpha=1e-2, scaling="sum", mechanism="jackknife"),
    LogisticRegression(alpha=1e-2, l1_ratio=0.5),
    SoftmaxRegression(alpha=1e-2),
    SoftmaxRegression(alpha=1e-2, scaling="sum", penalize_intercept=True),
    TunedClassifier(
        alphas=(1e-1, 1e-2), folds=3, fold_key="k", penalize_intercept=True
    ),
    TunedClassifier(
        alphas=(1e-1, 1e-2),
        folds=3,
        fold_key="k",
        method="recomputed",
        penalize_intercept=True,
    ),
]


def retrained(model: Any) -> Any:
    """Return what retraining gives: "sum" scaling keeps alpha times the weight."""
    fresh = clone(model)
    if getattr(model, "scaling", "mean") == "sum":
        fresh.set_params(alpha=model.alpha * N_ROWS / (N_ROWS - 4))
    X, y, people = without_ada()
    return fresh.fit(X, y, subjects=people)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_learnt_class_goes_with_its_last_row(model: Any) -> None:
    X, y, people = patients()
    ours = clone(model).fit(X, y, subjects=people)
    assert ours.classes_.tolist() == CLASSES
    assert ours.certificate_.classes == "learnt"
    assert CLASS_REFUSED in ours.certificate_.not_covered
    ours.forget(["ada"])
    theirs = retrained(model)
    assert ours.classes_.tolist() == theirs.classes_.tolist() == CLASSES[1:]
    assert ours.coef_.shape == theirs.coef_.shape
    assert ours.certificate_.n_parameters == theta(ours).size
    assert ours.certificate_.n_subjects_removed == 1
    assert near(theta(ours), theta(theirs), ours.record_)
    assert verify(ours.certificate_, ours.record_).valid
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.predict_proba(X).shape == (N_ROWS, 2)
    # And it goes on: by person, by content, to the last row of another class.
    ours.forget(["p40"]).forget(X=X[[82]], y=y[[82]])
    with pytest.raises(InvalidInput, match="not one of the model's classes"):
        ours.forget(X=X[:1], y=y[:1])
    before = theta(ours).copy()
    with pytest.raises(EmptyClass, match="only one class"):
        flu = [p for p, label in zip(people, y, strict=True) if label == "flu"]
        ours.forget([*sorted(set(flu) - {"ada", "p40", "p41"}), "p41"])
    np.testing.assert_array_equal(theta(ours), before)


@pytest.mark.parametrize("mechanism", ["newton", "matrix-free"])
@pytest.mark.parametrize("face", [LogisticRegression, SoftmaxRegression])
@pytest.mark.parametrize("lost", CLASSES)
def test_any_class_can_go(face: Any, mechanism: str, lost: str) -> None:
    X, y, _ = patients()
    model = face(alpha=1e-2, mechanism=mechanism)
    own = ["of the class" if label == lost else "others" for label in y]
    ours = clone(model).fit(X, y, subjects=own).forget(["of the class"])
    theirs = clone(model).fit(X[y != lost], y[y != lost])
    assert ours.classes_.tolist() == theirs.classes_.tolist()
    assert near(theta(ours), theta(theirs), ours.record_)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_model_with_fewer_classes_travels(model: Any, tmp_path: Path) -> None:
    X, y, people = patients()
    ours = clone(model).fit(X, y, subjects=people).forget(["ada"])
    ours.save(tmp_path / "saved")
    ship(ours, tmp_path / "shipped.safetensors")
    loaded, shipped = (
        load(tmp_path / "saved"),
        read_shipped(tmp_path / "shipped.safetensors"),
    )
    for other in (loaded, shipped, pickle.loads(pickle.dumps(ours))):
        assert other.classes_.tolist() == CLASSES[1:]
        np.testing.assert_array_equal(other.predict(X), ours.predict(X))
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or b"HIV" not in file.read_bytes()
    ours.forget(["p30"])
    loaded.forget(["p30"])
    np.testing.assert_array_equal(theta(loaded), theta(ours))


@pytest.mark.parametrize("model", MODELS[:5], ids=repr)
def test_a_declared_class_stays(model: Any) -> None:
    X, y, people = patients()
    model = clone(model).set_params(classes=CLASSES, penalize_intercept=True)
    ours = clone(model).fit(X, y, subjects=people).forget(["ada"])
    theirs = retrained(model)
    assert ours.classes_.tolist() == theirs.classes_.tolist() == CLASSES
    assert ours.certificate_.classes == "declared"
    assert CLASS_REFUSED not in ours.certificate_.not_covered
    assert near(theta(ours), theta(theirs), ours.record_)
    assert verify(ours.certificate_, ours.record_).valid


def test_a_declared_tuned_class_stays() -> None:
    X, y, people = patients()
    model = TunedClassifier(
        alphas=(1e-1, 1e-2),
        folds=3,
        fold_key="k",
        classes=CLASSES,
        penalize_intercept=True,
    )
    ours = clone(model).fit(X, y, subjects=people).forget(["ada"])
    theirs = retrained(model)
    assert ours.classes_.tolist() == CLASSES
    assert ours.alpha_ == theirs.alpha_
    assert near(theta(ours), theta(theirs), ours.record_)


@pytest.mark.parametrize("keep_data", [True, False])
@pytest.mark.parametrize("kind", [LogisticRegression, SoftmaxRegression])
def test_a_free_intercept_without_a_class_is_refused_as_a_fit_is(
    kind: Any, keep_data: bool
) -> None:
    X, y, people = patients()
    model = kind(alpha=1e-2, classes=CLASSES, keep_data=keep_data)
    ours = clone(model).fit(X, y, subjects=people)
    assert CLASS_REFUSED in ours.certificate_.not_covered
    shown, certificate, private = (
        ours.coef_.copy(),
        ours.certificate_,
        theta(ours).copy(),
    )
    with pytest.raises(EmptyClass, match="penalize_intercept=True") as asked:
        ours.forget(X=X[:4], y=y[:4])
    with pytest.raises(EmptyClass) as fitted:
        clone(model).fit(*without_ada()[:2])
    assert str(asked.value) == str(fitted.value)
    np.testing.assert_array_equal(ours.coef_, shown)
    np.testing.assert_array_equal(theta(ours), private)
    assert ours.certificate_ is certificate
    ours.forget(X=X[:3], y=y[:3])  # one row of the class is left
    assert ours.certificate_.n_releases == 2


def test_without_rows_a_class_cannot_go() -> None:
    X, y, people = patients()
    model = LogisticRegression(alpha=1e-2, keep_data=False)
    model.fit(X, y, subjects=people)
    private = theta(model).copy()
    with pytest.raises(EmptyClass, match="keep_data=True"):
        model.forget(X=X[:4], y=y[:4])
    np.testing.assert_array_equal(theta(model), private)
    model.forget(X=X[4:6], y=y[4:6])
    assert model.certificate_.n_subjects_removed == 1


def test_two_classes_with_a_penalised_intercept_may_become_one_if_declared() -> None:
    X, y, _ = without_ada()
    model = LogisticRegression(
        alpha=1e-2, penalize_intercept=True, classes=["flu", "well"], keep_data=False
    ).fit(X, y)
    flu = y == "flu"
    model.forget(X=X[flu], y=y[flu])
    theirs = clone(model).fit(X[~flu], y[~flu])
    assert model.classes_.tolist() == ["flu", "well"]
    assert near(theta(model), theta(theirs), model.record_)


def test_preprocessing_follows() -> None:
    X, y, people = patients()
    Z = np.column_stack([X, np.arange(N_ROWS) % 5])
    for step, table in ((StandardScaler(), Z), (OneHotEncoder(), np.round(Z))):
        ours = LogisticRegression(alpha=1e-2, preprocessing=step)
        ours.fit(table, y, subjects=people).forget(["ada"])
        theirs = clone(ours).fit(table[4:], y[4:], subjects=people[4:])
        assert ours.classes_.tolist() == CLASSES[1:]
        assert near(theta(ours), theta(theirs), ours.record_)
        ours.forget(["p9"])
        assert ours.classes_.tolist() == CLASSES[1:]


ADOPTED: list[Any] = [
    foreign.LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000),
    OneVsRestClassifier(foreign.LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000)),
    foreign.RidgeClassifier(),
    LinearSVC(tol=1e-12, max_iter=100_000),
]


@pytest.mark.parametrize("estimator", ADOPTED, ids=repr)
def test_adopted_models_follow(estimator: Any) -> None:
    X, y, people = patients()
    ours = from_sklearn(clone(estimator).fit(X, y), X, y, people).forget(["ada"])
    X, y, people = without_ada()
    assert ours.classes_.tolist() == CLASSES[1:]
    plain = getattr(estimator, "estimator", estimator)  # with two classes left
    theirs = clone(plain).fit(X, y)
    wanted = np.atleast_2d(theirs.coef_)
    np.testing.assert_allclose(ours.coef_, wanted, atol=1e-6)
    np.testing.assert_array_equal(ours.to_sklearn().predict(X), theirs.predict(X))
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    if hasattr(theirs, "predict_proba"):
        np.testing.assert_allclose(
            ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6
        )


def test_declared_classes_without_rows_stay_where_distances_are_lost() -> None:
    X, y, people = patients()
    squared = LogisticRegression(alpha=1e-2, loss=HalfSquared(), classes=CLASSES)
    ours = clone(squared).fit(X, y, subjects=people).forget(["ada"])
    X, y, people = without_ada()
    assert ours.classes_.tolist() == CLASSES
    theirs = clone(squared).fit(X, y, subjects=people)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-8)


def test_an_adopted_model_follows_scikit_learn_into_a_registry(tmp_path: Path) -> None:
    X, y, people = patients()
    adopted = from_sklearn(clone(ADOPTED[0]).fit(X, y), X, y, people)
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("model", adopted, X, y, subjects=people)
        registry.forget(["ada"])
        ours = registry.model("model").predict_proba(X)
    theirs = clone(ADOPTED[0]).fit(*without_ada()[:2]).predict_proba(X)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_registry_follows(tmp_path: Path) -> None:
    X, y, people = patients()
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("plain", LogisticRegression(alpha=1e-2), X, y, subjects=people)
        registry.fit("tuned", MODELS[5], X, y, subjects=people)
        registry.forget(["ada"])
        registry.forget(["p7"])
    with Registry.open(tmp_path / "registry") as registry:
        registry.forget(["p8"])
        left = ~np.isin(people, ["ada", "p7", "p8"])
        for name, model in (("plain", MODELS[0]), ("tuned", MODELS[5])):
            shown = registry.model(name)
            assert shown.classes_.tolist() == CLASSES[1:]
            theirs = clone(model).fit(X[left], y[left], subjects=np.array(people)[left])
            draft = private_model_of(registry, name).answer.draft.theta
            assert near(draft, theta(theirs), registry.models.record(name))
        registry.models.ship("plain", tmp_path / "plain.onnx")
        registry.models.reanchor("plain")
        flu = sorted(set(np.array(people)[(y == "flu") & left]))
        with pytest.raises(EmptyClass, match="only one class"):
            registry.forget(flu)
        registry.forget(["p20"])
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or b"HIV" not in file.read_bytes()


def test_declarations_are_checked() -> None:
    X, y, _ = patients()
    for bad in (["flu"], "flu", ["flu", "flu", "well"], [["flu", "well"]]):
        with pytest.raises(InvalidInput, match="classes="):
            LogisticRegression(classes=bad).fit(X, y)
    with pytest.raises(InvalidInput, match="'HIV\\+' is not one of the model's"):
        LogisticRegression(classes=["flu", "well"]).fit(X, y)
    with pytest.raises(InvalidInput, match="a regression has none"):
        LinearRegression(classes=["flu", "well"]).fit(X, y == "flu")
    words = y.astype(object)
    model = LogisticRegression(alpha=1e-2, classes=CLASSES).fit(X, words)
    assert model.classes_.tolist() == CLASSES
    assert model.forget(rows=[9]).certificate_.classes == "declared"


def test_declarations_of_any_type_are_kept(tmp_path: Path) -> None:
    X, y, people = patients()
    codes = np.searchsorted(CLASSES, y)
    days: Any = np.array(
        ["2020-01-01", "2021-01-01", "2022-01-01"], dtype="datetime64[ns]"
    )
    scaled = LogisticRegression(
        alpha=1e-2,
        classes=days,
        penalize_intercept=True,
        preprocessing=StandardScaler(),
    ).fit(X, days[codes], subjects=people)
    assert (scaled.forget(["ada"]).classes_ == days).all()
    ranged = LogisticRegression(alpha=1e-2, classes=range(3)).fit(X, codes)
    ranged.save(tmp_path)
    assert load(tmp_path).classes == [0, 1, 2]
    with pytest.raises(InvalidInput, match="remove NaN"):
        LogisticRegression(classes=[0.0, 1.0, np.nan]).fit(X, codes % 2)


def test_the_type_of_classes_tells_nothing_of_those_that_left() -> None:
    X, y, people = patients()
    y = np.where(y == "HIV+", "a long word", y)
    model = LogisticRegression(alpha=1e-2)
    for ours in (model, clone(model).set_params(preprocessing=StandardScaler())):
        ours.fit(X, y, subjects=people).forget(["ada"])
        assert ours.classes_.dtype == np.array(["flu", "well"]).dtype


def test_a_penalty_that_does_not_fit_fewer_classes_refuses_as_a_fit_does() -> None:
    X, y, people = patients()
    model = LogisticRegression(alpha=1e-2, ridge=0.1, penalty=NuclearNorm())
    ours = clone(model).fit(X, y, subjects=people)
    private = theta(ours).copy()
    with pytest.raises(InvalidInput, match="NuclearNorm needs a matrix"):
        ours.forget(["ada"])
    with pytest.raises(InvalidInput, match="NuclearNorm needs a matrix"):
        clone(model).fit(*without_ada()[:2])
    np.testing.assert_array_equal(theta(ours), private)


def test_weights_of_zero_do_not_make_a_class() -> None:
    X, y, people = patients()
    weight = np.where(y == "HIV+", 0.0, 1.0)
    with pytest.raises(EmptyClass, match="penalize_intercept"):
        LogisticRegression().fit(X, y, sample_weight=weight)
    ours = LogisticRegression(penalize_intercept=True)
    ours.fit(X, y, subjects=people, sample_weight=weight)
    assert ours.classes_.tolist() == CLASSES
    assert ours.forget(["ada"]).classes_.tolist() == CLASSES[1:]


def test_no_longer_row_comes_as_a_class_goes() -> None:
    """The contract's row norm holds where the request is answered by a fit too."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    y = np.where(np.arange(90) < 89, np.arange(90) % 2, 2)
    model = LogisticRegression(
        alpha=0.1, penalize_intercept=True, budget=Budget(sigma=1.0, row_norm=2.0)
    ).fit(X, y)
    private, gone = private_model(model), np.array([89])
    kept = private.kept_rows()
    assert isinstance(kept, Rows)
    for length in (1.0, 50.0):
        come = Rows(np.array([[length, 0.0, 1.0]]), np.zeros(1), np.ones(1))
        change = RowChange(
            removed=kept.take(gone),
            gone=gone,
            added=come,
            n_subjects_removed=1,
            n_subjects_added=1,
        )
        if length > 2.0:
            with pytest.raises(InvalidInput, match="longer than the budget's row_norm"):
                private.change(change)
        else:
            after = private.change(change)
            assert after.labels is not None and len(after.labels.classes) == 2
