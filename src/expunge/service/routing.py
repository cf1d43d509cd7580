# SPDX-License-Identifier: Apache-2.0
"""Routes: one handler answers programs with a document, and people with a page of it.

A handler is put under an address of the API by a ``program_router`` and under that of a
page by a ``page_router``; the address says which is wanted. Both read the same fields
and give the same document. At a page, a form becomes the JSON that a program would
have sent, the answer is HTML or leads to another page, and failures are pages too.

JSON is read strictly: of a field that is given twice, programs on the way may take the
first and we the last, so a check that was made before us would be of another request.
No cache keeps an answer.
"""

import json
from collections.abc import Callable, Coroutine
from hashlib import sha256
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Response
from fastapi import Request as Call
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import Message

from ..core.values import refuse_duplicates
from ..exceptions import ExpungeError
from .auth import CONFIRMATION, FORM_TOKEN, PostedForm, read_form
from .logs import log_failure
from .problems import MEDIA_TYPE, Refused, describe_error, describe_fields
from .rendering import NO_STORE, render

Handle = Callable[[Call], Coroutine[Any, Any, Response]]
PREFIX = "/api/v1"
# Before these a box is ticked, since they cannot be undone.
CONFIRMED = (
    "/requests/{request}/cancel",
    "/requests/{request}/refuse",
    "/requests/{request}/approve",
    "/models/{name}/releases/{number}/withdraw",
    "/settings/tokens/{token}/revoke",
    "/settings/webhooks/{webhook}/remove",
)
LIST = "[]"  # ends the name of a field of a form that may be chosen several times


class Problem(BaseModel):
    """A failure, as RFC 9457 describes it."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[dict[str, str]] | None = None


def _describe(text: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": text, "content": {MEDIA_TYPE: {"schema": schema}}}


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: _describe("The call cannot be read."),
    401: _describe("No token, or one that is unknown or expired."),
    403: _describe("The token lacks the scope."),
    404: _describe("There is no such thing, or it is not yours to see."),
    409: _describe("It conflicts with what is there."),
    413: _describe("The body is too long."),
    415: _describe("The body has another content type."),
    422: _describe("Fields are missing or wrong."),
    429: _describe("Too many calls; see Retry-After."),
    503: _describe("Not now; see Retry-After."),
}


class StrictCall(Call):
    """A call in whose JSON no field may be given twice."""

    async def json(self) -> Any:
        """Return what the body says."""
        try:
            return json.loads(await self.body(), object_pairs_hook=refuse_duplicates)
        except json.JSONDecodeError:
            raise  # the framework tells where
        except ValueError:
            raise Refused(
                400,
                "the JSON cannot be read; send UTF-8, give each field once, and no "
                "number with thousands of digits",
            ) from None


class ProgramRoute(APIRoute):
    """A route of the API."""

    def get_route_handler(self) -> Handle:
        """Return what answers a call."""
        answer = super().get_route_handler()

        async def answer_strictly(call: Call) -> Response:
            response = await answer(StrictCall(call.scope, call.receive))
            response.headers.setdefault("Cache-Control", "no-store")
            return response

        return answer_strictly


class PageRoute(APIRoute):
    """A route of a page."""

    def get_route_handler(self) -> Handle:
        """Return what answers a call."""
        answer = super().get_route_handler()

        async def answer_or_explain(call: Call) -> Response:
            call.state.is_page = True
            try:
                if call.method == "POST":
                    call.state.form = form = await read_form(call)
                    call.state.wants_tick = self.path in CONFIRMED
                    call = _send_as_json(call, form)
                else:  # a filter that is left open is sent as an empty field
                    query = urlencode(parse_qsl(call.scope["query_string"].decode()))
                    call = Call({**call.scope, "query_string": query.encode()})
                response = await answer(call)
            except (ExpungeError, HTTPException, RequestValidationError) as error:
                response = explain(call, error)
            response.headers.setdefault("Cache-Control", "no-store")
            return response

        return answer_or_explain


def _send_as_json(call: Call, form: PostedForm) -> Call:
    """Return a form as the call of a program; fields that are empty are left out."""
    fields = {
        name.removesuffix(LIST): [*values] if name.endswith(LIST) else form.text(name)
        for name, values in form.fields.items()
        if name not in (FORM_TOKEN, CONFIRMATION)
        and (name.endswith(LIST) or form.text(name))
    }
    body = json.dumps(fields).encode()

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    headers = [one for one in call.scope["headers"] if one[0] != b"content-type"]
    headers.append((b"content-type", b"application/json"))
    return Call({**call.scope, "headers": headers}, receive)


def explain(call: Call, error: Exception) -> Response:
    """Return a failure as a page, without what was sent."""
    headers: dict[str, str] = dict(NO_STORE)
    if isinstance(error, HTTPException):
        code, text = error.status_code, str(error.detail)
        headers |= error.headers or {}
    elif isinstance(error, ExpungeError):
        code, text = describe_error(error)
        if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log_failure(call, error)
    else:
        assert isinstance(error, RequestValidationError)
        wrong = describe_fields(error)
        fields = {one["field"].removeprefix("body.") for one in wrong}
        if all(one["field"].startswith("body") for one in wrong):
            code = HTTPStatus.UNPROCESSABLE_ENTITY
            text = (
                f"{', '.join(sorted(fields))}: missing or wrong; fill the form in again"
            )
        else:
            code, text = HTTPStatus.NOT_FOUND, "there is no such page"
    title = HTTPStatus(code).phrase
    html = render("problem", call, title=title, text=text)
    return HTMLResponse(html, code, headers=headers)


def program_router(tag: str) -> APIRouter:
    """Return a router for addresses of the API, without their prefix."""
    return APIRouter(route_class=ProgramRoute, tags=[tag], responses=PROBLEMS)


def page_router() -> APIRouter:
    """Return a router for addresses of pages."""
    return APIRouter(route_class=PageRoute, include_in_schema=False)


def describe_file(
    text: str, media_type: str, *, kind: str = "string"
) -> dict[int | str, dict[str, Any]]:
    """Return how OpenAPI describes an answer that is handed on byte for byte."""
    return {
        200: {"description": text, "content": {media_type: {"schema": {"type": kind}}}}
    }


def make_download(
    data: bytes | str, name: str, *, media_type: str = "application/octet-stream"
) -> Response:
    """Return a file for download."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, headers=headers, media_type=media_type)


def answer_tagged(document: BaseModel, if_none_match: str) -> Response:
    """Return a document with its ETag, or that its reader has it already."""
    body = document.model_dump_json()
    tag = f'"{sha256(body.encode()).hexdigest()[:32]}"'
    headers = {"ETag": tag}
    known = {one.strip().removeprefix("W/") for one in if_none_match.split(",")}
    if tag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")
