# SPDX-License-Identifier: Apache-2.0
r"""The paper's Algorithm 1 exactly as printed, its slips included.

Smooth: each request adds H_f^-1 grad loss / n, without the regularised term, and the
recursion runs on the noised model, request m + 1 adding noise of (2 m + 1) units.
Non-smooth: the sum of those steps starts at the fitted model, of which the prox is
then taken with the full lambda, and noise of (m + 1)^2 units is added once. The unit
is (2 C L mu + M L) / (mu^2 n^2) sqrt(2 ln(1.25/delta)) / epsilon. It is read as a
standard deviation, as the paper's proof does: its N(0, c I) would be a variance. With
an infinite or missing constant there is no such noise.

What the paper prints is written down once, in ``tests.printed``.
"""

from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np

from expunge import Rows
from expunge.core.arrays import Index, Vector
from expunge.core.linalg import Symmetric
from expunge.core.prox import scaled_prox
from expunge.core.solver import minimise, require_converged, scaled_kink
from expunge.core.sums import largest_norm
from expunge.exceptions import Unsupported
from expunge.promise.capacity import regularity_of
from tests.printed import algorithm_radius, classic_factor, gradient, hessian

from .protocol import Problem, Promise, add_noise


class PrintedSession:
    """Algorithm 1, one request after another."""

    def __init__(self, problem: Problem) -> None:
        self._objective, self._train = problem.objective, problem.train
        solution = minimise(problem.objective, problem.train)
        require_converged(problem.objective, problem.train, solution=solution)
        self._anchor = solution.theta
        H = hessian(problem.objective, problem.train, self._anchor)
        self._H = Symmetric.from_dense(H)
        self._inverse = self._H.cholesky().inverse()
        self._known = regularity_of(problem.objective, largest_norm(problem.train))
        self._stored = self._anchor
        self._answer = self._anchor
        self._requests: list[int] = []

    def forget(self, removed: Index) -> None:
        """Add the printed step; with a kink, take the printed prox of the sum."""
        rows: Rows = self._train.take(removed)
        slopes = gradient(self._objective, rows, self._anchor)
        self._stored = self._stored + self._inverse @ slopes / len(self._train)
        last, self._answer = self._answer, self._stored
        if not self._objective.smooth:
            # Equation (3), looked for near the last answer: the same prox, sooner.
            kink, right = scaled_kink(self._objective), self._H @ self._stored
            self._answer = scaled_prox(self._H, right, kink=kink, start=last).x
        self._requests.append(len(rows))

    def theta(self) -> Vector:
        """Return what the algorithm gives if every noise it draws is zero."""
        return self._answer

    def state_bytes(self) -> int:
        """Return the bytes of inverse and models, and of H where a prox needs it."""
        matrices = 1 if self._objective.smooth else 2
        return matrices * self._H.lower.nbytes + 2 * self._anchor.nbytes

    def noise(self, promise: Promise) -> float:
        """Return the deviation of all noise in the published model, as printed.

        Smooth: increments of one draw a request, which add in quadrature.
        """
        factor = classic_factor(promise.epsilon, promise.delta)
        if self._known.strong_convexity == 0.0:
            return inf
        counts = np.concatenate([[0], np.cumsum(self._requests)]).tolist()
        radii = [algorithm_radius(self._known, m, len(self._train)) for m in counts]
        if not all(isfinite(radius) for radius in radii):
            return inf
        if self._objective.smooth:
            return factor * sqrt(float(np.sum(np.diff(radii) ** 2)))
        return factor * radii[-1]

    def release(self, promise: Promise, rng: np.random.Generator) -> Vector:
        """Return the noised model.

        One draw of the summed noise: the printed recursion is linear in its noises.
        """
        return add_noise(self.theta(), self.noise(promise), rng)

    @property
    def retrainings(self) -> int:
        """None: the algorithm never looks back."""
        return 0


@dataclass(frozen=True, slots=True)
class Printed:
    """Algorithm 1 as printed: under-noised, and off to first order."""

    name: str = "printed"

    def start(self, problem: Problem, seed: int) -> PrintedSession:
        """Fit, and invert the Hessian; nothing is drawn before a release."""
        del seed
        if problem.objective.n_free or not problem.objective.penalty.separable:
            raise Unsupported(
                "the printed algorithm knows neither free intercepts nor penalties on "
                f"groups; here penalty={type(problem.objective.penalty).__name__}, "
                f"{problem.objective.n_free} unpenalised: leave this contender out"
            )
        return PrintedSession(problem)
