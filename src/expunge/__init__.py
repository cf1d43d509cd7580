# SPDX-License-Identifier: Apache-2.0
"""Certified machine unlearning of regularised convex models."""

from typing import TYPE_CHECKING

from ._faces import __getattr__ as __getattr__

if TYPE_CHECKING:
    from .adopt import from_sklearn
    from .budget import Budget
    from .certificate import Certificate
    from .exceptions import ExpungeError
    from .files import load
    from .learning import learn
    from .linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
    from .losses import (
        HalfSquared,
        Huber,
        Logistic,
        Multinomial,
        OneVsRest,
        SquaredHinge,
    )
    from .mechanisms import Jackknife, Newton, Polish, Rescaled, Retrain, residual
    from .objective import Objective
    from .penalties import L1, L2, ElasticNet, GroupLasso, NuclearNorm
    from .record import Record
    from .rows import Rows
    from .summary import Summary, summarise
    from .verification import verify

__version__ = "0.1.0"

__all__ = [
    "L1",
    "L2",
    "Budget",
    "Certificate",
    "ElasticNet",
    "ExpungeError",
    "GroupLasso",
    "HalfSquared",
    "Huber",
    "Jackknife",
    "LinearRegression",
    "Logistic",
    "LogisticRegression",
    "Multinomial",
    "Newton",
    "NuclearNorm",
    "Objective",
    "OneVsRest",
    "Polish",
    "Record",
    "Rescaled",
    "Retrain",
    "Rows",
    "SoftmaxRegression",
    "SquaredHinge",
    "Summary",
    "from_sklearn",
    "learn",
    "load",
    "residual",
    "summarise",
    "verify",
]
