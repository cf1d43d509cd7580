# SPDX-License-Identifier: Apache-2.0
"""Symmetric matrices: products, low-rank updates, factors and linear solves, by BLAS.

A ``Symmetric`` is stored in Fortran order and only its lower triangle counts: a product
reads half the memory (dsymv) and a rank-one update writes half (dsyr). The class exists
so that nobody multiplies by the other half by mistake. The other half is zero: if it
kept its old values, it would reveal what has been subtracted since. An update leaves
the original as it is unless its caller spends it.

``conjugate_gradients`` solves with a matrix known by its products alone. It never
trusts its preconditioner, which only shapes the search: the residual of the true matrix
decides when to stop.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from threading import get_ident
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from ..exceptions import NotPositiveDefinite
from .arrays import UNIT_ROUNDOFF, Index, Matrix, Vector, norm
from .values import SMALLEST

Linear: TypeAlias = Callable[[Vector], Vector]
Entry = TypeVar("Entry", bound=np.generic)
# Products of larger matrices are shared between threads: each has enough to read.
SMALL_PRODUCT = 2048
# Rows kept beside a triangle: folding them in then costs less than a product each. A
# triangle of fewer columns is as quickly copied.
MOST_RECENT, LARGE = 32, 256
# Columns that are copied into another order at a time: they stay in the cache.
PANEL = 64
NO_FACTORS: Vector = np.zeros(0)
NOT_DEFINITE = (
    "the Hessian is not positive definite: some direction has no curvature; set ridge "
    "> 0, or drop columns that repeat each other"
)
NOT_IN_TRAINING_DATA = (
    "the Hessian of the remaining rows is not positive definite; were all removed "
    "rows really in the training data? If so, retrain, or set ridge > 0"
)


class Algebra(Protocol):
    """What factors matrices elsewhere than in memory, if they are large enough."""

    def factor(self, lower: Matrix) -> Matrix | None:
        """Return the Cholesky factor of a lower triangle, or None."""
        ...

    def invert(self, factor: Matrix) -> Matrix | None:
        """Return the lower triangle of the inverse, from a factor, or None."""
        ...


_elsewhere: ContextVar[Algebra | None] = ContextVar("elsewhere", default=None)


@contextmanager
def algebra_by(other: Algebra) -> Iterator[None]:
    """Let another than LAPACK factor matrices in the block."""
    token = _elsewhere.set(other)
    try:
        yield
    finally:
        _elsewhere.reset(token)


class Symmetric:
    """A symmetric matrix, by its lower triangle in Fortran order.

    Rows that an update brings are kept beside the triangle at first, so that a single
    row neither copies nor rewrites the matrix: A + Z'FZ, Z the recent rows and F the
    diagonal of their factors. After
    some dozens they are folded in, as they are when anybody asks for ``lower``. Files
    and pickles therefore never hold them. Folding replaces all parts at once: it can be
    interrupted, and another thread sees the one or the other. The triangle is shared
    with the matrix before the update, and then nobody may overwrite it.
    """

    __slots__ = ("_parts", "_shared")

    def __init__(self, lower: Matrix) -> None:
        self._parts: tuple[Matrix, Matrix | None, Vector] = (lower, None, NO_FACTORS)
        self._shared = False

    def __repr__(self) -> str:
        return f"Symmetric({self.size} x {self.size})"

    def __reduce__(self) -> tuple[type["Symmetric"], tuple[Matrix]]:
        return Symmetric, (self.lower,)

    @classmethod
    def from_dense(cls, matrix: Matrix) -> "Symmetric":
        """Return the symmetric matrix with this one's lower triangle."""
        if len(matrix) <= PANEL:
            return cls(np.asfortranarray(np.tril(matrix)))
        lower = np.zeros(matrix.shape, order="F")
        for begin in range(0, len(matrix), PANEL):
            here, below = slice(begin, begin + PANEL), slice(begin + PANEL, None)
            lower[here, here] = np.tril(matrix[here, here])
            lower[below, here] = matrix[below, here]
        return cls(lower)

    @property
    def lower(self) -> Matrix:
        """The lower triangle, with recent rows folded in."""
        base, recent, factors = self._parts
        if recent is not None:
            base = _add_rows(base, factors, Z=recent, spend=False)
            self._parts = (base, None, NO_FACTORS)
            self._shared = False
        return base

    @property
    def size(self) -> int:
        """The number of rows."""
        return int(self._parts[0].shape[0])

    @property
    def diagonal(self) -> Vector:
        """The diagonal, read-only."""
        return self.lower.diagonal()

    @property
    def last_row(self) -> Vector:
        """The last row, without folding recent rows in."""
        base, recent, factors = self._parts
        row: Vector = base[-1].copy()
        if recent is not None:
            row += (factors * recent[:, -1]) @ recent
        return row

    @property
    def n_numbers(self) -> int:
        """How many numbers are kept."""
        return int(self.lower.size)

    @property
    def triangle_norm(self) -> float:
        """The norm of the entries on and below the diagonal."""
        return norm(self.lower.ravel(order="K"))

    # What ``Blocks`` has one of for each output, this has once.
    @property
    def blocks(self) -> tuple["Symmetric", ...]:
        """The matrix itself: all outputs may interact."""
        return (self,)

    per_output = blocks

    def split(self, v: NDArray[Entry]) -> NDArray[Entry]:
        """Return a vector as the only row."""
        return v[None, :]

    def join(self, parts: Sequence[Vector]) -> Vector:
        """Return the only part."""
        return parts[0]

    def rebuild(self, blocks: Sequence["Symmetric"]) -> "Symmetric":
        """Return the only block."""
        return blocks[0]

    def copy(self) -> "Symmetric":
        """Return the same matrix in memory of its own."""
        return Symmetric(self.lower.copy(order="F"))

    def dense(self) -> Matrix:
        """Return both triangles as an ordinary array."""
        return self.lower + np.tril(self.lower, -1).T

    def __matmul__(self, other: Matrix) -> Matrix:
        """Return the product with a vector or with a matrix's columns."""
        base, recent, factors = self._parts
        product: Matrix
        if other.ndim == 1:
            product = blas.dsymv(1.0, base, other, lower=1)
        else:
            product = blas.dsymm(1.0, base, other, lower=1)
        if recent is not None:
            product += recent.T @ ((recent @ other).T * factors).T
        return product

    def __truediv__(self, number: float) -> "Symmetric":
        """Return the matrix divided by a number."""
        return Symmetric(self.lower / number)

    def update(self, factor: float, Z: Matrix, *, spend: bool = False) -> "Symmetric":
        """Return self + factor Z'Z for the rows of Z.

        With ``spend`` the result may take over the memory of self, which is lost.
        """
        base, recent, factors = self._parts
        spend = spend and not self._shared
        own = np.full(len(Z), factor)
        if recent is not None:
            Z, own = np.concatenate([recent, Z]), np.concatenate([factors, own])
        if spend or len(Z) > most_recent(self.size):
            return Symmetric(_add_rows(base, own, Z=Z, spend=spend))
        updated = Symmetric(base)
        updated._parts = (base, Z, own)
        self._shared = updated._shared = True
        return updated

    def add_diagonal(self, diagonal: Vector) -> "Symmetric":
        """Return self + diag(diagonal)."""
        shifted = self.copy()
        np.einsum("ii->i", shifted.lower)[:] += diagonal
        return shifted

    def spreads(self, X: Matrix, *, weight: float) -> Matrix:
        """Return x'Ax / weight for each row x of X and pair of outputs, (n, k, k).

        With k outputs, A acts on (d, k) parameters, row by row, and x stands for its
        (k, d k) design.
        """
        k = self.size // X.shape[1]
        design = np.einsum("ia,ce->icae", X, np.eye(k))
        flat = design.reshape(len(X) * k, -1)
        image = ((self @ flat.T) / weight).T.reshape(design.shape)
        spread: Matrix = np.einsum("icab,ieab->ice", design, image)
        return spread

    def submatrix(self, index: Index) -> "Symmetric":
        """Return the rows and columns at these increasing positions."""
        return Symmetric(np.asfortranarray(self.lower[np.ix_(index, index)]))

    def cholesky(self, *, spend: bool = False) -> "Cholesky":
        """Return the Cholesky factor, or raise NotPositiveDefinite.

        With ``spend`` it takes over the memory of self, which is lost.
        """
        other = _elsewhere.get()
        factor = None if other is None else other.factor(self.lower)
        if factor is not None:
            return Cholesky(factor)
        factor, info = lapack.dpotrf(
            self.lower, lower=1, clean=1, overwrite_a=int(spend)
        )
        if info != 0:
            raise NotPositiveDefinite(NOT_DEFINITE)
        return Cholesky(factor)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Cholesky:
    """A Cholesky factor: factor once, solve many."""

    factor: Matrix

    def __repr__(self) -> str:
        return f"Cholesky({len(self.factor)} x {len(self.factor)})"

    def solve(self, b: Vector) -> Vector:
        """Return the solution of A x = b."""
        x: Vector
        x, _ = lapack.dpotrs(self.factor, b, lower=1)
        return x

    def squared_lengths(self, X: Matrix) -> Vector:
        """Return x'A^-1 x for each row x of X."""
        whitened = blas.dtrsm(1.0, self.factor, X.T, lower=1)
        lengths: Vector = np.einsum("ij,ij->j", whitened, whitened)
        return lengths

    def inverse(self) -> Symmetric:
        """Return the dense inverse of A."""
        other = _elsewhere.get()
        inverse = None if other is None else other.invert(self.factor)
        if inverse is None:
            inverse, _ = lapack.dpotri(self.factor, lower=1)
        return Symmetric(inverse)


def most_recent(size: int) -> int:
    """Return how many rows a matrix of this size keeps beside its triangle."""
    return MOST_RECENT if size >= LARGE else 0


def _add_rows(base: Matrix, factors: Vector, *, Z: Matrix, spend: bool) -> Matrix:
    """Return the triangle plus Z'FZ, in its memory if that is spent."""
    updated: Matrix = base
    for factor in dict.fromkeys(factors.tolist()):
        rows = Z[factors == factor]
        own = int(spend or updated is not base)
        if len(rows) == 1:
            updated = blas.dsyr(factor, rows[0], a=updated, lower=1, overwrite_a=own)
        else:
            # The transpose of a C-ordered array is Fortran-ordered and not copied.
            updated = blas.dsyrk(
                factor, rows.T, beta=1.0, c=updated, lower=1, overwrite_c=own
            )
    return updated


class _OneThread:
    """A context in which BLAS uses one thread, for products too small to share.

    On several threads, such a product waits for the one that gets no processor: beside
    two busy neighbours it takes ten times as long. The setting is the process's; the
    last thread to leave takes it back. There is no lock that an interrupt could leave
    held. A thread that was interrupted on its way out counts as inside until it has
    been here again.
    """

    def __init__(self) -> None:
        self._inside: dict[int, bool] = {}
        self._before: dict[Any, int] = {}

    def __enter__(self) -> None:
        self._inside[get_ident()] = True
        for library in _libraries():
            n_threads = library.get_num_threads()
            if n_threads > 1:
                self._before[library] = n_threads
                library.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        self._inside.pop(get_ident(), None)
        if not self._inside:
            self.restore()

    def restore(self) -> None:
        """Take the setting back; in a forked child nobody else is inside."""
        self._inside.clear()
        for library, n_threads in [*self._before.items()]:
            library.set_num_threads(n_threads)
            # Only now: after an interrupt the next to leave takes it back.
            self._before.pop(library, None)


@cache
def _libraries() -> list[Any]:
    """Return the BLAS libraries that this process has loaded."""
    # It comes with scikit-learn. Looking at a registry does without.
    from threadpoolctl import ThreadpoolController

    return [
        library
        for library in ThreadpoolController().lib_controllers
        if library.user_api == "blas"
    ]


one_thread = _OneThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=one_thread.restore)


def threads_for(size: int) -> AbstractContextManager[None]:
    """Return a context for a few products of this size: all threads, or only one."""
    return one_thread if size <= SMALL_PRODUCT else nullcontext()


class CgSolution(NamedTuple):
    """What conjugate gradients found, and whether it got down to rounding."""

    x: Vector
    n_steps: int
    converged: bool


def conjugate_gradients(
    product: Linear, b: Vector, *, precondition: Linear, start: Vector, max_steps: int
) -> CgSolution:
    """Solve A x = b for a positive definite A given by its product.

    Stops when the residual is at rounding level or after ``max_steps``; raises
    NotPositiveDefinite on a direction of no curvature.
    """
    size, direction, previous, steepest = norm(b), np.zeros_like(b), 1.0, 0.0
    if 0.0 < size < SMALLEST:  # squares would underflow: solve for a longer one
        unit = conjugate_gradients(
            product,
            b / size,
            precondition=precondition,
            start=np.zeros_like(b),
            max_steps=max_steps,
        )
        return unit._replace(x=size * unit.x)
    x = start.copy()
    residual = b - product(x)
    for n_steps in range(max_steps + 1):
        # No product with A can tell residuals apart below |b| + |A| |x| roundings.
        if norm(residual) <= 2.0 * UNIT_ROUNDOFF * (size + steepest * norm(x)):
            return CgSolution(x, n_steps, converged=True)
        z = precondition(residual)
        energy = float(residual @ z)
        if not energy > 0.0:  # the preconditioner has drifted out of definiteness
            return CgSolution(x, n_steps, converged=False)
        direction = z + (energy / previous if n_steps else 0.0) * direction
        curved = product(direction)
        curvature = float(direction @ curved)
        if not curvature > 0.0:
            raise NotPositiveDefinite(NOT_IN_TRAINING_DATA)
        span = norm(direction)
        steepest = max(steepest, curvature / span / span)
        length = energy / curvature
        x += length * direction
        residual = residual - length * curved
        previous = energy
    return CgSolution(x, max_steps, converged=False)
