# SPDX-License-Identifier: Apache-2.0
"""Preprocessing that can forget, and pipelines that forget through it."""

from .encoder import OneHotEncoder
from .pipeline import ForgettablePipeline, forgettable_pipeline
from .transformers import Changes, MeanImputer, StandardScaler

__all__ = [
    "Changes",
    "ForgettablePipeline",
    "MeanImputer",
    "OneHotEncoder",
    "StandardScaler",
    "forgettable_pipeline",
]
