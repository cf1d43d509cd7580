# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's parameters: those that are taken here, and what to use for others.

``C``, ``class_weight``, ``tol`` and ``max_iter`` mean what they mean there, as far as
that is true of a model at its minimiser. Parameters that its estimators have, and ours
do not, are listed with a sentence each.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache, wraps
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier
from sklearn.utils.validation import _check_sample_weight

from ..core.arrays import Vector, norm
from ..core.values import require_magnitude
from ..exceptions import ExpungeError, InvalidInput, NotConverged
from ..private_model.answers import Answer
from ..private_model.labels import Labels
from ..private_model.snapshot import PublicModel
from .parameters import ALPHA

Constructor = TypeVar("Constructor", bound=Callable[..., None])

ONE_SOLVER = "there is one solver, which always works until only rounding is left"
TUNED = "TunedClassifier and TunedRegressor"
# What to do about a parameter that an estimator does not have.
INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        # These the tuned estimators lack.
        "alpha": "give candidates as alphas=[...]",
        "C": "give candidates as alphas=[...]; C = 1/(alpha W), W the sum of weights",
        "l1_ratio": "give candidates as l1_ratios=[...]",
        "scaling": "candidates always keep their alpha when rows are removed",
        "keep_data": "tuning always keeps the rows",
        "tol": ONE_SOLVER,
        "max_iter": ONE_SOLVER,
        # These the others lack.
        "alphas": f"{TUNED} choose among alphas=[...]",
        "l1_ratios": f"{TUNED} choose among l1_ratios=[...]",
        "folds": f"{TUNED} cross-validate, with folds=...",
        # These scikit-learn has.
        "Cs": f"{TUNED} choose among alphas=[...]; C = 1/(alpha W)",
        "copy_X": "the rows you pass are never changed",
        "cv": f"{TUNED} cross-validate, with folds=...",
        "dual": ONE_SOLVER,
        "intercept_scaling": (
            "penalize_intercept=True penalises the intercept like every coefficient"
        ),
        "multi_class": (
            "LogisticRegression fits one class against the rest, SoftmaxRegression all "
            "classes together"
        ),
        "n_jobs": "set the number of threads with OMP_NUM_THREADS or threadpoolctl",
        "positive": "coefficients may have either sign",
        "precompute": ONE_SOLVER,
        "refit": f"{TUNED} always fit the chosen model to all rows",
        "scoring": f"{TUNED} compare candidates by their mean loss",
        "selection": ONE_SOLVER,
        "solver": ONE_SOLVER,
        "warm_start": ONE_SOLVER,
        # These belong elsewhere.
        "delta": "it belongs to a budget: budget=Budget(delta=...)",
        "epsilon": (
            "the threshold of Huber is loss=Huber(...), and epsilon of a promise is "
            "budget=Budget(epsilon=...)"
        ),
        "sample_weight": "pass it to fit",
        "seed": "random_state=... is the seed of the noise, for tests",
        "sigma": "it belongs to a budget: budget=Budget(sigma=...)",
        "subjects": "pass it to fit",
    }
)


class NoPromiseWarning(UserWarning):
    """A model was fitted without a budget."""


class ClassWeightWarning(UserWarning):
    """Weights of classes name a label that no row has."""


class UnknownParameter(ExpungeError, TypeError):
    """A parameter that an estimator does not have; nothing was made."""


def name_unknown(init: Constructor) -> Constructor:
    """Return the constructor, with an error of our own for a parameter it lacks.

    Python's own error names the class that defines the constructor, which users have
    never heard of. The signature stays: scikit-learn reads it.
    """
    known = [name for name in inspect.signature(init).parameters if name != "self"]

    @wraps(init)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        for name in given:
            if name not in known:
                raise _unknown(type(self).__name__, name, known=known)
        init(self, *args, **given)

    return cast(Constructor, checked)


def _unknown(estimator: str, name: str, *, known: list[str]) -> UnknownParameter:
    """Return the error for a parameter, with what to use instead."""
    near = get_close_matches(name, known, n=1)
    if name in INSTEAD:
        advice = INSTEAD[name]
    elif near:
        advice = f"did you mean {near[0]}?"
    else:
        advice = f"it takes {', '.join(known)}"
    return UnknownParameter(f"{estimator} has no parameter {name!r}: {advice}")


def factors_of(given: Mapping[str, Any], weight: float) -> dict[str, Any]:
    """Return what an objective needs of alpha, C, ridge and scaling.

    Parameters
    ----------
    given
        The parameters of an estimator.
    weight
        W: the sum of the weights of the rows to fit.
    """
    alpha, C, scaling, ridge = (given[n] for n in ("alpha", "C", "scaling", "ridge"))
    if C is None:
        alpha = ALPHA if alpha is None else alpha
        return {
            "alpha": alpha,
            "ridge": ridge,
            "scaling": "mean" if scaling is None else scaling,
        }
    if alpha is not None:
        raise InvalidInput(f"C={C} and alpha={alpha}; pass one of them")
    if scaling not in (None, "sum"):
        raise InvalidInput(
            f"C={C} and scaling={scaling!r}; C means scaling='sum': leave scaling out, "
            "or pass alpha in place of C"
        )
    if ridge:
        raise InvalidInput(
            f"C={C} and ridge={ridge}; C counts the sum of the losses and ridge their "
            "mean: pass alpha in place of C, or l1_ratio in place of ridge"
        )
    if not C > 0.0:
        raise InvalidInput(f"C={C}; it must be a positive number")
    require_magnitude("C", C)
    if not weight > 0.0:
        raise InvalidInput("no row has positive weight; check the rows and weights")
    return {"alpha": 1.0 / (C * weight), "scaling": "sum", "C": float(C)}


def require_named_classes(
    labels: Labels, class_weight: Mapping[Any, float] | str | None
) -> None:
    """Raise InvalidInput for the weight of a class that is not declared.

    Where classes are learnt, a weight for a label without rows is no error: its last
    row may have left, and naming it must not prove that somebody had it.
    """
    if isinstance(class_weight, str):
        return
    known = labels.classes.tolist()
    strangers = [label for label in class_weight or () if label not in known]
    if not strangers:
        return
    if labels.declared:
        raise InvalidInput(
            f"class_weight names {strangers[0]!r}, which is not one of the classes; "
            "check its labels and those of classes=..."
        )
    if not set(known) <= set(class_weight or ()):
        warnings.warn(
            f"class_weight names {strangers[0]!r}, which no row has, and leaves other "
            "classes at weight 1; check its labels (declare classes=[...] to have them "
            "checked for you)",
            ClassWeightWarning,
            stacklevel=5,
        )


def weights_of(
    estimator: Any, X: Any, y: Any, *, sample_weight: ArrayLike | None
) -> Vector | None:
    """Return the weights of rows, each times that of its class; None if all are 1."""
    weight: Vector | None = None
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
    class_weight = estimator.class_weight
    if class_weight is not None and not is_classifier(estimator):
        raise InvalidInput(
            f"class_weight={class_weight!r}; a regression has none; leave it out"
        )
    return _weigh(y, weight, class_weight=class_weight)


def _weigh(
    y: Any, weight: Vector | None, *, class_weight: Mapping[Any, float] | str | None
) -> Vector | None:
    if class_weight is None or isinstance(class_weight, str):
        return weight  # balanced weights are found when rows are summed
    classes, places = np.unique(y, return_inverse=True)
    by_class = [class_weight.get(label, 1.0) for label in classes.tolist()]
    factors: Vector = np.array(by_class, dtype=np.float64)[places]
    return factors if weight is None else weight * factors


def weigh_as_fitted(public: PublicModel, y: Any, *, weight: Any) -> Any:
    """Return weights of rows by class, as the parameters were at the fit."""
    class_weight = public.parameters.get("class_weight")
    return _weigh(y, weight, class_weight=class_weight)


def require_effort(answer: Answer, *, tol: float | None, max_iter: int | None) -> None:
    """Raise NotConverged if a fit took more steps, or ended further off, than allowed.

    The solver itself always works until only rounding is left: stopping it earlier
    would leave a model that no certificate is about.
    """
    if max_iter is not None and answer.n_steps > max_iter:
        raise NotConverged(
            f"the solver took more than max_iter={max_iter} steps; raise it, or leave "
            "it out"
        )
    gradient = answer.draft.measured
    if tol is not None and (gradient is None or norm(gradient) > tol):
        raise NotConverged(
            f"rounding leaves a gradient larger than tol={tol}; raise it, or scale the "
            "columns to similar ranges"
        )


@cache
def warn_without_budget() -> None:
    """Warn that a model promises nothing: once a process, not at every fit."""
    warnings.warn(
        "this model promises nothing: it forgets, but without a budget its releases "
        "carry no noise; pass budget=Budget(epsilon=1, delta=1e-5, sigma=0.3), for "
        "example, to promise something about what they reveal (shown once)",
        NoPromiseWarning,
        stacklevel=3,
    )
