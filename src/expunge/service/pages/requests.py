# SPDX-License-Identifier: Apache-2.0
"""One request: filed by a form, followed on a timeline, answered by a receipt."""

import re
from datetime import date
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field, ValidationError
from starlette.concurrency import run_in_threadpool

from ...exceptions import ExpungeError, InvalidInput
from ...ledger import Receipt, check_receipt
from ...ledger.entries import EXTENSIONS
from ...promise.noise import random_bytes
from ...registry.context import today
from ...rights.regimes import REGIMES
from ...rights.standing import BY_OPERATOR, FOR_HOLDS, REASONS, describe_outcome
from ..api.documents import ID, RequestIn, RequestOut, make_download
from ..api.requests import list_rights, make_submission
from ..problems import Refused, describe_error
from ..windows import ShownRequest, format_moment
from .queue import DeadlineBar
from .rendering import PageRoute, go_to, show_page
from .visiting import (
    AnyVisitor,
    OperatingVisitor,
    PostedForm,
    SendingVisitor,
    SignedForm,
    Visitor,
)

router = APIRouter(route_class=PageRoute, include_in_schema=False)
REQUEST_BYTES = 16
NOTHING_ABOUT = "It says nothing about "  # begins the end of what a verdict says
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}:")
_NEXT = re.compile(rf"\s*,\s*(?={_KIND.pattern})")


class NewRequestPage(BaseModel):
    """The form for a request, with what may be chosen."""

    id: ID
    rights: list[str]
    regimes: list[str] = list(REGIMES)
    hold_reasons: list[str] = list(FOR_HOLDS)
    right: str = "erase"
    regime: str = ""
    submitted: str = Field(default_factory=lambda: today().isoformat())

    @classmethod
    def of(cls, visitor: Visitor, **chosen: str) -> "NewRequestPage":
        """Return a new form for a visitor."""
        # New rows do not fit a form: they come by the API or the command line.
        rights: list[str] = [
            one for one in list_rights(visitor.caller) if one != "rectify"
        ]
        new = cls(id=random_bytes(REQUEST_BYTES).hex(), rights=rights)
        return new.model_copy(update=chosen)


class TimelineStep(BaseModel):
    """A step on the way of a request."""

    title: str
    when: str
    is_done: bool = True


class ReceiptOut(BaseModel):
    """A receipt in words, and where its bytes are."""

    facts: dict[str, str]
    guarantee: str
    says: str
    valid: bool
    findings: list[str]
    not_covered: list[str]
    address: str


class RequestView(BaseModel):
    """A request with everything that its visitor may see."""

    request: RequestOut
    deadline: DeadlineBar
    sender: str
    steps: list[TimelineStep]
    trouble: str = Field(description="Why it waits, for operators.")
    is_near_miss: bool = Field(
        description="Somebody is held whose id is spelled almost so, for operators."
    )
    receipt: ReceiptOut | None
    may_cancel: bool
    may_operate: bool
    refusals: dict[str, str]
    extensions: list[str]


def list_steps(shown: ShownRequest) -> list[TimelineStep]:
    """Return the way of a request; its moments are those of its window."""
    window, state = shown.window, shown.state
    came = format_moment(window.start)
    if not window.is_none:
        came = f"between {came} and {format_moment(window.close)}"
    steps = [
        TimelineStep(
            title="The person asked", when=shown.status.submitted, is_done=True
        ),
        TimelineStep(title="The request came in", when=came, is_done=True),
    ]
    if state == "cancelled":
        return [*steps, TimelineStep(title="It was cancelled", when="")]
    answer = format_moment(shown.answered or window.answer)
    told = "on" if shown.answered is not None else "expected on"
    return [
        *steps,
        TimelineStep(
            title="It is applied, with all that came in its window",
            when=f"from {format_moment(window.close)}",
            is_done=state in ("in_progress", "completed"),
        ),
        TimelineStep(
            title="It is answered, with a receipt",
            when=f"{told} {answer}",
            is_done=state == "completed",
        ),
    ]


def read_request(visitor: Visitor, request: str) -> RequestView:
    """Return a request with everything that its visitor may see."""
    desk, caller = visitor.desk, visitor.caller
    shown = desk.show(request, caller.sender)
    is_own = shown.status.sender == caller.name
    receipt = None
    if shown.state == "completed" and caller.sees_answer(shown.status.sender):
        receipt = _read_receipt(visitor, request)
    is_open = shown.state in ("pending", "in_progress")
    operates = caller.may("operate")
    return RequestView(
        request=RequestOut.of(shown, caller),
        deadline=DeadlineBar.of(shown),
        sender=shown.status.sender,
        steps=list_steps(shown),
        trouble=shown.status.error if operates and is_open else "",
        is_near_miss=operates and bool(desk.registry.requests.near_misses([request])),
        receipt=receipt,
        # Not if an operator refused it before its window closed.
        may_cancel=shown.state == "pending"
        and shown.status.stage == "accepted"
        and caller.may("request")
        and (is_own or operates),
        may_operate=is_open and operates,
        refusals={code: REASONS[code] for code in BY_OPERATOR},
        extensions=list(EXTENSIONS),
    )


def _read_receipt(visitor: Visitor, request: str) -> ReceiptOut:
    """Return the receipt of a completed request in words."""
    registry = visitor.desk.registry
    text = registry.requests.receipt(request)
    assert text is not None
    verdict = check_receipt(text, registry.keys.public_pem())
    receipt = Receipt.from_json(text)
    return ReceiptOut(
        facts=list_facts(receipt),
        guarantee=receipt.handling.guarantee,
        says=verdict.says.partition(f" {NOTHING_ABOUT}")[0],
        not_covered=list(verdict.not_covered),
        valid=verdict.valid,
        findings=list(verdict.findings),
        address=f"/requests/{request}/receipt",
    )


def list_facts(receipt: Receipt) -> dict[str, str]:
    """Return what an officer looks for in a receipt, by name; nothing that is empty."""
    entry, handling = receipt.entry, receipt.handling
    copies = [name for names in handling.copies.values() for name in names]
    facts = {
        "outcome": describe_outcome(entry.outcome, ""),
        "reason": REASONS[entry.reason],
        "granted by": handling.basis,
        "asked": entry.submitted,
        "answered": entry.day,
        "deadline": entry.deadline,
        "extended": " ".join((handling.extended, handling.notified)).strip(),
        "models changed": ", ".join(receipt.certificates) or "none",
        "destroyed": ", ".join(handling.destroyed),
        "backups hold it until": handling.backups_until,
        "kept sealed": " ".join((handling.retained, handling.retained_until)).strip(),
        "copies not taken back": ", ".join(copies),
        "in the ledger": f"entry {entry.sequence} of {receipt.head.size}",
        "signed by": receipt.key,
    }
    return {name: text for name, text in facts.items() if text}


@router.get("/requests/new")
@router.get("/requests/new.json")
async def show_form(visitor: SendingVisitor) -> Response:
    """Show the form for a new request."""
    return show_page(visitor, NewRequestPage.of(visitor), template="new_request")


@router.post("/requests/new")
async def file_request(visitor: SendingVisitor, form: SignedForm) -> Response:
    """Accept the request in a form; the same form twice is one request."""
    desk = visitor.desk
    try:
        given = read_request_form(form)
        submission = make_submission(desk, given, caller=visitor.caller)
        size = len(form.text("people").encode())
        (shown,) = await desk.accept([submission], size=size)
    except ExpungeError as error:
        code, text = describe_error(error)
        # Whom it is about is not shown again.
        page = NewRequestPage.of(
            visitor,
            right=form.text("right"),
            regime=form.text("regime"),
            submitted=form.text("submitted"),
        )
        return show_page(visitor, page, template="new_request", code=code, problem=text)
    await visitor.note("send request", shown.request)
    return go_to(f"/requests/{shown.request}", "accepted")


def read_request_form(form: PostedForm) -> RequestIn:
    """Return the request in a form, or raise InvalidInput without its values."""
    lines = [line.strip() for line in form.text("people").splitlines()]
    fields: dict[str, Any] = {
        "id": form.text("id") or None,
        "right": form.text("right"),
        "people": [read_person_line(line) for line in lines if line],
        "regime": form.text("regime") or None,
        "submitted": form.text("submitted") or None,
        "reason": form.text("reason"),
        "until": form.text("until") or None,
    }
    if fields["right"] != "hold":
        fields |= {"reason": "", "until": None}
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


@router.get("/requests/{request}")
@router.get("/requests/{request}.json")
async def show_request(request: str, visitor: AnyVisitor) -> Response:
    """Show a request."""
    require_id(request)
    page = await run_in_threadpool(read_request, visitor, request)
    await visitor.note_look("look at request", request)
    return show_page(visitor, page, template="request")


@router.get("/requests/{request}/receipt")
async def download_receipt(request: str, visitor: AnyVisitor) -> Response:
    """Download a receipt, byte for byte."""
    require_id(request)
    page = await run_in_threadpool(read_request, visitor, request)
    if page.receipt is None:
        raise Refused(404, "there is no receipt here, or it is not yours to see")
    text = await run_in_threadpool(visitor.desk.registry.requests.receipt, request)
    await visitor.note_look("look at receipt", request)
    assert text is not None
    name = f"receipt-{request}.json"
    return make_download(text, name, media_type="application/json")


@router.post("/requests/{request}/cancel")
async def cancel_request(
    request: str, visitor: SendingVisitor, *, form: SignedForm
) -> Response:
    """Cancel a request that is pending."""
    require_id(request)
    sender = None if visitor.may("operate") else visitor.name
    await run_in_threadpool(visitor.desk.cancel, request, sender)
    await visitor.note("cancel", request)
    return go_to(f"/requests/{request}", "cancelled")


@router.post("/requests/{request}/refuse")
async def refuse_request(
    request: str, visitor: OperatingVisitor, *, form: SignedForm
) -> Response:
    """Answer a request that waits with a refusal."""
    require_id(request)
    requests = visitor.desk.registry.requests
    await run_in_threadpool(requests.refuse, request, form.text("reason"))
    await visitor.note("refuse", request)
    return go_to(f"/requests/{request}", "refused")


@router.post("/requests/{request}/exact")
async def confirm_exact(
    request: str, visitor: OperatingVisitor, *, form: SignedForm
) -> Response:
    """State that a request means whom it names, and nobody else."""
    require_id(request)
    await run_in_threadpool(visitor.desk.registry.requests.confirm_exact, request)
    await visitor.note("confirm exact", request)
    return go_to(f"/requests/{request}", "exact")


@router.post("/requests/{request}/extend")
async def extend_request(
    request: str, visitor: OperatingVisitor, *, form: SignedForm
) -> Response:
    """Extend the deadline of a request."""
    require_id(request)
    try:
        notified = date.fromisoformat(form.text("notified"))
    except ValueError:
        raise InvalidInput("give the day on which the person was told") from None

    def extend() -> None:
        requests = visitor.desk.registry.requests
        requests.extend(request, form.text("reason"), notified=notified)

    await run_in_threadpool(extend)
    await visitor.note("extend", request)
    return go_to(f"/requests/{request}", "extended")


def require_id(request: str) -> None:
    """Refuse what cannot be the id of a request."""
    if not (len(request) == 32 and set(request) <= set("0123456789abcdef")):
        raise Refused(404, "there is no such page")
