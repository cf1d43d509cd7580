# SPDX-License-Identifier: Apache-2.0
"""Worker: what the one process does that holds the lock.

It first finishes what another process left, then applies all waiting requests as one
batch. Requests that are sent meanwhile wait for the lock and are applied next. A
request that cannot be applied does not hold up the others: the batch is halved until it
is alone, and it stays accepted.

**Applying.** Requests that wait together change each model once. Everything is computed
first, and the new checkpoint is on disk before anything refers to it. One transaction
then makes it current, writes the release, supersedes those before it, and deletes the
rows and the tags. A reader finds all of it or nothing, so a crash neither loses a
request nor applies one twice, and rows are deleted together with the checkpoint that
needs them.

What was applied is then completed, see ``completion``.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import Connection

from ..core.arrays import Index, Private
from ..core.objective import Rows
from ..display.progress import OnProgress
from ..exceptions import (
    Busy,
    ExpungeError,
    NeedsRestore,
    ScheduleExhausted,
    StoreFailed,
)
from ..ledger import (
    UnusableKey,
)
from ..private_model.answers import REFUSALS
from ..private_model.model import PrivateModel
from ..private_model.snapshot import PublicModel
from .completion import finish_committed
from .context import Context, now
from .keys import tidy_keys
from .loaded_model import (
    LoadedModel,
    dump_checkpoint,
    dump_public,
    load_rows,
    make_fetch,
)
from .recovery import replay_journal
from .storage import aliases_table, people_table, releases_table, requests_table
from .storage.people_table import Pages, RemainingKeys, SealedRows, sort_rows

# Requests in a batch at most: their receipts are written together.
BATCH = 5000
# Errors of the store, not of a request.
OF_THE_STORE = (Busy, StoreFailed, NeedsRestore, UnusableKey)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Change(Private):
    """A model before and after, with what a transaction must write."""

    before: LoadedModel
    after: LoadedModel
    keys: RemainingKeys

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.before.name

    def write(self, connection: Connection) -> None:
        """Write the model as it is after."""
        name, number, public = self.name, self.after.number, self.after.snapshot.public
        people_table.delete_people(connection, name, remaining=self.keys)
        write_release(connection, name, number=number, public=public)
        after = {"checkpoint": self.after.checkpoint, "number": number}
        releases_table.advance_model(
            connection, name, generation=self.before.generation, after=after
        )


def be_silent(done: int, total: int) -> None:
    """Report no progress."""


def apply_batch(
    context: Context, waiting: Sequence[str], *, on_progress: OnProgress = be_silent
) -> dict[str, ExpungeError]:
    """Apply requests as one batch, all of them or none.

    Each model is a step, and so is the rest. Returns those that were left out because a
    model that they concern may not be released any more: that is known before anything
    is computed.
    """
    with context.store.read() as connection:
        asked = people_table.find_asked_rows(connection, waiting)
        concerned: dict[str, set[str]] = {request: set() for request in waiting}
        for request, name, _ in asked:
            concerned[request].add(name)
        named = sorted(set().union(*concerned.values()))
        texts = releases_table.read_certificates(connection, named)
        spent = {name for name, text in texts.items() if _is_spent(text)}
        stuck: dict[str, ExpungeError] = {
            request: _schedule_exhausted(min(models & spent))
            for request, models in concerned.items()
            if models & spent
        }
        members: dict[str, dict[int, SealedRows]] = {}
        for request, name, found in asked:
            if request not in stuck:
                members.setdefault(name, {})[found.subject] = found
        removals = [
            read_removal(context, name, found=[*members[name].values()])
            for name in sorted(members)
        ]
    changes: list[Change] = []
    for removal in removals:
        on_progress(len(changes), len(removals) + 1)
        changes.append(change_model(context, removal))
    on_progress(len(changes), len(removals) + 1)
    numbers = {change.name: change.after.number for change in changes}
    made = {
        request: {name: numbers[name] for name in sorted(models)}
        for request, models in concerned.items()
        if request not in stuck
    }
    commit_changes(context, changes, made=made)
    return stuck


def _is_spent(certificate: str) -> bool:
    """Return whether all releases that the budget planned are made."""
    stated = json.loads(certificate)
    planned = stated["releases"]
    return planned is not None and stated["n_releases"] >= planned


def _schedule_exhausted(name: str) -> ScheduleExhausted:
    return ScheduleExhausted(
        f"all planned releases of model {name!r} have been made; fit it again under a "
        "new budget, and the waiting requests will be applied to it"
    )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Removal(Private):
    """A model, the sealed rows of people to remove from it, and the pages of keys."""

    before: LoadedModel
    found: Sequence[SealedRows]
    pages: Pages


def read_removal(
    context: Context, name: str, *, found: Sequence[SealedRows]
) -> Removal:
    """Return a model and what must be read to remove people's rows from it."""
    with context.store.read() as connection:
        before = _require_release(context, name)
        pages = people_table.read_pages(
            connection, name, found=found, page_keys=before.page_keys
        )
    if not found:
        raise releases_table.model_changed_error(name)
    return Removal(before, sort_rows(found), pages)


def change_model(context: Context, removal: Removal) -> Change:
    """Return a model without some people; its checkpoint is written, to no effect."""
    before, found, pages = removal.before, removal.found, removal.pages
    name = before.name
    keys = people_table.keys_without(
        name, found, pages=pages, page_keys=before.page_keys
    )
    removed, gone = load_rows(people_table.unseal_rows(name, found, pages=pages))
    private = _forget_rows(
        context, before, removed=removed, gone=gone, n_people=len(found)
    )
    if private.training_rows is not None:
        private.training_rows.erase(gone)
    fetch = make_fetch(partial(context.read_rows, name), keys.page_keys)
    return _make_change(
        context, before, private=replace(private, fetch=fetch), keys=keys
    )


def release_again(context: Context, name: str) -> Change:
    """Return a model with another release, about the same people.

    Its newest release was charged, and its parameters are lost.
    """
    before = _require_release(context, name)
    keys = RemainingKeys([], {}, before.page_keys)
    return _make_change(context, before, private=before.private, keys=keys)


def _require_release(context: Context, name: str) -> LoadedModel:
    """Return a model; raise ScheduleExhausted if its budget allows no release."""
    loaded = context.load_model(name)
    if loaded.private.accountant.remaining() == 0:
        raise _schedule_exhausted(name)
    return loaded


def _make_change(
    context: Context, before: LoadedModel, *, private: PrivateModel, keys: RemainingKeys
) -> Change:
    """Return a model with the release of its next state, and write the checkpoint."""
    snapshot = before.snapshot.release(private)
    data = dump_checkpoint(snapshot, keys.page_keys)
    generation = before.generation + 1
    after = LoadedModel(
        before.name,
        generation,
        context.checkpoints.write(before.name, generation, parts=data),
        before.number + 1,
        snapshot,
        keys.page_keys,
    )
    return Change(before, after, keys)


def _forget_rows(
    context: Context, loaded: LoadedModel, *, removed: Rows, gone: Index, n_people: int
) -> PrivateModel:
    """Return a private model without some rows; the one in memory is given up.

    It need not be copied: should anything fail, there is the one on disk.
    """
    context.cache.pop(loaded.name, None)
    try:
        return loaded.private.forget(
            removed, gone=gone, n_subjects=n_people, spend=True
        )
    except REFUSALS:
        account = loaded.private.accountant  # which may have been charged since
        fresh = context.load_model(loaded.name).private
        fresh = replace(fresh, accountant=account).with_noise()
        return fresh.forget(removed, gone=gone, n_subjects=n_people)


def commit_changes(
    context: Context,
    changes: Sequence[Change],
    *,
    made: Mapping[str, Mapping[str, int]],
    before: Callable[[Connection], None] | None = None,
    after: Callable[[Connection], None] = lambda connection: None,
) -> None:
    """Write changed models and move requests on, in one transaction.

    Parameters
    ----------
    context
        The registry.
    changes
        What happens to models.
    made
        For each request the number of the release that each model gets by it.
    before, after
        What else to write, before these and after.
    """

    def write(connection: Connection) -> None:
        for change in changes:
            change.write(connection)
        aliases_table.delete_asked_aliases(connection, list(made))
        requests_table.mark_applied(connection, made)

    ledger = context.ledger if before is None else None
    try:
        with context.write_in_turn(*([write] if before is None else [])) as connection:
            if before is not None:
                before(connection)
                write(connection)
            after(connection)
    except BaseException:
        # Only the store knows now whether it was committed.
        for change in changes:
            context.cache.pop(change.name, None)
        raise
    context.ledger = ledger  # which these writes do not touch
    for change in changes:
        context.remember(change.after)


def write_release(
    connection: Connection, name: str, *, number: int, public: PublicModel
) -> None:
    """Write a release of a model, in place of the one before."""
    certificate = public.release.certificate
    releases_table.insert_release(
        connection,
        {
            "model": name,
            "number": number,
            "made": now(),
            "certificate": certificate.to_json(),
            "digest": certificate.digest(),
            "content": dump_public(public),
        },
    )


def apply_waiting(
    context: Context, wait: float, *, on_progress: OnProgress
) -> dict[str, ExpungeError]:
    """Apply all waiting requests; return those that could not be, and why."""
    waiting = recover(context, wait)
    if not waiting:
        context.require_turn()  # or another process may have applied them
    failed: dict[str, ExpungeError] = {}
    starts = range(0, len(waiting), BATCH)
    for place, start in enumerate(starts):
        report = _report_batch(on_progress, place, n_batches=len(starts))
        batch = [line.id for line in waiting[start : start + BATCH]]
        failed |= _apply_or_halve(context, batch, wait=wait, on_progress=report)
        finish_committed(context, wait)
    on_progress(max(1, len(starts)), max(1, len(starts)))
    known = {line.id: line.error for line in waiting}
    said = {request: str(error) for request, error in failed.items()}
    changed_errors = {
        request: why for request, why in said.items() if known[request] != why
    }
    if changed_errors:
        with context.write_in_turn() as connection:
            requests_table.write_errors(connection, changed_errors)
    return failed


def _report_batch(on_progress: OnProgress, place: int, *, n_batches: int) -> OnProgress:
    """Return how to report one batch, as if every batch had as many steps."""
    return lambda done, total: on_progress(place * total + done, n_batches * total)


def recover(context: Context, wait: float) -> Sequence[Any]:
    """Finish what another process left; return the requests that wait.

    Everything that changes models begins here.
    """
    replay_journal(context)
    waiting = finish_committed(context, wait)
    tidy_keys(context)
    return waiting


def _apply_or_halve(
    context: Context,
    batch: Sequence[str],
    *,
    wait: float,
    on_progress: OnProgress = be_silent,
) -> dict[str, ExpungeError]:
    """Apply a batch, or its halves; return what could not be applied."""
    try:
        return apply_batch(context, batch, on_progress=on_progress)
    except OF_THE_STORE:
        raise
    except ExpungeError as error:
        if len(batch) == 1:
            return {batch[0]: error}
        middle = len(batch) // 2
        first = _apply_or_halve(context, batch[:middle], wait=wait)
        # A model never has two releases that the ledger does not know of.
        finish_committed(context, wait)
        return first | _apply_or_halve(context, batch[middle:], wait=wait)
