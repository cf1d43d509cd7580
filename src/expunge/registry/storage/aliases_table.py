# SPDX-License-Identifier: Apache-2.0
"""Aliases table: which person an alias leads to, with no name of either.

A line is found by the tag of the alias. It holds the tag of the person, under which it
is deleted with the person's rows, and the person's id, sealed.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, select

from ...ledger.keys import MAIN
from .engine import insert_lines
from .people_table import chunks
from .requests_table import Answered
from .tables import aliases, request_tags, subjects

_FIND = select(aliases).where(aliases.c.tag.in_(bindparam("tags", expanding=True)))
_NEAR = (
    select(aliases.c.near, aliases.c.person)
    .join(subjects, subjects.c.tag == aliases.c.person)
    .where(aliases.c.near.in_(bindparam("near", expanding=True)))
)
_REMOVE = delete(aliases).where(aliases.c.tag.in_(bindparam("tags", expanding=True)))
_DELETE_ASKED = delete(aliases).where(
    aliases.c.person.in_(
        select(request_tags.c.tag).where(
            request_tags.c.request.in_(bindparam("ids", expanding=True))
        )
    )
)


_DELETE_PEOPLE = delete(aliases).where(
    aliases.c.person.in_(bindparam("tags", expanding=True))
)


class AliasLine(NamedTuple):
    """An alias as the table holds it."""

    tag: str
    person: str
    sealed: bytes
    near: str | None = None


def find_aliases(connection: Connection, tags: Sequence[str]) -> dict[str, AliasLine]:
    """Return those aliases that exist, by tag."""
    return {
        line.tag: AliasLine(*line)
        for chunk in chunks(tags)
        for line in connection.execute(_FIND, {"tags": chunk})
    }


def find_nearest(connection: Connection, tags: Sequence[str]) -> dict[str, AliasLine]:
    """Return for each tag the alias that has it, or else the next one in order.

    The store takes the same steps, and returns as much, whether an alias is known or
    not. Tags after the last alias are left out.
    """
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    found: dict[str, AliasLine] = {}
    for chunk in chunks(tags):
        marks = ", ".join([f"({mark})"] * len(chunk))
        lines = connection.exec_driver_sql(
            f"WITH wanted (place) AS (VALUES {marks}) "
            "SELECT place, tag, person, sealed FROM wanted JOIN aliases "
            "ON tag = (SELECT min(tag) FROM aliases WHERE tag >= place)",
            tuple(chunk),
        )
        found |= {place: AliasLine(*line) for place, *line in lines}
    return found


def find_near(connection: Connection, near: Sequence[str]) -> dict[str, set[str]]:
    """Return for each tag of a loosest form the tags of people with such an alias.

    Only of people who are held.
    """
    found: dict[str, set[str]] = {}
    for chunk in chunks(near):
        for loose, person in connection.execute(_NEAR, {"near": chunk}):
            found.setdefault(loose, set()).add(person)
    return found


def insert_aliases(connection: Connection, lines: Sequence[AliasLine]) -> None:
    """Insert aliases; it is quickest in the order of their tags."""
    if lines:
        insert_lines(connection, aliases, lines=lines)


def delete_aliases(connection: Connection, tags: Sequence[str]) -> int:
    """Delete aliases by their own tags; return how many there were."""
    return sum(
        connection.execute(_REMOVE, {"tags": chunk}).rowcount for chunk in chunks(tags)
    )


def delete_aliases_of(connection: Connection, answers: Mapping[str, Answered]) -> None:
    """Delete all aliases of people whom requests forget; read nothing.

    The requests must still name their people.
    """
    forgotten = [request for request, one in answers.items() if one.forgets]
    for chunk in chunks(forgotten):
        connection.execute(_DELETE_ASKED, {"ids": chunk})


def delete_aliases_of_people(connection: Connection, tags: Sequence[str]) -> None:
    """Delete all aliases of people by the tags of these."""
    for chunk in chunks(tags):
        connection.execute(_DELETE_PEOPLE, {"tags": chunk})


def has_aliases(connection: Connection) -> bool:
    """Return whether there are any aliases."""
    return connection.scalar(select(aliases.c.tag).limit(1)) is not None


def count_aliases(connection: Connection) -> int:
    """Return how many aliases there are; an id that leads to itself is none."""
    query = select(func.count()).where(aliases.c.tag.not_like(f"{MAIN}%"))
    return int(connection.scalar(query) or 0)
