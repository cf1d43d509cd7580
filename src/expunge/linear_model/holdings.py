# SPDX-License-Identifier: Apache-2.0
"""Holdings: what an estimator keeps in private, and what a request does to it.

The custody, the noise, the roster and, where the data are kept, the rows. A request
first finds what it asks for, then updates the custody, and only then strikes the rows
from roster and rows: whatever fails before leaves everything as it was.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self, TypeAlias

import numpy as np

from .._typing import Index
from ..certificate import Certificate
from ..exceptions import InvalidInput, ScheduleExhausted
from ..noise import Noise
from ..private import Private
from ..record import Record
from ..roster import Roster, digests
from ..rows import Rows
from ..unlearn import Custody, Release, forget, release
from .kept import Kept

Fetch: TypeAlias = Callable[[Index], Rows]
"""The positions of rows that go, to all the others."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Holdings(Private):
    """What stays with the operator.

    Attributes
    ----------
    custody
        The model in custody.
    noise
        Where releases get their noise; None without a budget.
    roster
        Digests of the rows in the model.
    kept
        The rows with their owners; None if the data are not kept.
    notes
        What certificates do not cover, beside the standard sentences.
    fetch
        How to get the remaining rows where they are kept elsewhere.
    """

    custody: Custody
    noise: Noise | None
    roster: Roster
    kept: Kept | None
    notes: tuple[str, ...] = ()
    fetch: Fetch | None = None

    def interchangeable(self, places: Sequence[int]) -> bool:
        """Whether it does not matter which of the equal rows at these places goes."""
        del places
        return True

    def answered(
        self,
        removed: Rows,
        gone: Index | None,
        n_subjects: int,
        *,
        spend: bool = False,
    ) -> Self:
        """Return the holdings with a custody without these rows; strike nothing.

        Parameters
        ----------
        removed
            The rows to remove.
        gone
            Where they lie among the rows kept; None if the data are not kept.
        n_subjects
            How many people they belong to.
        spend
            Give up the state in custody, also if this raises; by default the old state
            stands should anything fail on the way.
        """
        fetch = self.fetch if self.kept is None else self.kept.remaining
        remaining = None
        if fetch is not None and gone is not None:
            remaining = partial(fetch, gone)
        custody = forget(
            self.custody, removed, remaining, n_subjects=n_subjects, spend=spend
        )
        return replace(self, custody=custody)


def without_people(holdings: Holdings, subjects: Iterable[object]) -> Holdings:
    """Return the holdings without these people: all their rows, as one batch.

    Raises UnknownSubject, and removes nobody, if one of them is not there.
    """
    if holdings.kept is None:
        raise InvalidInput(
            "this model keeps no data (keep_data=False) and cannot look people up; "
            "hand over their rows: forget(X=..., y=...)"
        )
    people, gone = holdings.kept.find(subjects)
    return _without(holdings, holdings.kept.rows.take(gone), gone, len(people))


def without_rows(holdings: Holdings, removed: Rows) -> Holdings:
    """Return the holdings without these rows, which must be on the roster."""
    holdings.roster.find(removed)  # a stranger is refused before anything else
    if holdings.kept is None:
        # Whose rows these are is not known: a request speaks for one person.
        return _without(holdings, removed, None, 1)
    gone = _positions(holdings, removed)
    people = {holdings.kept.owners[place] for place in gone}
    return _without(holdings, removed, gone, len(people))


def published(holdings: Holdings) -> tuple[Holdings, Release, Record]:
    """Return the holdings with the release of their custody."""
    custody, public, record = release(holdings.custody, holdings.noise)
    public = Release(public.theta, noted(public.certificate, holdings.notes))
    custody = replace(custody, released=(public, record))
    return replace(holdings, custody=custody), public, record


def noted(certificate: Certificate, notes: tuple[str, ...]) -> Certificate:
    """Return the certificate with these sentences among what it does not cover."""
    said = certificate.not_covered
    new = tuple(note for note in notes if note not in said)
    return replace(certificate, not_covered=said + new)


def _without(
    holdings: Holdings, removed: Rows, gone: Index | None, n_subjects: int
) -> Holdings:
    """Return the holdings after one request."""
    kept = holdings.kept
    if holdings.custody.accountant.remaining() == 0:
        raise ScheduleExhausted(
            "all planned releases are made; fit anew under a new contract"
        )
    entries = holdings.roster.find(removed)
    answered = holdings.answered(removed, gone, n_subjects)
    holdings.roster.strike(entries)
    if kept is not None and gone is not None:
        kept.strike(gone)
    return answered


def _positions(holdings: Holdings, removed: Rows) -> Index:
    """Return where these rows lie among those kept, each copy once."""
    kept = holdings.kept
    assert kept is not None
    alive = np.flatnonzero(kept.alive)
    places: dict[bytes, list[int]] = {}
    there = digests(kept.rows.take(alive), holdings.roster.key)
    for place, digest in zip(alive.tolist(), there, strict=True):
        places.setdefault(digest, []).append(place)
    wanted = Counter(digests(removed, holdings.roster.key))
    for digest, n_wanted in wanted.items():
        if n_wanted < len(places[digest]):
            _require_interchangeable(holdings, places[digest])
    chosen = [places[digest].pop() for digest in wanted.elements()]
    return np.array(chosen, dtype=np.intp)


def _require_interchangeable(holdings: Holdings, places: list[int]) -> None:
    """Refuse rows of which it matters which copy goes."""
    if not holdings.interchangeable(places):
        raise InvalidInput(
            f"{len(places)} equal rows lie in several folds, and it matters whose "
            "goes; say whom to forget: forget(subjects=...)"
        )
