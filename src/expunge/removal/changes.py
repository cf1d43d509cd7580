# SPDX-License-Identifier: Apache-2.0
r"""Changes: what rows that leave, and rows that come, do to the sums of a state.

Both are one algebra. A state is a sum over rows, in units of the weight W0 at the
anchor; a row that leaves is subtracted and a row that comes is added,

    c <- c + e w grad loss / W0,    H <- H + e w l'' x x' / W0,    e = -1 or +1,

and likewise the moment K, the mass near kinks, and the weight, so that f = W/W0 is
above one where more came than left (docs/paper.md, "Additions"). ``SignedRows`` are
rows with their sign. Those that come are added first: the Hessian then stays positive
definite on the way, and the last row of a model can be replaced.

Rows that come also enlarge what bounds the rest: the longest row, and the sizes that
rounding is measured by. Sizes never shrink, because what was subtracted has left its
rounding behind.

A few rows change a matrix by rank-one updates, O(d^2) each; a batch by one block sum.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal

import numpy as np

from ..core.arrays import Matrix, Vector, catch_lapack_errors
from ..core.blocks import SymmetricMatrix, weighted_sum
from ..core.linalg import Symmetric
from ..core.rows import Rows
from ..core.sums import (
    curvature_rows,
    kink_masses,
    loss_hessian,
    loss_slopes,
    most_entries,
    norm_moment,
    row_sizes,
)
from ..core.values import Private
from ..exceptions import CannotRemove, InvalidInput
from .state import State
from .summary import Scales

# A leverage this close to one leaves the downdated inverse without digits.
LEVERAGE_MARGIN = 1e-6


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SignedRows(Private):
    """Rows that come (``sign`` is 1) or leave (-1)."""

    rows: Rows
    sign: Literal[1, -1]


def apply_rows(
    state: State,
    removed: Rows | None,
    *,
    added: Rows | None,
    apply: Callable[[State, SignedRows], State],
) -> State:
    """Return the state after one change, rows that come first.

    Parameters
    ----------
    state
        The state before it.
    removed, added
        Rows that leave and rows that come; None or empty for none.
    apply
        What a mechanism does with either.
    """
    if added is not None and len(added):
        state = apply(state, SignedRows(added, 1))
    if removed is not None and len(removed):
        state = apply(state, SignedRows(removed, -1))
    return state


def count_after(state: State, change: SignedRows) -> tuple[float, int]:
    """Return weight and number of the rows after the change.

    Raises, and changes nothing, if rows that leave cannot all have been there.
    """
    rows, sign, n_changed = change.rows, change.sign, len(change.rows)
    width = state.anchor.size // state.objective.loss.outputs
    if rows.n_columns != width:
        raise InvalidInput(
            f"the rows to {'add' if sign > 0 else 'remove'} have {rows.n_columns} "
            f"columns (intercept included); the model has {width}"
        )
    n_rows = state.n_rows + sign * n_changed
    weight = state.weight + sign * rows.total_weight
    # Weights that sum to the rest up to rounding leave no weight to fit.
    least = 1e-12 * state.anchor_weight * state.scales.weight
    if sign < 0 and n_changed and (n_rows <= 0 or weight <= least):
        raise CannotRemove(
            "these rows cannot be removed: no row with weight would be left, and a "
            "model needs at least one; delete the model instead"
        )
    return weight, n_rows


def is_small_batch(state: State, rows: Rows) -> bool:
    """Whether rank-one updates are cheaper than sums over the batch."""
    width = state.anchor.size // state.objective.loss.outputs
    return len(rows) <= max(1, width // 8)


def change_gradient(state: State, change: SignedRows) -> State:
    """Return the state with count, gradient and sizes after the change, O(d) a row.

    Raises, and changes nothing, if rows that leave cannot all have been there.
    """
    weight, n_rows = count_after(state, change)
    slopes = loss_slopes(state.objective.loss, change.rows, theta=state.anchor)
    slopes /= change.sign * state.anchor_weight
    slopes += state.gradient
    return state.replace(
        weight=weight,
        n_rows=n_rows,
        gradient=slopes,
        scales=grow_scales(state, change),
    )


def grow_scales(state: State, change: SignedRows) -> Scales:
    """Return the sizes of what was summed, rows that come taken in.

    The trace of their Hessian is bounded by that of the largest curvature.
    """
    scales = state.scales
    if change.sign < 0:
        return scales
    loss, rows, unit = state.objective.loss, change.rows, 1.0 / state.anchor_weight
    slope, square, cube, longest = row_sizes(loss, rows, theta=state.anchor)
    curved = loss.outputs * loss.curvature_bound * square
    return replace(
        scales,
        row_norm=max(scales.row_norm, longest),
        slope=scales.slope + unit * slope,
        square_norm=scales.square_norm + unit * square,
        hessian=scales.hessian + unit * curved,
        moment=scales.moment + unit * cube,
        n_rows=scales.n_rows + len(rows),
        weight=scales.weight + unit * rows.total_weight,
        n_entries=max(scales.n_entries, most_entries(rows)),
        n_additions=scales.n_additions + rows.n_additions,
    )


def scaled_rows(state: State, rows: Rows) -> Matrix:
    """Return Z with Z'Z these rows' share of the loss's Hessian."""
    Z = curvature_rows(state.objective.loss, rows, theta=state.anchor)
    return Z / sqrt(state.anchor_weight)


def change_matrices(
    state: State, change: SignedRows, *, spend: bool, Z: Matrix | None = None
) -> State:
    """Return the state with all kept sums but the gradient after the change.

    A few rows change them by rank-one updates, Z their ``scaled_rows`` if they are at
    hand; with ``spend`` those may overwrite the old matrices.
    """
    rows, sign = change.rows, change.sign
    state = state.replace(
        n_updates=state.n_updates + 1, kinks=_change_kinks(state, change)
    )
    if is_small_batch(state, rows):
        Z = scaled_rows(state, rows) if Z is None else Z
        return _change_few(state, change, Z=Z, spend=spend)
    total = loss_hessian(state.objective.loss, rows, theta=state.anchor)
    share = total / state.anchor_weight
    hessian = weighted_sum([(1.0, state.loss_hessian), (sign, share)])
    if state.moment is None:
        return state.replace(hessian=hessian)
    third = Symmetric.from_dense(norm_moment(rows) / state.anchor_weight)
    moment = weighted_sum([(1.0, state.moment), (sign, third)])
    return state.replace(hessian=hessian, moment=moment)


def _change_few(state: State, change: SignedRows, *, Z: Matrix, spend: bool) -> State:
    """Return the state with Hessian and moment updated row by row."""
    rows, sign = change.rows, float(change.sign)
    hessian = state.loss_hessian.update(sign, Z, spend=spend)
    if state.moment is None:
        return state.replace(hessian=hessian)
    scale = np.sqrt(rows.weight * rows.norms() / state.anchor_weight)
    X = rows.dense() * scale[:, None]
    return state.replace(
        hessian=hessian, moment=state.moment.update(sign, X, spend=spend)
    )


def _change_kinks(state: State, change: SignedRows) -> Vector | None:
    """Return the mass near kinks after the change; never below zero."""
    if state.kinks is None:
        return None
    mass = kink_masses(state.objective.loss, change.rows, theta=state.anchor)
    return np.maximum(state.kinks + change.sign * mass / state.anchor_weight, 0.0)


def gram_product(Z: Matrix, v: Vector) -> Vector:
    """Return Z'Z v for rows as ``update`` takes them: of a matrix, or of blocks."""
    if Z.ndim == 2:
        image: Vector = Z.T @ (Z @ v)
        return image
    parts = v.reshape(Z.shape[2], -1)
    if len(Z) == 1:
        return np.asarray(Z[0].T @ (Z[0] @ parts)).ravel()
    along = Z @ parts.T[:, :, None]
    images = Z.transpose(0, 2, 1) @ along
    return np.asarray(images[:, :, 0].T).ravel()


def woodbury_rows(
    inverse: SymmetricMatrix, Z: Matrix, *, sign: Literal[1, -1]
) -> Matrix | None:
    """Return V with (A + sign Z'Z)^-1 = A^-1 - sign V'V, by Woodbury's identity.

    None where rows leave and a leverage is too near one, or beyond: the caller factors
    again.
    """
    if Z.ndim == 2:
        return _woodbury_block(inverse.blocks[0], Z, sign=sign)
    found = np.empty_like(Z)
    for place, block in enumerate(inverse.blocks):
        rows = _woodbury_block(block, Z[place], sign=sign)
        if rows is None:
            return None
        found[place] = rows
    return found


def _woodbury_block(
    inverse: Symmetric, Z: Matrix, *, sign: Literal[1, -1]
) -> Matrix | None:
    if len(Z) == 1:
        image = inverse @ Z[0]
        left = 1.0 + sign * float(Z[0] @ image)
        return None if left <= LEVERAGE_MARGIN else image[None, :] / sqrt(left)
    images = inverse @ Z.T
    with catch_lapack_errors():
        values, vectors = np.linalg.eigh(np.eye(len(Z)) + sign * (Z @ images))
    if values[0] <= LEVERAGE_MARGIN:
        return None
    return np.ascontiguousarray((vectors / np.sqrt(values)).T @ images.T)
