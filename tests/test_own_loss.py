# SPDX-License-Identifier: Apache-2.0
"""A loss that the package does not know: counts, by one class outside it.

``tests/instances.py`` holds it to the laws of losses, mechanisms and radii. Here are
its estimator, its certificate and its errors, and removals against an oracle that
shares no code with the package.
"""

import subprocess
import sys
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expunge import (
    L2,
    Budget,
    Gamma,
    Jackknife,
    LinearRegression,
    MatrixFree,
    NegativeBinomial,
    Newton,
    Objective,
    Poisson,
    Rows,
    State,
    TunedRegressor,
    Tweedie,
    learn,
    load,
    stored,
    summarise,
    verify,
)
from expunge.core.arrays import UNIT_ROUNDOFF
from expunge.core.objective import Scaling
from expunge.exceptions import (
    CapacityExceeded,
    InvalidInput,
    NotCertifiable,
    NotConverged,
    Unsupported,
)
from expunge.promise.radius import Radii
from expunge.promise.rounding import Rounding
from expunge.removal import Draft, measure_gradient
from tests.attack.losses import Array
from tests.attack.losses import Loss as TheirLoss
from tests.attack.oracle import LONG, Aim, Sample, minimise
from tests.exact import SUITABLE, derivatives
from tests.strangers.visits import Visits

REMOVALS = 300


def _counts(rng: np.random.Generator, n: int, d: int) -> tuple[Array, Array]:
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-0.5, 0.3)
    eta = X @ rng.normal(size=d) / np.sqrt(d) + rng.normal()
    return X, rng.poisson(np.exp(np.clip(eta, -4.0, 4.0))).astype(float)


def _outcomes(*, free: bool) -> list[tuple[float, float, float]]:
    """Return errors, with their oracle's doubt, and radii of random removals."""
    found: list[tuple[float, float, float]] = []
    seed = 0
    while len(found) < 2 * REMOVALS:  # from the sums alone, and on rows
        seed += 1
        rng = np.random.default_rng([seed, free])
        n, d = int(rng.integers(30, 200)), int(rng.integers(1, 6))
        X, y = _counts(rng, n, d)
        weight = rng.uniform(0.2, 3.0, n) if seed % 3 == 0 else np.ones(n)
        objective = Objective(
            Visits(),
            L2(),
            alpha=float(10.0 ** rng.uniform(-3.0, 0.0)),
            scaling="sum" if seed % 2 else "mean",
            intercept=True,
            penalize_intercept=not free,
        )
        aim = Aim(
            TheirLoss("visits"),
            objective.alpha,
            scaling=objective.scaling,
            free=free,
        )
        rows = objective.rows(X, y, weight)
        inside = rng.random(n) < 0.8
        if not y[inside].any():
            continue
        mechanism = (Newton(), Jackknife(), MatrixFree())[seed % 5 % 3]
        state = mechanism.init(learn(objective, rows.take(np.flatnonzero(inside))))
        first = LONG(weight[inside].astype(LONG).sum())
        for _ in range(5):
            gone = inside & (rng.random(n) < 10.0 ** rng.uniform(-2.0, -0.6))
            come = ~inside & (rng.random(n) < 0.1)
            left = (inside & ~gone) | come
            if not y[left].any() or left.sum() < d + 2:
                break
            inside, remaining = left, rows.take(np.flatnonzero(left))
            state = mechanism.update(
                state,
                rows.take(np.flatnonzero(gone)),
                added=rows.take(np.flatnonzero(come)),
            )
            state, draft = mechanism.step(state, remaining, enough=1e-4)
            truth = minimise(aim, Sample(X, y, weight).take(left), first, draft.theta)
            if not truth.error <= 1e-9:
                continue  # the oracle does not know either
            error = max(0.0, truth.distance(draft.theta) - truth.error)
            seen = measure_gradient(state, draft, remaining=remaining)
            for radii in (Radii(state, draft), Radii(state, seen, remaining=remaining)):
                found.append((error, truth.error, radii.best().value))
    return found


@pytest.mark.parametrize("free", [True, False], ids=["free", "penalised"])
def test_no_radius_is_below_the_true_error(free: bool) -> None:
    found = _outcomes(free=free)
    assert [case for case in found if case[2] < case[0]] == []
    finite = [(error, radius) for error, _, radius in found if radius < inf]
    assert len(finite) >= 0.5 * len(found)
    ratios = [radius / error for error, radius in finite if error > 1e-9]
    share = 1.0 - len(finite) / len(found)
    print(f"median ratio {np.median(ratios):.1f}, infinite {share:.2f}, {len(found)}")
    assert np.median(ratios) < 50.0


def _problem(seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = 0.5 * rng.normal(size=(300, 4))
    return X, rng.poisson(np.exp(X @ [0.6, -0.4, 0.3, 0.0] + 1.0)).astype(float)


@pytest.mark.parametrize("penalised", [False, True])
@pytest.mark.parametrize("scaling", ["mean", "sum"])
def test_a_life_of_a_model_of_counts(
    penalised: bool, scaling: Scaling, tmp_path: Path
) -> None:
    X, y = _problem()
    people = np.array([f"p{i // 2}" for i in range(300)])
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 300)
    model = LinearRegression(
        loss=Visits(),
        alpha=1e-2,
        scaling=scaling,
        penalize_intercept=penalised,
        budget=Budget(sigma=0.1),
    )
    model.fit(X, y, subjects=people, sample_weight=weight)
    model.forget(["p3", "p70"])
    model.forget(X=X[10:11], y=y[10:11], sample_weight=weight[10:11])
    model.add(X[:2] + 0.1, y[:2], subjects=["new", "new"], sample_weight=[1.0, 2.0])
    model.save(tmp_path)
    again = load(tmp_path).forget(["new"])
    certificate = again.certificate_
    assert certificate.status == "certified"
    # A certificate names what it takes on trust.
    assert any("loss Visits" in text for text in certificate.assumptions)
    own = LinearRegression(alpha=1e-2).fit(X, y).certificate_
    assert not any("not part of expunge" in text for text in own.assumptions)
    assert verify(certificate, again.record_).valid
    assert 0.0 < again.record_.radius < again.budget.radius_budget(5)
    # The release is near the minimiser of an oracle, as noise and radius allow.
    gone = np.isin(people, ["p3", "p70"])
    gone[10] = True
    aim = Aim(
        TheirLoss("visits"),
        1e-2,
        scaling=scaling,
        free=not penalised,
    )
    sample = Sample(X, y, weight)
    truth = minimise(aim, sample.take(~gone), sample.total)
    theta = np.append(again.coef_, again.intercept_)
    assert truth.distance(theta) < 6.0 * 0.1 * np.sqrt(5.0)
    eta = X @ again.coef_ + again.intercept_
    assert np.array_equal(again.predict(X), np.exp(eta))


def test_what_would_predict_something_else_is_refused(tmp_path: Path) -> None:
    X, y = _problem()
    model = LinearRegression(loss=Visits(), alpha=1e-2).fit(X, y)
    with pytest.raises(Unsupported, match="predict with this model"):
        model.to_sklearn()


@pytest.mark.parametrize("mechanism", ["newton", "matrix-free"])
def test_without_a_count_both_worlds_raise_the_same_error(mechanism: str) -> None:
    X, y = _problem()
    y[1:] = 0.0
    budget = Budget(sigma=0.1)
    options: dict[str, Any] = {"loss": Visits(), "alpha": 1e-2, "mechanism": mechanism}
    model = LinearRegression(budget=budget, **options).fit(X, y)
    refusal = NotCertifiable if mechanism == "matrix-free" else NotConverged
    with pytest.raises(refusal) as ours:
        model.forget(rows=[0])
    with pytest.raises(refusal) as theirs:
        LinearRegression(budget=budget, **options).fit(X[1:], y[1:])
    # A first fit may name what works; a refusal after a removal says what a fit that
    # names nothing would.
    assert theirs.value.change is not None and ours.value.change is None
    refitted = LinearRegression(budget=budget, **options).fit(X, y)
    with pytest.raises(refusal) as again:
        refitted.fit(X[1:], y[1:])
    assert type(ours.value) is type(theirs.value)
    assert str(ours.value) == str(again.value)
    # Where the intercept is penalised there is a minimiser.
    options["penalize_intercept"] = True
    model = LinearRegression(budget=budget, **options).fit(X, y).forget(rows=[0])
    assert model.certificate_.status == "certified"


def test_without_rows_such_a_request_is_refused() -> None:
    X, y = _problem()
    y[1:] = 0.0
    model = LinearRegression(
        loss=Visits(), alpha=1e-2, budget=Budget(sigma=0.1), keep_data=False
    ).fit(X, y)
    with pytest.raises(CapacityExceeded):
        model.forget(X=X[:1], y=y[:1])


def test_a_file_names_a_class_that_must_be_known(tmp_path: Path) -> None:
    X, y = _problem()
    LinearRegression(loss=Visits(), alpha=1e-2).fit(X, y).save(tmp_path)
    code = f"import expunge; expunge.load({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode and "import the module that defines it" in done.stderr
    known = f"import tests.strangers.visits; {code}"
    assert subprocess.run([sys.executable, "-c", known]).returncode == 0


def test_a_tuned_model_of_counts_chooses_as_tuning_again_would() -> None:
    X, y = _problem()
    people = [f"p{i // 2}" for i in range(len(X))]
    options: Any = {"alphas": (1.0, 0.1, 1e-2, 1e-3), "folds": 3, "fold_key": "fixed"}
    ours = TunedRegressor(loss=Visits(), budget=Budget(sigma=0.3), **options)
    ours.fit(X, y, people)
    for first in range(0, 30, 6):
        ours.forget([f"p{first}", f"p{first + 1}"])
    assert ours.certificate_.selection == "certified"
    gone = [int(p[1:]) < 30 and int(p[1:]) % 6 < 2 for p in people]
    left = np.flatnonzero(~np.array(gone))
    fresh = TunedRegressor(loss=Visits(), **options)
    fresh.fit(X[left], y[left], [people[place] for place in left])
    assert ours.alpha_ == fresh.alpha_
    curve, exact = ours.curve_, fresh.curve_
    assert (curve.low <= exact.high).all() and (exact.low <= curve.high).all()
    assert verify(ours.certificate_, ours.record_).valid


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(InvalidInput, match="give yours another name"):
        stored(type("Logistic", (Visits,), {}))
    assert stored(Visits) is Visits  # again, as a notebook does


def test_rows_of_counts_are_those_of_the_loss() -> None:
    objective = Objective(Visits(), L2(), 0.1)
    assert isinstance(objective.rows([[1.0]], [0.5]), Rows)
    with pytest.raises(ValueError, match="from zero"):
        objective.rows([[1.0]], [-1.0])


def _sums_are_off(X: Array, theta: Array, y: Array) -> tuple[State, float, float]:
    """Return a state, and how far gradient and Hessian are from extended precision."""
    objective = Objective(Visits(), L2(), 0.1)
    state = summarise(objective, objective.rows(X, y), theta=theta)
    exact = X.astype(LONG)
    mean = np.exp(exact @ theta.astype(LONG))
    gradient = exact.T @ (mean - y.astype(LONG))
    hessian = (exact.T * mean) @ exact
    gap = state.sums.loss_hessian.dense() - hessian
    off = np.sqrt(((state.sums.gradient - gradient) ** 2).sum())
    return state, float(off), float(np.sqrt((gap**2).sum()))


@pytest.mark.skipif(not SUITABLE, reason="long doubles are doubles here")
class TestRounding:
    @pytest.mark.parametrize("seed", range(5))
    def test_predictors_of_large_parameters_round(self, seed: int) -> None:
        """Two terms that nearly cancel: the predictor is off by 1e-8."""
        rng = np.random.default_rng(seed)
        X = np.ones((50, 2))
        X[:, 1] += 1e-8 * rng.normal(size=50)
        theta = 1e8 * rng.uniform(0.5, 1.0) * np.array([1.0, -1.0])
        y = rng.poisson(np.exp(X @ theta)).astype(float)
        state, gradient, hessian = _sums_are_off(X, theta, y)
        rounding, draft = Rounding(state), Draft(theta, np.zeros(2))
        assert gradient <= rounding.gradient(draft, step=0.0)
        assert hessian <= rounding.hessian
        # If predictors were exact, so would the sums be.
        sizes = state.magnitude
        assert gradient > 10.0 * rounding.sums * sizes.slope
        assert hessian > 10.0 * rounding.sums * sizes.hessian

    def test_a_slope_is_a_difference(self) -> None:
        """Where a model fits, e^eta - y is nothing but rounding."""
        theta = np.array([1e-4])
        X = np.linspace(0.5, 1.0, 4000)[:, None]
        y = np.exp(X[:, 0] * theta[0])
        lost = np.exp((X @ theta).astype(LONG)) - y
        X, y = X[lost > 0.3 * UNIT_ROUNDOFF], y[lost > 0.3 * UNIT_ROUNDOFF]
        state, gradient, _ = _sums_are_off(X, theta, y)
        rounding, draft = Rounding(state), Draft(theta, np.zeros(1))
        whole = rounding.gradient(draft, step=0.0)
        cancelling = 8.0 * UNIT_ROUNDOFF * rounding.shift.cancelling(0.0)
        assert whole - cancelling < gradient <= whole

    @pytest.mark.parametrize(
        "loss", [Poisson(), Gamma(), Tweedie(1.3), NegativeBinomial(0.5)], ids=repr
    )
    def test_every_slope_that_is_a_difference_rounds_by_its_terms(
        self, loss: Any
    ) -> None:
        """Where a model fits, nothing is left of a slope but rounding."""
        theta, rng = np.array([1e-4]), np.random.default_rng(0)
        X = rng.uniform(0.5, 1.0, size=(20_000, 1))
        y = np.exp(X[:, 0] * theta[0])
        exact, _ = derivatives(loss, y.astype(LONG), (X.astype(LONG) @ theta)[:, None])
        lost = loss.slope(y, X @ theta) - exact[:, 0]
        keep = lost > 0.3 * UNIT_ROUNDOFF
        X, y, lost = X[keep], y[keep], lost[keep]
        assert len(y) > 1000
        objective = Objective(loss, L2(), 0.1)
        state = summarise(objective, objective.rows(X, y), theta=theta)
        rounding, draft = Rounding(state), Draft(theta, np.zeros(1))
        off = float(abs(X[:, 0] @ lost))
        whole = rounding.gradient(draft, step=0.0)
        cancelling = 8.0 * UNIT_ROUNDOFF * rounding.shift.cancelling(0.0)
        assert whole - cancelling < off <= whole

    @pytest.mark.parametrize("way", [0.1, 1.0, 4.0])
    def test_a_fit_nearby_rounds_by_no_more(self, way: float) -> None:
        rng = np.random.default_rng(int(10.0 * way))
        X, y = _counts(rng, 80, 3)
        objective = Objective(Visits(), L2(), 0.1, intercept=True)
        rows, unit = objective.rows(X, y), rng.normal(size=4)
        unit /= np.linalg.norm(unit)
        gone = np.arange(5)
        theta, step = 0.1 * unit, way * rng.normal(size=4) / 2.0
        state = Newton().init(summarise(objective, rows, theta=theta))
        state = Newton().update(state, rows.take(gone))
        draft = Draft(theta + step, np.zeros(4))
        there = draft.theta + way * unit
        fit = Rounding(summarise(objective, rows.without(gone), theta=there))
        own = fit.gradient(Draft(there, np.zeros(4)), step=0.0)
        length, rounding = float(np.linalg.norm(step)), Rounding(state)
        assert own <= rounding.gradient_nearby(draft, step=length, within=way)
        H = fit.state.smooth_hessian()
        test = 4.0 * UNIT_ROUNDOFF * (H.size + 2) * float(H.diagonal.sum())
        assert fit.hessian + test <= rounding.floor_nearby(length + way)
        assert fit.curvature() <= rounding.curvature(further=length + way)


def test_a_growth_that_is_understated_breaks_radii(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Visits, "self_concordance", 0.05)
    found = _outcomes(free=True)
    assert sum(radius < error for error, _, radius in found) >= 10
