# SPDX-License-Identifier: Apache-2.0
r"""Capacity: how many rows can go before noise costs more than it may.

The paper's plan: noise is sized beforehand from the a-priori radius r of m removals,
sigma = (r + tau) / mu(epsilon, delta), and the capacity is the largest m at which the
expected excess risk stays below gamma. The risk is split along the way from the
release back to the population's minimiser,

    release -> noise-free model -> retrained model -> fitted model -> population.

The paper takes its four steps with one Lipschitz constant, which no strongly convex
objective has. Here noise and radius pay for the curvature they meet instead, and
the constant L = 2 k1 R is used between minimisers alone, where it holds.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from .exceptions import InvalidInput
from .gaussian import mu_of
from .regularity import Regularity, drift_radius, jackknife_radius

Radius: TypeAlias = Callable[[Regularity, float, float, float], float]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known before anyone asks to be removed.

    Parameters
    ----------
    regularity
        Constants of a smooth objective under "mean" scaling.
    n_samples, n_parameters
        n rows, drawn independently, and d (times the outputs) parameters.
    epsilon, delta
        What a release promises.
    residual
        Norm of the gradient at which a fit may stop, in either world.
    """

    regularity: Regularity
    n_samples: int
    n_parameters: int
    epsilon: float
    delta: float
    residual: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a plan about nothing."""
        if self.n_samples < 1 or self.n_parameters < 1:
            raise InvalidInput(
                f"n_samples={self.n_samples}, n_parameters={self.n_parameters}; a "
                "plan needs at least one of each"
            )


def noise_cost(regularity: Regularity, n_parameters: int, sigma: float) -> float:
    """Return what noise adds to the expected value of a smooth objective, at most.

        E F(theta + sigma xi) - F(theta) <= (k k2 R^2 + d mu) sigma^2 / 2

    The linear term vanishes in expectation, and the trace of the Hessian is at most
    k k2 R^2 for k outputs plus d mu. A kink would cost more, linearly in sigma.

    Parameters
    ----------
    regularity
        Constants of the objective; only k2, R and mu matter.
    n_parameters
        d: length of theta.
    sigma
        Standard deviation of the noise on each parameter.
    """
    loss = regularity.outputs * regularity.curvature_bound * regularity.row_norm**2
    trace = loss + n_parameters * regularity.strong_convexity
    return 0.5 * trace * sigma * sigma


def excess_risk_bound(
    plan: Plan, n_removed: int, radius: Radius = jackknife_radius
) -> float:
    """Return a bound on the expected excess risk after any m removals.

        (k k2 R^2 + d mu) sigma^2/2 + L r + mu r^2/2 + L^2 m/(mu n) + L^2/(2 mu n)

    with r the radius and sigma = (r + residual/mu) / mu(epsilon, delta). The last term
    is the learner's own: replacing one row moves the fit by at most L/(mu n), hence
    the loss at that row by at most k1 R L/(mu n) (the paper cites eight times this).

    Parameters
    ----------
    plan
        Constants, sizes and promise.
    n_removed
        m: the bound holds for every set of at most so many rows.
    radius
        ``jackknife_radius`` or ``newton_radius``.
    """
    known = plan.regularity
    r = radius(known, n_removed, plan.n_samples, plan.residual)
    tau = plan.residual / known.strong_convexity
    sigma = (r + tau) / mu_of(plan.epsilon, plan.delta)
    return contract_risk_bound(plan, n_removed, radius=r, sigma=sigma)


def contract_risk_bound(
    plan: Plan, n_removed: int, *, radius: float, sigma: float
) -> float:
    """Return ``excess_risk_bound`` under a contract, where sigma is given.

    The same sum with r any bound on the distance to the retrained model: what a
    contract accepts is within its radius budget, whichever rows were removed.

    Parameters
    ----------
    plan
        Constants and sizes; epsilon and delta do not enter.
    n_removed
        m, as for ``excess_risk_bound``.
    radius
        r: the largest radius that is accepted.
    sigma
        The contract's noise.
    """
    known, n = plan.regularity, plan.n_samples
    lipschitz, mu = known.lipschitz, known.strong_convexity
    moved = lipschitz * drift_radius(known, n_removed, n, 0.0)
    learned = lipschitz / (2.0 * mu * n) * lipschitz
    noise = noise_cost(known, plan.n_parameters, sigma)
    return noise + lipschitz * radius + 0.5 * mu * radius * radius + moved + learned


def deletion_capacity(
    plan: Plan, gamma: float, radius: Radius = jackknife_radius
) -> int:
    """Return the largest m whose ``excess_risk_bound`` is at most ``gamma``.

    The bound grows with m, so the answer is found by bisection.

    Parameters
    ----------
    plan, radius
        As for ``excess_risk_bound``.
    gamma
        The excess risk that may be spent on learning, removal and noise.
    """

    def cost(n_removed: int) -> float:
        return excess_risk_bound(plan, n_removed, radius)

    capacity = bisect_right(range(plan.n_samples), gamma, key=cost) - 1
    if capacity < 0:
        raise InvalidInput(
            f"gamma={gamma:g} is below {cost(0):.3g}, the bound with nobody removed; "
            "plan with more samples, a larger alpha or a larger gamma"
        )
    return capacity


def capacity_by_privacy(
    regularity: Regularity, n_samples: int, radius_budget: float, tau: float = 0.0
) -> int:
    """Return how many removals may simply be ignored: unlearning by privacy alone.

    The largest m with

        L m / (mu n) + 2 tau <= radius budget.

    Whoever releases the fit on all n rows answers as if retrained on any n - m of
    them, up to the distance that ``drift_radius`` bounds. With noise sigma one row
    costs L/(mu n sigma) as Gaussian privacy and m rows m times that, so that the
    count is linear in sigma where a removal's is like its root: its radius grows with
    m^2. Sized for a risk gamma instead, the figure is at least
    ``deletion_capacity(plan, gamma, drift_radius)``.

    Parameters
    ----------
    regularity
        Constants; a finite slope bound and mu > 0 are needed.
    n_samples
        n.
    radius_budget
        How far apart the contract lets two models be.
    tau
        How far each of the two fits may be from its own minimiser.
    """

    def distance(n_removed: int) -> float:
        return drift_radius(regularity, n_removed, n_samples) + 2.0 * tau

    capacity = bisect_right(range(n_samples), radius_budget, key=distance) - 1
    if capacity < 0:
        raise InvalidInput(
            f"tau={tau:g} in both fits leaves nothing of radius_budget="
            f"{radius_budget:g}; lower tau or raise sigma"
        )
    return capacity
