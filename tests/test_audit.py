# SPDX-License-Identifier: Apache-2.0
"""The audit can fail: broken builds are caught, sound ones pass, bounds are bounds."""

import copy
import pickle
from dataclasses import replace
from functools import cache
from math import sqrt
from typing import Literal

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest

from benchmarks.audit import (
    BUILDS,
    N_DRAWS,
    SEEDS,
    Found,
    PrintedNoise,
    answer_case,
    budget_for,
    cluster,
    dissenters,
    half_the_noise,
    rank_one_step,
)
from expunge import L2, HalfSquared, Jackknife, Logistic, Multinomial, Newton, Objective
from expunge.audit import (
    AuditOptions,
    Case,
    CaseModels,
    ModelPair,
    attack_membership,
    attack_reconstruction,
    audit,
    examine,
    fit_models,
    reconstruct_direction,
)
from expunge.audit.comparison import (
    ALL_SHARES,
    BLOCK,
    NOT_SHOWN,
    advantage_bound,
    count_best_event,
    draw_releases,
    gaussian_bound,
    lower_probability,
    make_ratio_bound,
    upper_probability,
)
from expunge.core.arrays import Vector
from expunge.exceptions import InvalidInput
from expunge.private_model.model import PrivateModel
from expunge.promise.budget import Budget, delta_of, epsilon_of
from expunge.promise.capacity import jackknife_radius, regularity_of
from expunge.promise.floor import strong_convexity
from expunge.promise.noise import SeededNoise
from expunge.promise.radius import best_radius, third_order_bound
from expunge.promise.rounding import Rounding
from expunge.removal import Draft, measure_gradient
from tests.instances import labelled

BUDGET = Budget(sigma=0.5, allow_seeded=True)
LOGISTIC = Objective(Logistic(), L2(), 0.05)
SQUARED = Objective(HalfSquared(), L2(), 0.1)


@cache
def found(build: str) -> tuple[Found, ...]:
    """Audit a broken build and its counterpart on every seed."""
    return tuple(BUILDS[build](seed, N_DRAWS) for seed in range(SEEDS))


@pytest.mark.parametrize("build", BUILDS)
def test_broken_build_is_caught_on_every_seed(build: str) -> None:
    reports = [each.broken for each in found(build)]
    assert len(reports) == 20
    assert [report.passes for report in reports] == [False] * 20
    assert all(report.confidence == 0.99 for report in reports)
    assert all(report.mu_lower > report.mu_claimed for report in reports)
    assert "breaks its budget" in str(reports[0])


@pytest.mark.parametrize("build", BUILDS)
def test_sound_counterpart_passes_on_every_seed(build: str) -> None:
    reports = [each.sound for each in found(build)]
    assert [report.passes for report in reports] == [True] * 20
    broken = found(build)[0].broken
    assert broken.epsilon_claimed == reports[0].epsilon_claimed == 1.0
    assert broken.n_draws == reports[0].n_draws


def test_sound_builds_are_not_let_off_by_being_far_from_their_limit() -> None:
    # This one uses its budget up; the bound comes near the claim and stays below.
    tight = [each.sound.epsilon_lower for each in found("half the noise")]
    assert 0.5 < min(tight) and max(tight) < 1.0


def test_half_the_noise_is_caught_without_assuming_a_shape() -> None:
    for seed in range(3):
        reports = half_the_noise(seed, 400_000)
        assert reports.broken.epsilon_direct > 1.0
        assert reports.sound.epsilon_direct < 1.0


def test_printed_noise_is_audited_where_the_lemma_is_nearly_attained() -> None:
    case = dissenters(0)
    known = regularity_of(case.objective, row_norm=1.0)
    worlds = fit_models(case, Budget(sigma=1.0)).worlds
    error = float(np.linalg.norm(worlds.first - worlds.second))
    claimed = jackknife_radius(known, 50, n_samples=len(case.rows))
    assert 0.4 * claimed < error <= claimed  # the claimed radius itself holds
    noise = PrintedNoise(1.0, 2.0**-20, seed=0).draw(20_000)
    assert np.std(noise) == pytest.approx(2500 / 6.12, rel=0.02)  # E5


def test_rank_one_is_refused_by_the_computed_residual() -> None:
    # What the audit finds from outside, the radius knows from inside.
    case = cluster(0, Objective(Logistic(), L2(), alpha=1.0))
    state, _ = answer_case(case)
    s = rank_one_step(state, case.rows.take(case.removed))
    draft = measure_gradient(
        state, Draft(state.anchor + s, np.zeros(4)), remaining=case.remaining
    )
    claimed = third_order_bound(Rounding(state), s) / strong_convexity(Rounding(state))
    radius = best_radius(state, draft, remaining=case.remaining).value
    assert radius > 10.0 * budget_for(claimed).radius_budget(4)


class Uneven:
    """Noise that is larger once so many numbers are drawn."""

    source: Literal["seeded"] = "seeded"

    def __init__(self, factor: float, after: int) -> None:
        self._noise = SeededNoise(BUDGET.deviation, BUDGET.grid, 3)
        self._factor, self._left = factor, after

    def draw(self, n_parameters: int) -> Vector:
        factor = 1.0 if self._left > 0 else self._factor
        self._left -= n_parameters
        return factor * self._noise.draw(n_parameters)


def test_noise_of_unequal_size_is_caught_with_equal_models() -> None:
    # As when sigma follows the realised distance: E15.
    pair, n = ModelPair(np.zeros(5), np.zeros(5)), 10_000
    assert examine(pair, AuditOptions(BUDGET, Uneven(1.0, 5 * n), n)).passes
    assert not examine(pair, AuditOptions(BUDGET, Uneven(1.2, 5 * n), n)).passes


def test_an_honest_build_at_its_limit_fails_rarely() -> None:
    # Exactly at the radius budget: the probability of failing is at most 1 %.
    pair = ModelPair(np.array([BUDGET.radius_budget(1)]), np.zeros(1))
    noise = SeededNoise(BUDGET.deviation, BUDGET.grid, 11)
    options = AuditOptions(BUDGET, noise, n_draws=2_000)
    reports = [examine(pair, options) for _ in range(500)]
    assert sum(not report.passes for report in reports) <= 5
    assert np.median([report.mu_lower for report in reports]) > 0.0
    eager = replace(options, confidence=0.2)
    assert any(not examine(pair, eager).passes for _ in range(50))


def test_audit_draws_the_releases_that_the_library_draws() -> None:
    rows = LOGISTIC.rows(*labelled("logistic", np.random.default_rng(0), 200))
    gone = np.arange(10)
    case = Case(LOGISTIC, rows, gone, Jackknife())
    custody = PrivateModel.fit(LOGISTIC, rows, mechanism=Jackknife(), budget=BUDGET)
    custody = custody.forget(rows.take(gone), remaining=rows.without(gone))
    one = SeededNoise(BUDGET.deviation, BUDGET.grid, 5)
    theirs = [custody.release(one)[1].theta for _ in range(120)]
    options = AuditOptions(BUDGET, None, n_draws=120)
    other = SeededNoise(BUDGET.deviation, BUDGET.grid, 5)
    ours = list(draw_releases(fit_models(case, BUDGET).removed, options, noise=other))
    assert np.array_equal(np.concatenate(ours), np.array(theirs))


def test_blocks_of_releases_are_all_made() -> None:
    noise = SeededNoise(BUDGET.deviation, BUDGET.grid, 0)
    size, n = BLOCK // 64, 150
    options = AuditOptions(BUDGET, n_draws=n)
    blocks = draw_releases(np.zeros(size), options, noise=noise)
    sizes = [len(block) for block in blocks]
    assert sizes == [64, 64, 22]


def test_retraining_cannot_be_told_from_retraining_with_secure_noise() -> None:
    case = cluster(1, SQUARED)
    report = audit(
        replace(case, mechanism=Newton()), AuditOptions(BUDGET, n_draws=1_000)
    )
    assert report.passes
    assert report.epsilon_lower < 0.3


def test_joint_releases_are_held_to_their_share() -> None:
    joint = replace(BUDGET, releases=16)
    distance = 0.9 * BUDGET.radius_budget(1)  # within the budget of one release
    pair = ModelPair(np.array([distance]), np.zeros(1))
    noise = SeededNoise(BUDGET.deviation, BUDGET.grid, 7)
    assert examine(pair, AuditOptions(BUDGET, noise)).passes
    report = examine(pair, AuditOptions(joint, noise))
    assert not report.passes
    assert report.mu_claimed == pytest.approx(BUDGET.gdp / 4.0)
    assert delta_of(joint.gdp, report.epsilon_claimed) == pytest.approx(1e-5)


def test_report_says_what_it_does_not_show() -> None:
    sound, broken = found("half the noise")[0].sound, found("half the noise")[0].broken
    assert sound.does_not_show == NOT_SHOWN
    assert broken.does_not_show == NOT_SHOWN[1:]  # a failure is a proof
    for word in ("PASSES", "99 %", "no violation", "earlier", "private record"):
        assert word in str(sound)
    assert str(broken).startswith("FAILS")


def test_audited_models_are_private() -> None:
    case = cluster(0, SQUARED)
    made = fit_models(case, budget_for(answer_case(case)[1]))
    for value in (made, made.worlds, made.presence, made.history):
        assert repr(value).endswith("(private)")
        for attempt in (pickle.dumps, copy.copy):
            with pytest.raises(TypeError, match="private and noise-free"):
                attempt(value)


@pytest.mark.parametrize("fault", [{"n_draws": 99}, {"confidence": 1.0}])
def test_audit_that_could_find_nothing_is_refused(fault: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(fault))):
        AuditOptions(BUDGET, **fault)  # type: ignore[arg-type]


def test_bounds_on_probabilities_are_clopper_pearsons() -> None:
    for hits, n in ((0, 40), (1, 40), (17, 40), (40, 40)):
        interval = binomtest(hits, n).proportion_ci(0.98, method="exact")
        count = np.array([float(hits)])
        assert lower_probability(count, n, level=0.01)[0] == pytest.approx(interval.low)
        assert upper_probability(count, n, level=0.01)[0] == pytest.approx(
            interval.high
        )


def test_bounds_are_attained_by_what_they_bound() -> None:
    mu, p = 0.7, np.array([0.3])
    q = ndtr(ndtri(p) - mu)
    assert gaussian_bound(p, q)[0] == pytest.approx(mu)
    assert advantage_bound(p, q)[0] == pytest.approx(float(p[0] - q[0]))
    epsilon, delta = 1.3, 0.01
    assert make_ratio_bound(delta)(np.exp(epsilon) * q + delta, q)[0] == pytest.approx(
        epsilon
    )
    assert make_ratio_bound(delta)(np.zeros(1), q)[0] < -100.0


@pytest.mark.parametrize("mu", [0.01, 0.268, 1.0, 6.0])
def test_epsilon_of_inverts_delta_of(mu: float) -> None:
    epsilon = epsilon_of(mu, 1e-5)
    assert delta_of(mu, epsilon) == pytest.approx(1e-5, rel=1e-6)
    assert epsilon_of(0.0, 1e-5) == epsilon_of(1e-6, 1e-5) == 0.0


def test_event_is_counted_on_draws_that_did_not_choose_it() -> None:
    # The first half is told apart perfectly, the second not at all.
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 1, 4_000))
    first[0, :2_000] += 100.0
    for bound in (gaussian_bound, make_ratio_bound(1e-5)):
        counts = count_best_event(
            (first, second), bound, level=0.005, shares=ALL_SHARES
        )
        assert counts.lower(bound, 0.005) < 0.1


@cache
def stranger() -> tuple[Case, CaseModels, Budget]:
    """Return the removal of one long row with the wrong label, and its models."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(200, 10))
    X[0] *= 2.0
    y = np.sign(X[:, 0] + rng.logistic(size=200))
    y[0] = -np.sign(X[0, 0])
    objective = Objective(Logistic(), L2(), alpha=0.01)
    case = Case(objective, objective.rows(X, y), np.arange(1))
    budget = Budget(sigma=0.03, allow_seeded=True)
    return case, fit_models(case, budget), budget


def test_membership_shows_before_the_removal_and_not_after() -> None:
    case, made, budget = stranger()
    person = case.rows.take(case.removed)
    options = AuditOptions(budget, SeededNoise(budget.deviation, budget.grid, 1))
    before = attack_membership(
        made.presence, case.objective, person=person, options=options
    )
    after = attack_membership(
        made.worlds, case.objective, person=person, options=options
    )
    assert before.low > 0.2 > before.covered
    assert after.low <= after.advantage <= after.high
    assert after.low <= after.covered == pytest.approx(0.1066, abs=1e-4)
    assert "says nothing" in str(before)
    with pytest.raises(InvalidInput, match="no rows"):
        attack_membership(
            made.worlds,
            case.objective,
            person=case.rows.take(slice(0, 0)),
            options=options,
        )


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_membership_looks_at_all_outputs_and_rows(weight: float) -> None:
    objective = Objective(Multinomial(3), L2(), 0.05)
    X, y = labelled("multinomial", np.random.default_rng(3), 60)
    person = objective.rows(X[:2], y[:2], np.full(2, weight))
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 18))
    options = AuditOptions(BUDGET, SeededNoise(1e-3, 2.0**-30, 0), n_draws=400)
    assert (
        attack_membership(
            ModelPair(one, other), objective, person=person, options=options
        ).low
        > 0.9
    )
    assert (
        attack_membership(
            ModelPair(one, one), objective, person=person, options=options
        ).low
        < 0.1
    )


def test_reconstruction_finds_the_removed_row() -> None:
    case, made, budget = stranger()
    person, known = case.rows.take(case.removed), case.rows.take(slice(100, 200))
    noise = SeededNoise(1e-4, budget.grid, 1)
    traced = attack_reconstruction(
        made.history,
        case.objective,
        person=person,
        known=known,
        options=AuditOptions(budget, noise),
    )
    assert traced.exact > 0.9
    assert traced.low > 0.9 > traced.chance == pytest.approx(1.0 / sqrt(10))
    guess = reconstruct_direction(made.history, case.objective, known=known)
    x = person.dense()[0]
    cosine = abs(guess @ x) / np.linalg.norm(x)
    assert cosine == pytest.approx(traced.exact)
    assert "says nothing" in str(traced)
    loud = AuditOptions(budget, SeededNoise(3.0, budget.grid, 1))
    hidden = attack_reconstruction(
        made.history, case.objective, person=person, known=known, options=loud
    )
    assert hidden.high < 1.2 * hidden.chance
    with pytest.raises(InvalidInput, match="looks for one"):
        attack_reconstruction(
            made.history, case.objective, person=known, known=known, options=loud
        )


def test_reconstruction_of_nothing_is_blind() -> None:
    case, made, _ = stranger()
    guess = reconstruct_direction(
        ModelPair(made.before, made.before), case.objective, known=case.rows
    )
    assert not guess.any()
