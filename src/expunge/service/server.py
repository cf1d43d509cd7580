# SPDX-License-Identifier: Apache-2.0
"""The server beneath the application: it watches its threads, and slow callers.

A caller who sends a byte a minute costs a connection for as long as they like, and
there are as many connections as a process may have open files. So head and body of a
call have to arrive within some time each, and a connection that is one too many is
closed at once.
"""

import asyncio
import resource
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..registry import Registry
from .logs import log, log_failure
from .problems import MEDIA_TYPE, make_problem
from .workers import Worker

REMEMBERED = 1.0  # seconds for which one test of the disk answers all who ask
PATIENCE = 3.0  # seconds for a test, less than supervisors wait for an answer
OTHER_FILES = 128  # that a process has open beside its connections


class Readiness:
    """Whether requests can be taken in, tested by writing, in a thread of its own.

    Calls that wait for the store fill the threads of the routes, and who asks whether
    the service is ready must not wait for them.
    """

    def __init__(self, registry: Registry, workers: Sequence[Worker]) -> None:
        self._registry = registry
        self._workers = workers
        self._pool = ThreadPoolExecutor(1, "readiness")
        self._test: Future[bool] | None = None
        self._expires = 0.0
        self.is_ending = False

    @property
    def has_all_threads(self) -> bool:
        """Whether every thread lives that should."""
        return all(one.is_alive for one in self._workers)

    async def tell(self) -> bool:
        """Return whether the service is ready."""
        if self.is_ending or not self.has_all_threads:
            return False
        if self._test is None or (self._test.done() and monotonic() > self._expires):
            self._test = self._pool.submit(self._try)
        waiting = asyncio.shield(asyncio.wrap_future(self._test))
        try:
            return await asyncio.wait_for(waiting, PATIENCE)
        except TimeoutError:
            return False

    def _try(self) -> bool:
        try:
            self._registry.try_writing()
            return True
        except Exception as error:
            log_failure(None, error)
            return False
        finally:
            self._expires = monotonic() + REMEMBERED

    def close(self) -> None:
        """End its thread, unless a disk holds it up."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class WatchedServer(uvicorn.Server):
    """A server that ends if a thread has ended, and says first that it will end.

    Parameters
    ----------
    config
        Of uvicorn.
    readiness
        Of the application.
    notice
        Seconds between when it is not ready any more and when it stops listening, so
        that a proxy can send callers elsewhere.
    """

    def __init__(
        self, config: uvicorn.Config, readiness: Readiness, *, notice: float
    ) -> None:
        super().__init__(config)
        self._readiness = readiness
        self._notice = notice
        self._end: float | None = None
        self.has_failed = False

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end; called ten times a second."""
        if not self._readiness.has_all_threads:
            log("thread ended")
            self.has_failed = True
            self._readiness.is_ending = True
            return True
        if not await super().on_tick(counter):
            return False
        if self._end is None:
            self._readiness.is_ending = True
            self._end = monotonic() + self._notice
        return self.force_exit or monotonic() >= self._end


def count_connections() -> int:
    """Return how many connections the limit of open files leaves room for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 20
    return max(soft - OTHER_FILES, soft // 2)


class PatientProtocol(H11Protocol):
    """A connection whose caller has some seconds for a head, and some for a body.

    The server itself waits for ever for the rest of a head or a body.
    """

    header_seconds = 10.0
    body_seconds = 60.0
    most_connections = 1 << 20

    _timer: asyncio.TimerHandle | None = None
    _phase: tuple[Any, Any] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head; close one connection too many."""
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            # Before the system refuses more: then nobody at all could be answered.
            transport.abort()
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        self._stop_watching()

    def data_received(self, data: bytes) -> None:
        """Read, and see what is to come next."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Go on with the next call, and see what is to come."""
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Wait for the end of a head or a body, from its beginning on."""
        state = self.conn.their_state
        phase = (state, self.cycle)  # each call has a cycle of its own
        if phase == self._phase:
            return
        self._stop_watching()
        seconds = {h11.IDLE: self.header_seconds, h11.SEND_BODY: self.body_seconds}
        # Between two calls the server itself waits, and not for long.
        is_idle = state is h11.IDLE and self.timeout_keep_alive_task is not None
        if state in seconds and not is_idle and not self.transport.is_closing():
            self._phase = phase
            self._timer = self.loop.call_later(seconds[state], self._give_up)

    def _stop_watching(self) -> None:
        self._phase = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        """Close the connection, and tell a caller who began to send why."""
        has_begun = self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]
        if has_begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            part, seconds = (
                ("body", self.body_seconds)
                if self.conn.their_state is h11.SEND_BODY
                else ("head", self.header_seconds)
            )
            problem = make_problem(
                408,
                f"the {part} of the call took longer than {seconds:g} seconds; send "
                "it faster, or less at once",
            )
            headers = [
                ("content-type", MEDIA_TYPE),
                ("content-length", str(len(problem.body))),
                ("cache-control", "no-store"),
                ("connection", "close"),
            ]
            reply = h11.Response(status_code=408, headers=headers, reason=b"Timeout")
            for event in (
                reply,
                h11.Data(data=bytes(problem.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None:
            self.cycle.disconnected = True  # it must not answer a second time
        self.transport.close()


def limit_callers(
    *, header_seconds: float, body_seconds: float
) -> type[PatientProtocol]:
    """Return the protocol with these limits."""
    limits = {
        "header_seconds": header_seconds,
        "body_seconds": body_seconds,
        "most_connections": count_connections(),
    }
    return type("LimitedProtocol", (PatientProtocol,), limits)
