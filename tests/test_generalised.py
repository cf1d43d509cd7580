# SPDX-License-Identifier: Apache-2.0
"""Regressions of counts, amounts and quantiles, beside scikit-learn and glum."""

import copy
import pickle
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import glum
import numpy as np
import pytest
from sklearn import linear_model
from sklearn.metrics import d2_pinball_score, d2_tweedie_score
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from expunge import (
    Budget,
    GammaRegressor,
    NegativeBinomialRegressor,
    PoissonRegressor,
    QuantileRegressor,
    TunedRegressor,
    TweedieRegressor,
    from_sklearn,
    load,
    read_shipped,
    ship,
    verify,
)
from expunge.exceptions import InvalidInput, Unsupported
from expunge.linear_model.base import private_model
from expunge.linear_model.generalised import GeneralisedRegression
from expunge.promise.capacity import newton_radius, regularity_of
from expunge.registry import Registry

Array = np.ndarray[Any, np.dtype[np.float64]]


def problem(kind: str, seed: int = 0, n: int = 300) -> tuple[Array, Array, Array]:
    """Return features, responses over exposures, and these."""
    rng = np.random.default_rng(seed)
    X, v = 0.5 * rng.normal(size=(n, 4)), rng.uniform(0.2, 3.0, size=n)
    mean = v * np.exp(X @ [0.6, -0.4, 0.3, 0.0] + 0.5)
    y = rng.poisson(mean).astype(float)
    if kind in ("gamma", "tweedie"):
        y = mean * rng.gamma(2.0, 0.5, size=n)
    if kind == "tweedie":
        y *= rng.random(n) < 0.6
    return X, y, v


MODELS: dict[str, GeneralisedRegression] = {
    "poisson": PoissonRegressor(),
    "gamma": GammaRegressor(),
    "tweedie": TweedieRegressor(power=1.5),
    "binomial": NegativeBinomialRegressor(dispersion=0.5),
    "quantile": QuantileRegressor(quantile=0.7, width=0.5),
}
POWERS = {"poisson": 1.0, "gamma": 2.0, "tweedie": 1.5}
FAMILIES: dict[str, Any] = {
    "poisson": "poisson",
    "gamma": "gamma",
    "tweedie": glum.TweedieDistribution(1.5),
    "binomial": glum.NegativeBinomialDistribution(0.5),
}
# A setting of each pair of values, and more: 20 of glum, 12 of scikit-learn.
SETTINGS = [
    (kind, beside, weighted, ratio)
    for i, (kind, beside, weighted, ratio) in enumerate(
        product(FAMILIES, ("", "exposure", "offset"), (False, True), (0.0, 0.5))
    )
    if not (kind == "binomial" and beside == "exposure") and i % 11 not in (3, 7, 8, 9)
][:24]


def fresh(kind: str, **parameters: Any) -> Any:
    return copy.deepcopy(MODELS[kind]).set_params(**parameters)


def test_there_are_enough_settings() -> None:
    assert len(SETTINGS) >= 20
    for place in range(4):
        assert len({setting[place] for setting in SETTINGS}) >= 2


@pytest.mark.parametrize(("kind", "beside", "weighted", "ratio"), SETTINGS)
def test_coefficients_are_those_of_glum(
    kind: str, beside: str, weighted: bool, ratio: float
) -> None:
    X, y, v = problem(kind)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y)) if weighted else None
    given: dict[str, Any] = {"sample_weight": weight}
    theirs = dict(given)
    total, responses = np.ones(len(y)) if weight is None else weight, y
    if beside == "exposure":
        given["exposure"], responses = v, y / v
        theirs["sample_weight"] = total * v ** (2.0 - POWERS[kind])
    elif beside == "offset":
        given["offset"] = theirs["offset"] = np.log(v)
    model = fresh(kind, alpha=0.02, l1_ratio=ratio).fit(X, y, **given)
    other = glum.GeneralizedLinearRegressor(
        family=FAMILIES[kind],
        link="log",
        alpha=0.02,
        l1_ratio=ratio,
        gradient_tol=1e-10,
        max_iter=10_000,
    ).fit(X, responses, **theirs)
    assert np.abs(model.coef_ - other.coef_).max() < 1e-6
    assert abs(model.intercept_ - other.intercept_) < 1e-6
    rate = np.exp(X @ model.coef_ + model.intercept_)
    assert np.allclose(model.predict(X), rate)
    assert np.allclose(model.predict(X, exposure=v), v * rate)
    assert np.allclose(model.predict(X, offset=np.log(v)), v * rate)


def of_scikit_learn(kind: str) -> Any:
    exact: dict[str, Any] = {"solver": "newton-cholesky", "tol": 1e-10, "alpha": 0.02}
    if kind == "tweedie":
        return linear_model.TweedieRegressor(power=1.5, **exact)
    named = {"poisson": "PoissonRegressor", "gamma": "GammaRegressor"}[kind]
    return getattr(linear_model, named)(**exact)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", POWERS)
def test_coefficients_and_scores_are_those_of_scikit_learn(
    kind: str, intercept: bool
) -> None:
    X, y, v = problem(kind)
    w = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    weight = w * v ** (2.0 - POWERS[kind])
    theirs = of_scikit_learn(kind).set_params(fit_intercept=intercept)
    theirs.fit(X, y / v, sample_weight=weight)
    model = fresh(kind, alpha=0.02, fit_intercept=intercept)
    model.fit(X, y, sample_weight=w, exposure=v)
    assert np.abs(model.coef_ - theirs.coef_).max() < 1e-6
    assert abs(model.intercept_ - theirs.intercept_) < 1e-6
    ours = model.score(X, y, sample_weight=w, exposure=v)
    assert ours == pytest.approx(theirs.score(X, y / v, sample_weight=weight), abs=1e-9)
    plain = model.to_sklearn()
    assert type(plain) is type(theirs)
    assert np.allclose(plain.predict(X), model.predict(X), rtol=1e-12)
    # D2 of an offset is that of the same rows with an exposure, whatever the model.
    shown = model.score(X, y, sample_weight=w, offset=np.log(v))
    assert shown == pytest.approx(ours, abs=1e-9)
    found = d2_tweedie_score(y, model.predict(X), sample_weight=w, power=POWERS[kind])
    assert model.score(X, y, sample_weight=w) == pytest.approx(found, abs=1e-6)


def test_scores_of_quantiles_and_of_overdispersed_counts() -> None:
    X, y, v = problem("binomial")
    model = fresh("quantile", alpha=1e-3).fit(X, y)
    found = d2_pinball_score(y, model.predict(X), alpha=0.7)
    assert model.score(X, y) == pytest.approx(found, abs=1e-2)
    assert np.mean(y <= model.predict(X)) == pytest.approx(0.7, abs=0.05)
    shifted = fresh("quantile", alpha=1e-3).fit(X, y + v, offset=v)
    assert np.allclose(shifted.coef_, model.coef_, atol=1e-9)
    assert np.allclose(shifted.predict(X, offset=v), model.predict(X) + v)
    assert shifted.score(X, y + v, offset=v) == pytest.approx(model.score(X, y))
    counts = fresh("binomial", alpha=1e-3).fit(X, y, offset=np.log(v))
    family = glum.NegativeBinomialDistribution(0.5)
    mean = counts.predict(X, offset=np.log(v))
    expected = float(family.deviance(y, mean)) / len(y)
    assert counts.deviance(X, y, offset=np.log(v)) == pytest.approx(expected)
    assert 0.0 < counts.score(X, y, offset=np.log(v)) < 1.0
    assert np.allclose(counts.to_sklearn().predict(X), counts.predict(X))
    # The best constant rate explains nothing.
    flat = fresh("binomial", alpha=1e6, fit_intercept=True)
    flat.fit(X, y, offset=np.log(v))
    assert flat.score(X, y, offset=np.log(v)) == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("scaling", ["mean", "sum"])
@pytest.mark.parametrize("beside", ["exposure", "offset"])
@pytest.mark.parametrize("kind", MODELS)
def test_fit_addition_and_removal_read_rows_alike(
    kind: str, beside: str, scaling: str, tmp_path: Path
) -> None:
    """What was removed by content is gone, and what is left is a fit of the rest."""
    if beside == "exposure" and kind in ("binomial", "quantile"):
        return
    X, y, v = problem(kind, seed=3)
    given = np.log(v) if beside == "offset" else v
    people = np.array([f"p{i // 2}" for i in range(len(y))])
    budget = Budget(sigma=0.1)
    model = fresh(kind, alpha=0.05, scaling=scaling, budget=budget)

    def rows(index: Any) -> dict[str, Any]:
        return {"X": X[index], "y": y[index], beside: given[index]}

    model.fit(**rows(slice(0, 280)), subjects=people[:280])
    model.add(**rows(slice(280, 300)), subjects=people[280:])
    model.forget(["p3", "p70"])
    model.forget(**rows([20, 41]))
    model.save(tmp_path / "model")
    model = load(tmp_path / "model").forget(["p5"])
    assert model.certificate_.status == "certified"
    assert verify(model.certificate_, model.record_).valid
    gone = np.isin(people, ["p3", "p70", "p5"])
    gone[[20, 41]] = True
    left = np.flatnonzero(~gone)
    whole = fresh(kind, alpha=0.05, scaling=scaling).fit(**rows(slice(0, 280)))
    if scaling == "sum":  # alpha W stays that of the first fit
        kept = fresh(kind, alpha=1.0).fit(**rows(left))
        total = [_weight(one) for one in (whole, kept)]
        exact = fresh(kind, alpha=0.05 * total[0] / total[1]).fit(**rows(left))
    else:
        exact = fresh(kind, alpha=0.05).fit(**rows(left))
    ours, theirs = (np.append(one.coef_, one.intercept_) for one in (model, exact))
    assert np.linalg.norm(ours - theirs) < 0.1 * 6.0 * np.sqrt(5.0)
    # Without noise it is the fit itself, to the radius.
    quiet = fresh(kind, alpha=0.05, scaling=scaling)
    quiet.fit(**rows(slice(0, 280)), subjects=people[:280])
    quiet.add(**rows(slice(280, 300)), subjects=people[280:])
    quiet.forget(["p3", "p70", "p5"]).forget(**rows([20, 41]))
    ours = np.append(quiet.coef_, quiet.intercept_)
    assert np.linalg.norm(ours - theirs) <= quiet.record_.radius + 1e-9


def _weight(model: Any) -> float:
    return float(model._snapshot.private.answer.state.sums.weight)


def test_exposure_and_offset_differ_under_mean_by_what_they_weigh() -> None:
    """Equal only at the same alpha times weight, and so not after a removal."""
    X, y, v = problem("poisson")
    by_weight = fresh("poisson", alpha=0.1).fit(X, y, exposure=v)
    share = v.sum() / len(v)
    by_offset = fresh("poisson", alpha=0.1 * share).fit(X, y, offset=np.log(v))
    assert np.allclose(by_weight.coef_, by_offset.coef_, atol=1e-10)
    for model in (by_weight, by_offset):
        model.forget(rows=list(range(150)))
    assert np.abs(by_weight.coef_ - by_offset.coef_).max() > 1e-4
    sums = [
        fresh("poisson", alpha=alpha, scaling="sum").fit(X, y, **given)
        for alpha, given in (
            (0.1, {"exposure": v}),
            (0.1 * share, {"offset": np.log(v)}),
        )
    ]
    for model in sums:
        model.forget(rows=list(range(150)))
    assert np.allclose(sums[0].coef_, sums[1].coef_, atol=1e-6)


def _mistakes() -> Iterator[tuple[str, dict[str, Any], str]]:
    v = np.ones(300)
    zero, negative, missing = v.copy(), v.copy(), v.copy()
    zero[3], negative[4], missing[5] = 0.0, -1.0, np.nan
    below = -np.ones(300)
    yield "poisson", {"exposure": zero}, "exposure 0; each must be a positive number"
    yield "poisson", {"exposure": negative}, "exposure -1; each must be"
    yield "poisson", {"exposure": missing}, "exposure holds NaN or infinity"
    yield "poisson", {"offset": missing}, "offset holds NaN or infinity"
    yield "poisson", {"exposure": v[:9]}, r"shape \(9,\), and there are 300 rows"
    yield "poisson", {"exposure": ["a"] * 300}, "exposure must be numbers"
    yield "poisson", {"exposure": v, "offset": v}, "pass one of them"
    yield "poisson", {"offset": 500.0 * v}, "e.offset"
    yield "poisson", {"y": below}, "response -1 is negative"
    yield "poisson", {"y": below, "exposure": 0.3 * v}, "response -1 is negative"
    yield "poisson", {"y": below, "offset": v}, "response -1 is negative"
    yield "gamma", {"y": 0.0 * v}, "response 0 is not positive; Gamma takes"
    yield "binomial", {"exposure": v}, r"give offset=np.log\(exposure\)"
    yield "quantile", {"exposure": v}, "Pinball predicts no rate"
    yield "poisson", {"y": np.ones((300, 2))}, "one response a row"
    yield "poisson", {"exposure": [10**400] * 300}, "exposure must be numbers"


@pytest.mark.parametrize(("kind", "given", "message"), list(_mistakes()))
def test_bad_rows_are_one_sentence_and_change_nothing(
    kind: str, given: dict[str, Any], message: str
) -> None:
    X, y, _ = problem(kind)
    rows = {"X": X, "y": y} | given
    with pytest.raises((InvalidInput, Unsupported), match=message):
        fresh(kind).fit(**rows)
    plain = {} if "exposure" in given or kind == "quantile" else {"offset": 0.0 * y}
    if "exposure" in given and kind == "poisson":
        plain = {"exposure": np.ones(300)}
    model = fresh(kind, alpha=0.1).fit(X, y, **plain)
    before, certificate = model.coef_.copy(), model.certificate_
    for act in (model.add, model.forget):
        with pytest.raises((InvalidInput, Unsupported)):
            act(**rows)
    assert (model.coef_ == before).all() and model.certificate_ is certificate


def test_what_is_no_number_is_refused_wherever_it_comes() -> None:
    X, y, _ = problem("poisson")
    model = fresh("poisson", alpha=0.1).fit(X, y)
    with pytest.raises(InvalidInput, match="sample_weight must be numbers"):
        model.forget(X=X[:1], y=y[:1], sample_weight=["a"])
    with pytest.raises(InvalidInput, match="the rows to score have no weight"):
        model.score(X, y, sample_weight=np.zeros(300))


def test_more_rows_must_be_like_those_of_the_fit() -> None:
    X, y, v = problem("poisson")
    model = fresh("poisson", alpha=0.1).fit(X, y, exposure=v)
    with pytest.raises(InvalidInput, match=r"exposure=\[\.\.\.\] or sample_weight"):
        model.add(X[:2], y[:2])
    with pytest.raises(InvalidInput, match="without offsets; leave offset out"):
        model.add(X[:2], y[:2], offset=v[:2])
    model = fresh("poisson", alpha=0.1).fit(X, y, offset=np.log(v))
    with pytest.raises(InvalidInput, match=r"with offsets; pass .* offset=\[\.\.\.\]"):
        model.add(X[:2], y[:2])
    with pytest.raises(InvalidInput, match="with offsets"):
        model.forget(X=X[:2], y=y[:2])


def test_what_another_estimator_is_for_is_refused() -> None:
    X, y, _ = problem("poisson")
    for power in (0.5, 3.0, -1.0):
        with pytest.raises(Unsupported, match="is not convex"):
            TweedieRegressor(power=power).fit(X, y)
    with pytest.raises(Unsupported, match="link='log': the loss is not convex"):
        TweedieRegressor(power=0.0, link="log").fit(X, y)
    with pytest.raises(Unsupported, match="link='identity'; it must be"):
        TweedieRegressor(power=1.0, link="identity").fit(X, y)
    with pytest.raises(InvalidInput, match="has its own; leave it out"):
        PoissonRegressor(loss="huber").fit(X, y)
    with pytest.raises(InvalidInput, match="a regression has none"):
        PoissonRegressor(classes=[0, 1]).fit(X, y)
    with pytest.raises(InvalidInput, match="between 0 and 1"):
        QuantileRegressor(quantile=1.5).fit(X, y)
    with pytest.raises(InvalidInput, match="dispersion='a'; give a number"):
        NegativeBinomialRegressor(dispersion="a").fit(X, y)


def test_a_declared_largest_count_bounds_every_derivative(tmp_path: Path) -> None:
    X, y, _ = problem("binomial")
    most = float(y.max())
    settings: dict[str, Any] = {"dispersion": 0.5, "alpha": 0.1, "ridge": 0.1}
    settings |= {"penalize_intercept": True, "keep_data": False, "scaling": "mean"}
    plain = NegativeBinomialRegressor(**settings).fit(X, y)
    model = NegativeBinomialRegressor(
        largest=most, budget=Budget(sigma=0.1), **settings
    )
    model.fit(X, y)
    assert np.allclose(plain.coef_, private_model(model).answer.draft.theta[:-1])
    regularity = regularity_of(private_model(model).objective, 1.0)
    assert newton_radius(regularity, 1, n_samples=len(y)) < np.inf
    with pytest.raises(Unsupported, match="constants alone bound no error"):
        other = regularity_of(private_model(plain).objective, 1.0)
        newton_radius(other, 1, n_samples=len(y))
    model.forget(X=X[:2], y=y[:2])
    assert model.certificate_.status == "certified"
    before = model.coef_.copy()
    with pytest.raises(InvalidInput, match=f"beyond largest={most:g}"):
        model.add(X[:1], [most + 1.0])
    with pytest.raises(InvalidInput, match="beyond largest=2, which was declared"):
        NegativeBinomialRegressor(largest=2).fit(X, y)
    assert np.array_equal(model.coef_, before)
    model.save(tmp_path / "model")
    loss: Any = private_model(load(tmp_path / "model")).objective.loss
    assert loss.largest == most


def test_powers_at_the_ends_are_other_losses() -> None:
    X, y, _ = problem("gamma")
    for power, other in ((1.0, PoissonRegressor), (2.0, GammaRegressor)):
        ours = TweedieRegressor(power=power, alpha=0.1).fit(X, y)
        assert (ours.coef_ == other(alpha=0.1).fit(X, y).coef_).all()
    flat = TweedieRegressor(alpha=0.1).fit(X, y)
    theirs = linear_model.TweedieRegressor(power=0.0, alpha=0.1, tol=1e-10).fit(X, y)
    assert np.allclose(flat.coef_, theirs.coef_, atol=1e-6)
    assert flat.score(X, y) == pytest.approx(theirs.score(X, y))


@pytest.mark.parametrize("kind", POWERS)
def test_scikit_learns_own_are_adopted(kind: str) -> None:
    X, y, v = problem(kind)
    weight = v ** (2.0 - POWERS[kind])
    theirs = of_scikit_learn(kind).fit(X, y / v, sample_weight=weight)
    model = from_sklearn(
        theirs, X, y / v, sample_weight=weight, budget=Budget(sigma=0.1)
    )
    assert type(model).__name__ == type(theirs).__name__
    assert model.adoption_.relative_shift < 1e-6
    model.forget(rows=[1, 2])
    assert model.certificate_.status == "certified"


def test_what_cannot_be_adopted_names_what_can_be_done() -> None:
    X, y, _ = problem("poisson")
    with pytest.raises(Unsupported, match=r"QuantileRegressor\(quantile=0.5, width"):
        from_sklearn(linear_model.QuantileRegressor().fit(X, y), X, y)
    steep = linear_model.TweedieRegressor(power=3.0).fit(X, y + 1.0)
    with pytest.raises(Unsupported, match="power=3 with link='auto' is not convex"):
        from_sklearn(steep, X, y + 1.0)
    search = GridSearchCV(linear_model.PoissonRegressor(), {"alpha": [0.1, 0.01]})
    search.fit(X, y)
    options: dict[str, Any] = {"retune": True}
    with pytest.raises(InvalidInput, match=r"TunedRegressor\(alphas=\[0.1, 0.01\], "):
        from_sklearn(search, X, y, **options)


def test_a_tuned_model_of_amounts_forgets_its_choice() -> None:
    from expunge import Gamma

    X, y, _ = problem("gamma")
    people = [f"p{i // 2}" for i in range(len(y))]
    model = TunedRegressor(loss=Gamma(), alphas=(1.0, 0.1, 0.01), folds=3)
    model.set_params(fold_key="fixed", budget=Budget(sigma=0.3))
    model.fit(X, y, people).forget(["p3"])
    assert model.certificate_.selection == "certified"


@pytest.mark.parametrize("kind", MODELS)
def test_files_and_copies_predict_the_same(kind: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y, v = problem(kind)
    model = fresh(kind, alpha=0.1, preprocessing=StandardScaler())
    model.fit(X, y, offset=np.log(v), subjects=[f"p{i}" for i in range(len(y))])
    expected = model.predict(X)
    ship(model, tmp_path / "m.safetensors")
    ship(model, tmp_path / "m.onnx")
    again = read_shipped(tmp_path / "m.safetensors")
    assert (again.predict(X) == expected).all()
    assert again.get_params()["alpha"] == 0.1
    assert (pickle.loads(pickle.dumps(model)).predict(X) == expected).all()
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    columns = {one.name: X[:, [i]] for i, one in enumerate(session.get_inputs())}
    (found,) = session.run(None, columns)
    assert np.allclose(found, expected, rtol=1e-12)
    assert np.allclose(model.to_sklearn().predict(X), expected)


def test_a_registry_keeps_and_forgets_rates(tmp_path: Path) -> None:
    X, y, v = problem("poisson")
    people = [f"p{i // 2}" for i in range(len(y))]
    model = PoissonRegressor(alpha=0.1, budget=Budget(sigma=0.1))
    with Registry.create(tmp_path / "registry") as registry:
        # A label of two numbers: the response, and what its offset multiplies.
        labels = np.column_stack([y, v])
        registry.fit("claims", model, X, labels, subjects=people)
        registry.forget(["p3"])
        registry.add("claims", X[:2], labels[:2], subjects=["new", "new"])
        with pytest.raises(InvalidInput, match=r"this loss needs \(n, 2\)"):
            registry.add("claims", X[:2], y[:2], subjects=["other", "other"])
        registry.models.ship("claims", tmp_path / "claims.safetensors")
    found = read_shipped(tmp_path / "claims.safetensors")
    left = np.r_[np.arange(6), np.arange(8, 300), [0, 1]]
    exact = PoissonRegressor(alpha=0.1).fit(X[left], y[left], offset=np.log(v[left]))
    assert np.abs(found.coef_ - exact.coef_).max() < 0.6


def test_what_noise_does_is_said_of_means() -> None:
    X, y, v = problem("poisson")
    model = PoissonRegressor(alpha=0.1, budget=Budget(sigma=0.01))
    model.fit(X, y, exposure=v).declare_public(X[:50])
    assert "a prediction on 50 of them differs by about" in model._describe_noise(
        X[:50], 0.01
    )


def test_calibration_and_lift_are_drawn(tmp_path: Path) -> None:
    X, y, v = problem("poisson", n=2000)
    model = PoissonRegressor(alpha=1e-3).fit(X, y, exposure=v)
    figure = model.plot_means(X, y, exposure=v, groups=5, path=tmp_path / "means.png")
    calibration, lift = figure.axes
    lines = (calibration.lines[1].get_data(), lift.lines[1].get_data())
    (predicted, seen), (share, gathered) = np.array(lines[0]), np.array(lines[1])
    assert len(predicted) == 5 and np.abs(predicted / seen - 1.0).max() < 0.15
    assert share[-1] == gathered[-1] == 1.0 and (gathered <= share + 0.02).all()
    assert (tmp_path / "means.png").exists()
    with pytest.raises(Unsupported, match="quantile; plot_means is for means"):
        fresh("quantile").plot_means(X, y)


@pytest.mark.parametrize("width", [0.1, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("quantile", [0.02, 0.5, 0.9])
def test_a_quantile_far_from_zero_is_found(quantile: float, width: float) -> None:
    """Where the solver starts, the loss is nearly flat."""
    X, y, _ = problem("gamma", n=600)
    y = 100.0 + 50.0 * y
    model = QuantileRegressor(quantile=quantile, width=width, alpha=1e-4).fit(X, y)
    share = np.mean(y <= model.predict(X))
    assert share == pytest.approx(quantile, abs=0.02 + 0.01 * width)


def test_exposures_that_weigh_nothing_leave_a_model_without_weights() -> None:
    X, y, v = problem("gamma")
    model = fresh("gamma", alpha=0.1).fit(X[:290], y[:290], exposure=np.ones(290))
    model.add(X[290:], y[290:], exposure=v[290:])
    rates = np.append(y[:290], y[290:] / v[290:])
    exact = fresh("gamma", alpha=0.1).fit(X, rates)
    assert np.linalg.norm(model.coef_ - exact.coef_) <= model.record_.radius
