# SPDX-License-Identifier: Apache-2.0
"""News: what the journal says that the store may not know.

The store remembers up to where it agrees with the journal. Requests are written to the
journal by whoever accepts them, at any moment, so the place moves on only past lines
that the store is seen to have.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from sqlalchemy import Connection

from ..exceptions import StoreFailed
from ..stores import Journal, requests
from ..stores.notes import note

AGREED = "journal end"

Line: TypeAlias = tuple[int, dict[str, Any]]
"""Where a line of the journal begins, and what it says."""


def unread(connection: Connection, journal: Journal) -> list[Line]:
    """Return the lines since the store last agreed with the journal."""
    start = note(connection, AGREED, "0")
    if not start.isdecimal():
        raise StoreFailed(
            "the database does not say where in the journal it is; put it back from a "
            "backup and run expunge restore"
        )
    return list(journal.read(int(start)))


def agreed(connection: Connection, lines: Sequence[Line], end: int) -> int:
    """Return up to where the store has everything: the end, or the first gap."""
    there = requests.look_up(connection, accepted_ids(lines))
    for place, line in lines:
        if any(one["id"] not in there for one in line.get("accepted", ())):
            return place
    return end


def accepted_ids(lines: Sequence[Line]) -> list[str]:
    """Return the requests that were accepted."""
    named = (one["id"] for _, line in lines for one in line.get("accepted", ()))
    return sorted(set(named))


def completed_ids(lines: Sequence[Line]) -> list[str]:
    """Return the requests that were completed."""
    return sorted({id_ for _, line in lines for id_ in line.get("receipts", ())})
