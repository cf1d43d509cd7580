# SPDX-License-Identifier: Apache-2.0
"""Rows as users give them, read into what a model keeps.

What comes is checked as scikit-learn checks it, and labels become the codes of the
loss. ``Prepared`` holds the rows of a fit; ``read_request`` and ``read_addition`` read
those of a request like them.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    _check_y,
    _num_samples,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from ..core.arrays import Vector
from ..core.losses import Loss
from ..core.objective import Objective, check_weights
from ..core.rows import Rows, RowSource, in_memory
from ..core.sums import column_sizes
from ..core.values import Private
from ..engines import DeviceEngine, Engine
from ..exceptions import InvalidInput
from ..gpu import DeviceRows
from ..long.raw_columns import RawColumns
from ..long.table import FileRows, LongTable
from ..preprocessing.balance import Balanced
from ..preprocessing.columns import (
    NOT_A_TIME,
    UNKNOWN,
    Recipe,
    as_frame,
    find_missing,
    learn_columns,
    read_columns,
    require_same_maps,
)
from ..preprocessing.description import TargetMeans
from ..preprocessing.encoder import Encoder, title_of
from ..preprocessing.inputs import check_inputs
from ..preprocessing.learned import Learned
from ..preprocessing.mapped import Mapped
from ..preprocessing.sklearn_steps import describe
from ..preprocessing.statistics import needs_order
from ..preprocessing.target_means import key_of, with_people
from ..private_model.composition import UNCHANGED, Encoding
from ..private_model.labels import Labels
from ..private_model.model import require_optimised
from ..private_model.snapshot import Snapshot
from ..private_model.subjects import owners_of
from ..private_model.training_rows import KeptRows, MirroredRows, TrainingRows
from ..promise.budget import Budget
from ..removal import Mechanism

# A column this many times as large as most keeps a fit from being certified; so many of
# them are named.
LARGE, BLAMED_COLUMNS = 100.0, 3


class ClassWeightWarning(UserWarning):
    """Weights of classes name a label that no row has."""


class UnseenCategory(InvalidInput):
    """Rows to add hold a category that no row of the model has; nothing was added.

    Attributes
    ----------
    column
        The name of the column.
    rows
        The positions of these rows among those to add, from 0.
    """

    def __init__(self, column: str, rows: Sequence[int]) -> None:
        super().__init__(
            f"column {column!r} holds a category, or a missing value, that no row of "
            "the model has, and it cannot be taken in here; fit again with the new "
            "rows, or fit with all categories declared: OneHotEncoder(categories=[...])"
            "; nothing was added"
        )
        self.column, self.rows = column, tuple(rows)


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
    encoding, encoder
        What the model sees of rows where no other row has a say in it, and the map of
        rows, alone or after preprocessing that learns.
    balanced
        Whether classes are weighed by how much weight they have left.
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
    encoding: Encoding = UNCHANGED
    encoder: Encoder | None = None
    balanced: bool = False
    shared: bool = True
    table: tuple[LongTable, Any] | None = None
    encode: RawColumns | None = None
    engine: Engine | None = None
    placed: RowSource | None = None

    def with_owners(self, owners: Sequence[str]) -> "Prepared":
        """Return the data with the owner of each row."""
        prepared = replace(self, owners=owners)
        if self.recipe is None or key_of(self.recipe.described) is None:
            return prepared
        rows = in_memory(self.rows)
        rows = with_people(rows, owners, described=self.recipe.described)
        return replace(prepared, rows=rows, shared=False)

    @property
    def targets(self) -> RowSource | None:
        """The rows, if their labels are targets of a regression."""
        return self.rows if self.labels is None else None

    @property
    def is_raw(self) -> bool:
        """Whether the rows are something else than what the model sees."""
        return self.encoding.raw or self.recipe is not None

    def fit_encoding(self, rows: RowSource) -> Encoding:
        """Return what the model sees of these rows, learnt from them."""
        encoding: Encoding = self.encoding.fit_again(rows, self.objective)
        intercept, loss = self.objective.intercept, self.objective.loss
        if self.recipe is not None:
            encoding = first = Learned.of(self.recipe, rows, intercept=intercept)
            described = self.recipe.described
            if described.looks or described.last is not None:
                encoding = Mapped.behind(
                    first,
                    in_memory(rows),
                    objective=self.objective,
                    classes=self.labels is not None,
                )
        return Balanced.of(encoding, rows, loss=loss) if self.balanced else encoding

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
        own = in_memory(self.rows)
        # In memory that is not the caller's.
        X = own.X.copy() if self.shared else own.X
        own = Rows(X, own.y.copy(), own.weight.copy())
        engine, mirror = self.engine, self.placed
        if isinstance(engine, DeviceEngine) and isinstance(mirror, DeviceRows):
            return MirroredRows(own, self.owners, engine=engine, mirror=mirror)
        return TrainingRows(own, self.owners)

    def with_pair(self, pair: Loss | None) -> "Prepared":
        """Return the data with this loss for two classes, if the model is softmax."""
        if pair is None or self.labels is None or self.objective.loss.independent:
            return self
        return replace(self, labels=replace(self.labels, pair=pair))


def refuse_missing_dates(given: Any, numbers: Any, *, name: str = "X") -> None:
    """Raise InvalidInput for a date that is missing in what was given.

    scikit-learn and NumPy, who made numbers of it, take NaT for -2^63.
    """
    if numbers is given or sparse.issparse(numbers):
        return
    places = np.nonzero(numbers == NOT_A_TIME)
    if len(places[0]) and find_missing(np.asarray(given, dtype=object)[places]).any():
        mend = "leave its row out"
        if name == "X":
            mend = "fill it first, or put SimpleImputer() into the preprocessing"
        raise InvalidInput(f"{name} has a missing date (NaT); {mend}")


def check_rows(
    estimator: Any, X: Any, y: Any, *, reset: bool = True
) -> tuple[Any, Any]:
    """Return features as numbers, and labels, checked as scikit-learn checks them."""
    tags = estimator.__sklearn_tags__()
    try:
        numbers, y = validate_data(
            estimator,
            X,
            y,
            accept_sparse="csr",
            dtype=np.float64,
            multi_output=tags.target_tags.multi_output or _has_offsets(estimator, y),
            y_numeric=tags.estimator_type == "regressor",
            reset=reset,
        )
    except ValueError as error:
        if reset and estimator.preprocessing is None and _has_words_or_gaps(X):
            what = str(error).partition("\n")[0].rstrip(".")
            raise InvalidInput(
                f"{what}; preprocessing='auto' takes words, dates and gaps as they are"
            ) from error
        raise
    refuse_missing_dates(X, numbers)
    return numbers, y


def _has_words_or_gaps(X: Any) -> bool:
    """Return whether a table holds texts or missing values, on the way to an error."""
    if sparse.issparse(X):
        return False
    cells = np.asarray(X)
    if cells.ndim != 2 or cells.dtype.kind in "US":
        return cells.ndim == 2
    if cells.dtype.kind == "f":
        return bool(np.isnan(cells).any())
    cells = cells.ravel().astype(object)
    return bool(find_missing(cells).any()) or any(isinstance(c, str) for c in cells)


def _has_offsets(estimator: Any, y: Any) -> bool:
    """Return whether labels are responses beside what offsets make of them."""
    return getattr(estimator, "takes_offsets", False) and (
        np.asarray(y).shape[1:] == (2,)
    )


def read_responses(
    loss: Loss,
    y: Any,
    *,
    sample_weight: ArrayLike | None,
    exposure: ArrayLike | None,
    offset: ArrayLike | None,
) -> tuple[Any, Any]:
    """Return labels and weights of rows with exposures, or with offsets.

    Nothing after this knows of either: a row of an exposure is one of another response
    and weight, and one of an offset has a label of two numbers.
    """
    if exposure is None and offset is None:
        return y, sample_weight
    responses = np.asarray(column_or_1d(y), dtype=np.float64)
    values = read_beside(len(responses), exposure=exposure, offset=offset)
    if exposure is None:
        return loss.take_offsets(responses, values), sample_weight
    responses, weight = loss.take_exposure(responses, values)
    if weight is None:
        return responses, sample_weight
    if sample_weight is not None:
        weight = weight * check_weights(sample_weight, len(responses))
    return responses, weight


def read_beside(
    n_samples: int, *, exposure: ArrayLike | None, offset: ArrayLike | None
) -> Vector:
    """Return exposures or offsets, whichever are given, one for each row."""
    if exposure is not None and offset is not None:
        raise InvalidInput(
            "exposure=... and offset=...; pass one of them: an exposure is an offset "
            "of its logarithm"
        )
    name, given = ("offset", offset) if exposure is None else ("exposure", exposure)
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{name} must be numbers: {error}") from error
    if values.shape != (n_samples,):
        raise InvalidInput(
            f"{name} has shape {values.shape}, and there are {n_samples} rows; give "
            "one number for each row"
        )
    if not np.isfinite(values).all():
        raise InvalidInput(
            f"{name} holds NaN or infinity; correct it, or leave these rows out"
        )
    return values


def code_labels(y: Any, labels: Labels | None, *, n_targets: int | None) -> Vector:
    """Return labels as the codes that rows keep, or the targets of a regression."""
    if labels is not None:
        return labels.encode(y)
    try:
        targets = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"y must be numbers: {error}") from error
    refuse_missing_dates(y, targets, name="y")
    return targets.ravel() if n_targets == 1 else targets


def check_table(
    estimator: Any, X: Any, y: Any, *, reset: bool = True
) -> tuple[Any, Any]:
    """Return a table and its labels, after checking names and lengths alone."""
    if y is None:
        raise InvalidInput(
            f"{type(estimator).__name__} requires y to be passed, but the target y is "
            "None"
        )
    check_consistent_length(X, y)
    return validate_data(estimator, X, reset=reset, skip_check_array=True), y


def check_labels(estimator: Any, y: Any) -> Any:
    """Return labels or targets, checked as scikit-learn checks them."""
    tags = estimator.__sklearn_tags__()
    return _check_y(
        y,
        multi_output=tags.target_tags.multi_output or _has_offsets(estimator, y),
        y_numeric=tags.estimator_type == "regressor",
        estimator=estimator,
    )


def read_table(estimator: Any, steps: Any, X: Any, y: Any) -> tuple[Any, Any, Recipe]:
    """Return the raw rows and labels of a table, and what these steps do."""
    kept = bool(getattr(estimator, "keep_data", True))
    described = describe(steps, X, rows_kept=kept)
    X, y = check_table(estimator, X, y)
    recipe = Recipe(described, learn_columns(described, X))
    raw = read_columns(recipe.columns, X, described.made)
    return raw, check_labels(estimator, y), recipe


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
            stacklevel=6,
        )


def class_factors(
    y: Any, class_weight: Mapping[Any, float] | str | None
) -> Vector | None:
    """Return how often each row counts for its class; None if all count once.

    Balanced weights are found when rows are summed.
    """
    if class_weight is None or isinstance(class_weight, str):
        return None
    classes, places = np.unique(y, return_inverse=True)
    by_class = [class_weight.get(label, 1.0) for label in classes.tolist()]
    return np.array(by_class, dtype=np.float64)[places]


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
    factors = class_factors(y, class_weight)
    if weight is None or factors is None:
        return factors if weight is None else weight
    return weight * factors


def read_request(
    estimator: Any,
    snapshot: Snapshot,
    X: Any,
    y: Any,
    *,
    sample_weight: ArrayLike | None,
) -> Rows:
    """Return the rows of a request, checked like those of the fit.

    ``estimator`` knows how many features rows have, and their names.
    """
    if y is None:
        raise InvalidInput("X without y; pass the labels of the rows too")
    if not _num_samples(X):
        return Rows(np.empty((0, 0)), np.empty(0), np.empty(0))
    private, public = require_optimised(snapshot.private), snapshot.public
    labels, objective, encoding = private.labels, private.objective, private.encoding
    names = public.feature_names
    learned: Any = encoding.learned
    if learned is not None:
        X, y = check_table(estimator, X, y, reset=False)
        y = check_labels(estimator, y)
        coded = code_labels(y, labels, n_targets=public.n_targets)
        # A person not known here is refused by digest, like any other row.
        frame = as_frame(X)
        recipe = _find_sources(learned.recipe, frame, names=names)
        columns = tuple(
            replace(column, unknown=UNKNOWN) if column.unknown is None else column
            for column in recipe.columns
        )
        require_same_maps(recipe.described)
        table = X if frame is None else frame
        raw = read_columns(columns, table, recipe.described.made)
        if labels is None:
            objective.loss.labels(coded)  # as many targets as at the fit
        rows = Rows(raw, coded, check_weights(sample_weight, raw.shape[0]))
    else:
        # scikit-learn's checks cost more than the removal of a row: what they would let
        # through as it is goes without them.
        if not (
            type(X) is np.ndarray
            and X.dtype == np.float64
            and X.ndim == 2
            and X.shape[1] == public.n_features
            and names is None
            and public.preprocessing is None
            and type(y) is np.ndarray
            and y.dtype.kind in "biuf"
            and y.shape == X.shape[:1]
            # A sum of squares is finite only if every number is.
            and isfinite(np.vdot(X, X))
            and isfinite(np.vdot(y, y))
        ):
            made_by = encoding.input_map
            if made_by is None:
                X, y = check_rows(estimator, X, y, reset=False)
            else:
                width = public.n_features
                X = check_inputs(estimator, made_by, X, y, width=width)
                y = check_labels(estimator, y)
        coded = code_labels(y, labels, n_targets=public.n_targets)
        current = coded if labels is None else labels.recode(coded, objective.loss)
        rows = encoding.keep(X, current, sample_weight, objective=objective)
        if labels is not None:  # kept with the codes of the fit
            rows = Rows(rows.X, coded, rows.weight)
    # As the parameters were at the fit.
    factors = class_factors(y, public.parameters.get("class_weight"))
    return rows if factors is None else Rows(rows.X, rows.y, rows.weight * factors)


def _find_sources(recipe: Recipe, frame: Any, *, names: NDArray[Any] | None) -> Recipe:
    """Return a recipe with places in a table, if that is no frame and has no names."""
    if names is None or frame is not None:
        return recipe
    # An array has the columns of the fit, in their order.
    places = {name: place for place, name in enumerate(names.tolist())}
    columns = tuple(
        replace(one, source=places.get(one.source, one.source))
        for one in recipe.columns
    )
    made = tuple(
        replace(one, columns=tuple(places.get(own, own) for own in one.columns))
        for one in recipe.described.made
    )
    return Recipe(replace(recipe.described, made=made), columns)


def make_room(estimator: Any, snapshot: Snapshot, X: Any, y: Any) -> Snapshot:
    """Return the snapshot with places for new classes and categories of rows to add.

    Where classes or categories are declared, or where the model does not keep its rows,
    it has none: such rows are refused when they are read.
    """
    private, public = require_optimised(snapshot.private), snapshot.public
    if not isinstance(private.training_rows, TrainingRows) or y is None:
        return snapshot
    labels, encoding = private.labels, private.encoding
    learned = encoding.learned
    # Adopted with two classes, a softmax is a logistic regression, and would be
    # one-vs-rest with three.
    softmax = public.estimator == "SoftmaxRegression"
    if labels is not None and not (softmax and private.objective.loss.outputs == 1):
        grown = labels.with_classes_of(np.asarray(y))
        if grown is not labels:
            check_classification_targets(y)
            terms, objective = private.terms, private.objective
            objective = replace(objective, loss=grown.loss_like(objective.loss))
            terms = replace(terms, objective=objective)
            private = replace(private, labels=grown, terms=terms)
    if isinstance(learned, Learned):
        X, _ = check_table(estimator, X, y, reset=False)
        frame = as_frame(X)
        recipe = _find_sources(learned.recipe, frame, names=public.feature_names)
        wider = learned.with_categories_of(recipe, X)
        if wider is not learned:
            private = replace(private, encoding=encoding.with_learned(wider))
    return snapshot if private is snapshot.private else snapshot.keep(private)


def with_owners(
    rows: Rows, owners: Iterable[object] | str | None, *, model: Snapshot
) -> Rows:
    """Return rows to add with what a model keeps of whose they are.

    ``owners`` are those of each row, or the one of all of them.
    """
    encoding: Any = getattr(model.private, "encoding", None)
    learned = None if encoding is None else encoding.learned
    if learned is None or key_of(learned.recipe.described) is None:
        return rows
    owners = [owners] * len(rows) if isinstance(owners, str) else owners
    named = owners_of(owners, len(rows))
    return with_people(rows, named, described=learned.recipe.described)


def read_addition(
    estimator: Any,
    snapshot: Snapshot,
    X: Any,
    y: Any,
    *,
    sample_weight: ArrayLike | None,
) -> Rows:
    """Return rows to add as the model keeps them, checked like those of the fit."""
    private, public = require_optimised(snapshot.private), snapshot.public
    private.chooser.require_addable()
    if y is not None and not _num_samples(X):
        raise InvalidInput("X has no rows; there is nothing to add")
    if public.weighted and sample_weight is None:
        raise InvalidInput(
            "this model was fitted with weights; pass those of the new rows: "
            "sample_weight=[...]; nothing was added"
        )
    if not public.weighted and sample_weight is not None:
        raise InvalidInput(
            "this model was fitted without weights; leave sample_weight out, or fit "
            "again with weights for all rows; nothing was added"
        )
    if private.labels is not None and y is not None:
        private.labels.require_known(np.asarray(y))
    rows = read_request(estimator, snapshot, X, y, sample_weight=sample_weight)
    learned: Any = private.encoding.learned
    if learned is not None:
        # A fit to the new rows would have a feature more. Declared ones can come.
        for column, codes in zip(learned.recipe.columns, rows.dense().T, strict=False):
            unseen = np.flatnonzero(codes == UNKNOWN).tolist()
            if column.kind == "category" and unseen:
                raise UnseenCategory(column.source, unseen)
    return rows


def require_encodable(
    prepared: Prepared,
    *,
    mechanism: Mechanism | None,
    budget: Budget | None,
    keep_data: bool,
) -> None:
    """Refuse what cannot be promised of a model that does more than take rows."""
    if prepared.encoding is UNCHANGED and not (prepared.recipe or prepared.balanced):
        return
    if budget is not None and budget.row_norm is not None:
        raise InvalidInput(
            f"row_norm={budget.row_norm:g} with preprocessing: how long a row is "
            "depends on what is learned; leave row_norm out"
        )
    if not keep_data and prepared.encoding.changes:
        raise InvalidInput(
            "keep_data=False, and TfidfTransformer weighs hashed words by all rows: "
            "every request changes every row, and takes the rows; set keep_data=True, "
            "or leave it out"
        )
    if keep_data or not (prepared.recipe or prepared.balanced):
        return
    groups = () if prepared.recipe is None else prepared.recipe.described.groups
    looked = [one for group in groups for one in group.then]
    means = [group.encode for group in groups if isinstance(group.encode, TargetMeans)]
    looked = [*means, *looked]
    if prepared.encoder is not None and prepared.recipe is not None:
        looked.append(prepared.encoder)
    if looked:
        raise InvalidInput(
            f"keep_data=False, and {title_of(looked[0])} learns, or comes after steps "
            "that learn: every request changes what it makes of every row, and takes "
            "the rows; set keep_data=True, or leave these steps out"
        )
    for group in groups:
        if needs_order(group):
            raise InvalidInput(
                "keep_data=False, and the preprocessing of "
                f"{', '.join(map(repr, group.columns[:4]))} needs extremes, medians, "
                "quantiles, the most frequent value or learnt bins, which take values "
                "themselves; set keep_data=True, or use StandardScaler and the mean"
            )
    if mechanism is not None and not mechanism.follows_features:
        raise InvalidInput(
            f"mechanism={type(mechanism).__name__.lower()!r} with preprocessing and "
            "keep_data=False: every request changes what is learned, and without rows "
            "only 'newton' can follow; set mechanism='newton', or keep_data=True"
        )


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
