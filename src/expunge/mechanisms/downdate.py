# SPDX-License-Identifier: Apache-2.0
r"""Subtracting removed rows from the sums of a state.

A few rows go by rank-one updates, O(d^2) each; a batch by one block sum, which
costs a fraction of that per row.
"""

from math import sqrt

import numpy as np

from .._typing import Matrix, Vector
from ..blocks import curvature_rows, kink_masses, loss_hessian, loss_slopes, norm_moment
from ..exceptions import CannotRemove, InvalidInput
from ..linalg import Symmetric
from ..magnitude import decomposition
from ..rows import Rows
from ..summary import Summary
from .state import State

# A leverage this close to one leaves the downdated inverse without digits.
LEVERAGE_MARGIN = 1e-6


def initial_state(summary: Summary) -> State:
    """Return the state with nobody removed and no matrix kept yet."""
    objective, theta = summary.objective, summary.theta
    return State(
        objective=objective,
        anchor=theta,
        gradient=summary.gradient,
        pull=objective.quadratic_gradient(theta),
        anchor_weight=summary.weight,
        weight=summary.weight,
        n_rows=summary.n_rows,
        scales=summary.scales,
        last=theta,
    )


def with_sums(state: State, summary: Summary, *, moment: bool) -> State:
    """Return the state with Hessian and moment in memory of its own, to be spent."""
    state = state.having(hessian=summary.hessian.copy())
    if not moment:
        return state
    if summary.moment is None:
        raise InvalidInput("a certified state needs a summary with its moment")
    return state.having(moment=summary.moment.copy(), kinks=summary.kinks)


def what_remains(state: State, removed: Rows) -> tuple[float, int]:
    """Return weight and number of the rows that are left without these.

    Raises, and changes nothing, if the rows cannot all have been there.
    """
    width = state.anchor.size // state.objective.loss.outputs
    if removed.X.shape[1] != width:
        raise InvalidInput(
            f"the rows to remove have {removed.X.shape[1]} columns (intercept "
            f"included); the model has {width}"
        )
    n_rows = state.n_rows - len(removed)
    weight = state.weight - removed.total_weight
    # Weights that sum to the rest up to rounding leave no weight to fit.
    if len(removed) and (n_rows <= 0 or weight <= 1e-12 * state.anchor_weight):
        raise CannotRemove(
            "these rows cannot be removed: not that much is left, and a model needs at "
            "least one row; delete the model instead"
        )
    return weight, n_rows


def few(state: State, removed: Rows) -> bool:
    """Whether rank-one updates are cheaper than sums over the batch."""
    width = state.anchor.size // state.objective.loss.outputs
    return len(removed) <= max(1, width // 8)


def drop_gradient(state: State, removed: Rows) -> Vector:
    """Return the gradient without the removed rows, O(d) a row."""
    slopes = loss_slopes(state.objective.loss, removed, state.anchor)
    return state.gradient - slopes / state.anchor_weight


def scaled_rows(state: State, removed: Rows) -> Matrix:
    """Return Z with Z'Z the removed rows' share of the loss's Hessian."""
    Z = curvature_rows(state.objective.loss, removed, state.anchor)
    return Z / sqrt(state.anchor_weight)


def drop_matrices(state: State, removed: Rows, *, spend: bool) -> State:
    """Return the state with all kept sums but the gradient without these rows.

    A few rows go by rank-one updates; with ``spend`` those overwrite the old
    matrices instead of copying them first.
    """
    state = state.having(
        n_updates=state.n_updates + 1, kinks=_drop_kinks(state, removed)
    )
    if few(state, removed):
        return _drop_few(state, removed, spend=spend)
    total = loss_hessian(state.objective.loss, removed, state.anchor)
    hessian = state.loss_hessian.minus(total / state.anchor_weight)
    if state.moment is None:
        return state.having(hessian=hessian)
    moment = state.moment.minus(norm_moment(removed) / state.anchor_weight)
    return state.having(hessian=hessian, moment=moment)


def _drop_few(state: State, removed: Rows, *, spend: bool) -> State:
    """Return the state with Hessian and moment updated row by row."""
    Z = scaled_rows(state, removed)
    hessian = state.loss_hessian.update(-1.0, Z, spend=spend)
    if state.moment is None:
        return state.having(hessian=hessian)
    scale = np.sqrt(removed.weight * removed.norms() / state.anchor_weight)
    X = removed.dense() * scale[:, None]
    return state.having(
        hessian=hessian, moment=state.moment.update(-1.0, X, spend=spend)
    )


def _drop_kinks(state: State, removed: Rows) -> Vector | None:
    """Return the mass near kinks without the removed rows; never below zero."""
    if state.kinks is None:
        return None
    gone = kink_masses(state.objective.loss, removed, state.anchor)
    return np.maximum(state.kinks - gone / state.anchor_weight, 0.0)


def woodbury_rows(inverse: Symmetric, Z: Matrix) -> Matrix | None:
    """Return V with (A - Z'Z)^-1 = A^-1 + V'V, by Woodbury's identity.

    None where a leverage is too near one, or beyond: the caller factors anew.
    """
    if len(Z) == 1:
        image = inverse @ Z[0]
        left = 1.0 - float(Z[0] @ image)
        return None if left <= LEVERAGE_MARGIN else image[None, :] / sqrt(left)
    images = inverse @ Z.T
    with decomposition():
        values, vectors = np.linalg.eigh(np.eye(len(Z)) - Z @ images)
    if values[0] <= LEVERAGE_MARGIN:
        return None
    return np.ascontiguousarray((vectors / np.sqrt(values)).T @ images.T)


def factored_inverse(matrix: Symmetric) -> Symmetric:
    """Return the inverse, by a Cholesky factor."""
    return matrix.cholesky().inverse()
