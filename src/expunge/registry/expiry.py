# SPDX-License-Identifier: Apache-2.0
"""Expiry: what was kept for a time is destroyed when that time is over.

    requests     records of answered and cancelled requests, with their receipts
    trail        lines of who looked and who acted, up to a seal of the ledger
    exclusions   by what people are recognised, until the day that receipts state

One entry of the ledger says it. The rows that go follow from the entry, in the same
transaction, so a crash leaves both or neither. What the journal has of them goes when
it is compacted right after, which can be done again at any time.

What must outlive all that stays: the ledger, since proofs rest on it; requests whose
rows are still restricted or held; people's tags until the day that their receipts
state, or for good if they state none; and the last line of the trail, which the next
one continues.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, func, select

from ..exceptions import InvalidInput
from ..ledger import Handling, RecordsExpired, TrailSealed, read_entry
from ..ledger.documents import day_of
from .clock import require_clock
from .completion import state_entry
from .context import WAIT, Context, RegistryPart, next_entry_time, read_ledger
from .expired import count_expired
from .log import SNAPSHOT
from .now import today
from .recovery.new_log import compact_log
from .storage.ledger_table import LedgerBatch
from .storage.tables import entries, trail
from .worker import recover

KEEP_DAYS = 730
"""For how long records are kept by default: 24 months, as 11 CCR 7101 asks."""


@dataclass(frozen=True, slots=True)
class Expired:
    """What was destroyed, or would be.

    Parameters
    ----------
    before
        Requests that were answered or cancelled before this day.
    n_requests, n_lines, n_exclusions
        How many records of requests, lines of the trail, and answers by whose tags
        people were recognised.
    """

    before: str
    n_requests: int
    n_lines: int
    n_exclusions: int

    def __bool__(self) -> bool:
        return any((self.n_requests, self.n_lines, self.n_exclusions))


class RegistryExpiry(RegistryPart):
    """What was kept long enough, as ``Registry.expiry``."""

    def find(self, days: int = KEEP_DAYS) -> Expired:
        """Return what would be destroyed now; change nothing."""
        context = self._context
        before = _first_kept(context, days)
        with context.store.read() as connection:
            require_clock(connection)
            n_requests = count_expired(connection, before)
            cut, gone = _find_cut(connection, before)
        return Expired(before, n_requests, cut - gone, _count_ended(context))

    def expire(self, days: int = KEEP_DAYS, *, wait: float = WAIT) -> Expired:
        """Destroy what was kept for so many days, and enter it in the ledger.

        Parameters
        ----------
        days
            For how long records are kept: at least as long as backups.
        wait
            Seconds to wait for other processes.
        """
        context = self._context
        with context.hold_lock(wait):
            recover(context, wait)
            found = self.find(days)
            if not found:
                return found
            with context.store.read() as connection:
                recorded = require_clock(connection)
                if not recorded.status.is_believed:
                    raise InvalidInput(
                        "the machine's clock jumped, so nothing is destroyed by it; "
                        "say that it is right (expunge clock confirm)"
                    )
                batch = LedgerBatch(read_ledger(context, connection))
                cut, _ = _find_cut(connection, found.before)
            time = next_entry_time(batch.ledger)
            entry = RecordsExpired(
                sequence=batch.ledger.size,
                day=day_of(time),
                requests=found.before if found.n_requests else "",
                exclusions=today().isoformat() if found.n_exclusions else "",
                n_lines=cut,
            )
            state_entry(context, batch, entry=entry, time=time)
            context.store.erase_deleted(wait)
        self.tidy()
        return found

    def tidy(self) -> None:
        """Let the journal forget what has expired; a crash may have come before it."""
        context = self._context
        # Every line may be needed by a backup, or nobody said how old these get.
        with suppress(InvalidInput):
            compact_log(context, None, ends=True)


def _first_kept(context: Context, days: int) -> str:
    least = context.settings.backup_days or 0
    if days < max(least, 1):
        raise InvalidInput(
            f"days={days}; records are kept for at least {max(least, 1)} days, as long "
            "as backups may bring them back"
        )
    return (today() - timedelta(days=days)).isoformat()


def _find_cut(connection: Connection, before: str) -> tuple[int, int]:
    """Return how many lines of the trail may be gone by now, and how many are."""
    first = connection.scalar(select(func.min(trail.c.sequence)))
    last = connection.scalar(select(func.max(trail.c.sequence)))
    if first is None or last is None:
        return 0, 0
    texts = connection.scalars(
        select(entries.c.text).where(
            entries.c.kind == "trail sealed", entries.c.day < before
        )
    )
    seals = [one for one in map(read_entry, texts) if isinstance(one, TrailSealed)]
    known = [one.n_lines for one in seals if int(first) < one.n_lines <= int(last)]
    # A seal that a restore made void is of other lines.
    for n_lines in sorted(known, reverse=True):
        found = connection.scalar(
            select(trail.c.hash).where(trail.c.sequence == n_lines - 1)
        )
        if found in [one.last for one in seals if one.n_lines == n_lines]:
            return n_lines, int(first)
    return int(first), int(first)


def _count_ended(context: Context) -> int:
    """Return by how many answers people are recognised though that day is past."""
    day, n_ended = today().isoformat(), 0
    for _, line in context.log.read():
        for one in line.get(SNAPSHOT, {}).get("answered", ()):
            n_ended += bool(one.get("until")) and one["until"] < day
        for said in line.get("receipts", {}).values():
            until = Handling.from_json(said["handling"]).excluded_until
            n_ended += bool(until) and until < day
    return n_ended
