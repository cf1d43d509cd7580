# SPDX-License-Identifier: Apache-2.0
r"""FeatureMap: features that are linear in other features of the same rows.

Sums over rows e are kept for the features as they were at the anchor. A scaler that
learns something different since then changes every row, but linearly: x = A'e, e with a
constant 1. Parameters theta of x act on e as A theta, so that sums over x follow from
sums over e without a look at any row (docs/paper.md, "Preprocessing").

``back`` is S with S A = I where the features allow it: it takes parameters of e to
parameters of x. Nothing sound rests on it; it says where to start.

``stretch`` is kappa >= 1 with |x| <= kappa |e| for every row.
"""

from dataclasses import dataclass
from math import hypot, sqrt
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse
from scipy.sparse import csr_array

from .arrays import SAFETY, Matrix, Private, Vector
from .linalg import Symmetric

Sparse: TypeAlias = csr_array[Any, tuple[int, int]]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FeatureMap(Private):
    """The map from rows e at the anchor to the rows x of the present features.

    Attributes
    ----------
    forward
        A, (number of e, number of x), repeated for every output.
    back
        S, (number of x, number of e), repeated likewise.
    stretch
        kappa, at least 1.
    """

    forward: Sparse
    back: Sparse
    stretch: float

    @classmethod
    def of(
        cls, forward: Any, back: Any, *, stretch: float, outputs: int
    ) -> "FeatureMap":
        """Return the map for parameters with this many outputs."""
        if outputs > 1:
            eye = sparse.eye_array(outputs, format="csr")
            forward, back = sparse.kron(forward, eye), sparse.kron(back, eye)
        return cls(csr_array(forward), csr_array(back), max(1.0, stretch) * SAFETY)

    def lift(self, theta: Vector) -> Vector:
        """Return A theta: what parameters of x are on e."""
        return np.asarray(self.forward @ theta)

    def pull(self, gradient: Vector) -> Vector:
        """Return A'g: a gradient by parameters of x from one by those of e."""
        return np.asarray(self.forward.T @ gradient)

    def lower(self, theta: Vector) -> Vector:
        """Return S theta: parameters of x near those of e."""
        return np.asarray(self.back @ theta)

    def pull_matrix(self, matrix: Symmetric) -> Symmetric:
        """Return A'MA."""
        return _sandwich(csr_array(self.forward.T), matrix)

    def lower_matrix(self, matrix: Symmetric) -> Symmetric:
        """Return S M S'."""
        return _sandwich(self.back, matrix)


def bound_stretch(forward: Any, *, constant: int | None, kept: bool) -> float:
    """Return kappa with |A'e| <= kappa |e| for every row e.

    With M the entries of A off the constant, b >= |M| and t the constant's shifts, a
    row has |x|^2 <= (b |e'| + |t|)^2 + 1 where e = (e', 1): at most the square of the
    largest singular value of [[b, |t|], [0, 1]] times |e|^2. That of 1/min rho + |t|,
    which looks alike, is false where min rho > 1.

    Parameters
    ----------
    forward
        A, without the repetition for outputs.
    constant
        Position of the constant among e; None if it is not there.
    kept
        Whether the constant is also a feature, the last: the intercept's.
    """
    entries = abs(csr_array(forward))
    shifts = 0.0
    if constant is not None:
        row = entries[[constant], :].toarray().ravel()
        shifts = float(np.linalg.norm(row[:-1] if kept else row))
        keep = np.ones(entries.shape[0], dtype=bool)
        keep[constant] = False
        entries = entries[keep, :]
    # |M| <= sqrt(|M|_1 |M|_inf)
    columns, rows = entries.sum(axis=0), entries.sum(axis=1)
    size = sqrt(float(columns.max(initial=0.0)) * float(rows.max(initial=0.0)))
    if not kept:
        return hypot(size, shifts) * SAFETY
    # The larger singular value of [[size, shifts], [0, 1]], by its trace and
    # determinant.
    trace = size * size + shifts * shifts + 1.0
    root = sqrt(max(trace * trace - 4.0 * size * size, 0.0))
    return sqrt(0.5 * (trace + root)) * SAFETY


def _sandwich(left: Sparse, matrix: Symmetric) -> Symmetric:
    """Return left M left'."""
    half: Matrix = left @ matrix.dense()
    return Symmetric.from_dense(np.asarray(left @ half.T))
