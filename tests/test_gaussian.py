# SPDX-License-Identifier: Apache-2.0
"""The Gaussian mechanism: against another library, and on the private side."""

from math import inf, nan

import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from scipy.integrate import quad
from scipy.stats import norm

from expunge.exceptions import InvalidInput
from expunge.promise.budget import delta_of, mu_of

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
