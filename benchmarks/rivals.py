# SPDX-License-Identifier: Apache-2.0
"""What a removal competes with: retraining, and Newton with a fresh Hessian.

Every rival gets the remaining rows as a ready array; making it is not timed. What
each one reaches is measured here in float64, not taken from its own report.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from expunge import Newton, Objective, Rows, State
from expunge.core.solver import minimise
from expunge.core.sums import loss_slopes

from .polish import Polish
from .timing import Measurement, progress, time_call

Vector: TypeAlias = NDArray[np.float64]
Retraining: TypeAlias = Callable[[Rows, Rows], Vector]

COMPETENT = 1e-10


@dataclass(frozen=True, slots=True)
class Rival:
    """A way to answer a request by looking at the remaining rows.

    ``retrain`` maps the remaining and the removed rows to coefficients; a cold
    one makes no use of the model that was there before.
    """

    name: str
    cold: bool
    retrain: Retraining


@dataclass(frozen=True, slots=True)
class Contest:
    """How a rival did: its time, and the worst optimality residual it left."""

    rival: Rival
    time: Measurement
    residual: float

    @property
    def competent(self) -> bool:
        """Whether the rival really solved the problem."""
        return self.residual <= COMPETENT

    @property
    def cells(self) -> tuple[str, ...]:
        """The contest as a row of a table."""
        start = "cold" if self.rival.cold else "warm"
        reached = f"{self.residual:.1e}" + ("" if self.competent else " (not there)")
        milliseconds = f"{1e3 * self.time.median:.1f}"
        return self.rival.name, start, milliseconds, reached, str(self.time.n)


def optimality(objective: Objective, rows: Rows, theta: Vector) -> float:
    """Return |theta - prox(theta - gradient)|: the gradient's norm if smooth."""
    gradient = loss_slopes(objective.loss, rows, theta=theta) / rows.total_weight
    gradient += objective.quadratic_gradient(theta)
    return float(np.linalg.norm(theta - objective.shrink(theta - gradient, 1.0)))


def scikit_learn(
    solver: str, objective: Objective, rest: Rows, removed: Rows
) -> Vector:
    """Retrain from nothing with scikit-learn, its tolerance at 1e-10."""
    del removed
    model = LogisticRegression(
        C=1.0 / (objective.alpha * len(rest)),
        fit_intercept=False,
        solver=solver,
        tol=1e-10,
        max_iter=1000,
    )
    theta: Vector = model.fit(rest.X, rest.y).coef_.ravel()
    return theta


def retrainings(summary: State) -> list[Rival]:
    """Return the ways to retrain: three of scikit-learn's, three of our own."""
    objective, theta = summary.objective, summary.anchor
    polish = Polish(Newton(certified=False), steps=20)
    at_fit = polish.init(summary)

    def polished(rest: Rows, removed: Rows) -> Vector:
        return polish.step(polish.update(at_fit, removed), rest)[1].theta

    solvers = ("newton-cg", "newton-cholesky", "lbfgs")
    return [
        *(
            Rival(f"scikit-learn {name}", True, partial(scikit_learn, name, objective))
            for name in solvers
        ),
        Rival(
            "expunge minimise", True, lambda rest, _: minimise(objective, rest).theta
        ),
        Rival(
            "expunge minimise from the old model",
            False,
            lambda rest, _: minimise(objective, rest, start=theta).theta,
        ),
        Rival("expunge Newton, then Polish on the rows", False, polished),
    ]


def compete(
    rivals: Sequence[Rival],
    objective: Objective,
    rows: Rows,
    requests: NDArray[np.intp],
) -> dict[str, Contest]:
    """Let every rival answer each request in turn; return how they did by name."""
    seconds: dict[str, list[float]] = {rival.name: [] for rival in rivals}
    worst = dict.fromkeys(seconds, 0.0)
    for turn, row in enumerate(requests):
        progress(f"retraining without one row, {turn + 1} of {len(requests)}")
        rest, removed = rows.without(row), rows.take(slice(row, row + 1))
        for rival in rivals:
            theta, elapsed = time_call(partial(rival.retrain, rest, removed))
            seconds[rival.name].append(elapsed)
            reached = optimality(objective, rest, theta)
            worst[rival.name] = max(worst[rival.name], reached)
    return {
        rival.name: Contest(
            rival, Measurement.of(rival.name, seconds[rival.name]), worst[rival.name]
        )
        for rival in rivals
    }


def fresh_hessian(rest: Rows, theta: Vector, mu: float) -> Vector:
    """Return the lower Hessian of the logistic loss on these rows, plus mu I."""
    p = expit(rest.X @ theta)
    return gram(rest.dense() * np.sqrt(p * (1.0 - p) / len(rest))[:, None], mu)


def gram(Z: Vector, mu: float) -> Vector:
    """Return Z'Z + mu I, lower triangle, by one dsyrk."""
    hessian: Vector = blas.dsyrk(1.0, Z.T, lower=1)
    hessian[np.diag_indices_from(hessian)] += mu
    return hessian


def factor_and_invert(hessian: Vector, gradient: Vector) -> Vector:
    """Return the Newton step as the paper writes it, by the dense inverse."""
    factor, _ = lapack.dpotrf(hessian, lower=1, clean=0, overwrite_a=1)
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    step: Vector = blas.dsymv(1.0, inverse, gradient, lower=1)
    return step


def factor_and_solve(hessian: Vector, gradient: Vector) -> Vector:
    """Return the Newton step, by a Cholesky factor made in place."""
    factor, _ = lapack.dpotrf(hessian, lower=1, clean=0, overwrite_a=1)
    step: Vector
    step, _ = lapack.dpotrs(factor, gradient, lower=1)
    return step
