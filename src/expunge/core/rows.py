# SPDX-License-Identifier: Apache-2.0
"""Rows: a checked design matrix with its labels and weights.

The only container of training rows. ``Objective.rows`` makes it: it checks the values
and appends the intercept's column of ones. Its repr shows no data.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .arrays import Design, Matrix, Vector, row_norms
from .packing import stored


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Rows:
    """Rows of a design with labels and weights, all float64.

    Attributes
    ----------
    X
        Design, (n, d), a C-ordered array or CSR, intercept column included.
    y
        Labels as the loss wants them.
    weight
        One non-negative weight a row.
    """

    X: Design
    y: Vector
    weight: Vector

    def __repr__(self) -> str:
        return f"Rows({self.X.shape[0]} x {self.X.shape[1]})"

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def total_weight(self) -> float:
        """W: the sum of the weights, never the row count."""
        return float(np.add.reduce(self.weight))

    def take(self, index: NDArray[Any] | slice) -> "Rows":
        """Return the rows at these positions (or where a mask is true)."""
        X: Any = self.X[index]
        return Rows(X, self.y[index], self.weight[index])

    def without(self, index: NDArray[Any]) -> "Rows":
        """Return all rows but those at these positions."""
        keep = np.ones(len(self), dtype=bool)
        keep[index] = False
        return self.take(keep)

    def blocks(self, size: int) -> Iterator["Rows"]:
        """Yield consecutive blocks of at most ``size`` rows, in order."""
        for begin in range(0, len(self), size):
            yield self.take(slice(begin, begin + size))

    def dense(self) -> Matrix:
        """Return the design as a dense array (for a few rows)."""
        return self.X.toarray() if sparse.issparse(self.X) else np.asarray(self.X)

    def norms(self) -> Vector:
        """Return the Euclidean norm of each row, intercept included."""
        return row_norms(self.X)
