# SPDX-License-Identifier: Apache-2.0
r"""Budgets: what releases may promise and cost, fixed before the data is seen.

The removed world and the retrained world draw the same noise, so sigma, epsilon,
delta, tau, the noise grid and the number of releases may depend on nothing that
tells them apart. What follows from the budget alone is computed here: how far the
two models may be from each other, and how far a solver may be from its argmin.
Nothing here has seen a row, and no figure here is chosen from a radius.

What Gaussian noise hides is known exactly. Two models at distance r, each released
with noise of standard deviation sigma, are as hard to tell apart as N(0, 1) and
N(mu, 1) with mu = r / sigma. That mu is the parameter of Gaussian differential privacy.
It stands for a whole curve of pairs (epsilon, delta) (Balle and Wang, ICML 2018,
theorem 8),

    delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2),

which ``delta_of``, ``epsilon_of`` and ``mu_of`` read in every direction. ``guess_of``
says the same as the best guess of an attacker.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, expm1, frexp, inf, isfinite, ldexp, nextafter, sqrt
from numbers import Integral, Real
from weakref import WeakValueDictionary

from ..core.values import UNDERFLOW, require_magnitude, stored
from ..exceptions import InvalidInput
from .sampler import VARIATION

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
    inside = _log_phi(-epsilon / mu + 0.5 * mu)
    outside = epsilon + _log_phi(-epsilon / mu - 0.5 * mu)
    if inside == -inf:  # below the smallest float
        return UNDERFLOW
    slack = ROUNDING * (1.0 + abs(inside) + epsilon)
    delta = exp(inside) * (max(0.0, -expm1(outside - inside)) + slack)
    return min(1.0, delta + UNDERFLOW)


def _log_phi(x: float) -> float:
    """Return the logarithm of the normal distribution function."""
    from scipy.special import log_ndtr  # a service starts before it is imported

    return float(log_ndtr(x))


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
    return _bisect(low, high, belongs_low=lambda mu: delta_of(mu, epsilon) <= delta)[0]


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
    return _bisect(
        low, high, belongs_low=lambda epsilon: delta_of(mu, epsilon) > delta
    )[1]


def guess_of(mu: float) -> float:
    """Return how often the best guess between the two worlds is right: Phi(mu/2).

    Each world is as likely as the other, so that chance is right half the time. A test
    that says "second world" where the densities say so is right with probability
    (1 + TV)/2, and no test is right more often (Neyman and Pearson). Between N(0, 1)
    and N(mu, 1) that test asks whether x > mu/2, and both its errors are Phi(-mu/2).
    The total variation TV is delta at epsilon zero, so the answer is rounded up
    (docs/choosing.md).

    Parameters
    ----------
    mu
        Distance over standard deviation, zero or positive; infinite without noise.
    """
    return 0.5 * (1.0 + delta_of(mu, 0.0))


def _bisect(
    low: float, high: float, *, belongs_low: Callable[[float], bool]
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
    """Refuse a delta that is not a probability of failure."""
    if not 0.0 < delta < 1.0:
        raise InvalidInput(f"delta={delta}; it must lie strictly between 0 and 1")


def _require_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that promises nothing or makes no sense."""
    if not (isfinite(epsilon) and epsilon >= 0.0):
        raise InvalidInput(f"epsilon={epsilon}; it must be zero or positive")


# sigma / grid lies in [2^27, 2^28): fine enough that rounding costs next to nothing,
# coarse enough that float64 holds parameters of 2^24 sigma exactly.
GRID_BITS = 27
# Share of the budget that pays for noise on a grid being a discrete Gaussian, not a
# continuous one, and for rounding in the sums below. Derived in docs/noise.md.
GRID_TOLL = 1e-9
# Share of the budget left to the solver when the budget names no tau.
SOLVER_SHARE = 0.01
# No model has more parameters.
LARGEST_MODEL = 2.0**40
# Sigma of a budget that names none: where rows are kept, every answer can look at them,
# and where they are not, noise has to hide what nobody looks at. Both are constants of
# the contract: neither is chosen from data (docs/decisions/0056-default-noise.md).
SIGMA_WITH_ROWS, SIGMA_WITHOUT_ROWS = 1e-3, 0.1
# Up to this sigma every answer looks where rows are kept: another constant.
SIGMA_OF_LOOKS = 1e-2
# Beyond these the grid or the largest parameter would leave the range of floats.
SMALLEST_SIGMA, LARGEST_SIGMA = 1e-250, 1e250


@lru_cache(maxsize=64)
def promised_mu(epsilon: float, delta: float, *, releases: int) -> float:
    """Return the mu that so many releases may cost together; zero if none.

    The sampler is exact up to a total variation TV in all. Of two laws that are
    (epsilon, delta)-close it makes two that are (epsilon, delta + (1 + e^epsilon)
    TV)-close, so that much comes off delta first (docs/noise.md).
    """
    variation = releases * LARGEST_MODEL * VARIATION
    cost = (1.0 + exp(epsilon)) * variation if epsilon < 700.0 else inf
    left = nextafter(delta - cost, 0.0)
    return mu_of(epsilon, left) if left > 0.0 else 0.0


@stored
@dataclass(frozen=True, slots=True, weakref_slot=True)
class Budget:
    """What a release promises, and the noise that pays for it.

    A budget compares two worlds: the model after a removal, and the model retrained
    without the removed people. If they are at distance r before noise, their releases
    are (epsilon, delta)-indistinguishable when

        r <= radius_budget = (1 - 1e-9) sigma mu - sqrt(d) grid.

    Here mu = mu(epsilon, delta) / sqrt(releases) is the parameter of Gaussian
    differential privacy of one release, d the number of parameters, and sqrt(d) grid
    what rounding both models to the noise's grid may add to their distance.

    Parameters
    ----------
    epsilon, delta
        No event is more likely in one world than exp(epsilon) times its probability in
        the other, plus delta. Epsilon is zero or positive, delta strictly between 0
        and 1; smaller is stricter.
    sigma
        Standard deviation of the noise on each parameter, the same in both worlds; for
        targets of a regression by squared errors with L2, in units of their deviation.
        ``None`` is fixed at the fit: 1e-3 where the rows are kept, and 0.1 where they
        are not, for good.
    tau
        How far a solver may be from its minimiser, in either world; ``None`` takes 1 %
        of the radius budget.
    releases
        ``None`` promises (epsilon, delta) for each release on its own; a number
        promises it for that many releases jointly.
    allow_seeded
        Whether seeded noise may be called certified, for benchmarks. Anyone who knows
        the seed can subtract it.
    row_norm
        A bound on every row's norm, declared in advance; ``None`` measures it on the
        rows at the fit.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    sigma: float | None = None
    tau: float | None = None
    releases: int | None = None
    allow_seeded: bool = False
    row_norm: float | None = None

    def __post_init__(self) -> None:
        """Refuse a budget that cannot be kept, and hold plain numbers."""
        if not 0.0 <= self._plain("epsilon") < inf:
            raise InvalidInput(f"epsilon={self.epsilon}; it must be zero or positive")
        if not 0.0 < self._plain("delta") < 1.0:
            raise InvalidInput(
                f"delta={self.delta}; it must lie strictly between 0 and 1"
            )
        if (
            self.sigma is not None
            and not SMALLEST_SIGMA <= self._plain("sigma") <= LARGEST_SIGMA
        ):
            raise InvalidInput(
                f"sigma={self.sigma}; noise needs a positive standard deviation "
                f"between {SMALLEST_SIGMA:g} and {LARGEST_SIGMA:g}"
            )
        for name in ("tau", "row_norm"):
            if getattr(self, name) is not None and not 0.0 < self._plain(name) < inf:
                raise InvalidInput(
                    f"{name}={getattr(self, name)}; it must be positive, or None for "
                    "the default"
                )
        if self.row_norm is not None:
            require_magnitude("row_norm", self.row_norm)
        _MADE[os.getpid(), id(self)] = self
        self._require_releases()
        if not isinstance(self.allow_seeded, bool):
            raise InvalidInput(
                f"allow_seeded={self.allow_seeded!r}; give True or False"
            )
        if not self.gdp > 0.0:
            raise InvalidInput(
                f"epsilon={self.epsilon}, delta={self.delta}: no noise is enough, "
                "because both are so small, or delta is so small beside so large an "
                "epsilon; raise delta"
            )

    @property
    def gdp(self) -> float:
        """Parameter mu of Gaussian differential privacy that one release may use.

        It is mu(epsilon, delta) / sqrt(releases): the squares of all releases add up
        to that of the promise, however later requests depend on earlier releases.
        """
        releases = self.releases or 1
        return promised_mu(self.epsilon, self.delta, releases=releases) / sqrt(releases)

    def at_fit(self, *, rows_kept: bool) -> "Budget":
        """Return the budget as a fit fixes it, with a number for sigma.

        Parameters
        ----------
        rows_kept
            Whether the remaining rows will be at hand when somebody leaves. Erasing
            them later does not change sigma.
        """
        if self.sigma is not None:
            return self
        sigma = SIGMA_WITH_ROWS if rows_kept else SIGMA_WITHOUT_ROWS
        return replace(self, sigma=sigma)

    @property
    def deviation(self) -> float:
        """Sigma; raises InvalidInput if it is left to a fit."""
        if self.sigma is None:
            raise InvalidInput(
                "sigma=None is fixed at a fit, by whether rows are kept; give a number "
                "here"
            )
        return self.sigma

    @property
    def always_looks(self) -> bool:
        """Whether every answer looks at the rows, if they are kept.

        Noise that is little more than that of the default hides a removal only after a
        look, for some people and not for others: how long an answer takes would tell
        which. So all of them look.
        """
        return self.deviation <= SIGMA_OF_LOOKS

    @property
    def grid(self) -> float:
        """Step of the noise: the power of two 2^(floor(log2 sigma) - 27)."""
        return ldexp(1.0, frexp(self.deviation)[1] - 1 - GRID_BITS)

    def radius_budget(self, n_parameters: int) -> float:
        """Return how far the two worlds' models may be apart, solver errors included.

        (1 - 1e-9) sigma mu - sqrt(d) grid, positive.

        Parameters
        ----------
        n_parameters
            d: length of the released vector, intercepts and all outputs included.
        """
        if n_parameters < 1:
            raise InvalidInput(f"n_parameters={n_parameters}; a model has at least one")
        rounding = sqrt(n_parameters) * self.grid
        radius = (1.0 - GRID_TOLL) * self.deviation * self.gdp - rounding
        if not radius > 0.0:  # whatever sigma is, because the grid follows it
            raise InvalidInput(
                f"n_parameters={n_parameters}: rounding to the noise grid alone uses "
                f"up epsilon={self.epsilon}, delta={self.delta} over "
                f"releases={self.releases}; raise epsilon or delta, or plan fewer "
                "releases (a larger sigma does not help: its grid grows with it)"
            )
        return radius

    def solver_error(self, n_parameters: int) -> float:
        """Return tau: how far either world's solver may be from its argmin.

        Parameters
        ----------
        n_parameters
            As for ``radius_budget``, of which tau defaults to 1 %.
        """
        allowed = self.radius_budget(n_parameters)
        if self.tau is None:
            return SOLVER_SHARE * allowed
        if self.tau >= allowed:
            raise InvalidInput(
                f"tau={self.tau:g} leaves nothing of the radius budget {allowed:.3g} "
                f"at n_parameters={n_parameters} for removals; lower tau or raise sigma"
            )
        return self.tau

    def removal_budget(self, n_parameters: int) -> float:
        """Return how large the radius of a removal may be: what tau leaves."""
        return self.radius_budget(n_parameters) - self.solver_error(n_parameters)

    def __copy__(self) -> "Budget":
        """Return the budget itself: a copy of a value is not a second budget."""
        return self

    def __deepcopy__(self, memo: object) -> "Budget":
        """Return the budget itself, so that clones of an estimator share it."""
        return self

    def _plain(self, name: str) -> float:
        """Replace a field by the float it stands for, and return it."""
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InvalidInput(f"{name}={value!r}; it must be a number")
        # A certificate is canonical text: 1 and numpy's 1.0 must not read differently.
        object.__setattr__(self, name, float(value))
        return float(value)

    def _require_releases(self) -> None:
        """Refuse a number of releases that is not one."""
        value: object = self.releases
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise InvalidInput(
                f"releases={value!r}; give the number of releases promised jointly, at "
                "least 1, or None for each on its own"
            )
        object.__setattr__(self, "releases", int(value))


# Budgets by the process that they were made in. One that came by pickle or fork was
# made elsewhere, and may be in use there.
_MADE: WeakValueDictionary[tuple[int, int], Budget] = WeakValueDictionary()


def is_made_here(budget: Budget) -> bool:
    """Return whether this very budget was made in this process."""
    return _MADE.get((os.getpid(), id(budget))) is budget
