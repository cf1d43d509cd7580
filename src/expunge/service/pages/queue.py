# SPDX-License-Identifier: Apache-2.0
"""The queue: requests by deadline, the overdue ones first, each with its bar.

A bar shows how much of the time to answer is gone, and says the same in words.
"""

from dataclasses import replace
from datetime import date, timedelta
from typing import Annotated, Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from ...ledger.documents import day_of, days_between
from ...registry import PageWanted
from ...registry.context import now, today
from ..access import Caller
from ..api.documents import ID, RequestOut, WindowOut
from ..desk import Desk
from ..windows import ShownRequest, State, show_at
from .rendering import PageRoute, show_page
from .visiting import AnyVisitor

SOON = 7  # days
router = APIRouter(route_class=PageRoute, include_in_schema=False)
Wanted: TypeAlias = Literal[
    "open", "pending", "in_progress", "completed", "cancelled", "all"
]
Due: TypeAlias = Literal["", "overdue", "today", "week"]
PAGE = 50
MOST_COUNTED = 1000
MOST_PAGES = 50  # to look through for one that is shown
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


class DeadlineBar(BaseModel):
    """How much of the time to answer is gone."""

    day: str = Field(examples=["2026-04-01"])
    days_left: int = Field(description="Negative once the day is past.")
    share: float = Field(description="Of the time that is gone, in percent.")
    tone: Literal["calm", "soon", "late"]
    text: str = Field(examples=["due 2026-04-01, 12 days left"])

    @classmethod
    def of(cls, shown: ShownRequest) -> "DeadlineBar":
        """Return the bar of a request as it is shown now."""
        asked, due = shown.status.submitted, day_of(shown.status.deadline)
        if shown.state == "cancelled":
            text = f"was due {due}"
            return cls(day=due, days_left=0, share=0, tone="calm", text=text)
        is_answered = shown.answered is not None
        until = day_of(shown.answered if shown.answered is not None else now())
        left = days_between(until, due)
        whole = max(days_between(asked, due), 1)
        gone = min(max(whole - left, 0), whole)
        return cls(
            day=due,
            days_left=left,
            share=round(100 * gone / whole, 1),
            tone=_choose_tone(left, is_answered=is_answered),
            text=_describe(due, left, is_answered=is_answered),
        )


def _choose_tone(left: int, *, is_answered: bool) -> Literal["calm", "soon", "late"]:
    if left < 0:
        return "late"
    return "soon" if left <= SOON and not is_answered else "calm"


def _describe(due: str, left: int, *, is_answered: bool) -> str:
    days = f"{abs(left)} day{'' if abs(left) == 1 else 's'}"
    if is_answered:
        if left == 0:
            return f"answered on the last day, {due}"
        return f"answered {days} {'before' if left > 0 else 'AFTER'} {due}"
    if left < 0:
        return f"overdue by {days}, since {due}"
    return f"due today, {due}" if left == 0 else f"due {due}, {days} left"


class QueueLine(BaseModel):
    """A request in the queue."""

    request: RequestOut
    deadline: DeadlineBar
    sender: str


class QueuePage(BaseModel):
    """Requests by deadline."""

    state: Wanted
    due: Due
    n_overdue: int = Field(description=f"Counted up to {MOST_COUNTED}.")
    n_due_in_a_week: int = Field(description="The overdue ones included.")
    near_misses: list[ID] = Field(
        description="Requests that may mean somebody else, for operators."
    )
    window: WindowOut
    clock: str = Field(description="What is wrong with the clock, for operators.")
    lines: list[QueueLine]
    next: str | None = Field(description="The address of the next page.")


def read_due(due: Due, day: date) -> date | None:
    """Return the last day of the deadlines that are wanted; None for all."""
    days = {"overdue": -1, "today": 0, "week": 7}
    return day + timedelta(days[due]) if due else None


class ShownPage(NamedTuple):
    """Requests that are shown in some states, and where to go on; empty at the end."""

    requests: list[ShownRequest]
    next: str


def list_shown(
    desk: Desk, caller: Caller, *, state: Wanted, wanted: PageWanted
) -> ShownPage:
    """Return requests in a state, at least as many as wanted where there are so many.

    A sender's are chosen by what is shown, not by where they are in the store:
    otherwise one that is done would leave the queue before its answer is shown.
    """
    states = STATES.get(state, (state,))
    stages = STAGES[state] if caller.sees_all else ()
    wanted = replace(wanted, stages=stages, sender=caller.sender)
    found: list[ShownRequest] = []
    time = now()
    for _ in range(MOST_PAGES):
        page = desk.registry.requests.page(wanted)
        every = (show_at(one, time) for one in page.lines)
        found += (one for one in every if one.state in states)
        if not page.next or len(found) >= wanted.most:
            return ShownPage(found, page.next)
        wanted = replace(wanted, after=page.next)
    return ShownPage(found, wanted.after)


def count_due(desk: Desk, caller: Caller, *, due: Due) -> int:
    """Return how many open requests are due, up to a limit."""
    wanted = PageWanted(due=read_due(due, today()), most=MOST_COUNTED)
    found = list_shown(desk, caller, state="open", wanted=wanted).requests
    return min(len(found), MOST_COUNTED)


def read_queue(
    desk: Desk, caller: Caller, *, state: Wanted, due: Due, cursor: str
) -> QueuePage:
    """Return a page of the queue."""
    wanted = PageWanted(due=read_due(due, today()), after=cursor, most=PAGE)
    page = list_shown(desk, caller, state=state, wanted=wanted)
    query = {"state": state, "due": due, "cursor": page.next}
    return QueuePage(
        state=state,
        due=due,
        n_overdue=count_due(desk, caller, due="overdue"),
        n_due_in_a_week=count_due(desk, caller, due="week"),
        near_misses=sorted(desk.registry.requests.near_misses())[:PAGE]
        if caller.may("operate")
        else [],
        window=WindowOut.of(desk.current_window()),
        clock=desk.registry.clock().warning if caller.sees_all else "",
        lines=[
            QueueLine(
                request=RequestOut.of(one, caller),
                deadline=DeadlineBar.of(one),
                sender=one.status.sender,
            )
            for one in page.requests
        ],
        next=f"/?{urlencode(query)}" if page.next else None,
    )


@router.get("/")
@router.get("/index.json")
async def show_queue(
    visitor: AnyVisitor,
    *,
    state: Wanted = "open",
    due: Due = "",
    cursor: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Show the queue."""

    def read() -> QueuePage:
        desk, caller = visitor.desk, visitor.caller
        return read_queue(desk, caller, state=state, due=due, cursor=cursor)

    return show_page(visitor, await run_in_threadpool(read), template="queue")
