# SPDX-License-Identifier: Apache-2.0
"""Random Fourier features: inner products of them approximate a Gaussian kernel."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.values import stored


@stored
@dataclass(frozen=True)
class RandomFourier:
    """sqrt(2/D) cos(W'x + b), so that z(x).z(y) is about exp(-gamma |x - y|^2).

    Rahimi and Recht, "Random Features for Large-Scale Kernel Machines" (2007).

    Parameters
    ----------
    gamma
        Of the kernel.
    n_features
        D, how many features there are.
    seed
        Of the directions W and the phases b.
    """

    gamma: float = 1.0
    n_features: int = 100
    seed: int = 0

    @cached_property
    def _directions(self) -> dict[int, tuple[NDArray[Any], NDArray[Any]]]:
        return {}

    def encode(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the features of rows, (rows, D)."""
        width = X.shape[1]
        if width not in self._directions:
            rng = np.random.default_rng(self.seed)
            W = rng.normal(
                scale=np.sqrt(2.0 * self.gamma), size=(width, self.n_features)
            )
            b = rng.uniform(0.0, 2.0 * np.pi, size=self.n_features)
            self._directions[width] = W, b
        W, b = self._directions[width]
        return np.asarray(np.sqrt(2.0 / self.n_features) * np.cos(X @ W + b))
