# SPDX-License-Identifier: Apache-2.0
"""Preprocessing that can forget, and pipelines that forget through it."""

from .encoder import OneHotEncoder
from .imputer import MeanImputer
from .pipeline import ForgettablePipeline, forgettable_pipeline
from .removable import Changes
from .scaler import StandardScaler

__all__ = [
    "Changes",
    "ForgettablePipeline",
    "MeanImputer",
    "OneHotEncoder",
    "StandardScaler",
    "forgettable_pipeline",
]
