# SPDX-License-Identifier: Apache-2.0
"""Laws of a loss: derivatives are derivatives, and the bounds bound."""

import numpy as np
import pytest
from numpy.typing import NDArray

from expunge.core.arrays import UNIT_ROUNDOFF, Vector
from expunge.core.losses import Loss
from tests.exact import LD, SUITABLE, derivatives
from tests.instances import LOSSES

N_POINTS = 400


def _points(name: str, rng: np.random.Generator) -> tuple[Loss, Vector, Vector]:
    """Return a loss with labels and predictors from near zero to far out."""
    loss, labels = LOSSES[name]
    eta = rng.normal(size=(N_POINTS, loss.outputs)) * rng.choice([0.3, 2.0, 8.0])
    y = labels(rng, rng.normal(size=(N_POINTS, loss.outputs)))
    return loss, y, eta[:, 0] if loss.outputs == 1 else eta


def _directions(eta: Vector, rng: np.random.Generator) -> Vector:
    """Return a unit direction in predictor space for each row."""
    if eta.ndim == 1:
        return np.ones_like(eta)
    u = rng.normal(size=eta.shape)
    unit: Vector = u / np.linalg.norm(u, axis=1, keepdims=True)
    return unit


def _along(values: Vector, u: Vector) -> Vector:
    """Return slope.u, or u.curvature.u for an array with one axis more."""
    if u.ndim == 1:
        return values
    formula = "ij,ij->i" if values.ndim == 2 else "ijk,ij,ik->i"
    along: Vector = np.einsum(formula, values, *([u] * (values.ndim - 1)))
    return along


def _away_from_kinks(
    loss: Loss, y: Vector, eta: Vector, gap: float
) -> NDArray[np.bool]:
    """Return where the curvature is the same a gap to either side."""
    lower, upper = loss.curvature(y, eta - gap), loss.curvature(y, eta + gap)
    same = np.asarray(np.isclose(lower, upper, atol=0.01)).reshape(len(y), -1)
    return np.asarray(same.all(axis=1))


@pytest.mark.parametrize("name", LOSSES)
def test_slope_is_the_derivative_of_the_value(
    name: str, rng: np.random.Generator
) -> None:
    loss, y, eta = _points(name, rng)
    u, gap = _directions(eta, rng), 1e-6
    difference = loss.value(y, eta + gap * u) - loss.value(y, eta - gap * u)
    expected = difference / (2.0 * gap)
    assert np.allclose(_along(loss.slope(y, eta), u), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", LOSSES)
def test_curvature_is_the_derivative_of_the_slope(
    name: str, rng: np.random.Generator
) -> None:
    loss, y, eta = _points(name, rng)
    u, gap = _directions(eta, rng), 1e-6
    smooth = _away_from_kinks(loss, y, eta, 2.0 * gap)
    change = loss.slope(y, eta + gap * u) - loss.slope(y, eta - gap * u)
    expected = _along(change, u) / (2.0 * gap)
    found = _along(loss.curvature(y, eta), u)
    assert smooth.mean() > 0.9
    assert np.allclose(found[smooth], expected[smooth], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", LOSSES)
def test_curvature_is_symmetric_and_not_negative(
    name: str, rng: np.random.Generator
) -> None:
    loss, y, eta = _points(name, rng)
    curvature = loss.curvature(y, eta).reshape(N_POINTS, loss.outputs, loss.outputs)
    assert np.array_equal(curvature, curvature.transpose(0, 2, 1))
    assert np.linalg.eigvalsh(curvature).min() >= -1e-15


@pytest.mark.parametrize("name", LOSSES)
def test_parts_have_the_diagonal_of_the_curvature(
    name: str, rng: np.random.Generator
) -> None:
    loss, y, eta = _points(name, rng)
    curvature = loss.curvature(y, eta).reshape(N_POINTS, loss.outputs, loss.outputs)
    parts = loss.curvature_parts(y, eta)
    assert loss.independent == (parts.factor is None)
    found = parts.diagonal.reshape(N_POINTS, loss.outputs)
    if parts.factor is not None:
        found = found - parts.factor**2
    expected = np.einsum("icc->ic", curvature)
    assert np.allclose(found, expected, atol=1e-15)
    assert not loss.equal_curvature or (np.ptp(expected, axis=1) == 0.0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_parts_multiply_and_add_up_like_the_curvature(
    name: str, rng: np.random.Generator
) -> None:
    loss, y, eta = _points(name, rng)
    curvature = loss.curvature(y, eta).reshape(N_POINTS, loss.outputs, loss.outputs)
    parts, change = loss.curvature_parts(y, eta), rng.normal(size=eta.shape)
    product = np.einsum("iab,ib->ia", curvature, change.reshape(N_POINTS, -1))
    assert np.allclose(parts.times(change), product.reshape(eta.shape), atol=1e-14)
    weight = rng.random(N_POINTS)
    total = np.einsum("i,iab->ab", weight, curvature)
    assert np.allclose(parts.total(weight), total, atol=1e-13)


@pytest.mark.parametrize("name", LOSSES)
def test_independence_is_stated_truly(name: str, rng: np.random.Generator) -> None:
    loss, y, eta = _points(name, rng)
    if loss.outputs == 1:
        assert loss.independent
        return
    before, alone = loss.slope(y, eta), True
    for output in range(loss.outputs):
        moved = eta + 0.5 * (np.arange(loss.outputs) == output)
        rest = np.arange(loss.outputs) != output
        alone &= np.array_equal(loss.slope(y, moved)[:, rest], before[:, rest])
    assert alone == loss.independent
    # The gauge of a loss that does not feel a shift ties its outputs together.
    assert not (loss.independent and loss.shift_invariant)


@pytest.mark.parametrize("name", LOSSES)
def test_bounds_hold_and_finite_ones_are_nearly_reached(name: str) -> None:
    rng = np.random.default_rng(3)
    largest = np.zeros(3)
    for _ in range(60):
        loss, y, eta = _points(name, rng)
        u, gap = _directions(eta, rng), 1e-5
        slope = loss.slope(y, eta).reshape(N_POINTS, -1)
        curvature = loss.curvature(y, eta).reshape(N_POINTS, loss.outputs, -1)
        change = loss.curvature(y, eta + gap * u) - loss.curvature(y, eta - gap * u)
        found = (
            np.linalg.norm(slope, axis=1).max(),
            np.linalg.eigvalsh(curvature).max(),
            np.abs(_along(change, u)).max() / (2.0 * gap),
        )
        largest = np.maximum(largest, found)
    bounds = np.array([loss.slope_bound, loss.curvature_bound, loss.third_bound])
    finite = np.isfinite(bounds)
    assert (largest[finite] <= bounds[finite] * (1.0 + 1e-6) + 1e-9).all()
    assert (largest[finite] >= 0.8 * bounds[finite]).all()


@pytest.mark.parametrize("name", LOSSES)
def test_shift_invariance_is_stated_truly(name: str, rng: np.random.Generator) -> None:
    loss, y, eta = _points(name, rng)
    unchanged = np.allclose(loss.value(y, eta), loss.value(y, eta + 1.0), atol=1e-12)
    assert unchanged == loss.shift_invariant


@pytest.mark.parametrize("name", LOSSES)
def test_extreme_predictors_stay_finite(name: str, rng: np.random.Generator) -> None:
    """What grows without a bound may be infinite there, and is no NaN."""
    loss, y, eta = _points(name, rng)
    far, bounded = 1e4 * np.sign(eta), np.isfinite(loss.curvature_bound)
    for quantity in (loss.value, loss.slope, loss.curvature):
        with np.errstate(over="raise" if bounded else "ignore"):
            found = quantity(y, far)
        assert not np.isnan(found).any()
        assert np.isfinite(found).all() or not bounded


@pytest.mark.parametrize("name", LOSSES)
def test_margin_losses_fall_for_ever_towards_the_label(
    name: str, rng: np.random.Generator
) -> None:
    loss, y, eta = _points(name, rng)
    near = loss.value(y, np.zeros_like(eta))
    ways = [sign * unit for unit in np.eye(loss.outputs) for sign in (-1.0, 1.0)]
    far = [loss.value(y, np.zeros_like(eta) + 5e2 * _flat(way)) for way in ways]
    assert (np.min(far, axis=0) <= near).all() == loss.margin


@pytest.mark.parametrize("name", LOSSES)
def test_the_mean_is_what_the_loss_asks_for(
    name: str, rng: np.random.Generator
) -> None:
    loss, _, eta = _points(name, rng)
    mean = loss.mean(eta)
    assert mean.shape == eta.shape
    if not loss.has_probabilities:
        # A response that is what was predicted pulls nowhere.
        kind = getattr(loss, "binary", loss)
        if np.isinf(kind.slope_bound) and not kind.curvature_jump:
            response, eta = mean.ravel(), eta.ravel()
            if getattr(kind, "offset", False):
                response = np.column_stack([response, np.ones(len(eta))])
            slope, nu = kind.slope(response, eta), kind.self_concordance
            size = 2.0 / nu * kind.curvature(response, eta) if nu else 0.0
            assert (np.abs(slope) <= 8.0 * UNIT_ROUNDOFF * size).all()
        return
    assert ((mean >= 0.0) & (mean <= 1.0)).all()
    if loss.outputs == 1:
        ones = np.ones(len(eta))
        slope = mean * loss.slope(ones, eta) + (1.0 - mean) * loss.slope(-ones, eta)
        assert np.abs(slope).max() < 1e-15
        return
    assert np.allclose(mean.sum(axis=1), 1.0, atol=1e-15)
    assert (np.argmax(mean, axis=1) == np.argmax(eta, axis=1)).all()


@pytest.mark.skipif(not SUITABLE, reason="long doubles are doubles here")
@pytest.mark.parametrize("name", [n for n in LOSSES if LOSSES[n][0].outputs == 1])
def test_slope_and_curvature_are_as_exact_as_stated(name: str) -> None:
    """What ``Loss`` asks of a slope, near its root and far out."""
    rng, n = np.random.default_rng(5), 20_000
    loss, labels = LOSSES[name]
    y = labels(rng, rng.normal(size=(n, 1)))
    eta = rng.normal(size=n) * 10.0 ** rng.uniform(-3.0, 2.0, n)
    if not loss.margin:  # half of the labels are nearly what is predicted
        response = y[:, 0] if y.ndim == 2 else y
        exposure = y[:, 1] if y.ndim == 2 else 1.0
        near = exposure * loss.mean(eta) * (1.0 + 1e-9 * rng.normal(size=n))
        taken = (rng.random(n) < 0.5) & (np.abs(eta) < 80.0)
        response[taken] = near[taken]
    slope, curvature = loss.slope(y, eta), loss.curvature(y, eta)
    long = y.astype(LD), eta.astype(LD)[:, None]
    exact, bend = (part.ravel() for part in derivatives(loss, *long))
    size, nu = np.abs(exact), loss.self_concordance
    if 0.0 < nu < np.inf:
        size = size + 2.0 / nu * bend
    large = (bend > 1e-290) | (bend == 0.0)  # others underflow
    assert large.mean() > 0.8
    assert (np.abs(slope - exact) <= 8.0 * UNIT_ROUNDOFF * size)[large].all()
    if not loss.curvature_jump:
        off = np.abs(curvature - bend) <= 16.0 * UNIT_ROUNDOFF * bend
        assert off[large].all()


def _flat(way: Vector) -> Vector:
    """Return a direction as the predictors of a loss with one output have it."""
    return way[0] if way.size == 1 else way
