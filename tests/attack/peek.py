# SPDX-License-Identifier: Apache-2.0
"""The noise-free answer and its unit: the one place that uses private names."""

from typing import Any

import numpy as np

from expunge.linear_model.base import private_model
from tests.registries import private_model_of

from .losses import Array


def draft_of(model: Any) -> Array:
    """Return the noise-free parameters of a model."""
    return np.asarray(private_model(model).answer.draft.theta)


def units_of(model: Any) -> Any:
    """Return mean and deviation of the targets that a model counts in, or None."""
    return private_model(model).terms.units


def erased_on_device(model: Any) -> bool:
    """Whether no number of a row that left is on the device of a model."""
    left: Any = private_model(model).remaining_rows()
    return not (left._X[left._absent].any() or left._y[left._absent].any())


def draft_in(registry: Any, name: str) -> Array:
    """Return the noise-free parameters of a model in a registry."""
    return np.asarray(private_model_of(registry, name).answer.draft.theta)
