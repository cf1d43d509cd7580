# SPDX-License-Identifier: Apache-2.0
"""Receivers of callbacks on 127.0.0.1, with a certificate authority of their own."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HOST = "hooks.example.com"
PEM = serialization.Encoding.PEM


class Authority:
    """A certificate authority that lives for one test run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("Authority")
        certificate = self._issue(self._name, self._key.public_key(), ca=True)
        self.file = folder / "authority.pem"
        self.file.write_bytes(certificate.public_bytes(PEM))

    def serve(self, *hosts: str) -> ssl.SSLContext:
        """Return what a server of these hosts uses."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._issue(_name(hosts[0]), key.public_key(), hosts=hosts)
        secret = key.private_bytes(
            PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        file = self._folder / f"{hosts[0]}.pem"
        file.write_bytes(secret + certificate.public_bytes(PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _issue(
        self,
        name: x509.Name,
        public: Any,
        *,
        hosts: tuple[str, ...] = (),
        ca: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_alternative(one) for one in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class Received(NamedTuple):
    """One message as it came."""

    path: str
    headers: dict[str, str]
    body: bytes


class Answer(NamedTuple):
    """What a receiver says to a message."""

    status: int = 204
    headers: dict[str, str] = {}  # noqa: RUF012
    body: bytes = b""


@dataclass
class Receiver:
    """A server that keeps what it gets; ``answer`` says what to reply."""

    port: int = 0
    received: list[Received] = field(default_factory=list)
    answer: Callable[[Received], Answer] = lambda message: Answer()
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def url(self, path: str = "/", host: str = HOST) -> str:
        """Return an address of it."""
        return f"https://{host}:{self.port}{path}"

    def wait_for(self, n: int, seconds: float = 30.0) -> list[Received]:
        """Return the messages once there are so many."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.received) >= n, seconds)
        return self.received

    def take(self, message: Received) -> Answer:
        """Keep a message and return the answer to it."""
        with self.arrived:
            self.received.append(message)
            self.arrived.notify_all()
        return self.answer(message)


@contextmanager
def receiving(context: ssl.SSLContext | None) -> Iterator[Receiver]:
    """Lend a receiver, with TLS if a context is given."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(length)
            answer = receiver.take(Received(self.path, headers, body))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            del request, client_address  # a caller that hangs up is no error here

    server = Quiet(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
