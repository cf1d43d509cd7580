# SPDX-License-Identifier: Apache-2.0
"""Services to test with: in this process, or as the command that operators run."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from time import monotonic, sleep
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from expunge.registry import Registry
from expunge.service.app import create_app
from expunge.service.settings import ServiceSettings
from expunge.service.windows import LONGEST
from tests.apart import Forked
from tests.registries import SECOND, now

PATIENCE = 30.0


class InProcess(NamedTuple):
    """A service in this process, with a registry and tokens by scope."""

    http: TestClient
    registry: Registry
    tokens: dict[str, str]

    def call(self, method: str, path: str, scope: str = "admin", **given: Any) -> Any:
        """Make a call with the token of a scope."""
        headers = {"Authorization": f"Bearer {self.tokens[scope]}"}
        headers |= given.pop("headers", {})
        return self.http.request(method, path, headers=headers, **given)


@contextmanager
def serve_in_process(registry: Registry, **settings: Any) -> Iterator[InProcess]:
    """Serve a registry in this process; nothing is applied unless asked for."""
    chosen: dict[str, Any] = {"applies": False, "is_secure": False, "rate": 10**6}
    app = create_app(registry, ServiceSettings(**chosen | settings))
    tokens = {
        scope: registry.access.create(f"{scope} desk", [scope])[1]
        for scope in ("request", "operate", "audit", "admin")
    }
    with TestClient(app, raise_server_exceptions=False) as http:
        yield InProcess(http, registry, tokens)


class Process(NamedTuple):
    """A service as a process of its own."""

    process: subprocess.Popen[bytes] | Forked
    address: str

    def kill(self) -> None:
        """End it without a warning."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def wait_until_ready(service: Process) -> None:
    """Return when a service answers."""
    end = monotonic() + PATIENCE
    while monotonic() < end:
        assert service.process.poll() is None, "the service ended"
        try:
            with urlopen(f"{service.address}/readyz") as answer:
                assert answer.status == 200
                return
        except (URLError, OSError):
            sleep(0.02)
    raise AssertionError("the service did not become ready")


def apply_window(service: InProcess) -> None:
    """Apply everything that waits, as when its window closes."""
    service.registry.requests.apply(before=now() + LONGEST * SECOND)


@contextmanager
def serve_app(app: FastAPI) -> Iterator[str]:
    """Serve an application at a free port of this machine; yield its address."""
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    end = monotonic() + PATIENCE
    while not server.started:
        assert thread.is_alive() and monotonic() < end, "the server did not start"
        sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
