# SPDX-License-Identifier: Apache-2.0
r"""A closer look at the few rows whose leave-one-out model is known worst.

Their steps are repeated with the gradient *measured* on the remaining rows, all of
them at once: two products of the design with as many models as there are rows to look
at. A chord step's quadratic model is that of ``steps`` with the measured gradient
in place of the anchor's. What bounds the error then is the measured gradient alone:

local   as in ``bars`` without T_i, and with b the measured largest move of a
        remaining row's predictor.
near    the same, likewise without T_i.
"""

from dataclasses import replace
from math import inf, isfinite

import numpy as np

from ..._typing import Matrix, Vector
from ...blocks import BLOCK_ROWS
from ...magnitude import UNDERFLOW
from ...mechanisms import Draft
from ...radius.ingredients import gradient_error, prediction_error
from ...rows import Rows
from .bars import local_distance, near_distance
from .family import Answers, Common, Removals, dots, images, lengths
from .ground import SAFETY, Ground, dual_norms, left_over
from .steps import answers

# Looking ends by itself, for most rows after three or four; the few that go on cost
# little.
LOOKS = 24
# What a step must leave less of the gradient than.
SHORTER = 0.8


def look_closer(shared: Common, rows: Rows, gone: Removals, found: Answers) -> Answers:
    """Return the answers with measured gradients for residuals, and improved by them.

    A step is kept where it shortens the gradient; a row is done when none does, or
    when rounding is all that is left.
    """
    best = measured(shared, rows, gone, found)
    going = np.flatnonzero(lengths(best.residual) > best.slack)
    for _ in range(LOOKS):
        if not going.size:
            break
        some, before = gone.take(going), best.take(going)
        slope = before.residual - before.subgradient
        here = slope - images(shared.state, some, before.step)
        tried = answers(shared, replace(some, gradient=here))
        tried = measured(shared, rows, some, tried)
        better = lengths(tried.residual) < SHORTER * lengths(before.residual)
        best = best.having(going[better], tried.take(np.flatnonzero(better)))
        going = going[better & (lengths(tried.residual) > tried.slack)]
    return best


def measured(shared: Common, rows: Rows, gone: Removals, found: Answers) -> Answers:
    """Return the answers with their gradients on the remaining rows as residuals."""
    state, loss = shared.state, shared.state.objective.loss
    theta = state.anchor + found.step
    total = np.zeros_like(theta)
    for block in rows.blocks(BLOCK_ROWS):
        y = np.repeat(block.y, len(theta))
        slope = _each(loss.slope(y, (block.X @ theta.T).ravel()), block)
        total += (block.X.T @ (block.weight[:, None] * slope)).T
    own = loss.slope(gone.y, dots(gone.X, theta)) * gone.share
    diagonal, _ = state.objective.quadratic_form(state.anchor.size)
    quadratic = gone.scale[:, None] * (diagonal * theta)
    slopes = total / state.anchor_weight - own[:, None] * gone.X
    largest = Draft(np.abs(theta).max(axis=0), np.abs(found.subgradient).max(axis=0))
    # Twice: a row's slope is computed again to be subtracted.
    slack = 2.0 * gradient_error(
        shared.lighter, largest, float(lengths(found.step).max())
    )
    residual = slopes + quadratic + found.subgradient
    return replace(found, residual=residual, slack=np.full(len(theta), slack))


def looked_at_errors(
    shared: Common, base: Ground, rows: Rows, gone: Removals, found: Answers
) -> Vector:
    """Return bounds on |x_i.(theta_i - theta*)| from measured gradients."""
    loss = shared.state.objective.loss
    with np.errstate(all="ignore"):  # an infinite ingredient makes an infinite bound
        pull, left = dual_norms(shared, base, found), left_over(shared, base, gone)
        own = np.sqrt(base.squares[gone.index])
        if loss.curvature_jump > 0.0:
            distance = near_distance(shared, base, gone, found.step, (pull, left))
        elif isfinite(loss.self_concordance):
            b = loss.self_concordance * _largest_moves(shared, rows, gone, found.step)
            longest = loss.self_concordance * base.longest
            distance = local_distance(pull, b, left, longest)
        else:
            distance = np.full(len(pull), inf)
        bound = own * distance
    return np.where(np.isnan(bound), inf, bound) * SAFETY + UNDERFLOW


def _largest_moves(shared: Common, rows: Rows, gone: Removals, S: Matrix) -> Vector:
    """Return the largest move of a predictor among all rows but the one left out."""
    largest = np.zeros(len(S))
    for begin in range(0, len(rows), BLOCK_ROWS):
        block = rows.take(slice(begin, begin + BLOCK_ROWS))
        others = np.arange(begin, begin + len(block))[:, None] != gone.index
        moves = np.abs(block.X @ S.T) * others
        np.maximum(largest, moves.max(axis=0), out=largest)
    longest = S[np.argmax(lengths(S))]
    rounding = prediction_error(shared.state, longest) * shared.state.scales.row_norm
    return (largest + rounding) * SAFETY


def _each(values: Vector, block: Rows) -> Matrix:
    """Return values of each row under each model, a row each."""
    return values.reshape(len(block), -1)
