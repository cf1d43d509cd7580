# SPDX-License-Identifier: Apache-2.0
"""Holdings: what an estimator keeps in private, and what a request does to it.

The custody, the noise, the classes, the roster and, where the data are kept, the rows.
A request is a pure function from holdings to holdings, which can be thrown away. Roster
and rows are too large to copy for each request: what it takes out of them is noted in
the new holdings, and done by ``settle`` once these count. An interrupted ``settle`` is
done again, to the same effect.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..core.arrays import Index, Private, Vector
from ..core.rows import Rows
from ..exceptions import InvalidInput, ScheduleExhausted
from ..promise.noise import Noise, noise_for
from ..promise.record import Record
from .labels import Labels, fewer
from .subjects import person, row_name
from .training_rows import Kept, Roster, Struck, digests, shares
from .unlearn import Custody, Release, forget, refit, release

Fetch: TypeAlias = Callable[[Index], Rows]
"""The positions of rows that go, to all the others."""

NOBODY: Index = np.array([], dtype=np.intp)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Strike(Private):
    """What a request takes out of the roster, and out of the rows where kept."""

    struck: Struck
    gone: Index | None


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
    labels
        The classes; None unless this is a classifier.
    fetch
        How to get the remaining rows where they are kept elsewhere.
    strike
        What is still to be taken out of roster and rows.
    process
        Where releases are counted: in another process there may be others.
    """

    custody: Custody
    noise: Noise | None
    roster: Roster
    kept: Kept | None
    labels: Labels | None = None
    fetch: Fetch | None = None
    strike: Strike | None = None
    process: int = field(default_factory=os.getpid)

    def interchangeable(self, places: Sequence[int]) -> bool:
        """Whether it does not matter which of the equal rows at these places goes."""
        del places
        return True

    def rows(self, gone: Index = NOBODY) -> Rows | None:
        """Return the rows that are left without these; None if nobody has them."""
        fetch = self.fetch if self.kept is None else self.kept.remaining
        return None if fetch is None else self.in_classes(fetch(gone))

    def in_classes(self, rows: Rows) -> Rows:
        """Return rows with their labels as the present objective wants them."""
        if self.labels is None:
            return rows
        y = self.labels.current(rows.y, self.custody.objective.loss)
        return rows if y is rows.y else replace(rows, y=y)

    def checked(self, X: Any, y: Vector, weight: ArrayLike | None) -> Rows:
        """Return rows as they are kept, checked like those of the fit."""
        objective = self.custody.objective
        if self.labels is None:
            return objective.rows(X, y, weight)
        rows = objective.rows(X, self.labels.current(y, objective.loss), weight)
        return replace(rows, y=y)

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
            The rows to remove, as they are kept.
        gone
            Where they lie among the rows kept; None if the data are not kept.
        n_subjects
            How many people they belong to.
        spend
            Give up the state in custody, also if this raises; by default the old state
            stands should anything fail on the way.
        """
        if not len(removed):
            return self
        labels = self.labels_after(removed, gone)
        if fewer(labels, self.labels):
            assert gone is not None
            return replace(self, labels=labels)._with_fewer_classes(gone, n_subjects)
        custody = forget(
            self.custody,
            self.in_classes(removed),
            None if gone is None else partial(self.remaining, gone),
            n_subjects=n_subjects,
            spend=spend,
        )
        return replace(self, custody=custody, labels=labels)

    def labels_after(self, removed: Rows, gone: Index | None) -> Labels | None:
        """Return the classes without these rows, or refuse the request."""
        if self.labels is None:
            return None
        at_hand = gone is not None and (self.kept or self.fetch) is not None
        return self.labels.after(removed, self.custody.objective, kept=at_hand)

    def _with_fewer_classes(self, gone: Index, n_subjects: int) -> Self:
        """Return the fit to the remaining rows, whose classes are fewer."""
        assert self.labels is not None
        objective = self.custody.objective
        objective = replace(objective, loss=self.labels.loss_like(objective.loss))
        custody = replace(self.custody, objective=objective)
        rows = replace(self, custody=custody).remaining(gone)
        return replace(
            self, custody=refit(self.custody, objective, rows, n_subjects=n_subjects)
        )

    def remaining(self, gone: Index) -> Rows:
        """Return the rows that are left without these, where somebody has them."""
        rows = self.rows(gone)
        assert rows is not None
        return rows


def without_people(holdings: Holdings, subjects: Iterable[object]) -> Holdings:
    """Return the holdings without these people: all their rows, as one batch.

    Raises UnknownSubject, and removes nobody, if one of them is not there.
    """
    if holdings.kept is None:
        raise InvalidInput(
            "this model keeps no data (keep_data=False) and cannot look people up; "
            "hand over their rows: forget(X=..., y=...)"
        )
    people = {person(subject) for subject in subjects}
    if people and holdings.kept.anonymous:
        raise InvalidInput(
            "this model was fitted without subjects, so nobody in it has an id; forget "
            "rows by their position: forget(rows=[...]), or fit with subjects=..."
        )
    return without_owners(holdings, people)


def without_positions(holdings: Holdings, positions: Iterable[int]) -> Holdings:
    """Return the holdings without the rows at these positions of the fit."""
    if holdings.kept is None or not holdings.kept.anonymous:
        raise InvalidInput(
            "rows=... names rows of a model that keeps its data and was fitted without "
            "subjects; forget people by their ids, or hand over their rows: "
            "forget(X=..., y=...)"
        )
    return without_owners(holdings, {row_name(position) for position in positions})


def without_owners(holdings: Holdings, names: set[str]) -> Holdings:
    """Return the holdings without the rows of these owners, as the rows name them."""
    assert holdings.kept is not None
    return _without(holdings, holdings.kept.find(names))


def without_rows(holdings: Holdings, removed: Rows) -> Holdings:
    """Return the holdings without these rows, which must be on the roster."""
    entries = holdings.roster.find(removed)  # a stranger is refused before all else
    if holdings.kept is not None:
        return _without(holdings, _positions(holdings, removed))
    n_people = holdings.roster.count_people(entries)
    answered = _answered(holdings, removed, None, n_people)
    strike = Strike(holdings.roster.without(entries), None)
    return replace(answered, strike=strike)


def settle(holdings: Holdings) -> Holdings:
    """Strike from roster and rows what a request took out; return what is then held.

    It can be done again after an interrupt, to the same effect.
    """
    strike = holdings.strike
    if strike is None:
        return holdings
    holdings.roster.strike(strike.struck)
    if holdings.kept is not None and strike.gone is not None:
        holdings.kept.strike(strike.gone)
    return replace(holdings, strike=None)


def publish(holdings: Holdings) -> tuple[Holdings, Release, Record]:
    """Release the custody; return the holdings with the release, and its record."""
    custody = holdings.custody
    if holdings.process != os.getpid():
        scope = replace(custody.scope, counted_apart=True)
        custody = replace(custody, scope=scope)
    number = custody.accountant.n_releases + 1
    custody, public, record = release(custody, noise_for(holdings.noise, number))
    return replace(holdings, custody=custody), public, record


def _without(holdings: Holdings, gone: Index) -> Holdings:
    """Return the holdings without the rows at these places."""
    kept = holdings.kept
    assert kept is not None
    removed = kept.rows.take(gone)
    answered = _answered(holdings, removed, gone, kept.count_people(gone))
    if answered is holdings:
        return holdings
    entries = Counter(digests(removed, holdings.roster.key))
    strike = Strike(holdings.roster.without(entries), gone)
    return replace(answered, strike=strike)


def _answered(
    holdings: Holdings, removed: Rows, gone: Index | None, n_subjects: int
) -> Holdings:
    """Return the answered holdings, if another release may be made."""
    if not len(removed):
        return holdings
    require_release(holdings)
    return holdings.answered(removed, gone, n_subjects)


def require_release(holdings: Holdings) -> None:
    """Raise ScheduleExhausted where no release may follow a request."""
    if holdings.custody.accountant.remaining() == 0:
        raise ScheduleExhausted(
            "all planned releases are made; fit again under a new contract"
        )


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
    share = shares(wanted, {e: [kept.owners[p] for p in places[e]] for e in wanted})
    gone: list[int] = []
    for entry, n_wanted in wanted.items():
        gone += _meant(holdings, places[entry], n_wanted, share)
    return np.array(gone, dtype=np.intp)


def _meant(
    holdings: Holdings, places: list[int], n_wanted: int, share: Counter[str]
) -> list[int]:
    """Return which of these equal rows a request means, or refuse it.

    Those of people all of whose rows it names: whose row goes matters when the other
    person asks by id later.
    """
    kept = holdings.kept
    assert kept is not None
    owners = {kept.owners[place] for place in places}
    same = kept.anonymous or len(owners) == 1
    if n_wanted == len(places) or (same and holdings.interchangeable(places)):
        return places[-n_wanted:]
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
