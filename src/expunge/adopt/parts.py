# SPDX-License-Identifier: Apache-2.0
"""What was given, taken apart: preprocessing, linear estimator, and who chose it.

A search holds the pipeline it chose, a pipeline ends in an estimator, and a ...CV
estimator is a plain one at the hyper-parameters it chose. The choice was made by
looking at the data, and the certificate says so. What was compared are plain estimators
that were not fitted, which ``objectives`` reads like any other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from numbers import Integral
from typing import Any

import numpy as np
from sklearn import linear_model
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ..exceptions import Unsupported
from .objectives import refusal


@dataclass(frozen=True, slots=True)
class Parts:
    """A fitted model, taken apart.

    Attributes
    ----------
    settings
        The linear estimator, read for its parameters.
    fitted
        What holds its coefficients and classes.
    outer
        What was fitted to the rows as they are given.
    preprocessing
        What comes before it, not fitted; None if nothing does.
    choosers
        The searches and ...CV estimators that chose, from the inside out.
    """

    settings: Any
    fitted: Any
    outer: Any
    preprocessing: Any = None
    choosers: tuple[Any, ...] = ()

    @property
    def n_classes(self) -> int:
        """How many classes it tells apart; zero for a regression."""
        return len(getattr(self.fitted, "classes_", ()))


def take_apart(given: Any) -> Parts:
    """Return the parts of a fitted estimator, pipeline or search."""
    check_is_fitted(given)
    if hasattr(given, "cv_results_") and hasattr(given, "best_index_"):
        return _open_search(given)
    if type(given) is Pipeline:
        return _open_pipeline(given)
    if type(given) in CROSS_VALIDATED:
        return _open_cross_validated(given)
    return Parts(settings=given, fitted=given, outer=given)


def list_candidates(parts: Parts) -> list[Any]:
    """Return what the one choice behind a model compared, as estimators not fitted.

    Nothing, if there is no such choice, or its values were computed from the data.
    """
    if len(parts.choosers) != 1:
        return []
    (chooser,) = parts.choosers
    if type(chooser) in CROSS_VALIDATED:
        strengths = getattr(chooser, CROSS_VALIDATED[type(chooser)].compared)
        if isinstance(strengths, Integral | str | None):
            return []
        ratios: Any = getattr(chooser, "l1_ratio", None)
        ratios = getattr(chooser, "l1_ratios_", ratios)
        pairs = product(np.ravel(strengths).tolist(), np.ravel(ratios).tolist())
        return [_make_plain(chooser, one, ratio=ratio) for one, ratio in pairs]
    candidates = [
        clone(chooser.estimator).set_params(**settings)
        for settings in chooser.cv_results_["params"]
    ]
    return [one[-1] if type(one) is Pipeline else one for one in candidates]


def _open_search(search: Any) -> Parts:
    """Return the parts of what a search chose."""
    best = getattr(search, "best_estimator_", None)
    if best is None:
        raise refusal(
            search, "refit=False leaves no model", instead="search with refit=True"
        )
    parts = take_apart(best)
    return replace(parts, outer=search, choosers=(*parts.choosers, search))


def _open_pipeline(pipeline: Pipeline) -> Parts:
    """Return the parts of a pipeline: its steps but the last, and the last."""
    steps = [
        (name, clone(step))
        for name, step in pipeline.steps[:-1]
        if step is not None and step != "passthrough"
    ]
    last = pipeline.steps[-1][1]
    if last is None or last == "passthrough":
        raise Unsupported(
            "this pipeline ends without an estimator; add one as its last step"
        )
    parts = take_apart(last)
    if parts.preprocessing is not None:
        steps.append(("inner", parts.preprocessing))
    front = steps[0][1] if len(steps) == 1 else Pipeline(steps) if steps else None
    return replace(parts, outer=pipeline, preprocessing=front)


@dataclass(frozen=True, slots=True)
class CrossValidated:
    """How a ...CV estimator is read.

    Attributes
    ----------
    plain
        The class it is, once its hyper-parameters are chosen.
    strength
        Name of the plain class's parameter that is chosen.
    compared
        Name of the attribute that holds the values it chose from.
    """

    plain: type
    strength: str
    compared: str


def _open_cross_validated(given: Any) -> Parts:
    """Return the parts of a ...CV estimator: the plain one that it chose."""
    if not getattr(given, "refit", True):
        raise refusal(
            given,
            "refit=False averages the models of the folds",
            instead="fit it with refit=True",
        )
    chosen = getattr(given, f"{CROSS_VALIDATED[type(given)].strength}_")
    plain = _make_plain(given, chosen, ratio=getattr(given, "l1_ratio_", None))
    return Parts(settings=plain, fitted=given, outer=given, choosers=(given,))


def _make_plain(given: Any, strength: Any, *, ratio: Any) -> Any:
    """Return a ...CV estimator's plain one at some hyper-parameters, not fitted."""
    reading = CROSS_VALIDATED[type(given)]
    plain = reading.plain()
    for name, value in given.get_params(deep=False).items():
        if name in plain.get_params(deep=False):
            setattr(plain, name, value)
    setattr(plain, reading.strength, _one(given, strength))
    if ratio is not None and hasattr(plain, "l1_ratio"):
        plain.l1_ratio = _one(given, ratio)
    return plain


def _one(given: Any, chosen: Any) -> Any:
    """Return the one value chosen, for all classes or targets."""
    values = set(np.ravel(chosen).tolist())
    if len(values) != 1:
        raise refusal(
            given,
            "it chose different values for different classes or targets",
            instead="fit and adopt one model for each",
        )
    return values.pop()


CROSS_VALIDATED: Mapping[type, CrossValidated] = {
    linear_model.LogisticRegressionCV: CrossValidated(
        linear_model.LogisticRegression, "C", "Cs_"
    ),
    linear_model.RidgeCV: CrossValidated(linear_model.Ridge, "alpha", "alphas"),
    linear_model.RidgeClassifierCV: CrossValidated(
        linear_model.RidgeClassifier, "alpha", "alphas"
    ),
    linear_model.LassoCV: CrossValidated(linear_model.Lasso, "alpha", "alphas"),
    linear_model.ElasticNetCV: CrossValidated(
        linear_model.ElasticNet, "alpha", "alphas"
    ),
}
