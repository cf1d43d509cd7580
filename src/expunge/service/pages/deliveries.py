# SPDX-License-Identifier: Apache-2.0
"""Deliveries: what was told to others, what waits, and what can be sent again."""

from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from ...registry import Delivery, Registry
from ..windows import format_moment
from .rendering import PageRoute, go_to, show_page
from .visiting import OperatingVisitor, SignedForm, WatchingVisitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)
StateWanted: TypeAlias = Literal["", "waiting", "delivered", "given_up"]
PAGE = 50


class DeliveryLine(BaseModel):
    """Something that is told to others; of the address only the host."""

    id: str
    form: str
    event: str
    subject: str
    request: str
    host: str
    state: str
    attempts: int
    due: str | None
    last: str

    @classmethod
    def of(cls, delivery: Delivery) -> "DeliveryLine":
        """Return a delivery as a line."""
        is_waiting = delivery.state == "waiting"
        return cls(
            id=delivery.id,
            form=delivery.form,
            event=delivery.event,
            subject=delivery.subject,
            request=delivery.request,
            host=delivery.host,
            state=delivery.state,
            attempts=delivery.attempts,
            due=format_moment(delivery.due) if is_waiting else None,
            last=delivery.last,
        )


class DeliveriesPage(BaseModel):
    """Deliveries, the newest first."""

    state: StateWanted
    lines: list[DeliveryLine]
    next: str | None


def read_deliveries(
    registry: Registry, state: StateWanted, *, after: str
) -> DeliveriesPage:
    """Return a page of deliveries."""
    page = registry.deliveries.page(state or None, after=after, most=PAGE)
    more = urlencode({"state": state, "after": page.next})
    return DeliveriesPage(
        state=state,
        lines=[DeliveryLine.of(one) for one in page.lines],
        next=f"/deliveries?{more}" if page.next else None,
    )


@router.get("/deliveries")
@router.get("/deliveries.json")
async def show_deliveries(
    visitor: WatchingVisitor,
    *,
    state: StateWanted = "",
    after: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Show deliveries."""
    registry = visitor.desk.registry
    page = await run_in_threadpool(read_deliveries, registry, state, after=after)
    return show_page(visitor, page, template="deliveries")


@router.post("/deliveries/{delivery}/replay")
async def replay_delivery(
    delivery: str, visitor: OperatingVisitor, *, form: SignedForm
) -> Response:
    """Send a delivery again."""
    await run_in_threadpool(visitor.desk.registry.deliveries.replay, delivery)
    await visitor.note("replay delivery", delivery)
    return go_to("/deliveries", "replayed")
