# SPDX-License-Identifier: Apache-2.0
r"""Gaussian: what noise of one standard deviation hides, exactly.

Two models at distance r, each released with Gaussian noise of standard deviation
sigma, are as hard to tell apart as N(0, 1) and N(mu, 1) with mu = r / sigma. That
mu is the parameter of Gaussian differential privacy. It stands for a whole curve of
pairs (epsilon, delta) (Balle and Wang, ICML 2018, theorem 8),

    delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2),

which this module reads in both directions. It knows nothing of models.
"""

from collections.abc import Callable
from math import exp, expm1, inf, isfinite

from scipy.special import log_ndtr

from ..core.arrays import UNDERFLOW
from ..exceptions import InvalidInput

# Relative width at which a search stops.
WIDTH = 1e-13
# Each of the two terms carries a relative error of a few units of rounding for every
# unit of its logarithm; this many are added, so that delta is never understated.
ROUNDING = 2.0**-48


def delta_of(mu: float, epsilon: float) -> float:
    """Return the delta that mu costs at this epsilon.

    delta = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2), evaluated
    through logarithms so that it keeps its digits where both terms are tiny, and
    rounded up.

    Parameters
    ----------
    mu
        Distance over standard deviation, zero or positive; infinite without noise.
    epsilon
        Zero or positive.
    """
    if not mu >= 0.0:
        raise InvalidInput(f"mu={mu}; it must be zero or positive")
    _require_epsilon(epsilon)
    if mu in (0.0, inf):
        return 0.0 if mu == 0.0 else 1.0
    inside = float(log_ndtr(-epsilon / mu + 0.5 * mu))
    outside = epsilon + float(log_ndtr(-epsilon / mu - 0.5 * mu))
    if inside == -inf:  # below the smallest float
        return UNDERFLOW
    slack = ROUNDING * (1.0 + abs(inside) + epsilon)
    delta = exp(inside) * (max(0.0, -expm1(outside - inside)) + slack)
    return min(1.0, delta + UNDERFLOW)


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu whose delta at this epsilon is at most ``delta``.

    The inverse of ``delta_of`` in mu, rounded down: noise of standard deviation
    r / mu_of(epsilon, delta) makes models at distance r (epsilon, delta)-close. Zero,
    which no noise is enough for, where epsilon is so small that delta drowns in
    rounding (both below about 1e-14).

    Parameters
    ----------
    epsilon
        Zero or positive.
    delta
        Strictly between 0 and 1.
    """
    _require_epsilon(epsilon)
    _require_delta(delta)
    low = 1.0
    while delta_of(low, epsilon) > delta:
        low *= 0.5
    if low == 0.0:
        return 0.0
    high = 2.0 * low
    while delta_of(high, epsilon) <= delta:
        low, high = high, 2.0 * high
    return _bisect(low, high, lambda mu: delta_of(mu, epsilon) <= delta)[0]


def epsilon_of(mu: float, delta: float) -> float:
    """Return the smallest epsilon at which mu costs at most ``delta``, rounded up.

    The inverse of ``delta_of`` in epsilon.

    Parameters
    ----------
    mu
        Zero or positive; infinity costs infinity.
    delta
        Strictly between 0 and 1.
    """
    _require_delta(delta)
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while isfinite(high) and delta_of(mu, high) > delta:
        low, high = high, 2.0 * high
    if high == inf:
        return inf
    return _bisect(low, high, lambda epsilon: delta_of(mu, epsilon) > delta)[1]


def _bisect(
    low: float, high: float, belongs_low: Callable[[float], bool]
) -> tuple[float, float]:
    """Return the ends of a narrow interval between low's side and high's."""
    while high - low > WIDTH * high:
        middle = 0.5 * (low + high)
        if belongs_low(middle):
            low = middle
        else:
            high = middle
    return low, high


def _require_delta(delta: float) -> None:
    """Refuse a delta that is no probability of failure."""
    if not 0.0 < delta < 1.0:
        raise InvalidInput(f"delta={delta}; it must lie strictly between 0 and 1")


def _require_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that promises nothing or makes no sense."""
    if not (isfinite(epsilon) and epsilon >= 0.0):
        raise InvalidInput(f"epsilon={epsilon}; it must be zero or positive")
