# SPDX-License-Identifier: Apache-2.0
"""Estimators that scikit-learn users know, and that can forget people."""

from .estimators import (
    EmbeddingClassifier,
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
)
from .generalised import (
    GammaRegressor,
    NegativeBinomialRegressor,
    PoissonRegressor,
    QuantileRegressor,
    TweedieRegressor,
)
from .moments import ExactLinearRegression, ExactRidge
from .naive_bayes import BernoulliNB, ComplementNB, MultinomialNB, NearestCentroid
from .parameters import FewPeopleWarning, LoudNoiseWarning, NoPromiseWarning
from .recommenders import EASE, Popularity
from .survival import PiecewiseExponential
from .tuned import Curve, TunedClassifier, TunedRegressor

__all__ = [
    "EASE",
    "BernoulliNB",
    "ComplementNB",
    "Curve",
    "EmbeddingClassifier",
    "ExactLinearRegression",
    "ExactRidge",
    "FewPeopleWarning",
    "GammaRegressor",
    "LinearRegression",
    "LogisticRegression",
    "LoudNoiseWarning",
    "MultinomialNB",
    "NearestCentroid",
    "NegativeBinomialRegressor",
    "NoPromiseWarning",
    "PiecewiseExponential",
    "PoissonRegressor",
    "Popularity",
    "QuantileRegressor",
    "SoftmaxRegression",
    "TunedClassifier",
    "TunedRegressor",
    "TweedieRegressor",
]
