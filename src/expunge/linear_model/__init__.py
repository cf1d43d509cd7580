# SPDX-License-Identifier: Apache-2.0
"""Estimators that scikit-learn users know, and that can forget people."""

from .estimators import LinearRegression, LogisticRegression, SoftmaxRegression
from .parameters import NoPromiseWarning
from .tuned import Curve, TunedClassifier, TunedRegressor

__all__ = [
    "Curve",
    "LinearRegression",
    "LogisticRegression",
    "NoPromiseWarning",
    "SoftmaxRegression",
    "TunedClassifier",
    "TunedRegressor",
]
