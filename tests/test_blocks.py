# SPDX-License-Identifier: Apache-2.0
"""Block sums: the same quantity by every route."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from expunge import L2, Objective, Rows
from expunge.core import sums
from expunge.core.arrays import Matrix, Vector
from expunge.core.losses import Loss
from tests.instances import LOSSES, N_FEATURES, labelled

EVERY = pytest.mark.parametrize("name", LOSSES)
BOTH = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])


def _case(name: str, kind: Any, seed: int = 0) -> tuple[Loss, Rows, Vector]:
    rng = np.random.default_rng(seed)
    loss = LOSSES[name][0]
    X, y = labelled(name, rng, 50)
    rows = Objective(loss, L2(), 1.0).rows(kind(X), y, rng.random(50) + 0.5)
    return loss, rows, rng.normal(size=N_FEATURES * loss.outputs)


def _slow_hessian(loss: Loss, rows: Rows, theta: Vector) -> Matrix:
    """Return the Hessian row by row, by its definition."""
    k = loss.outputs
    curvature = loss.curvature(rows.y, sums.predict(loss, rows, theta))
    total = np.zeros((theta.size, theta.size))
    for x, c, w in zip(
        rows.dense(), curvature.reshape(-1, k, k), rows.weight, strict=True
    ):
        total += w * np.kron(np.outer(x, x), c)
    return total


@EVERY
@BOTH
def test_gradient_by_every_route(name: str, kind: Any) -> None:
    loss, rows, theta = _case(name, kind)
    value, gradient = sums.loss_gradient(loss, rows, theta)
    losses = loss.value(rows.y, sums.predict(loss, rows, theta))
    assert np.isclose(value, rows.weight @ losses)
    assert np.array_equal(gradient, sums.loss_slopes(loss, rows, theta))
    gap = 1e-6 * np.eye(theta.size)
    expected = [
        (
            sums.loss_gradient(loss, rows, theta + e)[0]
            - sums.loss_gradient(loss, rows, theta - e)[0]
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
    assert np.allclose(sums.loss_hessian(loss, rows, theta), expected, atol=1e-11)
    Z = sums.curvature_rows(loss, rows, theta)
    assert np.allclose(Z.T @ Z, expected, atol=1e-11)


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
    whole = sums.loss_hessian(loss, rows, theta)
    value, gradient = sums.loss_gradient(loss, rows, theta)
    monkeypatch.setattr(sums, "BLOCK_ROWS", 7)
    assert np.allclose(sums.loss_hessian(loss, rows, theta), whole, atol=1e-12)
    in_blocks = sums.loss_gradient(loss, rows, theta)
    assert np.isclose(in_blocks[0], value)
    assert np.allclose(in_blocks[1], gradient, atol=1e-12)


@EVERY
def test_tilted_slopes_are_a_newton_step_for_one_row(name: str) -> None:
    # Woodbury: H^-1 applied to the tilted slope is (H - row's Hessian)^-1 applied
    # to the plain one.
    loss, rows, theta = _case(name, np.asarray)
    H = _slow_hessian(loss, rows, theta) + np.eye(theta.size)
    row = rows.take(slice(3, 4))
    tilted, beyond = sums.tilted_slopes(
        loss, row, theta, lambda V: np.asarray(np.linalg.solve(H, V)), 0.999
    )
    without = H - _slow_hessian(loss, row, theta)
    plain = sums.loss_slopes(loss, row, theta)
    assert beyond == 0
    assert np.allclose(np.linalg.solve(H, tilted), np.linalg.solve(without, plain))


def test_slope_scale_bounds_the_gradient() -> None:
    loss, rows, theta = _case("logistic", np.asarray)
    scale = sums.slope_scale(loss, rows, theta)
    assert np.linalg.norm(sums.loss_slopes(loss, rows, theta)) <= scale


@EVERY
@BOTH
def test_several_models_are_looked_at_as_one_by_one(
    name: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "BLOCK_ROWS", 16)
    loss, rows, theta = _case(name, kind)
    thetas = np.array([theta, -theta, 0.5 * theta])
    gradients, values = sums.slopes_at_each(loss, rows, thetas, np.array([0, 2]))
    moves = sums.largest_moves(loss, rows, thetas)
    for place, each in enumerate(thetas):
        value, gradient = sums.loss_gradient(loss, rows, each)
        np.testing.assert_allclose(gradients[place], gradient, rtol=1e-9, atol=1e-9)
        assert values[place] == (0.0 if place == 1 else pytest.approx(value))
        assert moves[place] == pytest.approx(sums.largest_move(loss, rows, each))
