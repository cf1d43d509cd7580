# SPDX-License-Identifier: Apache-2.0
"""Sabotage: a registry broken on purpose, so that the harness is seen to complain.

Each is a mistake that somebody could make, in the process of a client alone.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, delete

from expunge.exceptions import NeedsRestore, StoreFailed
from expunge.registry import (
    Request,
    RequestStatus,
    completion,
    opening,
    request,
    statements,
    worker,
)
from expunge.registry import context as registry_context
from expunge.registry import (
    settle as settling,
)
from expunge.registry.changes import Change
from expunge.registry.context import Context
from expunge.registry.deliveries import NO_LOOKS, RegistryDeliveries
from expunge.registry.log import BEGINNING, Content, Log, Mark, Position
from expunge.registry.recovery import new_log, restore
from expunge.registry.request import mark_completed
from expunge.registry.requests import RegistryRequests
from expunge.registry.storage import (
    Checkpoints,
    people_table,
    tables,
)
from expunge.registry.window import Window
from expunge.rights import standing
from tests.registries import status_of

from .client import Line
from .phases import NAMES, put
from .writer import ASK_AGAIN, Theme

# A moment that a careful registry does not have, and how long it is here.
CARELESS, PAUSE = "being careless", 0.02


def complete_without_applying(line: Line) -> None:
    """Say that requests are applied, and change no model."""

    def hollow(context: Context, waiting: Sequence[Any], **rest: Any) -> worker.Left:
        answered = [replace(one, outcome="done") for one in waiting]
        worker.commit_changes(context, [], answered=answered)
        return worker.Left({}, ())

    put(worker, "apply_batch", hollow)


def complete_in_two_transactions(line: Line) -> None:
    """Write the ledger first, and that requests are completed later."""
    write = mark_completed

    def write_statement(context: Context, *rest: Any) -> None:
        late: list[Any] = []
        put(statements, "mark_completed", lambda connection, done: late.extend(done))
        real(context, *rest)
        _pause(line)
        if late:
            with context.store.write() as connection:
                write(connection, late)

    real = registry_context.write_statement
    put(completion, "write_statement", write_statement)


def destroy_keys_before_the_commit(line: Line) -> None:
    """Destroy a checkpoint's key while the next checkpoint is not committed."""

    def commit_changes(
        context: Context, changes: Sequence[Change], **rest: Any
    ) -> None:
        context.keystore.shred([one.before.key for one in changes if one.before])
        _pause(line)
        real(context, changes, **rest)

    real = worker.commit_changes
    put(worker, "commit_changes", commit_changes)


def accept_in_memory(line: Line) -> None:
    """Acknowledge requests that come together before they are on disk."""
    waiting: list[Request] = []

    def accept(
        self: RegistryRequests, asked: Sequence[Request], **options: Any
    ) -> tuple[RequestStatus, ...]:
        if len(asked) == 1:
            return really_accept(self, asked, **options)
        waiting.extend(asked)
        return tuple(
            status_of(one.request, n_subjects=len(one.subjects)) for one in asked
        )

    def apply(self: RegistryRequests) -> None:
        if waiting:
            _pause(line)
        really_accept(self, waiting, strangers=True)
        waiting.clear()
        really_apply(self)

    really_accept, really_apply = RegistryRequests.accept, RegistryRequests.apply
    put(RegistryRequests, "accept", accept)
    put(RegistryRequests, "apply", apply)


def never_flush(line: Line) -> None:
    """Write files and leave it to the system when they reach the disk."""
    put(os, "fsync", lambda descriptor: None)


def trust_the_journal(line: Line) -> None:
    """Do not hold the journal against the marks that others keep of it."""

    def compare(self: Log, descriptor: int, marks: Collection[Mark]) -> Any:
        return real(self, descriptor, {BEGINNING._replace(number=self.read_number())})

    real = Log._compare
    put(Log, "_compare", compare)
    put(Log, "_require_none", lambda self, *marks: None)


def write_to_any_journal(line: Line) -> None:
    """Compare the journal with what this process saw of it, and with nothing else."""

    def missing(self: Log, descriptor: int, before: Position, **options: Any) -> Any:
        put(Log, "read_mark_file", lambda self: BEGINNING)
        try:
            seen = before._replace(mark=self._seen.mark)
            return real(self, descriptor, seen, **options)
        finally:
            put(Log, "read_mark_file", mark_file)

    real, mark_file = Log._missing, Log.read_mark_file
    put(Log, "_missing", missing)


def compare_lengths(line: Line) -> None:
    """Take the database with the longer journal for the newer, rebuilt or not."""

    def require(context: Context, known: Mark) -> None:
        newest = context.log.read_mark_file()
        if newest.end > known.end:
            raise NeedsRestore("the journal was longer")

    put(new_log, "_require_newest_database", require)


def charge_who_forgets(line: Line) -> None:
    """Charge releases to models that forget somebody again, and to no others."""

    def forget_again(context: Context, ahead: restore.Continuation, **rest: Any) -> Any:
        lost = {one: ahead.lost.get(one, []) for one in ahead.again}
        return real(context, replace(ahead, lost=lost), **rest)

    real = restore._forget_again
    put(restore, "_forget_again", forget_again)


def leave_drafts(line: Line) -> None:
    """Open a registry and leave there what killed processes left."""
    put(opening, "_delete_leftovers", lambda context: None)


def restore_everybody(line: Line) -> None:
    """Put a backup back as it was, and forget nobody again."""
    put(restore, "_find_returned", lambda context, accepted, *, statements: {})


def cancel_without_the_journal(line: Line) -> None:
    """Say in the database alone that a request was cancelled."""

    @contextmanager
    def record(self: Log, line: Content, **options: Any) -> Iterator[Any]:
        with real(self, {} if "cancelled" in line else line, **options) as connection:
            yield connection

    real = Log.record
    put(Log, "record", record)


def erase_what_is_restricted(line: Line) -> None:
    """Erase rows that should be sealed apart."""

    def move_rows(right: Any, place: Any) -> Any:
        moved = real(right, place)
        return "gone" if (right, moved) == ("restrict", "restricted") else moved

    real = standing.move_rows
    put(settling, "move_rows", move_rows)


def keep_keys_of_new_rows(line: Line) -> None:
    """Keep the keys of new rows when their requests are done."""

    def forget(connection: Connection, ids: Sequence[str]) -> None:
        waiting = tables.rows.c.place == people_table.WAITING
        asked = waiting & tables.rows.c.request.in_(ids)
        connection.execute(delete(tables.rows).where(asked))

    put(request, "delete_waiting", forget)


def settle_backwards(line: Line) -> None:
    """Settle requests that wait together in another order than they came in."""

    def settle(requests: Sequence[Any], *rest: Any, **named: Any) -> Any:
        return real(list(reversed(requests)), *rest, **named)

    real = settling.settle
    put(worker, "settle", settle)


def take_windows_from_today(line: Line) -> None:
    """Let the window of a request follow from a setting of each process."""

    def window(self: RequestStatus) -> Window:
        return Window.at(self.accepted, length)

    length = (1, 60, 900)[os.getpid() % 3]
    put(RequestStatus, "window", property(window))


def tell_before_the_queue(line: Line) -> None:
    """Write down that the ledger was told, and queue messages after that."""

    def queue(
        self: RegistryDeliveries,
        pending: Any,
        messages: Any = (),
        *,
        looks: Any = NO_LOOKS,
    ) -> None:
        real(self, pending)
        _pause(line)
        real(self, pending, messages, looks=looks)

    real = RegistryDeliveries.queue
    put(RegistryDeliveries, "queue", queue)


def say_nothing_of_full_disks(line: Line) -> None:
    """Go on as if a checkpoint had been written."""

    def write(self: Checkpoints, model: str, parts: Any) -> int:
        try:
            return real(self, model, parts)
        except StoreFailed:
            return self.keystore.end() - 1

    real = Checkpoints.write
    put(Checkpoints, "write", write)


@dataclass(frozen=True)
class Sabotage:
    """What is broken in a process, and what shows it.

    Attributes
    ----------
    begin
        Breaks it; called in each process before it begins.
    phases
        In which of its phases a strike does harm; any, if there are none.
    kind, n_strikes
        Which kind of strikes shows it, and how many surely do.
    themes, seed
        Of stories in which it shows; any theme, if there are none.
    """

    begin: Callable[[Line], None]
    phases: Sequence[str] = ()
    kind: str = "kills"
    n_strikes: int = 12
    themes: Sequence[Theme] = ()
    seed: int = 0

    @property
    def is_rare(self) -> bool:
        """Whether it shows in few strikes of many: looking for it takes a while."""
        return self.n_strikes > 40


_FLUSHING = ("destroying keys", "entering the ledger")
_RECTIFYING = Theme((ASK_AGAIN,), ("rectify",))
_RESTRICTING = Theme((ASK_AGAIN,), ("restrict", "lift"))
_CANCELLING = Theme(("back up", "cancel", "restore"), ("restrict", "hold"))


def apply_without_approval(line: Line) -> None:
    """Take whatever waits, whether two people approved it or not."""
    del line
    put(RequestStatus, "is_held_up", lambda one, day: False)


SABOTAGES: Mapping[str, Sabotage] = {
    "apply-without-approval": Sabotage(apply_without_approval, n_strikes=3, seed=1),
    "complete-without-applying": Sabotage(complete_without_applying, NAMES),
    "complete-in-two-transactions": Sabotage(complete_in_two_transactions, (CARELESS,)),
    "destroy-keys-before-the-commit": Sabotage(
        destroy_keys_before_the_commit, (CARELESS,)
    ),
    "accept-in-memory": Sabotage(accept_in_memory, (CARELESS,)),
    "erase-what-is-restricted": Sabotage(
        erase_what_is_restricted, n_strikes=3, themes=(_RESTRICTING,)
    ),
    "keep-keys-of-new-rows": Sabotage(
        keep_keys_of_new_rows, n_strikes=3, themes=(_RECTIFYING,)
    ),
    "settle-backwards": Sabotage(
        settle_backwards, n_strikes=3, themes=(_RESTRICTING,), seed=8
    ),
    "cancel-without-the-journal": Sabotage(
        cancel_without_the_journal, n_strikes=3, themes=(_CANCELLING,), seed=67
    ),
    "never-flush": Sabotage(never_flush, _FLUSHING, "power-losses", 40),
    "trust-the-journal": Sabotage(trust_the_journal, (), "damaged-journals"),
    "write-to-any-journal": Sabotage(write_to_any_journal, (), "damaged-journals", 150),
    "compare-lengths": Sabotage(compare_lengths, (), "damaged-journals", 150),
    "charge-who-forgets": Sabotage(charge_who_forgets, (), "restores", 60),
    "leave-drafts": Sabotage(leave_drafts, (), "restores", 80),
    "restore-everybody": Sabotage(restore_everybody, (), "restores"),
    "take-windows-from-today": Sabotage(
        take_windows_from_today, kind="changed-windows"
    ),
    "tell-before-the-queue": Sabotage(
        tell_before_the_queue, (CARELESS,), "changed-windows"
    ),
    "say-nothing-of-full-disks": Sabotage(say_nothing_of_full_disks, (), "full-disks"),
}


def _pause(line: Line) -> None:
    with line.at(CARELESS):
        time.sleep(PAUSE)
