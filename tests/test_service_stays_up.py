# SPDX-License-Identifier: Apache-2.0
"""The service as a process: threads that end, full disks, slow and many callers."""

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request as Call
from urllib.request import urlopen

import pytest

from expunge.cli import main
from expunge.exceptions import StoreFailed
from expunge.registry import Registry

from .apart import Forked
from .registries import registry_at, wrap
from .services import PATIENCE

ERRORS = {"trouble": OSError, "bug": KeyError, "apply": StoreFailed}


def serving(word: str, sign: Path, files: int | None, words: Sequence[str]) -> None:
    """Serve; a thread ends, or the store fails, as long as a file is there."""

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **given: Any) -> Any:
            if sign.exists():
                raise ERRORS[word]("person 3")
            if word == "apply":
                return real(self, *args, **given)

        return call

    if word in ERRORS:
        wrap("applying requests" if word == "apply" else "getting ready", failing)
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    sys.argv = ["expunge", "serve", *words]
    main()


class Served(NamedTuple):
    """A service in another process."""

    process: Forked
    port: int
    token: str
    folder: Path
    log: Path

    def get(self, path: str) -> int:
        """Return the code of a call."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code

    def send(self, person: str) -> Any:
        """Send a request; return what is answered."""
        body = json.dumps({"people": [{"id": person}]}).encode()
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
        }
        call = Call(
            f"http://127.0.0.1:{self.port}/api/v1/requests", body, headers=headers
        )
        with urlopen(call, timeout=10) as answer:
            return json.load(answer)

    def events(self) -> list[dict[str, Any]]:
        """Return the lines of the log."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def connect(self) -> socket.socket:
        """Return a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def wait_for(is_so: Callable[[], Any], seconds: float = PATIENCE) -> None:
    end = monotonic() + seconds
    while not is_so():
        assert monotonic() < end, "it did not happen"
        sleep(0.05)


@contextmanager
def served(
    place: Path,
    word: str = "none",
    *,
    settings: str = "window = 1\n",
    files: int | None = None,
    folder: Path | None = None,
) -> Iterator[Served]:
    """Serve a registry in a process; ``place / "sign"`` makes it fail."""
    folder = place / "registry" if folder is None else folder
    if not folder.exists():
        registry_at(folder).close()
    with Registry.open(folder) as registry:
        _, token = registry.access.create("desk", ["request"], days=1)
    config, log, port = place / "service.toml", place / "log", free_port()
    config.write_text(settings)
    words = str(folder), "--port", str(port), "--config", str(config)
    process = Forked(serving, log, word, place / "sign", files, words)
    one = Served(process, port, token, folder, log)
    try:

        def listens() -> bool:
            assert process.poll() is None, log.read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_for(listens)
        wait_for(lambda: one.get("/healthz") == 200)
        yield one
    finally:
        process.kill()
        process.wait()


def stage_of(service: Served, request: str) -> str:
    with Registry.open(service.folder) as registry:
        return registry.requests.status(request).stage


def test_trouble_in_the_first_second_is_got_over(tmp_path: Path) -> None:
    (tmp_path / "sign").touch()
    with served(tmp_path, "trouble") as service:
        wait_for(lambda: any(one["event"] == "failed" for one in service.events()))
        sent = service.send("person 3")
        wait_for(lambda: stage_of(service, sent["id"]) == "completed")
        assert service.get("/readyz") == 200
    assert "person 3" not in service.log.read_text()


def test_a_thread_that_ends_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "sign").touch()
    with served(tmp_path, "bug") as service:
        assert service.process.wait(PATIENCE) == 1
    events = service.events()
    assert [one["error"] for one in events if one["event"] == "failed"] == ["KeyError"]
    assert "thread ended" in [one["event"] for one in events]
    assert "person 3" not in service.log.read_text()


def test_a_failed_batch_is_not_applied_and_tried_again_in_seconds(
    tmp_path: Path,
) -> None:
    (tmp_path / "sign").touch()
    with served(tmp_path, "apply", settings="window = 3600\n") as service:
        wait_for(lambda: sum(e["event"] == "failed" for e in service.events()) >= 2)
        assert not [one for one in service.events() if one["event"] == "applied"]
        (tmp_path / "sign").unlink()
        wait_for(
            lambda: any(e["event"] == "applied" for e in service.events()), seconds=10
        )


def test_a_service_whose_disk_is_full_is_not_ready(tmp_path: Path) -> None:
    with served(tmp_path, settings="window = 3600\nnotice = 0\n") as service:
        wait_for(lambda: service.get("/readyz") == 200)
        pid = service.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        # Files may not grow: writing fails, as it does on a full disk.
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (64, hard))
        try:
            wait_for(lambda: service.get("/readyz") == 503, seconds=5)
        finally:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        wait_for(lambda: service.get("/readyz") == 200, seconds=5)


def test_it_is_not_ready_before_it_stops_listening(tmp_path: Path) -> None:
    settings = "window = 3600\nnotice = 2\n"
    with served(tmp_path, settings=settings) as service:
        wait_for(lambda: service.get("/readyz") == 200)
        with service.connect() as slow:
            body = b'{"people": [{"id": "person 3"}]}'
            slow.sendall(
                b"POST /api/v1/requests HTTP/1.1\r\nHost: a\r\nContent-Type: "
                b"application/json\r\nAuthorization: Bearer "
                + service.token.encode()
                + b"\r\nContent-Length: %d\r\n\r\n" % len(body)
                + body[:5]
            )
            os.kill(service.process.pid, signal.SIGTERM)
            wait_for(lambda: service.get("/readyz") == 503, seconds=1.5)
            assert service.send("person 4")["state"] == "pending"  # still served
            wait_for(lambda: not can_connect(service.port), seconds=10)
            slow.sendall(body[5:])  # what is at hand is finished
            assert b" 201 " in slow.recv(1 << 16).split(b"\r\n")[0]
        assert service.process.wait(PATIENCE) == 0


def can_connect(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def read_all(one: socket.socket) -> bytes:
    parts = []
    while part := one.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


SLOW = "window = 3600\nheader_seconds = 1\nbody_seconds = 2\n"
HEAD = b"POST /api/v1/requests HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Lend a service that waits for nobody, and keeps nothing of those it cut off."""
    with served(tmp_path_factory.mktemp("impatient"), settings=SLOW) as service:
        yield service


@pytest.mark.parametrize(
    ("sent", "seconds", "said"),
    [
        (b"", 1, b""),
        (b"GET /healthz HTTP/1.1\r\nX-Slow: ", 1, b" 408 "),
        (HEAD + b"\r\n{", 2, b""),  # refused for its token, and closed later
    ],
)
def test_slow_callers_are_cut_off(
    impatient: Served, sent: bytes, seconds: float, said: bytes
) -> None:
    with impatient.connect() as slow:
        started = monotonic()
        slow.sendall(sent)
        while monotonic() < started + seconds - 0.5:
            sleep(0.1)
            if sent:
                slow.sendall(b"a")
        assert said in read_all(slow).split(b"\r\n")[0]
        assert seconds - 0.5 < monotonic() - started < seconds + 3


def test_a_slow_body_is_told_why(impatient: Served) -> None:
    with impatient.connect() as slow:
        head = HEAD + b"Authorization: Bearer %b\r\n" % impatient.token.encode()
        slow.sendall(head + b"Content-Type: application/json\r\n\r\n{")
        answer = read_all(slow)
        assert b" 408 " in answer.split(b"\r\n")[0]
        assert b"took longer than 2 seconds" in answer


def test_a_slow_second_head_is_cut_off(impatient: Served) -> None:
    with impatient.connect() as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 200 " in slow.recv(1 << 16)
        slow.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert b" 408 " in read_all(slow).split(b"\r\n")[0]


def test_calls_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    settings = "window = 3600\nconnections = 10\n"
    with served(tmp_path, settings=settings) as service:
        held = [service.connect() for _ in range(12)]
        wait_for(lambda: service.get("/healthz") == 503)
        for one in held:
            one.close()
        wait_for(lambda: service.get("/healthz") == 200)


def test_many_connections_neither_fill_the_log_nor_stop_the_service(
    tmp_path: Path,
) -> None:
    settings = "window = 3600\nheader_seconds = 4\n"
    with served(tmp_path, settings=settings, files=256) as service:
        held = []
        for _ in range(400):
            one = socket.socket()
            one.settimeout(1)
            one.connect_ex(("127.0.0.1", service.port))
            held.append(one)
        sleep(3)
        assert service.log.stat().st_size < 100_000
        for one in held:
            one.close()
        wait_for(lambda: service.get("/readyz") == 200)
        assert service.send("person 3")["state"] == "pending"
