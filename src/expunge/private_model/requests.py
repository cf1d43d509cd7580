# SPDX-License-Identifier: Apache-2.0
"""Which rows a request names, and the model without them.

By person, by position or by content. Nothing is erased yet: the model that is returned
says what to take out of rows and digests, see ``apply_pending``.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ..core.arrays import Index
from ..core.rows import Rows
from ..exceptions import InvalidInput
from .model import AnyModel, PendingErasure, require_release
from .subjects import person, row_name
from .training_rows import TrainingRows, digests, share_by_person


def forget_people(model: AnyModel, subjects: Iterable[object]) -> AnyModel:
    """Return the model without these people: all their rows, as one batch.

    Raises UnknownSubject, and removes nobody, if one of them is not there.
    """
    if model.training_rows is None:
        raise InvalidInput(
            "this model keeps no data (keep_data=False) and cannot look people up; "
            "hand over their rows: forget(X=..., y=...)"
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
            "rows=... names rows of a model that keeps its data and was fitted without "
            "subjects; forget people by their ids, or hand over their rows: "
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
    entries = model.digests.find(removed)  # unknown rows are refused before all else
    if model.training_rows is not None:
        return _forget_places(model, _find_places(model, removed))
    require_release(model)
    n_people = model.digests.count_people(entries)
    after = model.forget(removed, n_subjects=n_people)
    return replace(after, pending=PendingErasure(model.digests.without(entries), None))


def _forget_places(model: AnyModel, gone: Index) -> AnyModel:
    """Return the model without the rows at these places."""
    kept = model.training_rows
    assert kept is not None and model.digests is not None
    if not gone.size:
        return model
    require_release(model)
    removed = kept.rows.take(gone)
    after = model.forget(removed, gone=gone, n_subjects=kept.count_people(gone))
    entries = Counter(digests(removed, model.digests.key))
    return replace(after, pending=PendingErasure(model.digests.without(entries), gone))


def _find_places(model: AnyModel, removed: Rows) -> Index:
    """Return where these rows lie among those kept, each copy once."""
    kept = model.training_rows
    assert kept is not None and model.digests is not None
    key, alive = model.digests.key, np.flatnonzero(kept.alive)
    places: dict[bytes, list[int]] = {}
    there = digests(kept.rows.take(alive), key)
    for place, digest in zip(alive.tolist(), there, strict=True):
        places.setdefault(digest, []).append(place)
    wanted = Counter(digests(removed, key))
    owners = {entry: [kept.owners[p] for p in places[entry]] for entry in wanted}
    share = share_by_person(wanted, owners)
    gone: list[int] = []
    for entry, n_wanted in wanted.items():
        equal = places[entry]
        same = kept.anonymous or len(set(owners[entry])) == 1
        if n_wanted == len(equal) or (same and model.interchangeable(equal)):
            gone += equal[-n_wanted:]
        else:
            gone += _require_meant(kept, equal, n_wanted, share=share)
    return np.array(gone, dtype=np.intp)


def _require_meant(
    kept: TrainingRows, places: list[int], n_wanted: int, *, share: Counter[str]
) -> list[int]:
    """Return which of these equal rows a request means, or refuse it.

    It means the people all of whose rows it names: whose row goes matters when the
    other person asks by id later.
    """
    whole = [
        p for p in places if share[kept.owners[p]] == len(kept.places[kept.owners[p]])
    ]
    if len(whole) != n_wanted:
        raise InvalidInput(
            "several people have a row like one of these, and it matters whose goes; "
            "say whom to forget: forget(subjects=...), or forget(rows=...) where rows "
            "have no owners"
        )
    return whole
