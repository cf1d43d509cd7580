# SPDX-License-Identifier: Apache-2.0
"""Calls over HTTP/1.1 by bare sockets: nothing between the clock and the service."""

import asyncio
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any, NamedTuple, Self

JSON = "application/json"
TIMEOUT = 120.0
IDLE = 2.0  # seconds after which a connection is made again


class Answer(NamedTuple):
    """What came back, and how long it took in seconds."""

    code: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    seconds: float

    def json(self) -> Any:
        """Return the body as data."""
        return json.loads(self.body)


def format_call(
    method: str, path: str, *, token: str, body: bytes = b"", kind: str = JSON
) -> bytes:
    """Return a call as it is sent."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    if body:
        lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def read_head(head: bytes) -> tuple[int, tuple[tuple[str, str], ...]]:
    """Return code and headers of an answer."""
    first, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (line.partition(":") for line in rest)
    headers = tuple((name.lower(), value.strip()) for name, _, value in pairs)
    return int(first.split(" ")[1]), headers


def read_length(headers: tuple[tuple[str, str], ...]) -> int:
    """Return how long the body is."""
    found: Mapping[str, str] = dict(headers)
    assert "transfer-encoding" not in found
    return int(found.get("content-length", "0"))


class AsyncLine:
    """A connection for one task, which is kept alive.

    Parameters
    ----------
    port
        Of the service on this machine.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, unless it is done; OSError if nobody is there."""
        if self._open is None:
            self._open = await asyncio.open_connection("127.0.0.1", self._port)
        return self._open

    async def send(self, call: bytes) -> Answer:
        """Send a call and return the answer; OSError or EOFError if there is none."""
        reader, writer = await self.open()
        started = perf_counter()
        try:
            writer.write(call)
            code, headers = read_head(await reader.readuntil(b"\r\n\r\n"))
            body = await reader.readexactly(read_length(headers))
        except BaseException:
            await self.close()
            raise
        return Answer(code, headers, body, perf_counter() - started)

    async def close(self) -> None:
        """Hang up."""
        if self._open is not None:
            _, writer = self._open
            self._open = None
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


class Line:
    """A connection that blocks, for times as exact as they can be.

    Parameters
    ----------
    port
        Of the service on this machine.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._connect()

    def _connect(self) -> None:
        place = ("127.0.0.1", self._port)
        self._socket = socket.create_connection(place, timeout=TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._used = perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._socket.close()

    def send(self, call: bytes) -> Answer:
        """Send a call and return the answer."""
        if perf_counter() > self._used + IDLE:  # the service hangs up on those
            self._socket.close()
            self._connect()
        started = perf_counter()
        self._socket.sendall(call)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        head, _, body = data.partition(b"\r\n\r\n")
        code, headers = read_head(head)
        length = read_length(headers)
        while len(body) < length:
            body += self._receive()
        self._used = perf_counter()
        return Answer(code, headers, body, self._used - started)

    def _receive(self) -> bytes:
        data = self._socket.recv(65536)
        if not data:
            raise EOFError("the service hung up")
        return data
