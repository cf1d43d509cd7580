# SPDX-License-Identifier: Apache-2.0
"""Answers: how far a request is, as the senders of OpenDSR requests see it.

Answers are canonical JSON (RFC 8785): who removes a member and spells the rest again
gets the bytes that were signed without it. A moment in an answer is that of a window,
never of the clock: how long something took depends on the person.

The protocol has no word for a person who was not found or a request that was refused.
Such a request is completed with no results, and what there is to say beyond stands
under the processor's own domain among the extensions, once it is completed and not
before.

A controller gets each state: signed, with every field. fides gets the end alone,
since it takes any call to mean that the work is done.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, cast
from uuid import UUID

from ...core.values import dumps
from ...registry import Delivery, Registry
from ..outbound import Message
from ..outbound.outbox import Composer
from ..windows import ShownRequest, State, format_moment
from .documents import EDITIONS, Edition
from .signing import Processor

Answer: TypeAlias = dict[str, Any]
FIDES_FORM = "fides"
CONTENT = {"Content-Type": "application/json"}


def encode(answer: Mapping[str, Any]) -> bytes:
    """Return an answer as it is sent."""
    return dumps(answer).encode()


def format_id(request: str) -> str:
    """Return the id of a request as a UUID."""
    return str(UUID(hex=request))


def count_results(shown: ShownRequest) -> int | None:
    """Return 1 if anything was erased, 0 if not, None before it may be known."""
    if shown.state != "completed":
        return None
    return int(shown.status.outcome in ("done", "partly"))


def describe_status(
    shown: ShownRequest, registry: Registry, *, processor: Processor, address: str
) -> Answer:
    """Return how far a request is; every field is always there."""
    extensions = {}
    if shown.state == "completed":
        receipt = json.loads(registry.requests.receipt(shown.request) or "{}")
        extensions[processor.domain] = {
            "outcome": shown.status.outcome,
            "reason": shown.status.reason,
            "receipt_url": f"{address}/api/v1/requests/{shown.request}/receipt",
            "certificates": receipt["entry"]["certificates"],
        }
    return {
        "controller_id": shown.status.sender,
        "expected_completion_time": format_moment(shown.window.answer),
        "subject_request_id": format_id(shown.request),
        "request_status": shown.state,
        "results_url": None,
        "results_count": count_results(shown),
        "extensions": extensions,
    }


def make_composers(
    registry: Registry, processor: Processor, *, address: str
) -> dict[str, Composer]:
    """Return what makes the messages of each form of callback."""

    def compose_signed(
        delivery: Delivery, shown: ShownRequest, *, edition: Edition
    ) -> Message:
        # By now the request may be further, which has a delivery of its own.
        told = replace(shown, state=cast(State, delivery.event))
        answer = describe_status(told, registry, processor=processor, address=address)
        body = encode({**answer, "status_callback_url": delivery.url})
        return Message({**CONTENT, **processor.make_headers(edition.name, body)}, body)

    def compose_fides(delivery: Delivery, shown: ShownRequest) -> Message:
        headers = {**CONTENT, "Authorization": f"Bearer {delivery.secret}"}
        return Message(headers, encode({"rows_masked": count_results(shown) or 0}))

    signed: dict[str, Composer] = {
        edition.form: partial(compose_signed, edition=edition) for edition in EDITIONS
    }
    return {**signed, FIDES_FORM: compose_fides}
