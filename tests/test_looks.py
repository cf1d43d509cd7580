# SPDX-License-Identifier: Apache-2.0
"""A look at the rows is one pass, and stops as soon as the radius fits."""

from dataclasses import replace
from math import fsum, inf
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from expunge import (
    L2,
    Budget,
    HalfSquared,
    Jackknife,
    LinearRegression,
    Logistic,
    LogisticRegression,
    Newton,
    Objective,
    Rows,
    learn,
)
from expunge.core.arrays import UNIT_ROUNDOFF, norm
from expunge.core.rows import RowSource
from expunge.core.solver import minimise
from expunge.core.sums import loss_slopes
from expunge.linear_model.base import private_model
from expunge.private_model import answers
from expunge.private_model.answers import (
    LOOKS_PER_ANCHOR,
    MEASURED,
    retrain_answer,
)
from expunge.private_model.model import PrivateModel
from expunge.promise.budget import SIGMA_OF_LOOKS
from expunge.promise.radius import Radii
from expunge.removal import measure_gradient
from expunge.removal.newton import hessian_step
from tests.thorough import either

N_ROWS, N_COLUMNS = 9000, 6  # five blocks
SMALL = Budget(sigma=1e-3)


def data(n_rows: int = N_ROWS) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n_rows, N_COLUMNS)) * [1.0, 2.0, 0.5, 1.0, 3.0, 0.1]
    return X, X[:, 0] - X[:, 1] + rng.logistic(size=n_rows) > 0.3


def fitted(budget: Budget = SMALL, n_rows: int = N_ROWS, **settings: Any) -> Any:
    chosen: dict[str, Any] = {"alpha": 1e-3, "budget": budget} | settings
    model = LogisticRegression(**chosen)
    return model.fit(*data(n_rows), subjects=range(n_rows))


def count_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of how many rows each pass over all of them has."""
    seen: list[int] = []
    real = RowSource.sum_blocks

    def sum_blocks(self: Any, term: Any) -> Any:
        seen.append(len(self))
        return real(self, term)

    monkeypatch.setattr(RowSource, "sum_blocks", sum_blocks)
    return seen


def error_of(model: Any) -> tuple[float, float]:
    """Return how far an answer is from retraining, and how far that may be off."""
    private = private_model(model)
    rows = private.remaining_rows()
    assert rows is not None
    exact = retrain_answer(private.terms, rows, start=None)
    return norm(private.answer.draft.theta - exact.draft.theta), exact.radius.value


@pytest.mark.parametrize("preprocessing", [None, StandardScaler()], ids=repr)
def test_a_look_is_one_pass(
    preprocessing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fitted(preprocessing=preprocessing)
    anchor = private_model(model).answer.state.anchor
    passes = count_blocks(monkeypatch)
    for n in range(1, 6):
        model.forget([100 * n])
        assert passes == [N_ROWS - n], "one pass, over the rows that are left"
        passes.clear()
        answer = private_model(model).answer
        assert (answer.decisions, answer.n_looks) == ((MEASURED,), n)
        assert answer.state.anchor is anchor
    assert model.certificate_.status == "certified"


def test_every_answer_is_looked_at_where_noise_is_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for sigma, looks in ((SIGMA_OF_LOOKS, 1), (2.0 * SIGMA_OF_LOOKS, 0)):
        model = fitted(Budget(sigma=sigma))
        passes = count_blocks(monkeypatch)
        model.forget([5])
        assert len(passes) == looks
        without = fitted(Budget(sigma=sigma), keep_data=False)
        X, y = data()
        without.forget(X=X[5:6], y=y[5:6])
        assert private_model(without).answer.decisions == ("accepted",)


def test_a_step_and_a_look_at_a_time_until_it_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone, seen = list(range(1200)), set()
    for sigma in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        model = fitted(Budget(sigma=sigma), alpha=1e-2)
        passes = count_blocks(monkeypatch)
        model.forget(gone)
        answer = private_model(model).answer
        assert answer.fits(model.budget)
        if answer.n_looks:
            assert len(passes) == answer.n_looks
            seen.add(answer.n_looks)
        distance, doubt = error_of(model)
        assert distance <= answer.radius.value + doubt
    assert {1, 2} <= seen


def test_the_next_answer_starts_from_the_last_look() -> None:
    model = fitted(Budget(sigma=1e-5), alpha=1e-2)
    model.forget(range(1200))
    first = private_model(model).answer
    assert first.decisions != (MEASURED,)
    # From the anchor it would miss as much again.
    assert first.state.missed is not None and first.draft.measured is not None
    assert norm(first.state.missed) > 10.0 * norm(first.draft.measured)
    model.forget([2000])
    assert private_model(model).answer.decisions == (MEASURED,)


@pytest.mark.parametrize("settings", [{}, {"preprocessing": StandardScaler()}], ids=str)
def test_the_anchor_moves_after_so_many_looks(settings: Any) -> None:
    model = fitted(**settings)
    first = private_model(model).answer.state.anchor
    for n in range(1, LOOKS_PER_ANCHOR + 3):
        model.forget([n])
        answer = private_model(model).answer
        if n < LOOKS_PER_ANCHOR:
            assert answer.state.anchor is first and answer.n_looks == n
    assert answer.n_looks == 2 and answer.state.anchor is not first
    assert answer.state.kept > 1.0 - 3.0 / N_ROWS
    distance, doubt = error_of(model)
    assert distance <= answer.radius.value + doubt


def test_moving_the_anchor_leaves_the_answer_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drafts = []
    for often in (LOOKS_PER_ANCHOR, 1):
        monkeypatch.setattr(answers, "LOOKS_PER_ANCHOR", often)
        model = fitted(random_state=0)
        model.forget([7])
        drafts.append(private_model(model).answer.draft.theta)
    np.testing.assert_array_equal(drafts[0], drafts[1])
    assert private_model(model).answer.state.anchor is not None
    np.testing.assert_array_equal(private_model(model).answer.state.anchor, drafts[1])


def test_where_steps_lead_nowhere_the_model_is_retrained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Hessian that is far too large makes steps that leave most of the gradient."""
    real = hessian_step

    def short(state: Any) -> Any:
        step = real(state)

        def argmin(theta: Any, gradient: Any) -> Any:
            return step(theta, 0.1 * gradient)

        return argmin

    monkeypatch.setattr(answers, "hessian_step", short)
    model = fitted(Budget(sigma=1e-5), alpha=1e-2)
    passes = count_blocks(monkeypatch)
    model.forget(range(1200))
    assert model.record_.decisions == ("retrained",)
    assert private_model(model).answer.fits(model.budget)
    assert len(passes) > 2


@pytest.mark.parametrize("mechanism", [Newton(), Jackknife()], ids=repr)
@pytest.mark.parametrize("intercept", [False, True])
def test_a_look_bounds_the_error_wherever_steps_led(
    mechanism: Any, intercept: bool, rng: np.random.Generator
) -> None:
    X, y = data(300)
    objective = Objective(Logistic(), L2(), alpha=1e-2, intercept=intercept)
    rows = objective.rows(X, np.where(y, 1.0, -1.0))
    gone = np.arange(8)
    state = mechanism.update(mechanism.init(learn(objective, rows)), rows.take(gone))
    rest = rows.without(gone)
    state, draft = mechanism.step(state)
    exact = minimise(objective, rest).theta
    bounds = []
    for size in (0.0, 1e-6, 1e-3, 0.1):
        theta = draft.theta + size * rng.standard_normal(draft.theta.size)
        seen = measure_gradient(state, replace(draft, theta=theta), remaining=rest)
        error, radii = norm(theta - exact), Radii(state, seen, remaining=rest)
        for quick in (False, True):
            for by_move in (False, True):
                bound = radii.residual_local(quick=quick, by_move=by_move)
                assert error <= bound * (1.0 + 1e-12) or (quick and not intercept)
                bounds.append(bound / max(error, 1e-12))
    assert min(bounds) < 60.0  # and it says something


def test_a_look_at_features_that_changed_bounds_the_error() -> None:
    X, y = data(600)
    X[:20] *= 8.0  # a scaler learns other numbers without them
    budget = Budget(sigma=1e-3)
    scaled = {"alpha": 1e-2, "preprocessing": StandardScaler(), "budget": budget}
    model = LogisticRegression(**scaled).fit(X, y, subjects=range(600))
    for who in range(20):
        model.forget([who])
        private = private_model(model)
        fresh = clone(model).fit(X[who + 1 :], y[who + 1 :])
        exact = private_model(fresh).answer
        distance = norm(private.answer.draft.theta - exact.draft.theta)
        assert distance <= private.answer.radius.value + exact.radius.value
        assert private.answer.fits(budget)
        if private.answer.n_looks:
            assert private.answer.radius.kind in ("residual-local", "residual")


def test_a_feature_that_went_before_a_look_may_come_back() -> None:
    X, labels = data(400)
    X[7, 0] = np.nan
    fill = make_pipeline(SimpleImputer(add_indicator=True), MaxAbsScaler())
    model = LogisticRegression(alpha=1e-3, budget=SMALL, preprocessing=fill)
    model.fit(X, labels, subjects=range(400))
    extremes = np.nanargmax(np.abs(X), axis=0)
    assert 7 not in extremes and 8 not in extremes
    model.forget([7, 8])
    model.add(X[7:9], labels[7:9], subjects=[7, 8])
    distance, off = error_of(model)
    assert distance <= private_model(model).answer.radius.value + off


def test_moves_of_features_that_changed_bound_the_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With gaps, whose filling moves: the anchor is off by more than rounding."""
    found: list[tuple[float, float, float]] = []
    real = answers._judge

    def judge(terms: Any, state: Any, **seen: Any) -> Any:
        draft, rows = seen["draft"], seen.get("rows")
        if rows is not None and state.features is not None:
            radii = Radii(state, draft, terms.row_norm, rows)
            bounds = radii.residual_local(by_move=True), radii.residual_local()
            exact = minimise(terms.objective_for(rows), rows).theta
            found.append((norm(draft.theta - exact), *bounds))
        return real(terms, state, **seen)

    monkeypatch.setattr(answers, "_judge", judge)
    X, y = data(600)
    X[::7, 1] = np.nan
    X[:20] *= 8.0
    steps = make_pipeline(SimpleImputer(), StandardScaler())
    model = LogisticRegression(
        alpha=1e-2, preprocessing=steps, budget=Budget(sigma=1e-4)
    )
    model.fit(X, y, subjects=range(600))
    for who in range(12):
        model.forget([who])
    assert len(found) > 12
    assert all(error <= bound for error, bound, _ in found)
    assert sum(bound < 0.9 * longer for _, bound, longer in found) > 5


@pytest.mark.parametrize("loss", ["huber", "squared_hinge"])
def test_answers_beside_kinks_need_no_other_anchor(loss: Any) -> None:
    """Of a rare flag a few rows have all the curvature, and the way may take them."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((9000, 6))
    X[:, 5] = rng.random(9000) < 0.003
    y: Any = X[:, 0] - X[:, 1] + rng.standard_t(2, 9000)
    model: Any = LinearRegression(loss=loss, alpha=1e-4, budget=SMALL)
    if loss == "squared_hinge":
        model, y = LogisticRegression(loss=loss, alpha=1e-3, budget=SMALL), y > 0.0
    model.fit(X, y, subjects=range(9000))
    first = private_model(model).answer.state.anchor
    for who in range(0, 70, 7):
        model.forget([who])
        answer = private_model(model).answer
        assert answer.decisions != ("retrained",) and answer.fits(SMALL)
        distance, doubt = error_of(model)
        assert distance <= answer.radius.value + doubt
        assert answer.state.anchor is first


def test_targets_and_several_outputs_are_looked_at_too() -> None:
    rng = np.random.default_rng(5)
    X, _ = data(3000)
    y = X @ rng.standard_normal((N_COLUMNS, 3)) + rng.standard_normal((3000, 3))
    model = LinearRegression(alpha=1e-3, budget=SMALL)
    model.fit(X, y, subjects=range(3000))
    for who in range(4):
        model.forget([who])
        assert private_model(model).answer.decisions == (MEASURED,)
        distance, doubt = error_of(model)
        assert distance <= private_model(model).answer.radius.value + doubt


def test_a_long_stream_stays_near_retraining() -> None:
    """People with several rows leave, others come; hundreds of requests."""
    n_rows, n_requests = 4000, either(120, thorough=500)
    X, y = data(n_rows)
    owners = np.arange(n_rows) // 3
    model = LogisticRegression(alpha=1e-3, budget=SMALL)
    first = owners < 1200
    model.fit(X[first], y[first], subjects=owners[first])
    coming = iter(range(1200, 1320))
    seen = set()
    for who in range(n_requests):
        model.forget([who])
        if who % 5 == 4:
            new = owners == next(coming)
            model.add(X[new], y[new], subjects=owners[new])
        private = private_model(model)
        assert private.answer.fits(SMALL)
        seen.add(private.answer.decisions[0])
        if who % 20 == 19:
            distance, doubt = error_of(model)
            assert distance <= private.answer.radius.value + doubt
    assert MEASURED in seen and "retrained" not in seen


def test_a_saved_model_goes_on_from_its_last_look(tmp_path: Any) -> None:
    from expunge import load

    model = fitted(n_rows=3000, random_state=0)
    for who in range(5):
        model.forget([who])
    model.save(tmp_path / "model")
    again: Any = load(tmp_path / "model")
    for one in (model, again):
        one.forget([9])
    one, other = (private_model(each).answer for each in (model, again))
    assert one.n_looks == other.n_looks == 6
    np.testing.assert_array_equal(one.draft.theta, other.draft.theta)


def test_rounding_counts_the_additions_of_a_block_and_of_the_tree(
    rng: np.random.Generator,
) -> None:
    X = (rng.normal(size=(50_001, 1)) * 10.0 ** rng.uniform(-6, 6, (50_001, 1))).astype(
        np.float32
    )
    y = rng.integers(-9, 10, size=len(X)).astype(np.float64)
    rows = Rows(X.astype(np.float64), y, np.ones(len(X)))
    # Of float32 and small integers: each product is exact.
    products = (-y * rows.dense()[:, 0]).tolist()
    found = loss_slopes(HalfSquared(), rows, theta=np.zeros(1))[0]
    assert rows.n_additions == 2048 + 5
    lost = abs(found - fsum(products))
    assert lost <= rows.n_additions * UNIT_ROUNDOFF * fsum(map(abs, products))


def test_no_part_of_the_rows_adds_more_often_than_the_whole() -> None:
    """Whoever sums what is left afresh counts no more than sums that were changed."""

    def additions(n_rows: int) -> int:
        return Rows(np.zeros((n_rows, 1)), np.zeros(0), np.zeros(0)).n_additions

    sizes = (1, 2, 1000, 1024, 2047, 2048, 2049, 4095, 4096, 5000, 40_000, 65_536)
    for one in sizes:
        for other in sizes:
            both = additions(one + other)
            assert max(additions(one), additions(other)) <= both
            assert both <= additions(one) + additions(other) + 1


def test_without_a_floor_nothing_is_claimed() -> None:
    X, y = data(300)
    objective = Objective(Logistic(), L2(), alpha=1e-2)
    rows = objective.rows(X, np.where(y, 1.0, -1.0))
    model = PrivateModel.fit(objective, rows)
    state, draft = model.answer.state, model.answer.draft
    bare = state.replace(sums=state.sums.replace(hessian=None, moment=None))
    seen = measure_gradient(bare, draft, remaining=rows)
    assert Radii(bare, seen, remaining=rows).best().value < inf  # by the penalty
    assert "residual-local" not in {kind for kind, _ in Radii(bare, seen)._kinds()}
