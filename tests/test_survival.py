# SPDX-License-Identifier: Apache-2.0
"""Survival: hazards beside Kaplan and Meier, people who leave, and bad times."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import linear_model
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler

from expunge import (
    Budget,
    PiecewiseExponential,
    load,
    read_shipped,
    ship,
    verify,
)
from expunge.exceptions import InvalidInput, Unsupported
from expunge.registry import Registry

Array = np.ndarray[Any, np.dtype[np.float64]]
BREAKS = (0.5, 1.0, 2.0)


def problem(seed: int = 0, n: int = 400) -> tuple[Array, Array]:
    """Return features, and times until an event or the end of a study."""
    rng = np.random.default_rng(seed)
    X = 0.5 * rng.normal(size=(n, 2))
    event = rng.exponential(size=n) / np.exp(0.8 * X[:, 0] - 0.3)
    end = rng.uniform(0.2, 4.0, size=n)
    y = np.column_stack([np.minimum(event, end), event <= end])
    return X, y


def fresh(**parameters: Any) -> Any:
    return PiecewiseExponential(breaks=BREAKS, alpha=1e-3, **parameters)


def kaplan_meier(y: Array, times: Array) -> Array:
    """Return the share that has no event until each time."""
    found = []
    for time in times:
        at = np.unique(y[(y[:, 1] == 1.0) & (y[:, 0] <= time), 0])
        risks = [(y[:, 0] >= t).sum() for t in at]
        events = [((y[:, 0] == t) & (y[:, 1] == 1.0)).sum() for t in at]
        found.append(np.prod(1.0 - np.array(events) / np.array(risks)))
    return np.array(found)


def test_rows_are_people_and_the_intervals_they_reach() -> None:
    X = np.array([[1.0], [2.0], [3.0]])
    y = np.array([[0.5, 1.0], [1.5, 0.0], [9.0, 1.0]])
    rows, labels, owners, weight = fresh().spread(
        X, y, ["a", "b", "c"], [1.0, 2.0, 3.0]
    )
    assert owners == ["a", "b", "b", "b", "c", "c", "c", "c"]
    assert rows[:, 0].tolist() == [1, 2, 2, 2, 3, 3, 3, 3]
    assert rows[:, 1:].argmax(axis=1).tolist() == [0, 0, 1, 2, 0, 1, 2, 3]
    assert labels[:, 0].tolist() == [1, 0, 0, 0, 0, 0, 0, 1]
    assert labels[:, 1].tolist() == [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.0, 7.0]
    assert weight is not None and weight.tolist() == [1, 2, 2, 2, 3, 3, 3, 3]


def test_coefficients_are_those_of_a_poisson_model_of_the_intervals() -> None:
    X, y = problem()
    model = fresh().fit(X, y)
    rows, labels, _, _ = fresh().spread(X, y)
    # scikit-learn's minimum is that of weights, at the same alpha times weight.
    share = labels[:, 1].mean()
    theirs = linear_model.PoissonRegressor(
        alpha=1e-3 / share, solver="newton-cholesky", tol=1e-10
    )
    theirs.fit(rows, labels[:, 0] / labels[:, 1], sample_weight=labels[:, 1])
    assert np.abs(model.coef_ - theirs.coef_).max() < 1e-6
    assert 0.6 < model.coef_[0] < 1.0
    assert 0.0 < model.score(X, y) < 1.0 and model.deviance(X, y) > 0.0
    assert np.allclose(model.predict(X), model.predict_hazard(X)[:, 0])


def test_curves_are_near_kaplan_and_meier() -> None:
    X, y = problem(n=4000)
    flat = PiecewiseExponential(breaks=np.arange(0.1, 4.0, 0.1), alpha=1e-8)
    times = np.array([0.0, 0.1, 0.5, 1.0, 2.0, 3.0])
    curves = flat.fit(np.zeros((4000, 1)), y).predict_survival([[0.0]], times)
    assert np.abs(curves[0] - kaplan_meier(y, times)).max() < 5e-3
    model = fresh().fit(X, y)
    curves = model.predict_survival(X[:3], times)
    assert curves.shape == (3, 6) and (curves[:, 0] == 1.0).all()
    assert (np.diff(curves, axis=1) < 0.0).all()
    # Written out for the first row.
    hazard = model.predict_hazard(X[:1])[0]
    total = 0.5 * hazard[0] + 0.5 * hazard[1] + 1.0 * hazard[2] + 1.0 * hazard[3]
    assert curves[0, -1] == pytest.approx(np.exp(-total))


def test_an_exponential_model_has_no_breaks() -> None:
    _, y = problem()
    model = PiecewiseExponential(alpha=1e-8).fit(np.zeros((400, 1)), y)
    assert model.predict([[0.0]])[0] == pytest.approx(y[:, 1].sum() / y[:, 0].sum())


@pytest.mark.parametrize("scaling", ["mean", "sum"])
def test_people_leave_with_their_intervals(scaling: Any, tmp_path: Path) -> None:
    X, y = problem()
    people = [f"p{i // 2}" for i in range(len(y))]
    model = fresh(scaling=scaling, budget=Budget(sigma=0.1))
    model.fit(X[:390], y[:390], subjects=people[:390])
    model.add(X[390:], y[390:], subjects=people[390:])
    model.forget(["p3", "p70"]).forget(X=X[20:22], y=y[20:22])
    model.save(tmp_path / "model")
    model = load(tmp_path / "model").forget(["p5"])
    assert model.certificate_.status == "certified"
    assert verify(model.certificate_, model.record_).valid
    quiet = fresh().fit(X, y, subjects=people).forget(["p3", "p70", "p5", "p10"])
    gone = np.isin(people, ["p3", "p70", "p5", "p10"])
    exact = fresh().fit(X[~gone], y[~gone])
    assert np.linalg.norm(quiet.coef_ - exact.coef_) <= quiet.record_.radius + 1e-9
    assert np.abs(model.coef_ - exact.coef_).max() < 0.6
    with pytest.raises(InvalidInput, match="intervals of people; say whom"):
        model.forget(rows=[1])


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_keep_the_names_of_their_columns(frame: Any) -> None:
    X, y = problem()
    table = frame({"age": X[:, 0], "dose": X[:, 1]})
    model = fresh(preprocessing=StandardScaler()).fit(table, y)
    names = ["from 0 to 0.5", "from 0.5 to 1", "from 1 to 2", "from 2 to inf"]
    assert list(model.feature_names_in_) == ["age", "dose", *names]
    plain = fresh(preprocessing=StandardScaler()).fit(X, y)
    assert np.allclose(model.coef_, plain.coef_)
    found = model.predict_survival(table, [1.0])
    assert np.allclose(found, plain.predict_survival(X, [1.0]))


@pytest.mark.parametrize(
    "steps",
    [
        make_column_transformer((StandardScaler(), ["age", "dose"])),
        make_column_transformer((PolynomialFeatures(2), ["dose"])),
        make_column_transformer((RBFSampler(random_state=0), ["age", "dose"])),
        RBFSampler(random_state=0),
        MinMaxScaler(),
        "auto",
    ],
    ids=str,
)
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_intervals_stay_beside_what_is_done_with_people(
    steps: Any, frame: Any, tmp_path: Path
) -> None:
    X, y = problem()
    table = frame({"age": X[:, 0], "dose": X[:, 1]})
    people = [f"p{i}" for i in range(len(y))]
    model = fresh(preprocessing=steps, budget=Budget(sigma=0.01))
    model.fit(table, y, subjects=people).forget(["p3"])
    names = ["from 0 to 0.5", "from 0.5 to 1", "from 1 to 2", "from 2 to inf"]
    assert list(model.get_feature_names_out()[-4:]) == names
    # By themselves: between intervals, hazards differ by a factor for all alike.
    hazard = model.predict_hazard(table)
    levels = np.exp(model.coef_[-4:])
    assert np.allclose(hazard / hazard[:, :1], levels / levels[0])
    model.save(tmp_path / "model")
    again = load(tmp_path / "model").forget(["p4"])
    assert list(again.get_feature_names_out()[-4:]) == names
    exact = fresh(preprocessing=steps).fit(table[5:], y[5:])
    assert list(exact.get_feature_names_out()[-4:]) == names


def test_gaps_of_arrays_are_filled_and_later_maps_refused() -> None:
    X, y = problem()
    holes = np.where(X > 0.9, np.nan, X)
    model = fresh(preprocessing=SimpleImputer()).fit(holes, y)
    model.forget(X=holes[:1], y=y[:1])
    assert np.isfinite(model.predict_survival(holes, [1.0])).all()
    with pytest.raises(InvalidInput, match="preprocessing='auto' takes words"):
        fresh().fit(holes, y)
    steps = make_pipeline(StandardScaler(), PolynomialFeatures(2))
    with pytest.raises(Unsupported, match="would take the intervals too; put it"):
        fresh(preprocessing=steps).fit(X, y)


def test_a_refit_has_the_breaks_of_its_parameters() -> None:
    X, y = problem()
    model = fresh().fit(X, y)
    model.set_params(breaks=(1.0,))
    assert model.predict_hazard(X).shape == (400, 4)
    assert model.fit(X, y).predict_hazard(X).shape == (400, 2)


def test_releases_and_registries_know_survival(tmp_path: Path) -> None:
    X, y = problem()
    people = [f"p{i}" for i in range(len(y))]
    model = fresh(budget=Budget(sigma=0.05))
    rows, labels, owners, _ = model.spread(X, y, people)
    with Registry.create(tmp_path / "registry") as registry:
        registry.fit("patients", model, rows, labels, subjects=owners)
        registry.forget(["p3"])
        registry.models.ship("patients", tmp_path / "patients.safetensors")
    found = read_shipped(tmp_path / "patients.safetensors")
    exact = fresh().fit(np.delete(X, 3, axis=0), np.delete(y, 3, axis=0))
    curves = [one.predict_survival(X, [1.0, 2.0]) for one in (found, exact)]
    assert np.abs(curves[0] - curves[1]).max() < 0.2
    ship(exact, tmp_path / "exact.safetensors")
    again = read_shipped(tmp_path / "exact.safetensors")
    assert (again.predict_survival(X, [1.0]) == exact.predict_survival(X, [1.0])).all()


def test_curves_are_drawn(tmp_path: Path) -> None:
    X, y = problem()
    times = np.linspace(0.0, 3.0, 20)
    figure = (
        fresh()
        .fit(X, y)
        .plot_survival(X[:2], times, labels=["a", "b"], path=tmp_path / "curves.png")
    )
    (axes,) = figure.axes
    assert len(axes.lines) == 2 and (tmp_path / "curves.png").exists()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.0, 1.0], "a time of 0; times count from when somebody is first seen"),
        ([-1.0, 1.0], "a time of -1"),
        ([np.nan, 1.0], "NaN or infinity; leave these rows out: of somebody who is"),
        ([1.0, 2.0], "an event of 2; give 1 if it happened"),
        ([1.0, np.nan], "NaN or infinity"),
    ],
)
def test_bad_times_are_one_sentence_and_change_nothing(
    row: list[float], message: str
) -> None:
    X, y = problem()
    model = fresh().fit(X, y)
    before, certificate = model.coef_.copy(), model.certificate_
    for act in (model.fit, model.add, lambda X, y: model.forget(X=X, y=y)):
        with pytest.raises(InvalidInput, match=message):
            act(X[:2], np.array([y[0], row]))
    assert (model.coef_ == before).all() and model.certificate_ is certificate


def test_other_mistakes_are_named() -> None:
    X, y = problem()
    with pytest.raises(InvalidInput, match=r"y has shape \(400,\); give \(n, 2\)"):
        fresh().fit(X, y[:, 0])
    with pytest.raises(InvalidInput, match="X has 400 rows and y has 3"):
        fresh().fit(X, y[:3])
    with pytest.raises(InvalidInput, match="subjects has 1 ids"):
        fresh().fit(X, y, subjects=["a"])
    with pytest.raises(InvalidInput, match="the times in y are the exposures"):
        fresh().fit(X, y, exposure=y[:, 0])
    for breaks in ((1.0, 0.5), (0.0, 1.0), (np.nan,), ("soon",), ([1.0],)):
        with pytest.raises(InvalidInput, match="ascending order"):
            PiecewiseExponential(breaks=breaks).fit(X, y)
    with pytest.raises(InvalidInput, match=r"breaks=1\.0; give a list of times"):
        PiecewiseExponential(breaks=1.0).fit(X, y)
    with pytest.raises(InvalidInput, match=r"X has 1 columns, and the fit had 2"):
        fresh().fit(X, y).predict_survival(X[:, :1], [1.0])
    with pytest.raises(InvalidInput, match=r"give np.column_stack\(\[time, event\]\)"):
        fresh().fit(X, y.astype(str) + "?")
    fitted = fresh().fit(X, y)
    for times in ([-1.0], "soon"):
        with pytest.raises(InvalidInput, match="times must be numbers from zero"):
            fitted.predict_survival(X, times)
