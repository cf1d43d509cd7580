# SPDX-License-Identifier: Apache-2.0
"""Capacity: how many rows can go before noise costs more than it may.

With k1, k2, k3 the loss's bounds, R a bound on the norm of every row (the intercept's
one included) and mu the strong convexity of the objective, the paper's constants are

    L = 2 k1 R           row gradients of the objective at the retrained model,
    C = k2 R^2 + mu      largest eigenvalue of a row's Hessian,
    M = k3 R^3           Lipschitz constant of a row's Hessian.

L cannot hold everywhere, because the quadratic's gradient grows without end. At a
minimiser it does: there the gradient of the whole regulariser is minus the *mean* loss
gradient, so it is at most k1 R long, and k1 R more come from the row itself.

The a-priori radii are the paper's Lemma 1 with these constants, without its spare
factor of two, and with a solver that stopped early paid for. They need neither data nor
state, serve plans and theory, and are loose at small alpha. They hold under both
scalings ("sum" would do with k1 R and k2 R^2), for weighted rows if you give removed
and total *weights*, and with a kink beside a positive ridge.

The paper's plan sizes the noise beforehand from the radius r of m removals, sigma = (r
+ tau) / mu(epsilon, delta). The capacity is the largest m at which the expected excess
risk stays below gamma. The risk is split along the way from the release back to the
population's minimiser,

    release -> noise-free model -> retrained model -> fitted model -> population.

The paper takes its four steps with one Lipschitz constant, which no strongly convex
objective has. Here noise and radius pay for the curvature they meet instead, and L is
used between minimisers alone, where it holds.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, isnan
from typing import TypeAlias

from ..core.objective import Objective
from ..core.values import UNDERFLOW, require_magnitude
from ..exceptions import InvalidInput, Unsupported
from .budget import mu_of


@dataclass(frozen=True, slots=True)
class Regularity:
    """Constants that hold for every row of norm at most ``row_norm``.

    Parameters
    ----------
    slope_bound, curvature_bound, third_bound
        k1, k2, k3: the loss's bounds in the predictor, infinite where none exists.
    row_norm
        R: largest Euclidean norm of a row, intercept included.
    strong_convexity
        mu: zero when nothing penalises some direction.
    outputs
        Predictors a row has; the trace of a curvature is at most k2 times this.
    """

    slope_bound: float
    curvature_bound: float
    third_bound: float
    row_norm: float
    strong_convexity: float
    outputs: int = 1

    def __post_init__(self) -> None:
        """Refuse constants that bound nothing."""
        bounds = (self.slope_bound, self.curvature_bound, self.third_bound)
        if any(isnan(bound) or bound < 0.0 for bound in bounds):
            raise InvalidInput(f"bounds {bounds} must be zero, positive or infinite")
        require_magnitude("row_norm", self.row_norm)
        if not (isfinite(self.strong_convexity) and self.strong_convexity >= 0.0):
            raise InvalidInput(
                f"strong_convexity={self.strong_convexity}; it must be zero or positive"
            )

    @property
    def lipschitz(self) -> float:
        """L = 2 k1 R, at minimisers alone: see the module docstring."""
        return 2.0 * self.slope_bound * self.row_norm

    @property
    def hessian_bound(self) -> float:
        """C = k2 R^2 + mu."""
        return self.curvature_bound * self.row_norm**2 + self.strong_convexity

    @property
    def hessian_lipschitz(self) -> float:
        """M = k3 R^3."""
        return self.third_bound * self.row_norm**3


def regularity_of(objective: Objective, row_norm: float) -> Regularity:
    """Return the constants of an objective on rows of norm at most ``row_norm``."""
    loss, mu = objective.loss, 0.0 if objective.n_free else objective.quadratic
    return Regularity(
        loss.slope_bound,
        loss.curvature_bound,
        loss.third_bound,
        row_norm=row_norm,
        strong_convexity=mu,
        outputs=loss.outputs,
    )


def drift_radius(
    regularity: Regularity,
    n_removed: float,
    *,
    n_samples: float,
    residual: float = 0.0,
) -> float:
    """Return a bound on how far retraining moves the model (Lemma 1, first part).

        |theta_hat - theta*| <= (L m/n + residual) / mu

    By strong convexity of the objective on *all* rows, whose gradient at theta* is
    the removed rows' alone. It needs a finite slope bound and mu > 0.

    Parameters
    ----------
    regularity
        Constants.
    n_removed, n_samples
        m and n, or the removed and the total weight.
    residual
        Norm of the objective's gradient, subgradient included, at the fitted model.
    """
    if regularity.slope_bound == inf:
        raise Unsupported(
            "the loss's slope is unbounded, so one row may move the model any "
            "distance; use a loss with a finite slope_bound (Logistic, Huber), or a "
            "radius measured at the model"
        )
    if regularity.strong_convexity == 0.0:
        raise Unsupported(
            "nothing penalises some direction (strong_convexity=0), so constants "
            "alone bound no distance; set ridge > 0 and penalize_intercept=True"
        )
    if not 0.0 <= n_removed < n_samples:
        raise InvalidInput(
            f"{n_removed:g} of {n_samples:g} rows removed; at least one must be left"
        )
    if not (isfinite(residual) and residual >= 0.0):
        raise InvalidInput(f"residual={residual}; it must be zero or positive")
    gradient = regularity.lipschitz * (n_removed / n_samples) + residual
    return _round_up(gradient / regularity.strong_convexity, gradient)


def newton_radius(
    regularity: Regularity,
    n_removed: float,
    *,
    n_samples: float,
    residual: float = 0.0,
) -> float:
    """Return a bound on Newton's error: the change of curvature along the way.

        |theta_bar - theta*| <= (M / 2 mu) t^2,   t = drift_radius

    The remaining rows' share cancels: it scales the strong convexity of what they
    minimise and the change of their curvature alike. Parameters as for
    ``drift_radius``; a finite third bound is needed too.
    """
    if regularity.third_bound == inf:
        raise Unsupported(
            "the loss's curvature jumps, so constants alone bound no error; use a "
            "loss with a finite third_bound, or a radius measured at the model"
        )
    drift = drift_radius(regularity, n_removed, n_samples=n_samples, residual=residual)
    change = 0.5 * regularity.hessian_lipschitz * drift * drift
    cause = drift * regularity.third_bound
    return _round_up(change / regularity.strong_convexity, cause)


def jackknife_radius(
    regularity: Regularity,
    n_removed: float,
    *,
    n_samples: float,
    residual: float = 0.0,
) -> float:
    """Return a bound on the jackknife's error (Lemma 1, second part).

        |theta_bar - theta*| <= (m/n) (C/mu) t + newton_radius,   t = drift_radius

    The first term is the curvature of the removed rows, still in the Hessian. Without a
    residual the sum is (m/n)^2 (C L / mu^2 + M L^2 / (2 mu^3)). Parameters as for
    ``newton_radius``.
    """
    sizes = {"n_samples": n_samples, "residual": residual}
    drift = drift_radius(regularity, n_removed, **sizes)
    stale = (n_removed / n_samples) * regularity.hessian_bound * drift
    newton = newton_radius(regularity, n_removed, **sizes)
    return _round_up(stale / regularity.strong_convexity, stale) + newton


def _round_up(bound: float, cause: float) -> float:
    """Return a bound with what may have underflowed in it, if there is a cause."""
    return bound + UNDERFLOW if cause > 0.0 else bound


APrioriRadius: TypeAlias = Callable[..., float]
"""``drift_radius``, ``newton_radius`` or ``jackknife_radius``."""


@dataclass(frozen=True, slots=True)
class CapacityPlan:
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


def noise_cost(regularity: Regularity, n_parameters: int, *, sigma: float) -> float:
    """Return what noise adds to the expected value of a smooth objective, at most.

        E F(theta + sigma xi) - F(theta) <= (k k2 R^2 + d mu) sigma^2 / 2

    The linear term vanishes in expectation, and the trace of the Hessian is at most
    k k2 R^2 for k outputs plus d mu. A kink would cost more, linearly in sigma.
    """
    loss = regularity.outputs * regularity.curvature_bound * regularity.row_norm**2
    trace = loss + n_parameters * regularity.strong_convexity
    return 0.5 * trace * sigma * sigma


def excess_risk_bound(
    plan: CapacityPlan, n_removed: int, *, radius: APrioriRadius = jackknife_radius
) -> float:
    """Return a bound on the expected excess risk after any m removals.

    ``budget_risk_bound`` with r the a-priori radius and the paper's noise, sigma = (r +
    residual/mu) / mu(epsilon, delta).
    """
    regularity, residual = plan.regularity, plan.residual
    r = radius(regularity, n_removed, n_samples=plan.n_samples, residual=residual)
    reach = r + residual / regularity.strong_convexity
    sigma = reach / mu_of(plan.epsilon, plan.delta)
    return budget_risk_bound(plan, n_removed, radius=r, sigma=sigma)


def budget_risk_bound(
    plan: CapacityPlan, n_removed: int, *, radius: float, sigma: float
) -> float:
    """Return a bound on the expected excess risk after any m removals.

        (k k2 R^2 + d mu) sigma^2/2 + L r + mu r^2/2 + L^2 m/(mu n) + L^2/(2 mu n)

    for any bound r on the distance to the retrained model: what a budget accepts is
    within its radius budget, whichever rows were removed. The last term is the
    learner's own: replacing one row moves the fit by at most L/(mu n), hence the loss
    at that row by at most k1 R L/(mu n) (the paper cites eight times this).
    """
    regularity, n = plan.regularity, plan.n_samples
    lipschitz, mu = regularity.lipschitz, regularity.strong_convexity
    moved = lipschitz * drift_radius(regularity, n_removed, n_samples=n)
    learned = lipschitz / (2.0 * mu * n) * lipschitz
    noise = noise_cost(regularity, plan.n_parameters, sigma=sigma)
    return noise + lipschitz * radius + 0.5 * mu * radius * radius + moved + learned


def deletion_capacity(
    plan: CapacityPlan, gamma: float, *, radius: APrioriRadius = jackknife_radius
) -> int:
    """Return the largest m whose ``excess_risk_bound`` is at most ``gamma``.

    The bound grows with m, so the answer is found by bisection.
    """

    def cost(n_removed: int) -> float:
        return excess_risk_bound(plan, n_removed, radius=radius)

    capacity = bisect_right(range(plan.n_samples), gamma, key=cost) - 1
    if capacity < 0:
        raise InvalidInput(
            f"gamma={gamma:g} is below {cost(0):.3g}, the bound with nobody removed; "
            "plan with more samples, a larger alpha or a larger gamma"
        )
    return capacity


def capacity_by_privacy(
    regularity: Regularity, n_samples: int, *, radius_budget: float, tau: float = 0.0
) -> int:
    """Return how many removals may simply be ignored: unlearning by privacy alone.

    The largest m with L m / (mu n) + 2 tau <= radius budget, where tau is how far each
    of two fits may be from its own minimiser.

    An operator who releases the fit on all n rows answers as if retrained on any n - m
    of them, up to the distance that ``drift_radius`` bounds. With noise sigma one row
    costs L/(mu n sigma) as Gaussian privacy and m rows m times that, so that the
    count is linear in sigma where a removal's is like its root: its radius grows with
    m^2. Sized for a risk gamma instead, the figure is at least
    ``deletion_capacity(plan, gamma, drift_radius)``.
    """

    def distance(n_removed: int) -> float:
        return drift_radius(regularity, n_removed, n_samples=n_samples) + 2.0 * tau

    capacity = bisect_right(range(n_samples), radius_budget, key=distance) - 1
    if capacity < 0:
        raise InvalidInput(
            f"tau={tau:g} in both fits leaves nothing of radius_budget="
            f"{radius_budget:g}; lower tau or raise sigma"
        )
    return capacity
