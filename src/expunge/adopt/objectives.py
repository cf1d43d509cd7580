# SPDX-License-Identifier: Apache-2.0
r"""What a fitted scikit-learn estimator minimised, in this package's terms.

With W the sum of the weights and R = l1_ratio |w|_1 + (1 - l1_ratio) |w|^2 / 2,

    LogisticRegression    C sum w loss + R             alpha = 1/(C W)   "sum"
    Ridge                 sum w error^2 + a |w|^2      alpha = a/W       "sum"
    RidgeClassifier       the same on -1 and +1        alpha = a/W       "sum"
    Lasso, ElasticNet     mean error^2 / 2 + a R       alpha = a         "mean"
    SGDClassifier         mean loss + a R              alpha = a         "mean"

so that a removal aims at retraining with the same hyper-parameter. Estimators are
recognised by their exact class, because a subclass may minimise something else. A
setting without a counterpart is refused, never approximated.
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

EstimatorClass: TypeAlias = (
    type[LogisticRegression] | type[LinearRegression] | type[SoftmaxRegression]
)


@dataclass(frozen=True, slots=True)
class AdoptedObjective:
    """An estimator's objective, without the rows.

    Attributes
    ----------
    estimator
        The class of this package that minimises the same.
    strength
        The factor of the penalty, relative to the mean loss under "mean" scaling and to
        the sum of losses under "sum".
    l1_ratio, scaling, fit_intercept
        As that class takes them.
    further
        Its other parameters.
    """

    estimator: EstimatorClass
    strength: float
    l1_ratio: float
    scaling: Scaling
    fit_intercept: bool
    further: Mapping[str, Any] = field(default_factory=dict)

    def parameters(self, weight: float) -> dict[str, Any]:
        """Return the estimator's parameters for rows of this total weight."""
        summed = self.scaling == "sum"
        return {
            "alpha": self.strength / weight if summed else self.strength,
            "l1_ratio": self.l1_ratio,
            "scaling": self.scaling,
            "fit_intercept": self.fit_intercept,
            **self.further,
        }


def read_objective(estimator: Any) -> AdoptedObjective:
    """Return what a fitted estimator minimised, or raise Unsupported."""
    kind = type(estimator)
    if kind not in READERS:
        known = ", ".join(sorted(known.__name__ for known in READERS))
        raise Unsupported(
            f"{kind.__name__} cannot be adopted; {known} can. For a pipeline, adopt "
            "the last step with the features it sees; for a search, adopt "
            "best_estimator_ and call declare_tuned(search)"
        )
    objective = READERS[kind](estimator)
    if not (isfinite(objective.strength) and objective.strength > 0.0):
        raise _refusal(
            estimator,
            "it has no penalty, and certified removal needs one",
            instead="fit it with a penalty, however small",
        )
    return objective


def read_coefficients(estimator: Any) -> tuple[Any, Any]:
    """Return the fitted coefficients (k, d) and intercepts (k,)."""
    if isinstance(estimator, OneVsRestClassifier):
        pairs = [read_coefficients(part) for part in estimator.estimators_]
        return np.vstack([c for c, _ in pairs]), np.concatenate([b for _, b in pairs])
    coef = estimator.coef_
    coef = coef.toarray() if hasattr(coef, "toarray") else coef  # after sparsify()
    coef = np.atleast_2d(np.asarray(coef, dtype=np.float64))
    intercept = np.asarray(estimator.intercept_, dtype=np.float64).ravel()
    return coef, np.broadcast_to(intercept, len(coef))


def _read_logistic(estimator: Any) -> AdoptedObjective:
    """Read LogisticRegression: C sum w loss + R."""
    several = len(estimator.classes_) > 2
    # scikit-learn 1.8 removed both ways of one-vs-rest inside the estimator.
    scheme = getattr(estimator, "multi_class", "auto")
    apart = scheme == "ovr" or estimator.solver == "liblinear"
    if scheme == "multinomial" and not several:
        raise _refusal(
            estimator,
            "multi_class='multinomial' penalises two classes twice",
            instead="fit it without multi_class",
        )
    return AdoptedObjective(
        estimator=SoftmaxRegression if several and not apart else LogisticRegression,
        strength=1.0 / float(estimator.C),
        l1_ratio=_read_l1_ratio(estimator),
        scaling="sum",
        fit_intercept=bool(estimator.fit_intercept),
        further=_read_intercept(estimator),
    )


def _read_intercept(estimator: Any) -> dict[str, Any]:
    """Return how the intercept is penalised, which only liblinear does."""
    if estimator.solver != "liblinear" or not estimator.fit_intercept:
        return {}
    if estimator.intercept_scaling != 1:
        raise _refusal(
            estimator,
            f"liblinear penalises the intercept, and intercept_scaling="
            f"{estimator.intercept_scaling} penalises it differently from the rest",
            instead="fit it with another solver, or with intercept_scaling=1",
        )
    return {"penalize_intercept": True}


def _read_l1_ratio(estimator: Any) -> float:
    """Return the share of L1, from ``penalty`` if that is still set."""
    penalty = getattr(estimator, "penalty", "deprecated")
    if penalty is None:
        raise _refusal(
            estimator, "penalty=None", instead="fit it with a penalty, however small"
        )
    ratios = {"l2": 0.0, "l1": 1.0}
    return ratios[penalty] if penalty in ratios else float(estimator.l1_ratio or 0.0)


def _read_one_vs_rest(estimator: Any) -> AdoptedObjective:
    """Read OneVsRestClassifier(LogisticRegression): binary models side by side."""
    parts = {type(part) for part in estimator.estimators_}
    if parts != {linear_model.LogisticRegression} or estimator.multilabel_:
        raise _refusal(
            estimator,
            "it must hold a LogisticRegression for each of several classes",
            instead="adopt its estimators_ one by one",
        )
    if estimator.estimator.class_weight is not None:
        raise _refusal(
            estimator,
            "class_weight weighs each row differently for each class",
            instead="fit it with sample_weight instead",
        )
    return _read_logistic(estimator.estimators_[0])


def _read_ridge(estimator: Any) -> AdoptedObjective:
    """Read Ridge: sum w error^2 + alpha |w|^2."""
    _require_free_signs(estimator)
    strengths = np.unique(np.asarray(estimator.alpha, dtype=np.float64))
    if len(strengths) != 1:
        raise _refusal(
            estimator,
            "alpha differs from target to target",
            instead="fit and adopt one model per target",
        )
    return AdoptedObjective(
        estimator=LinearRegression,
        strength=float(strengths[0]),
        l1_ratio=0.0,
        scaling="sum",
        fit_intercept=bool(estimator.fit_intercept),
    )


def _read_ridge_classifier(estimator: Any) -> AdoptedObjective:
    """Read RidgeClassifier: squared error of the targets -1 and +1."""
    _require_free_signs(estimator)
    if len(estimator.classes_) != 2:
        raise _refusal(
            estimator,
            f"it has {len(estimator.classes_)} classes, and squared error is adopted "
            "for two",
            instead="use LogisticRegression, or adopt a Ridge on targets -1 and +1",
        )
    return AdoptedObjective(
        estimator=LogisticRegression,
        strength=float(estimator.alpha),
        l1_ratio=0.0,
        scaling="sum",
        fit_intercept=bool(estimator.fit_intercept),
        further={"loss": HalfSquared()},
    )


def _read_elastic_net(estimator: Any) -> AdoptedObjective:
    """Read Lasso and ElasticNet: mean error^2 / 2 + alpha R."""
    _require_free_signs(estimator)
    return AdoptedObjective(
        estimator=LinearRegression,
        strength=float(estimator.alpha),
        l1_ratio=float(estimator.l1_ratio),
        scaling="mean",
        fit_intercept=bool(estimator.fit_intercept),
    )


def _read_sgd(estimator: Any) -> AdoptedObjective:
    """Read SGDClassifier: mean log loss + alpha R, classes one against the rest."""
    if estimator.loss != "log_loss":
        raise _refusal(
            estimator,
            f"loss={estimator.loss!r}; of its losses 'log_loss' can be adopted",
            instead="fit it with loss='log_loss'",
        )
    if len(estimator.classes_) > 2 and estimator.class_weight is not None:
        raise _refusal(
            estimator,
            "class_weight weighs each row differently for each class",
            instead="fit it with sample_weight instead",
        )
    return AdoptedObjective(
        estimator=LogisticRegression,
        strength=float(estimator.alpha),
        l1_ratio=_read_l1_ratio(estimator),
        scaling="mean",
        fit_intercept=bool(estimator.fit_intercept),
    )


def _require_free_signs(estimator: Any) -> None:
    """Raise Unsupported if coefficients must not be negative."""
    if estimator.positive:
        raise _refusal(
            estimator,
            "positive=True constrains the coefficients",
            instead="fit it with positive=False",
        )


def _refusal(estimator: Any, why: str, *, instead: str) -> Unsupported:
    """Return the error for an estimator without a counterpart."""
    return Unsupported(f"{type(estimator).__name__}: {why}; {instead}")


READERS: Mapping[type, Callable[[Any], AdoptedObjective]] = {
    linear_model.LogisticRegression: _read_logistic,
    OneVsRestClassifier: _read_one_vs_rest,
    linear_model.Ridge: _read_ridge,
    linear_model.RidgeClassifier: _read_ridge_classifier,
    linear_model.Lasso: _read_elastic_net,
    linear_model.ElasticNet: _read_elastic_net,
    linear_model.SGDClassifier: _read_sgd,
}
