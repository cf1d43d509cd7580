# SPDX-License-Identifier: Apache-2.0
"""One call to somebody else: only to whom the policy allows, over real sockets."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from expunge.registry import Outcome
from expunge.service.outbound import sending
from expunge.service.outbound.policy import Policy
from expunge.service.outbound.sending import Message, Network, post
from tests.receivers import HOST, Answer, Authority, Receiver, receiving

MESSAGE = Message({"Content-Type": "application/json"}, b'{"a":1}')
LOCAL = Network(resolve=lambda host, port: ["127.0.0.1"])
PUBLIC = "93.184.216.34"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def receiver(authority: Authority) -> Iterator[Receiver]:
    with receiving(authority.serve(HOST, "127.0.0.1")) as receiver:
        yield receiver


@pytest.fixture
def policy(authority: Authority, receiver: Receiver) -> Policy:
    return Policy(
        (HOST, "127.0.0.1", "other.example.com"),
        ports=(receiver.port,),
        allow_private=True,
        authorities=authority.file,
    )


def public(policy: Policy, **changes: Any) -> Policy:
    """Return a policy without private addresses."""
    given = {"ports": policy.ports, "authorities": policy.authorities, **changes}
    return Policy(policy.hosts, **given)


def test_a_message_arrives_as_it_was_composed(
    receiver: Receiver, policy: Policy
) -> None:
    outcome = post(receiver.url("/a?b=c"), MESSAGE, policy=policy, network=LOCAL)
    assert outcome.status == 204 and outcome.is_success
    (message,) = receiver.received
    assert (message.path, message.body) == ("/a?b=c", b'{"a":1}')
    assert message.headers["content-type"] == "application/json"
    assert message.headers["host"] == f"{HOST}:{receiver.port}"
    assert message.headers["content-length"] == "7"


def test_an_address_may_be_numeric(receiver: Receiver, policy: Policy) -> None:
    assert post(receiver.url(host="127.0.0.1"), MESSAGE, policy=policy).is_success


def test_the_environment_has_no_say(
    receiver: Receiver, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert post(receiver.url(), MESSAGE, policy=policy, network=LOCAL).is_success


@pytest.mark.parametrize("status", [200, 202, 299])
def test_any_status_from_200_to_299_is_a_success(
    receiver: Receiver, policy: Policy, status: int
) -> None:
    receiver.answer = lambda message: Answer(status)
    assert post(receiver.url(), MESSAGE, policy=policy, network=LOCAL).is_success


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(
    receiver: Receiver, policy: Policy, status: int
) -> None:
    there = {"Location": receiver.url("/elsewhere")}
    receiver.answer = lambda message: Answer(status, there)
    outcome = post(receiver.url(), MESSAGE, policy=policy, network=LOCAL)
    assert outcome.status == status and not outcome.is_success
    assert [one.path for one in receiver.received] == ["/"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("17", 17),
        ("999999999999", 86_400),
        ("soon", 0),
        ("-5", 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 99999999999999999999 07:28:00 GMT", 0),
    ],
)
def test_retry_after_is_read(
    receiver: Receiver, policy: Policy, text: str, seconds: int
) -> None:
    receiver.answer = lambda message: Answer(503, {"Retry-After": text})
    outcome = post(receiver.url(), MESSAGE, policy=policy, network=LOCAL)
    assert (outcome.status, outcome.wait) == (503, seconds)


def test_retry_after_may_be_a_date(receiver: Receiver, policy: Policy) -> None:
    later = datetime.now(UTC) + timedelta(days=9)
    headers = {"Retry-After": format_datetime(later, usegmt=True)}
    receiver.answer = lambda message: Answer(503, headers)
    outcome = post(receiver.url(), MESSAGE, policy=policy, network=LOCAL)
    assert outcome.wait == 86_400


def test_a_long_answer_is_dropped(receiver: Receiver, policy: Policy) -> None:
    receiver.answer = lambda message: Answer(200, body=b"x" * (1 << 22))
    assert post(receiver.url(), MESSAGE, policy=policy, network=LOCAL).is_success


class TestRefused:
    """Nothing of these reaches the receiver."""

    @pytest.fixture(autouse=True)
    def untouched(self, receiver: Receiver) -> Iterator[None]:
        yield
        assert receiver.received == []

    @pytest.mark.parametrize("hosts", [(), ("example.com",), ("*.hooks.example.com",)])
    def test_a_host_that_is_not_listed(
        self, receiver: Receiver, policy: Policy, hosts: tuple[str, ...]
    ) -> None:
        narrow = Policy(hosts, ports=policy.ports, allow_private=True)
        outcome = post(receiver.url(), MESSAGE, policy=narrow, network=LOCAL)
        assert outcome.failure == sending.NOT_ALLOWED

    def test_a_port_that_is_not_listed(
        self, receiver: Receiver, policy: Policy
    ) -> None:
        usual = public(policy, ports=(443,), allow_private=True)
        outcome = post(receiver.url(), MESSAGE, policy=usual, network=LOCAL)
        assert outcome.failure == sending.NOT_ALLOWED

    def test_a_name_that_leads_to_a_private_address(
        self, receiver: Receiver, policy: Policy
    ) -> None:
        outcome = post(receiver.url(), MESSAGE, policy=public(policy), network=LOCAL)
        assert outcome.failure == sending.PRIVATE_PEER

    def test_a_private_peer_behind_a_public_name(
        self, receiver: Receiver, policy: Policy
    ) -> None:
        # The resolver says one thing, and the connection leads to another.
        def connect(address: str, port: int, *, seconds: float) -> socket.socket:
            assert address == PUBLIC
            return socket.create_connection(("127.0.0.1", port), seconds)

        astray = Network(lambda host, port: [PUBLIC], connect)
        outcome = post(receiver.url(), MESSAGE, policy=public(policy), network=astray)
        assert outcome.failure == sending.PRIVATE_PEER

    def test_a_name_that_is_public_first_and_private_later(
        self, receiver: Receiver, policy: Policy
    ) -> None:
        answers = iter([[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]])
        asked: list[str] = []

        def resolve(host: str, port: int) -> list[str]:
            asked.append(host)
            return next(answers)

        def connect(address: str, port: int, *, seconds: float) -> socket.socket:
            assert address == PUBLIC  # what was checked is what is connected to
            raise ConnectionRefusedError

        rebound = Network(resolve, connect)
        outcome = post(receiver.url(), MESSAGE, policy=public(policy), network=rebound)
        assert (outcome.failure, len(asked)) == (sending.NOT_REACHED, 1)
        outcome = post(receiver.url(), MESSAGE, policy=public(policy), network=rebound)
        assert outcome.failure == sending.PRIVATE_PEER

    def test_a_certificate_for_another_name(
        self, receiver: Receiver, policy: Policy
    ) -> None:
        url = receiver.url(host="other.example.com")
        outcome = post(url, MESSAGE, policy=policy, network=LOCAL)
        assert outcome.failure == sending.NOT_TRUSTED

    def test_a_certificate_that_nobody_trusts(
        self, receiver: Receiver, policy: Policy
    ) -> None:
        stranger = public(policy, allow_private=True, authorities=None)
        outcome = post(receiver.url(), MESSAGE, policy=stranger, network=LOCAL)
        assert outcome.failure == sending.NOT_TRUSTED

    def test_a_name_that_nobody_has(self, receiver: Receiver, policy: Policy) -> None:
        def resolve(host: str, port: int) -> list[str]:
            raise socket.gaierror(-2, "unknown")

        outcome = post(receiver.url(), MESSAGE, policy=policy, network=Network(resolve))
        assert outcome.failure == sending.NO_ADDRESS

    def test_a_header_with_a_line_break(
        self, receiver: Receiver, policy: Policy
    ) -> None:
        forged = Message({"X": "1\r\nHost: elsewhere"}, b"")
        outcome = post(receiver.url(), forged, policy=policy, network=LOCAL)
        assert outcome.failure == sending.NO_ANSWER


class TestPlainHttp:
    def test_only_to_loopback_and_only_where_allowed(self) -> None:
        with receiving(None) as receiver:
            url = f"http://127.0.0.1:{receiver.port}/"
            open_policy = Policy(
                ("127.0.0.1", HOST), ports=(receiver.port,), allow_private=True
            )
            assert post(url, MESSAGE, policy=open_policy).is_success
            strict = Policy(("127.0.0.1",), ports=(receiver.port,))
            assert post(url, MESSAGE, policy=strict).failure == sending.NOT_ALLOWED
            private = Network(lambda host, port: ["10.0.0.1"])
            away = f"http://{HOST}:{receiver.port}/"
            outcome = post(away, MESSAGE, policy=open_policy, network=private)
            assert outcome.failure == sending.PRIVATE_PEER
            assert len(receiver.received) == 1


@contextmanager
def serving(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """Lend the port of a server that behaves as told with its first caller."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            server.settimeout(10)
            with suppress(TimeoutError):
                caller, _ = server.accept()
                with caller:
                    behave(caller)

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def post_to(port: int, seconds: float, scheme: str = "http") -> Outcome:
    """Call a server on this machine."""
    policy = Policy(("127.0.0.1",), (port,), allow_private=True, seconds=seconds)
    return post(f"{scheme}://127.0.0.1:{port}/", MESSAGE, policy=policy)


def trickle(caller: socket.socket) -> None:
    """Send a byte of an endless header at a time, each well within a time limit."""
    caller.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        try:
            caller.sendall(b"x")
        except OSError:
            return
        time.sleep(0.02)


def stall(caller: socket.socket) -> None:
    """Say nothing until the caller hangs up."""
    with suppress(ConnectionResetError):
        while caller.recv(1 << 16):
            pass


def test_the_whole_call_has_a_time_limit() -> None:
    with serving(trickle) as port:
        outcome = post_to(port, 0.3)
        assert outcome.failure == sending.TOO_SLOW


def test_a_receiver_that_says_nothing_is_too_slow() -> None:
    with serving(stall) as port:
        outcome = post_to(port, 0.3)
        assert outcome.failure == sending.TOO_SLOW


def test_a_handshake_that_never_ends_is_too_slow() -> None:
    with serving(stall) as port:
        outcome = post_to(port, 0.3, scheme="https")
        assert outcome.failure == sending.TOO_SLOW


def test_a_slow_resolver_is_not_waited_for() -> None:
    until = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        until.wait(30)
        return ["127.0.0.1"]

    policy = Policy((HOST,), seconds=0.2)
    outcome = post(f"https://{HOST}/", MESSAGE, policy=policy, network=Network(resolve))
    until.set()
    assert outcome.failure == sending.TOO_SLOW


@pytest.mark.parametrize(
    ("said", "failure"),
    [
        (b"SSH-2.0-OpenSSH\r\n", sending.NO_ANSWER),
        (b"", sending.NO_ANSWER),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200, sending.NO_ANSWER),
    ],
)
def test_what_is_no_http_is_no_answer(said: bytes, failure: str) -> None:
    def behave(caller: socket.socket) -> None:
        caller.recv(1 << 16)
        caller.sendall(said)

    with serving(behave) as port:
        outcome = post_to(port, 5)
        assert outcome.failure == failure


def reset(caller: socket.socket) -> None:
    """Hang up on a request, so hard that the other side's next call fails."""
    caller.recv(1)
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_who_hangs_up_on_a_request_was_reached() -> None:
    with serving(reset) as port:
        outcome = post_to(port, 5)
        assert outcome.failure == sending.NO_ANSWER


def test_no_tls_is_told_from_no_trust() -> None:
    def behave(caller: socket.socket) -> None:
        caller.recv(1 << 16)
        caller.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with serving(behave) as port:
        outcome = post_to(port, 5, scheme="https")
        assert outcome.failure == sending.NO_TLS


def test_a_closed_port_is_not_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    outcome = post_to(port, 5)
    assert outcome.failure == sending.NOT_REACHED


def test_a_call_leaves_no_socket_behind(receiver: Receiver, policy: Policy) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    post(receiver.url(), MESSAGE, policy=policy, network=LOCAL)
    before = count()
    for host in (HOST, "other.example.com"):
        for _ in range(5):
            post(receiver.url(host=host), MESSAGE, policy=policy, network=LOCAL)
    deadline = time.monotonic() + 10
    while count() > before and time.monotonic() < deadline:
        time.sleep(0.01)  # the receiver closes its ends in threads of its own
    assert count() <= before


def test_a_message_shows_no_body() -> None:
    assert "ada" not in repr(Message({}, b"ada@example.org"))
