# SPDX-License-Identifier: Apache-2.0
"""Figures: what is counted of requests, read in one pass, without any person."""

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import select

from ..ledger.documents import day_of
from .context import RegistryPart
from .request import requests as table


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


class RegistryFigures(RegistryPart):
    """Figures of all requests, as ``Registry.figures``."""

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
