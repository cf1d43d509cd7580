# SPDX-License-Identifier: Apache-2.0
"""Webhooks: our own messages, signed as Standard Webhooks says.

    webhook-id           names the message, the same at each attempt
    webhook-timestamp    when this attempt is made, in seconds since 1970
    webhook-signature    v1,base64(HMAC-SHA256(secret, id.timestamp.body))

The body says what happened, when it could be seen, and little more: ids, days, digests.
It neither names a person nor tells whether one was known here. A receiver who may know
asks the API.
"""

import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping

from ...registry import Delivery
from ..windows import SECOND, format_moment
from .sending import Message

PREFIX = "whsec_"


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
