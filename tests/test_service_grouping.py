# SPDX-License-Identifier: Apache-2.0
"""What many callers write at once is written together, and each gets an answer."""

import asyncio
from collections.abc import Sequence
from threading import Event

import pytest

from expunge.exceptions import InvalidInput
from expunge.service.workers import MOST, GroupWriter


class Book:
    """Writes numbers, remembers the groups, and refuses some."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.has_begun, self.may_go_on = Event(), Event()

    def write(self, items: Sequence[int]) -> list[int]:
        """Double numbers; refuse negative ones, and fail on zero."""
        self.has_begun.set()
        self.may_go_on.wait()
        if any(one < 0 for one in items):
            raise InvalidInput("a negative number")
        if 0 in items:
            raise OSError("the disk is full")
        self.groups.append(list(items))
        return [2 * one for one in items]


async def write_all(
    book: Book, writer: GroupWriter[int, int], items: Sequence[int]
) -> list[int | BaseException]:
    """Write numbers, all of them waiting before the second group begins."""
    writer.start()
    first = asyncio.ensure_future(writer.write(1))
    await asyncio.to_thread(book.has_begun.wait)
    rest = [asyncio.ensure_future(writer.write(one)) for one in items]
    await asyncio.sleep(0)
    book.may_go_on.set()
    found = await asyncio.gather(first, *rest, return_exceptions=True)
    writer.close(5)
    return found[1:]


def test_what_waits_is_written_together() -> None:
    book = Book()
    writer = GroupWriter(book.write, "test")
    assert asyncio.run(write_all(book, writer, [2, 3, 4])) == [4, 6, 8]
    assert book.groups == [[1], [2, 3, 4]]
    assert not writer.is_alive


def test_a_refused_item_is_refused_alone() -> None:
    book = Book()
    writer = GroupWriter(book.write, "test")
    found = asyncio.run(write_all(book, writer, [2, -3, 4, 5]))
    assert [found[0], *found[2:]] == [4, 8, 10]
    assert isinstance(found[1], InvalidInput)


def test_a_failure_is_everybodys() -> None:
    book = Book()
    writer = GroupWriter(book.write, "test")
    found = asyncio.run(write_all(book, writer, [2, 0]))
    assert [type(one) for one in found] == [OSError, OSError]


@pytest.mark.parametrize(("weight", "size"), [(1, MOST), (MOST // 2, 2), (10**6, 1)])
def test_heavy_items_are_written_with_few_others(weight: int, size: int) -> None:
    book = Book()
    writer = GroupWriter(book.write, "test", weigh=lambda item: weight)
    asyncio.run(write_all(book, writer, range(2, MOST + 5)))
    assert max(map(len, book.groups)) == size
