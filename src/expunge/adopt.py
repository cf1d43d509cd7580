# SPDX-License-Identifier: Apache-2.0
r"""Fitted scikit-learn estimators become models that can forget.

The given coefficients are a starting point, not the answer: a certificate is about the
minimiser, and scikit-learn stops short of it. The problem is solved again from there,
and ``adoption_`` says how far the model moved. ``model.to_sklearn()`` goes the other
way, for serving.

With w the weight of a row, W the sum of all weights, b the coefficients and
R = l1_ratio |b|_1 + (1 - l1_ratio) |b|^2 / 2, they minimise

    LogisticRegression    C sum w loss + R             alpha = 1/(C W)   "sum"
    Ridge                 sum w error^2 + a |b|^2      alpha = a/W       "sum"
    RidgeClassifier       the same on -1 and +1        alpha = a/W       "sum"
    Lasso, ElasticNet     mean error^2 / 2 + a R       alpha = a         "mean"
    SGDClassifier         mean loss + a R              alpha = a         "mean"

and the model here gets that alpha and scaling, so that removal aims at retraining with
the same hyper-parameter. Estimators are
recognised by their exact class, because a subclass may minimise something else. A
setting without a counterpart is refused, never approximated.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, TypeAlias, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike
from sklearn import linear_model
from sklearn.multiclass import OneVsRestClassifier
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted

from .core.arrays import SMALLEST, Vector, norm
from .core.losses import HalfSquared, Logistic
from .core.objective import Objective, Rows, Scaling
from .core.sums import loss_slopes
from .exceptions import InvalidInput, Unsupported
from .linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from .linear_model.base import fit_prepared
from .linear_model.fitting import prepare
from .linear_model.parameters import Prepared
from .linear_model.snapshots import private_model, set_snapshot, snapshot_of
from .private_model.answers import Adoption
from .private_model.subjects import owners_of
from .promise.budget import Budget
from .promise.scope import BALANCED, Scope
from .removal import Mechanism

EstimatorClass: TypeAlias = (
    type[LogisticRegression] | type[LinearRegression] | type[SoftmaxRegression]
)
Adopted: TypeAlias = LogisticRegression | LinearRegression | SoftmaxRegression
# Relative to the length of the minimiser; a shift beyond is worth a warning.
LARGEST_SHIFT = 1e-3


class AdoptionWarning(UserWarning):
    """The adopted model differs visibly from the coefficients that were given."""


class AdoptOptions(TypedDict, total=False):
    """Options of ``from_sklearn``.

    ``sample_weight`` is that of the estimator's fit; the others are parameters of the
    new model.
    """

    sample_weight: ArrayLike | None
    mechanism: str | Mechanism
    budget: Budget | None
    keep_data: bool
    random_state: int | None
    classes: Sequence[Any] | None


def from_sklearn(
    estimator: Any,
    X: Any,
    y: Any,
    subjects: Iterable[object] | None = None,
    **parameters: Unpack[AdoptOptions],
) -> Adopted:
    """Return a model that can forget, from a fitted estimator and its rows.

    It minimises what the estimator minimised, starting from its coefficients. Removal
    aims at what scikit-learn would fit to the remaining rows with the same
    hyper-parameters. ``adoption_`` of the model says how far it moved.

    Parameters
    ----------
    estimator
        A fitted LogisticRegression, OneVsRestClassifier of it, Ridge, RidgeClassifier
        (two classes), Lasso, ElasticNet or SGDClassifier (log loss).
    X, y
        The rows it was fitted on.
    subjects
        The owner of each row, as in ``fit``.
    **parameters
        ``sample_weight`` of the fit, and ``mechanism``, ``budget``, ``keep_data``,
        ``random_state`` and ``classes`` of the model; see ``AdoptOptions``.

    Warns
    -----
    AdoptionWarning
        If the coefficients moved by more than a relative 1e-3.
    """
    check_is_fitted(estimator)
    _require_known(parameters)
    adopted = read_objective(estimator)
    given: dict[str, Any] = dict(parameters)
    weight = _weights_of(estimator, y, given.pop("sample_weight", None))
    total = float(np.shape(y)[0] if weight is None else np.add.reduce(weight))
    if not total > 0.0:
        raise InvalidInput("no row has positive weight; pass the rows of the fit")
    model = adopted.estimator(**adopted.parameters(total), **given)
    # For two classes scikit-learn fits one logistic model.
    prepared = prepare(model, X, y, sample_weight=weight).with_pair(Logistic())
    objective, rows = prepared.objective, prepared.rows
    _require_same(estimator, model, prepared=prepared)
    start = _starting_point(estimator, objective, rows=rows)
    balanced = getattr(estimator, "class_weight", None) == "balanced"
    prepared = replace(prepared, owners=owners_of(subjects, len(rows)))
    fit_prepared(
        model,
        prepared,
        start=start,
        scope=Scope(declared=(BALANCED,) if balanced else ()),
    )
    theta = private_model(model).answer.draft.theta
    adoption = _measure_adoption(objective, rows, start=start, theta=theta)
    snapshot = snapshot_of(model)
    private = replace(private_model(model), adoption=adoption)
    set_snapshot(model, snapshot.keep(private))
    _warn_of_shift(estimator, adoption)
    return model


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


def _require_known(parameters: AdoptOptions) -> None:
    """Refuse options that the estimator decides, such as alpha."""
    unknown = sorted(set(parameters) - set(AdoptOptions.__annotations__))
    if unknown:
        raise InvalidInput(
            f"from_sklearn does not take {', '.join(unknown)}, which the fitted "
            f"estimator decides; it takes {', '.join(AdoptOptions.__annotations__)}"
        )


def _weights_of(estimator: Any, y: Any, given: ArrayLike | None) -> Vector | None:
    """Return the weights of rows in the estimator's fit; None if all are one."""
    by_class = getattr(estimator, "class_weight", None)
    n_rows = np.shape(y)[0]
    if given is None and by_class is None:
        return None
    if given is not None and by_class == "balanced":
        raise Unsupported(
            f"{BALANCED} with sample_weight means different weights in different "
            "versions of scikit-learn; fit with their product as sample_weight"
        )
    ones = 1.0 if given is None else np.asarray(given, dtype=np.float64)
    weight: Vector = np.broadcast_to(ones, n_rows)
    if by_class is not None:
        weight = weight * compute_sample_weight(by_class, y)
    mean = float(weight.mean())
    if type(estimator).__name__ == "SGDClassifier" and abs(mean - 1.0) > 1e-9:
        raise Unsupported(
            "SGDClassifier divides by the number of rows, not by their weight, so its "
            "alpha would mean something else after a removal; scale the weights to a "
            "mean of one, or fit LogisticRegression"
        )
    return weight


def _require_same(estimator: Any, model: Adopted, *, prepared: Prepared) -> None:
    """Raise InvalidInput for rows the estimator cannot have been fitted on."""
    labels = prepared.labels
    known = {
        "classes_": None if labels is None else labels.classes,
        "feature_names_in_": getattr(model, "feature_names_in_", None),
    }
    for name, ours in known.items():
        theirs = getattr(estimator, name, None)
        if theirs is None or ours is None or np.array_equal(theirs, ours):
            continue
        raise InvalidInput(
            f"{name} of the rows and of the estimator differ; pass the rows it was "
            "fitted on"
        )


def _starting_point(estimator: Any, objective: Objective, *, rows: Rows) -> Vector:
    """Return the given coefficients as parameters, row by row."""
    coef, intercept = read_coefficients(estimator)
    width = rows.X.shape[1] - objective.intercept
    if coef.shape != (objective.loss.outputs, width):
        raise InvalidInput(
            f"the estimator has coefficients of shape {coef.shape}; the rows need "
            f"{(objective.loss.outputs, width)}; pass the rows it was fitted on"
        )
    if not objective.intercept:
        return np.ascontiguousarray(coef.T).ravel()
    if objective.loss.shift_invariant and not objective.penalize_intercept:
        # Adding a constant to all of them changes nothing.
        intercept = intercept - intercept.mean()
    return np.vstack([coef.T, intercept]).ravel()


def _measure_adoption(
    objective: Objective, rows: Rows, *, start: Vector, theta: Vector
) -> Adoption:
    """Return how far the start was from the minimiser theta."""
    shift, size = norm(theta - start), norm(theta)
    relative = shift / size if size else np.inf * (shift > 0.0)
    return Adoption(shift, relative, _measure_residual(objective, rows, theta=start))


def _measure_residual(objective: Objective, rows: Rows, *, theta: Vector) -> float:
    """Return |theta - prox(theta - t gradient)| / t, t one over the curvature."""
    total = rows.total_weight
    slopes = loss_slopes(objective.loss, rows, theta=theta) / total
    gradient = slopes + objective.quadratic_gradient(theta)
    squares = float(rows.weight @ rows.norms() ** 2) / total
    curvature = objective.loss.curvature_bound * squares + objective.quadratic
    if objective.smooth:
        return norm(gradient)
    step = 1.0 / max(curvature, SMALLEST**2)  # all rows may be zero
    moved = theta - objective.shrink(theta - step * gradient, step)
    return norm(moved) / step


def _warn_of_shift(estimator: Any, adoption: Adoption) -> None:
    """Warn of a visible shift, without figures, which would depend on rows."""
    if adoption.relative_shift > LARGEST_SHIFT:
        warnings.warn(
            f"the coefficients of {type(estimator).__name__} were not yet the "
            f"minimiser: the model moved by more than a relative {LARGEST_SHIFT:g}, "
            "see adoption_; fit with a smaller tol, or check that X, y and "
            "sample_weight are those of its fit",
            AdoptionWarning,
            stacklevel=3,
        )


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
