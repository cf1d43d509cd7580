# SPDX-License-Identifier: Apache-2.0
"""Removal mechanisms: one protocol, six answers, one computed residual."""

from .matrix_free import MatrixFree
from .mechanisms import Jackknife, Polish, Rescaled, Retrain
from .newton import Newton
from .state import Draft, Mechanism, State, measure_gradient, residual, state_size

__all__ = [
    "Draft",
    "Jackknife",
    "MatrixFree",
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
