# SPDX-License-Identifier: Apache-2.0
"""The window of a request: when it closes, and when its answer may be shown.

How long an answer takes depends on the person. So a service gathers requests until a
window closes, applies them together, and shows what became of them at a moment that was
known when they came:

    start           close       answer
      |-- pending --|-in progress-|-- completed
      |<-- length ->|<- a tenth ->|

A window belongs to its request. It is written down when the request is accepted, in
journal and store, and every later moment follows from it: the setting of a service may
change, and what was promised to a sender does not.

A request without a window, such as one of a command, is closed at once: its start and
close are the minute in which it came.

A rule may give people days of grace. The window of a request is then put off by whole
days, with its length: until it closes the request is pending, and can be taken back.
"""

from dataclasses import dataclass

SECOND = 1000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
APPLYING = 10  # the part of a window's length in which its batch is applied


@dataclass(frozen=True, slots=True)
class Window:
    """A window, in milliseconds since 1970.

    Parameters
    ----------
    start, close
        When requests begin to be taken in, and when they are applied; both are the same
        for a request without a window.
    grace_days
        By how many days it was put off.
    """

    start: int
    close: int
    grace_days: int = 0

    @classmethod
    def at(cls, time: int, seconds: int) -> "Window":
        """Return the window of a length in which a moment lies; 0 stands for none."""
        length = seconds * SECOND
        start = time - time % (length or MINUTE)
        return cls(start, start + length)

    def put_off(self, days: int) -> "Window":
        """Return the window of the same length some days later."""
        later = days * DAY
        return Window(self.start + later, self.close + later, self.grace_days + days)

    @property
    def came(self) -> "Window":
        """The window in which the request came."""
        return self.put_off(-self.grace_days)

    @property
    def is_none(self) -> bool:
        """Whether the request has no window."""
        return self.start == self.close

    @property
    def answer(self) -> int:
        """The first moment at which an answer is shown."""
        return self.close + (self.close - self.start) // APPLYING

    def is_open(self, time: int) -> bool:
        """Whether requests are still taken in at a moment."""
        return (bool(self.grace_days) or not self.is_none) and time < self.close

    def next_answer(self, time: int) -> int:
        """Return the first moment from this one on at which its answer may be shown.

        A batch that is not done by then is shown a whole number of windows later.
        """
        length = self.close - self.start or MINUTE
        late = max(time - self.answer, 0)
        return self.answer + -(-late // length) * length
