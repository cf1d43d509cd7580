# SPDX-License-Identifier: Apache-2.0
"""Leave-one-out errors against a fit without each row, and bounds that always hold."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression as Reference
from sklearn.model_selection import LeaveOneOut, cross_val_score

from expunge import (
    L1,
    L2,
    HalfSquared,
    Huber,
    Logistic,
    LogisticRegression,
    Newton,
    Objective,
    Rows,
    learn,
    summarise,
)
from expunge.core.arrays import Matrix, Vector
from expunge.core.losses import Loss
from expunge.core.objective import Scaling, add_quadratic
from expunge.core.solver import Stop, minimise, require_converged
from expunge.core.sums import loss_hessian
from expunge.exceptions import CannotRemove, ExpungeError, InvalidInput, Unsupported
from expunge.linear_model.tuned import loo_error
from expunge.removal import State
from expunge.removal.state import initial_state, keep_sums
from expunge.removal.summary import Summary
from expunge.selection import loo, loo_bounds, loo_problems
from expunge.selection.loo import LooResult, leave_one_out
from tests.instances import LOSSES, PENALTIES, SCALINGS, labelled

ONE_OUTPUT = ("logistic", "half_squared", "huber", "squared_hinge")
SEPARABLE = ("l2", "l1", "elastic_net")


def fitted(summary: Summary) -> State:
    """Return the state with nobody removed."""
    return keep_sums(initial_state(summary), summary, moment=True)


def exact(state: State, rows: Rows) -> tuple[Vector, Vector]:
    """Return each row's loss at a fit without it, and how far that fit may be off.

    NaN where there is no such fit.
    """
    pairs = [_exact(state, rows, place) for place in range(len(rows))]
    losses, doubts = zip(*pairs, strict=True)
    return np.array(losses), np.array(doubts)


def _exact(state: State, rows: Rows, place: int) -> tuple[float, float]:
    row, rest = rows.take(np.array([place])), rows.without(np.array([place]))
    objective = state.objective.after(rest.total_weight / state.anchor_weight)
    try:
        solution = minimise(objective, rest, start=state.anchor)
        require_converged(objective, rest, solution=solution)
    except ExpungeError:
        return np.nan, 0.0
    loss, theta = objective.loss, solution.theta
    curvature = loss_hessian(loss, rest, theta=theta) / rest.total_weight
    H = add_quadratic(objective, curvature).dense()
    t = row.dense() @ theta
    # The oracle is a solver too; to first order it is this far from the minimiser.
    off = solution.residual * float(row.norms()[0]) / np.linalg.eigvalsh(H)[0]
    doubt = float(np.abs(loss.slope(row.y, t))[0]) * off + off**2
    return float(loss.value(row.y, t)[0]), 2.0 * doubt + 1e-15


def errors_and_bounds(
    oracle: tuple[Vector, Vector], found: LooResult
) -> tuple[Vector, Vector]:
    """Return errors and their bounds, for the rows without which there is a model.

    The bound does not have to pay for the oracle's own error.
    """
    losses, doubts = oracle
    there = np.isfinite(losses)
    errors = np.maximum(np.abs(found.losses - losses) - doubts, 0.0)
    return errors[there], found.error_bounds[there]


def violated(state: State, rows: Rows, found: LooResult) -> int:
    """Return how many losses are further off than their bounds allow."""
    errors, bounds = errors_and_bounds(exact(state, rows), found)
    return int((errors > bounds).sum())


def problem(
    objective: Objective,
    rng: np.random.Generator,
    n_samples: int = 40,
    weighted: bool = False,
) -> Rows:
    """Return rows of a model that a linear one half explains."""
    names = {type(LOSSES[name][0]): name for name in ONE_OUTPUT}
    X, y = labelled(names[type(objective.loss)], rng, n_samples)
    weight = rng.uniform(0.2, 3.0, size=n_samples) if weighted else None
    return objective.rows(X, y, weight)


SMOOTH: dict[str, tuple[Loss, dict[str, Any]]] = {
    "logistic": (Logistic(), {}),
    "logistic with a free intercept": (Logistic(), {"intercept": True}),
    "logistic with a penalised intercept": (
        Logistic(),
        {"intercept": True, "penalize_intercept": True},
    ),
    "squared with a free intercept": (HalfSquared(), {"intercept": True}),
    "huber with a free intercept": (Huber(), {"intercept": True}),
    "squared hinge": (LOSSES["squared_hinge"][0], {}),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_models_against_a_fit_without_each_row(
    name: str, scaling: Scaling, weighted: bool, rng: np.random.Generator
) -> None:
    loss, options = SMOOTH[name]
    objective = Objective(loss, L2(), 0.03, scaling=scaling, **options)
    rows = problem(objective, rng, weighted=weighted)
    state = fitted(learn(objective, rows))
    found = leave_one_out(state, rows)
    assert violated(state, rows, found) == 0
    assert (found.error_bounds <= loo.WIDE * (1.0 + found.losses)).all()
    assert loss.curvature_jump > 0.0 or found.error_bounds.max() < 1e-4
    assert np.median(found.error_bounds) < 1e-8


KINKED = {
    "l1 and ridge": (L1(), 0.02),
    "elastic net": (PENALTIES["elastic_net"], 0.0),
    "l1 alone": (L1(), 0.0),
}


@pytest.mark.parametrize("loss", ONE_OUTPUT)
@pytest.mark.parametrize("name", KINKED)
def test_kinked_models_against_a_fit_without_each_row(
    name: str, loss: str, rng: np.random.Generator
) -> None:
    penalty, ridge = KINKED[name]
    objective = Objective(LOSSES[loss][0], penalty, 0.03, ridge, intercept=True)
    rows = problem(objective, rng, 60)
    state = fitted(learn(objective, rows))
    found = leave_one_out(state, rows)
    assert violated(state, rows, found) == 0
    assert found.error_bounds.max() < 1e-2
    assert np.median(found.error_bounds) < 1e-8


def test_rows_whose_support_changes_are_followed(rng: np.random.Generator) -> None:
    # At this alpha a coefficient is about to enter: single rows decide on it.
    objective = Objective(HalfSquared(), L1(), 0.3)
    rows = problem(objective, rng, 50)
    summary = learn(objective, rows)
    entering = np.abs(summary.gradient)[summary.theta == 0.0]
    objective = replace(objective, alpha=float(entering.max()) * (1.0 + 1e-6))
    state = fitted(learn(objective, rows))
    found = leave_one_out(state, rows)
    supports = {
        tuple(minimise(objective, rows.without(np.array([i]))).theta != 0.0)
        for i in range(len(rows))
    }
    assert len(supports) > 1
    assert violated(state, rows, found) == 0
    assert found.error_bounds.max() < 1e-9


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("loss", ONE_OUTPUT)
def test_rows_already_removed_and_a_solver_stopped_early(
    loss: str, scaling: Scaling, rng: np.random.Generator
) -> None:
    objective = Objective(LOSSES[loss][0], L2(), 0.03, scaling=scaling)
    rows, gone = problem(objective, rng, 60), np.arange(9)
    early = minimise(objective, rows, stop=Stop(2)).theta
    state = Newton().init(summarise(objective, rows, theta=early))
    for removed in np.array_split(gone, 3):
        state = Newton().update(state, rows.take(removed))
    found = leave_one_out(state, rows.without(gone))
    assert violated(state, rows.without(gone), found) == 0
    assert np.median(found.error_bounds) < 1e-6


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("weighted", [False, True])
def test_squared_loss_is_exact(
    scaling: Scaling, weighted: bool, rng: np.random.Generator
) -> None:
    objective = Objective(HalfSquared(), L2(), 0.01, scaling=scaling, intercept=True)
    rows = problem(objective, rng, 50, weighted)
    state = fitted(learn(objective, rows))
    found, (losses, _) = leave_one_out(state, rows), exact(state, rows)
    assert np.allclose(found.losses, losses, rtol=1e-9, atol=1e-14)
    assert (found.error_bounds <= 1e-9 * (1.0 + losses)).all()


def test_ridge_regression_agrees_with_the_hat_matrix_over_several_blocks(
    rng: np.random.Generator,
) -> None:
    objective = Objective(HalfSquared(), L2(), 0.01, scaling="sum")
    rows = problem(objective, rng, 2100)
    found = leave_one_out(fitted(learn(objective, rows)), rows)
    X, penalty = rows.dense(), 0.01 * len(rows) * np.eye(6)
    hat = X @ np.linalg.solve(X.T @ X + penalty, X.T)
    press = (rows.y - hat @ rows.y) / (1.0 - hat.diagonal())
    assert np.allclose(found.losses, 0.5 * press**2, rtol=1e-9, atol=1e-14)
    assert abs(found.value - 0.5 * np.mean(press**2)) <= found.error_bound < 1e-8


def random_case(loss: str, penalty: str, seed: int) -> tuple[State, Rows]:
    """Return a small random problem with all that could break an error bound."""
    rng = np.random.default_rng([seed, *f"{loss}-{penalty}".encode()])
    mu, kinked = float(10.0 ** rng.uniform(-4.0, -1.0)), penalty != "l2"
    intercept = bool(rng.random() < 0.5)
    objective = Objective(
        LOSSES[loss][0],
        PENALTIES[penalty],
        alpha=float(10.0 ** rng.uniform(-3.0, -1.0)) if kinked else mu,
        ridge=mu if kinked else 0.0,
        scaling=SCALINGS[seed % 2],
        intercept=intercept,
        penalize_intercept=intercept and bool(rng.random() < 0.5),
    )
    X, y = _design(rng, loss)
    weight = rng.uniform(0.1, 4.0, len(X)) if rng.random() < 0.4 else None
    rows = objective.rows(X, y, weight)
    steps = 3 if rng.random() < 0.2 else 200
    state = Newton().init(
        summarise(
            objective, rows, theta=minimise(objective, rows, stop=Stop(steps)).theta
        )
    )
    gone = np.arange(int(rng.integers(0, 5)))
    return Newton().update(state, rows.take(gone)), rows.without(gone)


def _design(rng: np.random.Generator, loss: str) -> tuple[Matrix, Vector]:
    """Return features: plain, heavy-tailed, copied, ill-conditioned or small."""
    X, _ = labelled(loss, rng, int(rng.integers(14, 28)))
    kind = rng.choice(["plain", "heavy", "copies", "flat", "small"])
    if kind == "heavy":
        X *= rng.standard_t(2.0, size=(len(X), 1))
    elif kind == "copies":
        X[len(X) // 2 :] = X[: len(X) - len(X) // 2]
    elif kind == "flat":
        X = X[:, :2] @ rng.normal(size=(2, 6)) + 1e-4 * X
    elif kind == "small":
        X *= 0.05
    return X, LOSSES[loss][1](rng, X @ rng.normal(size=(6, 1)))


@pytest.mark.parametrize("penalty", SEPARABLE)
@pytest.mark.parametrize("loss", ONE_OUTPUT)
def test_no_random_case_breaks_an_error_bound(
    loss: str, penalty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = []
    for seed in range(18):
        state, rows = random_case(loss, penalty, seed)
        oracle = exact(state, rows)
        # Solved only, then refined, then refitted.
        for most, refits in ((0, 0), (512, 0), (512, 32)):
            monkeypatch.setattr(loo, "MOST_REFINED", most)
            monkeypatch.setattr(loo, "MOST_REFITTED", refits)
            errors, bounds = errors_and_bounds(oracle, leave_one_out(state, rows))
            assert (errors <= bounds).all()
        pairs.append((errors, bounds))
    errors, bounds = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    assert errors.size > 200
    assert np.median(bounds) < 1e-6
    # How loose the bounds are that do not consist of rounding alone.
    seen = errors > 1e-10
    if np.count_nonzero(seen) > 20:
        assert np.median(bounds[seen] / errors[seen]) < 30.0


def _solve_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refine and refit no row."""
    monkeypatch.setattr(loo, "MOST_REFINED", 0)
    monkeypatch.setattr(loo, "MOST_REFITTED", 0)


MUTANTS: dict[str, tuple[str, Any, str, Any]] = {
    "no third-order term": ("logistic", loo_bounds, "_psi", np.zeros_like),
    "a curvature that never jumps": (
        "huber",
        loo_bounds,
        "_moves_near_kinks",
        lambda shared, kinks, *, gone, S: np.full((len(S), kinks.index.size), -np.inf),
    ),
    "no residual": (
        "half_squared",
        loo_bounds,
        "residual_norms",
        lambda shared, geometry, *, models: models.rounding / np.sqrt(geometry.floor),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, module, attribute, value = MUTANTS[name]
    _solve_only(monkeypatch)
    # One step alone: with weights under "mean" scaling it leaves a residual.
    monkeypatch.setattr(loo_problems, "REPEATS", 1)
    objective = Objective(LOSSES[loss][0], L2(), 0.05, intercept=True)
    rows = problem(objective, np.random.default_rng(5), 120, weighted=True)
    state = fitted(learn(objective, rows))
    sound = leave_one_out(state, rows)
    assert violated(state, rows, sound) == 0
    assert np.isfinite(sound.error_bounds).any()
    monkeypatch.setattr(module, attribute, value)
    assert violated(state, rows, leave_one_out(state, rows)) >= 10


def test_a_measured_gradient_must_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loo, "REFINING_STEPS", 0)
    monkeypatch.setattr(loo, "MOST_REFITTED", 0)
    objective = Objective(Logistic(), L2(), 0.05, intercept=True)
    rows = problem(objective, np.random.default_rng(5), 60)
    state = fitted(learn(objective, rows))
    assert violated(state, rows, leave_one_out(state, rows)) == 0
    monkeypatch.setattr(
        loo_bounds,
        "residual_norms",
        lambda shared, geometry, *, models: models.rounding / np.sqrt(geometry.floor),
    )
    assert violated(state, rows, leave_one_out(state, rows)) >= 10


def test_refining_and_refitting_narrow_the_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objective = Objective(Huber(), L2(), 0.01, intercept=True)
    rows = problem(objective, np.random.default_rng(6), 60)
    state = fitted(learn(objective, rows))
    every = leave_one_out(state, rows)
    monkeypatch.setattr(loo, "MOST_REFITTED", 0)
    without_refits = leave_one_out(state, rows)
    _solve_only(monkeypatch)
    first = leave_one_out(state, rows)
    assert every.error_bound <= without_refits.error_bound <= first.error_bound
    assert every.error_bound < 1e-3 * first.error_bound
    assert violated(state, rows, first) == violated(state, rows, without_refits) == 0


def test_agrees_with_scikit_learn(cancer: tuple[Matrix, Vector]) -> None:
    X, y = cancer[0][:80], cancer[1][:80]
    model = LogisticRegression(alpha=0.01, scaling="sum").fit(X, y)
    reference = Reference(
        C=1.0 / (0.01 * len(X)), solver="newton-cholesky", tol=1e-10, max_iter=1000
    )
    scores = cross_val_score(reference, X, y, cv=LeaveOneOut(), scoring=_log_loss)
    found = loo_error(model)
    assert np.allclose(found.losses, scores, rtol=1e-6, atol=1e-8)
    assert abs(found.value - scores.mean()) <= found.error_bound + 1e-7
    assert found.error_bound < 1e-4


def _log_loss(model: Any, X: Matrix, y: Vector) -> float:
    """Return the one row's loss; scikit-learn's own wants both classes."""
    column = int(np.flatnonzero(model.classes_ == y[0])[0])
    return -float(model.predict_log_proba(X)[0, column])


def test_what_is_not_supported_says_what_to_use(rng: np.random.Generator) -> None:
    several = Objective(LOSSES["multinomial"][0], L2(), 0.1)
    rows = several.rows(*labelled("multinomial", rng, 30))
    with pytest.raises(Unsupported, match="K-fold"):
        leave_one_out(fitted(learn(several, rows)), rows)
    grouped = Objective(HalfSquared(), PENALTIES["group_lasso"], 0.1)
    rows = problem(grouped, rng)
    with pytest.raises(Unsupported, match="GroupLasso"):
        leave_one_out(fitted(learn(grouped, rows)), rows)
    plain = Objective(HalfSquared(), L2(), 0.1)
    blind = Newton(certified=False).init(learn(plain, rows))
    with pytest.raises(Unsupported, match="certified=True"):
        leave_one_out(blind, rows)


def test_rows_must_be_those_that_remain(rng: np.random.Generator) -> None:
    objective = Objective(Logistic(), L2(), 0.1)
    rows = problem(objective, rng)
    state = Newton().init(learn(objective, rows))
    with pytest.raises(InvalidInput, match="not those that remain"):
        leave_one_out(state, rows.take(np.arange(9)))
    with pytest.raises(InvalidInput, match="row_norm"):
        leave_one_out(state, rows, row_norm=0.1)
    alone = objective.rows(rows.dense()[:1], rows.y[:1])
    with pytest.raises(CannotRemove):
        leave_one_out(fitted(learn(objective, alone)), alone)


def test_a_row_without_which_there_is_no_model_has_no_bound() -> None:
    # The last of its class: without it the free intercept runs away.
    X, y = np.linspace(-1.0, 1.0, 12)[:, None], np.ones(12)
    y[0] = -1.0
    objective = Objective(Logistic(), L2(), 0.1, intercept=True)
    rows = objective.rows(X, y)
    found = leave_one_out(fitted(learn(objective, rows)), rows)
    assert found.error_bounds[0] == np.inf
    assert np.isfinite(found.error_bounds[1:]).all()
    assert found.error_bound == np.inf
    assert np.isfinite(found.value)


def test_more_columns_than_rows_without_ridge(rng: np.random.Generator) -> None:
    objective = Objective(HalfSquared(), L1(), 0.2)
    X = rng.normal(size=(12, 20))
    rows = objective.rows(X, X[:, 0] + 0.1 * rng.normal(size=12))
    state = fitted(learn(objective, rows))
    found = leave_one_out(state, rows)
    losses, _ = exact(state, rows)
    assert np.allclose(found.losses, losses, rtol=1e-6, atol=1e-9)
    assert (found.error_bounds == np.inf).all()


def test_weightless_rows_widen_nothing(rng: np.random.Generator) -> None:
    objective = Objective(Logistic(), L2(), 0.05, intercept=True)
    rows = problem(objective, rng)
    weight = np.where(np.arange(len(rows)) < 5, 0.0, 1.0)
    rows = replace(rows, weight=weight)
    state = fitted(learn(objective, rows))
    found = leave_one_out(state, rows)
    assert violated(state, rows, found) == 0
    few = rows.take(np.arange(5, len(rows)))
    other = leave_one_out(fitted(learn(objective, few)), few)
    assert abs(found.value - other.value) <= found.error_bound + other.error_bound


def test_sparse_rows_give_the_same(rng: np.random.Generator) -> None:
    objective = Objective(Logistic(), L2(), 0.05, intercept=True)
    X, y = labelled("logistic", rng, 50)
    X[np.abs(X) < 0.7] = 0.0
    dense, thin = objective.rows(X, y), objective.rows(sparse.csr_array(X), y)
    one = leave_one_out(fitted(learn(objective, dense)), dense)
    other = leave_one_out(fitted(learn(objective, thin)), thin)
    assert (
        np.abs(one.losses - other.losses) <= one.error_bounds + other.error_bounds
    ).all()
    assert other.error_bound < 1e-4


def test_a_declared_norm_widens_the_first_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _solve_only(monkeypatch)
    objective = Objective(Logistic(), L2(), 0.5)
    rows = problem(objective, np.random.default_rng(7), 80)
    state = fitted(learn(objective, rows))
    own = leave_one_out(state, rows)
    declared = leave_one_out(state, rows, row_norm=2.0 * float(rows.norms().max()))
    assert (declared.error_bounds >= own.error_bounds).all()


def test_nothing_is_shown_or_travels(rng: np.random.Generator) -> None:
    objective = Objective(HalfSquared(), L2(), 0.1)
    rows = problem(objective, rng)
    found = leave_one_out(fitted(learn(objective, rows)), rows)
    assert repr(found) == "LooResult(private)"
    with pytest.raises(TypeError, match="private"):
        copy.deepcopy(found)
