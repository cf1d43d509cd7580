# SPDX-License-Identifier: Apache-2.0
"""Letters and evidence of requests, as files for programs and for people."""

from dataclasses import replace
from io import BytesIO
from typing import Annotated

from fastapi import Query, Response
from starlette.concurrency import run_in_threadpool

from ..exceptions import UnknownRequest
from .auth import CanAudit, CanOperate
from .documents import ID
from .problems import Refused
from .routing import describe_file, make_download, page_router, program_router

api, pages = program_router("requests"), page_router()
Kind = Annotated[
    str,
    Query(
        max_length=40,
        description="acknowledgement, identity, extended, done, nothing-found, refused "
        "or recipient; by default what the request calls for now.",
    ),
]
Language = Annotated[str, Query(max_length=20, examples=["en", "de"])]
Name = Annotated[str, Query(max_length=200, description="Of a notice to a recipient.")]


@api.get(
    "/requests/{request}/letter",
    response_class=Response,
    responses=describe_file("The letter.", "text/html"),
)
@pages.get("/requests/{request}/letter")
async def show_letter(
    request: ID,
    *,
    caller: CanOperate,
    kind: Kind = "",
    language: Language = "en",
    recipient: Name = "",
) -> Response:
    """Download a letter about a request. Nothing is sent.

    Until its window closes nobody learns more from it than that it came in.
    """
    from ..letters import choose_kind, gather_facts, write_letter

    def write() -> tuple[str, str]:
        shown = caller.intake.show(request, caller.sender)
        status, receipt = shown.status, None
        if shown.state == "completed":
            if not caller.sees_answer(status.sender):
                raise Refused(403, "answers to other senders need the scope audit")
            receipt = caller.registry.requests.receipt(request)
        elif shown.state == "cancelled":
            raise UnknownRequest("the request was cancelled, so it gets no letter")
        else:  # what an answer says is not shown before its time
            status = replace(status, stage="accepted", outcome="", reason="")
        chosen = kind or ("recipient" if recipient else choose_kind(status))
        facts = gather_facts(status, receipt, kind=chosen, recipient=recipient)
        return chosen, write_letter(facts, caller.registry.folder, language=language)

    chosen, text = await run_in_threadpool(write)
    await caller.note_look(f"write letter {chosen}", request)
    name = f"letter-{chosen}-{request}.html"
    return make_download(text, name, media_type="text/html; charset=utf-8")


@api.get(
    "/requests/{request}/evidence",
    response_class=Response,
    responses=describe_file("A pack of evidence.", "application/zip"),
)
@pages.get("/requests/{request}/evidence")
async def show_evidence(
    request: ID, *, caller: CanAudit, language: Language = "en"
) -> Response:
    """Download what shows an authority how a request was answered."""
    from ..evidence import pack_evidence

    def pack() -> bytes:
        shown = caller.intake.show(request, caller.sender)
        if shown.state != "completed":
            raise Refused(404, "there is no evidence before the request is answered")
        packed = BytesIO()
        pack_evidence(caller.registry, [request], to=packed, language=language)
        return packed.getvalue()

    data = await run_in_threadpool(pack)
    await caller.note("pack evidence", request)
    return make_download(data, f"evidence-{request}.zip", media_type="application/zip")
