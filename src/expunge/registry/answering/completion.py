# SPDX-License-Identifier: Apache-2.0
"""Completion: what is committed is erased from disk, and the ledger says so.

The write-ahead log is truncated, old keys are destroyed, then entries, head and
receipts go into the journal and, in one transaction, into the store. Each step can be
repeated, and the next worker begins with what is left of them.

That copies of a release were taken back changes nothing else: it is stated at once.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias

from sqlalchemy import Connection

from ...exceptions import InvalidInput
from ...ledger import (
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
    RequestExtended,
    issue_receipt,
)
from ...ledger.documents import DAY, day_of, midnight
from ...ledger.entries import EXTENSIONS
from ...ledger.receipts import describe_guarantee, list_destroyed
from ...promise.certificate import Certificate
from ...promise.scope import leaves_files
from ...rights.regimes import extended_deadline, legal_basis, regime_named
from ...rights.standing import BY_OPERATOR
from ..context import Context, erase_deleted, next_entry_time, read_ledger, today
from ..keys import find_signing_key
from ..statements import Statement, write_statement
from ..storage import releases_table, requests_table
from ..storage.aside_table import ENDED, is_aside
from ..storage.ledger_table import LedgerBatch
from ..storage.releases_table import ReleaseStatus
from ..storage.requests_table import Answered
from ..storage.tables import read_metadata
from .pending_rows import destroy_pending_keys

Certificates: TypeAlias = dict[tuple[str, int], tuple[Certificate, str]]
"""For a model and the number of a release, its certificate and the digest."""


@dataclass(frozen=True, slots=True)
class Unstated:
    """What is committed and not in the ledger yet.

    Attributes
    ----------
    waiting
        Requests that are not applied.
    applied, releases, removed
        Requests that are, releases, and models that were removed.
    ended
        Requests whose rows were held, and are erased.
    ledger
        Where the ledger stands; None if there is nothing to state.
    checkpoints
        The file of each model's checkpoint; empty if the model was removed.
    """

    waiting: Sequence[Any]
    applied: Sequence[Any]
    releases: Sequence[Any]
    removed: Sequence[Any]
    ended: Sequence[str]
    ledger: Ledger | None
    checkpoints: Mapping[str, str]

    @property
    def has_asides(self) -> bool:
        """Whether rows are set aside, or were."""
        return any(map(is_aside, self.checkpoints))


def finish_committed(
    context: Context, wait: float, *, pending: Sequence[Any] | None = None
) -> Unstated:
    """Complete what was committed, if anything; return what was found.

    A checkpoint may have been replaced without a request or a release, for instance by
    ``reanchor``: then there is nothing to state, but an old key to destroy.

    ``pending`` are the requests that are not completed, if they were just read.
    """
    with context.store.read(snapshot=False) as connection:
        if pending is None:
            pending = requests_table.read_pending(connection)
        unstated = _read_unstated(context, connection, pending=pending)
    ledger = unstated.ledger
    if ledger is None and context.checkpoints.is_clean(unstated.checkpoints):
        context.stated = unstated.checkpoints
        return unstated
    with erase_deleted(context, wait):
        statement = (
            _make_statement(context, LedgerBatch(ledger), unstated=unstated)
            if ledger is not None
            else None
        )
        rectified = [one.id for one in unstated.applied if one.right == "rectify"]
        destroy_pending_keys(context, rectified)
    if statement is not None:
        write_statement(context, statement)
    context.stated = unstated.checkpoints
    return unstated


def _read_unstated(
    context: Context, connection: Connection, *, pending: Sequence[Any]
) -> Unstated:
    """Return what is committed and not in the ledger yet."""
    stages: dict[str, list[Any]] = {
        stage: [line for line in pending if line.stage == stage]
        for stage in (requests_table.ACCEPTED, requests_table.APPLIED)
    }
    waiting, applied = stages.values()
    if context.stated is not None and not applied:
        return Unstated(waiting, (), (), (), (), None, context.stated)
    models = releases_table.read_unentered(connection)
    releases = [line for line in models if line.digest is not None]
    checkpoints = {line.name: line.checkpoint for line in models}
    removed: Sequence[Any] = ()
    if not all(checkpoints.values()):
        removed = releases_table.removals_without_entry(connection)
    ended: Sequence[str] = ()
    if any(map(is_aside, checkpoints)):
        ended = read_metadata(connection, ENDED).split()
    anything = applied or releases or removed or ended
    ledger = read_ledger(context, connection) if anything else None
    return Unstated(waiting, applied, releases, removed, ended, ledger, checkpoints)


def _make_statement(
    context: Context, batch: LedgerBatch, *, unstated: Unstated
) -> Statement:
    """Return the statement about what was applied, with entries and receipts."""
    applied, releases = unstated.applied, unstated.releases
    times = [line.accepted for line in applied]
    times += [line.removed for line in unstated.removed]
    latest = max(times, default=0)
    time = next_entry_time(batch.ledger, latest)
    day = day_of(time)
    certificates, fitted = {}, []
    for line in releases:
        _append_release(batch, line, day=day)
        certificate = Certificate.from_json(line.certificate)
        certificates[line.model, line.number] = (certificate, line.digest)
        if certificate.is_of_a_fit:
            fitted.append(line.model)
    completed = [
        _append_request(batch, line, certificates=certificates, day=day)
        for line in applied
    ]
    handlings = _describe_handlings(context, completed, unstated=unstated, day=day)
    for line in unstated.removed:
        entry = ModelRemoved(
            sequence=batch.ledger.size,
            day=day,
            model=line.name,
            certificate=line.digest,
        )
        batch.append(entry)
    for request in unstated.ended:
        batch.append(HoldEnded(sequence=batch.ledger.size, day=day, request=request))
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
    texts = {line.digest: line.certificate for line in releases}
    return Statement(batch, head, time, receipts, fitted, texts)


def _append_release(batch: LedgerBatch, line: Any, *, day: str) -> None:
    """Append what happened to a model: it is new, or a release superseded another."""
    kind = ModelRegistered if line.before is None else ReleaseMade
    made = kind(
        sequence=batch.ledger.size, day=day, model=line.model, certificate=line.digest
    )
    batch.append(made)
    if line.before is not None:
        # Earlier ones were superseded in earlier entries.
        entry = ReleasesSuperseded(
            sequence=batch.ledger.size,
            day=day,
            model=line.model,
            certificates=(line.before,),
            by=line.digest,
        )
        batch.append(entry)


def _append_request(
    batch: LedgerBatch, line: Any, *, certificates: Certificates, day: str
) -> tuple[RequestCompleted, dict[str, Certificate]]:
    """Append that a request is done; return the entry with its certificates."""
    numbers: dict[str, int] = json.loads(line.releases)
    named = {name: certificates[name, number] for name, number in numbers.items()}
    entry = RequestCompleted(
        sequence=batch.ledger.size,
        day=day,
        request=line.id,
        certificates={name: digest for name, (_, digest) in named.items()},
        n_subjects=line.n_subjects,
        submitted=line.submitted,
        accepted=day_of(line.accepted),
        deadline=day_of(line.deadline),
        right=line.right,
        regime=line.regime,
        outcome=line.outcome,
        reason=line.reason,
    )
    batch.append(entry)
    return entry, {name: certificate for name, (certificate, _) in named.items()}


def _describe_handlings(
    context: Context,
    completed: Sequence[tuple[RequestCompleted, Mapping[str, Certificate]]],
    *,
    unstated: Unstated,
    day: str,
) -> list[Handling]:
    """Return what was done about each request, as an officer needs to know it."""
    models = sorted({name for _, named in completed for name in named})
    shipped: list[ReleaseStatus] = []
    if any(line.has_left for line in unstated.releases):
        with context.store.read(snapshot=False) as connection:
            shipped = releases_table.shipped_releases(connection)
    copies = {
        name: tuple(
            file
            for one in shipped
            if one.model == name and one.is_outstanding
            for _, file in one.shipped
        )
        for name in models
    }
    days = context.settings.backup_days
    until = "" if days is None else day_of(midnight(day) + days * DAY)
    # Rows that were set aside may be of any model.
    unnamed = any(not named for _, named in completed)
    anywhere = unnamed and _has_rows_in_files(context)
    return [
        _describe_handling(
            entry,
            named,
            line=line,
            until=until,
            in_files=any(leaves_files(one.not_covered) for one in named.values())
            or (anywhere and not named),
        ).with_copies({name: copies[name] for name in named})
        for (entry, named), line in zip(completed, unstated.applied, strict=True)
    ]


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
    line: Any,
    until: str,
    in_files: bool,
) -> Handling:
    """Return what was done about one request, but for copies that are out there."""
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
        copies={},
        extended=line.extended,
        notified=line.notified,
        guarantee=describe_guarantee(entry.right, named.values()),
    )


def refuse_request(context: Context, request: str, *, reason: str, wait: float) -> None:
    """Answer a waiting request with a refusal; the lock is held."""
    if reason not in BY_OPERATOR:
        raise InvalidInput(
            f"reason={reason!r}; to refuse a request, give one of "
            f"{', '.join(BY_OPERATOR)}"
        )
    answers = {request: Answered({}, "refused", reason)}
    with context.write_in_turn() as connection:
        requests_table.mark_applied(connection, answers)
    finish_committed(context, wait)


def state_extension(
    context: Context, request: str, *, reason: str, notified: date
) -> None:
    """Enter in the ledger that a deadline was extended; the lock is held."""
    if reason not in EXTENSIONS:
        raise InvalidInput(
            f"reason={reason!r}; a deadline is extended because the request is "
            f"'complex', or because there are 'many'"
        )
    with context.store.read() as connection:
        (line,) = requests_table.find_requests(connection, [request]).values()
        batch = LedgerBatch(read_ledger(context, connection))
    if line.extended:
        raise InvalidInput(
            f"the deadline of request {request} was extended before; no law extends "
            "it twice"
        )
    first = day_of(line.deadline)
    if not line.submitted <= notified.isoformat() <= first:
        raise InvalidInput(
            f"notified={notified}; the person must be told between the day they asked "
            f"({line.submitted}) and the first deadline ({first})"
        )
    if notified > today():
        raise InvalidInput(
            f"notified={notified}, which is after today; tell the person first"
        )
    time = next_entry_time(batch.ledger, line.accepted)
    later = extended_deadline(line.submitted, regime_named(line.regime))
    entry = RequestExtended(
        sequence=batch.ledger.size,
        day=day_of(time),
        request=request,
        reason=reason,
        notified=notified.isoformat(),
        deadline=later.isoformat(),
    )
    state_entry(context, batch, entry=entry, time=time)


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
