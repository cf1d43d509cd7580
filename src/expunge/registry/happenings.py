# SPDX-License-Identifier: Apache-2.0
"""Happenings: what the ledger and the requests say that our own webhooks may be told.

Answers and releases are read from the ledger, from where it was last read. Requests
that were cancelled leave a line of their own, and overdue ones are looked for once a
day among those that are open. So the cost depends on what is new, and not on how many
requests were ever answered.
"""

from collections.abc import Sequence

from sqlalchemy import Connection

from ..ledger import (
    Entry,
    ModelRegistered,
    ModelRemoved,
    ReleaseMade,
    ReleasesSuperseded,
    RequestCompleted,
)
from ..ledger.documents import midnight
from .answering.accepting import RequestStatus, request_status
from .delivery import Happening
from .storage import deliveries_table, ledger_table, releases_table, requests_table


def read_happenings(
    connection: Connection, start: int, *, overdue_on: str, most: int
) -> tuple[list[Happening], int]:
    """Return what happened, and up to which size the ledger was read.

    Parameters
    ----------
    connection
        The transaction.
    start
        From which entry of the ledger on.
    overdue_on
        The day on which to look for overdue requests; empty to leave that.
    most
        How many entries to read at once.
    """
    entries = ledger_table.read_entries(connection, start, most=most)
    found = [
        *_read_completed(connection, entries),
        *(one for entry in entries for one in _read_releases(connection, entry)),
        *_read_cancelled(connection, most),
    ]
    if overdue_on:
        found += _read_overdue(connection, overdue_on)
    return found, start + len(entries)


def read_statuses(
    connection: Connection, ids: Sequence[str]
) -> dict[str, RequestStatus]:
    """Return how far requests are, by id."""
    found = requests_table.find_requests(connection, ids)
    return {id_: request_status(line) for id_, line in found.items()}


def _read_completed(
    connection: Connection, entries: Sequence[Entry]
) -> list[Happening]:
    """Return the requests that entries complete."""
    ids = [one.request for one in entries if isinstance(one, RequestCompleted)]
    found = read_statuses(connection, ids)
    return [Happening("request.completed", id_, found[id_]) for id_ in ids]


def _read_cancelled(connection: Connection, most: int) -> list[Happening]:
    """Return the requests that were cancelled."""
    found = read_statuses(connection, deliveries_table.read_untold(connection, most))
    return [Happening("request.cancelled", id_, one) for id_, one in found.items()]


def _read_overdue(connection: Connection, day: str) -> list[Happening]:
    """Return the open requests whose deadline was before a day."""
    lines = requests_table.read_overdue(connection, midnight(day))
    return [Happening("request.overdue", one.id, request_status(one)) for one in lines]


def _read_releases(connection: Connection, entry: Entry) -> list[Happening]:
    """Return what an entry says of releases: one is made, or some are to be recalled.

    Only a release that left the registry can be recalled.
    """
    if isinstance(entry, ModelRegistered | ReleaseMade):
        made = _name_release(connection, entry.model, digest=entry.certificate)
        return [_tell_of("release.made", made | {"day": entry.day})] if made else []
    if isinstance(entry, ReleasesSuperseded):
        model, digests, successor = entry.model, entry.certificates, entry.by
    elif isinstance(entry, ModelRemoved):
        model, digests, successor = entry.model, (entry.certificate,), None
    else:
        return []
    left = [
        _name_release(connection, model, digest=digest, left=True) for digest in digests
    ]
    more = {"successor": successor, "day": entry.day}
    return [_tell_of("release.recalled", one | more) for one in left if one]


def _tell_of(event: str, data: dict[str, object]) -> Happening:
    return Happening(event, f"{data['model']}/{data['release']}", data=data)


def _name_release(
    connection: Connection, model: str, *, digest: str, left: bool = False
) -> dict[str, object]:
    """Return which release has a certificate; nothing if there is none such."""
    number = releases_table.find_number(connection, model, digest=digest, left=left)
    if number is None:
        return {}
    return {"model": model, "release": number, "certificate": digest}
