# SPDX-License-Identifier: Apache-2.0
"""Replay: the lines of a journal, sorted by what they mean to a store."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from ..ledger import read_entry
from ..private import Private
from ..stores import publications
from ..stores.journal import STATEMENT, Line

WRITERS = {
    "shipped": publications.record_shipment,
    "withdrawn": publications.withdraw,
}


@dataclass(slots=True, repr=False, eq=False)
class News(Private):
    """What a journal holds that a store lacks.

    Attributes
    ----------
    accepted
        Requests as they were written down, by id: the last time counts, and people who
        were named before may have been promised it too.
    statements
        Lines that were added to the ledger, in order.
    left
        Lines about releases that left, and about those taken back.
    """

    accepted: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    statements: list[dict[str, Any]] = field(default_factory=list)
    left: list[dict[str, Any]] = field(default_factory=list)

    @property
    def completed(self) -> list[str]:
        """The requests that were completed."""
        return sorted({id_ for line in self.statements for id_ in line["receipts"]})

    def tags_of(self, request: str) -> set[str]:
        """Return the tags that a request ever named."""
        lines = self.accepted.get(request, ())
        return {tag for line in lines for tag in line["tags"]}


def read_news(lines: Iterable[Line], size: int) -> News:
    """Return what the lines of a journal say to a store whose ledger has this size."""
    news = News()
    statements: dict[int, dict[str, Any]] = {}
    for _, line in lines:
        for one in line.get("accepted", ()):
            news.accepted.setdefault(one["id"], []).append(one)
        if STATEMENT in line:
            statements[read_entry(line[STATEMENT][0]).sequence] = line
        if not line.keys().isdisjoint(WRITERS):
            news.left.append(line)
    # Those before the backup lie beside a request that was not in it yet.
    news.statements = [
        line for sequence, line in sorted(statements.items()) if sequence >= size
    ]
    return news


def unnamed(lines: Iterable[dict[str, Any]]) -> set[str]:
    """Return the completed requests of which the lines do not say whom they name."""
    asked, completed = set(), set()
    for line in lines:
        asked |= {one["id"] for one in line.get("accepted", ())}
        completed |= {*line.get("receipts", ())}
    return completed - asked


def write_left(connection: Connection, line: dict[str, Any]) -> None:
    """Write what a line says of a release that left, once.

    A release that the store does not have was never seen by anybody.
    """
    for word, write in WRITERS.items():
        said = line.get(word)
        if said and publications.has_number(connection, said["model"], said["number"]):
            write(connection, said)
