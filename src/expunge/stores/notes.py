# SPDX-License-Identifier: Apache-2.0
"""Notes: single values of a store, by name.

One of them is whose turn it is to work, which says whether a process was overtaken by
another; one is the newest mark of the journal.
"""

from sqlalchemy import Connection, bindparam, insert, select, update

from ..exceptions import Busy
from .journal import Mark
from .tables import notes

TURN, MARK = "turn", "journal mark"

_NOTE = select(notes.c.value).where(notes.c.name == bindparam("name"))
_TURN = (
    update(notes)
    .where(notes.c.name == TURN, notes.c.value == bindparam("before"))
    .values(value=bindparam("after"))
)
_MARK = (
    update(notes)
    .where(notes.c.name == MARK, notes.c.value < bindparam("mark"))
    .values(value=bindparam("mark"))
)
_CHANGE = update(notes).where(notes.c.name == bindparam("there"))


def note(connection: Connection, name: str, default: str = "") -> str:
    """Return the value under a name."""
    value = connection.scalar(_NOTE, {"name": name})
    return default if value is None else str(value)


def write_note(connection: Connection, name: str, value: str) -> None:
    """Put a value under a name."""
    changed = connection.execute(_CHANGE, {"there": name, "value": value})
    if not changed.rowcount:
        connection.execute(insert(notes), {"name": name, "value": value})


def write_turn(connection: Connection, before: str, after: str) -> None:
    """Take the next turn after another; raise Busy if somebody else took it."""
    if connection.execute(_TURN, {"before": before, "after": after}).rowcount:
        return
    if before or note(connection, TURN):
        raise overtaken()
    connection.execute(insert(notes), {"name": TURN, "value": after})


def overtaken() -> Busy:
    """Return the error that another process works instead of this one."""
    return Busy(
        "another process took over the work meanwhile; what was accepted is safe, run "
        "the command again"
    )


def mark_in(connection: Connection) -> Mark:
    """Return the newest mark of the journal that the store knows."""
    return Mark.read(note(connection, MARK))


def write_mark(connection: Connection, mark: Mark) -> None:
    """Note a mark of the journal, if it is newer than the one that is there."""
    moved = connection.execute(_MARK, {"mark": str(mark)})
    if not moved.rowcount and not note(connection, MARK):
        connection.execute(insert(notes), {"name": MARK, "value": str(mark)})
