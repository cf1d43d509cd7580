# SPDX-License-Identifier: Apache-2.0
"""Sending: one call to somebody else. No other code of the service opens a connection.

    read the URL -> ask for the host's addresses -> connect to one of them
    -> is the peer one that may be called? -> TLS, for the host's name -> POST -> status

The peer of the connected socket is what is checked, before a byte is sent: a name can
lead to another address each time it is asked for. Redirects are not followed, proxies
of the environment are not used, and of the answer only the status and Retry-After are
read. The time for all of it together is limited, so a receiver that sends a byte now
and then holds up nobody.
"""

import io
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

from ...exceptions import InvalidInput
from ...registry import Outcome
from ...registry.web_address import WebAddress
from .policy import Policy

MOST_READ = 1 << 16
MOST_TRIED = 4  # addresses of one host
DAY = 24 * 60 * 60
AGENT = "expunge"

NOT_ALLOWED = "not allowed"
NO_ADDRESS = "no address"
PRIVATE_PEER = "not a public address"
NOT_REACHED = "not reached"
NOT_TRUSTED = "no trusted certificate"
NO_TLS = "no TLS"
TOO_SLOW = "too slow"
NO_ANSWER = "not an HTTP answer"


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent.

    Parameters
    ----------
    headers
        By name; host, length and agent are added.
    body
        The bytes.
    """

    headers: Mapping[str, str]
    body: bytes = field(repr=False)


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses that a name has now."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def connect_to(address: str, port: int, *, seconds: float) -> socket.socket:
    """Return a socket connected to a numeric address."""
    return socket.create_connection((address, port), seconds)


@dataclass(frozen=True, slots=True)
class Network:
    """How names become addresses, and addresses sockets."""

    resolve: Callable[[str, int], Sequence[str]] = resolve_host
    connect: Callable[..., socket.socket] = connect_to


SYSTEM = Network()


class _Failed(Exception):
    """A call failed; the words are among the fixed ones above."""


def post(
    url: str, message: Message, *, policy: Policy, network: Network = SYSTEM
) -> Outcome:
    """Send a message, if the policy allows it; return the outcome.

    Parameters
    ----------
    url
        Whom to send it to.
    message
        What to send.
    policy
        Whom the service may call.
    network
        How names become addresses, and addresses sockets.
    """
    until = monotonic() + policy.seconds
    try:
        address = policy.require_allowed(url)
    except InvalidInput:
        return Outcome(None, NOT_ALLOWED)
    try:
        with closing(_open(address, policy, network=network, until=until)) as opened:
            return _exchange(opened, address, message=message, until=until)
    except _Failed as failed:
        return Outcome(None, str(failed))
    except TimeoutError:
        return Outcome(None, TOO_SLOW)
    except ssl.SSLCertVerificationError:
        return Outcome(None, NOT_TRUSTED)
    except ssl.SSLError:
        return Outcome(None, NO_TLS)
    except (HTTPException, ValueError):
        return Outcome(None, NO_ANSWER)
    except OSError:
        return Outcome(None, NOT_REACHED)


def _open(
    address: WebAddress, policy: Policy, *, network: Network, until: float
) -> socket.socket:
    """Return a socket to a peer that may be called, with TLS where the URL says so."""
    encrypted = address.scheme == "https"
    plain = _connect(address, policy, network=network, until=until)
    if not encrypted:
        return plain
    try:
        plain.settimeout(_left(until))
        trusted = _tls_context(policy.authorities)
        return trusted.wrap_socket(plain, server_hostname=address.host)
    except BaseException:
        plain.close()
        raise


def _connect(
    address: WebAddress, policy: Policy, *, network: Network, until: float
) -> socket.socket:
    """Return a socket whose peer may be called; try the addresses in turn."""
    encrypted = address.scheme == "https"
    failure: Exception = _Failed(PRIVATE_PEER)
    for numeric in _resolve(address, network, until=until)[:MOST_TRIED]:
        if not policy.allows_peer(numeric, encrypted=encrypted):
            continue
        try:
            opened = network.connect(numeric, address.port, seconds=_left(until))
        except OSError as error:
            failure = error
            continue
        try:
            peer = str(opened.getpeername()[0])
        except OSError as error:  # it hung up at once
            opened.close()
            failure = error
            continue
        if policy.allows_peer(peer, encrypted=encrypted):
            return opened
        opened.close()
        failure = _Failed(PRIVATE_PEER)
    raise failure


def _resolve(address: WebAddress, network: Network, *, until: float) -> Sequence[str]:
    """Return the addresses of a host, in time.

    The system's resolver takes no limit, so it runs in a thread that nobody waits for
    any longer than that.
    """
    found: list[Sequence[str]] = []

    def ask() -> None:
        try:
            found.append(network.resolve(address.host, address.port))
        except (OSError, UnicodeError):
            found.append(())

    asking = Thread(target=ask, name="expunge resolver", daemon=True)
    asking.start()
    asking.join(_left(until))
    if not found:
        raise TimeoutError
    if not found[0]:
        raise _Failed(NO_ADDRESS)
    return found[0]


@lru_cache(maxsize=8)
def _tls_context(authorities: Path | None) -> ssl.SSLContext:
    """Return what checks certificates: issued by a trusted one, for the host's name."""
    context = ssl.create_default_context(
        cafile=None if authorities is None else str(authorities)
    )
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _exchange(
    opened: socket.socket, address: WebAddress, *, message: Message, until: float
) -> Outcome:
    """Send the message on a socket and return what the answer says."""
    connection = HTTPConnection(address.host, address.port)
    timed: Any = _TimedSocket(opened, until)
    connection.sock = timed
    headers = {
        **message.headers,
        "Host": address.authority,
        "User-Agent": AGENT,
        "Connection": "close",
    }
    try:
        connection.request("POST", address.target, message.body, headers)
        response = connection.getresponse()
    except ConnectionError as error:  # it was reached, and hung up
        raise _Failed(NO_ANSWER) from error
    with closing(response) as answer:
        with suppress(OSError, HTTPException):
            answer.read(MOST_READ)  # so that a receiver who still writes is not cut off
        return Outcome(answer.status, wait=_read_wait(answer))


def _read_wait(answer: HTTPResponse) -> int:
    """Return for how many seconds the receiver wants to be left alone, up to a day."""
    text = (answer.getheader("Retry-After") or "").strip()
    if text.isascii() and text.isdecimal():
        return min(int(text[:10]), DAY)
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0
    aware = when if when.tzinfo else when.replace(tzinfo=UTC)
    seconds = (aware - datetime.now(UTC)).total_seconds()
    return int(min(max(seconds, 0), DAY))


def _left(until: float) -> float:
    """Return how many seconds are left; raise TimeoutError if none are."""
    left = until - monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _TimedSocket:
    """A socket for ``HTTPConnection`` whose reads and writes end by a moment, in all.

    The timeout of a socket counts from each read, and so never ends with a receiver
    that sends a byte at a time.
    """

    def __init__(self, opened: socket.socket, until: float) -> None:
        self._opened = opened
        self._until = until

    def sendall(self, data: bytes) -> None:
        """Send all of the data."""
        left = memoryview(data)
        while left:
            self._opened.settimeout(_left(self._until))
            left = left[self._opened.send(left) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return the answer as a file."""
        assert mode == "rb"
        return io.BufferedReader(_TimedReader(self._opened, self._until))

    def close(self) -> None:
        """Close the socket."""
        self._opened.close()


class _TimedReader(io.RawIOBase):
    """What arrives on a socket, until a moment."""

    def __init__(self, opened: socket.socket, until: float) -> None:
        super().__init__()
        self._opened = opened
        self._until = until

    def readable(self) -> bool:
        """Say that this can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there."""
        self._opened.settimeout(_left(self._until))
        return self._opened.recv_into(buffer)
