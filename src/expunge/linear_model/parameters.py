# SPDX-License-Identifier: Apache-2.0
"""From the words of an estimator's parameters to the objects they name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from ..core.losses import HalfSquared, Huber, Logistic, Loss, SquaredHinge
from ..core.penalties import L1, L2, ElasticNet, Penalty
from ..exceptions import InvalidInput
from ..removal import Jackknife, Mechanism, Newton, Rescaled, Retrain

Choice = TypeVar("Choice")

MECHANISMS: Mapping[str, Mechanism] = MappingProxyType(
    {
        "newton": Newton(),
        "jackknife": Jackknife(),
        "rescaled": Rescaled(),
        "retrain": Retrain(),
    }
)
BINARY_LOSSES: Mapping[str, Loss] = MappingProxyType(
    {"logistic": Logistic(), "squared_hinge": SquaredHinge()}
)
REGRESSION_LOSSES: Mapping[str, Loss] = MappingProxyType(
    {"half_squared": HalfSquared(), "huber": Huber()}
)


def choose_object(
    name: str, value: str | Choice, choices: Mapping[str, Choice]
) -> Choice:
    """Return the object that a word names, or the object itself."""
    if not isinstance(value, str):
        return value
    if value not in choices:
        raise InvalidInput(
            f"{name}={value!r}; choose one of {', '.join(map(repr, choices))}, or give "
            "an object"
        )
    return choices[value]


def penalty_of(penalty: Penalty | None, l1_ratio: float) -> Penalty:
    """Return the penalty object, or the one that l1_ratio stands for."""
    if penalty is not None:
        if l1_ratio != 0.0:
            raise InvalidInput(
                f"l1_ratio={l1_ratio} beside penalty={penalty!r}; give one of them"
            )
        return penalty
    if not 0.0 <= l1_ratio <= 1.0:
        raise InvalidInput(f"l1_ratio={l1_ratio}; it must lie between 0 and 1")
    if l1_ratio in (0.0, 1.0):
        return L1() if l1_ratio else L2()
    return ElasticNet(l1_ratio)
