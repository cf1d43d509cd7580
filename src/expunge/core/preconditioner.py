# SPDX-License-Identifier: Apache-2.0
r"""Preconditioners: cheap approximate inverses of a Hessian that is never formed.

The Hessian of a loss of k outputs is near a Kronecker product, G kron M, with
G = (1/W) sum w x x' and M = (1/W) sum w C, C the curvature of a row's predictors. With
G = Q diag(g) Q' and M = U diag(m) U', the inverse of G kron M + q I is a division by
g m + q in that basis: O(d^2 k) to apply, and exact where all rows are curved alike. G
does not depend on theta and is decomposed once; M is as small as the outputs are few
and follows theta.

A free intercept is a column of ones that nothing penalises. In terms of b + V'centre,
centre the mean row, it is orthogonal to the other columns and has M for itself.

Designs that are too wide for a d x d matrix use the diagonal of the Hessian instead.

A preconditioner is never trusted: it says where to look, and the gradient measured
there decides. It is a sum over rows that may have left since, so it is private, is
never stored, and is made again when the sums are rebuilt.
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from .arrays import UNIT_ROUNDOFF, Matrix, Vector, catch_lapack_errors, norm
from .linalg import Linear
from .measurement import Point
from .objective import Objective
from .rows import RowSource
from .sums import gram
from .values import Private

# Beyond this many columns a d x d decomposition takes longer than the passes it saves.
WIDEST_GRAM = 2048


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

    def at(self, objective: Objective, curvature: Matrix) -> Linear:
        """Return the approximate inverse for rows curved like this on average."""
        raise NotImplementedError

    def advance(
        self,
        objective: Objective,
        theta: Vector,
        *,
        gradient: Vector,
        curvature: Matrix,
    ) -> Vector:
        """Return the point after one step of Newton's method with this inverse."""
        return theta - self.at(objective, curvature)(gradient)


def make_preconditioner(
    objective: Objective, rows: RowSource, *, at: Point
) -> Preconditioner:
    """Return the preconditioner for these rows, measured at a point.

    A matrix of the columns where they are few enough.
    """
    if rows.n_columns > WIDEST_GRAM:
        assert at.hessian is not None
        return DiagonalPreconditioner(at.hessian.diagonal() / rows.total_weight)
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


def _inverse(matrix: Matrix) -> Matrix:
    """Return the inverse of a small matrix, bounded where it is flat."""
    with catch_lapack_errors():
        values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 1e-12 * max(float(values[-1]), 1e-300))
    inverse: Matrix = (vectors / values) @ vectors.T
    return inverse


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class GramPreconditioner(Preconditioner):
    """(G kron M + q I)^-1 by the decompositions of both factors.

    Attributes
    ----------
    values, vectors
        G = vectors diag(values) vectors', of the penalised columns.
    centre
        The mean row where an intercept is free; None otherwise.
    largest_eigenvalue
        Of (1/W) sum w x x' over the penalised columns, from above.
    """

    values: Vector
    vectors: Matrix
    centre: Vector | None
    largest_eigenvalue: float

    def at(self, objective: Objective, curvature: Matrix) -> Linear:
        """Return the approximate inverse for rows curved like this on average."""
        with catch_lapack_errors():
            curved, outputs = np.linalg.eigh(curvature)
        # A direction that bends no prediction is left to the quadratic, or the gauge.
        curved = np.maximum(curved, 1e-12 * max(float(curved[-1]), 1e-300))
        scale = self.values[:, None] * curved + objective.quadratic
        Q, U, centre = self.vectors, outputs, self.centre

        def solve(columns: Matrix) -> Matrix:
            solved: Matrix = Q @ ((Q.T @ columns @ U) / scale) @ U.T
            return solved

        if centre is None:
            return lambda v: solve(v.reshape(-1, len(curved))).ravel()
        # The sum of the intercepts is pinned by the gauge alone where the loss does not
        # feel it.
        gauge = 1.0 if objective.loss.shift_invariant else 0.0
        intercepts = _inverse(curvature + gauge / len(curved))

        def precondition(v: Vector) -> Vector:
            table = v.reshape(-1, len(curved))
            slopes = solve(table[:-1] - centre[:, None] * table[-1])
            free = intercepts @ table[-1] - centre @ slopes
            return np.concatenate([slopes.ravel(), free])

        return precondition


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class DiagonalPreconditioner(Preconditioner):
    """The inverse of the Hessian's diagonal, as it was when this was made."""

    diagonal: Vector
    largest_eigenvalue: float = inf

    def at(self, objective: Objective, curvature: Matrix) -> Linear:
        """Return the product with the inverse of diagonal and quadratic."""
        del curvature
        quadratic, _ = objective.quadratic_form(self.diagonal.size)
        whole = self.diagonal + quadratic
        scale = 1.0 / np.maximum(whole, 1e-12 * float(whole.max()))
        return lambda v: scale * v
