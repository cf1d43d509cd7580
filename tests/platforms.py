# SPDX-License-Identifier: Apache-2.0
"""A local imitation of the platform that brokers fetch deletion lists from."""

import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

KEY = "a key of the portal"
_PART = re.compile(
    rb'name="files"; filename="([^"]+)"\r\n[^\r]+\r\n\r\n(.*?)\r\n--', re.S
)


@dataclass
class Platform:
    """What the platform holds, and what it was asked.

    ``codes`` are answered first, each once: (code, headers).
    """

    lists: Mapping[str, bytes] = field(default_factory=dict)
    codes: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    open: bool = False
    taken: dict[str, bytes] = field(default_factory=dict)
    amended: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    address: str = ""

    def answer(self, method: str, path: str, *, body: bytes) -> tuple[int, bytes, str]:
        """Return code, body and type of an answer, as the platform gives it."""
        if path == "/data/download":
            if self.open:
                return 409, b'{"message": "previous batch is not complete"}', "json"
            if not self.lists:
                return 200, b'{"message": "no new data"}', "json"
            self.open = True
            return 200, _pack(self.lists), "zip"
        accepted, rejected = [], []
        kept = self.taken if path == "/data/upload" else self.amended
        for name, data in _PART.findall(body):
            file = name.decode()
            if not data.startswith(b"Id,Status\n"):
                rejected.append({"fileName": file, "message": "Wrong header."})
            elif file in kept:
                rejected.append({"fileName": file, "message": "Duplicate file."})
            else:
                kept[file] = data
                accepted.append({"fileName": file})
        if {*self.lists} <= {*self.taken}:
            self.open = False
        said: dict[str, Any] = {
            "message": "received",
            "acceptedCount": len(accepted),
            "rejectedCount": len(rejected),
            "accepted": accepted,
            "rejected": rejected,
        }
        return 202 if accepted else 400, json.dumps(said).encode(), "json"


def _pack(lists: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in lists.items():
            archive.writestr(name, data)
    return packed.getvalue()


@contextmanager
def running(platform: Platform) -> Iterator[Platform]:
    """Serve a platform on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(b"")

        def do_POST(self) -> None:
            self.reply(self.rfile.read(int(self.headers["Content-Length"])))

        def reply(self, body: bytes) -> None:
            platform.asked.append(f"{self.command} {self.path}")
            headers: dict[str, str] = {}
            if platform.codes:
                code, headers = platform.codes.pop(0)
                data, kind = b'{"message": "as the test wants it"}', "json"
            elif self.headers["X-API-KEY"] != KEY:
                code, data, kind = 401, b"no such key", "plain"
            else:
                code, data, kind = platform.answer(self.command, self.path, body=body)
            self.send_response(code)
            self.send_header("Content-Type", f"application/{kind}")
            self.send_header("Content-Length", str(len(data)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    platform.address = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield platform
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
