# SPDX-License-Identifier: Apache-2.0
"""Beside the calls, a window's requests are applied and the trail is sealed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event
from time import monotonic, sleep

import pytest
from structlog.testing import capture_logs

from expunge.exceptions import Busy, ScheduleExhausted, StoreFailed
from expunge.ledger import TrailSealed
from expunge.registry import Registry, Request
from expunge.service import workers
from expunge.service.windows import Windows
from expunge.service.workers import Applier
from tests.registries import before, before_each, failing_at, now, registry_at

from .services import PATIENCE

ID = "0123456789abcdef0123456789abcdef"


def wait_until(is_so: Callable[[], bool]) -> None:
    end = monotonic() + PATIENCE
    while not is_so():
        assert monotonic() < end
        sleep(0.01)


def is_sealed(registry: Registry) -> bool:
    return any(isinstance(one, TrailSealed) for one in registry.ledger.entries())


def test_requests_are_applied_and_the_trail_is_sealed(registry: Registry) -> None:
    registry.requests.accept([Request(("person 3",), ID)])
    registry.access.record([("auditor", "look at ledger", "")])
    applier = Applier(registry, Windows(1))
    applier.start()
    wait_until(lambda: registry.requests.status(ID).stage == "completed")
    wait_until(lambda: is_sealed(registry))
    applier.close(PATIENCE)
    assert not applier.is_alive
    assert registry.access.check_trail().valid


def test_a_trail_that_cannot_be_sealed_is_left_for_later(
    registry: Registry,
) -> None:
    calls = []

    def fail() -> None:
        calls.append(1)
        raise Busy("another process works") if len(calls) == 1 else OSError("full")

    with before_each("sealing the trail", fail):
        applier = Applier(registry, Windows(1))
        applier.start()
        wait_until(lambda: len(calls) > 2)
        assert applier.is_alive
        applier.close(PATIENCE)


def test_requests_are_applied_after_the_clock_was_ahead(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead, moments = [True], []
    year = 365 * 24 * 60 * 60 * 1000

    def apply(self: object, *, before: int) -> None:
        moments.append(before)
        ahead[0] = False

    monkeypatch.setattr(workers, "now", lambda: now() + year * ahead[0])
    monkeypatch.setattr(type(registry.requests), "apply", apply)
    applier = Applier(registry, Windows(1))
    applier.start()
    wait_until(lambda: len(moments) > 1)
    applier.close(PATIENCE)
    assert moments[1] < moments[0]


@pytest.mark.parametrize(
    ("error", "event"),
    [(ScheduleExhausted("spent"), "waiting"), (StoreFailed("full"), "failed")],
)
def test_a_request_that_waits_is_no_failure_of_the_service(
    sqlite_registry: Registry, *, error: Exception, event: str
) -> None:
    applier = Applier(sqlite_registry, Windows(3600))
    with failing_at("applying requests", error), capture_logs() as lines:
        applier.start()
        wait_until(lambda: bool(lines))
        applier.close(PATIENCE)
    assert lines[0]["event"] == event
    assert lines[0]["error"] == type(error).__name__
    assert all("spent" not in str(line) for line in lines)


ACCEPTING = """
import sys
from starlette.testclient import TestClient
from expunge.registry import Registry
from expunge.service.app import create_app
from expunge.service.settings import ServiceSettings
with Registry.open(sys.argv[1]) as registry:
    _, secret = registry.access.create("desk", ["request"], days=1)
    settings = ServiceSettings(applies=False)
    with TestClient(create_app(registry, settings)) as client:
        client.headers["Authorization"] = f"Bearer {secret}"
        assert client.get("/readyz").status_code == 200
        asked = {"people": [{"id": "person 3"}]}
        made = client.post("/api/v1/requests", json=asked)
        assert made.status_code == 201, made.text
        seen = client.get(f"/api/v1/requests/{made.json()['id']}")
        assert seen.json()["state"] == "pending"
print("scipy" in sys.modules)
"""


def test_requests_are_accepted_without_the_mathematics(tmp_path: Path) -> None:
    registry_at(tmp_path / "registry").close()
    done = subprocess.run(
        [sys.executable, "-c", ACCEPTING, tmp_path / "registry"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("False\n"), done.stderr


def test_the_mathematics_is_imported_beside_the_first_calls(
    registry: Registry,
) -> None:
    called = Event()
    with before("getting ready", called.set):
        applier = Applier(registry, Windows(3600))
        applier.start()
        assert called.wait(PATIENCE)
        applier.close(PATIENCE)
