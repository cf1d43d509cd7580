# SPDX-License-Identifier: Apache-2.0
"""Removal mechanisms: one protocol, five answers, one computed residual."""

from .jackknife import Jackknife, Rescaled
from .newton import Newton
from .retrain import Polish, Retrain
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
