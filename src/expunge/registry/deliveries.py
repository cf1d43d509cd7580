# SPDX-License-Identifier: Apache-2.0
"""Deliveries of a registry: callbacks and webhooks wait here until they are delivered.

The sender of a request may give addresses to be told of it, and an operator may have
webhooks of their own. Both are on disk before anything is promised. What happened is
found in the ledger and in small tables of what is still to be told, never by a search
through finished requests. Nothing here opens a connection.

A URL can name a person, and a secret is one. Both are sealed under a key of the
address, made from the file ``keys/outbox``, and deleted once everything is told or
given up. They are in no journal: what a backup does not have is lost with the store.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

from sqlalchemy import Connection

from ..exceptions import InvalidInput, StoreFailed
from ..ledger.documents import day_of, midnight
from ..promise.noise import random_bytes
from .clock import read_clock
from .context import Context, now
from .delivery import (
    DAY,
    EVENTS,
    MINUTE,
    Callback,
    Delivery,
    DeliveryPage,
    DeliveryState,
    Endpoint,
    NewDelivery,
    Outcome,
    Queued,
    Untold,
    WatchedCallback,
    after_attempt,
)
from .happenings import read_happenings, read_statuses
from .keys import open_outbox_key
from .storage import deliveries_table as table
from .storage import ledger_table, requests_table
from .storage.keystore import KEY_BYTES, seal, unseal
from .storage.tables import read_values, write_metadata
from .web_address import parse_web_address

LEASE = MINUTE
"""For how long a claimed delivery is nobody else's: longer than an attempt takes."""
UNACCEPTED = DAY
KEPT = 30 * DAY
"""How long finished deliveries are shown."""
MOST = 1000
SECRET_BYTES, ID_BYTES = 32, 16
REACHED, LAST_DAY = "ledger told", "deliveries day"
IN_PROGRESS = "in_progress"
_MOMENT = re.compile("[0-9]{1,18}")


class RegistryDeliveries:
    """The deliveries of a registry, as ``Registry.deliveries``.

    Parameters
    ----------
    context
        Of the registry.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def add_callbacks(self, callbacks: Sequence[Callback]) -> None:
        """Write addresses to disk, before their requests are accepted.

        Those of a request that was accepted already are left out: they came with it,
        or somebody who only knows its id wants to listen. Nobody is told of a request
        of another sender. Those of a request that is not accepted within a day are
        deleted.
        """
        key, created = open_outbox_key(self._context.paths), now()
        lines = [_callback_line(one, key, created=created) for one in callbacks]
        asked = sorted({line["request"] for line in lines})
        with self._context.store.write() as connection:
            known = requests_table.find_requests(connection, asked)
            new = [line for line in lines if line["request"] not in known]
            table.insert_callbacks(connection, new)

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
        chosen = tuple(one for one in EVENTS if one in events)
        secret = "whsec_" + b64encode(random_bytes(SECRET_BYTES)).decode()
        endpoint = Endpoint(random_bytes(ID_BYTES).hex(), url, chosen, now())
        line = {
            "id": endpoint.id,
            "host": host,
            "events": json.dumps(chosen),
            "sealed": _seal_address(endpoint.id, key, url=url, secret=secret),
            "created": endpoint.created,
        }
        with self._context.store.write() as connection:
            if not table.read_endpoints(connection):  # the past is nobody's business
                size = ledger_table.count_entries(connection)
                write_metadata(connection, REACHED, value=str(size))
                write_metadata(connection, LAST_DAY, value="")
            table.insert_endpoint(connection, line)
        return endpoint, secret

    def endpoints(self) -> list[Endpoint]:
        """Return the addresses of our own webhooks, oldest first."""
        key = open_outbox_key(self._context.paths)
        with self._context.store.read(snapshot=False) as connection:
            lines = table.read_endpoints(connection)
        return [
            Endpoint(
                line.id,
                _unseal_address(line.id, key, sealed=line.sealed).url,
                tuple(json.loads(line.events)),
                line.created,
            )
            for line in lines
        ]

    def remove_endpoint(self, endpoint: str) -> None:
        """Remove an address of our own webhooks; what it was to be told is given up."""
        with self._context.store.write() as connection:
            if not table.delete_endpoint(connection, endpoint):
                raise InvalidInput(
                    f"there is no endpoint {endpoint[:40]!r}; list them with expunge "
                    "webhook list"
                )

    def find_untold(self, now: int, *, most: int = MOST) -> Untold:
        """Return what changed and has to be told, at most so much at once."""
        with self._context.store.read() as connection:
            lines = table.read_watched(connection, now, most=most)
            found = read_statuses(connection, sorted({one.request for one in lines}))
            callbacks = tuple(
                WatchedCallback(
                    one.id, one.form, one.host, one.told, found[one.request]
                )
                for one in lines
            )
            listeners = tuple(
                (line.id, line.host, tuple(json.loads(line.events)))
                for line in table.read_endpoints(connection)
            )
            reached, last = read_values(connection, REACHED, LAST_DAY)
            day = "" if last == day_of(now) else day_of(now)
            if not listeners:
                return Untold(callbacks, day=day)
            start = int(reached or 0)
            happenings, end = read_happenings(
                connection, start, overdue_on=day, most=most
            )
        return Untold(callbacks, listeners, tuple(happenings), end, day)

    def queue(self, queued: Queued) -> None:
        """Queue messages, and write down what need not be found again.

        A message that was queued before, perhaps by another process, is not queued
        again.
        """
        untold = queued.untold
        key = open_outbox_key(self._context.paths)
        lines = [_delivery_line(one, key) for one in queued.deliveries]
        cancelled = [
            one.subject for one in untold.happenings if one.event == "request.cancelled"
        ]
        with self._context.store.write() as connection:
            table.insert_deliveries(connection, lines)
            table.write_told(connection, queued.told, earlier=IN_PROGRESS)
            table.delete_untold(connection, cancelled)
            if untold.listeners:
                _write_reached(connection, untold.reached)
            if untold.day and read_clock(connection).is_believed:
                today = midnight(untold.day)
                table.delete_old(
                    connection, unaccepted=today - UNACCEPTED, finished=today - KEPT
                )
                write_metadata(connection, LAST_DAY, value=untold.day)

    def due_hosts(self, now: int) -> list[str]:
        """Return the hosts to which something is due, the longest due first."""
        with self._context.store.read(snapshot=False) as connection:
            return table.read_due_hosts(connection, now)

    def claim(self, host: str, *, now: int, most: int) -> list[Delivery]:
        """Return deliveries to a host that are due, with their addresses.

        For a minute nobody else gets them; if they are not noted by then, because this
        process was killed, they are due again.
        """
        key = open_outbox_key(self._context.paths)
        with self._context.store.write() as connection:
            lines = table.claim(connection, host, now=now, most=most, until=now + LEASE)
            sealed = table.read_sealed(connection, [line.address for line in lines])
            there = _unseal_all(sealed, key)
            lost = [line for line in lines if line.address not in there]
            _write_outcomes(connection, lost, outcomes={}, now=now)
        return [
            _read_delivery(line, address=there[line.address], claimed=now)
            for line in lines
            if line.address in there
        ]

    def note(self, outcomes: Mapping[str, Outcome], *, now: int) -> None:
        """Write down what attempts came to, by the ids of their deliveries."""
        with self._context.store.write() as connection:
            lines = table.find_deliveries(connection, list(outcomes)).values()
            waiting = [line for line in lines if line.state == table.WAITING]
            _write_outcomes(connection, waiting, outcomes=outcomes, now=now)

    def page(
        self, state: DeliveryState | None = None, *, after: str = "", most: int = 100
    ) -> DeliveryPage:
        """Return deliveries in a state, or in any, newest first, without addresses.

        What may not be seen yet is not among them.
        """
        if not 1 <= most <= MOST:
            raise InvalidInput(f"most={most}; give a number from 1 to {MOST}")
        before = _parse_place(after) if after else (now() + 1, "")
        with self._context.store.read(snapshot=False) as connection:
            lines = table.read_page(
                connection, state or "", before=before, most=most + 1
            )
        shown = tuple(map(_read_delivery, lines[:most]))
        more = len(lines) > most
        return DeliveryPage(shown, f"{shown[-1].since}.{shown[-1].id}" if more else "")

    def replay(self, delivery: str) -> None:
        """Deliver something again, from now on, as if it had just happened.

        Refused where its address is deleted, as that of a callback is once everything
        was told.
        """
        moment = now()
        with self._context.store.write() as connection:
            line = table.find_deliveries(connection, [delivery]).get(delivery)
            if line is None or line.since > moment:
                raise InvalidInput(
                    f"there is no delivery {delivery[:40]!r}; list them with expunge "
                    "webhook deliveries"
                )
            if not table.read_sealed(connection, [line.address]):
                raise InvalidInput(
                    f"delivery {delivery} cannot be sent again: its address was "
                    "removed, or deleted after the last call; the receiver can "
                    "ask for the state of the request"
                )
            again = {"id": delivery, "state": table.WAITING, "attempts": 0}
            again |= {"since": moment, "due": moment, "last": line.last}
            table.write_attempts(connection, [again], addresses=[])

    def count(self) -> dict[str, int]:
        """Return how many deliveries there are in each state."""
        with self._context.store.read(snapshot=False) as connection:
            return table.count_by_state(connection, now())


class _SealedAddress(NamedTuple):
    """What is sealed of an address."""

    url: str
    secret: str


def _callback_line(one: Callback, key: bytes, *, created: int) -> dict[str, Any]:
    """Return a callback as the table holds it."""
    requests_table.require_request_id(one.request)
    host = parse_web_address(one.url).host
    what = (one.request, one.sender, one.form, one.url, one.secret)
    id_ = _hash(key, "callback", *what)
    return {
        "id": id_,
        "request": one.request,
        "sender": one.sender,
        "form": one.form,
        "host": host,
        "sealed": _seal_address(id_, key, url=one.url, secret=one.secret),
        "created": created,
        "told": "",
        "look": 0,
    }


def _delivery_line(one: NewDelivery, key: bytes) -> dict[str, Any]:
    """Return a new delivery as the table holds it."""
    return {
        "id": "msg_" + _hash(key, "delivery", one.address, one.event, one.subject),
        "form": one.form,
        "event": one.event,
        "subject": one.subject,
        "address": one.address,
        "host": one.host,
        "payload": one.payload,
        "state": table.WAITING,
        "attempts": 0,
        "since": one.since,
        "due": one.since,
        "last": "",
    }


def _read_delivery(
    line: Any, *, address: _SealedAddress | None = None, claimed: int = 0
) -> Delivery:
    """Return a delivery in the table, with its address if it is to be sent."""
    shown = Delivery(
        id=line.id,
        form=line.form,
        event=line.event,
        subject=line.subject,
        host=line.host,
        state=line.state,
        attempts=line.attempts,
        last=line.last,
        since=line.since,
        due=line.due,
    )
    if address is None:
        return shown
    return replace(
        shown,
        payload=line.payload,
        url=address.url,
        secret=address.secret,
        claimed=claimed,
    )


def _write_outcomes(
    connection: Connection,
    lines: Sequence[Any],
    *,
    outcomes: Mapping[str, Outcome],
    now: int,
) -> None:
    """Write down what attempts came to; without an outcome the address is gone."""
    moved = []
    for line in lines:
        before, outcome = _read_delivery(line), outcomes.get(line.id)
        after = (
            replace(before, state=table.GIVEN_UP, due=now, last="its address is gone")
            if outcome is None
            else after_attempt(before, outcome, now=now)
        )
        moved.append({name: getattr(after, name) for name in table.MOVED})
    done = {line.address for line in lines}
    table.write_attempts(connection, moved, addresses=sorted(done))


def _write_reached(connection: Connection, reached: int) -> None:
    """Write up to where the ledger was told, unless another process was faster."""
    (before,) = read_values(connection, REACHED)
    if int(before or 0) < reached:
        write_metadata(connection, REACHED, value=str(reached))


def _parse_place(after: str) -> tuple[int, str]:
    """Return where a page begins."""
    since, dot, id_ = after.partition(".")
    if not dot or not _MOMENT.fullmatch(since) or len(after) > 80:
        raise InvalidInput("after does not say where a page ended; omit it to begin")
    return int(since), id_


def _seal_address(id_: str, key: bytes, *, url: str, secret: str) -> bytes:
    """Return a URL and its secret, sealed for one address."""
    data = json.dumps([url, secret]).encode()
    return seal(data, _address_key(key, id_), place=f"address {id_}")


def _unseal_address(id_: str, key: bytes, *, sealed: bytes) -> _SealedAddress:
    """Return a URL and its secret."""
    data = unseal(bytes(sealed), _address_key(key, id_), place=f"address {id_}")
    return _SealedAddress(*json.loads(data))


def _unseal_all(sealed: Mapping[str, bytes], key: bytes) -> dict[str, _SealedAddress]:
    """Return the addresses that can be read: the key of older ones may be lost."""
    found = {}
    for id_, data in sealed.items():
        with suppress(StoreFailed):
            found[id_] = _unseal_address(id_, key, sealed=data)
    return found


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
