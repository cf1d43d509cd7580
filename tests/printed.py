# SPDX-License-Identifier: Apache-2.0
r"""What the paper prints, to the letter, so that tests can show where it fails.

Suriyakumar and Wilson, *Algorithms that Approximate Data Removal: New Results and
Limitations*. Each function names the line or equation it copies. The paper's loss is
the objective's loss plus its ridge, its regulariser alpha times the penalty.
"""

from math import log, sqrt

import numpy as np

from expunge.core.arrays import Matrix, Vector
from expunge.core.linalg import Symmetric
from expunge.core.objective import Objective
from expunge.core.prox import scaled_prox
from expunge.core.rows import Rows
from expunge.core.solver import scaled_kink
from expunge.core.sums import loss_hessian, loss_slopes
from expunge.promise.capacity import Regularity

Vectors = list[Vector]


def gradient(objective: Objective, rows: Rows, theta: Vector) -> Vector:
    """Return the sum over rows of grad loss, ridge included, penalty not."""
    slopes = loss_slopes(objective.loss, rows, theta=theta)
    return slopes + len(rows) * objective.ridge * theta


def hessian(objective: Objective, rows: Rows, theta: Vector) -> Matrix:
    """Return H_f, the mean Hessian: of the loss alone if the penalty has a kink."""
    mean = loss_hessian(objective.loss, rows, theta=theta).dense() / len(rows)
    return mean + objective.quadratic * np.eye(theta.size)


def smooth_update(
    objective: Objective, rows: Rows, theta: Vector, removed: Rows
) -> Vector:
    """Algorithm 1, smooth branch, without noise, for a whole batch."""
    H = hessian(objective, rows, theta)
    step = np.linalg.solve(H, gradient(objective, removed, theta))
    return theta + step / len(rows)


def prox(objective: Objective, H: Matrix, v: Vector) -> Vector:
    """Equation (3): the prox of lambda pi in the norm of H."""
    B = Symmetric.from_dense(H)
    return scaled_prox(B, B @ v, kink=scaled_kink(objective), start=v).x


def proximal_update(
    objective: Objective, rows: Rows, theta: Vector, removed: Rows
) -> Vector:
    """Algorithm 1, non-smooth branch, without noise, for a whole batch."""
    H = hessian(objective, rows, theta)
    stored = np.linalg.solve(H, gradient(objective, removed, theta)) / len(rows)
    return prox(objective, H, theta + stored)


def proximal_stream(
    objective: Objective, rows: Rows, theta: Vector, removed: Rows
) -> Vector:
    """Appendix, batch = stream, case 2: each request starts at the last answer."""
    H, answer = hessian(objective, rows, theta), theta
    for row in removed.blocks(1):
        step = np.linalg.solve(H, gradient(objective, row, theta)) / len(rows)
        answer = prox(objective, H, answer + step)
    return answer


def taylor_update(
    objective: Objective, remaining: Rows, theta: Vector, removed: Rows
) -> Vector:
    """The equation for TA: a Newton step on the remaining rows."""
    H = hessian(objective, remaining, theta)
    step = np.linalg.solve(H, gradient(objective, removed, theta))
    return theta + step / len(remaining)


def psi_3_minimiser(theta: Vector, slope: Vector, H: Matrix) -> Vector:
    """Appendix, argmin of <slope, theta - x> + <theta - x, H (theta - x)>."""
    return theta + 0.5 * np.linalg.solve(H, slope)


def algorithm_radius(known: Regularity, n_removed: float, n_samples: float) -> float:
    """Algorithm 1, c without its privacy factor: m^2 (2CL mu + ML) / (mu^2 n^2).

    L, C and M as a reader of assumption 1 would take them: of the loss.
    """
    C, L, M, mu = literal_constants(known)
    return (n_removed / n_samples) ** 2 * (2 * C * L * mu + M * L) / mu**2


def lemma_drift(known: Regularity, n_removed: float, n_samples: float) -> float:
    """Lemma 1, first inequality: m L / (mu n)."""
    _, L, _, mu = literal_constants(known)
    return n_removed * L / (mu * n_samples)


def lemma_radius(known: Regularity, n_removed: float, n_samples: float) -> float:
    """Lemma 1, second inequality: m^2 (2CL/mu^2 + M L^2/mu^3) / n^2."""
    C, L, M, mu = literal_constants(known)
    return (n_removed / n_samples) ** 2 * (2 * C * L / mu**2 + M * L**2 / mu**3)


def literal_constants(known: Regularity) -> tuple[float, float, float, float]:
    """Assumptions 1 and 2: C, L, M of the loss, and mu."""
    R = known.row_norm
    C = known.curvature_bound * R**2
    return C, known.slope_bound * R, known.third_bound * R**3, known.strong_convexity


def classic_factor(epsilon: float, delta: float) -> float:
    """Algorithm 1 and theorem 1: noise over distance, sqrt(2 ln(1.25/delta))/eps."""
    return sqrt(2.0 * log(1.25 / delta)) / epsilon


def excess_risk(
    known: Regularity, n_removed: float, n_samples: float, spread: float
) -> float:
    """Theorem 1's proof, last line but one, with its four steps kept apart.

    ``spread`` is sqrt(d) times the privacy factor; constants are the corrected ones,
    so that what fails is the argument.
    """
    L, mu = known.lipschitz, known.strong_convexity
    C, M = known.hessian_bound, known.hessian_lipschitz
    share = n_removed / n_samples
    radius = share**2 * (2 * C * L / mu**2 + M * L**2 / mu**3)
    drift = share * L / mu
    return L * (radius + spread * radius + drift) + 4 * L**2 / (mu * n_samples)


def cv_before(n_samples: int, shrinkage: float) -> float:
    """Proposition 1's proof: CV error of n - 1 points at -1/n and one at n."""
    n = n_samples
    kept = shrinkage * (n - (n - 2) / n) / (n - 1) - 1 / n
    return (n - 1) / (2 * n) * kept**2 + (n + shrinkage / n) ** 2 / (2 * n)


def cv_after(n_samples: int, shrinkage: float) -> float:
    """Proposition 1's proof: CV error of the n - 1 points at -1/n."""
    n = n_samples
    return (-1 / n + shrinkage / n) ** 2 / (2 * n)
