# SPDX-License-Identifier: Apache-2.0
"""Losses: labels outside the domain, and values known by hand."""

import numpy as np
import pytest

from expunge import (
    Gamma,
    HalfSquared,
    Huber,
    Logistic,
    Multinomial,
    NegativeBinomial,
    Pinball,
    Poisson,
    SquaredHinge,
    Tweedie,
)
from expunge.core.losses import Loss
from expunge.exceptions import InvalidInput
from tests.instances import LOSSES

BAD_LABELS: list[tuple[Loss, object, str]] = [
    (Logistic(), [0.0, 1.0], "label 0 is neither -1 nor"),
    (Logistic(), [np.nan, 1.0], "label nan is neither"),
    (SquaredHinge(), [2.0, 1.0], "label 2 is neither"),
    (Multinomial(3), [0, 3], "label 3 is not a class code from 0 to 2"),
    (Multinomial(3), [0, 1.5], "label 1.5 is not a class code"),
    (Multinomial(3), [0, -1], "label -1 is not a class code"),
    (HalfSquared(), [0.0, np.inf], "NaN or infinity"),
    (Huber(), [np.nan], "NaN or infinity"),
    (HalfSquared(outputs=2), [1.0, 2.0], r"shape \(2,\); this loss needs \(n, 2\)"),
    (HalfSquared(), [[1.0, 2.0]], r"shape \(1, 2\); this loss needs \(n,\)"),
    (Logistic(), ["yes", "no"], "labels must be numbers"),
    (Poisson(), [1.0, -1.0], "response -1 is negative; Poisson takes counts"),
    (Tweedie(1.5), [-0.1], "response -0.1 is negative"),
    (NegativeBinomial(1.0), [-2.0], "response -2 is negative"),
    (NegativeBinomial(1.0, largest=5.0), [5.0, 6.0], "response 6 is beyond largest=5"),
    (Gamma(), [1.0, 0.0], "response 0 is not positive.*or use Tweedie"),
    (Poisson(), [np.nan], "NaN or infinity"),
    (Poisson(), [1e60], "1e.60 is beyond"),
    (Poisson(offset=True), [1.0], r"this loss needs \(n, 2\)"),
    (Poisson(), [[1.0, 2.0]], r"this loss needs \(n,\)"),
    (Gamma(offset=True), [[1.0, 0.0]], "exposure 0; each must be a positive number"),
    (Poisson(offset=True), [[1.0, -1.0]], "exposure -1; each must be"),
    (Pinball(), [np.inf], "NaN or infinity"),
]


@pytest.mark.parametrize(("loss", "labels", "message"), BAD_LABELS)
def test_labels_outside_the_domain_are_refused(
    loss: Loss, labels: list[float], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        loss.labels(labels)


def test_parameters_outside_the_domain_are_refused() -> None:
    with pytest.raises(InvalidInput, match="outputs=0"):
        HalfSquared(outputs=0)
    with pytest.raises(InvalidInput, match="threshold=-1"):
        Huber(threshold=-1.0)
    with pytest.raises(InvalidInput, match="largest=0"):
        NegativeBinomial(1.0, largest=0.0)
    with pytest.raises(InvalidInput, match="classes=1"):
        Multinomial(1)
    for power in (1.0, 2.0, 0.0, float("nan")):
        with pytest.raises(InvalidInput, match="between 1, which is Poisson, and 2"):
            Tweedie(power)
    for dispersion in (0.0, -1.0, 1e9, float("nan")):
        with pytest.raises(InvalidInput, match="dispersion="):
            NegativeBinomial(dispersion)
    for quantile in (0.0, 1.0, float("nan")):
        with pytest.raises(InvalidInput, match="quantile="):
            Pinball(quantile)
    with pytest.raises(InvalidInput, match="width=0"):
        Pinball(0.5, 0.0)


def test_an_offset_is_a_factor_of_the_mean() -> None:
    """The loss of v and eta is that of eta + ln v, but for what eta does not change."""
    rng = np.random.default_rng(0)
    y, v, eta = rng.gamma(1.0, size=50), rng.gamma(2.0, size=50), rng.normal(size=50)
    both = np.column_stack([y, v])
    for plain, moved in (
        (Poisson(), Poisson(offset=True)),
        (Gamma(), Gamma(offset=True)),
        (Tweedie(1.3), Tweedie(1.3, offset=True)),
        (NegativeBinomial(0.4), NegativeBinomial(0.4, offset=True)),
    ):
        there = eta + np.log(v)
        assert np.allclose(moved.slope(both, eta), plain.slope(y, there))
        assert np.allclose(moved.curvature(both, eta), plain.curvature(y, there))
        gap = moved.value(both, eta) - plain.value(y, there)
        later = moved.value(both, eta + 1.0) - plain.value(y, there + 1.0)
        assert np.allclose(gap, later)


def test_an_exposure_is_a_weight_of_the_mean_response() -> None:
    rng = np.random.default_rng(1)
    y, v, eta = rng.gamma(1.0, size=50), rng.gamma(2.0, size=50), rng.normal(size=50)
    both = np.column_stack([y, v])
    for plain, moved in (
        (Poisson(), Poisson(offset=True)),
        (Gamma(), Gamma(offset=True)),
        (Tweedie(1.3), Tweedie(1.3, offset=True)),
    ):
        responses, weight = plain.take_exposure(y, v)
        slope = plain.slope(responses, eta)
        weighed = slope if weight is None else weight * slope
        assert np.allclose(moved.slope(both, eta), weighed)
    with pytest.raises(InvalidInput, match=r"give offset=np\.log\(exposure\)"):
        NegativeBinomial(1.0).weigh_exposure(v)


def test_a_narrow_pinball_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import mean_pinball_loss

    rng = np.random.default_rng(2)
    y, eta = rng.normal(size=(2, 200))
    found = Pinball(0.8, 1e-9).value(y, eta).mean()
    assert found == pytest.approx(mean_pinball_loss(y, eta, alpha=0.8), abs=1e-8)


def test_values_known_by_hand() -> None:
    one, eta = np.ones(1), np.array([3.0])
    assert np.allclose(Logistic().value(one, 0.0 * eta), np.log(2.0))
    assert np.allclose(HalfSquared().value(one, eta), 2.0)
    assert np.allclose(Huber(threshold=1.0).value(one, eta), 1.5)
    assert np.allclose(SquaredHinge().value(-one, eta), 16.0)
    even = np.zeros((1, 4))
    assert np.allclose(Multinomial(4).value(np.zeros(1), even), np.log(4.0))


@pytest.mark.parametrize("dispersion", [1e-6, 0.3, 1e6])
def test_a_negative_binomial_is_exact_at_every_predictor(dispersion: float) -> None:
    rng = np.random.default_rng(0)
    eta = np.concatenate([rng.normal(0, 30, 300), rng.uniform(-2e3, 2e3, 300)])
    y = rng.choice([0.0, 1.0, 4.0, 1e6], 600)
    v = 10.0 ** rng.choice([-50.0, -3.0, 0.0, 50.0], 600)
    loss = NegativeBinomial(dispersion, offset=True)
    found = loss.value(np.column_stack([y, v]), eta)
    scale = np.longdouble(dispersion) * v
    odds, inverse = scale * np.exp(np.longdouble(eta)), np.exp(-np.longdouble(eta))
    exact = y * np.log1p(inverse / scale) + np.log1p(odds) / np.longdouble(dispersion)
    there = exact > 1e-300
    assert (np.abs(found - exact)[there] <= 8.0 * 2.0**-53 * exact[there]).all()


@pytest.mark.parametrize("name", LOSSES)
def test_no_rows_are_no_trouble(name: str) -> None:
    loss = LOSSES[name][0]
    shape = (0,) if loss.outputs == 1 else (0, loss.outputs)
    several = isinstance(loss, HalfSquared) and loss.outputs > 1
    y, eta = np.zeros(shape if several else 0), np.zeros(shape)
    if getattr(loss, "offset", False):
        y = np.zeros((0, 2))
    assert loss.value(y, eta).shape == (0,)
    assert loss.slope(y, eta).shape == shape
    assert len(loss.curvature(y, eta)) == 0
