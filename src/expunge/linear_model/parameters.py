# SPDX-License-Identifier: Apache-2.0
"""What an estimator works with: objects in place of names, rows in place of data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from ..core.arrays import Private
from ..core.losses import HalfSquared, Huber, Logistic, Loss, Multinomial, SquaredHinge
from ..core.objective import Objective, Rows
from ..core.penalties import L1, L2, ElasticNet, Penalty
from ..exceptions import InvalidInput
from ..private_model.labels import Labels
from ..private_model.snapshot import PublicModel
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


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Prepared(Private):
    """Checked training data, with the objective for them.

    Attributes
    ----------
    objective, rows
        What is minimised, and on which rows.
    labels
        The classes of a classifier; None for a regression.
    weighted
        Whether weights were given.
    owners
        The owner of each row.
    """

    objective: Objective
    rows: Rows
    labels: Labels | None
    weighted: bool
    owners: Sequence[str] = ()

    def with_pair(self, pair: Loss | None) -> "Prepared":
        """Return the data with this loss for two classes, if the model is softmax."""
        if pair is None or not isinstance(self.objective.loss, Multinomial):
            return self
        assert self.labels is not None
        return replace(self, labels=replace(self.labels, pair=pair))


def choose_object(
    name: str, value: str | Choice, *, choices: Mapping[str, Choice]
) -> Choice:
    """Return the object with this name, or the object itself."""
    if not isinstance(value, str):
        return value
    if value not in choices:
        raise InvalidInput(
            f"{name}={value!r}; choose one of {', '.join(map(repr, choices))}, or pass "
            "an object"
        )
    return choices[value]


def penalty_of(penalty: Penalty | None, l1_ratio: float) -> Penalty:
    """Return the penalty object, or the one that l1_ratio stands for."""
    if penalty is not None:
        if l1_ratio != 0.0:
            raise InvalidInput(
                f"l1_ratio={l1_ratio} and penalty={penalty!r}; pass one of them"
            )
        return penalty
    if not 0.0 <= l1_ratio <= 1.0:
        raise InvalidInput(f"l1_ratio={l1_ratio}; it must lie between 0 and 1")
    if l1_ratio in (0.0, 1.0):
        return L1() if l1_ratio else L2()
    return ElasticNet(l1_ratio)


def describe_features(estimator: Any) -> dict[str, Any]:
    """Return the number and names of an estimator's features."""
    names = getattr(estimator, "feature_names_in_", None)
    return {"n_features": estimator.n_features_in_, "feature_names": names}


def is_checked(X: Any, y: Any, *, public: PublicModel) -> bool:
    """Whether scikit-learn's checks would let these arrays through as they are.

    Its checks cost more than the removal of a row.
    """
    return (
        type(X) is np.ndarray
        and X.dtype == np.float64
        and X.ndim == 2
        and X.shape[1] == public.n_features
        and public.feature_names is None
        and type(y) is np.ndarray
        and y.dtype.kind in "biuf"
        and y.shape == X.shape[:1]
        and bool(np.isfinite(X).all() and np.isfinite(y).all())
    )
