# SPDX-License-Identifier: Apache-2.0
"""Estimators that scikit-learn users know, and that can forget people."""

from .estimators import (
    EmbeddingClassifier,
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
)
from .parameters import LoudNoiseWarning, NoPromiseWarning
from .tuned import Curve, TunedClassifier, TunedRegressor

__all__ = [
    "Curve",
    "EmbeddingClassifier",
    "LinearRegression",
    "LogisticRegression",
    "LoudNoiseWarning",
    "NoPromiseWarning",
    "SoftmaxRegression",
    "TunedClassifier",
    "TunedRegressor",
]
