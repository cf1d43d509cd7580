# SPDX-License-Identifier: Apache-2.0
"""Tuning by cross-validation, with a choice that can be forgotten."""

from ..selection.choice import fold_of
from ..selection.loo import LooResult
from .estimators import Curve, TunedClassifier, TunedRegressor, loo_error

__all__ = [
    "Curve",
    "LooResult",
    "TunedClassifier",
    "TunedRegressor",
    "fold_of",
    "loo_error",
]
