# SPDX-License-Identifier: Apache-2.0
"""Laws of a penalty: the prox is optimal, the parts add up."""

import numpy as np
import pytest

from expunge.core.arrays import Matrix
from expunge.core.penalties import Penalty
from tests.instances import N_FEATURES, PENALTIES

ALL = pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
SEPARABLE = {name: each for name, each in PENALTIES.items() if each.separable}
SMOOTH = {name: each for name, each in PENALTIES.items() if each.smooth}


def _matrix(rng: np.random.Generator) -> Matrix:
    return rng.normal(size=(N_FEATURES, 3))


@ALL
def test_prox_minimises(penalty: Penalty, rng: np.random.Generator) -> None:
    # 0 is optimal for x = prox(v) iff (v - x)/step is a subgradient at x:
    # penalty(z) >= penalty(x) + <(v - x)/step, z - x> for every z.
    for step in (0.05, 0.5, 3.0):
        v = _matrix(rng)
        x = penalty.prox(v, step)
        subgradient = (v - x) / step
        others = [x + rng.normal(size=x.shape) * size for size in (1e-3, 0.1, 2.0)]
        for z in (*others, np.zeros_like(x), v):
            support = penalty.value(x) + np.vdot(subgradient, z - x)
            assert penalty.value(z) >= support - 1e-12 * (1.0 + abs(support))


@ALL
def test_prox_agrees_with_its_shrink(
    penalty: Penalty, rng: np.random.Generator
) -> None:
    # prox and shrink differ by the quadratic alone: their subgradients do too.
    v, step = _matrix(rng), 0.4
    x = penalty.prox(v, step)
    z = penalty.shrink(v - step * penalty.gradient(x), step)
    assert np.allclose(x, z, atol=1e-12)


@ALL
def test_prox_shrinks_norms_and_keeps_zero(
    penalty: Penalty, rng: np.random.Generator
) -> None:
    v, w = _matrix(rng), _matrix(rng)
    assert not penalty.prox(np.zeros_like(v), 1.0).any()
    distance = np.linalg.norm(penalty.prox(v, 0.3) - penalty.prox(w, 0.3))
    assert distance <= np.linalg.norm(v - w) * (1.0 + 1e-12)


@ALL
def test_value_is_convex_with_the_stated_modulus(
    penalty: Penalty, rng: np.random.Generator
) -> None:
    mu = penalty.strong_convexity
    for _ in range(50):
        a, b, t = _matrix(rng), _matrix(rng), rng.random()
        chord = t * penalty.value(a) + (1.0 - t) * penalty.value(b)
        bend = 0.5 * mu * t * (1.0 - t) * float(np.sum((a - b) ** 2))
        assert penalty.value(t * a + (1.0 - t) * b) <= chord - bend + 1e-12


@ALL
def test_shrink_removes_small_coefficients_unless_smooth(
    penalty: Penalty, rng: np.random.Generator
) -> None:
    v = 1e-3 * _matrix(rng)
    shrunk = penalty.shrink(v, 1.0)
    assert np.array_equal(shrunk, v) if penalty.smooth else not shrunk.any()


@pytest.mark.parametrize("penalty", SEPARABLE.values(), ids=SEPARABLE)
def test_separable_shrink_takes_a_step_for_each_coefficient(
    penalty: Penalty, rng: np.random.Generator
) -> None:
    v, steps = _matrix(rng), rng.random(size=(N_FEATURES, 3))
    each = [
        penalty.shrink(v[i : i + 1, j : j + 1], float(steps[i, j])).item()
        for i in range(N_FEATURES)
        for j in range(3)
    ]
    assert np.array_equal(penalty.shrink(v, steps).ravel(), each)


@pytest.mark.parametrize("penalty", SMOOTH.values(), ids=SMOOTH)
def test_smooth_penalties_state_gradient_and_curvature(
    penalty: Penalty, rng: np.random.Generator
) -> None:
    theta, way, gap = _matrix(rng), _matrix(rng), 1e-5
    values = [penalty.value(theta + t * way) for t in (-gap, 0.0, gap)]
    slope = (values[2] - values[0]) / (2.0 * gap)
    assert np.isclose(np.vdot(penalty.gradient(theta), way), slope, rtol=1e-8)
    bend = (values[2] - 2.0 * values[1] + values[0]) / gap**2
    assert np.isclose(penalty.curvature * np.vdot(way, way), bend, rtol=1e-4)
