# SPDX-License-Identifier: Apache-2.0
"""Calls and responses: how every route of the API reads JSON, and answers."""

import json
from collections.abc import Callable, Coroutine, Mapping
from hashlib import sha256
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from ...core.values import refuse_duplicates
from ..desk import Desk
from ..problems import MEDIA_TYPE, Refused


class StrictCall(Request):
    """A call in whose JSON no field may be given twice.

    Of two, programs on the way may take the first and we the last: a check that was
    made before us would be of another request.
    """

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
                "number of thousands of digits",
            ) from None


class StrictRoute(APIRoute):
    """A route that reads JSON strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a call."""
        answer = super().get_route_handler()

        async def answer_strictly(call: Request) -> Response:
            return await answer(StrictCall(call.scope, call.receive))

        return answer_strictly


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
    409: _describe("It does not fit what is there."),
    413: _describe("The body is too long."),
    415: _describe("The body is of another kind."),
    422: _describe("Fields are missing or wrong."),
    429: _describe("Too many calls; see Retry-After."),
    503: _describe("Not now; see Retry-After."),
}


async def get_desk(request: Request) -> Desk:
    """Return the desk of the application."""
    # Not by a plain function: the framework would call that in a thread, at each call.
    desk: Desk = request.app.state.desk
    return desk


TheDesk = Annotated[Desk, Depends(get_desk)]


def answer_json(
    document: BaseModel, code: int = 200, *, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a document as a response, which no cache keeps."""
    kept = {"Cache-Control": "no-store", **(headers or {})}
    return Response(
        document.model_dump_json(), code, headers=kept, media_type="application/json"
    )


def tag_content(document: BaseModel) -> str:
    """Return the ETag of a document."""
    return f'"{sha256(document.model_dump_json().encode()).hexdigest()[:32]}"'


def is_unchanged(if_none_match: str, tag: str) -> bool:
    """Return whether a caller has a document already."""
    known = {one.strip().removeprefix("W/") for one in if_none_match.split(",")}
    return tag in known or "*" in known
