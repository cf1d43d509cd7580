# SPDX-License-Identifier: Apache-2.0
"""Audit: try to break a promise on real models, and say how far that went."""

from .attacks import Membership, Reconstruction, membership, reconstruct, reconstruction
from .trial import AuditReport, Case, Models, Pair, Trial, audit, examine, models

__all__ = [
    "AuditReport",
    "Case",
    "Membership",
    "Models",
    "Pair",
    "Reconstruction",
    "Trial",
    "audit",
    "examine",
    "membership",
    "models",
    "reconstruct",
    "reconstruction",
]
