# SPDX-License-Identifier: Apache-2.0
"""Sums over rows: the same quantity by every route, added in the stated order."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import ceil, fsum, inf, isfinite, log2
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from benchmarks.rescaled import tilted_slopes
from expunge import L2, Objective, Rows
from expunge.core import rows as blocked_rows
from expunge.core import sums
from expunge.core.arrays import Matrix, Vector
from expunge.core.linalg import Symmetric
from expunge.core.losses import Loss
from expunge.core.rows import BLOCK_ROWS, block_max, pairwise_sum
from expunge.exceptions import InvalidInput
from tests.instances import LOSSES, N_FEATURES, labelled

EVERY = pytest.mark.parametrize("name", LOSSES)
BOTH = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])


def _case(name: str, kind: Any, seed: int = 0) -> tuple[Loss, Rows, Vector]:
    rng = np.random.default_rng(seed)
    loss = LOSSES[name][0]
    X, y = labelled(name, rng, 50)
    rows = Objective(loss, L2(), 1.0).rows(kind(X), y, rng.random(50) + 0.5)
    return loss, rows, rng.normal(size=N_FEATURES * loss.outputs)


def _cut(patch: pytest.MonkeyPatch, size: int) -> None:
    """Let blocks have so many rows."""
    for module in (sums, blocked_rows):
        patch.setattr(module, "BLOCK_ROWS", size)


def _slow_hessian(loss: Loss, rows: Rows, theta: Vector) -> Matrix:
    """Return the Hessian row by row, by its definition."""
    k = loss.outputs
    curvature = loss.curvature(rows.y, sums.predict(loss, rows, theta=theta))
    total = np.zeros((theta.size, theta.size))
    for x, c, w in zip(
        rows.dense(), curvature.reshape(-1, k, k), rows.weight, strict=True
    ):
        total += w * np.kron(np.outer(x, x), c)
    return total


def _square(Z: Matrix, loss: Loss) -> Matrix:
    """Return Z'Z of rows, or of the rows of each block."""
    if Z.ndim == 2:
        return np.asarray(Z.T @ Z)
    return Symmetric.from_dense(Z.swapaxes(1, 2) @ Z, loss.outputs).dense()


@EVERY
@BOTH
def test_gradient_by_every_route(name: str, kind: Any) -> None:
    loss, rows, theta = _case(name, kind)
    value, gradient = sums.loss_gradient(loss, rows, theta=theta)
    losses = loss.value(rows.y, sums.predict(loss, rows, theta=theta))
    assert np.isclose(value, rows.weight @ losses)
    assert np.array_equal(gradient, sums.loss_slopes(loss, rows, theta=theta))
    gap = 1e-6 * np.eye(theta.size)
    expected = [
        (
            sums.loss_gradient(loss, rows, theta=theta + e)[0]
            - sums.loss_gradient(loss, rows, theta=theta - e)[0]
        )
        / 2e-6
        for e in gap
    ]
    assert np.allclose(gradient, expected, rtol=1e-5, atol=1e-5)


@EVERY
@BOTH
def test_hessian_by_every_route(name: str, kind: Any) -> None:
    loss, rows, theta = _case(name, kind)
    expected = _slow_hessian(loss, rows, theta)
    found = sums.loss_hessian(loss, rows, theta=theta).dense()
    assert np.allclose(found, expected, atol=1e-11)
    Z = sums.curvature_rows(loss, rows, theta=theta)
    assert np.allclose(_square(Z, loss), expected, atol=1e-11)


@pytest.mark.parametrize("name", ["one_vs_rest", "hinge_classes", "multi_output"])
def test_blocks_are_summed_some_at_a_time(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, rows, theta = _case(name, np.asarray)
    whole = sums.loss_hessian(loss, rows, theta=theta)
    assert len(whole.blocks) == (1 if name == "multi_output" else loss.outputs)
    for at_once in (1, 2):
        monkeypatch.setattr(sums, "SUMMED_AT_ONCE", at_once * N_FEATURES**2)
        some = sums.loss_hessian(loss, rows, theta=theta)
        assert np.array_equal(some.dense(), whole.dense())


@pytest.mark.parametrize(
    "name", [name for name in LOSSES if isfinite(LOSSES[name][0].curvature_bound)]
)
@BOTH
def test_largest_hessian_exceeds_the_hessian_anywhere(name: str, kind: Any) -> None:
    loss, rows, theta = _case(name, kind)
    largest = sums.largest_hessian(loss, rows, theta=theta).dense()
    bound = loss.curvature_bound * (rows.dense().T * rows.weight) @ rows.dense()
    left = np.kron(bound, np.eye(loss.outputs)) - largest
    assert np.linalg.eigvalsh(left)[0] >= -1e-10
    left = largest - _slow_hessian(loss, rows, theta)
    assert np.linalg.eigvalsh(left)[0] >= -1e-10


@pytest.mark.parametrize("name", ["huber", "squared_hinge", "logistic"])
@BOTH
def test_the_objective_lies_below_parabolas_that_touch_it(
    name: str, kind: Any, rng: np.random.Generator
) -> None:
    loss, rows, theta = _case(name, kind)
    largest = sums.largest_hessian(loss, rows, theta=theta).dense()
    value, gradient = sums.loss_gradient(loss, rows, theta=theta)
    for size in (0.1, 1.0, 10.0):
        step = size * rng.normal(size=theta.size)
        there, _ = sums.loss_gradient(loss, rows, theta=theta + step)
        above = value + gradient @ step + 0.5 * step @ largest @ step
        assert there <= above * (1.0 + 1e-12)


@BOTH
def test_norm_moment_by_its_definition(kind: Any) -> None:
    _, rows, _ = _case("logistic", kind)
    X = rows.dense()
    factor = rows.weight * np.linalg.norm(X, axis=1)
    assert np.allclose(sums.norm_moment(rows), (X.T * factor) @ X)


@EVERY
def test_sums_do_not_depend_on_the_blocks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, rows, theta = _case(name, np.asarray)
    whole = sums.loss_hessian(loss, rows, theta=theta).dense()
    value, gradient = sums.loss_gradient(loss, rows, theta=theta)
    _cut(monkeypatch, 8)
    hessian = sums.loss_hessian(loss, rows, theta=theta).dense()
    assert np.allclose(hessian, whole, atol=1e-12)
    in_blocks = sums.loss_gradient(loss, rows, theta=theta)
    assert np.isclose(in_blocks[0], value)
    assert np.allclose(in_blocks[1], gradient, atol=1e-12)


@EVERY
def test_tilted_slopes_of_a_row_that_comes(name: str) -> None:
    # The same identity with the other sign: H + the row's Hessian.
    loss, rows, theta = _case(name, np.asarray)
    H = _slow_hessian(loss, rows, theta) + np.eye(theta.size)
    row = rows.take(slice(3, 4))
    inverse = -np.asarray(np.linalg.inv(H), np.float64)
    tilted = tilted_slopes(loss, row, theta=theta, inverse=inverse)
    together = H + _slow_hessian(loss, row, theta)
    plain = sums.loss_slopes(loss, row, theta=theta)
    assert np.allclose(np.linalg.solve(H, tilted), np.linalg.solve(together, plain))


@EVERY
def test_tilted_slopes_are_a_newton_step_for_one_row(name: str) -> None:
    # Woodbury: H^-1 applied to the tilted slope is (H - row's Hessian)^-1 applied
    # to the plain one.
    loss, rows, theta = _case(name, np.asarray)
    H = _slow_hessian(loss, rows, theta) + np.eye(theta.size)
    row = rows.take(slice(3, 4))
    inverse = np.asarray(np.linalg.inv(H), np.float64)
    tilted = tilted_slopes(loss, row, theta=theta, inverse=inverse)
    without = H - _slow_hessian(loss, row, theta)
    plain = sums.loss_slopes(loss, row, theta=theta)
    assert np.allclose(np.linalg.solve(H, tilted), np.linalg.solve(without, plain))


def test_slope_scale_bounds_the_gradient() -> None:
    loss, rows, theta = _case("logistic", np.asarray)
    scale = sums.slope_scale(loss, rows, theta=theta)
    assert np.linalg.norm(sums.loss_slopes(loss, rows, theta=theta)) <= scale


@EVERY
@BOTH
def test_several_models_are_looked_at_as_one_by_one(
    name: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _cut(monkeypatch, 16)
    loss, rows, theta = _case(name, kind)
    thetas = np.array([theta, -theta, 0.5 * theta])
    gradients = sums.slopes_at_each(loss, rows, thetas=thetas)
    moves = sums.largest_moves(loss, rows, steps=thetas)
    for place, each in enumerate(thetas):
        gradient = sums.loss_slopes(loss, rows, theta=each)
        np.testing.assert_allclose(gradients[place], gradient, rtol=1e-9, atol=1e-9)
        assert moves[place] == pytest.approx(sums.largest_move(loss, rows, step=each))


def test_rows_without_weight_move_nothing() -> None:
    loss, rows, theta = _case("logistic", np.asarray)
    farthest = int(np.argmax(np.abs(rows.X @ theta)))
    weight = np.where(np.arange(len(rows)) == farthest, 0.0, rows.weight)
    left = replace(rows, weight=weight)
    found = sums.largest_moves(loss, left, steps=theta[None, :])
    assert found[0] == sums.largest_move(loss, left, step=theta)
    assert found[0] < sums.largest_moves(loss, rows, steps=theta[None, :])[0]


def test_move_that_is_no_number_may_be_of_any_length() -> None:
    loss, rows, theta = _case("logistic", np.asarray)
    steps = np.array([theta, np.full_like(theta, np.nan)])
    moves = sums.largest_moves(loss, rows, steps=steps)
    assert np.isfinite(moves[0])
    assert np.isinf(moves[1])


def test_a_block_that_is_no_number_is_not_lost_among_others() -> None:
    rows = Rows(np.ones((3 * BLOCK_ROWS, 1)), np.arange(3.0 * BLOCK_ROWS), np.ones(1))
    second = float(BLOCK_ROWS)

    def term(block: Rows) -> float:
        return float("nan") if block.y[0] == second else float(block.y[-1])

    assert block_max(lambda block: float(block.y[-1]), rows) == rows.y[-1]
    assert block_max(term, rows) == inf


def _tree(terms: Sequence[Vector]) -> Vector:
    """Return the sum by its definition: a power of two first, then the rest."""
    if len(terms) == 1:
        return terms[0]
    half = 1 << ((len(terms) - 1).bit_length() - 1)
    return np.asarray(_tree(terms[:half]) + _tree(terms[half:]))


def _uneven(rng: np.random.Generator, shape: tuple[int, ...]) -> Vector:
    """Return numbers of all magnitudes and both signs, whose sums round everywhere."""
    sizes = 10.0 ** rng.uniform(-12.0, 12.0, shape)
    return np.asarray(rng.choice([-1.0, 1.0], shape) * sizes)


@pytest.mark.parametrize("n_blocks", range(1, 71))
def test_blocks_are_added_in_the_stated_tree(n_blocks: int) -> None:
    terms = _uneven(np.random.default_rng(n_blocks), (n_blocks, 3))
    (found,) = pairwise_sum((term,) for term in terms)
    assert found.tobytes() == _tree(list(terms)).tobytes()


@pytest.mark.parametrize("n_blocks", [1, 2, 3, 5, 13, 64, 69])
@BOTH
def test_rows_are_added_in_the_stated_tree(
    n_blocks: int, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _cut(monkeypatch, 8)
    rng = np.random.default_rng(n_blocks)
    objective = Objective(LOSSES["logistic"][0], L2(), 1.0)
    n_rows = 8 * n_blocks - 2
    X, y = labelled("logistic", rng, n_rows)
    weight = np.abs(_uneven(rng, (n_rows,)))
    rows, theta = objective.rows(kind(X), y, weight), rng.normal(size=N_FEATURES)

    def gradient(block: Rows) -> Vector:
        return sums.loss_slopes(objective.loss, block, theta=theta)

    def hessian(block: Rows) -> Matrix:
        return sums.loss_hessian(objective.loss, block, theta=theta).dense()

    blocks = list(rows.blocks(8))
    assert len(blocks) == n_blocks
    for total in (gradient, hessian):
        expected = _tree([total(block) for block in blocks])
        assert total(rows).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("n_columns", "size"),
    [(1, 2048), (784, 2048), (2048, 2048), (2049, 4096), (4096, 4096), (50_000, 65536)],
)
def test_rows_in_a_block_follow_from_the_columns_alone(
    n_columns: int, size: int
) -> None:
    for n_rows in (1, 3, 100):
        X: Any = sparse.csr_array((n_rows, n_columns))
        rows = Rows(X, np.ones(n_rows), np.ones(n_rows))
        assert rows.block_rows == size


@pytest.mark.parametrize("n_rows", [1, 2048, 2049, 4096, 12_345])
def test_total_weight_is_a_sum_over_blocks(n_rows: int) -> None:
    weight = np.random.default_rng(n_rows).random(n_rows) * 10.0
    rows = Rows(np.ones((n_rows, 1)), np.ones(n_rows), weight)
    terms = [(float(np.add.reduce(block.weight)),) for block in rows.blocks(2048)]
    assert rows.total_weight == pairwise_sum(terms)[0]


def test_how_the_blocks_arrive_does_not_matter() -> None:
    terms = [
        (float(v), v * np.ones(2)) for v in _uneven(np.random.default_rng(1), (37,))
    ]

    def generator() -> Iterator[tuple[float, Vector]]:
        yield from terms

    files = [terms[:5], terms[5:6], [], terms[6:30], terms[30:]]
    found = [
        pairwise_sum(terms),
        pairwise_sum(generator()),
        pairwise_sum(chain.from_iterable(files)),
    ]
    assert len({value for value, _ in found}) == 1
    assert len({vector.tobytes() for _, vector in found}) == 1


def test_few_partial_sums_are_held_at_once() -> None:
    alive, most = 0, 0

    class Counted(float):
        def __new__(cls, value: float) -> "Counted":
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return super().__new__(cls, value)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

        def __add__(self, other: float) -> "Counted":
            return Counted(float(self) + float(other))

    (total,) = pairwise_sum((Counted(1.0),) for _ in range(1000))
    assert total == 1000.0
    assert most <= log2(1000) + 4


def test_rounding_grows_with_the_depth_of_the_tree() -> None:
    # A tenth is no binary fraction: in a plain loop every addition rounds the same way.
    n_blocks, term = 2**17, 0.1
    exact = fsum([term] * n_blocks)
    (found,) = pairwise_sum((term,) for _ in range(n_blocks))
    naive = 0.0
    for _ in range(n_blocks):
        naive += term
    unit = 2.0**-53
    assert abs(found - exact) <= ceil(log2(n_blocks)) * unit * exact
    assert abs(naive - exact) > 1000.0 * unit * exact


def test_small_terms_survive_beside_a_large_one() -> None:
    # Each of the small terms is lost when it is added to the large one alone.
    terms = [2.0**53, *[1.0] * 4095]
    (found,) = pairwise_sum((term,) for term in terms)
    naive = 0.0
    for term in terms:
        naive += term
    assert naive - 2.0**53 == 0.0
    assert fsum(terms) - found <= 16.0


def test_no_blocks_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no blocks"):
        pairwise_sum(iter(()))
