# SPDX-License-Identifier: Apache-2.0
"""What is public tells days: not how long an answer took, nor how it was reached."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from expunge.cli.output import describe_deadline
from expunge.ledger import RequestCompleted, Restored, check_receipt
from expunge.ledger.documents import DAY
from expunge.registry import Registry, Request
from tests.calling import call
from tests.registries import (
    A_REQUEST,
    registry_at,
    releases_of,
    require_consistent,
    run_clock,
)

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
LATE = datetime(2025, 3, 1, 23, 59, 59, 900_000, tzinfo=UTC)
# Larger than any count in a small registry, smaller than a time in any unit.
LARGEST_COUNT = 10**6
TIME_OF_DAY = re.compile(r"(?<!\d)([01]?\d|2[0-3]):\d\d|\d{4}-\d\d-\d\d[T ]\d")


@dataclass
class Clock:
    """A clock that is set, and then moves on by some milliseconds at every look."""

    time: int
    step: int = 0

    def __call__(self) -> int:
        self.time += self.step
        return self.time


def milliseconds(moment: datetime) -> int:
    return round(1000 * moment.timestamp())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of all registries, at noon."""
    clock = Clock(milliseconds(NOON))
    run_clock(monkeypatch, clock)
    return clock


@pytest.fixture
def registry(tmp_path: Path, clock: Clock) -> Iterator[Registry]:
    with registry_at(tmp_path / "registry") as registry:
        yield registry


def values(found: Any) -> Iterator[Any]:
    """Yield every word and number in JSON data."""
    if isinstance(found, dict):
        yield from values(list(found.values()))
    elif isinstance(found, list):
        for item in found:
            yield from values(item)
    else:
        yield found


def require_days_alone(found: Any) -> None:
    """See that JSON data hold no time that is finer than a day."""
    for value in values(found):
        if isinstance(value, str):
            assert not TIME_OF_DAY.search(value), value
        else:
            assert value is None or abs(value) < LARGEST_COUNT, value


def completed(registry: Registry) -> RequestCompleted:
    """Return the last entry about a request."""
    done = [
        entry
        for entry in registry.ledger.entries()
        if isinstance(entry, RequestCompleted)
    ]
    return done[-1]


class TestNothingFinerIsPublic:
    def test_in_ledger_heads_and_receipts(self, registry: Registry) -> None:
        receipt = registry.forget(["person 3"])
        registry.keys.rotate_signing_key()
        require_days_alone(json.loads(receipt))
        for line in registry.ledger.export().splitlines():
            require_days_alone(json.loads(line))
        says = check_receipt(receipt, registry.keys.public_pem()).says
        assert not TIME_OF_DAY.search(says)

    def test_in_what_commands_print(
        self, registry: Registry, clock: Clock, tmp_path: Path
    ) -> None:
        registry.models.ship("all", tmp_path / "model.safetensors")
        clock.step = 7
        receipt = tmp_path / "receipt.json"
        receipt.write_text(registry.forget(["person 3"], A_REQUEST))
        registry.requests.accept([Request(("person 4",))])
        folder = ("-r", tmp_path / "registry")
        key = ("--key", tmp_path / "registry" / "public.pem")
        ship = ("release", "all", "--to", tmp_path / "again.safetensors")
        for words in (
            ("status", *folder),
            ("status", "--request", A_REQUEST, *folder),
            ("log", *folder),
            ("verify", receipt, *key),
            (*ship, *folder),
        ):
            done = call(*words)
            assert done.code == 0 and not TIME_OF_DAY.search(done.out), done.out
            require_days_alone(call(*words, "--json").json)
        status = call("status", *folder, "--json").json
        (out,) = status["outstanding"]
        assert out["superseded"] == out["shipped"][0]["day"] == "2025-03-01"
        assert "by 1 April, in 31 days" in call("status", *folder).out
        (waiting,) = status["pending"]
        assert (waiting["accepted"], waiting["deadline"]) == (
            "2025-03-01",
            "2025-04-01",
        )

    def test_a_slow_answer_looks_like_a_quick_one(
        self, registry: Registry, clock: Clock
    ) -> None:
        told = []
        for step, person in ((1, "person 3"), (500_000, "person 4")):
            clock.step = step
            registry.forget([person])
            told.append(completed(registry))
        quick, slow = told
        for name in ("day", "accepted", "deadline"):
            assert getattr(quick, name) == getattr(slow, name)
        statuses = [registry.requests.status(entry.request) for entry in told]
        took = [(one.completed or 0) - one.accepted for one in statuses]
        assert 0 < took[0] < 100 < 500_000 <= took[1]  # the private clock knows

    def test_in_a_shipped_file(
        self, registry: Registry, clock: Clock, tmp_path: Path
    ) -> None:
        files = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
        for file in files:
            registry.models.ship("all", file)
            clock.time += 12_345
        assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    ("later", "said"),
    [
        (0, "by 31 March, in 30 days"),
        (12, "by 31 March, in 29 days"),  # after midnight
        (29 * 24, "by 31 March, tomorrow"),
        (30 * 24, "by 31 March, today"),
        (31 * 24, "by 31 March, overdue by 1 day"),
        (33 * 24, "by 31 March, overdue by 3 days"),
        (-90 * 24, "by 31 March 2025, in 120 days"),
    ],
)
def test_deadline_is_told_as_people_do(clock: Clock, later: int, said: str) -> None:
    deadline = clock.time + 30 * DAY
    clock.time += later * DAY // 24
    assert describe_deadline(deadline) == said


class TestDaysFollowOneAnother:
    def test_accepted_before_midnight_and_completed_after_it(
        self, registry: Registry, clock: Clock
    ) -> None:
        clock.time = milliseconds(LATE)
        registry.requests.accept([Request(("person 3",), A_REQUEST)])
        clock.time += 200
        registry.requests.apply()
        entry = completed(registry)
        assert (entry.accepted, entry.day) == ("2025-03-01", "2025-03-02")
        assert entry.deadline == "2025-04-01"  # a month later
        receipt = registry.requests.receipt(A_REQUEST) or ""
        says = check_receipt(receipt, registry.keys.public_pem()).says
        assert "answered on 2025-03-02, 30 days before its deadline" in says
        status = registry.requests.status(A_REQUEST)
        assert status.completed == status.accepted + 200
        require_consistent(registry)

    @pytest.mark.parametrize("back", [1000, 16 * 60 * 60 * 1000])
    def test_the_clock_is_set_back(
        self, registry: Registry, clock: Clock, back: int
    ) -> None:
        registry.forget(["person 3"])
        clock.time -= back
        registry.forget(["person 4"], A_REQUEST)
        registry.keys.rotate_signing_key()
        days = [entry.day for entry in registry.ledger.entries()]
        assert days == sorted(days) and set(days) == {"2025-03-01"}
        status = registry.requests.status(A_REQUEST)
        assert status.accepted <= (status.completed or 0)
        require_consistent(registry)

    def test_the_clock_is_set_back_while_a_request_waits(
        self, registry: Registry, clock: Clock
    ) -> None:
        clock.time = milliseconds(LATE) + 200
        registry.requests.accept([Request(("person 3",), A_REQUEST)])
        clock.time -= 400
        registry.requests.apply()
        entry = completed(registry)
        assert entry.accepted == entry.day == "2025-03-02"
        status = registry.requests.status(A_REQUEST)
        assert status.completed == status.accepted
        require_consistent(registry)


class TestPrivateClockIsKept:
    def test_through_a_restored_backup(
        self, registry: Registry, clock: Clock, tmp_path: Path
    ) -> None:
        folder = tmp_path / "registry"
        registry.forget(["person 1"])
        shutil.copytree(folder, tmp_path / "backup")
        clock.time, clock.step = milliseconds(LATE) + 200, 7
        registry.forget(["person 2"], A_REQUEST)
        before = registry.requests.status(A_REQUEST)
        asked = Request(("person 3",))
        registry.requests.accept([asked])
        waiting = registry.requests.status(asked.request)
        registry.close()
        (folder / "expunge.db").unlink()
        with Registry.restore(folder, tmp_path / "backup") as restored:
            assert restored.requests.status(A_REQUEST) == before
            assert restored.requests.status(asked.request) == waiting
            assert (before.completed or 0) % 1000
            lost = [one for one in releases_of(restored) if one.number == 3]
            times = {time for one in lost for time in (one.made, one.superseded)}
            assert before.completed in times
            note = next(e for e in restored.ledger.entries() if isinstance(e, Restored))
            assert (note.taken, note.day) == ("2025-03-01", "2025-03-02")
            require_consistent(restored)
