# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's own checks, all of them."""

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from expunge.linear_model import (
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
)


@parametrize_with_checks(
    [LogisticRegression(), LinearRegression(), SoftmaxRegression()]
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
