# SPDX-License-Identifier: Apache-2.0
"""Models of exact sums: after every request, to the last bit, what a fit gives."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model, naive_bayes, neighbors

from expunge import (
    BernoulliNB,
    ComplementNB,
    ExactLinearRegression,
    ExactRidge,
    MultinomialNB,
    NearestCentroid,
    load,
    read_shipped,
    ship,
    verify,
)
from expunge.exceptions import (
    CannotFit,
    CannotRemove,
    EmptyClass,
    InvalidInput,
    NoPrivateState,
    UnknownSubject,
    Unsupported,
)
from expunge.linear_model.exact import exact_model
from expunge.promise.scope import CHOSEN, EXACT, EXACT_PAIRS, EXACT_STAYERS
from expunge.promise.verification import ExactRelease, Release
from expunge.registry import Registry

MODELS: dict[str, Callable[[], Any]] = {
    "multinomial": MultinomialNB,
    "multinomial on a grid": lambda: MultinomialNB(alpha=0.3, decimals=2),
    "complement": lambda: ComplementNB(norm=True),
    "bernoulli": lambda: BernoulliNB(binarize=1.0, fit_prior=False),
    "centroid": lambda: NearestCentroid(decimals=3),
    "ridge": lambda: ExactRidge(alpha=0.1, decimals=3),
    "least squares": lambda: ExactLinearRegression(),
}
PLAIN: dict[str, Any] = {
    "multinomial": naive_bayes.MultinomialNB(),
    "multinomial on a grid": naive_bayes.MultinomialNB(alpha=0.3),
    "complement": naive_bayes.ComplementNB(norm=True),
    "bernoulli": naive_bayes.BernoulliNB(binarize=1.0, fit_prior=False),
    "centroid": neighbors.NearestCentroid(),
    "ridge": linear_model.Ridge(alpha=0.1),
    "least squares": linear_model.LinearRegression(),
}
KINDS = sorted(MODELS)
CLASSIFIERS = [kind for kind in KINDS if kind not in ("ridge", "least squares")]


def counts(kind: str = "", n_people: int = 60) -> tuple[Any, Any, list[str]]:
    """Return counts of words in two texts of each person, and what each is like."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 2 * n_people)
    rates = 1 + (y[:, None] * np.arange(8)) % 4
    X = rng.poisson(rates).astype(np.float64)
    people = [f"person {row // 2}" for row in range(len(y))]
    if kind in ("ridge", "least squares"):
        return X / 7.0, y + X[:, 0] / 3.0, people
    return X, np.array(["a", "b", "c"])[y], people


def published(model: Any) -> bytes:
    """Return the numbers of the last release, as bytes."""
    return bytes(exact_model(model).published().tobytes())


def without(*names: str, kind: str = "") -> tuple[Any, Any, list[str]]:
    X, y, people = counts(kind)
    left = [row for row, person in enumerate(people) if person not in names]
    return X[left], y[left], [people[row] for row in left]


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_they_are_those_of_scikit_learn(kind: str) -> None:
    X, y, _ = counts()
    model, plain = MODELS[kind]().fit(X, y), PLAIN[kind].fit(X, y)
    assert (model.predict(X) == plain.predict(X)).all()
    assert (model.to_sklearn().predict(X) == plain.predict(X)).all()
    assert (model.fit(sparse.csr_array(X), y).predict(X) == plain.predict(X)).all()
    if kind == "centroid":
        np.testing.assert_allclose(model.centroids_, plain.centroids_, rtol=1e-15)
        return
    np.testing.assert_allclose(
        model.feature_log_prob_, plain.feature_log_prob_, atol=2e-10
    )
    np.testing.assert_allclose(
        model.predict_proba(X), plain.predict_proba(X), atol=1e-8
    )


@pytest.mark.parametrize("kind", ["ridge", "least squares"])
def test_moments_are_those_of_scikit_learn(kind: str) -> None:
    X, y, _ = counts(kind)
    for targets in (y, np.column_stack([y, X[:, 1]])):
        model, plain = MODELS[kind]().fit(X, targets), PLAIN[kind]
        plain.fit(X.round(model.decimals), targets.round(model.decimals))
        np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-10)
        np.testing.assert_allclose(model.intercept_, plain.intercept_, atol=1e-10)
        np.testing.assert_allclose(
            model.to_sklearn().predict(X), model.predict(X), atol=1e-12
        )


def test_dependent_columns_are_refused_unless_penalised() -> None:
    X, y, people = counts("ridge")
    X[:, 1] = X[:, 0]
    X[6, 1] += 1.0  # person 3 alone tells them apart
    model = ExactLinearRegression().fit(X, y, people)
    before = published(model)
    with pytest.raises(CannotFit, match="linearly dependent"):
        model.forget(["person 3"])
    assert published(model) == before
    ridge = ExactRidge().fit(X, y, people).forget(["person 3"])
    assert ridge.coef_[0] == ridge.coef_[1]
    assert ridge.check_release().valid


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep_data", [True, False])
def test_requests_equal_a_fit_to_the_last_bit(
    kind: str, keep_data: bool, tmp_path: Path
) -> None:
    X, y, people = counts(kind)
    model = MODELS[kind]().set_params(keep_data=keep_data).fit(X, y, people)
    if keep_data:
        model.forget(["person 3"]).forget(["person 10", "person 11"])
    else:
        gone = np.isin(people, ["person 3", "person 10", "person 11"])
        model.forget(X=X[gone], y=y[gone])
    fresh = MODELS[kind]().fit(
        *without("person 3", "person 10", "person 11", kind=kind)
    )
    assert published(model) == published(fresh)
    model.save(tmp_path)
    again = load(tmp_path)
    assert published(again) == published(model)
    left = without("person 3", "person 10", "person 11", kind=kind)
    for one in (model, again):
        one.add(X[6:8], y[6:8], subjects=["person 3"] * 2)
        back = [*left[2], "person 3", "person 3"]
        grown = np.vstack([left[0], X[6:8]]), np.append(left[1], y[6:8]), back
        assert published(one) == published(MODELS[kind]().fit(*grown))
    if keep_data:
        assert again.check_release().valid


@pytest.mark.parametrize("kind", KINDS)
def test_a_registry_has_the_same_bits(kind: str, tmp_path: Path) -> None:
    X, y, people = counts(kind)
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("model", MODELS[kind](), X, y, subjects=people)
        receipt = registry.forget(["person 3", "person 7"])
        assert '"method":"exact"' in receipt
        registry.add("model", X[:2], y[:2], subjects=["person 99"] * 2)
        certificate = registry.models.status("model").certificate
        assert certificate.status == "exact"
        assert verify(certificate, registry.models.record("model")).valid
        registry.models.reanchor("model")
        registry.models.ship("model", tmp_path / "model.safetensors")
    shipped = read_shipped(tmp_path / "model.safetensors")
    left = without("person 3", "person 7", kind=kind)
    grown = np.vstack([left[0], X[:2]]), np.append(left[1], y[:2])
    fresh = MODELS[kind]().fit(*grown)
    assert (shipped.predict(X) == fresh.predict(X)).all()
    ship(fresh, tmp_path / "fresh.safetensors")
    mine, theirs = (
        read_shipped(tmp_path / f"{name}.safetensors")._public.release.theta
        for name in ("model", "fresh")
    )
    assert mine.tobytes() == theirs.tobytes()


def test_certificate_says_what_it_is_and_what_it_is_not() -> None:
    model = MultinomialNB().fit(*counts()).forget(["person 1"])
    certificate, record = model.certificate_, model.record_
    assert certificate.status == "exact"
    assert {EXACT, EXACT_PAIRS, EXACT_STAYERS} <= {*certificate.not_covered}
    assert certificate.state_promise() == (
        "To the last bit, this release is what retraining without the 1 person who "
        "left gives; it carries no noise."
    )
    assert verify(certificate, record).valid
    assert "its radius is zero" in verify(certificate, record).says
    assert not verify(certificate, replace(record, radius=1e-9)).valid
    assert isinstance(model._public.release, ExactRelease)
    with pytest.raises(InvalidInput, match="has no budget"):
        ExactRelease(np.zeros(1), certificate.replace(**_BUDGET))


def test_a_choice_on_the_data_ends_the_promise() -> None:
    model = MultinomialNB().fit(*counts())
    model.declare_tuned("grid search")
    model.forget(["person 1"])
    assert model.certificate_.status == "no promise"
    assert CHOSEN in model.certificate_.not_covered
    assert verify(model.certificate_, model.record_).valid


def test_a_release_that_was_altered_is_noticed() -> None:
    model = MultinomialNB().fit(*counts())
    assert model.check_release().valid
    kept = exact_model(model).training_rows
    assert kept is not None
    kept.rows.X[0, 0] += 1.0  # type: ignore[attr-defined]
    verdict = model.check_release()
    assert not verdict.valid
    assert "not so: the sums are those of the rows" in verdict.says


def test_a_learnt_class_leaves_with_its_last_row() -> None:
    X, y, people = counts()
    y = np.where(np.array(people) == "person 5", "only theirs", y)
    for kind in CLASSIFIERS:
        model = MODELS[kind]().fit(X, y, people).forget(["person 5"])
        fresh = MODELS[kind]().fit(*without("person 5"))
        assert model.classes_.tolist() == ["a", "b", "c"]
        assert published(model) == published(fresh)
        model.add(X[10:12], ["z", "a"], subjects=["person 5"] * 2)
        assert model.classes_.tolist() == ["a", "b", "c", "z"]
        assert model.check_release().valid


def test_a_declared_class_stays() -> None:
    X, y, people = counts()
    y = np.where(np.array(people) == "person 5", "z", y)
    declared = ["a", "b", "c", "z"]
    model = MultinomialNB(classes=declared).fit(X, y, people).forget(["person 5"])
    assert model.classes_.tolist() == declared
    assert model.class_log_prior_[3] == -np.inf
    fresh = MultinomialNB(classes=declared).fit(*without("person 5"))
    assert published(model) == published(fresh)
    centroid = NearestCentroid(classes=declared).fit(X, y, people)
    before = published(centroid)
    with pytest.raises(EmptyClass, match="it has no mean"):
        centroid.forget(["person 5"])
    assert published(centroid) == before


def test_weights_count_rows() -> None:
    X, y, people = counts()
    weight = np.tile([1.0, 3.0], len(y) // 2)
    rows = np.repeat(np.arange(len(y)), weight.astype(int))
    for kind in CLASSIFIERS:
        model = MODELS[kind]().fit(X, y, people, sample_weight=weight)
        assert published(model) == published(MODELS[kind]().fit(X[rows], y[rows]))
    with pytest.raises(InvalidInput, match=r"sample_weight holds 0\.5"):
        MultinomialNB().fit(X, y, sample_weight=weight / 2)


def test_bad_input_changes_nothing() -> None:
    X, y, people = counts()
    model = MultinomialNB().fit(X, y, people)
    before = published(model)

    def refuses(what: Callable[[], object], error: type[Exception], words: str) -> None:
        with pytest.raises(error, match=words):
            what()
        assert published(model) == before

    some: Any = {"subjects": ["new"]}
    refuses(lambda: model.forget(["nobody"]), UnknownSubject, "nobody was removed")
    refuses(lambda: model.add(-X[:1] - 1, y[:1], **some), InvalidInput, "Negative")
    refuses(
        lambda: model.add(X[:1] + 0.5, y[:1], **some), InvalidInput, "whole numbers"
    )
    refuses(lambda: model.add(X[:1] + 2.0**60, y[:1], **some), InvalidInput, "carried")
    refuses(lambda: model.add(X[:1], y[:1]), InvalidInput, "say whose rows")
    refuses(lambda: model.forget(people), CannotRemove, "delete the model instead")
    refuses(lambda: MultinomialNB(alpha=0).fit(X, y), InvalidInput, "alpha=0")
    refuses(lambda: MultinomialNB(decimals=-1).fit(X, y), InvalidInput, "decimals=-1")
    refuses(lambda: MultinomialNB().fit(X), InvalidInput, "requires y")


def test_copies_hold_the_release_alone(tmp_path: Path) -> None:
    import pickle

    model = MultinomialNB().fit(*counts())
    copy = pickle.loads(pickle.dumps(model))
    assert (copy.predict(counts()[0]) == model.predict(counts()[0])).all()
    with pytest.raises(NoPrivateState):
        copy.forget(["person 1"])
    assert isinstance(copy._public.release, Release)


_BUDGET: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-5,
    "sigma": 0.1,
    "tau": 1e-6,
    "radius_budget": 0.01,
    "noise_grid": 2.0**-20,
    "noise_source": "secure",
    "claim": "each release",
}


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_predict_what_the_model_does(kind: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y, people = counts(kind)
    model = MODELS[kind]().fit(X, y, people).forget(["person 2"])
    ship(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (taken,) = session.get_inputs()
    found = session.run(None, {taken.name: X})[0]
    if kind in CLASSIFIERS:
        assert (np.asarray(found) == model.predict(X)).all()
        model = MODELS[kind]().fit(X, np.full(len(y), "a"))
        with pytest.raises(Unsupported, match="has one class"):
            ship(model, tmp_path / "one.onnx")
    else:
        np.testing.assert_allclose(found, model.predict(X), atol=1e-9)
