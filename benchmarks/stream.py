# SPDX-License-Identifier: Apache-2.0
"""Removal requests one after another, from raw arrays to noise-free coefficients."""

import numpy as np
from numpy.typing import NDArray

from expunge import Objective, residual
from expunge.removal import Mechanism, State

from .data import Dataset

MOST_REQUESTS = 1000


class Stream:
    """A mechanism that forgets one row of a dataset at each call.

    A call is what a request costs: check the raw row that came with it, update the
    state (which the stream owns, and spends), read the model and, if ``measured``,
    compute the residual that a certificate starts from.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        summary: State,
        dataset: Dataset,
        order: NDArray[np.intp],
        *,
        measured: bool = False,
    ) -> None:
        self.mechanism = mechanism
        self.objective: Objective = summary.objective
        self.dataset = dataset
        self.state: State = mechanism.init(summary)
        self._measured = measured
        first = order[:MOST_REQUESTS]  # a request brings its row along
        self._requests = zip(dataset.X[first], dataset.y[first], strict=True)

    def __call__(self) -> NDArray[np.float64]:
        """Forget the next row and return the new coefficients."""
        x, y = next(self._requests)
        removed = self.objective.rows(x[None], y[None])
        state = self.mechanism.update(self.state, removed, overwrite=True)
        self.state, draft = self.mechanism.step(state)
        if self._measured:
            residual(self.state, draft)
        return draft.theta

    def read(self) -> NDArray[np.float64]:
        """Return the coefficients of the state as it is."""
        return self.mechanism.step(self.state)[1].theta

    def forget_batch(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the coefficients without these rows; the stream stays put."""
        X, y = self.dataset.X[rows], self.dataset.y[rows]
        state = self.mechanism.update(self.state, self.objective.rows(X, y))
        return self.mechanism.step(state)[1].theta


def request_order(n_rows: int) -> NDArray[np.intp]:
    """Return the order of requests: a seeded permutation of the rows."""
    return np.random.default_rng(0).permutation(n_rows)
