# SPDX-License-Identifier: Apache-2.0
"""Exclusions table: hashed identifiers of people who may be in no later fit.

They come from lists that others keep. A line is what was asked under one number of such
a list. It has the tag that an alias of that identifier has, under the key of its day,
and which request answered it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, select, update

from .engine import chunks
from .tables import aliases, excluded


class ExcludedLine(NamedTuple):
    """What was asked under one number of a list.

    Attributes
    ----------
    item
        The number, as the list has it.
    kind
        The kind of the identifier.
    tag, also
        Of the identifier, as an alias has it; ``also`` under the plain kind of an
        address. Both are empty if it keeps nobody out.
    request
        That of the person; empty if nobody was found, ``SEVERAL`` if several were.
    day
        Of the list.
    """

    item: str
    kind: str
    tag: str
    also: str
    request: str
    day: str


SEVERAL = "several"
_IS_EXCLUDED = excluded.c.tag != ""


def write_excluded(connection: Connection, lines: Sequence[ExcludedLine]) -> None:
    """Write lines, in the place of those of the same numbers."""
    if not lines:
        return
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    columns = [column.name for column in excluded.columns]
    renewed = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    # Past SQLAlchemy, as ``insert_lines``: a list has hundreds of thousands.
    connection.exec_driver_sql(
        f"INSERT INTO {excluded.name} ({', '.join(columns)}) "
        f"VALUES ({', '.join([mark] * len(columns))}) "
        f"ON CONFLICT (item) DO UPDATE SET {renewed}",
        [tuple(line) for line in lines],
    )


def delete_excluded(connection: Connection, items: Sequence[str]) -> int:
    """Delete what was asked under these numbers; return how many there were."""
    return sum(
        connection.execute(delete(excluded).where(excluded.c.item.in_(chunk))).rowcount
        for chunk in chunks(items)
    )


def read_excluded(
    connection: Connection, items: Sequence[str]
) -> dict[str, ExcludedLine]:
    """Return what was asked under these numbers, as far as it is known."""
    return {
        row.item: ExcludedLine(*row)
        for chunk in chunks(items)
        for row in connection.execute(
            select(excluded).where(excluded.c.item.in_(chunk))
        )
    }


def read_all_excluded(connection: Connection) -> Iterator[ExcludedLine]:
    """Yield every line, in the order of their numbers."""
    rows = connection.execute(select(excluded).order_by(excluded.c.item))
    return (ExcludedLine(*row) for row in rows)


def has_excluded(connection: Connection) -> bool:
    """Return whether anybody is kept out by a list."""
    found = connection.scalar(select(excluded.c.item).where(_IS_EXCLUDED).limit(1))
    return found is not None


def read_excluded_tags(connection: Connection) -> set[str]:
    """Return the tags of all identifiers that keep people out."""
    rows = connection.execute(select(excluded.c.tag, excluded.c.also))
    return {tag for row in rows for tag in row if tag}


def find_excluded_people(connection: Connection) -> set[str]:
    """Return the tags of people who have an alias that keeps them out."""
    found: set[str] = set()
    for column in (excluded.c.tag, excluded.c.also):
        query = select(aliases.c.person).join(excluded, aliases.c.tag == column)
        found.update(connection.scalars(query.where(_IS_EXCLUDED)))
    return found


def find_alias_tags(connection: Connection, tags: Sequence[str]) -> set[str]:
    """Return those of the tags that an alias has."""
    there = select(aliases.c.tag)
    return {
        tag
        for chunk in chunks(tags)
        for tag in connection.scalars(there.where(aliases.c.tag.in_(chunk)))
    }


def renew_excluded(connection: Connection, tagged: Sequence[tuple[str, ...]]) -> None:
    """Let exclusions have the newest of the tags of identifiers, as new aliases do.

    Each of ``tagged`` is one identifier's tags, newest key first.
    """
    if all(len(tags) == 1 for tags in tagged) or not has_excluded(connection):
        return
    newest = {old: tags[0] for tags in tagged for old in tags[1:]}
    for column in (excluded.c.tag, excluded.c.also):
        for chunk in chunks([*newest]):
            for old in [*connection.scalars(select(column).where(column.in_(chunk)))]:
                renewed = update(excluded).where(column == old)
                connection.execute(renewed.values({column: newest[old]}))


def find_last_day(connection: Connection) -> str:
    """Return the day of the newest list; empty if there was none."""
    query = select(excluded.c.day).order_by(excluded.c.day.desc()).limit(1)
    return connection.scalar(query) or ""
