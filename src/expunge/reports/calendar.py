# SPDX-License-Identifier: Apache-2.0
"""Calendar: the days that an operator must not miss, as a file for calendars.

By RFC 5545, one event of a whole day for each deadline of a request that waits, for
each day on which a hold ends, and for the next deletion lists. The same request has the
same event whenever the file is written, so a calendar that reads it again moves it. No
person is in it.
"""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import NamedTuple

from ..ledger.documents import day_of
from ..registry import PageWanted, Registry
from ..registry.now import today

LISTS_DAYS = 45  # between two downloads of deletion lists
LONGEST = 75  # bytes of a line
_ESCAPED = str.maketrans({"\\": "\\\\", ";": "\\;", ",": "\\,", "\n": "\\n"})


class DayToKeep(NamedTuple):
    """A day, what it is, and what it is about."""

    day: str
    about: str
    title: str


def list_days(registry: Registry) -> list[DayToKeep]:
    """Return the days that an operator must not miss, in order."""
    return sorted(_find_days(registry))


def _find_days(registry: Registry) -> Iterator[DayToKeep]:
    after = ""
    while True:
        wanted = PageWanted(("accepted", "applied"), after=after, most=1000)
        page = registry.requests.page(wanted)
        for one in page.lines:
            title = f"Answer request {one.request[:12]} ({one.right}, {one.regime})"
            yield DayToKeep(day_of(one.deadline), f"{one.request}-due", title)
        after = page.next
        if not after:
            break
    for held in registry.figures.rows_apart():
        if held.until:
            title = f"The hold of request {held.request[:12]} ends ({held.reason})"
            yield DayToKeep(held.until, f"{held.request}-ends", title)
    last = registry.exclusions.last_day()
    if last:
        due = date.fromisoformat(last) + timedelta(days=LISTS_DAYS)
        title = "Answer California's deletion lists, and fetch the next"
        yield DayToKeep(due.isoformat(), f"drop-{last}", title)


def calendar_to_ics(registry: Registry) -> str:
    """Return those days as a calendar file."""
    stamp = today().strftime("%Y%m%dT000000Z")
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//expunge//EN"]
    for one in list_days(registry):
        first = date.fromisoformat(one.day)
        lines += [
            "BEGIN:VEVENT",
            f"UID:{one.about}@expunge",
            f"DTSTAMP:{stamp}",
            f"DTSTART;VALUE=DATE:{first:%Y%m%d}",
            f"DTEND;VALUE=DATE:{first + timedelta(days=1):%Y%m%d}",
            f"SUMMARY:{one.title.translate(_ESCAPED)}",
            "BEGIN:VALARM",
            "ACTION:DISPLAY",
            "TRIGGER:-P7D",
            f"DESCRIPTION:{one.title.translate(_ESCAPED)}",
            "END:VALARM",
            "END:VEVENT",
        ]
    lines.append("END:VCALENDAR")
    return "".join(f"{_fold(line)}\r\n" for line in lines)


def _fold(line: str) -> str:
    """Return a line in pieces that are no longer than the standard allows."""
    assert line.isascii()
    pieces = [line[:LONGEST]]
    rest = line[LONGEST:]
    while rest:
        pieces.append(" " + rest[: LONGEST - 1])
        rest = rest[LONGEST - 1 :]
    return "\r\n".join(pieces)
