# SPDX-License-Identifier: Apache-2.0
"""Tricks on the wire: bytes that no client library would send, to a real process."""

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .service_load.crowd import Crowd
from .service_load.processes import Plan, read_log, serve

CANARY = "canary@example.org"
REQUESTS = "/api/v1/requests"
TIMEOUT = 5.0


@dataclass(frozen=True)
class Wire:
    """A service on a port, and where its log is."""

    port: int
    tokens: dict[str, str]
    plan: Plan

    def send(self, data: bytes) -> bytes:
        """Send bytes, and return everything that comes back until it hangs up."""
        with socket.create_connection(("127.0.0.1", self.port), TIMEOUT) as line:
            received = b""
            try:
                line.sendall(data)
                while part := line.recv(65536):
                    received += part
            except (ConnectionError, TimeoutError):
                pass  # it hung up before it had read all, or waits for more
            return received

    def call(self, first: str, *headers: str, body: bytes = b"") -> bytes:
        """Send a call as the sender of requests; the connection ends after it."""
        token = f"Authorization: Bearer {self.tokens['request']}"
        lines = (first, "Host: x", "Connection: close", token, *headers)
        return self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    folder = tmp_path_factory.mktemp("wire") / "registry"
    tokens = Crowd(n_people=30, n_features=3).build(folder)
    plan = Plan(folder, 86400)
    with serve(plan) as (_, port):
        yield Wire(port, tokens, plan)


def code_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def count_answers(answer: bytes) -> int:
    return answer.count(b"HTTP/1.1 ")


BODY = json.dumps({"people": [{"email": CANARY}]}).encode()
JSON = "Content-Type: application/json"


def test_a_plain_call_is_answered(wire: Wire) -> None:
    length = f"Content-Length: {len(BODY)}"
    answer = wire.call(f"POST {REQUESTS} HTTP/1.1", JSON, length, body=BODY)
    assert code_of(answer) == 201
    assert b"server:" not in answer.lower()


def test_names_of_headers_may_be_in_any_case(wire: Wire) -> None:
    token = wire.tokens["request"].encode()
    for name in (b"authorization", b"AUTHORIZATION", b"aUtHoRiZaTiOn"):
        call = b"GET /api/v1/window HTTP/1.1\r\nhost: x\r\nCONNECTION: close\r\n"
        answer = wire.send(call + name + b": bearer " + token + b"\r\n\r\n")
        assert code_of(answer) == 200


@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_tokens_none_counts(wire: Wire, is_first: bool) -> None:
    bad, good = "expunge_" + "A" * 43, wire.tokens["admin"]
    both = (good, bad) if is_first else (bad, good)
    lines = [f"Authorization: Bearer {one}" for one in both]
    call = ["GET /api/v1/tokens HTTP/1.1", "Host: x", "Connection: close", *lines]
    answer = wire.send("\r\n".join(call).encode() + b"\r\n\r\n")
    assert code_of(answer) == 401


@pytest.mark.parametrize(
    "lines",
    [
        (f"Content-Length: {len(BODY)}", "Transfer-Encoding: chunked"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: -1",),
        ("Content-Length: +5",),
        ("Content-Length: 5_0",),
        ("Content-Length: " + "9" * 30,),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: canary",),
        ("X-Canary : 1",),
        ("X-\x00: 1",),
    ],
    ids=range(10),
)
def test_no_call_hides_in_another(wire: Wire, lines: tuple[str, ...]) -> None:
    hidden = b"GET /api/v1/keys HTTP/1.1\r\nHost: x\r\n\r\n"
    first = f"POST {REQUESTS} HTTP/1.1"
    answer = wire.call(first, JSON, *lines, body=b"0\r\n\r\n" + hidden)
    assert count_answers(answer) == 1
    assert 400 <= code_of(answer) < 500
    assert b"PUBLIC KEY" not in answer


def test_parts_without_a_length_are_limited(wire: Wire) -> None:
    part = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
    first = f"POST {REQUESTS} HTTP/1.1"
    answer = wire.call(first, JSON, "Transfer-Encoding: chunked", body=part * 40)
    assert code_of(answer) == 413
    assert b"application/problem+json" in answer


def test_a_length_that_is_too_long_is_refused_unread(wire: Wire) -> None:
    answer = wire.call(f"POST {REQUESTS} HTTP/1.1", JSON, "Content-Length: 999999999")
    assert code_of(answer) == 413
    assert b"application/problem+json" in answer


def test_huge_headers_are_refused(wire: Wire) -> None:
    answer = wire.call("GET /api/v1/window HTTP/1.1", "X-Long: " + "x" * 1_000_000)
    assert not answer or code_of(answer) in (400, 431)


def test_a_huge_path_is_refused(wire: Wire) -> None:
    answer = wire.call(f"GET /{'x' * 100_000} HTTP/1.1")
    assert not answer or code_of(answer) in (400, 404, 414)


@pytest.mark.parametrize(
    "target",
    [
        "*",
        "http://elsewhere.example/api/v1/keys/x",
        "/api/v1/../v1/requests/..",
        f"//{CANARY}/x",
        f"/api/v1/requests/{CANARY}?q={CANARY}",
        "/api/v1/requests/%",
        "/api/v1/requests/%zz",
        "/api/v1/requests/\xe9",
        "/api/v1/models/..;/crowd",
    ],
)
def test_odd_targets_lead_nowhere(wire: Wire, target: str) -> None:
    answer = wire.call(f"GET {target} HTTP/1.1")
    assert code_of(answer) in (400, 403, 404, 422)
    assert b"canary" not in answer


@pytest.mark.parametrize(
    "first",
    [
        "",
        "GET",
        "GET / HTTP/1.1 canary",
        "PRI * HTTP/2.0",
        "\x16\x03\x01\x02",
        "G\x00T / HTTP/1.1",
    ],
)
def test_nonsense_is_refused(wire: Wire, first: str) -> None:
    answer = wire.call(first)
    assert not answer or code_of(answer) in (400, 404, 405, 505)
    assert b"canary" not in answer


def test_a_head_has_no_body_and_needs_a_token(wire: Wire) -> None:
    answer = wire.send(b"HEAD /api/v1/window HTTP/1.0\r\n\r\n")
    assert code_of(answer) in (401, 405)
    assert answer.endswith(b"\r\n\r\n")


def test_nobody_is_in_the_log(wire: Wire) -> None:
    sent = (
        f"GET /{CANARY} HTTP/1.1",
        f"GET {REQUESTS}/{CANARY} HTTP/1.1",
        f"GET {REQUESTS}?due={CANARY} HTTP/1.1",
        f"{CANARY} / HTTP/1.1",
    )
    for first in sent:
        wire.call(first, f"User-Agent: {CANARY}", f"X-Request-Id: {CANARY}")
    length = f"Content-Length: {len(BODY) + 1}"
    assert (
        code_of(wire.call(f"POST {REQUESTS} HTTP/1.1", JSON, length, body=b"!" + BODY))
        == 422
    )
    log = wire.plan.log.read_text()
    assert log and "canary" not in log
    assert not any(secret in log for secret in wire.tokens.values())


def test_every_line_of_the_log_is_json(wire: Wire) -> None:
    lines = wire.plan.log.read_text().splitlines()
    assert len(list(read_log(wire.plan))) == len(lines)


def test_the_folder_is_not_served(wire: Wire) -> None:
    for name in ("registry.json", "expunge.db", "journal"):
        answer = wire.call(f"GET /static/../{name} HTTP/1.1")
        assert code_of(answer) in (400, 404)
        assert Path(wire.plan.folder / name).exists()
