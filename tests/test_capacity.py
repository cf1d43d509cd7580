# SPDX-License-Identifier: Apache-2.0
"""Risk and capacity: against simulated populations, and their rates."""

from dataclasses import replace

import numpy as np
import pytest

from expunge import L2, HalfSquared, Jackknife, Logistic, Multinomial, Objective
from expunge.core.arrays import Vector
from expunge.core.rows import Rows
from expunge.core.solver import minimise
from expunge.exceptions import InvalidInput, Unsupported
from expunge.promise.budget import mu_of
from expunge.promise.capacity import (
    CapacityPlan,
    deletion_capacity,
    excess_risk_bound,
    jackknife_radius,
    newton_radius,
    noise_cost,
    regularity_of,
)
from tests.cases import Removal, logistic_data

RIDGED = Objective(Logistic(), L2(), alpha=0.5)
PLAN = CapacityPlan(regularity_of(RIDGED, 1.0), 10_000, 20, epsilon=1.0, delta=1e-5)


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
