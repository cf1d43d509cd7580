# SPDX-License-Identifier: Apache-2.0
"""Laws of rows that come, for every pair of loss, penalty, mechanism and scaling."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from expunge import Rows, learn
from expunge.core import linalg
from expunge.core.arrays import Vector
from expunge.core.objective import Scaling
from expunge.exceptions import InvalidInput
from expunge.promise.floor import penalised_curvature
from expunge.promise.radius import best_radius
from expunge.promise.rounding import Rounding
from expunge.removal import Draft, State
from expunge.removal.matrix_free import SMALLEST_GRADIENT, MatrixFree
from tests.instances import (
    FITTING,
    LOSSES,
    MECHANISMS,
    Combination,
    lawful,
    learned,
    objective_of,
    retrained,
)

LATER = np.array([3, 150, 17, 42, 90, 8, 77, 120, 61, 29])
LEAVING = np.array([5, 11, 99, 140])

every = pytest.mark.parametrize("each", lawful(FITTING), ids=str)


@pytest.fixture(autouse=True, params=[linalg.LARGE, 1], ids=["folded", "recent"])
def folds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let small matrices, too, keep recent rows; return whether they do not."""
    monkeypatch.setattr(linalg, "LARGE", request.param)
    return bool(request.param > 1)


@cache
def _early(loss: str, penalty: str, scaling: Scaling) -> tuple[Rows, Rows, State]:
    """Return all rows, those of a fit without the later ones, and its summary."""
    rows, _ = learned(loss, penalty, scaling)
    first = rows.without(LATER)
    return rows, first, learn(objective_of(loss, penalty, scaling), first)


def _start(each: Combination) -> tuple[Rows, Rows, State, State]:
    rows, first, summary = _early(each.loss, each.penalty, each.scaling)
    return rows, first, summary, MECHANISMS[each.mechanism].init(summary)


def _distance(a: Vector, b: Vector) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def _limit(each: Combination) -> float:
    if each.mechanism != "matrix_free":
        return 1e-11
    # Each answer is solved to this gradient.
    quadratic = objective_of(each.loss, each.penalty).quadratic
    return 4.0 * SMALLEST_GRADIENT / quadratic


def _answer(each: Combination, state: State, rows: Rows) -> Draft:
    return MECHANISMS[each.mechanism].step(state, rows)[1]


@every
def test_adding_nobody_changes_nothing(each: Combination) -> None:
    rows, _, _, state = _start(each)
    after = MECHANISMS[each.mechanism].update(state, added=rows.take(slice(0, 0)))
    assert after is state


@every
def test_a_row_that_comes_and_leaves_leaves_rounding_behind(each: Combination) -> None:
    rows, first, _, state = _start(each)
    mechanism, some = MECHANISMS[each.mechanism], rows.take(LATER)
    after = mechanism.update(mechanism.update(state, added=some), some)
    assert after.sums.n_rows == state.sums.n_rows
    moved = abs(after.sums.weight - state.sums.weight)
    assert moved <= Rounding(after).sums * after.magnitude.weight
    assert after.sums.roundings >= state.sums.roundings + 2 * len(LATER)
    slack = Rounding(after).gradient(MatrixFree().answer_at_anchor(after), step=0.0)
    assert np.linalg.norm(after.sums.gradient - state.sums.gradient) <= slack
    if state.sums.hessian is not None:
        off = after.sums.loss_hessian.dense() - state.sums.loss_hessian.dense()
        assert np.linalg.norm(off, 2) <= 2.0 * Rounding(after).hessian
    if state.sums.moment is not None and after.sums.moment is not None:
        off = after.sums.moment.dense() - state.sums.moment.dense()
        assert np.linalg.norm(off, 2) <= Rounding(after).sums * after.magnitude.moment
    if state.sums.kinks is not None and after.sums.kinks is not None:
        slack = Rounding(after).sums * after.magnitude.square_norm
        assert np.abs(after.sums.kinks - state.sums.kinks).max() <= slack
    if each.mechanism == "rescaled":
        # Divided by 1 + h as it came and by 1 - h as it left: no sum can know which
        # row came back. What is left over shows in the residual.
        return
    before, back = (_answer(each, one, first).theta for one in (state, after))
    assert _distance(back, before) <= _limit(each)


@every
def test_batch_equals_stream(each: Combination) -> None:
    rows, _, _, state = _start(each)
    mechanism = MECHANISMS[each.mechanism]
    batch = mechanism.update(state, added=rows.take(LATER))
    for place in LATER:
        state = mechanism.update(state, added=rows.take(np.array([place])))
    everyone = rows.take(np.r_[np.setdiff1d(np.arange(len(rows)), LATER), LATER])
    found = [_answer(each, one, everyone).theta for one in (batch, state)]
    assert _distance(found[1], found[0]) <= _limit(each)


@every
def test_replacing_is_removing_and_adding(each: Combination) -> None:
    rows, first, _, state = _start(each)
    mechanism = MECHANISMS[each.mechanism]
    old, new = first.take(LEAVING), rows.take(LATER)
    at_once = mechanism.update(state, old, added=new)
    first_out = mechanism.update(mechanism.update(state, old), added=new)
    first_in = mechanism.update(mechanism.update(state, added=new), old)
    left, later = first.without(LEAVING), rows.take(LATER)
    after = Rows(
        np.vstack([left.dense(), later.dense()]),
        np.concatenate([left.y, later.y]),
        np.concatenate([left.weight, later.weight]),
    )
    found = [_answer(each, one, after).theta for one in (at_once, first_out, first_in)]
    for other in found[1:]:
        assert _distance(other, found[0]) <= _limit(each)


@every
def test_answer_is_near_retraining(each: Combination) -> None:
    rows, _, summary, state = _start(each)
    mechanism, target = MECHANISMS[each.mechanism], retrained(summary, rows)
    state = mechanism.update(state, added=rows.take(LATER))
    state, draft = mechanism.step(state, rows)
    error = float(np.linalg.norm(draft.theta - target))
    moved = float(np.linalg.norm(summary.anchor - target))
    # As in ``test_mechanism``, of which this is the way back.
    share = 1e-11 if each.mechanism == "retrain" else 0.2
    if share == 0.2 and not np.isfinite(LOSSES[each.loss][0].third_bound):
        share = 0.5
    assert error <= share * moved
    assert error <= best_radius(state, draft).value


@every
def test_spending_gives_the_same_answer(each: Combination) -> None:
    rows, first, summary, state = _start(each)
    mechanism, old, new = MECHANISMS[each.mechanism], first.take(LEAVING), LATER
    kept = mechanism.update(state, old, added=rows.take(new))
    spent = mechanism.update(
        mechanism.init(summary), old, added=rows.take(new), overwrite=True
    )
    assert _distance(spent.sums.gradient, kept.sums.gradient) <= 1e-13
    assert spent.magnitude == kept.magnitude


@pytest.mark.parametrize("name", MECHANISMS)
def test_longer_rows_enlarge_what_bounds_the_rest(name: str) -> None:
    rows, _, _, state = _start(Combination("logistic", "l2", name, "mean"))
    long = rows.take(LATER[:1])
    long = replace(long, X=np.array(long.X) * 50.0)
    after = MECHANISMS[name].update(state, added=long)
    size = float(long.norms()[0])
    assert after.magnitude.row_norm == size
    assert after.magnitude.square_norm > state.magnitude.square_norm + 0.9 * size**2
    assert after.magnitude.weight == state.magnitude.weight + 1.0
    back = MECHANISMS[name].update(after, long)
    assert (
        back.magnitude == after.magnitude
    )  # what was subtracted has left its rounding


@pytest.mark.parametrize("name", MECHANISMS)
def test_rows_of_another_width_are_refused(name: str) -> None:
    rows, _, _, state = _start(Combination("logistic", "l2", name, "mean"))
    wide = rows.take(LATER)
    wide = replace(wide, X=np.hstack([wide.dense(), wide.dense()]))
    with pytest.raises(InvalidInput, match="rows to add have 14 columns"):
        MECHANISMS[name].update(state, added=wide)


@pytest.mark.parametrize("weight", [1e6, 1e9, 1e13])
def test_a_heavy_row_leaves_its_rounding_in_f(weight: float) -> None:
    # f is found by adding and subtracting weights: 1e13 takes its digits along.
    rows, first, _, _ = _start(Combination("logistic", "l2", "newton", "mean"))
    first = replace(first, weight=np.full(len(first), 1.0 / 7.0))
    summary = learn(objective_of("logistic", "l2"), first)
    mechanism = MECHANISMS["newton"]
    heavy = replace(rows.take(LATER[:1]), weight=np.array([weight / 3.0]))
    state = mechanism.update(mechanism.init(summary), added=heavy)
    state = mechanism.update(state, heavy)
    doubt = abs(state.sums.weight - state.anchor_weight)
    assert doubt <= Rounding(state).weight
    least = (state.anchor_weight - doubt) * summary.objective.quadratic
    assert penalised_curvature(Rounding(state)) <= least
    if weight == 1e13:
        assert (
            doubt > Rounding(state).sums * state.anchor_weight
        )  # which does not know of the heavy row
    state, draft = mechanism.step(state)
    error = float(np.linalg.norm(draft.theta - summary.anchor))
    assert error <= best_radius(state, draft).value
