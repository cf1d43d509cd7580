# SPDX-License-Identifier: Apache-2.0
r"""What scikit-learn's linear estimators minimise, in the words of this package.

With w the weight of a row, W the sum of all weights, b the coefficients and
R = l1_ratio |b|_1 + (1 - l1_ratio) |b|^2 / 2, they minimise

    LogisticRegression    C sum w loss + R             C
    LinearSVC             the same, squared hinge      C
    Ridge                 sum w error^2 + a |b|^2      C = 1/a
    RidgeClassifier       the same on -1 and +1        C = 1/a
    Lasso, ElasticNet     mean error^2 / 2 + a R       alpha = a
    SGDClassifier         mean loss + a R              alpha = a
    SGDRegressor          mean loss + a R              alpha = a
    PoissonRegressor      mean half deviance + a R     alpha = a
    GammaRegressor        the same                     alpha = a
    TweedieRegressor      the same                     alpha = a

and the model here gets that C, which stands for alpha = 1/(C W), or that alpha, so that
removal aims at retraining with the same hyper-parameter. Estimators are recognised by
their exact class, because a subclass may minimise something else. A setting without a
counterpart is refused, never approximated. Only parameters are read, so that the
candidates of a search, which were never fitted to all rows, can be read too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, TypeAlias

import numpy as np
from sklearn import linear_model
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from ..core.losses import HalfSquared, Huber, Loss, SquaredHinge
from ..exceptions import Unsupported
from ..linear_model import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    SoftmaxRegression,
    TweedieRegressor,
)
from ..linear_model.generalised import GeneralisedRegression

EstimatorClass: TypeAlias = (
    type[LogisticRegression]
    | type[LinearRegression]
    | type[SoftmaxRegression]
    | type[GeneralisedRegression]
)


@dataclass(frozen=True, slots=True)
class AdoptedObjective:
    """An estimator's objective, without the rows.

    Attributes
    ----------
    estimator
        The class of this package that minimises the same.
    C, alpha
        The factor of the sum of the losses or, if that is None, of the penalty beside
        their mean.
    l1_ratio, fit_intercept
        As that class takes them.
    further
        Its other parameters.
    counts_rows
        Whether a mean divides by the number of rows instead of their weight.
    """

    estimator: EstimatorClass
    C: float | None
    alpha: float | None
    l1_ratio: float
    fit_intercept: bool
    further: Mapping[str, Any] = field(default_factory=dict)
    counts_rows: bool = False

    @property
    def penalised(self) -> bool:
        """Whether there is a penalty."""
        factor = self.alpha if self.C is None else self.C
        return factor is not None and isfinite(factor) and factor > 0.0

    def alpha_for(self, weight: float) -> float:
        """Return alpha for rows of this total weight."""
        if self.C is not None:
            return 1.0 / (self.C * weight)
        assert self.alpha is not None
        return self.alpha

    def parameters(self) -> dict[str, Any]:
        """Return the estimator's parameters."""
        strength = {"C": self.C} if self.alpha is None else {"alpha": self.alpha}
        return {
            **strength,
            "l1_ratio": self.l1_ratio,
            "fit_intercept": self.fit_intercept,
            **self.further,
        }


def read_objective(estimator: Any, n_classes: int) -> AdoptedObjective:
    """Return what an estimator minimises, or raise Unsupported.

    Parameters
    ----------
    estimator
        It need not be fitted.
    n_classes
        How many classes it tells apart; zero for a regression.
    """
    kind = type(estimator)
    if kind not in READERS:
        if kind.__name__ in INSTEAD:
            why, instead = INSTEAD[kind.__name__]
            raise refusal(estimator, why, instead=instead)
        known = ", ".join(sorted(known.__name__ for known in READERS))
        raise Unsupported(
            f"{kind.__name__} cannot be adopted; {known} can, alone, as the last step "
            "of a Pipeline, in a search, and in the ...CV estimators of scikit-learn"
        )
    objective = READERS[kind](estimator, n_classes)
    if not objective.penalised:
        raise refusal(
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


def refusal(estimator: Any, why: str, *, instead: str) -> Unsupported:
    """Return the error for an estimator without a counterpart."""
    return Unsupported(f"{type(estimator).__name__}: {why}; {instead}")


def _read_logistic(estimator: Any, n_classes: int) -> AdoptedObjective:
    """Read LogisticRegression: C sum w loss + R."""
    several = n_classes > 2
    # scikit-learn 1.8 removed both ways of one-vs-rest inside the estimator.
    scheme = getattr(estimator, "multi_class", "auto")
    apart = scheme == "ovr" or estimator.solver == "liblinear"
    if scheme == "multinomial" and not several:
        raise refusal(
            estimator,
            "multi_class='multinomial' penalises two classes twice",
            instead="fit it without multi_class",
        )
    if several and apart:
        _require_same_weights(estimator)
    return AdoptedObjective(
        estimator=SoftmaxRegression if several and not apart else LogisticRegression,
        C=float(estimator.C),
        alpha=None,
        l1_ratio=_read_l1_ratio(estimator),
        fit_intercept=bool(estimator.fit_intercept),
        further=_read_intercept(estimator) if estimator.solver == "liblinear" else {},
    )


def _read_intercept(estimator: Any) -> dict[str, Any]:
    """Return how liblinear penalises the intercept."""
    if not estimator.fit_intercept:
        return {}
    if estimator.intercept_scaling != 1:
        raise refusal(
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
        raise refusal(
            estimator, "penalty=None", instead="fit it with a penalty, however small"
        )
    ratios = {"l2": 0.0, "l1": 1.0}
    return ratios[penalty] if penalty in ratios else float(estimator.l1_ratio or 0.0)


def _read_one_vs_rest(estimator: Any, n_classes: int) -> AdoptedObjective:
    """Read OneVsRestClassifier(LogisticRegression): binary models side by side."""
    parts = getattr(estimator, "estimators_", [estimator.estimator])
    several_labels = getattr(estimator, "multilabel_", False)
    if {type(part) for part in parts} != {linear_model.LogisticRegression} or (
        several_labels
    ):
        raise refusal(
            estimator,
            "it must hold a LogisticRegression for each of several classes",
            instead="adopt its estimators_ one by one",
        )
    _require_same_weights(estimator.estimator)
    return _read_logistic(parts[0], 2)


def _read_linear_svc(estimator: Any, n_classes: int) -> AdoptedObjective:
    """Read LinearSVC: C sum w max(0, 1 - margin)^2 + R, the intercept penalised."""
    if estimator.loss != "squared_hinge":
        raise refusal(
            estimator,
            f"loss={estimator.loss!r} has a kink",
            instead="fit it with loss='squared_hinge'",
        )
    if estimator.multi_class != "ovr":
        raise refusal(
            estimator,
            f"multi_class={estimator.multi_class!r} is a loss of its own",
            instead="fit it with multi_class='ovr'",
        )
    if n_classes > 2:
        _require_same_weights(estimator)
    return AdoptedObjective(
        estimator=LogisticRegression,
        C=float(estimator.C),
        alpha=None,
        l1_ratio=_read_l1_ratio(estimator),
        fit_intercept=bool(estimator.fit_intercept),
        further=_read_intercept(estimator) | {"loss": SquaredHinge()},
    )


def _read_ridge(estimator: Any, n_classes: int) -> AdoptedObjective:
    """Read Ridge and RidgeClassifier: sum w error^2 + alpha |b|^2."""
    _require_free_signs(estimator)
    strength, *others = np.unique(np.asarray(estimator.alpha, dtype=np.float64))
    if others:
        raise refusal(
            estimator,
            "alpha differs from target to target",
            instead="fit and adopt one model per target",
        )
    return AdoptedObjective(
        estimator=LogisticRegression if n_classes else LinearRegression,
        C=1.0 / strength if strength else inf,
        alpha=None,
        l1_ratio=0.0,
        fit_intercept=bool(estimator.fit_intercept),
        further={"loss": HalfSquared()} if n_classes else {},
    )


def _read_elastic_net(estimator: Any, n_classes: int) -> AdoptedObjective:
    """Read Lasso and ElasticNet: mean error^2 / 2 + alpha R."""
    _require_free_signs(estimator)
    return AdoptedObjective(
        estimator=LinearRegression,
        C=None,
        alpha=float(estimator.alpha),
        l1_ratio=float(estimator.l1_ratio),
        fit_intercept=bool(estimator.fit_intercept),
    )


def _read_sgd(estimator: Any, n_classes: int) -> AdoptedObjective:
    """Read SGDClassifier and SGDRegressor: mean loss + alpha R."""
    known: dict[str, Loss | None] = {
        "squared_error": HalfSquared(),
        "huber": Huber(float(estimator.epsilon)),
    }
    if n_classes:
        known |= {"log_loss": None, "squared_hinge": SquaredHinge()}
    if estimator.loss not in known:
        raise refusal(
            estimator,
            f"loss={estimator.loss!r} has no counterpart here",
            instead=f"fit it with one of {', '.join(map(repr, sorted(known)))}",
        )
    if estimator.early_stopping:
        raise refusal(
            estimator,
            "early_stopping=True sets part of the rows aside",
            instead="fit it with early_stopping=False",
        )
    if n_classes > 2:
        _require_same_weights(estimator)
    loss = known[estimator.loss]
    return AdoptedObjective(
        estimator=LogisticRegression if n_classes else LinearRegression,
        C=None,
        alpha=float(estimator.alpha),
        l1_ratio=_read_l1_ratio(estimator),
        fit_intercept=bool(estimator.fit_intercept),
        further={} if loss is None else {"loss": loss},
        counts_rows=True,
    )


def _read_deviance(estimator: Any, n_classes: int) -> AdoptedObjective:
    """Read PoissonRegressor and its like: mean half deviance + alpha |b|^2 / 2."""
    known: dict[type, type[GeneralisedRegression]] = {
        linear_model.PoissonRegressor: PoissonRegressor,
        linear_model.GammaRegressor: GammaRegressor,
        linear_model.TweedieRegressor: TweedieRegressor,
    }
    kind = known[type(estimator)]
    further: dict[str, Any] = {}
    if kind is TweedieRegressor:
        power, link = float(estimator.power), estimator.link
        convex = 1.0 <= power <= 2.0 if link != "identity" else power == 0.0
        if not (convex or (power == 0.0 and link == "auto")):
            raise refusal(
                estimator,
                f"power={power:g} with link={link!r} is not convex",
                instead="fit it with a power from 1 to 2 and link='log'",
            )
        further = {"power": power, "link": "auto"}
    return AdoptedObjective(
        estimator=kind,
        C=None,
        alpha=float(estimator.alpha),
        l1_ratio=0.0,
        fit_intercept=bool(estimator.fit_intercept),
        further=further,
    )


def _refuse_quantile(estimator: Any, n_classes: int) -> AdoptedObjective:
    """Refuse QuantileRegressor, whose loss has a kink."""
    raise refusal(
        estimator,
        "its loss has a kink, and removal needs a smooth one",
        instead=f"fit QuantileRegressor(quantile={estimator.quantile}, width=..., "
        f"alpha={estimator.alpha}, l1_ratio=1, ridge=1e-6) of expunge to the rows",
    )


def _require_same_weights(estimator: Any) -> None:
    """Raise Unsupported if a row's weight would differ from class to class."""
    if estimator.class_weight is not None:
        raise refusal(
            estimator,
            "class_weight weighs each row differently for each class",
            instead="fit it with sample_weight instead",
        )


def _require_free_signs(estimator: Any) -> None:
    """Raise Unsupported if coefficients must not be negative."""
    if estimator.positive:
        raise refusal(
            estimator,
            "positive=True constrains the coefficients",
            instead="fit it with positive=False",
        )


# Why others cannot be adopted, and what nearly does the same.
INSTEAD: Mapping[str, tuple[str, str]] = {
    "LinearRegression": (
        "it has no penalty, and certified removal needs one",
        "fit Ridge(alpha=1e-3), whose penalty is small",
    ),
    "HuberRegressor": (
        "it fits the scale of the errors too",
        "fit LinearRegression(loss=Huber()) of expunge to the rows",
    ),
    "SVC": (
        "its parameters are rows of people",
        "fit LinearSVC(), after RBFSampler(random_state=0) if it must bend",
    ),
    "Perceptron": (
        "its loss has a kink, and removal needs a smooth one",
        "fit SGDClassifier(loss='squared_hinge')",
    ),
}
READERS: Mapping[type, Callable[[Any, int], AdoptedObjective]] = {
    linear_model.LogisticRegression: _read_logistic,
    OneVsRestClassifier: _read_one_vs_rest,
    LinearSVC: _read_linear_svc,
    linear_model.Ridge: _read_ridge,
    linear_model.RidgeClassifier: _read_ridge,
    linear_model.Lasso: _read_elastic_net,
    linear_model.ElasticNet: _read_elastic_net,
    linear_model.SGDClassifier: _read_sgd,
    linear_model.SGDRegressor: _read_sgd,
    linear_model.PoissonRegressor: _read_deviance,
    linear_model.GammaRegressor: _read_deviance,
    linear_model.TweedieRegressor: _read_deviance,
    linear_model.QuantileRegressor: _refuse_quantile,
}
