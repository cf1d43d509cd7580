# SPDX-License-Identifier: Apache-2.0
"""Routes of requests: send, look up, list, cancel; and for operators refuse, extend.

Many may come in one call, a line of NDJSON or CSV for each.
"""

import csv
import io
import json
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi import Request as Call
from pydantic import BaseModel, Field, ValidationError
from starlette.concurrency import run_in_threadpool

from ...core.values import refuse_duplicates
from ...exceptions import InvalidInput
from ...registry import PageWanted, RequestStatus
from ...registry.context import now, today
from ...rights.calendar import parse_span
from ...rights.standing import RIGHTS, Right
from ..access import Caller, Operator, Reader, Sender
from ..desk import Desk, Note, Submission, read_person
from ..problems import Refused, explain_field, name_field
from ..windows import State, show_at
from .documents import (
    ID,
    PROBLEMS,
    BatchOut,
    Day,
    ExtensionIn,
    NearMissesOut,
    RefusalIn,
    RequestIn,
    RequestOut,
    RequestPageOut,
    Span,
    StrictRoute,
    TheDesk,
    answer_json,
    describe_file,
    is_unchanged,
    tag_content,
)

NDJSON, CSV = "application/x-ndjson", "text/csv"
MEDIA_TYPES = (NDJSON, CSV)
MOST_LINES = 10_000
# Every other column is a kind of identifier.
OWN_COLUMNS = ("id", "right", "regime", "submitted", "reason", "until")
PERSON = "person"  # in CSV the column of the id that models know
router = APIRouter(route_class=StrictRoute, tags=["requests"], responses=PROBLEMS)


def list_rights(caller: Caller) -> tuple[Right, ...]:
    """Return the rights that a caller may exercise for people."""
    return tuple(one for one in RIGHTS if one != "end-hold" or caller.may("operate"))


def make_submission(desk: Desk, given: RequestIn, *, caller: Caller) -> Submission:
    """Return a request as the desk takes it; refuse what cannot be asked."""
    if given.right not in list_rights(caller):
        # No matter who set the hold: to look that up would tell who is held.
        raise Refused(
            403,
            f"{given.right} needs a token with the scope operate: it destroys what "
            "was kept for a stated reason; ask the operator",
        )
    kinds = desk.settings.id_kinds
    people = tuple(read_person(one, kinds) for one in given.people)
    if given.right == "rectify" and [len(one) for one in people] != [1]:
        # How many ids several identifiers lead to would tell who is known by them.
        raise InvalidInput(
            "a rectification is about one person, named by one identifier; send one "
            "request for each"
        )
    return Submission(given.to_request(caller.name), people)


@router.post("/requests", status_code=201, response_model=RequestOut)
async def send_request(
    given: RequestIn, call: Call, *, caller: Sender, desk: TheDesk
) -> Response:
    """Send a request. It is on disk when this answers.

    Sending it again with the same id changes nothing and gives the same answer. Nothing
    in the answer tells whether the people are known.
    """
    submission = make_submission(desk, given, caller=caller)
    (shown,) = await desk.accept([submission], size=len(await call.body()))
    place = {"Location": f"/api/v1/requests/{shown.request}"}
    return answer_json(RequestOut.of(shown, caller), 201, headers=place)


@router.post(
    "/requests/batch",
    status_code=201,
    response_model=BatchOut,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/x-ndjson": {
                    "schema": {"type": "string"},
                    "example": '{"people": [{"email": "ada@example.org"}]}\n',
                },
                "text/csv": {
                    "schema": {"type": "string"},
                    "example": "right,email\nerase,ada@example.org\n",
                },
            },
        }
    },
)
async def send_batch(call: Call, caller: Sender, *, desk: TheDesk) -> Response:
    """Send up to 10,000 requests, each a line of NDJSON or CSV; if one is wrong, none.

    The columns of a CSV file are `id`, `right`, `regime`, `submitted`, `reason` and
    `until`, and one for each kind of identifier, such as `email`.
    """
    media_type = call.headers.get("content-type", "").partition(";")[0].strip()
    if media_type not in MEDIA_TYPES:
        raise Refused(415, f"send a batch as {' or '.join(MEDIA_TYPES)}")
    body = await call.body()

    def read() -> list[Submission]:
        given = read_batch(body, media_type)
        return [make_submission(desk, one, caller=caller) for one in given]

    # In threads: others must not wait until thousands of lines are read and written.
    shown = await desk.accept(await run_in_threadpool(read), size=len(body))

    def answer() -> Response:
        found = BatchOut(requests=[RequestOut.of(one, caller) for one in shown])
        return answer_json(found, 201)

    return await run_in_threadpool(answer)


class RequestsWanted(BaseModel):
    """Which requests to list."""

    state: State | None = None
    due: Day | Span | None = Field(
        None, description="Only those due by this day, or within these days or weeks."
    )
    cursor: str = Field("", max_length=200, description="From the page before.")
    limit: int = Field(100, ge=1, le=1000)

    @property
    def last_day(self) -> date | None:
        """By which requests are due, if only some are wanted."""
        return today() + parse_span(self.due) if isinstance(self.due, str) else self.due


@router.get("/requests", response_model=RequestPageOut)
async def list_requests(
    wanted: Annotated[RequestsWanted, Query()], caller: Reader, *, desk: TheDesk
) -> Response:
    """List requests by deadline: your own, or all if you operate or audit.

    A page may have fewer requests than the limit and still not be the last.
    """
    which = PageWanted(
        due=wanted.last_day,
        after=wanted.cursor,
        most=wanted.limit,
        sender=caller.sender,
    )
    page = await run_in_threadpool(desk.registry.requests.page, which)
    if caller.sees_all:
        await desk.record_look(Note(caller.name, "look at requests"))
    time = now()
    every = [show_at(status, time) for status in page.lines]
    chosen = [one for one in every if wanted.state in (None, one.state)]
    found = RequestPageOut(
        requests=[RequestOut.of(one, caller) for one in chosen], next=page.next or None
    )
    return answer_json(found)


@router.get("/requests/{request}", response_model=RequestOut)
async def show_request(
    request: ID,
    caller: Reader,
    *,
    desk: TheDesk,
    if_none_match: Annotated[str, Header()] = "",
) -> Response:
    """Show a request that you sent, or any if you operate or audit."""
    shown = await run_in_threadpool(desk.show, request, caller.sender)
    if shown.status.sender != caller.name:
        await desk.record_look(Note(caller.name, "look at request", request))
    found = RequestOut.of(shown, caller)
    tag = tag_content(found)
    if is_unchanged(if_none_match, tag):
        return Response(status_code=304, headers={"ETag": tag})
    return answer_json(found, headers={"ETag": tag})


@router.delete("/requests/{request}", response_model=RequestOut)
async def cancel_request(request: ID, caller: Sender, *, desk: TheDesk) -> Response:
    """Cancel a request while it is pending. It will not be applied."""
    sender = None if caller.may("operate") else caller.name
    shown = await run_in_threadpool(desk.cancel, request, sender)
    await desk.record(Note(caller.name, "cancel", request))
    return answer_json(RequestOut.of(shown, caller))


@router.get(
    "/requests/{request}/receipt",
    response_class=Response,
    responses=describe_file("The receipt.", "application/json", kind="object"),
)
async def show_receipt(request: ID, caller: Reader, *, desk: TheDesk) -> Response:
    """Download the receipt of a request, byte for byte as it was signed."""
    shown = await run_in_threadpool(desk.show, request, caller.sender)
    if not caller.sees_answer(shown.status.sender):
        raise Refused(403, "receipts of other senders need the scope audit")
    if shown.state != "completed":
        raise Refused(
            404,
            "there is no receipt yet, or the request was cancelled; look at its state "
            "and at window.answer",
        )
    text = await run_in_threadpool(desk.registry.requests.receipt, request)
    assert text is not None
    if shown.status.sender != caller.name:
        await desk.record_look(Note(caller.name, "look at receipt", request))
    return Response(
        text,
        media_type="application/json",
        headers={
            "Cache-Control": "no-store",
            "Content-Disposition": f'attachment; filename="receipt-{request}.json"',
        },
    )


@router.post("/requests/{request}/refuse", response_model=RequestOut)
async def refuse_request(
    request: ID, given: RefusalIn, *, caller: Operator, desk: TheDesk
) -> Response:
    """Answer a request that waits with a refusal, for a stated reason."""

    def refuse() -> RequestStatus:
        desk.registry.requests.refuse(request, given.reason)
        return desk.registry.requests.status(request)

    return await _act(desk, caller, act=refuse, note=("refuse", request))


@router.post("/requests/{request}/extend", response_model=RequestOut)
async def extend_request(
    request: ID, given: ExtensionIn, *, caller: Operator, desk: TheDesk
) -> Response:
    """Extend the deadline of a request, once, as its law allows."""

    def extend() -> RequestStatus:
        return desk.registry.requests.extend(
            request, given.reason, notified=given.notified
        )

    return await _act(desk, caller, act=extend, note=("extend", request))


@router.get("/near-misses", response_model=NearMissesOut)
async def list_near_misses(caller: Operator, *, desk: TheDesk) -> Response:
    """List requests that may mean somebody else than whom they name.

    Somebody is held, or was when it was answered, whose id differs from what was sent
    only in case, spacing, width, zeros or what stands before a colon. Their senders do
    not see this.
    """
    found = await run_in_threadpool(desk.registry.requests.near_misses)
    await desk.record_look(Note(caller.name, "look at near misses"))
    return answer_json(NearMissesOut(requests=sorted(found)))


@router.post("/requests/{request}/exact", response_model=RequestOut)
async def confirm_exact(request: ID, caller: Operator, *, desk: TheDesk) -> Response:
    """State that a request means whom it names, and nobody whose id is almost so."""

    def confirm() -> RequestStatus:
        desk.registry.requests.confirm_exact(request)
        return desk.registry.requests.status(request)

    return await _act(desk, caller, act=confirm, note=("confirm exact", request))


async def _act(
    desk: Desk, caller: Caller, *, act: Any, note: tuple[str, str]
) -> Response:
    """Do something to a request, and answer with how it is then."""
    status = await run_in_threadpool(act)
    await desk.record(Note(caller.name, *note))
    shown = show_at(status, now())
    return answer_json(RequestOut.of(shown, caller))


def read_batch(body: bytes, media_type: str) -> list[RequestIn]:
    """Return the requests of a batch; refuse all if one line is wrong."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("the batch is not UTF-8; encode it as UTF-8") from None
    lines = _read_csv(text) if media_type == CSV else _read_ndjson(text)
    found: list[RequestIn] = []
    for number, fields in lines:
        if len(found) == MOST_LINES:
            raise InvalidInput(
                f"more than {MOST_LINES} lines; send several batches, each complete"
            )
        found.append(_read_line(number, fields))
    if not found:
        raise InvalidInput("the batch has no line; send at least one request")
    return found


def _read_ndjson(text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, json.loads(line, object_pairs_hook=refuse_duplicates)
            except (ValueError, RecursionError):
                raise InvalidInput(
                    f"line {number} is not JSON, or has a field twice"
                ) from None


def _read_csv(text: str) -> Iterator[tuple[int, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = reader.fieldnames or ()
        if len({*columns}) < len(columns):
            raise InvalidInput(
                "two columns have the same name; give each kind of identifier one"
            )
        for fields in reader:
            yield reader.line_num, _name_fields(fields, reader.line_num)
    except csv.Error:
        raise InvalidInput(f"line {reader.line_num} is not CSV") from None


def _name_fields(fields: dict[Any, Any], number: int) -> dict[str, Any]:
    """Return a line of CSV as a request."""
    if None in fields or None in fields.values():
        raise InvalidInput(
            f"line {number} does not have as many fields as the first line"
        )
    given = {name: value.strip() for name, value in fields.items() if value.strip()}
    person = {
        "id" if name == PERSON else name: value
        for name, value in given.items()
        if name not in OWN_COLUMNS
    }
    own = {name: given[name] for name in OWN_COLUMNS if name in given}
    return {**own, "people": [person]}


def _read_line(number: int, fields: Any) -> RequestIn:
    try:
        return RequestIn.model_validate(fields)
    except ValidationError as error:
        first = dict(error.errors()[0])
        where = name_field(first) or "the line"
        reason = explain_field(first)
        raise InvalidInput(f"line {number}: {where}: {reason}") from None
