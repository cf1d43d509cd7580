# SPDX-License-Identifier: Apache-2.0
"""Snapshot: a fitted model at one moment, its public part beside its private one.

A request computes the next snapshot from the present one, and a single assignment makes
it count: an interrupt before it leaves the old model whole, one after it the new. A
prediction in another thread sees one or the other. Pickles and copies take the public
part alone.

The ``forget_`` functions find the rows a request means, by person, position or content,
and return the private model without them; ``replace_places`` returns it with others.
They change no row and no digest yet: ``finish`` of the model does it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from hashlib import blake2b, shake_256
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.arrays import Design, Index, Matrix, Vector, slice_rows
from ..core.losses import Loss
from ..core.packing import Arrays, pack, unpack
from ..core.rows import Rows
from ..core.values import replace_fields, stored
from ..exceptions import InvalidInput
from ..promise.accountant import TunedOnData
from ..promise.budget import Budget, is_made_here
from ..promise.noise import SECRET_BYTES, random_bytes
from ..promise.scope import Scope
from ..promise.verification import ExactRelease, Record, Release
from .composition import PublicEncoding
from .people_model import AnyModel, Fetch, PeopleModel, require_release
from .row_digests import RowDigests, digests, share_by_person, unknown_rows
from .subjects import person, row_name
from .training_rows import KeptRows, RowChange, TrainingRows, require_in_memory

# Budgets that a fit has used, by id, while they live.
_USED: dict[int, ReferenceType[Budget]] = {}
# What was fitted under which budget, by value: an equal budget promises the same again.
_FITTED: dict[tuple[tuple[Any, ...], bytes], object] = {}
_DATA_KEY = random_bytes(SECRET_BYTES)  # of this process alone
HASHED_ROWS = 1 << 13
UNKEYED = b""  # for digests of rows that are compared here and now


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
    target_deviation
        The standard deviation of each target, of which the certificate's sigma is a
        share; None where sigma is in the units of the parameters.
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
    preprocessing: PublicEncoding | None = None
    target_deviation: tuple[float, ...] | None = None

    @property
    def coefficients(self) -> tuple[Matrix, Vector]:
        """The release as coefficients (k, d) and intercepts (k,)."""
        # As fitted; parameters may have been set since.
        intercept = bool(self.release.certificate.objective["intercept"])
        width = self.n_features
        if self.preprocessing is not None:
            width = self.preprocessing.n_features
        columns = self.release.theta.reshape(width + intercept, -1)
        if not intercept:
            return columns.T, np.zeros(columns.shape[1])
        return columns[:-1].T, columns[-1]

    def require_consistent(self) -> None:
        """Raise ValueError if the parts do not go together, as those of a fit do."""
        coef, intercept = self.coefficients
        outputs, width = coef.shape
        encoder = self.preprocessing
        columns = self.n_features if encoder is None else encoder.n_features
        expected = {self.n_targets or 1}
        if self.classes is not None:
            n_classes = len(self.classes)
            # Two classes have one set of coefficients, or one each in a softmax.
            expected = {n_classes, 1} if n_classes == 2 else {n_classes}
        names, units = self.feature_names, self.target_deviation
        if not (
            self.n_features > 0
            and (units is None or len(units) == outputs)
            and all(one > 0.0 for one in units or ())
            and width == columns
            and outputs in expected
            and intercept.shape == (outputs,)
            and self.release.theta.dtype == np.float64
            and self._is_finite()
            and (self.classes is None or self.classes.ndim == 1)
            and (names is None or names.shape == (self.n_features,))
            and (names is None or all(isinstance(one, str) for one in names.tolist()))
        ):
            raise ValueError("the parts of this model do not go together")
        if encoder is not None:
            known = [*range(self.n_features), *([] if names is None else names)]
            encoder.require_consistent(known)

    def require_shippable(self) -> None:
        """Raise Unsupported if a file for serving could not hold the release."""

    def _is_finite(self) -> bool:
        """Whether all numbers are, or say that a class without rows cannot be."""
        theta = self.release.theta
        never = isinstance(self.release, ExactRelease) & (theta == -np.inf)
        return bool((np.isfinite(theta) | never).all())

    @property
    def loss(self) -> str:
        """The name of the loss that was fitted.

        One-vs-rest goes by the name of its binary loss, unless that gives log-odds.
        """
        described = self.release.certificate.objective["loss"]
        binary = described.get("binary", {"name": "Logistic"})["name"]
        return str(described["name"] if binary == "Logistic" else binary)

    @property
    def gives_log_odds(self) -> bool:
        """Whether the predictors are log-odds, each of one class."""
        return self.loss in ("Logistic", "OneVsRest")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Snapshot:
    """What anyone may see of a model, and what only its operator may."""

    public: PublicModel
    private: PeopleModel | None = None
    record: Record | None = None

    def __repr__(self) -> str:
        return f"Snapshot({self.public.release!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the public part alone."""
        return Snapshot, (self.public,)

    def require_consistent(self) -> None:
        """Raise ValueError if private and public part are not of one model."""
        private, public = self.private, self.public
        if private is None:
            return
        size = public.release.theta.size
        fits = (
            private.fits_release(size, public.coefficients[0].shape[0])
            and (public.classes is None) == (private.public_parts["classes"] is None)
            and private.n_samples >= private.n_removed >= 0
        )
        if not fits:
            raise ValueError("the private part is not of this model")

    def without_secrets(self) -> "Snapshot":
        """Return the snapshot without its private part."""
        return Snapshot(self.public)

    def release(self, private: PeopleModel) -> "Snapshot":
        """Return the snapshot with a release of this private model."""
        private, public, record = private.release()
        shown = replace_fields(self.public, release=public, **private.public_parts)
        return Snapshot(shown, private, record)

    def keep(self, private: PeopleModel) -> "Snapshot":
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
        certificate = private.certify(
            noise_source=before.certificate.noise_source,
            commitment=before.certificate.commitment,
        )
        release = replace(before, certificate=certificate)
        if private.released is not None:  # the public release is of this state
            private = replace(private, released=(release, private.released[1]))
        declared = private.scope.declared
        public = replace(self.public, release=release, declared=declared)
        return Snapshot(public, private, self.record)

    def finish(self) -> "Snapshot":
        """Return the snapshot after finishing its request."""
        if self.private is None or self.private.pending is None:
            return self
        private = self.private.finish()
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
        private: PeopleModel = replace(
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
    if model.training_rows is not None:
        return _forget_places(model, _find_places(model, removed))
    table = model.digests
    assert table is not None
    entries = table.find(removed)  # refuses unknown rows first of all
    require_release(model)
    after = model.forget(removed, n_subjects=table.count_people(entries))
    pending = partial(table.apply, table.change(entries, None))
    return replace_fields(after, pending=pending)


def replace_places(
    model: AnyModel,
    gone: Index,
    *,
    added: Rows,
    owners: Sequence[str] | None,
    stay: bool = False,
) -> AnyModel:
    """Return the model without the rows at some positions, and with others.

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
    stay
        Whether those whose rows leave are among those who bring rows.
    """
    if not (len(added) or gone.size):
        return model
    require_release(model)
    rows, table = model.training_rows, model.digests
    kept = None if rows is None else require_in_memory(rows)
    if owners is None:  # rows are named by the places they take
        owners = [row_name(model.n_samples + i) for i in range(len(added))]
    named = list(owners)
    change = RowChange(
        removed=None if kept is None or not gone.size else kept.rows.take(gone),
        added=added,
        gone=gone,
        n_subjects_removed=0 if kept is None or stay else kept.count_people(gone),
        n_subjects_added=len(set(named)),
    )
    after, pending = model.change(change), None
    if kept is not None:
        pending = partial(
            kept.replace, gone, added, owners=named, position=len(kept.alive)
        )
    elif table is not None and not gone.size:
        pending = partial(table.apply, table.change(Counter(), added, owners=named))
    assert pending is not None, "a model that keeps no rows can only be added to"
    return replace_fields(after, pending=pending)


def has_people(model: PeopleModel) -> bool:
    """Whether the rows of a model have owners: it was fitted with subjects."""
    if model.training_rows is not None:
        return not model.training_rows.anonymous
    assert model.digests is not None
    return bool(model.digests.owners)


def carry_over(
    scope: Scope,
    before: PublicModel | None,
    *,
    budget: Budget | None,
    data: bytes | None = None,
) -> Scope:
    """Return the scope of a fit, with what was declared of the fit before it.

    Parameters
    ----------
    scope
        What is stated of this fit.
    before
        The estimator's model, if it was fitted before.
    budget
        The budget; if it was used before, or an equal one on the same data, there may
        be releases that this fit does not count.
    data
        What ``digest_data`` makes of the rows; None if they are not in memory.
    """
    declared = (() if before is None else before.declared) + scope.declared
    apart = note_use(budget) or scope.counted_apart
    if budget is not None and data is not None:
        mine = object()  # one step of the dictionary, as in ``note_use``
        terms = astuple(budget.at_fit(rows_kept=scope.rows_kept))
        first = _FITTED.setdefault((terms, data), mine)
        apart = apart or first is not mine
    return replace(scope, declared=declared, counted_apart=apart)


def digest_data(X: Design, y: Vector, *, n_columns: int) -> bytes:
    """Return a keyed hash of labels and of the first columns of a design.

    The columns count by their product with numbers that nobody knows, which differs
    where they do and takes a twentieth of the time of hashing them. Labels count by
    their order alone: losses code the same classes differently.
    """
    found = blake2b(key=_DATA_KEY, digest_size=SECRET_BYTES)
    found.update(np.unique(y, return_inverse=True)[1].astype(np.int64).tobytes())
    drawn = shake_256(_DATA_KEY).digest(8 * n_columns)
    factors = np.frombuffer(drawn, dtype=np.int64) / 2.0**63
    for begin in range(0, X.shape[0], HASHED_ROWS):
        part = slice_rows(X, slice(begin, begin + HASHED_ROWS))[:, :n_columns]
        if not sparse.issparse(part):
            part = np.ascontiguousarray(part)  # its order decides the last bits
        found.update((part @ factors).tobytes())
    return found.digest()


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


def name_of(search: object) -> str:
    """Return the name of what made a choice."""
    return search if isinstance(search, str) else type(search).__name__


def _forget_places(model: AnyModel, gone: Index) -> AnyModel:
    kept = model.training_rows
    assert kept is not None
    if not gone.size:
        return model
    require_release(model)
    removed = kept.take(gone)
    after = model.forget(removed, gone=gone, n_subjects=kept.count_people(gone))
    return replace_fields(after, pending=partial(kept.erase, gone))


def _find_places(model: AnyModel, removed: Rows) -> Index:
    """Return the positions of these rows among those kept, one for each row.

    Raises UnknownRows if one of them is not there.
    """
    assert model.training_rows is not None
    kept = require_in_memory(model.training_rows)
    wanted = Counter(digests(removed, UNKEYED))
    places = _places_by_digest(kept, kept.find_similar(removed))
    if any(len(places.get(entry, ())) < n for entry, n in wanted.items()):
        places = _places_by_digest(kept, np.flatnonzero(kept.alive))
    missing = sum(max(0, n - len(places.get(e, ()))) for e, n in wanted.items())
    if missing:
        raise unknown_rows(missing, len(removed))
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


def _places_by_digest(kept: TrainingRows, among: Index) -> dict[bytes, list[int]]:
    places: dict[bytes, list[int]] = {}
    there = digests(kept.rows.take(among), UNKEYED)
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
        p
        for p in places
        if share[kept.owners[p]] == len(kept.positions[kept.owners[p]])
    ]
    if len(whole) != n_wanted:
        raise InvalidInput(
            "several people have a row like one of these, and it matters whose is "
            "removed; say whom to forget: forget(subjects=...), or forget(rows=...) if "
            "rows have no owners"
        )
    return whole
