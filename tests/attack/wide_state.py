# SPDX-License-Identifier: Apache-2.0
"""The state of a model without matrices, computed a second time from its rows."""

from math import isfinite

import numpy as np

from expunge import MatrixFree
from expunge.promise.rounding import Rounding
from expunge.removal import State
from expunge.removal.state import state_size

from .judge import Checker
from .losses import Array
from .oracle import LONG, Aim, Point, Problem, Sample

UNIT = 2.0**-53


def check_state(checker: Checker, state: State, aim: Aim, left: Sample) -> None:
    """Compare the sums of a state with sums in extended precision over its rows."""
    with np.errstate(all="ignore"):
        _check_sums(checker, state, aim, left)
    k, size = aim.loss.outputs, state.anchor.size
    held = state_size(state)
    checker.check(held <= 6 * size + k * k, f"a state of {held} for {size} parameters")
    checker.check(
        state.sums.n_rows == len(left.y), f"{state.sums.n_rows} rows are counted"
    )


def _check_sums(checker: Checker, state: State, aim: Aim, left: Sample) -> None:
    problem = Problem(aim, left, left.total)
    point = Point(problem, state.anchor.astype(LONG))
    weight = left.weight[left.weight > 0.0].astype(LONG)
    X, lengths = point.X, problem.lengths
    total = float(weight.sum())
    gradient = (X.T @ (point.slopes * weight[:, None])).ravel()
    allowed = Rounding(state).gradient(MatrixFree().answer_at_anchor(state), step=0.0)
    off = _length(gradient - state.sums.gradient)
    checker.check(
        off <= allowed, f"the gradient is off by {off:.3g}, claimed {allowed:.3g}"
    )
    slack = UNIT * _count(state)
    checker.check(
        abs(total - state.sums.weight) <= slack * state.magnitude.weight,
        f"a weight of {state.sums.weight}, it is {total}",
    )
    squares = float(weight @ (lengths.astype(LONG) ** 2))
    _check_bound(checker, state.magnitude.square_norm, squares, slack, "square_norm")
    longest = float(lengths.max(initial=0.0))
    _check_bound(checker, state.magnitude.row_norm, longest, slack, "row_norm")
    entries = float(np.count_nonzero(X, axis=1).max(initial=0))
    _check_bound(checker, state.magnitude.n_entries, entries, 0.0, "n_entries")
    # What a term of a sum went through: its column's additions, and its row's products.
    fullest = float(np.count_nonzero(X, axis=0).max(initial=1)) - 1.0
    least = fullest + 2.0 * problem.k * entries
    _check_bound(checker, Rounding(state).count, least, 0.0, "the count of roundings")
    if problem.n_free:
        part = (X[:, :-1] * np.sqrt(weight)[:, None]).astype(float)
        largest = float(np.linalg.norm(part, 2)) ** 2 if part.size else 0.0
        _check_bound(checker, state.magnitude.gram, largest, 1e-12, "gram")
    if isfinite(aim.loss.concordance):
        moved = slack * longest * _length(state.anchor.astype(LONG))
        slack = (slack + moved) * state.magnitude.weight
        _check_curvature(checker, state, point, weight, slack)


def _check_curvature(
    checker: Checker, state: State, point: Point, weight: Array, slack: float
) -> None:
    """Compare the curvature of the predictors and its mean row."""
    problem = point.problem
    curved = problem.loss.curvatures(point.coded, point.eta)
    slack = 4.0 * slack * problem.k
    assert state.sums.curvature is not None
    if curved.ndim == 3:
        found = np.einsum("i,iab->ab", weight, curved)
    else:
        found = np.diag(weight @ curved)
    off = float(np.abs(found - state.sums.curvature).max())
    checker.check(off <= slack, f"the curvature is off by {off:.3g} of {slack:.3g}")
    if state.sums.intercept_columns is None:
        return
    intercept_columns = point.X.T @ (curved * weight[:, None])
    off = float(np.abs(intercept_columns - state.sums.intercept_columns).max())
    slack *= 1.0 + state.magnitude.row_norm
    checker.check(
        off <= slack, f"the intercept_columns is off by {off:.3g} of {slack:.3g}"
    )


def _check_bound(
    checker: Checker, claimed: float, true: float, slack: float, what: str
) -> None:
    said = f"{what} is {claimed:.6g}, it must be {true:.6g}"
    checker.check(claimed * (1.0 + slack) >= true, said)


def _count(state: State) -> float:
    """Return how many roundings a sum may hold: generous, and no claim of anybody."""
    return 4.0 * (3.0 * state.sums.roundings + state.anchor.size + 64)


def _length(v: Array) -> float:
    return float(np.sqrt((v**2).sum()))
