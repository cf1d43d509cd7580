# SPDX-License-Identifier: Apache-2.0
"""Outbox: the thread that queues what changed and sends what is due.

Everything is in the store before it is sent, and is noted after it was: a process that
is killed in between sends again, never too little. Several processes may send; each
claims what it sends. Several messages are sent at once, but to a host that fails only
one at a time, so that it does not hold up the others.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeAlias

from ...exceptions import UnknownRequest
from ...registry import Delivery, Outcome, Registry, RequestStatus
from ...registry.deliveries import WEBHOOK
from ...registry.now import now as read_clock
from ..logs import log_failure
from ..windows import ShownRequest, Windows, show_at
from ..workers import BackgroundThread, choose_pause
from .events import compose_webhook, plan_messages
from .policy import Policy
from .sending import SYSTEM, Message, Network, post

Composer: TypeAlias = Callable[[Delivery, ShownRequest], Message]
"""Makes the message of a callback.

The delivery has the address and its secret. The request is shown in the state that is
told, though by now it may be further.
"""

AT_ONCE = 16
AT_FIRST, MOST_A_HOST = 2, 8
TICK = 0.5  # seconds between two looks
MOST = 1000  # changes queued in one transaction
NOT_COMPOSED = "not composed"


@dataclass(slots=True)
class _Load:
    """How many messages a host is being sent, and how many it may be."""

    running: int = 0
    most: int = AT_FIRST

    def finish(self, success: bool) -> None:
        """Note that one ended."""
        self.running -= 1
        self.most = min(self.most + 1, MOST_A_HOST) if success else 1


class Outbox(BackgroundThread):
    """Queues what changed and sends what is due.

    Parameters
    ----------
    registry
        Whose news is sent.
    policy
        Whom the service may call.
    windows
        When what no request's own window decides may be seen.
    composers
        By the form of a callback, what makes its message.
    network
        How names become addresses, and addresses sockets.
    """

    def __init__(
        self,
        registry: Registry,
        policy: Policy,
        *,
        windows: Windows,
        composers: Mapping[str, Composer],
        network: Network = SYSTEM,
    ) -> None:
        super().__init__("outbox")
        self._deliveries = registry.deliveries
        self._requests = registry.requests
        self._policy = policy
        self._windows = windows
        self._composers = composers
        self._network = network
        self._loads: dict[str, _Load] = {}
        self._running: dict[Future[Outcome], Delivery] = {}
        self._unnoted: dict[str, Outcome] = {}

    def queue_changes(self, now: int) -> int:
        """Queue what changed and may be seen by now; return how many messages."""
        n_queued = 0
        while True:
            pending = self._deliveries.pending(now, most=MOST)
            messages, looks = plan_messages(pending, self._windows, now=now)
            if looks or pending.events or pending.day:
                self._deliveries.queue(pending, messages, looks=looks)
            n_queued += len(messages)
            if max(len(pending.callbacks), len(pending.events)) < MOST:
                return n_queued

    def send_due(self, now: int) -> int:
        """Send everything that is due; return how many were delivered."""
        n_delivered = 0
        with ThreadPoolExecutor(AT_ONCE, "expunge outbox") as pool:
            while self._start(pool, now) or self._running:
                n_delivered += self._finish(now)
        return n_delivered

    def _run(self) -> None:
        """Queue and send until told to stop; then finish what is under way."""
        stop, n_failures = self._stop, 0
        with ThreadPoolExecutor(AT_ONCE, "expunge outbox") as pool:
            while not stop.is_set():
                try:
                    self._turn(pool)
                    pause, n_failures = 0.0 if self._running else TICK, 0
                except Exception as error:  # everything is still in the store
                    log_failure(None, error)
                    n_failures += 1
                    pause = choose_pause(n_failures)
                stop.wait(pause)
            while self._running:
                try:
                    self._finish(read_clock())
                except Exception as error:
                    log_failure(None, error)

    def _turn(self, pool: ThreadPoolExecutor) -> None:
        """Queue what changed, start what is due, and note what ended."""
        now = read_clock()
        self.queue_changes(now)
        self._start(pool, now)
        if self._running or self._unnoted:
            self._finish(read_clock())

    def _start(self, pool: ThreadPoolExecutor, now: int) -> int:
        """Begin to send what is due, as far as there is room; return how many."""
        n_started = 0
        for host in self._deliveries.due_hosts(now):
            load = self._loads.setdefault(host, _Load())
            room = min(load.most - load.running, AT_ONCE - len(self._running))
            if room <= 0:
                continue
            claimed = self._deliveries.claim(host, now=now, most=room)
            asked = [one.request for one in claimed if one.form != WEBHOOK]
            statuses = self._requests.statuses(asked) if asked else {}
            for delivery in claimed:
                status = statuses.get(delivery.request)
                load.running += 1
                self._running[pool.submit(self._send, delivery, status)] = delivery
            n_started += len(claimed)
        return n_started

    def _send(self, delivery: Delivery, status: RequestStatus | None) -> Outcome:
        """Compose and send; whatever goes wrong is an outcome."""
        try:
            message = self._compose(delivery, status)
            return post(
                delivery.url, message, policy=self._policy, network=self._network
            )
        except Exception as error:
            log_failure(None, error)
            return Outcome(None, NOT_COMPOSED)

    def _compose(self, delivery: Delivery, status: RequestStatus | None) -> Message:
        if delivery.form == WEBHOOK:
            return compose_webhook(delivery)
        if status is None:
            raise UnknownRequest(f"request {delivery.request} is not known here")
        shown = show_at(status, delivery.since)  # as it is to be told
        return self._composers[delivery.form](delivery, shown)

    def _finish(self, now: int) -> int:
        """Wait for something to end, and note it; return how many did."""
        done, _ = wait(self._running, timeout=TICK, return_when=FIRST_COMPLETED)
        for future in done:
            delivery, outcome = self._running.pop(future), future.result()
            self._unnoted[delivery.id] = outcome
            self._loads[delivery.host].finish(outcome.is_success)
        n_delivered = sum(one.is_success for one in self._unnoted.values())
        if self._unnoted:
            self._deliveries.note(self._unnoted, now=now)
            self._unnoted = {}
        return n_delivered
