# SPDX-License-Identifier: Apache-2.0
"""Wide models: the solver by products, its preconditioners and the working sets."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import hadamard

from benchmarks.wide.data import generate_embeddings
from benchmarks.wide.settings import DenseShape
from expunge import (
    L1,
    L2,
    ElasticNet,
    GroupLasso,
    HalfSquared,
    Logistic,
    Multinomial,
    NuclearNorm,
    Objective,
    OneVsRest,
    Rows,
)
from expunge.core import preconditioner, solver
from expunge.core.arrays import Vector, norm
from expunge.core.losses import Loss
from expunge.core.measurement import HessianProduct, Point, measure
from expunge.core.objective import add_quadratic
from expunge.core.penalties import Penalty
from expunge.core.preconditioner import (
    Curved,
    GramPreconditioner,
    Preconditioner,
    make_preconditioner,
)
from expunge.core.solver import minimise, minimise_by_products, minimise_wide
from expunge.core.sums import coupling_sum, loss_gradient, loss_hessian, row_sizes
from tests.instances import LOSSES, labelled

SMOOTH = ("logistic", "half_squared", "multinomial", "multi_output", "one_vs_rest")
KINKS: dict[str, Penalty] = {
    "l1": L1(),
    "elastic_net": ElasticNet(0.7),
    "group_lasso": GroupLasso(np.arange(30) // 3),
    "nuclear_norm": NuclearNorm(),
}


def _problem(
    name: str, *, penalty: Penalty | None = None, intercept: bool = True
) -> tuple[Objective, Rows]:
    """Return a problem that is sparse, with weights, some of them zero."""
    rng = np.random.default_rng(3)
    X, y = labelled(name, rng, 300)
    X[np.abs(X) < 0.4] = 0.0
    objective = Objective(
        LOSSES[name][0],
        L2() if penalty is None else penalty,
        alpha=0.02,
        ridge=0.0 if penalty is None else 0.01,
        intercept=intercept,
    )
    weight = rng.integers(0, 4, size=300)
    return objective, objective.rows(sparse.csr_array(X), y, weight)


def _start(objective: Objective, rows: Rows) -> Point:
    size = rows.X.shape[1] * objective.loss.outputs
    return measure(objective, rows, theta=np.zeros(size))


def _curved(at: Point, rows: Rows) -> Curved:
    """Return how the predictors are curved on average."""
    assert at.seen is not None
    return Curved.of(at.seen, rows.total_weight)


@pytest.mark.parametrize("name", LOSSES)
def test_one_pass_tells_what_several_would(name: str, rng: np.random.Generator) -> None:
    objective, rows = _problem(name)
    loss, total = objective.loss, rows.total_weight
    theta = rng.normal(size=rows.X.shape[1] * loss.outputs)
    at = measure(objective, rows, theta=theta)
    value, slopes = loss_gradient(loss, rows, theta=theta)
    assert at.value == pytest.approx(value / total + objective.penalty_value(theta))
    assert at.seen is not None
    np.testing.assert_allclose(at.seen.gradient, slopes, atol=1e-11)
    quadratic = objective.quadratic_gradient(theta)
    np.testing.assert_allclose(at.gradient, slopes / total + quadratic, atol=1e-13)
    # Cauchy and Schwarz: never less than the sum of products it bounds.
    slope, steepness, square, _, _ = row_sizes(loss, rows, theta=theta)
    assert at.seen.steepness == pytest.approx(steepness)
    assert np.sqrt(at.seen.steepness * square) >= slope - 1e-11


@pytest.mark.parametrize("name", LOSSES)
def test_products_are_those_of_the_hessian(name: str, rng: np.random.Generator) -> None:
    objective, rows = _problem(name)
    theta = rng.normal(size=rows.X.shape[1] * objective.loss.outputs)
    at, v = measure(objective, rows, theta=theta), rng.normal(size=theta.size)
    dense = loss_hessian(objective.loss, rows, theta=theta).dense()
    assert at.hessian is not None and at.seen is not None
    np.testing.assert_allclose(at.hessian @ v, dense @ v, atol=1e-10)
    np.testing.assert_allclose(at.hessian.diagonal(), dense.diagonal(), atol=1e-10)
    k = objective.loss.outputs
    blocks = dense.reshape(len(theta) // k, k, -1, k)
    # The last column is one for every row: its block is the sum of the curvatures.
    np.testing.assert_allclose(at.seen.curvature, blocks[-1, :, -1, :], atol=1e-10)
    if at.seen.intercept_columns is not None:
        intercept_columns = np.einsum("jcc->jc", blocks[:, :, -1, :])
        np.testing.assert_allclose(
            at.seen.intercept_columns, intercept_columns, atol=1e-10
        )


@pytest.mark.parametrize("widest", [2048, 2], ids=["gram", "diagonal"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", SMOOTH)
def test_products_find_the_minimiser(
    name: str, intercept: bool, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preconditioner, "WIDEST_GRAM", widest)
    objective, rows = _problem(name, intercept=intercept)
    found = minimise_by_products(
        objective, rows, start=_start(objective, rows), goal=1e-11
    )
    assert norm(found.at.gradient) <= 1e-11
    expected = minimise(objective, rows).theta
    np.testing.assert_allclose(found.at.theta, expected, atol=1e-8)


def test_a_search_shortens_steps_that_overshoot() -> None:
    # Far from the minimiser of nearly separable classes a full step goes too far.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5)) * 30.0
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
    objective = Objective(Logistic(), L2(), 1e-6)
    rows = objective.rows(X, y)
    start = measure(objective, rows, theta=np.full(5, -3.0))
    found = minimise_by_products(objective, rows, start=start, goal=1e-10)
    assert norm(found.at.gradient) <= 1e-10
    assert found.n_steps < solver.MAX_STEPS


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_gram_preconditioner_inverts_what_is_curved_alike(
    outputs: int, intercept: bool, rng: np.random.Generator
) -> None:
    # Squared loss: the Hessian is G kron I, with or without a free intercept.
    objective = Objective(HalfSquared(outputs), L2(), 0.3, intercept=intercept)
    X = rng.normal(size=(80, 4)) + 2.0
    y = rng.normal(size=(80, outputs) if outputs > 1 else 80)
    rows = objective.rows(X, y, rng.random(80))
    at = _start(objective, rows)
    made = make_preconditioner(objective, rows, at=at)
    loss = loss_hessian(objective.loss, rows, theta=at.theta) / rows.total_weight
    H, v = add_quadratic(objective, loss), rng.normal(size=at.theta.size)
    curved = _curved(at, rows)
    np.testing.assert_allclose(made.at(objective, curved)(H @ v), v, atol=1e-9)
    # So one step of it is the minimiser.
    theta = made.advance(objective, at.theta, gradient=at.gradient, curved=curved)
    there = measure(objective, rows, theta=theta)
    assert norm(there.gradient) <= 1e-12


@pytest.mark.parametrize("intercept", [True, False])
def test_columns_that_share_a_mean_row_alone_need_no_matrix(
    intercept: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preconditioner, "WIDEST_GRAM", 2)
    objective = Objective(Multinomial(3), L2(), 0.3, intercept=intercept)
    signs = hadamard(8)[:, 1:6] * [1.0, 2.0, 0.5, 1.0, 3.0]
    X = sparse.csr_array(signs + intercept * rng.normal(size=5))
    rows = objective.rows(X, np.arange(8) % 3)
    at = _start(objective, rows)
    made = make_preconditioner(objective, rows, at=at)
    loss = loss_hessian(objective.loss, rows, theta=at.theta) / rows.total_weight
    # No row feels the sum of the outputs, and no gradient has any.
    table = rng.normal(size=(rows.n_columns, 3))
    v = (table - table.mean(axis=1, keepdims=True)).ravel()
    H = add_quadratic(objective, loss)
    solved = made.at(objective, _curved(at, rows))(H @ v)
    np.testing.assert_allclose(solved, v, atol=1e-9)


@pytest.mark.parametrize("widest", [2048, 2], ids=["gram", "diagonal"])
@pytest.mark.parametrize("name", ["multinomial", "one_vs_rest"])
def test_preconditioners_are_symmetric_and_positive(
    name: str, widest: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preconditioner, "WIDEST_GRAM", widest)
    objective, rows = _problem(name)
    at = measure(
        objective, rows, theta=rng.normal(size=_start(objective, rows).theta.size)
    )
    made = make_preconditioner(objective, rows, at=at)
    solve = made.at(objective, _curved(at, rows))
    matrix = np.array([solve(unit) for unit in np.eye(at.theta.size)])
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-9 * np.abs(matrix).max())
    assert np.linalg.eigvalsh(matrix).min() > 0.0


@pytest.mark.parametrize("name", ["logistic", "multinomial", "one_vs_rest"])
def test_free_intercepts_are_solved_for_with_their_columns(
    name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The Hessian's columns of the intercepts are exact if all rows are summed.
    def all_rows(loss: Loss, rows: Rows, *, theta: Vector, every: int) -> Any:
        assert every == loss.outputs
        return coupling_sum(loss, rows, theta=theta, every=1)

    monkeypatch.setattr(preconditioner, "coupling_sum", all_rows)
    objective, rows = _problem(name)
    assert objective.n_free
    theta = rng.normal(size=_start(objective, rows).theta.size)
    at = measure(objective, rows, theta=theta)
    made = make_preconditioner(objective, rows, at=at)
    solve = made.near(objective, rows, at=at).at(objective, _curved(at, rows))
    assert at.hessian is not None
    for free in range(theta.size - objective.n_free, theta.size):
        unit = np.zeros(theta.size)
        unit[free] = 1.0
        column = (at.hessian @ unit) / rows.total_weight
        column += objective.quadratic_gradient(unit)
        np.testing.assert_allclose(solve(column), unit, atol=1e-9)


def _embedded() -> tuple[Objective, Rows]:
    """Return a softmax over rows with a spectrum like that of embeddings."""
    data = generate_embeddings(DenseShape(6000, 6, 40))
    objective = Objective(Multinomial(6), L2(), alpha=1e-3, intercept=True)
    return objective, objective.rows(data.X, data.y)


def test_some_rows_tell_enough_of_the_intercepts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objective, rows = _embedded()
    counted: list[int] = []
    product = HessianProduct.__matmul__

    def count(self: HessianProduct, v: Vector) -> Vector:
        counted[-1] += 1
        return product(self, v)

    monkeypatch.setattr(HessianProduct, "__matmul__", count)
    for near in (GramPreconditioner.near, Preconditioner.near):
        monkeypatch.setattr(GramPreconditioner, "near", near)
        counted.append(0)
        start = _start(objective, rows)
        found = minimise_by_products(objective, rows, start=start, goal=1e-10)
        assert found.residual <= 1e-10
    with_them, without = counted
    assert without > 1.4 * with_them


def test_what_rows_told_of_the_intercepts_is_kept_while_it_holds() -> None:
    objective, rows = _embedded()
    start = _start(objective, rows)
    made = make_preconditioner(objective, rows, at=start)
    assert made.near(objective, rows, at=start) is made  # all rows are curved alike
    solution = minimise_by_products(objective, rows, start=start, goal=1e-8)
    far = made.near(objective, rows, at=solution.at)
    assert far is not made
    at = measure(objective, rows, theta=0.99 * solution.theta)
    assert far.near(objective, rows, at=at) is far
    elsewhere = measure(objective, rows, theta=0.3 * at.theta)
    assert far.near(objective, rows, at=elsewhere) is not far


def test_the_largest_eigenvalue_is_bounded_from_above(rng: np.random.Generator) -> None:
    for intercept in (True, False):
        objective = Objective(Multinomial(3), L2(), 0.1, intercept=intercept)
        X = rng.normal(size=(50, 6)) + 1.0
        rows = objective.rows(X, rng.integers(0, 3, size=50))
        at = _start(objective, rows)
        made = make_preconditioner(objective, rows, at=at)
        true = np.linalg.eigvalsh(X.T @ X / 50)[-1]
        assert true <= made.largest_eigenvalue <= 2.0 * true


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    ("loss", "kink"),
    [
        (loss, kink)
        for loss in (Logistic(), Multinomial(3), OneVsRest(3))
        for kink in KINKS
        if loss.outputs > 1 or kink != "nuclear_norm"
    ],
    ids=str,
)
def test_the_working_set_finds_the_minimiser(
    loss: Logistic | Multinomial | OneVsRest, kink: str, intercept: bool
) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 30)) * (rng.random((200, 30)) < 0.3)
    eta = X[:, :4] @ rng.normal(size=(4, loss.outputs)) * 3.0
    if loss.outputs == 1:
        y = np.where(eta[:, 0] + rng.logistic(size=200) > 0.0, 1.0, -1.0)
    else:
        y = np.argmax(eta + rng.gumbel(size=eta.shape), axis=1).astype(float)
    objective = Objective(loss, KINKS[kink], 0.02, ridge=0.01, intercept=intercept)
    rows = objective.rows(sparse.csr_array(X), y)
    found = minimise_wide(objective, rows, start=_start(objective, rows), goal=1e-10)
    assert found.residual <= 1e-10
    expected = minimise(objective, rows).theta
    np.testing.assert_allclose(found.at.theta, expected, atol=1e-7)
    # What led there leads on: a step from near the minimiser ends nearer.
    assert found.short_cut is not None
    end = expected.size - objective.n_free
    near = found.at.theta.copy()
    near[:end] *= 1.001
    at = measure(objective, rows, theta=near)
    step = found.short_cut.advance(
        objective, near, gradient=at.gradient, curved=_curved(at, rows)
    )
    assert norm(step - expected) <= 0.1 * norm(near - expected)


class TestHessiansOfSmallProblems:
    """They take nearly all the time, so that none is made that need not be."""

    @pytest.fixture
    def made(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The sizes of the Hessians made."""
        sizes: list[int] = []
        real = solver.hessian_model

        def counted(objective: Objective, rows: Rows, *, theta: Vector) -> Any:
            sizes.append(theta.size)
            return real(objective, rows, theta=theta)

        monkeypatch.setattr(solver, "hessian_model", counted)
        return sizes

    def _text(self) -> tuple[Objective, Rows]:
        rng = np.random.default_rng(5)
        X: Any = sparse.random_array((2000, 400), density=0.05, rng=rng, format="csr")
        chance = X[:, :20] @ rng.normal(size=20) + 0.2 * rng.logistic(size=2000)
        objective = Objective(Logistic(), L1(), alpha=3e-3, ridge=1e-3)
        return objective, objective.rows(X, np.where(chance > 0, 1, -1))

    def test_a_round_takes_over_that_of_the_one_before(self, made: list[int]) -> None:
        objective, rows = self._text()
        start = _start(objective, rows)
        roughly = minimise_wide(objective, rows, start=start, goal=1e-7)
        n_roughly = len(made)
        found = minimise_wide(objective, rows, start=start, goal=1e-11)
        assert found.n_steps > roughly.n_steps
        assert len(made) == 2 * n_roughly
        assert found.residual <= 1e-11

    def test_a_request_takes_over_that_of_the_answer(self, made: list[int]) -> None:
        objective, rows = self._text()
        start = _start(objective, rows)
        found = minimise_wide(objective, rows, start=start, goal=1e-10)
        made.clear()
        left = rows.without(np.arange(5))
        at, short_cut = measure(objective, left, theta=found.at.theta), found.short_cut
        again = minimise_wide(
            objective, left, start=at, goal=1e-10, short_cut=short_cut
        )
        assert again.n_steps > 0 and not made
        np.testing.assert_allclose(
            again.at.theta, minimise(objective, left).theta, atol=1e-8
        )

    def test_one_of_another_objective_is_not_taken_over(self, made: list[int]) -> None:
        objective, rows = self._text()
        start = _start(objective, rows)
        found = minimise_wide(objective, rows, start=start, goal=1e-10)
        made.clear()
        heavier = replace(objective, alpha=1.01 * objective.alpha)
        at = measure(heavier, rows, theta=found.at.theta)
        again = minimise_wide(
            heavier, rows, start=at, goal=1e-10, short_cut=found.short_cut
        )
        assert made
        assert again.residual <= 1e-10


@pytest.mark.parametrize("kink", KINKS)
def test_subgradients_are_valid_and_nearest(
    kink: str, rng: np.random.Generator
) -> None:
    penalty = KINKS[kink]
    theta = rng.normal(size=(30, 3))
    theta[6:] = 0.0
    if kink == "nuclear_norm":
        theta = np.outer(rng.normal(size=30), rng.normal(size=3))
    near = rng.normal(size=theta.shape) * 2.0
    nu = penalty.subgradient(theta, near)
    for _ in range(200):
        other = theta + rng.normal(size=theta.shape) * 10.0 ** rng.uniform(-3, 1)
        rise = penalty.kink(other) - penalty.kink(theta)
        assert rise >= float(np.vdot(nu, other - theta)) - 1e-9
    # A projection: the way on to ``near`` leaves the set of subgradients.
    for share in (0.5, 1.0):
        other = nu + share * (penalty.subgradient(theta, -near) - nu)
        assert np.linalg.norm(nu - near) <= np.linalg.norm(other - near) + 1e-12
