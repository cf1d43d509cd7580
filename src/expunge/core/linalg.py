# SPDX-License-Identifier: Apache-2.0
"""Symmetric matrices: products, low-rank updates, factors and linear solves, by BLAS.

Where the outputs of a loss do not interact, its Hessian at theta, the (d, k) matrix of
coefficients row by row, is k blocks of d x d: block c acts on column c. They hold k d^2
numbers instead of (d k)^2, and products, updates and factors cost so much less. Where
all outputs have the same curvature, as in squared loss, one block serves them all.
Every other Hessian is one block for a single output. A ``Symmetric`` is such a stack,
(b, d, d) with b = 1 or k.

Blocks are stored in Fortran order and only their lower triangles count: a product reads
half the memory (dsymv) and a rank-one update writes half (dsyr). The class exists so
that nobody multiplies by the other half by mistake. The other half is zero: if it kept
its old values, it would reveal what has been subtracted since. An update leaves the
original as it is unless its caller says ``overwrite``.

``conjugate_gradients`` solves with a matrix known by its products alone, an
``Operator``. It never trusts its preconditioner, which only shapes the search: the
residual of the true matrix decides when to stop.
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
# Triangles, recent rows of each block, and the factors of those rows.
Parts: TypeAlias = tuple[Matrix, Matrix | None, Vector]
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
    """What factors large matrices on a device."""

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
    """A symmetric matrix of d x d blocks, one for each of k outputs or one for all.

    Rows that an update brings are kept beside the triangles at first, so that a single
    row neither copies nor rewrites the matrix: A + Z'FZ, Z the recent rows and F the
    diagonal of their factors. After
    some dozens they are folded in, as they are when anybody asks for ``lower``. Files
    and pickles therefore never hold them. Folding replaces all parts at once: it can be
    interrupted, and another thread sees the one or the other. The triangles are shared
    with the matrix before the update, and then nobody may overwrite them.
    """

    __slots__ = ("_parts", "_shared", "outputs")

    def __init__(self, lower: Matrix, outputs: int = 1) -> None:
        stack = lower if lower.ndim == 3 else lower[None]
        assert len(stack) in (1, outputs)
        self._parts: Parts = (stack, None, NO_FACTORS)
        self._shared = False
        self.outputs = outputs

    def __repr__(self) -> str:
        blocks = f"{self.outputs} of " if self.outputs > 1 else ""
        return f"Symmetric({blocks}{self.width} x {self.width})"

    def __reduce__(self) -> tuple[Callable[..., "Symmetric"], tuple[Matrix, int]]:
        return Symmetric.from_upper, (self.lower.swapaxes(1, 2), self.outputs)

    @classmethod
    def from_upper(cls, upper: Matrix, outputs: int) -> "Symmetric":
        """Return the matrix with the transposes of these triangles, in their memory."""
        return cls(upper.swapaxes(1, 2), outputs)

    @classmethod
    def from_dense(
        cls, matrix: Matrix | Sequence[Matrix], outputs: int = 1
    ) -> "Symmetric":
        """Return the matrix with the lower triangle of this one, or of these blocks."""
        is_block = isinstance(matrix, np.ndarray) and matrix.ndim == 2
        blocks = [matrix] if is_block else matrix
        width = len(blocks[0])
        lower = np.zeros((len(blocks), width, width)).swapaxes(1, 2)
        for block, dense in zip(lower, blocks, strict=True):
            for begin in range(0, len(dense), PANEL):
                here, below = slice(begin, begin + PANEL), slice(begin + PANEL, None)
                block[here, here] = np.tril(dense[here, here])
                block[below, here] = dense[below, here]
        return cls(lower, outputs)

    @classmethod
    def _sharing(cls, parts: Parts, outputs: int = 1) -> "Symmetric":
        """Return a matrix of these parts whose triangles are another's too."""
        made = cls(parts[0], outputs)
        made._parts, made._shared = parts, True
        return made

    @property
    def lower(self) -> Matrix:
        """The lower triangles, (b, d, d), with recent rows folded in."""
        base, recent, factors = self._parts
        if recent is not None:
            base = _add_rows(base, factors, Z=recent, overwrite=False)
            self._parts = (base, None, NO_FACTORS)
            self._shared = False
        return base

    @property
    def blocks(self) -> tuple["Symmetric", ...]:
        """The different blocks, each a matrix of one output in the same memory."""
        base, recent, factors = self._parts
        Z = [None] * len(base) if recent is None else recent[:, None]
        pairs = zip(base[:, None], Z, strict=True)
        return tuple(Symmetric._sharing((*pair, factors)) for pair in pairs)

    @property
    def per_output(self) -> tuple["Symmetric", ...]:
        """The block of each output."""
        blocks = self.blocks
        return blocks * (self.outputs // len(blocks))

    @property
    def width(self) -> int:
        """d, the number of rows of a block."""
        return int(self._parts[0].shape[1])

    @property
    def size(self) -> int:
        """The number of rows, d k."""
        return self.width * self.outputs

    @property
    def diagonal(self) -> Vector:
        """The diagonal, (d k,)."""
        diagonals = np.diagonal(self.lower, axis1=1, axis2=2)
        return self.join(np.broadcast_to(diagonals, (self.outputs, self.width)))

    @property
    def last_rows(self) -> Matrix:
        """The last row of each output's block, without folding recent rows in."""
        base, recent, factors = self._parts
        rows = base[:, -1]
        if recent is not None:
            rows = rows + np.einsum("n,bn,bnd->bd", factors, recent[:, :, -1], recent)
        return np.broadcast_to(rows, (self.outputs, self.width))

    @property
    def n_numbers(self) -> int:
        """How many numbers are kept."""
        return int(self.lower.size)

    @property
    def triangle_norm(self) -> float:
        """The norm of the entries on and below the diagonal."""
        norms = [norm(block.ravel(order="K")) for block in self.lower]
        return norm(np.array(norms * (self.outputs // len(norms))))

    def split(self, v: NDArray[Entry]) -> NDArray[Entry]:
        """Return the part of a vector that each output has, one row each."""
        return np.ascontiguousarray(v.reshape(-1, self.outputs).T)

    def join(self, parts: Sequence[Vector] | Matrix) -> Vector:
        """Return the vector of these parts."""
        return np.array(parts).T.ravel()

    def copy(self) -> "Symmetric":
        """Return the same matrix; whichever is overwritten first is copied."""
        same = Symmetric._sharing((self.lower, None, NO_FACTORS), self.outputs)
        self._shared = True
        return same

    def dense(self) -> Matrix:
        """Return the whole matrix as an ordinary array, (d k)^2 numbers."""
        d, k = self.width, self.outputs
        blocks = [block + np.tril(block, -1).T for block in self.lower]
        if k == 1:
            return np.asarray(blocks[0])
        full = np.zeros((d, k, d, k))
        for c in range(k):
            full[:, c, :, c] = blocks[c % len(blocks)]
        return full.reshape(d * k, d * k)

    def __matmul__(self, other: Matrix) -> Matrix:
        """Return the product with a vector or with a matrix's columns."""
        if self.outputs == 1:
            return self._multiply(0, other)
        n_blocks = len(self._parts[0])
        return _apply(self._multiply, other, n_blocks=n_blocks, outputs=self.outputs)

    def _multiply(self, index: int, columns: Matrix) -> Matrix:
        base, recent, factors = self._parts
        by = blas.dsymv if columns.ndim == 1 else blas.dsymm
        product: Matrix = by(1.0, base[index], columns, lower=1)
        if recent is not None:
            Z = recent[index]
            product += Z.T @ ((Z @ columns).T * factors).T
        return product

    def __truediv__(self, number: float) -> "Symmetric":
        """Return the matrix divided by a number."""
        return Symmetric(self.lower / number, self.outputs)

    def update(
        self, factor: float, Z: Matrix, *, overwrite: bool = False
    ) -> "Symmetric":
        """Return self + factor Z'Z, Z of (rows, d), or (b, rows, d) block by block.

        With ``overwrite`` the result may take over the memory of self, which is lost.
        """
        base, recent, factors = self._parts
        Z = Z if Z.ndim == 3 else Z[None]
        own = np.full(Z.shape[1], factor)
        if recent is not None:
            Z = np.concatenate([recent, Z], axis=1)
            own = np.concatenate([factors, own])
        if overwrite or len(own) > most_recent(self.width):
            overwrite = overwrite and not self._shared
            return Symmetric(
                _add_rows(base, own, Z=Z, overwrite=overwrite), self.outputs
            )
        self._shared = True
        return Symmetric._sharing((base, Z, own), self.outputs)

    def add_diagonal(self, diagonal: Vector) -> "Symmetric":
        """Return self + diag(diagonal)."""
        parts, old = self.split(diagonal), self.lower
        alike = len(old) == 1 and (parts == parts[0]).all()
        parts = parts[:1] if alike else parts
        lower = _empty_stack(len(parts), self.width)
        lower[:] = old
        np.einsum("bii->bi", lower)[:] += parts
        return Symmetric(lower, self.outputs)

    def submatrix(self, index: Index) -> "Symmetric":
        """Return rows and columns of a single block, at increasing positions."""
        (block,) = self.lower
        return Symmetric(np.asfortranarray(block[np.ix_(index, index)]))

    def cholesky(self, *, overwrite: bool = False) -> "Cholesky":
        """Return the Cholesky factor, or raise NotPositiveDefinite.

        With ``overwrite`` it takes over the memory of self, which is lost.
        """
        other, factors = _elsewhere.get(), []
        for block in self.lower:
            factor = None if other is None else other.factor(block)
            if factor is None:
                own = int(overwrite and not self._shared)
                factor, info = lapack.dpotrf(block, lower=1, clean=1, overwrite_a=own)
                if info != 0:
                    raise NotPositiveDefinite(NOT_DEFINITE)
            factors.append(factor)
        return Cholesky(tuple(factors), self.outputs)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Cholesky:
    """The Cholesky factor of each block: factor once, solve many."""

    factors: tuple[Matrix, ...]
    outputs: int = 1

    def __repr__(self) -> str:
        return f"Cholesky({self.outputs} of {len(self.factors[0])})"

    def solve(self, b: Vector) -> Vector:
        """Return the solution of A x = b, for a vector or a matrix's columns."""

        def solve_block(index: int, columns: Matrix) -> Matrix:
            x: Matrix
            x, _ = lapack.dpotrs(self.factors[index], columns, lower=1)
            return x

        n_blocks = len(self.factors)
        return _apply(solve_block, b, n_blocks=n_blocks, outputs=self.outputs)

    def half_solve(self, index: int, columns: Matrix) -> Matrix:
        """Return L^-1 times columns, L the factor of a block: half of a solution."""
        image: Matrix
        image, _ = lapack.dtrtrs(self.factors[index], columns, lower=1)
        return image

    def inverse(self, *, overwrite: bool = False) -> Symmetric:
        """Return the dense inverse of A, in this memory if ``overwrite``."""
        other, inverses = _elsewhere.get(), []
        for factor in self.factors:
            inverse = None if other is None else other.invert(factor)
            if inverse is None:
                inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=int(overwrite))
            inverses.append(inverse)
        if len(inverses) == 1:
            return Symmetric(inverses[0], self.outputs)
        stack = _empty_stack(len(inverses), len(inverses[0]))
        stack[:] = inverses
        return Symmetric(stack, self.outputs)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Inverse:
    """The inverse of a factored matrix, by solving: it costs a third of a dense one."""

    factor: Cholesky

    def __matmul__(self, b: Vector) -> Vector:
        """Return the product with a vector."""
        return self.factor.solve(b)


def weighted_sum(terms: Sequence[tuple[float, Symmetric]]) -> Symmetric:
    """Return the sum of factors times matrices of one size, in memory of its own."""
    parts = [(factor, matrix.lower) for factor, matrix in terms]
    (factor, first), *others = parts
    n_blocks = max(len(lower) for _, lower in parts)
    total = _empty_stack(n_blocks, first.shape[1])
    np.multiply(first, factor, out=total)
    for factor, lower in others:
        total += factor * lower
    return Symmetric(total, terms[0][1].outputs)


def most_recent(size: int) -> int:
    """Return how many rows a matrix of this size keeps beside its triangle."""
    return MOST_RECENT if size >= LARGE else 0


def _empty_stack(n_blocks: int, width: int) -> Matrix:
    """Return memory for blocks in Fortran order."""
    return np.empty((n_blocks, width, width)).swapaxes(1, 2)


def _add_rows(base: Matrix, factors: Vector, *, Z: Matrix, overwrite: bool) -> Matrix:
    """Return each block plus its Z'FZ, in its memory if ``overwrite``."""
    updated = base if overwrite else base.copy(order="K")
    signs = dict.fromkeys(factors.tolist())
    for factor in signs:
        some = Z if len(signs) == 1 else Z[:, factors == factor]
        for index in range(len(updated)):
            block, rows = updated[index], some[index]
            if len(rows) == 1:
                blas.dsyr(factor, rows[0], a=block, lower=1, overwrite_a=1)
            else:
                # The transpose of a C-ordered array is Fortran-ordered and not copied.
                blas.dsyrk(factor, rows.T, beta=1.0, c=block, lower=1, overwrite_c=1)
    return updated


def _apply(
    image: Callable[[int, Matrix], Matrix], b: Matrix, *, n_blocks: int, outputs: int
) -> Matrix:
    """Return the image of a vector or of columns: ``image(index, part)`` by block."""
    if outputs == 1:
        return image(0, b)
    width = len(b) // outputs
    if n_blocks == 1:
        return image(0, b.reshape(width, -1)).reshape(b.shape)
    parts = np.ascontiguousarray(b.reshape(width, outputs, *b.shape[1:]).swapaxes(0, 1))
    images = np.empty_like(parts)
    for index, part in enumerate(parts):
        images[index] = image(index, part)
    return images.swapaxes(0, 1).reshape(b.shape)


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
    """What conjugate gradients found, and whether it got as far as asked.

    ``flat`` is the direction without curvature that stopped them, if one did.
    """

    x: Vector
    n_steps: int
    converged: bool
    flat: Vector | None = None


def conjugate_gradients(
    product: Linear,
    b: Vector,
    *,
    precondition: Linear,
    start: Vector | None = None,
    enough: float = 0.0,
    max_steps: int,
) -> CgSolution:
    """Solve A x = b for a positive definite A given by its product.

    Stops when the residual is at most ``enough``, or at rounding level, or after
    ``max_steps``; from zero if no ``start`` is given.
    """
    size, direction, previous, steepest = norm(b), np.zeros_like(b), 1.0, 0.0
    if 0.0 < size < SMALLEST:  # squares would underflow: solve for a longer one
        unit = conjugate_gradients(
            product,
            b / size,
            precondition=precondition,
            enough=enough / size,
            max_steps=max_steps,
        )
        return unit._replace(x=size * unit.x)
    x = np.zeros_like(b) if start is None else start.copy()
    residual = b if start is None else b - product(x)
    for n_steps in range(max_steps + 1):
        # No product with A can tell residuals apart below |b| + |A| |x| roundings.
        level = 2.0 * UNIT_ROUNDOFF * (size + steepest * norm(x))
        if norm(residual) <= max(level, enough):
            return CgSolution(x, n_steps, converged=True)
        z = precondition(residual)
        energy = float(residual @ z)
        if not energy > 0.0:  # the preconditioner has drifted out of definiteness
            break
        direction = z + (energy / previous if n_steps else 0.0) * direction
        curved = product(direction)
        curvature = float(direction @ curved)
        if not curvature > 0.0:
            return CgSolution(x, n_steps, converged=False, flat=direction)
        span = norm(direction)
        steepest = max(steepest, curvature / span / span)
        length = energy / curvature
        x += length * direction
        residual = residual - length * curved
        previous = energy
    return CgSolution(x, n_steps, converged=False)


class Operator(NamedTuple):
    """A positive definite matrix by its products, and about its inverse.

    ``enough`` says of a right side how large a residual may be left of it.
    """

    product: Linear
    precondition: Linear
    enough: Callable[[Vector], float]
    max_steps: int

    def solve(self, b: Vector) -> Vector:
        """Return about the solution of A x = b, or a way along which A is flat."""
        solution = conjugate_gradients(
            self.product,
            b,
            precondition=self.precondition,
            enough=self.enough(b),
            max_steps=self.max_steps,
        )
        if solution.flat is not None and not solution.n_steps:
            return solution.flat
        return solution.x
