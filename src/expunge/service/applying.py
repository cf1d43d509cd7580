# SPDX-License-Identifier: Apache-2.0
"""Applying: one thread that applies each window's requests when it closes.

Several processes may serve one registry; the registry's lock lets one of them apply,
and the others find nothing left to do. What cannot be applied now stays accepted, and
is tried again with the next window. After the requests the ledger seals the trail.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from ..exceptions import Busy, ExpungeError, InvalidInput, ScheduleExhausted
from ..registry import Registry
from ..registry.context import now
from .background import BackgroundThread
from .logs import log, log_failure, log_waiting
from .windows import SECOND, Windows

RETRY = 5.0  # seconds after another process was at work
GRACE = 100  # the part of a window in which what came at its end gets to the disk
LONGEST_SLEEP = 60.0  # the clock may be set
FIRST_SLEEP = 1.0  # those who wait until the service is ready come first
SHORT_TURN = 0.0002  # seconds for which a thread keeps the interpreter from others


class Applier(BackgroundThread):
    """A thread that applies requests when windows close.

    Parameters
    ----------
    registry
        Whose requests are applied.
    windows
        When.
    on_batch
        Called with how many seconds a window's requests took.
    """

    def __init__(
        self,
        registry: Registry,
        windows: Windows,
        on_batch: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        super().__init__("applying")
        self._registry = registry
        self._on_batch = on_batch
        self._windows = windows
        self._grace = windows.seconds * SECOND // GRACE

    def _run(self) -> None:
        done, longest = 0, FIRST_SLEEP
        while not self._stop.is_set():
            window = self._windows.at(now() - self._grace)
            is_done = window.start == done  # not later: the clock may be set back
            if not is_done and self._apply(window.start):
                done = window.start
                continue
            begin = window.close + self._grace
            pause = (begin - now()) / SECOND if is_done else RETRY
            if self._stop.wait(min(max(pause, 0.001), longest)):
                return
            longest = LONGEST_SLEEP
            with giving_way():
                self._registry.models.prepare()  # the next batch need not do it

    def _apply(self, before: int) -> bool:
        """Apply the requests of windows before a moment; return whether it is done."""
        started = monotonic()
        try:
            self._registry.requests.apply(before=before)
        except Busy:
            return False
        except (ScheduleExhausted, InvalidInput) as error:
            log_waiting(error)  # one request could not be applied, and all others were
        except ExpungeError as error:
            log_failure(None, error)
        except Exception as error:
            log_failure(None, error)
            return False
        self._on_batch(monotonic() - started)
        log("applied", window=before)
        self._seal_trail()
        return True

    def _seal_trail(self) -> None:
        """Let the ledger seal the trail, once a day; after a failure, next window."""
        try:
            self._registry.access.seal_trail()
        except Busy:
            pass  # another process is at work, which may be sealing it
        except Exception as error:
            log_failure(None, error)


@contextmanager
def giving_way() -> Iterator[None]:
    """Let other threads have the interpreter sooner while this one is long at work.

    An accepted call goes through several threads, and each would wait for 5 ms.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SHORT_TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
