# SPDX-License-Identifier: Apache-2.0
"""Responses: how every route of the API answers."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from pydantic import BaseModel

from ..desk import Desk
from ..problems import MEDIA_TYPE


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


def get_desk(request: Request) -> Desk:
    """Return the desk of the application."""
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
