# SPDX-License-Identifier: Apache-2.0
"""Windows: when a request is answered depends on when it came, and on nothing else.

How long an answer takes depends on the person: a stranger's takes none, and that of a
person whose rows weigh much may take a fit. So requests wait for the end of a window,
all that came in it are applied as one batch, and what became of them is shown at a
moment that was known when they came, see ``registry.window``.

Windows follow one another without gaps, counted from the beginning of 1970 in UTC. The
setting says in which window a request falls that comes now. What is shown of a request
follows from the window that was written down with it.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from ..exceptions import InvalidInput
from ..registry import RequestStatus
from ..registry.window import SECOND, Window

State: TypeAlias = Literal["pending", "in_progress", "completed", "cancelled"]
"""A request as its sender sees it."""

SHORTEST, LONGEST = 1, 24 * 60 * 60


def format_moment(milliseconds: int) -> str:
    """Return a moment as RFC 3339 has it, in UTC."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    text = moment.isoformat(timespec="milliseconds" if milliseconds % 1000 else "auto")
    return text.replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class ShownRequest:
    """A request as its sender may see it at one moment.

    Parameters
    ----------
    status
        How far it is, for those who may see all of it. Its times are private.
    state
        "pending": it can be cancelled. "in_progress": it is being answered, or waits
        for an operator. "completed": there is a receipt. "cancelled".
    answered
        When the answer was shown, in milliseconds since 1970; None before that.
    """

    status: RequestStatus
    state: State
    answered: int | None

    @property
    def request(self) -> str:
        """Its id."""
        return self.status.request

    @property
    def window(self) -> Window:
        """The window in which it came."""
        return self.status.window


@dataclass(frozen=True, slots=True)
class Windows:
    """How time is cut into windows."""

    seconds: int

    def __post_init__(self) -> None:
        """Refuse a length that no day divides into, or that nobody would wait for."""
        if not SHORTEST <= self.seconds <= LONGEST or LONGEST % self.seconds:
            raise InvalidInput(
                f"a window of {self.seconds} seconds; give a number that divides a "
                f"day, from {SHORTEST} to {LONGEST}, such as 900"
            )

    def at(self, time: int) -> Window:
        """Return the window in which a moment lies."""
        return Window.at(time, self.seconds)

    def next_answer(self, time: int) -> int:
        """Return the first moment from this one on at which answers are shown."""
        earlier = self.at(time - 2 * self.seconds * SECOND)
        return earlier.next_answer(time)


def show_at(status: RequestStatus, time: int) -> ShownRequest:
    """Return a request as its sender may see it at a moment."""
    window = status.window
    state: State = "pending" if window.is_open(time) else "in_progress"
    answered = None
    if status.stage == "cancelled":
        state = "cancelled"
    elif status.completed is not None:
        moment = window.next_answer(status.completed)
        if time >= moment:
            state, answered = "completed", moment
    return ShownRequest(status, state, answered)
