# SPDX-License-Identifier: Apache-2.0
"""Solvers: measured residuals, and two outside oracles."""

import warnings
from typing import Any

import numpy as np
import pytest
from glum import GeneralizedLinearRegressor
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge

from benchmarks.polish import chord
from expunge import (
    L1,
    L2,
    ElasticNet,
    GroupLasso,
    HalfSquared,
    Huber,
    Logistic,
    Multinomial,
    Newton,
    Objective,
    learn,
)
from expunge.core.arrays import Matrix, Vector
from expunge.core.penalties import Penalty
from expunge.core.solver import (
    Solution,
    Stop,
    hessian_model,
    minimise,
    require_converged,
)
from expunge.core.sums import loss_gradient, loss_slopes
from expunge.exceptions import (
    InvalidInput,
    NotConverged,
    NotPositiveDefinite,
    Unsupported,
)
from tests.instances import LOSSES, PENALTIES, labelled, objective_of, retrained

MODELS = [
    (loss, penalty)
    for loss in LOSSES
    for penalty in PENALTIES
    if penalty != "nuclear_norm" or LOSSES[loss][0].outputs > 1
]


def _ill_conditioned(seed: int) -> tuple[Matrix, Vector]:
    """Return features of rank eight plus a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1500, 8)) @ rng.normal(size=(8, 60))
    X += 1e-2 * rng.normal(size=X.shape)
    noise = rng.normal(size=1500)
    return X, np.where(X @ rng.normal(size=60) + noise > 0.0, 1.0, -1.0)


def _measured(objective: Objective, rows: Any, solution: Solution) -> float:
    """Return the residual by a pass of our own."""
    slopes = loss_slopes(objective.loss, rows, theta=solution.theta) / rows.total_weight
    smooth = slopes + objective.quadratic_gradient(solution.theta)
    return float(np.linalg.norm(smooth + solution.subgradient))


@pytest.mark.parametrize(("loss", "penalty"), MODELS)
def test_residual_is_measured_and_small(loss: str, penalty: str) -> None:
    objective = objective_of(loss, penalty)
    rows = objective.rows(*labelled(loss, np.random.default_rng(1)))
    solution = minimise(objective, rows)
    assert solution.residual <= 1e-12
    measured = _measured(objective, rows, solution)
    assert np.isclose(measured, solution.residual, atol=1e-15)


@pytest.mark.parametrize(("loss", "penalty"), MODELS)
def test_subgradient_is_one(loss: str, penalty: str) -> None:
    objective = objective_of(loss, penalty)
    rng = np.random.default_rng(2)
    rows = objective.rows(*labelled(loss, rng))
    solution = minimise(objective, rows)

    def kink(theta: Vector) -> float:
        quadratic = 0.5 * objective.quadratic_gradient(theta) @ theta
        return float(objective.penalty_value(theta) - quadratic)

    for size in (1e-3, 0.1, 1.0):
        z = solution.theta + size * rng.normal(size=solution.theta.size)
        rise = solution.subgradient @ (z - solution.theta)
        assert kink(z) >= kink(solution.theta) + rise - 1e-12


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "penalty", [L2(), L1(), ElasticNet(0.5), GroupLasso(np.arange(60) // 5)], ids=repr
)
def test_badly_conditioned_data_is_solved(penalty: Penalty, seed: int) -> None:
    objective = Objective(Logistic(), penalty, alpha=1e-5)
    rows = objective.rows(*_ill_conditioned(seed))
    solution = minimise(objective, rows)
    assert solution.residual <= 1e-10
    measured = _measured(objective, rows, solution)
    assert np.isclose(measured, solution.residual, atol=1e-14)


@pytest.mark.parametrize("alpha", [1e-1, 1e-3, 1e-5])
@pytest.mark.parametrize("intercept", [False, True])
def test_agrees_with_newton_cholesky(alpha: float, intercept: bool) -> None:
    X, y = _ill_conditioned(0)
    objective = Objective(Logistic(), L2(), alpha, intercept=intercept)
    ours = minimise(objective, objective.rows(X, y)).theta
    oracle = LogisticRegression(
        C=1.0 / (alpha * len(X)),
        solver="newton-cholesky",
        tol=1e-12,
        fit_intercept=intercept,
        max_iter=1000,
    )
    with warnings.catch_warnings():  # it warns when rounding ends its line search
        warnings.simplefilter("ignore")
        oracle.fit(X, y)
    theirs = np.append(oracle.coef_[0], oracle.intercept_ if intercept else [])
    assert np.linalg.norm(ours - theirs) <= 1e-6 * np.linalg.norm(ours)
    assert _value(objective, X, y, ours) <= _value(objective, X, y, theirs) + 1e-15


@pytest.mark.parametrize(("alpha", "l1_ratio"), [(1e-2, 1.0), (1e-3, 1.0), (1e-2, 0.4)])
def test_agrees_with_glum(alpha: float, l1_ratio: float) -> None:
    X, y = labelled("logistic", np.random.default_rng(4), 500)
    penalty = L1() if l1_ratio == 1.0 else ElasticNet(l1_ratio)
    objective = Objective(Logistic(), penalty, alpha, intercept=True)
    ours = minimise(objective, objective.rows(X, y)).theta
    oracle = GeneralizedLinearRegressor(
        family="binomial",
        alpha=alpha,
        l1_ratio=l1_ratio,
        solver="irls-cd",
        gradient_tol=1e-11,
        max_iter=1000,
    ).fit(X, (y + 1.0) / 2.0)
    theirs = np.append(oracle.coef_, oracle.intercept_)
    assert np.array_equal(ours == 0.0, np.abs(theirs) < 1e-12)
    assert np.linalg.norm(ours - theirs) <= 1e-8 * np.linalg.norm(ours)


def test_agrees_with_ridge_and_softmax() -> None:
    rng = np.random.default_rng(5)
    X, y = labelled("multi_output", rng)
    objective = Objective(HalfSquared(2), L2(), 0.1, intercept=True)
    ours = minimise(objective, objective.rows(X, y)).theta.reshape(-1, 2)
    ridge = Ridge(alpha=0.1 * len(X)).fit(X, y)
    assert np.allclose(ours[:-1].T, ridge.coef_, atol=1e-10)
    assert np.allclose(ours[-1], ridge.intercept_, atol=1e-10)
    X, codes = labelled("multinomial", rng)
    objective = Objective(Multinomial(3), L2(), 0.1, intercept=True)
    ours = minimise(objective, objective.rows(X, codes)).theta.reshape(-1, 3)
    oracle = LogisticRegression(C=10.0 / len(X), solver="newton-cg", tol=1e-10)
    oracle.fit(X, codes)
    assert np.allclose(ours[:-1].T, oracle.coef_, atol=1e-6)
    centred = oracle.intercept_ - oracle.intercept_.mean()
    assert np.allclose(ours[-1], centred, atol=1e-6)
    assert abs(ours[-1].sum()) <= 1e-12


def _value(objective: Objective, X: Matrix, y: Vector, theta: Vector) -> float:
    rows = objective.rows(X, y)
    loss = loss_gradient(objective.loss, rows, theta=theta)[0] / rows.total_weight
    return loss + objective.penalty_value(theta)


def test_a_start_at_the_minimiser_stays_there() -> None:
    objective = objective_of("logistic", "l1")
    rows = objective.rows(*labelled("logistic", np.random.default_rng(6)))
    cold = minimise(objective, rows)
    warm = minimise(objective, rows, start=cold.theta)
    assert warm.n_hessians <= cold.n_hessians
    assert np.linalg.norm(warm.theta - cold.theta) <= 1e-12


def test_a_far_start_is_damped() -> None:
    # Undamped Newton diverges for logistic loss from here.
    objective = Objective(Logistic(), L2(), 1e-3)
    rows = objective.rows(*labelled("logistic", np.random.default_rng(8)))
    far = minimise(objective, rows, start=np.full(6, 30.0))
    assert far.residual <= 1e-12
    assert np.allclose(far.theta, minimise(objective, rows).theta, atol=1e-10)


@pytest.mark.parametrize("penalty", ["l2", "l1", "group_lasso"])
def test_a_chord_is_damped_on_heavy_tails(penalty: str) -> None:
    # Rows of wild size and half of them removed: Newton's step overshoots and its
    # Hessian misleads.
    base = Newton()
    objective = objective_of("logistic", penalty)
    X, y = labelled("logistic", rng := np.random.default_rng(3))
    X *= rng.standard_cauchy(size=(len(X), 1))
    rows, gone = objective.rows(X, y), np.argsort(-np.abs(X[:, 0]))[:80]
    summary, remaining = learn(objective, rows), rows.without(gone)
    target = retrained(summary, remaining)
    state, draft = base.step(base.update(base.init(summary), rows.take(gone)))
    solution = minimise(
        objective.after(state.kept),
        remaining,
        start=draft.theta,
        chord=chord(state),
        stop=Stop(30),
    )
    error = np.linalg.norm(solution.theta - target)
    assert error <= 1e-8 * np.linalg.norm(target)
    assert solution.residual <= 1e-10


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_a_chord_is_kept_where_few_steps_are_left(penalty: str) -> None:
    # Its Hessian is of another point: each step leaves a fifth of the residual.
    objective = objective_of("logistic", penalty)
    rows = objective.rows(*labelled("logistic", np.random.default_rng(3)))
    near = minimise(objective, rows).theta + 0.1
    model = hessian_model(objective, rows, theta=near)

    def solve(stop: Stop) -> Solution:
        return minimise(objective, rows, start=near, chord=model.step, stop=stop)

    kept = solve(Stop(at=1e-7))
    assert kept.residual <= 1e-7
    assert kept.n_steps > 3
    assert kept.n_hessians == 0
    # To the end, and where no steps are left for it, another leads faster.
    assert solve(Stop()).n_hessians > 0
    assert solve(Stop(after=3, at=1e-7)).n_hessians > 0


@pytest.mark.parametrize("penalty", ["l2", "l1", "group_lasso"])
def test_few_steps_still_report_the_truth(penalty: str) -> None:
    objective = objective_of("logistic", penalty)
    rows = objective.rows(*labelled("logistic", np.random.default_rng(9)))
    for max_steps in (0, 1, 2):
        start = np.full(7, 20.0)
        solution = minimise(objective, rows, start=start, stop=Stop(max_steps))
        assert solution.n_steps <= max_steps
        measured = _measured(objective, rows, solution)
        assert np.isclose(measured, solution.residual, rtol=1e-10)
        with pytest.raises(NotConverged, match="stopped before its residual was small"):
            require_converged(objective, rows, solution=solution)


def test_large_scales_are_judged_by_rounding() -> None:
    # Gradients of size 1e9 cannot cancel to 1e-10; to rounding they can.
    rng = np.random.default_rng(10)
    X, y = labelled("half_squared", rng)
    objective = Objective(HalfSquared(), L2(), 1e-3, intercept=True)
    summary = learn(objective, objective.rows(1e4 * X, 1e5 * y))
    small = learn(
        Objective(HalfSquared(), L2(), 1e-11, intercept=True), objective.rows(X, y)
    )
    assert np.allclose(1e4 * summary.anchor[:-1], 1e5 * small.anchor[:-1], rtol=1e-8)


def test_a_flat_start_is_left_behind() -> None:
    # At zero every residual lies on Huber's linear branch: no curvature at all.
    X, y = labelled("huber", np.random.default_rng(12))
    objective = Objective(Huber(), L2(), 1e-3, intercept=True)
    rows = objective.rows(X, 40.0 * y + 300.0)
    far = minimise(objective, rows)
    assert far.residual <= 1e-12
    near = minimise(objective, rows, start=far.theta)
    assert np.allclose(far.theta, near.theta, atol=1e-9)
    require_converged(objective, rows, solution=far)


def test_no_minimiser_is_said(rng: np.random.Generator) -> None:
    # One class and a free intercept: the loss falls for ever.
    objective = Objective(Logistic(), L2(), 0.1, intercept=True)
    rows = objective.rows(rng.normal(size=(30, 2)), np.ones(30))
    with pytest.raises((NotConverged, NotPositiveDefinite)):
        learn(objective, rows)


def test_flat_directions_are_refused(rng: np.random.Generator) -> None:
    # Two unpenalised columns of ones: the intercept and a feature of its own,
    # under a penalty that has no curvature.
    X = np.ones((40, 2))
    y = np.where(rng.random(40) < 0.5, 1.0, -1.0)
    objective = Objective(Logistic(), GroupLasso([0, 1]), 1e-9, intercept=True)
    with pytest.raises(InvalidInput, match="start has shape"):
        minimise(objective, objective.rows(X, y), start=np.zeros(5))


def test_a_hessian_too_large_is_refused_with_its_size() -> None:
    objective = Objective(Multinomial(10), L2(), 0.1)
    wide = sparse.csr_array((3, 10_000), dtype=np.float64)
    with pytest.raises(Unsupported, match=r"100000 parameters .* 74.5 GiB"):
        minimise(objective, objective.rows(wide, [0, 1, 2]))


def test_nothing_to_fit_is_refused() -> None:
    objective = Objective(Logistic(), L2(), 0.1)
    empty = objective.rows(np.zeros((0, 2)), [])
    weightless = objective.rows(np.ones((2, 2)), [1.0, -1.0], [0.0, 0.0])
    for rows in (empty, weightless):
        with pytest.raises(InvalidInput, match="no rows with positive weight"):
            learn(objective, rows)


def test_zero_weights_are_absent_rows(rng: np.random.Generator) -> None:
    X, y = labelled("logistic", rng)
    objective = Objective(Logistic(), L1(), 0.01, intercept=True)
    weight = np.ones(len(X))
    weight[:50] = 0.0
    with_zeros = learn(objective, objective.rows(X, y, weight)).anchor
    without = learn(objective, objective.rows(X[50:], y[50:])).anchor
    assert np.allclose(with_zeros, without, atol=1e-12)


def test_sparse_equals_dense(rng: np.random.Generator) -> None:
    X, y = labelled("logistic", rng)
    X[np.abs(X) < 1.0] = 0.0
    objective = Objective(Logistic(), L1(), 0.01, intercept=True)
    dense = minimise(objective, objective.rows(X, y)).theta
    thin = minimise(objective, objective.rows(sparse.csr_array(X), y)).theta
    assert np.allclose(dense, thin, atol=1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_more_columns_than_rows_beside_a_kink(seed: int) -> None:
    """A support that is flat but for rounding leads nowhere: it must not be taken."""
    rng = np.random.default_rng(seed)
    n_rows = int(rng.integers(5, 40))
    X = rng.normal(size=(n_rows, int(rng.integers(n_rows, 60))))
    y = X[:, 0] + 0.1 * rng.normal(size=n_rows)
    alpha = float(10.0 ** rng.uniform(-2.5, -0.5))
    loss = HalfSquared() if seed % 2 else Logistic()
    objective = Objective(loss, L1(), alpha, intercept=seed % 3 == 0)
    rows = objective.rows(X, y if seed % 2 else np.sign(y))
    require_converged(objective, rows, solution=minimise(objective, rows))


@pytest.mark.parametrize("seed", [118, 253, 322, 371, 595, 846])
def test_values_do_not_rise_and_fall_for_ever(seed: int) -> None:
    """A step far off that halves the residual may raise the value by much more."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 6)) * 10.0 ** rng.uniform(-3, 3, 6)
    y = 300 * X @ rng.normal(size=6) / np.abs(X).max()
    weight = 10.0 ** rng.uniform(-4, 4, 40)
    objective = Objective(Huber(1.35), L2(), alpha=5e-4, intercept=False)
    rows = objective.rows(X, y, weight)
    solution = minimise(objective, rows)
    require_converged(objective, rows, solution=solution)
    assert solution.n_steps < 50


@pytest.mark.parametrize("unit", [1e2, 1e4, 1e6])
def test_targets_far_beyond_hubers_threshold_are_fitted(unit: float) -> None:
    """Where almost every row is beyond it, parabolas that touch the loss lead on."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    y = unit * (X @ rng.normal(size=5) + rng.normal(size=400))
    objective = Objective(Huber(), L2(), 1e-3, intercept=True)
    solution = minimise(objective, objective.rows(X, y))
    assert solution.residual <= 1e-10
    assert solution.n_steps <= 60
