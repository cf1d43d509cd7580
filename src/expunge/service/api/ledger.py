# SPDX-License-Identifier: Apache-2.0
"""Routes of the ledger: entries, heads, proofs and keys.

An entry without certificates tells that nobody was found, so all but the public keys
needs the scope ``audit``.
"""

import json
from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool

from ..access import Auditor
from ..desk import Note
from ..problems import Refused
from .documents import (
    PROBLEMS,
    EntriesOut,
    ProofOut,
    StrictRoute,
    TheDesk,
    answer_json,
    describe_file,
    make_download,
)

router = APIRouter(route_class=StrictRoute, tags=["ledger"], responses=PROBLEMS)
Position = Annotated[int, Query(ge=0, le=2**53)]


@router.get("/ledger/entries", response_model=EntriesOut)
async def list_entries(
    caller: Auditor,
    *,
    desk: TheDesk,
    start: Position = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List entries in order, from a given one on."""
    entries = await run_in_threadpool(desk.registry.ledger.page, start, limit)
    found = [json.loads(one.to_json()) for one in entries]
    after = start + len(found) if len(found) == limit else None
    await desk.record_look(Note(caller.name, "look at ledger"))
    return answer_json(EntriesOut(entries=found, next=after))


@router.get(
    "/ledger/head",
    response_class=Response,
    responses=describe_file("The signed head.", "application/json", kind="object"),
)
def show_head(caller: Auditor, *, desk: TheDesk) -> Response:
    """Show the newest signed head, byte for byte."""
    head = desk.registry.ledger.head()
    if head is None:
        raise Refused(404, "the ledger is empty; it begins with the first model")
    return Response(
        head, media_type="application/json", headers={"Cache-Control": "no-store"}
    )


@router.get("/ledger/inclusion", response_model=ProofOut)
def prove_inclusion(
    caller: Auditor, *, desk: TheDesk, sequence: Position, size: Position
) -> Response:
    """Prove that an entry is in the ledger of a size."""
    hashes = desk.registry.ledger.prove_inclusion(sequence, size)
    return answer_json(ProofOut(hashes=list(hashes)))


@router.get("/ledger/consistency", response_model=ProofOut)
def prove_growth(
    caller: Auditor, *, desk: TheDesk, first: Position, second: Position
) -> Response:
    """Prove that the ledger of one size begins with the ledger of another."""
    hashes = desk.registry.ledger.prove_growth(first, second)
    return answer_json(ProofOut(hashes=list(hashes)))


@router.get(
    "/ledger/export",
    response_class=Response,
    responses=describe_file("An entry on each line.", "application/x-ndjson"),
)
async def export_ledger(caller: Auditor, *, desk: TheDesk) -> Response:
    """Download the whole ledger, as `expunge verify` reads it."""
    data = await run_in_threadpool(desk.registry.ledger.export)
    await desk.record(Note(caller.name, "export ledger"))
    return make_download(data, "ledger.jsonl", media_type="application/x-ndjson")


@router.get(
    "/keys",
    response_class=Response,
    responses=describe_file("The keys in PEM.", "application/x-pem-file"),
)
def show_keys(desk: TheDesk) -> Response:
    """Show the public keys of the ledger, with which anybody can check receipts."""
    return Response(
        desk.registry.keys.public_pem(), media_type="application/x-pem-file"
    )
