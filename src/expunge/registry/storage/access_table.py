# SPDX-License-Identifier: Apache-2.0
"""Access table: tokens by the hash of their secret, and the trail of what was done."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from .tables import entries, tokens, trail

SEALED, RESTORED = "trail sealed", "restored"
TOKEN, SESSION = "token", "session"
_IS_SESSION = tokens.c.kind == SESSION
_FIND = select(tokens).where(
    tokens.c.hash == bindparam("hash"), tokens.c.expires > bindparam("now")
)
_LAST = (
    select(trail.c.sequence, trail.c.hash).order_by(trail.c.sequence.desc()).limit(1)
)


def delete_expired(connection: Connection, time: int) -> None:
    """Delete the tokens that expired by a time."""
    connection.execute(delete(tokens).where(tokens.c.expires <= time))


def insert_token(connection: Connection, token: dict[str, Any]) -> None:
    """Write a token."""
    connection.execute(insert(tokens), token)


def find_token(connection: Connection, hashed: str, *, now: int) -> Row[Any] | None:
    """Return the token with a hash, unless it expired."""
    return connection.execute(_FIND, {"hash": hashed, "now": now}).first()


def read_tokens(connection: Connection, kind: str, *, now: int) -> list[Row[Any]]:
    """Return the tokens of a kind that did not expire, oldest first."""
    query = (
        select(tokens)
        .where(tokens.c.kind == kind, tokens.c.expires > now)
        .order_by(tokens.c.created, tokens.c.id)
    )
    return list(connection.execute(query))


def read_token(connection: Connection, id_: str) -> Row[Any] | None:
    """Return the token with an id."""
    return connection.execute(select(tokens).where(tokens.c.id == id_)).first()


def delete_token(connection: Connection, said: Mapping[str, str]) -> None:
    """Delete the token that is said, with the sessions of its name."""
    named = select(tokens.c.name).where(tokens.c.id == said["token"], ~_IS_SESSION)
    theirs = _IS_SESSION & tokens.c.name.in_(named.scalar_subquery())
    connection.execute(delete(tokens).where(theirs))
    connection.execute(delete(tokens).where(tokens.c.id == said["token"]))


def prolong_token(connection: Connection, id_: str, *, kind: str, expires: int) -> None:
    """Let a token of a kind expire later, never earlier."""
    later = (tokens.c.expires < expires) & (tokens.c.kind == kind)
    connection.execute(
        update(tokens).where(tokens.c.id == id_, later).values(expires=expires)
    )


def read_last_line(connection: Connection) -> tuple[int, str]:
    """Return how many lines the trail has, and the hash of the last one."""
    last = connection.execute(_LAST).first()
    return (0, "") if last is None else (int(last.sequence) + 1, last.hash)


def insert_trail(connection: Connection, lines: Sequence[dict[str, Any]]) -> None:
    """Write lines of the trail."""
    if lines:
        connection.execute(insert(trail), list(lines))


def read_trail(connection: Connection, start: int, *, most: int) -> list[Row[Any]]:
    """Return at most so many lines, from one on."""
    query = select(trail).where(trail.c.sequence >= start).order_by(trail.c.sequence)
    return list(connection.execute(query.limit(most)))


def read_seals(connection: Connection) -> list[str]:
    """Return the entries of the ledger that seal the trail, in order."""
    query = select(entries.c.text).where(entries.c.kind == SEALED)
    return list(connection.scalars(query.order_by(entries.c.sequence)))


def read_last_restore(connection: Connection) -> int:
    """Return the sequence of the last entry about a restore; -1 if there is none."""
    query = select(func.max(entries.c.sequence)).where(entries.c.kind == RESTORED)
    found = connection.scalar(query)
    return -1 if found is None else int(found)
