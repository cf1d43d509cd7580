# SPDX-License-Identifier: Apache-2.0
"""Completion: what is committed is erased from disk, and the ledger says so.

What the ledger must be told is written by the transaction that it tells of, into the
table ``unstated``. The write-ahead log is truncated, old keys are destroyed, then those
entries get their number and day, and go with head and receipts into the journal and, in
one transaction, into the store. Each step can be repeated, and the next worker begins
with what is left of them.

That copies of a release were taken back changes nothing else: it is stated at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import Connection

from ..exceptions import InvalidInput
from ..ledger import (
    Entry,
    EntryProof,
    Handling,
    HoldEnded,
    Ledger,
    ModelRegistered,
    ModelRemoved,
    ReleaseMade,
    ReleasesSuperseded,
    ReleaseWithdrawn,
    RequestCompleted,
    issue_receipt,
    read_entry,
)
from ..ledger.documents import DAY, FIRST_DAY, day_of, midnight
from ..ledger.receipts import (
    EXCLUSIONS,
    TOLD,
    describe_guarantee,
    list_destroyed,
    state_exclusion,
    state_method,
)
from ..promise.certificate import Certificate
from ..promise.scope import leaves_files
from ..rights.regimes import legal_basis, regime_named
from .context import (
    Context,
    erase_deleted,
    keep_head,
    next_entry_time,
    read_ledger,
    settle_keys,
    write_statement,
)
from .keys import find_signing_key
from .request import RequestStatus, find_requests
from .statements import (
    MADE,
    Statement,
    add_unstated,
    read_unstated,
)
from .storage import releases_table
from .storage.keystore import Counts, read_counts, read_dead
from .storage.ledger_table import LedgerBatch
from .storage.releases_table import ReleaseStatus

NO_CERTIFICATES: Mapping[str, Mapping[str, str]] = MappingProxyType({})


def finish_committed(
    context: Context, wait: float, *, counts: Counts | None = None
) -> None:
    """Erase what was deleted, and state what the store says must be stated.

    A checkpoint may have been replaced without a request or a release, for instance by
    ``reanchor``: then there is nothing to state, but an old key to destroy. ``counts``
    is what the store says of keys, if that was just read.
    """
    if counts is not None and not counts.is_left:
        if counts.made == context.keystore.end():
            return
    left = _read_left(context)
    if left.made != context.keystore.end():
        settle_keys(context)
        left = _read_left(context)
    if not left.rows and not left.dead:
        return
    if left.rows:
        keep_head(context)  # or nothing is signed
    with erase_deleted(context, wait, dead=left.dead) as note_erased:
        statement = _make_statement(context, left) if left.rows else None
    if statement is not None:
        write_statement(context, statement, also=note_erased)
        context.answered, context.certificates = {}, {}
    else:
        with context.log.batch() as connection:
            note_erased(connection)


class _Left(NamedTuple):
    """What is committed, and not yet erased or stated.

    Attributes
    ----------
    made
        The number after the last key that is counted.
    dead
        Keys to destroy.
    rows
        What the ledger must be told.
    ledger, shipped
        Where the ledger stands, and the releases that left.
    """

    made: int
    dead: Sequence[int]
    rows: Sequence[Any]
    ledger: Ledger
    shipped: Sequence[ReleaseStatus]


def _read_left(context: Context) -> _Left:
    """Return what is left, at one moment: who states after it has our numbers."""
    with context.store.read() as connection:
        rows = read_unstated(connection)
        return _Left(
            read_counts(connection).made,
            read_dead(connection),
            rows,
            read_ledger(context, connection),
            releases_table.shipped_releases(connection) if rows else (),
        )


def state_releases(connection: Connection, names: Sequence[str]) -> None:
    """Have the newest releases of models stated; the transaction made them."""
    entries = [
        entry
        for line in releases_table.read_newest_digests(connection, names)
        for entry in release_entries(line.name, line.digest, before=line.before)
    ]
    add_unstated(connection, entries, earliest=[0] * len(entries))


def release_entries(
    model: str, certificate: str, *, before: str | None
) -> Iterator[Entry]:
    """Yield the entries about a release, in place of the one before if there is one.

    Both are digests of certificates.
    """
    kind = ModelRegistered if before is None else ReleaseMade
    yield kind(sequence=0, day=FIRST_DAY, model=model, certificate=certificate)
    if before is not None:
        # Earlier ones were superseded in earlier entries.
        yield ReleasesSuperseded(
            sequence=0,
            day=FIRST_DAY,
            model=model,
            certificates=(before,),
            by=certificate,
        )


def state_answers(
    connection: Connection,
    answered: Sequence[RequestStatus],
    *,
    certificates: Mapping[str, Mapping[str, str]] = NO_CERTIFICATES,
    releases: Sequence[Entry] = (),
) -> None:
    """Have those requests stated that the transaction answers.

    With the digests of the certificates that each led to, by request and model, and
    after the entries about ``releases`` that it made.
    """
    entries = [
        RequestCompleted(
            sequence=0,
            day=day_of(one.accepted),
            request=one.request,
            certificates=certificates.get(one.request, {}),
            n_subjects=one.n_subjects,
            submitted=one.submitted,
            accepted=day_of(one.accepted),
            deadline=day_of(one.deadline),
            right=one.right,
            regime=one.regime,
            outcome=one.outcome or "done",
            reason=one.reason,
        )
        for one in answered
    ]
    earliest = [0] * len(releases) + [one.accepted for one in answered]
    add_unstated(connection, [*releases, *entries], earliest=earliest)


def state_removal(connection: Connection, name: str, *, time: int) -> None:
    """Have it stated that a model was removed; the transaction does that."""
    (line,) = releases_table.read_newest_digests(connection, [name])
    entry = ModelRemoved(sequence=0, day=FIRST_DAY, model=name, certificate=line.digest)
    add_unstated(connection, [entry], earliest=[time])


def state_ended_holds(connection: Connection, requests: Sequence[str]) -> None:
    """Have it stated that rows which requests held are erased."""
    entries = [HoldEnded(sequence=0, day=FIRST_DAY, request=one) for one in requests]
    add_unstated(connection, entries, earliest=[0] * len(entries))


def _make_statement(context: Context, left: _Left) -> Statement:
    """Return the statement of what must be stated, with the receipts of requests."""
    pending = [read_entry(row.text) for row in left.rows]
    done = [one.request for one in pending if isinstance(one, RequestCompleted)]
    digests = [one.certificate for one in pending if isinstance(one, MADE)]
    requests, texts = context.answered, context.certificates
    if not requests.keys() >= {*done} or texts.keys() != {*digests}:
        with context.store.read() as connection:
            requests = find_requests(connection, done)
            texts = releases_table.read_certificates(connection, digests)
    batch = LedgerBatch(left.ledger)
    time = next_entry_time(batch.ledger, max(row.earliest for row in left.rows))
    day = day_of(time)
    for entry in pending:
        batch.append(entry.replace(sequence=batch.ledger.size, day=day))
    entries = [entry for entry, _ in batch.entries]
    certificates = {one: Certificate.from_json(text) for one, text in texts.items()}
    completed = [
        (entry, {name: certificates[one] for name, one in entry.certificates.items()})
        for entry in entries
        if isinstance(entry, RequestCompleted)
    ]
    handlings = _describe_handlings(
        context, completed, requests=requests, shipped=left.shipped, day=day
    )
    key = find_signing_key(context.paths, batch.ledger.keys.current)
    head = batch.ledger.head(key, day)
    receipts = [
        issue_receipt(
            entry,
            named,
            handling=handling,
            place=EntryProof(head, batch.proof(entry)),
            key=key,
        )
        for (entry, named), handling in zip(completed, handlings, strict=True)
    ]
    fitted = [
        one.model
        for one in entries
        if isinstance(one, MADE) and certificates[one.certificate].is_of_a_fit
    ]
    return Statement(batch, head, time, receipts, fitted, texts)


def _describe_handlings(
    context: Context,
    completed: Sequence[tuple[RequestCompleted, Mapping[str, Certificate]]],
    *,
    requests: Mapping[str, RequestStatus],
    shipped: Sequence[ReleaseStatus],
    day: str,
) -> list[Handling]:
    """Return what was done about each request, as an officer needs to know it."""
    models = sorted({name for _, named in completed for name in named})
    copies = {
        name: tuple(
            file
            for one in shipped
            if one.model == name and one.is_outstanding
            for _, file in one.shipped
        )
        for name in models
    }
    settings = context.settings
    until = _add_days(day, settings.backup_days)
    excluded_until = _add_days(day, settings.excluded_days)
    # Rows that were set aside may be of any model.
    unnamed = any(not named for _, named in completed)
    anywhere = unnamed and _has_rows_in_files(context)
    return [
        _describe_handling(
            entry,
            named,
            line=requests[entry.request],
            until=until,
            in_files=any(leaves_files(one.not_covered) for one in named.values())
            or (anywhere and not named),
            copies={name: copies[name] for name in named},
            excluded_until=excluded_until,
            recipients=settings.recipients,
        )
        for entry, named in completed
    ]


def _add_days(day: str, days: int | None) -> str:
    """Return the day some days later; empty if it is not known how many."""
    return "" if days is None else day_of(midnight(day) + days * DAY)


def _has_rows_in_files(context: Context) -> bool:
    """Return whether the rows of any model lie in files."""
    with context.store.read() as connection:
        names = releases_table.model_names(connection)
        newest = releases_table.read_newest_certificates(connection, names).values()
    texts = [line.certificate for line in newest]
    return any(leaves_files(Certificate.from_json(one).not_covered) for one in texts)


def _describe_handling(
    entry: RequestCompleted,
    named: Mapping[str, Certificate],
    *,
    line: RequestStatus,
    until: str,
    in_files: bool,
    copies: Mapping[str, tuple[str, ...]],
    excluded_until: str,
    recipients: tuple[str, ...],
) -> Handling:
    """Return what was done about one request; ``copies`` are still out there."""
    exclusion = state_exclusion(entry.right, entry.outcome, until=excluded_until)
    # Nothing found is nothing passed on, as far as the operator knows.
    tells = entry.right in TOLD and entry.outcome in ("done", "partly")
    destroyed = list_destroyed(
        entry.right,
        entry.outcome,
        reason=entry.reason,
        changed=bool(named),
        in_files=in_files,
    )
    return Handling(
        basis=legal_basis(entry.right, regime_named(entry.regime)) or "",
        destroyed=destroyed,
        backups_until=until if destroyed else "",
        retained=line.retained,
        retained_until=line.retained_until,
        copies=copies,
        extended=line.extended,
        notified=line.notified,
        guarantee=describe_guarantee(entry.right, named.values()),
        method=state_method(exclusion, named.values()),
        exclusion=exclusion,
        excluded_until=excluded_until if exclusion == EXCLUSIONS[-1] else "",
        recipients=recipients if tells else (),
    )


def state_entry(
    context: Context, batch: LedgerBatch, *, entry: Entry, time: int
) -> None:
    """Sign and write an entry that completes no request."""
    batch.append(entry)
    key = find_signing_key(context.paths, batch.ledger.keys.current)
    head = batch.ledger.head(key, day_of(time))
    write_statement(context, Statement(batch, head, time))


def state_withdrawal(context: Context, name: str, *, number: int) -> None:
    """Enter in the ledger that no copy of a release is in use; the lock is held."""
    with context.store.read() as connection:
        line = releases_table.find_release(connection, name, number=number)  # or refuse
        shipped = releases_table.shipped_releases(connection, name)
        batch = LedgerBatch(read_ledger(context, connection))
    left = [one for one in shipped if one.number == number]
    if not left:
        raise InvalidInput(
            f"release {number} of model {name!r} was never shipped, so there is "
            "nothing to withdraw; see status"
        )
    # No earlier than it left, even by a slow clock: it is back.
    time = next_entry_time(batch.ledger, left[0].shipped[-1][0])
    entry = ReleaseWithdrawn(
        sequence=batch.ledger.size,
        day=day_of(time),
        model=name,
        certificate=line.digest,
    )
    state_entry(context, batch, entry=entry, time=time)
