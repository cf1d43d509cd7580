# SPDX-License-Identifier: Apache-2.0
"""Running: the application in a server, until the process is told to end."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from ..exceptions import InvalidInput
from ..registry import Registry
from .app import DRAIN, create_app
from .logs import configure_logs, log
from .settings import ServiceSettings

TOLD_TO_END = (signal.SIGTERM, signal.SIGINT)
WAITING = 2048  # callers before one is answered


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; callers wait there until it is served.

    Parameters
    ----------
    host
        A name or address of this machine.
    port
        0 for any that is free.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=WAITING)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise InvalidInput(
            f"cannot listen at {host} port {port} ({why}); end the process that does, "
            "or give another --host or --port"
        ) from None
    # The server writes head and body apart. Without this the body would wait until the
    # caller's system acknowledges the head, which takes up to 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def serve(
    registry: Registry,
    settings: ServiceSettings,
    *,
    listener: socket.socket,
    is_readable: bool = False,
) -> None:
    """Serve a registry until SIGTERM or SIGINT; finish what is at hand.

    Parameters
    ----------
    registry
        What is served.
    settings
        Of the service.
    listener
        Where to listen, from ``listen``.
    is_readable
        Whether logs are for people.
    """
    configure_logs(is_readable=is_readable)
    config = uvicorn.Config(
        create_app(registry, settings),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(DRAIN),
        proxy_headers=True,
    )
    host, port = listener.getsockname()[:2]
    log("starting", host=host, port=port, window=settings.window)
    with ending_quietly():
        uvicorn.Server(config).run(sockets=[listener])
    log("ended")


@contextmanager
def ending_quietly() -> Iterator[None]:
    """Let the process go on after a server that was told to end.

    The server raises the signal again when it is done, which would end the process
    before the registry is closed.
    """
    before = {one: signal.signal(one, lambda *_: None) for one in TOLD_TO_END}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
