# SPDX-License-Identifier: Apache-2.0
"""From a release to a plain scikit-learn estimator, for serving and for export.

Only what predictions need is there: coefficients, intercepts, classes and names of
features, all of the last release. Hyper-parameters keep scikit-learn's defaults, for
the one that matters (C = 1/(alpha W)) would tell how much weight is left.
"""

from typing import Any

import numpy as np
from sklearn import linear_model
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import LabelBinarizer
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

from .._typing import Matrix, Vector
from ..exceptions import Unsupported
from ..linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from ..linear_model.base import Forgetful


def to_sklearn(model: Forgetful) -> Any:
    """Return a fitted scikit-learn estimator that predicts what the release predicts.

    LogisticRegression, OneVsRestClassifier of it (more than two classes one against
    the rest), LinearSVC (losses that give no probabilities) or LinearRegression.

    Parameters
    ----------
    model
        A fitted estimator of this package; a copy that carries the release alone
        will do.
    """
    check_is_fitted(model, "_snapshot")
    if isinstance(model, LinearRegression):
        return _filled(linear_model.LinearRegression(), model)
    if isinstance(model, SoftmaxRegression):
        return _softmax(model)
    if isinstance(model, LogisticRegression):
        return _logistic(model)
    raise Unsupported(
        f"{type(model).__name__} has no counterpart in scikit-learn; take its coef_ "
        "and intercept_"
    )


def _softmax(model: SoftmaxRegression) -> Any:
    """Return softmax regression; for two classes one row of differences."""
    plain = _filled(linear_model.LogisticRegression(), model)
    if len(plain.coef_) == 2:
        plain.coef_ = plain.coef_[1:] - plain.coef_[:1]
        plain.intercept_ = plain.intercept_[1:] - plain.intercept_[:1]
    return plain


def _logistic(model: LogisticRegression) -> Any:
    """Return the linear classifier whose loss is the model's."""
    if len(model.classes_) > 2:
        return _one_vs_rest(model)
    logistic = model.certificate_.objective["loss"]["name"] == "Logistic"
    # LinearSVC is a linear classifier without probabilities, which no other loss has.
    plain = linear_model.LogisticRegression() if logistic else LinearSVC()
    return _filled(plain, model)


def _one_vs_rest(model: LogisticRegression) -> Any:
    """Return binary models side by side."""
    plain = OneVsRestClassifier(linear_model.LogisticRegression())
    plain.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(model.classes_)
    plain.estimators_ = [
        _with_coefficients(_binary(model), coef[None, :], np.array([intercept]))
        for coef, intercept in zip(model.coef_, model.intercept_, strict=True)
    ]
    if not hasattr(plain, "classes_"):  # a property until scikit-learn 1.8
        plain.classes_ = model.classes_.copy()
    return _described(plain, model)


def _binary(model: LogisticRegression) -> Any:
    """Return a classifier of 0 and 1 that knows the features."""
    plain = _described(linear_model.LogisticRegression(), model)
    plain.classes_ = np.array([0, 1])
    return plain


def _filled(plain: Any, model: Any) -> Any:
    """Return the estimator with the model's release in it."""
    if hasattr(model, "classes_"):
        plain.classes_ = model.classes_.copy()
    filled = _with_coefficients(plain, model.coef_, model.intercept_)
    return _described(filled, model)


def _with_coefficients(plain: Any, coef: Matrix, intercept: Vector) -> Any:
    """Return the estimator with coefficients of its own."""
    plain.coef_ = np.array(coef)
    plain.intercept_ = np.array(intercept) if np.ndim(intercept) else float(intercept)
    plain.n_iter_ = np.zeros(1, dtype=np.int32)
    return plain


def _described(plain: Any, model: Any) -> Any:
    """Return the estimator with the features it expects."""
    plain.n_features_in_ = model.n_features_in_
    if hasattr(model, "feature_names_in_"):
        plain.feature_names_in_ = model.feature_names_in_.copy()
    return plain
