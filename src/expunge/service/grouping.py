# SPDX-License-Identifier: Apache-2.0
"""Grouping: what many callers write at once is written together.

A write costs a flush of the disk, whatever its size. One thread takes all that waits,
writes it in one go, and answers everybody. What comes meanwhile is the next group.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

from ..exceptions import InvalidInput

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST = 256  # the weight of items written together


@dataclass(frozen=True, slots=True)
class Waiting(Generic[Item, Result]):
    """An item, and the caller who waits for its result."""

    item: Item
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Result]"


class GroupWriter(Generic[Item, Result]):
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
        self._write = write
        self._weigh = weigh
        self._queue: SimpleQueue[Waiting[Item, Result] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether items are written."""
        return self._thread.is_alive()

    def close(self, seconds: float) -> None:
        """Write what waits, and end."""
        self._queue.put(None)
        self._thread.join(seconds)

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
