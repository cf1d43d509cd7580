# SPDX-License-Identifier: Apache-2.0
"""Every pass over rows: a sum of terms, one for each block of rows.

A term maps a block of rows to a tuple of small values (a loss, a gradient, a
Hessian); ``block_sum`` adds the tuples. Nothing above this module loops over rows, so
that an engine for files out of core, a cluster or a GPU can take its place alone.

All engines must add in the same order, because floating-point addition is not
associative:

1. Rows are cut into blocks of consecutive rows, numbered from 0; the last block may be
   shorter. A block has 2048 rows, or with more than 2048 columns as many as the next
   power of two at or above the number of columns: adding up gradients then costs no
   more than the predictors do. The size depends on nothing else, neither on the number
   of threads nor on how the rows are stored.
2. The terms of the blocks are added in a binary tree that the number of blocks alone
   determines. Blocks 2i and 2i + 1 form a sum of level 1, two adjacent sums of level 1
   form a sum of level 2, and so on. Where n blocks are not a power of two, the binary
   digits of n say which complete sums are left over (13 = 8 + 4 + 1: blocks 0-7, 8-11
   and 12). These are added from the last and smallest to the first and largest:
   S(0-7) + (S(8-11) + S(12)).

Each term thus passes through at most ceil(log2 n) additions, where a plain loop has up
to n - 1, and rounding grows accordingly. ``pairwise_sum`` takes the terms as they
arrive and holds at most one partial sum for each level. Any engine that computes the
same terms therefore gets the same bits, in whatever order it computed them. The order
of the additions *within* a block is that of BLAS.

All sums are weighted and not normalised: callers divide by the W they mean. Places
that hold no row (``Rows.absent``) have weight zero, and adding zeros rounds nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from ..exceptions import InvalidInput
from .arrays import (
    Index,
    Matrix,
    Vector,
    catch_lapack_errors,
    row_norms,
    slice_rows,
    transpose,
)
from .blocks import Blocks, SymmetricMatrix
from .linalg import Symmetric
from .losses import Loss
from .objective import Rows

Terms = TypeVar("Terms", bound=tuple[float | Vector, ...])

# 2048 rows of a thousand float64 features are 16 MiB: near the cache, and large
# enough for BLAS to run at full speed. The least rows of a block, a power of two.
BLOCK_ROWS = 2048

# Numbers in the blocks of a Hessian that are summed at once: several such sums are held
# until the tree adds them.
SUMMED_AT_ONCE = 2**22

# Left edges of the bins in which distances to a kink are counted: the first holds
# all that is nearer than the next, so that a bin never overstates a distance.
KINK_EDGES: Vector = np.concatenate([[0.0], np.geomspace(1e-8, 1e8, 127)])


def block_sum(term: Callable[[Rows], Terms], rows: Rows) -> Terms:
    """Return the sum of ``term`` over blocks of rows, in the order stated above."""
    size = rows_in_a_block(rows)
    if rows.X.shape[0] <= size and rows.absent is None:
        return term(rows)
    return pairwise_sum(map(term, rows.blocks(size)))


def rows_in_a_block(rows: Rows) -> int:
    """Return how many rows a block of these has, by their columns alone."""
    n_columns = int(rows.X.shape[1])
    return max(BLOCK_ROWS, 1 << (n_columns - 1).bit_length())


def pairwise_sum(terms: Iterable[Terms]) -> Terms:
    """Return the sum of the blocks' terms, given in the order of the blocks.

    A binary counter: adding a block carries for as long as the last partial sum is of
    the same level. It holds O(log n) partial sums at any time.
    """
    partial: list[tuple[int, Terms]] = []
    for total in terms:
        level = 0
        while partial and partial[-1][0] == level:
            total, level = _add(partial.pop()[1], total), level + 1
        partial.append((level, total))
    if not partial:
        raise InvalidInput("there are no blocks to add; give at least one")
    _, total = partial.pop()
    while partial:
        total = _add(partial.pop()[1], total)
    return total


def _add(a: Terms, b: Terms) -> Terms:
    """Return the sum of two blocks' terms, value by value."""
    return type(a)(x + y for x, y in zip(a, b, strict=True))


def predict(loss: Loss, rows: Rows, *, theta: Vector) -> Vector:
    """Return the predictors X theta, (n,) or (n, k)."""
    if loss.outputs == 1:
        eta: Vector = rows.X @ theta
        return eta
    table = theta.reshape(-1, loss.outputs)
    if sparse.issparse(rows.X):
        eta = rows.X @ table
        return eta
    # Turned round, the long side is the one along which BLAS cuts its tiles: a product
    # with a few columns takes two thirds of the time.
    eta = (table.T @ rows.X.T).T
    return eta


def loss_gradient(loss: Loss, rows: Rows, *, theta: Vector) -> tuple[float, Vector]:
    """Return sum w loss and its gradient in theta."""

    def term(block: Rows) -> tuple[float, Vector]:
        eta = predict(loss, block, theta=theta)
        value = float(block.weight @ loss.value(block.y, eta))
        return value, lift_slopes(block, loss.slope(block.y, eta))

    return block_sum(term, rows)


def loss_slopes(loss: Loss, rows: Rows, *, theta: Vector) -> Vector:
    """Return the gradient of sum w loss alone: what one removal costs."""

    def slopes(block: Rows) -> Vector:
        return lift_slopes(
            block, loss.slope(block.y, predict(loss, block, theta=theta))
        )

    if rows.X.shape[0] <= BLOCK_ROWS:  # most requests: a tuple less
        return slopes(rows)
    return block_sum(lambda block: (slopes(block),), rows)[0]


def slopes_at_each(
    loss: Loss, rows: Rows, *, thetas: Matrix, valued: Index
) -> tuple[Matrix, Vector]:
    """Return the gradient of sum w loss at each of several thetas, (a, d k).

    The rows are read once for all of them, by matrix products. At the thetas in
    ``valued`` the sum itself is returned too, and zero at the others.
    """

    def term(block: Rows) -> tuple[Matrix, Vector]:
        etas = _predict_each(loss, block, thetas=thetas)
        values = np.zeros(len(thetas))
        if len(valued):
            labels = np.concatenate([block.y] * len(valued))
            losses = loss.value(labels, _join(etas[valued]))
            values[valued] = losses.reshape(len(valued), -1) @ block.weight
        labels = np.concatenate([block.y] * len(etas))
        slopes = loss.slope(labels, _join(etas)).reshape(etas.shape)
        return _lift_each(block, slopes), values

    return block_sum(term, rows)


def slope_scale(loss: Loss, rows: Rows, *, theta: Vector) -> float:
    """Return sum w |slope| |x|: the size of what cancels in a gradient."""
    return row_sizes(loss, rows, theta=theta)[0]


def row_sizes(loss: Loss, rows: Rows, *, theta: Vector) -> tuple[float, ...]:
    """Return sum w |slope| |x|, sum w |x|^2, sum w |x|^3 and the largest |x|."""
    largest = 0.0

    def term(block: Rows) -> tuple[float, ...]:
        nonlocal largest
        slope = loss.slope(block.y, predict(loss, block, theta=theta))
        steep = row_norms(slope.reshape(len(block), -1))
        norms = block.norms()
        largest = max(largest, float(np.max(norms * (block.weight > 0.0), initial=0.0)))
        sizes = (steep * norms, norms**2, norms**3)
        return tuple(float(block.weight @ size) for size in sizes)

    return (*block_sum(term, rows), largest)


def norm_sums(rows: Rows) -> tuple[float, float, float]:
    """Return sum w |x|^2, sum w |x|^3 and the largest |x| of a row with weight."""

    def term(block: Rows) -> tuple[float, float]:
        norms = block.norms()
        return float(block.weight @ norms**2), float(block.weight @ norms**3)

    return (*block_sum(term, rows), largest_norm(rows))


def loss_hessian(loss: Loss, rows: Rows, *, theta: Vector) -> SymmetricMatrix:
    """Return the Hessian of sum w loss: in blocks if the outputs do not interact."""
    if loss.outputs > 1 and loss.independent:
        return _hessian_blocks(loss, rows, theta=theta)

    def term(block: Rows) -> tuple[Matrix]:
        eta = predict(loss, block, theta=theta)
        return (_lift_curvature(block, loss.curvature(block.y, eta)),)

    return Symmetric.from_dense(block_sum(term, rows)[0])


def _hessian_blocks(loss: Loss, rows: Rows, *, theta: Vector) -> Blocks:
    """Return the Hessian's blocks, some at a time."""
    n_blocks = 1 if loss.equal_curvature else loss.outputs
    at_once = max(1, SUMMED_AT_ONCE // rows.X.shape[1] ** 2)
    found: list[Symmetric] = []
    for begin in range(0, n_blocks, at_once):

        def term(block: Rows, begin: int = begin) -> tuple[Matrix]:
            eta = predict(loss, block, theta=theta)
            diagonal = _curvature_columns(loss, block.y, eta)
            some = diagonal[:, begin : begin + at_once].T
            return (np.array([_gram(block, curvature) for curvature in some]),)

        found += map(Symmetric.from_dense, block_sum(term, rows)[0])
    return Blocks(found, loss.outputs)


def largest_hessian(loss: Loss, rows: Rows) -> SymmetricMatrix:
    """Return the Hessian of sum w loss if every curvature were at its bound."""

    def term(block: Rows) -> tuple[Matrix]:
        return (_gram(block, np.full(len(block), loss.curvature_bound)),)

    shared = block_sum(term, rows)[0]
    if loss.outputs > 1 and loss.independent:
        return Blocks.from_dense(shared[None], loss.outputs)
    lifted = np.kron(shared, np.eye(loss.outputs))
    return Symmetric.from_dense(np.asarray(lifted, dtype=np.float64))


def norm_moment(rows: Rows) -> Matrix:
    """Return sum w |x| x x', (d, d): what bounds the third-order term."""
    return block_sum(lambda block: (_gram(block, block.norms()),), rows)[0]


def gram(rows: Rows) -> Matrix:
    """Return sum w x x', (d, d)."""
    return block_sum(lambda block: (_gram(block, np.ones(len(block))),), rows)[0]


def largest_norm(rows: Rows) -> float:
    """Return the largest norm of a row with weight, zero if there is none."""
    norms = [
        float(np.max(block.norms() * (block.weight > 0.0), initial=0.0))
        for block in rows.blocks(rows_in_a_block(rows))
    ]
    return max(norms, default=0.0)


def most_entries(rows: Rows) -> int:
    """Return the most entries of a row with weight: all columns of dense rows."""
    X = rows.X
    if not sparse.issparse(X):
        return int(X.shape[1])
    return int(np.max(np.diff(X.indptr) * (rows.weight > 0.0), initial=0))


def column_sizes(rows: Rows) -> Vector:
    """Return the weighted mean of |x| in each column, intercept included."""

    def term(block: Rows) -> tuple[Vector]:
        sizes: Any = abs(block.X)
        return (transpose(sizes) @ block.weight,)

    sizes: Vector = block_sum(term, rows)[0] / rows.total_weight
    return sizes


def largest_move(loss: Loss, rows: Rows, *, step: Vector) -> float:
    """Return the largest norm by which the step moves the predictors of a row.

    Rows without weight do not count: nothing is summed over them.
    """

    def move(block: Rows) -> float:
        eta = predict(loss, block, theta=step)
        norms = row_norms(eta.reshape(len(eta), -1))
        return float(np.max(norms[block.weight > 0.0], initial=0.0))

    return max(map(move, rows.blocks(rows_in_a_block(rows))), default=0.0)


def largest_moves(loss: Loss, rows: Rows, *, steps: Matrix) -> Vector:
    """Return the largest move of a row's predictors for each of several steps."""
    found = np.zeros(len(steps))
    for block in rows.blocks(rows_in_a_block(rows)):
        etas = _predict_each(loss, block, thetas=steps)
        one = loss.outputs == 1
        norms = np.abs(etas) if one else row_norms(_join(etas)).reshape(len(steps), -1)
        found = np.maximum(found, np.max(norms, axis=1, initial=0.0))
    # What is no number may have moved any distance.
    return np.where(np.isnan(found), inf, found)


def kink_masses(loss: Loss, rows: Rows, *, theta: Vector) -> Vector:
    """Return sum w |x|^2 by the distance to a kink over |x|, in KINK_EDGES' bins."""

    def term(block: Rows) -> tuple[Vector]:
        norms = block.norms()
        distance = loss.kink_distance(block.y, predict(loss, block, theta=theta))
        ratio = distance / np.where(norms > 0.0, norms, 1.0)
        bins = np.searchsorted(KINK_EDGES, ratio, side="right") - 1
        mass = block.weight * norms**2
        counts = np.bincount(bins, weights=mass, minlength=KINK_EDGES.size)
        return (np.asarray(counts, dtype=np.float64),)

    return block_sum(term, rows)[0]


def curvature_rows(loss: Loss, rows: Rows, *, theta: Vector) -> Matrix:
    """Return Z with Z'Z the Hessian of sum w loss, for few rows.

    (n k, d k), or (blocks, n, d) if the outputs do not interact.
    """
    eta = predict(loss, rows, theta=theta)
    X = rows.dense()
    if loss.outputs > 1 and loss.independent:
        diagonal = _curvature_columns(loss, rows.y, eta).T
        return X * np.sqrt(rows.weight * diagonal)[:, :, None]
    curvature = loss.curvature(rows.y, eta)
    if loss.outputs == 1:
        scaled: Matrix = X * np.sqrt(rows.weight * curvature)[:, None]
        return scaled
    with catch_lapack_errors():
        values, vectors = np.linalg.eigh(curvature)
    values = np.sqrt(np.maximum(values, 0.0) * rows.weight[:, None])
    roots = vectors * values[:, None, :]
    lifted: Matrix = np.einsum("ia,icr->irac", X, roots)
    return lifted.reshape(len(rows) * loss.outputs, -1)


def curvature_rows_at_each(
    loss: Loss, rows: Rows, *, thetas: Matrix
) -> Iterator[Matrix]:
    """Yield ``curvature_rows`` at each of several thetas."""
    if loss.outputs > 1:
        for theta in thetas:
            yield curvature_rows(loss, rows, theta=theta)
        return
    etas = _predict_each(loss, rows, thetas=thetas)
    labels = np.concatenate([rows.y] * len(etas))
    curvature = loss.curvature(labels, _join(etas)).reshape(etas.shape)
    X = rows.dense()
    for root in np.sqrt(rows.weight * curvature):
        yield X * root[:, None]


def tilted_slopes(
    loss: Loss,
    rows: Rows,
    *,
    theta: Vector,
    spreads: Callable[[Matrix], Matrix],
    limit: float,
) -> tuple[Vector, float]:
    """Return sum w x slope / (1 - leverage), and how many leverages exceed limit.

    ``spreads`` maps rows x to X H^-1 X' for the Hessian H of sum w loss + quadratic, X
    a row's (k, d k) design. With C its curvature, w C X H^-1 X' is the row's leverage:
    (k, k), or a number for each output if they do not interact. Rows beyond the limit
    contribute their plain slope. For rows that are added, ``spreads`` is negative.
    """

    def term(block: Rows) -> tuple[Vector, float]:
        eta, k = predict(loss, block, theta=theta), loss.outputs
        spread, slope = spreads(block.dense()), loss.slope(block.y, eta)
        if spread.ndim == 2:
            curvature = _curvature_columns(loss, block.y, eta)
            leverage = block.weight[:, None] * curvature * spread
            beyond = leverage.max(axis=1) >= limit
            tilted = slope / (1.0 - np.where(beyond[:, None], 0.0, leverage))
            return lift_slopes(block, tilted), float(beyond.sum())
        curvature = loss.curvature(block.y, eta).reshape(-1, k, k)
        leverage = block.weight[:, None, None] * (curvature @ spread)
        with catch_lapack_errors():
            beyond = np.linalg.eigvals(leverage).real.max(axis=1) >= limit
            core = np.eye(k) - np.where(beyond[:, None, None], 0.0, leverage)
            tilted = np.asarray(np.linalg.solve(core, slope.reshape(-1, k, 1)), float)
        return lift_slopes(block, tilted.reshape(slope.shape)), float(beyond.sum())

    return block_sum(term, rows)


def _curvature_columns(loss: Loss, y: Vector, eta: Vector) -> Matrix:
    """Return the curvature of independent outputs, (n, k); (n, 1) if all are equal."""
    diagonal = loss.curvature_parts(y, eta).diagonal.reshape(len(eta), -1)
    return diagonal[:, :1] if loss.equal_curvature else diagonal


def _predict_each(loss: Loss, rows: Rows, *, thetas: Matrix) -> Matrix:
    """Return the predictors at each theta, (a, n) or (a, n, k)."""
    a, k = len(thetas), loss.outputs
    if k == 1 and sparse.issparse(rows.X):
        return np.ascontiguousarray((rows.X @ thetas.T).T)
    if k == 1:
        return np.ascontiguousarray(thetas @ rows.X.T)
    columns = thetas.reshape(a, -1, k).transpose(1, 0, 2).reshape(-1, a * k)
    return (rows.X @ columns).reshape(len(rows), a, k).transpose(1, 0, 2)


def _join(etas: Matrix) -> Vector:
    """Return predictors at several thetas as those of so many more rows."""
    return etas.reshape(-1, *etas.shape[2:])


def _lift_each(rows: Rows, slopes: Matrix) -> Matrix:
    """Return sum w x slope' for the slopes at each theta, flattened row by row."""
    if slopes.ndim == 2 and sparse.issparse(rows.X):
        return np.asarray((transpose(rows.X) @ (slopes * rows.weight).T).T)
    if slopes.ndim == 2:
        return np.asarray((slopes * rows.weight) @ rows.X)
    a, _, k = slopes.shape
    table = (slopes * rows.weight[:, None]).transpose(1, 0, 2)
    lifted = np.asarray(transpose(rows.X) @ table.reshape(len(rows), a * k))
    return lifted.reshape(-1, a, k).transpose(1, 0, 2).reshape(a, -1)


def lift_slopes(rows: Rows, slope: Vector) -> Vector:
    """Return sum w x slope', flattened row by row."""
    weight = rows.weight if slope.ndim == 1 else rows.weight[:, None]
    if sparse.issparse(rows.X):
        lifted: Vector = transpose(rows.X) @ (weight * slope)
    else:
        lifted = ((weight * slope).T @ rows.X).T  # turned round, as in ``predict``
    return lifted.ravel()


def _lift_curvature(rows: Rows, curvature: Vector) -> Matrix:
    """Return sum w (x x') kron curvature, one GEMM for each pair of outputs."""
    if curvature.ndim == 1:
        return _gram(rows, curvature)
    d, k = rows.X.shape[1], curvature.shape[1]
    hessian = np.empty((d, k, d, k))
    for a in range(k):
        for b in range(a + 1):
            hessian[:, a, :, b] = _gram(rows, curvature[:, a, b])
            hessian[:, b, :, a] = hessian[:, a, :, b].T
    return hessian.reshape(d * k, d * k)


def _gram(rows: Rows, factor: Vector) -> Matrix:
    """Return sum w factor x x', dense."""
    X, scale = rows.X, rows.weight * factor
    if sparse.issparse(X):
        scaled: Any = slice_rows(X, slice(None))
        scaled.data = scaled.data * np.repeat(scale, np.diff(scaled.indptr))
        return np.asarray((transpose(X) @ scaled).toarray())
    if (scale == 1.0).all():
        return X.T @ X
    if (scale >= 0.0).all():
        root = X * np.sqrt(scale)[:, None]
        return root.T @ root  # the same operand twice: NumPy calls dsyrk
    return X.T @ (X * scale[:, None])
