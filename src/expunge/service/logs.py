# SPDX-License-Identifier: Apache-2.0
"""Logs: one line of JSON for each call, and nothing in it that names a person.

A line has the route's template and never the path, no query, no body, no header but
our own number of the call. Of an error it has the class and where it was raised: the
text of an error may quote what was sent. The same holds for what libraries log or warn
of: the server itself would print every error with its text.
"""

import logging
import sys
import threading
import traceback
from time import perf_counter
from typing import Any

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..promise.noise import random_bytes
from .telemetry import name_method

CALL_BYTES = 8
NO_ROUTE = "none"


def configure_logs(*, is_readable: bool) -> None:
    """Write logs to stderr, as JSON or, for a laptop, for people."""
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if is_readable
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.root.handlers = [HideMessages(logging.WARNING)]
    logging.captureWarnings(True)
    threading.excepthook = _log_thread
    # It would print paths.
    logging.getLogger("uvicorn.access").disabled = True


class HideMessages(logging.Handler):
    """Writes for each message of a library which one it was, and not what it says."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        error = record.exc_info[1] if record.exc_info else None
        structlog.get_logger().log(
            record.levelno,
            "library",
            name=record.name,
            line=f"{record.funcName}:{record.lineno}",
            error="" if error is None else type(error).__name__,
        )


def _log_thread(raised: threading.ExceptHookArgs) -> None:
    """Write a line about an error that ended a thread."""
    if raised.exc_value is not None:
        log_failure(None, raised.exc_value)


def log(event: str, **values: object) -> None:
    """Write a line about the service itself."""
    structlog.get_logger().info(event, **values)


def log_waiting(error: BaseException) -> None:
    """Write that a request waits for an operator, who sees why in its status."""
    structlog.get_logger().warning("waiting", error=type(error).__name__)


def log_failure(request: Request | None, error: BaseException) -> None:
    """Write where an error was raised, and not what it says."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{frame.name}:{frame.lineno}" for frame in frames[-6:]]
    route = NO_ROUTE if request is None else find_route(request.scope)
    structlog.get_logger().error(
        "failed", error=type(error).__name__, where=where, route=route
    )


def find_route(scope: Scope) -> str:
    """Return the template of the route that a call took."""
    # Of a route within a router, FastAPI keeps the whole template here.
    whole = scope.get("fastapi", {}).get("effective_route_context")
    return getattr(whole or scope.get("route"), "path", NO_ROUTE)


class LogCalls:
    """Middleware that writes a line for each call.

    Parameters
    ----------
    app
        The application within.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call and write its line."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        call, started, code = random_bytes(CALL_BYTES).hex(), perf_counter(), 500

        async def send_marked(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = int(message["status"])
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", call.encode()),
                ]
            await send(message)

        try:
            await self.app(scope, receive, send_marked)
        finally:
            structlog.get_logger().info(
                "call",
                call=call,
                method=name_method(scope["method"]),
                route=find_route(scope),
                code=code,
                ms=round(1000 * (perf_counter() - started)),
                caller=scope.get("state", {}).get("caller", ""),
            )
