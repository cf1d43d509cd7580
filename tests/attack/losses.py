# SPDX-License-Identifier: Apache-2.0
"""Losses as the oracle writes them: value, slope and curvature, in any precision.

Nothing here comes from the package under attack. Predictors are (n, k); labels are
signs for binary losses, class codes for several classes, targets for regression.
"""

from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

GROWING = ("visits", "poisson", "gamma", "tweedie", "binomial")


@dataclass(frozen=True)
class Loss:
    """A loss by name, with how many outputs it has.

    Attributes
    ----------
    name
        "logistic", "one-vs-rest", "softmax", "squared", "huber", "hinge", or
        "rest-squared": squared distances of each class from the rest. "visits" and
        "poisson", "gamma", "tweedie", "binomial" have a log link; "pinball".
    outputs
        Predictors a row.
    threshold
        Of Huber's loss.
    shape, width
        The power of Tweedie's loss, the dispersion of the binomial's, the quantile of
        the pinball's; and over how much that one is smoothed.
    offset
        Whether labels are responses beside the exponentials of offsets.
    largest
        The largest count of the binomial's that is declared.
    """

    name: str
    outputs: int = 1
    threshold: float = 1.35
    shape: float = 0.5
    width: float = 1.0
    offset: bool = False
    largest: float | None = None

    @property
    def concordance(self) -> float:
        """How fast curvature may change, relatively, per unit of the predictor."""
        known = {"logistic": 1.0, "one-vs-rest": 1.0, "softmax": sqrt(2.0)}
        known |= {"squared": 0.0, "rest-squared": 0.0, "pinball": 1.0 / self.width}
        known |= dict.fromkeys(("visits", "poisson", "gamma", "binomial"), 1.0)
        known["tweedie"] = max(self.shape - 1.0, 2.0 - self.shape)
        return known.get(self.name, inf)

    @property
    def largest_curvature(self) -> float:
        """A bound on the curvature; infinite if there is none."""
        known = {"squared": 1.0, "huber": 1.0, "hinge": 2.0, "softmax": 0.5}
        known |= {"rest-squared": 1.0, "pinball": 0.25 / self.width}
        known |= dict.fromkeys(GROWING, inf)
        return known.get(self.name, 0.25)

    def coded(self, y: Array) -> Array:
        """Return labels as (n, k): signs, indicators or targets."""
        y = np.asarray(y)
        if self.offset:  # of which the exponential is given
            return np.column_stack([y[:, 0], np.log(y[:, 1].astype(np.longdouble))])
        if self.name in ("one-vs-rest", "rest-squared", "softmax"):
            own = (y[:, None] == np.arange(self.outputs)).astype(float)
            return np.asarray(own if self.name == "softmax" else 2.0 * own - 1.0)
        return y.reshape(len(y), -1).astype(float)

    def values(self, coded: Array, eta: Array) -> Array:
        """Return the loss of each row, (n,)."""
        coded, eta = self._moved(coded, eta)
        if self.name == "softmax":
            top = eta.max(axis=1, keepdims=True)
            shifted = eta - top
            mass = np.log(np.exp(shifted).sum(axis=1))
            return np.asarray(mass - (coded * shifted).sum(axis=1))
        if self.name in ("logistic", "one-vs-rest"):
            each = np.logaddexp(eta.dtype.type(0), -coded * eta)
        elif self.name == "hinge":
            each = np.maximum(0, 1 - coded * eta) ** 2
        elif self.name in GROWING or self.name == "pinball":
            each = self._value(coded, eta)
        elif self.name in ("squared", "rest-squared"):
            each = (eta - coded) ** 2 / 2
        else:
            error = np.abs(eta - coded)
            inside = np.minimum(error, eta.dtype.type(self.threshold))
            each = inside * (error - inside / 2)
        return np.asarray(each.sum(axis=1))

    def slopes(self, coded: Array, eta: Array) -> Array:
        """Return the derivative in each predictor, (n, k)."""
        coded, eta = self._moved(coded, eta)
        if self.name == "softmax":
            return _probabilities(eta) - coded
        if self.name in ("logistic", "one-vs-rest"):
            return np.asarray(-coded / (1 + np.exp(coded * eta)))
        if self.name == "hinge":
            return np.asarray(-2 * coded * np.maximum(0, 1 - coded * eta))
        if self.name in GROWING or self.name == "pinball":
            return self._pulls(coded, eta)[0]
        error = np.asarray(eta - coded)
        if self.name in ("squared", "rest-squared"):
            return error
        bound = eta.dtype.type(self.threshold)
        return np.asarray(np.clip(error, -bound, bound))

    def curvatures(self, coded: Array, eta: Array) -> Array:
        """Return the second derivatives: (n, k), or (n, k, k) for softmax."""
        coded, eta = self._moved(coded, eta)
        if self.name == "softmax":
            p = _probabilities(eta)
            return np.asarray(p[:, :, None] * (np.eye(p.shape[1]) - p[:, None, :]))
        if self.name in ("logistic", "one-vs-rest"):
            e = np.exp(-np.abs(eta))
            return np.asarray(e / (1 + e) ** 2)
        if self.name == "hinge":
            return np.asarray(
                np.where(coded * eta < 1, eta.dtype.type(2), eta.dtype.type(0))
            )
        if self.name in GROWING or self.name == "pinball":
            return self._pulls(coded, eta)[1]
        if self.name in ("squared", "rest-squared"):
            return np.ones_like(eta)
        return np.asarray((np.abs(eta - coded) <= self.threshold).astype(eta.dtype))

    def _moved(self, coded: Array, eta: Array) -> tuple[Array, Array]:
        """Return responses, and predictors with their offsets."""
        if not self.offset:
            return coded, eta
        return coded[:, :1], np.asarray(eta + coded[:, 1:])

    def _value(self, y: Array, eta: Array) -> Array:
        """Return the loss of counts, amounts and quantiles."""
        kind = eta.dtype.type
        if self.name in ("visits", "poisson"):
            return np.asarray(np.exp(eta) - y * eta)
        if self.name == "gamma":
            return np.asarray(eta + y * np.exp(-eta))
        if self.name == "tweedie":
            a, b = 2 - kind(self.shape), kind(self.shape) - 1
            return np.asarray(np.expm1(a * eta) / a + y * np.expm1(-b * eta) / b)
        if self.name == "binomial":
            c = kind(self.shape)
            z = eta + np.log(c)
            return np.asarray(y * np.logaddexp(0 * z, -z) + np.logaddexp(0 * z, z) / c)
        h, q, error = kind(self.width), kind(self.shape), eta - y
        above, below = np.logaddexp(0 * error, -error / h), 0 * error
        return np.asarray(h * (q * above + (1 - q) * np.logaddexp(below, error / h)))

    def _pulls(self, y: Array, eta: Array) -> tuple[Array, Array]:
        """Return slopes and curvatures of counts, amounts and quantiles."""
        kind = eta.dtype.type
        if self.name in ("visits", "poisson"):
            return np.asarray(np.exp(eta) - y), np.exp(eta)
        if self.name == "gamma":
            return np.asarray(1 - y * np.exp(-eta)), np.asarray(y * np.exp(-eta))
        if self.name == "tweedie":
            a, b = 2 - kind(self.shape), kind(self.shape) - 1
            power, other = np.exp(a * eta), y * np.exp(-b * eta)
            return np.asarray(power - other), np.asarray(a * power + b * other)
        if self.name == "binomial":
            c = kind(self.shape)
            p = 1 / (1 + np.exp(-eta - np.log(c)))
            rest = 1 / (1 + np.exp(eta + np.log(c)))
            return np.asarray(p / c - y * rest), np.asarray((y + 1 / c) * p * rest)
        z = (eta - y) / kind(self.width)
        p, rest = 1 / (1 + np.exp(-z)), 1 / (1 + np.exp(z))
        return np.asarray(p - kind(self.shape)), np.asarray(p * rest / kind(self.width))

    def kink_distances(self, coded: Array, eta: Array) -> Array:
        """Return how far each row is from a jump of the curvature, (n,)."""
        if self.name == "hinge":
            return np.asarray(np.abs(1 - coded * eta).min(axis=1))
        if self.name == "huber":
            return np.asarray(np.abs(np.abs(eta - coded) - self.threshold).min(axis=1))
        return np.full(len(eta), inf)


def _probabilities(eta: Array) -> Array:
    """Return the softmax of each row."""
    shifted = np.exp(eta - eta.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))
