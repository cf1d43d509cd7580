# SPDX-License-Identifier: Apache-2.0
"""Worker: what the one process does that holds the lock.

It first finishes what another process left, then applies all waiting requests as one
batch. Requests that are sent meanwhile wait for the lock and are applied next. A
request that cannot be applied does not hold up the others: the batch is halved until it
is alone, and it stays accepted. One that is cancelled while the batch is computed is
left out, and the batch is computed again.

**Applying.** What the requests come to is settled first, then computed: each model
changes once. One transaction makes everything current, see ``changes``. A reader finds
all of it or nothing, so a crash neither loses a request nor applies one twice, and rows
are deleted together with the checkpoint that needs them.

**Holds that ended** are erased before anything else.

What was applied is then completed, see ``completion``.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from ...display.progress import OnProgress, be_silent
from ...exceptions import (
    Busy,
    ExpungeError,
    InvalidInput,
    NeedsRestore,
    StoreFailed,
)
from ...ledger import UnusableKey
from ...rights.standing import forgets
from ..context import Context, today
from ..keys import tidy_keys
from ..recovery.replay import replay_journal
from ..storage import (
    aliases_table,
    aside_table,
    people_table,
    releases_table,
    requests_table,
)
from ..storage.requests_table import Answered, MovedMeanwhile
from ..storage.tables import write_metadata
from .completion import finish_committed
from .pending_rows import destroy_unneeded_keys, read_new_rows
from .settling import EARLIER, LOST, Asked, Settlement, settle

if TYPE_CHECKING:
    from .changes import AnyChange

# Requests in a batch at most: their receipts are written together.
BATCH = 5000
# Errors of the store, not of a request.
OF_THE_STORE = (Busy, StoreFailed, NeedsRestore, UnusableKey)


def apply_batch(
    context: Context,
    waiting: Sequence[Any],
    *,
    failed: Iterable[str] = (),
    on_progress: OnProgress = be_silent,
) -> dict[str, ExpungeError]:
    """Apply requests, as the store has them, as one batch: all of them or none.

    Each model is a step, and so is the rest. Returns those that were left out because a
    model that they concern may not be released any more, because an earlier request
    about the same people failed, or because their new rows were lost: that is known
    before anything is computed.
    """
    from .changes import make_changes, read_changes

    with context.store.read(snapshot=False) as connection:
        settlement = _settle_waiting(
            context, connection, waiting=waiting, failed=list(failed)
        )
        reading = read_changes(context, connection, settlement=settlement)
    changes = make_changes(context, reading, on_progress=on_progress)
    numbers = {one.name: one.after.number for one in changes if one.after is not None}
    rights = {line.id: line.right for line in waiting}
    made = {
        request: Answered(
            {name: numbers[name] for name in sorted(models) if name in numbers},
            settlement.judgements[request].outcome,
            settlement.judgements[request].reason,
            *settlement.retained[request],
            forgets(rights[request], settlement.judgements[request].outcome),
        )
        for request, models in settlement.models.items()
    }
    commit_changes(context, changes, made=made)
    return {
        request: _stuck_error(behind) for request, behind in settlement.stuck.items()
    }


def _stuck_error(behind: str) -> ExpungeError:
    """Return why a request must wait: behind a model, another request, or rows."""
    if behind == EARLIER:
        return InvalidInput(
            "an earlier request about the same people could not be applied; see what "
            "holds it up (status), and both will be applied in their order"
        )
    if behind == LOST:
        return InvalidInput(
            "the new rows of this rectification were lost, in a crash or a restore; "
            "send the request again, with its id and its rows, or cancel it"
        )
    from .changes import schedule_exhausted

    return schedule_exhausted(behind)


def _settle_waiting(
    context: Context,
    connection: Connection,
    *,
    waiting: Sequence[Any],
    failed: Sequence[str],
) -> Settlement:
    """Return what waiting requests come to, behind those that failed."""
    from .changes import read_holdings

    behind: dict[int, set[str]] = {}
    earlier = requests_table.find_requests(connection, failed)
    for request, _, found in people_table.find_asked_rows(connection, failed):
        behind.setdefault(found.subject, set()).add(earlier[request].right)
    asked = people_table.find_asked_rows(connection, [line.id for line in waiting])
    people: dict[str, dict[int, None]] = {line.id: {} for line in waiting}
    for request, _, found in asked:
        people[request][found.subject] = None
    named = sorted({aside_table.model_of(name) for _, name, _ in asked})
    newest = releases_table.read_newest_certificates(connection, named)
    fits = {name: one.fits for name, one in newest.items() if one.removed is None}
    new_rows = read_new_rows(context, connection, lines=waiting)
    _require_same_fits(waiting, fits)
    requests = [
        Asked(
            line.id,
            line.right,
            json.loads(line.details),
            list(people[line.id]),
            new_rows.get(line.id, {}),
        )
        for line in waiting
    ]
    return settle(
        requests,
        read_holdings(connection, [(name, found) for _, name, found in asked]),
        fits=fits,
        spent=[name for name, one in newest.items() if _is_spent(one.certificate)],
        behind=behind,
    )


def _require_same_fits(waiting: Sequence[Any], fits: Mapping[str, int]) -> None:
    """Refuse new rows for a model that was fitted again: they are coded for the old."""
    for line in waiting:
        for name, fit in json.loads(line.details).get("models", {}).items():
            if fits.get(name, fit) != fit:
                raise InvalidInput(
                    f"model {name!r} was fitted again since the new rows were sent; "
                    "cancel the request and send it again"
                )


def _is_spent(certificate: str) -> bool:
    """Return whether all releases that the budget planned are made."""
    stated = json.loads(certificate)
    planned = stated["releases"]
    return planned is not None and stated["n_releases"] >= planned


def commit_changes(
    context: Context,
    changes: "Sequence[AnyChange]",
    *,
    made: Mapping[str, Answered],
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
        What became of each request.
    before, after
        What else to write, before these and after.
    """
    from .changes import write_changes

    def write(connection: Connection) -> None:
        write_changes(connection, changes)
        aliases_table.delete_aliases_of(connection, made)
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
        if change.after is not None:
            context.remember(change.after)


def apply_waiting(
    context: Context,
    wait: float,
    *,
    on_progress: OnProgress,
    before: int | None = None,
) -> dict[str, ExpungeError]:
    """Apply waiting requests; return those that could not be, and why.

    Requests accepted at the moment ``before`` or later go on waiting. They come after
    all others in the order of requests, so nothing is overtaken.
    """
    waiting = [
        line
        for line in recover(context, wait)
        if before is None or line.accepted < before
    ]
    if not waiting:
        context.require_turn()  # or another process may have applied them
    failed: dict[str, ExpungeError] = {}
    starts = range(0, len(waiting), BATCH)
    for place, start in enumerate(starts):
        report = _report_batch(on_progress, place, n_batches=len(starts))
        batch = waiting[start : start + BATCH]
        failed |= _apply_or_halve(
            context, batch, wait=wait, failed=failed, on_progress=report
        )
        finish_committed(context, wait)
    on_progress(max(1, len(starts)), max(1, len(starts)))
    known = {line.id: line.error for line in waiting}
    if failed:
        still = _find_waiting(context, list(failed))
        failed = {id_: error for id_, error in failed.items() if id_ in still}
    said = {request: str(error) for request, error in failed.items()}
    changed_errors = {
        request: why for request, why in said.items() if known[request] != why
    }
    if changed_errors:
        with context.write_in_turn() as connection:
            requests_table.write_errors(connection, changed_errors)
    return failed


def _find_waiting(context: Context, requests: Sequence[str]) -> set[str]:
    """Return those of the requests that were not cancelled meanwhile."""
    with context.store.read() as connection:
        return requests_table.find_waiting(connection, requests)


def _report_batch(on_progress: OnProgress, place: int, *, n_batches: int) -> OnProgress:
    """Return how to report one batch, as if every batch had as many steps."""
    return lambda done, total: on_progress(place * total + done, n_batches * total)


def recover(context: Context, wait: float) -> Sequence[Any]:
    """Finish what another process left; return the requests that wait.

    Everything that changes models begins here.
    """
    pending = replay_journal(context)
    found = finish_committed(context, wait, pending=pending)
    tidy_keys(context)
    destroy_unneeded_keys(context)
    if found.has_asides and _erase_ended_holds(context):
        found = finish_committed(context, wait)
    return found.waiting


def _erase_ended_holds(context: Context) -> bool:
    """Delete rows that were held until a day that is past; return whether there were.

    They are stated with what is completed next.
    """
    from .changes import Move, make_changes, read_moves

    with context.store.read() as connection:
        ended = aside_table.read_ended(connection, today().isoformat())
        if not ended:
            return False
        moves: dict[str, Move] = {}
        for name, _, found in ended:
            moves.setdefault(name, Move()).leaving.append(found)
        reading = read_moves(context, connection, moves=moves)
        tags = sorted({found.tag for _, _, found in ended})
        held = people_table.models_by_tag(connection, tags)
    requests = sorted({request for _, request, _ in ended})
    changes = make_changes(context, reading, on_progress=be_silent)

    def note(connection: Connection) -> None:
        write_metadata(connection, aside_table.ENDED, value=" ".join(requests))
        gone = [tag for tag, names in held.items() if names <= moves.keys()]
        aliases_table.delete_aliases_of_people(connection, gone)

    commit_changes(context, changes, made={}, after=note)
    return True


def _apply_or_halve(
    context: Context,
    batch: Sequence[Any],
    *,
    wait: float,
    failed: Mapping[str, ExpungeError],
    on_progress: OnProgress = be_silent,
) -> dict[str, ExpungeError]:
    """Apply a batch, or its halves; return what could not be applied.

    ``failed`` are earlier requests that could not be. If requests were cancelled while
    the batch was computed, it is computed again without them: each round has fewer.
    """
    try:
        return apply_batch(context, batch, failed=failed, on_progress=on_progress)
    except MovedMeanwhile:
        still = _find_waiting(context, [line.id for line in batch])
        left = [line for line in batch if line.id in still]
        if len(left) == len(batch):
            raise
        if not left:
            return {}
        return _apply_or_halve(
            context, left, wait=wait, failed=failed, on_progress=on_progress
        )
    except OF_THE_STORE:
        raise
    except ExpungeError as error:
        if len(batch) == 1:
            return {batch[0].id: error}
        middle = len(batch) // 2
        first = _apply_or_halve(context, batch[:middle], wait=wait, failed=failed)
        # A model never has two releases that the ledger does not know of.
        finish_committed(context, wait)
        return first | _apply_or_halve(
            context, batch[middle:], wait=wait, failed={**failed, **first}
        )
