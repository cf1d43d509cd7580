# SPDX-License-Identifier: Apache-2.0
"""Laws of rows that come, against every loss, penalty, mechanism and scaling."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from expunge import Rows, learn
from expunge.core import linalg
from expunge.core.arrays import Vector
from expunge.core.objective import Scaling
from expunge.exceptions import InvalidInput
from expunge.promise.bounds import (
    gradient_error,
    hessian_error,
    penalised_curvature,
    sum_error,
    weight_error,
)
from expunge.promise.radius import best_radius
from expunge.removal import Draft, State
from expunge.removal.matrix_free import SMALLEST_GRADIENT, stand_still
from expunge.removal.summary import Summary
from tests.instances import (
    FITTING,
    LOSSES,
    MECHANISMS,
    Combination,
    learned,
    objective_of,
    retrained,
)

LATER = np.array([3, 150, 17, 42, 90, 8, 77, 120, 61, 29])
LEAVING = np.array([5, 11, 99, 140])

every = pytest.mark.parametrize("each", FITTING, ids=str)


@pytest.fixture(autouse=True, params=[linalg.LARGE, 1], ids=["folded", "recent"])
def folds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let small matrices, too, keep recent rows; return whether they do not."""
    monkeypatch.setattr(linalg, "LARGE", request.param)
    return bool(request.param > 1)


@cache
def _early(loss: str, penalty: str, scaling: Scaling) -> tuple[Rows, Rows, Summary]:
    """Return all rows, those of a fit without the later ones, and its summary."""
    rows, _ = learned(loss, penalty, scaling)
    first = rows.without(LATER)
    return rows, first, learn(objective_of(loss, penalty, scaling), first)


def _start(each: Combination) -> tuple[Rows, Rows, Summary, State]:
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
    assert after.n_rows == state.n_rows
    assert abs(after.kept - 1.0) <= sum_error(after) * after.scales.weight
    assert after.scales.n_rows == state.scales.n_rows + len(LATER)
    slack = gradient_error(after, stand_still(after), step=0.0)
    assert np.linalg.norm(after.gradient - state.gradient) <= slack
    if state.hessian is not None:
        off = after.loss_hessian.dense() - state.loss_hessian.dense()
        assert np.linalg.norm(off, 2) <= 2.0 * hessian_error(after)
    if state.moment is not None and after.moment is not None:
        off = after.moment.dense() - state.moment.dense()
        assert np.linalg.norm(off, 2) <= sum_error(after) * after.scales.moment
    if state.kinks is not None and after.kinks is not None:
        slack = sum_error(after) * after.scales.square_norm
        assert np.abs(after.kinks - state.kinks).max() <= slack
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
    moved = float(np.linalg.norm(summary.theta - target))
    # As in ``test_mechanism``, of which this is the way back.
    share = {"polish": 1e-3, "retrain": 1e-11}.get(each.mechanism, 0.2)
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
        mechanism.init(summary), old, added=rows.take(new), spend=True
    )
    assert _distance(spent.gradient, kept.gradient) <= 1e-13
    assert spent.scales == kept.scales


@pytest.mark.parametrize("name", MECHANISMS)
def test_longer_rows_enlarge_what_bounds_the_rest(name: str) -> None:
    rows, _, _, state = _start(Combination("logistic", "l2", name, "mean"))
    long = rows.take(LATER[:1])
    long = replace(long, X=np.array(long.X) * 50.0)
    after = MECHANISMS[name].update(state, added=long)
    size = float(long.norms()[0])
    assert after.scales.row_norm == size
    assert after.scales.square_norm > state.scales.square_norm + 0.9 * size**2 / len(
        rows
    )
    assert after.scales.weight == 1.0 + 1.0 / state.anchor_weight
    back = MECHANISMS[name].update(after, long)
    assert back.scales == after.scales  # what was subtracted has left its rounding


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
    doubt = abs(state.kept - 1.0)
    assert doubt <= weight_error(state)
    assert penalised_curvature(state) <= (1.0 - doubt) * summary.objective.quadratic
    if weight == 1e13:
        assert doubt > sum_error(state)  # which does not know of the heavy row
    state, draft = mechanism.step(state)
    error = float(np.linalg.norm(draft.theta - summary.theta))
    assert error <= best_radius(state, draft).value
