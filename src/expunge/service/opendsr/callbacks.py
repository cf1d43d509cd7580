# SPDX-License-Identifier: Apache-2.0
"""Callbacks: whom a request wants told what becomes of it, and what they are sent.

Whether an address may be called is decided when it comes, from the address alone, so
that a sender learns at once of one that never will be.

A controller is told each state: signed, with every field. fides is told the end alone,
since it takes any call to mean that the work is done.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import cast

from ...exceptions import InvalidInput
from ...registry import Callback, Delivery, Registry
from ..outbound import Message, Policy
from ..outbound.outbox import Composer
from ..windows import ShownRequest, State
from .answers import encode
from .documents import (
    EDITIONS,
    FIDES,
    Complaint,
    Edition,
    SubjectRequest,
    UnusableDocument,
)
from .signing import Processor
from .status import StatusWriter, count_results

FIDES_FORM = "fides"
CONTENT = {"Content-Type": "application/json"}


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
