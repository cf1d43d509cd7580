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


@dataclass(frozen=True)
class Loss:
    """A loss by name, with how many outputs it has.

    Attributes
    ----------
    name
        "logistic", "one-vs-rest", "softmax", "squared", "huber", "hinge", "poisson",
        or "rest-squared": squared distances of each class from the rest.
    outputs
        Predictors a row.
    threshold
        Of Huber's loss.
    """

    name: str
    outputs: int = 1
    threshold: float = 1.35

    @property
    def concordance(self) -> float:
        """How fast curvature may change, relatively, per unit of the predictor."""
        known = {"logistic": 1.0, "one-vs-rest": 1.0, "softmax": sqrt(2.0)}
        known |= {"squared": 0.0, "rest-squared": 0.0, "poisson": 1.0}
        return known.get(self.name, inf)

    @property
    def largest_curvature(self) -> float:
        """A bound on the curvature; infinite if there is none."""
        known = {"squared": 1.0, "huber": 1.0, "hinge": 2.0, "softmax": 0.5}
        known |= {"rest-squared": 1.0, "poisson": inf}
        return known.get(self.name, 0.25)

    def coded(self, y: Array) -> Array:
        """Return labels as (n, k): signs, indicators or targets."""
        y = np.asarray(y)
        if self.name in ("one-vs-rest", "rest-squared", "softmax"):
            own = (y[:, None] == np.arange(self.outputs)).astype(float)
            return np.asarray(own if self.name == "softmax" else 2.0 * own - 1.0)
        return y.reshape(len(y), -1).astype(float)

    def values(self, coded: Array, eta: Array) -> Array:
        """Return the loss of each row, (n,)."""
        if self.name == "softmax":
            top = eta.max(axis=1, keepdims=True)
            shifted = eta - top
            mass = np.log(np.exp(shifted).sum(axis=1))
            return np.asarray(mass - (coded * shifted).sum(axis=1))
        if self.name in ("logistic", "one-vs-rest"):
            each = np.logaddexp(eta.dtype.type(0), -coded * eta)
        elif self.name == "hinge":
            each = np.maximum(0, 1 - coded * eta) ** 2
        elif self.name == "poisson":
            each = np.exp(eta) - coded * eta
        elif self.name in ("squared", "rest-squared"):
            each = (eta - coded) ** 2 / 2
        else:
            error = np.abs(eta - coded)
            inside = np.minimum(error, eta.dtype.type(self.threshold))
            each = inside * (error - inside / 2)
        return np.asarray(each.sum(axis=1))

    def slopes(self, coded: Array, eta: Array) -> Array:
        """Return the derivative in each predictor, (n, k)."""
        if self.name == "softmax":
            return _probabilities(eta) - coded
        if self.name in ("logistic", "one-vs-rest"):
            return np.asarray(-coded / (1 + np.exp(coded * eta)))
        if self.name == "hinge":
            return np.asarray(-2 * coded * np.maximum(0, 1 - coded * eta))
        if self.name == "poisson":
            return np.asarray(np.exp(eta) - coded)
        error = np.asarray(eta - coded)
        if self.name in ("squared", "rest-squared"):
            return error
        bound = eta.dtype.type(self.threshold)
        return np.asarray(np.clip(error, -bound, bound))

    def curvatures(self, coded: Array, eta: Array) -> Array:
        """Return the second derivatives: (n, k), or (n, k, k) for softmax."""
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
        if self.name == "poisson":
            return np.exp(eta)
        if self.name in ("squared", "rest-squared"):
            return np.ones_like(eta)
        return np.asarray((np.abs(eta - coded) <= self.threshold).astype(eta.dtype))

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
