# SPDX-License-Identifier: Apache-2.0
"""The application: all routes over one registry, and the server that runs it."""

import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from importlib import import_module
from time import monotonic
from typing import Any

import uvicorn
from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..exceptions import InvalidInput
from ..registry import Registry
from . import (
    admin,
    ledger,
    letters,
    models,
    people,
    requests,
    signin,
    uploads,
)
from .auth import Authenticator
from .intake import Intake
from .logs import TELEMETRY, HiddenCalls, LogCalls, ShowCalls, configure_logs, log
from .metrics import Metrics, make_metrics_router
from .outbound import Outbox
from .problems import install_handlers, make_problem
from .rendering import STATIC, make_check_page
from .routing import PREFIX, Problem
from .server import Readiness, WatchedServer, limit_callers
from .settings import ServiceSettings
from .workers import Applier, Worker

DRAIN = 30.0  # seconds to finish what is at hand
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
WAITING = 2048  # callers before one is answered
LONG_PATHS = (f"{PREFIX}/requests/batch", "/requests/upload")
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' "
        b"data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
        b"base-uri 'none'",
    ),
)


class LimitBodies:
    """Middleware that refuses long bodies; a batch may be longer."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings) -> None:
        self._short, self._long = (
            RequestBodyLimitMiddleware(app, max_body_size=size)
            for size in (settings.largest_body, settings.largest_batch)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on, unless its body is too long."""
        limited = self._long if scope.get("path") in LONG_PATHS else self._short
        most = limited.max_body_size
        if scope["type"] == "http" and read_length(scope) > most:
            # The middleware of Starlette would answer, but not by a problem.
            refusal = make_problem(413, f"the body is longer than {most} bytes")
            await refusal(scope, receive, send)
        else:
            await limited(scope, receive, send)


def read_length(scope: Scope) -> int:
    """Return how long a call says its body is; 0 if it does not."""
    text = Headers(scope=scope).get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() else 0


class AddHeaders:
    """Middleware that adds the headers by which browsers protect a page."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings) -> None:
        self.app = app
        secure = (b"strict-transport-security", b"max-age=63072000")
        self._headers = [*HEADERS, *([secure] if settings.is_secure else [])]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call with the headers."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        await self.app(scope, receive, send_guarded)


class Application(HiddenCalls):
    """An application whose description holds every document that it refers to."""

    def openapi(self) -> dict[str, Any]:
        """Return what calls there are, as OpenAPI describes them."""
        found = super().openapi()
        # The framework takes documents of answers up only if they are plain JSON.
        found["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        return found


def create_app(registry: Registry, settings: ServiceSettings) -> FastAPI:
    """Return the application over a registry, which stays the caller's to close."""
    intake, metrics = Intake(registry, settings), Metrics(registry)
    processor, composers = None, {}
    if settings.opendsr is not None:
        from . import opendsr  # only who offers it needs it

        processor = opendsr.open_processor(settings.opendsr)
        composers = opendsr.make_composers(
            registry, processor, address=settings.address
        )
    workers: list[Worker] = [intake]
    if settings.applies:
        workers += [
            Applier(registry, settings.windows, metrics.observe_batch),
            Outbox(
                registry,
                settings.policy,
                windows=settings.windows,
                composers=composers,
            ),
        ]
    readiness = Readiness(registry, workers)
    app = Application(
        title="expunge",
        version=import_module("expunge").__version__,
        summary="Certified machine unlearning: requests, receipts, ledger.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        lifespan=run_beside(workers, readiness),
        telemetry=TELEMETRY,
    )
    app.state.intake = intake
    app.state.readiness = readiness
    app.state.authenticator = Authenticator(registry, settings.rate)
    for part in (requests, letters, people, models, ledger, admin):
        app.include_router(part.api, prefix=PREFIX)
    if processor is not None:
        routes = opendsr.make_router(intake, processor, policy=settings.policy)
        app.include_router(routes)
    app.include_router(make_metrics_router(metrics.render))
    for pages in (
        signin,
        uploads,
        requests,
        letters,
        people,
        models,
        ledger,
        admin,
    ):
        app.include_router(pages.pages)
    if settings.oidc is not None:
        from .oidc import add_provider  # it takes a while to import

        add_provider(app, settings)
    add_files(app)
    add_health(app, readiness)
    install_handlers(app)
    guard(app, settings)
    return app


def run_beside(
    workers: Sequence[Worker], readiness: Readiness
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Return the lifespan: it starts the workers, and stops them on shutdown."""

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        for one in workers:
            one.start()
        yield
        readiness.is_ending = True
        end = monotonic() + DRAIN
        for one in workers:
            await run_in_threadpool(one.close, max(0.0, end - monotonic()))
        readiness.close()

    return run


def guard(app: FastAPI, settings: ServiceSettings) -> None:
    """Put limits, headers and logs around all routes."""
    app.add_middleware(LimitBodies, settings=settings)
    app.add_middleware(AddHeaders, settings=settings)
    app.add_middleware(LogCalls)
    app.add_middleware(ShowCalls)  # around all others, which need the whole call


def add_files(app: FastAPI) -> None:
    """Add what browsers load, and the page that checks a receipt without a network."""
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.get("/check.html", include_in_schema=False)
    async def download_check_page() -> Response:
        name = 'attachment; filename="check.html"'
        return HTMLResponse(make_check_page(), headers={"Content-Disposition": name})


def add_health(app: FastAPI, readiness: Readiness) -> None:
    """Add the routes by which a supervisor sees how the service is."""

    @app.get("/healthz", include_in_schema=False)
    async def tell_alive() -> Response:
        return Response("alive\n", media_type="text/plain")

    @app.get("/readyz", include_in_schema=False)
    async def tell_ready() -> Response:
        is_ready = await readiness.tell()
        word, code = ("ready\n", 200) if is_ready else ("not ready\n", 503)
        return Response(word, code, media_type="text/plain")


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
            f"cannot listen on {host} port {port} ({why}); stop the process that does, "
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
) -> bool:
    """Serve a registry until SIGTERM or SIGINT; finish what is at hand.

    Returns whether it was told to end; otherwise a thread has ended that it needs, and
    it must be started again.

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
    app = create_app(registry, settings)
    config = uvicorn.Config(
        app,
        http=limit_callers(
            header_seconds=settings.header_seconds, body_seconds=settings.body_seconds
        ),
        limit_concurrency=settings.connections,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(DRAIN),
        proxy_headers=True,
    )
    host, port = listener.getsockname()[:2]
    kept = registry.status().head_file
    log(
        "starting",
        host=host,
        port=port,
        window=settings.window,
        head_file=kept or "none, so a folder that is put back whole is not noticed",
    )
    with ignore_signals():
        server = WatchedServer(config, app.state.readiness, notice=settings.notice)
        server.run(sockets=[listener])
    log("ended")
    return not server.has_failed


@contextmanager
def ignore_signals() -> Iterator[None]:
    """Let the process go on after a server that was told to end.

    The server raises the signal again when it is done, which would end the process
    before the registry is closed.
    """
    before = {one: signal.signal(one, lambda *_: None) for one in STOP_SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
