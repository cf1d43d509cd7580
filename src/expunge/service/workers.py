# SPDX-License-Identifier: Apache-2.0
"""Workers: the threads beside the routes, from the start of the service to its end.

A write costs a flush of the disk, whatever its size. So one thread takes all that many
callers want written, writes it in one go, and answers everybody. What comes meanwhile
is the next group.

Another thread applies each window's requests when it closes, which is also when the
window of a request closes that came under another setting. Several processes may
serve one registry; the registry's lock lets one of them apply, and the others find
nothing left to do. A request that cannot be applied stays accepted, and is tried again
with the next window. If the store fails, all are tried again within seconds. After the
requests the ledger seals the trail.

What can be expected to fail, such as a disk or a database, is waited for. If a thread
ends all the same, the service ends (``app.WatchedServer``), so that it is started
again: it would go on taking requests in, and answer none.
"""

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread
from time import monotonic
from typing import Generic, Protocol, TypeVar

from ..exceptions import (
    Busy,
    ExpungeError,
    InvalidInput,
    LedgerCorrupt,
    OtherSchema,
)
from ..registry import Registry
from ..registry.now import now
from ..registry.window import SECOND
from ..registry.worker import OF_THE_STORE
from .logs import log, log_failure, log_waiting
from .windows import Windows

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST = 256  # the weight of items written together
RETRY = 5.0  # seconds after another process was at work
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds after a failure, and after many
GRACE = 100  # the part of a window in which what came at its end gets to the disk
GRACE_AT_MOST = SECOND  # where a window is not one of the setting
NEVER = 1 << 62
LONGEST_SLEEP = 60.0  # the clock may be set
FIRST_SLEEP = 1.0  # those who wait until the service is ready come first
SHORT_TURN = 0.0002  # seconds for which a thread keeps the interpreter from others


class Worker(Protocol):
    """A thread, or several, beside the routes."""

    def start(self) -> None:
        """Begin."""

    @property
    def is_alive(self) -> bool:
        """Whether it works."""

    def close(self, seconds: float) -> None:
        """Finish what is at hand, and end."""


class BackgroundThread(ABC):
    """A worker of one thread."""

    def __init__(self, name: str) -> None:
        self._stop = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin with what was left to do."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it works."""
        return self._thread.is_alive()

    def close(self, seconds: float) -> None:
        """Finish what is at hand, and end; wait no longer than this."""
        self._stop.set()
        self._thread.join(seconds)

    @abstractmethod
    def _run(self) -> None:
        """Work until it has to end."""


def choose_pause(n_failures: int) -> float:
    """Return for how many seconds to wait after so many failures in a row."""
    return min(FIRST_PAUSE * 2.0 ** min(n_failures - 1, 30), LONGEST_PAUSE)


@dataclass(frozen=True, slots=True)
class Waiting(Generic[Item, Result]):
    """An item, and the caller who waits for its result."""

    item: Item
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Result]"


class GroupWriter(BackgroundThread, Generic[Item, Result]):
    """A thread that writes items in groups.

    Parameters
    ----------
    write
        Writes items, all or none, and returns a result for each. If it refuses a group
        because of one item (InvalidInput), the halves are tried.
    name
        Of the thread.
    weigh
        How much of a group an item takes up. A heavy one is written with few others,
        so that nobody waits for many of them.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Sequence[Result]],
        name: str,
        *,
        weigh: Callable[[Item], int] = lambda item: 1,
    ) -> None:
        super().__init__(name)
        self._write = write
        self._weigh = weigh
        self._queue: SimpleQueue[Waiting[Item, Result] | None] = SimpleQueue()

    def close(self, seconds: float) -> None:
        """Write what waits, and end; wait no longer than this."""
        self._queue.put(None)
        super().close(seconds)

    async def write(self, item: Item) -> Result:
        """Return the result for an item once it is written."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._queue.put(Waiting(item, loop, future))
        return await future

    def _run(self) -> None:
        is_open = True
        while is_open:
            waiting, is_open = self._take_group()
            if waiting:
                results = self._write_or_halve([one.item for one in waiting])
                _answer(waiting, results)

    def _take_group(self) -> tuple[list[Waiting[Item, Result]], bool]:
        """Return what waits, at least one item, and whether more may come."""
        group: list[Waiting[Item, Result]] = []
        weight = 0
        while not group or (weight < MOST and not self._queue.empty()):
            one = self._queue.get()
            if one is None:
                return group, False
            group.append(one)
            weight += self._weigh(one.item)
        return group, True

    def _write_or_halve(self, items: Sequence[Item]) -> list[Result | BaseException]:
        """Write items; return for each its result, or why it was refused."""
        try:
            return list(self._write(items))
        except InvalidInput as error:
            if len(items) == 1:
                return [error]
            middle = len(items) // 2
            first = self._write_or_halve(items[:middle])
            return first + self._write_or_halve(items[middle:])
        except BaseException as error:  # the callers must be answered
            return [error] * len(items)


def _answer(
    waiting: Sequence[Waiting[Item, Result]], results: Sequence[Result | BaseException]
) -> None:
    """Give each caller the result, all callers of a loop at once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
    for one, result in zip(waiting, results, strict=True):
        settle = partial(_settle, one.future, result)
        by_loop.setdefault(one.loop, []).append(settle)
    for loop, calls in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_call_all, calls)


def _call_all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


def _settle(future: "asyncio.Future[Result]", result: Result | BaseException) -> None:
    """Set the result of a future, unless its caller went away."""
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


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
        done, rested, longest, n_failures = 0, 0, FIRST_SLEEP, 0
        while not self._stop.is_set():
            time = now()
            window = self._windows.at(time - self._grace)
            is_done = window.start == done  # not later: the clock may be set back
            begin = window.close + self._grace
            try:
                close = self._next_close() if is_done else NEVER
                if close < window.close:  # under another setting, or on disk late
                    begin = min(begin, max(close + GRACE_AT_MOST, rested))
                pause = (begin - time) / SECOND
                if not is_done or pause <= 0:
                    self._apply(time - min(self._grace, GRACE_AT_MOST))
                    done, rested = window.start, now() + round(RETRY * SECOND)
                    n_failures = 0
                    continue
            except Busy:
                pause = RETRY
            except Exception as error:
                log_failure(None, error)
                n_failures += 1
                pause = choose_pause(n_failures)
            if self._stop.wait(min(max(pause, 0.001), longest)):
                return
            longest = LONGEST_SLEEP
            try:
                with short_switch_interval():
                    self._registry.models.prepare()  # the next batch need not do it
            except (OSError, ExpungeError) as error:
                log_failure(None, error)  # the next batch does it, or says why not

    def _next_close(self) -> int:
        """Return when the first window of requests closes that were not tried yet."""
        found = self._registry.requests.next_close()
        return NEVER if found is None else found

    def _apply(self, before: int) -> None:
        """Apply the requests of windows before a moment, or raise why not."""
        started = monotonic()
        try:
            self._registry.requests.apply(before=before)
        except (*OF_THE_STORE, LedgerCorrupt, OtherSchema):
            raise
        except ExpungeError as error:
            log_waiting(error)  # one request could not be applied, and all others were
        self._on_batch(monotonic() - started)
        log("applied", window=before)
        self._seal_trail()

    def _seal_trail(self) -> None:
        """Let the ledger seal the trail, once a day; after a failure, next window."""
        try:
            self._registry.access.seal_trail()
        except Busy:
            pass  # another process is at work, which may be sealing it
        except Exception as error:
            log_failure(None, error)


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Let other threads have the interpreter sooner while this one is long at work.

    An accepted call goes through several threads, and each would wait for 5 ms.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SHORT_TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
