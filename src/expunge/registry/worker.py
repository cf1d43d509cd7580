# SPDX-License-Identifier: Apache-2.0
"""Worker: what the one process does that holds the lock.

It first finishes what another process left, then applies requests that wait as one
batch: those whose windows have closed, or its own and what the same people asked for
before. A request never overtakes an earlier one about the same people that waits for
its window; it waits with it, whether anything is held of these people or not. One that
its operator must decide about waits as well, for as long as that takes; later ones wait
behind it, but an erasure does for a hold alone. A
request that cannot be applied does not hold up the others: the batch is halved until it
is alone, and it stays accepted. One that is cancelled while the batch is computed is
left out, and the batch is computed again.

**Applying.** The outcome of the requests is settled first, then computed: each model
changes once. One transaction makes everything current, see ``changes``. A reader finds
all of it or nothing, so a crash neither loses a request nor applies one twice, and rows
are deleted together with the checkpoint that needs them.

**Holds that ended** are erased before anything else, if the clock is believed, see
``clock``.

What was applied is then completed, see ``completion``.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, delete

from ..display.progress import OnProgress, be_silent
from ..exceptions import (
    Busy,
    ExpungeError,
    InvalidInput,
    NeedsDecision,
    NeedsRestore,
    StoreFailed,
    Unforeseen,
    WindowOpen,
)
from ..ledger import Entry, UnusableKey
from ..ledger.documents import day_of
from ..rights.standing import DONE, NOTHING_FOUND, must_follow
from .clock import follow_clock, require_clock
from .completion import (
    finish_committed,
    release_entries,
    state_answers,
    state_ended_holds,
)
from .context import Context, give_up_keys, keep_head, require_keys
from .keys import tidy_keys
from .log import Content
from .now import now, today
from .request import (
    ACCEPTED,
    MovedMeanwhile,
    RequestStatus,
    find_requests,
    find_waiting,
    mark_applied,
    mark_partly,
    read_pending,
    read_tags,
    write_errors,
)
from .settle import EARLIER, FAILED, LOST, Settlement, settle
from .storage import people_table, releases_table
from .storage.engine import chunks
from .storage.keystore import Keystore, place_of, unseal
from .storage.people_table import PersonRows
from .storage.tables import aliases
from .window import SECOND

if TYPE_CHECKING:
    from .changes import Change, Move

# Requests in a batch at most: their receipts are written together.
BATCH = 5000
# Errors of the store, not of a request.
OF_THE_STORE = (Busy, StoreFailed, NeedsRestore, UnusableKey)
NO_MODELS: Mapping[str, Collection[str]] = MappingProxyType({})
DATABASE = {"sqlalchemy", "sqlite3", "psycopg"}
UNFORESEEN = (
    "an error that expunge did not foresee stopped this request; it waits, keeps its "
    "deadline, and is tried again each time that requests are applied; upgrade "
    "expunge, or fit the model again without these people"
)
"""What is recorded of a request that failed, whatever was raised."""


class Left(NamedTuple):
    """What a batch left.

    ``stuck`` are requests that must wait, and why: that was known before anything was
    computed. ``unfinished`` are those that a model failed at.
    """

    stuck: Mapping[str, ExpungeError]
    unfinished: Collection[str]


def apply_batch(
    context: Context,
    waiting: Sequence[RequestStatus],
    *,
    failed: Iterable[str] = (),
    apart: Collection[str] = (),
    on_progress: OnProgress = be_silent,
) -> Left:
    """Apply requests, as the store has them, as one batch.

    Each model is a step, and so is the rest. If an error that nobody foresaw stops a
    model, the other models change all the same. Requests about people whose rows it
    has then wait, though they may be answered in part, and all others are done.

    ``failed`` are earlier requests that could not be applied, and ``apart`` those of
    these that are tried on their own later.
    """
    from .changes import (
        Change,
        Reading,
        make_changes,
        read_moves,
        require_release,
        sort_moves,
    )

    broken: set[str] = set()
    readings: dict[str, Reading] = {}
    with context.store.read(snapshot=False) as connection:
        settlement, people, keys = _settle_waiting(
            context, connection, waiting=waiting, failed=list(failed), apart=apart
        )
        moves = sort_moves(settlement)
        for model, move in sorted(moves.items()):
            with _isolated(context, model, broken=broken):
                load = partial(require_release, context, key=keys.get(model))
                readings[model] = read_moves(context, moves={model: move}, load=load)
    changes: list[Change] = []
    for place, (model, reading) in enumerate(readings.items()):
        on_progress(place, len(readings) + 1)
        with _isolated(context, model, broken=broken):
            changes += make_changes(context, reading, on_progress=be_silent)
    on_progress(len(readings), len(readings) + 1)
    settled = {request: people[request] for request in settlement.models}
    unfinished = _find_concerned(settled, [moves[model] for model in broken])
    changed = [some for model, some in moves.items() if model not in broken]
    partly = [one for one in _find_concerned(settled, changed) if one in unfinished]
    answered = []
    for one in waiting:
        if one.request not in settlement.models or one.request in unfinished:
            continue
        judged = settlement.judgements[one.request]
        if judged == NOTHING_FOUND and one.outcome:
            judged = DONE  # by the models that changed before
        retained, until = settlement.retained[one.request]
        answered.append(
            replace(
                one,
                outcome=judged.outcome,
                reason=judged.reason,
                retained=retained,
                retained_until=until,
            )
        )
    if changes or answered:
        commit_changes(
            context,
            changes,
            answered=answered,
            models=settlement.models,
            after=partial(mark_partly, ids=partly),
        )
    return Left(
        {request: _stuck_error(behind) for request, behind in settlement.stuck.items()},
        unfinished,
    )


@contextmanager
def _isolated(context: Context, model: str, *, broken: set[str]) -> Iterator[None]:
    """Note that a model failed at its changes, if nobody foresaw the error."""
    try:
        yield
    except Exception as error:
        if not _is_unforeseen(error):
            raise
        context.log.require_turn()  # or it failed because another process took over
        context.cache.pop(model, None)
        broken.add(model)


def _is_unforeseen(error: Exception) -> bool:
    """Return whether an error may come from a request or a model it concerns.

    Those of files and of the database are the registry's own: it is mended, and
    everything is tried again.
    """
    if isinstance(error, ExpungeError | OSError):
        return False
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return packages.isdisjoint(DATABASE)


def _find_concerned(
    people: Mapping[str, Collection[int]], moves: "Iterable[Move]"
) -> list[str]:
    """Return the requests about people whose rows move."""
    moved = {who for move in moves for who in move.subjects}
    return [request for request, some in people.items() if not moved.isdisjoint(some)]


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
    if behind == FAILED:
        return Unforeseen(UNFORESEEN)
    from .changes import schedule_exhausted

    return schedule_exhausted(behind)


def _behind_error(until: int) -> WindowOpen:
    """Return why a request waits: for the window of an earlier one, or its operator."""
    if not until:
        return WindowOpen(
            "an earlier request about the same people waits for its operator (status); "
            "this one is kept, and both can be applied after that"
        )
    moment = datetime.fromtimestamp(until // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return WindowOpen(
        "an earlier request about the same people waits until its window closes, at "
        f"{moment}; this one is kept, and both can be applied after that"
    )


def _idle_error(one: RequestStatus) -> ExpungeError:
    """Return the error for a request that its operator, or its grace, lets wait."""
    if not one.waits_for:
        return WindowOpen(
            f"request {one.request} is kept, and is applied after its days of grace, "
            f"on {day_of(one.closes)}; until then it can be cancelled"
        )
    return NeedsDecision(
        f"request {one.request} is kept, and waits for {one.waits_for}; see "
        "expunge approve, and expunge proceed"
    )


def _settle_waiting(
    context: Context,
    connection: Connection,
    *,
    waiting: Sequence[RequestStatus],
    failed: Sequence[str],
    apart: Collection[str],
) -> tuple[Settlement, dict[str, list[int]], dict[str, int]]:
    """Return the outcome of waiting requests behind those that failed, and the people.

    People are numbers in the store, which does not know all of them. With them come
    the keys of the checkpoints of models that have rows of theirs.
    """
    from .changes import sort_people

    behind: dict[int, set[str]] = {}
    earlier = find_requests(connection, failed)
    for request, found in people_table.find_asked_rows(connection, failed):
        behind.setdefault(found.subject, set()).add(earlier[request].right)
    asked = people_table.find_asked_rows(connection, [line.request for line in waiting])
    people: dict[str, dict[int, None]] = {line.request: {} for line in waiting}
    for request, found in asked:
        people[request][found.subject] = None
    named = sorted({found.model for _, found in asked})
    newest = releases_table.read_newest_certificates(connection, named)
    fits = {name: one.fits for name, one in newest.items() if one.removed is None}
    rectified = [line.request for line in waiting if line.right == "rectify"]
    new_rows = _read_new_rows(context.keystore, connection, requests=rectified)
    _require_same_fits(waiting, fits)
    numbers = {request: [*some] for request, some in people.items()}
    settlement = settle(
        waiting,
        sort_people(found for _, found in asked),
        people=numbers,
        new_rows=new_rows,
        fits=fits,
        spent=[name for name, one in newest.items() if _is_spent(one.certificate)],
        behind=behind,
        apart=apart,
    )
    return settlement, numbers, {name: one.key for name, one in newest.items()}


def _read_new_rows(
    keystore: Keystore, connection: Connection, *, requests: Sequence[str]
) -> dict[str, dict[str, bytes]]:
    """Return the new rows that requests bring, by id and model.

    Rows whose key is destroyed are lost, and left out.
    """
    found: dict[str, dict[str, bytes]] = {request: {} for request in requests}
    lines = people_table.read_waiting(connection, requests)
    # At once: a request may be cancelled at any moment, and its keys destroyed.
    keys = keystore.load(line.key for line in lines)
    for line in lines:
        if line.key in keys:
            place = place_of(
                line.key, people_table.what_waits(line.request, line.model)
            )
            opened = unseal(line.sealed, keys[line.key], place=place)
            found[line.request][line.model] = opened
    return found


def _require_same_fits(
    waiting: Sequence[RequestStatus], fits: Mapping[str, int]
) -> None:
    """Refuse new rows for a model that was fitted again: they are coded for the old."""
    for line in waiting:
        for name, fit in line.asked.get("models", {}).items():
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
    changes: "Sequence[Change]",
    *,
    answered: Sequence[RequestStatus] = (),
    models: Mapping[str, Collection[str]] = NO_MODELS,
    before: Callable[[Connection], None] = lambda connection: None,
    after: Callable[[Connection], None] = lambda connection: None,
    note: Content | None = None,
) -> None:
    """Write changed models, move requests on, and what is to be stated of both.

    Parameters
    ----------
    context
        The registry.
    changes
        What happens to models.
    answered, models
        Requests with what became of them, and the models that each concerns.
    before, after
        What else to write, before these and after.
    note
        What the log notes of it.
    """
    from .changes import write_changes

    releases: list[Entry] = []
    digests: dict[str, str] = {}
    texts: dict[str, str] = {}
    for one in sorted(changes, key=lambda one: one.name):
        if one.before is not None and one.after is not None:
            certificate = one.after.snapshot.public.release.certificate
            digests[one.name] = digest = certificate.digest()
            texts[digest] = certificate.to_json()
            old = one.before.snapshot.public.release.certificate.digest()
            releases += release_entries(one.name, digest, before=old)
    certificates = {
        request: {name: digests[name] for name in sorted(some) if name in digests}
        for request, some in models.items()
    }
    try:
        with (
            give_up_keys(
                context, [key for one in changes for key in one.keys]
            ) as is_done,
            context.log.record(note, in_turn=True)
            if note
            else context.log.batch() as connection,
        ):
            before(connection)
            write_changes(connection, changes)
            mark_applied(connection, answered)
            state_answers(
                connection, answered, certificates=certificates, releases=releases
            )
            after(connection)
            is_done()
    except BaseException:
        # Only the store knows now whether it was committed.
        for change in changes:
            context.cache.pop(change.name, None)
        raise
    context.answered |= {one.request: one for one in answered}
    context.certificates |= texts
    for change in changes:
        if change.after is not None:
            context.remember(change.after)


def apply_waiting(
    context: Context,
    wait: float,
    *,
    on_progress: OnProgress,
    before: int | None = None,
    only: Collection[str] | None = None,
) -> dict[str, ExpungeError]:
    """Apply requests that wait; return those that could not be, and why.

    Requests whose window is open at the moment ``before``, by default now, go on
    waiting. With ``only`` the requests of these ids are applied, and what the same
    people asked for before.
    """
    waiting, behind, held_up = _choose_waiting(
        context, recover(context, wait), before=before, only=only
    )
    if not waiting:
        context.log.require_turn()  # or another process may have applied them
    apart = {line.request: line for line in waiting if line.error == UNFORESEEN}
    failed: dict[str, ExpungeError] = {}
    starts = range(0, len(waiting), BATCH)
    for place, start in enumerate(starts):
        report = _report_batch(on_progress, place, n_batches=len(starts))
        batch = waiting[start : start + BATCH]
        failed |= _apply_or_halve(
            context, batch, wait=wait, failed=failed, apart=apart, on_progress=report
        )
        finish_committed(context, wait)
    for line in apart.values():  # all others have one release, whatever these do
        earlier = [id_ for id_ in failed if id_ != line.request]
        failed.pop(line.request, None)
        failed |= _apply_or_halve(context, [line], wait=wait, failed=earlier)
        finish_committed(context, wait)
    on_progress(max(1, len(starts)), max(1, len(starts)))
    failed |= behind
    if failed:
        still = _find_waiting(context, list(failed))
        failed = {id_: error for id_, error in failed.items() if id_ in still}
    said = {request: str(error) for request, error in failed.items()}
    known = {line.request: line.error for line in waiting}
    changed_errors = {
        request: why for request, why in said.items() if known.get(request) != why
    }
    if changed_errors:
        with context.log.batch() as connection:
            write_errors(connection, changed_errors)
    return failed | held_up


def _choose_waiting(
    context: Context,
    waiting: Sequence[RequestStatus],
    *,
    before: int | None,
    only: Collection[str] | None,
) -> tuple[list[RequestStatus], dict[str, ExpungeError], dict[str, ExpungeError]]:
    """Return which requests to apply, and why others wait.

    Those that wait for an earlier one, and those of ``only`` that wait for their own
    operator. Whom a request is about follows from its tags, and not by what the store
    holds: otherwise one about a stranger would be answered sooner.
    """
    moment = now() if before is None else before
    day = today().isoformat()
    waiting = list(waiting)
    is_open = {line.request for line in waiting if line.window.is_open(moment)}
    held_up = {line.request for line in waiting if line.is_held_up(day)}
    idle = is_open | held_up
    while only is None and waiting and waiting[-1].request in idle:
        idle.remove(waiting.pop().request)  # nothing comes after it
    if not idle and (only is None or {*only} >= {one.request for one in waiting}):
        return waiting, {}, {}
    with context.store.read() as connection:
        tags = read_tags(connection, [line.request for line in waiting])
    if only is not None:
        about: set[str] = set()
        chosen = []
        for line in reversed(waiting):
            if line.request in only or not about.isdisjoint(tags[line.request]):
                about.update(tags[line.request])
                chosen.append(line)
        waiting = chosen[::-1]
    closed: list[RequestStatus] = []
    behind: dict[str, ExpungeError] = {}
    asked: dict[str, ExpungeError] = {}
    # By tag: rights of earlier ones, and when their windows close; 0 for an operator.
    blocked: dict[str, list[tuple[str, int]]] = {}
    for line in waiting:
        earlier = [
            until
            for tag in tags[line.request]
            for right, until in blocked.get(tag, ())
            # An erasure need not wait for an operator who thinks about something else.
            if until or must_follow(line.right, [right])
        ]
        if line.request in (only or ()) and line.request in idle:
            if line.request in held_up or line.grace_days:
                asked[line.request] = _idle_error(line)
        if line.request not in idle:
            if not earlier:
                closed.append(line)
                continue
            behind[line.request] = _behind_error(max(earlier))
        until = max([line.closes * (line.request in is_open), *earlier])
        for tag in tags[line.request]:
            blocked.setdefault(tag, []).append((line.right, until))
    return closed, behind, asked


def _find_waiting(context: Context, requests: Sequence[str]) -> set[str]:
    """Return those of the requests that were not cancelled meanwhile."""
    with context.store.read() as connection:
        return find_waiting(connection, requests)


def _report_batch(on_progress: OnProgress, place: int, *, n_batches: int) -> OnProgress:
    """Return how to report one batch, as if every batch had as many steps."""
    return lambda done, total: on_progress(place * total + done, n_batches * total)


def recover(context: Context, wait: float) -> Sequence[RequestStatus]:
    """Finish what another process left; return the requests that wait.

    Everything that changes models begins here.
    """
    context.log.catch_up()
    keep_head(context)  # before anything changes that could not be signed
    with context.store.read(snapshot=False) as connection:
        recorded = require_clock(connection)
        pending = read_pending(connection)
        counts = require_keys(context, connection)
        has_ended = recorded.status.is_believed and _read_ended(connection)
    follow_clock(context, recorded)
    finish_committed(context, wait, counts=counts)
    tidy_keys(context)
    if has_ended and _erase_ended_holds(context):
        finish_committed(context, wait)
    return [line for line in pending if line.stage == ACCEPTED]


def _read_ended(connection: Connection) -> list[PersonRows]:
    """Return the rows that were held until a day that is past."""
    return people_table.read_ended(connection, today().isoformat())


def _erase_ended_holds(context: Context) -> bool:
    """Delete rows that were held until a day that is past; return whether there were.

    They are stated with what is completed next.
    """
    with context.store.read(snapshot=False) as connection:
        ended = _read_ended(connection)
        if not ended:
            return False
        tags = sorted({one.tag for one in ended})
        every = people_table.find_tagged_rows(connection, tags)
    from .changes import Move, make_changes, read_moves

    moves: dict[str, Move] = {}
    for one in ended:
        moves.setdefault(one.model, Move()).steps.append((one, None))
    reading = read_moves(context, moves=moves)
    changes = make_changes(context, reading, on_progress=be_silent)
    keys = {one.key for one in ended}
    left = {one.tag for one in every if one.key not in keys}

    def note(connection: Connection) -> None:
        state_ended_holds(connection, sorted({one.request for one in ended}))
        gone = [tag for tag in tags if tag not in left]
        for chunk in chunks(gone):
            connection.execute(delete(aliases).where(aliases.c.person.in_(chunk)))

    commit_changes(context, changes, after=note)
    return True


def _apply_or_halve(
    context: Context,
    batch: Sequence[RequestStatus],
    *,
    wait: float,
    failed: Iterable[str],
    apart: Collection[str] = (),
    on_progress: OnProgress = be_silent,
) -> dict[str, ExpungeError]:
    """Apply a batch, or its halves; return what could not be applied.

    ``failed`` are earlier requests that could not be, and ``apart`` those of the batch
    that are left for later. If requests were cancelled while the batch was computed, it
    is computed again without them: each round has fewer.

    A model that fails has not changed, and the others have. So what it failed at is
    halved among its own requests, and costs the others no release.
    """
    again = list(batch)
    stuck: Mapping[str, ExpungeError] = {}
    try:
        stuck, unfinished = apply_batch(
            context, batch, failed=failed, apart=apart, on_progress=on_progress
        )
        if not unfinished:
            return {**stuck}
        again = [line for line in batch if line.request in unfinished]
        error: ExpungeError = Unforeseen(UNFORESEEN)
    except MovedMeanwhile:
        still = _find_waiting(context, [line.request for line in batch])
        left = [line for line in batch if line.request in still]
        if len(left) == len(batch):
            raise
        if not left:
            return {}
        return _apply_or_halve(
            context,
            left,
            wait=wait,
            failed=failed,
            apart=apart,
            on_progress=on_progress,
        )
    except OF_THE_STORE:
        raise
    except ExpungeError as refusal:
        error = refusal
    except Exception as raised:
        if not _is_unforeseen(raised):
            raise
        context.log.require_turn()
        error = Unforeseen(UNFORESEEN)
    if len(again) == 1:
        return {**stuck, again[0].request: error}
    found = {**stuck}
    middle = len(again) // 2
    for half in (again[:middle], again[middle:]):
        # A model never has two releases that the ledger does not know of.
        finish_committed(context, wait)
        found |= _apply_or_halve(
            context, half, wait=wait, failed=[*failed, *found], apart=apart
        )
    return found
