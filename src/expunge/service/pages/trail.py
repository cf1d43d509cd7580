# SPDX-License-Identifier: Apache-2.0
"""The trail: who looked and who acted, in a chain that shows what was taken out."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from ...ledger.documents import day_of
from ...registry import Registry
from ..api.status import TrailLineOut
from .rendering import PageRoute, show_page
from .visiting import AuditingVisitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)
PAGE = 100


class TrailPage(BaseModel):
    """Lines of the trail, in order."""

    lines: list[TrailLineOut]
    next: str | None


def read_trail(registry: Registry, start: int) -> TrailPage:
    """Return the lines from one on."""
    lines = registry.access.trail(start, PAGE)
    more = f"/trail?start={start + PAGE}" if len(lines) == PAGE else None
    return TrailPage(
        lines=[
            TrailLineOut(
                sequence=one.sequence,
                day=day_of(one.time),
                actor=one.actor,
                action=one.action,
                target=one.target,
            )
            for one in lines
        ],
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
