# SPDX-License-Identifier: Apache-2.0
"""The ledger: entries, heads, proofs and keys, and whether a head you have fits.

An entry without certificates tells that nobody was found, so all but the public keys
needs the scope ``audit``. Pages call it the proof log.
"""

import json
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import Query, Response
from fastapi import Request as Call
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from ..exceptions import InvalidInput
from ..ledger import Head, Receipt, check_consistency, check_receipt
from ..ledger.receipts import without_newline
from ..promise.verification import Verdict
from ..registry import Registry
from .auth import Caller, CanAudit, TheForm
from .problems import Refused
from .rendering import show_page
from .routing import describe_file, make_download, page_router, program_router

api, pages = program_router("ledger"), page_router()
Position = Annotated[int, Query(ge=0, le=2**53)]
PAGE = 50
POINTS = 40  # on the line of its growth


class EntriesOut(BaseModel):
    """Entries of the ledger, as they were signed."""

    entries: list[dict[str, Any]]
    next: int | None = Field(description="Where the next page starts.")


class ProofOut(BaseModel):
    """Hashes that prove something of the ledger, as RFC 9162 orders them."""

    hashes: list[str]


def read_entries(registry: Registry, start: int, *, limit: int) -> EntriesOut:
    """Return entries in order."""
    entries = registry.ledger.page(start, limit) if limit else []
    found = [json.loads(one.to_json()) for one in entries]
    after = start + len(found) if len(found) == limit else None
    return EntriesOut(entries=found, next=after)


@api.get("/ledger/entries", response_model=EntriesOut)
async def list_entries(
    caller: CanAudit,
    *,
    start: Position = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> EntriesOut:
    """List entries in order, from a given one on."""
    registry = caller.registry
    found = await run_in_threadpool(read_entries, registry, start, limit=limit)
    await caller.note_look("look at ledger")
    return found


@api.get(
    "/ledger/head",
    response_class=Response,
    responses=describe_file("The signed head.", "application/json", kind="object"),
)
def show_head(caller: CanAudit) -> Response:
    """Show the newest signed head, byte for byte."""
    head = caller.registry.ledger.head()
    if head is None:
        raise Refused(404, "the ledger is empty; it begins with the first model")
    return Response(head, media_type="application/json")


@api.get("/ledger/inclusion", response_model=ProofOut)
def prove_inclusion(caller: CanAudit, *, sequence: Position, size: Position) -> Any:
    """Prove that an entry is in the ledger of a size."""
    return {"hashes": caller.registry.ledger.prove_inclusion(sequence, size)}


@api.get("/ledger/consistency", response_model=ProofOut)
def prove_growth(caller: CanAudit, *, first: Position, second: Position) -> Any:
    """Prove that the ledger of one size begins with the ledger of another."""
    return {"hashes": caller.registry.ledger.prove_growth(first, second)}


@api.get(
    "/ledger/export",
    response_class=Response,
    responses=describe_file("An entry on each line.", "application/x-ndjson"),
)
async def export_ledger(caller: CanAudit) -> Response:
    """Download the whole ledger, as `expunge verify` reads it."""
    data = await run_in_threadpool(caller.registry.ledger.export)
    await caller.note("export ledger")
    return make_download(data, "ledger.jsonl", media_type="application/x-ndjson")


@api.get(
    "/keys",
    response_class=Response,
    responses=describe_file("The keys in PEM.", "application/x-pem-file"),
)
def show_keys(call: Call) -> Response:
    """Show the public keys of the ledger, with which anybody can check receipts."""
    pem = call.app.state.intake.registry.keys.public_pem()
    return Response(pem, media_type="application/x-pem-file")


class PastedCheck(NamedTuple):
    """What a check of a head or a receipt found."""

    about: Literal["head", "receipt"]
    verdict: Verdict
    resaved: bool = False


def show_ledger_page(
    caller: Caller,
    before: int | None = None,
    *,
    checked: PastedCheck | None = None,
    code: int = 200,
    problem: str = "",
) -> Response:
    """Return the page of the ledger: its head, its growth, and some of its entries."""
    registry = caller.registry
    text = registry.ledger.head()
    head = None if text is None else json.loads(text)
    size = 0 if head is None else head["size"]
    end = size if before is None else min(before, size)
    start = max(end - PAGE, 0)
    found = read_entries(registry, start, limit=end - start).entries
    return show_page(
        caller,
        "ledger",
        code=code,
        problem=problem,
        head=head,
        growth=_read_growth(registry, size),
        entries=found[::-1],  # the newest first
        next=f"/ledger?before={start}" if start else "",
        checked=checked,
    )


def _read_growth(registry: Registry, size: int) -> dict[str, int]:
    """Return how many entries there were after a day, for few however long it is."""
    if not size:
        return {}
    places = sorted({*range(0, size, max(1, size // POINTS)), size - 1})
    found = [registry.ledger.page(place, 1)[0] for place in places]
    return {one.day: one.sequence + 1 for one in found}  # the last of a day stays


@pages.get("/ledger")
async def show_ledger(
    caller: CanAudit, before: Annotated[int | None, Query(ge=0, le=2**53)] = None
) -> Response:
    """Show the ledger."""
    page = await run_in_threadpool(show_ledger_page, caller, before)
    await caller.note_look("look at ledger")
    return page


@pages.post("/ledger")
def check_head(caller: CanAudit, form: TheForm) -> Response:
    """Check a head or a receipt that somebody has, and compare the ledger with it."""
    text = next(iter(form.fields.get("head", ())), "")  # as it is: bytes count
    try:
        return show_ledger_page(caller, checked=check_pasted(caller.registry, text))
    except InvalidInput as error:
        return show_ledger_page(caller, code=422, problem=str(error))


def check_pasted(registry: Registry, text: str) -> PastedCheck:
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
        pass
    else:
        return PastedCheck("head", compare_head(registry, head, newest=newest, pem=pem))
    verdict = check_receipt(data, pem)
    if not verdict.valid:
        return PastedCheck("receipt", verdict, verdict.resaved)
    head = Receipt.from_json(line).head
    compared = compare_head(registry, head, newest=newest, pem=pem)
    says = verdict.says if compared.valid else compared.says
    findings = (*verdict.findings, *compared.findings)
    return PastedCheck("receipt", Verdict(findings, compared.failures, says))


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
