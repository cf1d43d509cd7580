# SPDX-License-Identifier: Apache-2.0
"""What every estimator that forgets is: one snapshot, replaced at once.

An interrupt, an error or another thread finds the old model or the new one, never half
of each. A request finds its rows, changes the private model, releases it, and ends in
``set_snapshot``. Pickles and deep copies hold the release alone. Other packages never
reach into an estimator: they ask for its snapshot here.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from inspect import isabstract
from os import PathLike
from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..core.arrays import write_lock
from ..core.rows import Rows
from ..display.progress import ProgressBar
from ..exceptions import (
    CapacityExceeded,
    InvalidInput,
    NoPrivateState,
    Unsupported,
)
from ..files import save
from ..private_model.people_model import PeopleModel
from ..private_model.snapshot import (
    PublicModel,
    Snapshot,
    forget_people,
    forget_positions,
    forget_rows,
    has_people,
)
from ..private_model.subjects import list_of_ids, owners_of, positions_of
from ..promise.card import ShowsPromise
from ..promise.certificate import Certificate
from ..promise.scope import Scope
from ..promise.verification import Record


class Forgetting(ShowsPromise, BaseEstimator, ABC):
    """An estimator with people in it, its release, and what it needs to forget them."""

    _snapshot: Snapshot
    by_name: ClassVar[dict[str, type["Forgetting"]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        """Name the package's own estimators, for loading files."""
        super().__init_subclass__(**options)
        if cls.__module__.startswith("expunge."):
            cls.by_name[cls.__name__] = cls

    def forget(
        self,
        subjects: Iterable[object] | None = None,
        *,
        rows: ArrayLike | None = None,
        X: Any = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Remove people, or rows, and make a new release. All or nothing.

        Parameters
        ----------
        subjects
            Whom to forget, if the model keeps its data.
        rows
            Positions of rows in the data of the fit, if the model keeps its data and
            was fitted without subjects.
        X, y, sample_weight
            The rows to forget, exactly as they were fitted.
        """
        # One step, no matter who leaves: more would tell how the answer was reached.
        shown = bool(getattr(self, "verbose", False))
        bar = ProgressBar("forgetting", 1, shown=shown)
        with write_lock(self):
            private = finish_request(self)
            if sum(given is not None for given in (subjects, rows, X)) != 1:
                raise InvalidInput(
                    "say what to forget in one way: subjects=..., rows=..., or X=... "
                    "with y=..."
                )
            before, made_by = self._snapshot, private.input_map
            if subjects is not None and made_by is not None:
                subjects = list_of_ids(subjects)
                made_by.forget(subjects)  # made again, should the request be refused
            elif made_by is not None and made_by.keeps_people:
                raise InvalidInput(
                    "this model's cache keeps embeddings by person, and rows do not "
                    "say whose they are; forget people by their ids: "
                    "forget(subjects=...)"
                )
            with bar:
                if subjects is not None:
                    after = forget_people(private, list_of_ids(subjects))
                elif rows is not None:
                    after = forget_positions(private, positions_of(rows))
                else:
                    removed = self._read_removed(
                        before, X, y, sample_weight=sample_weight
                    )
                    after = forget_rows(private, removed)
                if after is not private:
                    try:
                        released = before.release(after)
                    except CapacityExceeded:
                        # The rows are removed all the same; the old release stays.
                        set_snapshot(self, before.keep(after))
                        raise
                    set_snapshot(self, released)
                bar.count()
        return self

    @property
    def certificate_(self) -> Certificate:
        """The public certificate of the last release."""
        return self._public.release.certificate

    @property
    def record_(self) -> Record:
        """The private record behind the last release."""
        people_model(self)  # copies have no record
        record = self._snapshot.record
        assert record is not None
        return record

    def declare_tuned(self, search: object) -> Self:
        """State that a search on the data chose these parameters.

        Removal does not undo that choice, and the certificate says so from now on.
        """
        with write_lock(self):
            finish_request(self)
            self._snapshot = self._snapshot.declare(search)
        return self

    def save(self, path: str | PathLike[str]) -> None:
        """Write release and private state into a folder; ``expunge.load`` reads it."""
        require_known(self)
        with write_lock(self):
            if snapshot_of(self).private is not None:
                finish_request(self)
                # This model goes on as the one in the file does, to the last bit.
                self._snapshot = self._snapshot.compact()
            save(self._snapshot, path)

    @abstractmethod
    def to_sklearn(self) -> Any:
        """Return a plain scikit-learn estimator with the release in it."""

    @abstractmethod
    def _fit_snapshot(
        self,
        X: Any,
        y: Any,
        *,
        scope: Scope,
        before: PublicModel | None,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
        engine: Any = None,
    ) -> Snapshot:
        """Return the fit of the parameters; the estimator learns columns alone."""

    @abstractmethod
    def _read_added(
        self, before: Snapshot, X: Any, y: Any, *, sample_weight: ArrayLike | None
    ) -> Rows:
        """Return rows to add as the model keeps them."""

    @abstractmethod
    def _read_removed(
        self, before: Snapshot, X: Any, y: Any, *, sample_weight: ArrayLike | None
    ) -> Rows:
        """Return rows to forget as the model keeps them, like those of the fit."""

    @property
    def _public(self) -> PublicModel:
        return snapshot_of(self).public

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle may hold: parameters and the release."""
        state: dict[str, Any] = super().__getstate__()
        state = {name: value for name, value in state.items() if name != "_lock"}
        if "_snapshot" in state:
            state["_snapshot"] = state["_snapshot"].without_secrets()
        return state

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy, of which nothing is declared.

        Searches fit clones, with parameters that they chose.
        """
        fresh: Self = super().__sklearn_clone__()  # type: ignore[misc, unused-ignore]
        if getattr(fresh, "selection", None) is not None:
            fresh.selection = None
        return fresh


def require_known(estimator: object) -> None:
    """Raise Unsupported for an estimator that could not be loaded again."""
    known = {n: kind for n, kind in Forgetting.by_name.items() if not isabstract(kind)}
    if known.get(type(estimator).__name__) is not type(estimator):
        raise Unsupported(
            f"{type(estimator)} cannot be saved, shipped or kept in a registry; "
            f"{', '.join(sorted(known))} of expunge.linear_model can"
        )


def snapshot_of(estimator: Any) -> Snapshot:
    """Return a fitted estimator's snapshot, or raise NotFittedError."""
    if "_snapshot" not in vars(estimator):
        check_is_fitted(estimator, "_snapshot")
    snapshot: Snapshot = estimator._snapshot
    return snapshot


def public_model(estimator: Any) -> PublicModel | None:
    """Return the public part of an estimator's model; None if it is not fitted."""
    snapshot: Snapshot | None = getattr(estimator, "_snapshot", None)
    return None if snapshot is None else snapshot.public


def people_model(estimator: Any) -> PeopleModel:
    """Return a fitted estimator's private model, or raise NoPrivateState."""
    private = snapshot_of(estimator).private
    if private is None:
        raise NoPrivateState(
            "this is a pickle or copy, which has only the release; use the fitted "
            "model itself, or save it with save() and load it with expunge.load"
        )
    return private


def set_snapshot(estimator: Any, snapshot: Snapshot) -> None:
    """Let this snapshot be the estimator's model, and finish its request.

    The request counts from the first assignment on. An interrupt after it leaves rows
    or digests to change, which the next request does before anything else.
    """
    estimator._snapshot = snapshot
    estimator._snapshot = snapshot.finish()


def read_owners(
    private: PeopleModel, subjects: Iterable[object] | None, *, n_rows: int
) -> list[str] | None:
    """Return whose rows to add these are; None in a model without owners."""
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


def finish_request(estimator: Any) -> PeopleModel:
    """Finish a request that was interrupted after it counted; return the private model.

    The caller holds the estimator's lock.
    """
    if people_model(estimator).pending is not None:
        set_snapshot(estimator, snapshot_of(estimator))
    return people_model(estimator)
