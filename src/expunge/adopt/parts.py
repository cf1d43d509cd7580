# SPDX-License-Identifier: Apache-2.0
"""What was given, taken apart: preprocessing, linear estimator, and who chose it.

A search holds the pipeline it chose, a pipeline ends in an estimator, and a ...CV
estimator is a plain one at the hyper-parameters it chose. The choice was made by
looking at the data: either the certificate says so, or the choice is made again, among
the same candidates, by an estimator that can forget it. The candidates of a choice are
plain estimators that were not fitted, which ``objectives`` reads like any other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from numbers import Integral
from typing import Any, Literal, TypeAlias

import numpy as np
from sklearn import linear_model, model_selection
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ..exceptions import InvalidInput, Unsupported
from .objectives import refusal

Folds: TypeAlias = int | Literal["loo"]
DEFAULT_FOLDS = 5  # of scikit-learn
SPLITTERS = (
    model_selection.KFold,
    model_selection.StratifiedKFold,
    model_selection.GroupKFold,
    model_selection.StratifiedGroupKFold,
)


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice that was made by looking at the data.

    Attributes
    ----------
    chooser
        The search or ...CV estimator.
    list_candidates
        Returns its candidates, not fitted; raises Unsupported if there is no such list.
    default_folds
        How it cross-validates if its ``cv`` is None.
    """

    chooser: Any
    list_candidates: Callable[[], list[Any]]
    default_folds: Folds = DEFAULT_FOLDS

    @property
    def name(self) -> str:
        """What certificates call it."""
        return type(self.chooser).__name__

    def folds(self) -> Folds:
        """Return the number of folds, or raise Unsupported."""
        cv = self.chooser.cv
        if cv is None:
            return self.default_folds
        if isinstance(cv, Integral):
            return int(cv)
        if type(cv) in SPLITTERS:
            return int(cv.n_splits)
        if type(cv) is model_selection.LeaveOneOut:
            return "loo"
        raise refusal(
            self.chooser,
            f"cv={type(cv).__name__} cannot be made again without a person: folds "
            "here come from a keyed hash of each person's id",
            instead="search with a number of folds as cv, or leave out retune=True",
        )


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
    selections
        Who chose, from the inside out.
    """

    settings: Any
    fitted: Any
    outer: Any
    preprocessing: Any = None
    selections: tuple[Selection, ...] = ()

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


def list_candidates(parts: Parts) -> tuple[list[Any], Folds]:
    """Return the candidates of the one choice behind a model, and its folds."""
    if len(parts.selections) != 1:
        found = ", ".join(one.name for one in parts.selections) or "none"
        raise InvalidInput(
            "retune=True needs one search or ...CV estimator whose choice can be made "
            f"again; found: {found}"
        )
    (selection,) = parts.selections
    return selection.list_candidates(), selection.folds()


def _open_search(search: Any) -> Parts:
    """Return the parts of what a search chose."""
    best = getattr(search, "best_estimator_", None)
    if best is None:
        raise refusal(
            search, "refit=False leaves no model", instead="search with refit=True"
        )
    parts = take_apart(best)
    selection = Selection(search, lambda: _list_searched(search))
    return replace(parts, outer=search, selections=(*parts.selections, selection))


def _list_searched(search: Any) -> list[Any]:
    """Return what a search compared; refuse it if anything else varied."""
    candidates: list[Any] = []
    for settings in search.cv_results_["params"]:
        candidate = clone(search.estimator).set_params(**settings)
        prefix = ""
        if type(candidate) is Pipeline:
            prefix = f"{candidate.steps[-1][0]}__"
            candidate = candidate.steps[-1][1]
        outside = [name for name in settings if not name.startswith(prefix)]
        if outside:
            raise refusal(
                search,
                f"its grid varies {', '.join(map(repr, outside))}, and a tuned "
                "estimator chooses alpha and l1_ratio alone",
                instead="fix it, or leave out retune=True",
            )
        candidates.append(candidate)
    return candidates


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
    list_strengths
        Returns the values compared; raises Unsupported if they come from the data.
    default_folds
        See ``Selection``.
    """

    plain: type
    strength: str
    list_strengths: Callable[[Any], Any]
    default_folds: Folds = DEFAULT_FOLDS

    def make(self, given: Any, strength: Any, *, ratio: Any) -> Any:
        """Return the plain estimator at some hyper-parameters, not fitted."""
        plain = self.plain()
        for name, value in given.get_params(deep=False).items():
            if name in plain.get_params(deep=False):
                setattr(plain, name, value)
        setattr(plain, self.strength, _one(given, strength))
        if ratio is not None and hasattr(plain, "l1_ratio"):
            plain.l1_ratio = _one(given, ratio)
        return plain


def _open_cross_validated(given: Any) -> Parts:
    """Return the parts of a ...CV estimator: the plain one that it chose."""
    reading = CROSS_VALIDATED[type(given)]
    if not getattr(given, "refit", True):
        raise refusal(
            given,
            "refit=False averages the models of the folds",
            instead="fit it with refit=True",
        )

    def candidates() -> list[Any]:
        pairs = product(reading.list_strengths(given), _list_ratios(given))
        return [reading.make(given, one, ratio=ratio) for one, ratio in pairs]

    chosen = getattr(given, f"{reading.strength}_")
    plain = reading.make(given, chosen, ratio=getattr(given, "l1_ratio_", None))
    selection = Selection(given, candidates, reading.default_folds)
    return Parts(settings=plain, fitted=given, outer=given, selections=(selection,))


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


def _list_ratios(given: Any) -> Sequence[Any]:
    """Return the values of l1_ratio that a ...CV estimator compares."""
    ratios: Any = getattr(given, "l1_ratios_", getattr(given, "l1_ratio", None))
    listed: list[Any] = np.ravel(ratios).tolist()
    return listed


def _list_fixed(given: Any) -> Any:
    """Return the alphas given to LassoCV or ElasticNetCV."""
    if isinstance(given.alphas, Integral | str | None):
        raise refusal(
            given,
            "its alphas were computed from the data",
            instead="fit it with a list of alphas, or leave out retune=True",
        )
    return given.alphas


CROSS_VALIDATED: Mapping[type, CrossValidated] = {
    linear_model.LogisticRegressionCV: CrossValidated(
        linear_model.LogisticRegression, "C", lambda given: given.Cs_
    ),
    linear_model.RidgeCV: CrossValidated(
        linear_model.Ridge, "alpha", lambda given: np.ravel(given.alphas), "loo"
    ),
    linear_model.RidgeClassifierCV: CrossValidated(
        linear_model.RidgeClassifier,
        "alpha",
        lambda given: np.ravel(given.alphas),
        "loo",
    ),
    linear_model.LassoCV: CrossValidated(linear_model.Lasso, "alpha", _list_fixed),
    linear_model.ElasticNetCV: CrossValidated(
        linear_model.ElasticNet, "alpha", _list_fixed
    ),
}
