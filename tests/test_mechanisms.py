# SPDX-License-Identifier: Apache-2.0
"""Mechanisms: bad input leaves the state alone, and the fallbacks are taken."""

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.rescaled import Rescaled
from expunge import (
    L1,
    L2,
    ExpungeError,
    HalfSquared,
    Huber,
    Jackknife,
    Logistic,
    Newton,
    Objective,
    Retrain,
    Rows,
    learn,
    residual,
    summarise,
)
from expunge.exceptions import (
    CannotRemove,
    InvalidInput,
    NotPositiveDefinite,
    RowsRequired,
)
from expunge.removal import Mechanism, State
from expunge.removal import newton as newton_module
from tests.instances import MECHANISMS, labelled, learned, retrained

EVERY = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


def _logistic() -> tuple[Rows, State]:
    rows, summary = learned("logistic", "l2", "mean")
    return rows, Newton().init(summary)


def _copies(rows: Rows, factor: int) -> Rows:
    """Return the rows with a weight each can hardly have had."""
    return Rows(rows.X, rows.y, factor * rows.weight)


def _wider(rows: Rows) -> Rows:
    return Rows(np.hstack([rows.dense(), rows.dense()]), rows.y, rows.weight)


BAD_REQUESTS: dict[str, tuple[Callable[[Rows], Rows], type[ExpungeError], str]] = {
    "all rows": (lambda rows: rows, CannotRemove, "these rows cannot be removed"),
    "more rows than there are": (
        lambda rows: rows.take(np.arange(320) % 160),
        CannotRemove,
        "these rows cannot be removed",
    ),
    "more weight than there is": (
        lambda rows: _copies(rows.take(np.arange(2)), 80),
        CannotRemove,
        "delete the model instead",
    ),
    "too wide": (
        lambda rows: _wider(rows.take(np.arange(2))),
        InvalidInput,
        "14 columns .intercept included.; the model has 7",
    ),
}


@EVERY
@pytest.mark.parametrize("request_", BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_bad_requests_change_nothing(
    mechanism: Mechanism,
    request_: tuple[Callable[[Rows], Rows], type[ExpungeError], str],
) -> None:
    rows, summary = learned("logistic", "l2", "mean")
    make, error, message = request_
    state = mechanism.init(summary)
    before = mechanism.step(state, rows)[1].theta
    with pytest.raises(error, match=message):
        mechanism.update(state, make(rows))
    assert np.array_equal(mechanism.step(state, rows)[1].theta, before)


def test_mechanisms_that_look_at_rows_ask_for_them() -> None:
    rows, summary = learned("logistic", "l2", "mean")
    mechanism = Retrain()
    state = mechanism.update(mechanism.init(summary), rows.take(np.arange(3)))
    with pytest.raises(RowsRequired, match="pass step"):
        mechanism.step(state)
    with pytest.raises(InvalidInput, match="not those that remain"):
        mechanism.step(state, rows)
    reweighted = _copies(rows.take(np.arange(157)), 2)
    with pytest.raises(InvalidInput, match="not those that remain"):
        mechanism.step(state, reweighted)


def test_removing_rows_that_were_never_there_shows_as_indefinite() -> None:
    # A huge row has more curvature than all the training rows together.
    _, summary = learned("half_squared", "l2", "mean")
    state = Newton().init(summary)
    stranger = summary.objective.rows(np.full((1, 6), 50.0), [1.0])
    before = Newton().step(state)[1].theta
    with pytest.raises(NotPositiveDefinite, match="really in the training data"):
        Newton().update(state, stranger)
    assert np.array_equal(Newton().step(state)[1].theta, before)


@pytest.mark.parametrize("penalty", ["l1", "group_lasso"])
def test_strangers_are_noticed_by_proximal_steps_too(penalty: str) -> None:
    _, summary = learned("half_squared", penalty, "mean")
    state = Newton().init(summary)
    one_sided = summary.objective.rows(np.full((1, 6), 50.0), [1.0])
    mixed = summary.objective.rows(
        8.0 * np.array([[1.0, -1.0, 1.0, -1.0, 1.0, -1.0]]), [1.0]
    )
    for stranger in (one_sided, mixed):
        with pytest.raises(NotPositiveDefinite, match="really in the training data"):
            Newton().step(Newton().update(state, stranger))


def test_hessians_without_curvature_are_refused(rng: np.random.Generator) -> None:
    # Every residual lies on Huber's linear branch: nothing curves the intercept.
    objective = Objective(Huber(), L2(), 0.1, intercept=True)
    rows = objective.rows(rng.normal(size=(30, 2)), np.repeat([50.0, -50.0], 15))
    at_zero = summarise(objective, rows, theta=np.zeros(3))
    for mechanism in (Jackknife(), Newton(), Rescaled()):
        with pytest.raises(NotPositiveDefinite, match="set ridge > 0"):
            mechanism.init(at_zero)


def test_a_dead_feature_is_no_obstacle_to_a_proximal_step(
    rng: np.random.Generator,
) -> None:
    # L1 without ridge: H is singular, the prox in its norm is not.
    X = np.zeros((30, 2))
    X[:, 0] = rng.normal(size=30)
    objective = Objective(HalfSquared(), L1(), 0.01)
    rows = objective.rows(X, X[:, 0] + rng.normal(size=30))
    summary, gone = learn(objective, rows), np.arange(3)
    target = retrained(summary, rows.without(gone))
    newton = Newton()
    state = newton.update(newton.init(summary), rows.take(gone))
    theta = newton.step(state)[1].theta
    assert theta[1] == target[1] == 0.0
    assert abs(theta[0] - target[0]) <= 1e-13


def test_rescaled_refuses_a_leverage_of_one() -> None:
    # One row alone determines the second coefficient.
    X = np.zeros((20, 2))
    X[:, 0] = np.linspace(-1.0, 1.0, 20)
    X[0, 1] = 30.0
    objective = Objective(HalfSquared(), L2(), 1e-6)
    rows = objective.rows(X, np.arange(20.0))
    summary, gone = learn(objective, rows), rows.take(np.array([0]))
    with pytest.raises(CannotRemove, match="use Newton or Retrain"):
        Rescaled().update(Rescaled().init(summary), gone)
    # Newton factors again instead, and stays exact.
    _, draft = Newton().step(Newton().update(Newton().init(summary), gone))
    target = retrained(summary, rows.without(np.array([0])))
    # An entry of 45 cancels to the ridge of 1e-6: 45 u / 1e-6 is what can be known.
    assert np.allclose(draft.theta, target, rtol=0.0, atol=5e-8)


def test_the_downdated_inverse_alone_is_wrong_under_mean_scaling() -> None:
    # Under "mean" H_U also loses (1 - f) mu I: the Woodbury inverse misses it,
    # conjugate gradients on the exact H_U do not.
    rng = np.random.default_rng(0)
    objective = Objective(Logistic(), L2(), alpha=0.05)
    X, y = labelled("logistic", rng)
    rows = objective.rows(X, y)
    gone = np.arange(60)
    state = Newton().init(learn(objective, rows))
    for i in gone:
        state = Newton().update(state, rows.take(np.array([i])))
    assert state.preconditioner is not None
    trusted = state.anchor - state.preconditioner @ state.smooth_gradient
    _, draft = Newton().step(state)
    exact = np.linalg.solve(state.smooth_hessian().dense(), state.smooth_gradient)
    assert np.linalg.norm(draft.theta - (state.anchor - exact)) <= 1e-13
    assert np.linalg.norm(trusted - draft.theta) >= 0.01 * np.linalg.norm(exact)
    assert np.linalg.norm(residual(state, draft)) <= 1e-15 * len(rows)


def test_newton_factors_anew_when_the_preconditioner_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(newton_module, "CG_STEPS", 2)
    rows, state = _logistic()
    for i in range(80):
        state = Newton().update(state, rows.take(np.array([i])))
    later, draft = Newton().step(state)
    assert later.preconditioner is not state.preconditioner
    assert np.linalg.norm(residual(state, draft)) <= 1e-14 * len(rows)


def test_measured_gradient_is_that_of_the_leave_out_objective() -> None:
    for scaling in ("mean", "sum"):
        rows, summary = learned("logistic", "l1", scaling)
        gone = np.arange(25)
        retrain = Retrain()
        state = retrain.update(retrain.init(summary), rows.take(gone))
        _, draft = retrain.step(state, rows.without(gone))
        assert draft.measured is not None
        assert np.linalg.norm(draft.measured) <= 1e-12 * len(rows)


def test_lean_states_keep_no_more_than_they_need() -> None:
    rows, summary = learned("logistic", "l2", "mean")
    lean, full = Jackknife(certified=False).init(summary), Jackknife().init(summary)
    assert lean.sums.hessian is None and lean.sums.moment is None
    assert full.sums.hessian is not None and full.sums.moment is not None
    assert Newton(certified=False).init(summary).sums.moment is None
    retrain = Retrain().init(summary)
    assert retrain.sums.hessian is None and retrain.cache is None
    gone = rows.take(np.arange(5))
    answers = [
        mechanism.step(mechanism.update(mechanism.init(summary), gone))[1].theta
        for mechanism in (Jackknife(certified=False), Jackknife())
    ]
    assert np.array_equal(answers[0], answers[1])


def test_a_large_batch_goes_by_block_sums() -> None:
    # 40 rows of 7 parameters: sums and a fresh factor instead of 40 updates.
    rows, state = _logistic()
    gone = np.arange(40)
    batch = Newton().update(state, rows.take(gone))
    stream = state
    for i in gone:
        stream = Newton().update(stream, rows.take(np.array([i])))
    assert np.allclose(
        batch.sums.loss_hessian.dense(),
        stream.sums.loss_hessian.dense(),
        atol=1e-13,
    )
    assert batch.sums.moment is not None and stream.sums.moment is not None
    ours, theirs = batch.sums.moment.dense(), stream.sums.moment.dense()
    assert np.allclose(ours, theirs, atol=1e-12)
