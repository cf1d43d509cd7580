# SPDX-License-Identifier: Apache-2.0
"""Fitted scikit-learn models become models that can forget.

The given coefficients are a starting point, not the answer: a certificate is about the
minimiser, and scikit-learn stops short of it. The problem is solved again from there,
and a warning says how far the model moved, if that is visible. ``model.to_sklearn()``
goes the other way, for serving.
"""

import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any, TypeAlias, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.class_weight import compute_sample_weight

from ..core.arrays import Vector, norm
from ..core.losses import Logistic
from ..core.objective import Objective
from ..core.rows import Rows, in_memory
from ..core.sums import curvature_sizes, loss_slopes
from ..core.values import SMALLEST
from ..exceptions import InvalidInput, Unsupported
from ..linear_model import (
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
    TunedClassifier,
    TunedRegressor,
)
from ..linear_model.base import (
    fit_prepared,
    prepare,
    private_model,
    set_snapshot,
    snapshot_of,
)
from ..linear_model.exact import ExactClassifier
from ..linear_model.generalised import GeneralisedRegression
from ..linear_model.parameters import warn_without_budget
from ..linear_model.rows import Prepared
from ..private_model.answers import Adoption
from ..private_model.subjects import owners_of
from ..promise.budget import Budget
from ..promise.scope import Scope
from ..removal import Mechanism
from .exact import KINDS, adopt_exact
from .objectives import (
    AdoptedObjective,
    EstimatorClass,
    read_coefficients,
    read_objective,
    refusal,
)
from .parts import Parts, list_candidates, take_apart

Adopted: TypeAlias = (
    LogisticRegression
    | LinearRegression
    | SoftmaxRegression
    | GeneralisedRegression
    | ExactClassifier
)
TUNED: dict[EstimatorClass, Any] = {
    LogisticRegression: TunedClassifier,
    LinearRegression: TunedRegressor,
    SoftmaxRegression: TunedClassifier,  # which tells each class from the rest
}
# Relative to the length of the minimiser; a shift beyond is worth a warning.
LARGEST_SHIFT = 1e-3


class AdoptionWarning(UserWarning):
    """The adopted model differs visibly from the coefficients that were given."""


class AdoptOptions(TypedDict, total=False):
    """Options of ``from_sklearn``.

    ``sample_weight`` is that of the estimator's fit. The others are parameters of the
    new model.
    """

    sample_weight: ArrayLike | None
    mechanism: str | Mechanism
    budget: Budget | None
    keep_data: bool
    random_state: int | None
    classes: Sequence[Any] | None
    decimals: int


def from_sklearn(
    estimator: Any,
    X: Any,
    y: Any,
    subjects: Iterable[object] | None = None,
    **parameters: Unpack[AdoptOptions],
) -> Adopted:
    """Return a model that can forget, from a fitted model and its rows.

    It minimises what the estimator minimised, starting from its coefficients. Removal
    aims at what scikit-learn would fit to the remaining rows with the same
    hyper-parameters. ``adoption_`` of the model says how far it moved.

    Parameters
    ----------
    estimator
        A fitted LogisticRegression, OneVsRestClassifier of it, LinearSVC, Ridge,
        RidgeClassifier, Lasso, ElasticNet, SGDClassifier, SGDRegressor,
        PoissonRegressor, GammaRegressor or TweedieRegressor; a ...CV estimator of
        these; a Pipeline that ends in one; or a search over any of them. Or a
        MultinomialNB, BernoulliNB, ComplementNB or NearestCentroid, which becomes a
        model of exact sums.
    X, y
        The rows it was fitted on.
    subjects
        The owner of each row, as in ``fit``.
    **parameters
        ``sample_weight`` of the fit; ``mechanism``, ``budget``, ``keep_data``,
        ``random_state`` and ``classes`` of the model. See ``AdoptOptions``. Models of
        exact sums take ``sample_weight``, ``keep_data``, ``classes`` and ``decimals``.

    Warns
    -----
    AdoptionWarning
        If the coefficients moved by more than a relative 1e-3.
    """
    options: dict[str, Any] = dict(parameters)
    if type(estimator) in KINDS:
        return adopt_exact(estimator, X, y, subjects=subjects, options=options)
    choose_again = options.pop("retune", None) is not None
    _require_known(options)
    parts = take_apart(estimator)
    given = _read_rows(parts, y, options.pop("sample_weight", None))
    if choose_again:
        raise InvalidInput(
            "from_sklearn does not take retune: it keeps what the fitted estimator "
            "chose; for a choice that is forgotten with the people behind it, call "
            f"{_suggest_tuned(given)}.fit(X, y, subjects)"
        )
    if options.get("budget") is None:
        warn_without_budget()
    model = given.objective.estimator(
        **given.objective.parameters(), **given.around, **options
    )
    prepared = _prepare(given, model, X, y, subjects=subjects)
    start = _starting_point(parts, prepared)
    scope = Scope(declared=tuple(type(one).__name__ for one in parts.choosers))
    set_snapshot(model, fit_prepared(model, prepared, start=start, scope=scope))
    adoption = _measure_adoption(model, prepared, start=start)
    if adoption is not None:
        private = replace(private_model(model), adoption=adoption)
        set_snapshot(model, snapshot_of(model).keep(private))
        _warn_of_shift(type(parts.fitted).__name__, adoption.relative_shift)
    return model


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _Given:
    """What was fitted.

    Attributes
    ----------
    parts, objective
        Its parts, and what it minimised.
    weight, total
        The weights of rows beside those of classes; and the sum of both together.
    around
        The model's parameters for what is around the objective: preprocessing and
        weights of classes.
    """

    parts: Parts
    objective: AdoptedObjective
    weight: Vector | None
    total: float
    around: dict[str, Any]


def _read_rows(parts: Parts, y: Any, given: ArrayLike | None) -> _Given:
    """Return what was minimised, over rows of which weight."""
    objective = read_objective(parts.settings, parts.n_classes)
    if parts.n_classes and np.ndim(y) > 1 and np.shape(y)[1] > 1:
        raise refusal(
            parts.fitted,
            f"y has {np.shape(y)[1]} labels a row",
            instead="fit and adopt one model for each",
        )
    by_class = getattr(parts.settings, "class_weight", None)
    both = _weights_of(objective, by_class, y=y, given=given)
    total = float(np.shape(y)[0] if both is None else np.add.reduce(both))
    if not total > 0.0:
        raise InvalidInput("no row has positive weight; pass the rows of the fit")
    around: dict[str, Any] = {}
    if parts.preprocessing is not None:
        around["preprocessing"] = parts.preprocessing
    stated = isinstance(by_class, dict) and all(one > 0.0 for one in by_class.values())
    if isinstance(by_class, str) or stated:  # weights that a model here takes
        around["class_weight"] = by_class
        both = None if given is None else np.asarray(given, dtype=np.float64)
    return _Given(parts, objective, both, total, around)


def _suggest_tuned(given: _Given) -> str:
    """Return the call of a tuned estimator that chooses among what was compared."""
    objective, parts = given.objective, given.parts
    compared: list[AdoptedObjective] = []
    with suppress(Unsupported):  # then the tuned estimator's own grid
        candidates = list_candidates(parts)
        compared = [read_objective(one, parts.n_classes) for one in candidates]
    settings: dict[str, Any] = {}
    if compared:
        alphas = {float(f"{one.alpha_for(given.total):.6g}") for one in compared}
        settings["alphas"] = sorted(alphas, reverse=True)
    ratios = {one.l1_ratio for one in compared or [objective]}
    if ratios != {0.0}:
        settings["l1_ratios"] = sorted(ratios, reverse=True)
    if not objective.fit_intercept:
        settings["fit_intercept"] = False
    further = dict(objective.further)
    tuned = TUNED.get(objective.estimator, TunedRegressor)
    if issubclass(objective.estimator, GeneralisedRegression):
        model = objective.estimator(**further)
        further = {"loss": model.loss_of(model.get_params(deep=False))}
    settings |= {**further, **given.around}
    named = [f"{name}={' '.join(repr(one).split())}" for name, one in settings.items()]
    return f"{tuned.__name__}({', '.join(named)})"


def _prepare(
    given: _Given,
    model: Adopted,
    X: Any,
    y: Any,
    *,
    subjects: Iterable[object] | None,
) -> Prepared:
    """Let the model learn labels; return the rows of the estimator's fit."""
    # For two classes scikit-learn fits one logistic model.
    prepared = prepare(model, X, y, sample_weight=given.weight).with_pair(Logistic())
    _require_same(given.parts, model, prepared=prepared)
    owners = owners_of(subjects, len(prepared.rows))
    return replace(prepared, owners=owners)


def _require_known(parameters: dict[str, Any]) -> None:
    """Refuse options that the estimator decides, such as alpha."""
    known = [one for one in AdoptOptions.__annotations__ if one != "decimals"]
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise InvalidInput(
            f"from_sklearn does not take {', '.join(unknown)}, which the fitted "
            f"estimator decides; it takes {', '.join(known)}"
        )


def _weights_of(
    objective: AdoptedObjective, by_class: Any, *, y: Any, given: ArrayLike | None
) -> Vector | None:
    """Return the weights of rows in the estimator's fit; None if all are one."""
    if given is None and by_class is None:
        return None
    balanced = isinstance(by_class, str)
    if given is not None and balanced:
        raise Unsupported(
            "class_weight='balanced' with sample_weight means different weights in "
            "different versions of scikit-learn; fit with sample_weight alone"
        )
    ones = 1.0 if given is None else np.asarray(given, dtype=np.float64)
    weight: Vector = np.broadcast_to(ones, np.shape(y)[0])
    if by_class is not None:
        weight = weight * compute_sample_weight(by_class, y)
    # Balanced weights have a mean of one.
    if objective.counts_rows and not balanced and not (weight == 1.0).all():
        raise Unsupported(
            "stochastic gradient descent divides by the number of rows, not by their "
            "weight, so that alpha would mean something else after each removal; fit "
            "without weights, or with another estimator"
        )
    return weight


def _require_same(parts: Parts, model: Any, *, prepared: Prepared) -> None:
    """Raise InvalidInput for rows the estimator cannot have been fitted on."""
    labels = prepared.labels
    known = {
        "classes_": (parts.fitted, None if labels is None else labels.classes),
        "feature_names_in_": (parts.outer, getattr(model, "feature_names_in_", None)),
    }
    for name, (fitted, ours) in known.items():
        theirs = getattr(fitted, name, None)
        if theirs is None or ours is None or np.array_equal(theirs, ours):
            continue
        raise InvalidInput(
            f"{name} of the rows and of the estimator differ; pass the rows it was "
            "fitted on"
        )


def _starting_point(parts: Parts, prepared: Prepared) -> Vector:
    """Return the given coefficients as parameters, row by row."""
    objective = prepared.objective
    coef, intercept = read_coefficients(parts.fitted)
    width = prepared.rows.n_columns - objective.intercept
    if prepared.is_raw:
        width = coef.shape[1]  # what preprocessing makes of the rows comes later
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
    model: Adopted, prepared: Prepared, *, start: Vector
) -> Adoption | None:
    """Return how far the start was from the minimiser; None if features differ."""
    private = private_model(model)
    theta = private.answer.draft.theta
    if theta.size != start.size:
        return None
    rows = in_memory(private.encode(prepared.rows))
    shift, size = norm(theta - start), norm(theta)
    relative = shift / size if size else inf * (shift > 0.0)
    residual = _measure_residual(prepared.objective, rows, theta=start)
    return Adoption(shift, relative, residual)


def _measure_residual(objective: Objective, rows: Rows, *, theta: Vector) -> float:
    """Return |theta - prox(theta - t gradient)| / t, t one over the curvature."""
    total = rows.total_weight
    slopes = loss_slopes(objective.loss, rows, theta=theta) / total
    gradient = slopes + objective.quadratic_gradient(theta)
    if objective.smooth:
        return norm(gradient)
    squares = float(rows.weight @ rows.norms() ** 2)
    loss = squares * objective.loss.curvature_bound
    if not isfinite(loss):
        _, loss = curvature_sizes(objective.loss, rows, theta=theta)
    curvature = loss / total + objective.quadratic
    step = 1.0 / max(curvature, SMALLEST**2)  # all rows may be zero
    moved = theta - objective.shrink(theta - step * gradient, step)
    return norm(moved) / step


def _warn_of_shift(name: str, shift: float) -> None:
    """Warn of a visible shift, to one digit: all that a reader needs to decide."""
    if not shift > LARGEST_SHIFT:
        return
    percent = 100.0 * shift
    size = f"{percent:.1g} %" if percent < 1.0 else f"{min(percent, 999.0):.0f} %"
    if percent > 999.0:
        size = "more than 999 %"
    warnings.warn(
        f"{name} stopped short of the minimiser of its own objective: solving to the "
        f"end moved the coefficients by {size} of their length. The adopted model is "
        "the exact one. To make the two agree, fit with a smaller tol and a larger "
        "max_iter; if that does not help, check that X, y and sample_weight are those "
        "of its fit",
        AdoptionWarning,
        stacklevel=3,
    )
