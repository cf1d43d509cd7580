# SPDX-License-Identifier: Apache-2.0
"""A check of losses passes those that are true, and names what is wrong with others."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from expunge import HalfSquared, Huber, Logistic, Loss, Multinomial, check_loss
from expunge.core.losses import Curvature
from expunge.exceptions import InvalidInput
from tests.instances import LOSSES
from tests.strangers.visits import Visits
from tests.test_joint_outputs import Distance


@dataclass(frozen=True)
class Pinball(Loss):
    """A quantile's loss, smoothed over a width: tau e + h ln(1 + e^(-e/h))."""

    quantile: float = 0.9
    width: float = 0.5

    curvature_bound = property(lambda self: 0.25 / self.width)
    third_bound = property(lambda self: 1.0 / (6.0 * 3.0**0.5 * self.width**2))
    self_concordance = property(lambda self: 1.0 / self.width)
    slope_bound = property(lambda self: max(self.quantile, 1.0 - self.quantile))

    def labels(self, y: Any) -> Any:
        return HalfSquared().labels(y)

    def value(self, y: Any, eta: Any) -> Any:
        e = y - eta
        return self.quantile * e + self.width * np.logaddexp(0.0, -e / self.width)

    def slope(self, y: Any, eta: Any) -> Any:
        return -self.quantile - Logistic().slope(-np.ones_like(y), (eta - y)) * -1.0

    def curvature(self, y: Any, eta: Any) -> Any:
        return Logistic().curvature(y, (eta - y) / self.width) / self.width


@dataclass(frozen=True)
class SmoothPinball(Pinball):
    """The same with its true slope."""

    def slope(self, y: Any, eta: Any) -> Any:
        ones = np.ones_like(eta)
        return Logistic().slope(-ones, (eta - y) / self.width) - self.quantile


@pytest.mark.parametrize("name", LOSSES)
def test_true_losses_pass(name: str) -> None:
    loss, labels = LOSSES[name]
    rng = np.random.default_rng(0)
    y = labels(rng, rng.normal(size=(200, loss.outputs)))
    check_loss(loss, y if getattr(loss, "offset", False) else None)


@pytest.mark.parametrize("loss", [Distance(), SmoothPinball(), Huber(40.0)], ids=repr)
def test_others_pass_too(loss: Loss) -> None:
    check_loss(loss)


def test_labels_may_be_given() -> None:
    check_loss(Visits(), [0.0, 1e5])
    with pytest.raises(ValueError, match="from zero"):
        check_loss(Visits(), [-1.0])


def _changed(kind: type[Loss], **members: Any) -> Callable[..., Loss]:
    """Return a class of losses with some members replaced."""
    return type(f"Wrong{kind.__name__}", (kind,), members)


def _bumpy(self: Any, y: Any, eta: Any) -> Any:
    return np.sin(eta)


def _alone(self: Any, y: Any, eta: Any) -> Any:
    return (np.exp(eta) - y * eta) / len(eta)


def _overwriting(self: Any, y: Any, eta: Any) -> Any:
    value = np.exp(eta) - y * eta
    y += 1.0
    return value


class Sine(Loss):
    """All derivatives are right, and it is not convex."""

    def labels(self, y: Any) -> Any:
        return HalfSquared().labels(y)

    def value(self, y: Any, eta: Any) -> Any:
        return np.sin(eta)

    def slope(self, y: Any, eta: Any) -> Any:
        return np.cos(eta)

    def curvature(self, y: Any, eta: Any) -> Any:
        return -np.sin(eta)


WRONG: dict[str, tuple[Callable[[], Loss], str]] = {
    "slope": (
        _changed(Visits, slope=lambda self, y, eta: np.exp(eta) + y),
        "slope is not the derivative of value",
    ),
    "scaled": (Pinball, "slope is not the derivative of value"),
    "curvature": (
        _changed(Visits, curvature=lambda self, y, eta: 2.0 * np.exp(eta)),
        "curvature is not the derivative of slope",
    ),
    "convexity": (Sine, "not convex"),
    "growth": (_changed(Visits, self_concordance=0.98), "self_concordance=0.98"),
    "small growth": (_changed(Logistic, self_concordance=0.98), "self_concordance"),
    "no growth": (_changed(Visits, self_concordance=0.0), "self_concordance=0 "),
    "growth of classes": (
        partial(_changed(Multinomial, self_concordance=1.3), 3),
        "self_concordance=1.3",
    ),
    "slope bound": (_changed(Logistic, slope_bound=0.98), "slope_bound=0.98"),
    "curvature bound": (_changed(Logistic, curvature_bound=0.249), "curvature_bound"),
    "bounded counts": (_changed(Visits, curvature_bound=1e3), "curvature_bound=1000"),
    "third bound": (_changed(Logistic, third_bound=0.094), "third_bound=0.094"),
    "third bound of classes": (
        partial(_changed(Multinomial, third_bound=0.26), 3),
        "third_bound=0.26",
    ),
    "curvature of classes": (
        partial(_changed(Multinomial, curvature_bound=0.48), 3),
        "curvature_bound=0.48",
    ),
    "jump": (_changed(Huber, curvature_jump=0.5), "jumps by more than 0.5"),
    "no jump": (
        _changed(Huber, curvature_jump=0.0, third_bound=1.0),
        "third_bound=1 allows",
    ),
    "kink": (
        _changed(Huber, kink_distance=lambda self, y, eta: np.abs(eta - y) + 0.5),
        "no kink is near|not the derivative",
    ),
    "link": (_changed(Visits, mean=lambda self, eta: eta), "not the inverse link"),
    "probability": (
        _changed(Logistic, mean=lambda self, eta: 0.5 + 0.1 * np.tanh(eta)),
        "no probability of [+]1",
    ),
    "no probability": (
        _changed(Logistic, mean=lambda self, eta: eta),
        "mean is no probability",
    ),
    "total": (
        partial(
            _changed(Multinomial, mean=lambda self, eta: 0.2 * np.ones_like(eta)), 3
        ),
        "does not add up to one",
    ),
    "rows": (_changed(Visits, value=_alone), "depends on the rows beside it"),
    "writing": (_changed(Visits, value=_overwriting), "writes into the labels"),
    "shape": (
        _changed(Visits, value=lambda self, y, eta: np.exp(eta)[:, None]),
        r"value has shape \(3000, 1\)",
    ),
    "number": (
        _changed(Visits, value=lambda self, y, eta: np.log(eta)),
        "value is no number",
    ),
    "shift": (
        partial(_changed(HalfSquared, shift_invariant=True), 2),
        "a constant added to all predictors changes it",
    ),
    "independent": (
        partial(_changed(Multinomial, independent=True, shift_invariant=False), 3),
        "independent is True",
    ),
    "parts": (
        partial(
            _changed(
                HalfSquared,
                curvature_parts=lambda self, y, eta: Curvature(2.0 + 0.0 * eta),
            ),
            2,
        ),
        "do not make up curvature",
    ),
    "equal": (
        partial(_changed(type(LOSSES["one_vs_rest"][0]), equal_curvature=True), 3),
        "outputs have different curvatures",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    make, what = WRONG[name]
    with pytest.raises(InvalidInput, match=what):
        check_loss(make())


def test_what_is_no_loss_is_refused() -> None:
    with pytest.raises(InvalidInput, match="derive its class"):
        check_loss("logistic")  # type: ignore[arg-type]


def test_a_loss_of_strange_labels_asks_for_some() -> None:
    def refuse(self: Any, y: Any) -> Any:
        raise ValueError("dates")

    with pytest.raises(InvalidInput, match="pass some as y"):
        check_loss(_changed(Visits, labels=refuse)())
