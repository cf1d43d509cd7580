# SPDX-License-Identifier: Apache-2.0
"""Answers: what OpenDSR requests are answered with.

They are canonical JSON (RFC 8785): who removes a member and spells the rest again gets
the bytes that were signed without it.

A moment in an answer is that of a window, never of the clock: how long something took
depends on the person.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from ...core.values import dumps
from ..windows import ShownRequest, format_moment
from .documents import Complaint, Edition
from .identities import list_supported

Answer: TypeAlias = dict[str, Any]


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
