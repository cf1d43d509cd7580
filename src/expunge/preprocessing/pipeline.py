# SPDX-License-Identifier: Apache-2.0
"""ForgettablePipeline: preprocessing and model that forget a person together.

The raw rows are kept with their owners. A request goes through every step; where a
step learned something else without the person, all rows change, and the model is
refitted to them under its contract. The outcome is that of fitting the whole pipeline
to the remaining rows.
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
    Raw,
    Steps,
    assumptions,
    fitted,
    handling,
    not_covered,
    retire,
    transformed,
    without,
)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Face:
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
class Whole:
    """A fitted pipeline at one moment, replaced as one object.

    Attributes
    ----------
    face
        The fitted steps and the model.
    changes
        What the last removal did to the model's columns.
    raw
        The rows as they were handed over; None in a copy.
    before
        What the last request replaced and may still hold secrets.
    """

    face: Face
    changes: Changes
    raw: Raw | None = None
    before: Face | None = None


def _offered(name: str) -> Callable[[Any], bool]:
    """Return whether a pipeline's estimator has a method of this name."""
    return lambda pipeline: hasattr(pipeline.estimator, name)


class ForgettablePipeline(_BaseComposition):
    """Steps and an estimator of ``expunge.linear_model`` that forget together.

    Parameters
    ----------
    steps
        Pairs of a name and a transformer. Those of ``expunge.preprocessing`` forget
        exactly, also inside a ``ColumnTransformer``; stateless ones have nothing to
        forget; any other is fitted again, and makes the release "radius-only".
    estimator
        The model, with its contract and ``keep_data=True``.

    Attributes
    ----------
    steps_, model_
        The fitted steps by name, and the fitted model. To be read: a model or a step
        that forgets on its own leaves the rest of the pipeline behind.
    changes_
        Positions of the model's columns that the last removal took away or brought.
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
            Raw rows, an array, a sparse matrix or a data frame, and labels or targets.
        subjects
            Whose row each is. Without it nobody has an id, and rows are forgotten by
            their position.
        sample_weight
            Weights, for the model and for each step that takes them.
        """
        self._require_parts()
        raw = _raw(X, y, subjects, sample_weight)
        steps, Z = fitted(self.steps, raw)
        model = clone(self.estimator)
        before = self._before()
        require_weights(before, raw.weight)
        prepared = prepare(model, Z, raw.y, sample_weight=raw.weight)
        prepared = prepared.with_pair(None if before is None else before.pair)
        prepared = replace(prepared, owners=raw.owners)
        fit_prepared(model, prepared, scope=_scope_of(steps), before=before)
        with write_lock(self):
            self._whole = Whole(Face(steps, model), Changes(), raw)
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
            Positions of rows in the data of the fit, where there were no subjects.
        """
        check_is_fitted(self, "_whole")
        if (subjects is None) == (rows is None):
            raise InvalidInput("say whom to forget: subjects=..., or rows=...")
        with write_lock(self):
            raw = self._settled()
            if rows is not None:
                names = {row_name(position) for position in positions_of(rows)}
            else:
                names = {person(subject) for subject in list_of_ids(subjects)}
            gone = _places(raw, names)
            if gone.size:
                self._whole = self._without(raw, names, gone=gone)
                self._settled()
        return self

    def declare_tuned(self, search: object) -> Self:
        """State that a search on the data chose parameters of the pipeline.

        Removal does not undo that choice: the certificate says so from now on.
        """
        check_is_fitted(self, "_whole")
        with write_lock(self):
            self._settled()
            self._whole.face.model.declare_tuned(search)
        return self

    def _before(self) -> PublicModel | None:
        """Return what is known of an earlier fit, the one with a declaration first."""
        whole: Whole | None = getattr(self, "_whole", None)
        earlier = None if whole is None else public_model(whole.face.model)
        if earlier is not None and earlier.declared:
            return earlier
        return public_model(self.estimator)

    def _without(self, raw: Raw, names: set[str], *, gone: Index) -> Whole:
        """Return the pipeline without these owners, whose rows are these."""
        face = self._whole.face
        left = raw.take(np.setdiff1d(np.arange(len(raw.owners)), gone))
        if not left.owners:
            raise CannotRemove("no row would be left; nobody was removed")
        steps, Z = without(face.steps, raw.take(gone), left=left)
        # A copy, which counts once the pipeline takes it over.
        model, private = copy(face.model), private_model(face.model)
        if Z is None:
            after = forget_owners(private, names)
        else:
            rows = replace(left, X=Z)
            after = refit_on(model, rows, private=private, n_subjects=len(names))
        release_snapshot(model, snapshot_of(face.model), after=after)
        new = Face(steps, model)
        changes = Changes.between(_known_names(face), _known_names(new))
        return Whole(new, changes, left, before=face)

    def _settled(self) -> Raw:
        """Finish the last request, also after an interrupt; return the rows left."""
        whole: Whole = self._whole
        if whole.raw is None:
            raise NoPrivateState(
                "this copy carries the release alone, as every pickle and copy does; "
                "forget with the fitted pipeline itself"
            )
        private_model(whole.face.model)
        if whole.before is not None:
            retire(whole.before.steps, whole.face.steps)
            # What somebody may still hold must not know the people who left.
            before = whole.before.model
            set_snapshot(before, snapshot_of(before).without_secrets())
            self._whole = replace(whole, before=None)
        return whole.raw

    def predict(self, X: Any) -> Any:
        """Return the model's answer for each row."""
        return self._through("predict", X)

    def _predict_proba(self, X: Any) -> Any:
        """Return the probability of each class."""
        return self._through("predict_proba", X)

    def _decision_function(self, X: Any) -> Any:
        """Return the model's predictors."""
        return self._through("decision_function", X)

    predict_proba = available_if(_offered("predict_proba"))(_predict_proba)
    decision_function = available_if(_offered("decision_function"))(_decision_function)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the model's score on these rows."""
        score: float = self._through("score", X, y, sample_weight=sample_weight)
        return score

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns that the model sees."""
        return self._fitted_face().names(input_features)

    @property
    def steps_(self) -> dict[str, Any]:
        """The fitted steps by name."""
        return dict(self._fitted_face().steps)

    @property
    def model_(self) -> Any:
        """The fitted model."""
        return self._fitted_face().model

    @property
    def changes_(self) -> Changes:
        """Positions of the columns that the last removal took away or brought."""
        check_is_fitted(self, "_whole")
        changes: Changes = self._whole.changes
        return changes

    @property
    def certificate_(self) -> Certificate:
        """The model's certificate, with a sentence on each step."""
        paper: Certificate = self.model_.certificate_
        return paper

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
        width: int = self._first().n_features_in_
        return width

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The names of the raw columns, where they have names."""
        names: NDArray[Any] = self._first().feature_names_in_
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
        """Refuse an estimator that cannot follow its steps."""
        self._validate_names([name for name, _ in self.steps])
        if not isinstance(self.estimator, Forgetful):
            raise InvalidInput(
                f"estimator={type(self.estimator).__name__} cannot forget; use one of "
                "expunge.linear_model"
            )
        if not hasattr(self.estimator, "keep_data"):
            raise InvalidInput(
                f"estimator={type(self.estimator).__name__} tunes itself, and each "
                "fold would need preprocessing of its own; use an estimator of "
                "expunge.linear_model"
            )
        if not self.estimator.keep_data:
            raise InvalidInput(
                "keep_data=False: when a step changes, all rows do, and the model must "
                "see them again; keep the data"
            )

    def _through(self, method: str, X: Any, *args: Any, **kwargs: Any) -> Any:
        """Return what a method of the model makes of the transformed rows."""
        face = self._fitted_face()
        return getattr(face.model, method)(transformed(face.steps, X), *args, **kwargs)

    def _first(self) -> Any:
        """Return what sees the raw rows first."""
        face = self._fitted_face()
        return face.steps[0][1] if face.steps else face.model

    def _fitted_face(self) -> Face:
        check_is_fitted(self, "_whole")
        face: Face = self._whole.face
        return face

    def __getstate__(self) -> dict[str, Any]:
        """Return what may travel: parameters, fitted steps and the release."""
        state: dict[str, Any] = super().__getstate__()
        state.pop("_lock", None)
        if "_whole" in state:
            whole = state["_whole"]
            state["_whole"] = Whole(whole.face, Changes())
        return state

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there is a fitted pipeline."""
        return hasattr(self, "_whole")

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: the estimator's, for the first step's rows."""
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


def _raw(
    X: Any,
    y: Any,
    subjects: Iterable[object] | None,
    sample_weight: ArrayLike | None,
) -> Raw:
    """Return the rows, checked against one another, in memory of their own."""
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
    return Raw(X, y, weight, owners).take(np.arange(n_rows))


def _scope_of(steps: Steps) -> Scope:
    """Return what certificates state of steps that forget with a model, or do not."""
    foreign = [type(step).__name__ for _, step in steps if handling(step) == "foreign"]
    return Scope(
        in_pipeline=True,
        foreign=tuple(foreign),
        assumptions=assumptions(steps),
        not_covered=not_covered(steps),
    )


def _places(raw: Raw, people: set[str]) -> Index:
    """Return where these people's rows lie, or raise UnknownSubject."""
    missing = people.difference(raw.owners)
    if missing:
        raise unknown_owners(missing, people)
    return np.flatnonzero([owner in people for owner in raw.owners])


def _known_names(face: Face) -> NDArray[Any]:
    """Return the names of the model's columns; none where a step does not tell."""
    try:
        return face.names()
    except (AttributeError, ValueError):
        return np.array([], dtype=object)
