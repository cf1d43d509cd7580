# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's own checks, all of them."""

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from expunge.linear_model import (
    BernoulliNB,
    ComplementNB,
    EmbeddingClassifier,
    ExactLinearRegression,
    ExactRidge,
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    MultinomialNB,
    NearestCentroid,
    NegativeBinomialRegressor,
    PoissonRegressor,
    QuantileRegressor,
    SoftmaxRegression,
    TweedieRegressor,
)
from expunge.linear_model.tuned import TunedClassifier, TunedRegressor


def not_expected_to_pass(estimator: Any) -> dict[str, str]:
    """Return the checks that an estimator fails by design, with the reason."""
    if isinstance(estimator, ExactLinearRegression):
        reason = "columns that depend on one another are refused"
        names = ("check_sample_weight_equivalence_on_dense_data", "check_fit2d_1sample")
        return dict.fromkeys(names, reason)
    if not isinstance(estimator, TunedClassifier | TunedRegressor):
        return {}
    reason = "copies of a row without owners are people of their own, in other folds"
    names = ("dense", "sparse")
    return {f"check_sample_weight_equivalence_on_{name}_data": reason for name in names}


@parametrize_with_checks(
    [
        LogisticRegression(),
        LinearRegression(),
        SoftmaxRegression(),
        EmbeddingClassifier(),
        PoissonRegressor(),
        GammaRegressor(),
        TweedieRegressor(),
        TweedieRegressor(power=1.5),
        NegativeBinomialRegressor(),
        QuantileRegressor(),
        # Not counts, but the checks' numbers, on a grid.
        MultinomialNB(decimals=6),
        ComplementNB(decimals=6),
        BernoulliNB(),
        NearestCentroid(),
        ExactRidge(),
        ExactLinearRegression(),
        TunedClassifier(fold_key="key"),
        TunedRegressor(fold_key="key"),
    ],
    expected_failed_checks=not_expected_to_pass,
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
