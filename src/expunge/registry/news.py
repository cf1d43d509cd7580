# SPDX-License-Identifier: Apache-2.0
"""News: what the journal says that the store may not know.

The store remembers up to where it has everything that the journal says. Requests are
written to the journal by any process, at any moment, so that place moves on only past
lines that the store is seen to have.
"""

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from ..exceptions import StoreFailed
from ..stores.journal import Line
from ..stores.notes import mark_in, note, write_mark, write_note
from .site import Site

AGREED = "journal end"


def agreed(connection: Connection) -> int:
    """Return up to where the store has everything that the journal says."""
    start = note(connection, AGREED, "0")
    if not start.isdecimal():
        raise StoreFailed(
            "the database does not say where in the journal it is; put it back from a "
            "backup and run expunge restore"
        )
    return int(start)


def unread(site: Site) -> list[Line]:
    """Return the lines since the store last had everything; refuse a damaged journal.

    From here on ``site.stated`` is where the last of them ends.
    """
    with site.store.reading() as connection:
        start, mark = agreed(connection), mark_in(connection)
    site.journal.require(mark)
    return _lines(site, start)


def unread_by_backup(site: Site) -> list[Line]:
    """Return the lines that a store lacks which was put back from a backup.

    All of them, if the journal was rebuilt since: then the place is not of this one.
    """
    with site.store.reading() as connection:
        start, mark = agreed(connection), mark_in(connection)
    if site.journal.is_rebuilt() and not site.journal.is_whole(mark):
        start = 0
    return _lines(site, start)


def _lines(site: Site, start: int) -> list[Line]:
    lines = list(site.journal.read(start))
    site.stated = lines[-1][0] if lines else start
    return lines


def record(site: Site, connection: Connection, line: dict[str, object]) -> None:
    """Write a line to the journal, last in the transaction that it tells of.

    What the store refuses to write is then not in the journal either. What only the
    journal has, after a crash, is taken in when the store is next worked on.
    """
    write_mark(connection, site.journal.append([line]))


def record_statement(
    site: Site,
    connection: Connection,
    line: dict[str, object],
    check: Callable[[], None] = lambda: None,
) -> int:
    """Write a statement to the journal in the same way; return where it ends.

    Raises Busy if another process made one since this one last looked. ``check`` may
    refuse at the last moment, while nobody else can write.
    """
    with site.journal.stating(site.stated) as write:
        check()
        start, mark = write(line)
    # Before it there may be requests that are not in the store yet.
    done = mark.end if start == site.stated else site.stated
    write_note(connection, AGREED, str(done))
    write_mark(connection, mark)
    return mark.end


def accepted_ids(lines: Sequence[Line]) -> list[str]:
    """Return the requests that were accepted."""
    named = (one["id"] for _, line in lines for one in line.get("accepted", ()))
    return sorted(set(named))


def completed_ids(lines: Sequence[Line]) -> list[str]:
    """Return the requests that were completed."""
    return sorted({id_ for _, line in lines for id_ in line.get("receipts", ())})
