# SPDX-License-Identifier: Apache-2.0
"""Removal mechanisms: one protocol, one algebra of sums, one computed residual."""

from .jackknife import Jackknife
from .matrix_free import MatrixFree
from .newton import Newton
from .retrain import Retrain
from .state import Draft, Mechanism, State, measure_gradient, residual, state_size
from .sums import Sums

__all__ = [
    "Draft",
    "Jackknife",
    "MatrixFree",
    "Mechanism",
    "Newton",
    "Retrain",
    "State",
    "Sums",
    "measure_gradient",
    "residual",
    "state_size",
]
