# SPDX-License-Identifier: Apache-2.0
"""Statement: entries of the ledger that are added at once, with head and receipts.

It is written to the journal first and to the store then, in one transaction. What a
crash left in the journal alone is read from there and written to the store as it was
signed: nothing is stated twice.

News: what the journal says that the store may not know.

The store remembers up to where it has everything that the journal says. Requests are
written to the journal by any process, at any moment, so that place moves on only past
lines that the store is seen to have.

Replay: the lines of a journal, sorted by what they mean to a store.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from ..core.arrays import Private
from ..exceptions import InvalidInput, LedgerCorrupt, StoreFailed
from ..ledger import (
    Entry,
    Head,
    KeyRotated,
    Ledger,
    ModelRegistered,
    Receipt,
    ReleaseMade,
    RequestCompleted,
    read_entry,
)
from ..promise.certificate import Certificate
from .context import Site
from .storage import releases_table, requests_table
from .storage.journal import STATEMENT, Line
from .storage.ledger_table import Appending
from .storage.tables import mark_in, note, write_mark, write_note

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


WRITERS = {
    "shipped": releases_table.record_shipment,
    "withdrawn": releases_table.withdraw,
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
        if said and releases_table.has_number(
            connection, said["model"], said["number"]
        ):
            write(connection, said)


MADE = (ModelRegistered, ReleaseMade)
"""Entries that tell of a release."""


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """What is added to the ledger at once.

    Parameters
    ----------
    book, head
        The entries, and the head above them.
    time
        When it was made, in milliseconds since 1970; entries and head tell the day.
    receipts
        Of the requests that are completed by them.
    fitted
        Models that were fitted: their earlier rows are no more.
    papers
        The certificates of the releases, by digest.
    """

    book: Appending
    head: Head
    time: int
    receipts: Sequence[Receipt] = ()
    fitted: Sequence[str] = ()
    papers: Mapping[str, str] = field(default_factory=dict)

    @property
    def entries(self) -> Iterator[Entry]:
        """The entries, in order."""
        return (entry for entry, _ in self.book.entries)

    def line(self) -> dict[str, Any]:
        """Return the statement as a line of the journal.

        Of a receipt it holds the signature: everything else in it is there already.
        """
        return {
            "entries": [text for _, text in self.book.entries],
            "head": self.head.to_json(),
            "time": self.time,
            "receipts": {one.entry.request: one.signature for one in self.receipts},
            "fitted": list(self.fitted),
            "certificates": dict(self.papers),
        }

    def write(self, connection: Connection) -> None:
        """Write the statement to the store."""
        self.book.write(connection, self.head)
        for entry in self.entries:
            if isinstance(entry, MADE):
                releases_table.mark_entered(connection, entry)
        requests_table.mark_completed(
            connection,
            [
                {"request": one.entry.request, "time": self.time, "text": one.to_json()}
                for one in self.receipts
            ],
        )


def conclude(site: Site, statement: Statement) -> None:
    """Make a statement: on disk in the journal first, and in the store then."""
    with site.changing() as connection:
        statement.write(connection)

        def check() -> None:
            if any(isinstance(entry, KeyRotated) for entry in statement.entries):
                site.signing_key(statement.book.ledger)  # or nobody could sign again

        end = record_statement(site, connection, statement.line(), check)
    site.stated = end


def read_statement(line: Mapping[str, Any], ledger: Ledger) -> Statement:
    """Return the statement in a line of the journal, which continues a ledger."""
    book = Appending(ledger)
    try:
        for text in line["entries"]:
            book.append(read_entry(text))
        head = Head.from_json(line["head"])
        complaint = book.ledger.disagreement(head)
    except InvalidInput as error:
        complaint = str(error)
    if complaint:
        raise LedgerCorrupt(
            f"the journal does not continue the ledger: {complaint}; they are not of "
            "the same registry, or one was altered"
        )
    papers: dict[str, str] = line["certificates"]
    read = {digest: Certificate.from_json(text) for digest, text in papers.items()}
    receipts = [
        Receipt(
            entry=entry,
            certificates={name: read[one] for name, one in entry.certificates.items()},
            head=head,
            proof=tuple(sibling.hex() for sibling in book.proof(entry)),
            key=head.key,
            signature=line["receipts"][entry.request],
        )
        for entry, _ in book.entries
        if isinstance(entry, RequestCompleted)
    ]
    return Statement(book, head, line["time"], receipts, line["fitted"], papers)
