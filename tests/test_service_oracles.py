# SPDX-License-Identifier: Apache-2.0
"""Oracles: what a sender sees at once does not follow from whom identifiers lead to."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Event, Thread
from typing import Any

import pytest

from expunge.registry import Registry
from expunge.rights import Identifier
from expunge.service import intake
from tests.registries import now, set_clock, working

from .services import PATIENCE, InProcess, serve_in_process

REQUESTS = "/api/v1/requests"
WINDOW = 900_000
KNOWN = ("ada@example.org", "ada@example.net")
STRANGE = ("eve@example.org", "eve@example.net")


@pytest.fixture
def service(sqlite_registry: Registry) -> Iterator[InProcess]:
    """Lend a service that knows somebody by an id and two addresses."""
    pairs = [("person 3", Identifier("email", one)) for one in KNOWN]
    sqlite_registry.aliases.add(pairs)
    with serve_in_process(sqlite_registry) as running:
        yield running


@contextmanager
def applying(registry: Registry) -> Iterator[Event]:
    """Let a thread apply a batch until it is told that the batch is done."""
    begun, done = Event(), Event()

    def apply() -> None:
        with working(registry):
            begun.set()
            done.wait(PATIENCE)

    thread = Thread(target=apply)
    thread.start()
    assert begun.wait(PATIENCE)
    yield done
    done.set()
    thread.join()


def send(service: InProcess, **fields: Any) -> Any:
    return service.call("POST", REQUESTS, "request", json=fields)


@pytest.mark.parametrize("address", [KNOWN[0], STRANGE[0]])
def test_a_rectification_does_not_tell_whose_address_it_is(
    service: InProcess, address: str
) -> None:
    rows = {"all": {"X": [[0.5, 0.1, 0.2, -0.3]], "y": [1]}}
    one, other = {"id": "person 3"}, {"email": address}
    for people in ([one | other], [one, other], [other, {"email": KNOWN[1]}]):
        answer = send(service, people=people, right="rectify", rows=rows)
        assert answer.status_code == 422
        assert "one identifier" in answer.json()["detail"]


@pytest.mark.parametrize("is_applying", [False, True])
def test_how_long_a_batch_takes_does_not_show_in_a_rectification(
    service: InProcess, monkeypatch: pytest.MonkeyPatch, is_applying: bool
) -> None:
    start, waited = WINDOW * (now() // WINDOW), []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        batch.set()  # it is done by the time of its answers

    def send_at(seconds: int) -> int:
        monkeypatch.setattr(intake, "now", lambda: start + 1000 * seconds)
        rows = {"all": {"X": [[0.5, 0.1, 0.2, -0.3]], "y": [1]}}
        person = [{"id": "person 3"}]
        answer = send(service, people=person, right="rectify", rows=rows)
        return int(answer.status_code)

    monkeypatch.setattr(intake, "sleep", sleep)
    with applying(service.registry) if is_applying else nullcontext(Event()) as batch:
        assert (send_at(1), waited) == (503, [])
        assert (send_at(80), waited) == (201, [10.0])
        assert (send_at(91), waited) == (201, [10.0])


@pytest.mark.parametrize("second", [KNOWN[1], STRANGE[1]])
@pytest.mark.parametrize("right", ["erase", "restrict"])
def test_a_window_does_not_tell_that_two_addresses_are_one_persons(
    service: InProcess, right: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = WINDOW * (now() // WINDOW + 1)
    set_clock(monkeypatch, close - 3)
    lines = [{"people": [{"email": KNOWN[0]}], "right": right}] * 9
    lines.append({"people": [{"email": second}], "right": right})
    answer = service.call(
        "POST",
        f"{REQUESTS}/batch",
        "request",
        content="\n".join(map(json.dumps, lines)),
        headers={"Content-Type": "application/x-ndjson"},
    )
    windows = [one["window"] for one in answer.json()["requests"]]
    assert windows[-1] == windows[-2]
