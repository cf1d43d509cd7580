# SPDX-License-Identifier: Apache-2.0
"""Solvers that measure what they reached."""

from .model import Model, proximal_model, scaled_kink, with_quadratic
from .newton import Solution, minimise, require_converged

__all__ = [
    "Model",
    "Solution",
    "minimise",
    "proximal_model",
    "require_converged",
    "scaled_kink",
    "with_quadratic",
]
