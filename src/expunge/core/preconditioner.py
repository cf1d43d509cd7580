# SPDX-License-Identifier: Apache-2.0
r"""Preconditioners: cheap approximate inverses of a Hessian that is never formed.

The Hessian of a loss of k outputs is near a Kronecker product, G kron M, with
G = (1/W) sum w x x' and M = (1/W) sum w C, C the curvature of a row's predictors. With
G = Q diag(g) Q' and M = U diag(m) U', the inverse of G kron M + q I is a division by
g m + q in that basis: O(d^2 k) to apply, and exact where all rows are curved alike. G
does not depend on theta and is decomposed once; M is as small as the outputs are few
and follows theta.

A free intercept is a column of ones that nothing penalises. With N = (1/W) sum w x C
its columns of the Hessian are (N, M). In terms of b + M^-1 N'V the slopes V are apart
from it: it has M for itself, and they have about (G - cc') kron M, c the mean row.
Where outputs do not interact a pass tells N. With softmax N has k^2 columns: they are
summed over so few of the rows that it costs half a pass, and again once M is another.
With N = c M, as it is where all rows are curved alike, softmax takes about twice the
products.

Designs that are too wide for a d x d matrix use diagonals: that of the Hessian where
outputs do not interact, and otherwise that of G - cc' in its place. Of hashed words
that is nearly all: what they share is the mean row.

A preconditioner is never trusted: it says where to look, and the gradient measured
there decides (docs/radii.md, "Free intercepts without matrices"). It is a sum over rows
that may have left since, so it is private, is never stored, and is made again when the
sums are rebuilt.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np

from .arrays import UNIT_ROUNDOFF, Matrix, Vector, catch_lapack_errors, norm
from .linalg import Linear
from .measurement import Point
from .objective import Objective
from .rows import RowSource
from .sums import column_sums, coupling_sum, gram
from .values import Private

# Beyond this many columns a d x d decomposition takes longer than the passes it saves.
WIDEST_GRAM = 2048
# How far M may be from what N was summed with, over |M|.
STALE = 0.1
# N has d k^2 numbers: not more than this.
LARGEST_COUPLING = 2**24


class Curved(NamedTuple):
    """How the rows' predictors are curved: means over the rows.

    M, (k, k), and where outputs do not interact and have free intercepts the diagonals
    of N for each column, (d, k), the column of ones last.
    """

    mean: Matrix
    columns: Matrix | None = None

    @classmethod
    def of(cls, sums: Any, weight: float) -> "Curved":
        """Return the means of what was summed over rows of this weight."""
        columns = sums.intercept_columns
        return cls(
            sums.curvature / weight, None if columns is None else columns / weight
        )


class Preconditioner(Private):
    """An approximate inverse of the Hessian of a smooth objective.

    Attributes
    ----------
    largest_eigenvalue
        An upper bound on the largest eigenvalue of G over the penalised columns;
        infinite if nobody knows.
    """

    __slots__ = ()
    largest_eigenvalue: float

    def near(
        self, objective: Objective, rows: RowSource, *, at: Point
    ) -> "Preconditioner":
        """Return the preconditioner for points near this one: itself, if it is."""
        del objective, rows, at
        return self

    def at(self, objective: Objective, curved: Curved) -> Linear:
        """Return the approximate inverse for rows curved like this on average."""
        raise NotImplementedError

    def advance(
        self, objective: Objective, theta: Vector, *, gradient: Vector, curved: Curved
    ) -> Vector:
        """Return the point after one step of Newton's method with this inverse."""
        return theta - self.at(objective, curved)(gradient)


def make_preconditioner(
    objective: Objective, rows: RowSource, *, at: Point
) -> Preconditioner:
    """Return the preconditioner for these rows, measured at a point.

    A matrix of the columns where they are few enough.
    """
    if rows.n_columns > WIDEST_GRAM:
        return _make_diagonal(objective, rows, at=at)
    matrix, centre = gram(rows) / rows.total_weight, None
    # What summing and decomposing may have lost of an eigenvalue.
    rounding = 8.0 * UNIT_ROUNDOFF * (len(rows) + len(matrix)) * float(np.trace(matrix))
    if objective.n_free:
        centre = matrix[-1, :-1].copy()
        matrix = matrix[:-1, :-1] - np.outer(centre, centre)
    with catch_lapack_errors():
        values, vectors = np.linalg.eigh(matrix)
    largest = float(values[-1]) + rounding
    if centre is not None:
        largest += norm(centre) ** 2
    return GramPreconditioner(np.maximum(values, 0.0), vectors, centre, largest)


def _make_diagonal(
    objective: Objective, rows: RowSource, *, at: Point
) -> Preconditioner:
    """Return the preconditioner with a diagonal in place of a matrix of the columns."""
    loss, total = objective.loss, rows.total_weight
    if loss.independent or loss.outputs == 1:
        assert at.hessian is not None
        return DiagonalPreconditioner(at.hessian.diagonal() / total)
    means, squares = (sums / total for sums in column_sums(rows))
    if not objective.n_free:
        return GramPreconditioner(squares, None, None, inf)
    centre = means[:-1]
    values = np.maximum(squares[:-1] - centre**2, 0.0)
    return GramPreconditioner(values, None, centre, inf)


def _inverse(matrix: Matrix) -> Matrix:
    """Return the inverse of a small matrix, bounded where it is flat."""
    with catch_lapack_errors():
        values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, max(1e-12 * float(values[-1]), 1e-300))
    inverse: Matrix = (vectors / values) @ vectors.T
    return inverse


class Coupling(NamedTuple):
    """N M^-1, (d k, k), and the M at the point where N was summed."""

    slopes: Matrix
    made_with: Matrix


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class GramPreconditioner(Preconditioner):
    """(G kron M + q I)^-1 by the decompositions of both factors.

    Attributes
    ----------
    values, vectors
        G = vectors diag(values) vectors', of the penalised columns; no vectors where a
        diagonal stands for it.
    centre
        The mean row where an intercept is free; None otherwise.
    largest_eigenvalue
        Of (1/W) sum w x x' over the penalised columns, from above.
    coupling
        What the intercepts of outputs that interact share with the slopes, once it was
        summed.
    """

    values: Vector
    vectors: Matrix | None
    centre: Vector | None
    largest_eigenvalue: float
    coupling: Coupling | None = None

    def near(
        self, objective: Objective, rows: RowSource, *, at: Point
    ) -> "GramPreconditioner":
        """Return the preconditioner with N as it is about this point."""
        loss = objective.loss
        size = len(self.values) * loss.outputs**2
        # At zero all rows are curved alike: N is c M.
        if loss.independent or not at.theta.any() or size > LARGEST_COUPLING:
            return self
        if self.centre is None:
            return self
        assert at.seen is not None
        mean, known = at.seen.curvature / rows.total_weight, self.coupling
        if known is not None:
            moved = float(np.linalg.norm(mean - known.made_with))
            if moved <= STALE * float(np.linalg.norm(known.made_with)):
                return self
        summed, weight = coupling_sum(loss, rows, theta=at.theta, every=loss.outputs)
        if not weight > 0.0:
            return self
        table = summed[: -(loss.outputs**2)].reshape(-1, loss.outputs) / weight
        slopes = table @ _intercepts(objective, mean)
        return replace(self, coupling=Coupling(slopes, mean))

    def at(self, objective: Objective, curved: Curved) -> Linear:
        """Return the approximate inverse for rows curved like this on average."""
        with catch_lapack_errors():
            bends, outputs = np.linalg.eigh(curved.mean)
        # A direction that bends no prediction is left to the quadratic, or the gauge.
        bends = np.maximum(bends, 1e-12 * max(float(bends[-1]), 1e-300))
        scale = self.values[:, None] * bends + objective.quadratic
        Q, U, k = self.vectors, outputs, len(bends)

        def solve(columns: Matrix) -> Matrix:
            turned = columns if Q is None else Q.T @ columns
            solved: Matrix = ((turned @ U) / scale) @ U.T
            return solved if Q is None else Q @ solved

        if self.centre is None:
            return lambda v: solve(v.reshape(-1, k)).ravel()
        intercepts = _intercepts(objective, curved.mean)
        of_free, of_slopes = self._coupling(curved)

        def precondition(v: Vector) -> Vector:
            table = v.reshape(-1, k)
            slopes = solve(table[:-1] - of_free(table[-1]))
            free = intercepts @ table[-1] - of_slopes(slopes)
            return np.concatenate([slopes.ravel(), free])

        return precondition

    def _coupling(self, curved: Curved) -> tuple[Linear, Linear]:
        """Return the products with N M^-1, (d, k) of k numbers, and its transpose."""
        if self.coupling is not None:
            K, k = self.coupling.slopes, len(curved.mean)
            return lambda b: (K @ b).reshape(-1, k), lambda V: V.ravel() @ K
        if curved.columns is not None:
            held = np.maximum(curved.columns[-1], 1e-300)
            means = curved.columns[:-1] / held
            return lambda b: means * b, lambda V: (means * V).sum(axis=0)
        centre = self.centre
        assert centre is not None
        return lambda b: centre[:, None] * b, lambda V: centre @ V


def _intercepts(objective: Objective, mean: Matrix) -> Matrix:
    """Return M^-1; the gauge alone pins a sum of intercepts that no row feels."""
    gauge = 1.0 if objective.loss.shift_invariant else 0.0
    return _inverse(mean + gauge / len(mean))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class DiagonalPreconditioner(Preconditioner):
    """The inverse of the Hessian's diagonal, as it was when this was made."""

    diagonal: Vector
    largest_eigenvalue: float = inf

    def at(self, objective: Objective, curved: Curved) -> Linear:
        """Return the product with the inverse of diagonal and quadratic."""
        del curved
        quadratic, _ = objective.quadratic_form(self.diagonal.size)
        whole = self.diagonal + quadratic
        scale = 1.0 / np.maximum(whole, 1e-12 * float(whole.max()))
        return lambda v: scale * v
