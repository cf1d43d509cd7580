# SPDX-License-Identifier: Apache-2.0
"""The Gaussian mechanism: against another library, and on the private side."""

from math import inf, nan

import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from scipy.integrate import quad
from scipy.stats import norm

from expunge.exceptions import InvalidInput
from expunge.promise.budget import Budget, delta_of, guess_of, mu_of
from expunge.promise.noise import SeededNoise, round_to_grid

EPSILONS = np.geomspace(0.01, 10.0, 13).tolist()
DELTAS = np.geomspace(1e-10, 1e-2, 9).tolist()


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_mu_agrees_with_dp_accounting(epsilon: float, delta: float) -> None:
    sigma = gaussian_mechanism.get_sigma_gaussian(epsilon, delta)
    assert mu_of(epsilon, delta) == pytest.approx(1.0 / sigma, rel=1e-6)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_mu_is_the_largest_and_errs_on_the_private_side(
    epsilon: float, delta: float
) -> None:
    mu = mu_of(epsilon, delta)
    assert delta_of(mu, epsilon) <= delta < delta_of(mu * (1 + 1e-9), epsilon)


def test_reference_value() -> None:
    assert 1.0 / mu_of(1.0, 1e-5) == pytest.approx(3.7306, abs=5e-5)


@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 1.0), (1.0, 0.0), (2.5, 4.0)])
def test_delta_is_the_integral_of_what_exceeds(mu: float, epsilon: float) -> None:
    def excess(x: float) -> float:
        return float(norm.pdf(x, mu) - np.exp(epsilon) * norm.pdf(x))

    crossing = epsilon / mu + mu / 2
    area = quad(excess, crossing, crossing + 40.0, epsabs=0.0)[0]
    assert delta_of(mu, epsilon) == pytest.approx(area, rel=1e-9)


def test_delta_rises_with_mu_and_falls_with_epsilon() -> None:
    by_mu = [delta_of(mu, 1.0) for mu in np.geomspace(1e-3, 50.0, 60)]
    by_epsilon = [delta_of(1.0, epsilon) for epsilon in np.linspace(0.0, 30.0, 60)]
    assert by_mu == sorted(by_mu)
    assert by_epsilon == sorted(by_epsilon, reverse=True)


def test_ends() -> None:
    assert delta_of(0.0, 1.0) == 0.0
    assert delta_of(inf, 1.0) == delta_of(1e4, 1.0) == 1.0
    assert 0.0 < delta_of(1e-3, 5.0) <= 2.0**-1022  # below the smallest float, not zero
    assert 0.0 < delta_of(0.3, 5.0) < 1e-50
    assert mu_of(0.0, 1e-30) == 0.0  # drowned in rounding: no noise is enough
    assert mu_of(0.0, 0.5) == pytest.approx(2 * norm.ppf(0.75))
    assert mu_of(50.0, 0.999) > 10.0


@pytest.mark.parametrize("epsilon", [-1.0, inf, nan])
def test_epsilon_outside_its_domain_is_refused(epsilon: float) -> None:
    with pytest.raises(InvalidInput, match="epsilon"):
        mu_of(epsilon, 1e-5)
    with pytest.raises(InvalidInput, match="epsilon"):
        delta_of(1.0, epsilon)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, nan])
def test_delta_outside_its_domain_is_refused(delta: float) -> None:
    with pytest.raises(InvalidInput, match="delta"):
        mu_of(1.0, delta)


@pytest.mark.parametrize("mu", [-1.0, nan])
def test_mu_outside_its_domain_is_refused(mu: float) -> None:
    with pytest.raises(InvalidInput, match="mu"):
        delta_of(mu, 1.0)


@pytest.mark.parametrize("mu", [1e-6, 0.268, 1.0, 3.0])
def test_the_best_guess_is_phi_of_half_mu_rounded_up(mu: float) -> None:
    exact = norm.cdf(mu / 2)
    assert exact <= guess_of(mu) <= exact + 1e-12


def test_the_best_guess_has_ends() -> None:
    assert guess_of(0.0) == 0.5
    assert guess_of(inf) == 1.0
    with pytest.raises(InvalidInput, match="mu=-1"):
        guess_of(-1.0)


@pytest.mark.parametrize("mu", [0.268, 1.0])
def test_no_attacker_guesses_better_and_the_likelihood_guesses_as_well(
    mu: float, rng: np.random.Generator
) -> None:
    n_games, size = 200_000, 5
    apart = rng.normal(size=size)
    apart *= mu / np.linalg.norm(apart)
    removed = rng.integers(0, 2, n_games).astype(bool)
    seen = rng.normal(size=(n_games, size)) + removed[:, None] * apart
    error = 4.0 * np.sqrt(0.25 / n_games)
    ratio = seen @ apart > mu**2 / 2
    assert np.mean(ratio == removed) == pytest.approx(guess_of(mu), abs=error)
    # Other attackers: other thresholds, other directions.
    for direction, bar in ((apart, 0.0), (apart + 0.5, 0.1), (np.ones(size), 0.0)):
        assert np.mean((seen @ direction > bar) == removed) <= guess_of(mu) + error


def test_an_attacker_on_real_releases_is_held_to_the_promise(
    rng: np.random.Generator,
) -> None:
    # Two models as far apart as the budget lets them be: its worst case.
    budget, size, n_games = Budget(epsilon=1.0, delta=1e-5, sigma=0.3), 3, 40_000
    apart = np.array([budget.radius_budget(size), 0.0, 0.0])
    theta = rng.normal(size=size)
    noise = SeededNoise(budget.deviation, budget.grid, seed=7)
    removed = rng.integers(0, 2, n_games).astype(bool)
    models = [round_to_grid(each, budget.grid) for each in (theta, theta + apart)]
    seen = np.array([models[int(one)] + noise.draw(size) for one in removed])
    guessed = (seen - theta) @ apart > apart @ apart / 2
    error = 4.0 * np.sqrt(0.25 / n_games)
    assert np.mean(guessed == removed) == pytest.approx(guess_of(budget.gdp), abs=error)
    assert guess_of(budget.gdp) == pytest.approx(0.553, abs=5e-4)
