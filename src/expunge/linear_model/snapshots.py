# SPDX-License-Identifier: Apache-2.0
"""The snapshot of a fitted estimator, and the rows from which the next one is made.

Other packages never reach into an estimator: they ask for its public or its private
model here. Rows to fit, to forget and to add are checked as users give them, and read
into what the model keeps.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import (
    _check_y,
    _num_samples,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from ..core.arrays import Matrix, write_lock
from ..core.objective import check_weights
from ..core.rows import Rows
from ..engines import Engine, read_engine, require_jobs
from ..exceptions import InvalidInput, NoPrivateState, Unsupported
from ..long.table import LongTable
from ..preprocessing.columns import UNKNOWN, Recipe, learn_columns, read_columns
from ..preprocessing.sklearn_steps import describe
from ..private_model.model import PrivateModel
from ..private_model.snapshot import (
    PublicModel,
    Snapshot,
    add_rows,
    forget_people,
    forget_positions,
    forget_rows,
    has_people,
)
from ..private_model.subjects import list_of_ids, owners_of, positions_of
from .long_tables import prepare_table
from .parameters import Prepared
from .sklearn_parameters import weigh_as_fitted


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
            "the model has; fit again with the new rows, or fit with all categories "
            "declared: OneHotEncoder(categories=[...]); nothing was added"
        )
        self.column, self.rows = column, tuple(rows)


def snapshot_of(estimator: Any) -> Snapshot:
    """Return a fitted estimator's snapshot, or raise NotFittedError."""
    if "_snapshot" not in vars(estimator):
        check_is_fitted(estimator, "_snapshot")
    snapshot: Snapshot = estimator._snapshot
    return snapshot


def finished_snapshot(estimator: Any) -> Snapshot:
    """Finish all requests, and return a fitted estimator's snapshot."""
    if snapshot_of(estimator).private is not None:
        private_model(estimator)
    return snapshot_of(estimator)


def set_snapshot(estimator: Any, snapshot: Snapshot) -> None:
    """Give an estimator another snapshot."""
    estimator._snapshot = snapshot


def public_model(estimator: Any) -> PublicModel | None:
    """Return the public part of an estimator's model; None if it is not fitted."""
    snapshot: Snapshot | None = getattr(estimator, "_snapshot", None)
    return None if snapshot is None else snapshot.public


def private_model(estimator: Any) -> PrivateModel:
    """Finish all requests and return the private model, or raise NoPrivateState."""
    snapshot = snapshot_of(estimator)
    if snapshot.private is None:
        raise NoPrivateState(
            "this is a pickle or copy, which has only the release; use the fitted "
            "model itself, or save it with save() and load it with expunge.load"
        )
    if snapshot.private.pending is None:
        return snapshot.private
    with write_lock(estimator):
        estimator._snapshot = estimator._snapshot.apply_pending()
    return private_model(estimator)


def prepare_fit(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    subjects: Any,
    sample_weight: Any,
    engine: Any = None,
) -> Prepared:
    """Learn features and labels of what ``fit`` is given; return rows and owners."""
    place = read_engine(engine)  # an address that nobody answers at ends it here
    if isinstance(X, LongTable):
        given = {"y": y, "subjects": subjects, "sample_weight": sample_weight}
        return place_rows(prepare_table(estimator, X, given=given), place)
    prepared: Prepared = estimator._prepare(X, y, sample_weight)
    prepared = replace(prepared, owners=owners_of(subjects, len(prepared.rows)))
    if getattr(estimator, "fits_jobs", False):
        return replace(prepared, engine=require_jobs(place))
    return place_rows(prepared, place)


def place_rows(prepared: Prepared, engine: Engine | None) -> Prepared:
    """Return the rows with a place on the engine, if there is one."""
    if engine is None:
        return prepared
    if prepared.recipe is not None:
        raise Unsupported(
            "preprocessing and class_weight='balanced' need rows in memory, and an "
            "engine has them elsewhere; leave engine out, or give encoded columns"
        )
    return replace(prepared, engine=engine, placed=engine.place(prepared.rows))


def remove_asked(
    estimator: Any,
    *,
    subjects: Any = None,
    rows: Any = None,
    X: Any = None,
    y: Any = None,
    sample_weight: ArrayLike | None = None,
) -> PrivateModel:
    """Return the private model without what one of these names; see ``forget``."""
    private = private_model(estimator)
    if subjects is not None:
        return forget_people(private, list_of_ids(subjects))
    if rows is not None:
        return forget_positions(private, positions_of(rows))
    removed = check_request(estimator, X, y, sample_weight=sample_weight)
    return forget_rows(private, removed)


def add_asked(
    estimator: Any, X: Any, y: Any, *, subjects: Any, sample_weight: Any
) -> PrivateModel:
    """Return the private model with these rows too; see ``add``."""
    private = private_model(estimator)
    added = check_addition(estimator, X, y, sample_weight=sample_weight)
    owners = check_owners(private, subjects, n_rows=len(added))
    return add_rows(private, added, owners=owners)


def check_owners(
    private: PrivateModel, subjects: Any, *, n_rows: int
) -> list[str] | None:
    """Return the owners of rows to add; None in a model without people."""
    if not has_people(private):
        if subjects is not None:
            raise InvalidInput(
                "this model was fitted without subjects, so nobody in it has an id; "
                "leave subjects out, or fit again with subjects for all rows; nothing "
                "was added"
            )
        return None
    if subjects is None:
        raise InvalidInput(
            "this model was fitted with subjects; say whose rows these are: add(X, y, "
            "subjects=[...]); nothing was added"
        )
    return owners_of(subjects, n_rows)


def check_addition(
    estimator: Any, X: Any, y: Any, *, sample_weight: ArrayLike | None
) -> Rows:
    """Return rows to add as the model keeps them, checked like those of the fit."""
    private, public = private_model(estimator), snapshot_of(estimator).public
    private.require_room()
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
    rows = check_request(estimator, X, y, sample_weight=sample_weight)
    if private.keeps_raw_rows:
        _require_categories(private, np.asarray(rows.X))
    return rows


def _require_categories(private: Any, raw: Matrix) -> None:
    """Raise UnseenCategory for a category that no row of the model has.

    A fit to the new rows would have a feature more. Declared ones can always come.
    """
    for column, codes in zip(private.recipe.columns, raw.T, strict=True):
        unseen = np.flatnonzero(codes == UNKNOWN).tolist()
        if column.kind == "category" and unseen:
            raise UnseenCategory(column.source, unseen)


def check_request(
    estimator: Any, X: Any, y: Any, *, sample_weight: ArrayLike | None
) -> Rows:
    """Return the rows of a request, checked like those of the fit."""
    if y is None:
        raise InvalidInput("X without y; pass the labels of the rows too")
    if not _num_samples(X):
        return Rows(np.empty((0, 0)), np.empty(0), np.empty(0))
    private, public = private_model(estimator), snapshot_of(estimator).public
    if private.keeps_raw_rows:
        return _check_raw_request(estimator, X, y, sample_weight=sample_weight)
    if not is_checked(X, y, public=public):
        X, y = estimator._validate(X, y, reset=False)
    coded, labels = estimator._code_labels(y, private.labels), private.labels
    if labels is None:
        return private.objective.rows(X, coded, sample_weight)
    current = labels.recode(coded, private.objective.loss)
    rows = private.objective.rows(X, current, sample_weight)
    weight = weigh_as_fitted(public, y, weight=rows.weight)
    return Rows(rows.X, coded, weight)


def _check_raw_request(
    estimator: Any, X: Any, y: Any, *, sample_weight: ArrayLike | None
) -> Rows:
    """Return the raw rows of a request."""
    private: Any = private_model(estimator)
    X, y = check_table(estimator, X, y, reset=False)
    y = check_labels(estimator, y)
    coded = estimator._code_labels(y, private.labels)
    # A person not known here is refused by digest, like any other row.
    columns = [
        replace(column, unknown=UNKNOWN) if column.unknown is None else column
        for column in private.recipe.columns
    ]
    raw = read_columns(columns, X)
    if private.labels is None:
        private.objective.loss.labels(coded)  # as many targets as at the fit
    weight = check_weights(sample_weight, len(raw))
    public = snapshot_of(estimator).public
    return Rows(raw, coded, weigh_as_fitted(public, y, weight=weight))


def is_checked(X: Any, y: Any, *, public: PublicModel) -> bool:
    """Whether scikit-learn's checks would let these arrays through as they are.

    Its checks cost more than the removal of a row.
    """
    return (
        type(X) is np.ndarray
        and X.dtype == np.float64
        and X.ndim == 2
        and X.shape[1] == public.n_features
        and public.feature_names is None
        and public.preprocessing is None
        and type(y) is np.ndarray
        and y.dtype.kind in "biuf"
        and y.shape == X.shape[:1]
        # A sum of squares is finite only if every number is.
        and isfinite(np.vdot(X, X))
        and isfinite(np.vdot(y, y))
    )


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
        multi_output=tags.target_tags.multi_output,
        y_numeric=tags.estimator_type == "regressor",
        estimator=estimator,
    )


def read_table(estimator: Any, X: Any, y: Any) -> tuple[Any, Any, Recipe]:
    """Return the raw rows and labels of a table, and what preprocessing does."""
    given = estimator.preprocessing is not None
    described = describe(estimator.preprocessing if given else "passthrough", X)
    X, y = check_table(estimator, X, y)
    columns = learn_columns(described, X)
    recipe = Recipe(
        described,
        columns,
        balanced=estimator.class_weight == "balanced",
        given=given,
    )
    return read_columns(columns, X), check_labels(estimator, y), recipe
