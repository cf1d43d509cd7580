# SPDX-License-Identifier: Apache-2.0
"""ForgettablePipeline: preprocessing and model that forget a person together.

The raw rows are kept with their owners. A request goes through every step. If a step
learns something different without the person, all rows change, and the model is fitted
to them again under its budget. The result is that of fitting the whole pipeline to the
remaining rows.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.pipeline import _name_estimators
from sklearn.utils import Tags, get_tags, indexable
from sklearn.utils.metaestimators import _BaseComposition, available_if
from sklearn.utils.validation import _check_sample_weight, _num_samples, check_is_fitted

from ..core.arrays import Index, write_lock
from ..exceptions import CannotRemove, InvalidInput, NoPrivateState
from ..linear_model.base import (
    Forgetful,
    fit_prepared,
    private_model,
    public_model,
    set_snapshot,
    snapshot_of,
)
from ..linear_model.fitting import prepare, refit_on, release_snapshot
from ..private_model.snapshot import PublicModel, forget_owners, require_weights
from ..private_model.subjects import (
    list_of_ids,
    owners_of,
    person,
    positions_of,
    row_name,
)
from ..private_model.training_rows import unknown_owners
from ..promise.certificate import Certificate, Scope
from ..promise.verification import Record
from .transformers import (
    Changes,
    RawRows,
    Steps,
    apply_steps,
    classify_step,
    drop_sums,
    fit_steps,
    list_assumptions,
    list_not_covered,
    remove_from_steps,
)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FittedParts:
    """Fitted steps and the model behind them, replaced together."""

    steps: Steps
    model: Any

    def names(self, features: Any = None) -> NDArray[Any]:
        """Return the names of the columns that the model sees."""
        for _, step in self.steps:
            features = step.get_feature_names_out(features)
        if features is None:
            features = [f"x{i}" for i in range(self.model.n_features_in_)]
        return np.asarray(features, dtype=object)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FittedPipeline:
    """A fitted pipeline at one moment, replaced as one object.

    Attributes
    ----------
    parts
        The fitted steps and the model.
    changes
        What the last removal did to the model's columns.
    raw
        The rows as they were passed to ``fit``; None in a copy.
    before
        What the last request replaced, until its secrets are deleted.
    """

    parts: FittedParts
    changes: Changes
    raw: RawRows | None = None
    before: FittedParts | None = None


def _has_method(name: str) -> Callable[[Any], bool]:
    """Return a check that a pipeline's estimator has a method of this name."""
    return lambda pipeline: hasattr(pipeline.estimator, name)


class ForgettablePipeline(_BaseComposition):
    """Steps and an estimator of ``expunge.linear_model`` that forget together.

    Parameters
    ----------
    steps
        Pairs of a name and a transformer. Those of ``expunge.preprocessing`` forget
        exactly, also inside a ``ColumnTransformer``. Stateless ones have nothing to
        forget. Any other is fitted again, and makes the release "radius-only".
    estimator
        The model, with its budget and ``keep_data=True``.

    Attributes
    ----------
    steps_, model_
        The fitted steps by name, and the fitted model, to read only: call ``forget`` of
        the pipeline, not theirs.
    changes_
        Positions of the model's columns that the last removal took away or added.
    certificate_, record_
        Of the last release.
    """

    def __init__(self, steps: Sequence[tuple[str, Any]], estimator: Any) -> None:
        self.steps = steps
        self.estimator = estimator

    def fit(
        self,
        X: Any,
        y: Any,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the steps and the model, and make the first release.

        Parameters
        ----------
        X, y
            Raw rows (array, sparse matrix or data frame), and labels or targets.
        subjects
            The owner of each row. Without it nobody has an id, and you forget rows by
            their position.
        sample_weight
            Weights for the model and for each step that takes them.
        """
        self._require_parts()
        raw = _make_raw(X, y, subjects, sample_weight)
        steps, Z = fit_steps(self.steps, raw)
        model = clone(self.estimator)
        before = self._earlier_model()
        require_weights(before, raw.weight)
        prepared = prepare(model, Z, raw.y, sample_weight=raw.weight)
        prepared = prepared.with_pair(None if before is None else before.pair)
        prepared = replace(prepared, owners=raw.owners)
        fit_prepared(model, prepared, scope=_scope_of(steps), before=before)
        with write_lock(self):
            self._fitted = FittedPipeline(FittedParts(steps, model), Changes(), raw)
        return self

    def forget(
        self,
        subjects: Iterable[object] | None = None,
        *,
        rows: ArrayLike | None = None,
    ) -> Self:
        """Remove people from steps, model and kept rows; make a new release.

        All or nothing: if one of them is not there, or the remaining rows cannot be
        fitted, nobody is removed.

        Parameters
        ----------
        subjects
            Whom to forget.
        rows
            Positions of rows in the data of the fit, if it had no subjects.
        """
        check_is_fitted(self, "_fitted")
        if (subjects is None) == (rows is None):
            raise InvalidInput("say whom to forget: pass subjects=... or rows=...")
        with write_lock(self):
            raw = self._finish_request()
            if rows is not None:
                names = {row_name(position) for position in positions_of(rows)}
            else:
                names = {person(subject) for subject in list_of_ids(subjects)}
            gone = _find_places(raw, names)
            if gone.size:
                self._fitted = self._remove(raw, names, gone=gone)
                self._finish_request()
        return self

    def declare_tuned(self, search: object) -> Self:
        """State that a search on the data chose parameters of the pipeline.

        Removal does not undo that choice: the certificate says so from now on.
        """
        check_is_fitted(self, "_fitted")
        with write_lock(self):
            self._finish_request()
            self._fitted.parts.model.declare_tuned(search)
        return self

    def _earlier_model(self) -> PublicModel | None:
        """Return the model of an earlier fit, preferably one with a declaration."""
        current: FittedPipeline | None = getattr(self, "_fitted", None)
        earlier = None if current is None else public_model(current.parts.model)
        if earlier is not None and earlier.declared:
            return earlier
        return public_model(self.estimator)

    def _remove(self, raw: RawRows, names: set[str], *, gone: Index) -> FittedPipeline:
        """Return the pipeline without these owners and their rows."""
        parts = self._fitted.parts
        left = raw.take(np.setdiff1d(np.arange(len(raw.owners)), gone))
        if not left.owners:
            raise CannotRemove("no row would be left; nobody was removed")
        steps, Z = remove_from_steps(parts.steps, raw.take(gone), left=left)
        # A copy: if anything fails below, the pipeline keeps the old model.
        model, private = copy(parts.model), private_model(parts.model)
        if Z is None:
            after = forget_owners(private, names)
        else:
            rows = replace(left, X=Z)
            after = refit_on(model, rows, private=private, n_subjects=len(names))
        release_snapshot(model, snapshot_of(parts.model), after=after)
        new = FittedParts(steps, model)
        changes = Changes.between(_column_names(parts), _column_names(new))
        return FittedPipeline(new, changes, left, before=parts)

    def _finish_request(self) -> RawRows:
        """Finish the last request, even after an interrupt; return the rows left."""
        current: FittedPipeline = self._fitted
        if current.raw is None:
            raise NoPrivateState(
                "this is a pickle or copy, which has only the release; call forget on "
                "the fitted pipeline itself"
            )
        private_model(current.parts.model)
        if current.before is not None:
            drop_sums(current.before.steps, current.parts.steps)
            # Someone may still hold the old model; it must not keep removed people.
            before = current.before.model
            set_snapshot(before, snapshot_of(before).without_secrets())
            self._fitted = replace(current, before=None)
        return current.raw

    def predict(self, X: Any) -> Any:
        """Return the model's answer for each row."""
        return self._call_model("predict", X)

    def _predict_proba(self, X: Any) -> Any:
        """Return the probability of each class."""
        return self._call_model("predict_proba", X)

    def _decision_function(self, X: Any) -> Any:
        """Return the model's predictors."""
        return self._call_model("decision_function", X)

    predict_proba = available_if(_has_method("predict_proba"))(_predict_proba)
    decision_function = available_if(_has_method("decision_function"))(
        _decision_function
    )

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the model's score on these rows."""
        score: float = self._call_model("score", X, y, sample_weight=sample_weight)
        return score

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns that the model sees."""
        return self._fitted_parts().names(input_features)

    @property
    def steps_(self) -> dict[str, Any]:
        """The fitted steps by name."""
        return dict(self._fitted_parts().steps)

    @property
    def model_(self) -> Any:
        """The fitted model."""
        return self._fitted_parts().model

    @property
    def changes_(self) -> Changes:
        """Positions of the columns that the last removal took away or added."""
        check_is_fitted(self, "_fitted")
        changes: Changes = self._fitted.changes
        return changes

    @property
    def certificate_(self) -> Certificate:
        """The model's certificate, with a sentence on each step."""
        certificate: Certificate = self.model_.certificate_
        return certificate

    @property
    def record_(self) -> Record:
        """The private record behind the last release."""
        record: Record = self.model_.record_
        return record

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes of a classifier."""
        classes: NDArray[Any] = self.model_.classes_
        return classes

    @property
    def n_features_in_(self) -> int:
        """How many columns the raw rows have."""
        width: int = self._first_part().n_features_in_
        return width

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The names of the raw columns, if they have any."""
        names: NDArray[Any] = self._first_part().feature_names_in_
        return names

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return parameters, those of steps as name__parameter."""
        params: dict[str, Any] = self._get_params("steps", deep=deep)
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of steps as name__parameter."""
        self._set_params("steps", **params)
        return self

    def _require_parts(self) -> None:
        """Refuse an estimator that cannot forget together with its steps."""
        self._validate_names([name for name, _ in self.steps])
        if not isinstance(self.estimator, Forgetful):
            raise InvalidInput(
                f"estimator={type(self.estimator)} cannot forget; use an estimator of "
                "expunge.linear_model"
            )
        if not hasattr(self.estimator, "keep_data"):
            raise InvalidInput(
                f"estimator={type(self.estimator).__name__} tunes itself, and each "
                "fold would need its own preprocessing; use LogisticRegression, "
                "LinearRegression or SoftmaxRegression of expunge.linear_model"
            )
        if not self.estimator.keep_data:
            raise InvalidInput(
                "keep_data=False: when a step changes, all rows change, and the model "
                "must be fitted to them again; set keep_data=True"
            )

    def _call_model(self, method: str, X: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the result of a method of the model on the transformed rows."""
        parts = self._fitted_parts()
        return getattr(parts.model, method)(
            apply_steps(parts.steps, X), *args, **kwargs
        )

    def _first_part(self) -> Any:
        """Return the first step, or the model if there are no steps."""
        parts = self._fitted_parts()
        return parts.steps[0][1] if parts.steps else parts.model

    def _fitted_parts(self) -> FittedParts:
        check_is_fitted(self, "_fitted")
        parts: FittedParts = self._fitted.parts
        return parts

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle may hold: parameters, fitted steps and the release."""
        state: dict[str, Any] = super().__getstate__()
        state.pop("_lock", None)
        if "_fitted" in state:
            current = state["_fitted"]
            state["_fitted"] = FittedPipeline(current.parts, Changes())
        return state

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there is a fitted pipeline."""
        return hasattr(self, "_fitted")

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: the estimator's, with the first step's input."""
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        tags.target_tags = inner.target_tags
        parts = [get_tags(step).input_tags for _, step in self.steps]
        parts.append(inner.input_tags)
        tags.input_tags = replace(parts[0], sparse=all(part.sparse for part in parts))
        return tags


def forgettable_pipeline(*steps: Any, estimator: Any) -> ForgettablePipeline:
    """Return a pipeline of these steps, named by their classes, and the estimator."""
    return ForgettablePipeline(_name_estimators(steps), estimator)


def _make_raw(
    X: Any,
    y: Any,
    subjects: Iterable[object] | None,
    sample_weight: ArrayLike | None,
) -> RawRows:
    """Return the rows, of consistent length, in new memory."""
    if y is None:
        raise InvalidInput(
            "a ForgettablePipeline requires y to be passed, but the target y is None"
        )
    X, y = indexable(X, y)
    n_rows = _num_samples(X)
    weight = None
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
    owners = tuple(owners_of(subjects, n_rows))
    return RawRows(X, y, weight, owners).take(np.arange(n_rows))


def _scope_of(steps: Steps) -> Scope:
    """Return what certificates state about these steps."""
    foreign = [step for _, step in steps if classify_step(step) == "foreign"]
    return Scope(
        in_pipeline=True,
        foreign=tuple(type(step).__name__ for step in foreign),
        assumptions=list_assumptions(steps),
        not_covered=list_not_covered(steps),
    )


def _find_places(raw: RawRows, people: set[str]) -> Index:
    """Return the positions of these people's rows, or raise UnknownSubject."""
    missing = people.difference(raw.owners)
    if missing:
        raise unknown_owners(missing, people)
    return np.flatnonzero([owner in people for owner in raw.owners])


def _column_names(parts: FittedParts) -> NDArray[Any]:
    """Return the names of the model's columns; none if a step does not name its own."""
    try:
        return parts.names()
    except (AttributeError, ValueError):
        return np.array([], dtype=object)
