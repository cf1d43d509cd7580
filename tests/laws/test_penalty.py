# SPDX-License-Identifier: Apache-2.0
"""Laws of a penalty: its shrink is optimal, and its kink convex."""

import numpy as np
import pytest

from expunge.core.arrays import Matrix
from expunge.core.penalties import Penalty
from tests.instances import N_FEATURES, PENALTIES

ALL = pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
SEPARABLE = {name: each for name, each in PENALTIES.items() if each.separable}


def _matrix(rng: np.random.Generator) -> Matrix:
    return rng.normal(size=(N_FEATURES, 3))


@ALL
def test_shrink_minimises(penalty: Penalty, rng: np.random.Generator) -> None:
    # 0 is optimal for x = shrink(v) iff (v - x)/step is a subgradient of the kink at x:
    # kink(z) >= kink(x) + <(v - x)/step, z - x> for every z.
    for step in (0.05, 0.5, 3.0):
        v = _matrix(rng)
        x = penalty.shrink(v, step)
        subgradient = (v - x) / step
        others = [x + rng.normal(size=x.shape) * size for size in (1e-3, 0.1, 2.0)]
        for z in (*others, np.zeros_like(x), v):
            support = penalty.kink(x) + np.vdot(subgradient, z - x)
            assert penalty.kink(z) >= support - 1e-12 * (1.0 + abs(support))


@ALL
def test_shrink_brings_points_closer_and_keeps_zero(
    penalty: Penalty, rng: np.random.Generator
) -> None:
    v, w = _matrix(rng), _matrix(rng)
    assert not penalty.shrink(np.zeros_like(v), 1.0).any()
    distance = np.linalg.norm(penalty.shrink(v, 0.3) - penalty.shrink(w, 0.3))
    assert distance <= np.linalg.norm(v - w) * (1.0 + 1e-12)


@ALL
def test_kink_is_convex(penalty: Penalty, rng: np.random.Generator) -> None:
    assert penalty.strong_convexity >= 0.0
    for _ in range(50):
        a, b, t = _matrix(rng), _matrix(rng), rng.random()
        chord = t * penalty.kink(a) + (1.0 - t) * penalty.kink(b)
        assert penalty.kink(t * a + (1.0 - t) * b) <= chord + 1e-12


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


@ALL
def test_smooth_penalties_are_those_without_a_kink(
    penalty: Penalty, rng: np.random.Generator
) -> None:
    assert penalty.smooth == (penalty.kink(_matrix(rng)) == 0.0)
    assert penalty.strong_convexity > 0.0 or not penalty.smooth
