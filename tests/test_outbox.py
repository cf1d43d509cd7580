# SPDX-License-Identifier: Apache-2.0
"""What is told to others, when, and that nothing is lost on the way."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from time import time

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from expunge.registry import Callback, Delivery, Registry, Request
from expunge.service.outbound import Message, Outbox, Policy
from expunge.service.outbound.outbox import NOT_COMPOSED
from expunge.service.outbound.sending import Network
from expunge.service.windows import ShownRequest, Windows, format_moment
from tests.opendsr_service import Clock
from tests.receivers import Answer, Received, Receiver, receiving
from tests.registries import DAY, PATIENCE, SECOND, Window, folder_of, registry_at
from tests.test_deliveries import counts

WINDOWS = Windows(900)
LOCAL = Network(resolve=lambda host, port: ["127.0.0.1"])
HOST = "hooks.example.com"


def compose(delivery: Delivery, shown: ShownRequest) -> Message:
    """Return a message as a protocol would."""
    said = {"url": delivery.url, "state": shown.state, "secret": delivery.secret}
    return Message({"Content-Type": "application/json"}, json.dumps(said).encode())


@dataclass
class Bench:
    """A registry, a receiver, and a clock that the test moves."""

    registry: Registry
    receiver: Receiver
    clock: Clock
    windows: Windows = WINDOWS

    def outbox(self, *receivers: Receiver) -> Outbox:
        """Return an outbox that may call these receivers."""
        ports = tuple(one.port for one in (self.receiver, *receivers))
        policy = Policy(("*.example.com",), ports, allow_private=True)
        return Outbox(
            self.registry,
            policy,
            windows=self.windows,
            composers={"opendsr": compose},
            network=LOCAL,
        )

    @property
    def window(self) -> Window:
        """The window that is open."""
        return self.windows.at(self.clock.time)

    def file(self, *paths: str, person: str = "person 1") -> str:
        """Send a request with callbacks to the receiver."""
        asked = Request((person,), window=self.windows.seconds)
        self.registry.deliveries.add_callbacks(
            [Callback(asked.request, self.url(path), "opendsr") for path in paths]
        )
        self.registry.requests.accept([asked], strangers=True)
        return asked.request

    def url(self, path: str = "/", host: str = HOST) -> str:
        return f"http://{host}:{self.receiver.port}{path}"

    def tell(self, moment: int = 0) -> list[str]:
        """Let it be a moment, queue and send; return the states that arrive."""
        self.clock.time = moment or self.clock.time
        before = len(self.receiver.received)
        outbox = self.outbox()
        outbox.queue_changes(self.clock.time)
        outbox.send_due(self.clock.time)
        return [states(one) for one in self.receiver.received[before:]]


def states(message: Received) -> str:
    """Return what a message says."""
    said = json.loads(message.body)
    return str(said.get("state") or said["type"])


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Lend a bench whose registry has no models."""
    clock = Clock()
    clock.install(monkeypatch)
    with (
        Registry.create(tmp_path / "registry") as registry,
        receiving(None) as receiver,
    ):
        yield Bench(registry, receiver, clock)


@pytest.fixture
def fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Lend a bench whose registry has two models."""
    clock = Clock()
    clock.install(monkeypatch)
    with registry_at(tmp_path / "registry") as registry, receiving(None) as receiver:
        yield Bench(registry, receiver, clock)


class TestCallbacks:
    def test_each_state_is_told_when_it_is_shown(self, bench: Bench) -> None:
        bench.clock.time += 5 * SECOND
        bench.file("/a")
        window = bench.window
        assert bench.tell() == bench.tell(window.close - 1) == []
        assert bench.tell(window.close) == ["in_progress"]
        bench.registry.requests.apply()
        assert bench.tell(window.answer - 1) == []
        assert bench.tell(window.answer) == ["completed"]
        assert bench.tell(window.answer + PATIENCE) == []
        assert counts(bench.registry) == {"delivered": 2}

    def test_a_slow_answer_is_told_with_a_later_window(self, bench: Bench) -> None:
        bench.file("/a")
        window = bench.window
        bench.tell(window.close)
        assert bench.tell(window.answer) == []
        bench.clock.time = window.answer + 1
        bench.registry.requests.apply()
        assert bench.tell() == []
        later = window.answer + 900 * SECOND
        assert bench.tell(later - 1) == []
        assert bench.tell(later) == ["completed"]

    def test_an_answer_before_its_window_closes_is_not_told_before(
        self, bench: Bench
    ) -> None:
        bench.file("/a")
        window = bench.window
        bench.registry.requests.apply(before=window.close)
        assert bench.tell(window.close - 1) == []
        assert bench.tell(window.close) == ["in_progress"]
        assert bench.tell(window.answer) == ["completed"]

    def test_a_cancellation_is_told_at_once(self, bench: Bench) -> None:
        request = bench.file("/a", "/b")
        assert bench.tell() == []
        bench.registry.requests.cancel(request)
        assert bench.tell() == ["cancelled", "cancelled"]
        assert bench.tell(bench.window.answer) == []

    def test_after_a_pause_the_last_state_is_told_alone(self, bench: Bench) -> None:
        bench.file("/a")
        window = bench.window
        bench.registry.requests.apply(before=window.close)
        assert bench.tell(window.answer + DAY) == ["completed"]

    def test_a_state_that_failed_is_overtaken_by_the_last(self, bench: Bench) -> None:
        bench.file("/a")
        window = bench.window
        bench.receiver.answer = lambda message: Answer(500)
        assert bench.tell(window.close) == ["in_progress"]
        bench.registry.requests.apply()
        bench.receiver.answer = lambda message: Answer(202)
        assert bench.tell(window.answer) == ["completed"]
        assert bench.tell(window.answer + DAY) == []

    def test_a_failure_is_tried_again_with_the_same_words(self, bench: Bench) -> None:
        bench.file("/a")
        window = bench.window
        bench.receiver.answer = lambda message: Answer(400)
        assert bench.tell(window.close) == ["in_progress"]
        bench.receiver.answer = lambda message: Answer(202)
        assert bench.tell(window.close + 5 * SECOND - 1) == []
        assert bench.tell(window.close + 5 * SECOND) == ["in_progress"]
        first, second = bench.receiver.received
        assert first.body == second.body

    def test_known_and_unknown_people_are_told_of_alike(self, fitted: Bench) -> None:
        fitted.file("/a", person="person 1")
        fitted.file("/b", person="stranger")
        window = fitted.window
        fitted.tell(window.close)
        fitted.registry.requests.apply()
        assert fitted.tell(window.answer - 1) == []
        fitted.tell(window.answer)
        told = {
            path: [
                (states(one), len(one.body))
                for one in fitted.receiver.received
                if one.path == path
            ]
            for path in ("/a", "/b")
        }
        assert len(told["/a"]) == 2
        assert told["/a"] == told["/b"]

    def test_a_form_that_nobody_composes_waits(self, bench: Bench) -> None:
        asked = Request(("person 1",))
        odd = Callback(asked.request, bench.url(), "pigeon")
        bench.registry.deliveries.add_callbacks([odd])
        bench.registry.requests.accept([asked], strangers=True)
        assert bench.tell(bench.window.close) == []
        (line,) = bench.registry.deliveries.page().lines
        assert (line.state, line.last) == ("waiting", NOT_COMPOSED)

    def test_many_are_queued_in_pieces(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("expunge.service.outbound.outbox.MOST", 3)
        for _ in range(8):
            bench.file("/a")
        assert bench.tell(bench.window.close) == ["in_progress"] * 8


class TestChangedWindows:
    """What was promised holds, whatever the setting is by then."""

    @pytest.mark.parametrize("when", ["pending", "closed", "applied", "queued"])
    @pytest.mark.parametrize(
        ("before", "after"), [(900, 60), (900, 1), (900, 86_400), (60, 900)]
    )
    def test_nothing_is_lost_or_told_at_another_moment(
        self, fitted: Bench, before: int, after: int, when: str
    ) -> None:
        fitted.registry.deliveries.add_endpoint(
            fitted.url("/hook"), ["request.completed"]
        )
        fitted.windows = Windows(before)
        fitted.clock.time += 5 * SECOND
        window = fitted.window
        asked = [fitted.file(f"/{n}", person=f"person {n}") for n in range(3)]
        steps: dict[str, Callable[[], object]] = {
            "pending": lambda: fitted.tell(),
            "closed": lambda: fitted.tell(window.close),
            "applied": fitted.registry.requests.apply,
            "queued": lambda: fitted.tell(window.answer - 1),
        }
        for name, step in steps.items():
            step()
            if name == when:
                fitted.windows = Windows(after)
        told = [states(one) for one in fitted.receiver.received]
        assert told == ["in_progress"] * 3
        fitted.tell(window.answer)
        found = [states(one) for one in fitted.receiver.received[3:]]
        assert sorted(found) == ["completed"] * 3 + ["request.completed"] * 3
        bodies = [json.loads(one.body) for one in fitted.receiver.received[3:]]
        data = [one["data"] for one in bodies if "data" in one]
        assert sorted(one["request"] for one in data) == sorted(asked)
        assert {(one["received"], one["answered"]) for one in data} == {
            (format_moment(window.start), format_moment(window.answer))
        }
        assert fitted.tell(window.answer + DAY) == []

    def test_a_command_has_no_window(self, fitted: Bench) -> None:
        """Its answer is told at the next moment of answers that there is then."""
        fitted.registry.deliveries.add_endpoint(fitted.url(), ["request.completed"])
        fitted.clock.time += 5 * SECOND
        fitted.registry.forget(["person 1"])
        assert fitted.tell() == []
        moment = fitted.windows.next_answer(fitted.clock.time)
        fitted.windows = Windows(60)
        assert fitted.tell(moment - 1) == []
        assert fitted.tell(moment) == ["request.completed"]


class TestWebhooks:
    def test_a_receiver_can_verify_them(self, bench: Bench) -> None:
        bench.clock.time = round(time() * SECOND)  # the verifier has a clock of its own
        _, secret = bench.registry.deliveries.add_endpoint(bench.url("/hook"))
        request = bench.file()
        bench.registry.requests.cancel(request)
        assert bench.tell() == ["request.cancelled"]
        (message,) = bench.receiver.received
        said = Webhook(secret).verify(message.body, message.headers)
        assert (said["type"], said["data"]["request"]) == (
            "request.cancelled",
            request,
        )
        with pytest.raises(WebhookVerificationError):
            altered = message.body.replace(b"erase", b"other")
            Webhook(secret).verify(altered, message.headers)

    def test_events_come_at_the_moments_of_answers(
        self, fitted: Bench, tmp_path: Path
    ) -> None:
        fitted.registry.deliveries.add_endpoint(fitted.url("/hook"))
        fitted.registry.models.ship("all", tmp_path / "all.safetensors")
        fitted.clock.time += 7 * SECOND
        fitted.file(person="person 1")
        window = fitted.window
        fitted.clock.time = window.close + 3 * SECOND
        fitted.registry.requests.apply()
        assert fitted.tell() == fitted.tell(window.answer - 1) == []
        assert fitted.registry.deliveries.page().lines == ()
        assert sorted(fitted.tell(window.answer)) == [
            "release.made",
            "release.made",
            "release.recalled",
            "request.completed",
        ]
        moment = "2026-03-02T12:16:30Z"
        bodies = [json.loads(one.body) for one in fitted.receiver.received]
        assert {one["timestamp"] for one in bodies} == {moment}
        data = {one["type"]: one["data"] for one in bodies}
        assert data["request.completed"]["answered"] == moment
        assert data["request.completed"]["received"] == "2026-03-02T12:00:00Z"
        assert {*data["release.recalled"]} == {
            *("model", "release", "certificate", "successor", "day")
        }

    def test_they_do_not_tell_who_was_known(self, fitted: Bench) -> None:
        fitted.registry.deliveries.add_endpoint(
            fitted.url("/hook"), ["request.completed"]
        )
        known = fitted.file(person="person 1")
        stranger = fitted.file(person="stranger")
        window = fitted.window
        fitted.registry.requests.apply(before=window.close)
        fitted.tell(window.answer)
        known_body, stranger_body = (
            next(one for one in fitted.receiver.received if id_.encode() in one.body)
            for id_ in (known, stranger)
        )
        assert (
            known_body.body.replace(known.encode(), stranger.encode())
            == stranger_body.body
        )
        assert {*known_body.headers} == {*stranger_body.headers}

    def test_only_what_was_asked_for_is_told(self, bench: Bench) -> None:
        bench.registry.deliveries.add_endpoint(bench.url(), ["request.cancelled"])
        bench.file()
        request = bench.file()
        bench.registry.requests.cancel(request)
        bench.registry.requests.apply()
        assert bench.tell(bench.window.answer) == ["request.cancelled"]

    def test_overdue_requests_are_told_of_in_the_morning(self, bench: Bench) -> None:
        bench.registry.deliveries.add_endpoint(bench.url(), ["request.overdue"])
        bench.file()
        assert bench.tell(bench.clock.time + 31 * DAY) == []
        assert bench.tell(bench.clock.time + DAY) == ["request.overdue"]
        assert bench.tell(bench.clock.time + DAY) == []
        body = json.loads(bench.receiver.received[0].body)
        assert body["timestamp"] == "2026-04-03T00:00:00Z"
        assert body["data"]["deadline"] == "2026-04-02"

    def test_gone_is_the_end(self, bench: Bench) -> None:
        bench.registry.deliveries.add_endpoint(bench.url())
        bench.registry.requests.cancel(bench.file())
        bench.receiver.answer = lambda message: Answer(410)
        assert bench.tell() == ["request.cancelled"]
        assert bench.tell(bench.clock.time + DAY) == []
        (line,) = bench.registry.deliveries.page("given_up").lines
        bench.receiver.answer = lambda message: Answer(200)
        bench.registry.deliveries.replay(line.id)
        assert bench.tell() == ["request.cancelled"]
        first, second = bench.receiver.received
        assert first.body == second.body
        assert first.headers["webhook-id"] == second.headers["webhook-id"] == line.id
        assert first.headers["webhook-signature"] != second.headers["webhook-signature"]


class TestSending:
    def test_a_slow_host_does_not_hold_up_the_others(self, bench: Bench) -> None:
        released = Event()
        with receiving(None) as slow:
            slow.answer = lambda message: Answer(204 if released.wait(30) else 500)
            for i in range(20):
                asked = Request(("person 1",))
                urls = [f"http://slow.example.com:{slow.port}/{i}", bench.url(f"/{i}")]
                bench.registry.deliveries.add_callbacks(
                    [Callback(asked.request, url, "opendsr") for url in urls]
                )
                bench.registry.requests.accept([asked], strangers=True)
            bench.clock.time = bench.window.close
            outbox = bench.outbox(slow)
            outbox.start()
            assert outbox.is_alive
            bench.receiver.wait_for(20)
            assert 0 < len(slow.received) < 20
            released.set()
            slow.wait_for(20)
            outbox.close(30)
            assert not outbox.is_alive
        assert counts(bench.registry) == {"delivered": 40}

    def test_a_host_that_fails_is_called_one_at_a_time(self, bench: Bench) -> None:
        lock, running, most = Lock(), Counter[str](), [0]

        def answer(message: Received) -> Answer:
            with lock:
                running["now"] += 1
                most.append(running["now"])
            Event().wait(0.01)
            with lock:
                running["now"] -= 1
            return Answer(503)

        bench.receiver.answer = answer
        for i in range(12):
            bench.file(f"/{i}")
        assert len(bench.tell(bench.window.close)) == 12
        assert max(most[:3]) <= 2 and max(most[4:]) == 1

    def test_two_processes_send_each_message_once(self, bench: Bench) -> None:
        for i in range(60):
            bench.file(f"/{i}")
        bench.clock.time = bench.window.close
        with Registry.open(folder_of(bench.registry)) as other:
            elsewhere = Bench(other, bench.receiver, bench.clock)
            outboxes = bench.outbox(), elsewhere.outbox()
            for outbox in outboxes:
                outbox.start()
            bench.receiver.wait_for(60)
            for outbox in outboxes:
                outbox.close(30)
        paths = Counter(one.path for one in bench.receiver.received)
        assert len(paths) == 60 and set(paths.values()) == {1}
        assert counts(bench.registry) == {"delivered": 60}

    def test_what_a_killed_process_sent_is_sent_again(self, bench: Bench) -> None:
        bench.registry.deliveries.add_endpoint(bench.url("/hook"))
        bench.registry.requests.cancel(bench.file())
        arrived = Event()
        child: list[subprocess.Popen[bytes]] = []

        def kill(message: Received) -> Answer:
            arrived.wait(30)
            os.kill(child[0].pid, signal.SIGKILL)  # it was sent, and is not noted
            child[0].wait()
            return Answer(204)

        bench.receiver.answer = kill
        folder = str(folder_of(bench.registry))
        words = [sys.executable, "-c", SENDER, folder, str(bench.receiver.port)]
        child.append(subprocess.Popen([*words, str(bench.clock.time)]))
        arrived.set()
        child[0].wait()
        assert child[0].returncode == -signal.SIGKILL
        bench.receiver.answer = lambda message: Answer(204)
        assert bench.tell(bench.clock.time + 59 * SECOND) == []
        assert bench.tell(bench.clock.time + SECOND) == ["request.cancelled"]
        first, second = bench.receiver.received
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert counts(bench.registry) == {"delivered": 1}

    def test_an_outbox_survives_a_store_that_is_away(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.registry.requests.cancel(bench.file("/a"))
        outbox, failed = bench.outbox(), Event()
        queue = outbox.queue_changes

        def fail_once(now: int) -> int:
            if failed.is_set():
                return queue(now)
            failed.set()
            raise OSError

        monkeypatch.setattr(outbox, "queue_changes", fail_once)
        outbox.start()
        bench.receiver.wait_for(1)
        outbox.close(30)
        assert counts(bench.registry) == {"delivered": 1}


SENDER = """
import sys
from expunge.registry import Registry
from expunge.service.outbound import Outbox, Policy
from expunge.service.outbound.sending import Network
from expunge.service.windows import Windows

folder, port, time = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
policy = Policy(("hooks.example.com",), (port,), allow_private=True)
with Registry.open(folder) as registry:
    local = Network(resolve=lambda host, port: ["127.0.0.1"])
    outbox = Outbox(
        registry, policy, windows=Windows(900), composers={}, network=local
    )
    outbox.queue_changes(time)
    outbox.send_due(time)
"""
