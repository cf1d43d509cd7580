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
from typing import Any, TypeAlias

from sqlalchemy import Connection

from ..exceptions import InvalidInput
from ..ledger import (
    Ledger,
    ModelRegistered,
    ModelRemoved,
    ReleaseMade,
    ReleasesSuperseded,
    ReleaseWithdrawn,
    RequestCompleted,
    issue_receipt,
)
from ..ledger.documents import day_of
from ..promise.certificate import Certificate
from .context import Context, erase_deleted, next_entry_time, read_ledger
from .keys import find_signing_key
from .statements import Statement, write_statement
from .storage import releases_table, requests_table
from .storage.ledger_table import LedgerBatch

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
    ledger
        Where the ledger stands; None if there is nothing to state.
    checkpoints
        The file of each model's checkpoint; empty if the model was removed.
    """

    waiting: Sequence[Any]
    applied: Sequence[Any]
    releases: Sequence[Any]
    removed: Sequence[Any]
    ledger: Ledger | None
    checkpoints: Mapping[str, str]


def finish_committed(context: Context, wait: float) -> Sequence[Any]:
    """Complete what was committed, if anything; return the requests that wait.

    A checkpoint may have been replaced without a request or a release, for instance by
    ``reanchor``: then there is nothing to state, but an old key to destroy.
    """
    with context.store.read() as connection:
        unstated = _read_unstated(context, connection)
    ledger = unstated.ledger
    if ledger is None and context.checkpoints.is_clean(unstated.checkpoints):
        return unstated.waiting
    with erase_deleted(context, wait):
        statement = (
            _make_statement(context, LedgerBatch(ledger), unstated=unstated)
            if ledger is not None
            else None
        )
    if statement is not None:
        write_statement(context, statement)
    return unstated.waiting


def _read_unstated(context: Context, connection: Connection) -> Unstated:
    """Return what is committed and not in the ledger yet."""
    pending = requests_table.read_pending(connection)
    stages: dict[str, list[Any]] = {
        stage: [line for line in pending if line.stage == stage]
        for stage in (requests_table.ACCEPTED, requests_table.APPLIED)
    }
    waiting, applied = stages.values()
    releases = releases_table.releases_without_entry(connection)
    checkpoints = releases_table.read_all_checkpoints(connection)
    removed: Sequence[Any] = ()
    if not all(checkpoints.values()):
        removed = releases_table.removals_without_entry(connection)
    anything = applied or releases or removed
    ledger = read_ledger(context, connection) if anything else None
    return Unstated(waiting, applied, releases, removed, ledger, checkpoints)


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
    for line in unstated.removed:
        entry = ModelRemoved(
            sequence=batch.ledger.size,
            day=day,
            model=line.name,
            certificate=line.digest,
        )
        batch.append(entry)
    key = find_signing_key(context.paths, batch.ledger.keys.current)
    head = batch.ledger.head(key, day)
    receipts = [
        issue_receipt(entry, named, head=head, proof=batch.proof(entry), key=key)
        for entry, named in completed
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
        accepted=day_of(line.accepted),
        deadline=day_of(line.deadline),
    )
    batch.append(entry)
    return entry, {name: certificate for name, (certificate, _) in named.items()}


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
    batch.append(entry)
    key = find_signing_key(context.paths, batch.ledger.keys.current)
    head = batch.ledger.head(key, entry.day)
    write_statement(context, Statement(batch, head, time))
