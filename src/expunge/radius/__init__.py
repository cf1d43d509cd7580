# SPDX-License-Identifier: Apache-2.0
"""Radii: how far an answer can be from the retrained model, computed."""

from .kinds import (
    Radius,
    RadiusKind,
    best_radius,
    measured,
    measured_local,
    measured_on_rows,
    residual_local,
    two_step,
)

__all__ = [
    "Radius",
    "RadiusKind",
    "best_radius",
    "measured",
    "measured_local",
    "measured_on_rows",
    "residual_local",
    "two_step",
]
