# SPDX-License-Identifier: Apache-2.0
"""First fits with default arguments: what works by default, and what to change."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn import datasets
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from benchmarks.data import DataNotFound, adult
from expunge import Budget, Huber
from expunge.exceptions import CannotFit, InvalidInput, NotCertifiable
from expunge.linear_model import (
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
    TunedClassifier,
)
from expunge.linear_model.suggestions import ladder
from expunge.promise.radius import Radii, Radius
from expunge.registry import Registry
from tests.strangers.visits import Visits

SETS = ("iris", "wine", "breast_cancer", "diabetes", "digits")
LOSSES: dict[str, Any] = {
    "logistic": LogisticRegression(),
    "softmax": SoftmaxRegression(),
    "squared hinge": LogisticRegression(loss="squared_hinge"),
    "squared": LinearRegression(),
    "Huber": LinearRegression(loss="huber"),
    "counts": LinearRegression(loss=Visits()),
}


def _data(name: str, model: Any) -> tuple[Any, Any]:
    options = {"scaled": False} if name == "diabetes" else {}
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True, **options)
    if name == "diabetes" and not isinstance(model, LinearRegression):
        y = (y > np.median(y)).astype(int)
    return X[:600], y[:600]


def _follow(model: Any, change: tuple[str, Any]) -> Any:
    """Return the estimator that a refusal names."""
    name, value = change
    if name in ("sigma", "tau"):
        return clone(model).set_params(budget=Budget(**{name: value}))
    return clone(model).set_params(**{name: value})


@pytest.fixture(autouse=True)
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("keep_data", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", SETS)
def test_scaled_columns_are_certified_by_default(
    name: str, loss: str, keep_data: bool
) -> None:
    model = clone(LOSSES[loss]).set_params(budget=Budget(), keep_data=keep_data)
    X, y = _data(name, model)
    model.fit(StandardScaler().fit_transform(X), y)
    assert model.certificate_.status == "certified"


@pytest.mark.parametrize("keep_data", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", SETS)
def test_a_refusal_names_a_change_that_works(
    name: str, loss: str, keep_data: bool
) -> None:
    model = clone(LOSSES[loss]).set_params(budget=Budget(), keep_data=keep_data)
    X, y = _data(name, model)
    try:
        model.fit(X, y)
    except CannotFit as error:
        assert error.change is not None
        assert str(error).endswith(" works")
        model = _follow(model, error.change).fit(X, y)
    assert model.certificate_.status == "certified"


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (LogisticRegression(penalize_intercept=True), {"sigma", "alpha"}),
        (LogisticRegression(C=50.0, penalize_intercept=True), {"sigma", "C"}),
        (LogisticRegression(C=50.0), {"sigma", "C", "penalize_intercept"}),
        (LinearRegression(l1_ratio=0.5), {"sigma", "alpha", "penalize_intercept"}),
    ],
    ids=["alpha", "C, held", "C", "elastic net"],
)
@pytest.mark.parametrize("sigma", [1e-9, 1e-11])
def test_noise_below_what_rounding_allows(
    model: Any, names: set[str], sigma: float
) -> None:
    """One sentence, one change, and the estimator as it was."""
    X, y = _data("breast_cancer", model)
    X = StandardScaler().fit_transform(X)
    model = clone(model).set_params(budget=Budget(sigma=sigma))
    before = dict(vars(model))
    with pytest.raises(NotCertifiable) as caught:
        model.fit(X, y)
    assert vars(model).keys() - {"_lock"} == before.keys()
    change = caught.value.change
    assert change is not None
    assert change[0] in names
    said = str(caught.value)
    assert ";" in said
    assert "\n" not in said
    if model.C is not None:
        assert "alpha" not in said
    _follow(model, change).fit(X, y)


def test_noise_is_named_before_the_intercept_is_penalised() -> None:
    X, y = _data("wine", LogisticRegression())
    X = StandardScaler().fit_transform(X)
    model = LogisticRegression(budget=Budget(sigma=1e-10))
    with pytest.raises(NotCertifiable, match=r"budget=Budget\(sigma=") as caught:
        model.fit(X, y)
    name, sigma = caught.value.change or ("", 0.0)
    assert name == "sigma"
    assert isinstance(sigma, float)
    # The next lower number of the ladder does not work.
    lower = ladder(sigma / 2.6)
    with pytest.raises(NotCertifiable):
        LogisticRegression(budget=Budget(sigma=lower)).fit(X, y)


def test_a_tau_that_was_given_is_what_changes() -> None:
    X, y = _data("wine", LogisticRegression())
    model = LogisticRegression(budget=Budget(sigma=0.1, tau=1e-14))
    X = StandardScaler().fit_transform(X)
    with pytest.raises(NotCertifiable, match=r"Budget\(tau=") as caught:
        model.fit(X, y)
    assert caught.value.change is not None
    tau = caught.value.change[1]
    LogisticRegression(budget=Budget(sigma=0.1, tau=tau)).fit(X, y)  # type: ignore[arg-type]


def test_thresholds_follow_the_unit_of_the_targets() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = 1e5 * (X @ np.ones(3) + rng.normal(size=300))
    model = LinearRegression(loss="huber", budget=Budget(sigma=1.0))
    with pytest.raises(CannotFit) as caught:
        model.fit(X, y)
    assert "loss=Huber(threshold=500000.0) works" in str(caught.value)
    model.set_params(loss=Huber(threshold=5e5)).fit(X, y)
    assert model.score(X, y) > 0.5


def test_tuned_models_name_a_change_too() -> None:
    X, y = _data("wine", LogisticRegression())
    model = TunedClassifier(alphas=[1e-2, 1e-4], folds=2, budget=Budget())
    with pytest.raises(CannotFit) as caught:
        model.fit(X, y)
    assert caught.value.change is not None
    _follow(model, caught.value.change).fit(X, y)


def test_later_refusals_try_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may learn from them how far rounding left the model of those who stay."""
    X, y = _data("wine", LogisticRegression())
    good = StandardScaler().fit_transform(X)
    model = LogisticRegression(budget=Budget()).fit(good, y)
    monkeypatch.setattr("expunge.linear_model.base.find_change", _never)
    with pytest.raises(NotCertifiable, match="raise alpha") as caught:
        model.fit(X, y)  # a second fit of the same estimator
    assert caught.value.change is None
    # And a request whose retraining cannot be certified says what its contract says.
    monkeypatch.setattr(Radii, "of_a_fit", lambda *_: np.inf)
    monkeypatch.setattr(Radii, "best", lambda *_: Radius(1.0, "residual"))
    with pytest.raises(NotCertifiable) as refused:
        model.forget(rows=[0])
    assert refused.value.change is None


def _never(*given: Any, **more: Any) -> Any:
    raise AssertionError("a change was tried")


def test_registries_name_a_change_at_the_first_fit_alone(tmp_path: Any) -> None:
    X, y = _data("wine", LogisticRegression())
    model = LogisticRegression(budget=Budget())
    with Registry.create(tmp_path / "r") as registry:
        with pytest.raises(NotCertifiable, match="works") as caught:
            registry.fit("wine", model, X, y)
        assert caught.value.change is not None
        registry.fit("wine", _follow(model, caught.value.change), X, y)
        with pytest.raises(NotCertifiable) as refused:
            registry.models.refit("wine", model, X, y)
        assert refused.value.change is None


@pytest.mark.parametrize("loss", LOSSES)
def test_adult_is_certified_by_default(loss: str) -> None:
    try:
        train, _ = adult()
    except DataNotFound as error:
        pytest.skip(str(error))
    model = clone(LOSSES[loss]).set_params(budget=Budget())
    y = train.y[:4000] > 0.0
    target = y.astype(float) if isinstance(model, LinearRegression) else y
    model.fit(train.X[:4000], target)
    assert model.certificate_.status == "certified"


@pytest.mark.parametrize(
    ("least", "step"),
    [(1.0, 1.0), (1.1, 2.0), (2.0, 2.0), (2.1, 5.0), (7e-9, 1e-8), (1e-4, 1e-4)],
)
def test_the_ladder(least: float, step: float) -> None:
    assert ladder(least) == step


def test_without_matrices_the_noise_is_searched_for() -> None:
    X, y = _data("wine", LogisticRegression())
    X = StandardScaler().fit_transform(X)
    model = LogisticRegression(mechanism="matrix-free")
    with pytest.raises(NotCertifiable, match=r"Budget\(sigma=") as caught:
        clone(model).set_params(budget=Budget(sigma=1e-11)).fit(X, y)
    assert caught.value.change is not None
    _follow(model, caught.value.change).fit(X, y)


@pytest.mark.parametrize(
    ("model", "mend"),
    [
        (LinearRegression(loss="huber"), {"penalize_intercept": True}),
        (LogisticRegression(loss="squared_hinge"), {"penalize_intercept": True}),
        (LogisticRegression(l1_ratio=1.0), {"ridge": 1e-3}),
        (LogisticRegression(l1_ratio=1.0, C=1.0), {"mechanism": "auto"}),
    ],
    ids=["Huber", "hinge", "L1", "L1 by C"],
)
def test_what_no_matrix_free_answer_certifies_is_refused_before_any_pass(
    model: Any, mend: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = _data("wine", model)
    X = StandardScaler().fit_transform(X)
    model = clone(model).set_params(mechanism="matrix-free", budget=Budget())
    with monkeypatch.context() as patched:
        patched.setattr("expunge.private_model.model.fit_answer", _never)
        (name, value), *_ = mend.items()
        with pytest.raises(InvalidInput, match=f"set {name}={value!r}"):
            model.fit(X, y)
    assert model.set_params(**mend).fit(X, y).certificate_.status == "certified"


class TestBadInput:
    """One sentence, and the estimator as it was; or an ordinary model."""

    RNG = np.random.default_rng(0)
    X = RNG.normal(size=(60, 3))
    Y = X @ np.ones(3) + RNG.normal(size=60)

    @pytest.mark.parametrize("loss", ["half_squared", "huber"])
    def test_a_constant_target(self, loss: str) -> None:
        model = LinearRegression(loss=loss, budget=Budget(sigma=1e-6))
        model.fit(self.X, np.full(60, 3.0))
        assert model.certificate_.status == "certified"
        assert np.allclose(model.predict(self.X), 3.0, atol=1e-3)
        y = np.append(np.full(59, 3.0), 9.0)  # constant once the last has left
        model.fit(self.X, y).forget(rows=[59])
        assert np.allclose(model.predict(self.X), 3.0, atol=1e-3)

    @pytest.mark.parametrize("kind", [LogisticRegression, SoftmaxRegression])
    def test_one_category(self, kind: Any) -> None:
        model = kind(budget=Budget()).fit(self.X, self.Y > 0.0)
        before = model.certificate_
        with pytest.raises(InvalidInput, match="only one class") as caught:
            model.fit(self.X, np.zeros(60))
        assert "\n" not in str(caught.value)
        assert model.certificate_ is before

    @pytest.mark.parametrize("level", [0.0, 1.0, -7.5])
    @pytest.mark.parametrize("loss", [name for name in LOSSES if name != "counts"])
    def test_a_column_of_one_level(self, loss: str, level: float) -> None:
        X = np.column_stack([self.X, np.full(60, level)])
        for preprocessing in (None, StandardScaler()):
            model = clone(LOSSES[loss]).set_params(preprocessing=preprocessing)
            y = self.Y if isinstance(model, LinearRegression) else self.Y > 0.0
            model.set_params(budget=Budget()).fit(X, y).forget(rows=[3])
            assert model.certificate_.status == "certified"
