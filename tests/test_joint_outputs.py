# SPDX-License-Identifier: Apache-2.0
"""A loss of the user's own, whose outputs interact and feel a common shift."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import ArrayLike

from expunge import L2, Objective
from expunge.core.arrays import Vector, norm
from expunge.core.losses import Curvature, Loss, read_numbers
from expunge.core.measurement import measure
from expunge.core.solver import minimise
from expunge.promise.radius import best_radius
from expunge.removal.matrix_free import MatrixFree, anchor_measured


@dataclass(frozen=True)
class Distance(Loss):
    """sqrt(1 + |eta - y|^2) - 1 for two outputs together."""

    outputs: ClassVar[int] = 2
    independent: ClassVar[bool] = False
    slope_bound: ClassVar[float] = 1.0
    curvature_bound: ClassVar[float] = 1.0
    third_bound: ClassVar[float] = 3.0
    self_concordance: ClassVar[float] = 3.0

    def labels(self, y: ArrayLike) -> Vector:
        return read_numbers(y, 2)

    def value(self, y: Vector, eta: Vector) -> Vector:
        return _size(y, eta)[:, 0] - 1.0

    def slope(self, y: Vector, eta: Vector) -> Vector:
        return (eta - y) / _size(y, eta)

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        diagonal, factor = self.curvature_parts(y, eta)
        assert factor is not None
        outer: Vector = factor[:, :, None] * factor[:, None, :]
        return np.eye(2) * diagonal[:, :, None] - outer

    def curvature_parts(self, y: Vector, eta: Vector) -> Curvature:
        size = _size(y, eta)
        return Curvature(np.repeat(1.0 / size, 2, axis=1), (eta - y) / size**1.5)


def _size(y: Vector, eta: Vector) -> Vector:
    size: Vector = np.sqrt(1.0 + ((eta - y) ** 2).sum(axis=1, keepdims=True))
    return size


@pytest.mark.parametrize("seed", range(10))
def test_free_intercepts_are_held_by_the_outputs_together(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 2)) + rng.normal(size=2)
    y = 8.0 * rng.normal(size=(30, 2)) * [1.0, 0.05]
    alpha = float(10.0 ** rng.uniform(-1.0, 1.0))
    objective = Objective(Distance(), L2(), alpha, intercept=True)
    rows = objective.rows(X, y)
    target = minimise(objective, rows).theta
    for way in (*np.eye(target.size)[-2:], rng.normal(size=target.size)):
        at = measure(objective, rows, theta=target + 1e-3 * way)
        state = anchor_measured(objective, rows, at=at, before=None)
        radius = best_radius(state, MatrixFree().answer_at_anchor(state)).value
        assert norm(at.theta - target) <= radius < np.inf
