# SPDX-License-Identifier: Apache-2.0
"""Routes of the processor: each edition of the protocol under its own base.

Every answer is signed, refusals too. What is refused, and how, follows from what was
sent: a request about a stranger is accepted like any other. A caller sees the requests
that came under the name of its token, and no others.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from hashlib import sha256
from http import HTTPStatus
from typing import NamedTuple, TypeAlias

from fastapi import APIRouter, Response
from fastapi import Request as Call
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from ...exceptions import ExpungeError, InvalidInput
from ...registry import Request
from ...registry.context import today
from ..auth import find_caller
from ..intake import Intake, Note, Submission
from ..logs import log_failure
from ..outbound import Policy
from ..problems import RETRY_SECONDS, describe_error
from .answers import (
    Answer,
    StatusWriter,
    add_signature,
    describe_accepted,
    describe_cancelled,
    describe_refusal,
    describe_service,
    encode,
    find_callbacks,
)
from .documents import (
    EDITIONS,
    Complaint,
    Edition,
    UnusableDocument,
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
    """Return the routes of all editions.

    Parameters
    ----------
    intake
        Where requests come in.
    processor
        Who answers.
    policy
        Whom the service may call.
    """
    router = APIRouter()

    async def show_certificate() -> Response:
        return Response(processor.certificate, media_type="application/x-pem-file")

    router.add_api_route(CERTIFICATE_PATH, show_certificate, include_in_schema=False)
    for edition in EDITIONS:
        handlers = EditionHandlers(edition, intake, processor, policy=policy)
        one = f"{edition.base}/{edition.collection}/{{request}}"
        for method, path, handle in (
            ("GET", f"{edition.base}/discovery", handlers.discover),
            ("POST", f"{edition.base}/{edition.collection}", handlers.accept),
            ("GET", one, handlers.show),
            ("GET", f"{edition.base}/status/{{request}}", handlers.show),
            ("DELETE", one, handlers.cancel),
        ):
            # A redirect to the other spelling would lead around a proxy with TLS.
            for spelling in (path, f"{path}/"):
                router.add_api_route(
                    spelling,
                    handlers.make_endpoint(handle),
                    methods=[method],
                    include_in_schema=False,
                )
    return router


class EditionHandlers:
    """What the routes of one edition do.

    Parameters
    ----------
    edition
        Of the protocol.
    intake
        Where requests come in.
    processor
        Who answers.
    policy
        Whom the service may call.
    """

    def __init__(
        self, edition: Edition, intake: Intake, processor: Processor, *, policy: Policy
    ) -> None:
        self._edition = edition
        self._intake = intake
        self._processor = processor
        self._policy = policy
        address = intake.settings.address
        self._status = StatusWriter(intake.registry, processor.domain, address)
        self._make_headers = partial(processor.make_headers, edition.name)
        self._find_headers = lru_cache(maxsize=MOST_KNOWN)(self._make_headers)

    def make_endpoint(self, handle: Handler) -> Callable[[Call], Awaitable[Response]]:
        """Return an endpoint that signs what a handler says, or why it refuses."""

        async def answer(call: Call) -> Response:
            try:
                reply = await handle(call)
            except (ExpungeError, HTTPException) as error:
                reply = refuse(call, error)
            return await run_in_threadpool(self._sign, reply)

        return answer

    async def discover(self, call: Call) -> Reply:
        """Say what is understood; no token is needed, and one that is sent is checked.

        So a connector that tests its settings learns of a wrong token.
        """
        if "authorization" in call.headers:
            await find_caller(call)
        url = self._processor.certificate_url
        return Reply(200, describe_service(self._edition, url), is_known=True)

    async def accept(self, call: Call) -> Reply:
        """Accept a request; it is on disk when this answers."""
        caller = await find_caller(call, "request")
        body, settings = await call.body(), self._intake.settings
        asked = parse_request(
            body, self._edition, today=today(), id_kinds=settings.id_kinds
        )
        callbacks = find_callbacks(
            asked, self._edition, policy=self._policy, fides=settings.fides_address
        )
        request = Request(
            subjects=(),
            request=asked.request,
            regime=asked.regime,
            submitted=asked.submitted,
            sender=caller.name,
            envelope=f"{self._edition.name} {sha256(body).hexdigest()}",
        )
        submission = Submission(request, (asked.identities,), callbacks)
        (shown,) = await self._intake.accept([submission], size=len(body))
        return Reply(201, describe_accepted(shown, body), is_promise=True)

    async def show(self, call: Call) -> Reply:
        """Say how far a request is."""
        caller = await find_caller(call, "request")
        request = find_id(call)

        def describe() -> Answer:
            return self._status.describe(self._intake.show(request, caller.name))

        said = await run_in_threadpool(describe)
        return Reply(200, {"api_version": self._edition.version, **said})

    async def cancel(self, call: Call) -> Reply:
        """Cancel a request while it is pending."""
        caller = await find_caller(call, "request")
        request = find_id(call)
        try:
            shown = await run_in_threadpool(self._intake.cancel, request, caller.name)
        except InvalidInput:
            raise UnusableDocument([NOT_PENDING]) from None
        await self._intake.record(Note(caller.name, "cancel", request))
        return Reply(202, describe_cancelled(shown, self._edition), is_promise=True)

    def _sign(self, reply: Reply) -> Response:
        """Return an answer as it is sent."""
        sign, said = self._processor.sign, reply.said
        body = encode(add_signature(said, sign) if reply.is_promise else said)
        make_headers = self._find_headers if reply.is_known else self._make_headers
        headers = {
            "Cache-Control": "no-store",
            **make_headers(body),
            **reply.headers,
        }
        return Response(body, reply.code, headers, media_type="application/json")


def find_id(call: Call) -> str:
    """Return the registry's id of the request that a path names."""
    try:
        return parse_id(call.path_params["request"])
    except InvalidInput:
        raise HTTPException(HTTPStatus.NOT_FOUND) from None


def refuse(call: Call, error: ExpungeError | HTTPException) -> Reply:
    """Return the protocol's object for an error; it holds nothing that was sent."""
    if isinstance(error, UnusableDocument):
        return Reply(400, describe_refusal(400, error.complaints), is_known=True)
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
    said = describe_refusal(int(status), [SAID.get(status, other)])
    return Reply(int(status), said, headers or {}, is_known=True)
