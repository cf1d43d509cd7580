# SPDX-License-Identifier: Apache-2.0
"""Telemetry: FastAPI's own spans and metrics, without what was sent.

FastAPI would put path, query and host of a call into its span. A caller may write a
person's address into any of them, also where an id belongs. So telemetry is shown a
call without them, and adds the template of the route once it is known. The text of
errors, which may quote what was sent, is not recorded.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.types import ASGIApp, Receive, Scope, Send

TELEMETRY: TelemetryConfig = {"logs": False}
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
OTHER = "_OTHER"  # as OpenTelemetry calls a method that it does not know
# So that a caller's trace goes on here. What else such headers carry is free text.
KEPT_HEADERS = frozenset({b"traceparent"})
HIDDEN = "expunge.hidden"


def name_method(method: str) -> str:
    """Return a method of HTTP; a caller may make one up."""
    return method if method in METHODS else OTHER


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
    """Middleware within telemetry that gives a call back what was hidden.

    Parameters
    ----------
    app
        The application within.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on as it came."""
        scope.update(scope.pop(HIDDEN, {}))
        await self.app(scope, receive, send)
