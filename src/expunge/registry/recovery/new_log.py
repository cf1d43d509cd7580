# SPDX-License-Identifier: Apache-2.0
"""New log: one that begins with what is known, in place of a damaged one.

It is written from the database in use, which has everything that a log says except the
tags of people who were forgotten: those are erased with the people. Intact lines still
have them, so it is known how much is lost: the people of so many requests can no longer
be named. From then on backups from before those requests are refused, and a fit warns
that it cannot recognise these people.

Or in place of one that has grown: then it begins with a *snapshot*, in place of all
lines up to a statement that every backup has which may still exist. It keeps the tags
of people who were answered, so that fits go on to refuse them. A backup from before
that statement is refused by its day.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from sqlalchemy import Connection

from ...exceptions import InvalidInput, JournalDamaged, NeedsRestore
from ...ledger import (
    Handling,
    Head,
    ModelRemoved,
    Receipt,
    RequestCompleted,
    read_entry,
)
from ...ledger.documents import DAY, midnight
from ...promise.certificate import Certificate
from ..context import WAIT, Context, keep_head, require_keys
from ..decisions import read_decision_lines, read_rules_line
from ..expired import read_last_expiry
from ..log import SNAPSHOT, STATEMENT, Content, Mark, read_position
from ..now import today
from ..request import (
    ACCEPTED,
    APPLIED,
    CANCELLED,
    find_requests,
    read_receipts,
    read_stage,
    read_tags,
    to_line,
)
from ..statements import MADE, accepted_line, apply_line
from ..storage import exclusions_table, ledger_table, people_table, releases_table
from ..storage.engine import chunks

EXCLUDED_AT_ONCE = 10_000  # identifiers in one line of the log


def begin_new_log(context: Context) -> int | None:
    """Begin a new log where it is damaged; leave one that is sound, and return None.

    Otherwise return how many requests can no longer be named.
    """
    log = context.log
    with context.hold_lock(WAIT):
        log.settle_draft()
        keep_head(context)  # or the database is of an earlier day
        with context.store.read() as connection:
            known = read_position(connection)
        with suppress(JournalDamaged, NeedsRestore):
            log.require_newest(known)  # as every open does
            return None
        with context.store.read() as connection:
            require_keys(context, connection)
        _require_newest_database(context, known.mark)
        with log.replace() as (connection, before, lines):
            _require_newest_database(context, before.mark)
            intact = log.read_intact()
            _require_store_knows(connection, intact)
            for line in intact:  # what a crash left in the log alone
                apply_line(connection, line)
            lines += _complete(connection, intact)
            applied = read_stage(connection, APPLIED)
            unnamed = find_unnamed(lines, [line.request for line in applied])
    return len(unnamed)


def compact_log(context: Context, days: int | None, *, ends: bool = False) -> int:
    """Begin a new log without what no backup needs that is so many days old.

    With ``ends`` people are not recognised any more whose receipts state a day for
    that which is past.

    Returns by how many bytes it is shorter.
    """
    stated = context.settings.backup_days
    kept = stated if days is None else days
    if kept is None:
        raise InvalidInput(
            "the registry was not told for how many days backups are kept; say how "
            "many days old the oldest one is that may be restored (days)"
        )
    if kept < (stated or 0):
        raise InvalidInput(
            f"days={days}, and receipts state that backups are kept for {stated} days; "
            "give at least as many"
        )
    log = context.log
    with context.hold_lock(WAIT):
        log.catch_up()
        keep_head(context)
        last = midnight(today().isoformat()) - kept * DAY
        with log.replace() as (_, before, lines):
            log.require(before.mark)
            every = [line for _, line in log.read()]
            places = [
                place
                for place, line in enumerate(every, start=1)
                if STATEMENT in line and line["time"] < last
            ]
            if not places:
                raise InvalidInput(
                    "every line of the journal may be needed by a backup that still "
                    "exists, so it stays as it is; compact it later, or delete old "
                    "backups and give fewer days"
                )
            gone = today().isoformat() if ends else ""
            summary = _summarise(every[: places[-1]], ended=gone)
            lines.append({SNAPSHOT: summary})
            lines += _still_open(every[: places[-1]])
            lines += _still_excluded(every[: places[-1]])
            lines += every[places[-1] :]
    return before.mark.end - log.path.stat().st_size


def _summarise(dropped: Sequence[Content], *, ended: str) -> Content:
    """Return what must be known of lines that are left out.

    But of people whose exclusion was to end before the day ``ended``.
    """
    named: dict[str, list[Content]] = {}
    answered: list[Content] = []
    size, day, n_unnamed = 0, "", 0
    for line in dropped:
        earlier = line.get(SNAPSHOT, {})
        answered += earlier.get("answered", ())
        n_unnamed += earlier.get("unnamed", 0)
        for one in line.get("accepted", ()):
            named.setdefault(one["request"], []).append(one)
        if STATEMENT in line:
            head = Head.from_json(line["head"])
            size, day = head.size, head.day
            done = [one for one in line["receipts"] if one not in line["refused"]]
            n_unnamed += sum(one not in named for one in done)
            answered += [
                {
                    **{name: one[name] for name in ("right", "tags", "near")},
                    "until": _read_end(line["receipts"][request]),
                }
                for request in done
                for one in named.get(request, ())
            ]
        back = {*line.get("readmitted", ())}
        if back:
            for one in answered:
                one["tags"] = [tag for tag in one["tags"] if tag not in back]
                one["near"] = [tag for tag in one["near"] if tag not in back]
    kept = [one for one in answered if not one.get("until") or one["until"] >= ended]
    return {"size": size, "day": day, "answered": kept, "unnamed": n_unnamed}


def _read_end(said: Mapping[str, str]) -> str:
    """Return until which day a receipt says that people are excluded; or nothing."""
    return Handling.from_json(said["handling"]).excluded_until


def _still_open(dropped: Sequence[Content]) -> Iterator[Content]:
    """Yield the requests that were accepted and have no end in these lines."""
    ended = {id_ for line in dropped for id_ in line.get("receipts", ())}
    ended |= {line["cancelled"]["request"] for line in dropped if "cancelled" in line}
    for line in dropped:
        left = [one for one in line.get("accepted", ()) if one["request"] not in ended]
        rows = [one for one in line.get("rows", ()) if one["request"] not in ended]
        if left or rows:
            yield {"accepted": left} | ({"rows": rows} if rows else {})


def _still_excluded(dropped: Sequence[Content]) -> Iterator[Content]:
    """Yield whom lists of others keep out of fits, by these lines."""
    left: dict[str, list[str]] = {}
    for said in (line["excluded"] for line in dropped if "excluded" in line):
        for item in said["lifted"]:
            left.pop(item, None)
        left |= {one[0]: one for one in said["lines"]}
    yield from (
        {"excluded": {"lines": some, "lifted": []}}
        for some in chunks([*left.values()], EXCLUDED_AT_ONCE)
    )


def find_unnamed(lines: Iterable[Content], applied: Iterable[str] = ()) -> set[str]:
    """Return the requests, applied or completed, whose people the lines do not name."""
    named, done = set(), {*applied}
    for line in lines:
        named |= {one["request"] for one in line.get("accepted", ())}
        done |= {*line.get("receipts", ())}
    return done - named


def _require_newest_database(context: Context, known: Mark) -> None:
    """Refuse a database that may be older than the log was.

    ``known`` is its mark. A log or a mark file of a later number was written after it.
    Of the same number, the mark file says how long the log was, and the part that the
    database does not know of must be intact.
    """
    newest = context.log.read_mark_file()
    number = max(newest.number, context.log.read_number())
    if number > known.number or (
        newest.number == known.number
        and newest.end >= known.end
        and newest != known
        and not _holds_lines(context, known.end, end=newest.end)
    ):
        raise NeedsRestore(
            f"the journal held {newest.end} bytes (rebuilds: {number}), and the "
            f"database knows of {known.end} (rebuilds: {known.number}): it was "
            "put back from a backup, and nobody can tell who was forgotten since; put "
            "back the newest copy of the journal"
        )


def _holds_lines(context: Context, start: int, *, end: int) -> bool:
    """Return whether the log has intact lines from one position to another."""
    try:
        return end in [place for place, _ in context.log.read(start)]
    except JournalDamaged:
        return False


def _require_store_knows(connection: Connection, lines: Sequence[Content]) -> None:
    """Refuse a store that does not know the outcome of a request, fit or removal."""
    expired = read_last_expiry(connection)
    completed = sorted(
        {
            id_
            for line in lines
            if STATEMENT in line and Head.from_json(line["head"]).day >= expired
            for id_ in line["receipts"]
        }
    )
    there = find_requests(connection, completed)
    lost = [
        request
        for request in completed
        if request not in there or there[request].stage == ACCEPTED
    ]
    texts = (text for line in lines for text in line.get(STATEMENT, ()))
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


def _complete(connection: Connection, intact: Sequence[Content]) -> Iterator[Content]:
    """Yield intact lines with those that are lost, statements in their order."""
    stated = {
        read_entry(line[STATEMENT][0]).sequence for line in intact if STATEMENT in line
    }
    # Of what a snapshot stands for nothing is lost.
    first = max(
        (line[SNAPSHOT]["size"] for line in intact if SNAPSHOT in line), default=0
    )
    lost = [
        line
        for line in _statement_lines(connection)
        if read_entry(line[STATEMENT][0]).sequence not in stated
        and read_entry(line[STATEMENT][0]).sequence >= first
    ]
    lost.reverse()
    for line in intact:
        if STATEMENT in line:
            place = read_entry(line[STATEMENT][0]).sequence
            while lost and read_entry(lost[-1][STATEMENT][0]).sequence < place:
                yield lost.pop()
        yield line
    yield from reversed(lost)
    accepted = {one["request"] for line in intact for one in line.get("accepted", ())}
    waiting = read_stage(connection, ACCEPTED)
    new = [line.request for line in waiting if line.request not in accepted]
    if new:
        found = find_requests(connection, new)
        tags = read_tags(connection, new)
        near = read_tags(connection, new, near=True)
        asked = [to_line(found[id_], tags[id_], near=near[id_]) for id_ in new]
        rows = people_table.read_waiting(connection, new)
        yield accepted_line(asked, [dict(one._mapping) for one in rows])
    yield from (line for line in _other_lines(connection) if line not in intact)


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
        completed = find_requests(connection, done)
        times = [one.completed or 0 for one in completed.values()]
        yield {
            STATEMENT: [one.to_json() for one in entries],
            "head": text,
            "time": max(times, default=midnight(head.day)),
            # Those that are not there have expired.
            "receipts": {id_: _read_signed(connection, id_) for id_ in completed},
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
    text = read_receipts(connection, [request]).get(request, "")
    receipt = Receipt.from_json(text)
    return {"signature": receipt.signature, "handling": receipt.handling.to_json()}


def _is_fit(certificate: str) -> bool:
    """Return whether a release is the first one of a fit."""
    return Certificate.from_json(certificate).is_of_a_fit


def _other_lines(connection: Connection) -> Iterator[Content]:
    """Yield as lines rules, decisions, what was cancelled, and which releases left."""
    rules = read_rules_line(connection)
    if rules is not None:
        yield rules
    yield from read_decision_lines(connection)
    every = [[*one] for one in exclusions_table.read_all_excluded(connection)]
    for some in chunks(every, EXCLUDED_AT_ONCE):
        yield {"excluded": {"lines": some, "lifted": []}}
    for one in read_stage(connection, CANCELLED):
        yield {"cancelled": {"request": one.request}}
    for line in releases_table.read_shipments(connection):
        which = {"model": line.model, "number": line.number}
        yield {"shipped": which | {"time": line.time, "name": line.name}}
        if line.withdrawn is not None:
            yield {"withdrawn": which | {"time": line.withdrawn}}
