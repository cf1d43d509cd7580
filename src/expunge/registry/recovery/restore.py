# SPDX-License-Identifier: Apache-2.0
"""Restoring: a store comes back from a backup, and nobody comes back with it.

The journal is newer than the backup and says what is missing. Its entries continue the
ledger as they were signed, its receipts restore the original receipts, its releases
count against the budget, and everybody who was forgotten since is forgotten again, all
in one transaction. Until that is committed the store is refused, and the command can be
run again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from sqlalchemy import Connection

from ...core.values import Private
from ...disk import find_inode, replace_file, store_failure
from ...display.progress import OnProgress
from ...exceptions import InvalidInput, LedgerCorrupt, StoreFailed
from ...ledger import (
    Ledger,
    ModelRegistered,
    ModelRemoved,
    ReleaseMade,
    Restored,
    read_entry,
)
from ...ledger.documents import day_of
from ..changes import (
    Change,
    Move,
    change_apart,
    change_model,
    read_moves,
    release_again,
    sort_moves,
    sort_people,
    write_changes,
)
from ..completion import state_releases
from ..context import WAIT, Context, keep_head, next_entry_time, settle_keys
from ..keys import find_signing_key, require_tag_keys, write_tag_key_ids
from ..loaded_model import LoadedModel
from ..log import SNAPSHOT, STATEMENT, Content, Mark, read_position
from ..request import ACCEPTED, find_requests, from_line, read_tags
from ..settle import settle
from ..statements import MADE, Statement, apply_line, read_statement
from ..storage import (
    Checkpoints,
    Keystore,
    hold_worker_lock,
    ledger_table,
    people_table,
    releases_table,
)
from ..storage.engine import translate_errors
from ..storage.keystore import FIRST
from ..storage.ledger_table import LedgerBatch
from ..storage.tables import has_tables, overtaken_error, read_metadata
from ..worker import recover
from .backup import (
    read_checkpoint_files,
    replace_database,
    require_parts,
    require_sound_backup,
    stage_backup,
)
from .losses import Losses, find_losses
from .missing_files import find_unreadable, require_files_there, without_models

STEPS = 4

Lost: TypeAlias = dict[str, list[ModelRegistered | ReleaseMade]]
"""For each model, releases that were made and that the store does not have."""


class LastKnown(NamedTuple):
    """What the database in use knows: its marks of the journal, and its last head."""

    marks: tuple[Mark, ...] = ()
    head: str = ""


def read_last_known(context: Context) -> LastKnown:
    """Return what the database in use knows; nothing if it is lost or damaged."""
    file = context.paths.database
    if context.settings.url is None and not (file.exists() and file.stat().st_size):
        return LastKnown()
    try:
        with context.store.read() as connection:
            if not has_tables(connection):
                return LastKnown()
            return LastKnown(
                (read_position(connection).mark,),
                ledger_table.read_last_head(connection),
            )
    except StoreFailed:
        return LastKnown()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Continuation(Private):
    """How a store continues from where its backup was taken.

    Attributes
    ----------
    taken
        The day of the last entry in the backup.
    ledger
        Where the ledger stands with the journal's entries.
    accepted, statements
        Requests that were accepted since, each as often as the log has it, and what is
        added to the ledger.
    removed
        Models that were removed since.
    lost, again
        Releases that the store lacks, and what moves the rows of people who are in it
        as they were, by name.
    losses
        What cannot come back.
    end
        Keys of lower numbers may have been made since.
    """

    taken: str
    ledger: Ledger
    accepted: Mapping[str, list[Content]]
    statements: Sequence[Statement]
    removed: frozenset[str]
    lost: Lost
    again: Mapping[str, Move]
    losses: Losses
    end: int

    @property
    def moved(self) -> list[str]:
        """Models that people must leave, or come back to, again."""
        moved = {name for name, move in self.again.items() if move.changes_model}
        return sorted(moved - self.removed)

    @property
    def changed(self) -> list[str]:
        """Models that must change, or be released, again."""
        return sorted({*self.moved, *self.lost} - self.removed)


def restore_registry(
    context: Context, backup: Path, *, on_progress: OnProgress, accept_mark: bool
) -> Losses:
    """Put the store back from a backup and bring it up to date with the journal.

    Returns what cannot come back. A backup that does not fit the journal is refused
    before anything is replaced, and so is one that does not lead to the head in the
    head file, unless ``accept_mark``.
    """
    require_parts(context, backup)
    keys = Keystore(backup / "keys" / "sealing")
    keys.end()  # or refuse what is no such file
    sealed = Checkpoints(backup / "checkpoints", keys)
    with (
        hold_worker_lock(context.store, context.paths.lock, wait=WAIT),
        _report_lost_lock(context.paths.lock),
        translate_errors(),
    ):
        on_progress(0, STEPS)
        known = read_last_known(context)
        context.log.require(*known.marks)
        with stage_backup(context, backup, sealed=sealed) as copy:
            require_sound_backup(copy)
            ahead = _read_continuation(copy)
            require_files_there(copy, names=ahead.moved)
            _require_known_head(copy, ahead, head=known.head)
            with copy.store.read() as connection:
                first = read_metadata(connection, ledger_table.FIRST_KEY)
            for one in (keys, context.keystore):
                one.require_owner(first)  # or keys of another registry are destroyed
            if context.head_file is not None:
                if not accept_mark:
                    head = context.head_file.read(first)
                    _require_known_head(copy, ahead, head=head)
                context.head_file.require_writable(first)  # or nothing is signed
            _require_keys(context, copy, ledger=ahead.ledger)
            files = read_checkpoint_files(backup)
        n_steps = STEPS + len(ahead.changed)
        on_progress(1, n_steps)
        replace_database(context)
        for file in files:
            replace_file(context.paths.checkpoints / file.name, file.read_bytes())
        context.keystore.replace(keys, end=ahead.end)
        on_progress(2, n_steps)
        with context.take_turn():
            settle_keys(context, first=FIRST)  # of a backup from amid a request
            _write_continuation(
                context, ahead, on_model=lambda n: on_progress(2 + n, n_steps)
            )
            on_progress(n_steps - 1, n_steps)
            context.store.erase_deleted(WAIT)
            if accept_mark:
                keep_head(context, accept=True)
            recover(context, WAIT)  # what was accepted meanwhile, too
        on_progress(n_steps, n_steps)
    return ahead.losses


@contextmanager
def _report_lost_lock(lock: Path) -> Iterator[None]:
    """Report whatever fails after another process could take over as Busy."""
    before = find_inode(lock)
    try:
        yield
    except Exception as error:
        if find_inode(lock) != before:
            raise overtaken_error() from error
        if isinstance(error, FileNotFoundError):
            raise store_failure(error) from error
        raise


def accept_ledger(context: Context) -> None:
    """Go on from the ledger as it is, whatever the head file says; an entry says so."""
    if context.head_file is None:
        raise InvalidInput(
            "the registry has no head file, so there is none to accept; name one with "
            "expunge init --head-file"
        )
    with context.hold_lock(WAIT):
        context.log.catch_up()
        with context.store.read() as connection:
            first = read_metadata(connection, ledger_table.FIRST_KEY)
            context.head_file.require_writable(first)  # or nothing is signed
            batch = LedgerBatch(ledger_table.read_ledger(connection))
        time = next_entry_time(batch.ledger)
        restored = Restored(
            sequence=batch.ledger.size,
            day=day_of(time),
            taken=batch.ledger.day,
            n_replayed=0,
        )
        batch.append(restored)
        key = find_signing_key(context.paths, batch.ledger.keys.current)
        statement = Statement(batch, batch.ledger.head(key, restored.day), time)
        line = statement.to_line()
        with context.log.record(line, in_turn=True, by=statement.write_line):
            pass
        keep_head(context, accept=True)
        recover(context, WAIT)


def _require_keys(context: Context, copy: Context, *, ledger: Ledger) -> None:
    """Refuse a store whose keys are missing: it may be another registry's."""
    find_signing_key(context.paths, ledger.keys.current)
    with copy.store.read() as connection:
        require_tag_keys(connection, context.paths)


def _read_continuation(context: Context) -> Continuation:
    """Return how the log continues a store; refuse it if it does not."""
    with context.store.read() as connection:
        known = read_position(connection)
        lines = context.log.lines_after_backup(known)
        ledger = ledger_table.read_ledger(connection)
        taken = ledger.day
        statements: list[Statement] = []
        accepted: dict[str, list[Content]] = {}
        for line in lines:
            first = line.get(SNAPSHOT, {"size": 0})
            if first["size"] > ledger.size:
                raise InvalidInput(
                    f"the backup has {ledger.size} entries of the ledger, the last of "
                    f"{taken}, and the journal no longer has what came before entry "
                    f"{first['size']}, of {first['day']}; take a newer backup: nothing "
                    "was restored"
                )
            for one in line.get("accepted", ()):
                accepted.setdefault(one["request"], []).append(one)
            if STATEMENT not in line:
                continue
            if read_entry(line[STATEMENT][0]).sequence >= ledger.size:
                statements.append(read_statement(line, ledger))
                ledger = statements[-1].batch.ledger
        removed = frozenset(
            entry.model
            for one in statements
            for entry in one.entries
            if isinstance(entry, ModelRemoved)
        )
        _require_fitted_models(connection, statements, removed=removed)
        lost = _lost_releases(connection, statements)
        # Only now: with the backup of another registry it is not the log's fault.
        context.log.require(known.mark)
        cancelled = {
            line["cancelled"]["request"] for line in lines if "cancelled" in line
        }
        rectified = _find_rectified(
            connection, accepted, cancelled=cancelled, statements=statements
        )
    again = _find_returned(context, accepted, statements=statements)
    losses = find_losses(lines, rectified=rectified)
    sealed = [one["key"] for line in lines for one in line.get("rows", ())]
    end = max(sealed, default=0) + 1
    return Continuation(
        taken, ledger, accepted, statements, removed, lost, again, losses, end
    )


def _find_rectified(
    connection: Connection,
    accepted: Mapping[str, list[Content]],
    *,
    cancelled: set[str],
    statements: Sequence[Statement],
) -> list[str]:
    """Return the rectifications whose new rows the store does not have.

    Those that were answered since, and those that were accepted since and wait.
    """
    outcomes = {
        one.entry.request: one.entry.outcome
        for statement in statements
        for one in statement.receipts
    }
    there = find_requests(connection, sorted({*accepted, *outcomes}))
    found = []
    for id_ in dict.fromkeys((*outcomes, *accepted)):
        if id_ in there:
            right, stage = there[id_].right, there[id_].stage
            is_lost = id_ in outcomes and stage == ACCEPTED
        elif id_ in accepted:
            right, is_lost = accepted[id_][-1]["right"], id_ not in cancelled
        else:
            continue  # nothing tells what it was, which is refused elsewhere
        changed = outcomes.get(id_, "done") in ("done", "partly")
        if right == "rectify" and is_lost and changed:
            found.append(id_)
    return found


def _require_known_head(context: Context, ahead: Continuation, *, head: str) -> None:
    """Refuse to continue from a ledger that contradicts the head of the one in use."""
    if not head or head in (one.head.to_json() for one in ahead.statements):
        return
    with context.store.read() as connection:
        if ledger_table.has_head(connection, head):
            return
    raise LedgerCorrupt(
        "there is a signed head, in the ledger in use or in the head file, that backup "
        "and journal do not know, and receipts may show it: the journal is older, of "
        "another registry, or was altered; nothing was restored: put its newest copy "
        "in place"
    )


def _write_continuation(
    context: Context, ahead: Continuation, *, on_model: Callable[[int], None]
) -> None:
    """Bring a store up to date with the journal, in one transaction.

    ``on_model`` is called with how many models have been changed.
    """
    batch = LedgerBatch(ahead.ledger)
    time = next_entry_time(batch.ledger)
    restored = Restored(
        sequence=batch.ledger.size,
        day=day_of(time),
        taken=ahead.taken,
        n_replayed=sum(len(one.receipts) for one in ahead.statements),
    )
    batch.append(restored)
    head = batch.ledger.head(
        find_signing_key(context.paths, batch.ledger.keys.current), restored.day
    )
    statement = Statement(batch, head, time)
    changes, spent = _forget_again(context, ahead, on_model=on_model)
    line = statement.to_line()
    done = {one.entry.request for some in ahead.statements for one in some.receipts}

    def take_in(connection: Connection, line: Content) -> None:
        # A process was killed as it cancelled a request, which was applied then.
        if line.get("cancelled", {}).get("request") not in done:
            apply_line(connection, line)

    with context.log.restore(
        line, apply=take_in, by=statement.write_line
    ) as connection:
        for name, after in spent.items():
            people_table.delete_all_people(connection, name)
            releases_table.retire_model(connection, name, number=after, time=time)
        write_tag_key_ids(connection, context.paths)
        write_changes(connection, changes)
        state_releases(connection, [one.name for one in changes if one.after])
    context.cache.clear()


def _require_fitted_models(
    connection: Connection,
    statements: Sequence[Statement],
    *,
    removed: frozenset[str],
) -> None:
    """Refuse a backup without the rows of a model that was fitted after it.

    One that was removed since needs no rows.
    """
    missing = {
        entry.model
        for one in statements
        for entry in one.entries
        if isinstance(entry, MADE) and entry.model in one.fitted
        if entry.model not in removed
        if not releases_table.has_certificate(
            connection, entry.model, digest=entry.certificate
        )
    }
    if missing:
        raise InvalidInput(
            f"the backup is older than the fit of {', '.join(sorted(missing))}; take a "
            "backup from after that: rows that were not in it cannot come back"
        )


def _lost_releases(connection: Connection, statements: Sequence[Statement]) -> Lost:
    """Return for each model the entries of releases that the store does not have."""
    lost: Lost = {}
    for entry in (entry for one in statements for entry in one.entries):
        if isinstance(entry, MADE):
            if not releases_table.has_certificate(
                connection, entry.model, digest=entry.certificate
            ):
                lost.setdefault(entry.model, []).append(entry)
    return lost


def _find_returned(
    context: Context,
    accepted: Mapping[str, list[Content]],
    *,
    statements: Sequence[Statement],
) -> dict[str, Move]:
    """Return what moves the rows of people whose requests were answered since.

    The requests are settled again, in order, from what the store holds, except those
    that were applied when the backup was taken. New rows that a rectification brought
    after the backup are lost: then the old ones go, and nothing comes in their place.
    """
    entries = [one.entry for statement in statements for one in statement.receipts]
    done = [one.request for one in entries if one.outcome != "refused"]
    with context.store.read() as connection:
        there = find_requests(connection, done)
        unknown = [id_ for id_ in done if id_ not in there and id_ not in accepted]
        if unknown:
            raise StoreFailed(
                "the journal does not say who some completed requests "
                f"({len(unknown)}) were about, and the backup holds these people; "
                "nothing was restored; take a backup from after these requests"
            )
        stored = read_tags(connection, done)
        tags = {
            id_: {
                *stored[id_],
                *(tag for one in accepted.get(id_, ()) for tag in one["tags"]),
            }
            for id_ in done
        }
        every = sorted(set().union(*tags.values()))
        found = people_table.find_tagged_rows(connection, every)
        again = [
            there[id_] if id_ in there else from_line(accepted[id_][-1])
            for id_ in done
            if id_ not in there or there[id_].stage == ACCEPTED
        ]
        people = {
            one.request: list(
                dict.fromkeys(
                    held.subject for held in found if held.tag in tags[one.request]
                )
            )
            for one in again
        }
        lost = {
            one.request: dict.fromkeys(one.asked.get("models", ()), b"")
            for one in again
        }
        names = sorted({one.model for one in found})
        settlement = settle(
            again,
            sort_people(found),
            people=people,
            new_rows=lost,
            fits=people_table.count_fits(connection, names),
            spent=(),
        )
    return sort_moves(settlement)


def _forget_again(
    context: Context, ahead: Continuation, *, on_model: Callable[[int], None]
) -> tuple[list[Change], dict[str, int]]:
    """Return changes, and the number of each model that cannot be released any more.

    A model whose newest release was lost is released again even if nobody has to be
    forgotten: the ledger says that the release in the backup is superseded. Of a model
    that may not be released nothing is kept, not even a readable state: it cannot
    forget. Neither can one whose files no longer hold the rows. Models that were
    removed since are removed again by their statement.
    """
    lost, moves = ahead.lost, ahead.again
    charged = {
        name: _charge_model(context, name, n_releases=len(lost.get(name, ())))
        for name in ahead.changed
    }

    def load(name: str) -> LoadedModel:
        return charged[name] if name in charged else context.load_model(name)

    unreadable = find_unreadable(context, moves=moves, load=load)
    moves = without_models(moves, unreadable)
    reading = read_moves(context, moves=moves, load=load)
    changes: list[Change] = []
    spent: dict[str, int] = {}
    changed = set()
    for place, (name, loaded) in enumerate(charged.items()):
        on_model(place)
        if loaded.private.accountant.remaining() == 0 or name in unreadable:
            spent[name] = loaded.number
            context.cache.pop(name, None)
        elif name in reading.models:
            changed.add(name)
            changes.append(change_model(context, name, reading=reading))
        else:
            changes.append(release_again(context, name))
    for name in moves.keys() - changed:
        changes.append(change_apart(context, name, reading=reading))
    return changes, spent


def _charge_model(context: Context, name: str, *, n_releases: int) -> LoadedModel:
    """Charge the budget of a model for releases that the backup knows nothing of."""
    loaded = context.load_model(name)
    charged = loaded.keep(loaded.private.charge(n_releases))
    context.cache[name] = replace(charged, number=loaded.number + n_releases)
    return context.cache[name]
