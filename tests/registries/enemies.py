# SPDX-License-Identifier: Apache-2.0
"""What others do to the database of a registry: altered, lost and exchanged lines."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy import delete, select, text, update

from expunge.registry import Registry, changes
from expunge.registry.context import Context, Paths
from expunge.registry.log import encode_line, read_position
from expunge.registry.recovery import restore
from expunge.registry.request import requests
from expunge.registry.storage import tables
from expunge.registry.storage.tables import SCHEMA, write_metadata

from .inside import inside
from .stored import tags_of

_SEALED = {
    "row": tables.rows.c.sealed,
    "release": tables.releases.c.content,
}
SEALED = tuple(_SEALED)
"""What is sealed or signed in the database."""

# On SQLite, done to a file that nobody has open.
HARMS = {
    "a certificate that is no text": (
        "UPDATE releases SET certificate = CAST(x'ff00ff' AS TEXT)"
    ),
    "another certificate": (
        "UPDATE releases SET certificate = replace(certificate, '1', '2')"
    ),
    "another release": "UPDATE releases SET content = zeroblob(40)",
    "another entry": (
        "UPDATE entries SET text = replace(text, 'a', 'b') WHERE sequence = 1"
    ),
    "another word in the ledger": (
        "UPDATE entries SET text = replace(text, 'churn', 'chrun')"
    ),
    "rows of zeros": (
        "UPDATE rows SET sealed = zeroblob(length(sealed)) WHERE subject = 7"
    ),
    "other keys": "UPDATE rows SET key = key + 1000000",
    "a request without a name": "UPDATE requests SET request = CAST(x'ff' AS TEXT)",
    "tables of another time": "UPDATE metadata SET value = '0' WHERE name = 'schema'",
}


def flip_bit(registry: Registry, what: str, place: int) -> None:
    """Flip a bit of everything of a kind that is sealed; again, and it is as before."""
    column = _SEALED[what]
    table = column.table
    keys = list(table.primary_key)
    with registry._context.store.write() as connection:
        for line in connection.execute(select(*keys, column).where(column.isnot(None))):
            content = bytearray(line[-1])
            content[place] ^= 1
            here = [key == value for key, value in zip(keys, line, strict=False)]
            change = update(table).where(*here).values({column: bytes(content)})
            connection.execute(change)


def set_schema(registry: Registry, version: str) -> None:
    """Let a database say that its tables are of another version."""
    with registry._context.store.write() as connection:
        write_metadata(connection, SCHEMA, value=version)


def harm(folder: Path, how: str) -> None:
    """Alter the SQLite file of a registry that nobody has open; see ``HARMS``."""
    with closing(sqlite3.connect(folder / "expunge.db")) as connection:
        assert connection.execute(HARMS[how]).rowcount > 0
        connection.commit()


@contextmanager
def losing_lines(registry: Registry, table: str) -> Iterator[None]:
    """Let a table of the database be empty."""
    place = tables.schema.tables[table]
    with registry._context.store.write() as connection:
        lines = [{**line} for line in connection.execute(select(place)).mappings()]
        connection.execute(delete(place))
    yield
    with registry._context.store.write() as connection:
        connection.execute(delete(place))
        connection.execute(place.insert(), lines)


@contextmanager
def altered_ledger(registry: Registry) -> Iterator[None]:
    """Let every entry of the ledger be another one."""
    _execute(registry, "UPDATE entries SET text = 'x' || text")
    yield
    _execute(registry, "UPDATE entries SET text = substr(text, 2)")


Bend = Literal["change", "drop", "cut", "empty"]


def bend_trail(registry: Registry, how: Bend, line: int = 0) -> None:
    """Alter a line of the trail, drop it, drop it and all after it, or drop all."""
    trail = tables.trail
    here = trail.c.sequence
    acts = {
        "change": update(trail).where(here == line).values(actor="bob"),
        "drop": delete(trail).where(here == line),
        "cut": delete(trail).where(here >= line),
        "empty": delete(trail),
    }
    with registry._context.store.write() as connection:
        connection.execute(acts[how])


def exchange_alias(registry: Registry, tag: str, other: str) -> None:
    """Give an alias the person of another one, as it is sealed."""
    table = tables.aliases
    with registry._context.store.write() as connection:
        theirs = select(table.c.sealed).where(table.c.tag == other)
        sealed = connection.execute(theirs).scalar_one()
        mine = update(table).where(table.c.tag == tag)
        connection.execute(mine.values(sealed=sealed))


@contextmanager
def overlooked_request(registry: Registry, request: str) -> Iterator[None]:
    """Let workers not see a request, as if it came while they were at work."""
    here = update(requests).where(requests.c.request == request)
    with registry._context.store.write() as connection:
        connection.execute(here.values(stage="held"))
    yield
    with registry._context.store.write() as connection:
        connection.execute(here.values(stage="accepted"))


def empty_releases(registry: Registry, model: str) -> None:
    """Take the content of a model's releases, as a restore does beyond a budget."""
    found, table = registry._context, tables.releases
    with found.hold_lock(1.0), found.log.batch() as connection:
        emptied = update(table).where(table.c.model == model).values(content=None)
        connection.execute(emptied)


def break_model(
    patch: pytest.MonkeyPatch, registry: Registry, name: str, *people: str, error: Any
) -> None:
    """Let a model raise when rows of these people change in it, or of anybody."""
    tags = [tag for person in people for tag in tags_of(registry, person)]
    table = tables.subjects.c
    with registry._context.store.read() as connection:
        numbers = {*connection.scalars(select(table.id).where(table.tag.in_(tags)))}

    def change_model(context: Context, model: str, *, reading: Any) -> Any:
        leaving = {one.subject for one in reading.moves[model].leaving}
        if model == name and (not people or not numbers.isdisjoint(leaving)):
            raise error
        return really_change(context, model, reading=reading)

    really_change = changes.change_model
    patch.setattr(changes, "change_model", change_model)


def rename_in_journal(folder: Path, request: str, name: str) -> None:
    """Write a new journal, whose acceptances call a request by another name."""
    paths = Paths(folder)
    with inside(folder) as found:
        lines = [line for _, line in found.log.read()]
    for line in lines:
        for one in line.get("accepted", ()):
            one["request"] = one["request"].replace(request, name)
    paths.journal_mark.unlink()
    paths.journal.write_bytes(b"".join(map(encode_line, lines)))


@contextmanager
def marked_like(registry: Registry) -> Iterator[None]:
    """Let restores find in every database how long the journal of a registry is."""
    with registry._context.store.read() as connection:
        known = read_position(connection)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restore, "read_position", lambda connection: known)
        yield


def _execute(registry: Registry, statement: str) -> None:
    with registry._context.store.write() as connection:
        connection.execute(text(statement))
