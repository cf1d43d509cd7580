# SPDX-License-Identifier: Apache-2.0
"""Refitting without a row, where no step from the anchor leads to its model.

The last resort of leave-one-out, for rows that hold the model almost alone. The refit
is a solver's answer like any other: its own sums, made anew at it, say how far it can
be from the minimiser.
"""

from dataclasses import replace
from math import inf

import numpy as np

from ..._typing import Vector
from ...mechanisms.downdate import initial_state, with_sums
from ...mechanisms.retrain import retrained
from ...rows import Rows
from ...summary import summarise
from ...unlearn import REFUSALS
from .bars import predictor_errors
from .family import Answers, Common, Removals, common, residual_errors
from .ground import Ground, ground, inverse_squares


def refitted(
    shared: Common, base: Ground, rows: Rows, place: int
) -> tuple[Vector, float]:
    """Return the model fitted without one row, and a bound on its predictor's error.

    The bound is infinite where there is no such model or none that can be certified.
    """
    state = shared.state
    rest = rows.without(np.array([place]))
    lighter = state.having(weight=rest.total_weight, n_rows=len(rest))
    try:
        objective = state.objective.after(lighter.kept)
        solution = retrained(objective, rest, state.last)
        summary = summarise(objective, rest, solution.theta, solution.subgradient)
        fresh = with_sums(initial_state(summary), summary, moment=True)
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
