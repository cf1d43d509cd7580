# SPDX-License-Identifier: Apache-2.0
"""Audit: try to break a promise on real models, and report how far you got."""

from .attacks import (
    MembershipFinding,
    ReconstructionFinding,
    attack_membership,
    attack_reconstruction,
    reconstruct_direction,
)
from .comparison import (
    AuditOptions,
    AuditReport,
    Case,
    CaseModels,
    ModelPair,
    audit,
    audit_each,
    examine,
    fit_models,
)

__all__ = [
    "AuditOptions",
    "AuditReport",
    "Case",
    "CaseModels",
    "MembershipFinding",
    "ModelPair",
    "ReconstructionFinding",
    "attack_membership",
    "attack_reconstruction",
    "audit",
    "audit_each",
    "examine",
    "fit_models",
    "reconstruct_direction",
]
