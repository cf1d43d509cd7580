# SPDX-License-Identifier: Apache-2.0
r"""Orders: which rows a plan removes first.

Only the order is chosen here. That a heuristic ranks rows badly costs a plan its
sharpness and never its truth: whatever the order, its radii are the real ones.
"""

from collections.abc import Callable
from hashlib import blake2b

import numpy as np

from .._typing import Index, Matrix, Vector
from ..blocks import BLOCK_ROWS, block_sum, loss_hessian, predict
from ..linalg import Symmetric
from ..losses import Loss
from ..magnitude import decomposition, row_norms
from ..rows import Rows
from ..solvers import with_quadratic
from ..unlearn import Custody
from .scores import takes_numbers

# Share of the Hessian's mean curvature that keeps it definite where nothing else does.
SHIFT = 1e-9


def removal_orders(custody: Custody, rows: Rows, seed: int = 0) -> dict[str, Index]:
    """Return the orders in which a plan removes rows, by name.

    "typical" is a permutation by a hash of positions; "clustered" goes from its first
    row to that row's neighbours, those of its class first where labels are classes;
    "largest" goes by the effect |H^-1 g| of each row on the model; "aligned"
    and "opposed" by its part along the direction in which effects vary most, since
    effects in one direction add up and others cancel.

    Parameters
    ----------
    custody
        A fit on these rows.
    rows
        All rows, none removed.
    seed
        Chooses the permutation.
    """
    effects = _effects(custody, rows)

    def by_row(figure: Callable[[Matrix], Vector]) -> Vector:
        blocks = rows.blocks(BLOCK_ROWS)
        return np.concatenate([figure(effects(block)) for block in blocks])

    def term(block: Rows) -> tuple[Matrix]:
        vectors = effects(block)
        return (vectors.T @ vectors,)

    with decomposition():
        leading: Vector = np.linalg.eigh(block_sum(term, rows)[0])[1][:, -1]
    sizes = by_row(row_norms)
    along = by_row(lambda vectors: vectors @ leading)
    typical = _shuffled(len(rows), seed)
    return {
        "largest": np.argsort(-sizes, kind="stable"),
        "aligned": np.argsort(-along, kind="stable"),
        "opposed": np.argsort(along, kind="stable"),
        "clustered": _neighbours(custody.objective.loss, rows, int(typical[0])),
        "typical": typical,
    }


def _shuffled(n_rows: int, seed: int) -> Index:
    """Return a permutation by a hash of positions: nothing here draws."""
    keys = [blake2b(f"{seed}:{i}".encode(), digest_size=16) for i in range(n_rows)]
    digests = [key.digest() for key in keys]
    return np.array(sorted(range(n_rows), key=digests.__getitem__), dtype=np.intp)


def _effects(custody: Custody, rows: Rows) -> Callable[[Rows], Matrix]:
    """Return the map from rows to H^-1 w g, g a row's share of the gradient."""
    objective, draft = custody.objective, custody.draft
    loss, theta = objective.loss, draft.theta
    total = Symmetric.from_dense(loss_hessian(loss, rows, theta) / rows.total_weight)
    H = with_quadratic(objective, total)
    shift = np.full(H.size, SHIFT * float(H.diagonal.mean()))
    factor = H.plus_diagonal(shift).cholesky()
    # Under "mean" scaling a row takes its share of the penalty along.
    penalty = objective.quadratic_gradient(theta) + draft.subgradient
    shared = penalty if objective.scaling == "mean" else np.zeros_like(theta)

    def effects(block: Rows) -> Matrix:
        slope = loss.slope(block.y, predict(loss, block, theta))
        slope = slope.reshape(len(block), -1)
        lifted = np.einsum("ia,ic->iac", block.dense(), slope)
        gradients = lifted.reshape(len(block), -1) + shared
        vectors: Matrix = factor.solve((gradients * block.weight[:, None]).T).T
        return vectors

    return effects


def _neighbours(loss: Loss, rows: Rows, centre: int) -> Index:
    """Return all rows from the nearest to this one to the farthest, its class first."""
    point = rows.take(slice(centre, centre + 1)).dense()[0]
    distance = rows.norms() ** 2 - 2.0 * (rows.X @ point)
    if takes_numbers(loss):
        return np.argsort(distance, kind="stable")
    return np.lexsort((distance, rows.y != rows.y[centre]))
