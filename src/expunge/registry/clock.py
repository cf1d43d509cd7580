# SPDX-License-Identifier: Apache-2.0
"""Clock: whether the machine's clock can be believed, before anything ends by it.

A clock that is wrong for one command must not end a hold: its rows would be destroyed.
So the registry remembers the last day on which it worked by a clock that it believed. A
clock more than 30 days after that may be wrong, or the registry was idle: requests go
on, but nothing ends, expires or is destroyed until the operator confirms the day. The
remembered day stays as it is meanwhile, however much is written by the doubtful clock.
A clock more than a day before it, or before the last entry of the ledger, cannot be
right: nothing is accepted or applied, because the days in receipts would be false.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from sqlalchemy import Connection, select

from ..exceptions import StoreFailed
from ..ledger.documents import day_of, days_between
from .context import WAIT, Context
from .now import now
from .storage import ledger_table
from .storage.tables import entries, metadata, write_metadata

BELIEVED = "believed clock"
"""In the store: the last day that was believed, and a day of the ledger that was too
late when the clock was confirmed."""
MOST_BACK, MOST_AHEAD = 1, 30  # days

ClockState: TypeAlias = Literal["believed", "ahead", "behind"]


class ClockBehind(StoreFailed):
    """The clock is before what is recorded already; nothing was done."""


@dataclass(frozen=True, slots=True)
class ClockStatus:
    """Whether a registry believes the machine's clock.

    Attributes
    ----------
    state
        "believed"; "ahead": nothing ends until it is confirmed; "behind": nothing is
        accepted or applied.
    today
        The day by that clock, in UTC.
    last
        The last day that was believed, or that of the ledger's last entry where the
        clock is behind that.
    """

    state: ClockState
    today: str
    last: str

    @property
    def is_believed(self) -> bool:
        """Whether things may end, expire and be destroyed by it."""
        return self.state == "believed"

    @property
    def warning(self) -> str:
        """What the operator should know and do; empty if the clock is believed."""
        if self.state == "ahead":
            return (
                f"the clock says {self.today}, more than 30 days after {self.last}, "
                "the last day at work: no hold ends and nothing expires until you run "
                "expunge clock confirm, or set the clock right"
            )
        if self.state == "behind":
            return (
                f"the clock says {self.today}, more than a day before {self.last}, "
                "which is recorded already: nothing is accepted or applied; set the "
                "clock right, or run expunge clock confirm if it is right"
            )
        return ""


_RECORDED = select(
    select(metadata.c.value).where(metadata.c.name == BELIEVED).scalar_subquery(),
    select(entries.c.day)
    .order_by(entries.c.sequence.desc())
    .limit(1)
    .scalar_subquery(),
)


class Recorded(NamedTuple):
    """How the clock stands by what a store has recorded.

    Attributes
    ----------
    status
        Whether it can be believed.
    believed
        The last day that was believed.
    excused
        A day of the ledger that was too late when the clock was confirmed.
    """

    status: ClockStatus
    believed: str
    excused: str


def read_clock(connection: Connection) -> ClockStatus:
    """Return whether the clock can be believed now, by what a store has recorded."""
    return _read(connection).status


def _read(connection: Connection) -> Recorded:
    recorded, last = connection.execute(_RECORDED).one()
    believed, _, excused = (recorded or "").partition(" ")
    today, ledger = day_of(now()), last or ""
    since = believed or ledger or today  # it may have never worked
    state: ClockState = "believed"
    if ledger > excused and days_between(today, ledger) > MOST_BACK:
        return Recorded(ClockStatus("behind", today, ledger), believed, excused)
    if days_between(today, since) > MOST_BACK:
        state = "behind"
    elif days_between(since, today) > MOST_AHEAD:
        state = "ahead"
    return Recorded(ClockStatus(state, today, since), believed, excused)


def require_clock(connection: Connection) -> Recorded:
    """Return how the clock stands; refuse one that is behind."""
    recorded = _read(connection)
    if recorded.status.state == "behind":
        raise ClockBehind(recorded.status.warning)
    return recorded


def follow_clock(context: Context, recorded: Recorded) -> None:
    """Remember a clock that is believed: once a day, with the lock held."""
    status, believed, excused = recorded
    if status.is_believed and believed < status.today:
        _write_believed(context, status.today, excused=excused)


def confirm_clock(context: Context) -> ClockStatus:
    """Believe the clock as it is, because the operator says so."""
    with context.hold_lock(WAIT):
        with context.store.read() as connection:
            last = ledger_table.read_last_day(connection)
        _write_believed(context, day_of(now()), excused=last)
        with context.store.read() as connection:
            return read_clock(connection)


def _write_believed(context: Context, day: str, *, excused: str) -> None:
    with context.log.batch() as connection:
        write_metadata(connection, BELIEVED, value=f"{day} {excused}")
