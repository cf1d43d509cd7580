# SPDX-License-Identifier: Apache-2.0
r"""Leave-one-out problems: one for each row, all solved at once.

Leaving out row i is one more removal from a state. With a_i = w_i l''_i / W0 and f_i
the factor of the regulariser without row i, gradient and Hessian at the anchor are

    c_i = grad_U - (w_i/W0) l'_i x_i + f_i (quadratic's),
    H_i = L_U + f_i Q - a_i x_i x_i',

where grad_U and L_U are the loss's over the remaining rows and Q is the quadratic's
Hessian. All problems share

    B = L_U + f Q,   f the smallest of the f_i,   so that H_i >= B - a_i x_i x_i' .

B is factored once, and Sherman and Morrison's formula adds a row's own term, so the
Newton steps of all problems are products with blocks of rows. What f_i - f leaves over
(under "mean" scaling, if weights differ) is removed by repeating the step on the
residual, which shrinks it by (f_i - f)/f. With a kink, the steps keep the support of
the state's own answer; rows whose support changes go on by coordinate descent. Nothing
is assumed of the result: the residual is computed, and enters the error bound.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Matrix, Vector, row_norms
from ..core.blocks import SymmetricMatrix
from ..core.prox import FLAT, Minimum
from ..core.rows import Rows
from ..core.sums import predict
from ..core.values import UNDERFLOW, Private
from ..exceptions import NotPositiveDefinite, Unsupported
from ..promise.bounds import gradient_error, hessian_error, product_error
from ..removal import Draft, Newton, State
from ..removal.changes import SignedRows, count_after
from ..removal.mechanisms import measure_weight, require_rows, support_inverse
from ..removal.state import invert, smooth_minimum

# Repeated steps end by themselves, after two or three where weights are equal.
REPEATS = 12
# Of coordinate descent, where the support changes.
SWEEPS = 60


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SharedTerms(Private):
    """What the leave-one-out problems of a state have in common.

    Attributes
    ----------
    state
        The state that a row is left out of, with the exact weight of its rows.
    lighter
        The same without its heaviest row: its smooth Hessian is B, its f the smallest.
    B, inverse
        The Hessian without the row's own term; its inverse, or None if it has none.
    step_inverse
        The inverse of B on the support of the answer, zero elsewhere.
    answer
        The state's own answer, from which all problems start.
    """

    state: State
    lighter: State
    B: SymmetricMatrix
    inverse: SymmetricMatrix | None
    step_inverse: SymmetricMatrix
    answer: Minimum


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LeftOutRows(Private):
    """Some of the rows, each of which is left out alone.

    Attributes
    ----------
    index
        Their positions among all rows.
    X, y
        Design and labels.
    share, scale
        w_i / W0 and f_i.
    curvature
        a_i = w_i l''_i / W0.
    gradient
        c_i, one row each.
    """

    index: Index
    X: Matrix
    y: Vector
    share: Vector
    scale: Vector
    curvature: Vector
    gradient: Matrix

    def take(self, places: Index) -> "LeftOutRows":
        """Return the rows at these places of this one."""
        parts = (getattr(self, name)[places] for name in LeftOutRows.__slots__)
        return LeftOutRows(*parts)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LooModels(Private):
    """Approximate models without each row, and the residuals of their equations.

    Attributes
    ----------
    step
        s_i = theta_i - anchor, one row each.
    subgradient
        Of f_i alpha kink at theta_i.
    residual
        q_i = c_i + H_i s_i + subgradient, as computed.
    rounding
        Bounds the rounding error in q_i.
    """

    step: Matrix
    subgradient: Matrix
    residual: Matrix
    rounding: Vector

    def take(self, places: Index) -> "LooModels":
        """Return the models at these places."""
        parts = (getattr(self, name)[places] for name in LooModels.__slots__)
        return LooModels(*parts)

    def replace_at(self, places: Index, others: "LooModels") -> "LooModels":
        """Return the models, with those at these places taken from ``others``."""
        parts = [getattr(self, name).copy() for name in LooModels.__slots__]
        for part, name in zip(parts, LooModels.__slots__, strict=True):
            part[places] = getattr(others, name)
        return LooModels(*parts)


def share_terms(state: State, rows: Rows) -> SharedTerms:
    """Return what the problems share; raise Unsupported for states without them."""
    _require_supported(state)
    state = measure_weight(state, require_rows(state, rows))
    heaviest = rows.take(np.array([int(np.argmax(rows.weight))]))
    weight, n_rows = count_after(state, SignedRows(heaviest, -1))
    lighter = state.replace(weight=weight, n_rows=n_rows, n_updates=state.n_updates + 1)
    B = lighter.smooth_hessian()
    if state.objective.smooth:
        inverse = invert(B)
        start = smooth_minimum(state.anchor)
        return SharedTerms(state, lighter, B, inverse, inverse, start)
    answer = Newton().model(state)(state.anchor, state.smooth_gradient)
    step_inverse = support_inverse(B, support_of(state, answer.x))
    return SharedTerms(state, lighter, B, _inverse_if_any(B), step_inverse, answer)


def left_out_rows(state: State, rows: Rows, *, index: Index) -> LeftOutRows:
    """Return the rows at these positions, with the gradients without them."""
    block = rows.take(index)
    objective, X = state.objective, block.dense()
    loss, eta = objective.loss, predict(objective.loss, block, theta=state.anchor)
    share = block.weight / state.anchor_weight
    left = (state.weight - block.weight) / state.anchor_weight
    scale = left if objective.scaling == "mean" else np.ones(len(block))
    slope = share * loss.slope(block.y, eta)
    return LeftOutRows(
        index=index,
        X=X,
        y=block.y,
        share=share,
        scale=scale,
        curvature=share * loss.curvature(block.y, eta),
        gradient=state.gradient + scale[:, None] * state.pull - slope[:, None] * X,
    )


def solve_models(shared: SharedTerms, gone: LeftOutRows) -> LooModels:
    """Return the models without each row of a block."""
    start, f = shared.answer, shared.state.scale
    step = np.tile(start.x - shared.state.anchor, (len(gone.X), 1))
    subgradient = gone.scale[:, None] * (start.subgradient / f)
    step = _repeat_steps(shared, gone, S=step, subgradient=subgradient)
    if not shared.state.objective.smooth:
        step, subgradient = _proximal_step(shared, gone, S=step)
    models = _with_residual(shared, gone, step=step, subgradient=subgradient)
    moved = np.flatnonzero(row_norms(models.residual) > models.rounding)
    if shared.state.objective.smooth or not moved.size:
        return models
    some = gone.take(moved)
    step, subgradient = _coordinate_descent(shared, some, before=models.take(moved))
    mended = _with_residual(shared, some, step=step, subgradient=subgradient)
    return models.replace_at(moved, mended)


def hessian_products(state: State, gone: LeftOutRows, *, S: Matrix) -> Matrix:
    """Return H_i s_i, one row each."""
    diagonal, _ = state.objective.quadratic_form(state.anchor.size)
    moves = gone.curvature * row_products(gone.X, S)
    product = (state.loss_hessian @ S.T).T
    return product + gone.scale[:, None] * (diagonal * S) - moves[:, None] * gone.X


def residual_rounding(
    shared: SharedTerms, step: Matrix, *, subgradient: Matrix
) -> Vector:
    """Return bounds on the rounding error of q_i.

    A gradient's rounding grows with parameters and subgradient: the largest of each
    coordinate in the block bounds every row's. The Hessian's errors count twice,
    because a row's curvature is computed again to be subtracted.
    """
    state, lighter = shared.state, shared.lighter
    largest = Draft(
        np.abs(state.anchor + step).max(axis=0), np.abs(subgradient).max(axis=0)
    )
    matrix = 2.0 * (hessian_error(lighter) + product_error(state))
    # Where nothing moves, the Hessian's error does not count, not even an infinite one.
    sizes = row_norms(step)
    moving = np.where(sizes > 0.0, matrix * np.maximum(sizes, UNDERFLOW), 0.0)
    return gradient_error(lighter, largest, step=0.0) + moving


def support_of(state: State, theta: Vector) -> Index:
    """Return the non-zero coefficients, and all that are not penalised."""
    there: NDArray[np.bool] = theta != 0.0
    if state.objective.n_free:
        there[-state.objective.n_free :] = True
    return np.flatnonzero(there)


def row_products(A: Matrix, B: Matrix) -> Vector:
    """Return the inner product of each pair of rows."""
    products: Vector = np.einsum("ij,ij->i", A, B)
    return products


def unit_rows(A: Matrix) -> tuple[Vector, Matrix]:
    """Return the norm of each row, and the rows divided by it; zero stays zero."""
    sizes = row_norms(A)
    return sizes, A / np.where(sizes > 0.0, sizes, 1.0)[:, None]


def _inverse_if_any(B: SymmetricMatrix) -> SymmetricMatrix | None:
    try:
        return invert(B)
    except NotPositiveDefinite:
        return None


def _require_supported(state: State) -> None:
    """Raise Unsupported for states whose rows cannot be left out all at once."""
    objective = state.objective
    if objective.loss.outputs > 1:
        raise Unsupported(
            f"leave-one-out takes models of one output; this one has "
            f"{objective.loss.outputs}: use K-fold cross-validation instead"
        )
    if not objective.penalty.separable:
        raise Unsupported(
            f"leave-one-out cannot follow {type(objective.penalty).__name__}, whose "
            "kink ties coefficients together: use L2, L1 or ElasticNet, or K-fold "
            "cross-validation"
        )
    if state.moment is None:
        raise Unsupported(
            "this state keeps no moment of norms, without which no error bound is "
            "known; use a mechanism with certified=True"
        )


def _with_residual(
    shared: SharedTerms, gone: LeftOutRows, *, step: Matrix, subgradient: Matrix
) -> LooModels:
    """Return the models with their residuals."""
    product = hessian_products(shared.state, gone, S=step)
    residual = product + gone.gradient + subgradient
    rounding = residual_rounding(shared, step, subgradient=subgradient)
    return LooModels(step, subgradient, residual, rounding)


def _repeat_steps(
    shared: SharedTerms, gone: LeftOutRows, *, S: Matrix, subgradient: Matrix
) -> Matrix:
    """Return the steps after s <- s - (B - a x x')^-1 q(s), as long as that helps."""
    right = gone.gradient + subgradient
    Z = (shared.step_inverse @ gone.X.T).T
    left = 1.0 - gone.curvature * row_products(gone.X, Z)
    # A row of leverage one has no such step; its residual will show that.
    ratio = gone.curvature / np.where(left > 0.0, left, np.inf)
    residual = right + hessian_products(shared.state, gone, S=S)
    for _ in range(REPEATS):
        solved = (shared.step_inverse @ residual.T).T
        tried = S - solved - (ratio * row_products(Z, residual))[:, None] * Z
        after = right + hessian_products(shared.state, gone, S=tried)
        better = _norms_on_support(shared, after) < 0.5 * _norms_on_support(
            shared, residual
        )
        if not better.any():
            break
        S = np.where(better[:, None], tried, S)
        residual = np.where(better[:, None], after, residual)
    return S


def _norms_on_support(shared: SharedTerms, residual: Matrix) -> Vector:
    """Return the norms of what a step can still change."""
    if shared.state.objective.smooth:
        return row_norms(residual)
    return row_norms(residual[:, support_of(shared.state, shared.answer.x)])


def _proximal_step(
    shared: SharedTerms, gone: LeftOutRows, *, S: Matrix
) -> tuple[Matrix, Matrix]:
    """Return steps and subgradients after one proximal gradient step a row.

    It does not change a row whose support and signs have held.
    """
    state, anchor = shared.state, shared.state.anchor
    slope = gone.gradient + hessian_products(state, gone, S=S)
    length = _coordinate_steps(shared, gone)
    target = anchor + S - length * slope
    theta = _shrink(state, target, step=length * gone.scale[:, None])
    return theta - anchor, (target - theta) / length


def _coordinate_descent(
    shared: SharedTerms, gone: LeftOutRows, *, before: LooModels
) -> tuple[Matrix, Matrix]:
    """Return steps and subgradients after coordinate descent on every row at once."""
    S = before.step
    state, loss_hessian = shared.state, shared.state.loss_hessian.dense()
    diagonal, _ = state.objective.quadratic_form(state.anchor.size)
    length = _coordinate_steps(shared, gone)
    theta, subgradient = state.anchor + S, np.zeros_like(S)
    slope = gone.gradient + hessian_products(state, gone, S=S)
    penalised = state.anchor.size - state.objective.n_free
    for _ in range(SWEEPS):
        largest = np.zeros(len(S))
        for j in range(state.anchor.size):
            step = length[:, j]
            target = theta[:, j] - step * slope[:, j]
            new = target
            if j < penalised:
                new = _shrink_column(state, target, step=step * gone.scale)
            subgradient[:, j] = (target - new) / step
            change = new - theta[:, j]
            there = np.flatnonzero(change)  # most coefficients stay zero in most rows
            if not there.size:
                continue
            theta[:, j], change = new, change[there]
            rank_one = gone.curvature[there] * gone.X[there, j] * change
            slope[there] += change[:, None] * loss_hessian[j]
            slope[there] -= rank_one[:, None] * gone.X[there]
            slope[there, j] += gone.scale[there] * diagonal[j] * change
            largest[there] = np.maximum(largest[there], np.abs(change / step[there]))
        if (largest <= 0.01 * before.rounding).all():
            break
    return theta - state.anchor, subgradient


def _coordinate_steps(shared: SharedTerms, gone: LeftOutRows) -> Matrix:
    """Return 1 / (H_i)_jj, bounded where a column has no curvature."""
    diagonal, _ = shared.state.objective.quadratic_form(shared.state.anchor.size)
    curvature = (
        shared.state.loss_hessian.diagonal
        + gone.scale[:, None] * diagonal
        - gone.curvature[:, None] * gone.X**2
    )
    least = 1e-12 * max(float(shared.B.diagonal.max()), FLAT)
    return 1.0 / np.maximum(curvature, least)


def _shrink(state: State, target: Matrix, *, step: Matrix) -> Matrix:
    """Return the prox of step alpha kink, where the kink treats coefficients apart."""
    end = state.anchor.size - state.objective.n_free
    shrunk = target.copy()
    shrunk[:, :end] = _shrink_column(state, target[:, :end], step=step[:, :end])
    return shrunk


def _shrink_column(state: State, target: Vector, *, step: Vector) -> Vector:
    objective = state.objective
    return objective.penalty.shrink(target, objective.alpha * step)
