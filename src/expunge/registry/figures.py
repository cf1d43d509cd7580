# SPDX-License-Identifier: Apache-2.0
"""Figures: what is counted of requests, read in one pass, without any person."""

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import select

from ..ledger.documents import day_of
from .context import RegistryPart
from .request import requests as table
from .storage.tables import rows


class RequestFigures(NamedTuple):
    """What is counted of one request; days as YYYY-MM-DD, or empty."""

    stage: str
    right: str
    regime: str
    outcome: str
    reason: str
    extended: str
    submitted: str
    deadline: str
    completed: str


_COLUMNS = tuple(table.c[name] for name in RequestFigures._fields)
_DAY = 24 * 60 * 60 * 1000  # in milliseconds


class RowsApart(NamedTuple):
    """Rows that a request set apart: where they are, why, and until which day."""

    request: str
    place: str
    reason: str
    until: str


class RegistryFigures(RegistryPart):
    """Figures of all requests, as ``Registry.figures``."""

    def rows_apart(self) -> list[RowsApart]:
        """Return which requests hold or restrict rows, by the day on which it ends."""
        apart = rows.c.place.in_(("restricted", "held"))
        columns = [rows.c[name] for name in RowsApart._fields]
        query = select(*columns).where(apart).distinct()
        with self._context.store.read(snapshot=False) as connection:
            found = [RowsApart(*row) for row in connection.execute(query)]
        return sorted(found, key=lambda one: (one.until or "9999", one.request))

    def requests(self) -> Iterator[RequestFigures]:
        """Yield the figures of every request, in no order."""
        days: dict[int, str] = {}

        def spell(time: int | None) -> str:
            if time is None:
                return ""
            day = time // _DAY
            if day not in days:
                days[day] = day_of(time)
            return days[day]

        with self._context.store.read() as connection:
            rows = connection.execute(select(*_COLUMNS)).all()
        for row in rows:
            said = row._mapping
            days_of = {name: spell(said[name]) for name in ("deadline", "completed")}
            yield RequestFigures(**{**said, **days_of})
