# SPDX-License-Identifier: Apache-2.0
r"""FeatureMap: features that are linear in other features of the same rows.

Sums over rows e are kept for the features as they were at the anchor. A scaler that
learns something different since then changes every row, but linearly: x = A'e, e with a
constant 1 at its end. Parameters theta of x act on e as A theta, so that sums over x
follow from sums over e without a look at any row (docs/radii.md, "Features that
change").

A column of A has few entries besides the constant's, so they are kept one by one. A
product of A with a d x d matrix costs O(d^2).

``back`` is S with S A = I where the features allow it: it takes parameters of e to
parameters of x. Nothing sound rests on it; it says where to start.

``row_growth`` is kappa >= 1 with |x| <= kappa |e| for every row.
"""

from dataclasses import dataclass
from functools import cached_property
from math import hypot, sqrt

import numpy as np
from numpy.typing import NDArray

from .arrays import SAFETY, Index, Matrix, Vector
from .linalg import Symmetric
from .values import Private


@dataclass(frozen=True, repr=False, eq=False)
class FeatureMap(Private):
    """The map from rows e at the anchor to the rows x of the present features.

    Attributes
    ----------
    rows, columns, values
        Entries of A besides the constant's, sorted by column; each column has one.
        With an intercept the last column is the constant itself.
    shift
        The constant's entry in each column but the intercept's.
    size
        Number of e.
    intercept
        Whether the model has an intercept.
    main, share
        For each entry whether parameters come back by it, and what share of them.
    outputs
        Of the loss: parameters are (features, outputs), row by row.
    """

    rows: Index
    columns: Index
    values: Vector
    shift: Vector
    size: int
    intercept: bool
    main: NDArray[np.bool]
    share: Vector
    outputs: int = 1

    @cached_property
    def width(self) -> int:
        """Number of x, intercept included."""
        return len(self.shift) + self.intercept

    @cached_property
    def full_shift(self) -> Vector:
        """The shift with zero for the intercept."""
        return np.append(self.shift, np.zeros(int(self.intercept)))

    @cached_property
    def row_growth(self) -> float:
        """kappa: at least 1, and |A'e| <= kappa |e| for every row e.

        With M the entries off the constant, b >= |M| and t the shift, a row has
        |x|^2 <= (b |e'| + |t|)^2 + 1 where e = (e', 1): at most the square of the
        largest singular value of [[b, |t|], [0, 1]] times |e|^2. The bound
        1/min rho + |t|, which looks alike, is false where min rho > 1.
        """
        off = self.rows < self.size - 1
        sizes = np.abs(self.values[off])
        # |M| <= sqrt(|M|_1 |M|_inf)
        most = np.bincount(self.columns[off], sizes).max(initial=0.0)
        most *= np.bincount(self.rows[off], sizes).max(initial=0.0)
        size, shift = sqrt(float(most)), float(np.linalg.norm(self.shift))
        if not self.intercept:
            return max(1.0, hypot(size, shift)) * SAFETY
        # The larger singular value of [[size, shift], [0, 1]].
        trace = size * size + shift * shift + 1.0
        root = sqrt(max(trace * trace - 4.0 * size * size, 0.0))
        return max(1.0, sqrt(0.5 * (trace + root))) * SAFETY

    def lift(self, theta: Vector) -> Vector:
        """Return A theta: what parameters of x are on e."""
        matrix = theta.reshape(-1, self.outputs)
        lifted = np.zeros((self.size, self.outputs))
        np.add.at(lifted, self.rows, self.values[:, None] * matrix[self.columns])
        lifted[-1] += self.full_shift @ matrix
        return lifted.ravel()

    def transpose(self, gradient: Vector) -> Vector:
        """Return A'g: a gradient by parameters of x from one by those of e."""
        matrix = gradient.reshape(-1, self.outputs)
        mapped = self._gather(self.values[:, None] * matrix[self.rows], axis=0)
        mapped += np.outer(self.full_shift, matrix[-1])
        return mapped.ravel()

    def map_hessian(self, matrix: Symmetric) -> Symmetric:
        """Return A'MA."""
        blocks = [self._map_hessian_block(block) for block in matrix.blocks]
        return Symmetric.from_dense(blocks, matrix.outputs)

    def _map_hessian_block(self, matrix: Symmetric) -> Matrix:
        parts = self._split(matrix)
        left = self._gather(self.values[:, None, None, None] * parts[self.rows], axis=0)
        left += self.full_shift[:, None, None, None] * parts[-1]
        both = self.values[:, None] * left[:, :, self.rows]
        mapped = self._gather(both, axis=2)
        mapped += self.full_shift[:, None] * left[:, :, -1:]
        return self._join(mapped)

    def back(self, theta: Vector) -> Vector:
        """Return S theta: parameters of x near those of e."""
        matrix = theta.reshape(-1, self.outputs)
        near = np.zeros((self.width, self.outputs))
        weights = self.back_weights
        np.add.at(near, self.columns, weights[:, None] * matrix[self.rows])
        if self.intercept:
            near[-1] -= self.full_shift @ near
        return near.ravel()

    def map_inverse(self, matrix: Symmetric) -> Symmetric:
        """Return S M S'."""
        blocks = [self._map_inverse_block(block) for block in matrix.blocks]
        return Symmetric.from_dense(blocks, matrix.outputs)

    def _map_inverse_block(self, matrix: Symmetric) -> Matrix:
        parts, weights = self._split(matrix), self.back_weights
        left = self._gather(weights[:, None, None, None] * parts[self.rows], axis=0)
        if self.intercept:
            left[-1] -= np.tensordot(self.full_shift, left, axes=1)
        near = self._gather(weights[:, None] * left[:, :, self.rows], axis=2)
        if self.intercept:
            near[:, :, -1] -= np.einsum("iojp,j->iop", near, self.full_shift)
        return self._join(near)

    @cached_property
    def back_weights(self) -> Vector:
        """Entries of S where A has its own, before the intercept takes its share."""
        weights = np.zeros(len(self.values))
        return np.divide(self.share, self.values, out=weights, where=self.main)

    @cached_property
    def _starts(self) -> Index | None:
        """Where each column's entries begin; None if each has one entry."""
        if len(self.columns) == self.width:
            return None
        return np.searchsorted(self.columns, np.arange(self.width))

    def _gather(self, entries: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        """Return the sums of entries that belong to one column."""
        if self._starts is None:
            return entries
        summed: NDArray[np.float64] = np.add.reduceat(entries, self._starts, axis=axis)
        return summed

    def _split(self, matrix: Symmetric) -> NDArray[np.float64]:
        """Return a matrix as (e, outputs, e, outputs); a block is of one output."""
        outputs = matrix.size // self.size
        return matrix.dense().reshape(self.size, outputs, self.size, outputs)

    def _join(self, parts: NDArray[np.float64]) -> Matrix:
        """Return (x, outputs, x, outputs) as a matrix."""
        width = self.width * parts.shape[1]
        return parts.reshape(width, width)
