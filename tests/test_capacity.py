# SPDX-License-Identifier: Apache-2.0
"""Risk and capacity: against simulated populations, and their rates."""

from dataclasses import replace
from math import floor

import numpy as np
import pytest

from expunge import (
    L2,
    Budget,
    HalfSquared,
    Jackknife,
    Logistic,
    Multinomial,
    Objective,
)
from expunge.core.arrays import Vector
from expunge.core.rows import Rows
from expunge.core.solver import minimise
from expunge.exceptions import InvalidInput, Unsupported
from expunge.private_model.model import PrivateModel
from expunge.promise.budget import delta_of, mu_of
from expunge.promise.capacity import (
    CapacityPlan,
    budget_risk_bound,
    capacity_by_privacy,
    deletion_capacity,
    drift_radius,
    excess_risk_bound,
    jackknife_radius,
    newton_radius,
    noise_cost,
    regularity_of,
)
from tests.cases import Removal, logistic_data
from tests.instances import labelled

RIDGED = Objective(Logistic(), L2(), alpha=0.5)
REGULAR = regularity_of(RIDGED, 1.0)
PLAN = CapacityPlan(REGULAR, 10_000, 20, epsilon=1.0, delta=1e-5)


def risk(objective: Objective, population: Rows, theta: Vector) -> float:
    """Return the objective on the whole population."""
    values = objective.loss.value(population.y, population.X @ theta)
    return float(np.average(values, weights=population.weight)) + (
        objective.penalty_value(theta)
    )


def small_population(rng: np.random.Generator) -> Rows:
    """Return twelve equally likely points of norm one."""
    X, y = logistic_data(rng, 12, 2)
    return RIDGED.rows(X / np.linalg.norm(X, axis=1)[:, None], y)


def test_noise_cost_is_attained_by_a_quadratic(rng: np.random.Generator) -> None:
    objective = Objective(HalfSquared(), L2(), alpha=0.7)
    X = rng.normal(size=(30, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    rows, sigma = objective.rows(X, np.zeros(30)), 0.4
    # Noise at +-sigma along orthogonal axes has the covariance of Gaussian noise.
    axes = sigma * np.sqrt(3.0) * np.vstack([np.eye(3), -np.eye(3)])
    mean = np.mean([risk(objective, rows, axis) for axis in axes])
    bound = noise_cost(regularity_of(objective, 1.0), 3, sigma=sigma)
    assert mean - risk(objective, rows, np.zeros(3)) == pytest.approx(bound)


def test_noise_cost_counts_every_output() -> None:
    objective = Objective(Multinomial(4), L2(), alpha=0.1)
    known = regularity_of(objective, 1.0)
    trace = float(np.trace(Multinomial(4).curvature(np.zeros(1), np.zeros((1, 4)))[0]))
    assert trace == pytest.approx(0.75)  # above k2 = 1/2: one output would not do
    assert noise_cost(known, 8, sigma=1.0) >= 0.5 * (trace + 8 * 0.1)


def test_noise_cost_holds_for_logistic_models(rng: np.random.Generator) -> None:
    population = small_population(rng)
    theta, sigma = rng.normal(size=2), 1.5
    draws = [
        risk(RIDGED, population, theta + sigma * rng.normal(size=2)) for _ in range(400)
    ]
    cost = np.mean(draws) - risk(RIDGED, population, theta)
    error = np.std(draws) / 20.0
    assert (
        0.0 < cost <= noise_cost(regularity_of(RIDGED, 1.0), 2, sigma=sigma) + 3 * error
    )


def test_excess_risk_holds_on_a_population(rng: np.random.Generator) -> None:
    population = small_population(rng)
    n, n_removed = 60, 6
    plan = CapacityPlan(regularity_of(RIDGED, 1.0), n, 2, epsilon=1.0, delta=1e-5)
    least = risk(RIDGED, population, minimise(RIDGED, population).theta)
    sigma = jackknife_radius(plan.regularity, n_removed, n_samples=n) / mu_of(1.0, 1e-5)
    learned, released = [], []
    for _ in range(60):
        rows = population.take(rng.integers(0, 12, size=n))
        case = Removal(RIDGED, rows, np.argsort(rows.y)[:n_removed])
        learned.append(risk(RIDGED, population, case.theta) - least)
        release = case.answer(Jackknife()) + sigma * rng.normal(size=2)
        released.append(risk(RIDGED, population, release) - least)
    assert 0.0 < np.mean(learned) <= excess_risk_bound(plan, 0)
    assert np.mean(learned) < np.mean(released) <= excess_risk_bound(plan, n_removed)


def test_excess_risk_grows_with_everything_that_costs() -> None:
    base = excess_risk_bound(PLAN, 10)
    assert base < excess_risk_bound(PLAN, 11)
    assert base < excess_risk_bound(replace(PLAN, n_parameters=40), 10)
    assert base < excess_risk_bound(replace(PLAN, epsilon=0.5), 10)
    assert base < excess_risk_bound(replace(PLAN, residual=1e-3), 10)
    assert base > excess_risk_bound(PLAN, 10, radius=newton_radius)


def test_capacity_is_the_last_that_fits() -> None:
    for gamma in (0.01, 0.1, 1.0):
        capacity = deletion_capacity(PLAN, gamma)
        assert 0 < capacity < PLAN.n_samples - 1
        within, beyond = (excess_risk_bound(PLAN, capacity + i) for i in (0, 1))
        assert within <= gamma < beyond
    assert deletion_capacity(PLAN, 1.0, radius=newton_radius) > deletion_capacity(
        PLAN, 1.0
    )
    assert deletion_capacity(PLAN, 1e9) == PLAN.n_samples - 1


def test_impossible_plans_are_refused() -> None:
    with pytest.raises(InvalidInput, match="nobody removed"):
        deletion_capacity(PLAN, 1e-6)
    with pytest.raises(InvalidInput, match="at least one"):
        replace(PLAN, n_parameters=0)
    squared = regularity_of(Objective(HalfSquared(), L2(), alpha=1.0), 1.0)
    with pytest.raises(Unsupported, match="slope is unbounded"):
        deletion_capacity(replace(PLAN, regularity=squared), 1.0)


def test_ignoring_requests_is_linear_in_the_noise() -> None:
    counts = []
    for sigma in (1.0, 2.0, 4.0):
        room = Budget(sigma=sigma).radius_budget(20)
        count = capacity_by_privacy(REGULAR, 100_000, radius_budget=room)
        # L m / (mu n) <= room
        assert count == floor(room * 0.5 * 100_000 / 2.0)
        assert drift_radius(REGULAR, count, n_samples=100_000) <= room
        assert drift_radius(REGULAR, count + 1, n_samples=100_000) > room
        counts.append(count)
    assert counts[2] == pytest.approx(2 * counts[1], abs=2)
    assert counts[1] == pytest.approx(2 * counts[0], abs=2)


def test_ignored_removals_are_hidden_by_the_noise(rng: np.random.Generator) -> None:
    objective = Objective(Logistic(), L2(), alpha=0.5)
    X, y = labelled("logistic", rng, 400)
    X /= np.linalg.norm(X, axis=1)[:, None]
    rows, budget = objective.rows(X, y), Budget(sigma=0.2)
    count = capacity_by_privacy(REGULAR, 400, radius_budget=budget.radius_budget(6))
    assert 2 <= count < 40
    theta = minimise(objective, rows).theta
    eta = rows.dense() @ theta
    pulls = [eta, rows.y * eta, *rows.dense().T, *(rows.dense() * y[:, None]).T]
    for pull in pulls:  # those leave who pull most in some direction
        for order in (np.argsort(pull), np.argsort(-pull)):
            remaining = rows.without(order[:count])
            apart = np.linalg.norm(theta - minimise(objective, remaining).theta)
            assert (
                delta_of(float(apart) / budget.deviation, budget.epsilon)
                <= budget.delta
            )


def test_two_inexact_fits_leave_less_to_ignore() -> None:
    exact = capacity_by_privacy(REGULAR, 10_000, radius_budget=0.1)
    assert capacity_by_privacy(REGULAR, 10_000, radius_budget=0.1, tau=0.01) < exact
    assert capacity_by_privacy(REGULAR, 10, radius_budget=1e9) == 9
    with pytest.raises(InvalidInput, match="both fits"):
        capacity_by_privacy(REGULAR, 10_000, radius_budget=0.1, tau=0.06)
    squared = regularity_of(Objective(HalfSquared(), L2(), alpha=1.0), 1.0)
    with pytest.raises(Unsupported, match="slope is unbounded"):
        capacity_by_privacy(squared, 10_000, radius_budget=0.1)


def test_risk_under_a_budget_is_the_papers_at_its_own_sigma() -> None:
    known = CapacityPlan(REGULAR, 10_000, 20, epsilon=1.0, delta=1e-5)
    radius = drift_radius(REGULAR, 7, n_samples=10_000)
    sigma = radius / mu_of(1.0, 1e-5)
    bound = budget_risk_bound(known, 7, radius=radius, sigma=sigma)
    assert bound == pytest.approx(excess_risk_bound(known, 7, radius=drift_radius))
    assert bound < budget_risk_bound(known, 7, radius=radius, sigma=2 * sigma)


def test_equal_rows_can_all_go_but_one() -> None:
    # Hence no share c < 1 of the rows, whatever constants it is made of, bounds the
    # capacity of every data set: docs/research.md.
    X = np.tile([[0.3, -0.2]], (40, 1))
    rows = RIDGED.rows(X, np.ones(40))
    model = PrivateModel.fit(RIDGED, rows, budget=Budget(sigma=0.1))
    for count in (1, 20, 39):
        after = model.forget(rows.take(np.arange(count)))
        assert after.answer.decisions == ("accepted",)
        assert after.answer.fits(model.budget)
