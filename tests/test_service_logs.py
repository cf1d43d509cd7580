# SPDX-License-Identifier: Apache-2.0
"""No identity is in what a service writes to stderr, whatever goes wrong in it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .registries import registry_at

NAME, ADDRESS, NUMBER = "ada.lovelace", "ada@example.org", "4915112345678"
ID = "0123456789abcdef0123456789abcdef"

# The service, in which looking a request up fails in every way that prints something.
FAILING = """
import asyncio, logging, sys, threading, warnings
from expunge.registry import Registry
from expunge.service.intake import Intake
from expunge.service.app import listen, serve
from expunge.service.settings import ServiceSettings

def fail_loudly(self, request, sender):
    said = "cannot find " + ", ".join(sys.argv[2:])
    logging.getLogger("library").error(said)
    logging.getLogger("uvicorn.error").warning("%s", said)
    warnings.warn(said)
    def raise_it():
        raise RuntimeError(said)
    thread = threading.Thread(target=raise_it)
    thread.start()
    thread.join()
    try:
        raise_it()
    except RuntimeError:
        logging.getLogger("library").exception(said)
    raise RuntimeError(said)

Intake.show = fail_loudly
with Registry.open(sys.argv[1]) as registry, listen("127.0.0.1", 0) as listener:
    print(listener.getsockname()[1], registry.access.create("desk", ["admin"])[1])
    sys.stdout.flush()
    serve(registry, ServiceSettings(applies=False), listener=listener)
"""


class Running(NamedTuple):
    """A service that writes to a file, and how to call it."""

    process: subprocess.Popen[str]
    port: int
    token: str
    written: Path

    def call(self, method: str, path: str, body: object = None, **headers: str) -> int:
        """Make a call, and return the code of its answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = {"Authorization": f"Bearer {self.token}", **headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection.request(method, path, json.dumps(body) if body else None, sent)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    def end(self) -> list[dict[str, Any]]:
        """End the service, and return the lines that it wrote."""
        self.process.terminate()
        assert self.process.wait(30) == 0
        return [json.loads(line) for line in self.written.read_text().splitlines()]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    registry_at(tmp_path / "registry").close()
    words = [sys.executable, "-c", FAILING, str(tmp_path / "registry")]
    written = tmp_path / "stderr"
    with (
        written.open("w") as stderr,
        subprocess.Popen(
            [*words, NAME, ADDRESS, NUMBER],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            port, token = process.stdout.readline().split()
            yield Running(process, int(port), token, written)
        finally:
            process.kill()


def require_no_canary(lines: list[dict[str, Any]]) -> None:
    text = json.dumps(lines).lower()
    for one in (NAME, ADDRESS, "ada%40example.org", NUMBER, "person 3"):
        assert one not in text


def test_calls_are_logged_without_what_was_sent(running: Running) -> None:
    calls: list[tuple[str, str, object, int]] = [
        ("GET", f"/{NAME}/page", None, 404),
        ("GET", f"/api/v1/requests/{NUMBER}", None, 422),
        ("GET", f"/api/v1/models/{NAME}", None, 404),
        ("GET", f"/api/v1/requests?state={NAME}&{NUMBER}=1", None, 422),
        (NAME, "/healthz", None, 405),
        ("POST", "/api/v1/requests", {"people": [{"email": ADDRESS}]}, 201),
        ("POST", "/api/v1/requests", {"people": [{"email": NAME}]}, 422),
        ("POST", "/api/v1/requests", {"people": [{"id": "person 3"}], NAME: 1}, 422),
        ("POST", "/api/v1/requests/batch", {"people": ADDRESS}, 415),
    ]
    sent = {"User-Agent": NAME, "Cookie": ADDRESS, "X-Forwarded-For": NUMBER}
    for method, path, body, code in calls:
        assert running.call(method, path, body, **sent) == code, (method, path)
    lines = running.end()
    require_no_canary(lines)
    logged = [
        (line["method"], line["route"], line["code"])
        for line in lines
        if line["event"] == "call"
    ]
    assert logged == [
        ("GET", "none", 404),
        ("GET", "/api/v1/requests/{request}", 422),
        ("GET", "/api/v1/models/{name}", 404),
        ("GET", "/api/v1/requests", 422),
        ("_OTHER", "/healthz", 405),
        ("POST", "/api/v1/requests", 201),
        ("POST", "/api/v1/requests", 422),
        ("POST", "/api/v1/requests", 422),
        ("POST", "/api/v1/requests/batch", 415),
    ]
    assert running.token not in json.dumps(lines)


def test_failures_are_logged_without_their_text(running: Running) -> None:
    assert running.call("GET", f"/api/v1/requests/{ID}") == 500
    lines = running.end()
    require_no_canary(lines)
    failed = [line for line in lines if line["event"] == "failed"]
    assert {line["error"] for line in failed} == {"RuntimeError"}
    assert {line["route"] for line in failed} == {"none", "/api/v1/requests/{request}"}
    assert any("fail_loudly:" in place for line in failed for place in line["where"])
    names = {line["name"] for line in lines if line["event"] == "library"}
    assert names == {"library", "uvicorn.error", "py.warnings"}


def test_what_is_not_http_is_logged_without_its_text(running: Running) -> None:
    connection = HTTPConnection("127.0.0.1", running.port, timeout=30)
    connection.connect()
    connection.sock.sendall(f"{NAME} {ADDRESS}\r\n\r\n".encode())
    assert connection.sock.recv(100).startswith(b"HTTP/1.1 400")
    connection.close()
    lines = running.end()
    require_no_canary(lines)
    assert [line["event"] for line in lines] == ["starting", "library", "ended"]
