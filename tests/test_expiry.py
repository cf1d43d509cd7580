# SPDX-License-Identifier: Apache-2.0
"""Expiry: records end with their time, wherever a process is killed, and no others."""

import re
import shutil
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from types import FrameType

import pytest

from expunge.cli.output import DONE, WRONG_INPUT
from expunge.exceptions import InvalidInput, UnknownRequest
from expunge.ledger import RecordsExpired, check_export
from expunge.registry import Registry, Request, rebuild_journal
from tests.calling import call
from tests.registries import by_name, data, estimator, require_consistent, set_clock
from tests.thorough import either

START = date(2024, 1, 15)
PLACES = re.compile("expunge/(registry|disk)")
OLD, HELD, CANCELLED, NEW = "1" * 32, "2" * 32, "3" * 32, "4" * 32


class Killed(BaseException):
    """As good as dead."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a registry with old and new requests, and a trail that was sealed."""
    folder = tmp_path_factory.mktemp("expiry") / "registry"
    with (
        pytest.MonkeyPatch.context() as patch,
        Registry.create(folder, backup_days=30, excluded_days=400) as registry,
    ):
        set_clock(patch, START)
        registry.fit("churn", estimator(), **by_name(data()))
        why = "legal-duty"
        registry.requests.submit(
            [
                Request(("person 1",), OLD),
                Request(("person 2",), HELD, "hold", reason=why, until="2999-01-01"),
            ]
        )
        registry.requests.accept([Request(("person 3",), CANCELLED)])
        registry.requests.cancel(CANCELLED)
        for request in (OLD, HELD):
            registry.requests.remark(request, "ticket", note="by post")
        registry.access.record([("ada", "look at request", OLD)] * 3)
        registry.access.seal_trail()
        registry.access.record([("bob", "look at request", HELD)])
        set_clock(patch, START + timedelta(days=700))
        registry.requests.submit([Request(("person 4",), NEW)])
        registry.access.record([("eve", "look at request", NEW)])
        registry.access.seal_trail()
    return folder


@pytest.fixture
def folder(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    copy = Path(shutil.copytree(made, tmp_path / "registry"))
    set_clock(monkeypatch, START + timedelta(days=740))
    with Registry.open(copy) as registry:
        with pytest.raises(InvalidInput, match="clock jumped"):
            registry.expiry.expire()
        registry.confirm_clock()
    yield copy


def is_excluded(registry: Registry, name: str) -> bool:
    return bool(registry.requests.find_forgotten([name]))


def require_expired(registry: Registry) -> None:
    """Refuse a registry in which what has expired is still there, or more is gone."""
    for request in (OLD, CANCELLED):
        with pytest.raises(UnknownRequest):
            registry.requests.status(request)
    assert registry.requests.receipt(HELD) and registry.requests.receipt(NEW)
    assert {*registry.requests.remarks([OLD, HELD])} == {HELD}
    assert [one.actor for one in registry.access.trail()][:2] == ["bob", "eve"]
    assert registry.access.check_trail().valid, registry.access.check_trail().says
    assert not is_excluded(registry, "person 1")
    assert is_excluded(registry, "person 2")  # its rows are held
    assert is_excluded(registry, "person 4")
    assert check_export(registry.ledger.export(), registry.keys.public_pem()).valid
    require_consistent(registry)
    assert not registry.expiry.find()


class TestExpire:
    def test_destroys_what_was_kept_long_enough(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            assert is_excluded(registry, "person 1")
            found = registry.expiry.expire()
            assert (found.n_requests, found.n_lines, found.n_exclusions) == (2, 3, 2)
            require_expired(registry)
            (entry,) = registry.ledger.find(RecordsExpired)
            assert isinstance(entry, RecordsExpired)
            assert (entry.requests, entry.n_lines) == ("2024-01-25", 3)
            assert OLD.encode() not in (folder / "journal").read_bytes()
            assert not registry.expiry.expire()
        with Registry.open(folder) as registry:
            require_expired(registry)
            registry.forget(["person 5"])
            require_consistent(registry)

    def test_keeps_what_is_younger(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            found = registry.expiry.find(741)
            assert (found.n_requests, found.n_lines) == (0, 0)
            for days in (0, 29):
                with pytest.raises(InvalidInput, match="kept for at least 30 days"):
                    registry.expiry.find(days)

    def test_survives_a_rebuilt_journal(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            registry.expiry.expire()
        journal = folder / "journal"
        journal.write_bytes(journal.read_bytes()[:-9])
        rebuild_journal(folder)
        with Registry.open(folder) as registry, pytest.raises(UnknownRequest):
            registry.requests.status(OLD)

    def test_killed_anywhere_it_is_finished_or_undone(
        self, folder: Path, tmp_path: Path
    ) -> None:
        """At moments spread over all calls of functions that write or decide."""

        def run(where: Path, at: int | None) -> int:
            """Expire, killed at a call; return how many calls there were."""
            calls = 0

            def watch(frame: FrameType, event: str, _: object) -> None:
                nonlocal calls
                if event == "call" and PLACES.search(frame.f_code.co_filename):
                    calls += 1
                    if calls == at:
                        raise Killed

            with Registry.open(where) as registry:
                sys.setprofile(watch)
                try:
                    registry.expiry.expire()
                except Killed:
                    pass
                finally:
                    sys.setprofile(None)
            return calls

        n_calls = run(Path(shutil.copytree(folder, tmp_path / "whole")), None)
        n = either(12, thorough=100)
        assert n_calls > n
        for moment in range(n):
            where = tmp_path / f"killed-{moment}"
            shutil.copytree(folder, where)
            run(where, 1 + moment * n_calls // n)
            with Registry.open(where) as registry:
                there = registry.requests.statuses([OLD, CANCELLED])
                entries = registry.ledger.find(RecordsExpired)
                assert (len(there), len(entries)) in ((2, 0), (0, 1)), moment
                registry.expiry.expire()
                registry.expiry.tidy()
                require_expired(registry)
            shutil.rmtree(where)


class TestCommand:
    def test_says_what_stays(self, folder: Path) -> None:
        there = ("-r", folder)
        dry = call("expire", "--dry-run", *there)
        assert dry.code == DONE and "nothing was changed" in dry.err
        assert "2 requests from before 2024-01-25" in dry.out
        done = call("expire", "--yes", *there)
        assert done.code == DONE and "requests whose rows are held" in done.err
        assert call("expire", "--yes", *there).out.startswith("nothing has expired")
        assert call("expire", "--days", "10", *there).code == WRONG_INPUT
