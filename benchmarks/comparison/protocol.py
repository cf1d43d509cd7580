# SPDX-License-Identifier: Apache-2.0
"""What each contender of the comparison is given, and what it must answer.

A contender starts a session on a problem, which is not timed; the session then gets
one request after another. All that a deployment pays for a request happens inside
``forget``, so that the caller can time it. The other methods are for measuring.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import numpy as np

from expunge import Objective, Rows
from expunge.core.arrays import Index, Vector
from expunge.exceptions import NotCertifiable


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Problem:
    """What everybody is given.

    Attributes
    ----------
    name
        As in tables and plots.
    objective
        What a fit minimises.
    train
        Made by ``objective.rows``: row i is person i.
    test
        Rows that nobody trains on.
    """

    name: str
    objective: Objective
    train: Rows
    test: Rows


@dataclass(frozen=True, slots=True)
class Promise:
    """The (epsilon, delta) that a release is to keep."""

    epsilon: float = 1.0
    delta: float = 1e-5


class Session(Protocol):
    """One stream of requests; it changes with each."""

    def forget(self, removed: Index) -> None:
        """Answer one request: the rows at these positions of ``problem.train``."""

    def theta(self) -> Vector:
        """Return the noise-free answer now, as this contender gives it."""

    def state_bytes(self) -> int:
        """Return the bytes kept between requests, training rows included if needed."""

    def noise(self, promise: Promise) -> float:
        """Return the noise that a budget planned for just these removals needs.

        A standard deviation, under the contender's own guarantee; infinite where it
        proves nothing. On theta, unless the contender's docstring says otherwise.
        """

    def release(self, promise: Promise, rng: np.random.Generator) -> Vector:
        """Return what would be published under such a budget.

        Raises NotCertifiable where no finite noise is enough.
        """

    @property
    def retrainings(self) -> int:
        """How often it was forced to retrain so far."""


class Contender(Protocol):
    """A way to answer removal requests."""

    @property
    def name(self) -> str:
        """Short, as on plots."""

    def start(self, problem: Problem, seed: int) -> Session:
        """Fit the model and prepare; raise Unsupported where the method cannot."""


def add_noise(theta: Vector, sigma: float, rng: np.random.Generator) -> Vector:
    """Return theta with Gaussian noise, as a release publishes it."""
    if not isfinite(sigma):
        raise NotCertifiable(
            f"sigma={sigma}: this method proves nothing here, so no noise is "
            "enough; raise alpha or ridge, or ask for noise() before a release"
        )
    return theta + rng.normal(0.0, sigma, theta.size)
