# SPDX-License-Identifier: Apache-2.0
"""Snapshot: a fitted model at one moment, its public part beside its private one.

A request computes the next snapshot from the present one, and a single assignment makes
it count: an interrupt before it leaves the old model whole, one after it the new. A
prediction in another thread sees one or the other. Pickles and copies take the public
part alone.

The ``forget_`` functions find the rows a request means, by person, position or content,
and return the private model without them; ``add_rows`` and ``replace_places`` return it
with others. They change no row and no digest yet: the model they return says what to
take out and put in, and ``apply_pending`` does it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Matrix, Vector
from ..core.losses import Loss
from ..core.packing import Arrays, pack, unpack
from ..core.rows import Rows
from ..core.values import replace_fields, stored
from ..exceptions import InvalidInput
from ..promise.accountant import TunedOnData
from ..promise.budget import Budget, is_made_here
from ..promise.certificate import certify
from ..promise.scope import Scope
from ..promise.verification import Record, Release
from .model import AnyModel, Fetch, PrivateModel, apply_pending, require_release
from .row_digests import PendingChange, RowDigests, digests, share_by_person
from .subjects import person, row_name
from .training_rows import NO_ROWS, KeptRows, RowChange, TrainingRows, require_in_memory

# Budgets that a fit has used, by id, while they live.
_USED: dict[int, ReferenceType[Budget]] = {}


class Encoder(Protocol):
    """Fitted preprocessing, as the public model sees it."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""

    def encode(self, X: Any) -> Matrix:
        """Return the rows of a table as the model sees them."""


@stored
@dataclass(frozen=True, eq=False, kw_only=True)
class PublicModel:
    """The public part: what predictions, files and copies need.

    Attributes
    ----------
    release
        The parameters with their noise, and their certificate.
    estimator, parameters
        Name of the estimator's class, and its parameters at the fit. The seed is left
        out, because it would undo the noise, and so are progress bars.
    n_features, feature_names
        Number of columns of the rows, and their names if they have any.
    n_targets
        Number of targets of a regression; None if y is a vector.
    classes, pair
        The classes of a classifier, and its loss when two are left.
    weighted
        Whether the rows of the fit had weights.
    declared
        Searches that made choices by looking at the data.
    preprocessing
        How rows are encoded before the model sees them; None if they are not.
    """

    release: Release
    estimator: str
    parameters: Mapping[str, Any]
    n_features: int
    feature_names: NDArray[Any] | None = None
    n_targets: int | None = None
    classes: NDArray[Any] | None = None
    pair: Loss | None = None
    weighted: bool = False
    declared: tuple[str, ...] = ()
    preprocessing: Encoder | None = None

    @property
    def coefficients(self) -> tuple[Matrix, Vector]:
        """The release as coefficients (k, d) and intercepts (k,)."""
        # As fitted; parameters may have been set since.
        intercept = bool(self.release.certificate.objective["intercept"])
        width = self.n_features
        if self.preprocessing is not None:
            width = len(self.preprocessing.names)
        columns = self.release.theta.reshape(width + intercept, -1)
        if not intercept:
            return columns.T, np.zeros(columns.shape[1])
        return columns[:-1].T, columns[-1]

    @property
    def loss(self) -> str:
        """The name of the loss that was fitted.

        One-vs-rest goes by the name of its binary loss, unless that gives log-odds.
        """
        described = self.release.certificate.objective["loss"]
        binary = described.get("binary", {"name": "Logistic"})["name"]
        return str(described["name"] if binary == "Logistic" else binary)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Snapshot:
    """What anyone may see of a model, and what only its operator may."""

    public: PublicModel
    private: PrivateModel | None = None
    record: Record | None = None

    def __repr__(self) -> str:
        return f"Snapshot({self.public.release!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the public part alone."""
        return Snapshot, (self.public,)

    def without_secrets(self) -> "Snapshot":
        """Return the snapshot without its private part."""
        return Snapshot(self.public)

    def release(self, private: PrivateModel) -> "Snapshot":
        """Return the snapshot with a release of this private model."""
        private, public, record = private.release()
        shown = replace_fields(self.public, release=public, **private.public_parts)
        return Snapshot(shown, private, record)

    def keep(self, private: PrivateModel) -> "Snapshot":
        """Return the snapshot with another private model; nothing is released."""
        return replace(self, private=private)

    def declare(self, search: object) -> "Snapshot":
        """Return the snapshot with a choice made on the data stated as not covered.

        Nothing is released again: the last release gets the certificate it would have
        had. ``search`` is the object that made the choice, or its name.
        """
        assert self.private is not None
        name, before = name_of(search), self.public.release
        event, scope = TunedOnData(name), self.private.scope
        private = replace(
            self.private,
            accountant=self.private.accountant.compose(event),
            certified=self.private.certified.compose(event),
            scope=replace(scope, declared=(*scope.declared, name)),
        )
        certificate = certify(
            private.certified,
            private.objective,
            scope=private.scope,
            noise_source=before.certificate.noise_source,
            commitment=before.certificate.commitment,
        )
        release = Release(before.theta, certificate)
        if private.released is not None:  # the public release is of this state
            private = replace(private, released=(release, private.released[1]))
        declared = private.scope.declared
        public = replace(self.public, release=release, declared=declared)
        return Snapshot(public, private, self.record)

    def apply_pending(self) -> "Snapshot":
        """Return the snapshot after finishing its request."""
        if self.private is None or self.private.pending is None:
            return self
        private = apply_pending(self.private)
        rows = private.training_rows
        if rows is not None and rows.has_many_gaps:
            private = private.compact()
        return self.keep(private)

    def compact(self) -> "Snapshot":
        """Return the snapshot with its training rows gathered, without gaps."""
        return self if self.private is None else self.keep(self.private.compact())

    def dump(self, arrays: Arrays) -> dict[str, Any]:
        """Return the private model as JSON data, without its rows and digests."""
        assert self.private is not None
        parts = {
            "model": self.private,
            "is_released": self.private.released is not None,
            "record": self.record,
        }
        return {name: pack(part, name, arrays=arrays) for name, part in parts.items()}

    def load(
        self,
        content: Mapping[str, Any],
        arrays: Any,
        *,
        training_rows: KeptRows | None = None,
        digests: RowDigests | None = None,
        fetch: Fetch | None = None,
    ) -> "Snapshot":
        """Return the snapshot with the private model that ``dump`` wrote.

        It has fresh noise.

        Parameters
        ----------
        content, arrays
            What was written.
        training_rows, digests, fetch
            What was written separately, and how to fetch rows kept elsewhere.
        """
        record = unpack(content["record"], arrays)
        private: PrivateModel = replace(
            unpack(content["model"], arrays),
            training_rows=training_rows,
            digests=digests,
            fetch=fetch,
        )
        if content["is_released"]:
            private = replace(private, released=(self.public.release, record))
        return Snapshot(self.public, private.with_noise(), record)


def forget_people(model: AnyModel, subjects: Iterable[object]) -> AnyModel:
    """Return the model without these people: all their rows, as one batch.

    Raises UnknownSubject, and removes nobody, if one of them is not in the model.
    """
    if model.training_rows is None:
        raise InvalidInput(
            "this model keeps no data (keep_data=False) and cannot look people up; "
            "pass their rows: forget(X=..., y=...)"
        )
    people = {person(subject) for subject in subjects}
    if people and model.training_rows.anonymous:
        raise InvalidInput(
            "this model was fitted without subjects, so nobody in it has an id; forget "
            "rows by their position: forget(rows=[...]), or fit with subjects=..."
        )
    return forget_owners(model, people)


def forget_positions(model: AnyModel, positions: Iterable[int]) -> AnyModel:
    """Return the model without the rows at these positions of the fit."""
    if model.training_rows is None or not model.training_rows.anonymous:
        raise InvalidInput(
            "rows=... works only if the model keeps its data and was fitted without "
            "subjects; forget people by their ids, or pass their rows: "
            "forget(X=..., y=...)"
        )
    return forget_owners(model, {row_name(position) for position in positions})


def forget_owners(model: AnyModel, names: set[str]) -> AnyModel:
    """Return the model without the rows of these owners, as the rows name them."""
    assert model.training_rows is not None
    return _forget_places(model, model.training_rows.find(names))


def forget_rows(model: AnyModel, removed: Rows) -> AnyModel:
    """Return the model without these rows, each of which must have a digest."""
    if not len(removed):
        return model
    assert model.digests is not None
    model.digests.make_counts(model.training_rows)
    entries = model.digests.find(removed)  # refuses unknown rows first of all
    if model.training_rows is not None:
        return _forget_places(model, _find_places(model, removed))
    require_release(model)
    n_people = model.digests.count_people(entries)
    after = model.forget(removed, n_subjects=n_people)
    change = model.digests.change(entries, None)
    return replace_fields(after, pending=PendingChange(change, None))


def add_rows(model: AnyModel, added: Rows, *, owners: Sequence[str] | None) -> AnyModel:
    """Return the model with these rows too; see ``replace_places``."""
    return replace_places(model, NO_ROWS, added=added, owners=owners)


def replace_places(
    model: AnyModel, gone: Index, *, added: Rows, owners: Sequence[str] | None
) -> AnyModel:
    """Return the model without the rows at some places, and with others.

    Parameters
    ----------
    model
        The model; one that keeps no rows can only be added to.
    gone
        Places of the rows that leave, none if rows are only added.
    added
        The rows that come, as they are kept.
    owners
        Whose they are; None in a model without owners.
    """
    if not (len(added) or gone.size):
        return model
    require_release(model)
    rows, table = model.training_rows, model.digests
    kept = None if rows is None else require_in_memory(rows)
    assert table is not None and (kept is not None or not gone.size)
    removed = None if kept is None or not gone.size else kept.rows.take(gone)
    named = name_rows(model, len(added)) if owners is None else list(owners)
    change = RowChange(
        removed=removed,
        added=added,
        gone=gone,
        n_subjects_removed=0 if kept is None else kept.count_people(gone),
        n_subjects_added=len(set(named)),
    )
    entries = Counter(() if removed is None else digests(removed, table.key))
    return replace_fields(
        model.change(change),
        pending=PendingChange(
            table.change(entries, added, owners=named),
            gone if kept is not None else None,
            added,
            named,
            0 if kept is None else len(kept.alive),
        ),
    )


def has_people(model: PrivateModel) -> bool:
    """Whether the rows of a model have owners: it was fitted with subjects."""
    if model.training_rows is not None:
        return not model.training_rows.anonymous
    assert model.digests is not None
    return bool(model.digests.owners)


def name_rows(model: PrivateModel, n_rows: int) -> list[str]:
    """Return names for rows without owners that come: by the places they take."""
    return [row_name(model.n_samples + place) for place in range(n_rows)]


def carry_over(
    scope: Scope, before: PublicModel | None, *, budget: Budget | None
) -> Scope:
    """Return the scope of a fit, with what was declared of the fit before it.

    Parameters
    ----------
    scope
        What is stated of this fit.
    before
        The estimator's model, if it was fitted before.
    budget
        The budget; if it was used before, there may be releases that this fit does not
        count.
    """
    declared = (() if before is None else before.declared) + scope.declared
    apart = note_use(budget) or scope.counted_apart
    return replace(scope, declared=declared, counted_apart=apart)


def note_use(budget: Budget | None) -> bool:
    """Note that a fit uses this budget; return whether another one did before.

    A budget made in another process may be in use there, and counts as used.
    """
    if budget is None:
        return False
    key = id(budget)

    def forget_use(dead: ReferenceType[Budget]) -> None:
        if _USED.get(key) is dead:
            _USED.pop(key, None)

    # One step of the dictionary, and no lock: an interrupt could leave that held.
    mine = ref(budget, forget_use)
    first = _USED.setdefault(key, mine)
    if first() is not budget:  # one that died while an interrupt came
        _USED[key] = first = mine
    return first is not mine or not is_made_here(budget)


def require_weights(before: PublicModel | None, sample_weight: object) -> None:
    """Raise InvalidInput if a model fitted with weights would be fitted without."""
    if before is not None and before.weighted and sample_weight is None:
        raise InvalidInput(
            "this model was fitted with weights (sample_weight, or class_weight of the "
            "estimator it was adopted from), and without them it would be a different "
            "model; pass sample_weight=..., or an estimator that is not fitted"
        )


def name_of(search: object) -> str:
    """Return the name of what made a choice."""
    return search if isinstance(search, str) else type(search).__name__


def _forget_places(model: AnyModel, gone: Index) -> AnyModel:
    """Return the model without the rows at these places."""
    kept = model.training_rows
    assert kept is not None and model.digests is not None
    if not gone.size:
        return model
    require_release(model)
    removed = kept.take(gone)
    after = model.forget(removed, gone=gone, n_subjects=kept.count_people(gone))
    change = model.digests.change(Counter(digests(removed, model.digests.key)), None)
    return replace_fields(after, pending=PendingChange(change, gone))


def _find_places(model: AnyModel, removed: Rows) -> Index:
    """Return the positions of these rows among those kept, one for each row."""
    assert model.training_rows is not None and model.digests is not None
    kept = require_in_memory(model.training_rows)
    key, counts = model.digests.key, model.digests.counts
    wanted = Counter(digests(removed, key))
    places = _places_by_digest(kept, key, among=kept.find_similar(removed))
    if any(len(places.get(entry, ())) < counts[entry] for entry in wanted):
        places = _places_by_digest(kept, key, among=np.flatnonzero(kept.alive))
    owners = {entry: [kept.owners[p] for p in places[entry]] for entry in wanted}
    share = share_by_person(wanted, owners)
    gone: list[int] = []
    for entry, n_wanted in wanted.items():
        equal = places[entry]
        same = kept.anonymous or len(set(owners[entry])) == 1
        if n_wanted == len(equal) or (same and model.interchangeable(equal)):
            gone += equal[-n_wanted:]
        else:
            gone += _require_meant(kept, equal, n_wanted=n_wanted, share=share)
    return np.array(gone, dtype=np.intp)


def _places_by_digest(
    kept: TrainingRows, key: bytes, *, among: Index
) -> dict[bytes, list[int]]:
    """Return the positions of equal rows under their digest, of the rows at some."""
    places: dict[bytes, list[int]] = {}
    there = digests(kept.rows.take(among), key)
    for place, digest in zip(among.tolist(), there, strict=True):
        places.setdefault(digest, []).append(place)
    return places


def _require_meant(
    kept: TrainingRows, places: list[int], *, n_wanted: int, share: Counter[str]
) -> list[int]:
    """Return which of these equal rows a request means, or refuse it.

    It means the people all of whose rows it names. It matters whose row is removed,
    because the other person may ask by id later.
    """
    whole = [
        p for p in places if share[kept.owners[p]] == len(kept.places[kept.owners[p]])
    ]
    if len(whole) != n_wanted:
        raise InvalidInput(
            "several people have a row like one of these, and it matters whose is "
            "removed; say whom to forget: forget(subjects=...), or forget(rows=...) if "
            "rows have no owners"
        )
    return whole
