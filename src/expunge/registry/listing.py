# SPDX-License-Identifier: Apache-2.0
"""Listing: pages of requests, in the order of their deadlines, and how many there are.

A page is found by where the one before it ended, not by counting lines, so that it
takes as long at the end of a million requests as at their beginning, and requests that
come or go meanwhile neither repeat nor hide another.
"""

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

from sqlalchemy import Connection

from ..exceptions import InvalidInput
from ..ledger.documents import midnight
from ..rights.calendar import parse_day
from ..rights.standing import RIGHTS
from .answering.accepting import RequestStatus, request_status
from .storage import requests_table
from .storage.requests_table import Chosen, PageEnd

MOST = 1000
OPEN = (requests_table.ACCEPTED, requests_table.APPLIED)
_PLACE = struct.Struct(">q16s")  # a deadline, and the id of a request


class RequestCounts(NamedTuple):
    """How many requests are at each stage.

    ``oldest`` is when the oldest of those came in that are not answered, and ``due``
    the first of their deadlines; None if there are none.
    """

    stages: dict[str, int]
    oldest: int | None
    due: int | None


def count_requests(connection: Connection) -> RequestCounts:
    """Return how many requests are at each stage."""
    whole, _ = requests_table.count_requests(connection)
    found = requests_table.count_stages(connection)
    counts = {stage: line.n for stage, line in found.items()}
    counts[requests_table.COMPLETED] = whole - sum(counts.values())
    there = [line for stage, line in found.items() if stage in OPEN]
    return RequestCounts(
        counts,
        min((line.oldest for line in there), default=None),
        min((line.first for line in there), default=None),
    )


@dataclass(frozen=True, slots=True)
class PageWanted:
    """Which requests to list.

    Parameters
    ----------
    stages, rights
        Only those at one of these stages, and asking for one of these rights; any, if
        there are none.
    due
        Only those whose deadline is on this day or before.
    after
        Where the page before ended: its ``next``. Empty for the first page.
    most
        How many at most, from 1 to 1000.
    sender
        Only those of this sender; None for those of all.
    """

    stages: tuple[str, ...] = ()
    rights: tuple[str, ...] = ()
    due: str | date | None = None
    after: str = ""
    most: int = 100
    sender: str | None = None

    def __post_init__(self) -> None:
        """Refuse a page that cannot be made."""
        _require_known(self.stages, requests_table.STAGES, what="stages")
        _require_known(self.rights, RIGHTS, what="rights")
        if not 1 <= self.most <= MOST:
            raise InvalidInput(f"most={self.most}; give a number from 1 to {MOST}")


@dataclass(frozen=True, slots=True)
class RequestPage:
    """Some requests, in the order of their deadlines, and of their ids on one day.

    Parameters
    ----------
    lines
        The requests.
    next
        What to give as ``after`` for the next page; empty if this is the last.
    """

    lines: tuple[RequestStatus, ...]
    next: str


def read_page(connection: Connection, wanted: PageWanted) -> RequestPage:
    """Return a page of requests."""
    chosen = Chosen(
        stages=list(dict.fromkeys(wanted.stages or requests_table.STAGES)),
        rights=list(dict.fromkeys(wanted.rights or RIGHTS)),
        until=_last_deadline(wanted.due),
        sender=wanted.sender,
    )
    # One more than wanted: it tells whether another page follows.
    places = requests_table.find_places(
        connection, chosen, after=parse_cursor(wanted.after), most=wanted.most + 1
    )
    shown = places[: wanted.most]
    found = requests_table.find_requests(connection, [one.request for one in shown])
    return RequestPage(
        tuple(request_status(found[one.request]) for one in shown),
        write_cursor(shown[-1]) if len(places) > len(shown) else "",
    )


def write_cursor(place: PageEnd) -> str:
    """Return where a page ends, as one word."""
    packed = _PLACE.pack(place.deadline, bytes.fromhex(place.request))
    return urlsafe_b64encode(packed).decode("ascii")


def parse_cursor(word: str) -> PageEnd | None:
    """Return the place that a word means; None for an empty word."""
    if not word:
        return None
    with suppress(ValueError, struct.error):
        deadline, request = _PLACE.unpack(urlsafe_b64decode(word))
        place = PageEnd(deadline, request.hex())
        if write_cursor(place) == word:  # each place has one spelling
            return place
    raise InvalidInput(
        "this word does not say where a page ended; give next of the previous page "
        "as it came, or nothing for the first page"
    )


def _last_deadline(due: str | date | None) -> int | None:
    return None if due is None else midnight(parse_day(due).isoformat())


def _require_known(
    words: tuple[str, ...], known: tuple[str, ...], *, what: str
) -> None:
    unknown = [word for word in words if word not in known]
    if unknown or isinstance(words, str):
        raise InvalidInput(f"{what} {words!r}; give some of {', '.join(known)}")
