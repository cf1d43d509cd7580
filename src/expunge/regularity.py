# SPDX-License-Identifier: Apache-2.0
r"""Regularity: the constants of an objective, and what they bound before any data.

With k1, k2, k3 the loss's bounds, R a bound on the norm of every row (the
intercept's one included) and mu the strong convexity of the objective, the paper's
constants are

    L = 2 k1 R           row gradients of the objective at the retrained model,
    C = k2 R^2 + mu      largest eigenvalue of a row's Hessian,
    M = k3 R^3           Lipschitz constant of a row's Hessian.

L cannot hold everywhere, for the quadratic's gradient grows without end. At a
minimiser it does: there the pull of the whole regulariser is minus the *mean* loss
gradient, so it is at most k1 R long, and k1 R more come from the row itself.

The bounds below are the paper's Lemma 1 with these constants, without its spare
factor of two, and with a solver that stopped early paid for. They need neither data
nor state, serve plans and theory, and are loose at small alpha. They hold under
both scalings ("sum" would do with k1 R and k2 R^2), for weighted rows if removed
and total *weights* are given, and with a kink beside a positive ridge.
"""

from dataclasses import dataclass
from math import inf, isfinite, isnan

from .exceptions import InvalidInput, Unsupported
from .magnitude import UNDERFLOW, require_magnitude
from .objective import Objective


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
        if not (isfinite(self.row_norm) and self.row_norm > 0.0):
            raise InvalidInput(f"row_norm={self.row_norm}; it must be positive")
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
    loss = objective.loss
    return Regularity(
        slope_bound=loss.slope_bound,
        curvature_bound=loss.curvature_bound,
        third_bound=loss.third_bound,
        row_norm=row_norm,
        strong_convexity=0.0 if objective.n_free else objective.quadratic,
        outputs=loss.outputs,
    )


def drift_radius(
    regularity: Regularity,
    n_removed: float,
    n_samples: float,
    residual: float = 0.0,
) -> float:
    """Return a bound on how far retraining moves the model (Lemma 1, first part).

        |theta_hat - theta*| <= (L m/n + residual) / mu

    By strong convexity of the objective on *all* rows, whose gradient at theta* is
    the removed rows' alone.

    Parameters
    ----------
    regularity
        Constants; a finite slope bound and mu > 0 are needed.
    n_removed, n_samples
        m and n, or the removed and the total weight.
    residual
        Norm of the objective's gradient, subgradient included, at the fitted model.
    """
    _require_moderate(regularity)
    if not 0.0 <= n_removed < n_samples:
        raise InvalidInput(
            f"{n_removed:g} of {n_samples:g} rows removed; at least one must be left"
        )
    if not (isfinite(residual) and residual >= 0.0):
        raise InvalidInput(f"residual={residual}; it must be zero or positive")
    pull = regularity.lipschitz * (n_removed / n_samples) + residual
    return _above(pull / regularity.strong_convexity, pull)


def jackknife_radius(
    regularity: Regularity,
    n_removed: float,
    n_samples: float,
    residual: float = 0.0,
) -> float:
    """Return a bound on the jackknife's error (Lemma 1, second part).

        |theta_bar - theta*| <= (m/n) (C/mu) t + (M / 2 mu) t^2,   t = drift_radius

    The first term is the curvature of the removed rows, still in the Hessian; the
    second the change of curvature along the way. Without a residual it is
    (m/n)^2 (C L / mu^2 + M L^2 / (2 mu^3)). Parameters as for ``drift_radius``; a
    finite third bound is needed too.
    """
    drift = drift_radius(regularity, n_removed, n_samples, residual)
    stale = (n_removed / n_samples) * regularity.hessian_bound * drift
    newton = newton_radius(regularity, n_removed, n_samples, residual)
    return _above(stale / regularity.strong_convexity, stale) + newton


def newton_radius(
    regularity: Regularity,
    n_removed: float,
    n_samples: float,
    residual: float = 0.0,
) -> float:
    """Return a bound on Newton's error: the second term of the jackknife's.

        |theta_bar - theta*| <= (M / 2 mu) t^2,   t = drift_radius

    The remaining rows' share cancels: it scales the strong convexity of what they
    minimise and the change of their curvature alike. Parameters as for
    ``jackknife_radius``.
    """
    if regularity.third_bound == inf:
        raise Unsupported(
            "the loss's curvature jumps, so constants alone bound no error; use a "
            "loss with a finite third_bound, or a radius measured at the model"
        )
    drift = drift_radius(regularity, n_removed, n_samples, residual)
    change = 0.5 * regularity.hessian_lipschitz * drift * drift
    return _above(change / regularity.strong_convexity, drift * regularity.third_bound)


def _above(bound: float, cause: float) -> float:
    """Return a bound with what may have underflowed in it, if there is a cause."""
    return bound + UNDERFLOW if cause > 0.0 else bound


def _require_moderate(regularity: Regularity) -> None:
    """Refuse constants under which a model may move without limit."""
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
