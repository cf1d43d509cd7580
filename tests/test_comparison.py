# SPDX-License-Identifier: Apache-2.0
"""The contenders of the comparison: each keeps the protocol and follows its theory."""

from math import inf, log, sqrt

import numpy as np
import pytest
from scipy import sparse

from benchmarks.comparison import contenders_exact
from benchmarks.comparison.contenders import CONTENDERS
from benchmarks.comparison.contenders_exact import (
    COLD,
    WARM,
    FreshHessian,
    by_newton_cg,
    by_our_newton,
    fastest_solver,
)
from benchmarks.comparison.contenders_ours import JACKKNIFE, NEWTON, RESCALED, Apriori
from benchmarks.comparison.contenders_rows import Remaining, row_bytes
from benchmarks.comparison.descent import Descent, contraction
from benchmarks.comparison.printed import Printed
from benchmarks.comparison.protocol import (
    Contender,
    Problem,
    Promise,
    Session,
    add_noise,
)
from expunge import L1, L2, HalfSquared, Logistic, Objective
from expunge.core.arrays import Index, Vector
from expunge.core.penalties import Penalty
from expunge.core.solver import minimise
from expunge.core.sums import loss_slopes
from expunge.exceptions import NotCertifiable, UnknownRows, Unsupported
from expunge.promise.budget import mu_of
from expunge.promise.capacity import Regularity, jackknife_radius, regularity_of
from tests.cases import distance, logistic_data
from tests.printed import proximal_update, smooth_update

PROMISE = Promise()
REQUESTS = [np.arange(4), np.array([7]), np.array([30, 12])]
GONE = np.concatenate(REQUESTS)
SMOOTH_ONLY = ("Guo", "D2D")


def problem(penalty: Penalty, copies: int = 1, scaling: str = "mean") -> Problem:
    """Return a small problem; all rows several times over if asked."""
    X, y = logistic_data(np.random.default_rng(3), 150, 5)
    ridge = 0.0 if penalty.smooth else 0.02
    objective = Objective(
        Logistic(),
        penalty,
        alpha=0.05,
        ridge=ridge,
        scaling="mean" if scaling == "mean" else "sum",
    )
    train = objective.rows(np.tile(X[:120], (copies, 1)), np.tile(y[:120], copies))
    return Problem("small", objective, train, objective.rows(X[120:], y[120:]))


def retrained(given: Problem, gone: Index = GONE) -> Vector:
    """Return the only oracle."""
    rows = given.train.without(gone)
    kept = rows.total_weight / given.train.total_weight
    return minimise(given.objective.after(kept), rows).theta


def after(contender: Contender, given: Problem) -> Session:
    """Return a session that has answered all requests."""
    session = contender.start(given, seed=0)
    for removed in REQUESTS:
        session.forget(removed)
    return session


def known(given: Problem) -> Regularity:
    return regularity_of(given.objective, float(given.train.norms().max()))


@pytest.mark.parametrize("penalty", [L2(), L1()], ids=["L2", "L1"])
@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda c: c.name)
def test_contender_keeps_the_protocol(contender: Contender, penalty: Penalty) -> None:
    given = problem(penalty)
    if contender.name in SMOOTH_ONLY and not penalty.smooth:
        with pytest.raises(Unsupported, match="leave this contender out"):
            contender.start(given, seed=0)
        return
    before = given.train.X.copy()
    session = after(contender, given)
    theta = session.theta().copy()
    assert theta.shape == (5,)
    assert np.isfinite(theta).all()
    moved = distance(retrained(given), minimise(given.objective, given.train).theta)
    if contender.name != "printed":
        assert distance(theta, retrained(given)) < moved
    assert session.state_bytes() >= theta.nbytes
    assert 0.0 <= session.noise(PROMISE) < inf
    assert session.noise(Promise(epsilon=0.5)) > session.noise(PROMISE)
    first, again, other = (
        session.release(PROMISE, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    np.testing.assert_array_equal(session.theta(), theta)  # asking changes nothing
    np.testing.assert_array_equal(given.train.X, before)
    assert session.retrainings == (3 if contender.name.startswith("RT") else 0)


def test_names_are_distinct() -> None:
    names = [contender.name for contender in CONTENDERS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("scaling", ["mean", "sum"])
@pytest.mark.parametrize("penalty", [L2(), L1()], ids=["L2", "L1"])
@pytest.mark.parametrize("contender", [COLD, WARM], ids=lambda c: c.name)
def test_retraining_is_exact(
    contender: Contender, penalty: Penalty, scaling: str
) -> None:
    given = problem(penalty, scaling=scaling)
    session = after(contender, given)
    assert distance(session.theta(), retrained(given)) < 1e-8
    assert session.noise(PROMISE) < 1e-8


def test_both_cold_solvers_find_the_minimiser() -> None:
    given = problem(L2())
    ours, theirs = (
        solver(given.objective, given.train) for solver in (by_our_newton, by_newton_cg)
    )
    assert theirs.residual <= 1e-10
    assert distance(ours.theta, theirs.theta) < 1e-8
    assert fastest_solver(given) in (by_our_newton, by_newton_cg)
    assert fastest_solver(problem(L1())) is by_our_newton


def test_solver_that_stops_short_is_helped_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem(L2())
    right = minimise(given.objective, given.train).theta
    short: Vector = right + 1e-6
    monkeypatch.setattr(contenders_exact, "scikit_learn", lambda *_: short)
    solution = by_newton_cg(given.objective, given.train)
    assert distance(solution.theta, right) < 1e-12


@pytest.mark.parametrize("scaling", ["mean", "sum"])
@pytest.mark.parametrize("penalty", [L2(), L1()], ids=["L2", "L1"])
def test_fresh_hessian_is_our_newton(penalty: Penalty, scaling: str) -> None:
    given = problem(penalty, scaling=scaling)
    fresh, ours = after(FreshHessian(), given), after(NEWTON, given)
    assert distance(fresh.theta(), ours.theta()) < 1e-9
    assert fresh.noise(PROMISE) == pytest.approx(ours.noise(PROMISE), rel=1e-6)


@pytest.mark.parametrize("contender", [JACKKNIFE, NEWTON, RESCALED, Apriori()])
def test_error_is_of_second_order_and_within_the_noise(contender: Contender) -> None:
    errors = []
    for copies in (4, 16):
        given = problem(L2(), copies)
        session = after(contender, given)
        errors.append(distance(session.theta(), retrained(given)))
        hidden = session.noise(PROMISE) * mu_of(PROMISE.epsilon, PROMISE.delta)
        assert errors[-1] <= hidden
    # Four times as many rows, the same people removed: a sixteenth of the error.
    assert 12.0 < errors[0] / errors[1] < 21.0


def test_apriori_noise_is_the_corrected_lemma() -> None:
    given = problem(L2())
    session = after(Apriori(), given)
    radius = jackknife_radius(known(given), GONE.size, n_samples=len(given.train))
    wanted = radius / mu_of(PROMISE.epsilon, PROMISE.delta)
    assert session.noise(PROMISE) == pytest.approx(wanted, rel=1e-6)
    assert session.noise(PROMISE) > 10.0 * after(JACKKNIFE, given).noise(PROMISE)


def test_apriori_proves_nothing_without_a_bounded_slope() -> None:
    objective = Objective(HalfSquared(), L2(), alpha=0.1)
    rows = objective.rows(np.eye(6), np.arange(6.0))
    session = Apriori().start(Problem("p", objective, rows, rows), seed=0)
    session.forget(np.array([0]))
    assert session.noise(PROMISE) == inf
    with pytest.raises(NotCertifiable, match="inf"):
        session.release(PROMISE, np.random.default_rng(0))


def test_refused_request_is_answered_by_a_fit() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(30, 3))
    X[:, 2] = 0.0
    X[0, 2] = 1e3  # this row alone knows the last coefficient: leverage one
    objective = Objective(HalfSquared(), L2(), alpha=1e-6)
    rows = objective.rows(X, rng.normal(size=30))
    given = Problem("p", objective, rows, rows)
    session = RESCALED.start(given, seed=0)
    session.forget(np.array([5]))
    assert session.retrainings == 0
    session.forget(np.array([0]))
    assert session.retrainings == 1
    assert distance(session.theta(), retrained(given, np.array([0, 5]))) < 1e-8
    session.forget(np.array([9]))
    assert distance(session.theta(), retrained(given, np.array([0, 5, 9]))) < 0.1
    assert session.noise(PROMISE) < inf


def test_descent_contracts_as_promised() -> None:
    given = problem(L2())
    rate = contraction(known(given))
    session = Descent(steps=3).start(given, seed=0)
    gone = np.zeros(0, dtype=np.intp)
    for removed in REQUESTS:
        gone = np.concatenate([gone, removed])
        target = retrained(given, gone)
        before = distance(session.theta(), target)
        session.forget(removed)
        now = distance(session.theta(), target)
        assert now <= rate**3 * before
        assert 0.0 < now <= session.bound()


def test_descent_steps_have_the_length_of_the_theorem() -> None:
    given, at = problem(L2()), known(problem(L2()))
    session = Descent(steps=1).start(given, seed=0)
    start, rest = session.theta(), given.train.without(np.array([3]))
    slopes = loss_slopes(given.objective.loss, rest, theta=start) / len(rest)
    gradient = slopes + given.objective.quadratic_gradient(start)
    session.forget(np.array([3]))
    length = 2.0 / (at.hessian_bound + at.strong_convexity)
    np.testing.assert_allclose(session.theta(), start - length * gradient, rtol=1e-12)


def test_descent_noise_is_the_theorem() -> None:
    given, steps = problem(L2()), 6
    session = Descent(steps=steps).start(given, seed=0)
    session.forget(np.array([3]))
    at, n = known(given), len(given.train)
    left = contraction(at) ** steps
    depth = log(1.0 / PROMISE.delta)
    theirs = 4.0 * sqrt(2.0) * (0.5 * at.lipschitz) * left
    theirs /= at.strong_convexity * n * (1.0 - left)
    theirs /= sqrt(depth + PROMISE.epsilon) - sqrt(depth)
    assert session.noise(PROMISE) == pytest.approx(theirs)
    session.forget(np.array([5, 6, 7]))
    session.forget(np.array([9]))
    assert session.noise(PROMISE) == pytest.approx(3.0 * theirs)
    session.forget(np.arange(20, 80))
    assert session.noise(PROMISE) == inf


def test_descent_refuses_what_it_cannot_prove() -> None:
    given = problem(L2(), scaling="sum")
    with pytest.raises(Unsupported, match="scaling='sum'"):
        Descent().start(given, seed=0)
    objective = Objective(HalfSquared(), L2(), alpha=0.1)
    rows = objective.rows(np.eye(3), np.ones(3))
    with pytest.raises(Unsupported, match="HalfSquared"):
        Descent().start(Problem("p", objective, rows, rows), seed=0)


def test_printed_smooth_update_is_off_to_first_order() -> None:
    errors, moves = [], []
    for copies in (4, 16):
        given = problem(L2(), copies)
        target = retrained(given)
        errors.append(distance(after(Printed(), given).theta(), target))
        fitted = minimise(given.objective, given.train).theta
        moves.append(distance(fitted, target))
    # The regularised term is missing: the error falls no faster than the move itself.
    assert 3.3 < errors[0] / errors[1] < 4.7
    assert 3.3 < moves[0] / moves[1] < 4.7


def test_printed_prox_moves_although_nobody_is_removed() -> None:
    given = problem(L1())
    session = Printed().start(given, seed=0)
    fitted = session.theta()
    session.forget(np.zeros(0, dtype=np.intp))
    assert distance(session.theta(), fitted) > 0.1
    assert session.noise(PROMISE) == 0.0


def test_printed_session_is_the_printed_algorithm() -> None:
    for penalty, update in ((L2(), smooth_update), (L1(), proximal_update)):
        given = problem(penalty)
        theta = minimise(given.objective, given.train).theta
        gone = given.train.take(GONE)
        wanted = update(given.objective, given.train, theta, gone)
        assert distance(after(Printed(), given).theta(), wanted) < 1e-10


@pytest.mark.parametrize("penalty", [L2(), L1()], ids=["L2", "L1"])
def test_printed_noise_grows_as_printed(penalty: Penalty) -> None:
    given = problem(penalty)
    session = Printed().start(given, seed=0)
    session.forget(np.array([0]))
    unit = session.noise(PROMISE)
    session.forget(np.array([1]))
    session.forget(np.array([2]))
    # Increments 1, 3, 5 in quadrature for a smooth penalty; 3^2 at once for a kink.
    wanted = sqrt(1 + 9 + 25) if penalty.smooth else 9.0
    assert session.noise(PROMISE) == pytest.approx(wanted * unit)


def test_printed_needs_strong_convexity_for_its_noise() -> None:
    objective = Objective(Logistic(), L1(), alpha=0.02)
    X, y = logistic_data(np.random.default_rng(0), 60, 3)
    rows = objective.rows(X, y)
    session = Printed().start(Problem("p", objective, rows, rows), seed=0)
    assert session.noise(PROMISE) == inf


@pytest.mark.parametrize("as_sparse", [False, True])
def test_remaining_rows_are_those_not_removed(as_sparse: bool) -> None:
    dense = problem(L2())
    X = sparse.csr_array(dense.train.X) if as_sparse else dense.train.X
    train = dense.objective.rows(X, dense.train.y)
    remaining = Remaining(train)
    for removed in [*REQUESTS, np.array([119, 118, 5])]:
        gone = remaining.remove(removed)
        np.testing.assert_array_equal(gone.dense(), train.take(removed).dense())
    left = train.without(np.concatenate([GONE, [119, 118, 5]]))
    assert len(remaining.rows) == len(left)
    order = np.lexsort(remaining.rows.dense().T)
    wanted = np.lexsort(left.dense().T)
    np.testing.assert_array_equal(remaining.rows.dense()[order], left.dense()[wanted])
    np.testing.assert_array_equal(remaining.rows.y[order], left.y[wanted])
    assert row_bytes(remaining.rows) == row_bytes(left)
    people = np.setdiff1d(np.arange(120), np.concatenate([GONE, [119, 118, 5]]))
    np.testing.assert_array_equal(remaining.people, people)


@pytest.mark.parametrize("again", [[1], [50, 50]])
def test_nobody_is_removed_twice(again: list[int]) -> None:
    remaining = Remaining(problem(L2()).train)
    remaining.remove(np.array([1]))
    with pytest.raises(UnknownRows, match="removed before or are named twice"):
        remaining.remove(np.array(again))
    assert len(remaining.rows) == 119


def test_noise_has_the_deviation_asked_for() -> None:
    drawn = add_noise(np.full(4000, 2.0), 3.0, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(2.0, abs=0.2)
    assert drawn.std() == pytest.approx(3.0, rel=0.05)
