# SPDX-License-Identifier: Apache-2.0
"""From a fitted scikit-learn estimator and its rows to a model that can forget.

The coefficients given are a start, not the answer: a certificate speaks of the
minimiser, and scikit-learn stops short of it. The problem is solved again from there,
and ``adoption_`` tells how far that moved the model.

From a release to a plain scikit-learn estimator, for serving and for export.

Only what predictions need is there: coefficients, intercepts, classes and names of
features, all of the last release. Hyper-parameters keep scikit-learn's defaults, for
the one that matters (C = 1/(alpha W)) would tell how much weight is left.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike
from sklearn import linear_model
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import LabelBinarizer
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted

from ..core.arrays import SMALLEST, Matrix, Private, Vector, norm
from ..core.losses import Logistic
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.sums import loss_slopes
from ..exceptions import InvalidInput, Unsupported
from ..linear_model import LinearRegression, LogisticRegression, SoftmaxRegression
from ..linear_model.base import Forgetful, Prepared
from ..private_model.snapshot import carry
from ..private_model.subjects import owners_of
from ..private_model.unlearn import Custody
from ..promise.budget import Budget
from ..removal import Mechanism
from .objectives import read_coefficients, read_objective

Adopted: TypeAlias = LogisticRegression | LinearRegression | SoftmaxRegression

BALANCED = "class_weight='balanced'"
# Relative to the length of the minimiser; a shift beyond is worth a warning.
LARGEST_SHIFT = 1e-3


class AdoptionWarning(UserWarning):
    """The adopted model differs visibly from the coefficients that were given."""


class Adopting(TypedDict, total=False):
    """What ``from_sklearn`` may be told beside the estimator and its rows.

    ``sample_weight`` is that of the estimator's fit; the others are parameters of
    the model that adopts it.
    """

    sample_weight: ArrayLike | None
    mechanism: str | Mechanism
    budget: Budget | None
    keep_data: bool
    random_state: int | None
    classes: Sequence[Any] | None


@dataclass(frozen=True, slots=True, repr=False)
class Adoption(Private):
    """How far the given coefficients were from the minimiser. Private.

    Attributes
    ----------
    shift, relative_shift
        Norm of the change of all coefficients, intercepts included; the same over
        the norm of the minimiser.
    residual
        Norm of the gradient of the mean objective at the given coefficients (of the
        proximal gradient where the penalty has a kink): zero at the minimiser.
    """

    shift: float
    relative_shift: float
    residual: float


def from_sklearn(
    estimator: Any,
    X: Any,
    y: Any,
    subjects: Iterable[object] | None = None,
    **parameters: Unpack[Adopting],
) -> Adopted:
    """Return a model that can forget, from a fitted estimator and its rows.

    It minimises what the estimator minimised, started from its coefficients, and a
    removal aims at what scikit-learn would fit to the remaining rows with the same
    hyper-parameters. ``adoption_`` of the model tells how far it moved.

    Parameters
    ----------
    estimator
        A fitted LogisticRegression, OneVsRestClassifier of it, Ridge, RidgeClassifier
        (two classes), Lasso, ElasticNet or SGDClassifier (log loss).
    X, y
        The rows it was fitted on.
    subjects
        Whose row each is, as in ``fit``.
    **parameters
        ``sample_weight`` of the fit, and ``mechanism``, ``budget``, ``keep_data``,
        ``random_state`` and ``classes`` of the model; see ``Adopting``.

    Warns
    -----
    AdoptionWarning
        If the coefficients moved by more than a relative 1e-3.
    """
    check_is_fitted(estimator)
    _require_known(parameters)
    adopted = read_objective(estimator)
    given: dict[str, Any] = dict(parameters)
    weight = _weights(estimator, y, given.pop("sample_weight", None))
    total = float(np.shape(y)[0] if weight is None else np.add.reduce(weight))
    if not total > 0.0:
        raise InvalidInput("no rows with positive weight: there is nothing to adopt")
    model = adopted.estimator(**adopted.parameters(total), **given)
    # Of two classes scikit-learn makes one logistic model.
    prepared = model._prepare(X, y, weight).with_pair(Logistic())
    objective, rows = prepared.objective, prepared.rows
    _require_same(estimator, model, prepared)
    start = _start(estimator, objective, rows)
    balanced = getattr(estimator, "class_weight", None) == "balanced"
    model._hold(
        prepared,
        owners_of(subjects, len(rows)),
        start,
        _declared if balanced else carry,
    )
    theta = model._private_state().custody.draft.theta
    model.adoption_ = _adoption(objective, rows, start, theta)
    _warn(estimator, model.adoption_)
    return model


def _require_known(parameters: Adopting) -> None:
    """Refuse what the estimator itself decides, alpha say."""
    unknown = sorted(set(parameters) - set(Adopting.__annotations__))
    if unknown:
        raise InvalidInput(
            f"{', '.join(unknown)}: the estimator decides that; from_sklearn takes "
            f"{', '.join(Adopting.__annotations__)}"
        )


def _weights(estimator: Any, y: Any, given: ArrayLike | None) -> Vector | None:
    """Return the weights that the estimator's fit gave to rows; None if all one."""
    by_class = getattr(estimator, "class_weight", None)
    n_rows = np.shape(y)[0]
    if given is None and by_class is None:
        return None
    if given is not None and by_class == "balanced":
        raise Unsupported(
            f"{BALANCED} beside sample_weight means different weights in different "
            "versions of scikit-learn; fit with their product as sample_weight"
        )
    ones = 1.0 if given is None else np.asarray(given, dtype=np.float64)
    weight: Vector = np.broadcast_to(ones, n_rows)
    if by_class is not None:
        weight = weight * compute_sample_weight(by_class, y)
    mean = float(weight.mean())
    if type(estimator).__name__ == "SGDClassifier" and abs(mean - 1.0) > 1e-9:
        raise Unsupported(
            "SGDClassifier divides by the number of rows, not by their weight, so that "
            "its alpha means something else after a removal; scale the weights to "
            "a mean of one, or fit LogisticRegression"
        )
    return weight


def _require_same(estimator: Any, model: Adopted, prepared: Prepared) -> None:
    """Refuse rows that the estimator cannot have been fitted on."""
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
            f"{name} of the rows and of the estimator differ; hand over the rows that "
            "it was fitted on"
        )


def _start(estimator: Any, objective: Objective, rows: Rows) -> Vector:
    """Return the given coefficients as parameters, row by row."""
    coef, intercept = read_coefficients(estimator)
    width = rows.X.shape[1] - objective.intercept
    if coef.shape != (objective.loss.outputs, width):
        raise InvalidInput(
            f"the estimator has coefficients of shape {coef.shape}; the rows call for "
            f"{(objective.loss.outputs, width)}; hand over the rows it was fitted on"
        )
    if not objective.intercept:
        return np.ascontiguousarray(coef.T).ravel()
    if objective.loss.shift_invariant and not objective.penalize_intercept:
        intercept = intercept - intercept.mean()  # a constant for all means nothing
    return np.vstack([coef.T, intercept]).ravel()


def _declared(custody: Custody) -> Custody:
    """Return the custody with its account told of weights that follow the data."""
    custody = carry(custody, None, BALANCED)
    note = f"{BALANCED}: weights that were computed from everyone's labels"
    scope = replace(custody.scope, not_covered=(*custody.scope.not_covered, note))
    return replace(custody, scope=scope)


def _adoption(
    objective: Objective, rows: Rows, start: Vector, theta: Vector
) -> Adoption:
    """Return how far the start was from the minimiser theta."""
    shift, size = norm(theta - start), norm(theta)
    relative = shift / size if size else np.inf * (shift > 0.0)
    return Adoption(shift, relative, _residual(objective, rows, start))


def _residual(objective: Objective, rows: Rows, theta: Vector) -> float:
    """Return |theta - prox(theta - t gradient)| / t, t one over the curvature."""
    total = rows.total_weight
    slopes = loss_slopes(objective.loss, rows, theta) / total
    gradient = slopes + objective.quadratic_gradient(theta)
    squares = float(rows.weight @ rows.norms() ** 2) / total
    curvature = objective.loss.curvature_bound * squares + objective.quadratic
    if objective.smooth:
        return norm(gradient)
    step = 1.0 / max(curvature, SMALLEST**2)  # all rows may be zero
    moved = theta - objective.shrink(theta - step * gradient, step)
    return norm(moved) / step


def _warn(estimator: Any, adoption: Adoption) -> None:
    """Warn of a shift that predictions will show; without figures, which tell rows."""
    if adoption.relative_shift > LARGEST_SHIFT:
        warnings.warn(
            f"the coefficients of {type(estimator).__name__} were not yet the "
            f"minimiser: the model moved by more than a relative {LARGEST_SHIFT:g}, "
            "see adoption_; fit with a smaller tol, or check that X, y and "
            "sample_weight are those of its fit",
            AdoptionWarning,
            stacklevel=3,
        )


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
