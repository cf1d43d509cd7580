# SPDX-License-Identifier: Apache-2.0
"""Pages of requests: every one once, in order, and as quick at the end of many."""

import random
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from expunge.exceptions import InvalidInput
from expunge.ledger.documents import day_of, midnight
from expunge.registry import PageWanted, Registry, Request, RequestStatus
from expunge.registry.request import STAGES, mark_cancelled, requests
from expunge.registry.requests import parse_cursor, read_page, write_cursor
from expunge.registry.storage import Store
from expunge.registry.storage.engine import analyse
from expunge.rights.standing import RIGHTS
from tests.registries import status_of
from tests.test_look_ups import counted

N = 20_000
DAYS = 60
FIRST = date(2026, 1, 1)
# For a line of a page: in steps of SQLite's machine, in lines that PostgreSQL looks at.
MOST = {"sqlite": 500.0, "postgresql": 15.0}
BAD_CURSORS = (
    "x",
    "next",
    "é" * 32,
    "A" * 31,
    "A" * 36,
    urlsafe_b64encode(b"short").decode(),
    write_cursor(1, "0" * 32) + "=",
    write_cursor(1, "0" * 32)[:-1] + " ",
)


def make_lines(chance: random.Random, n: int) -> list[dict[str, Any]]:
    """Return requests of all kinds, of many days; most are completed."""
    return [
        {
            **asdict(status_of(f"{chance.getrandbits(128):032x}")),
            "stage": chance.choices(STAGES, weights=(3, 1, 90, 3))[0],
            "right": chance.choices(RIGHTS, weights=(50, 1, 5, 3, 1, 1, 1))[0],
            "deadline": midnight(str(FIRST + timedelta(chance.randrange(DAYS)))),
            "sender": chance.choice(("", "desk", "platform")),
        }
        for _ in range(n)
    ]


def fill(store: Store, lines: Sequence[dict[str, Any]]) -> None:
    """Write requests to a store."""
    with store.write() as connection:
        connection.execute(insert(requests), list(lines))
        analyse(connection, "requests")


def all_pages(store: Store, wanted: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the ids of each page."""
    after = ""
    while True:
        with store.read() as connection:
            page = read_page(connection, PageWanted(**wanted, after=after))
        yield [one.request for one in page.lines]
        after = page.next
        if not after:
            return


def choose(lines: Sequence[dict[str, Any]], wanted: dict[str, Any]) -> list[str]:
    """Return the ids that pages must have in all, found in the plainest way."""
    due = wanted.get("due")
    kept = [
        line
        for line in lines
        if line["stage"] in (wanted.get("stages") or STAGES)
        and line["right"] in (wanted.get("rights") or RIGHTS)
        and wanted.get("sender") in (None, line["sender"])
        and (due is None or day_of(line["deadline"]) <= str(due))
    ]
    return [
        one["request"]
        for one in sorted(kept, key=lambda x: (x["deadline"], x["request"]))
    ]


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"most": 1},
        {"most": 7, "stages": ("accepted", "applied")},
        {"most": 50, "stages": ("completed",), "rights": ("erase",)},
        {"most": 10, "rights": ("hold", "lift", "hold")},
        {"most": 10, "stages": ("cancelled", "cancelled")},
        {"most": 30, "due": FIRST},
        {"most": 30, "due": str(FIRST + timedelta(20)), "stages": ("accepted",)},
        {"most": 30, "due": FIRST - timedelta(1)},
        {"most": 30, "sender": "desk"},
        {"most": 9, "sender": "", "stages": ("accepted", "completed")},
        {"most": 9, "sender": "nobody"},
        {"most": 1000},
    ],
)
def test_every_request_comes_once_and_in_order(
    store: Store, wanted: dict[str, Any]
) -> None:
    lines = make_lines(random.Random(1), 300)
    fill(store, lines)
    pages = list(all_pages(store, wanted))
    assert [one for page in pages for one in page] == choose(lines, wanted)
    most = wanted.get("most", 100)
    assert all(len(page) == most for page in pages[:-1])
    assert pages[-1] or len(pages) == 1  # no empty page at the end of others


def test_what_comes_or_goes_meanwhile_hides_nothing(store: Store) -> None:
    lines = make_lines(random.Random(2), 100)
    fill(store, lines)
    seen: list[str] = []
    before = choose(lines, {})
    for place, page in enumerate(all_pages(store, {"most": 10})):
        seen += page
        fill(store, make_lines(random.Random(100 + place), 3))
        if place == 2:
            with store.write() as connection:
                for one in (before[25], before[70]):
                    mark_cancelled(connection, one)
        if place > 30:
            break
    assert len(seen) == len({*seen})
    assert [one for one in seen if one in {*before}] == before


@pytest.mark.slow
def test_no_page_reads_what_it_does_not_show(store: Store) -> None:
    """At the beginning and at the end, however rare what is asked for."""
    lines = make_lines(random.Random(3), N)
    fill(store, lines)
    late = write_cursor(midnight(str(FIRST + timedelta(DAYS - 2))), "f" * 32)
    asked: list[dict[str, Any]] = [
        {},
        {"stages": ("accepted", "applied")},
        {"rights": ("end-hold",)},
        {"sender": "desk", "stages": ("accepted",)},
        {"due": FIRST + timedelta(30)},
    ]
    for some in asked:
        for after in ("", late):
            wanted = PageWanted(**some, after=after, most=50)
            with store.write() as connection, counted(store, connection) as seen:
                read_page(connection, wanted)
            assert seen and sum(seen) / 50 < MOST[store.dialect], (some, after)


class TestRefusals:
    @pytest.mark.parametrize("word", BAD_CURSORS)
    def test_a_word_that_is_no_cursor(self, word: str) -> None:
        with pytest.raises(InvalidInput, match="does not say where a page ended"):
            parse_cursor(word)

    @pytest.mark.parametrize("most", [0, -1, 1001])
    def test_sizes(self, most: int) -> None:
        with pytest.raises(InvalidInput, match="from 1 to 1000"):
            PageWanted(most=most)

    @pytest.mark.parametrize(
        "wrong", [{"stages": ("done",)}, {"rights": ("access",)}, {"stages": "applied"}]
    )
    def test_words(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput, match="give some of"):
            PageWanted(**wrong)

    def test_days(self, registry: Registry) -> None:
        with pytest.raises(InvalidInput):
            registry.requests.page(PageWanted(due="soon"))


class TestRegistry:
    def test_a_page_shows_what_a_status_does(self, registry: Registry) -> None:
        day = datetime.now(UTC).date()
        late = Request(("person 3",), submitted=day)
        early = Request(("person 4",), right="restrict", submitted=day - timedelta(9))
        registry.requests.accept([late, early])
        page = registry.requests.page(PageWanted())
        wanted = [registry.requests.status(one.request) for one in (early, late)]
        assert list(page.lines) == wanted and page.next == ""
        registry.requests.apply()
        assert registry.requests.page(PageWanted(stages=("accepted",))).lines == ()
        (shown,) = registry.requests.page(PageWanted(rights=("restrict",))).lines
        assert (shown.stage, shown.outcome) == ("completed", "done")

    def test_due_includes_its_day(self, registry: Registry) -> None:
        (status,) = registry.requests.accept([Request(("person 3",))])
        due = date.fromisoformat(day_of(status.deadline))
        for day, found in ((due, 1), (due - timedelta(1), 0)):
            page = registry.requests.page(PageWanted(due=day))
            assert len(page.lines) == found

    def test_statuses_leave_unknown_ones_out(self, registry: Registry) -> None:
        asked = [Request((f"person {i}",)) for i in range(3)]
        registry.requests.accept(asked)
        registry.requests.cancel(asked[1].request)
        ids = [one.request for one in asked]
        found = registry.requests.statuses([*ids, "0" * 32, "no id"])
        wanted: dict[str, RequestStatus] = {
            one: registry.requests.status(one) for one in ids
        }
        assert found == wanted and registry.requests.statuses([]) == {}
