# SPDX-License-Identifier: Apache-2.0
"""Deadlines as people see them: a bar, and beside it the same in words."""

from typing import Literal

from pydantic import BaseModel, Field

from ...ledger.documents import day_of, days_between
from ...registry.context import now
from ..windows import ShownRequest

SOON = 7  # days


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
