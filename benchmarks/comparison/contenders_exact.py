# SPDX-License-Identifier: Apache-2.0
"""Contenders that look at all remaining rows: RT, cold and warm, and the paper's TA.

Cold retraining uses the fastest solver that reaches a gradient of 1e-10. From a warm
start, for L1 with a little ridge (beside glum's irls-cd) and for L2 at d = 172 (beside
scikit-learn's newton-cg and newton-cholesky) that was our own damped and proximal
Newton; for L2 at d = 784 newton-cg is as fast or faster. So where scikit-learn covers
the objective, both are timed at the first fit and the faster one answers requests.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from expunge import L2, Logistic, Newton, Objective, Rows
from expunge.core.arrays import Index, Vector
from expunge.core.objective import add_quadratic
from expunge.core.prox import Minimum
from expunge.core.solver import (
    Solution,
    Stop,
    minimise,
    proximal_step,
    require_converged,
    scaled_kink,
)
from expunge.core.sums import loss_hessian, loss_slopes
from expunge.removal import Draft

from ..rivals import COMPETENT, scikit_learn
from ..timing import time_call
from .contenders_ours import (
    CertifiedState,
    certify_solution,
    fit_and_certify,
    required_noise,
)
from .contenders_rows import Remaining, row_bytes
from .protocol import Problem, Promise, add_noise

# How far from the minimiser a competent solver may stop.
WITHIN = 1e-7

Solver: TypeAlias = Callable[[Objective, Rows], Solution]


def by_our_newton(objective: Objective, rows: Rows) -> Solution:
    """Return the minimiser by our own solver, from nothing."""
    solution = minimise(objective, rows)
    require_converged(objective, rows, solution=solution)
    return solution


def by_newton_cg(objective: Objective, rows: Rows) -> Solution:
    """Return the minimiser by scikit-learn, with the residual measured there.

    Where it stops short (a gradient above 1e-10, or a model that may be more than
    1e-7 from the minimiser), our solver goes on from there.
    """
    with warnings.catch_warnings():
        # A line search may fail at rounding level; the residual is measured below.
        warnings.simplefilter("ignore")
        theta = scikit_learn("newton-cg", objective, rows, rows)
    solution = minimise(objective, rows, start=theta, stop=Stop(0))
    if solution.residual <= min(COMPETENT, WITHIN * objective.quadratic):
        return solution
    return minimise(objective, rows, start=theta)


def fastest_solver(problem: Problem) -> Solver:
    """Return the solver that fits the whole problem faster, each tried once."""
    objective, train = problem.objective, problem.train
    plain = objective.ridge == 0.0 and not objective.intercept
    known = objective.loss == Logistic() and objective.penalty == L2() and plain
    if not known or (train.weight != 1.0).any():
        return by_our_newton
    seconds = {
        solver: time_call(partial(solver, objective, train))[1]
        for solver in (by_our_newton, by_newton_cg)
    }
    return min(seconds, key=seconds.__getitem__)


class RetrainSession:
    """Every request is a fit of the remaining rows."""

    def __init__(self, problem: Problem, *, warm: bool) -> None:
        self._objective, self._warm = problem.objective, warm
        self._remaining = Remaining(problem.train)
        self._total = problem.train.total_weight
        self._solver = by_our_newton if warm else fastest_solver(problem)
        self._solution = self._solver(problem.objective, problem.train)
        fit = certify_solution(problem.objective, problem.train, self._solution)
        self._tau = fit.error
        self._retrainings = 0

    def forget(self, removed: Index) -> None:
        """Solve again."""
        self._remaining.remove(removed)
        objective, rows = self._target(), self._remaining.rows
        if self._warm:
            self._solution = minimise(objective, rows, start=self._solution.theta)
            require_converged(objective, rows, solution=self._solution)
        else:
            self._solution = self._solver(objective, rows)
        self._retrainings += 1

    def _target(self) -> Objective:
        """Return what a fit of the remaining rows minimises."""
        kept = self._remaining.rows.total_weight / self._total
        return self._objective.after(kept)

    def theta(self) -> Vector:
        """Return the last fit."""
        return self._solution.theta

    def state_bytes(self) -> int:
        """Return the bytes of the rows, and of the start if it is used."""
        start = self._solution.theta.nbytes if self._warm else 0
        return row_bytes(self._remaining.rows) + start

    def noise(self, promise: Promise) -> float:
        """Return what two solvers' errors need: next to nothing."""
        fit = certify_solution(self._target(), self._remaining.rows, self._solution)
        return required_noise(fit.error + self._tau, promise)

    def release(self, promise: Promise, rng: np.random.Generator) -> Vector:
        """Return the fit with that noise."""
        return add_noise(self.theta(), self.noise(promise), rng)

    @property
    def retrainings(self) -> int:
        """One for each request."""
        return self._retrainings


@dataclass(frozen=True, slots=True)
class Retraining:
    """RT: fit the remaining rows from nothing, or from the last model if ``warm``."""

    name: str
    warm: bool

    def start(self, problem: Problem, seed: int) -> RetrainSession:
        """Fit, and keep the rows; nothing is drawn."""
        del seed
        return RetrainSession(problem, warm=self.warm)


class FreshHessianSession:
    """One Newton step from the first fit, with a new Hessian for each request.

    The answer is that of our Newton, and so is the radius, from a state that follows.
    """

    def __init__(self, problem: Problem) -> None:
        self._objective = problem.objective
        self._remaining = Remaining(problem.train)
        fit = fit_and_certify(problem.objective, problem.train)
        summary = fit.summary
        self._summary, self._tau = summary, fit.error
        self._slopes = summary.sums.gradient
        smooth = summary.smooth_gradient / summary.sums.weight
        kink = problem.objective.nearest_subgradient(summary.anchor, smooth)
        self._minimum = Minimum(summary.anchor, kink)
        self._certified_state = CertifiedState(Newton(), summary, problem.train)

    @property
    def _kept(self) -> float:
        """The share of the weight that remains."""
        return self._remaining.rows.total_weight / self._summary.sums.weight

    def forget(self, removed: Index) -> None:
        """Subtract the rows' gradients; sum, invert and apply a fresh Hessian."""
        theta, loss = self._summary.anchor, self._objective.loss
        gone = self._remaining.remove(removed)
        self._slopes = self._slopes - loss_slopes(loss, gone, theta=theta)
        self._certified_state.follow(removed)
        rows, objective = self._remaining.rows, self._objective.after(self._kept)
        mean = loss_hessian(loss, rows, theta=theta) / rows.total_weight
        H = add_quadratic(objective, mean)
        gradient = self._slopes / rows.total_weight
        gradient += objective.quadratic_gradient(theta)
        if objective.smooth:
            step = H.cholesky().inverse() @ gradient
            self._minimum = Minimum(theta - step, np.zeros_like(theta))
        else:
            model = proximal_step(H, scaled_kink(objective), start=self._minimum.x)
            self._minimum = model(theta, gradient)

    def theta(self) -> Vector:
        """Return the last answer."""
        return self._minimum.x

    def state_bytes(self) -> int:
        """Return the bytes of the rows, the first fit, its gradient and the answer."""
        return row_bytes(self._remaining.rows) + 3 * self._slopes.nbytes

    def noise(self, promise: Promise) -> float:
        """Return (radius + tau) / mu."""
        weight = self._remaining.rows.total_weight
        subgradient = weight * self._minimum.subgradient  # of sums, not of means
        radius = self._certified_state.radius(Draft(self._minimum.x, subgradient))
        return required_noise(radius + self._tau, promise)

    def release(self, promise: Promise, rng: np.random.Generator) -> Vector:
        """Return the answer with that noise."""
        return add_noise(self.theta(), self.noise(promise), rng)

    @property
    def retrainings(self) -> int:
        """None: a Newton step is no fit."""
        return 0


@dataclass(frozen=True, slots=True)
class FreshHessian:
    """TA as the paper runs it: the Hessian of the remaining rows, made and inverted.

    O(n d^2 + d^3) a request; with a kink, the prox in the norm of that Hessian. The
    step is the corrected one: the regularised term is in it.
    """

    name: str = "TA"

    def start(self, problem: Problem, seed: int) -> FreshHessianSession:
        """Fit, and keep the rows; nothing is drawn."""
        del seed
        return FreshHessianSession(problem)


COLD = Retraining("RT", warm=False)
WARM = Retraining("RT warm", warm=True)
