# SPDX-License-Identifier: Apache-2.0
"""Answers: what the senders of OpenDSR requests are told, at once and by callbacks.

Answers are canonical JSON (RFC 8785): who removes a member and spells the rest again
gets the bytes that were signed without it. A moment in an answer is that of a window,
never of the clock: how long something took depends on the person.

The protocol has no word for a person who was not found or a request that was refused.
Such a request is completed with no results, and what there is to say beyond stands
under the processor's own domain among the extensions, once it is completed and not
before.

Whether an address may be called is decided when it comes, from the address alone, so
that a sender learns at once of one that never will be. A controller is told each state:
signed, with every field. fides is told the end alone, since it takes any call to mean
that the work is done.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, cast
from uuid import UUID

from ...core.values import dumps
from ...exceptions import InvalidInput
from ...registry import Callback, Delivery, Registry
from ..outbound import Message, Policy
from ..outbound.outbox import Composer
from ..windows import ShownRequest, State, format_moment
from .documents import (
    EDITIONS,
    FIDES,
    Complaint,
    Edition,
    SubjectRequest,
    UnusableDocument,
    list_supported,
)
from .signing import Processor

Answer: TypeAlias = dict[str, Any]
FIDES_FORM = "fides"
CONTENT = {"Content-Type": "application/json"}


def encode(answer: Mapping[str, Any]) -> bytes:
    """Return an answer as it is sent."""
    return dumps(answer).encode()


def add_signature(answer: Answer, sign: Callable[[bytes], str]) -> Answer:
    """Return an answer with the signature of its bytes as they are without it."""
    return {**answer, "processor_signature": sign(encode(answer))}


def format_id(request: str) -> str:
    """Return the id of a request as a UUID."""
    return str(UUID(hex=request))


def describe_service(edition: Edition, certificate_url: str) -> Answer:
    """Return what discovery answers."""
    return {
        "api_version": edition.version,
        "supported_identities": list(list_supported()),
        "supported_subject_request_types": ["erasure"],
        "processor_certificate": certificate_url,
    }


def describe_accepted(shown: ShownRequest, body: bytes) -> Answer:
    """Return what a request is answered with when it is accepted, unsigned."""
    return {
        "controller_id": shown.status.sender,
        "expected_completion_time": format_moment(shown.window.answer),
        "received_time": format_moment(shown.window.start),
        "encoded_request": b64encode(body).decode("ascii"),
        "subject_request_id": format_id(shown.request),
    }


def describe_cancelled(shown: ShownRequest, edition: Edition) -> Answer:
    """Return what a cancellation is answered with, unsigned."""
    return {
        "api_version": edition.version,
        "controller_id": shown.status.sender,
        # It came in the window of the request: later it would have been refused.
        "received_time": format_moment(shown.window.start),
        "subject_request_id": format_id(shown.request),
    }


def describe_refusal(code: int, complaints: Sequence[Complaint]) -> Answer:
    """Return the protocol's object for an error."""
    return {
        "error": {
            "code": code,
            "message": complaints[0].message,
            "errors": [
                {"domain": one.field, "reason": one.reason, "message": one.message}
                for one in complaints
            ],
        }
    }


@dataclass(frozen=True, slots=True)
class StatusWriter:
    """Describes requests.

    Parameters
    ----------
    registry
        With the receipts.
    domain
        Of the processor.
    address
        Under which others reach the service.
    """

    registry: Registry
    domain: str
    address: str

    def describe(self, shown: ShownRequest) -> Answer:
        """Return how far a request is; every field is always there."""
        return {
            "controller_id": shown.status.sender,
            "expected_completion_time": format_moment(shown.window.answer),
            "subject_request_id": format_id(shown.request),
            "request_status": shown.state,
            "results_url": None,
            "results_count": count_results(shown),
            "extensions": self._describe_outcome(shown),
        }

    def _describe_outcome(self, shown: ShownRequest) -> dict[str, Any]:
        """Return what became of a completed request."""
        if shown.state != "completed":
            return {}
        receipt = json.loads(self.registry.requests.receipt(shown.request) or "{}")
        said = {
            "outcome": shown.status.outcome,
            "reason": shown.status.reason,
            "receipt_url": f"{self.address}/api/v1/requests/{shown.request}/receipt",
            "certificates": receipt["entry"]["certificates"],
        }
        return {self.domain: said}


def count_results(shown: ShownRequest) -> int | None:
    """Return 1 if anything was erased, 0 if not, None before it may be known."""
    if shown.state != "completed":
        return None
    return int(shown.status.outcome in ("done", "partly"))


def find_callbacks(
    asked: SubjectRequest, edition: Edition, *, policy: Policy, fides: str
) -> tuple[Callback, ...]:
    """Return whom a request wants told; refuse addresses that may not be called.

    Parameters
    ----------
    asked
        The request.
    edition
        Of the protocol.
    policy
        Whom the service may call.
    fides
        Where fides is reached; empty if it is not to be called.
    """
    found = []
    for url in asked.callbacks:
        _require_allowed(url, policy, field="status_callback_urls")
        found.append(Callback(asked.request, url, edition.form))
    if asked.reply is not None:
        if not fides:
            message = f"extensions: {FIDES} cannot be called; set fides_address here"
            raise UnusableDocument([Complaint("extensions", "invalid", message)])
        url = fides.rstrip("/") + asked.reply.path
        _require_allowed(url, policy, field="extensions")
        found.append(Callback(asked.request, url, FIDES_FORM, asked.reply.token))
    return tuple(found)


def _require_allowed(url: str, policy: Policy, *, field: str) -> None:
    try:
        policy.require_allowed(url)
    except InvalidInput as error:
        said = Complaint(field, "invalid", f"{field}: {error}")
        raise UnusableDocument([said]) from None


def make_composers(
    registry: Registry, processor: Processor, *, address: str
) -> dict[str, Composer]:
    """Return what makes the messages of each form of callback.

    Parameters
    ----------
    registry
        With the receipts.
    processor
        Who signs.
    address
        Under which others reach the service.
    """
    status = StatusWriter(registry, processor.domain, address)
    signed: dict[str, Composer] = {
        edition.form: partial(
            _compose_signed, edition=edition, processor=processor, status=status
        )
        for edition in EDITIONS
    }
    return {**signed, FIDES_FORM: _compose_fides}


def _compose_signed(
    delivery: Delivery,
    shown: ShownRequest,
    *,
    edition: Edition,
    processor: Processor,
    status: StatusWriter,
) -> Message:
    """Return what a controller is told: the state of the delivery, in every field."""
    # By now the request may be further, which is told by a delivery of its own.
    told = replace(shown, state=cast(State, delivery.event))
    said = {**status.describe(told), "status_callback_url": delivery.url}
    body = encode(said)
    return Message({**CONTENT, **processor.make_headers(edition.name, body)}, body)


def _compose_fides(delivery: Delivery, shown: ShownRequest) -> Message:
    """Return what fides is told when a request is completed or cancelled."""
    headers: Mapping[str, str] = {
        **CONTENT,
        "Authorization": f"Bearer {delivery.secret}",
    }
    return Message(headers, encode({"rows_masked": count_results(shown) or 0}))
