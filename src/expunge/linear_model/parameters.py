# SPDX-License-Identifier: Apache-2.0
"""The parameters of the estimators.

``PARAMETERS`` holds what is said of a parameter once, for every estimator: what it may
be, which ``fit`` checks, and what it means, which ``help`` shows. Below it: objects in
place of names, the factors of the objective, and what to use in place of parameters
that scikit-learn has and an estimator here lacks.

``C``, ``class_weight``, ``tol`` and ``max_iter`` mean what they mean in scikit-learn,
as far as that is true of a model at its minimiser.
"""

import inspect
import reprlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, wraps
from numbers import Integral, Real
from textwrap import fill
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np

from ..core.losses import (
    HalfSquared,
    Huber,
    Logistic,
    Loss,
    Multinomial,
    SquaredHinge,
)
from ..core.objective import Objective
from ..core.penalties import L1, L2, ElasticNet, Penalty
from ..core.solver import MAX_STEPS
from ..core.values import LARGEST, SMALLEST, require_magnitude
from ..exceptions import ExpungeError, InvalidInput
from ..private_model.target_units import has_free_units
from ..promise.budget import Budget
from ..removal import Jackknife, MatrixFree, Mechanism, Newton, Retrain

Choice = TypeVar("Choice")
Constructor = TypeVar("Constructor", bound=Callable[..., None])

# Where neither alpha nor C is given. Scaled columns need little: 1e-3 costs a point of
# accuracy on 300,000 flights.
ALPHA = 1e-4

# "auto" lets the rule of removal.matrix_free decide once the rows are known.
MECHANISMS: Mapping[str, Mechanism | None] = MappingProxyType(
    {
        "auto": None,
        "newton": Newton(),
        "jackknife": Jackknife(),
        "retrain": Retrain(),
        "matrix-free": MatrixFree(),
    }
)
BINARY_LOSSES: Mapping[str, Loss] = MappingProxyType(
    {"logistic": Logistic(), "squared_hinge": SquaredHinge()}
)
HEAD_LOSSES: Mapping[str, Loss] = MappingProxyType(
    {"softmax": Multinomial(2), "one-vs-rest": Logistic()}
)
REGRESSION_LOSSES: Mapping[str, Loss] = MappingProxyType(
    {"half_squared": HalfSquared(), "huber": Huber()}
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an estimator.

    Attributes
    ----------
    kind
        What to give, in words.
    fits
        Whether a value is of that kind. Its range is checked where it is used.
    meaning
        What it does.
    """

    kind: str
    fits: Callable[[Any], bool]
    meaning: str


def _is_number(value: Any) -> bool:
    """Return whether a value is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _is_maybe_number(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


def _is_class_weight(value: Any) -> bool:
    if not isinstance(value, dict):
        return value is None or (isinstance(value, str) and value == "balanced")
    factors = value.values()
    return all(_is_number(one) and SMALLEST <= one <= LARGEST for one in factors)


def _offers(value: Any, protocol: Any) -> bool:
    """Return whether an object, and not a class, has all that a protocol names."""
    members = [name for name in vars(protocol) if not name.startswith("_")]
    return not isinstance(value, type) and all(hasattr(value, name) for name in members)


NUMBER, MAYBE_NUMBER, SWITCH = "a number", "None or a number", "True or False"
PARAMETERS: Mapping[str, Parameter] = MappingProxyType(
    {
        "alpha": Parameter(
            MAYBE_NUMBER,
            _is_maybe_number,
            f"Positive factor of the penalty. None is {ALPHA:g}, unless C is given.",
        ),
        "C": Parameter(
            MAYBE_NUMBER,
            _is_maybe_number,
            "Instead of alpha, as in scikit-learn: the sum of the losses counts C "
            "times, so that alpha = 1/(C W) with W the sum of the weights, and C stays "
            "fixed when rows are removed.",
        ),
        "l1_ratio": Parameter(
            NUMBER,
            _is_number,
            "Which penalty: 0 is L2, 1 is L1, and in between is elastic net.",
        ),
        "alphas": Parameter(
            "a list of numbers",
            _is_list,
            "Candidates for alpha, the positive factor of the penalty. On a tie the "
            "larger one wins.",
        ),
        "l1_ratios": Parameter(
            "a list of numbers",
            _is_list,
            "Candidates for l1_ratio: 0 is L2, 1 is L1, and in between is elastic net. "
            "Every pair of an alpha and an l1_ratio is a candidate.",
        ),
        "folds": Parameter(
            "an integer of at least 2, as in folds=5",
            _is_integer,
            "Number of folds of the cross-validation; a keyed hash of the id puts each "
            "person into one.",
        ),
        "method": Parameter(
            "'certified' or 'recomputed'",
            lambda value: isinstance(value, str),
            "'certified' proves that the choice after a removal equals that of tuning "
            "again. 'recomputed' tunes again from scratch.",
        ),
        "fold_key": Parameter(
            "bytes, a string or None",
            lambda value: isinstance(value, bytes | str | None),
            "Key of the hash that puts people into folds; None draws one at the fit.",
        ),
        "penalty": Parameter(
            "None or a penalty object, such as L2(), L1() or ElasticNet(0.5)",
            lambda value: value is None or _offers(value, Penalty),
            "A penalty in place of the one that the L1 ratio stands for, such as "
            "GroupLasso or NuclearNorm.",
        ),
        "ridge": Parameter(
            NUMBER,
            _is_number,
            "Factor of |coefficients|^2 / 2, added to the penalty; zero or positive.",
        ),
        "scaling": Parameter(
            "None, 'mean' or 'sum'",
            lambda value: isinstance(value, str | None),
            "What stays fixed when rows are removed: alpha under 'mean', alpha times "
            "the sum of the weights under 'sum'. None is 'mean', or 'sum' if C is "
            "given.",
        ),
        "fit_intercept": Parameter(
            SWITCH, _is_switch, "Whether there is an intercept."
        ),
        "penalize_intercept": Parameter(
            SWITCH, _is_switch, "Whether the intercept is penalised too."
        ),
        "mechanism": Parameter(
            f"{', '.join(map(repr, MECHANISMS))}, or a mechanism object such as "
            "Newton()",
            lambda value: isinstance(value, str) or _offers(value, Mechanism),
            "How people are removed. 'auto' keeps matrices while they are small and "
            "goes without them, by passes over the rows, where a model is wide.",
        ),
        "budget": Parameter(
            "None or a Budget, such as Budget()",
            lambda value: isinstance(value, Budget | None),
            "What releases promise. None promises nothing and adds no noise. Budget() "
            "promises epsilon 1 and delta 1e-5, with noise that hardly anybody notices "
            "where rows are kept.",
        ),
        "preprocessing": Parameter(
            "None, 'auto', a transformer of scikit-learn, such as StandardScaler(), a "
            "Pipeline or a ColumnTransformer, or a map of rows (expunge.Encoder)",
            lambda value: (
                value is None
                or not isinstance(value, str | int | float)
                or (isinstance(value, str) and value == "auto")
            ),
            "What happens to the rows before the model sees them. It is fitted with "
            "the model and forgets with it; the transformer itself stays unfitted. "
            "'auto' scales and bins numbers and encodes words and dates. A "
            "map of rows learns nothing; it may be the last step of a Pipeline.",
        ),
        "encoder": Parameter(
            "None, an encoder, or a FixedMap of one",
            lambda value: (
                value is None
                or callable(value)
                or any(hasattr(value, name) for name in ("encode", "make_rows"))
            ),
            "What makes embeddings of inputs: a function of a list, or an object with "
            "encode, such as a SentenceTransformer. A FixedMap says more of it: name, "
            "digest, whom it saw. None takes embeddings.",
        ),
        "keep_data": Parameter(
            "True or False, or 'encoded'",
            lambda value: (
                _is_switch(value) or (isinstance(value, str) and value == "encoded")
            ),
            "Whether to keep the rows, so that people can be looked up and any answer "
            "can be polished. Without them you pass the rows to forget. 'encoded' "
            "keeps them as a map of rows gives them, where it is slow.",
        ),
        "random_state": Parameter(
            "None, or zero or a positive integer",
            lambda value: value is None or (_is_integer(value) and value >= 0),
            "A seed for the noise, for tests (see Budget.allow_seeded). None draws "
            "noise from a secure source.",
        ),
        "power": Parameter(
            NUMBER,
            _is_number,
            "How the variance grows with the mean: 0 is least squares, 1 Poisson, 2 "
            "Gamma, and between 1 and 2 many responses are exactly zero.",
        ),
        "link": Parameter(
            "'auto' or 'log'",
            lambda value: isinstance(value, str),
            "'log' predicts e^(x.coef + intercept), as 'auto' does for powers above 0.",
        ),
        "breaks": Parameter(
            "a list of times",
            _is_list,
            "When the hazard may change: positive times in ascending order. Fix them "
            "without looking at the data.",
        ),
        "dispersion": Parameter(
            NUMBER,
            _is_number,
            "a: the variance of a count of mean m is m + a m^2. Fix it without looking "
            "at the data.",
        ),
        "largest": Parameter(
            "None or a number",
            lambda value: value is None or _is_number(value),
            "The largest count that a row may ever have, rows that are added included; "
            "others are refused. It bounds what one row can do. Fix it without looking "
            "at the data.",
        ),
        "quantile": Parameter(
            NUMBER,
            _is_number,
            "Which quantile is predicted, between 0 and 1.",
        ),
        "width": Parameter(
            NUMBER,
            _is_number,
            "Over which distance, in the unit of y, the kink of the pinball loss is "
            "smoothed. Fix it without looking at the data; a tenth of what y varies by "
            "changes little.",
        ),
        "loss": Parameter(
            "None, a name or a loss object",
            lambda value: isinstance(value, str | None | Loss),
            "What is lost on a row; None is the default of the estimator.",
        ),
        "verbose": Parameter(
            SWITCH,
            lambda value: _is_switch(value) or _is_integer(value),
            "Whether to draw a progress bar, on standard error or in the notebook.",
        ),
        "classes": Parameter(
            "None or a list of labels",
            lambda value: value is None or _is_list(value),
            "For a classifier: every label that rows may have, fixed in advance. None "
            "learns them from the rows; then a class that loses its last row is "
            "dropped.",
        ),
        "class_weight": Parameter(
            "None, 'balanced' or a dict of positive weights by label",
            _is_class_weight,
            "For a classifier: each row counts as often as its class says, times its "
            "own weight; 1 for a label that is not named. Fix them without looking at "
            "the data. 'balanced' gives every class the same weight in all, and keeps "
            "it so when people leave.",
        ),
        "selection": Parameter(
            "None or 'none'",
            lambda value: value is None or value == "none",
            "'none' declares that nothing was chosen by looking at the data: no alpha, "
            "no features, no budget. Certificates then say so; with None they say that "
            "it is not known. A clone, such as a search fits, declares nothing; see "
            "declare_tuned.",
        ),
        "tol": Parameter(
            "None or a positive number",
            lambda value: value is None or (_is_number(value) and value > 0.0),
            "The largest gradient (Euclidean norm, of the mean loss with its penalty) "
            "that you accept at the end of a fit. The solver always goes on until only "
            "rounding is left, so tol changes no model; a fit that cannot meet it "
            "raises NotConverged.",
        ),
        "max_iter": Parameter(
            "None or a positive integer",
            lambda value: value is None or (_is_integer(value) and value > 0),
            "The most steps of the solver that you accept in a fit. It changes no "
            f"model; a fit that needs more, or more than {MAX_STEPS}, raises "
            "NotConverged.",
        ),
    }
)


def require_parameters(given: Mapping[str, Any]) -> None:
    """Raise InvalidInput for a parameter of the wrong type."""
    for name, value in given.items():
        known = PARAMETERS.get(name)  # a class of the user's own may have others
        if known is not None and not known.fits(value):
            raise InvalidInput(f"{name}={_show(value)}; give {known.kind}")


def _show(value: Any) -> str:
    """Return a plain value in short; of others, which may be data, the type."""
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, str | int | float | complex | None):
        return reprlib.repr(value)
    return f"<{type(value).__name__}>"


def describe_parameters(estimator: type) -> str | None:
    """Return the docstring of an estimator with the parameters it takes."""
    if estimator.__doc__ is None:  # Python was told to drop docstrings
        return None
    lines = [inspect.cleandoc(estimator.__doc__), "", "Parameters", "----------"]
    taken = inspect.signature(estimator).parameters.values()
    for name, default in ((one.name, one.default) for one in taken):
        if name in PARAMETERS:
            lines.append(f"{name} : {PARAMETERS[name].kind}, default {default!r}")
            text = PARAMETERS[name].meaning
            lines.append(
                fill(text, 80, initial_indent="    ", subsequent_indent="    ")
            )
    return "\n".join(lines)


def choose_object(
    name: str, value: str | Choice | None, *, choices: Mapping[str, Choice]
) -> Choice:
    """Return the object with this name, or the object itself; for None the first."""
    if value is None:
        return next(iter(choices.values()))
    if not isinstance(value, str):
        return value
    if value not in choices:
        raise InvalidInput(
            f"{name}={value!r}; choose one of {', '.join(map(repr, choices))}, or pass "
            "an object"
        )
    return choices[value]


def penalty_of(penalty: Penalty | None, l1_ratio: float) -> Penalty:
    """Return the penalty object, or the one that l1_ratio stands for."""
    if penalty is not None:
        if l1_ratio != 0.0:
            raise InvalidInput(
                f"l1_ratio={l1_ratio} and penalty={penalty!r}; pass one of them"
            )
        return penalty
    if not 0.0 <= l1_ratio <= 1.0:
        raise InvalidInput(f"l1_ratio={l1_ratio}; it must lie between 0 and 1")
    if l1_ratio in (0.0, 1.0):
        return L1() if l1_ratio else L2()
    return ElasticNet(l1_ratio)


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


class NoPromiseWarning(UserWarning):
    """A model was fitted without a budget."""


@cache
def warn_without_budget() -> None:
    """Warn that a model promises nothing: once a process, not at every fit."""
    warnings.warn(
        "this model promises nothing: it forgets, but without a budget its releases "
        "carry no noise; pass budget=Budget() to promise something about what they "
        "reveal (shown once)",
        NoPromiseWarning,
        stacklevel=3,
    )


class FewPeopleWarning(UserWarning):
    """A model was fitted to so few people that it tells of each."""


# Below this, statistical offices publish no figure about a group.
FEW_PEOPLE = 5


def warn_of_few_people(n_people: int) -> None:
    """Warn, at a fit that promises something, that a model of so few is about each."""
    if n_people >= FEW_PEOPLE:
        return
    warnings.warn(
        f"the model is fitted to fewer than {FEW_PEOPLE} people: a certificate says "
        "that a release does not tell removal from retraining, and not how little a "
        "model of so few says about each of them; fit it to more people, or show it to "
        "nobody else",
        FewPeopleWarning,
        stacklevel=5,
    )


class LoudNoiseWarning(UserWarning):
    """A model was fitted whose noise is larger than what it predicts."""


# The scores of two classes are about so far apart: odds of 7 to 1.
SIGNAL_OF_CLASSES = 2.0


def warn_of_loud_scores(noise: float) -> None:
    """Warn that noise drowns the scores of classes.

    Parameters
    ----------
    noise
        Standard deviation of what the noise adds to the score of a typical row.
    """
    if not noise > SIGNAL_OF_CLASSES:
        return
    warnings.warn(
        "the noise is larger than the signal: sigma adds more to a typical row's score "
        f"than {SIGNAL_OF_CLASSES:g}, which turns odds of 7 to 1 round once in six "
        "times; scale the columns (preprocessing=StandardScaler()), or give a smaller "
        "sigma",
        LoudNoiseWarning,
        stacklevel=5,
    )


def warn_of_loud_noise(objective: Objective, *, noise: float, deviation: float) -> None:
    """Warn that noise drowns what a regression predicts.

    For losses and penalties that fix the unit of the targets; where they are free,
    noise follows their deviation.

    Parameters
    ----------
    objective
        What was fitted.
    noise
        Standard deviation of what the noise adds to the prediction of a typical row.
    deviation
        That of the targets.
    """
    if not noise > deviation:
        return
    loss, penalty = type(objective.loss).__name__, type(objective.penalty).__name__
    named = f"the {penalty} penalty" if loss == "HalfSquared" else f"the {loss} loss"
    if has_free_units(objective):
        named = "one of the candidates"
    warnings.warn(
        f"the noise is larger than the signal: what {named} does depends on the unit "
        "of the targets, so sigma is in that unit too, and adds more to a prediction "
        "than the targets vary; give targets in a unit in which their standard "
        "deviation is about 1 (and parameters of the loss or alpha with them), or a "
        "smaller sigma",
        LoudNoiseWarning,
        stacklevel=5,
    )


class UnknownParameter(ExpungeError, TypeError):
    """A parameter that an estimator does not have; nothing was made."""


_SOLVED = "there is one solver, which always works until only rounding is left"
_TUNED = "TunedClassifier and TunedRegressor cross-validate candidates: alphas=[...]"
# What to do about a parameter that an estimator lacks and another one has, here or in
# scikit-learn.
INSTEAD: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("solver", "dual", "warm_start", "tol", "max_iter"), _SOLVED)
    | dict.fromkeys(("Cs", "cv", "alphas", "l1_ratios", "folds"), _TUNED)
    | dict.fromkeys(
        ("C", "alpha", "l1_ratio"),
        "give candidates as alphas=[...] and l1_ratios=[...]; C = 1/(alpha W), W the "
        "sum of weights",
    )
    | {
        "multi_class": "LogisticRegression fits one class against the rest, "
        "SoftmaxRegression all classes together",
        "n_jobs": "set the number of threads with OMP_NUM_THREADS or threadpoolctl",
    }
)


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
                near = get_close_matches(name, known, n=1)
                advice = f"did you mean {near[0]}?" if near else ""
                advice = INSTEAD.get(name, advice) or f"it takes {', '.join(known)}"
                raise UnknownParameter(
                    f"{type(self).__name__} has no parameter {name!r}: {advice}"
                )
        init(self, *args, **given)

    return cast(Constructor, checked)
