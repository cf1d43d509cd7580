# SPDX-License-Identifier: Apache-2.0
r"""Terms: what a fitted scikit-learn estimator minimised, in this package's words.

With W the sum of the weights and R = l1_ratio |w|_1 + (1 - l1_ratio) |w|^2 / 2,

    LogisticRegression    C sum w loss + R             alpha = 1/(C W)   "sum"
    Ridge                 sum w error^2 + a |w|^2      alpha = a/W       "sum"
    RidgeClassifier       the same on -1 and +1        alpha = a/W       "sum"
    Lasso, ElasticNet     mean error^2 / 2 + a R       alpha = a         "mean"
    SGDClassifier         mean loss + a R              alpha = a         "mean"

so that retraining with the same hyper-parameter is what a removal aims at. Estimators
are known by their exact class: what derives from one may minimise something else. A
setting that has no counterpart is refused, never approximated.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
from sklearn import linear_model
from sklearn.multiclass import OneVsRestClassifier

from ..core.losses import HalfSquared
from ..core.objective import Scaling
from ..exceptions import Unsupported
from ..linear_model import LinearRegression, LogisticRegression, SoftmaxRegression

Face: TypeAlias = (
    type[LogisticRegression] | type[LinearRegression] | type[SoftmaxRegression]
)


@dataclass(frozen=True, slots=True)
class Terms:
    """An estimator's objective, but for the rows.

    Attributes
    ----------
    face
        The estimator that minimises the same.
    strength
        The factor of the penalty: beside the mean loss under "mean" scaling, beside
        the sum under "sum".
    l1_ratio, scaling, fit_intercept
        As the face takes them.
    further
        What else the face is told.
    """

    face: Face
    strength: float
    l1_ratio: float
    scaling: Scaling
    fit_intercept: bool
    further: Mapping[str, Any] = field(default_factory=dict)

    def parameters(self, weight: float) -> dict[str, Any]:
        """Return the face's parameters for rows of this total weight."""
        summed = self.scaling == "sum"
        return {
            "alpha": self.strength / weight if summed else self.strength,
            "l1_ratio": self.l1_ratio,
            "scaling": self.scaling,
            "fit_intercept": self.fit_intercept,
            **self.further,
        }


def terms_of(estimator: Any) -> Terms:
    """Return what a fitted estimator minimised, or raise Unsupported."""
    kind = type(estimator)
    if kind not in READERS:
        known = ", ".join(sorted(known.__name__ for known in READERS))
        raise Unsupported(
            f"{kind.__name__} cannot be adopted; {known} can. Of a pipeline adopt the "
            "last step with the features it sees; of a search adopt best_estimator_ "
            "and call declare_tuned(search)"
        )
    terms = READERS[kind](estimator)
    if not (isfinite(terms.strength) and terms.strength > 0.0):
        raise _refusal(
            estimator,
            "it has no penalty, and certified removal needs one",
            "fit it with a penalty, however small",
        )
    return terms


def coefficients_of(estimator: Any) -> tuple[Any, Any]:
    """Return coefficients (k, d) and intercepts (k,) as they were given."""
    if isinstance(estimator, OneVsRestClassifier):
        pairs = [coefficients_of(part) for part in estimator.estimators_]
        return np.vstack([c for c, _ in pairs]), np.concatenate([b for _, b in pairs])
    coef = estimator.coef_
    coef = coef.toarray() if hasattr(coef, "toarray") else coef  # after sparsify()
    coef = np.atleast_2d(np.asarray(coef, dtype=np.float64))
    intercept = np.asarray(estimator.intercept_, dtype=np.float64).ravel()
    return coef, np.broadcast_to(intercept, len(coef))


def _logistic(estimator: Any) -> Terms:
    """Read LogisticRegression: C sum w loss + R."""
    several = len(estimator.classes_) > 2
    # Both ways of one-vs-rest inside the estimator are gone since scikit-learn 1.8.
    scheme = getattr(estimator, "multi_class", "auto")
    apart = scheme == "ovr" or estimator.solver == "liblinear"
    if scheme == "multinomial" and not several:
        raise _refusal(
            estimator,
            "multi_class='multinomial' penalises two classes twice",
            "fit it without multi_class",
        )
    return Terms(
        face=SoftmaxRegression if several and not apart else LogisticRegression,
        strength=1.0 / float(estimator.C),
        l1_ratio=_l1_ratio(estimator),
        scaling="sum",
        fit_intercept=bool(estimator.fit_intercept),
        further=_intercept_of(estimator),
    )


def _intercept_of(estimator: Any) -> dict[str, Any]:
    """Return how the intercept is penalised: liblinear alone does so."""
    if estimator.solver != "liblinear" or not estimator.fit_intercept:
        return {}
    if estimator.intercept_scaling != 1:
        raise _refusal(
            estimator,
            f"liblinear penalises the intercept, and intercept_scaling="
            f"{estimator.intercept_scaling} penalises it otherwise than the rest",
            "fit it with another solver, or with intercept_scaling=1",
        )
    return {"penalize_intercept": True}


def _l1_ratio(estimator: Any) -> float:
    """Return the share of L1, from ``penalty`` where that is still set."""
    penalty = getattr(estimator, "penalty", "deprecated")
    if penalty is None:
        raise _refusal(
            estimator, "penalty=None", "fit it with a penalty, however small"
        )
    ratios = {"l2": 0.0, "l1": 1.0}
    return ratios[penalty] if penalty in ratios else float(estimator.l1_ratio or 0.0)


def _one_vs_rest(estimator: Any) -> Terms:
    """Read OneVsRestClassifier(LogisticRegression): binary models side by side."""
    parts = {type(part) for part in estimator.estimators_}
    if parts != {linear_model.LogisticRegression} or estimator.multilabel_:
        raise _refusal(
            estimator,
            "it must hold a LogisticRegression for each of several classes",
            "adopt its estimators_ one by one",
        )
    if estimator.estimator.class_weight is not None:
        raise _refusal(
            estimator,
            "class_weight weighs each row differently for each class",
            "fit it with sample_weight instead",
        )
    terms = _logistic(estimator.estimators_[0])
    return terms


def _ridge(estimator: Any) -> Terms:
    """Read Ridge: sum w error^2 + alpha |w|^2."""
    _require_free_signs(estimator)
    strengths = np.unique(np.asarray(estimator.alpha, dtype=np.float64))
    if len(strengths) != 1:
        raise _refusal(
            estimator,
            "alpha differs from target to target",
            "fit and adopt one model a target",
        )
    return Terms(
        face=LinearRegression,
        strength=float(strengths[0]),
        l1_ratio=0.0,
        scaling="sum",
        fit_intercept=bool(estimator.fit_intercept),
    )


def _ridge_classifier(estimator: Any) -> Terms:
    """Read RidgeClassifier: squared error of the targets -1 and +1."""
    _require_free_signs(estimator)
    if len(estimator.classes_) != 2:
        raise _refusal(
            estimator,
            f"it has {len(estimator.classes_)} classes, and squared error is adopted "
            "for two",
            "use LogisticRegression, or adopt a Ridge on targets -1 and +1",
        )
    return Terms(
        face=LogisticRegression,
        strength=float(estimator.alpha),
        l1_ratio=0.0,
        scaling="sum",
        fit_intercept=bool(estimator.fit_intercept),
        further={"loss": HalfSquared()},
    )


def _elastic_net(estimator: Any) -> Terms:
    """Read Lasso and ElasticNet: mean error^2 / 2 + alpha R."""
    _require_free_signs(estimator)
    return Terms(
        face=LinearRegression,
        strength=float(estimator.alpha),
        l1_ratio=float(estimator.l1_ratio),
        scaling="mean",
        fit_intercept=bool(estimator.fit_intercept),
    )


def _descent(estimator: Any) -> Terms:
    """Read SGDClassifier: mean log loss + alpha R, classes one against the rest."""
    if estimator.loss != "log_loss":
        raise _refusal(
            estimator,
            f"loss={estimator.loss!r}; of its losses 'log_loss' can be adopted",
            "fit it with loss='log_loss'",
        )
    if len(estimator.classes_) > 2 and estimator.class_weight is not None:
        raise _refusal(
            estimator,
            "class_weight weighs each row differently for each class",
            "fit it with sample_weight instead",
        )
    return Terms(
        face=LogisticRegression,
        strength=float(estimator.alpha),
        l1_ratio=_l1_ratio(estimator),
        scaling="mean",
        fit_intercept=bool(estimator.fit_intercept),
    )


def _require_free_signs(estimator: Any) -> None:
    """Refuse coefficients that may not be negative."""
    if estimator.positive:
        raise _refusal(
            estimator,
            "positive=True constrains the coefficients",
            "fit it with positive=False",
        )


def _refusal(estimator: Any, why: str, instead: str) -> Unsupported:
    """Return the error of an estimator that has no counterpart."""
    return Unsupported(f"{type(estimator).__name__}: {why}; {instead}")


READERS: Mapping[type, Callable[[Any], Terms]] = {
    linear_model.LogisticRegression: _logistic,
    OneVsRestClassifier: _one_vs_rest,
    linear_model.Ridge: _ridge,
    linear_model.RidgeClassifier: _ridge_classifier,
    linear_model.Lasso: _elastic_net,
    linear_model.ElasticNet: _elastic_net,
    linear_model.SGDClassifier: _descent,
}
