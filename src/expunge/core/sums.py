# SPDX-License-Identifier: Apache-2.0
"""The terms of every pass over rows: losses, gradients, Hessians, sizes.

A term maps a block of rows to a tuple of small values; ``rows.block_sum`` adds the
tuples in an order of its own, wherever the rows lie. Nothing above this module loops
over rows. A term changes nothing outside itself: it may run in another process.

All sums are weighted and not normalised: callers divide by the W they mean. Places
that hold no row (``Rows.absent``) have weight zero, and adding zeros rounds nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, inf, log
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from .arrays import (
    SAFETY,
    UNIT_ROUNDOFF,
    Matrix,
    Vector,
    beside,
    catch_lapack_errors,
    is_compressed,
    largest,
    namespace,
    norm,
    row_norms,
    row_squares,
    slice_rows,
    transpose,
)
from .linalg import Symmetric
from .losses import Curvature, Loss
from .rows import BLOCK_ROWS, Largest, Rows, RowSource, as_float, block_max, block_sum
from .split import SplitMatrix
from .values import SMALLEST, UNDERFLOW

# What a pass makes of one block: values that the tree adds.
Term: TypeAlias = Callable[[Rows], tuple[Any, ...]]

# Numbers in the blocks of a Hessian that are summed at once: several such sums are held
# until the tree adds them.
SUMMED_AT_ONCE = 2**22

# Steps towards the largest eigenvalue of a wide Gram matrix, and what an entry is at
# least of the largest on the way, so that none is lost below all numbers.
GRAM_STEPS, LEAST_ENTRY = 8, 1e-6

# Columns of a panel: of 1024 columns, four panels take 10/16 of the products.
PANEL = 256

# Left edges of the bins in which distances to a kink are counted: the first holds
# all that is nearer than the next, so that a bin never overstates a distance.
KINK_EDGES: Vector = np.concatenate([[0.0], np.geomspace(1e-8, 1e8, 127)])


def predict(loss: Loss, rows: Rows, *, theta: Vector) -> Vector:
    """Return the predictors X theta, (n,) or (n, k)."""
    theta = beside(rows.X, theta)
    if loss.outputs == 1:
        if not isinstance(rows.X, np.ndarray):
            return rows.X @ theta
        eta: Vector = rows.X.dot(theta)  # half the time of @ on one row
        return eta
    table = theta.reshape(-1, loss.outputs)
    if is_compressed(rows.X):
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
        value = as_float(block.weight @ loss.value(block.y, eta))
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
    ``intercept_columns`` is sum w x c with c the diagonal of a row's curvature, (d, k):
    what an intercept has as its column of each output's Hessian. None if nobody asked.
    """

    loss: float
    steepness: float
    gradient: Vector
    curvature: Matrix
    intercept_columns: Matrix | None


def overview(
    loss: Loss,
    rows: RowSource,
    *,
    theta: Vector,
    intercept_columns: bool = False,
    curvatures: list[Curvature] | None = None,
) -> Overview:
    """Return the sums at theta; put the curvature of each block into a list, if any."""
    term = overview_term(
        loss, theta=theta, intercept_columns=intercept_columns, curvatures=curvatures
    )
    return read_overview(loss, block_sum(term, rows))


def overview_term(
    loss: Loss,
    *,
    theta: Vector,
    intercept_columns: bool,
    curvatures: list[Curvature] | None = None,
) -> Term:
    """Return the term of ``overview``, for ``read_overview`` to read its sum."""
    moved = bool(theta.any())  # a fit starts at zero: the predictors are known there

    def zero(block: Rows) -> Vector:
        shape = (len(block), loss.outputs) if loss.outputs > 1 else (len(block),)
        weight = block.weight
        eta: Vector = namespace(weight).zeros(
            shape, dtype=weight.dtype, device=weight.device
        )
        return eta

    def term(block: Rows) -> tuple[Any, ...]:
        eta = predict(loss, block, theta=theta) if moved else zero(block)
        slope = loss.slope(block.y, eta)
        curved = loss.curvature_parts(block.y, eta)
        if curvatures is not None:
            curvatures.append(curved)
        steep = row_squares(slope.reshape(len(block), loss.outputs))
        weight = block.weight
        sums = (
            as_float(weight @ loss.value(block.y, eta)),
            as_float(weight @ steep),
            lift_slopes(block, slope),
            curved.total(weight),
        )
        return (
            (*sums, lift_slopes(block, curved.diagonal)) if intercept_columns else sums
        )

    return term


def read_overview(loss: Loss, sums: tuple[Any, ...]) -> Overview:
    """Return the sum of an ``overview_term`` by its names."""
    value, steepness, gradient, curvature, *rest = sums
    found = np.asarray(rest[0]).reshape(-1, loss.outputs) if rest else None
    return Overview(value, steepness, gradient, curvature, found)


def slopes_at_each(loss: Loss, rows: RowSource, *, thetas: Matrix) -> Matrix:
    """Return the gradient of sum w loss at each of several thetas, (a, d k).

    The rows are read once for all of them, by matrix products.
    """

    def term(block: Rows) -> tuple[Matrix]:
        etas = predict_each(loss, block, thetas=thetas)
        labels = namespace(block.y).concat([block.y] * len(etas))
        slopes = loss.slope(labels, _join(etas)).reshape(etas.shape)
        return (_lift_each(block, slopes),)

    return block_sum(term, rows)[0]


def slope_scale(loss: Loss, rows: RowSource, *, theta: Vector) -> float:
    """Return sum w |slope| |x|: the size of what cancels in a gradient."""
    return row_sizes(loss, rows, theta=theta)[0]


def row_sizes(loss: Loss, rows: RowSource, *, theta: Vector) -> tuple[float, ...]:
    """Return sum w |slope| |x|, w |slope|^2, w |x|^2, w |x|^3 and the largest |x|."""
    *sums, largest = block_sum(size_term(loss, theta=theta), rows)
    return (*sums, float(largest.value))


def size_term(loss: Loss, *, theta: Vector) -> Term:
    """Return the term of ``row_sizes``; the last of its values is a ``Largest``."""

    def term(block: Rows) -> tuple[Any, ...]:
        slope = loss.slope(block.y, predict(loss, block, theta=theta))
        steep = row_norms(slope.reshape(len(block), loss.outputs))
        norms = block.norms()
        sizes = (steep * norms, steep**2, norms**2, norms**3)
        sums = (as_float(block.weight @ size) for size in sizes)
        return (*sums, Largest(_longest(block, norms)))

    return term


def curvature_sizes(
    loss: Loss, rows: RowSource, *, theta: Vector
) -> tuple[float, float]:
    """Return the sums of w tr C and of w tr C |x|^2, C the curvature of a row.

    The second is the trace of the Hessian of sum w loss.
    """

    def term(block: Rows) -> tuple[Any, ...]:
        eta = predict(loss, block, theta=theta)
        traces = loss.curvature_parts(block.y, eta).traces()
        sizes = (traces, traces * block.norms() ** 2)
        return tuple(as_float(block.weight @ size) for size in sizes)

    curvature, hessian = block_sum(term, rows)
    return curvature, hessian


def norm_sums(rows: RowSource) -> tuple[float, float]:
    """Return sum w |x|^2 and the largest |x| of a row with weight."""

    def term(block: Rows) -> tuple[float, Largest]:
        norms = block.norms()
        square = as_float(block.weight @ norms**2)
        return square, Largest(_longest(block, norms))

    square, largest = block_sum(term, rows)
    return square, float(largest.value)


def gram_bound(rows: RowSource, *, free: bool) -> float:
    """Return a bound on the largest eigenvalue of sum w x x', by passes with a vector.

    ``free`` leaves the last column out. With A = sum w |x| |x|' and m steps it is the
    m-th root of the largest entry of A^m 1: of more rows it is larger
    (docs/radii.md, "Free intercepts without matrices").
    """
    v = np.ones(rows.n_columns)
    v[-1] = not free
    logarithm = 0.0

    def term(block: Rows) -> tuple[Vector]:
        sizes: Any = abs(block.X)
        return (transpose(sizes) @ (block.weight * (sizes @ v)),)

    for _ in range(GRAM_STEPS):
        v = np.asarray(block_sum(term, rows)[0])
        v[-1] *= not free
        largest = float(v.max())
        if not SMALLEST < largest < inf:
            return inf
        logarithm += log(largest)
        v = np.maximum(v / largest, LEAST_ENTRY)
        v[-1] *= not free
    count = most_entries(rows) + rows.n_additions + 8
    return exp(logarithm / GRAM_STEPS) * (1.0 + 4.0 * UNIT_ROUNDOFF * count) * SAFETY


def loss_hessian(loss: Loss, rows: RowSource, *, theta: Vector) -> Symmetric:
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
            grams = [_gram(block, curvature) for curvature in some]
            return (namespace(grams[0]).stack(grams),)

        return term

    return [some_blocks(begin) for begin in range(0, n_blocks, at_once)]


def join_hessian(loss: Loss, sums: Sequence[Matrix]) -> Symmetric:
    """Return the Hessian made of the sums of its terms."""
    if not (loss.outputs > 1 and loss.independent):
        return Symmetric.from_dense(sums[0])
    blocks = [block for blocks in sums for block in blocks]
    return Symmetric.from_dense(blocks, loss.outputs)


def hessian_lost(
    loss: Loss,
    rows: RowSource,
    *,
    anchor: Vector,
    theta: Vector,
    way: float,
    doubts: tuple[float, float, float],
) -> tuple[Symmetric, int]:
    """Return what rows had of a Hessian, summed at an anchor, that others may lack.

    Those of all points no farther from theta than a way: of the rows whose curvature is
    less at theta, or that a step of that length may take across a kink; and how many.
    Of a loss whose outputs do not interact. By the first two ``doubts`` times |x|,
    rounding may have moved a predictor at theta, and at the anchor; there by the last
    besides, whatever |x| is. Where that leaves a side of a kink open, a row counts with
    all that it may have had.
    """
    moved, moved_before, shifted = doubts
    at_anchor = np.array_equal(anchor, theta)

    def lost(block: Rows) -> tuple[Rows, Matrix]:
        norms, xp = block.norms(), namespace(block.weight)

        def distance(eta: Vector, doubt: Vector) -> Vector:
            slope = loss.slope(block.y, eta)
            steep = abs(slope) if slope.ndim == 1 else row_norms(slope)
            unsure = doubt + 8.0 * UNIT_ROUNDOFF * steep
            return loss.kink_distance(block.y, eta) * (1.0 - 1e-12) - unsure

        there = predict(loss, block, theta=theta)
        before = there if at_anchor else predict(loss, block, theta=anchor)
        had = curvature_columns(loss, block.y, before)
        near = distance(there, moved * norms) <= way * norms
        unknown = distance(before, moved_before * norms + shifted) <= 0.0
        less = near | unknown
        if not at_anchor:
            fallen = curvature_columns(loss, block.y, there) < had
            less = less | xp.any(fallen, axis=1)
        less = less & (block.weight > 0.0)
        most = xp.full_like(had, loss.curvature_bound)
        had = xp.where(unknown[:, None], most, had)
        return block.take(less), had[less]

    def some_outputs(begin: int) -> Term:
        def term(block: Rows) -> tuple[Any, ...]:
            some, had = lost(block)
            if isinstance(some.X, SplitMatrix) and len(some) <= BLOCK_ROWS:
                some = replace(some, X=some.dense())  # most are few
            grams = [_gram(some, part) for part in had[:, begin : begin + at_once].T]
            return namespace(grams[0]).stack(grams), len(some)

        return term

    at_once = max(1, SUMMED_AT_ONCE // rows.n_columns**2)
    begins = range(0, loss.outputs, at_once)
    sums = [block_sum(some_outputs(begin), rows) for begin in begins]
    blocks = [block for part, _ in sums for block in part]
    return Symmetric.from_dense(blocks, loss.outputs), sums[0][1]


def largest_hessian(loss: Loss, rows: RowSource, *, theta: Vector) -> Symmetric:
    """Return the Hessian of parabolas above the rows' losses that touch them here.

    Of several outputs: as if every curvature were at its bound.
    """

    def term(block: Rows) -> tuple[Matrix]:
        if loss.outputs == 1:
            eta = predict(loss, block, theta=theta)
            return (_gram(block, loss.steepness(block.y, eta)),)
        full = namespace(block.weight).full_like
        return (_gram(block, full(block.weight, loss.curvature_bound)),)

    shared = block_sum(term, rows)[0]
    if loss.outputs > 1 and loss.independent:
        return Symmetric.from_dense([shared], loss.outputs)
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

    def term(block: Rows) -> tuple[Matrix]:
        return (_gram(block, namespace(block.weight).ones_like(block.weight)),)

    return block_sum(term, rows)[0]


def coupling_sum(
    loss: Loss, rows: RowSource, *, theta: Vector, every: int
) -> tuple[Vector, float]:
    """Return the sum of w x C over every so-manyth row of each block, and their weight.

    C is a row's curvature: (d k k,), row by row, C's rows within.
    """

    def term(block: Rows) -> tuple[Any, ...]:
        some = block.take(slice(None, None, every))
        curvature = loss.curvature(some.y, predict(loss, some, theta=theta))
        lifted = lift_slopes(some, curvature.reshape(len(some), -1))
        return lifted, as_float(some.weight.sum())

    lifted, weight = block_sum(term, rows)
    return lifted, weight


def largest_norm(rows: RowSource) -> float:
    """Return the largest norm of a row with weight, zero if there is none."""
    return block_max(lambda block: _longest(block, block.norms()), rows)


def _longest(block: Rows, norms: Vector, *, axis: int | None = None) -> Any:
    """Return the largest of these norms of rows with weight."""
    xp = namespace(norms)
    return as_float(largest(xp.where(block.weight > 0.0, norms, 0.0), axis))


def most_entries(rows: RowSource) -> int:
    """Return the most entries of a row with weight: all columns of dense rows."""
    if isinstance(rows, Rows):
        return int(entries_term(rows)[0].value)
    return int(block_sum(entries_term, rows)[0].value)


def entries_term(block: Rows) -> tuple[Largest]:
    """Return the term of ``most_entries``."""
    if isinstance(block.X, SplitMatrix):
        return (Largest(block.X.n_entries),)
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
        return (Largest(_longest(block, norms)),)

    return term


def largest_moves(loss: Loss, rows: RowSource, *, steps: Matrix) -> Vector:
    """Return the largest move of predictors for each of several steps.

    Of the rows with weight: others count for nothing.
    """

    def term(block: Rows) -> tuple[Largest]:
        etas = predict_each(loss, block, thetas=steps)
        one_output = loss.outputs == 1
        norms = (
            abs(etas) if one_output else row_norms(_join(etas)).reshape(len(steps), -1)
        )
        return (Largest(_longest(block, norms, axis=1)),)

    moves: Vector = block_sum(term, rows)[0].value
    # What is no number may have moved any distance.
    return np.where(np.isnan(moves), inf, moves)


def kink_masses(
    loss: Loss, rows: RowSource, *, theta: Vector, leaving: bool = False
) -> Vector:
    """Return sum w |x|^2 by the distance to a kink over |x|, in KINK_EDGES' bins.

    Of rows that are ``leaving``: what may be subtracted. Their predictors are computed
    again, and may come out in another bin or on another side of a kink than when they
    were summed. So each counts as far from the kink as rounding lets it be, and one
    that may be on either side counts against the first bin: the Hessian may keep, or
    lose, the jump of its curvature (docs/radii.md, "Kinks").
    """
    term = kink_term(loss, theta=theta, leaving=leaving)
    masses: Vector = block_sum(term, rows)[0]
    return masses


def kink_term(loss: Loss, *, theta: Vector, leaving: bool = False) -> Term:
    """Return the term of ``kink_masses``."""
    width, size = theta.size // loss.outputs, norm(theta)
    twice = 2.0 * (width + 2) * (UNIT_ROUNDOFF * size + UNDERFLOW / SMALLEST)

    def term(block: Rows) -> tuple[Vector]:
        norms, eta = block.norms(), predict(loss, block, theta=theta)
        xp, edges = namespace(norms), beside(norms, KINK_EDGES)
        unit = xp.where(norms > 0.0, norms, 1.0)
        ratio, mass = loss.kink_distance(block.y, eta) / unit, block.weight * norms**2
        if leaving:
            steep = row_norms(loss.slope(block.y, eta).reshape(len(block), -1))
            doubt = twice + 8.0 * UNIT_ROUNDOFF * steep / unit
            mass = xp.where(ratio > doubt, mass, -mass)
            ratio = xp.where(ratio > doubt, ratio * SAFETY + doubt, 0.0)
        bins = xp.searchsorted(edges, ratio, side="right") - 1
        return (xp.bincount(bins, weights=mass, minlength=len(edges)),)

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


def curvature_columns(loss: Loss, y: Vector, eta: Vector) -> Matrix:
    """Return the curvature of independent outputs, (n, k); (n, 1) if all are equal."""
    diagonal = loss.curvature_parts(y, eta).diagonal
    diagonal = diagonal[:, None] if diagonal.ndim == 1 else diagonal
    return diagonal[:, :1] if loss.equal_curvature else diagonal


def predict_each(loss: Loss, rows: Rows, *, thetas: Matrix) -> Matrix:
    """Return the predictors at each theta, (a, n) or (a, n, k)."""
    a, k, xp = len(thetas), loss.outputs, namespace(rows.X)
    thetas = beside(rows.X, thetas)
    if k == 1 and is_compressed(rows.X):
        return np.ascontiguousarray((rows.X @ thetas.T).T)
    etas: Matrix
    if k == 1:
        etas = thetas @ rows.X.T
        return np.ascontiguousarray(etas) if xp is np else etas
    columns = _swap(thetas.reshape(a, -1, k)).reshape(-1, a * k)
    etas = _swap((rows.X @ columns).reshape(len(rows), a, k))
    return etas


def column_sums(rows: RowSource) -> tuple[Vector, Vector]:
    """Return sum w x and sum w x^2 of each column."""

    def term(block: Rows) -> tuple[Vector, Vector]:
        ones = namespace(block.weight).ones_like(block.weight)
        squared = replace(block, X=square_entries(block.X))
        return lift_slopes(block, ones), lift_slopes(squared, ones)

    means, squares = block_sum(term, rows)
    return np.asarray(means), np.asarray(squares)


def square_entries(X: Any) -> Any:
    """Return the design with each entry squared; a sparse one shares its indices."""
    if isinstance(X, SplitMatrix):
        return X.map(np.square)
    squared: Any = slice_rows(X, slice(None))
    if not sparse.issparse(squared):
        return squared * squared
    entries: Any = squared
    entries.data = entries.data * entries.data
    return entries


def _swap(table: Any) -> Any:
    """Return a table of three axes with the first two swapped."""
    return namespace(table).permute_dims(table, (1, 0, 2))


def _join(etas: Matrix) -> Vector:
    """Return predictors at several thetas as those of so many more rows."""
    return etas.reshape(-1, *etas.shape[2:])


def _lift_each(rows: Rows, slopes: Matrix) -> Matrix:
    """Return sum w x slope' for the slopes at each theta, flattened row by row."""
    if slopes.ndim == 2:
        lifted: Matrix = (transpose(rows.X) @ (slopes * rows.weight).T).T
        return lifted
    a, _, k = slopes.shape
    table = _swap(slopes * rows.weight[:, None]).reshape(len(rows), a * k)
    lifted = _swap((transpose(rows.X) @ table).reshape(-1, a, k)).reshape(a, -1)
    return lifted


def lift_slopes(rows: Rows, slope: Vector) -> Vector:
    """Return sum w x slope', flattened row by row."""
    weight = rows.weight if slope.ndim == 1 else rows.weight[:, None]
    weighted = weight * slope
    X: Any = rows.X
    if slope.ndim > 1 or is_compressed(X):
        lifted: Vector = transpose(X) @ weighted
    else:
        lifted = weighted.dot(X) if isinstance(X, np.ndarray) else weighted @ X
    return lifted.ravel()


def _lift_curvature(rows: Rows, curvature: Vector) -> Matrix:
    """Return sum w (x x') kron curvature, one GEMM for each pair of outputs."""
    if curvature.ndim == 1:
        return _gram(rows, curvature)
    d, k = rows.X.shape[1], curvature.shape[1]
    hessian: Matrix = namespace(curvature).empty(
        (d, k, d, k), dtype=curvature.dtype, device=curvature.device
    )
    for a in range(k):
        for b in range(a + 1):
            product = _gram(rows, curvature[:, a, b])
            hessian[:, a, :, b], hessian[:, b, :, a] = product, product.T
    return hessian.reshape(d * k, d * k)


def _gram(rows: Rows, factor: Vector) -> Matrix:
    """Return sum w factor x x', dense."""
    X, scale = rows.X, rows.weight * factor
    if isinstance(X, SplitMatrix):
        return X.gram(scale)
    if sparse.issparse(X):
        scaled: Any = slice_rows(X, slice(None))
        scaled.data = scaled.data * np.repeat(scale, np.diff(scaled.indptr))
        return np.asarray((transpose(X) @ scaled).toarray())
    if not isinstance(X, np.ndarray):  # it would have to wait for the tests below
        return gram_by_panels(X, scale)
    if (scale == 1.0).all():
        return X.T @ X
    if (scale >= 0.0).all():
        root = X * np.sqrt(scale)[:, None]
        return root.T @ root  # the same operand twice: NumPy calls dsyrk
    return X.T @ (X * scale[:, None])


def gram_by_panels(X: Any, scale: Any, *, panel: int = PANEL) -> Any:
    """Return X' diag(scale) X of an array on a device, by panels of columns.

    What lies above the diagonal is copied from below: the product is symmetric.
    """
    xp, scaled, width = namespace(X), X * scale[:, None], int(X.shape[1])
    product = xp.empty((width, width), dtype=X.dtype, device=X.device)
    for begin in range(0, width, panel):
        end = min(begin + panel, width)
        part = X[:, begin:].T @ scaled[:, begin:end]
        top = xp.tril(part[: end - begin])
        product[begin:end, begin:end] = top + xp.tril(top, k=-1).T
        product[end:, begin:end] = part[end - begin :]
        product[begin:end, end:] = part[end - begin :].T
    return product
