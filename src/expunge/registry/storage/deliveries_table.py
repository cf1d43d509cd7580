# SPDX-License-Identifier: Apache-2.0
"""Deliveries table: whom to tell what, and how far each delivery is.

    callbacks     addresses that senders of requests gave, until everything is told
    endpoints     addresses of our own webhooks
    untold        requests that were cancelled, until the webhooks are queued
    deliveries    one line for each message to each address

URLs and secrets are sealed, and only the host is in the clear. A callback says when its
request has to be looked at next, so nothing searches the finished requests. The id of a
delivery follows from what is told to whom: to queue one twice changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    Row,
    Table,
    Text,
    and_,
    bindparam,
    delete,
    func,
    select,
    text,
    tuple_,
    update,
)

from .people_table import chunks
from .tables import requests, schema

WAITING: Final = "waiting"
DELIVERED: Final = "delivered"
GIVEN_UP: Final = "given_up"

callbacks = Table(
    "callbacks",
    schema,
    # A keyed hash of request, sender, form and address.
    Column("id", Text, primary_key=True),
    Column("request", Text, nullable=False),
    # Who gave it: the sender of the request, or somebody who only knows its id.
    Column("sender", Text, nullable=False),
    Column("form", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("created", BigInteger, nullable=False),
    # The state that was told last, and when to look for the next; None: no more comes.
    Column("told", Text, nullable=False),
    Column("look", BigInteger),
    Index(None, "request"),
    Index(None, "look"),
)

endpoints = Table(
    "endpoints",
    schema,
    Column("id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("events", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("created", BigInteger, nullable=False),
)

deliveries = Table(
    "deliveries",
    schema,
    # A keyed hash of address, event and what it is about.
    Column("id", Text, primary_key=True),
    Column("form", Text, nullable=False),
    Column("event", Text, nullable=False),
    # What it is about: a request, or a release as model/number.
    Column("subject", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("host", Text, nullable=False),
    # Of webhooks; callbacks are composed when they are sent.
    Column("payload", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    # From when on it may be seen, and when it is tried next.
    Column("since", BigInteger, nullable=False),
    Column("due", BigInteger, nullable=False),
    Column("last", Text, nullable=False),
    Index(None, "address"),
    Index("ix_deliveries_due", "state", "host", "due"),
    Index("ix_deliveries_page", "state", "since", "id"),
    Index(None, "since", "id"),
)

untold = Table("untold", schema, Column("request", Text, primary_key=True))


def _insert_absent(table: Table) -> Any:
    """Return a statement that inserts lines which are not there, on both stores."""
    names = [column.name for column in table.columns]
    values = ", ".join(f":{name}" for name in names)
    return text(
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({values}) "
        "ON CONFLICT DO NOTHING"
    )


_ADD_CALLBACKS = _insert_absent(callbacks)
_ADD_DELIVERIES = _insert_absent(deliveries)
_CANCELLED = text(
    "INSERT INTO untold (request) SELECT :request "
    "WHERE EXISTS (SELECT 1 FROM endpoints) ON CONFLICT DO NOTHING"
)
_LOOK_NOW = (
    update(callbacks)
    .where(callbacks.c.request == bindparam("of"), callbacks.c.look.is_not(None))
    .values(look=0)
)
_OF_THE_SENDER = and_(
    requests.c.id == callbacks.c.request, requests.c.sender == callbacks.c.sender
)
_WATCHED = (
    select(callbacks.c.id, callbacks.c.request, callbacks.c.form)
    .add_columns(callbacks.c.host, callbacks.c.told)
    .join(requests, _OF_THE_SENDER)
    .where(callbacks.c.look <= bindparam("now"))
    .order_by(callbacks.c.look)
    .limit(bindparam("most"))
)
_TOLD = (
    update(callbacks)
    .where(callbacks.c.id == bindparam("of"))
    .values(told=bindparam("state"), look=bindparam("next"))
)
_OVERTAKEN = delete(deliveries).where(
    deliveries.c.address.in_(bindparam("addresses", expanding=True)),
    deliveries.c.state == WAITING,
    deliveries.c.event == bindparam("earlier"),
)
_DUE = (
    select(deliveries.c.host)
    .where(deliveries.c.state == WAITING, deliveries.c.due <= bindparam("now"))
    .group_by(deliveries.c.host)
    .order_by(func.min(deliveries.c.due))
)
_CLAIMABLE = (
    select(deliveries)
    .where(
        deliveries.c.state == WAITING,
        deliveries.c.host == bindparam("host"),
        deliveries.c.due <= bindparam("now"),
    )
    .order_by(deliveries.c.due, deliveries.c.id)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)
_ONE = update(deliveries).where(deliveries.c.id == bindparam("of"))
_FINISHED = delete(callbacks).where(
    callbacks.c.id.in_(bindparam("addresses", expanding=True)),
    callbacks.c.look.is_(None),
    ~select(deliveries.c.id)
    .where(deliveries.c.address == callbacks.c.id, deliveries.c.state == WAITING)
    .exists(),
)


def mark_untold(connection: Connection, request: str) -> None:
    """Note that a request was cancelled, in the transaction that cancels it.

    Its callbacks are looked at next, and the webhooks, if there are any.
    """
    connection.execute(_LOOK_NOW, {"of": request})
    connection.execute(_CANCELLED, {"request": request})


def insert_callbacks(
    connection: Connection, lines: Sequence[Mapping[str, Any]]
) -> None:
    """Insert callbacks, except those that are there."""
    if lines:
        connection.execute(_ADD_CALLBACKS, [{**line} for line in lines])


def read_watched(connection: Connection, now: int, *, most: int) -> list[Row[Any]]:
    """Return callbacks whose request has to be looked at, if it was accepted."""
    return list(connection.execute(_WATCHED, {"now": now, "most": most}))


def read_untold(connection: Connection, most: int) -> list[str]:
    """Return requests that were cancelled and of which webhooks know nothing."""
    return list(connection.scalars(select(untold.c.request).limit(most)))


def read_endpoints(connection: Connection) -> list[Row[Any]]:
    """Return all endpoints, oldest first."""
    order = (endpoints.c.created, endpoints.c.id)
    return list(connection.execute(select(endpoints).order_by(*order)))


def insert_endpoint(connection: Connection, line: Mapping[str, Any]) -> None:
    """Insert an endpoint."""
    connection.execute(endpoints.insert(), {**line})


def delete_endpoint(connection: Connection, id_: str) -> bool:
    """Delete an endpoint and give its deliveries up; return whether there was one."""
    found = connection.execute(delete(endpoints).where(endpoints.c.id == id_))
    connection.execute(
        update(deliveries)
        .where(deliveries.c.address == id_, deliveries.c.state == WAITING)
        .values(state=GIVEN_UP, last="its endpoint was removed")
    )
    return found.rowcount > 0


def write_told(
    connection: Connection, told: Mapping[str, tuple[str, int | None]], *, earlier: str
) -> None:
    """Write which state each callback was told, and when to look next; None: never.

    Where no more comes, a delivery of the earlier state that waits is dropped: the last
    state says more.
    """
    if told:
        connection.execute(
            _TOLD,
            [
                {"of": id_, "state": state, "next": next_}
                for id_, (state, next_) in told.items()
            ],
        )
    for chunk in chunks([id_ for id_, (_, next_) in told.items() if next_ is None]):
        connection.execute(_OVERTAKEN, {"addresses": chunk, "earlier": earlier})


def insert_deliveries(
    connection: Connection, lines: Sequence[Mapping[str, Any]]
) -> None:
    """Insert deliveries, except those that were queued before."""
    if lines:
        connection.execute(_ADD_DELIVERIES, [{**line} for line in lines])


def delete_untold(connection: Connection, ids: Sequence[str]) -> None:
    """Forget that webhooks have to be told of requests."""
    for chunk in chunks(ids):
        connection.execute(delete(untold).where(untold.c.request.in_(chunk)))


def delete_old(connection: Connection, *, unaccepted: int, finished: int) -> None:
    """Delete callbacks of requests that never came, and deliveries long finished.

    Each is given the moment before which it is deleted.
    """
    known = select(requests.c.id).where(_OF_THE_SENDER)
    old = callbacks.c.created < unaccepted
    connection.execute(delete(callbacks).where(old, ~known.exists()))
    for state in (DELIVERED, GIVEN_UP):
        connection.execute(
            delete(deliveries).where(
                deliveries.c.state == state, deliveries.c.since < finished
            )
        )


def read_due_hosts(connection: Connection, now: int) -> list[str]:
    """Return the hosts to which something is due, the longest due first."""
    return list(connection.scalars(_DUE, {"now": now}))


def claim(
    connection: Connection, host: str, *, now: int, most: int, until: int
) -> list[Row[Any]]:
    """Return deliveries to a host that are due; nobody else gets them until a moment.

    Another process that claims at the same time gets others.
    """
    wanted = {"host": host, "now": now, "most": most}
    found = list(connection.execute(_CLAIMABLE, wanted))
    if found:
        later = [{"of": line.id, "due": until} for line in found]
        connection.execute(_ONE.values(due=bindparam("due")), later)
    return found


def read_sealed(connection: Connection, addresses: Sequence[str]) -> dict[str, bytes]:
    """Return the sealed URL and secret of each address that is still here."""
    return {
        line.id: bytes(line.sealed)
        for table in (callbacks, endpoints)
        for chunk in chunks(addresses)
        for line in connection.execute(
            select(table.c.id, table.c.sealed).where(table.c.id.in_(chunk))
        )
    }


def find_deliveries(connection: Connection, ids: Sequence[str]) -> dict[str, Row[Any]]:
    """Return the deliveries that exist, by id."""
    return {
        line.id: line
        for chunk in chunks(ids)
        for line in connection.execute(
            select(deliveries).where(deliveries.c.id.in_(chunk))
        )
    }


MOVED = ("id", "state", "attempts", "since", "due", "last")
"""What an attempt changes, and the id."""
_MOVE = update(deliveries).where(deliveries.c.id == bindparam("b_id"))
_MOVE = _MOVE.values({name: bindparam(f"b_{name}") for name in MOVED[1:]})


def write_attempts(
    connection: Connection, lines: Sequence[Mapping[str, Any]], *, addresses: list[str]
) -> None:
    """Write what became of deliveries, each as ``MOVED`` says.

    Callbacks among the addresses that were told everything are deleted.
    """
    if not lines:
        return
    moved = [{f"b_{name}": line[name] for name in MOVED} for line in lines]
    connection.execute(_MOVE, moved)
    for chunk in chunks(addresses):
        connection.execute(_FINISHED, {"addresses": chunk})


def read_page(
    connection: Connection, state: str, *, before: tuple[int, str], most: int
) -> list[Row[Any]]:
    """Return deliveries in a state, or in any, newest first, before a place."""
    place = tuple_(deliveries.c.since, deliveries.c.id)
    query = (
        select(deliveries)
        .where(place < tuple_(*before))
        .order_by(deliveries.c.since.desc(), deliveries.c.id.desc())
        .limit(most)
    )
    if state:
        query = query.where(deliveries.c.state == state)
    return list(connection.execute(query))


def count_by_state(connection: Connection, now: int) -> dict[str, int]:
    """Return how many deliveries that may be seen there are in each state."""
    query = (
        select(deliveries.c.state, func.count())
        .where(deliveries.c.since <= now)
        .group_by(deliveries.c.state)
    )
    found = {state: int(n) for state, n in connection.execute(query)}
    return {state: found.get(state, 0) for state in (WAITING, DELIVERED, GIVEN_UP)}
