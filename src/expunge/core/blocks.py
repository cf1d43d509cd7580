# SPDX-License-Identifier: Apache-2.0
"""Symmetric matrices of blocks: one for each output of a model, and nothing between.

Where the outputs of a loss do not interact, its Hessian at theta, the (d, k) matrix of
coefficients row by row, is k blocks of d x d: block c acts on column c. They hold k d^2
numbers instead of (d k)^2, and products, updates and factors cost so much less. Where
all outputs have the same curvature, as in squared loss, one block serves them all.

``Blocks`` does what ``Symmetric`` does, block by block, so that what uses a
``SymmetricMatrix`` need not ask which of the two it has. Rows of an update come one set
a block, (blocks, rows, d).
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from .arrays import Matrix, Vector, norm
from .linalg import Cholesky, Symmetric

Entry = TypeVar("Entry", bound=np.generic)


class Blocks:
    """A symmetric matrix of d x d blocks, one for each output or one for all.

    Attributes
    ----------
    blocks
        The different blocks: as many as outputs, or a single one.
    outputs
        k, the number of outputs.
    """

    __slots__ = ("blocks", "outputs")

    def __init__(self, blocks: Sequence[Symmetric], outputs: int) -> None:
        assert len(blocks) in (1, outputs)
        self.blocks = tuple(blocks)
        self.outputs = outputs

    def __repr__(self) -> str:
        return f"Blocks({self.outputs} of {self.width} x {self.width})"

    def __reduce__(self) -> tuple[type["Blocks"], tuple[tuple[Symmetric, ...], int]]:
        return Blocks, (self.blocks, self.outputs)

    @classmethod
    def from_dense(cls, stack: Matrix, outputs: int) -> "Blocks":
        """Return the matrix with the lower triangles of these blocks, (b, d, d)."""
        return cls([Symmetric.from_dense(matrix) for matrix in stack], outputs)

    @property
    def per_output(self) -> tuple[Symmetric, ...]:
        """The block of each output."""
        return self.blocks * (self.outputs // len(self.blocks))

    @property
    def width(self) -> int:
        """The number of rows of a block."""
        return self.blocks[0].size

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.outputs * self.width

    @property
    def n_numbers(self) -> int:
        """How many numbers are kept."""
        return sum(block.n_numbers for block in self.blocks)

    @property
    def diagonal(self) -> Vector:
        """The diagonal."""
        return self.join([block.diagonal for block in self.per_output])

    @property
    def triangle_norm(self) -> float:
        """The norm of the entries on and below the diagonal."""
        return norm(np.array([block.triangle_norm for block in self.per_output]))

    def split(self, v: NDArray[Entry]) -> NDArray[Entry]:
        """Return the part of a vector that each output has, one row each."""
        return np.ascontiguousarray(v.reshape(-1, self.outputs).T)

    def join(self, parts: Sequence[Vector]) -> Vector:
        """Return the vector of these parts."""
        return np.array(parts).T.ravel()

    def rebuild(self, blocks: Sequence[Symmetric]) -> "Blocks":
        """Return a matrix of as many outputs with these blocks."""
        return Blocks(blocks, self.outputs)

    def copy(self) -> "Blocks":
        """Return the same matrix in memory of its own."""
        return self.rebuild([block.copy() for block in self.blocks])

    def dense(self) -> Matrix:
        """Return the whole matrix as an ordinary array, (d k)^2 numbers."""
        full = np.zeros((self.width, self.outputs, self.width, self.outputs))
        for place, block in enumerate(self.per_output):
            full[:, place, :, place] = block.dense()
        return full.reshape(self.size, self.size)

    def __matmul__(self, other: Matrix) -> Matrix:
        """Return the product with a vector or with a matrix's columns."""
        products = [block.__matmul__ for block in self.blocks]
        return _apply(products, other, outputs=self.outputs)

    def __truediv__(self, number: float) -> "Blocks":
        """Return the matrix divided by a number."""
        return self.rebuild([block / number for block in self.blocks])

    def update(self, factor: float, Z: Matrix, *, spend: bool = False) -> "Blocks":
        """Return self + factor Z'Z, block by block, for Z of (blocks, rows, d).

        With ``spend`` the result may take over the memory of self, which is lost.
        """
        pairs = zip(self.blocks, Z, strict=True)
        return self.rebuild([b.update(factor, rows, spend=spend) for b, rows in pairs])

    def add_diagonal(self, diagonal: Vector) -> "Blocks":
        """Return self + diag(diagonal)."""
        parts = self.split(diagonal)
        blocks = self.blocks
        if len(blocks) == 1 and (parts == parts[0]).all():
            parts = parts[:1]
        elif len(blocks) == 1:
            blocks = self.per_output
        pairs = zip(blocks, parts, strict=True)
        return self.rebuild([block.add_diagonal(part) for block, part in pairs])

    def spreads(self, X: Matrix, *, weight: float) -> Matrix:
        """Return x'Ax / weight for each row x of X and each block A, (n, blocks)."""
        found = [block.spreads(X, weight=weight)[:, 0, 0] for block in self.blocks]
        return np.array(found).T

    def cholesky(self, *, spend: bool = False) -> "BlockCholesky":
        """Return the Cholesky factors, or raise NotPositiveDefinite.

        With ``spend`` they take over the memory of self, which is lost.
        """
        factors = [block.cholesky(spend=spend) for block in self.blocks]
        return BlockCholesky(factors, self.outputs)


class BlockCholesky:
    """The Cholesky factors of a matrix of blocks."""

    __slots__ = ("factors", "outputs")

    def __init__(self, factors: Sequence[Cholesky], outputs: int) -> None:
        self.factors = tuple(factors)
        self.outputs = outputs

    def __repr__(self) -> str:
        return f"BlockCholesky({self.outputs} outputs)"

    def solve(self, b: Vector) -> Vector:
        """Return the solution of A x = b, for a vector or a matrix's columns."""
        solves = [factor.solve for factor in self.factors]
        return _apply(solves, b, outputs=self.outputs)

    def squared_lengths(self, X: Matrix) -> Vector:
        """Return the largest x'A^-1 x over the blocks A, for each row x of X.

        That bounds how far a step s of |s| = 1 in the norm of the whole matrix moves
        the predictors of a row: sum_c (x's_c)^2 <= sum_c x'A_c^-1 x s_c'A_c s_c.
        """
        found = [factor.squared_lengths(X) for factor in self.factors]
        longest: Vector = np.max(found, axis=0)
        return longest

    def inverse(self) -> Blocks:
        """Return the dense inverse of each block."""
        return Blocks([factor.inverse() for factor in self.factors], self.outputs)


SymmetricMatrix: TypeAlias = Symmetric | Blocks
SymmetricFactor: TypeAlias = Cholesky | BlockCholesky


def weighted_sum(terms: Sequence[tuple[float, SymmetricMatrix]]) -> SymmetricMatrix:
    """Return the sum of factors times matrices of one kind, in memory of its own."""
    matrices = [matrix for _, matrix in terms]
    same = len({len(matrix.blocks) for matrix in matrices}) == 1
    parts = [matrix.blocks if same else matrix.per_output for matrix in matrices]
    blocks = [
        _add([(factor, part) for (factor, _), part in zip(terms, each, strict=True)])
        for each in zip(*parts, strict=True)
    ]
    return matrices[0].rebuild(blocks)


def _add(terms: Sequence[tuple[float, Symmetric]]) -> Symmetric:
    (factor, first), *others = terms
    lower = np.asfortranarray(factor * first.lower)
    for factor, matrix in others:
        lower += factor * matrix.lower
    return Symmetric(lower)


def _apply(
    maps: Sequence[Callable[[Matrix], Matrix]], b: Matrix, *, outputs: int
) -> Matrix:
    """Return the image of a vector or of columns, by one map an output or by one."""
    width = len(b) // outputs
    if len(maps) == 1:
        return maps[0](b.reshape(width, -1)).reshape(b.shape)
    parts = np.ascontiguousarray(b.reshape(width, outputs, *b.shape[1:]).swapaxes(0, 1))
    images = np.empty_like(parts)
    for place, each in enumerate(maps):
        images[place] = each(parts[place])
    return images.swapaxes(0, 1).reshape(b.shape)
