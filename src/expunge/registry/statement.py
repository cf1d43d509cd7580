# SPDX-License-Identifier: Apache-2.0
"""Statement: entries of the ledger that are added at once, with head and receipts.

It is written to the journal first and to the store then, in one transaction. What a
crash left in the journal alone is read from there and written to the store as it was
signed: nothing is stated twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from ..certificate import Certificate
from ..exceptions import InvalidInput, LedgerCorrupt
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
from ..stores import publications, requests
from ..stores.chain import Appending
from .news import record_statement
from .site import Site

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
                publications.mark_entered(connection, entry)
        requests.mark_completed(
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
