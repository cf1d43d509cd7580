# SPDX-License-Identifier: Apache-2.0
"""Views: what pages show of a request beside its document, in words and bars.

A bar shows how much of the time to answer is gone, and says the same in words.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..ledger import Receipt, check_receipt
from ..ledger.documents import day_of, days_between
from ..promise.verification import Verdict
from ..registry import Registry
from ..registry.now import now
from ..rights.standing import REASONS, describe_outcome
from .windows import ShownRequest, format_moment

SOON = 7  # days
NOTHING_ABOUT = "It says nothing about "  # begins the end of what a verdict says


@dataclass(frozen=True, slots=True)
class DeadlineBar:
    """How much of the time to answer is gone.

    Parameters
    ----------
    days_left
        Negative once the day is past.
    share
        Of the time that is gone, in percent.
    tone, text
        The same at a glance, and in words.
    """

    days_left: int
    share: float
    tone: Literal["calm", "soon", "late"]
    text: str

    @classmethod
    def of(cls, shown: ShownRequest) -> "DeadlineBar":
        """Return the bar of a request as it is shown now."""
        asked, due = shown.status.submitted, day_of(shown.status.deadline)
        if shown.state == "cancelled":
            return cls(0, 0, "calm", f"was due {due}")
        until = day_of(shown.answered if shown.answered is not None else now())
        left = days_between(until, due)
        days = f"{abs(left)} day{'' if abs(left) == 1 else 's'}"
        if shown.answered is not None:
            if left == 0:
                text = f"answered on the last day, {due}"
            else:
                text = f"answered {days} {'before' if left > 0 else 'AFTER'} {due}"
            tone: Literal["calm", "soon", "late"] = "late" if left < 0 else "calm"
        elif left < 0:
            tone, text = "late", f"overdue by {days}, since {due}"
        else:
            tone = "soon" if left <= SOON else "calm"
            text = f"due {due}, {days} left" if left else f"due today, {due}"
        whole = max(days_between(asked, due), 1)
        gone = min(max(whole - left, 0), whole)
        return cls(left, round(100 * gone / whole, 1), tone, text)


class TimelineStep(NamedTuple):
    """A step on the way of a request."""

    title: str
    when: str
    is_done: bool = True


def list_steps(shown: ShownRequest, *, in_truth: bool) -> list[TimelineStep]:
    """Return the way of a request; its moments are those of its window.

    To its sender all steps are done at these moments; ``in_truth`` when they are.
    """
    window, state = shown.window, shown.state
    came = format_moment(window.came.start)
    if not window.is_none:
        came = f"between {came} and {format_moment(window.came.close)}"
    steps = [
        TimelineStep("The person asked", shown.status.submitted),
        TimelineStep("The request came in", came),
    ]
    if state == "cancelled":
        return [*steps, TimelineStep("It was cancelled", "")]
    told = "on" if shown.answered is not None else "expected on"
    is_applied = state in ("in_progress", "completed")
    when = f"from {format_moment(window.close)}"
    if in_truth and shown.status.is_open:
        is_applied = shown.status.stage != "accepted"
        if shown.status.waits_for:
            when = f"it waits for {shown.status.waits_for}"
    return [
        *steps,
        TimelineStep(
            "It is applied, with all that came in its window",
            when,
            is_applied,
        ),
        TimelineStep(
            "It is answered, with a receipt",
            f"{told} {format_moment(shown.answered or window.answer)}",
            state == "completed",
        ),
    ]


@dataclass(frozen=True, slots=True)
class ReceiptView:
    """A receipt in words, and what its check found."""

    facts: dict[str, str]
    guarantee: str
    says: str
    verdict: Verdict


def read_receipt(registry: Registry, request: str) -> ReceiptView:
    """Return the receipt of a completed request; in its facts nothing that is empty."""
    text = registry.requests.receipt(request)
    assert text is not None
    verdict = check_receipt(text, registry.keys.public_pem())
    receipt = Receipt.from_json(text)
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
        "in the proof log": f"entry {entry.sequence} of {receipt.head.size}",
        "signed by": receipt.key,
    }
    return ReceiptView(
        {name: text for name, text in facts.items() if text},
        handling.guarantee,
        verdict.says.partition(f" {NOTHING_ABOUT}")[0],
        verdict,
    )
