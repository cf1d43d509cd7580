# SPDX-License-Identifier: Apache-2.0
r"""The leave-one-out problems of a state: what they share and what is each row's own.

Leaving out row i is one more removal from a state. With a_i = w_i l''_i / W0 and
f_i the factor of the regulariser without row i, gradient and Hessian at the anchor are

    c_i = grad_U - (w_i/W0) l'_i x_i + f_i (quadratic's),
    H_i = L_U + f_i Q - a_i x_i x_i',

grad_U and L_U the loss's over the remaining rows, Q the quadratic's Hessian. All rows
share

    B = L_U + f Q,   f the smallest of the f_i,   so that H_i >= B - a_i x_i x_i' .

Newton steps of all leave-one-out problems at once, by products with blocks of rows.

B is factored once and a row's own term goes by Sherman and Morrison's formula. What
f_i - f leaves over (weights that differ, under "mean" scaling) is solved away by
repeating the step on the residual, which contracts it by (f_i - f)/f. A kink keeps
the support of the state's own answer; rows whose support changes go on by coordinate
descent. Nothing is assumed of the result: the residual is computed, and pays.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import UNDERFLOW, Index, Matrix, Private, Vector, row_norms
from ..core.linalg import Symmetric
from ..core.prox import FLAT, Minimum
from ..core.rows import Rows
from ..core.sums import predict
from ..exceptions import NotPositiveDefinite, Unsupported
from ..promise.radius import gradient_error, hessian_error, product_error
from ..removal import Draft, Newton, State
from ..removal.retrain import measure_weight, require_rows
from ..removal.state import count_remaining, invert, smooth_minimum


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Common(Private):
    """What the leave-one-out problems of a state have in common.

    Attributes
    ----------
    state
        The state that a row is left out of, with the exact weight of its rows.
    lighter
        The same without its heaviest row: its smooth Hessian is B, its f the least.
    B, inverse
        The Hessian before the row's own term; its inverse, None if there is none.
    stepping
        The inverse of B on the support of the answer and zero elsewhere.
    answer
        The state's own answer: all rows start there.
    """

    state: State
    lighter: State
    B: Symmetric
    inverse: Symmetric | None
    stepping: Symmetric
    answer: Minimum


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Removals(Private):
    """Some of the rows, each to be left out alone.

    Attributes
    ----------
    index
        Where they are among all rows.
    X, y
        Design and labels.
    share, scale
        w_i / W0 and f_i.
    curvature
        a_i = w_i l''_i / W0.
    gradient
        c_i, a row each.
    """

    index: Index
    X: Matrix
    y: Vector
    share: Vector
    scale: Vector
    curvature: Vector
    gradient: Matrix

    def take(self, places: Index) -> "Removals":
        """Return the removals at these places of this one."""
        parts = (getattr(self, name)[places] for name in Removals.__slots__)
        return Removals(*parts)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Answers(Private):
    """Approximate models without each row, and what their equations leave over.

    Attributes
    ----------
    step
        s_i = theta_i - anchor, a row each.
    subgradient
        Of f_i alpha kink at theta_i.
    residual
        q_i = c_i + H_i s_i + subgradient, computed.
    slack
        Bounds the rounding in q_i.
    """

    step: Matrix
    subgradient: Matrix
    residual: Matrix
    slack: Vector

    def take(self, places: Index) -> "Answers":
        """Return the answers at these places."""
        parts = (getattr(self, name)[places] for name in Answers.__slots__)
        return Answers(*parts)

    def replace(self, places: Index, others: "Answers") -> "Answers":
        """Return the answers with those at these places taken from others."""
        parts = [getattr(self, name).copy() for name in Answers.__slots__]
        for part, name in zip(parts, Answers.__slots__, strict=True):
            part[places] = getattr(others, name)
        return Answers(*parts)


def common(state: State, rows: Rows) -> Common:
    """Return what the removal of each of these rows shares, or say what is missing."""
    _require_supported(state)
    state = measure_weight(state, require_rows(state, rows))
    heaviest = rows.take(np.array([int(np.argmax(rows.weight))]))
    weight, n_rows = count_remaining(state, heaviest)
    lighter = state.replace(weight=weight, n_rows=n_rows, n_updates=state.n_updates + 1)
    B = lighter.smooth_hessian()
    if state.objective.smooth:
        inverse = invert(B)
        return Common(state, lighter, B, inverse, inverse, smooth_minimum(state.anchor))
    answer = Newton().model(state)(state.anchor, state.smooth_gradient)
    stepping = _inverse_on(B, support(state, answer.x))
    return Common(state, lighter, B, _inverse_if_any(B), stepping, answer)


def removals(state: State, rows: Rows, index: Index) -> Removals:
    """Return the rows at these positions, with the gradients they leave behind."""
    block = rows.take(index)
    objective, X = state.objective, block.dense()
    loss, eta = objective.loss, predict(objective.loss, block, state.anchor)
    share = block.weight / state.anchor_weight
    left = (state.weight - block.weight) / state.anchor_weight
    scale = left if objective.scaling == "mean" else np.ones(len(block))
    slope = share * loss.slope(block.y, eta)
    return Removals(
        index=index,
        X=X,
        y=block.y,
        share=share,
        scale=scale,
        curvature=share * loss.curvature(block.y, eta),
        gradient=state.gradient + scale[:, None] * state.pull - slope[:, None] * X,
    )


def images(state: State, gone: Removals, S: Matrix) -> Matrix:
    """Return H_i s_i, a row each."""
    diagonal, _ = state.objective.quadratic_form(state.anchor.size)
    moves = gone.curvature * dots(gone.X, S)
    product = (state.loss_hessian @ S.T).T
    return product + gone.scale[:, None] * (diagonal * S) - moves[:, None] * gone.X


def residual_errors(shared: Common, S: Matrix, subgradient: Matrix) -> Vector:
    """Return bounds on the rounding of q_i.

    That of a gradient grows with parameters and subgradient: the largest of each
    coordinate in the block bounds every row's. The Hessian's errors count twice, for
    a row's curvature is computed again to be subtracted.
    """
    state, lighter = shared.state, shared.lighter
    largest = Draft(
        np.abs(state.anchor + S).max(axis=0), np.abs(subgradient).max(axis=0)
    )
    matrix = 2.0 * (hessian_error(lighter) + product_error(state))
    # Where nothing moves no error of the Hessian counts, not even an infinite one.
    sizes = lengths(S)
    moving = np.where(sizes > 0.0, matrix * np.maximum(sizes, UNDERFLOW), 0.0)
    return gradient_error(lighter, largest, step=0.0) + moving


def support(state: State, theta: Vector) -> Index:
    """Return the coefficients that are not zero, and all that nothing penalises."""
    there: NDArray[np.bool] = theta != 0.0
    if state.objective.n_free:
        there[-state.objective.n_free :] = True
    return np.flatnonzero(there)


def dots(A: Matrix, B: Matrix) -> Vector:
    """Return the inner product of each pair of rows."""
    products: Vector = np.einsum("ij,ij->i", A, B)
    return products


def lengths(A: Matrix) -> Vector:
    """Return the norm of each row."""
    return row_norms(A)


def directions(A: Matrix) -> tuple[Vector, Matrix]:
    """Return the norm of each row, and the rows divided by it; zero stays zero."""
    sizes = lengths(A)
    return sizes, A / np.where(sizes > 0.0, sizes, 1.0)[:, None]


def _inverse_on(B: Symmetric, support: Index) -> Symmetric:
    """Return the inverse of B on a support, zero elsewhere."""
    inverse = np.zeros((B.size, B.size))
    if support.size:
        part = invert(B.submatrix(support))
        inverse[np.ix_(support, support)] = part.dense()
    return Symmetric.from_dense(inverse)


def _inverse_if_any(B: Symmetric) -> Symmetric | None:
    try:
        return invert(B)
    except NotPositiveDefinite:
        return None


def _require_supported(state: State) -> None:
    """Refuse states whose rows cannot be left out all at once."""
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
            "this state keeps no moment of norms, without which no bar is known; use "
            "a mechanism with certified=True"
        )


# Repeated steps stop by themselves, after two or three where weights are equal.
REPEATS = 12
# Of coordinate descent, where the support changes.
SWEEPS = 60


def answers(shared: Common, gone: Removals) -> Answers:
    """Return the models without each row of a block."""
    start, f = shared.answer, shared.state.scale
    step = np.tile(start.x - shared.state.anchor, (len(gone.X), 1))
    subgradient = gone.scale[:, None] * (start.subgradient / f)
    step = _repeated(shared, gone, step, subgradient)
    if not shared.state.objective.smooth:
        step, subgradient = _settled(shared, gone, step)
    residual = images(shared.state, gone, step) + gone.gradient + subgradient
    slack = residual_errors(shared, step, subgradient)
    found = Answers(step, subgradient, residual, slack)
    moved = np.flatnonzero(lengths(residual) > slack)
    if shared.state.objective.smooth or not moved.size:
        return found
    return _mended(shared, gone, found, moved)


def _repeated(shared: Common, gone: Removals, S: Matrix, subgradient: Matrix) -> Matrix:
    """Return the steps with s <- s - (B - a x x')^-1 q(s), while that helps."""
    right = gone.gradient + subgradient
    Z = (shared.stepping @ gone.X.T).T
    left = 1.0 - gone.curvature * dots(gone.X, Z)
    # A row of leverage one has no such step; its residual will say so.
    ratio = gone.curvature / np.where(left > 0.0, left, np.inf)
    residual = right + images(shared.state, gone, S)
    for _ in range(REPEATS):
        solved = (shared.stepping @ residual.T).T
        tried = S - solved - (ratio * dots(Z, residual))[:, None] * Z
        after = right + images(shared.state, gone, tried)
        better = _on_support_lengths(shared, after) < 0.5 * _on_support_lengths(
            shared, residual
        )
        if not better.any():
            break
        S = np.where(better[:, None], tried, S)
        residual = np.where(better[:, None], after, residual)
    return S


def _on_support_lengths(shared: Common, residual: Matrix) -> Vector:
    """Return the norms of what a step can still change."""
    if shared.state.objective.smooth:
        return lengths(residual)
    return lengths(residual[:, support(shared.state, shared.answer.x)])


def _settled(shared: Common, gone: Removals, S: Matrix) -> tuple[Matrix, Matrix]:
    """Take one proximal gradient step a row, and keep its subgradient.

    It leaves a row alone whose support and signs have held.
    """
    state, anchor = shared.state, shared.state.anchor
    slope = gone.gradient + images(state, gone, S)
    length = _coordinate_lengths(shared, gone)
    target = anchor + S - length * slope
    theta = _shrunk(state, target, length * gone.scale[:, None])
    return theta - anchor, (target - theta) / length


def _mended(shared: Common, gone: Removals, found: Answers, moved: Index) -> Answers:
    """Return the answers with those at ``moved`` brought on by coordinate descent."""
    some, before = gone.take(moved), found.take(moved)
    step, subgradient = _descended(shared, some, before)
    residual = images(shared.state, some, step) + some.gradient + subgradient
    slack = residual_errors(shared, step, subgradient)
    return found.replace(moved, Answers(step, subgradient, residual, slack))


def _descended(
    shared: Common, gone: Removals, before: Answers
) -> tuple[Matrix, Matrix]:
    """Return steps and subgradients after coordinate descent on every row at once."""
    S = before.step
    state, loss_hessian = shared.state, shared.state.loss_hessian.dense()
    diagonal, _ = state.objective.quadratic_form(state.anchor.size)
    length = _coordinate_lengths(shared, gone)
    theta, subgradient = state.anchor + S, np.zeros_like(S)
    slope = gone.gradient + images(state, gone, S)
    penalised = state.anchor.size - state.objective.n_free
    for _ in range(SWEEPS):
        largest = np.zeros(len(S))
        for j in range(state.anchor.size):
            step = length[:, j]
            target = theta[:, j] - step * slope[:, j]
            new = target
            if j < penalised:
                new = _shrunk_column(state, target, step * gone.scale)
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
        if (largest <= 0.01 * before.slack).all():
            break
    return theta - state.anchor, subgradient


def _coordinate_lengths(shared: Common, gone: Removals) -> Matrix:
    """Return 1 / (H_i)_jj, bounded where a column has no curvature."""
    diagonal, _ = shared.state.objective.quadratic_form(shared.state.anchor.size)
    curvature = (
        shared.state.loss_hessian.diagonal
        + gone.scale[:, None] * diagonal
        - gone.curvature[:, None] * gone.X**2
    )
    least = 1e-12 * max(float(shared.B.diagonal.max()), FLAT)
    return 1.0 / np.maximum(curvature, least)


def _shrunk(state: State, target: Matrix, step: Matrix) -> Matrix:
    """Return the prox of step alpha kink, for a kink of each coefficient alone."""
    end = state.anchor.size - state.objective.n_free
    shrunk = target.copy()
    shrunk[:, :end] = _shrunk_column(state, target[:, :end], step[:, :end])
    return shrunk


def _shrunk_column(state: State, target: Vector, step: Vector) -> Vector:
    objective = state.objective
    return objective.penalty.shrink(target, objective.alpha * step)
