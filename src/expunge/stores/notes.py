# SPDX-License-Identifier: Apache-2.0
"""Notes: single values of a store, by name."""

from sqlalchemy import Connection, bindparam, insert, select, update

from .tables import notes

_NOTE = select(notes.c.value).where(notes.c.name == bindparam("name"))
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
