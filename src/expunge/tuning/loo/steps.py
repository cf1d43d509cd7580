# SPDX-License-Identifier: Apache-2.0
r"""Newton steps of all leave-one-out problems at once, by products with blocks of rows.

B is factored once and a row's own term goes by Sherman and Morrison's formula. What
f_i - f leaves over (weights that differ, under "mean" scaling) is solved away by
repeating the step on the residual, which contracts it by (f_i - f)/f. A kink keeps
the support of the state's own answer; rows whose support changes go on by coordinate
descent. Nothing is assumed of the result: the residual is computed, and pays.
"""

import numpy as np

from ..._typing import Index, Matrix, Vector
from ...linalg.prox import FLAT
from ...mechanisms import State
from .family import (
    Answers,
    Common,
    Removals,
    dots,
    images,
    lengths,
    residual_errors,
    support,
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
    return found.having(moved, Answers(step, subgradient, residual, slack))


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
