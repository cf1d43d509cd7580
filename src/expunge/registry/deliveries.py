# SPDX-License-Identifier: Apache-2.0
"""Deliveries of a registry: callbacks and webhooks wait here until they are delivered.

The sender of a request may give addresses to be told of it, and an operator may have
webhooks of their own. Both are on disk before anything is promised. What happened is
written into ``events`` by the transaction that does it, and here becomes rows of
``deliveries``, one for each message to each address; a callback says when its
request has to be looked at next. So nothing searches through finished requests. Nothing
here opens a connection.

A URL can name a person, and a secret is one. Both are sealed under a key of the
address, made from the file ``keys/outbox``, and deleted once everything is sent or
given up. They are in no journal: what a backup does not have is lost with the store.

The id of a delivery follows from its event and receiver: to queue one twice changes
nothing. Steps between attempts are fixed and follow from nothing but how many there
were, so when something is sent tells nobody anything about a person.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from sqlalchemy import (
    Connection,
    Index,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    text,
    tuple_,
    update,
)

from ..exceptions import InvalidInput, StoreFailed
from ..ledger import (
    UnusableKey,
)
from ..ledger.documents import day_of, midnight
from ..ledger.keys import read_or_create_secret
from ..promise.noise import random_bytes
from .clock import read_clock
from .context import Paths, RegistryPart
from .events import callbacks as _callbacks
from .events import endpoints as _endpoints
from .events import events as _events
from .now import now
from .request import (
    RequestStatus,
    find_requests,
    read_overdue,
    requests,
    require_request_id,
)
from .storage.engine import chunks
from .storage.keystore import KEY_BYTES, new_key, seal, unseal
from .storage.tables import columns_of, read_metadata, schema, write_metadata
from .web_address import parse_web_address

SECOND = 1000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
DAY = 24 * HOUR
STEPS = (5 * SECOND, 30 * SECOND, 2 * MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY)
"""How long to wait after the first failure, the second and so on; then the last."""
PATIENCE = 7 * DAY
"""How long a delivery is tried."""
LEASE = MINUTE
"""For how long a claimed delivery is nobody else's: longer than an attempt takes."""
UNACCEPTED = DAY
KEPT = 30 * DAY
"""How long finished deliveries are shown."""
GONE = 410
MOST = 1000
SECRET_BYTES, ID_BYTES = 32, 16
LAST_DAY = "deliveries day"
IN_PROGRESS = "in_progress"
_CURSOR = re.compile(r"([0-9]{1,18})\.(.{0,60})")

WEBHOOK = "webhook"
"""The form of our own webhooks; callbacks have other forms."""
REQUEST_EVENTS = ("request.completed", "request.cancelled", "request.overdue")
RELEASE_EVENTS = ("release.made", "release.recalled")
EVENTS = (*REQUEST_EVENTS, *RELEASE_EVENTS)
"""What our own webhooks can be told."""

DeliveryState: TypeAlias = Literal["waiting", "delivered", "given_up"]
WAITING: Final = "waiting"
DELIVERED: Final = "delivered"
GIVEN_UP: Final = "given_up"


@dataclass(frozen=True, slots=True, repr=False)
class Callback:
    """An address that the sender of a request gave, to be told how far it is.

    Parameters
    ----------
    request
        The request's id.
    url
        What to call.
    form
        How a message to it looks: "opendsr", "opengdpr" or "fides".
    secret
        What the receiver wants to see, such as a bearer token.
    sender
        Who gave it; it gets requests of the same sender alone.
    """

    request: str
    url: str
    form: str
    secret: str = ""
    sender: str = ""

    def __repr__(self) -> str:
        return f"Callback(request={self.request!r}, form={self.form!r})"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address of our own webhooks.

    Parameters
    ----------
    id
        Its name here.
    url
        What is called.
    events
        The events it gets.
    created
        When it was added, in milliseconds since 1970.
    """

    id: str
    url: str
    events: tuple[str, ...]
    created: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message to one address.

    Parameters
    ----------
    id
        Its name, the same at each attempt: a receiver can tell that it had it before.
        Empty until it is queued.
    form
        "webhook", or the form of a callback.
    event
        Of a webhook, one of ``EVENTS``; of a callback, the state of the request.
    subject
        What it is about: the id of a request, or a release as model/number.
    host
        Whom it goes to.
    state
        "waiting", "delivered" or "given_up".
    attempts, last
        How often it was tried, and how the last attempt ended.
    since, due
        From when on it may be seen, and when it is tried next, in milliseconds since
        1970.
    address
        The id of the callback or endpoint.
    payload
        The body of a webhook; callbacks are composed when they are sent.
    url, secret, claimed
        Of a delivery that was claimed to be sent: the address and its secret, and the
        moment. Otherwise empty.
    """

    id: str
    form: str
    event: str
    subject: str
    host: str
    state: DeliveryState = WAITING
    attempts: int = 0
    last: str = ""
    since: int = 0
    due: int = 0
    address: str = field(default="", repr=False)
    payload: str = field(default="", repr=False)
    url: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    claimed: int = 0

    @property
    def request(self) -> str:
        """The id of the request that it is about; empty if it is about a release."""
        return "" if self.event in RELEASE_EVENTS else self.subject


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """Some deliveries, newest first, and where the next page begins, if there is one.

    Parameters
    ----------
    lines
        The deliveries; no address is in them.
    next
        To be given as ``after``; empty on the last page.
    """

    lines: tuple[Delivery, ...]
    next: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt.

    Parameters
    ----------
    status
        The code of the answer; None if there was none.
    failure
        Why there was none, in a few fixed words; empty if there was one.
    wait
        For how many seconds the receiver asked to be left alone.
    """

    status: int | None
    failure: str = ""
    wait: int = 0

    @property
    def is_success(self) -> bool:
        """Whether the receiver took the message: any status from 200 to 299."""
        return self.status is not None and 200 <= self.status < 300

    def __str__(self) -> str:
        return self.failure if self.status is None else f"status {self.status}"


def after_attempt(delivery: Delivery, outcome: Outcome, *, now: int) -> Delivery:
    """Return a delivery as it is after an attempt.

    Parameters
    ----------
    delivery
        As it was before.
    outcome
        How the attempt ended.
    now
        When that was.
    """
    tried = replace(
        delivery, attempts=delivery.attempts + 1, due=now, last=str(outcome)
    )
    if outcome.is_success:
        return replace(tried, state=DELIVERED)
    step = STEPS[min(delivery.attempts, len(STEPS) - 1)]
    due = now + max(step, min(outcome.wait * SECOND, DAY))
    gone = outcome.status == GONE and delivery.form == WEBHOOK
    if gone or due > delivery.since + PATIENCE:
        return replace(tried, state=GIVEN_UP)
    return replace(tried, due=due)


@dataclass(frozen=True, slots=True)
class WatchedCallback:
    """A callback whose request has to be looked at.

    Parameters
    ----------
    id, form, host
        Its name, how a message to it looks, and whom it goes to.
    told
        The state that it got last; empty at first.
    status
        How far its request is.
    """

    id: str
    form: str
    host: str
    told: str
    status: RequestStatus


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """Something that our own webhooks may be told.

    Parameters
    ----------
    id
        Of its row; 0 for requests that are overdue.
    event, subject
        One of ``EVENTS``, and what it is about.
    status
        Of the request, if it is about one.
    data
        What is said of a release.
    """

    id: int
    event: str
    subject: str
    status: RequestStatus | None = None
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PendingEvents:
    """Changes not notified yet.

    Parameters
    ----------
    callbacks
        Those whose request has to be looked at.
    listeners
        The endpoints: id, host, and events.
    events
        What they may be told.
    day
        The day in UTC on which overdue requests were looked for; empty if they were
        looked for before on that day.
    """

    callbacks: tuple[WatchedCallback, ...] = ()
    listeners: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    events: tuple[WebhookEvent, ...] = ()
    day: str = ""


_CLAIMED = ("url", "secret", "claimed")
_deliveries = Table(
    "deliveries",
    schema,
    # The id is a keyed hash of address, event and what it is about.
    *columns_of(Delivery, key="id", without=_CLAIMED),
    Index(None, "address"),
    Index("ix_deliveries_due", "state", "host", "due"),
    Index("ix_deliveries_page", "state", "since", "id"),
    Index(None, "since", "id"),
)


def open_outbox_key(paths: Paths) -> bytes:
    """Return the key that seals addresses; it is made on first use.

    If it is lost, so are the addresses under it, and nothing else: what was to be told
    there is given up.
    """
    key = read_or_create_secret(paths.outbox_key, new_key)
    if len(key) != KEY_BYTES:
        raise UnusableKey(
            f"key file {paths.outbox_key} holds {len(key)} bytes, not {KEY_BYTES}; put "
            "it back from its backup, or delete it: callbacks that wait are given up"
        )
    return key


# One of the sender of a request, not of somebody who only knows its id.
_OF_THE_SENDER = and_(
    requests.c.request == _callbacks.c.request,
    requests.c.sender == _callbacks.c.sender,
)


def _insert_absent(table: Table) -> Any:
    """Return a statement that inserts rows which are not there, on both stores."""
    names = [column.name for column in table.columns]
    values = ", ".join(f":{name}" for name in names)
    return text(
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({values}) "
        "ON CONFLICT DO NOTHING"
    )


_ENDPOINTS = select(_endpoints).order_by(_endpoints.c.created, _endpoints.c.id)
_TOLD = (
    update(_callbacks)
    .where(_callbacks.c.id == bindparam("of"))
    .values(told=bindparam("state"), look=bindparam("next"))
)
NO_LOOKS: Mapping[str, tuple[str, int | None]] = MappingProxyType({})


class RegistryDeliveries(RegistryPart):
    """The deliveries of a registry, as ``Registry.deliveries``."""

    def add_callbacks(self, callbacks: Sequence[Callback]) -> None:
        """Write addresses to disk, before their requests are accepted.

        Those of a request that was accepted already are left out: they came with it,
        or somebody who only knows its id wants to listen. Nobody hears of a request
        of another sender. Those of a request that is not accepted within a day are
        deleted.
        """
        key, created, rows = open_outbox_key(self._context.paths), now(), []
        for one in callbacks:
            require_request_id(one.request)
            host = parse_web_address(one.url).host
            what = (one.request, one.sender, one.form, one.url, one.secret)
            id_ = _hash(key, "callback", *what)
            sealed = _seal_address(id_, key, url=one.url, secret=one.secret)
            row = {"id": id_, "request": one.request, "sender": one.sender}
            row |= {"form": one.form, "host": host, "told": ""}
            rows.append({**row, "sealed": sealed, "created": created, "look": 0})
        asked = sorted({one.request for one in callbacks})
        with self._context.store.write() as connection:
            known = find_requests(connection, asked)
            new = [row for row in rows if row["request"] not in known]
            if new:
                connection.execute(_insert_absent(_callbacks), new)

    def add_endpoint(
        self, url: str, events: Sequence[str] = EVENTS
    ) -> tuple[Endpoint, str]:
        """Add an address of our own webhooks; return it and its secret.

        The secret is shown this once.
        """
        unknown = sorted({*events} - {*EVENTS})
        if unknown or not events:
            raise InvalidInput(
                f"events {', '.join(unknown) or 'none'}; choose from "
                f"{', '.join(EVENTS)}"
            )
        host, key = parse_web_address(url).host, open_outbox_key(self._context.paths)
        told = tuple(one for one in EVENTS if one in events)
        secret = "whsec_" + b64encode(random_bytes(SECRET_BYTES)).decode()
        endpoint = Endpoint(random_bytes(ID_BYTES).hex(), url, told, now())
        row = {
            "id": endpoint.id,
            "host": host,
            "events": json.dumps(told),
            "sealed": _seal_address(endpoint.id, key, url=url, secret=secret),
            "created": endpoint.created,
        }
        with self._context.store.write() as connection:
            if connection.execute(select(_endpoints.c.id).limit(1)).first() is None:
                connection.execute(delete(_events))  # of endpoints that were removed
                write_metadata(connection, LAST_DAY, value="")
            connection.execute(insert(_endpoints), row)
        return endpoint, secret

    def endpoints(self) -> list[Endpoint]:
        """Return the addresses of our own webhooks, oldest first."""
        key = open_outbox_key(self._context.paths)
        with self._context.store.read(snapshot=False) as connection:
            rows = list(connection.execute(_ENDPOINTS))
        return [
            Endpoint(
                row.id,
                _unseal_address(row.id, key, sealed=row.sealed).url,
                tuple(json.loads(row.events)),
                row.created,
            )
            for row in rows
        ]

    def remove_endpoint(self, endpoint: str) -> None:
        """Remove an address of our own webhooks; what it was to be told is given up."""
        with self._context.store.write() as connection:
            gone = delete(_endpoints).where(_endpoints.c.id == endpoint)
            if not connection.execute(gone).rowcount:
                raise InvalidInput(
                    f"there is no endpoint {endpoint[:40]!r}; list them with expunge "
                    "webhook list"
                )
            connection.execute(
                update(_deliveries)
                .where(
                    _deliveries.c.address == endpoint,
                    _deliveries.c.state == WAITING,
                )
                .values(state=GIVEN_UP, last="its endpoint was removed")
            )

    def pending(self, now: int, *, most: int = MOST) -> PendingEvents:
        """Return what changed and has to be told, at most so much at once."""
        watched = (
            select(
                _callbacks.c.id,
                _callbacks.c.request,
                _callbacks.c.form,
                _callbacks.c.host,
                _callbacks.c.told,
            )
            .join(requests, _OF_THE_SENDER)
            .where(_callbacks.c.look <= now)
            .order_by(_callbacks.c.look)
            .limit(most)
        )
        with self._context.store.read() as connection:
            looked = list(connection.execute(watched))
            listeners = tuple(
                (row.id, row.host, tuple(json.loads(row.events)))
                for row in connection.execute(_ENDPOINTS)
            )
            last = read_metadata(connection, LAST_DAY)
            day = "" if last == day_of(now) else day_of(now)
            new = select(_events).order_by(_events.c.id).limit(most)
            happened = list(connection.execute(new)) if listeners else []
            about = {row.subject for row in happened if row.event in REQUEST_EVENTS}
            about |= {row.request for row in looked}
            found = find_requests(connection, sorted(about))
            late = []
            if listeners and day:
                late = read_overdue(connection, midnight(day))
        told = []
        for row in happened:
            if row.event in REQUEST_EVENTS:
                told.append(
                    WebhookEvent(row.id, row.event, row.subject, found[row.subject])
                )
                continue
            model, _, number = row.subject.rpartition("/")
            data = {"model": model, "release": int(number), **json.loads(row.data)}
            told.append(WebhookEvent(row.id, row.event, row.subject, data=data))
        told += [WebhookEvent(0, "request.overdue", one.request, one) for one in late]
        seen = (
            WatchedCallback(row.id, row.form, row.host, row.told, found[row.request])
            for row in looked
        )
        return PendingEvents(tuple(seen), listeners, tuple(told), day)

    def queue(
        self,
        pending: PendingEvents,
        messages: Sequence[Delivery] = (),
        *,
        looks: Mapping[str, tuple[str, int | None]] = NO_LOOKS,
    ) -> None:
        """Queue messages, and write down what need not be found again.

        A message that was queued before, perhaps by another process, is not queued
        again.

        Parameters
        ----------
        pending
            What was found to be told.
        messages
            What is sent about it.
        looks
            For each callback, the state it gets and when to look next; None: no more
            comes. Then a message of the state before that waits is dropped: the last
            state says more.
        """
        key, rows = open_outbox_key(self._context.paths), []
        for one in messages:
            id_ = "msg_" + _hash(key, "delivery", one.address, one.event, one.subject)
            new = replace(one, id=id_, due=one.since)
            rows.append({name: getattr(new, name) for name in _deliveries.c.keys()})
        with self._context.store.write() as connection:
            if rows:
                connection.execute(_insert_absent(_deliveries), rows)
            if looks:
                told = [
                    {"of": id_, "state": state, "next": look}
                    for id_, (state, look) in looks.items()
                ]
                connection.execute(_TOLD, told)
            for some in chunks(
                [id_ for id_, (_, look) in looks.items() if look is None]
            ):
                connection.execute(
                    delete(_deliveries).where(
                        _deliveries.c.address.in_(some),
                        _deliveries.c.state == WAITING,
                        _deliveries.c.event == IN_PROGRESS,
                    )
                )
            for chunk in chunks([one.id for one in pending.events]):
                connection.execute(delete(_events).where(_events.c.id.in_(chunk)))
            if pending.day and read_clock(connection).is_believed:
                _delete_old(connection, midnight(pending.day))
                write_metadata(connection, LAST_DAY, value=pending.day)

    def due_hosts(self, now: int) -> list[str]:
        """Return the hosts to which something is due, the longest due first."""
        query = (
            select(_deliveries.c.host)
            .where(_deliveries.c.state == WAITING, _deliveries.c.due <= now)
            .group_by(_deliveries.c.host)
            .order_by(func.min(_deliveries.c.due))
        )
        with self._context.store.read(snapshot=False) as connection:
            return list(connection.scalars(query))

    def claim(self, host: str, *, now: int, most: int) -> list[Delivery]:
        """Return deliveries to a host that are due, with their addresses.

        For a minute nobody else gets them; if they are not noted by then, because this
        process was killed, they are due again. Another process that claims at the same
        time gets others.
        """
        key = open_outbox_key(self._context.paths)
        due = (
            select(_deliveries)
            .where(
                _deliveries.c.state == WAITING,
                _deliveries.c.host == host,
                _deliveries.c.due <= now,
            )
            .order_by(_deliveries.c.due, _deliveries.c.id)
            .limit(most)
            .with_for_update(skip_locked=True)
        )
        claimed, lost = [], []
        with self._context.store.write() as connection:
            found = [Delivery(**row._mapping) for row in connection.execute(due)]
            sealed = _read_sealed(connection, [one.address for one in found])
            for one in found:
                try:
                    data = sealed[one.address]
                    address = _unseal_address(one.address, key, sealed=data)
                except (KeyError, StoreFailed):  # the key of older ones may be lost
                    gone = "its address is gone"
                    lost.append(replace(one, state=GIVEN_UP, due=now, last=gone))
                    continue
                later = replace(one, due=now + LEASE)
                _write_attempts(connection, [later])
                claimed.append(replace(one, **address._asdict(), claimed=now))
            _write_attempts(connection, lost)
        return claimed

    def note(self, outcomes: Mapping[str, Outcome], *, now: int) -> None:
        """Record the outcomes of attempts, by the ids of their deliveries."""
        with self._context.store.write() as connection:
            found = _find_deliveries(connection, list(outcomes))
            tried = [
                after_attempt(one, outcomes[one.id], now=now)
                for one in found
                if one.state == WAITING
            ]
            _write_attempts(connection, tried)

    def page(
        self, state: DeliveryState | None = None, *, after: str = "", most: int = 100
    ) -> DeliveryPage:
        """Return deliveries in a state, or in any, newest first, without addresses.

        What may not be seen yet is not among them.
        """
        if not 1 <= most <= MOST:
            raise InvalidInput(f"most={most}; give a number from 1 to {MOST}")
        before = (now() + 1, "")
        if after:
            cursor = _CURSOR.fullmatch(after)
            if cursor is None or not after.isascii():
                raise InvalidInput(
                    "after does not say where a page ended; omit it to begin"
                )
            before = int(cursor[1]), cursor[2]
        query = (
            select(_deliveries)
            .where(tuple_(_deliveries.c.since, _deliveries.c.id) < tuple_(*before))
            .order_by(_deliveries.c.since.desc(), _deliveries.c.id.desc())
            .limit(most + 1)
        )
        if state:
            query = query.where(_deliveries.c.state == state)
        with self._context.store.read(snapshot=False) as connection:
            found = [Delivery(**row._mapping) for row in connection.execute(query)]
        shown = tuple(found[:most])
        more = len(found) > most
        return DeliveryPage(shown, f"{shown[-1].since}.{shown[-1].id}" if more else "")

    def replay(self, delivery: str) -> None:
        """Deliver something again, from now on, as if it had just happened.

        Refused where its address is deleted, as that of a callback is once everything
        was told.
        """
        moment = now()
        with self._context.store.write() as connection:
            found = _find_deliveries(connection, [delivery])
            if not found or found[0].since > moment:
                raise InvalidInput(
                    f"there is no delivery {delivery[:40]!r}; list them with expunge "
                    "webhook deliveries"
                )
            if not _read_sealed(connection, [found[0].address]):
                raise InvalidInput(
                    f"delivery {delivery} cannot be sent again: its address was "
                    "removed, or deleted after the last call; the receiver can "
                    "ask for the state of the request"
                )
            again = replace(found[0], state=WAITING, attempts=0)
            _write_attempts(connection, [replace(again, since=moment, due=moment)])

    def count(self) -> dict[str, int]:
        """Return how many deliveries there are in each state."""
        query = (
            select(_deliveries.c.state, func.count())
            .where(_deliveries.c.since <= now())
            .group_by(_deliveries.c.state)
        )
        with self._context.store.read(snapshot=False) as connection:
            found = {state: int(n) for state, n in connection.execute(query)}
        return {state: found.get(state, 0) for state in (WAITING, DELIVERED, GIVEN_UP)}


def _find_deliveries(connection: Connection, ids: Sequence[str]) -> list[Delivery]:
    """Return the deliveries that exist."""
    return [
        Delivery(**row._mapping)
        for chunk in chunks(ids)
        for row in connection.execute(
            select(_deliveries).where(_deliveries.c.id.in_(chunk))
        )
    ]


def _write_attempts(connection: Connection, tried: Sequence[Delivery]) -> None:
    """Write what became of deliveries; delete callbacks that were told everything."""
    for one in tried:
        moved = ("state", "attempts", "since", "due", "last")
        this = update(_deliveries).where(_deliveries.c.id == one.id)
        connection.execute(this.values({name: getattr(one, name) for name in moved}))
    ended = {one.address for one in tried if one.state != WAITING}
    waits = select(_deliveries.c.id).where(
        _deliveries.c.address == _callbacks.c.id,
        _deliveries.c.state == WAITING,
    )
    for chunk in chunks(sorted(ended)):
        connection.execute(
            delete(_callbacks).where(
                _callbacks.c.id.in_(chunk),
                _callbacks.c.look.is_(None),
                ~waits.exists(),
            )
        )


def _delete_old(connection: Connection, today: int) -> None:
    """Delete callbacks of requests that never came, and deliveries long finished."""
    known = select(requests.c.request).where(_OF_THE_SENDER)
    old = _callbacks.c.created < today - UNACCEPTED
    connection.execute(delete(_callbacks).where(old, ~known.exists()))
    for state in (DELIVERED, GIVEN_UP):
        ended = _deliveries.c.state == state, _deliveries.c.since < today - KEPT
        connection.execute(delete(_deliveries).where(*ended))


class _Address(NamedTuple):
    """What is sealed of an address."""

    url: str
    secret: str


def _read_sealed(connection: Connection, addresses: Sequence[str]) -> dict[str, bytes]:
    """Return the sealed URL and secret of each address that is still here."""
    return {
        row.id: bytes(row.sealed)
        for table in (_callbacks, _endpoints)
        for chunk in chunks(addresses)
        for row in connection.execute(
            select(table.c.id, table.c.sealed).where(table.c.id.in_(chunk))
        )
    }


def _seal_address(id_: str, key: bytes, *, url: str, secret: str) -> bytes:
    """Return a URL and its secret, sealed for one address."""
    data = json.dumps([url, secret]).encode()
    return seal(data, _address_key(key, id_), place=f"address {id_}")


def _unseal_address(id_: str, key: bytes, *, sealed: bytes) -> _Address:
    """Return a URL and its secret."""
    data = unseal(bytes(sealed), _address_key(key, id_), place=f"address {id_}")
    return _Address(*json.loads(data))


def _address_key(key: bytes, id_: str) -> bytes:
    """Return the key of an address: one key seals one thing."""
    hashed = blake2b(
        id_.encode(), key=key, digest_size=KEY_BYTES, person=b"expunge address"
    )
    return hashed.digest()


def _hash(key: bytes, *parts: str) -> str:
    """Return a keyed hash of words."""
    hashed = blake2b(
        json.dumps(parts).encode(),
        key=key,
        digest_size=ID_BYTES,
        person=b"expunge outgoing",
    )
    return hashed.hexdigest()
