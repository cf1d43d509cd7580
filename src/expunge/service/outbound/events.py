# SPDX-License-Identifier: Apache-2.0
"""Events: what changed becomes messages, each at the moment when it may be seen.

A callback is told of each state that its request is shown in: in progress when the
window closes, completed at the answer, cancelled at once. Webhooks are told of answers
and releases at the moment of answers too. So when a message is sent follows from the
windows alone, and not from how long an answer took.

Webhooks are our own messages, signed as Standard Webhooks says:

    webhook-id           names the message, the same at each attempt
    webhook-timestamp    when this attempt is made, in seconds since 1970
    webhook-signature    v1,base64(HMAC-SHA256(secret, id.timestamp.body))

Their body says what happened, when it could be seen, and little more: ids, days,
digests. It neither names a person nor tells whether one was known here. A receiver who
may know asks the API.
"""

import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping

from ...ledger.documents import day_of, midnight
from ...registry import Delivery
from ...registry.delivery import (
    WEBHOOK,
    Happening,
    NewDelivery,
    Queued,
    Untold,
    WatchedCallback,
)
from ...registry.window import SECOND
from ..windows import State, Windows, format_moment, show_at
from .sending import Message

PREFIX = "whsec_"
LAST: tuple[State, ...] = ("completed", "cancelled")
ENDS_ALONE = ("fides",)
"""Forms whose receivers take any message to mean that the request came to its end."""
NEVER = 1 << 62  # a moment by which everything is shown


def plan_messages(untold: Untold, windows: Windows, *, now: int) -> Queued:
    """Return the messages that tell what changed, and when to look again."""
    deliveries, told = [], {}
    for one in untold.callbacks:
        message, told[one.id] = _plan_callback(one, now=now)
        deliveries += [message] if message else []
    for happening in untold.happenings:
        deliveries += _plan_webhooks(happening, untold, windows=windows, now=now)
    return Queued(deliveries, told, untold)


def _plan_callback(
    one: WatchedCallback, *, now: int
) -> tuple[NewDelivery | None, tuple[str, int | None]]:
    """Return what a callback is told, if anything, and when to look again."""
    shown = show_at(one.status, now)
    window, state = shown.window, shown.state
    if state == "pending":
        return None, (one.told, window.close)
    look = None if state in LAST else window.next_answer(now + 1)
    if state == one.told or (state not in LAST and one.form in ENDS_ALONE):
        return None, (state, look)
    since = {"in_progress": window.close, "completed": shown.answered or now}
    message = NewDelivery(
        address=one.id,
        form=one.form,
        event=state,
        subject=shown.request,
        host=one.host,
        since=since.get(state, now),
    )
    return message, (state, look)


def _plan_webhooks(
    happening: Happening, untold: Untold, *, windows: Windows, now: int
) -> list[NewDelivery]:
    """Return the messages about a happening, to all who want to hear of it."""
    event = happening.event
    moment, data = _describe(happening, windows, now=now)
    payload = write_payload(event, moment, data=data)
    return [
        NewDelivery(id_, WEBHOOK, event, happening.subject, host, moment, payload)
        for id_, host, events in untold.listeners
        if event in events
    ]


def _describe(
    happening: Happening, windows: Windows, *, now: int
) -> tuple[int, dict[str, object]]:
    """Return when a happening may be seen, and what is said of it."""
    status = happening.status
    if status is None:
        return windows.next_answer(now), {**happening.data}
    shown = show_at(status, NEVER)
    received, answered = shown.window.start, shown.answered
    if shown.window.is_none:
        # A command answers at once, and how long that took must not show either.
        received = windows.at(received).start
        answered = answered and windows.next_answer(max(now, answered))
    data: dict[str, object] = {
        "request": status.request,
        "right": status.right,
        "regime": status.regime,
        "submitted": status.submitted,
        "deadline": day_of(status.deadline),
        "received": format_moment(received),
    }
    if answered is not None:
        return answered, data | {"answered": format_moment(answered)}
    overdue = happening.event == "request.overdue"
    return midnight(day_of(now)) if overdue else now, data


def write_payload(event: str, moment: int, *, data: Mapping[str, object]) -> str:
    """Return the body of a message.

    Parameters
    ----------
    event
        What happened.
    moment
        When that could be seen, in milliseconds since 1970.
    data
        What is said of it.
    """
    said = {"type": event, "timestamp": format_moment(moment), "data": {**data}}
    return json.dumps(said, separators=(",", ":"))


def compose_webhook(delivery: Delivery) -> Message:
    """Return the message of a delivery that was claimed, signed for this attempt."""
    timestamp = str(delivery.claimed // SECOND)
    body = delivery.payload.encode()
    headers = {
        "Content-Type": "application/json",
        "webhook-id": delivery.id,
        "webhook-timestamp": timestamp,
        "webhook-signature": sign(
            body, delivery.secret, id_=delivery.id, timestamp=timestamp
        ),
    }
    return Message(headers, body)


def sign(body: bytes, secret: str, *, id_: str, timestamp: str) -> str:
    """Return the signature of a body under a secret ``whsec_...``."""
    key = b64decode(secret.removeprefix(PREFIX))
    signed = b".".join((id_.encode(), timestamp.encode(), body))
    return f"v1,{b64encode(hmac.digest(key, signed, 'sha256')).decode()}"
