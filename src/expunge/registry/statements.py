# SPDX-License-Identifier: Apache-2.0
"""Statements: what goes into the ledger at once, and what lines of the log say.

A statement is some entries with the head above them and the receipts they complete. It
is a line of the log and some rows of the store, in one transaction. What a crash left
in the log alone is read back and written to the store as it was signed, so nothing is
stated twice.

Other lines say that requests were accepted or cancelled, that releases were shipped and
tokens revoked: what the store must have. Some only note that something was about to be
written, for the operator who restores a backup (``recovery.losses``): after a crash
they may note one thing too many.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select

from ..exceptions import InvalidInput, LedgerCorrupt
from ..ledger import (
    Entry,
    Handling,
    Head,
    Ledger,
    ModelRegistered,
    ModelRemoved,
    Receipt,
    RecordsExpired,
    ReleaseMade,
    ReleaseWithdrawn,
    RequestCompleted,
    RequestExtended,
    read_entry,
)
from ..promise.certificate import Certificate
from .decisions import RULES, use_agreement, withdrawing, write_decision, write_rules
from .events import tell_cancelled, tell_entries
from .expired import delete_expired
from .log import STATEMENT, Content
from .request import (
    ACCEPTED,
    find_requests,
    insert_requests,
    mark_applied,
    mark_cancelled,
    mark_completed,
    write_extension,
    write_new_rows,
)
from .storage import exclusions_table, ledger_table, people_table, releases_table
from .storage.exclusions_table import ExcludedLine
from .storage.ledger_table import LedgerBatch
from .storage.tables import tokens, unstated

SESSION = "session"  # a token of this kind is a session in a browser
MADE = (ModelRegistered, ReleaseMade)
"""Entries that tell of a release."""


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

    def write_line(self, connection: Connection, line: Content) -> None:
        """Write the statement to the store; ``line`` says the same."""
        del line
        self.write(connection)

    def write(self, connection: Connection) -> None:
        """Write the statement to the store."""
        self.batch.write(connection, self.head)
        connection.execute(_STATED, [_identify(entry) for entry in self.entries])
        for entry in self.entries:
            if isinstance(entry, ReleaseWithdrawn):
                releases_table.mark_withdrawal(connection, entry, time=self.time)
                use_agreement(connection, withdrawing(entry.certificate))
            elif isinstance(entry, ModelRemoved):
                delete_model(connection, entry.model, time=self.time)
            elif isinstance(entry, RequestExtended):
                write_extension(connection, entry)
            elif isinstance(entry, RecordsExpired):
                delete_expired(connection, entry)
        done = [
            {"of": one.entry.request, "time": self.time, "text": one.to_json()}
            for one in self.receipts
        ]
        mark_completed(connection, done)
        tell_entries(connection, self.entries)


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


def accepted_line(
    requests: Sequence[Content], rows: Sequence[Mapping[str, Any]]
) -> Content:
    """Return the line that accepts requests, with the sealed rows that some bring."""
    if not rows:
        return {"accepted": [*requests]}
    sealed = [{**one, "sealed": b64encode(one["sealed"]).decode()} for one in rows]
    return {"accepted": [*requests], "rows": sealed}


def insert_accepted(connection: Connection, line: Content) -> None:
    """Write requests to the store as the log holds them, with the rows they bring."""
    insert_requests(connection, line["accepted"])
    rows = [{**one, "sealed": b64decode(one["sealed"])} for one in line.get("rows", ())]
    if rows:
        write_new_rows(connection, rows)


def _insert_missing(connection: Connection, line: Content) -> None:
    """Write the requests of a line that the store does not have."""
    ids = [one["request"] for one in line["accepted"]]
    there = find_requests(connection, ids)
    new = [one for one in line["accepted"] if one["request"] not in there]
    insert_accepted(connection, {**line, "accepted": new})


def _write_missing_statement(connection: Connection, line: Content) -> None:
    """Write a statement that the store does not have.

    Requests in it that the store has not as applied, since it comes from a backup, are
    applied as the entries say; what becomes of the rows is settled by the restore.
    """
    ledger = ledger_table.read_ledger(connection)
    if read_entry(line[STATEMENT][0]).sequence < ledger.size:
        return
    statement = read_statement(line, ledger)
    receipts = {one.entry.request: one for one in statement.receipts}
    applied = [
        replace(
            waiting,
            outcome=receipts[id_].entry.outcome,
            reason=receipts[id_].entry.reason,
            retained=receipts[id_].handling.retained,
            retained_until=receipts[id_].handling.retained_until,
        )
        for id_, waiting in find_requests(connection, list(receipts)).items()
        if waiting.stage == ACCEPTED
    ]
    mark_applied(connection, applied)
    for entry in statement.entries:
        if isinstance(entry, MADE) and not releases_table.has_certificate(
            connection, entry.model, digest=entry.certificate
        ):
            # Of one that was fitted and removed since, nothing is there.
            releases_table.insert_absent_model(
                connection, entry.model, created=statement.time
            )
            releases_table.insert_lost_release(
                connection,
                entry,
                certificate=statement.certificates[entry.certificate],
                time=statement.time,
            )
    statement.write(connection)


def write_cancelled(connection: Connection, said: Mapping[str, str]) -> bool:
    """Cancel a request, unless it moved on; return whether it waited."""
    if not mark_cancelled(connection, said["request"]):
        return False
    tell_cancelled(connection, said["request"])
    return True


def _write_shipment(connection: Connection, line: Content) -> None:
    """Write that a release left; one that the store lacks was never seen by anybody."""
    said = line["shipped"]
    if releases_table.has_release(connection, said["model"], number=said["number"]):
        releases_table.insert_shipment(connection, said)


def delete_token(connection: Connection, said: Mapping[str, str]) -> None:
    """Delete a token, with the sessions of its name."""
    is_session = tokens.c.kind == SESSION
    named = select(tokens.c.name).where(tokens.c.id == said["token"], ~is_session)
    theirs = is_session & tokens.c.name.in_(named.scalar_subquery())
    connection.execute(delete(tokens).where(theirs))
    connection.execute(delete(tokens).where(tokens.c.id == said["token"]))


def _write_excluded(connection: Connection, line: Content) -> None:
    """Write whom lists of others keep out of fits, and whom no longer."""
    said = line["excluded"]
    exclusions_table.delete_excluded(connection, said["lifted"])
    lines = [ExcludedLine(*one) for one in said["lines"]]
    exclusions_table.write_excluded(connection, lines)


HANDLERS: dict[str, Callable[[Connection, Content], Any]] = {
    "accepted": _insert_missing,
    STATEMENT: _write_missing_statement,
    "cancelled": lambda connection, line: write_cancelled(
        connection, line["cancelled"]
    ),
    "shipped": _write_shipment,
    "withdrawn": lambda connection, line: releases_table.mark_withdrawn(
        connection, line["withdrawn"]
    ),
    "revoked": lambda connection, line: delete_token(connection, line["revoked"]),
    RULES: lambda connection, line: write_rules(connection, line[RULES]),
    "decided": lambda connection, line: write_decision(connection, line["decided"]),
    "excluded": _write_excluded,
}
"""Kinds of lines, and how the store takes in what it lacks of them."""


def apply_line(connection: Connection, line: Content) -> None:
    """Write to the store what a line says, as far as it is not there yet."""
    for kind, handler in HANDLERS.items():
        if kind in line:
            handler(connection, line)


def delete_model(connection: Connection, name: str, *, time: int) -> None:
    """Delete a model's people, and everything of it that the ledger does not need.

    What was deleted before stays as it is: a store that was put back from a backup
    holds them again, and the statement of the removal deletes them again.
    """
    people_table.delete_all_people(connection, name)
    releases_table.mark_removed(connection, name, time=time)
