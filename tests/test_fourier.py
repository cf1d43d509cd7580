# SPDX-License-Identifier: Apache-2.0
"""A map of rows from outside the package, in everything that a model does."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler

import expunge
from expunge import (
    Budget,
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
    TunedClassifier,
    check_encoder,
    read_shipped,
    ship,
)
from expunge.core.values import stored
from expunge.exceptions import CannotRemove, InvalidInput, UnknownRows, Unsupported
from expunge.linear_model.base import private_model
from expunge.preprocessing import encoder
from expunge.registry import Registry
from tests.attack.losses import Loss
from tests.attack.oracle import Aim, Sample, minimise
from tests.strangers.fourier import RandomFourier

FOURIER = RandomFourier(gamma=0.7, n_features=30, seed=4)
KEEPS = pytest.mark.parametrize("keep", [True, "encoded", False], ids=str)


def problem(n: int = 120, seed: int = 0) -> tuple[Any, Any, list[str]]:
    """Return rows that no line tells apart, with two rows for each person."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    return X, y, [f"person {i // 2}" for i in range(n)]


def model(**options: Any) -> LogisticRegression:
    return LogisticRegression(alpha=1e-2, preprocessing=FOURIER, **options)


class TestCheckEncoder:
    """It sees what breaks the promise of a map that learns nothing."""

    def test_lets_a_map_of_rows_pass(self) -> None:
        check_encoder(FOURIER, problem()[0])

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda X: X - X.mean(axis=0), "learns from the rows"),
            (lambda X: X / np.abs(X).max(), "learns from the rows"),
            (lambda X: np.sort(X, axis=0), "learns from the rows"),
            (lambda X: X + np.arange(len(X))[:, None], "learns from the rows"),
            (lambda X: X + np.random.default_rng().normal(), "asked again"),
            (lambda X: np.log(X), "infinite or missing"),
            (lambda X: X[:, 0], "with a row for each row"),
            (lambda X: np.multiply(X, 2.0, out=X), "changes the rows"),
        ],
    )
    def test_refuses_others(self, function: Any, message: str) -> None:
        @dataclass(frozen=True)
        class Other:
            def encode(self, X: NDArray[Any]) -> NDArray[Any]:
                made: NDArray[Any] = function(X)
                return made

        X, y, people = problem()
        with np.errstate(all="ignore"), pytest.raises(InvalidInput, match=message):
            check_encoder(Other(), X)
        with np.errstate(all="ignore"), pytest.raises(InvalidInput, match=message):
            LogisticRegression(preprocessing=Other()).fit(X, y, people)

    def test_parameters_must_be_plain(self) -> None:
        @dataclass(frozen=True)
        class Centred:
            centre: Any

            def encode(self, X: NDArray[Any]) -> NDArray[Any]:
                return np.asarray(X - self.centre)

        with pytest.raises(InvalidInput, match="cannot state"):
            check_encoder(Centred(np.zeros(2)), problem()[0])
        check_encoder(Centred((0.5, 1.0)), problem()[0])


@KEEPS
def test_forgetting_is_fitting_the_remaining_rows(keep: Any, tmp_path: Path) -> None:
    X, y, people = problem()
    ours = model(keep_data=keep, mechanism="newton").fit(X, y, people)
    assert ours.score(X, y) > 0.8  # a line has about one half
    if keep:
        ours.forget(["person 3"])
    else:
        ours.forget(X=X[6:8], y=y[6:8])
    ours.forget(X=X[20:21], y=y[20:21])
    ours.save(tmp_path / "model")
    ours = expunge.load(tmp_path / "model")
    ours.forget(X=X[40:42], y=y[40:42])
    ours.add(X[6:8], y[6:8], subjects=["person 3", "person 3"])
    with pytest.raises(UnknownRows):
        ours.forget(X=X[40:41], y=y[40:41])
    left = np.setdiff1d(np.arange(len(X)), [20, 40, 41])
    fresh = model().fit(X[left], y[left])
    np.testing.assert_allclose(ours.coef_, fresh.coef_, atol=1e-3)
    private = private_model(ours)
    exact = private_model(fresh).answer
    distance = np.linalg.norm(private.answer.draft.theta - exact.draft.theta)
    assert distance <= private.answer.radius.value + exact.radius.value
    if keep:
        rows: Any = private.kept_rows()
        encoded: Any = private.remaining_rows()
        assert rows.n_columns == (31 if keep == "encoded" else 2)
        ones = np.ones((len(rows), 1))
        kept = X[[*left[(left != 6) & (left != 7)], 6, 7]]
        expected = np.hstack([encoder.encode_rows(FOURIER, kept), ones])
        present = encoded.dense()[np.abs(encoded.dense()).any(axis=1)]
        assert sorted(map(tuple, present)) == sorted(map(tuple, expected))  # to the bit


def test_shipped_and_plain_models_predict_the_same(tmp_path: Path) -> None:
    X, y, people = problem()
    ours = model(budget=Budget(sigma=0.3)).fit(X, y, people)
    ship(ours, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        read_shipped(tmp_path / "model.safetensors").predict_proba(X),
        ours.predict_proba(X),
    )
    plain = ours.to_sklearn()
    assert isinstance(plain, Pipeline)
    np.testing.assert_allclose(plain.predict_proba(X), ours.predict_proba(X))
    with pytest.raises(Unsupported, match="safetensors"):
        ship(ours, tmp_path / "model.onnx")


def test_certificate_names_the_map_and_its_parameters() -> None:
    X, y, people = problem()
    ours = model(budget=Budget(sigma=0.3)).fit(X, y, people).forget(["person 1"])
    certificate = ours.certificate_
    assert certificate.status == "certified"
    bits = encoder.find_bits(FOURIER, 2).hex()[:16]
    stated = (
        f'{{"digest":"{bits}","gamma":0.7,"n_features":30,"name":"RandomFourier",'
        '"seed":4}'
    )
    assert any(text.endswith(stated) for text in certificate.assumptions)
    assert expunge.verify(certificate, ours.record_).valid


@pytest.mark.parametrize("keep", [True, "encoded"], ids=str)
def test_registry(tmp_path: Path, keep: Any) -> None:
    X, y, people = problem()
    with Registry.create(tmp_path / "registry") as registry:
        ours = model(budget=Budget(sigma=0.01), keep_data=keep)
        registry.fit("model", ours, X, y, subjects=people)
        registry.forget(["person 7"])
    with Registry.open(tmp_path / "registry") as registry:
        registry.forget(["person 8", "person 9"])
        registry.models.reanchor("model")
        registry.forget(["person 10"])
        certificate = registry.model("model").certificate_
        assert certificate.status == "certified"
        assert expunge.verify(certificate, registry.models.record("model")).valid
        assert registry.model("model").score(X, y) > 0.7


def test_tuned_models_choose_as_tuning_again_would() -> None:
    X, y, people = problem(160)
    options: Any = {"alphas": (0.1, 1e-2, 1e-3), "folds": 3, "fold_key": "fixed"}
    ours = TunedClassifier(preprocessing=FOURIER, budget=Budget(sigma=1.0), **options)
    ours.fit(X, y, people)
    for gone in range(0, 60, 6):
        ours.forget([f"person {gone}"])
    assert ours.certificate_.selection == "certified"
    left = np.array(
        [int(person.split()[1]) not in range(0, 60, 6) for person in people]
    )
    fresh = TunedClassifier(preprocessing=FOURIER, **options)
    fresh.fit(
        X[left], y[left], [p for p, stays in zip(people, left, strict=True) if stays]
    )
    assert ours.alpha_ == fresh.alpha_
    mine, exact = private_model(ours).answer, private_model(fresh).answer
    distance = np.linalg.norm(mine.draft.theta - exact.draft.theta)
    assert distance <= mine.radius.value + exact.radius.value
    ours.forget(X=X[2:3], y=y[2:3])


@pytest.mark.parametrize("scaler", [StandardScaler, MinMaxScaler])
def test_a_map_may_follow_what_is_learnt(scaler: Any, tmp_path: Path) -> None:
    X, y, people = problem()
    X = X * [3.0, 0.2] + [1.0, -2.0]
    steps = make_pipeline(scaler(), FOURIER)
    ours = LogisticRegression(alpha=1e-2, preprocessing=steps).fit(X, y, people)
    ours.forget(["person 3", "person 5"]).forget(X=X[30:31], y=y[30:31])
    ours.save(tmp_path / "model")
    ours = expunge.load(tmp_path / "model").forget(["person 20"])
    assert private_model(ours).answer.decisions == ("retrained",)
    left = np.setdiff1d(np.arange(len(X)), [6, 7, 10, 11, 30, 40, 41])
    function = FunctionTransformer(FOURIER.encode)
    plain = make_pipeline(scaler(), function, Plain(C=100 / len(left), tol=1e-10))
    plain.fit(X[left], y[left])
    np.testing.assert_allclose(ours.predict_proba(X), plain.predict_proba(X), atol=1e-6)
    again = ours.to_sklearn()
    np.testing.assert_allclose(again.predict_proba(X), ours.predict_proba(X))
    tuned = TunedClassifier(alphas=(0.1, 1e-2), folds=3, preprocessing=steps)
    tuned.fit(X, y, people).forget(["person 2"])
    with pytest.raises(InvalidInput, match="comes after steps"):
        LogisticRegression(preprocessing=steps, keep_data=False).fit(X, y)
    with pytest.raises(InvalidInput, match="map of rows alone"):
        LogisticRegression(preprocessing=steps, keep_data="encoded").fit(X, y)


@pytest.mark.parametrize("keep", [True, "encoded"], ids=str)
def test_balanced_classes_go_around_a_map(keep: Any) -> None:
    X, y, people = problem()
    y = (X[:, 0] * X[:, 1] > 0.6).astype(int)
    ours = model(class_weight="balanced", keep_data=keep).fit(X, y, people)
    ours.forget([f"person {i}" for i in range(0, 30, 3)])
    left = np.array([int(p.split()[1]) not in range(0, 30, 3) for p in people])
    fresh = model(class_weight="balanced").fit(X[left], y[left])
    private, exact = private_model(ours), private_model(fresh).answer
    distance = np.linalg.norm(private.answer.draft.theta - exact.draft.theta)
    assert private.answer.decisions == ("accepted",)
    assert distance <= private.answer.radius.value + exact.radius.value


def test_what_cannot_be_promised_is_refused() -> None:
    from scipy import sparse

    X, y, _ = problem()
    with pytest.raises(InvalidInput, match="row_norm"):
        model(budget=Budget(sigma=1.0, row_norm=9.0)).fit(X, y)
    with pytest.raises(Unsupported, match="dense rows"):
        model().fit(sparse.csr_array(X), y)
    with pytest.raises(InvalidInput, match="map of rows alone"):
        LogisticRegression(keep_data="encoded").fit(X, y)
    fitted = model().fit(X, y)

    @dataclass(frozen=True)
    class Inverse:
        def encode(self, X: NDArray[Any]) -> NDArray[Any]:
            return np.asarray(1.0 / X)

    fitted = LogisticRegression(preprocessing=Inverse()).fit(X, y)
    with np.errstate(all="ignore"), pytest.raises(InvalidInput, match="infinite"):
        fitted.add(np.zeros((1, 2)), y[:1])
    fitted.forget(rows=[0])


@stored
@dataclass(frozen=True)
class Rounding:
    """A map that rounds as a library does, and the next one otherwise."""

    def encode(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return squares, off by what ``NOISE`` says."""
        return np.asarray(np.hstack([X, X**2]) * (1.0 + NOISE[0]))


NOISE = {0: 0.0}


@KEEPS
def test_another_rounding_after_loading_is_seen(
    keep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, people = problem()
    ours = LogisticRegression(preprocessing=Rounding(), keep_data=keep)
    ours.fit(X, y, people).save(tmp_path / "model")
    same = expunge.load(tmp_path / "model").forget(X=X[:1], y=y[:1])
    assert private_model(same).answer.decisions == ("accepted",)
    monkeypatch.setitem(NOISE, 0, 1e-15)
    other = expunge.load(tmp_path / "model")
    if keep is True:
        other.forget(X=X[:1], y=y[:1])
        assert private_model(other).answer.decisions == ("retrained",)
        other.forget(X=X[1:2], y=y[1:2])
        assert private_model(other).answer.decisions == ("accepted",)
    elif keep == "encoded":
        with pytest.raises(InvalidInput, match="rounds otherwise"):
            other.forget(X=X[:1], y=y[:1])
        other.forget(["person 0"])
        with pytest.raises(InvalidInput, match="rounds otherwise"):
            other.add(X[:1], y[:1], subjects=["person 0"])
        assert private_model(other).answer.decisions == ("accepted",)
    else:
        with pytest.raises(CannotRemove, match="not kept"):
            other.forget(X=X[:1], y=y[:1])


@pytest.mark.filterwarnings("ignore::expunge.linear_model.parameters.LoudNoiseWarning")
@pytest.mark.parametrize("seed", range(10))
def test_random_removals_stay_within_their_radius(seed: int) -> None:
    """Three hundred in all, against the independent oracle on encoded rows."""
    rng = np.random.default_rng([seed, 7])
    n, width = int(rng.integers(60, 130)), int(rng.integers(1, 5))
    encoder = RandomFourier(
        float(10.0 ** rng.uniform(-1, 0.5)), int(rng.integers(4, 25)), seed
    )
    X = rng.normal(size=(n, width)) * 10.0 ** rng.uniform(-1, 1, size=width)
    weight = rng.uniform(0.2, 3.0, size=n)
    name = ("logistic", "softmax", "squared", "huber")[seed % 4]
    signal = np.cos(X.sum(axis=1)) + 0.3 * rng.normal(size=n)
    labels: Any = signal > np.median(signal)
    y, face, loss = 2.0 * labels - 1.0, LogisticRegression, Loss("logistic")
    options: dict[str, Any] = {}
    if name == "softmax":
        labels = np.digitize(signal, [-0.5, 0.5])
        y, face, loss = labels.astype(float), SoftmaxRegression, Loss("softmax", 3)
    elif name in ("squared", "huber"):
        labels, y, face, loss = signal, signal, LinearRegression, Loss(name)
        options["loss"] = "half_squared" if name == "squared" else "huber"
    penalised = seed % 3 == 0 or name == "huber"
    scaling: Any = ("mean", "sum")[seed % 2]
    alpha = float(10.0 ** rng.uniform(-3, -1))
    budget = Budget(sigma=float(10.0 ** rng.uniform(-3, 1)))
    ours = face(
        alpha=alpha,
        scaling=scaling,
        preprocessing=encoder,
        penalize_intercept=penalised,
        keep_data="encoded" if seed % 4 == 1 else True,
        budget=budget,
        **options,
    )
    ours.fit(X, labels, range(n), sample_weight=weight)
    Z = encoder.encode(X)
    aim = Aim(loss, alpha, scaling=scaling, free=not penalised)
    first, left = Sample(Z, y, weight).total, np.arange(n)
    for count in range(30):
        size = int(rng.integers(1, 4)) if count % 5 else int(rng.integers(1, 6))
        gone = rng.choice(left, min(size, len(left) // 6), replace=False)
        if not len(gone):
            break
        if count % 2:
            ours.forget(gone.tolist())
        else:
            ours.forget(X=X[gone], y=labels[gone], sample_weight=weight[gone])
        left = np.setdiff1d(left, gone)
        answer = private_model(ours).answer
        truth = minimise(
            aim, Sample(Z, y, weight).take(left), first, answer.draft.theta
        )
        distance = truth.distance(answer.draft.theta)
        assert distance <= answer.radius.value * (1.0 + 1e-9) + truth.error
        assert ours.certificate_.status == "certified"
        assert distance <= budget.radius_budget(answer.draft.theta.size) + truth.error
