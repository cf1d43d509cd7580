# SPDX-License-Identifier: Apache-2.0
"""The ledger: its head, how it grew, its entries, and whether a head you have fits.

Beside it is the trail: who looked and who acted, in a chain that shows what was taken
out.
"""

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from ...exceptions import InvalidInput
from ...ledger import Head, Receipt, check_consistency, check_receipt
from ...ledger.receipts import without_newline
from ...promise.verification import Verdict
from ...registry import Registry
from ..api.status import TrailLineOut
from .rendering import PageRoute, show_page
from .visiting import AuditingVisitor, SignedForm

router = APIRouter(route_class=PageRoute, include_in_schema=False)
PAGE = 50
TRAIL_LINES = 100  # on a page
POINTS = 40  # on the line of its growth


class GrowthPoint(BaseModel):
    """How many entries there were after a day."""

    day: str
    entries: int


class EntryLine(BaseModel):
    """An entry, with what it is about in a few words."""

    sequence: int
    day: str
    kind: str
    about: str
    entry: dict[str, Any]


class VerdictOut(BaseModel):
    """What a check found."""

    about: Literal["head", "receipt"]
    valid: bool
    resaved: bool
    says: str
    findings: list[str]
    failures: list[str]


class LedgerPage(BaseModel):
    """The ledger, its newest entries first."""

    size: int
    head: dict[str, Any] | None
    growth: list[GrowthPoint]
    lines: list[EntryLine]
    next: str | None
    verdict: VerdictOut | None = None


def read_ledger(registry: Registry, before: int | None) -> LedgerPage:
    """Return the ledger with the entries before a place, the newest first."""
    text = registry.ledger.head()
    if text is None:
        return LedgerPage(size=0, head=None, growth=[], lines=[], next=None)
    head = Head.from_json(text)
    end = min(head.size if before is None else before, head.size)
    start = max(end - PAGE, 0)
    entries = registry.ledger.page(start, end - start) if end > start else []
    return LedgerPage(
        size=head.size,
        head=json.loads(text),
        growth=_read_growth(registry, head.size),
        lines=[_describe(json.loads(one.to_json())) for one in reversed(entries)],
        next=f"/ledger?before={start}" if start else None,
    )


def _read_growth(registry: Registry, size: int) -> list[GrowthPoint]:
    """Return how the ledger grew, by a few of its entries: few however long it is."""
    step = max(1, size // POINTS)
    places = sorted({*range(0, size, step), size - 1})
    found = [registry.ledger.page(place, 1)[0] for place in places]
    by_day = {one.day: one.sequence + 1 for one in found}  # the last of a day stays
    return [GrowthPoint(day=day, entries=entries) for day, entries in by_day.items()]


def _describe(entry: dict[str, Any]) -> EntryLine:
    """Return an entry as a line."""
    words = (entry.get(name, "") for name in ("model", "request", "right", "outcome"))
    return EntryLine(
        sequence=entry["sequence"],
        day=entry["day"],
        kind=entry["kind"],
        about=" ".join(word for word in words if word),
        entry=entry,
    )


def check_pasted(registry: Registry, text: str) -> VerdictOut:
    """Return whether a head or a receipt is valid, and whether the ledger continues it.

    Of a receipt everything is checked, as ``expunge verify`` does: its head alone may
    be a real one, whatever the rest says.
    """
    newest, pem = registry.ledger.head(), registry.keys.public_pem()
    if newest is None:
        raise InvalidInput("the ledger is empty; there is nothing to compare with")
    data = text.encode(errors="surrogatepass")
    line = without_newline(data)
    try:
        head = Head.from_json(line)
    except InvalidInput:
        verdict = check_receipt(data, pem)
        if not verdict.valid:
            return _state("receipt", verdict, resaved=verdict.resaved)
        compared = compare_head(
            registry, Receipt.from_json(line).head, newest=newest, pem=pem
        )
        failures = compared.failures
        says = verdict.says if compared.valid else compared.says
        findings = (*verdict.findings, *compared.findings)
        return _state("receipt", Verdict(findings, failures, says))
    return _state("head", compare_head(registry, head, newest=newest, pem=pem))


def _state(
    about: Literal["head", "receipt"], verdict: Verdict, *, resaved: bool = False
) -> VerdictOut:
    return VerdictOut(
        about=about,
        valid=verdict.valid,
        resaved=resaved,
        says=verdict.says,
        findings=list(verdict.findings),
        failures=list(verdict.failures),
    )


def compare_head(registry: Registry, old: Head, *, newest: str, pem: str) -> Verdict:
    """Return whether the ledger, up to its newest head, continues the one of a head."""
    new = Head.from_json(newest)
    if old.size > new.size:
        return Verdict(
            (),
            ("the ledger here is shorter than the one of your head",),
            f"Your head is over {old.size} entries, and the ledger here has "
            f"{new.size}: entries were cut off, or the head is of another ledger.",
        )
    hashes = registry.ledger.prove_growth(old.size, new.size)
    proof = tuple(map(bytes.fromhex, hashes))
    return check_consistency(new, old, proof=proof, public_pem=pem)


@router.get("/ledger")
@router.get("/ledger.json")
async def show_ledger(
    visitor: AuditingVisitor,
    before: Annotated[int | None, Query(ge=0, le=2**53)] = None,
) -> Response:
    """Show the ledger."""
    page = await run_in_threadpool(read_ledger, visitor.desk.registry, before)
    await visitor.note_look("look at ledger", "")
    return show_page(visitor, page, template="ledger")


@router.post("/ledger")
async def check_head(visitor: AuditingVisitor, form: SignedForm) -> Response:
    """Check a head or a receipt that somebody has, and compare the ledger with it."""
    registry = visitor.desk.registry
    page = await run_in_threadpool(read_ledger, registry, None)
    try:
        text = next(iter(form.fields.get("head", ())), "")  # as it is: bytes count
        found = await run_in_threadpool(check_pasted, registry, text)
    except InvalidInput as error:
        return show_page(visitor, page, template="ledger", code=422, problem=str(error))
    return show_page(
        visitor, page.model_copy(update={"verdict": found}), template="ledger"
    )


class TrailPage(BaseModel):
    """Lines of the trail, in order."""

    lines: list[TrailLineOut]
    next: str | None


def read_trail(registry: Registry, start: int) -> TrailPage:
    """Return the lines from one on."""
    lines = registry.access.trail(start, TRAIL_LINES)
    more = f"/trail?start={start + TRAIL_LINES}" if len(lines) == TRAIL_LINES else None
    return TrailPage(
        lines=[TrailLineOut.of(one) for one in lines],
        next=more,
    )


@router.get("/trail")
@router.get("/trail.json")
async def show_trail(
    visitor: AuditingVisitor, start: Annotated[int, Query(ge=0, le=2**53)] = 0
) -> Response:
    """Show the trail."""
    page = await run_in_threadpool(read_trail, visitor.desk.registry, start)
    return show_page(visitor, page, template="trail")
