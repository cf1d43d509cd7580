# SPDX-License-Identifier: Apache-2.0
"""Returning people: who may be in a table, and under which tags.

The table that a model was fitted to usually still exists, with everybody in it. The
journal knows who was forgotten, so a fit that would bring somebody back is refused,
unless they were readmitted or their rows are left out. Ids that differ from those of
forgotten people in their spelling alone (``rights.identifiers.loosest``) are refused
too, unless the operator states that they are other people's.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sqlalchemy import Connection

from ..display.progress import OnProgress
from ..exceptions import InvalidInput
from ..ledger import TagKey, subject_tags
from ..ledger.keys import near_tags
from ..private_model.subjects import is_row_name, list_of_ids, person
from ..rights.identifiers import ID, normal_form
from ..rights.standing import KEPT_OUT
from .comparing import Excluded, read_excluded, require_comparable
from .context import Context
from .keys import read_tag_keys
from .log import SNAPSHOT
from .request import find_waiting_tags
from .storage import people_table

SHOWN = 10  # rows in an error
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
    n_near
        How many of these have an id that is only spelled almost as a forgotten one.
    """

    def __init__(self, rows: Sequence[int], n_people: int, *, n_near: int = 0) -> None:
        shown = ", ".join(map(str, rows[:SHOWN]))
        more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
        near = ""
        if n_near:
            near = (
                f"; {n_near} of them by an id that differs only in case, spacing, "
                "width or zeros: if those are other people, say so (exact=True)"
            )
        super().__init__(
            f"the data hold people who were forgotten ({n_people}), and a fit would "
            f"bring them back: rows {shown}{more}, counted from 0; leave them out "
            "(without_forgotten=True), or readmit these people if they came back "
            f"(requests.readmit){near}"
        )
        self.rows, self.n_people, self.n_near = tuple(rows), n_people, n_near


class ForgottenTags(NamedTuple):
    """The tags of all whom no fit may use.

    ``near`` are those of the loosest forms of their ids. ``n_unnamed`` requests name
    nobody. ``excluded`` are identifiers on lists of others; None if there are none.
    """

    tags: set[str]
    near: set[str]
    n_unnamed: int = 0
    excluded: Excluded | None = None

    def find(
        self, owner: str, keys: Sequence[TagKey], *, exact: bool = False
    ) -> str | None:
        """Return "same" or "near" for the id of somebody who left, or None."""
        if not self.tags.isdisjoint(subject_tags(owner, keys)):
            return "same"
        if self.excluded is not None and self.excluded.has(owner, keys):
            return "same"
        if exact or is_row_name(owner) or self.near.isdisjoint(near_tags(owner, keys)):
            return None
        return "near"


def require_nobody_returns(
    context: Context, owners: Iterable[str], *, exact: bool = False
) -> None:
    """Refuse rows of people who were forgotten and not readmitted since."""
    found = find_forgotten_rows(context, list(owners), exact=exact)
    if found.rows:
        raise ForgottenInData(found.rows, found.n_people, n_near=found.n_near)


class ForgottenRows(NamedTuple):
    """The positions of rows of forgotten people, how many people, how many nearly."""

    rows: list[int]
    n_people: int
    n_near: int


def find_forgotten_rows(
    context: Context,
    owners: Sequence[str],
    *,
    rights: Sequence[str] = KEPT_OUT,
    exact: bool = False,
) -> ForgottenRows:
    """Return the positions of rows of forgotten people, and how many people.

    ``owners`` has the id of the person whom each row belongs to, and ``rights`` are
    those after which people count as forgotten. Unless ``exact``, an id that is spelled
    almost as that of a forgotten person counts too. Warns if the journal cannot name
    everybody.
    """
    forgotten = read_forgotten(context, rights)
    if not forgotten.tags and not forgotten.near and forgotten.excluded is None:
        return ForgottenRows([], 0, 0)
    keys = read_tag_keys(context.paths)
    found = {
        owner: forgotten.find(owner, keys, exact=exact)
        for owner in dict.fromkeys(owners)
    }
    rows = [row for row, owner in enumerate(owners) if found[owner]]
    answers = list(found.values())
    n_near = answers.count("near")
    return ForgottenRows(rows, answers.count("same") + n_near, n_near)


def read_forgotten(context: Context, rights: Sequence[str] = KEPT_OUT) -> ForgottenTags:
    """Return the tags of all whom no fit may use; warn if some cannot be named."""
    forgotten = read_forgotten_tags(context, rights)
    if forgotten.n_unnamed:
        warnings.warn(
            "the journal was rebuilt and does not say who some completed requests "
            f"({forgotten.n_unnamed}) were about; make sure that none of these people "
            "is in the data",
            JournalIncomplete,
            stacklevel=3,
        )
    return forgotten


def read_forgotten_tags(
    context: Context, rights: Sequence[str] = KEPT_OUT
) -> ForgottenTags:
    """Return the tags of all whom no fit may use.

    A restriction keeps people out of fits until it is lifted. To lift it readmits
    nobody who was erased, and an erasure ends it. Whose rows are sealed apart the store
    knows, even if the journal lost it.
    """
    named: dict[str, list[dict[str, Any]]] = {}
    # Tags of people and of loosest forms together: none of the one is of the other.
    forgotten: set[str] = set()
    near: set[str] = set()
    n_unnamed = 0
    excluded: Excluded | None = None
    listed: set[str] = set()
    with context.store.read() as connection:
        restricted = people_table.read_tags_apart(connection)
        if rights == KEPT_OUT:
            excluded, listed = read_excluded(connection)
    for _, line in context.log.read():
        for one in line.get("accepted", ()):
            named.setdefault(one["request"], []).append(one)
        earlier = line.get(SNAPSHOT, {})
        n_unnamed += earlier.get("unnamed", 0)
        refused = line.get("refused", ())
        # In the order in which they were answered.
        done = [one for one in line.get("receipts", ()) if one not in refused]
        n_unnamed += sum(request not in named for request in done)
        answered = [one for request in done for one in named.get(request, ())]
        for one in (*earlier.get("answered", ()), *answered):
            right, theirs = one["right"], [*one["tags"], *one["near"]]
            near.update(one["near"])
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
    kept = (forgotten - near) | listed
    return ForgottenTags(kept, forgotten & near, n_unnamed, excluded)


class FitOptions(NamedTuple):
    """What ``Registry.fit`` and ``add`` take beside the rows."""

    subjects: Iterable[object] | None
    sample_weight: ArrayLike | None
    search: object
    without_forgotten: bool
    on_progress: OnProgress
    subject_kind: str = ID
    exact: bool = False
    columns: str = ""
    unchecked: bool = False


class NewRows(NamedTuple):
    """Rows of a person as they should be: features, targets and weights.

    If X is an array its columns are those of the fit, in their order, or ``columns``
    names them. ``beside`` are exposures or offsets of counts, amounts and quantiles; or
    the ``time`` until which somebody was seen, with events as targets. Targets that a
    model's ``label`` or ``spread`` returned have these in them already.
    """

    X: Any
    y: Any
    sample_weight: Any = None
    columns: tuple[str, ...] = ()
    beside: Mapping[str, Any] = MappingProxyType({})


class LeftOut(NamedTuple):
    """How many rows were left out of a fit, and of how many forgotten people.

    ``n_merged`` ids are other spellings of people whom the declared kind makes one.
    """

    n_rows: int = 0
    n_people: int = 0
    n_merged: int = 0


def spell_owners(subjects: Iterable[object], kind: str) -> tuple[list[str], int]:
    """Return whose row each is, in the one spelling of a kind, and how many merged.

    Two ids that fall together are one person: that is what the kind declares.
    """
    owners = [person(subject) for subject in list_of_ids(subjects)]
    if kind == ID:
        return owners, 0
    spelled = {owner: normal_form(kind, owner) for owner in dict.fromkeys(owners)}
    wrong = [row for row, owner in enumerate(owners) if spelled[owner] is None]
    if wrong:
        shown = ", ".join(map(str, wrong[:SHOWN]))
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise InvalidInput(
            f"subject_kind={kind!r}, and the ids of {len(wrong)} rows are not of that "
            f"kind: rows {shown}{more}, counted from 0; correct them, or leave "
            "subject_kind out if ids are compared as they are"
        )
    meant = [spelled[owner] or "" for owner in owners]
    return meant, len(spelled) - len({*spelled.values()})


def leave_out_forgotten(
    context: Context, X: Any, y: Any, given: FitOptions
) -> tuple[Any, Any, FitOptions, LeftOut]:
    """Return the data without the rows of people who were forgotten, and how many.

    Raises ForgottenInData if there are some and they shall not be left out.
    """
    from ..preprocessing.columns import take_rows  # scikit-learn takes a second

    if given.subjects is None:
        return X, y, given, LeftOut()
    owners, n_merged = spell_owners(given.subjects, given.subject_kind)
    given = given._replace(subjects=owners)
    require_comparable(context, owners, unchecked=given.unchecked)
    if not given.without_forgotten:
        require_nobody_returns(context, owners, exact=given.exact)
        return X, y, given, LeftOut(n_merged=n_merged)
    rows, n_people, _ = find_forgotten_rows(context, owners, exact=given.exact)
    stay = np.delete(np.arange(len(owners)), rows)
    if not rows or len(owners) != _count_rows(X):
        # The fit says that the lengths differ.
        return X, y, given, LeftOut(n_merged=n_merged)
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
    left_out = LeftOut(len(rows), n_people, n_merged)
    y = None if y is None else take_rows(y, stay)
    return take_rows(X, stay), y, kept, left_out


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
    waiting = find_waiting_tags(connection, every)
    chosen = []
    for place, owner in enumerate(owners, first):
        tags = possible.get(owner, (people_table.row_tag(place),))
        known = [tag for there in (held, waiting) for tag in tags if tag in there]
        chosen.append((*known, *tags)[0])
    return chosen
