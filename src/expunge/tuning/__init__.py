# SPDX-License-Identifier: Apache-2.0
"""Tuning by cross-validation, with a choice that can be forgotten."""

from .choice import fold_of
from .estimators import Curve, TunedClassifier, TunedRegressor
from .loo import LeftOut, loo_error

__all__ = [
    "Curve",
    "LeftOut",
    "TunedClassifier",
    "TunedRegressor",
    "fold_of",
    "loo_error",
]
