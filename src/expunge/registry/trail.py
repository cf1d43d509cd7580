# SPDX-License-Identifier: Apache-2.0
"""Trail: who did what to what, when, by which way in, and why.

Its lines are a chain: each has a hash over itself and the line before. They name no
person whom a model could know. Who may read them, and how the ledger vouches for them,
is in ``access``.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from typing import NamedTuple

from sqlalchemy import Connection, insert, select

from ..ledger.documents import DAY, midnight
from .now import now
from .storage.tables import trail

_LAST = (
    select(trail.c.sequence, trail.c.hash).order_by(trail.c.sequence.desc()).limit(1)
)


class Note(NamedTuple):
    """What a line is to say.

    Attributes
    ----------
    actor, action, target
        Who did what to what.
    via
        By which way in, such as "command line".
    reason
        Why, in words of the actor.
    """

    actor: str
    action: str
    target: str = ""
    via: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TrailLine:
    """Who did what to what, when, by which way in, and why."""

    sequence: int
    time: int
    actor: str
    action: str
    target: str
    via: str
    reason: str
    hash: str

    def hash_after(self, before: str) -> str:
        """Return the hash that the line must have after one with a hash."""
        said = [self.sequence, self.time, self.actor, self.action, self.target]
        text = json.dumps([*said, self.via, self.reason, before])
        return sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailWanted:
    """Which lines to read, the newest first.

    Parameters
    ----------
    actor, action, target
        Only lines with exactly these; any, if empty.
    since, until
        Only lines of these days and those between them; any, if None.
    before
        Only lines before this one: the last of the page before.
    most
        How many at most.
    """

    actor: str = ""
    action: str = ""
    target: str = ""
    since: date | None = None
    until: date | None = None
    before: int | None = None
    most: int = 100


def read_lines(connection: Connection, wanted: TrailWanted) -> list[TrailLine]:
    """Return lines of the trail, the newest first."""
    query = select(trail).order_by(trail.c.sequence.desc()).limit(wanted.most)
    for name in ("actor", "action", "target"):
        if value := getattr(wanted, name):
            query = query.where(trail.c[name] == value)
    if wanted.since is not None:
        query = query.where(trail.c.time >= midnight(wanted.since.isoformat()))
    if wanted.until is not None:
        query = query.where(trail.c.time < midnight(wanted.until.isoformat()) + DAY)
    if wanted.before is not None:
        query = query.where(trail.c.sequence < wanted.before)
    return [TrailLine(**line._mapping) for line in connection.execute(query)]


def read_last_line(connection: Connection) -> tuple[int, str]:
    """Return how many lines the trail has, and the hash of the last one."""
    last = connection.execute(_LAST).first()
    return (0, "") if last is None else (int(last.sequence) + 1, last.hash)


def append_notes(
    connection: Connection, notes: Iterable[Note], *, time: int | None = None
) -> None:
    """Write lines of the trail; another process may do so too, which is a Collision."""
    size, before = read_last_line(connection)
    lines = list(
        _chain(notes, size, before=before, time=now() if time is None else time)
    )
    if lines:
        connection.execute(insert(trail), lines)


def _chain(
    notes: Iterable[Note], size: int, *, before: str, time: int
) -> Iterator[dict[str, object]]:
    """Yield notes as the lines that follow one with a hash."""
    for sequence, note in enumerate(notes, start=size):
        line = TrailLine(sequence, time, *note, "")
        before = line.hash_after(before)
        yield {"sequence": sequence, "time": time, **note._asdict(), "hash": before}
