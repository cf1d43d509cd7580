# SPDX-License-Identifier: Apache-2.0
"""Recovery: journal and store are brought back together.

**Replay.** The store is given what the journal has and it lacks. After a crash that is
at most a request that nobody was told of, a statement that was about to be written to
the store, and a release that was about to leave. Anything more means that the database
is older than the journal: it was put back from a backup, and people would come back.

**Rebuilding.** A damaged journal is written again from the database in use, which has
everything that a journal says except the tags of people who were forgotten: those are
erased with the people. Intact lines still have them, so it is known how much is lost:
the people of so many requests can no longer be named. From then on backups from before
those requests are refused, and a fit warns that it cannot recognise these people.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, TypeAlias

from sqlalchemy import Connection

from ...exceptions import JournalDamaged, NeedsRestore, StoreFailed
from ...ledger import Head, ModelRemoved, Receipt, RequestCompleted, read_entry
from ...ledger.documents import midnight
from ...promise.certificate import Certificate
from ..context import WAIT, Context
from ..keys import require_tag_keys
from ..statements import (
    MADE,
    POSITION,
    WRITERS,
    accepted_ids,
    completed_ids,
    find_unnamed,
    insert_accepted,
    read_statement,
    request_line,
    unread_lines,
    write_current_mark,
    write_other,
)
from ..storage import ledger_table, releases_table, requests_table
from ..storage.engine import Collision
from ..storage.journal import STATEMENT, Line
from ..storage.marks import Mark
from ..storage.tables import MARK, read_mark, write_metadata

Content: TypeAlias = dict[str, Any]
"""What a line of the journal says."""


def replay_journal(context: Context) -> Sequence[Any]:
    """Write to the store what it lacks; raise NeedsRestore if it is too old.

    Returns the requests that are not completed, oldest first.
    """
    with context.store.read(snapshot=False) as connection:
        lines, mark = unread_lines(context)
        pending = requests_table.read_pending(connection)
        if not lines:
            return pending
        require_store_knows(connection, lines)
        open_ones = {line.id for line in pending}
        asked = [id_ for id_ in accepted_ids(lines) if id_ not in open_ones]
        there = open_ones | requests_table.find_requests(connection, asked).keys()
    accepted = [one for _, line in lines for one in line.get("accepted", ())]
    missing = {one["id"]: one for one in accepted if one["id"] not in there}
    _insert_missing(context, missing.values())
    others = [line for _, line in lines if "accepted" not in line]
    behind = mark.end < context.reached.taken_in
    if others and not _has_statements(context, others):
        _write_lines(context, others)
    elif behind:
        with context.write_in_turn() as connection:
            write_current_mark(context, connection)
    elif not missing:
        return pending
    with context.store.read(snapshot=False) as connection:
        return requests_table.read_pending(connection)


def require_current_store(context: Context) -> None:
    """Refuse a store that is older than journal or keys, and a damaged journal.

    Nothing is changed, except that a rebuild of the journal that was killed is
    finished. Another process may write, or rebuild the journal, between two of the
    reads; then all of them are repeated.
    """
    _settle_draft(context)
    while True:
        turn = context.current_turn()
        try:
            _require_current_once(context)
        except (JournalDamaged, NeedsRestore):
            if not _settle_draft(context) and context.current_turn() == turn:
                raise
        else:
            return


def _require_current_once(context: Context) -> None:
    with context.store.read() as connection:
        require_tag_keys(connection, context.paths)
    lines, _ = unread_lines(context)
    # Only now: what the journal records is in the store by the time it is recorded.
    with context.store.read() as connection:
        for name in releases_table.read_checkpoints(connection).values():
            context.checkpoints.require_key(name)
        require_store_knows(connection, lines)


def require_store_knows(connection: Connection, lines: Sequence[Line]) -> None:
    """Refuse a store that does not know the outcome of a request, fit or removal."""
    completed = completed_ids(lines)
    there = requests_table.find_requests(connection, completed)
    lost = [
        request
        for request in completed
        if request not in there or there[request].stage == requests_table.ACCEPTED
    ]
    texts = (text for _, line in lines for text in line.get(STATEMENT, ()))
    entries = list(map(read_entry, texts))
    gone = [
        entry
        for entry in entries
        if isinstance(entry, MADE)
        and not releases_table.has_certificate(
            connection, entry.model, digest=entry.certificate
        )
    ]
    kept = [
        entry
        for entry in entries
        if isinstance(entry, ModelRemoved)
        and not releases_table.is_removed(connection, entry.model)
    ]
    if lost or gone or kept:
        raise NeedsRestore(
            f"the database lacks completed requests ({len(lost)}), releases "
            f"({len(gone)}) and removals of models ({len(kept)}) that are in the "
            "journal: it was put back from a backup; run expunge restore BACKUP, so "
            "that nobody comes back with it"
        )


def _insert_missing(context: Context, missing: Iterable[Content]) -> None:
    """Accept requests from the journal, unless their sender is doing so right now."""
    for line in missing:
        try:
            with context.store.write() as connection:
                insert_accepted(connection, [line])
        except Collision:
            continue


def _has_statements(context: Context, lines: Iterable[Content]) -> bool:
    """Return whether all lines are statements that the store holds."""
    with context.store.read() as connection:
        size = ledger_table.count_entries(connection)
    return all(
        STATEMENT in line and read_entry(line[STATEMENT][0]).sequence < size
        for line in lines
    )


def _write_lines(context: Context, lines: Iterable[Content]) -> None:
    """Write what the store lacks: statements as they were made, releases that left."""
    with context.write_in_turn() as connection:
        ledger = ledger_table.read_ledger(connection)
        for line in lines:
            if STATEMENT not in line:
                write_other(connection, line)
            elif read_entry(line[STATEMENT][0]).sequence >= ledger.size:
                statement = read_statement(line, ledger)
                statement.write(connection)
                ledger = statement.batch.ledger
        write_metadata(connection, POSITION, value=str(context.reached.taken_in))
        write_current_mark(context, connection)


def rewrite_journal(context: Context) -> int | None:
    """Write a damaged journal again; leave one that is sound, and return None.

    Otherwise return how many requests can no longer be named.
    """
    with context.hold_lock(WAIT):
        _settle_draft(context)
        with suppress(JournalDamaged, NeedsRestore):
            unread_lines(context)  # as every open does
            return None
        unnamed = _rebuild(context)
        replay_journal(context)
        with context.write_in_turn() as connection:
            write_metadata(connection, POSITION, value=str(context.reached.taken_in))
    return len(unnamed)


def _rebuild(context: Context) -> set[str]:
    """Replace the journal by what is intact of it and what the database knows.

    Returns the requests whose people it can no longer name.

    Nobody can accept a request from when the lines are collected until the new file is
    in place. It takes its place after the commit: until then the old one counts.
    """
    with ExitStack() as locked:
        with context.write_in_turn() as connection:
            for name in releases_table.read_checkpoints(connection).values():
                context.checkpoints.require_key(name)
            known = read_mark(connection)
            _require_newest_database(context, known)
            # After the transaction began, as everybody who writes does: no deadlocks.
            locked.enter_context(context.journal.lock_to_rebuild())
            whole = context.journal.read_whole_lines()
            require_store_knows(connection, whole)
            lines = [line for _, line in whole]
            lines += _missing_lines(connection, lines)
            applied = requests_table.read_stage(connection, requests_table.APPLIED)
            unnamed = find_unnamed(lines, [line.id for line in applied])
            mark = context.journal.write_draft(lines, epoch=known.epoch + 1)
            write_metadata(connection, MARK, value=str(mark))
            write_metadata(connection, POSITION, value="0")
        context.journal.place_draft(mark)
    return unnamed


def _settle_draft(context: Context) -> bool:
    """Finish or discard what a killed process left of a rebuild, where that is allowed.

    Returns whether there was anything. Who can only read the registry finds the journal
    as it is.
    """
    with suppress(StoreFailed):
        return context.journal.settle_draft(partial(_read_mark, context))
    return False


def _read_mark(context: Context) -> Mark:
    with context.store.read() as connection:
        return read_mark(connection)


def _require_newest_database(context: Context, known: Mark) -> None:
    """Refuse a database that may be older than the journal was.

    ``known`` is its mark. A journal or a mark file of a later epoch was written after
    it. In the same epoch the mark file says how long the journal was, and the part that
    the database does not know of must be intact.
    """
    newest = context.journal.read_mark_file()
    epoch = max(newest.epoch, context.journal.read_epoch())
    if epoch > known.epoch or (
        newest.epoch == known.epoch
        and newest.end >= known.end
        and newest != known
        and not _holds_lines(context, known.end, end=newest.end)
    ):
        raise NeedsRestore(
            f"the journal held {newest.end} bytes (rebuilds: {epoch}), and the "
            f"database knows of {known.end} (rebuilds: {known.epoch}): it was "
            "put back from a backup, and nobody can tell who was forgotten since; put "
            "back the newest copy of the journal"
        )


def _holds_lines(context: Context, start: int, *, end: int) -> bool:
    """Return whether the journal has intact lines from one position to another."""
    try:
        return end in [place for place, _ in context.journal.read(start)]
    except JournalDamaged:
        return False


def _missing_lines(
    connection: Connection, lines: Sequence[Content]
) -> Iterator[Content]:
    """Yield as lines what the database has and the journal lacks."""
    accepted = {one["id"] for line in lines for one in line.get("accepted", ())}
    waiting = requests_table.read_stage(connection, requests_table.ACCEPTED)
    new = [line.id for line in waiting if line.id not in accepted]
    if new:
        found = requests_table.find_requests(connection, new)
        tags = requests_table.read_tags(connection, new)
        near = requests_table.read_tags(connection, new, near=True)
        asked = [request_line(found[id_], tags[id_], near=near[id_]) for id_ in new]
        yield {"accepted": asked}
    stated = {
        read_entry(line[STATEMENT][0]).sequence for line in lines if STATEMENT in line
    }
    for statement in _statement_lines(connection):
        if read_entry(statement[STATEMENT][0]).sequence not in stated:
            yield statement
    known = [line for line in lines if not line.keys().isdisjoint(WRITERS)]
    yield from (line for line in _other_lines(connection) if line not in known)


def _statement_lines(connection: Connection) -> Iterator[Content]:
    """Yield all statements in the store as lines of a journal."""
    start = 0
    for text in ledger_table.read_heads(connection):
        head = Head.from_json(text)
        entries = ledger_table.read_entries(connection, start, most=head.size - start)
        start = head.size
        done = [one.request for one in entries if isinstance(one, RequestCompleted)]
        made = [one for one in entries if isinstance(one, MADE)]
        certificates = releases_table.read_certificates(
            connection, [one.certificate for one in made]
        )
        completed = requests_table.find_requests(connection, done)
        times = [line.completed for line in completed.values()]
        yield {
            STATEMENT: [one.to_json() for one in entries],
            "head": text,
            "time": max(times, default=midnight(head.day)),
            "receipts": {id_: _read_signed(connection, id_) for id_ in done},
            "refused": [
                one.request
                for one in entries
                if isinstance(one, RequestCompleted) and one.outcome == "refused"
            ],
            "fitted": [
                one.model for one in made if _is_fit(certificates[one.certificate])
            ],
            "certificates": certificates,
        }


def _read_signed(connection: Connection, request: str) -> dict[str, str]:
    """Return what only a receipt says."""
    text = requests_table.read_receipt(connection, request) or ""
    receipt = Receipt.from_json(text)
    return {"signature": receipt.signature, "handling": receipt.handling.to_json()}


def _is_fit(certificate: str) -> bool:
    """Return whether a release is the first one of a fit."""
    return Certificate.from_json(certificate).is_of_a_fit


def _other_lines(connection: Connection) -> Iterator[Content]:
    """Yield as lines which requests were cancelled, and which releases left."""
    for line in requests_table.read_stage(connection, requests_table.CANCELLED):
        yield {"cancelled": {"request": line.id}}
    for line in releases_table.read_shipments(connection):
        which = {"model": line.model, "number": line.number}
        yield {"shipped": which | {"time": line.time, "name": line.name}}
        if line.withdrawn is not None:
            yield {"withdrawn": which | {"time": line.withdrawn}}
