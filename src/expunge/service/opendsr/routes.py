# SPDX-License-Identifier: Apache-2.0
"""Routes of the processor: each edition of the protocol under its own base.

Every answer is signed, refusals too. What is refused, and how, follows from what was
sent: a request about a stranger is accepted like any other. A caller sees the requests
that came under the name of its token, and no others. Whether an address may be called
is decided when it comes, from the address alone, so that a sender learns at once of one
that never will be.
"""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from http import HTTPStatus
from typing import NamedTuple, TypeAlias

from fastapi import APIRouter, Response
from fastapi import Request as Call
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from ...exceptions import ExpungeError, InvalidInput
from ...registry import Callback, Request
from ...registry.now import today
from ...registry.trail import Note
from ..auth import find_caller
from ..intake import Intake, Submission
from ..logs import log_failure
from ..outbound import Policy
from ..problems import RETRY_SECONDS, describe_error
from ..windows import format_moment
from .answers import FIDES_FORM, Answer, describe_status, encode, format_id
from .documents import (
    EDITIONS,
    FIDES,
    Complaint,
    Edition,
    SubjectRequest,
    UnusableDocument,
    list_supported,
    parse_id,
    parse_request,
)
from .signing import CERTIFICATE_PATH, Processor

ID = "subject_request_id"
NOT_FOUND = Complaint(ID, "not-found", "this request is not known; check its id")
NOT_PENDING = Complaint(
    ID, "not-pending", "only a request that is pending can be cancelled"
)
CONFLICT = Complaint(
    ID,
    "conflict",
    "this id came before with another body; give each request an id of its own",
)
# What these say is said in the words of the protocol.
SAID = {HTTPStatus.NOT_FOUND: NOT_FOUND, HTTPStatus.CONFLICT: CONFLICT}
REASONS = {
    HTTPStatus.UNAUTHORIZED: "unauthorised",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.TOO_MANY_REQUESTS: "too-many-calls",
}
MOST_KNOWN = 64  # answers whose signatures are kept


class Reply(NamedTuple):
    """An answer before it is signed.

    A promise has its signature in itself too. What is the same for every caller is
    signed once: nobody without a token can make the service compute signatures.
    """

    code: int
    said: Answer
    headers: Mapping[str, str] = {}
    is_promise: bool = False
    is_known: bool = False


Handler: TypeAlias = Callable[[Call], Awaitable[Reply]]


def make_router(intake: Intake, processor: Processor, *, policy: Policy) -> APIRouter:
    """Return the routes of all editions."""
    router = APIRouter()

    @router.get(CERTIFICATE_PATH, include_in_schema=False)
    async def show_certificate() -> Response:
        return Response(processor.certificate, media_type="application/x-pem-file")

    for edition in EDITIONS:
        add_edition(router, edition, intake=intake, processor=processor, policy=policy)
    return router


def add_edition(
    router: APIRouter,
    edition: Edition,
    *,
    intake: Intake,
    processor: Processor,
    policy: Policy,
) -> None:
    """Add the routes of one edition."""
    settings = intake.settings
    make_headers = partial(processor.make_headers, edition.name)
    find_headers = lru_cache(maxsize=MOST_KNOWN)(make_headers)

    async def discover(call: Call) -> Reply:
        # A token is not needed, and one that is sent is checked: so a connector that
        # tests its settings learns of a wrong token.
        if "authorization" in call.headers:
            await find_caller(call)
        said = {
            "api_version": edition.version,
            "supported_identities": list(list_supported()),
            "supported_subject_request_types": ["erasure"],
            "processor_certificate": processor.certificate_url,
        }
        return Reply(200, said, is_known=True)

    async def accept(call: Call) -> Reply:
        caller = await find_caller(call, "request")
        body = await call.body()
        asked = parse_request(body, edition, today=today(), id_kinds=settings.id_kinds)
        callbacks = find_callbacks(
            asked, edition, policy=policy, fides=settings.fides_address
        )
        request = Request(
            subjects=(),
            request=asked.request,
            regime=asked.regime,
            submitted=asked.submitted,
            sender=caller.name,
            envelope=f"{edition.name} {sha256(body).hexdigest()}",
        )
        submission = Submission(request, (asked.identities,), callbacks)
        (shown,) = await intake.accept([submission], size=len(body))
        said = {
            "controller_id": caller.name,
            "expected_completion_time": format_moment(shown.window.answer),
            "received_time": format_moment(shown.window.came.start),
            "encoded_request": b64encode(body).decode("ascii"),
            "subject_request_id": format_id(shown.request),
        }
        return Reply(201, said, is_promise=True)

    async def show(call: Call) -> Reply:
        caller = await find_caller(call, "request")
        request = find_id(call)

        def describe() -> Answer:
            shown = intake.show(request, caller.name)
            return describe_status(
                shown, intake.registry, processor=processor, address=settings.address
            )

        said = await run_in_threadpool(describe)
        return Reply(200, {"api_version": edition.version, **said})

    async def cancel(call: Call) -> Reply:
        caller = await find_caller(call, "request")
        request = find_id(call)
        try:
            shown = await run_in_threadpool(intake.cancel, request, caller.name)
        except InvalidInput:
            raise UnusableDocument([NOT_PENDING]) from None
        await intake.record(Note(caller.name, "cancel", request))
        said = {
            "api_version": edition.version,
            "controller_id": caller.name,
            # It came in the window of the request: later it would have been refused.
            "received_time": format_moment(shown.window.came.start),
            "subject_request_id": format_id(shown.request),
        }
        return Reply(202, said, is_promise=True)

    def sign(reply: Reply) -> Response:
        said = reply.said
        if reply.is_promise:  # of the bytes as they are without it
            said = {**said, "processor_signature": processor.sign(encode(said))}
        body = encode(said)
        headers = {
            "Cache-Control": "no-store",
            **(find_headers if reply.is_known else make_headers)(body),
            **reply.headers,
        }
        return Response(body, reply.code, headers, media_type="application/json")

    def signed(handle: Handler) -> Callable[[Call], Awaitable[Response]]:
        async def answer(call: Call) -> Response:
            try:
                reply = await handle(call)
            except (ExpungeError, HTTPException) as error:
                reply = refuse(call, error)
            return await run_in_threadpool(sign, reply)

        return answer

    collection = f"{edition.base}/{edition.collection}"
    for method, path, handle in (
        ("GET", f"{edition.base}/discovery", discover),
        ("POST", collection, accept),
        ("GET", f"{collection}/{{request}}", show),
        ("GET", f"{edition.base}/status/{{request}}", show),
        ("DELETE", f"{collection}/{{request}}", cancel),
    ):
        # A redirect to the other spelling would lead around a proxy with TLS.
        for spelling in (path, f"{path}/"):
            router.add_api_route(
                spelling, signed(handle), methods=[method], include_in_schema=False
            )


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
    found = [
        ("status_callback_urls", Callback(asked.request, url, edition.form))
        for url in asked.callbacks
    ]
    if asked.reply is not None:
        if not fides:
            message = f"extensions: {FIDES} cannot be called; set fides_address here"
            raise UnusableDocument([Complaint("extensions", "invalid", message)])
        url, token = fides.rstrip("/") + asked.reply.path, asked.reply.token
        reply = Callback(asked.request, url, FIDES_FORM, token)
        found.append(("extensions", reply))
    for field, callback in found:
        try:
            policy.require_allowed(callback.url)
        except InvalidInput as error:
            said = Complaint(field, "invalid", f"{field}: {error}")
            raise UnusableDocument([said]) from None
    return tuple(callback for _, callback in found)


def find_id(call: Call) -> str:
    """Return the registry's id of the request that a path names."""
    try:
        return parse_id(call.path_params["request"])
    except InvalidInput:
        raise HTTPException(HTTPStatus.NOT_FOUND) from None


def refuse(call: Call, error: ExpungeError | HTTPException) -> Reply:
    """Return the protocol's object for an error; it holds nothing that was sent."""
    if isinstance(error, UnusableDocument):
        return _refusal(400, error.complaints)
    if isinstance(error, HTTPException):
        code, message, headers = error.status_code, error.detail, error.headers
    else:
        code, message = describe_error(error)
        headers = {"Retry-After": str(RETRY_SECONDS)} if code >= 500 else None
        if code >= 500:
            log_failure(call, error)
        elif code == HTTPStatus.UNPROCESSABLE_ENTITY:
            # The protocol has 400 in its place. The registry may quote what it refuses.
            code, message = HTTPStatus.BAD_REQUEST, "this request cannot be accepted"
    status = HTTPStatus(code)
    other = Complaint("", REASONS.get(status, "failed"), message)
    return _refusal(int(status), [SAID.get(status, other)], headers=headers)


def _refusal(
    code: int,
    complaints: Sequence[Complaint],
    *,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Return the protocol's object for what is wrong."""
    errors = [
        {"domain": one.field, "reason": one.reason, "message": one.message}
        for one in complaints
    ]
    error = {"code": code, "message": complaints[0].message, "errors": errors}
    return Reply(code, {"error": error}, headers or {}, is_known=True)
