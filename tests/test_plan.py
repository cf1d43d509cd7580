# SPDX-License-Identifier: Apache-2.0
"""Plans: every figure is checked by real removals, or computed another way."""

import pickle
import sys
from dataclasses import fields, replace
from functools import cache
from math import floor, inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import accuracy_score, log_loss, r2_score

from expunge import (
    L1,
    L2,
    Budget,
    ExpungeError,
    HalfSquared,
    Logistic,
    Multinomial,
    Objective,
    Rows,
)
from expunge.core.arrays import Index
from expunge.core.solver import minimise
from expunge.core.sums import predict
from expunge.exceptions import InvalidInput, MissingExtra, Unsupported
from expunge.plan import (
    PlanningLooksAtData,
    PlanOptions,
    PlanReport,
    RemovalLimit,
    plan,
    removal_orders,
)
from expunge.plan.removals import Radii, RemovalSequence, round_counts
from expunge.private_model.model import PrivateModel
from expunge.promise import capacity
from expunge.promise.budget import delta_of, mu_of
from expunge.promise.noise import SeededNoise
from expunge.removal import Jackknife, Mechanism, Newton, Polish, Rescaled, Retrain
from tests.instances import labelled

BUDGET = Budget(sigma=0.1, allow_seeded=True)
QUIET = PlanOptions(public=True, draws=8)
N_ROWS = 240


def _objective(name: str) -> Objective:
    free = Objective(Logistic(), L2(), 0.05, intercept=True)
    return {
        "logistic": replace(free, penalize_intercept=True),
        "free": free,
        "sum": Objective(Logistic(), L2(), 0.05, scaling="sum"),
        "kinked": Objective(Logistic(), L1(), 0.01, ridge=0.05),
        "multinomial": Objective(Multinomial(3), L2(), 0.05),
        "half_squared": Objective(HalfSquared(), L2(), 0.05, intercept=True),
    }[name]


NAMES = ("logistic", "free", "sum", "kinked", "multinomial", "half_squared")


@cache
def _rows(name: str) -> Rows:
    data = name if name in ("multinomial", "half_squared") else "logistic"
    return _objective(name).rows(*labelled(data, np.random.default_rng(5), N_ROWS))


MECHANISMS: dict[str, Mechanism] = {
    "newton": Newton(),
    "jackknife": Jackknife(),
    "rescaled": Rescaled(),
    "bare": Jackknife(certified=False),
}


@cache
def _planned(
    name: str, mechanism: str = "newton", budget: Budget = BUDGET
) -> PlanReport:
    chosen = MECHANISMS[mechanism]
    return plan(
        _objective(name),
        _rows(name),
        budget=budget,
        mechanism=chosen,
        options=QUIET,
    )


@cache
def _begun(
    name: str, mechanism: str = "newton", budget: Budget = BUDGET
) -> tuple[PrivateModel, dict[str, Index]]:
    custody = PrivateModel.fit(
        _objective(name), _rows(name), mechanism=MECHANISMS[mechanism], budget=budget
    )
    return custody, removal_orders(custody, _rows(name))


def _limit(report: PlanReport, kind: str) -> RemovalLimit:
    return next(limit for limit in report.limits if limit.kind == kind)


# A declared norm beyond the rows' own makes the local radii larger.
DECLARED = replace(BUDGET, row_norm=20.0)
CASES = [(name, how, BUDGET) for name in NAMES for how in ("newton", "jackknife")]
CASES += [("logistic", "rescaled", BUDGET), ("free", "newton", DECLARED)]
NAMED = [f"{name}-{how}-{budget.row_norm}" for name, how, budget in CASES]


@pytest.mark.parametrize(("name", "mechanism", "budget"), CASES, ids=NAMED)
def test_without_rows_the_count_fits_and_one_more_does_not(
    name: str, mechanism: str, budget: Budget
) -> None:
    report, rows = _planned(name, mechanism, budget), _rows(name)
    custody, orders = _begun(name, mechanism, budget)
    for limit in report.limits:
        order, count = orders[limit.order], limit.without_rows
        assert custody.forget(rows.take(order[:count])).answer.fits(
            custody.forget(rows.take(order[:count])).budget
        )
        if count < N_ROWS - 1:
            try:
                assert not custody.forget(rows.take(order[: count + 1])).answer.fits(
                    custody.forget(rows.take(order[: count + 1])).budget
                )
            except ExpungeError:
                assert dict(limit.tried)[count + 1] == inf
        assert all(
            radius <= report.allowed * (1 + 1e-9)
            for n, radius in limit.tried
            if n in round_counts(count)
        )


@pytest.mark.parametrize(("name", "mechanism", "budget"), CASES, ids=NAMED)
def test_with_rows_a_look_is_enough_until_it_is_not(
    name: str, mechanism: str, budget: Budget
) -> None:
    report, rows = _planned(name, mechanism, budget), _rows(name)
    custody, orders = _begun(name, mechanism, budget)
    for kind in ("typical", "clustered"):
        limit = _limit(report, kind)
        assert limit.with_rows >= limit.without_rows
        assert _decision(custody, rows, orders[kind][: limit.with_rows]) in (
            "accepted",
            "accepted on rows",
        )
        if limit.with_rows < N_ROWS - 1:
            then = _decision(custody, rows, orders[kind][: limit.with_rows + 1])
            assert then == limit.then
            assert not then.startswith("accepted")


def _decision(custody: PrivateModel, rows: Rows, gone: Index) -> str:
    try:
        return custody.forget(
            rows.take(gone), remaining=rows.without(gone)
        ).answer.decisions[0]
    except ExpungeError as error:
        return f"no answer ({type(error).__name__})"


def test_radii_are_those_of_a_stream() -> None:
    report, rows = _planned("logistic"), _rows("logistic")
    begun, orders = _begun("logistic")
    agreement = replace(begun.agreement, smallest_radii=True)
    for limit in report.limits:
        state = replace(begun, agreement=agreement)
        for n in range(1, 21):
            state = state.forget(rows.take(orders[limit.order][n - 1 : n]))
            if n in dict(limit.tried):
                radius = dict(limit.tried)[n]
                assert radius == pytest.approx(state.answer.radius.value, rel=1e-9)


@pytest.mark.parametrize(("name", "mechanism", "budget"), CASES, ids=NAMED)
def test_worst_is_never_easier(name: str, mechanism: str, budget: Budget) -> None:
    report = _planned(name, mechanism, budget)
    worst = _limit(report, "worst")
    for limit in report.limits:
        assert worst.without_rows <= limit.without_rows
        assert worst.with_rows <= limit.with_rows
    for each in report.noised:
        assert each.worst is None or each.typical is None or each.worst <= each.typical


def test_the_hard_orders_are_much_harder_than_chance() -> None:
    report = _planned("logistic", "jackknife")
    assert _limit(report, "worst").order in ("largest", "aligned", "opposed")
    typical = _limit(report, "typical").without_rows
    assert 0 < 3 * _limit(report, "worst").without_rows < typical < N_ROWS // 2


@pytest.mark.parametrize("name", NAMES)
def test_more_noise_never_allows_less(name: str) -> None:
    report = _planned(name, "jackknife")
    for count in ("typical", "worst"):
        counts = [getattr(each, count) for each in report.noised]
        assert counts == sorted(counts)
    more = _planned(name, "jackknife", replace(BUDGET, sigma=0.3))
    for kind in ("typical", "worst", "clustered"):
        few, many = _limit(report, kind), _limit(more, kind)
        assert few.without_rows <= many.without_rows
    # The table by sigma and a plan under that sigma agree.
    assert _limit(more, "typical").without_rows == report.noised[3].typical
    assert _limit(more, "worst").without_rows == report.noised[3].worst


@pytest.mark.parametrize("name", NAMES)
def test_noise_costs_less_when_there_is_less_of_it(name: str) -> None:
    report = _planned(name)
    losses = [each.loss for each in report.noised]
    assert losses[1:] == sorted(losses[1:])
    assert losses[0] == pytest.approx(report.noise_free.loss, rel=0.01)
    scores = [each.score for each in report.noised]
    assert scores[0] == pytest.approx(report.noise_free.score, abs=0.01)
    assert scores[0] >= scores[-2] > scores[-1]
    assert report.noise_free.score > scores[-1] >= report.noised[-1].lowest


def _releases(name: str) -> list[np.ndarray]:
    """Return predictors of eight real releases."""
    custody, noise = _begun(name)[0], SeededNoise(0.1, BUDGET.grid, 0)
    loss = custody.objective.loss
    thetas = [custody.release(noise)[1].theta for _ in range(8)]
    return [predict(loss, _rows(name), theta=theta) for theta in thetas]


def test_accuracy_is_that_of_releases() -> None:
    y, etas = _rows("logistic").y, _releases("logistic")
    found = [accuracy_score(y, np.where(eta > 0, 1.0, -1.0)) for eta in etas]
    losses = [log_loss(y, 1.0 / (1.0 + np.exp(-eta))) for eta in etas]
    here = _planned("logistic").noised[2]
    assert here.sigma == 0.1
    assert here.score == pytest.approx(np.mean(found))
    assert here.lowest == pytest.approx(min(found))
    assert here.loss == pytest.approx(np.mean(losses))


def test_classes_and_numbers_are_scored_as_such() -> None:
    y = _rows("multinomial").y
    found = [accuracy_score(y, eta.argmax(axis=1)) for eta in _releases("multinomial")]
    report = _planned("multinomial")
    assert report.metric == "accuracy"
    assert report.noised[2].score == pytest.approx(np.mean(found))
    y = _rows("half_squared").y
    report = _planned("half_squared")
    assert report.metric == "R2"
    scores = [r2_score(y, eta) for eta in _releases("half_squared")]
    assert report.noised[2].score == pytest.approx(np.mean(scores))


def test_weights_and_several_outputs_are_scored(rng: np.random.Generator) -> None:
    objective = Objective(HalfSquared(outputs=2), L2(), 0.05)
    X, y = labelled("multi_output", rng, 80)
    weight = rng.integers(0, 3, size=80).astype(float)
    rows = objective.rows(X, y, weight)
    report = plan(objective, rows, budget=BUDGET, options=QUIET)
    eta = predict(objective.loss, rows, theta=minimise(objective, rows).theta)
    share = np.average((y - eta) ** 2, axis=0, weights=weight).sum()
    spread = y - np.average(y, axis=0, weights=weight)
    total = np.average(spread**2, axis=0, weights=weight).sum()
    assert report.noise_free.score == pytest.approx(1.0 - share / total)


def test_scores_may_come_from_other_rows() -> None:
    objective = _objective("logistic")
    other = objective.rows(*labelled("logistic", np.random.default_rng(6), 50))
    options = replace(QUIET, scored_on=other)
    report = plan(objective, _rows("logistic"), budget=BUDGET, options=options)
    mine = _planned("logistic")
    assert report.noise_free.score != mine.noise_free.score
    assert report.limits == mine.limits
    assert any("planned rows" in note for note in mine.not_covered)
    assert not any("planned rows" in note for note in report.not_covered)


def test_squared_loss_is_removed_exactly_whatever_goes() -> None:
    report = _planned("half_squared")
    for kind in ("typical", "worst", "clustered"):
        assert _limit(report, kind).without_rows > 0.9 * N_ROWS


def test_equal_rows_can_all_go_but_one() -> None:
    # Hence no share c < 1 of the rows, whatever constants it is made of, bounds the
    # capacity of every data set: docs/plan.md.
    objective = _objective("logistic")
    X = np.tile([[0.3, -0.2]], (40, 1))
    rows = objective.rows(X, np.ones(40))
    report = plan(objective, rows, budget=BUDGET, options=QUIET)
    for limit in report.limits:
        assert limit.without_rows == limit.with_rows == 39
        assert limit.then == "no row left to fit"


def test_a_state_without_sums_needs_the_rows_at_once() -> None:
    for limit in _planned("logistic", "bare").limits:
        assert limit.without_rows == 0 < limit.with_rows
        assert limit.then.startswith("polished")


def test_a_sigma_that_cannot_certify_the_fit_has_no_count() -> None:
    objective, rows = _objective("logistic"), _rows("logistic")
    roomless = replace(BUDGET, tau=0.003), QUIET
    rounding = BUDGET, replace(QUIET, factors=(1e-13, 1.0))
    for budget, options in (roomless, rounding):
        report = plan(objective, rows, budget=budget, options=options)
        assert report.noised[0].typical is None and report.noised[0].worst is None
        assert report.noised[-1].typical is not None
        assert " - " in report.table()


def test_sparse_rows_are_planned_alike() -> None:
    X, y = labelled("logistic", np.random.default_rng(5), N_ROWS)
    objective = _objective("logistic")
    rows = objective.rows(sparse.csr_array(X), y)
    report = plan(objective, rows, budget=BUDGET, mechanism=Newton(), options=QUIET)
    dense = _planned("logistic")
    for mine, theirs in zip(report.limits, dense.limits, strict=True):
        assert mine.without_rows == theirs.without_rows


def test_orders_are_permutations_and_mean_what_they_say() -> None:
    custody, orders = _begun("logistic")
    rows = _rows("logistic")
    for order in orders.values():
        assert sorted(order) == list(range(N_ROWS))
    again = removal_orders(custody, rows)
    assert all(np.array_equal(orders[name], again[name]) for name in orders)
    other = removal_orders(custody, rows, seed=1)
    assert not np.array_equal(orders["typical"], other["typical"])
    assert np.array_equal(orders["largest"], other["largest"])
    centre = orders["typical"][0]
    assert orders["clustered"][0] == centre
    same = int(np.sum(rows.y == rows.y[centre]))
    assert set(rows.y[orders["clustered"][:same]]) == {rows.y[centre]}
    apart = np.linalg.norm(rows.dense() - rows.dense()[centre], axis=1)
    assert np.all(np.diff(apart[orders["clustered"][:same]]) >= -1e-9)


@pytest.mark.parametrize("name", ["logistic", "sum", "multinomial"])
def test_the_largest_effect_is_that_of_leaving_one_out(name: str) -> None:
    rows, (custody, orders) = _rows(name), _begun(name)
    objective = custody.objective.after(1.0 - 1.0 / N_ROWS)
    theta, alone = custody.answer.draft.theta, np.arange(N_ROWS)[:, None]
    others = [minimise(objective, rows.without(i), start=theta).theta for i in alone]
    moves = np.linalg.norm(np.array(others) - theta, axis=1)
    ranks = np.argsort(np.argsort(-moves))[orders["largest"]]
    assert np.corrcoef(ranks, np.arange(N_ROWS))[0, 1] > 0.999


@given(st.lists(st.floats(0, 10), min_size=1, max_size=60), st.floats(0, 10))
def test_any_radii_are_followed_to_an_edge(radii: list[float], limit: float) -> None:
    most = len(radii)

    def last(bound: float) -> int:
        table = Radii(lambda n: radii[n - 1])
        sequence = RemovalSequence(most, table, table, lambda _: "")
        return sequence.without_rows(lambda radius: radius <= bound)

    count = last(limit)
    assert count == 0 or radii[count - 1] <= limit
    assert count == most or radii[count] > limit
    assert count <= last(1.3 * limit)


def test_round_counts_end_with_the_last() -> None:
    assert [*round_counts(0), *round_counts(1)] == [1]
    assert list(round_counts(20)) == [1, 2, 5, 10, 20]
    assert list(round_counts(120)) == [1, 2, 5, 10, 20, 50, 100, 120]


def test_planning_warns_that_it_looks() -> None:
    objective, rows = _objective("logistic"), _rows("logistic")
    with pytest.warns(PlanningLooksAtData, match="public or held-out") as caught:
        report = plan(objective, rows, budget=BUDGET)
    assert caught[0].filename == __file__
    assert "looks at the rows" in report.table()
    silent = PlanOptions(draws=1, silent=True)
    report = plan(objective, rows, budget=BUDGET, options=silent)
    assert "looks at the rows" in report.table()
    declared = plan(objective, rows, budget=BUDGET, options=QUIET)
    assert "declared public" in declared.not_covered[0]


def test_a_report_shows_itself_only_when_asked() -> None:
    report = _planned("logistic")
    assert repr(report) == "PlanReport(private; table() shows it)"
    with pytest.raises(TypeError, match="private"):
        pickle.dumps(report)
    with pytest.raises(AttributeError):
        setattr(report, fields(report)[0].name, None)


def test_the_table_holds_the_figures() -> None:
    report = _planned("logistic")
    table = report.table()
    for limit in report.limits:
        line = next(x for x in table.splitlines() if x.startswith(limit.kind))
        assert line.split()[-5:-3] == [str(limit.without_rows), str(limit.with_rows)]
        assert line.endswith(limit.then)
        for count, radius in limit.tried:
            if count in (1, 10, 100) and radius < inf:
                assert f"{radius:.2e}" in table
    for each in report.noised:
        assert f"{each.score:.4f}" in table
    assert max(map(len, table.splitlines())) <= 88
    assert table.isascii()


@pytest.mark.parametrize("name", ["logistic", "half_squared"])
def test_a_plot_is_drawn_and_saved(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = _planned(name, "jackknife").plot(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    left, right = figure.axes
    assert left.get_xlabel() == "rows removed" and left.get_yscale() == "log"
    assert len(left.get_lines()) == 4
    assert right.get_ylabel() == _planned(name, "jackknife").metric


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"expunge\[plots\]"):
        _planned("logistic").plot()


def test_progress_is_the_same_for_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    drawn, tried = [], []
    for name in ("logistic", "half_squared"):
        options = replace(QUIET, verbose=True)
        report = plan(_objective(name), _rows(name), budget=BUDGET, options=options)
        drawn.append(capsys.readouterr().err)
        tried.append([len(limit.tried) for limit in report.limits])
        for limit in report.limits:
            assert not any(f"{radius:.4g}" in drawn[-1] for _, radius in limit.tried)
    assert tried[0] != tried[1]  # the search differs, what is shown does not
    total = 2 + 5 * len(QUIET.factors) + 3
    assert drawn[0] == drawn[1] and drawn[0].endswith(f"{total}/{total}\n")
    assert drawn[0].count("\r") == total + 1


def test_what_cannot_be_planned_is_refused() -> None:
    for mechanism in (Retrain(), Polish()):
        with pytest.raises(Unsupported, match="whatever is removed"):
            plan(
                _objective("logistic"),
                _rows("logistic"),
                budget=BUDGET,
                mechanism=mechanism,
                options=QUIET,
            )
    with pytest.raises(InvalidInput, match="draws=0"):
        PlanOptions(draws=0)
    with pytest.raises(InvalidInput, match="positive multiple"):
        PlanOptions(factors=(0.0, 1.0))


# Capacity by constants alone.

REGULAR = capacity.regularity_of(Objective(Logistic(), L2(), alpha=0.5), 1.0)


def test_ignoring_requests_is_linear_in_the_noise() -> None:
    counts = []
    for sigma in (1.0, 2.0, 4.0):
        room = replace(BUDGET, sigma=sigma).radius_budget(20)
        count = capacity.capacity_by_privacy(REGULAR, 100_000, radius_budget=room)
        # L m / (mu n) <= room
        assert count == floor(room * 0.5 * 100_000 / 2.0)
        assert capacity.drift_radius(REGULAR, count, n_samples=100_000) <= room
        assert capacity.drift_radius(REGULAR, count + 1, n_samples=100_000) > room
        counts.append(count)
    assert counts[2] == pytest.approx(2 * counts[1], abs=2)
    assert counts[1] == pytest.approx(2 * counts[0], abs=2)


def test_ignored_removals_are_hidden_by_the_noise(rng: np.random.Generator) -> None:
    objective = Objective(Logistic(), L2(), alpha=0.5)
    X, y = labelled("logistic", rng, 400)
    X /= np.linalg.norm(X, axis=1)[:, None]
    rows, budget = objective.rows(X, y), Budget(sigma=0.2)
    count = capacity.capacity_by_privacy(
        REGULAR, 400, radius_budget=budget.radius_budget(6)
    )
    assert 2 <= count < 40
    theta = minimise(objective, rows).theta
    custody = PrivateModel.fit(objective, rows)
    for order in removal_orders(custody, rows).values():
        remaining = rows.without(order[:count])
        apart = np.linalg.norm(theta - minimise(objective, remaining).theta)
        mu = float(apart) / budget.sigma
        assert delta_of(mu, budget.epsilon) <= budget.delta


def test_two_inexact_fits_leave_less_to_ignore() -> None:
    exact = capacity.capacity_by_privacy(REGULAR, 10_000, radius_budget=0.1)
    assert (
        capacity.capacity_by_privacy(REGULAR, 10_000, radius_budget=0.1, tau=0.01)
        < exact
    )
    assert capacity.capacity_by_privacy(REGULAR, 10, radius_budget=1e9) == 9
    with pytest.raises(InvalidInput, match="both fits"):
        capacity.capacity_by_privacy(REGULAR, 10_000, radius_budget=0.1, tau=0.06)
    squared = capacity.regularity_of(Objective(HalfSquared(), L2(), alpha=1.0), 1.0)
    with pytest.raises(Unsupported, match="slope is unbounded"):
        capacity.capacity_by_privacy(squared, 10_000, radius_budget=0.1)


def test_risk_under_a_budget_is_the_papers_at_its_own_sigma() -> None:
    known = capacity.CapacityPlan(REGULAR, 10_000, 20, epsilon=1.0, delta=1e-5)
    radius = capacity.drift_radius(REGULAR, 7, n_samples=10_000)
    sigma = radius / mu_of(1.0, 1e-5)
    bound = capacity.budget_risk_bound(known, 7, radius=radius, sigma=sigma)
    assert bound == pytest.approx(
        capacity.excess_risk_bound(known, 7, radius=capacity.drift_radius)
    )
    assert bound < capacity.budget_risk_bound(known, 7, radius=radius, sigma=2 * sigma)


def test_the_report_holds_what_constants_say() -> None:
    objective, budget = Objective(Logistic(), L2(), alpha=0.5), Budget(sigma=0.5)
    X, y = labelled("logistic", np.random.default_rng(5), N_ROWS)
    rows = objective.rows(X / np.linalg.norm(X, axis=1)[:, None], y)
    report = plan(objective, rows, budget=budget, options=QUIET)
    room, tau = budget.radius_budget(6), budget.solver_error(6)
    assert report.ignored == capacity.capacity_by_privacy(
        REGULAR, N_ROWS, radius_budget=room, tau=tau
    )
    assert 0 < report.ignored < _limit(report, "worst").without_rows
    most = max(limit.without_rows for limit in report.limits)
    known = capacity.CapacityPlan(REGULAR, N_ROWS, 6, epsilon=1.0, delta=1e-5)
    bound = capacity.budget_risk_bound(known, most, radius=room, sigma=0.5)
    assert report.risk == pytest.approx(bound)
    for name in ("free", "half_squared"):
        assert _planned(name).ignored is None
    for name in ("kinked", "sum"):
        assert _planned(name).ignored is not None
        assert _planned(name).risk is None
