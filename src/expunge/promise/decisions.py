# SPDX-License-Identifier: Apache-2.0
r"""Decisions under noise: how many of them change from one release to the next.

Noise of deviation sigma on each parameter is noise of deviation s = sigma |x| on each
predictor of a row x, the intercept's one included. So what noise does to a decision has
a formula, and nobody needs to draw any:

    one predictor   P(+) = Phi(eta / s)
    several         P(c) = int phi(u - a_c) prod_{j != c} Phi(u - a_j) du,
                    a_j = eta_j / s: class c has the largest predictor

Two releases draw their noise independently of each other. A decision with chances p in
the one and q in the other changes with probability 1 - sum_c p_c q_c.
"""

from collections.abc import Callable

import numpy as np

from ..core.arrays import Matrix, Vector

# The largest of several predictors is so many deviations below or above the largest
# mean at most, for what counts; the integrand is smooth, and the step fine enough.
LOWEST, HIGHEST, STEP = -7.0, 11.0, 0.5
# Of Gauss-Hermite sums: exact for the moments of a prediction that is its predictor.
NODES = 16


def class_chances(eta: Matrix, spread: Vector) -> Matrix:
    """Return how likely each row gets each class, (n, k) or (n, 2) for one predictor.

    Parameters
    ----------
    eta
        The predictors without noise, (n, k).
    spread
        Deviation of the noise on each predictor of a row, (n,).
    """
    from scipy.special import log_ndtr, ndtr

    apart = np.maximum(spread, np.finfo(float).tiny)[:, None]
    with np.errstate(over="ignore"):  # without noise all is certain
        if eta.shape[1] == 1:
            scaled = eta / apart
            return np.hstack([ndtr(-scaled), ndtr(scaled)])
        behind = (eta.max(axis=1, keepdims=True) - eta) / apart
    chances = np.zeros_like(eta)
    for u in np.arange(LOWEST, HIGHEST, STEP):
        below = log_ndtr(u + behind)
        others = below.sum(axis=1, keepdims=True) - below
        with np.errstate(over="ignore"):
            chances += np.exp(others - 0.5 * (u + behind) ** 2)
    total: Matrix = chances / chances.sum(axis=1, keepdims=True)
    return total


def share_changed(before: Matrix, after: Matrix) -> float:
    """Return the share of decisions that differ between two releases of such chances.

    The mean of 1 - sum_c p_c q_c, written as sum_c p_c (1 - q_c).
    """
    return float(np.mean(np.sum(before * (1.0 - after), axis=1)))


def prediction_moments(
    eta: Matrix, spread: Matrix, *, mean: Callable[[Vector], Vector]
) -> tuple[Matrix, Matrix]:
    """Return mean and variance of each prediction of a regression, (n, k).

    Parameters
    ----------
    eta
        The predictors without noise, (n, k).
    spread
        Deviation of the noise on each of them, (n, k).
    mean
        Makes predictions of predictors, one by one.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    centre = mean(eta)
    first, second = np.zeros_like(eta), np.zeros_like(eta)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        # From the prediction without noise on: squares of what is large would cancel.
        moved = mean(eta + node * spread) - centre
        first += weight * moved
        second += weight * moved**2
    return centre + first, np.maximum(second - first**2, 0.0)


def expected_score(
    eta: Vector, spread: Vector, *, score: Callable[[Vector], float]
) -> float:
    """Return the expectation of a score that is a sum over rows.

    Parameters
    ----------
    eta, spread
        The predictors without noise, and the deviation of the noise on each, (n,).
    score
        Makes a score of predictors.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    each = [score(eta + node * spread) for node in nodes]
    return float(weights @ np.array(each) / weights.sum())


def describe_share(share: float) -> str:
    """Return a share in percent, with the digits that count."""
    if share < 1e-5:
        return "< 0.001 %"
    if share >= 0.9995:
        return "> 99.9 %"
    return f"{100.0 * share:.{1 if share >= 0.01 else 2 if share >= 0.001 else 3}f} %"
