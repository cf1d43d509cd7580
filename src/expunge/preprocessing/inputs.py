# SPDX-License-Identifier: Apache-2.0
"""Inputs that are no numbers, such as texts, and the rows that a map makes of them.

An ``InputMap`` learns nothing: it makes a row of each input alone. So the model keeps
the rows as it made them, and the inputs themselves nowhere. They are made once, when a
fit or a request is read (``EncodedInputs``), and from then on they are ordinary rows,
dense or sparse, whatever they were made of. A row is as personal as its input.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_consistent_length

from ..core.arrays import Design
from ..core.objective import Objective
from ..core.rows import Rows, RowSource
from ..core.values import dumps, stored
from ..exceptions import InvalidInput
from ..private_model.composition import EncodedRequest, Encoding
from ..private_model.subjects import owners_of
from ..private_model.training_rows import RowChange
from ..promise.scope import Scope
from .columns import as_frame


class InputMap(ABC):
    """A map of inputs that are no numbers: a frozen dataclass that learns nothing."""

    @abstractmethod
    def make_rows(
        self, inputs: Sequence[Any], *, owners: Sequence[str] | None, shown: bool
    ) -> Design:
        """Return a row for each input, finite and float64, an array or CSR.

        Parameters
        ----------
        inputs
            At least one.
        owners
            Whose they are, for a map that keeps something by person.
        shown
            Whether to draw a progress bar.
        """

    @abstractmethod
    def noted(self) -> Self:
        """Return the map with what it is recognised by when it is loaded."""

    @abstractmethod
    def to_sklearn(self) -> Any:
        """Return a transformer of scikit-learn that makes the same rows."""

    def encoding(self, width: int) -> "InputRows":
        """Return the encoding of rows of so many columns that this map makes."""
        return InputRows(self, width)

    @property
    def stated(self) -> str:
        """Its name and parameters as canonical JSON, for certificates."""
        written: Any = fields(self)  # type: ignore[arg-type]
        values = {
            one.name: getattr(self, one.name)
            for one in written
            if one.metadata.get("stored", True)
        }
        return dumps({"name": type(self).__name__} | values)

    def state_in(self, scope: Scope) -> Scope:
        """Return what certificates state, with what they say of this map."""
        return replace(scope, encoder=self.stated)

    def attach(self, encoder: Any) -> Self:
        """Return the map with the code that no file holds."""
        del encoder
        raise InvalidInput(
            f"encoder=..., and {type(self).__name__} of this model needs none; leave "
            "it out"
        )

    @property
    def keeps_people(self) -> bool:
        """Whether it keeps something by person, and so must know whose inputs are."""
        return False

    def forget(self, people: Sequence[str]) -> None:
        """Destroy what it keeps of people, which is nothing unless it says so."""
        del people


def is_missing(value: Any) -> bool:
    """Return whether an input is None, NaN or NA; it may be an array or an image."""
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ == "NAType"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class EncodedInputs:
    """Rows that stand for the inputs that they were made of."""

    rows: Design

    @property
    def shape(self) -> tuple[int, int]:
        """How many there are, and how many columns they have."""
        return (int(self.rows.shape[0]), int(self.rows.shape[1]))


def encode_inputs(
    made_by: InputMap,
    X: Any,
    *,
    owners: Sequence[str] | None = None,
    shown: bool = False,
) -> EncodedInputs:
    """Return the rows that a map makes of inputs; those that are made stay."""
    if isinstance(X, EncodedInputs):
        return X
    inputs = list_inputs(X)
    if not len(inputs):
        raise InvalidInput("X has no inputs; give at least one")
    rows = made_by.make_rows(inputs, owners=owners, shown=shown)
    numbers = rows.data if sparse.issparse(rows) else rows
    if not np.isfinite(numbers).all():
        raise InvalidInput(
            f"{type(made_by).__name__} makes a number that is infinite or missing of "
            "an input; leave such inputs out"
        )
    return EncodedInputs(rows)


def list_inputs(X: Any) -> Any:
    """Return inputs as a list or an array: those of a list, a column or a frame."""
    if isinstance(X, str | bytes | dict):
        raise InvalidInput(
            f"X is one {type(X).__name__}; give a list, even of one input: [X]"
        )
    if isinstance(X, np.ndarray):
        one_column = X.ndim == 2 and X.shape[1] == 1 and X.dtype.kind in "OU"
        return X[:, 0] if one_column else X
    if isinstance(X, list | tuple):
        return X
    frame = as_frame(X)
    if frame is not None:
        if len(frame.columns) != 1:
            raise InvalidInput(
                f"X has {len(frame.columns)} columns, and inputs are one; choose one, "
                f"as in X[{frame.columns[0]!r}]"
            )
        X = frame.get_column(frame.columns[0])
    if sparse.issparse(X):
        raise InvalidInput(
            "X is a sparse matrix; give the inputs that rows are made of"
        )
    return X.to_list() if hasattr(X, "to_list") else list(X)


def check_inputs(
    estimator: Any,
    made_by: InputMap,
    X: Any,
    y: Any,
    *,
    width: int | None = None,
    subjects: Any = None,
) -> EncodedInputs:
    """Return the rows of inputs, as many as there are labels.

    Parameters
    ----------
    estimator
        Learns how many columns rows have.
    made_by, X, y
        The map, inputs, and their labels, which are not checked here.
    width
        How many columns they must have; None at a fit.
    subjects
        Whose they are, for a map that keeps something by person.
    """
    if y is None:
        raise InvalidInput(
            f"{type(estimator).__name__} requires y to be passed, but the target y is "
            "None"
        )
    X = X if isinstance(X, EncodedInputs) else list_inputs(X)
    check_consistent_length(X, y)
    owners = None
    if made_by.keeps_people and width is None and not isinstance(X, EncodedInputs):
        if subjects is None or iter(subjects) is subjects:
            raise InvalidInput(
                "a cache keeps embeddings by person; pass the owner of each input, as "
                "a list: subjects=[...], or leave the cache out"
            )
        owners = owners_of(subjects, len(y))
    if width is None:
        made_by = made_by.noted()  # who cannot be recognised is not asked for more
    made = encode_inputs(made_by, X, owners=owners, shown=bool(estimator.verbose))
    if width is None:
        estimator.n_features_in_ = made.shape[1]
        vars(estimator).pop("feature_names_in_", None)
    elif made.shape[1] != width:
        raise InvalidInput(
            f"{type(made_by).__name__} makes {made.shape[1]} columns, and the model "
            f"has {width}; use the map of the fit; nothing was changed"
        )
    return made


@stored
@dataclass(frozen=True, slots=True, eq=False)
class PublicInputs:
    """A map of inputs, as predictions need it.

    Attributes
    ----------
    made_by, n_features
        The map, and how many columns it gives.
    """

    made_by: Any
    n_features: int

    @property
    def takes_inputs(self) -> bool:
        """True."""
        return True

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        name = type(self.made_by).__name__.lower()
        return tuple(f"{name}{index}" for index in range(self.n_features))

    def encode(self, X: Any) -> Any:
        """Return the rows of inputs as the head sees them."""
        if not isinstance(X, EncodedInputs):
            X = list_inputs(X)
            if not len(X):
                return np.empty((0, self.n_features))
        made = encode_inputs(self.made_by, X)
        if made.shape[1] != self.n_features:
            raise InvalidInput(
                f"{type(self.made_by).__name__} makes {made.shape[1]} columns, and the "
                f"model has {self.n_features}; use the map of the fit"
            )
        return made.rows

    def require_consistent(self, columns: Collection[Any]) -> None:
        """Raise ValueError if the parts, read from a file, do not go together."""
        del columns
        if not isinstance(self.made_by, InputMap) or type(self.n_features) is not int:
            raise ValueError("the parts of this preprocessing do not go together")

    def to_sklearn(self) -> Any:
        """Return a transformer of scikit-learn that makes the same rows."""
        return self.made_by.to_sklearn()

    def __repr__(self) -> str:
        return f"PublicInputs({type(self.made_by).__name__}, {self.n_features} columns)"


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class InputRows(Encoding):
    """Rows that were made of inputs, kept as the head sees them.

    Attributes
    ----------
    made_by, n_features
        The map, and how many columns it gives.
    """

    made_by: Any
    n_features: int

    @property
    def raw(self) -> bool:
        """False."""
        return False

    @property
    def changes(self) -> bool:
        """False."""
        return False

    @property
    def input_map(self) -> InputMap | None:
        """The map."""
        made_by: InputMap = self.made_by
        return made_by

    def with_input_map(self, made_by: InputMap) -> Self:
        """Return the same rows, made by this map."""
        return replace(self, made_by=made_by)

    def keep(self, X: Any, y: Any, weight: Any, *, objective: Objective) -> Rows:
        """Return inputs and coded labels as the rows that are kept."""
        return objective.rows(encode_inputs(self.made_by, X).rows, y, weight)

    def fit_again(self, rows: RowSource, objective: Objective) -> Self:
        """Return the same: nothing is learnt."""
        del rows, objective
        return self

    def encode(self, rows: RowSource, objective: Objective) -> RowSource:
        """Return the rows."""
        del objective
        return rows

    def after(
        self,
        change: RowChange,
        objective: Objective,
        *,
        rows: Callable[[], RowSource] | None = None,
    ) -> EncodedRequest:
        """Return the request as it is."""
        del objective, rows
        return EncodedRequest(self, change)

    @property
    def public(self) -> PublicInputs:
        """The map, as predictions need it."""
        return PublicInputs(self.made_by, self.n_features)

    def state_in(self, scope: Scope) -> Scope:
        """Return what certificates state, the map included."""
        made_by: InputMap = self.made_by
        return made_by.state_in(scope)
