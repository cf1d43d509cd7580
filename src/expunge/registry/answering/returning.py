# SPDX-License-Identifier: Apache-2.0
"""Returning people: who may be in a table, and under which tags.

The table that a model was fitted to usually still exists, with everybody in it. The
journal knows who was forgotten, so a fit that would bring somebody back is refused,
unless they were readmitted or their rows are left out.
"""

import warnings
from collections.abc import Iterable, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sqlalchemy import Connection

from ...display.progress import OnProgress
from ...exceptions import InvalidInput
from ...ledger import TagKey, subject_tags
from ...private_model.subjects import is_row_name, list_of_ids, person
from ..context import Context
from ..keys import read_tag_keys
from ..storage import aside_table, people_table, requests_table

SHOWN = 10  # rows in an error
KEPT_OUT = ("erase", "object", "restrict", "hold")
"""Rights that keep people out of later fits."""
ERASED = ("erase", "object")
"""Those after which nothing of a person is kept."""


class JournalIncomplete(UserWarning):
    """The journal does not name everybody who was forgotten."""


class ForgottenInData(InvalidInput):
    """The data hold people who were forgotten; nothing was changed.

    Attributes
    ----------
    rows
        The positions of their rows, from 0.
    n_people
        How many they are.
    """

    def __init__(self, rows: Sequence[int], n_people: int) -> None:
        shown = ", ".join(map(str, rows[:SHOWN]))
        more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
        super().__init__(
            f"the data hold people who were forgotten ({n_people}), and a fit would "
            f"bring them back: rows {shown}{more}, counted from 0; leave them out "
            "(without_forgotten=True), or readmit these people if they came back "
            "(requests.readmit)"
        )
        self.rows, self.n_people = tuple(rows), n_people


def require_nobody_returns(context: Context, owners: Iterable[str]) -> None:
    """Refuse rows of people who were forgotten and not readmitted since."""
    rows, n_people = find_forgotten_rows(context, list(owners))
    if rows:
        raise ForgottenInData(rows, n_people)


def find_forgotten_rows(
    context: Context, owners: Sequence[str], *, rights: Sequence[str] = KEPT_OUT
) -> tuple[list[int], int]:
    """Return the positions of rows of forgotten people, and how many people.

    ``owners`` has the id of the person whom each row belongs to, and ``rights`` are
    those after which people count as forgotten. Warns if the journal cannot name
    everybody.
    """
    forgotten = read_forgotten(context, rights)
    if not forgotten:
        return [], 0
    keys = read_tag_keys(context.paths)
    back = {*select_tagged(tuple(dict.fromkeys(owners)), forgotten, keys=keys)}
    return [row for row, owner in enumerate(owners) if owner in back], len(back)


def read_forgotten(context: Context, rights: Sequence[str] = KEPT_OUT) -> set[str]:
    """Return the tags of all whom no fit may use; warn if some cannot be named."""
    forgotten, n_unnamed = read_forgotten_tags(context, rights)
    if n_unnamed:
        warnings.warn(
            "the journal was rebuilt and does not say who some completed requests "
            f"({n_unnamed}) were about; make sure that none of these people is in the "
            "data",
            JournalIncomplete,
            stacklevel=3,
        )
    return forgotten


def select_tagged(
    subjects: Sequence[str], tags: Set[str], *, keys: Sequence[TagKey]
) -> tuple[str, ...]:
    """Return those people who have one of the tags."""
    return tuple(
        one for one in subjects if not tags.isdisjoint(subject_tags(one, keys))
    )


def read_forgotten_tags(
    context: Context, rights: Sequence[str] = KEPT_OUT
) -> tuple[set[str], int]:
    """Return the tags of all whom no fit may use, and how many requests name nobody.

    A restriction keeps people out of fits until it is lifted. To lift it readmits
    nobody who was erased, and an erasure ends it. Whose rows are sealed apart the store
    knows, even if the journal lost it.
    """
    named: dict[str, list[dict[str, Any]]] = {}
    forgotten: set[str] = set()
    n_unnamed = 0
    with context.store.read() as connection:
        restricted = aside_table.read_tags(connection)
    for _, line in context.journal.read(0):
        for one in line.get("accepted", ()):
            named.setdefault(one["id"], []).append(one)
        refused = line.get("refused", ())
        # In the order in which they were answered.
        done = [one for one in line.get("receipts", ()) if one not in refused]
        n_unnamed += sum(request not in named for request in done)
        for one in (one for request in done for one in named.get(request, ())):
            right, theirs = one["right"], one["tags"]
            if right == "restrict":
                restricted.update(theirs)
            elif right in ("lift", *ERASED):
                restricted.difference_update(theirs)
            if right in rights and right != "restrict":
                forgotten.update(theirs)
        for tags in (forgotten, restricted):
            tags.difference_update(line.get("readmitted", ()))
    if "restrict" in rights:
        forgotten |= restricted
    return forgotten, n_unnamed


class FitOptions(NamedTuple):
    """What ``Registry.fit`` and ``add`` take beside the rows."""

    subjects: Iterable[object] | None
    sample_weight: ArrayLike | None
    search: object
    without_forgotten: bool
    on_progress: OnProgress


class LeftOut(NamedTuple):
    """How many rows were left out of a fit, and of how many forgotten people."""

    n_rows: int = 0
    n_people: int = 0


def leave_out_forgotten(
    context: Context, X: Any, y: Any, given: FitOptions
) -> tuple[Any, Any, FitOptions, LeftOut]:
    """Return the data without the rows of people who were forgotten, and how many.

    Raises ForgottenInData if there are some and they shall not be left out.
    """
    from ...linear_model.fitting import take_rows  # scikit-learn takes a second

    if given.subjects is None:
        return X, y, given, LeftOut()
    owners = [person(subject) for subject in list_of_ids(given.subjects)]
    given = given._replace(subjects=owners)
    if not given.without_forgotten:
        require_nobody_returns(context, owners)
        return X, y, given, LeftOut()
    rows, n_people = find_forgotten_rows(context, owners)
    stay = np.delete(np.arange(len(owners)), rows)
    if not rows or len(owners) != _count_rows(X):
        return X, y, given, LeftOut()  # the fit says that the lengths differ
    if not stay.size:
        raise InvalidInput(
            f"all rows ({len(rows)}) are of people who were forgotten; nothing is left "
            "to fit"
        )
    weight = given.sample_weight
    kept = given._replace(
        subjects=[owners[row] for row in stay],
        sample_weight=None if weight is None else take_rows(weight, stay),
    )
    return take_rows(X, stay), take_rows(y, stay), kept, LeftOut(len(rows), n_people)


def _count_rows(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def choose_tags(
    connection: Connection,
    owners: Sequence[str],
    *,
    keys: Sequence[TagKey],
    first: int = 0,
) -> list[str]:
    """Return the tag of each owner of rows: the one in use already, or a new one.

    Owners that name a row, not a person, get a tag that no request finds: that of the
    row's place, of which ``first`` is the first.
    """
    possible = {
        owner: subject_tags(owner, keys) for owner in owners if not is_row_name(owner)
    }
    every = [tag for tags in possible.values() for tag in tags]
    held = people_table.models_by_tag(connection, every)
    # Those whom a waiting request names must be found under a tag that it names.
    waiting = requests_table.find_waiting_tags(connection, every)
    chosen = []
    for place, owner in enumerate(owners, first):
        tags = possible.get(owner, (people_table.row_tag(place),))
        known = [tag for there in (held, waiting) for tag in tags if tag in there]
        chosen.append((*known, *tags)[0])
    return chosen
