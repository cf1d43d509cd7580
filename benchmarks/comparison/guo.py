# SPDX-License-Identifier: Apache-2.0
r"""Certified removal by Guo, Goldstein, Hannun and van der Maaten (ICML 2020).

L2-regularised logistic regression, perturbed in its objective, not in its answer:

    L_b(w) = sum_i (loss_i(w) + (lambda/2) |w|^2) + b.w,    b ~ N(0, sigma^2 I) .

A request takes one Newton step of L_b on the remaining rows X. What it leaves of the
gradient is at most (their Corollary 1)

    gamma R |X|_2 |s| |X s|,    s = the step, gamma the Lipschitz constant of loss'' .

The bounds of all requests add up to beta, and (their Theorem 3, Gaussian case) the
model is (epsilon, delta)-certified as long as beta <= sigma epsilon / c, with
c = sqrt(2 ln(1.5 / delta)); beyond that it is trained again with a fresh b.

What a reader of the figures must know. Their (epsilon, delta) compares the model after
removals with a retrained one, b being the only randomness in both: the model is shown
as it is and there is no secret state, while ours compares two releases that get fresh
noise and keeps a noise-free state hidden. Their rows have norm at most one, so R, the
longest row's norm, is not in print. They take gamma = 1/4; the loss's own bound, 1/(6
sqrt(3)) for the logistic loss, is smaller and as sound, and used here in their favour.
The exact minimiser their theorem starts from is one to a mean gradient of 1e-10 here.
"""

from dataclasses import dataclass, field
from math import isfinite, log, sqrt

import numpy as np
from scipy.linalg import eigh

from expunge import Objective, Rows
from expunge.core.arrays import Index, Matrix, Vector
from expunge.core.losses import Loss
from expunge.core.objective import add_quadratic
from expunge.core.sums import (
    largest_norm,
    loss_gradient,
    loss_hessian,
    loss_slopes,
    predict,
)
from expunge.exceptions import NotConverged, Unsupported

from .contenders_rows import Remaining, row_bytes
from .protocol import Problem, Promise, add_noise

TOLERANCE = 1e-10
MAX_STEPS = 100
ROUNDING = 2.0**-46


def confidence(promise: Promise) -> float:
    """Return c = sqrt(2 ln(1.5 / delta))."""
    return sqrt(2.0 * log(1.5 / promise.delta))


def gram(rows: Rows) -> Matrix:
    """Return X'X, weights inside."""
    root = rows.dense() * np.sqrt(rows.weight)[:, None]
    return root.T @ root


def spectral_norm(gram: Matrix) -> float:
    """Return |X|_2 by the largest eigenvalue of X'X, rounded up."""
    last = len(gram) - 1
    largest = eigh(gram, eigvals_only=True, subset_by_index=(last, last))[0]
    return sqrt(float(largest) * (1.0 + 1e-9))


def residual_bound(loss: Loss, rows: Rows, step: Vector, scale: float) -> float:
    """Return gamma R |X|_2 |s| |X s|: what a step may leave of the gradient's sum.

    Corollary 1, with weights inside the norms; ``scale`` is R |X|_2.
    """
    moved = float(
        np.linalg.norm(np.sqrt(rows.weight) * predict(loss, rows, theta=step))
    )
    return loss.third_bound * scale * float(np.linalg.norm(step)) * moved


def mean_gradient(objective: Objective, rows: Rows, theta: Vector, b: Vector) -> Vector:
    """Return the gradient of L_b over the weight of the rows."""
    slopes = loss_slopes(objective.loss, rows, theta=theta) + b
    return slopes / rows.total_weight + objective.quadratic_gradient(theta)


def newton_step(objective: Objective, rows: Rows, theta: Vector, b: Vector) -> Vector:
    """Return the Newton step of L_b, with a Hessian summed and factored for it."""
    mean = loss_hessian(objective.loss, rows, theta=theta) / rows.total_weight
    H = add_quadratic(objective, mean)
    return -H.cholesky().solve(mean_gradient(objective, rows, theta, b))


def perturbed_value(
    objective: Objective, rows: Rows, theta: Vector, b: Vector
) -> float:
    """Return L_b over the weight of the rows."""
    loss, _ = loss_gradient(objective.loss, rows, theta=theta)
    linear = float(b @ theta)
    return (loss + linear) / rows.total_weight + objective.penalty_value(theta)


def perturbed_minimum(
    objective: Objective, rows: Rows, start: Vector, b: Vector
) -> Vector:
    """Return the minimiser of L_b, by Newton steps that are halved until they fall."""
    theta = start
    for _ in range(MAX_STEPS):
        if np.linalg.norm(mean_gradient(objective, rows, theta, b)) <= TOLERANCE:
            return theta
        step = newton_step(objective, rows, theta, b)
        here = perturbed_value(objective, rows, theta, b)
        slack = ROUNDING * (1.0 + abs(here))
        while perturbed_value(objective, rows, theta + step, b) > here + slack:
            step = 0.5 * step
        theta = theta + step
    raise NotConverged(
        f"the perturbed fit left a gradient above {TOLERANCE:g} after {MAX_STEPS} "
        "Newton steps; raise alpha, or perturb less"
    )


class GuoSession:
    """Newton steps from the last model, their residual bounds added up."""

    def __init__(
        self, problem: Problem, sigma: float | None, promise: Promise, seed: int
    ) -> None:
        self._objective, self._train = problem.objective, problem.train
        self._remaining = Remaining(problem.train)
        self._gram = gram(problem.train)
        self._R = largest_norm(problem.train)
        self._sigma, self._promise = sigma, promise
        self._rng = np.random.default_rng(seed)
        self._theta = np.zeros(problem.train.X.shape[1])
        self._retrain()
        self._retrainings = 0

    def _retrain(self) -> None:
        """Draw b and fit what remains; nothing is owed to earlier requests."""
        size = self._theta.size
        sigma = 0.0 if self._sigma is None else self._sigma
        self._b = self._rng.normal(0.0, sigma, size)
        rows = self._remaining.rows
        self._theta = perturbed_minimum(self._objective, rows, np.zeros(size), self._b)
        self._beta = 0.0
        self._requests: list[Index] = []
        self._at_training = self._remaining.people

    def forget(self, removed: Index) -> None:
        """Take a Newton step on the remaining rows; retrain if the budget is spent."""
        gone = self._remaining.remove(removed)
        self._gram -= gram(gone)
        rows = self._remaining.rows
        step = newton_step(self._objective, rows, self._theta, self._b)
        scale = self._R * spectral_norm(self._gram)
        self._beta += residual_bound(self._objective.loss, rows, step, scale)
        self._theta = self._theta + step
        self._requests.append(removed)
        if self._sigma is not None and self.noise(self._promise) > self._sigma:
            self._retrain()
            self._retrainings += 1

    def theta(self) -> Vector:
        """Return the model as it is, b in its objective where sigma was given."""
        return self._theta

    def state_bytes(self) -> int:
        """Return the bytes of the rows, their Gram matrix, the model and b."""
        arrays = (self._gram, self._theta, self._b)
        return row_bytes(self._remaining.rows) + sum(a.nbytes for a in arrays)

    def bound(self) -> float:
        """Return beta: a bound on what is left of the gradient, as a sum over rows."""
        return self._beta

    def noise(self, promise: Promise) -> float:
        """Return the deviation of *b*, not of theta, that beta needs: c beta / epsilon.

        In units of the sum over rows, like b.
        """
        return confidence(promise) * self._beta / promise.epsilon

    def release(self, promise: Promise, rng: np.random.Generator) -> Vector:
        """Return a model fitted with such a b, the same requests removed from it.

        Costs what the fit and all requests since cost. Where sigma was given, b is in
        the model already, which is returned as it is.
        """
        if self._sigma is not None:
            return self._theta
        size, objective = self._theta.size, self._objective
        b = add_noise(np.zeros(size), self.noise(promise), rng)
        present = Remaining(self._train.take(self._at_training))
        theta = perturbed_minimum(objective, present.rows, np.zeros(size), b)
        for removed in self._requests:
            present.remove(np.searchsorted(self._at_training, removed))
            theta = theta + newton_step(objective, present.rows, theta, b)
        return theta

    @property
    def retrainings(self) -> int:
        """How often the budget was spent."""
        return self._retrainings


@dataclass(frozen=True, slots=True)
class Guo:
    """Newton removal under objective perturbation.

    Parameters
    ----------
    sigma
        Standard deviation of b. With None there is no b and no budget: the session
        runs unperturbed, and ``noise`` says afterwards which b it would have needed.
    promise
        What the budget sigma epsilon / c is made of.
    """

    name: str = "Guo"
    sigma: float | None = None
    promise: Promise = field(default_factory=Promise)

    def start(self, problem: Problem, seed: int) -> GuoSession:
        """Draw b and fit; refuse what the theorem does not cover."""
        require_covered(problem.objective)
        return GuoSession(problem, self.sigma, self.promise, seed)


def require_covered(objective: Objective) -> None:
    """Raise Unsupported unless the theorem speaks about this objective."""
    loss = objective.loss
    if not objective.smooth or objective.n_free or objective.scaling != "mean":
        raise Unsupported(
            f"Guo et al. cover an L2 penalty on all coefficients of a mean; here "
            f"penalty={type(objective.penalty).__name__}, {objective.n_free} "
            f"unpenalised, scaling={objective.scaling!r}: leave this contender out"
        )
    if loss.outputs != 1 or not isfinite(loss.third_bound):
        raise Unsupported(
            f"Guo et al. need one output and a Lipschitz curvature, and "
            f"{type(loss).__name__} has {loss.outputs} and {loss.third_bound}: leave "
            "this contender out"
        )
