# SPDX-License-Identifier: Apache-2.0
"""Logs and spans: what the service writes of each call, and no name of a person.

A line of the log has the route's template and never the path, no query, no body, no
header but our own number of the call. Of an error it has the class and where it was
raised: the text of an error may quote what was sent. The same holds for what libraries
log or warn of: the server itself would print every error with its text.

FastAPI would put path, query and host of a call into its span. A caller may write a
person's address into any of them, also where an id belongs. So telemetry is shown a
call without them, and adds the template of the route once it is known. The text of
errors is not recorded there either.
"""

import errno
import logging
import sys
import threading
import traceback
from contextlib import suppress
from time import monotonic, perf_counter
from typing import Any, TextIO, cast

import structlog
from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..promise.noise import random_bytes

TELEMETRY: TelemetryConfig = {"logs": False}
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
OTHER = "_OTHER"  # as OpenTelemetry calls a method that it does not know
# So that a caller's trace goes on here. What else such headers carry is free text.
KEPT_HEADERS = frozenset({b"traceparent"})
HIDDEN = "expunge.hidden"
CALL_BYTES = 8
MOST_LINES = 10  # of a library, in a second
NO_ROUTE = "none"


def name_method(method: str) -> str:
    """Return a method of HTTP; a caller may make one up."""
    return method if method in METHODS else OTHER


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
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, Lenient(sys.stderr))),
    )
    logging.root.handlers = [HideMessages(logging.WARNING)]
    logging.captureWarnings(True)
    threading.excepthook = _log_thread
    # It would print paths.
    logging.getLogger("uvicorn.access").disabled = True


class Lenient:
    """A stream that drops what cannot be written.

    Where logs go to a disk that is full, calls are answered and threads go on all the
    same.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write a text, if that is possible."""
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        """Flush what was written, if that is possible."""
        with suppress(OSError):
            self._stream.flush()


class HideMessages(logging.Handler):
    """Writes for each message of a library which one it was, and not what it says.

    A library that says the same thousands of times a second, as when no file can be
    opened any more, would fill the disk. So each has ``MOST_LINES`` a second, and its
    next line says how many were left out.
    """

    def __init__(self, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._written: dict[str, tuple[int, int]] = {}  # in which second, how many

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, unless there were too many."""
        second = int(monotonic())
        last, count = self._written.get(record.name, (second, 0))
        left_out = 0
        if last != second:
            left_out, count = max(0, count - MOST_LINES), 0
        self._written[record.name] = second, count + 1
        if count >= MOST_LINES:
            return
        error = record.exc_info[1] if record.exc_info else None
        structlog.get_logger().log(
            record.levelno,
            "library",
            name=record.name,
            line=f"{record.funcName}:{record.lineno}",
            error="" if error is None else type(error).__name__,
            **({"left_out": left_out} if left_out else {}),
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
        "failed",
        error=type(error).__name__,
        cause=failure_code(error),
        where=where,
        route=route,
    )


def failure_code(error: BaseException) -> str:
    """Return the code that a database or the system gave for a failure; maybe empty.

    A code is from a fixed list, unlike the text beside it, which may quote what was
    sent.
    """
    cause: BaseException | None = error
    while cause is not None:
        state = getattr(cause, "sqlstate", None)
        if isinstance(state, str) and state.isalnum():
            return f"SQLSTATE {state}"
        name = getattr(cause, "sqlite_errorname", None)
        if isinstance(name, str):
            return name
        if isinstance(cause, OSError) and cause.errno is not None:
            return errno.errorcode.get(cause.errno, "")
        cause = cause.__cause__
    return ""


def find_route(scope: Scope) -> str:
    """Return the template of the route that a call took."""
    # Of a route within a router, FastAPI keeps the whole template here.
    whole = scope.get("fastapi", {}).get("effective_route_context")
    return getattr(whole or scope.get("route"), "path", NO_ROUTE)


class LogCalls:
    """Middleware that writes a line for each call."""

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


def hide_call(scope: Scope) -> Scope:
    """Return a call without what its caller wrote, and that under a key of its own."""
    if scope["type"] != "http":
        return scope
    shown: dict[str, Any] = {
        "method": name_method(scope["method"]),
        "path": "",
        "query_string": b"",
        "headers": [one for one in scope["headers"] if one[0] in KEPT_HEADERS],
    }
    hidden = {name: scope[name] for name in shown}
    return {**scope, **shown, HIDDEN: hidden}


class HiddenCalls(FastAPI):
    """An application whose telemetry does not see what callers write."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call."""
        await super().__call__(hide_call(scope), receive, send)


class ShowCalls:
    """Middleware within telemetry that gives a call back what was hidden."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on as it came."""
        scope.update(scope.pop(HIDDEN, {}))
        await self.app(scope, receive, send)
