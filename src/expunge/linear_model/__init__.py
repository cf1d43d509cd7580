# SPDX-License-Identifier: Apache-2.0
"""Estimators with scikit-learn's manners that can forget people."""

from .estimators import LinearRegression, LogisticRegression, SoftmaxRegression

__all__ = ["LinearRegression", "LogisticRegression", "SoftmaxRegression"]
