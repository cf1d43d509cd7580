# SPDX-License-Identifier: Apache-2.0
"""A clock that is wrong for one command ends nothing and falsifies no day."""

from datetime import timedelta
from pathlib import Path

import pytest

from expunge.cli.output import STORE_FAILED
from expunge.exceptions import StoreFailed
from expunge.ledger import HoldEnded, check_receipt
from expunge.registry import Registry, Request
from tests.calling import call, make_registry, person
from tests.registries import HELD, hold, require_consistent, set_clock, today, where

PERSON, OTHER = "person 3", "person 5"
UNTIL = today() + timedelta(days=100)


def days(number: int) -> timedelta:
    return timedelta(days=number)


def ended(registry: Registry) -> int:
    return sum(isinstance(one, HoldEnded) for one in registry.ledger.entries())


class TestAhead:
    def test_one_command_ends_no_hold(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hold(registry, PERSON, until=str(UNTIL))
        size = registry.status().ledger_size
        set_clock(monkeypatch, today() + days(200))
        registry.requests.apply()
        assert where(registry, PERSON) == HELD and not ended(registry)
        assert registry.status().clock.state == "ahead"
        assert registry.status().ledger_size == size  # no day of it is false
        set_clock(monkeypatch, today())
        assert registry.status().clock.is_believed
        receipt = registry.forget([OTHER])
        says = check_receipt(receipt, registry.keys.public_pem()).says
        assert "AFTER" not in says
        require_consistent(registry)

    def test_requests_go_on_and_the_doubt_stays(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is written by a doubtful clock does not make it believed."""
        hold(registry, PERSON, until=str(UNTIL))
        set_clock(monkeypatch, today() + days(200))
        for number in (7, 8):
            registry.forget([f"person {number}"])
            assert where(registry, PERSON) == HELD and not ended(registry)
        set_clock(monkeypatch, today() + days(210))
        registry.requests.apply()
        assert where(registry, PERSON) == HELD and not ended(registry)
        status = registry.confirm_clock()
        assert status.is_believed and status.today == str(today() + days(210))
        registry.requests.apply()
        assert where(registry, PERSON) == {} and ended(registry) == 1
        require_consistent(registry)

    @pytest.mark.parametrize(("idle", "state"), [(30, "believed"), (31, "ahead")])
    def test_thirty_days_are_believed(
        self,
        registry: Registry,
        monkeypatch: pytest.MonkeyPatch,
        idle: int,
        state: str,
    ) -> None:
        set_clock(monkeypatch, today())
        registry.requests.apply()
        set_clock(monkeypatch, today() + days(idle))
        assert registry.status().clock.state == state

    def test_small_steps_are_followed(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hold(registry, PERSON, until=str(UNTIL))
        for ahead in range(25, 126, 25):
            set_clock(monkeypatch, today() + days(ahead))
            registry.requests.apply()
        assert where(registry, PERSON) == {} and ended(registry) == 1

    def test_tokens_are_not_deleted(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        registry.requests.apply()
        registry.access.create("desk", ("request",), days=90)
        set_clock(monkeypatch, today() + days(200))
        registry.access.create("other", ("request",), days=1)
        set_clock(monkeypatch, today())
        assert {one.name for one in registry.access.tokens()} >= {"desk"}


class TestBehind:
    def test_is_refused(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        registry.forget([OTHER])
        n_requests = registry.status().n_requests
        set_clock(monkeypatch, today() - days(2))
        for work in (
            lambda: registry.requests.accept([Request((PERSON,))]),
            lambda: registry.requests.apply(),
            lambda: registry.forget([PERSON]),
        ):
            with pytest.raises(StoreFailed, match="more than a day before"):
                work()
        assert registry.status().n_requests == n_requests
        assert registry.status().clock.state == "behind"
        set_clock(monkeypatch, today())
        registry.forget([PERSON])
        require_consistent(registry)

    def test_a_day_is_nothing(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        registry.forget([OTHER])
        set_clock(monkeypatch, today() - days(1))
        registry.forget([PERSON])

    def test_the_ledger_was_written_by_a_clock_ahead(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The receipts would carry its last day: the operator decides."""
        registry.requests.apply()
        set_clock(monkeypatch, today() + days(200))
        registry.forget([OTHER])
        set_clock(monkeypatch, today())
        with pytest.raises(StoreFailed, match="expunge clock confirm"):
            registry.forget([PERSON])
        assert registry.confirm_clock().is_believed
        registry.forget([PERSON])
        registry.requests.apply()
        require_consistent(registry)


class TestCommand:
    def test_status_warns_until_it_is_confirmed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("EXPUNGE_REGISTRY", str(make_registry(tmp_path)))
        assert "warning" not in call("status").out
        set_clock(monkeypatch, today() + days(200))
        assert "expunge clock confirm" in call("status").words
        assert call("status", "--json").json["clock"]["state"] == "ahead"
        done = call("forget", person(1))
        assert done.code == 0 and "expunge clock confirm" in done.err
        done = call("clock", "confirm", "--json")
        assert done.json["state"] == "believed"
        assert "warning" not in call("status").out
        set_clock(monkeypatch, today())
        done = call("forget", person(2))
        assert done.code == STORE_FAILED and "clock" in done.err
        assert str(today()) in call("clock", "confirm").out
