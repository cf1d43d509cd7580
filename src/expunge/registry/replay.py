# SPDX-License-Identifier: Apache-2.0
"""Replay: the lines of a journal, sorted by what they mean to a restored store."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..ledger import (
    Entry,
    Head,
    ModelRegistered,
    ReleaseMade,
    read_entry,
)
from ..private import Private
from .news import Line

MADE = (ModelRegistered, ReleaseMade)
"""Entries that tell of a release."""


@dataclass(slots=True, repr=False, eq=False)
class News(Private):
    """What a journal holds that a store lacks.

    Attributes
    ----------
    accepted
        Requests as they were written down, by id: the last time counts, and whoever
        was named before may have been promised it too.
    statements
        Entries with the head above them, in order, each sequence once.
    receipts
        Of completed requests.
    left
        Lines about releases that left, and about those taken back.
    fitted
        Models that were fitted, with the digest of the certificate of that release.
    certificates
        Of the releases in the statements, by digest.
    times
        When each entry of the statements was written, by sequence, in milliseconds.
    """

    accepted: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    statements: list[tuple[list[Entry], Head]] = field(default_factory=list)
    receipts: dict[str, str] = field(default_factory=dict)
    left: list[dict[str, Any]] = field(default_factory=list)
    fitted: dict[str, str] = field(default_factory=dict)
    certificates: dict[str, str] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)

    @property
    def entries(self) -> list[Entry]:
        """All entries, in order."""
        return [entry for entries, _ in self.statements for entry in entries]

    def tags_of(self, ids: Iterable[str]) -> set[str]:
        """Return the tags that these requests ever named."""
        lines = (line for id_ in ids for line in self.accepted.get(id_, ()))
        return {tag for line in lines for tag in line["tags"]}


def read_news(lines: Iterable[Line], size: int) -> News:
    """Return what the lines of a journal say to a store whose ledger has this size."""
    news = News()
    statements: dict[int, dict[str, Any]] = {}
    for _, line in lines:
        for one in line.get("accepted", ()):
            news.accepted.setdefault(one["id"], []).append(one)
        if "entries" in line:
            # A statement that a crash kept from the store was made again.
            statements[read_entry(line["entries"][0]).sequence] = line
        if "shipped" in line or "withdrawn" in line:
            news.left.append(line)
    for sequence, line in sorted(statements.items()):
        if sequence < size:
            continue  # made before the backup, beside a request that was not in it yet
        entries = [read_entry(text) for text in line["entries"]]
        news.statements.append((entries, Head.from_json(line["head"])))
        news.receipts |= line["receipts"]
        news.certificates |= line["certificates"]
        news.times |= {entry.sequence: line["time"] for entry in entries}
        news.fitted |= {
            entry.model: entry.certificate
            for entry in entries
            if isinstance(entry, MADE) and entry.model in line["fitted"]
        }
    return news
