# SPDX-License-Identifier: Apache-2.0
r"""Leave-one-out cross-validation without n fits, and how far it can be off.

Leaving a row out is removing it: what a removal's state knows answers for each of the
n rows at once, by one Newton step each (``steps``), and the radius of that
removal (``bars``) bounds what the row's loss can be off,

    |l(t_i) - l(t*_i)| <= min(k1 m, |l'(t_i)| m + (k2/2) m^2),  m >= |t_i - t*_i| .

Losses and bars are noise-free functions of every row and therefore private.

A closer look at the few rows whose leave-one-out model is known worst.

Their steps are repeated with the gradient *measured* on the remaining rows, all of
them at once: two products of the design with as many models as there are rows to look
at. A chord step's quadratic model is that of ``steps`` with the measured gradient
in place of the anchor's. What bounds the error then is the measured gradient alone:

local   as in ``bars`` without T_i, and with b the measured largest move of a
        remaining row's predictor.
near    the same, likewise without T_i.

Refitting without a row, where no step from the anchor leads to its model.

The last resort of leave-one-out, for rows that hold the model almost alone. The refit
is a solver's answer like any other: its own sums, made anew at it, say how far it can
be from the minimiser.
"""

from dataclasses import dataclass, replace
from math import inf, isfinite

import numpy as np

from ..core.arrays import (
    SAFETY,
    UNDERFLOW,
    UNIT_ROUNDOFF,
    Index,
    Matrix,
    Private,
    Vector,
)
from ..core.rows import Rows
from ..core.sums import BLOCK_ROWS, largest_norm
from ..exceptions import InvalidInput
from ..private_model.unlearn import REFUSALS
from ..promise.radius import gradient_error, prediction_error
from ..removal import Draft, State
from ..removal.retrain import retrain
from ..removal.state import initial_state, keep_sums
from ..removal.summary import summarise
from .loo_bounds import (
    Ground,
    dual_norms,
    ground,
    inverse_squares,
    left_over,
    local_distance,
    near_distance,
    predictor_errors,
)
from .loo_problems import (
    Answers,
    Common,
    Removals,
    answers,
    common,
    dots,
    images,
    lengths,
    removals,
    residual_errors,
)

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
        best = best.replace(going[better], tried.take(np.flatnonzero(better)))
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
        shared.lighter, largest, step=float(lengths(found.step).max())
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


def refitted(
    shared: Common, base: Ground, rows: Rows, place: int
) -> tuple[Vector, float]:
    """Return the model fitted without one row, and a bound on its predictor's error.

    The bound is infinite where there is no such model or none that can be certified.
    """
    state = shared.state
    rest = rows.without(np.array([place]))
    lighter = state.replace(weight=rest.total_weight, n_rows=len(rest))
    try:
        objective = state.objective.after(lighter.kept)
        solution = retrain(objective, rest, start=state.last)
        summary = summarise(
            objective, rest, solution.theta, subgradient=solution.subgradient
        )
        fresh = keep_sums(initial_state(summary), summary, moment=True)
        again = common(fresh, rest)
    except REFUSALS:
        return state.anchor, inf
    around = ground(again, rest, base.row_norm)
    X = rows.take(np.array([place])).dense()
    square = inverse_squares(again, around.floor, X)
    around = replace(around, squares=np.append(around.squares, square))
    # A removal that takes nothing away, of a row that was not among the rest.
    nothing, one = np.zeros(1), np.ones(1)
    step, subgradient = np.zeros((1, X.shape[1])), solution.subgradient[None, :]
    gradient = fresh.smooth_gradient[None, :]
    gone = Removals(np.array([len(rest)]), X, nothing, nothing, one, nothing, gradient)
    slack = residual_errors(again, step, subgradient)
    found = Answers(step, subgradient, gradient + subgradient, slack)
    return solution.theta, float(predictor_errors(again, around, gone, found)[0])


# Rows that get a closer look, by products of the design with as many columns; and
# how wide a bar is left alone, over one plus the loss.
CLOSER = 512
ENOUGH = 1e-10
# Rows that are refitted at most, and how wide a bar must be for that.
REFITS = 32
TOO_WIDE = 1e-2
HUGE = 1e200


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LeftOut(Private):
    """The loss of each row at the model fitted without it, and its error bar.

    Attributes
    ----------
    losses
        Loss of each row at the approximate model without it, (n,).
    bars
        |losses_i - loss at the exact one| <= bars_i; infinite where nothing is known.
    weight
        The rows' weights.
    """

    losses: Vector
    bars: Vector
    weight: Vector

    @property
    def value(self) -> float:
        """The weighted mean of the losses: leave-one-out cross-validation."""
        return float(self.weight @ self.losses) / float(self.weight.sum())

    @property
    def bar(self) -> float:
        """How far ``value`` can be off: the mean of the bars, and its rounding."""
        counted = self.weight > 0.0  # zero times an infinite bar is no number
        weight = self.weight[counted]
        rounding = 4.0 * (weight.size + 4) * UNIT_ROUNDOFF
        bars = (1.0 + rounding) * self.bars[counted]
        bars = bars + rounding * np.abs(self.losses[counted])
        return float((weight / weight.sum()) @ bars) + UNDERFLOW


def leave_one_out(state: State, rows: Rows, row_norm: float | None = None) -> LeftOut:
    """Return the loss of every remaining row at the model without it.

    Parameters
    ----------
    state
        A certified state (it holds Hessian and moment); any anchor, and rows may
        have been removed from it already.
    rows
        Exactly the rows that remain.
    row_norm
        A bound on every row's norm promised in advance; if not given, the largest
        norm there is.
    """
    shared = common(state, rows)
    base = ground(shared, rows, _row_norm(rows, row_norm))
    looked = [
        _first_look(
            shared, base, rows, np.arange(len(rows))[begin : begin + BLOCK_ROWS]
        )
        for begin in range(0, len(rows), BLOCK_ROWS)
    ]
    found = LeftOut(
        losses=np.concatenate([block.losses for block in looked]),
        bars=np.concatenate([block.bars for block in looked]),
        weight=rows.weight,
    )
    for look, most, enough in (
        (_closer_look, CLOSER, ENOUGH),
        (_last_look, REFITS, TOO_WIDE),
    ):
        worst = _worst(found, most, enough)
        if worst.size:
            found = _improved(found, worst, look(shared, base, rows, worst))
    return found


def _row_norm(rows: Rows, promised: float | None) -> float:
    """Return a bound on every row's norm, the promised one if it holds."""
    largest = largest_norm(rows)
    if promised is not None and largest > promised:
        raise InvalidInput(
            f"a row is longer than row_norm={promised:g} (intercept included); promise "
            "more, or leave row_norm out"
        )
    return largest if promised is None else promised


def _first_look(shared: Common, base: Ground, rows: Rows, index: Index) -> LeftOut:
    """Return losses and bars of one block, from the state's sums alone."""
    gone = removals(shared.state, rows, index)
    found = answers(shared, gone)
    errors = predictor_errors(shared, base, gone, found)
    return _judged(shared.state, rows.take(index), found.step, errors)


def _closer_look(shared: Common, base: Ground, rows: Rows, index: Index) -> LeftOut:
    """Return losses and bars of some rows, with gradients measured on all rows."""
    gone = removals(shared.state, rows, index)
    found = look_closer(shared, rows, gone, answers(shared, gone))
    errors = looked_at_errors(shared, base, rows, gone, found)
    return _judged(shared.state, rows.take(index), found.step, errors)


def _last_look(shared: Common, base: Ground, rows: Rows, index: Index) -> LeftOut:
    """Return losses and bars of very few rows, each by a fit without it."""
    models, errors = zip(
        *(refitted(shared, base, rows, int(place)) for place in index), strict=True
    )
    step = np.array(models) - shared.state.anchor
    return _judged(shared.state, rows.take(index), step, np.array(errors))


def _worst(found: LeftOut, most: int, enough: float) -> Index:
    """Return the rows worth another look: those that widen the mean's bar most."""
    counted = np.where(found.weight > 0.0, np.minimum(found.bars, HUGE), 0.0)
    order = np.argsort(-found.weight * counted, kind="stable")[:most]
    return order[counted[order] > enough * (1.0 + found.losses[order])]


def _improved(found: LeftOut, index: Index, others: LeftOut) -> LeftOut:
    """Return what was found with the rows at ``index`` replaced where bars fall."""
    better = others.bars < found.bars[index]
    losses, bars = found.losses.copy(), found.bars.copy()
    losses[index[better]] = others.losses[better]
    bars[index[better]] = others.bars[better]
    return LeftOut(losses, bars, found.weight)


def _judged(state: State, some: Rows, step: Matrix, errors: Vector) -> LeftOut:
    """Return the rows' losses at anchor + step, errors being the predictors'."""
    loss, X, theta = state.objective.loss, some.dense(), state.anchor + step
    t = dots(X, theta)
    longest = theta[np.argmax(lengths(theta))]
    rounding = prediction_error(state, longest) + prediction_error(state, state.anchor)
    off = errors + lengths(X) * rounding
    losses, slope = loss.value(some.y, t), np.abs(loss.slope(some.y, t))
    # fmin passes over zero times infinity.
    with np.errstate(invalid="ignore", over="ignore"):
        bars = slope * off + 0.5 * loss.curvature_bound * off**2
        bars = np.fmin(bars, loss.slope_bound * off)
    # Of the loss itself: a few roundings of its value, and of a margin.
    bars += 8.0 * UNIT_ROUNDOFF * (losses + slope * (1.0 + np.abs(t))) + UNDERFLOW
    return LeftOut(losses, bars, some.weight)
