# SPDX-License-Identifier: Apache-2.0
"""Returning: whoever was forgotten is not fitted again by oversight.

The table that a model was fitted to mostly still exists somewhere, with everybody in
it. The journal knows who was forgotten, so a fit that would bring somebody back is
refused, unless it was said that they came back.
"""

import warnings
from collections.abc import Iterable, Sequence

from ..exceptions import InvalidInput
from ..ledger import subject_tags
from .news import record
from .site import WAIT, Site


class JournalIncomplete(UserWarning):
    """The journal does not name everybody who was forgotten."""


def require_nobody_returns(site: Site, people: Iterable[str]) -> None:
    """Refuse people who were forgotten."""
    back = returning(site, people)
    if back:
        raise InvalidInput(
            f"{len(back)} person(s) in the data were forgotten, and would be in a "
            "model again; take their rows out, or readmit them if they came back "
            "(readmit, or --readmit)"
        )


def returning(site: Site, people: Iterable[str]) -> list[str]:
    """Return those of the people who were forgotten and not readmitted since."""
    forgotten, n_unnamed = _forgotten(site)
    if n_unnamed:
        warnings.warn(
            f"the journal was rebuilt and does not say whom {n_unnamed} completed "
            "request(s) were about; see that none of these people is in the data",
            JournalIncomplete,
            stacklevel=2,
        )
    if not forgotten:
        return []
    keys = site.tag_keys()
    return [
        person
        for person in dict.fromkeys(people)
        if not forgotten.isdisjoint(subject_tags(person, keys))
    ]


def readmit(site: Site, people: Sequence[str]) -> None:
    """Write down that people came back, and may be in models again."""
    keys = site.tag_keys()
    tags = sorted({tag for person in people for tag in subject_tags(person, keys)})
    with site.working(WAIT), site.changing() as connection:
        record(site, connection, {"readmitted": tags})


def _forgotten(site: Site) -> tuple[set[str], int]:
    """Return the tags of all who were forgotten, and the number of requests unknown."""
    asked: dict[str, list[str]] = {}
    forgotten: set[str] = set()
    n_unnamed = 0
    for _, line in site.journal.read(0):
        for one in line.get("accepted", ()):
            asked.setdefault(one["id"], []).extend(one["tags"])
        for request in line.get("receipts", ()):
            n_unnamed += request not in asked
            forgotten.update(asked.get(request, ()))
        forgotten.difference_update(line.get("readmitted", ()))
    return forgotten, n_unnamed
