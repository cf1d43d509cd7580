# SPDX-License-Identifier: Apache-2.0
"""Events: what others must be told, written by the transaction in which it happens.

    callbacks     addresses that senders of requests gave, until everything is sent
    endpoints     addresses of our own webhooks
    events        what happened, until the webhooks about it are queued

Answers and releases are announced with the statement that puts them into the ledger,
cancelled requests with their cancellation. The past is nobody's business: without an
endpoint nothing is written. What becomes of it is in ``deliveries``.
"""

import json
from collections.abc import Iterable

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    bindparam,
    text,
    update,
)

from ..ledger import (
    Entry,
    ModelRegistered,
    ModelRemoved,
    ReleaseMade,
    ReleasesSuperseded,
    RequestCompleted,
)
from .storage.tables import schema

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

events = Table(
    "events",
    schema,
    Column("id", Integer, primary_key=True),
    Column("event", Text, nullable=False),
    Column("subject", Text, nullable=False),
    # What is said of a release, as JSON.
    Column("data", Text, nullable=False),
)

_TELL = "INSERT INTO events (event, subject, data) SELECT :event, "
_LISTENED = "EXISTS (SELECT 1 FROM endpoints)"
_ANYBODY = text(f"SELECT {_LISTENED}")
_TELL_REQUEST = text(f"{_TELL} :subject, '{{}}' WHERE {_LISTENED}")
_TELL_RELEASE = (
    f"{_TELL} model || '/' || number, :data FROM releases "
    "WHERE model = :model AND digest = :digest"
)
_TELL_MADE = text(_TELL_RELEASE)
# Only a release that left the registry can be recalled.
_TELL_RECALLED = text(
    f"{_TELL_RELEASE} AND EXISTS (SELECT 1 FROM shipments WHERE "
    "shipments.model = releases.model AND shipments.number = releases.number)"
)
_LOOK_NOW = (
    update(callbacks)
    .where(callbacks.c.request == bindparam("of"), callbacks.c.look.is_not(None))
    .values(look=0)
)


def tell_cancelled(connection: Connection, request: str) -> None:
    """Tell that a request was cancelled: its callbacks are looked at next, too."""
    connection.execute(_LOOK_NOW, {"of": request})
    connection.execute(
        _TELL_REQUEST, {"event": "request.cancelled", "subject": request}
    )


def tell_entries(connection: Connection, entries: Iterable[Entry]) -> None:
    """Tell what new entries of the ledger say of requests and releases."""
    if not connection.scalar(_ANYBODY):
        return
    done: list[dict[str, str]] = []
    made: list[dict[str, str]] = []
    recalled: list[dict[str, str]] = []
    for entry in entries:
        if isinstance(entry, RequestCompleted):
            done.append({"event": "request.completed", "subject": entry.request})
        elif isinstance(entry, ModelRegistered | ReleaseMade):
            certificate = entry.certificate
            data = {"certificate": certificate, "day": entry.day}
            made.append(
                {
                    "event": "release.made",
                    "model": entry.model,
                    "digest": certificate,
                    "data": json.dumps(data),
                }
            )
        elif isinstance(entry, ReleasesSuperseded | ModelRemoved):
            digests, successor = (
                ((entry.certificate,), None)
                if isinstance(entry, ModelRemoved)
                else (entry.certificates, entry.by)
            )
            for certificate in digests:
                said = {"certificate": certificate, "successor": successor}
                said["day"] = entry.day
                recalled.append(
                    {
                        "event": "release.recalled",
                        "model": entry.model,
                        "digest": certificate,
                        "data": json.dumps(said),
                    }
                )
    for statement, rows in (
        (_TELL_REQUEST, done),
        (_TELL_MADE, made),
        (_TELL_RECALLED, recalled),
    ):
        if rows:
            connection.execute(statement, rows)
