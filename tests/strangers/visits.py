# SPDX-License-Identifier: Apache-2.0
"""Counts with a log link, by one class and the public names of the package."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from expunge import Loss, stored

Array = np.ndarray[Any, np.dtype[np.float64]]


@stored
@dataclass(frozen=True, slots=True)
class Visits(Loss):
    """Half the Poisson deviance, e^eta - y eta, up to what only y decides."""

    # l''' = l'', and neither has a bound.
    self_concordance: ClassVar[float] = 1.0

    def labels(self, y: Any) -> Array:
        """Return the counts, which need not be whole."""
        counts = np.asarray(y, dtype=np.float64)
        if counts.ndim != 1 or not ((counts >= 0.0) & (counts < 1e50)).all():
            raise ValueError("counts must be a vector of numbers from zero")
        return counts

    def value(self, y: Array, eta: Array) -> Array:
        """Return e^eta - y eta."""
        return np.asarray(np.exp(eta) - y * eta)

    def slope(self, y: Array, eta: Array) -> Array:
        """Return e^eta - y."""
        return np.asarray(np.exp(eta) - y)

    def curvature(self, y: Array, eta: Array) -> Array:
        """Return e^eta."""
        return np.asarray(np.exp(eta))

    def mean(self, eta: Array) -> Array:
        """Return the expected count."""
        return np.asarray(np.exp(eta))
