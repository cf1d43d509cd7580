# SPDX-License-Identifier: Apache-2.0
"""Budgets: their figures, their refusals, and what noise on a grid really hides."""

import warnings
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, replace
from math import exp, frexp, gcd, inf, log, nan, pi, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from expunge import LogisticRegression
from expunge.core.arrays import Vector
from expunge.exceptions import InvalidInput
from expunge.linear_model import FewPeopleWarning
from expunge.promise.budget import (
    GRID_BITS,
    GRID_TOLL,
    SIGMA_WITH_ROWS,
    SIGMA_WITHOUT_ROWS,
    Budget,
    delta_of,
    mu_of,
)

SIGMAS = st.floats(1e-200, 1e200)


def test_defaults_are_those_of_the_documents() -> None:
    assert Budget() == Budget(1.0, 1e-5, None, None, None, False, None)
    assert Budget().gdp == mu_of(1.0, 1e-5)
    assert (SIGMA_WITH_ROWS, SIGMA_WITHOUT_ROWS) == (1e-3, 0.1)


def test_a_fit_fixes_the_sigma_that_nobody_named() -> None:
    budget = Budget(epsilon=2.0, releases=3)
    assert budget.at_fit(rows_kept=True) == replace(budget, sigma=1e-3)
    assert budget.at_fit(rows_kept=False) == replace(budget, sigma=0.1)
    named = Budget(sigma=0.3)
    assert named.at_fit(rows_kept=True) is named.at_fit(rows_kept=False) is named


def test_without_a_sigma_there_is_no_figure() -> None:
    unfixed = r"sigma=None .* give a number"
    with pytest.raises(InvalidInput, match=unfixed):
        _ = Budget().grid
    with pytest.raises(InvalidInput, match=unfixed):
        Budget().solver_error(3)


def test_answers_under_small_noise_always_look() -> None:
    assert Budget(sigma=1e-2).always_looks and Budget(sigma=1e-9).always_looks
    assert not Budget(sigma=1.1e-2).always_looks


def test_joint_releases_share_the_promise() -> None:
    joint = Budget(releases=100)
    assert joint.gdp == pytest.approx(Budget().gdp / 10.0)
    assert Budget(releases=1).gdp == Budget().gdp


@given(SIGMAS)
def test_grid_is_the_power_of_two_that_sigma_needs(sigma: float) -> None:
    grid = Budget(sigma=sigma).grid
    assert frexp(grid)[0] == 0.5
    assert 2.0**GRID_BITS <= sigma / grid < 2.0 ** (GRID_BITS + 1)
    assert sigma / grid * grid == sigma  # exact: nothing is lost on the way


@given(SIGMAS, st.integers(1, 10**7), st.integers(1, 10**4))
def test_radius_budget_is_its_formula(sigma: float, d: int, releases: int) -> None:
    budget = Budget(sigma=sigma, releases=releases)
    hidden = sigma * mu_of(1.0, 1e-5) / sqrt(releases)
    radius = hidden * (1.0 - 1e-9) - sqrt(d) * budget.grid
    assert budget.radius_budget(d) == pytest.approx(radius, rel=1e-9)
    assert budget.radius_budget(d) < hidden - sqrt(d) * budget.grid


def test_reference_radius() -> None:
    assert Budget(sigma=0.1).radius_budget(784) == pytest.approx(0.1 / 3.7306, rel=1e-5)


def test_solver_error_is_tau_or_one_per_cent() -> None:
    budget = Budget(sigma=0.1)
    assert budget.solver_error(784) == pytest.approx(
        0.01 * budget.radius_budget(784), rel=1e-12
    )
    assert Budget(sigma=0.1, tau=1e-6).solver_error(784) == 1e-6


def test_tau_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"tau=0\.03 .* lower tau or raise sigma"):
        Budget(sigma=0.1, tau=0.03).solver_error(784)


def test_grid_that_eats_the_promise_is_refused_whatever_sigma() -> None:
    for sigma in (1e-6, 0.1, 1e6):
        budget = Budget(sigma=sigma, releases=10**12)
        assert budget.radius_budget(1) > 0.0
        with pytest.raises(InvalidInput, match=r"n_parameters=1000000: .* fewer"):
            budget.radius_budget(10**6)


def test_model_without_parameters_is_refused() -> None:
    with pytest.raises(InvalidInput, match="n_parameters=0"):
        Budget().radius_budget(0)


WRONG: list[tuple[str, Any]] = [
    *(("epsilon", value) for value in (-1.0, inf, nan, "1", True, None)),
    *(("delta", value) for value in (0.0, 1.0, -1e-5, nan, None)),
    *(("sigma", value) for value in (0.0, -0.1, inf, nan, 1e-300, 1e300)),
    *(("tau", value) for value in (0.0, -1e-3, inf, nan, "tight")),
    *(("releases", value) for value in (0, -3, 2.5, True, "ten")),
    *(("row_norm", value) for value in (0.0, -1.0, inf, nan)),
    *(("allow_seeded", value) for value in (1, None, "yes")),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_term_outside_its_domain_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"^{name}=.*;"):
        replace(Budget(), **{name: value})


def test_promise_that_drowns_in_rounding_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no noise is enough"):
        Budget(epsilon=0.0, delta=1e-30)


def test_budget_is_a_value_of_plain_numbers() -> None:
    terms: dict[str, Any] = {"epsilon": 1, "sigma": np.float64(0.1), "tau": np.int64(1)}
    budget = Budget(**terms, releases=np.int64(3))  # type: ignore[arg-type]
    kinds = {type(budget.epsilon), type(budget.sigma), type(budget.tau)}
    assert kinds == {float}
    assert type(budget.releases) is int
    same = Budget(sigma=0.1, tau=1.0, releases=3)
    assert budget == same
    assert hash(budget) == hash(same)
    with pytest.raises(FrozenInstanceError):
        budget.sigma = 0.2  # type: ignore[misc]


# What noise on a grid hides. s is sigma / grid throughout, and vectors are counted in
# steps of the grid. docs/noise.md has the proof that these tests put to the test.


def masses(s: float, reach: int) -> Vector:
    """Return the masses of the discrete Gaussian at -reach .. reach."""
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / s) ** 2)
    return np.asarray(weights / weights.sum())


def exact_delta(s: float, shift: Sequence[int], epsilon: float) -> float:
    """Return the delta of discrete Gaussian noise on vectors ``shift`` apart.

    The log-likelihood ratio at x is (|a|^2 - 2 a.x) / (2 s^2), and a.x a sum of
    independent integers whose distribution is a convolution.
    """
    reach, unit = int(12 * s), gcd(*shift)
    law = np.ones(1)
    for step in shift:
        spread = np.zeros(2 * reach * step // unit + 1)
        spread[:: step // unit] = masses(s, reach)
        law = np.convolve(law, spread)
    product = unit * (np.arange(len(law)) - len(law) // 2)
    loss = (sum(step**2 for step in shift) - 2.0 * product) / (2.0 * s**2)
    return float(law @ np.maximum(0.0, -np.expm1(epsilon - loss)))


SCALES = [16, 64, 256, 1024]
EPSILONS = [0.0, 0.05, 0.3, 1.0, 2.0]
# The smoothing width w of the proof, in steps: kappa = 2 exp(-2 pi^2 w^2) = 1e-77.
WIDTH = 3.0


def shifts(s: int) -> list[tuple[int, ...]]:
    """Return integers around a few multiples of s."""
    near = [round(mu * s) for mu in (0.1, 0.268, 0.5, 1.0, 2.0)]
    return [(k + offset,) for k in near for offset in (-1, 0, 1)]


VECTORS = [(1, 1), (3, 5), (8, 1), (2, 3, 5), (1, 1, 1, 1), (4, 4, 4, 4, 4)]
CASES = [(s, shift) for s in SCALES for shift in shifts(s)]


@pytest.mark.parametrize(("s", "shift"), CASES + [(16, shift) for shift in VECTORS])
def test_noise_on_a_grid_hides_what_slightly_smaller_gaussian_noise_hides(
    s: int, shift: tuple[int, ...]
) -> None:
    distance = sqrt(sum(step**2 for step in shift))
    for epsilon in EPSILONS:
        bound = delta_of(distance / sqrt(s**2 - WIDTH**2), epsilon)
        assert exact_delta(s, shift, epsilon) <= bound + 1e-15


def toll(s: int, shift: tuple[int, ...], epsilon: float) -> float:
    """Return by how much, relatively, mu must shrink to pay for the grid."""
    mu = sqrt(sum(step**2 for step in shift)) / s
    excess = exact_delta(s, shift, epsilon) - delta_of(mu, epsilon)
    slope = norm.pdf(-epsilon / mu + 0.5 * mu)  # of delta in mu
    return float(excess / (slope * mu))


@pytest.mark.parametrize("s", SCALES)
def test_toll_is_real_and_falls_with_the_square_of_the_grid(s: int) -> None:
    tolls = [
        toll(s, shift, epsilon)
        for shift in shifts(s)
        for epsilon in EPSILONS
        if delta_of(shift[0] / s, epsilon) > 1e-9
    ]
    # The kink of (1 - e^(epsilon - L))_+ falls between two points of the grid; by
    # Euler and Maclaurin that is worth -1/12 to 1/24 of a squared step.
    assert max(tolls) * s**2 == pytest.approx(1.0 / 24.0, rel=0.05)
    assert min(tolls) * s**2 == pytest.approx(-1.0 / 12.0, rel=0.05)


@pytest.mark.parametrize("shift", VECTORS)
def test_toll_does_not_grow_with_the_dimension(shift: tuple[int, ...]) -> None:
    worst = max(toll(16, shift, epsilon) for epsilon in EPSILONS[:3])
    assert worst * 16**2 <= 1.0 / 24.0 * 1.01


def test_smoothing_a_gaussian_onto_the_grid_makes_it_discrete() -> None:
    # The proof's kernel at width 0.4, where kappa = 0.085 is large enough to be seen.
    width, narrow = 0.4, 1.0
    s, y = sqrt(width**2 + narrow**2), np.arange(-8, 9)
    x = np.linspace(-20.0, 20.0, 40 * 64 + 1)  # the sum is exact to rounding
    theta = norm.pdf(np.arange(-30, 31)[:, None] - x, scale=width).sum(axis=0)
    weight = norm.pdf(x, scale=narrow) / theta / 64.0
    made = norm.pdf(y[:, None] - x, scale=width) @ weight
    kappa = 2.0001 * exp(-2.0 * (pi * width) ** 2)
    assert np.abs(theta - 1.0).max() == pytest.approx(kappa, rel=1e-3)
    gap = np.abs(np.log(masses(s, 30)[22:39] / made)).max()
    assert 1e-3 < gap <= 3.0 * kappa


def test_toll_pays_for_the_proof_with_half_to_spare() -> None:
    # Width 2^12 at s >= 2^27: the Gaussian under the noise is narrower by 2^-31, and
    # kappa has 143 million zeros, times parameters and releases, after the point.
    narrower = sqrt(1.0 - 2.0 ** (2 * 12 - 2 * GRID_BITS))
    assert (1.0 - GRID_TOLL) / narrower < 1.0 - 0.5 * GRID_TOLL
    assert 2.0 * (pi * 2.0**12) ** 2 / log(10.0) > 1.43e8


@pytest.mark.parametrize("n_people", [4, 5])
def test_a_fit_to_few_people_says_what_is_not_promised(n_people: int) -> None:
    rng = np.random.default_rng(0)
    X, y, people = rng.normal(size=(60, 2)), np.arange(60) % 2, np.arange(60) % n_people
    model = LogisticRegression(alpha=0.1, budget=Budget(sigma=0.1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, subjects=people)
        # A number of people who are left must not show.
        model.forget([0])
        LogisticRegression(alpha=0.1).fit(X, y, subjects=people)
    said = [one for one in caught if one.category is FewPeopleWarning]
    assert len(said) == (n_people < 5)
    for one in said:
        assert "fewer than 5 people" in str(one.message)
        assert one.filename == __file__
