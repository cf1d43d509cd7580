# SPDX-License-Identifier: Apache-2.0
"""Losses: labels outside the domain, and values known by hand."""

import numpy as np
import pytest

from expunge import HalfSquared, Huber, Logistic, Multinomial, SquaredHinge
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
    with pytest.raises(InvalidInput, match="classes=1"):
        Multinomial(1)


def test_values_known_by_hand() -> None:
    one, eta = np.ones(1), np.array([3.0])
    assert np.allclose(Logistic().value(one, 0.0 * eta), np.log(2.0))
    assert np.allclose(HalfSquared().value(one, eta), 2.0)
    assert np.allclose(Huber(threshold=1.0).value(one, eta), 1.5)
    assert np.allclose(SquaredHinge().value(-one, eta), 16.0)
    even = np.zeros((1, 4))
    assert np.allclose(Multinomial(4).value(np.zeros(1), even), np.log(4.0))


@pytest.mark.parametrize("name", LOSSES)
def test_no_rows_are_no_trouble(name: str) -> None:
    loss = LOSSES[name][0]
    shape = (0,) if loss.outputs == 1 else (0, loss.outputs)
    several = isinstance(loss, HalfSquared) and loss.outputs > 1
    y, eta = np.zeros(shape if several else 0), np.zeros(shape)
    assert loss.value(y, eta).shape == (0,)
    assert loss.slope(y, eta).shape == shape
    assert len(loss.curvature(y, eta)) == 0
