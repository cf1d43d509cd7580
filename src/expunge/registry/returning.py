# SPDX-License-Identifier: Apache-2.0
"""Returning people: a fit must not bring back anybody who was forgotten.

The table that a model was fitted to usually still exists, with everybody in it. The
journal knows who was forgotten, so a fit that would bring somebody back is refused,
unless they were readmitted or their rows are left out.
"""

import warnings
from collections.abc import Iterable, Sequence, Set
from typing import Any

from ..exceptions import InvalidInput
from ..ledger import TagKey, subject_tags
from .context import Context
from .keys import read_tag_keys

SHOWN = 10  # rows in an error
KEPT_OUT = ("erase", "object", "restrict", "hold")
"""Rights that keep people out of later fits."""


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
    context: Context, owners: Sequence[str]
) -> tuple[list[int], int]:
    """Return the positions of rows of forgotten people, and how many people.

    ``owners`` has the id of the person whom each row belongs to. Warns if the journal
    cannot name everybody.
    """
    forgotten, n_unnamed = read_forgotten_tags(context)
    if n_unnamed:
        warnings.warn(
            "the journal was rebuilt and does not say who some completed requests "
            f"({n_unnamed}) were about; make sure that none of these people is in the "
            "data",
            JournalIncomplete,
            stacklevel=2,
        )
    if not forgotten:
        return [], 0
    keys = read_tag_keys(context.paths)
    back = {*select_tagged(tuple(dict.fromkeys(owners)), forgotten, keys=keys)}
    return [row for row, owner in enumerate(owners) if owner in back], len(back)


def select_tagged(
    subjects: Sequence[str], tags: Set[str], *, keys: Sequence[TagKey]
) -> tuple[str, ...]:
    """Return those people who have one of the tags."""
    return tuple(
        one for one in subjects if not tags.isdisjoint(subject_tags(one, keys))
    )


def read_forgotten_tags(context: Context) -> tuple[set[str], int]:
    """Return the tags of all whom no fit may use, and how many requests name nobody.

    A restriction keeps people out of fits until it is lifted.
    """
    named: dict[str, list[dict[str, Any]]] = {}
    forgotten: set[str] = set()
    n_unnamed = 0
    for _, line in context.journal.read(0):
        for one in line.get("accepted", ()):
            named.setdefault(one["id"], []).append(one)
        for request in {*line.get("receipts", ())} - {*line.get("refused", ())}:
            n_unnamed += request not in named
            for one in named.get(request, ()):
                if one["right"] in KEPT_OUT:
                    forgotten.update(one["tags"])
                elif one["right"] == "lift":
                    forgotten.difference_update(one["tags"])
        forgotten.difference_update(line.get("readmitted", ()))
    return forgotten, n_unnamed
