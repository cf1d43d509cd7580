# SPDX-License-Identifier: Apache-2.0
"""Events: what changed becomes messages, each at the moment when it may be seen.

A callback gets each state that its request is shown in: in progress when the
window closes, completed at the answer, cancelled at once. Webhooks hear of answers
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
from ...registry.deliveries import (
    WEBHOOK,
    PendingEvents,
    WatchedCallback,
    WebhookEvent,
)
from ...registry.window import SECOND
from ..windows import State, Windows, format_moment, show_at
from .sending import Message

PREFIX = "whsec_"
LAST: tuple[State, ...] = ("completed", "cancelled")
ENDS_ALONE = ("fides",)
"""Forms whose receivers take any message to mean that the request has ended."""
SAID = ("request", "right", "regime", "submitted", "deadline")
"""What a webhook says of a request, beside when it came and was answered."""
NEVER = 1 << 62  # a moment by which everything is shown


def plan_messages(
    pending: PendingEvents, windows: Windows, *, now: int
) -> tuple[list[Delivery], dict[str, tuple[str, int | None]]]:
    """Return the messages that tell what changed.

    With them for each callback the state it gets, and when to look again; None: no
    more comes.
    """
    messages, looks = [], {}
    for one in pending.callbacks:
        message, looks[one.id] = _plan_callback(one, now=now)
        messages += [message] if message else []
    for event in pending.events:
        moment, data = _describe(event, windows, now=now)
        payload = write_payload(event.event, moment, data=data)
        messages += [
            Delivery(
                "",
                WEBHOOK,
                event.event,
                event.subject,
                host,
                address=id_,
                since=moment,
                payload=payload,
            )
            for id_, host, wanted in pending.listeners
            if event.event in wanted
        ]
    return messages, looks


def _plan_callback(
    one: WatchedCallback, *, now: int
) -> tuple[Delivery | None, tuple[str, int | None]]:
    """Return what a callback gets, if anything, and when to look again."""
    shown = show_at(one.status, now)
    window, state = shown.window, shown.state
    if state == "pending":
        return None, (one.told, window.close)
    look = None if state in LAST else window.next_answer(now + 1)
    if state == one.told or (state not in LAST and one.form in ENDS_ALONE):
        return None, (state, look)
    since = {"in_progress": window.close, "completed": shown.answered or now}
    message = Delivery(
        "",
        one.form,
        state,
        shown.request,
        one.host,
        address=one.id,
        since=since.get(state, now),
    )
    return message, (state, look)


def _describe(
    event: WebhookEvent, windows: Windows, *, now: int
) -> tuple[int, dict[str, object]]:
    """Return when an event may be seen, and what is said of it."""
    status = event.status
    if status is None:
        return windows.next_answer(now), {**event.data}
    shown = show_at(status, NEVER)
    received, answered = shown.window.came.start, shown.answered
    if shown.window.is_none:
        # A command answers at once, and how long that took must not show either.
        received = windows.at(received).start
        answered = answered and windows.next_answer(max(now, answered))
    said = status.to_json()
    data = {name: said[name] for name in SAID} | {"received": format_moment(received)}
    if answered is not None:
        return answered, data | {"answered": format_moment(answered)}
    overdue = event.event == "request.overdue"
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
