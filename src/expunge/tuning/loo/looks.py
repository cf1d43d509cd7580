# SPDX-License-Identifier: Apache-2.0
r"""Leave-one-out cross-validation without n fits, and how far it can be off.

Leaving a row out is removing it: what a removal's state knows answers for each of the
n rows at once, by one Newton step each (``steps``), and the radius of that
removal (``bars``) bounds what the row's loss can be off,

    |l(t_i) - l(t*_i)| <= min(k1 m, |l'(t_i)| m + (k2/2) m^2),  m >= |t_i - t*_i| .

Losses and bars are noise-free functions of every row and therefore private.
"""

from dataclasses import dataclass

import numpy as np

from ..._typing import Index, Matrix, Vector
from ...blocks import BLOCK_ROWS, largest_norm
from ...exceptions import InvalidInput
from ...linear_model.base import Forgetful
from ...magnitude import UNDERFLOW, UNIT_ROUNDOFF
from ...mechanisms import State
from ...mechanisms.downdate import initial_state, with_sums
from ...private import Private
from ...radius.ingredients import prediction_error
from ...rows import Rows
from ...summary import summarise
from .bars import predictor_errors
from .closer import look_closer, looked_at_errors
from .family import Common, common, dots, lengths, removals
from .ground import Ground, ground
from .refit import refitted
from .steps import answers

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


def loo_error(model: Forgetful) -> LeftOut:
    """Return leave-one-out losses of a fitted estimator that keeps its data.

    At its noise-free answer and over the rows that it still has. The model and its
    account stay as they are: nothing is released.
    """
    holdings = model._private_state()
    custody, rows = holdings.custody, holdings.rows()
    if rows is None:
        raise InvalidInput(
            "this model keeps no data (keep_data=False), and leave-one-out looks at "
            "every row; fit with keep_data=True, or call leave_one_out(state, rows)"
        )
    summary = summarise(custody.objective_for(rows), rows, custody.draft.theta)
    return leave_one_out(with_sums(initial_state(summary), summary, moment=True), rows)


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
