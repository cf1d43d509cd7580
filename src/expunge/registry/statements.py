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
from .context import Context
from .storage import releases_table, requests_table
from .storage.journal import STATEMENT, Line
from .storage.ledger_table import LedgerBatch
from .storage.tables import read_mark, read_metadata, write_mark, write_metadata

POSITION = "journal end"


def read_position(connection: Connection) -> int:
    """Return up to where the store has everything that the journal says."""
    start = read_metadata(connection, POSITION, "0")
    if not start.isdecimal():
        raise StoreFailed(
            "the database does not say where in the journal it is; put it back from a "
            "backup and run expunge restore"
        )
    return int(start)


def unread_lines(context: Context) -> list[Line]:
    """Return the lines since the store last had everything; refuse a damaged journal.

    From here on ``context.journal_position`` is where the last of them ends.
    """
    with context.store.read() as connection:
        start, mark = read_position(connection), read_mark(connection)
    context.journal.require(mark)
    return _lines(context, start)


def lines_after_backup(context: Context) -> list[Line]:
    """Return the lines that a store lacks which was put back from a backup.

    All of them, if the journal was rebuilt since: then the place is not of this one.
    """
    with context.store.read() as connection:
        start, mark = read_position(connection), read_mark(connection)
    if context.journal.is_rebuilt() and not context.journal.is_whole(mark):
        start = 0
    return _lines(context, start)


def _lines(context: Context, start: int) -> list[Line]:
    lines = list(context.journal.read(start))
    context.journal_position = lines[-1][0] if lines else start
    return lines


def append_line(
    context: Context, connection: Connection, line: dict[str, object]
) -> None:
    """Write a line to the journal, last in the transaction that it tells of.

    What the store refuses to write is then not in the journal either. What only the
    journal has, after a crash, is taken in when the store is next worked on.
    """
    write_mark(connection, context.journal.append([line]))


def append_statement(
    context: Context,
    connection: Connection,
    line: dict[str, object],
    check: Callable[[], None] = lambda: None,
) -> int:
    """Write a statement to the journal in the same way; return where it ends.

    Raises Busy if another process made one since this one last looked. ``check`` may
    refuse at the last moment, while nobody else can write.
    """
    with context.journal.lock_for_statement(context.journal_position) as write:
        check()
        start, mark = write(line)
    # Before it there may be requests that are not in the store yet.
    done = mark.end if start == context.journal_position else context.journal_position
    write_metadata(connection, POSITION, str(done))
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
    "shipped": releases_table.insert_shipment,
    "withdrawn": releases_table.mark_withdrawn,
}


@dataclass(slots=True, repr=False, eq=False)
class MissingLines(Private):
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


def sort_lines(lines: Iterable[Line], size: int) -> MissingLines:
    """Return what the lines of a journal say to a store whose ledger has this size."""
    missing = MissingLines()
    statements: dict[int, dict[str, Any]] = {}
    for _, line in lines:
        for one in line.get("accepted", ()):
            missing.accepted.setdefault(one["id"], []).append(one)
        if STATEMENT in line:
            statements[read_entry(line[STATEMENT][0]).sequence] = line
        if not line.keys().isdisjoint(WRITERS):
            missing.left.append(line)
    # Those before the backup lie beside a request that was not in it yet.
    missing.statements = [
        line for sequence, line in sorted(statements.items()) if sequence >= size
    ]
    return missing


def find_unnamed(lines: Iterable[dict[str, Any]]) -> set[str]:
    """Return the completed requests of which the lines do not say whom they name."""
    asked, completed = set(), set()
    for line in lines:
        asked |= {one["id"] for one in line.get("accepted", ())}
        completed |= {*line.get("receipts", ())}
    return completed - asked


def write_shipment(connection: Connection, line: dict[str, Any]) -> None:
    """Write what a line says of a release that left, once.

    A release that the store does not have was never seen by anybody.
    """
    for word, write in WRITERS.items():
        said = line.get(word)
        if said and releases_table.has_release(
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

    batch: LedgerBatch
    head: Head
    time: int
    receipts: Sequence[Receipt] = ()
    fitted: Sequence[str] = ()
    papers: Mapping[str, str] = field(default_factory=dict)

    @property
    def entries(self) -> Iterator[Entry]:
        """The entries, in order."""
        return (entry for entry, _ in self.batch.entries)

    def line(self) -> dict[str, Any]:
        """Return the statement as a line of the journal.

        Of a receipt it holds the signature: everything else in it is there already.
        """
        return {
            "entries": [text for _, text in self.batch.entries],
            "head": self.head.to_json(),
            "time": self.time,
            "receipts": {one.entry.request: one.signature for one in self.receipts},
            "fitted": list(self.fitted),
            "certificates": dict(self.papers),
        }

    def write(self, connection: Connection) -> None:
        """Write the statement to the store."""
        self.batch.write(connection, self.head)
        for entry in self.entries:
            if isinstance(entry, MADE):
                releases_table.mark_in_ledger(connection, entry)
        requests_table.mark_completed(
            connection,
            [
                {"request": one.entry.request, "time": self.time, "text": one.to_json()}
                for one in self.receipts
            ],
        )


def write_statement(context: Context, statement: Statement) -> None:
    """Make a statement: on disk in the journal first, and in the store then."""
    with context.write_in_turn() as connection:
        statement.write(connection)

        def check() -> None:
            if any(isinstance(entry, KeyRotated) for entry in statement.entries):
                context.signing_key(
                    statement.batch.ledger
                )  # or nobody could sign again

        end = append_statement(context, connection, statement.line(), check)
    context.journal_position = end


def read_statement(line: Mapping[str, Any], ledger: Ledger) -> Statement:
    """Return the statement in a line of the journal, which continues a ledger."""
    batch = LedgerBatch(ledger)
    try:
        for text in line["entries"]:
            batch.append(read_entry(text))
        head = Head.from_json(line["head"])
        complaint = batch.ledger.check_head(head)
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
            proof=tuple(sibling.hex() for sibling in batch.proof(entry)),
            key=head.key,
            signature=line["receipts"][entry.request],
        )
        for entry, _ in batch.entries
        if isinstance(entry, RequestCompleted)
    ]
    return Statement(batch, head, line["time"], receipts, line["fitted"], papers)
