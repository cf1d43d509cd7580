# SPDX-License-Identifier: Apache-2.0
"""Services as processes of their own, whose logs are kept and whose memory is read."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any, NamedTuple

from tests.apart import Forked
from tests.services import Process, wait_until_ready

CONFIG = "rate = 100_000_000\nis_secure = false\n"
DRAIN = 60.0
MIB = 1024


def free_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(words: Sequence[str], log: Path) -> subprocess.Popen[bytes] | Forked:
    """Start ``serving`` with these words; tests, which are many, fork it instead."""
    with log.open("ab") as file:
        command = [sys.executable, "-m", "tests.service_load.serving", *words]
        return subprocess.Popen(command, stderr=file, env=os.environ)


@dataclass(frozen=True)
class Plan:
    """How a service is started.

    Parameters
    ----------
    folder
        Of the registry; the log is beside it.
    window
        Seconds of a window.
    extras
        What it has that ``expunge serve`` has not, see ``serving``.
    config
        Settings as TOML.
    """

    folder: Path
    window: int
    extras: str = "none"
    config: str = CONFIG

    @property
    def log(self) -> Path:
        """What it wrote to stderr."""
        return self.folder.with_suffix(".log")

    def start(self, port: int) -> Process:
        """Start it; it may not be ready yet."""
        config = self.folder.with_suffix(".toml")
        config.write_text(self.config)
        words = [self.extras, "serve", str(self.folder), "--port", str(port)]
        words += ["--window", str(self.window), "--config", str(config)]
        return Process(start(words, self.log), f"http://127.0.0.1:{port}")


@contextmanager
def serve(plan: Plan) -> Iterator[tuple[Process, int]]:
    """Lend a service that is ready, and let it drain at the end."""
    port = free_port()
    service = plan.start(port)
    try:
        wait_until_ready(service)
        yield service, port
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(DRAIN) in (0, -signal.SIGTERM)
    finally:
        if service.process.poll() is None:
            service.kill()


def read_log(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log."""
    for line in plan.log.read_text().splitlines():
        if line.startswith("{"):
            yield json.loads(line)


class Applied(NamedTuple):
    """A batch: when its window closed, and how long after that it was applied."""

    close: int
    seconds: float


def read_applied(plan: Plan) -> list[Applied]:
    """Return when each window's batch was done."""
    return [
        Applied(
            line["window"],
            datetime.fromisoformat(line["timestamp"]).timestamp()
            - line["window"] / 1000,
        )
        for line in read_log(plan)
        if line["event"] == "applied"
    ]


class Memory:
    """Reads the memory of a process every half second.

    Parameters
    ----------
    pid
        Of the process.
    """

    def __init__(self, pid: int) -> None:
        self._path = Path(f"/proc/{pid}/status")
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self.seen: list[tuple[float, float]] = []

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        started = monotonic()
        while not self._stop.wait(0.5):
            try:
                self.seen.append((monotonic() - started, self._read()))
            except (FileNotFoundError, ProcessLookupError, StopIteration):
                return

    def _read(self) -> float:
        lines = self._path.read_text().splitlines()
        line = next(one for one in lines if one.startswith("VmRSS"))
        return int(line.split()[1]) / MIB
