# SPDX-License-Identifier: Apache-2.0
"""Guo et al.'s certified removal: its bound holds, its budget runs out."""

from math import log, sqrt

import numpy as np
import pytest

from benchmarks.comparison.guo import (
    Guo,
    gram,
    mean_gradient,
    newton_step,
    perturbed_minimum,
    residual_bound,
    spectral_norm,
)
from benchmarks.comparison.protocol import Problem, Promise
from expunge import L2, Huber, Logistic, Objective, Rows
from expunge.core.arrays import Vector
from expunge.core.solver import minimise
from expunge.exceptions import Unsupported
from tests.cases import distance, logistic_data

NOTHING = np.zeros(4)


def problem(seed: int, alpha: float = 0.02, length: float = 1.0) -> Problem:
    """Return a problem whose longest row has this norm."""
    X, y = logistic_data(np.random.default_rng(seed), 90, 4)
    X *= length / np.linalg.norm(X, axis=1).max()
    objective = Objective(Logistic(), L2(), alpha=alpha)
    rows = objective.rows(X, y)
    return Problem("small", objective, rows, rows)


def left(given: Problem, rows: Rows, theta: Vector, b: Vector = NOTHING) -> float:
    """Return the norm of the gradient of L_b: a sum over the rows."""
    gradient = mean_gradient(given.objective, rows, theta, b)
    return rows.total_weight * float(np.linalg.norm(gradient))


@pytest.mark.parametrize("length", [1.0, 6.0])
@pytest.mark.parametrize("alpha", [1e-3, 1e-1])
def test_residual_is_always_below_its_bound(alpha: float, length: float) -> None:
    for seed in range(15):
        given = problem(seed, alpha, length)
        session = Guo().start(given, seed=0)
        order = np.random.default_rng(seed).permutation(90)[:40]
        for count, removed in enumerate(np.split(order, [1, 2, 5, 20]), start=1):
            session.forget(removed)
            gone = np.concatenate(np.split(order, [1, 2, 5, 20])[:count])
            remaining = given.train.without(gone)
            assert left(given, remaining, session.theta()) <= session.bound()


def test_bound_needs_the_length_of_the_rows() -> None:
    given = problem(1, 1e-2, length=50.0)
    theta = minimise(given.objective, given.train).theta
    worst = np.argmin(given.train.y * (given.train.X @ theta))
    rest = given.train.without(np.array([worst]))
    step = newton_step(given.objective, rest, theta, NOTHING)
    actual, width = left(given, rest, theta + step), spectral_norm(gram(rest))
    loss = given.objective.loss
    assert actual <= residual_bound(loss, rest, step, 50.0 * width)
    assert actual > residual_bound(loss, rest, step, width)  # as printed, |x| <= 1


def test_spectral_norm_is_the_largest_singular_value() -> None:
    rows = problem(1).train
    weighted = Rows(rows.X, rows.y, np.linspace(0.0, 2.0, 90))
    scaled = rows.dense() * np.sqrt(weighted.weight)[:, None]
    largest = float(np.linalg.norm(scaled, 2))
    assert spectral_norm(gram(weighted)) == pytest.approx(largest, rel=1e-8)


def test_perturbed_fit_is_stationary() -> None:
    given, b = problem(2), np.array([3.0, -1.0, 0.5, 8.0])
    theta = perturbed_minimum(given.objective, given.train, np.zeros(4), b)
    assert left(given, given.train, theta, b) < 1e-7
    plain = perturbed_minimum(given.objective, given.train, np.zeros(4), NOTHING)
    assert distance(plain, minimise(given.objective, given.train).theta) < 1e-8
    assert distance(theta, plain) > 0.1


def test_steps_follow_retraining() -> None:
    given = problem(3)
    session = Guo().start(given, seed=0)
    for row in range(10):
        session.forget(np.array([row]))
    remaining = given.train.without(np.arange(10))
    error = distance(session.theta(), minimise(given.objective, remaining).theta)
    # The gradient's bound over the strong convexity of the sum.
    assert error <= session.bound() / (given.objective.alpha * len(remaining))


def test_noise_is_what_the_budget_would_have_needed() -> None:
    given, promise = problem(4), Promise(epsilon=0.7, delta=1e-4)
    session = Guo().start(given, seed=0)
    assert session.noise(promise) == 0.0
    session.forget(np.arange(5))
    c = sqrt(2.0 * log(1.5 / 1e-4))
    assert session.noise(promise) == pytest.approx(c * session.bound() / 0.7)


def test_model_is_retrained_when_the_budget_is_spent() -> None:
    given, promise = problem(5), Promise()
    need = Guo().start(given, seed=0)
    for row in range(6):
        need.forget(np.array([row]))
    sigma = 1.5 * need.noise(promise)
    session = Guo(sigma=sigma).start(given, seed=0)
    first = session.theta()
    for row in range(6):
        session.forget(np.array([row]))
    assert session.retrainings == 0
    assert 0.0 < session.noise(promise) <= sigma
    for row in range(6, 40):
        session.forget(np.array([row]))
    assert session.retrainings > 0
    assert session.noise(promise) <= sigma
    assert distance(first, Guo(sigma=sigma).start(given, seed=1).theta()) > 0.0
    np.testing.assert_array_equal(first, Guo(sigma=sigma).start(given, seed=0).theta())
    published = session.release(promise, np.random.default_rng(0))
    np.testing.assert_array_equal(published, session.theta())


def test_release_is_the_perturbed_model_after_the_same_requests() -> None:
    given, promise = problem(6), Promise()
    session = Guo().start(given, seed=0)
    for removed in (np.arange(3), np.array([40, 17])):
        session.forget(removed)
    published = session.release(promise, np.random.default_rng(8))
    b = np.random.default_rng(8).normal(0.0, session.noise(promise), 4)
    remaining = given.train.without(np.array([0, 1, 2, 40, 17]))
    target = perturbed_minimum(given.objective, remaining, np.zeros(4), b)
    before = perturbed_minimum(given.objective, given.train, np.zeros(4), b)
    assert distance(published, target) < 0.05 * distance(before, target)


@pytest.mark.parametrize(
    ("objective", "word"),
    [
        (Objective(Logistic(), L2(), alpha=0.1, scaling="sum"), "scaling='sum'"),
        (Objective(Logistic(), L2(), alpha=0.1, intercept=True), "1 unpenalised"),
        (Objective(Huber(), L2(), alpha=0.1), "Huber"),
    ],
)
def test_what_the_theorem_does_not_cover_is_refused(
    objective: Objective, word: str
) -> None:
    rows = objective.rows(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]))
    with pytest.raises(Unsupported, match=word):
        Guo().start(Problem("p", objective, rows, rows), seed=0)
