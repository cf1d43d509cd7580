# SPDX-License-Identifier: Apache-2.0
"""Requests: sent, listed, followed, cancelled, and answered by operators.

Each handler serves programs and people. Many requests may come in one call, a line of
NDJSON or CSV for each; people send one by a form.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from hashlib import blake2b
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlencode

from fastapi import Header, Query, Response
from fastapi import Request as Call
from pydantic import BaseModel, Field, ValidationError
from starlette.concurrency import run_in_threadpool

from ..exceptions import ExpungeError, InvalidInput
from ..ledger.entries import EXTENSIONS
from ..promise.noise import random_bytes
from ..registry import PageWanted, Remark
from ..registry.decisions import METHODS
from ..registry.now import now, today
from ..rights.calendar import parse_span
from ..rights.regimes import REGIMES
from ..rights.standing import BY_OPERATOR, FOR_HOLDS, REASONS, RIGHTS, Right
from .auth import (
    Caller,
    CanAudit,
    CanOperate,
    CanRead,
    CanSend,
    CanWatch,
    PostedForm,
    TheForm,
)
from .batches import MEDIA_TYPES, read_batch
from .documents import (
    ID,
    BatchOut,
    Day,
    DecisionIn,
    ExtensionIn,
    FoundOut,
    IdentityIn,
    NearMissesOut,
    ReferenceIn,
    RefusalIn,
    RemarkIn,
    RequestIn,
    RequestOut,
    RequestPageOut,
    Span,
    WaitIn,
    WindowOut,
)
from .intake import Submission, read_person
from .problems import Refused, describe_error
from .rendering import go_to, show_page
from .routing import (
    answer_tagged,
    describe_file,
    make_download,
    page_router,
    program_router,
)
from .views import DeadlineBar, list_steps, read_receipt
from .windows import ShownRequest, State, show_at

api, pages = program_router("requests"), page_router()
REQUEST_BYTES = 16
PAGE = 50  # requests on a page for people
MOST_COUNTED = 1000
MOST_PAGES = 50  # to look through for requests in a state
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}:")
_NEXT = re.compile(rf"\s*,\s*(?={_KIND.pattern})")
# Where a request that is shown in a state can be in the store.
STAGES = {
    "open": ("accepted", "applied"),
    "pending": ("accepted",),
    "in_progress": ("accepted", "applied", "completed"),
    "completed": ("completed",),
    "cancelled": ("cancelled",),
    "all": (),
}
STATES = {"open": ("pending", "in_progress"), "all": get_args(State)}


def list_rights(caller: Caller) -> tuple[Right, ...]:
    """Return the rights that a caller may exercise for people."""
    return tuple(one for one in RIGHTS if one != "end-hold" or caller.may("operate"))


def make_submission(caller: Caller, given: RequestIn) -> Submission:
    """Return a request as it is taken in; refuse what cannot be asked."""
    if given.right not in list_rights(caller):
        # No matter who set the hold: to look that up would tell who is held.
        raise Refused(
            403,
            f"{given.right} needs a token with the scope operate: it destroys what "
            "was kept for a stated reason; ask the operator",
        )
    kinds = caller.intake.settings.id_kinds
    people = tuple(read_person(one, kinds) for one in given.people)
    if given.right == "rectify" and [len(one) for one in people] != [1]:
        # How many ids several identifiers lead to would tell who is known by them.
        raise InvalidInput(
            "a rectification is about one person, named by one identifier; send one "
            "request for each"
        )
    asked = given.to_request(caller.name)
    return Submission(asked, people, reference=given.reference)


def show_all(caller: Caller, every: Sequence[ShownRequest]) -> list[RequestOut]:
    """Return requests as a caller may see them, with the references of theirs."""
    theirs = [
        one.request
        for one in every
        if caller.sees_all or one.status.sender == caller.name
    ]
    found = caller.registry.requests.remarks(theirs)
    return [
        RequestOut.of(
            one,
            caller,
            reference=found[one.request].reference if one.request in found else None,
        )
        for one in every
    ]


@api.post("/requests", status_code=201, response_model=RequestOut)
async def send_request(
    given: RequestIn, call: Call, *, caller: CanSend, response: Response
) -> RequestOut:
    """Send a request. It is on disk when this answers.

    Sending it again with the same id changes nothing and gives the same answer. Nothing
    in the answer tells whether the people are known.
    """
    submission = make_submission(caller, given)
    size = len(await call.body())
    (shown,) = await caller.intake.accept([submission], size=size)
    response.headers["Location"] = f"/api/v1/requests/{shown.request}"
    return show_all(caller, [shown])[0]


@api.post(
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
async def send_batch(call: Call, caller: CanSend) -> Response:
    """Send up to 10,000 requests, each a line of NDJSON or CSV; if one is wrong, none.

    The columns of a CSV file are `id`, `right`, `regime`, `submitted`, `reason`,
    `until` and `reference`, and one for each kind of identifier, such as `email`.
    """
    media_type = call.headers.get("content-type", "").partition(";")[0].strip()
    if media_type not in MEDIA_TYPES:
        raise Refused(415, f"send a batch as {' or '.join(MEDIA_TYPES)}")
    body = await call.body()

    def read() -> list[Submission]:
        return [make_submission(caller, one) for one in read_batch(body, media_type)]

    # In threads: others must not wait until thousands of lines are read and written.
    submissions = await run_in_threadpool(read)
    shown = await caller.intake.accept(submissions, size=len(body))

    def write() -> str:
        return BatchOut(requests=show_all(caller, shown)).model_dump_json()

    text = await run_in_threadpool(write)
    return Response(text, 201, media_type="application/json")


class RequestsWanted(BaseModel):
    """Which requests to list."""

    state: State | Literal["open", "all"] | None = Field(
        None, description="`open` is `pending` or `in_progress`; all by default."
    )
    due: Day | Span | Literal["overdue"] | None = Field(
        None, description="Only those due by this day, or within these days or weeks."
    )
    cursor: str = Field("", max_length=200, description="From the page before.")
    limit: int | None = Field(None, ge=1, le=1000, description="100 by default.")

    @property
    def last_day(self) -> date | None:
        """By which requests are due, if only some are wanted."""
        if self.due == "overdue":
            return today() - timedelta(days=1)
        return today() + parse_span(self.due) if isinstance(self.due, str) else self.due


def find_shown(
    caller: Caller, state: str, *, wanted: PageWanted
) -> tuple[list[ShownRequest], str]:
    """Return requests that are shown in a state, and the cursor to go on at.

    A sender's are chosen by what is shown, not by where they are in the store:
    otherwise one that is done would leave the list before its answer is shown.
    """
    states = STATES.get(state, (state,))
    stages = STAGES[state] if caller.sees_all else ()
    most, time = wanted.most, now()
    wanted = replace(wanted, stages=stages, sender=caller.sender)
    found: list[ShownRequest] = []
    for _ in range(MOST_PAGES):
        page = caller.registry.requests.page(wanted)
        every = (show_at(one, time) for one in page.lines)
        found += (one for one in every if one.state in states)
        wanted = replace(wanted, after=page.next, most=max(1, most - len(found)))
        if not page.next or len(found) >= most:
            break
    return found, wanted.after


@api.get("/requests", response_model=RequestPageOut)
@pages.get("/")
async def list_requests(
    wanted: Annotated[RequestsWanted, Query()], caller: CanRead
) -> Any:
    """List requests by deadline: your own, or all if you operate or audit.

    A page may have fewer requests than the limit and still not be the last.
    """
    usual, most = ("open", PAGE) if caller.is_at_page else ("all", 100)
    state = wanted.state or usual

    def read() -> Any:
        which = PageWanted(
            due=wanted.last_day, after=wanted.cursor, most=wanted.limit or most
        )
        found, cursor = find_shown(caller, state, wanted=which)
        document = RequestPageOut(requests=show_all(caller, found), next=cursor or None)
        if not caller.is_at_page:
            return document
        registry = caller.registry
        query = {"state": state, "due": wanted.due or "", "cursor": cursor}
        return show_page(
            caller,
            "requests",
            page=document,
            state=state,
            due=wanted.due or "",
            deadlines={one.request: DeadlineBar.of(one) for one in found},
            n_overdue=count_due(caller, -1),
            n_due_in_a_week=count_due(caller, 7),
            near_misses=sorted(registry.requests.near_misses())[:PAGE]
            if caller.may("operate")
            else [],
            window=WindowOut.model_validate(caller.intake.current_window()),
            clock=registry.clock().warning if caller.sees_all else "",
            next=f"/?{urlencode(query)}" if cursor else "",
        )

    answer = await run_in_threadpool(read)
    if caller.sees_all:
        await caller.note_look("look at requests")
    return answer


def count_due(caller: Caller, days: int) -> int:
    """Return how many open requests are due within some days, up to a limit."""
    due = today() + timedelta(days=days)
    wanted = PageWanted(due=due, most=MOST_COUNTED)
    found, _ = find_shown(caller, "open", wanted=wanted)
    return len(found)


@pages.get("/requests/new")
async def show_form(caller: CanSend) -> Response:
    """Show the form for a new request."""
    return _show_form(caller, PostedForm({}))


def _show_form(
    caller: Caller, typed: PostedForm, *, code: int = 200, problem: str = ""
) -> Response:
    """Return the form, with what was typed."""
    chosen = {"right": "erase", "submitted": today().isoformat(), "each": "own"}
    chosen |= {name: typed.text(name) for name in typed.fields}
    return show_page(
        caller,
        "new_request",
        code=code,
        problem=problem,
        id=chosen.get("id") or random_bytes(REQUEST_BYTES).hex(),
        # New rows have a form of their own.
        rights=[one for one in list_rights(caller) if one != "rectify"],
        regimes=list(REGIMES),
        hold_reasons=list(FOR_HOLDS),
        chosen=defaultdict(str, chosen),
    )


@pages.post("/requests/new")
async def file_request(caller: CanSend, form: TheForm) -> Response:
    """Accept the requests in a form; the same form twice is the same requests."""
    try:
        given = split_request(read_request_form(form), form.text("each"))
        submissions = [make_submission(caller, one) for one in given]
        size = len(form.text("people").encode())
        shown = await caller.intake.accept(submissions, size=size)
    except (ExpungeError, Refused) as error:
        code, problem = describe_refusal(error)
        return _show_form(caller, form, code=code, problem=problem)
    for one in shown:
        await caller.note("send request", one.request)
    if len(shown) > 1:
        return go_to("/", "accepted-all")
    return go_to(f"/requests/{shown[0].request}", "accepted")


def describe_refusal(error: Exception) -> tuple[int, str]:
    """Return code and text for what was wrong with a form."""
    if isinstance(error, Refused):
        return error.status_code, str(error.detail)
    assert isinstance(error, ExpungeError)
    return describe_error(error)


def split_request(given: RequestIn, each: str) -> list[RequestIn]:
    """Return a request for each person of a form, unless one was wanted for all.

    Their ids follow from that of the form, so that it can be sent again.
    """
    if each == "one" or len(given.people) == 1:
        return [given]
    return [
        given.model_copy(update={"people": [person], "id": _id_of(given.id, place)})
        for place, person in enumerate(given.people)
    ]


def _id_of(form: str | None, place: int) -> str | None:
    """Return the id of one of the requests in a form."""
    if form is None or not place:
        return form
    hashed = blake2b(f"{form} {place}".encode(), digest_size=REQUEST_BYTES)
    return hashed.hexdigest()


def read_request_form(form: PostedForm) -> RequestIn:
    """Return the request in a form, or raise InvalidInput without its values."""
    lines = [line.strip() for line in form.text("people").splitlines()]
    names = ["id", "right", "regime", "submitted", "reference"]
    if form.text("right") == "hold":
        names += ["reason", "until"]
    fields: dict[str, Any] = {
        name: form.text(name) for name in names if form.text(name)
    }
    fields["people"] = [read_person_line(line) for line in lines if line]
    try:
        return RequestIn.model_validate(fields)
    except ValidationError as error:
        wrong = sorted({str(one["loc"][0]) for one in error.errors()})
        raise InvalidInput(
            f"{', '.join(wrong)}: missing or wrong; fill the form in again"
        ) from None


def read_person_line(line: str) -> dict[str, str]:
    """Return a person named on one line: an id, or kind:value pairs with commas."""
    if not _KIND.match(line):
        return {"id": line}
    pairs = [part.partition(":") for part in _NEXT.split(line)]
    person = {kind: value.strip() for kind, _, value in pairs}
    if len(person) != len(pairs):
        raise InvalidInput(
            "a line has a kind twice; put the other value on a line of its own"
        )
    return person


@api.get("/requests/{request}", response_model=RequestOut)
@pages.get("/requests/{request}")
async def show_request(
    request: ID, caller: CanRead, *, if_none_match: Annotated[str, Header()] = ""
) -> Response:
    """Show a request that you sent, or any if you operate or audit."""

    def read() -> tuple[ShownRequest, Response]:
        shown = caller.intake.show(request, caller.sender)
        (document,) = show_all(caller, [shown])
        if not caller.is_at_page:
            return shown, answer_tagged(document, if_none_match)
        status, operates = shown.status, caller.may("operate")
        registry = caller.registry
        is_open = shown.state in ("pending", "in_progress")
        is_answered = shown.state == "completed" and caller.sees_answer(status.sender)
        near = operates and bool(registry.requests.near_misses([request]))
        return shown, show_page(
            caller,
            "request",
            page=document,
            deadline=DeadlineBar.of(shown),
            steps=list_steps(shown, in_truth=caller.sees_all),
            trouble=status.error if operates and is_open else "",
            is_near_miss=near,
            receipt=read_receipt(registry, request) if is_answered else None,
            # Not if an operator refused it before its window closed.
            may_cancel=shown.state == "pending"
            and status.stage == "accepted"
            and caller.may("request")
            and (operates or status.sender == caller.name),
            may_operate=is_open and operates,
            note=registry.requests.remarks([request]).get(request, Remark()).note
            if operates
            else "",
            decisions=registry.requests.decisions(request) if operates else (),
            may_approve=operates and "approval" in status.missing,
            may_check=operates and "identity" in status.missing,
            is_waiting=status.waits > today().isoformat(),
            methods=METHODS,
            refusals={code: REASONS[code] for code in BY_OPERATOR},
            extensions=list(EXTENSIONS),
        )

    shown, answer = await run_in_threadpool(read)
    if shown.status.sender != caller.name:
        await caller.note_look("look at request", request)
    return answer


@api.get(
    "/requests/{request}/receipt",
    response_class=Response,
    responses=describe_file("The receipt.", "application/json", kind="object"),
)
@pages.get("/requests/{request}/receipt")
async def show_receipt(request: ID, caller: CanRead) -> Response:
    """Download the receipt of a request, byte for byte as it was signed."""
    shown = await run_in_threadpool(caller.intake.show, request, caller.sender)
    if not caller.sees_answer(shown.status.sender):
        raise Refused(403, "receipts of other senders need the scope audit")
    if shown.state != "completed":
        raise Refused(
            404,
            "there is no receipt yet, or the request was cancelled; look at its state "
            "and at window.answer",
        )
    text = await run_in_threadpool(caller.registry.requests.receipt, request)
    assert text is not None
    if shown.status.sender != caller.name:
        await caller.note_look("look at receipt", request)
    name = f"receipt-{request}.json"
    return make_download(text, name, media_type="application/json")


@api.delete("/requests/{request}", response_model=RequestOut)
@pages.post("/requests/{request}/cancel")
async def cancel_request(request: ID, caller: CanSend) -> Any:
    """Cancel a request while it is pending. It will not be applied."""
    sender = None if caller.may("operate") else caller.name

    def cancel() -> None:
        caller.intake.cancel(request, sender)

    return await _act(caller, request, act=cancel, done=("cancel", "cancelled"))


@api.post("/requests/{request}/refuse", response_model=RequestOut)
@pages.post("/requests/{request}/refuse")
async def refuse_request(request: ID, given: RefusalIn, *, caller: CanOperate) -> Any:
    """Answer a request that waits with a refusal, for a stated reason."""

    def refuse() -> None:
        caller.registry.requests.refuse(request, given.reason)

    return await _act(caller, request, act=refuse, done=("refuse", "refused"))


@api.post("/requests/{request}/extend", response_model=RequestOut)
@pages.post("/requests/{request}/extend")
async def extend_request(request: ID, given: ExtensionIn, *, caller: CanOperate) -> Any:
    """Extend the deadline of a request, once, as its law allows."""

    def extend() -> None:
        requests = caller.registry.requests
        requests.extend(request, given.reason, notified=given.notified)

    return await _act(caller, request, act=extend, done=("extend", "extended"))


@api.post("/requests/{request}/identity", response_model=RequestOut)
@pages.post("/requests/{request}/identity")
async def check_identity(request: ID, given: IdentityIn, *, caller: CanOperate) -> Any:
    """State that it was checked who asks, and how."""

    def check() -> None:
        by = caller.decides(given.why)
        caller.registry.requests.check_identity(request, given.method, by=by)

    return await _act(caller, request, act=check, done=("", "checked"))


@api.post("/requests/{request}/approve", response_model=RequestOut)
@pages.post("/requests/{request}/approve")
async def approve_request(
    request: ID, *, caller: CanOperate, given: DecisionIn | None = None
) -> Any:
    """Approve a request whose rule wants that; of two approvals, give one."""

    def approve() -> None:
        by = caller.decides(given.why if given else "")
        caller.registry.requests.approve(request, by=by)

    return await _act(caller, request, act=approve, done=("", "approved"))


@api.post("/requests/{request}/wait", response_model=RequestOut)
@pages.post("/requests/{request}/wait")
async def let_wait(
    request: ID, *, caller: CanOperate, given: WaitIn | None = None
) -> Any:
    """Let a request wait; it goes on by itself as its deadline nears."""
    asked = given or WaitIn(until=None)

    def wait() -> None:
        by = caller.decides(asked.why)
        caller.registry.requests.wait(request, asked.until, by=by)

    return await _act(caller, request, act=wait, done=("", "waits"))


@api.post("/requests/{request}/proceed", response_model=RequestOut)
@pages.post("/requests/{request}/proceed")
async def let_proceed(
    request: ID, *, caller: CanOperate, given: DecisionIn | None = None
) -> Any:
    """Let a request go on that waits for its operator, or was extended."""

    def proceed() -> None:
        by = caller.decides(given.why if given else "")
        caller.registry.requests.proceed(request, by=by)

    return await _act(caller, request, act=proceed, done=("", "proceeds"))


@api.post("/requests/{request}/remark", status_code=204)
@pages.post("/requests/{request}/remark")
async def write_remark(request: ID, given: RemarkIn, *, caller: CanOperate) -> Response:
    """Write a reference and a note beside a request, in place of what is there."""

    def write() -> None:
        caller.registry.requests.remark(request, given.reference, note=given.note)

    await run_in_threadpool(write)
    await caller.note("write remark", request)
    if caller.is_at_page:
        return go_to(f"/requests/{request}", "noted")
    return Response(status_code=204)


@api.post("/find", response_model=FoundOut)
@pages.post("/find")
async def find_reference(given: ReferenceIn, caller: CanWatch) -> Any:
    """Find the requests that have a reference, such as the number of a ticket."""
    requests = caller.registry.requests
    found = await run_in_threadpool(requests.find_reference, given.reference)
    await caller.note_look("find a reference")
    if not caller.is_at_page:
        return FoundOut(requests=found)
    if len(found) == 1:
        return go_to(f"/requests/{found[0]}")
    if not found:
        raise Refused(404, "no request has this reference; check it")
    return show_page(caller, "found", found=found)


@api.get(
    "/outcomes",
    response_class=Response,
    responses=describe_file("Requests as CSV.", "text/csv"),
)
@pages.get("/outcomes")
async def list_outcomes(caller: CanAudit, *, since: Day | None = None) -> Response:
    """Download what became of requests as CSV, with references, for a ticket system."""
    outcomes = partial(caller.registry.requests.outcomes, since=since)
    text = await run_in_threadpool(outcomes)
    await caller.note_look("download outcomes")
    return make_download(text, "outcomes.csv", media_type="text/csv")


@api.get("/near-misses", response_model=NearMissesOut)
async def list_near_misses(caller: CanOperate) -> NearMissesOut:
    """List requests that may mean somebody else than whom they name.

    Somebody is held, or was when it was answered, whose id differs from what was sent
    only in case, spacing, width, zeros or what stands before a colon. Their senders do
    not see this.
    """
    found = await run_in_threadpool(caller.registry.requests.near_misses)
    await caller.note_look("look at near misses")
    return NearMissesOut(requests=sorted(found))


@api.post("/requests/{request}/exact", response_model=RequestOut)
@pages.post("/requests/{request}/exact")
async def confirm_exact(request: ID, caller: CanOperate) -> Any:
    """State that a request means whom it names, and nobody whose id is almost so."""

    def confirm() -> None:
        caller.registry.requests.confirm_exact(request)

    return await _act(caller, request, act=confirm, done=("confirm exact", "exact"))


async def _act(
    caller: Caller, request: str, *, act: Callable[[], None], done: tuple[str, str]
) -> Any:
    """Do something to a request, and answer with how it is then.

    ``done`` is what the access log says, if it does not yet, and what the page says.
    """

    def act_and_show() -> ShownRequest:
        act()
        return show_at(caller.registry.requests.status(request), now())

    shown = await run_in_threadpool(act_and_show)
    action, said = done
    if action:
        await caller.note(action, request)
    if caller.is_at_page:
        return go_to(f"/requests/{request}", said)
    return (await run_in_threadpool(show_all, caller, [shown]))[0]
