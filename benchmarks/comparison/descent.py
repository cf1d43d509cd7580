# SPDX-License-Identifier: Apache-2.0
r"""Descent-to-delete by Neel, Roth and Sharifi-Malvajerdi (ALT 2021), basic version.

Perturbed gradient descent for a strongly convex and smooth objective: each request
takes I gradient steps on the remaining rows from the last *unnoised* point, with step
2 / (M + m); what is published carries Gaussian noise. A step brings the model nearer
to its minimiser by the factor g = (M - m) / (M + m), and a request moves the
minimiser by at most 2 L / (m n'), n' >= n/2 the rows that remain. Hence the distance
to the minimiser stays below (4 L / (m n)) g^I / (1 - g^I), two worlds are at most
twice that apart, and their theorem for the strongly convex case (section 3, "basic
perturbed gradient descent") publishes with

    sigma = 4 sqrt(2) L g^I / (m n (1 - g^I) k),
    k = sqrt(ln(1/delta) + epsilon) - sqrt(ln(1/delta)) .

In their letters L bounds a row's gradient, m and M are strong convexity and
smoothness: here 2 L is ``Regularity.lipschitz`` (their L cannot hold for a ridge on
all of R^d; ours holds where it is used, at minimisers), m and M are mu and
``hessian_bound``. A request for k rows moves the minimiser k times as far. Their
training by gradient descent is replaced by an exact fit, which only helps it.
"""

from dataclasses import dataclass
from math import inf, isfinite, log, sqrt

import numpy as np

from expunge.core.arrays import Index, Vector
from expunge.core.solver import minimise, require_converged
from expunge.core.sums import largest_norm, loss_slopes
from expunge.exceptions import InvalidInput, Unsupported
from expunge.promise.capacity import Regularity, regularity_of

from .contenders_rows import Remaining, row_bytes
from .protocol import Problem, Promise, add_noise


def contraction(known: Regularity) -> float:
    """Return g = (M - m) / (M + m): what a gradient step leaves of the distance."""
    m, M = known.strong_convexity, known.hessian_bound
    return (M - m) / (M + m)


def distance_bound(
    known: Regularity, n_samples: float, request: float, steps: int
) -> float:
    """Return how far a model may be from its minimiser after any number of requests.

    (2 d) g^I / (1 - g^I) with d = lipschitz * request / (m n), the distance that a
    request for so many rows moves the minimiser; twice that where n/2 rows remain.
    """
    moved = 2.0 * known.lipschitz * request / (known.strong_convexity * n_samples)
    left = contraction(known) ** steps
    return moved * left / (1.0 - left)


def confidence(promise: Promise) -> float:
    """Return sqrt(ln(1/delta) + epsilon) - sqrt(ln(1/delta))."""
    depth = log(1.0 / promise.delta)
    return sqrt(depth + promise.epsilon) - sqrt(depth)


class DescentSession:
    """Gradient steps on the remaining rows at every request."""

    def __init__(self, problem: Problem, known: Regularity, steps: int) -> None:
        self._objective, self._known, self._steps = problem.objective, known, steps
        self._remaining = Remaining(problem.train)
        self._total = problem.train.total_weight
        solution = minimise(problem.objective, problem.train)
        require_converged(problem.objective, problem.train, solution=solution)
        self._theta = solution.theta
        self._largest = 0.0

    def forget(self, removed: Index) -> None:
        """Take the steps."""
        gone = self._remaining.remove(removed)
        self._largest = max(self._largest, gone.total_weight)
        rows, objective = self._remaining.rows, self._objective
        known, theta = self._known, self._theta
        length = 2.0 / (known.hessian_bound + known.strong_convexity)
        for _ in range(self._steps):
            slopes = loss_slopes(objective.loss, rows, theta=theta) / rows.total_weight
            theta = theta - length * (slopes + objective.quadratic_gradient(theta))
        self._theta = theta

    def theta(self) -> Vector:
        """Return the unnoised point, where the next request starts."""
        return self._theta

    def state_bytes(self) -> int:
        """Return the bytes of the rows and of the model."""
        return row_bytes(self._remaining.rows) + self._theta.nbytes

    def bound(self) -> float:
        """Return how far the model may be from its minimiser; see the module."""
        if 2.0 * self._remaining.rows.total_weight < self._total:
            return inf
        return distance_bound(self._known, self._total, self._largest, self._steps)

    def noise(self, promise: Promise) -> float:
        """Return the theorem's sigma; infinite once more than half is removed."""
        # Two worlds, each within the bound; sigma = distance / sqrt(2 rho).
        return 2.0 * self.bound() / (sqrt(2.0) * confidence(promise))

    def release(self, promise: Promise, rng: np.random.Generator) -> Vector:
        """Return the point with that noise."""
        return add_noise(self.theta(), self.noise(promise), rng)

    @property
    def retrainings(self) -> int:
        """None: the theorem holds for any number of requests."""
        return 0


@dataclass(frozen=True, slots=True)
class Descent:
    """Perturbed gradient descent.

    Parameters
    ----------
    steps
        I: gradient steps a request. More cost more and need less noise.
    """

    name: str = "D2D"
    steps: int = 25

    def start(self, problem: Problem, seed: int) -> DescentSession:
        """Fit, and keep the rows; refuse what the theorem does not cover."""
        del seed
        if self.steps < 1:
            raise InvalidInput(f"steps={self.steps}; a request needs at least one")
        objective = problem.objective
        known = regularity_of(objective, largest_norm(problem.train))
        constants = (known.slope_bound, known.curvature_bound)
        if not (objective.smooth and all(isfinite(k) for k in constants)):
            raise Unsupported(
                f"descent-to-delete needs a smooth, Lipschitz objective, not "
                f"{type(objective.loss).__name__} with "
                f"{type(objective.penalty).__name__}: leave this contender out"
            )
        if known.strong_convexity == 0.0 or objective.scaling != "mean":
            raise Unsupported(
                f"descent-to-delete needs strong convexity that removals leave alone; "
                f"here mu={known.strong_convexity}, scaling={objective.scaling!r}: "
                "penalise the intercept, or leave this contender out"
            )
        return DescentSession(problem, known, self.steps)
