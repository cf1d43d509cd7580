# SPDX-License-Identifier: Apache-2.0
"""What one sender may bring: written in pieces, and limited by call and by day."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from expunge.registry import Registry
from tests.registries import now

from .services import InProcess, serve_in_process

REQUESTS = "/api/v1/requests"


def make_lines(count: int, **last: Any) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [
        {"id": f"{i:032x}", "people": [{"id": f"person {i}"}]} for i in range(count)
    ]
    lines[-1] |= last
    return lines


def send_batch(service: InProcess, lines: Sequence[Any], scope: str = "request") -> Any:
    return service.call(
        "POST",
        f"{REQUESTS}/batch",
        scope,
        content="\n".join(map(json.dumps, lines)),
        headers={"Content-Type": "application/x-ndjson"},
    )


def test_a_long_batch_is_written_in_pieces(
    sqlite_registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, sizes = type(sqlite_registry.requests), list[int]()
    accept = sender.accept

    def count(self: Any, requests: Any, **given: Any) -> Any:
        sizes.append(sum(len(one.subjects) for one in requests))
        return accept(self, requests, **given)

    monkeypatch.setattr(sender, "accept", count)
    with serve_in_process(sqlite_registry) as service:
        lines = make_lines(1000)
        answer = send_batch(service, lines)
        assert answer.status_code == 201, answer.text
        found = [one["id"] for one in answer.json()["requests"]]
        assert found == [one["id"] for one in lines]
        assert sum(sizes) == 1000 and max(sizes) <= 256
        again = send_batch(service, lines)
        assert again.json() == answer.json()


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ({"submitted": "2999-01-01"}, 422),
        ({"right": "hold"}, 422),
        ({"id": f"{0:032x}"}, 409),
        ({"id": "f" * 32}, 409),
    ],
)
def test_what_is_wrong_at_the_end_refuses_all(
    sqlite_registry: Registry, last: dict[str, Any], code: int
) -> None:
    with serve_in_process(sqlite_registry) as service:
        before = {"id": "f" * 32, "people": [{"id": "another"}]}
        sent = service.call("POST", REQUESTS, "request", json=before)
        assert sent.status_code == 201
        assert send_batch(service, make_lines(600, **last)).status_code == code
        assert sqlite_registry.status().n_requests == 1


def test_a_call_has_so_many_people(sqlite_registry: Registry) -> None:
    with serve_in_process(sqlite_registry, people_per_call=3) as service:
        refused = send_batch(service, make_lines(4))
        assert refused.status_code == 413
        assert "more than 3 people in one call" in refused.json()["detail"]
        people = [{"id": f"person {i}"} for i in range(4)]
        one = service.call("POST", REQUESTS, "request", json={"people": people})
        assert one.status_code == 413
        assert sqlite_registry.status().n_requests == 0
        assert send_batch(service, make_lines(3)).status_code == 201


@pytest.mark.parametrize(
    ("limit", "what"),
    [({"people_per_day": 5}, "people"), ({"bytes_per_day": 300}, "bytes")],
)
def test_a_sender_has_so_much_a_day(
    sqlite_registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    limit: dict[str, int],
    what: str,
) -> None:
    with serve_in_process(sqlite_registry, **limit) as service:
        assert send_batch(service, make_lines(3)).status_code == 201
        refused = send_batch(service, make_lines(3))
        assert refused.status_code == 429
        assert f"{what} from one sender in a day" in refused.json()["detail"]
        assert 0 < int(refused.headers["Retry-After"]) <= 86_401
        # Another sender has a day of their own, and tomorrow is another day.
        assert (
            send_batch(service, make_lines(1, id="a" * 32), "admin").status_code == 201
        )
        tomorrow = now() + 86_400_000
        monkeypatch.setattr("expunge.service.intake.now", lambda: tomorrow)
        assert send_batch(service, make_lines(3)).status_code == 201
