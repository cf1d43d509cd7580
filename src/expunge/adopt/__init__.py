# SPDX-License-Identifier: Apache-2.0
"""Fitted scikit-learn models become models that can forget."""

from .adoption import AdoptionWarning, AdoptOptions, from_sklearn
from .objectives import AdoptedObjective, read_coefficients, read_objective

__all__ = [
    "AdoptOptions",
    "AdoptedObjective",
    "AdoptionWarning",
    "from_sklearn",
    "read_coefficients",
    "read_objective",
]
