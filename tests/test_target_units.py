# SPDX-License-Identifier: Apache-2.0
"""Targets in any unit: noise and radii are counted in their standard deviations."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

import expunge
from expunge import (
    L1,
    Budget,
    Huber,
    LinearRegression,
    LogisticRegression,
    TunedRegressor,
    advise,
    from_sklearn,
    read_shipped,
    ship,
    verify,
)
from expunge.core.arrays import Matrix, Vector
from expunge.core.losses import HalfSquared
from expunge.core.rows import Rows
from expunge.exceptions import NotCertifiable
from expunge.linear_model import LoudNoiseWarning
from expunge.linear_model.base import private_model
from expunge.private_model.target_units import TargetUnits
from expunge.promise.scope import TARGETS_EXACT, TARGETS_SCALED

N_ROWS = 240
SEEDED = Budget(allow_seeded=True)
FACTORS = (1e-6, 1.0, 1e3, 1e9)


def houses(seed: int = 0) -> tuple[Matrix, Vector]:
    """Return rows and what they say of a price, in some currency."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS, 4))
    return X, 3.0 + X @ [1.0, -2.0, 0.5, 0.0] + 0.3 * rng.normal(size=N_ROWS)


def model(**parameters: Any) -> LinearRegression:
    """Return an estimator whose noise is the same each time."""
    given: dict[str, Any] = {"alpha": 1e-2, "budget": SEEDED, "random_state": 5}
    return LinearRegression(**given | parameters)


def theta(fitted: Any) -> Vector:
    """Return the noise-free parameters."""
    return private_model(fitted).answer.draft.theta


def units(fitted: Any) -> TargetUnits:
    """Return the units in which a model's budget is counted."""
    found = private_model(fitted).terms.units
    assert found is not None
    return found


def same_units(one: Any, other: Any) -> bool:
    """Whether two models count to the last bit alike."""
    ours, theirs = units(one), units(other)
    return bool(
        (ours.mean == theirs.mean).all() and (ours.deviation == theirs.deviation).all()
    )


KINDS: dict[str, dict[str, Any]] = {
    "free intercept": {},
    "penalised intercept": {"penalize_intercept": True},
    "no intercept": {"fit_intercept": False},
    "ridge": {"ridge": 0.1},
    "rows not kept": {"keep_data": False, "budget": Budget(allow_seeded=True)},
    "jackknife": {"mechanism": "jackknife"},
    "matrix-free": {"mechanism": "matrix-free"},
    "retrain": {"mechanism": "retrain"},
    "C": {"C": 0.5, "alpha": None},
    "preprocessing": {"preprocessing": StandardScaler()},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_in_another_unit_is_the_same_model(kind: str) -> None:
    X, y = houses()
    # All but the noise is solved only as far as the budget asks, in the same share.
    apart = 1e-5 if kind == "matrix-free" else 1e-9
    made = []
    for factor in (1.0, 1024.0, 2.0**-30):  # of two: nothing is rounded otherwise
        fitted = model(**KINDS[kind]).fit(X, factor * y)
        if fitted.keep_data:
            fitted.forget(rows=[3, 8])
        else:
            fitted.forget(X=X[[3, 8]], y=factor * y[[3, 8]])
        made.append(fitted.predict(X) / factor)
    for other in made[1:]:
        np.testing.assert_allclose(other, made[0], rtol=apart, atol=apart)


@pytest.mark.parametrize("factor", FACTORS)
def test_the_answer_is_near_retraining_in_any_unit(factor: float) -> None:
    X, y = houses()
    fitted = model(budget=Budget()).fit(X, factor * y)
    fitted.forget(rows=[0, 1, 2])
    fresh = LinearRegression(alpha=1e-2).fit(X[3:], factor * y[3:])
    record, certificate = fitted.record_, fitted.certificate_
    apart = float(np.linalg.norm(theta(fitted) - theta(fresh)))
    slack = 1e-9 * float(np.linalg.norm(theta(fresh)))
    assert record.radius is not None
    assert apart <= record.radius * units(fitted).deviation[0] + slack
    assert certificate.tau is not None and certificate.radius_budget is not None
    assert record.radius + certificate.tau <= certificate.radius_budget
    assert verify(certificate, record).valid
    # What everybody may see is near it too, as noise of that size is.
    noise = np.append(fitted.coef_, fitted.intercept_) - theta(fitted)
    assert 1e-4 < np.abs(noise).max() / units(fitted).deviation[0] < 1e-2


def test_several_targets_have_a_unit_each() -> None:
    X, y = houses()
    Y = np.column_stack([y, 1e4 * houses(1)[1], 1e-2 * y**2])
    drawn = []
    for seed in range(30):
        fitted = model(random_state=seed).fit(X, Y)
        fitted.forget(rows=[seed])
        fresh = LinearRegression(alpha=1e-2).fit(
            np.delete(X, seed, axis=0), np.delete(Y, seed, axis=0)
        )
        deviation = np.delete(Y, seed, axis=0).std(axis=0)
        np.testing.assert_allclose(units(fitted).deviation, deviation, rtol=1e-12)
        apart = (theta(fitted) - theta(fresh)).reshape(-1, 3) / deviation
        assert np.linalg.norm(apart) <= (fitted.record_.radius or 0.0) + 1e-10
        public = np.vstack([fitted.coef_.T, fitted.intercept_])
        drawn.append((public - theta(fitted).reshape(-1, 3)) / deviation)
    spread = np.array(drawn).std(axis=(0, 1))
    assert (np.abs(spread / 1e-3 - 1.0) < 0.3).all()


def test_units_are_those_of_the_rows_in_the_model_to_the_last_bit() -> None:
    X, y = houses()
    weight = np.random.default_rng(2).integers(0, 4, N_ROWS).astype(float)
    fitted = model().fit(X[:200], y[:200], sample_weight=weight[:200])
    fitted.forget(rows=[7, 9, 150])
    fitted.add(X[200:], y[200:], sample_weight=weight[200:])
    keep = np.setdiff1d(np.arange(N_ROWS), [7, 9, 150])
    fresh = model().fit(X[keep], y[keep], sample_weight=weight[keep])
    assert same_units(fitted, fresh)
    twice = np.repeat(keep, weight[keep].astype(int))
    assert same_units(fitted, model().fit(X[twice], y[twice]))
    assert not same_units(fitted, model().fit(X, y))


def test_a_look_and_a_new_anchor_keep_the_units() -> None:
    X, y = houses()
    fitted = model().fit(X, y)
    fitted.forget(rows=np.arange(100))
    private = private_model(fitted)
    rows = private.kept_rows()
    assert rows is not None
    again = private.reanchor(rows)
    assert again.terms.units is private.terms.units
    assert again.answer.fits(again.budget) and again.answer.unit < 10.0


CONSTANT: dict[str, Callable[[Vector], Vector]] = {
    "before": lambda y: np.full(len(y), 1e6),
    "after a removal": lambda y: np.where(np.arange(len(y)) == 5, 3e6, 1e6),
    "zero": np.zeros_like,
}


@pytest.mark.parametrize("name", CONSTANT)
def test_a_constant_target_has_deviation_one(name: str) -> None:
    X, y = houses()
    y = CONSTANT[name](y)
    fitted = model().fit(X, y)
    fitted.forget(rows=[5])
    assert units(fitted).deviation.tolist() == [1.0]
    assert fitted.certificate_.status == "certified"
    np.testing.assert_allclose(fitted.predict(X), y[0], atol=0.05)
    fresh = model().fit(np.delete(X, 5, axis=0), np.delete(y, 5))
    assert same_units(fitted, fresh)


def test_an_outlier_that_leaves_takes_its_unit_along() -> None:
    X, y = houses()
    y[17] = 1e7
    fitted = model(budget=Budget()).fit(X, y)
    before = fitted.intercept_
    fitted.forget(rows=[17])
    rest = np.delete(np.arange(N_ROWS), 17)
    fresh = LinearRegression(alpha=1e-2).fit(X[rest], y[rest])
    assert abs(before) > 1e3
    np.testing.assert_allclose(theta(fitted), theta(fresh), atol=1e-6)
    np.testing.assert_allclose(
        fitted.predict(X[rest]), fresh.predict(X[rest]), atol=0.1
    )


def test_all_ways_out_are_in_the_unit_of_the_targets(tmp_path: Path) -> None:
    X, y = houses()
    y = 1e5 * y
    fitted = model(budget=Budget(), preprocessing=StandardScaler()).fit(X, y)
    fitted.forget(rows=[1])
    expected = fitted.predict(X)
    assert fitted.score(X, y) > 0.9
    fitted.save(tmp_path / "model")
    ship(fitted, tmp_path / "model.safetensors")
    again = expunge.load(tmp_path / "model")
    for other in (again, read_shipped(tmp_path / "model.safetensors")):
        np.testing.assert_array_equal(other.predict(X), expected)
    np.testing.assert_allclose(fitted.to_sklearn().predict(X), expected, rtol=1e-12)
    again.forget(rows=[2])
    fitted.forget(rows=[2])
    assert same_units(again, fitted)
    np.testing.assert_array_equal(theta(again), theta(fitted))


def test_onnx_is_in_the_unit_of_the_targets(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    X, y = houses()
    fitted = model(budget=Budget()).fit(X, 1e5 * y)
    ship(fitted, tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    (name,) = [one.name for one in session.get_inputs()]
    (found, *_) = session.run(None, {name: X})
    np.testing.assert_allclose(np.ravel(found), fitted.predict(X), rtol=1e-9)


def test_tuned_and_adopted_models_count_alike() -> None:
    X, y = houses()
    y = 1e4 * y
    tuned = TunedRegressor(alphas=(0.1, 1e-2), budget=Budget(), fold_key="k").fit(X, y)
    tuned.forget(rows=[4])
    adopted = from_sklearn(Ridge(alpha=2.4).fit(X, y), X, y, budget=Budget())
    adopted.forget(rows=[4])
    for fitted in (tuned, adopted):
        assert fitted.score(X, y) > 0.9
        assert fitted.certificate_.sigma == 1e-3
        assert TARGETS_SCALED in fitted.certificate_.assumptions
    assert same_units(tuned, adopted)


OFF: dict[str, Any] = {
    "huber": LinearRegression(loss=Huber(1.0)),
    "lasso": LinearRegression(penalty=L1(), ridge=1e-2),
    "elastic net": LinearRegression(l1_ratio=0.5),
    "tuned over both": TunedRegressor(alphas=(0.1,), l1_ratios=(0.0, 0.5)),
}


@pytest.mark.parametrize("name", OFF)
def test_elsewhere_it_is_off_and_loud_noise_is_named(name: str) -> None:
    X, y = houses()
    loud = OFF[name].set_params(budget=Budget(sigma=0.1), random_state=0)
    if name != "tuned over both":
        loud.set_params(alpha=1e-2, penalize_intercept=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LoudNoiseWarning)
        quiet = loud.fit(X, y)
    assert private_model(quiet).terms.units is None
    words = (*quiet.certificate_.assumptions, *quiet.certificate_.not_covered)
    assert TARGETS_SCALED not in words and TARGETS_EXACT not in words
    named = {"huber": "the Huber loss", "lasso": "the L1 penalty"}
    said = named.get(name, "the ElasticNet penalty|one of the candidates")
    with pytest.warns(LoudNoiseWarning, match=said) as caught:
        loud.fit(X, 1e-3 * y)
    assert "noise is larger than the signal" in str(caught[0].message)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_loud_noise_is_named_for_classes_too(loss: str) -> None:
    X, y = houses()
    classes = np.where(y > np.median(y), "dear", "cheap")
    typical = np.sqrt(np.mean((X**2).sum(axis=1)) + 1.0)
    for sigma, loud in ((1.9 / typical, False), (2.1 / typical, True)):
        model = LogisticRegression(
            loss=loss, alpha=0.1, penalize_intercept=True, budget=Budget(sigma=sigma)
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X, classes, subjects=range(len(X)))
            n_fit = len(caught)
            model.forget([3])
        assert len(caught) == n_fit == loud
        for one in caught:
            assert one.category is LoudNoiseWarning
            assert "typical row's score" in str(one.message)
            assert one.filename == __file__


def test_classes_and_models_without_a_budget_have_no_units() -> None:
    X, y = houses()
    classes = np.where(y > 3.0, "dear", "cheap")
    squared = LogisticRegression(alpha=0.1, loss=HalfSquared(), budget=Budget())
    for fitted in (squared.fit(X, classes), LinearRegression().fit(X, y)):
        assert private_model(fitted).terms.units is None


def test_certificates_say_in_which_unit_they_count() -> None:
    X, y = houses()
    certificate = model(budget=Budget()).fit(X, 1e4 * y).certificate_
    assert TARGETS_SCALED in certificate.assumptions
    assert TARGETS_EXACT in certificate.not_covered
    assert certificate.sigma == 1e-3 and verify(certificate).valid
    assert "sigma 0.001 deviations of the targets on" in certificate._repr_html_()


def test_a_unit_that_rounding_hides_is_refused_in_one_sentence() -> None:
    X, y = houses()
    fitted = model(budget=Budget()).fit(X, y)
    before = fitted.coef_.copy()
    with pytest.raises(NotCertifiable) as refused:
        fitted.fit(X, 1e13 + y)
    assert "\n" not in str(refused.value)
    np.testing.assert_array_equal(fitted.coef_, before)


def test_rounding_of_the_units_is_paid_for() -> None:
    X, y = houses()
    rows = Rows(X, 1e5 + y, np.ones(N_ROWS))
    found = TargetUnits.of(rows)
    rng = np.random.default_rng(0)
    for _ in range(200):
        theta = rng.normal(size=5) * 10.0 ** rng.uniform(-3, 8)
        shift = np.append(np.zeros(4), found.mean)
        exact = (theta.astype(np.longdouble) - shift) / found.deviation
        error = np.linalg.norm(
            (found.scale(theta, intercept=True) - exact).astype(float)
        )
        assert 4.0 * error * found.deviation[0] <= 2.1 * found.rounding(theta)
    assert found.rounding(np.zeros(5)) > 0.0
    assert found.unit < found.deviation.min()


def test_what_noise_does_to_public_rows_is_in_the_unit_of_the_targets(
    tmp_path: Path,
) -> None:
    X, y = houses()
    for factor in (1.0, 1e4):
        fitted = model(budget=Budget()).fit(X, factor * y)
        ship(fitted, tmp_path / "model.safetensors")
        fitted.save(tmp_path / "model")
        typical = np.sqrt(2.0 * (1.0 + (X**2).sum(axis=1)).mean()) * 1e-3
        typical *= factor * y.std()
        shipped = read_shipped(tmp_path / "model.safetensors")
        for one in (fitted, shipped, expunge.load(tmp_path / "model")):
            shown = one.declare_public(X)._repr_html_()
            assert f"differs by about {typical:.2g} from" in shown


def test_advice_counts_in_the_unit_of_the_targets() -> None:
    X, y = houses()
    found = [
        advise(X, factor * y, LinearRegression(alpha=1e-2), requests=20)
        for factor in (1.0, 1024.0)
    ]
    small, large = ({one.sigma: one for one in told.trials} for told in found)
    assert found[0].budget == found[1].budget and small.keys() == large.keys()
    for sigma, trial in small.items():
        np.testing.assert_allclose(large[sigma].score, trial.score, atol=1e-6)
        np.testing.assert_allclose(large[sigma].changed, trial.changed, rtol=1e-6)
        assert large[sigma].label_guess == pytest.approx(trial.label_guess, abs=1e-6)
    assert small[0.001].score > 0.9
