# SPDX-License-Identifier: Apache-2.0
"""Expired: which rows go when the ledger says that records expired."""

from sqlalchemy import ColumnElement, Connection, and_, delete, func, or_, select

from ..ledger import RecordsExpired, read_entry
from ..ledger.documents import midnight
from .request import CANCELLED, COMPLETED, requests
from .storage.tables import decisions, entries, request_tags, rows, trail

_KEPT = select(rows.c.request).where(rows.c.request != "")


def _are_expired(before: str) -> ColumnElement[bool]:
    """Return which requests were done before a day, and set no rows apart."""
    moment = midnight(before)
    done = and_(requests.c.stage == COMPLETED, requests.c.completed < moment)
    taken_back = and_(requests.c.stage == CANCELLED, requests.c.accepted < moment)
    return and_(or_(done, taken_back), requests.c.request.not_in(_KEPT))


def count_expired(connection: Connection, before: str) -> int:
    """Return how many records of requests are older than a day."""
    query = select(func.count()).select_from(requests).where(_are_expired(before))
    return int(connection.scalar(query) or 0)


def read_last_expiry(connection: Connection) -> str:
    """Return before which day requests have expired; empty if none has."""
    texts = connection.scalars(
        select(entries.c.text).where(entries.c.kind == "records expired")
    )
    found = [one for one in map(read_entry, texts) if isinstance(one, RecordsExpired)]
    return max((one.requests for one in found), default="")


def delete_expired(connection: Connection, entry: RecordsExpired) -> None:
    """Delete what an entry says is gone."""
    if entry.requests:
        which = select(requests.c.request).where(_are_expired(entry.requests))
        connection.execute(
            delete(request_tags).where(request_tags.c.request.in_(which))
        )
        connection.execute(delete(decisions).where(decisions.c.about.in_(which)))
        connection.execute(delete(requests).where(_are_expired(entry.requests)))
    connection.execute(delete(trail).where(trail.c.sequence < entry.n_lines))
