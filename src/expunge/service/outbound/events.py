# SPDX-License-Identifier: Apache-2.0
"""Events: what changed becomes messages, each at the moment when it may be seen.

A callback is told of each state that its request is shown in: in progress when the
window closes, completed at the answer, cancelled at once. Webhooks are told of answers
and releases at the moment of answers too. So when a message is sent follows from the
windows alone, and not from how long an answer took.
"""

from ...ledger.documents import day_of, midnight
from ...registry.delivery import (
    WEBHOOK,
    Happening,
    NewDelivery,
    Queued,
    Untold,
    WatchedCallback,
)
from ..windows import State, Windows, format_moment
from .webhooks import write_payload

LAST: tuple[State, ...] = ("completed", "cancelled")
ENDS_ALONE = ("fides",)
"""Forms whose receivers take any message to mean that the request came to its end."""
NEVER = 1 << 62  # a moment by which everything is shown


def plan_messages(untold: Untold, windows: Windows, *, now: int) -> Queued:
    """Return the messages that tell what changed, and when to look again."""
    deliveries, told = [], {}
    for one in untold.callbacks:
        message, told[one.id] = _plan_callback(one, windows, now=now)
        deliveries += [message] if message else []
    for happening in untold.happenings:
        deliveries += _plan_webhooks(happening, untold, windows=windows, now=now)
    return Queued(deliveries, told, untold)


def _plan_callback(
    one: WatchedCallback, windows: Windows, *, now: int
) -> tuple[NewDelivery | None, tuple[str, int | None]]:
    """Return what a callback is told, if anything, and when to look again."""
    shown = windows.show(one.status, now)
    window, state = shown.window, shown.state
    if state == "pending":
        return None, (one.told, window.close)
    later = max(window.answer, windows.next_answer(now + 1))
    look = None if state in LAST else later
    if state == one.told or (state not in LAST and one.form in ENDS_ALONE):
        return None, (state, look)
    since = {"in_progress": window.close, "completed": shown.answered or now}
    message = NewDelivery(
        address=one.id,
        form=one.form,
        event=state,
        subject=shown.request,
        host=one.host,
        since=since.get(state, now),
    )
    return message, (state, look)


def _plan_webhooks(
    happening: Happening, untold: Untold, *, windows: Windows, now: int
) -> list[NewDelivery]:
    """Return the messages about a happening, to all who want to hear of it."""
    event = happening.event
    moment, data = _describe(happening, windows, now=now)
    payload = write_payload(event, moment, data=data)
    return [
        NewDelivery(id_, WEBHOOK, event, happening.subject, host, moment, payload)
        for id_, host, events in untold.listeners
        if event in events
    ]


def _describe(
    happening: Happening, windows: Windows, *, now: int
) -> tuple[int, dict[str, object]]:
    """Return when a happening may be seen, and what is said of it."""
    status = happening.status
    if status is None:
        return windows.next_answer(now), {**happening.data}
    shown = windows.show(status, NEVER)
    data: dict[str, object] = {
        "request": status.request,
        "right": status.right,
        "regime": status.regime,
        "submitted": status.submitted,
        "deadline": day_of(status.deadline),
        "received": format_moment(shown.window.start),
    }
    if shown.answered is not None:
        return shown.answered, data | {"answered": format_moment(shown.answered)}
    overdue = happening.event == "request.overdue"
    return midnight(day_of(now)) if overdue else now, data
