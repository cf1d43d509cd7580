# SPDX-License-Identifier: Apache-2.0
"""Holdings: what an estimator keeps in private, and how it changes.

The custody, the noise, the roster and, where the data are kept, the rows with their
owners. Every change makes new holdings; a request that fails leaves the old ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._typing import Index
from ..exceptions import InvalidInput, ScheduleExhausted, UnknownSubject
from ..noise import Noise
from ..private import Private
from ..record import Record
from ..roster import Roster, digests
from ..rows import Rows
from ..unlearn import Custody, Release, forget, release

Owners = NDArray[np.str_]


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
    rows, owners
        The rows with the person each belongs to; None if the data are not kept.
    """

    custody: Custody
    noise: Noise | None
    roster: Roster
    rows: Rows | None
    owners: Owners | None


def without_people(holdings: Holdings, subjects: Sequence[object]) -> Holdings:
    """Return the holdings without these people: all their rows, as one batch.

    Raises UnknownSubject, and removes nobody, if one of them is not there.
    """
    if holdings.rows is None or holdings.owners is None:
        raise InvalidInput(
            "this model keeps no data (keep_data=False) and cannot look people up; "
            "hand over their rows: forget(X=..., y=...)"
        )
    wanted = {str(subject) for subject in subjects}
    missing = wanted.difference(holdings.owners.tolist())
    if missing:
        raise UnknownSubject(
            f"{len(missing)} of {len(wanted)} subject(s) are not in the model, or no "
            f"longer, {min(missing)!r} among them; nobody was removed"
        )
    gone = np.flatnonzero(np.isin(holdings.owners, list(wanted)))
    return _without(holdings, holdings.rows.take(gone), gone, len(wanted))


def without_rows(holdings: Holdings, removed: Rows) -> Holdings:
    """Return the holdings without these rows, which must be on the roster."""
    holdings.roster.without(removed)  # raises for a stranger before anything else
    gone = None if holdings.rows is None else _positions(holdings, removed)
    return _without(holdings, removed, gone, len(removed))


def published(holdings: Holdings) -> tuple[Holdings, Release, Record]:
    """Return the holdings with the release of their custody."""
    custody, public, record = release(holdings.custody, holdings.noise)
    return replace(holdings, custody=custody), public, record


def _without(
    holdings: Holdings, removed: Rows, gone: Index | None, n_subjects: int
) -> Holdings:
    """Return the holdings after one request."""
    if holdings.custody.accountant.remaining() == 0:
        raise ScheduleExhausted(
            "all planned releases are made; fit anew under a new contract"
        )
    rows, owners = holdings.rows, holdings.owners
    remaining = None
    if rows is not None and owners is not None and gone is not None:
        rows, owners = rows.without(gone), np.delete(owners, gone)
        remaining = rows
    custody = forget(holdings.custody, removed, remaining, n_subjects=n_subjects)
    roster = holdings.roster.without(removed)
    return replace(holdings, custody=custody, roster=roster, rows=rows, owners=owners)


def _positions(holdings: Holdings, removed: Rows) -> Index:
    """Return where these rows lie among those kept, each copy once."""
    assert holdings.rows is not None
    places: dict[bytes, list[int]] = {}
    for place, digest in enumerate(digests(holdings.rows, holdings.roster.key)):
        places.setdefault(digest, []).append(place)
    wanted = digests(removed, holdings.roster.key)
    return np.array([places[digest].pop() for digest in wanted], dtype=np.intp)
