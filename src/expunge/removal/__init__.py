# SPDX-License-Identifier: Apache-2.0
"""Removal mechanisms: one protocol, five answers, one computed residual."""

from .mechanisms import Jackknife, Polish, Rescaled, Retrain
from .newton import Newton
from .state import Draft, Mechanism, State, measure_gradient, residual, state_size

__all__ = [
    "Draft",
    "Jackknife",
    "Mechanism",
    "Newton",
    "Polish",
    "Rescaled",
    "Retrain",
    "State",
    "measure_gradient",
    "residual",
    "state_size",
]
