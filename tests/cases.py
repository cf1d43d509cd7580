# SPDX-License-Identifier: Apache-2.0
"""Generated removal problems, each with the answer of retraining beside it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge import L2, Logistic, Objective, Rows, State, learn, summarise
from expunge.core.arrays import Matrix, Vector
from expunge.core.solver import minimise
from expunge.promise.capacity import Regularity, regularity_of
from expunge.removal import Mechanism


@dataclass(frozen=True)
class Removal:
    """An objective, its rows, and which of them must go."""

    objective: Objective
    rows: Rows
    index: NDArray[np.integer[Any]]

    @cached_property
    def summary(self) -> State:
        """The fit on all rows."""
        return learn(self.objective, self.rows)

    @property
    def theta(self) -> Vector:
        """theta_hat: the model fitted on all rows."""
        return self.summary.anchor

    @cached_property
    def removed(self) -> Rows:
        """U."""
        return self.rows.take(self.index)

    @cached_property
    def remaining(self) -> Rows:
        """S without U."""
        return self.rows.without(self.index)

    @property
    def kept(self) -> float:
        """The share of the weight that remains."""
        return self.remaining.total_weight / self.rows.total_weight

    @cached_property
    def target(self) -> Vector:
        """Retraining from cold: the only oracle."""
        return minimise(self.objective.after(self.kept), self.remaining).theta

    @property
    def regularity(self) -> Regularity:
        """Constants at the largest norm of a row."""
        return regularity_of(self.objective, float(self.rows.norms().max()))

    def answer(self, mechanism: Mechanism) -> Vector:
        """Return what a mechanism gives, all rows removed at once."""
        return forgotten(mechanism, self.summary, self.removed)

    def error(self, theta: Vector) -> float:
        """Return the distance to the retrained model."""
        return distance(theta, self.target)

    def moved(self) -> float:
        """Return how far retraining moves the model."""
        return self.error(self.theta)

    def anchored_at(self, theta: Vector) -> State:
        """Return the summary of a learner that stopped at theta."""
        return summarise(self.objective, self.rows, theta=theta)


def forgotten(mechanism: Mechanism, summary: State, removed: Rows) -> Vector:
    """Return a mechanism's answer to one request."""
    state = mechanism.update(mechanism.init(summary), removed)
    return mechanism.step(state)[1].theta


def distance(a: Vector, b: Vector) -> float:
    """Return the Euclidean distance."""
    return float(np.linalg.norm(a - b))


def removal(objective: Objective, X: Matrix, y: Vector, n_removed: int) -> Removal:
    """Return the problem of removing the first rows."""
    return Removal(objective, objective.rows(X, y), np.arange(n_removed))


def signs(rng: np.random.Generator, eta: Vector) -> Vector:
    """Return labels -1 and +1 that follow the logistic model."""
    return np.where(eta + rng.logistic(size=eta.shape) > 0.0, 1.0, -1.0)


def logistic_data(
    rng: np.random.Generator, n_samples: int, n_features: int, strength: float = 2.0
) -> tuple[Matrix, Vector]:
    """Return Gaussian features and labels of a sparse logistic model."""
    X = rng.normal(size=(n_samples, n_features))
    truth = np.zeros(n_features)
    truth[: max(1, n_features // 3)] = strength
    return X, signs(rng, X @ truth)


def ridge_logistic(alpha: float) -> Objective:
    """Return the paper's first experiment: logistic loss and L2 penalty."""
    return Objective(Logistic(), L2(), alpha=alpha)
