# SPDX-License-Identifier: Apache-2.0
"""Removal mechanisms: one protocol, five answers, one computed residual."""

from .base import Mechanism
from .jackknife import Jackknife
from .newton import Newton
from .polish import Polish
from .rescaled import Rescaled
from .retrain import Retrain
from .state import Draft, State, look, residual, state_size

__all__ = [
    "Draft",
    "Jackknife",
    "Mechanism",
    "Newton",
    "Polish",
    "Rescaled",
    "Retrain",
    "State",
    "look",
    "residual",
    "state_size",
]
