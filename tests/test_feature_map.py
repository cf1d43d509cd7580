# SPDX-License-Identifier: Apache-2.0
"""A map of features is the matrix it stands for, and a lifted state a sum over rows."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

from expunge import (
    L2,
    ElasticNet,
    GroupLasso,
    HalfSquared,
    Huber,
    LinearRegression,
    Logistic,
    Multinomial,
    Newton,
    NuclearNorm,
    Objective,
    OneVsRest,
    Rows,
    SoftmaxRegression,
    SquaredHinge,
)
from expunge.core.feature_map import FeatureMap
from expunge.core.linalg import Symmetric
from expunge.core.sums import loss_hessian, loss_slopes
from expunge.linear_model.base import private_model
from expunge.preprocessing.columns import read_columns
from expunge.preprocessing.reference import find_map
from expunge.private_model.answers import retrain_answer
from expunge.removal.state import lift_state, residual, summarise
from tests.attack.lifted import dense_map

Array = NDArray[Any]


def draw_map(seed: int, outputs: int, *, intercept: bool) -> FeatureMap:
    """Return a map with scales, sums of features, gaps, and an unused feature."""
    rng = np.random.default_rng(seed)
    # Feature 1 is the sum of two, 2 counts a gap; the third row is used by none.
    rows = np.array([0, 1, 3, 4, 5, *([6] if intercept else [])])
    columns = np.array([0, 1, 1, 2, 2, *([3] if intercept else [])])
    main = columns >= 0
    main[4] = False
    share = np.array([1.0, 0.5, 0.5, 1.0, 0.0, *([1.0] if intercept else [])])
    values = 10.0 ** rng.uniform(-1.5, 1.5, len(rows))
    values[-1] = 1.0 if intercept else values[-1]
    shift = rng.normal(size=3) * 10.0 ** rng.uniform(-2.0, 1.0)
    return FeatureMap(rows, columns, values, shift, 7, intercept, main, share, outputs)


MAPS = [
    draw_map(seed, outputs, intercept=intercept)
    for seed in range(20)
    for outputs in (1, 3)
    for intercept in (False, True)
]


def by_output(matrix: Array, outputs: int) -> Array:
    """Return the matrix that acts on parameters of all outputs."""
    return np.kron(matrix, np.eye(outputs))


@pytest.mark.parametrize("features", MAPS)
def test_products_are_those_of_the_matrix(features: FeatureMap) -> None:
    rng = np.random.default_rng(1)
    A = by_output(dense_map(features), features.outputs)
    M = rng.normal(size=(len(A), len(A)))
    M = M @ M.T
    theta: Array = rng.normal(size=A.shape[1:])
    gradient: Array = rng.normal(size=len(A))
    np.testing.assert_allclose(features.lift(theta), A @ theta, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        features.transpose(gradient), A.T @ gradient, rtol=1e-11, atol=1e-11
    )
    mapped = features.map_hessian(Symmetric.from_dense(M)).dense()
    np.testing.assert_allclose(mapped, A.T @ M @ A, rtol=1e-9, atol=1e-9)
    units = np.eye(len(A))
    S = np.column_stack([features.back(unit) for unit in units])
    back = features.map_inverse(Symmetric.from_dense(M)).dense()
    np.testing.assert_allclose(back, S @ M @ S.T, rtol=1e-9, atol=1e-9)
    if features.intercept:  # without one there is nothing to take up the shift
        np.testing.assert_allclose(S @ A, np.eye(A.shape[1]), rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("features", MAPS)
def test_rows_grow_at_most_by_kappa(features: FeatureMap) -> None:
    largest = np.linalg.svd(dense_map(features), compute_uv=False)[0]
    assert features.row_growth >= max(1.0, largest)
    assert features.row_growth <= 3.0 * max(1.0, largest)  # of use, too


def test_sum_of_the_parts_is_no_bound() -> None:
    """1/min rho + |t| would be 0.1 where the constant alone is as long as before."""
    one = np.ones(2)
    features = FeatureMap(
        np.arange(2), np.arange(2), np.array([0.1, 1.0]), np.zeros(1), 2, True,
        one > 0.0, one,
    )  # fmt: skip
    assert features.row_growth >= 1.0


LOSSES = [
    (Logistic(), 1),
    (Multinomial(3), 3),
    (OneVsRest(3), 3),
    (HalfSquared(), 1),
    (Huber(1.0), 1),
    (SquaredHinge(), 1),
]


@pytest.mark.parametrize("scaling", ["mean", "sum"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("loss", "outputs"), LOSSES, ids=repr)
def test_lifted_state_is_summed_over_the_present_rows(
    loss: Any, outputs: int, intercept: bool, scaling: Any
) -> None:
    """c_U and H_U at the new anchor, against sums over the rows A'e themselves."""
    rng = np.random.default_rng(2)
    features = draw_map(5, outputs, intercept=intercept)
    e = np.hstack([rng.normal(size=(40, 6)), np.ones((40, 1))])
    y = {3: np.arange(40) % 3}.get(outputs, np.where(np.arange(40) % 2, 1.0, -1.0))
    rows = Rows(e, loss.labels(y), rng.uniform(0.5, 2.0, 40))
    objective = Objective(
        loss, L2(), 0.1, ridge=0.01, scaling=scaling, intercept=intercept
    )
    # Where the map gives it, the quadratic model at the anchor is exact there.
    theta = features.lift(rng.normal(size=features.width * outputs))
    base = Newton().init(summarise(objective, rows, theta=theta))
    base = Newton().update(base, rows.take(np.arange(7)))
    state = lift_state(base, features)
    A = dense_map(features)
    left = Rows(e[7:] @ A, rows.y[7:], rows.weight[7:])
    if not intercept:
        theta = features.lift(state.anchor)  # the shift has nowhere to go
        base = Newton().init(summarise(objective, rows, theta=theta))
        base = Newton().update(base, rows.take(np.arange(7)))
        state = lift_state(base, features)
    slopes = loss_slopes(loss, left, theta=state.anchor)
    scale = (rows if scaling == "sum" else left).total_weight
    expected = slopes + scale * objective.quadratic_gradient(state.anchor)
    size = max(1.0, float(np.abs(expected).max()))
    assert state.offset is not None
    if intercept:
        assert np.abs(state.offset).max() < 1e-9 * np.abs(theta).max()
        np.testing.assert_allclose(
            state.smooth_gradient, expected, atol=1e-9 * size, rtol=1e-9
        )
        hessian = loss_hessian(loss, left, theta=state.anchor).dense()
        np.testing.assert_allclose(
            state.sums.loss_hessian.dense(), hessian, rtol=1e-8, atol=1e-7
        )
    _, draft = Newton().step(state)
    assert np.abs(residual(state, draft)).max() < 1e-7 * size


@pytest.mark.parametrize("intercept", [False, True])
def test_offset_leaves_a_squared_loss_exact(intercept: bool) -> None:
    """Gaps that are filled again put the anchor outside the range of the map."""
    rng = np.random.default_rng(4)
    features = draw_map(3, 1, intercept=intercept)
    e = np.hstack([rng.normal(size=(30, 6)), np.ones((30, 1))])
    objective = Objective(HalfSquared(), L2(), 0.1, intercept=intercept)
    rows = Rows(e, rng.normal(size=30), np.ones(30))
    summary = summarise(objective, rows, theta=rng.normal(size=7))
    state = lift_state(Newton().init(summary), features)
    assert state.offset is not None and np.abs(state.offset).max() > 0.1
    X = e @ dense_map(features)
    _, draft = Newton().step(state)
    ridge = np.diag(np.append(np.full(3, 0.1), [0.0] * intercept))
    exact = np.linalg.solve(X.T @ X / 30 + ridge, X.T @ rows.y / 30)
    np.testing.assert_allclose(draft.theta, exact, rtol=1e-8, atol=1e-10)


def people() -> tuple[pd.DataFrame, Array]:
    """Return a table with gaps, a rare category, and a column far from zero."""
    rng = np.random.default_rng(6)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40.0, 12.0, 80),
            "pay": np.exp(rng.normal(8.0, 1.0, 80)),
            "city": rng.choice(["bonn", "jena", "ulm"], 80).astype(object),
        }
    )
    frame.loc[[3, 4], "city"] = "kiel"
    frame.loc[::9, "age"] = np.nan
    return frame, np.asarray(frame["pay"] / 3e3 + rng.normal(size=80))


def steps(pay: Any) -> Any:
    return make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
        (pay, ["pay"]),
        (make_pipeline(OneHotEncoder(sparse_output=False), StandardScaler()), ["city"]),
    )


@pytest.mark.parametrize("intercept", [False, True])
def test_map_of_a_table_takes_old_rows_to_new_ones(intercept: bool) -> None:
    frame, y = people()
    model = LinearRegression(
        alpha=0.1, preprocessing=steps(MaxAbsScaler()), fit_intercept=intercept
    )
    before: Any = private_model(model.fit(frame, y, subjects=range(80))).encoding
    after: Any = private_model(model.forget([3, 4, 9, 27, 60])).encoding
    found = find_map(
        before.reference, after.features, statistics=after.statistics, outputs=1
    )
    assert found is not None
    raw = read_columns(before.recipe.columns, frame.drop([3, 4, 9, 27, 60]))
    e = before.reference.encode(raw)
    x = after.features.encode(raw)
    np.testing.assert_allclose((e @ dense_map(found))[:, : x.shape[1]], x, atol=1e-13)


PENALTIES = [
    (SoftmaxRegression, {"penalty": NuclearNorm(), "ridge": 0.01}),
    (LinearRegression, {"penalty": GroupLasso((0, 1, 2, 2, 2)), "ridge": 0.01}),
    (LinearRegression, {"penalty": ElasticNet(0.5)}),
    (LinearRegression, {"loss": "huber", "l1_ratio": 0.7}),
    (SoftmaxRegression, {"l1_ratio": 1.0, "ridge": 0.01}),
]


@pytest.mark.parametrize("scaling", ["mean", "sum"])
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize(("face", "settings"), PENALTIES, ids=repr)
def test_penalties_act_on_the_present_features(
    face: Any, settings: Any, free: bool, scaling: Any
) -> None:
    """Penalty and gauge in the old coordinates would be off by far more."""
    frame, pay = people()
    frame = frame.drop([3, 4])
    y: Any = np.delete(pay, [3, 4])
    if face is SoftmaxRegression:
        y = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    if "penalty" in settings and isinstance(settings["penalty"], GroupLasso):
        groups = (0, 1, 2, 2, 2) if free else (0, 1, 2, 2, 2, 2)
        settings = {**settings, "penalty": GroupLasso(groups)}
    ours = face(
        alpha=0.03,
        scaling=scaling,
        penalize_intercept=not free,
        preprocessing=steps(StandardScaler(with_mean=False)),
        **settings,
    ).fit(frame, y, subjects=range(78))
    largest = np.argsort(-frame["pay"].to_numpy())[:6].tolist()
    ours.forget(largest)
    private: Any = private_model(ours)
    assert private.answer.decisions == ("accepted",)
    exact = retrain_answer(private.terms, private.remaining_rows(), start=None)
    distance = np.linalg.norm(private.answer.draft.theta - exact.draft.theta)
    stale = clone(ours).fit(frame, y)
    moved = np.linalg.norm(private_model(stale).answer.draft.theta - exact.draft.theta)
    assert distance <= private.answer.radius.value + exact.radius.value
    assert distance < 0.2 * moved
