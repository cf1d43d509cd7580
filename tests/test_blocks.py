# SPDX-License-Identifier: Apache-2.0
"""Blocks: what a dense matrix gives, and k binary models side by side."""

import copy
import pickle
from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest

from expunge import (
    L1,
    L2,
    Budget,
    HalfSquared,
    Jackknife,
    Logistic,
    LogisticRegression,
    Newton,
    Objective,
    OneVsRest,
    Rows,
    SquaredHinge,
    learn,
    summarise,
)
from expunge.core import linalg
from expunge.core.arrays import Matrix, Vector, norm
from expunge.core.linalg import Symmetric, weighted_sum
from expunge.core.losses import Loss
from expunge.core.packing import pack, unpack
from expunge.core.penalties import ElasticNet, GroupLasso, NuclearNorm, Penalty
from expunge.core.prox import model_residual, scaled_prox
from expunge.core.solver import scaled_kink
from expunge.exceptions import NotPositiveDefinite
from expunge.linear_model.base import private_model
from expunge.promise import radius
from expunge.promise.floor import curvature_floor, quick_floor
from expunge.promise.radius import Radii, best_radius, third_order_bound
from expunge.promise.rounding import Rounding
from expunge.removal import Draft, Mechanism, State, state_size
from expunge.removal.newton import (
    NewtonCache,
    gram_product,
    refresh_preconditioner,
    woodbury_rows,
)
from tests.instances import labelled

D, K = 5, 3


@pytest.fixture(params=[linalg.LARGE, 1], ids=["folded", "recent"])
def _folds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small blocks, too, keep recent rows."""
    monkeypatch.setattr(linalg, "LARGE", request.param)


def definite(rng: np.random.Generator) -> Matrix:
    """Return a positive definite matrix of the size of a block."""
    X = rng.normal(size=(4 * D, D))
    return np.asarray(X.T @ X / (4 * D) + 0.1 * np.eye(D))


def drawn(rng: np.random.Generator, *, shared: bool) -> tuple[Symmetric, Matrix]:
    """Return blocks, and the matrix that they make up."""
    stack = np.array([definite(rng) for _ in range(1 if shared else K)])
    full = np.zeros((D, K, D, K))
    for c in range(K):
        full[:, c, :, c] = stack[c % len(stack)]
    return Symmetric.from_dense(stack, K), full.reshape(D * K, D * K)


BOTH = pytest.mark.parametrize("shared", [False, True], ids=["each", "shared"])


@BOTH
@pytest.mark.usefixtures("_folds")
class TestMatrix:
    def test_products_are_those_of_the_dense_matrix(
        self, rng: np.random.Generator, shared: bool
    ) -> None:
        B, A = drawn(rng, shared=shared)
        v, V = rng.normal(size=D * K), rng.normal(size=(D * K, 4))
        assert (B.size, B.width) == (D * K, D)
        np.testing.assert_allclose(B.dense(), A)
        np.testing.assert_allclose(B @ v, A @ v)
        np.testing.assert_allclose(B @ V, A @ V)
        np.testing.assert_allclose(B.diagonal, np.diag(A))
        np.testing.assert_allclose((B / 3.0).dense(), A / 3.0)
        np.testing.assert_allclose(B.triangle_norm, np.linalg.norm(np.tril(A)))
        parts: Matrix = B.split(v)
        np.testing.assert_array_equal(B.join(list(parts)), v)
        np.testing.assert_allclose(B.last_rows, [A[-K + c, c::K] for c in range(K)])

    def test_factor_solves_and_inverts(
        self, rng: np.random.Generator, shared: bool
    ) -> None:
        B, A = drawn(rng, shared=shared)
        v, V = rng.normal(size=D * K), rng.normal(size=(D * K, 4))
        factor, inverse = B.cholesky(), np.linalg.inv(A)
        np.testing.assert_allclose(factor.solve(v), inverse @ v)
        np.testing.assert_allclose(factor.solve(V), inverse @ V)
        np.testing.assert_allclose(factor.inverse().dense(), inverse, atol=1e-12)
        lowered = B.add_diagonal(np.full(B.size, -100.0))
        with pytest.raises(NotPositiveDefinite):
            lowered.cholesky()

    def test_updates_change_the_sum_and_not_the_original(
        self, rng: np.random.Generator, shared: bool
    ) -> None:
        B, A = drawn(rng, shared=shared)
        Z = rng.normal(size=(len(B.blocks), 2, D))
        square = Symmetric.from_dense(Z.swapaxes(1, 2) @ Z, K).dense()
        v = rng.normal(size=D * K)
        twice = B.update(0.5, Z).update(0.5, Z)
        np.testing.assert_allclose(gram_product(Z, v), square @ v)
        np.testing.assert_allclose(twice @ v, (A + square) @ v)
        rows = [block.dense()[-1] for block in twice.per_output]
        np.testing.assert_allclose(twice.last_rows, rows)
        np.testing.assert_allclose(twice.dense(), A + square)
        np.testing.assert_array_equal(B.dense(), A)
        spent = B.copy().update(-0.1, Z, overwrite=True)
        np.testing.assert_allclose(spent.dense(), A - 0.1 * square)

    def test_woodbury_downdates_the_inverse(
        self, rng: np.random.Generator, shared: bool
    ) -> None:
        B, A = drawn(rng, shared=shared)
        for n_rows in (1, 3):
            Z = 0.05 * rng.normal(size=(len(B.blocks), n_rows, D))
            square = Symmetric.from_dense(Z.swapaxes(1, 2) @ Z, K).dense()
            V = woodbury_rows(B.cholesky().inverse(), Z, sign=-1)
            assert V is not None
            found = B.cholesky().inverse().update(1.0, V).dense()
            np.testing.assert_allclose(found, np.linalg.inv(A - square), atol=1e-10)
        Z[-1] *= 1e3
        assert woodbury_rows(B.cholesky().inverse(), Z, sign=-1) is None

    def test_woodbury_updates_the_inverse(
        self, rng: np.random.Generator, shared: bool
    ) -> None:
        B, A = drawn(rng, shared=shared)
        for n_rows, size in ((1, 0.05), (3, 0.05), (3, 50.0)):
            Z = size * rng.normal(size=(len(B.blocks), n_rows, D))
            square = Symmetric.from_dense(Z.swapaxes(1, 2) @ Z, K).dense()
            V = woodbury_rows(B.cholesky().inverse(), Z, sign=1)
            assert V is not None
            found = B.cholesky().inverse().update(-1.0, V).dense()
            np.testing.assert_allclose(found, np.linalg.inv(A + square), atol=1e-10)

    def test_diagonal_may_differ_between_outputs(
        self, rng: np.random.Generator, shared: bool
    ) -> None:
        B, A = drawn(rng, shared=shared)
        same, other = np.repeat(rng.random(D), K), rng.random(D * K)
        assert len(B.add_diagonal(same).blocks) == len(B.blocks)
        for diagonal in (same, other):
            found = B.add_diagonal(diagonal).dense()
            np.testing.assert_allclose(found, A + np.diag(diagonal))

    def test_sums_mix_shared_blocks_with_others(
        self, rng: np.random.Generator, shared: bool
    ) -> None:
        first, second = drawn(rng, shared=shared), drawn(rng, shared=True)
        for one, other in ((first, second), (second, first)):
            found = weighted_sum([(2.0, one[0]), (-0.5, other[0])])
            np.testing.assert_allclose(found.dense(), 2.0 * one[1] - 0.5 * other[1])

    @pytest.mark.parametrize(
        "duplicate",
        [lambda B: pickle.loads(pickle.dumps(B)), copy.deepcopy, Symmetric.copy],
        ids=["pickle", "deepcopy", "copy"],
    )
    def test_copies_and_files_hold_no_removed_row(
        self, rng: np.random.Generator, shared: bool, duplicate: Callable[[Any], Any]
    ) -> None:
        B, _ = drawn(rng, shared=shared)
        B = B.update(-0.01, rng.normal(size=(len(B.blocks), 1, D)))
        arrays: dict[str, Any] = {}
        data = pack(B, "m", arrays=arrays)
        assert [*arrays] == ["m"]
        assert arrays["m"].shape == (len(B.blocks), D * (D + 1) // 2)
        for back in (duplicate(B), unpack(data, arrays)):
            assert type(back) is Symmetric
            assert (back.outputs, len(back.blocks)) == (K, len(B.blocks))
            for old, new in zip(B.blocks, back.blocks, strict=True):
                assert new._parts[1] is None  # no rows beside the triangle
                assert not np.triu(new.lower, 1).any()
                np.testing.assert_array_equal(new.lower, old.lower)
        assert str(B) == f"Symmetric({K} of {D} x {D})"


KINKS: dict[str, Penalty] = {
    "l1": L1(),
    "elastic_net": ElasticNet(0.5),
    "group_lasso": GroupLasso([0, 0, 1, 1]),
    "nuclear_norm": NuclearNorm(),
}


@BOTH
@pytest.mark.parametrize("penalty", KINKS)
@pytest.mark.parametrize("alpha", [0.02, 0.3, 100.0])
def test_prox_is_that_of_the_dense_matrix(
    rng: np.random.Generator, shared: bool, penalty: str, alpha: float
) -> None:
    B, A = drawn(rng, shared=shared)
    # The last of the five columns is a free intercept.
    objective = Objective(OneVsRest(K), KINKS[penalty], alpha, intercept=True)
    kink, b = scaled_kink(objective, 0.7), rng.normal(size=D * K)
    found = scaled_prox(B, b, kink=kink, start=np.zeros(D * K))
    dense = scaled_prox(Symmetric.from_dense(A), b, kink=kink, start=np.zeros(D * K))
    assert model_residual(B, b, minimum=found) <= 1e-11
    np.testing.assert_allclose(found.x, dense.x, atol=1e-10)
    np.testing.assert_allclose(found.subgradient, dense.subgradient, atol=1e-9)
    assert (alpha < 100.0) == bool(found.x[:-K].any())


GONE = np.arange(9)


def one_vs_rest(
    loss: Loss, penalty: Penalty, *, intercept: bool = True
) -> tuple[Objective, Rows]:
    """Return an objective of three classes, and its rows."""
    X, y = labelled("one_vs_rest", np.random.default_rng(3))
    objective = Objective(
        OneVsRest(3, loss), penalty, 0.02, ridge=0.01, intercept=intercept
    )
    return objective, objective.rows(X, y)


def binary(objective: Objective, rows: Rows, code: int) -> tuple[Objective, Rows]:
    """Return the problem of one class against the rest."""
    loss: Any = objective.loss
    own = Objective(
        loss.binary,
        objective.penalty,
        objective.alpha,
        ridge=objective.ridge,
        intercept=objective.intercept,
    )
    y = np.where(rows.y == code, 1.0, -1.0)
    return own, Rows(rows.X, y, rows.weight)


def forget(mechanism: Mechanism, objective: Objective, rows: Rows) -> tuple[Any, ...]:
    """Return the state before and after, and the answer."""
    before = mechanism.init(learn(objective, rows))
    state = before
    for batch in (GONE[:1], GONE[1:3], GONE[3:]):
        state = mechanism.update(state, rows.take(batch))
    return before, *mechanism.step(state)


@pytest.mark.usefixtures("_folds")
@pytest.mark.parametrize("mechanism", [Newton(), Jackknife()], ids=repr)
@pytest.mark.parametrize("penalty", [L2(), L1(), ElasticNet(0.5)], ids=repr)
@pytest.mark.parametrize("loss", [Logistic(), SquaredHinge()], ids=repr)
def test_one_vs_rest_is_binary_models_side_by_side(
    mechanism: Any, penalty: Penalty, loss: Loss
) -> None:
    objective, rows = one_vs_rest(loss, penalty)
    joint = forget(mechanism, objective, rows)
    for code in range(3):
        alone = forget(mechanism, *binary(objective, rows, code))
        for whole, own in zip(joint[:2], alone[:2], strict=True):
            pairs = [(whole.sums.hessian, own.sums.hessian)]
            pairs += [
                (getattr(whole.cache, name, None), getattr(own.cache, name, None))
                for name in ("inverse", "metric")
            ]
            for matrix, part in pairs:
                assert (matrix is None) == (part is None)
                if part is not None:
                    block = matrix.per_output[code]
                    np.testing.assert_allclose(block.dense(), part.dense(), atol=1e-9)
            for name in ("theta", "gradient"):
                vector, part = getattr(whole.sums, name), getattr(own.sums, name)
                np.testing.assert_allclose(vector[code::3], part, atol=1e-9)
        np.testing.assert_allclose(joint[2].theta[code::3], alone[2].theta, atol=1e-10)


@pytest.mark.parametrize("intercept", [False, True])
def test_joint_radius_is_no_larger_than_that_of_one_matrix(intercept: bool) -> None:
    objective, rows = one_vs_rest(Logistic(), L2(), intercept=intercept)
    _, state, draft = forget(Newton(), objective, rows)
    dense = state.replace(
        sums=state.sums.replace(
            hessian=Symmetric.from_dense(state.sums.hessian.dense())
        ),
        cache=NewtonCache(Symmetric.from_dense(state.preconditioner.dense())),
    )
    found = best_radius(state, draft).value
    assert found <= best_radius(dense, draft).value * (1.0 + 1e-9)
    # What it was when the outputs' parts of the third-order term were added up.
    s = (draft.theta - state.anchor).reshape(-1, 3)
    added = 0.5 * objective.loss.third_bound * np.vdot(s, state.sums.moment.dense() @ s)
    assert third_order_bound(Rounding(state), draft.theta - state.anchor) < 0.8 * added


@pytest.mark.parametrize("intercept", [False, True])
def test_third_order_of_each_output_is_its_own(intercept: bool) -> None:
    objective, rows = one_vs_rest(Logistic(), L2(), intercept=intercept)
    _, state, draft = forget(Newton(), objective, rows)
    s = draft.theta - state.anchor
    squares = 0.0
    for code in range(3):
        own, labels = binary(objective, rows, code)
        alone = Newton().update(Newton().init(learn(own, labels)), labels.take(GONE))
        squares += third_order_bound(Rounding(alone), s[code::3]) ** 2
    assert third_order_bound(Rounding(state), s) == pytest.approx(
        sqrt(squares), rel=1e-6
    )


def flat_state(rng: np.random.Generator, alpha: float, shift: float) -> State:
    """Return a state whose rows leave most directions to the penalty."""
    X = rng.normal(size=(12, 30)) + shift
    y = np.arange(12.0) % 3
    objective = Objective(OneVsRest(3), L2(), alpha, intercept=True)
    rows = objective.rows(X, y, rng.uniform(0.5, 2.0, 12))
    state = Newton().init(learn(objective, rows))
    return Newton().update(state, rows.take(np.arange(2)))


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_a_floor_is_near_the_smallest_eigenvalue(seed: int, dense: bool) -> None:
    """Whether it stands apart or among others, found by an inverse or by a factor."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 30)) + (100.0 if seed % 2 else 0.0)
    objective = Objective(Logistic(), L2(), 10.0 ** -(seed % 4 + 1), intercept=True)
    rows = objective.rows(X, np.sign(rng.normal(size=200)))
    state = summarise(objective, rows, theta=1e-3 * rng.normal(size=31))
    least = np.linalg.eigvalsh(state.smooth_hessian().dense())[0]
    state = refresh_preconditioner(state, dense=dense)
    assert 0.97 * least <= curvature_floor(Rounding(state)) <= least


@pytest.mark.parametrize("alpha", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("shift", [0.0, 0.3, 3.0])
def test_quick_floor_is_below_the_smallest_eigenvalue(
    rng: np.random.Generator, alpha: float, shift: float
) -> None:
    for _ in range(10):
        state = flat_state(rng, alpha, shift)
        least = np.linalg.eigvalsh(state.smooth_hessian().dense())[0]
        assert 0.1 * least <= quick_floor(Rounding(state)) <= least


def test_quick_floor_is_reached() -> None:
    # Rows alike but for the intercept: each block is A on v plus one square.
    X, y = np.ones((30, 4)), np.arange(30.0) % 3
    objective = Objective(OneVsRest(3), L2(), 0.1, intercept=True)
    state = Newton().init(learn(objective, objective.rows(X, y)))
    least = np.linalg.eigvalsh(state.smooth_hessian().dense())[0]
    assert quick_floor(Rounding(state)) == pytest.approx(least, rel=1e-9)
    assert quick_floor(Rounding(state)) <= least * (1.0 + 1e-14)


def test_quick_radius_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    objective, rows = one_vs_rest(Logistic(), L2())
    _, state, draft = forget(Newton(), objective, rows)
    R = state.magnitude.row_norm
    quick = Radii(state, draft, R).measured_local(quick=True)
    exact = Radii(state, draft, R).measured_local()
    assert 0.0 < exact < quick < np.inf
    assert best_radius(state, draft).value == exact
    monkeypatch.setattr(radius, "curvature_floor", lambda _: pytest.fail("too dear"))
    assert best_radius(state, draft, enough=quick).value == quick


def test_one_output_has_a_quick_floor_too() -> None:
    objective, rows = binary(*one_vs_rest(Logistic(), L2()), 0)
    _, state, draft = forget(Newton(), objective, rows)
    smallest = np.linalg.eigvalsh(state.smooth_hessian().dense())[0]
    assert 0.0 < quick_floor(Rounding(state)) <= smallest
    radii = Radii(state, draft, state.magnitude.row_norm)
    assert radii.measured_local() < radii.measured_local(quick=True) < np.inf


@pytest.mark.parametrize(
    ("loss", "blocks"), [(OneVsRest(20), 20), (HalfSquared(outputs=20), 1)], ids=repr
)
def test_memory_is_that_of_the_blocks(loss: Loss, blocks: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    y: Vector = rng.normal(size=(60, 20)) if blocks == 1 else np.arange(60.0) % 20
    objective = Objective(loss, L2(), 0.1)
    state = Newton().init(learn(objective, objective.rows(X, y)))
    assert state.sums.hessian is not None
    assert isinstance(state.preconditioner, Symmetric)
    assert (
        state.sums.hessian.n_numbers == state.preconditioner.n_numbers == blocks * 6**2
    )
    vectors = 3 * 6 * 20  # anchor, gradient and the last answer
    assert state_size(state) == (2 * blocks + 1) * 6**2 + vectors


def test_outputs_with_one_block_are_downdated_by_one() -> None:
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(80, 6)), rng.normal(size=(80, 4))
    objective = Objective(HalfSquared(outputs=4), L2(), 0.05, intercept=True)
    rows = objective.rows(X, Y)
    _, state, draft = forget(Newton(), objective, rows)
    assert len(state.sums.hessian.blocks) == len(state.preconditioner.blocks) == 1
    retrained = learn(objective, rows.without(GONE)).anchor
    assert norm(draft.theta - retrained) <= best_radius(state, draft).value <= 1e-9


def test_a_request_copies_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linalg, "LARGE", 1)
    objective, rows = one_vs_rest(Logistic(), L2(), intercept=False)
    state = Newton().init(learn(objective, rows))
    monkeypatch.setattr(
        linalg, "_add_rows", lambda *_, **__: pytest.fail("a block was rewritten")
    )
    for place in range(4):
        state = Newton().update(state, rows.take(np.array([place])))
        state, draft = Newton().step(state, enough=1e-3)
        assert isinstance(draft, Draft)
        assert best_radius(state, draft, enough=1.0).value <= 1.0


def test_a_request_beside_free_intercepts_is_solved_as_far_as_promised() -> None:
    X, y = labelled("one_vs_rest", np.random.default_rng(5), 2000)
    model = LogisticRegression(alpha=0.1, budget=Budget(sigma=1.0), keep_data=False)
    model.fit(X, y).forget(X=X[:1], y=y[:1])
    answer = private_model(model).answer
    assert answer.radius.kind == "measured-local"
    assert answer.draft.residual is not None  # left where the budget is content
    assert 1e-12 < norm(answer.draft.residual)
    kept = LogisticRegression(alpha=0.1, budget=Budget(sigma=1.0)).fit(X[1:], y[1:])
    distance = norm(private_model(kept).answer.draft.theta - answer.draft.theta)
    assert distance <= answer.radius.value <= 0.1
