# SPDX-License-Identifier: Apache-2.0
"""Statements: what goes into the ledger at once, and the journal's record of it.

A statement is some entries with the head above them and the receipts they complete. It
is written to the journal first and then to the store, in one transaction. What a crash
left in the journal alone is read back and written to the store as it was signed, so
nothing is stated twice.

The journal also records requests as they are accepted and releases as they are shipped.
The store remembers up to which position it has everything that the journal says. Any
process may write a request to the journal at any moment, so that position only moves
past lines that the store is seen to have.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select

from ..core.values import Private
from ..exceptions import InvalidInput, LedgerCorrupt, StoreFailed
from ..ledger import (
    Entry,
    Handling,
    Head,
    Ledger,
    ModelRegistered,
    ModelRemoved,
    Receipt,
    ReleaseMade,
    ReleaseWithdrawn,
    RequestCompleted,
    RequestExtended,
    read_entry,
)
from ..promise.certificate import Certificate
from .context import Context, Reached
from .storage import (
    access_table,
    ledger_table,
    people_table,
    releases_table,
    requests_table,
)
from .storage.engine import together
from .storage.journal import STATEMENT, Line
from .storage.ledger_table import LedgerBatch
from .storage.marks import Mark
from .storage.tables import (
    MARK,
    parse_mark,
    read_mark,
    read_values,
    unstated,
    write_mark,
    write_metadata,
)

POSITION = "journal end"
PAGE = 500  # entries of the ledger read at once
MADE = (ModelRegistered, ReleaseMade)
"""Entries that tell of a release."""
ASKED = tuple(
    "id accepted opens closes deadline n_subjects fingerprint right regime submitted "
    "details sender".split()
)
"""What the journal says of an accepted request, beside the tags of its people."""
WRITERS = {
    "shipped": releases_table.insert_shipment,
    "withdrawn": releases_table.mark_withdrawn,
    "cancelled": requests_table.mark_cancelled,
    "revoked": access_table.delete_token,
}
"""Keys of other journal lines, and how the store records what they say."""


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """What is added to the ledger at once.

    Parameters
    ----------
    batch, head
        The entries, and the head above them.
    time
        When it was made, in milliseconds since 1970; entries and head give the day.
    receipts
        Of the requests that it completes.
    fitted
        Models that were fitted: their earlier rows are gone.
    certificates
        Of the releases, as JSON, by digest.
    """

    batch: LedgerBatch
    head: Head
    time: int
    receipts: Sequence[Receipt] = ()
    fitted: Sequence[str] = ()
    certificates: Mapping[str, str] = field(default_factory=dict)

    @property
    def entries(self) -> Iterator[Entry]:
        """The entries, in order."""
        return (entry for entry, _ in self.batch.entries)

    def to_line(self) -> dict[str, Any]:
        """Return the statement as a line of the journal.

        Of a receipt the line holds only what the entries do not say.
        """
        return {
            STATEMENT: [text for _, text in self.batch.entries],
            "head": self.head.to_json(),
            "time": self.time,
            "receipts": {
                one.entry.request: {
                    "signature": one.signature,
                    "handling": one.handling.to_json(),
                }
                for one in self.receipts
            },
            "refused": [
                one.entry.request
                for one in self.receipts
                if one.entry.outcome == "refused"
            ],
            "fitted": list(self.fitted),
            "certificates": dict(self.certificates),
        }

    def write(self, connection: Connection) -> None:
        """Write the statement to the store."""
        self.batch.write(connection, self.head)
        connection.execute(_STATED, [_identify(entry) for entry in self.entries])
        for entry in self.entries:
            if isinstance(entry, ReleaseWithdrawn):
                releases_table.mark_withdrawal(connection, entry, time=self.time)
            elif isinstance(entry, ModelRemoved):
                delete_model(connection, entry.model, time=self.time)
            elif isinstance(entry, RequestExtended):
                requests_table.write_extension(connection, entry)
        requests_table.mark_completed(
            connection,
            [
                {"request": one.entry.request, "time": self.time, "text": one.to_json()}
                for one in self.receipts
            ],
        )


_STATED = delete(unstated).where(
    unstated.c.about == bindparam("of"), unstated.c.kind == bindparam("what")
)
_UNSTATED = select(unstated).order_by(unstated.c.id)


def _identify(entry: Entry) -> dict[str, str]:
    """Return what tells an entry from others that are not in the ledger yet."""
    about = getattr(entry, "request", "") or getattr(entry, "certificate", "")
    return {"what": entry.kind, "of": about or getattr(entry, "by", "")}


def add_unstated(
    connection: Connection, entries: Sequence[Entry], *, earliest: Sequence[int]
) -> None:
    """Write what the ledger must be told, in the transaction that it tells of.

    Number and day of an entry come when it is stated, no earlier than ``earliest``.
    """
    rows = [
        {
            "kind": key["what"],
            "about": key["of"],
            "text": entry.to_json(),
            "earliest": time,
        }
        for entry, time in zip(entries, earliest, strict=True)
        for key in [_identify(entry)]
    ]
    if rows:
        connection.execute(insert(unstated), rows)


def read_unstated(connection: Connection) -> list[Row[Any]]:
    """Return what the ledger must be told, in order."""
    return list(connection.execute(_UNSTATED))


def write_statement(
    context: Context, statement: Statement, *, check: Callable[[], None] = lambda: None
) -> None:
    """Write a statement to the journal and to the store, in one transaction.

    ``check`` may refuse at the last moment, when nobody else can write.
    """
    with context.write_in_turn(statement.write) as connection:
        reached = append_statement(
            context, connection, line=statement.to_line(), check=check
        )
    context.reached = reached
    context.ledger = statement.batch.ledger


def read_statement(line: Mapping[str, Any], ledger: Ledger) -> Statement:
    """Return the statement in a line of the journal, which continues a ledger."""
    batch = LedgerBatch(ledger)
    try:
        for text in line[STATEMENT]:
            batch.append(read_entry(text))
        head = Head.from_json(line["head"])
        fault = batch.ledger.check_head(head)
    except InvalidInput as error:
        fault = str(error)
    if fault:
        raise LedgerCorrupt(
            f"the journal does not continue the ledger: {fault}; they are not of the "
            "same registry, or one was altered"
        )
    texts: dict[str, str] = line["certificates"]
    read = {digest: Certificate.from_json(text) for digest, text in texts.items()}
    receipts = [
        Receipt(
            entry=entry,
            certificates={name: read[one] for name, one in entry.certificates.items()},
            handling=Handling.from_json(line["receipts"][entry.request]["handling"]),
            head=head,
            proof=tuple(sibling.hex() for sibling in batch.proof(entry)),
            key=head.key,
            signature=line["receipts"][entry.request]["signature"],
        )
        for entry, _ in batch.entries
        if isinstance(entry, RequestCompleted)
    ]
    return Statement(batch, head, line["time"], receipts, line["fitted"], texts)


def append_statement(
    context: Context,
    connection: Connection,
    *,
    line: dict[str, object],
    check: Callable[[], None] = lambda: None,
) -> Reached:
    """Append a statement, last in its transaction; return what the store has then.

    Raises Busy if another process made one since this one last looked. ``check`` may
    refuse at the last moment, when nobody else can write.
    """
    before = context.reached
    with context.journal.lock_for_statement(
        before.stated, partial(read_mark, connection)
    ) as write:
        check()
        start, mark = write(line)
    # Before it there may be requests that are not in the store yet.
    taken_in = mark.end if start == before.taken_in else before.taken_in
    with together(connection):
        write_metadata(connection, POSITION, value=str(taken_in))
        write_mark(connection, mark)
    return Reached(mark.end, taken_in)


def append_line(
    context: Context, connection: Connection, *, line: dict[str, object]
) -> None:
    """Append a line to the journal, last in the transaction that it records.

    What the store refuses is then not in the journal either. What only the journal has,
    after a crash, is read by the next worker.
    """
    known = partial(read_mark, connection)
    write_mark(connection, context.journal.append([line], known))


def write_current_mark(context: Context, connection: Connection) -> None:
    """Record the mark after the last line of the journal, last in a transaction.

    Lines that a crash left in the journal alone were recorded by nobody.
    """
    known = partial(read_mark, connection)
    with context.journal.lock_for_statement(context.reached.stated, known):
        write_mark(connection, context.journal.seen)


def unread_lines(context: Context) -> tuple[list[Line], Mark]:
    """Return the lines that the store may lack, and its mark; refuse a damaged journal.

    Sets ``context.reached`` to where the last of them ends.
    """
    with context.store.read() as connection:
        start, mark = _read_position(connection)
    context.journal.require_current(mark)
    return _read_lines(context, start), mark


def lines_after_backup(context: Context) -> list[Line]:
    """Return the lines that a store put back from a backup lacks.

    If the journal was rebuilt since, the position belongs to the old one: then all.
    """
    with context.store.read() as connection:
        start, mark = _read_position(connection)
    return _read_lines(
        context, start if mark.epoch == context.journal.read_epoch() else 0
    )


def _read_position(connection: Connection) -> tuple[int, Mark]:
    """Return up to where the store has what the journal says, and its mark."""
    position, mark = read_values(connection, POSITION, MARK)
    start = position or "0"
    if not start.isdecimal():
        raise StoreFailed(
            "the database does not say where in the journal it is; put it back from a "
            "backup and run expunge restore"
        )
    return int(start), parse_mark(mark)


def _read_lines(context: Context, start: int) -> list[Line]:
    lines = list(context.journal.read(start))
    end = lines[-1][0] if lines else start
    context.reached = Reached(end, end)
    return lines


def accepted_ids(lines: Sequence[Line]) -> list[str]:
    """Return the requests that were accepted."""
    named = (one["id"] for _, line in lines for one in line.get("accepted", ()))
    return sorted(set(named))


def completed_ids(lines: Sequence[Line]) -> list[str]:
    """Return the requests that were completed."""
    return sorted({id_ for _, line in lines for id_ in line.get("receipts", ())})


@dataclass(slots=True, repr=False, eq=False)
class MissingLines(Private):
    """The lines of a journal that a store lacks, sorted by what they record.

    Attributes
    ----------
    accepted
        Requests as they were written, by id: the last writing counts, but people named
        in an earlier one may have been promised it too.
    statements
        Lines that were added to the ledger, in order.
    others
        Lines about releases that left or were taken back, about requests that were
        cancelled, and about tokens that were revoked.
    """

    accepted: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    statements: list[dict[str, Any]] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)

    @property
    def completed(self) -> list[str]:
        """The requests that were completed, in order."""
        return [id_ for line in self.statements for id_ in line["receipts"]]

    @property
    def refused(self) -> set[str]:
        """Those of them that were refused."""
        return {id_ for line in self.statements for id_ in line["refused"]}

    def tags_of(self, request: str) -> set[str]:
        """Return the tags that a request ever named."""
        lines = self.accepted.get(request, ())
        return {tag for line in lines for tag in line["tags"]}


def sort_lines(lines: Iterable[Line], size: int) -> MissingLines:
    """Return what a store whose ledger has this size lacks of these lines."""
    missing = MissingLines()
    statements: dict[int, dict[str, Any]] = {}
    for _, line in lines:
        for one in line.get("accepted", ()):
            missing.accepted.setdefault(one["id"], []).append(one)
        if STATEMENT in line:
            statements[read_entry(line[STATEMENT][0]).sequence] = line
        if not line.keys().isdisjoint(WRITERS):
            missing.others.append(line)
    # Earlier statements may come after a request that was not in the backup yet.
    missing.statements = [
        line for sequence, line in sorted(statements.items()) if sequence >= size
    ]
    return missing


def find_unnamed(
    lines: Iterable[dict[str, Any]], applied: Iterable[str] = ()
) -> set[str]:
    """Return the requests, applied or completed, whose people the lines do not name."""
    named, done = set(), {*applied}
    for line in lines:
        named |= {one["id"] for one in line.get("accepted", ())}
        done |= {*line.get("receipts", ())}
    return done - named


def request_line(
    request: Any, tags: Sequence[str], *, near: Sequence[str]
) -> dict[str, Any]:
    """Return a request in the store as the journal holds it."""
    asked = {name: getattr(request, name) for name in ASKED}
    return asked | {"tags": [*tags], "near": [*near]}


def insert_accepted(connection: Connection, lines: Sequence[dict[str, Any]]) -> None:
    """Write requests to the store as the journal holds them."""
    accepted = [
        {"stage": requests_table.ACCEPTED, **{name: line[name] for name in ASKED}}
        for line in lines
    ]
    tags = [(line["id"], tag) for line in lines for tag in line["tags"]]
    near = [(line["id"], tag) for line in lines for tag in line["near"]]
    with together(connection):
        requests_table.insert_requests(connection, accepted, tags=tags, near=near)


def delete_model(connection: Connection, name: str, *, time: int) -> None:
    """Delete a model's people, and everything of it that the ledger does not need.

    What was deleted before stays as it is: a store that was put back from a backup
    holds them again, and the statement of the removal deletes them again.
    """
    people_table.delete_all_people(connection, name)
    releases_table.mark_removed(connection, name, time=time)


def write_other(connection: Connection, line: dict[str, Any]) -> None:
    """Write to the store what a line says that is no statement, once.

    A release that the store does not have was never seen by anybody.
    """
    for word, write in WRITERS.items():
        said = line.get(word)
        if said and (
            "model" not in said
            or releases_table.has_release(
                connection, said["model"], number=said["number"]
            )
        ):
            write(connection, said)


class RegistryLedger:
    """The ledger of a registry, as ``Registry.ledger``.

    Parameters
    ----------
    context
        Of the registry.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def entries(self, start: int = 0) -> Iterator[Entry]:
        """Yield the entries from one on."""
        while True:
            # A transaction for each page, so that a slow reader holds up nobody.
            with self._context.store.read() as connection:
                page = ledger_table.read_entries(connection, start, most=PAGE)
            yield from page
            if len(page) < PAGE:
                return
            start += PAGE

    def page(self, start: int, most: int) -> list[Entry]:
        """Return at most so many entries, from one on."""
        with self._context.store.read(snapshot=False) as connection:
            return ledger_table.read_entries(connection, start, most=most)

    def head(self) -> str | None:
        """Return the newest signed head, as it was written; None if there is none."""
        with self._context.store.read(snapshot=False) as connection:
            return ledger_table.read_last_head(connection) or None

    def heads(self, after: int = 0, most: int = 100) -> list[Head]:
        """Return at most so many heads over more than ``after`` entries, in order."""
        with self._context.store.read(snapshot=False) as connection:
            return ledger_table.read_heads_after(connection, after, most=most)

    def prove_inclusion(self, sequence: int, size: int) -> tuple[str, ...]:
        """Prove that an entry is in the ledger of a size; ``merkle.includes`` checks.

        The hashes are in hexadecimal.
        """
        with self._context.store.read() as connection:
            return ledger_table.prove_inclusion(connection, sequence, size=size)

    def prove_growth(self, first: int, second: int) -> tuple[str, ...]:
        """Prove that the ledger of one size begins with that of another.

        ``ledger.check_consistency`` checks it; the hashes are in hexadecimal.
        """
        with self._context.store.read() as connection:
            return ledger_table.prove_growth(connection, first, second=second)

    def export(self) -> bytes:
        """Return the whole ledger, as ``ledger.check_export`` reads it."""
        with self._context.store.read() as connection:
            return ledger_table.export_lines(connection)
