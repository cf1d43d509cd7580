# SPDX-License-Identifier: Apache-2.0
"""Problems: every failure as a document of RFC 9457, without a value that was sent.

What callers sent may name people. A problem says which field is wrong and why, and
never what it held. What is refused, and with which code, follows from what was sent and
never from who is known.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException

from ..exceptions import (
    Busy,
    ExpungeError,
    InvalidInput,
    NeedsDecision,
    RequestConflict,
    StoreFailed,
    UnknownRequest,
)
from .logs import failure_code, log_failure

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5

# The first that fits. What is none of these is the operator's business, not the
# caller's: the store is full, a key is missing, a budget is spent.
CODES: Mapping[type[Exception], int] = {
    RequestConflict: HTTPStatus.CONFLICT,
    NeedsDecision: HTTPStatus.CONFLICT,
    UnknownRequest: HTTPStatus.NOT_FOUND,
    InvalidInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    Busy: HTTPStatus.SERVICE_UNAVAILABLE,
}
FIELDS = frozenset(
    "body path query header request id right people regime submitted reason until rows "
    "X y sample_weight exposure offset time notified state due cursor limit name "
    "number start most first second format scopes days url events after before method "
    "why owner identity approval four_eyes grace_days reference note".split()
)
"""Names of fields and parameters that may be shown."""
REASONS: Mapping[str, str] = {
    "missing": "it is missing",
    "extra_forbidden": "it has a field that does not exist",
    "literal_error": "it must be {expected}",
    "string_pattern_mismatch": "it must match {pattern}",
    "json_invalid": "it is not JSON",
    "model_type": "it must be a JSON object",
    "model_attributes_type": "it must be a JSON object, sent as application/json",
    "dict_type": "it must be a JSON object",
    "list_type": "it must be a list",
    "string_type": "it must be text",
    "date_from_datetime_parsing": "it must be a day such as 2026-03-01",
    "date_parsing": "it must be a day such as 2026-03-01",
    "day_expected": "it must be a day such as 2026-03-01",
    "int_parsing": "it must be a whole number",
    "greater_than_equal": "it must be at least {ge}",
    "less_than_equal": "it must be at most {le}",
    "too_short": "it must have at least {min_length}",
    "too_long": "it must have at most {max_length}",
    "string_too_short": "it must have at least {min_length} characters",
    "string_too_long": "it must have at most {max_length} characters",
}
"""What is wrong, by the type of an error: words of ours, and limits of the API."""
LATER = "the service cannot answer now; send the same again in a few seconds"


class Refused(HTTPException):
    """A call that is refused before it reaches the registry."""


def make_problem(
    code: int,
    detail: str,
    *,
    errors: list[dict[str, str]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return a problem as a response."""
    status = HTTPStatus(code)
    content: dict[str, Any] = {
        "type": f"urn:expunge:problem:{status.phrase.lower().replace(' ', '-')}",
        "title": status.phrase,
        "status": code,
        "detail": detail,
    }
    if errors:
        content["errors"] = errors
    kept = {"Cache-Control": "no-store", **(headers or {})}
    return JSONResponse(content, code, headers=kept, media_type=MEDIA_TYPE)


def describe_error(error: ExpungeError) -> tuple[int, str]:
    """Return code and text for an error of the registry."""
    for kind, code in CODES.items():
        if isinstance(error, kind):
            return code, " ".join(str(error).split()) if code < 500 else LATER
    cause = failure_code(error) if isinstance(error, StoreFailed) else ""
    return HTTPStatus.SERVICE_UNAVAILABLE, LATER + (f" ({cause})" if cause else "")


def describe_fields(error: RequestValidationError) -> list[dict[str, str]]:
    """Return which fields of a call are wrong and why, without their values."""
    return [
        {"field": name_field(one), "reason": explain_field(one)}
        for one in error.errors()
    ]


def name_field(error: Mapping[str, Any]) -> str:
    """Return where in a document an error is, by names of ours alone.

    What callers name themselves, such as kinds and unknown fields, may be a value.
    """
    place = list(error["loc"])
    if error["type"] == "extra_forbidden":
        place.pop()
    known = [str(part) for part in place if isinstance(part, int) or part in FIELDS]
    return ".".join(known)


def explain_field(error: Mapping[str, Any]) -> str:
    """Return what a field must be, without what it was."""
    kind = str(error["type"])
    reason = REASONS.get(kind, kind.replace("_", " "))
    return reason.format_map(error.get("ctx", {}))


def find_methods(request: Request) -> list[str]:
    """Return every method that an address takes; a route knows its own alone."""
    path, methods = request.scope["path"], set[str]()
    for route in iter_route_contexts(request.app.routes):
        if route.methods and route.path_regex.match(path):
            methods |= route.methods
    return sorted(methods)


def install_handlers(app: FastAPI) -> None:
    """Answer every failure of an application by a problem."""

    @app.exception_handler(ExpungeError)
    async def answer_error(request: Request, error: ExpungeError) -> JSONResponse:
        code, detail = describe_error(error)
        if code >= 500:
            log_failure(request, error)
            later = {"Retry-After": str(RETRY_SECONDS)}
            return make_problem(code, detail, headers=later)
        return make_problem(code, detail)

    @app.exception_handler(RequestValidationError)
    async def answer_fields(
        request: Request, error: RequestValidationError
    ) -> JSONResponse:
        detail = "some fields are missing or wrong: see errors, and the openapi.json"
        code = HTTPStatus.UNPROCESSABLE_ENTITY
        return make_problem(code, detail, errors=describe_fields(error))

    @app.exception_handler(HTTPException)
    async def answer_refusal(request: Request, error: HTTPException) -> JSONResponse:
        said = error.detail if isinstance(error, Refused) else ""
        detail = said or HTTPStatus(error.status_code).description
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(find_methods(request))
        return make_problem(error.status_code, detail, headers=headers)

    @app.exception_handler(Exception)
    async def answer_bug(request: Request, error: Exception) -> JSONResponse:
        log_failure(request, error)
        return make_problem(500, "the service failed; its log says where")
