# SPDX-License-Identifier: Apache-2.0
"""What an estimator works with: objects in place of names, rows in place of data.

``PARAMETERS`` holds what is said of a parameter once, for every estimator: what it may
be, which ``fit`` checks, and what it means, which ``help`` shows.
"""

import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from numbers import Integral, Real
from textwrap import fill
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from ..core.class_losses import Multinomial
from ..core.losses import HalfSquared, Huber, Logistic, Loss, SquaredHinge
from ..core.objective import Objective
from ..core.penalties import L1, L2, ElasticNet, Penalty
from ..core.rows import Rows, RowSource, in_memory
from ..core.solver import MAX_STEPS
from ..core.sums import column_sizes
from ..core.values import LARGEST, SMALLEST, Private
from ..engines import DeviceEngine, Engine
from ..exceptions import InvalidInput, NotCertifiable, NotConverged
from ..gpu import DeviceRows
from ..long.raw_columns import RawColumns
from ..long.table import FileRows, LongTable
from ..preprocessing.columns import Recipe
from ..private_model.labels import Labels
from ..private_model.training_rows import KeptRows, MirroredRows, TrainingRows
from ..promise.budget import Budget
from ..removal import Jackknife, MatrixFree, Mechanism, Newton, Rescaled, Retrain

Choice = TypeVar("Choice")

# A column this many times as large as most keeps a fit from being certified; so many of
# them are named.
LARGE, BLAMED_COLUMNS = 100.0, 3
ALPHA = 1e-3  # where neither alpha nor C is given

# "auto" lets the rule of removal.matrix_free decide once the rows are known.
MECHANISMS: Mapping[str, Mechanism | None] = MappingProxyType(
    {
        "auto": None,
        "newton": Newton(),
        "jackknife": Jackknife(),
        "rescaled": Rescaled(),
        "retrain": Retrain(),
        "matrix-free": MatrixFree(),
    }
)
BINARY_LOSSES: Mapping[str, Loss] = MappingProxyType(
    {"logistic": Logistic(), "squared_hinge": SquaredHinge()}
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
            "an integer of at least 2, or 'loo'",
            lambda value: isinstance(value, str) or _is_integer(value),
            "Number of folds of the cross-validation; a keyed hash of the id puts each "
            "person into one. 'loo' leaves out one row at a time, approximately and "
            "with an error bound.",
        ),
        "method": Parameter(
            "'certified', 'recomputed' or 'noised'",
            lambda value: isinstance(value, str),
            "'certified' proves that the choice after a removal equals that of tuning "
            "again. 'recomputed' tunes again from scratch. 'noised' adds the noise of "
            "Budget(choice_sigma=...) to the scores before comparing them.",
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
            "Polish()",
            lambda value: isinstance(value, str) or _offers(value, Mechanism),
            "How people are removed. 'auto' keeps matrices while they are small and "
            "goes without them, by passes over the rows, where a model is wide.",
        ),
        "budget": Parameter(
            "None or a Budget, such as Budget(epsilon=1, delta=1e-5, sigma=0.3)",
            lambda value: isinstance(value, Budget | None),
            "What releases promise. None promises nothing and adds no noise.",
        ),
        "preprocessing": Parameter(
            "None or a transformer of scikit-learn, such as StandardScaler(), a "
            "Pipeline or a ColumnTransformer",
            lambda value: value is None or not isinstance(value, str | int | float),
            "What happens to the rows before the model sees them. It is fitted with "
            "the model and forgets with it; the transformer itself stays unfitted.",
        ),
        "keep_data": Parameter(
            SWITCH,
            _is_switch,
            "Whether to keep the rows, so that people can be looked up and any answer "
            "can be polished. Without them you pass the rows to forget.",
        ),
        "random_state": Parameter(
            "None, or zero or a positive integer",
            lambda value: value is None or (_is_integer(value) and value >= 0),
            "A seed for the noise, for tests (see Budget.allow_seeded). None draws "
            "noise from a secure source.",
        ),
        "loss": Parameter(
            "None, a name or a loss object",
            lambda value: isinstance(value, str | None) or _offers(value, Loss),
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


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Prepared(Private):
    """Checked training data, with the objective for them.

    Attributes
    ----------
    objective, rows
        What is minimised, and on which rows.
    labels
        The classes of a classifier; None for a regression.
    weighted
        Whether weights were given.
    owners
        The owner of each row.
    recipe
        What preprocessing does with the rows, which are raw then; None without it.
    shared
        Whether the design may lie in the memory of what the caller gave.
    table
        The long table that the rows lie in, and what makes labels of its targets; None
        for rows in memory.
    encode
        What makes raw rows of the raw columns of that table, with preprocessing.
    engine, placed
        Where passes run, and the rows there; None for this process.
    """

    objective: Objective
    rows: RowSource
    labels: Labels | None
    weighted: bool
    owners: Sequence[str] = ()
    recipe: Recipe | None = None
    shared: bool = True
    table: tuple[LongTable, Any] | None = None
    encode: RawColumns | None = None
    engine: Engine | None = None
    placed: RowSource | None = None

    def keep_rows(self) -> KeptRows:
        """Return the rows with their owners, as a model keeps them."""
        if self.table is not None:
            table, code = self.table
            return FileRows(
                table,
                self.objective,
                code=code,
                encode=self.encode,
                engine=self.engine,
            )
        own = self.own_rows()
        engine, mirror = self.engine, self.placed
        if isinstance(engine, DeviceEngine) and isinstance(mirror, DeviceRows):
            return MirroredRows(own, self.owners, engine=engine, mirror=mirror)
        return TrainingRows(own, self.owners)

    def own_rows(self) -> Rows:
        """Return the rows in memory that is not the caller's."""
        rows = in_memory(self.rows)
        X = rows.X.copy() if self.shared else rows.X
        return Rows(X, rows.y.copy(), rows.weight.copy())

    def with_pair(self, pair: Loss | None) -> "Prepared":
        """Return the data with this loss for two classes, if the model is softmax."""
        if pair is None or not isinstance(self.objective.loss, Multinomial):
            return self
        assert self.labels is not None
        return replace(self, labels=replace(self.labels, pair=pair))


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


def mechanism_of(named: Any, *, keep_data: bool) -> Mechanism | None:
    """Return the mechanism named; None lets the rule choose once rows are there."""
    mechanism: Mechanism | None = choose_object("mechanism", named, choices=MECHANISMS)
    if keep_data:
        return mechanism
    if mechanism is not None and mechanism.needs_rows:
        raise InvalidInput(
            f"mechanism={named!r} needs the remaining rows; set keep_data=True, or use "
            "'newton'"
        )
    return Newton() if mechanism is None else mechanism


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


@contextmanager
def explain_failed_fit(estimator: Any, prepared: Prepared) -> Iterator[None]:
    """Let a fit that cannot be certified, or solved, name the columns to blame.

    For fits alone, when nobody has left: after a removal the sizes of the columns would
    say something about the removed rows.
    """
    try:
        yield
    except (NotCertifiable, NotConverged) as error:
        # With preprocessing the rows are raw, and not what was fitted.
        raw = prepared.recipe is not None
        blame = "" if raw else blame_columns(estimator, prepared.rows)
        raise type(error)(f"{error}; {blame}" if blame else str(error)) from None


def blame_columns(estimator: Any, rows: RowSource) -> str:
    """Return which columns are far larger than the others, and the code that fixes it.

    Empty if none is.

    Parameters
    ----------
    estimator
        The estimator, which knows the names of its features if they have any.
    rows
        The rows of the fit, intercept included.
    """
    sizes = column_sizes(rows)
    features = sizes[:-1] if estimator.fit_intercept else sizes
    # Standardised columns have a size of about one; one-hot columns are smaller.
    typical = min(1.0, float(np.median(features)) or 1.0)
    worst = np.argsort(-features, kind="stable")[:BLAMED_COLUMNS]
    worst = worst[features[worst] >= LARGE * typical]
    if not worst.size:
        return ""
    names = getattr(estimator, "feature_names_in_", None)
    powers = np.rint(np.log10(features[worst] / typical)).astype(int)
    told = [
        f"{i if names is None else repr(str(names[i]))} (about 10^{power} times as "
        "large as most)"
        for i, power in zip(worst.tolist(), powers.tolist(), strict=True)
    ]
    return (
        f"columns to blame: {', '.join(told)}; standardise them: "
        f"{type(estimator).__name__}(preprocessing=StandardScaler(), ...)"
    )


def describe_fitted(estimator: Any, prepared: Prepared) -> dict[str, Any]:
    """Return what the public model says of an estimator and of its features."""
    # Seeds stay private, and progress is for the one who fits.
    left_out = {"random_state": None, "verbose": False}
    parameters = deepcopy(estimator.get_params(deep=False)) | left_out
    if prepared.recipe is not None and prepared.recipe.given:
        parameters["preprocessing"] = prepared.recipe.described
    if estimator.classes is not None:
        parameters["classes"] = list(estimator.classes)
    return {
        "estimator": type(estimator).__name__,
        "parameters": parameters,
        "n_features": estimator.n_features_in_,
        "feature_names": getattr(estimator, "feature_names_in_", None),
        "weighted": prepared.weighted,
    }
