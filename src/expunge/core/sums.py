# SPDX-License-Identifier: Apache-2.0
"""The terms of every pass over rows: losses, gradients, Hessians, sizes.

A term maps a block of rows to a tuple of small values; ``rows.block_sum`` adds the
tuples in an order of its own, wherever the rows lie. Nothing above this module loops
over rows. A term changes nothing outside itself: it may run in another process.

All sums are weighted and not normalised: callers divide by the W they mean. Places
that hold no row (``Rows.absent``) have weight zero, and adding zeros rounds nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from .arrays import (
    Index,
    Matrix,
    Vector,
    catch_lapack_errors,
    row_norms,
    row_squares,
    slice_rows,
    transpose,
)
from .blocks import Blocks, SymmetricMatrix
from .linalg import Symmetric
from .losses import Curvature, Loss
from .rows import BLOCK_ROWS, Largest, Rows, RowSource, block_max, block_sum, number

# What a pass makes of one block: values that the tree adds.
Term: TypeAlias = Callable[[Rows], tuple[Any, ...]]

# Numbers in the blocks of a Hessian that are summed at once: several such sums are held
# until the tree adds them.
SUMMED_AT_ONCE = 2**22

# Left edges of the bins in which distances to a kink are counted: the first holds
# all that is nearer than the next, so that a bin never overstates a distance.
KINK_EDGES: Vector = np.concatenate([[0.0], np.geomspace(1e-8, 1e8, 127)])


def predict(loss: Loss, rows: Rows, *, theta: Vector) -> Vector:
    """Return the predictors X theta, (n,) or (n, k)."""
    if loss.outputs == 1:
        eta: Vector = rows.X.dot(theta)  # half the time of @ on one row
        return eta
    table = theta.reshape(-1, loss.outputs)
    if sparse.issparse(rows.X):
        eta = rows.X @ table
        return eta
    # Turned round, the long side is the one along which BLAS cuts its tiles: a product
    # with a few columns takes two thirds of the time.
    eta = (table.T @ rows.X.T).T
    return eta


def loss_gradient(
    loss: Loss, rows: RowSource, *, theta: Vector
) -> tuple[float, Vector]:
    """Return sum w loss and its gradient in theta."""
    value, gradient = block_sum(gradient_term(loss, theta=theta), rows)
    return value, gradient


def gradient_term(loss: Loss, *, theta: Vector) -> Term:
    """Return the term of ``loss_gradient``."""

    def term(block: Rows) -> tuple[float, Vector]:
        eta = predict(loss, block, theta=theta)
        value = number(block.weight @ loss.value(block.y, eta))
        return value, lift_slopes(block, loss.slope(block.y, eta))

    return term


def loss_slopes(loss: Loss, rows: RowSource, *, theta: Vector) -> Vector:
    """Return the gradient of sum w loss alone: what one removal costs."""
    term = slope_term(loss, theta=theta)
    if isinstance(rows, Rows) and rows.X.shape[0] <= BLOCK_ROWS:
        return term(rows)[0]  # most requests
    return block_sum(term, rows)[0]


def slope_term(loss: Loss, *, theta: Vector) -> Callable[[Rows], tuple[Vector]]:
    """Return the term of ``loss_slopes``."""

    def term(block: Rows) -> tuple[Vector]:
        slope = loss.slope(block.y, predict(loss, block, theta=theta))
        return (lift_slopes(block, slope),)

    return term


class Overview(NamedTuple):
    """What one pass at theta tells: sums of w times loss, gradient and curvature.

    ``steepness`` is sum w |slope|^2; ``curvature`` is that of the predictors, (k, k);
    ``lever`` is sum w x c with c the diagonal of a row's curvature, (d, k), and None if
    it was not asked for.
    """

    loss: float
    steepness: float
    gradient: Vector
    curvature: Matrix
    lever: Matrix | None


def overview(
    loss: Loss,
    rows: RowSource,
    *,
    theta: Vector,
    lever: bool = False,
    curvatures: list[Curvature] | None = None,
) -> Overview:
    """Return the sums at theta; put the curvature of each block into a list, if any."""
    term = overview_term(loss, theta=theta, lever=lever, curvatures=curvatures)
    return read_overview(loss, block_sum(term, rows))


def overview_term(
    loss: Loss,
    *,
    theta: Vector,
    lever: bool,
    curvatures: list[Curvature] | None = None,
) -> Term:
    """Return the term of ``overview``, for ``read_overview`` to read its sum."""
    moved = bool(theta.any())  # a fit starts at zero: the predictors are known there

    def zero(block: Rows) -> Vector:
        shape = (len(block), loss.outputs) if loss.outputs > 1 else (len(block),)
        return np.zeros_like(block.weight, shape=shape)

    def term(block: Rows) -> tuple[Any, ...]:
        eta = predict(loss, block, theta=theta) if moved else zero(block)
        slope = loss.slope(block.y, eta)
        curved = loss.curvature_parts(block.y, eta)
        if curvatures is not None:
            curvatures.append(curved)
        weight, steep = block.weight, row_squares(slope.reshape(len(block), -1))
        sums = (
            number(weight @ loss.value(block.y, eta)),
            number(weight @ steep),
            lift_slopes(block, slope),
            curved.total(weight),
        )
        return (*sums, lift_slopes(block, curved.diagonal)) if lever else sums

    return term


def read_overview(loss: Loss, sums: tuple[Any, ...]) -> Overview:
    """Return the sum of an ``overview_term`` by its names."""
    value, steepness, gradient, curvature, *rest = sums
    found = np.asarray(rest[0]).reshape(-1, loss.outputs) if rest else None
    return Overview(value, steepness, gradient, curvature, found)


def slopes_at_each(
    loss: Loss, rows: RowSource, *, thetas: Matrix, valued: Index
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


def slope_scale(loss: Loss, rows: RowSource, *, theta: Vector) -> float:
    """Return sum w |slope| |x|: the size of what cancels in a gradient."""
    return row_sizes(loss, rows, theta=theta)[0]


def row_sizes(loss: Loss, rows: RowSource, *, theta: Vector) -> tuple[float, ...]:
    """Return sum w |slope| |x|, sum w |x|^2, sum w |x|^3 and the largest |x|."""
    *sums, largest = block_sum(size_term(loss, theta=theta), rows)
    return (*sums, float(largest.value))


def size_term(loss: Loss, *, theta: Vector) -> Term:
    """Return the term of ``row_sizes``; the last of its values is a ``Largest``."""

    def term(block: Rows) -> tuple[Any, ...]:
        slope = loss.slope(block.y, predict(loss, block, theta=theta))
        steep = row_norms(slope.reshape(len(block), -1))
        norms = block.norms()
        sizes = (steep * norms, norms**2, norms**3)
        sums = (number(block.weight @ size) for size in sizes)
        return (*sums, Largest(_longest(block, norms)))

    return term


def norm_sums(rows: RowSource) -> tuple[float, float, float]:
    """Return sum w |x|^2, sum w |x|^3 and the largest |x| of a row with weight."""

    def term(block: Rows) -> tuple[float, float, Largest]:
        norms = block.norms()
        sums = number(block.weight @ norms**2), number(block.weight @ norms**3)
        return (*sums, Largest(_longest(block, norms)))

    square, cube, largest = block_sum(term, rows)
    return square, cube, float(largest.value)


def loss_hessian(loss: Loss, rows: RowSource, *, theta: Vector) -> SymmetricMatrix:
    """Return the Hessian of sum w loss: in blocks if the outputs do not interact."""
    terms = hessian_terms(loss, rows.n_columns, theta=theta)
    return join_hessian(loss, [block_sum(term, rows)[0] for term in terms])


def hessian_terms(loss: Loss, n_columns: int, *, theta: Vector) -> list[Term]:
    """Return the terms of a Hessian: one, unless there are many blocks of outputs."""
    if not (loss.outputs > 1 and loss.independent):

        def term(block: Rows) -> tuple[Matrix]:
            eta = predict(loss, block, theta=theta)
            return (_lift_curvature(block, loss.curvature(block.y, eta)),)

        return [term]
    n_blocks = 1 if loss.equal_curvature else loss.outputs
    at_once = max(1, SUMMED_AT_ONCE // n_columns**2)

    def some_blocks(begin: int) -> Term:
        def term(block: Rows) -> tuple[Matrix]:
            eta = predict(loss, block, theta=theta)
            diagonal = curvature_columns(loss, block.y, eta)
            some = diagonal[:, begin : begin + at_once].T
            return (np.stack([_gram(block, curvature) for curvature in some]),)

        return term

    return [some_blocks(begin) for begin in range(0, n_blocks, at_once)]


def join_hessian(loss: Loss, sums: Sequence[Matrix]) -> SymmetricMatrix:
    """Return the Hessian made of the sums of its terms."""
    if not (loss.outputs > 1 and loss.independent):
        return Symmetric.from_dense(sums[0])
    found = [Symmetric.from_dense(block) for blocks in sums for block in blocks]
    return Blocks(found, loss.outputs)


def largest_hessian(loss: Loss, rows: RowSource) -> SymmetricMatrix:
    """Return the Hessian of sum w loss if every curvature were at its bound."""

    def term(block: Rows) -> tuple[Matrix]:
        return (_gram(block, np.full(len(block), loss.curvature_bound)),)

    shared = block_sum(term, rows)[0]
    if loss.outputs > 1 and loss.independent:
        return Blocks.from_dense(shared[None], loss.outputs)
    lifted = np.kron(shared, np.eye(loss.outputs))
    return Symmetric.from_dense(np.asarray(lifted, dtype=np.float64))


def norm_moment(rows: RowSource) -> Matrix:
    """Return sum w |x| x x', (d, d): what bounds the third-order term."""
    return block_sum(moment_term, rows)[0]


def moment_term(block: Rows) -> tuple[Matrix]:
    """Return the term of ``norm_moment``."""
    return (_gram(block, block.norms()),)


def gram(rows: RowSource) -> Matrix:
    """Return sum w x x', (d, d)."""
    return block_sum(lambda block: (_gram(block, np.ones(len(block))),), rows)[0]


def largest_norm(rows: RowSource) -> float:
    """Return the largest norm of a row with weight, zero if there is none."""
    return block_max(lambda block: _longest(block, block.norms()), rows)


def _longest(block: Rows, norms: Vector) -> Any:
    """Return the largest of these norms of rows with weight."""
    return number(np.max(norms * (block.weight > 0.0), initial=0.0))


def most_entries(rows: RowSource) -> int:
    """Return the most entries of a row with weight: all columns of dense rows."""
    if isinstance(rows, Rows):
        return int(entries_term(rows)[0].value)
    return int(block_sum(entries_term, rows)[0].value)


def entries_term(block: Rows) -> tuple[Largest]:
    """Return the term of ``most_entries``."""
    if not sparse.issparse(block.X):
        return (Largest(block.n_columns),)
    n_entries = np.diff(block.X.indptr) * (block.weight > 0.0)
    return (Largest(int(np.max(n_entries, initial=0))),)


def column_sizes(rows: RowSource) -> Vector:
    """Return the weighted mean of |x| in each column, intercept included."""

    def term(block: Rows) -> tuple[Vector]:
        sizes: Any = abs(block.X)
        return (transpose(sizes) @ block.weight,)

    sizes: Vector = block_sum(term, rows)[0] / rows.total_weight
    return sizes


def largest_move(loss: Loss, rows: RowSource, *, step: Vector) -> float:
    """Return the largest norm by which the step moves the predictors of a row.

    Rows without weight do not count: nothing is summed over them.
    """
    term = move_term(loss, step=step)
    return block_max(lambda block: term(block)[0].value, rows)


def move_term(loss: Loss, *, step: Vector) -> Callable[[Rows], tuple[Largest]]:
    """Return the term of ``largest_move``."""

    def term(block: Rows) -> tuple[Largest]:
        eta = predict(loss, block, theta=step)
        norms = row_norms(eta.reshape(len(eta), -1))
        return (Largest(float(np.max(norms[block.weight > 0.0], initial=0.0))),)

    return term


def largest_moves(loss: Loss, rows: RowSource, *, steps: Matrix) -> Vector:
    """Return the largest move of predictors for each of several steps.

    Of the rows with weight: others count for nothing.
    """

    def move(block: Rows) -> Vector:
        etas = _predict_each(loss, block, thetas=steps)
        one = loss.outputs == 1
        norms = np.abs(etas) if one else row_norms(_join(etas)).reshape(len(steps), -1)
        counted = norms * (block.weight > 0.0)
        return np.asarray(np.max(counted, axis=1, initial=0.0))

    found = np.zeros(len(steps))
    for moved in rows.map_blocks(move):
        found = np.maximum(found, moved)
    # What is no number may have moved any distance.
    return np.where(np.isnan(found), inf, found)


def kink_masses(loss: Loss, rows: RowSource, *, theta: Vector) -> Vector:
    """Return sum w |x|^2 by the distance to a kink over |x|, in KINK_EDGES' bins."""
    masses: Vector = block_sum(kink_term(loss, theta=theta), rows)[0]
    return masses


def kink_term(loss: Loss, *, theta: Vector) -> Term:
    """Return the term of ``kink_masses``."""

    def term(block: Rows) -> tuple[Vector]:
        norms = block.norms()
        distance = loss.kink_distance(block.y, predict(loss, block, theta=theta))
        ratio = distance / np.where(norms > 0.0, norms, 1.0)
        bins = np.searchsorted(KINK_EDGES, ratio, side="right") - 1
        mass = block.weight * norms**2
        counts = np.bincount(bins, weights=mass, minlength=KINK_EDGES.size)
        return (np.asarray(counts, dtype=np.float64),)

    return term


def curvature_rows(loss: Loss, rows: Rows, *, theta: Vector) -> Matrix:
    """Return Z with Z'Z the Hessian of sum w loss, for few rows.

    (n k, d k), or (blocks, n, d) if the outputs do not interact.
    """
    eta = predict(loss, rows, theta=theta)
    X = rows.dense()
    if loss.outputs > 1 and loss.independent:
        diagonal = curvature_columns(loss, rows.y, eta).T
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


def curvature_columns(loss: Loss, y: Vector, eta: Vector) -> Matrix:
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
    if slopes.ndim == 2:
        return np.asarray((transpose(rows.X) @ (slopes * rows.weight).T).T)
    a, _, k = slopes.shape
    table = (slopes * rows.weight[:, None]).transpose(1, 0, 2)
    lifted = np.asarray(transpose(rows.X) @ table.reshape(len(rows), a * k))
    return lifted.reshape(-1, a, k).transpose(1, 0, 2).reshape(a, -1)


def lift_slopes(rows: Rows, slope: Vector) -> Vector:
    """Return sum w x slope', flattened row by row."""
    weight = rows.weight if slope.ndim == 1 else rows.weight[:, None]
    weighted = weight * slope
    if sparse.issparse(rows.X):
        lifted: Vector = transpose(rows.X) @ weighted
    elif slope.ndim == 1:
        lifted = weighted.dot(rows.X)
    else:
        lifted = (weighted.T @ rows.X).T  # turned round, as in ``predict``
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
    if not isinstance(X, np.ndarray):  # it would have to wait for the tests below
        return X.weighted_gram(scale)
    if (scale == 1.0).all():
        return X.T @ X
    if (scale >= 0.0).all():
        root = X * np.sqrt(scale)[:, None]
        return root.T @ root  # the same operand twice: NumPy calls dsyrk
    return X.T @ (X * scale[:, None])
