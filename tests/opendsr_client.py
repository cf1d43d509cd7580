# SPDX-License-Identifier: Apache-2.0
"""A controller of OpenDSR, written from the protocol alone: nothing of ours is in it.

It discovers, files, polls and cancels over a real socket, checks the signature of every
answer with the certificate that discovery names, and listens for callbacks on a real
https server.
"""

import json
import ssl
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

PATIENCE = 30.0


class Told:
    """What was sent as JSON, in bytes that were signed."""

    raw: bytes

    @property
    def said(self) -> dict[str, Any]:
        found = json.loads(self.raw)
        assert isinstance(found, dict)
        return found


@dataclass(frozen=True)
class Answered(Told):
    """An answer whose signature was checked."""

    code: int
    headers: Mapping[str, str]
    raw: bytes


@dataclass
class Controller:
    """One who sends requests to a processor.

    Parameters
    ----------
    port
        Where the processor listens on this machine.
    authority
        Certificate of the authority that is trusted.
    domain
        Of the processor.
    credentials
        The header ``Authorization``; empty for none.
    edition
        "OpenDSR" or "OpenGDPR".
    """

    port: int
    authority: bytes
    domain: str
    credentials: str
    edition: str = "OpenDSR"
    _certificate: x509.Certificate | None = field(default=None, repr=False)

    @property
    def base(self) -> str:
        return {"OpenDSR": "/v2", "OpenGDPR": "/v1"}[self.edition]

    @property
    def collection(self) -> str:
        names = {"OpenDSR": "requests", "OpenGDPR": "opengdpr_requests"}
        return f"{self.base}/{names[self.edition]}"

    def discover(self) -> Answered:
        """Return what discovery says, signed by the certificate that it names."""
        answer = self.send("GET", f"{self.base}/discovery")
        if answer.code == 200:
            url = urlsplit(answer.said["processor_certificate"])
            assert (url.scheme, url.netloc) == ("https", self.domain)
            pem = self.send("GET", url.path).raw
            self._certificate = trust(pem, self.authority, domain=self.domain)
            self._check(answer)
        return answer

    def file(self, *identities: Mapping[str, str], **changes: Any) -> Answered:
        """Send a request to be erased."""
        return self.post(make_request(*identities, edition=self.edition, **changes))

    def post(self, body: bytes) -> Answered:
        """Send a body as it is."""
        return self._check(self.send("POST", self.collection, body))

    def show(self, request: str) -> Answered:
        """Ask how far a request is."""
        return self._check(self.send("GET", f"{self.collection}/{request}"))

    def show_alias(self, request: str) -> Answered:
        """Ask the same by the route that the protocol demands and does not describe."""
        return self._check(self.send("GET", f"{self.base}/status/{request}"))

    def cancel(self, request: str) -> Answered:
        """Take a request back."""
        return self._check(self.send("DELETE", f"{self.collection}/{request}"))

    def send(self, method: str, path: str, body: bytes | None = None) -> Answered:
        """Make a call, and take the answer as it is."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self.credentials:
            headers["Authorization"] = self.credentials
        try:
            connection.request(method, path, body, headers)
            found = connection.getresponse()
            return Answered(found.status, dict(found.headers), found.read())
        finally:
            connection.close()

    def _check(self, answer: Answered) -> Answered:
        """Return an answer that the processor signed."""
        if self._certificate is None:
            self.discover()
        assert self._certificate is not None
        check_signed(
            answer.headers,
            answer.raw,
            certificate=self._certificate,
            edition=self.edition,
        )
        assert answer.headers["Cache-Control".lower()] == "no-store"
        said = answer.said
        if "processor_signature" in said:
            signature = said.pop("processor_signature")
            check_signature(signature, spell(said), certificate=self._certificate)
        return answer


def make_request(
    *identities: Mapping[str, str], edition: str = "OpenDSR", **changes: Any
) -> bytes:
    """Return the body of a request; a field that is None is left out."""
    fields: dict[str, Any] = {
        "regulation": "gdpr" if edition == "OpenDSR" else None,
        "subject_request_id": str(uuid4()),
        "subject_request_type": "erasure",
        "submitted_time": "2026-01-02T15:00:00Z",
        "api_version": "2.0" if edition == "OpenDSR" else "1.0",
        "subject_identities": list(identities),
    }
    fields |= changes
    return json.dumps({k: v for k, v in fields.items() if v is not None}).encode()


def identity(value: str, name: str = "email", form: str = "raw") -> dict[str, str]:
    """Return an identity of a person."""
    return {"identity_type": name, "identity_value": value, "identity_format": form}


def bearer(secret: str) -> str:
    """Return the header for a token."""
    return f"Bearer {secret}"


def basic(secret: str) -> str:
    """Return the header for a token as a password."""
    return "Basic " + b64encode(f"key:{secret}".encode()).decode()


def spell(said: Mapping[str, Any]) -> bytes:
    """Return canonical JSON; keys are ASCII, and there are no fractions."""
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def trust(pem: bytes, authority: bytes, *, domain: str) -> x509.Certificate:
    """Return a certificate that the authority issued for the domain."""
    leaf = x509.load_pem_x509_certificate(pem)
    leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    (common,) = leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert common.value == domain
    assert domain in names.value.get_values_for_type(x509.DNSName)
    return leaf


def check_signed(
    headers: Mapping[str, str],
    body: bytes,
    *,
    certificate: x509.Certificate,
    edition: str,
) -> None:
    """Refuse a message that does not come from the certificate's owner."""
    known = {name.lower(): value for name, value in headers.items()}
    (common,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    word = edition.lower()
    assert known[f"x-{word}-processor-domain"] == common.value
    check_signature(known[f"x-{word}-signature"], body, certificate=certificate)


def check_signature(
    signature: str, body: bytes, *, certificate: x509.Certificate
) -> None:
    """Refuse a signature that is not of these bytes."""
    public = certificate.public_key()
    assert isinstance(public, rsa.RSAPublicKey)
    raw = b64decode(signature, validate=True)
    public.verify(raw, body, padding.PKCS1v15(), hashes.SHA256())


@dataclass(frozen=True)
class Received(Told):
    """A callback as it came."""

    path: str
    headers: Mapping[str, str]
    raw: bytes


@dataclass
class Listener:
    """A https server for callbacks.

    Parameters
    ----------
    port
        Where it listens.
    codes
        What it answers first; 202 after that.
    """

    port: int
    codes: list[int]
    received: "SimpleQueue[Received]" = field(default_factory=SimpleQueue)

    def url(self, path: str) -> str:
        return f"https://localhost:{self.port}{path}"

    def next(self) -> Received:
        """Return the next callback, which must come."""
        return self.received.get(timeout=PATIENCE)


@contextmanager
def listening(certificate: Path, key: Path, *codes: int) -> Iterator[Listener]:
    """Run a https server for callbacks."""
    listener = Listener(0, list(codes))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            listener.received.put(Received(self.path, dict(self.headers), raw))
            self.send_response(listener.codes.pop(0) if listener.codes else 202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    listener.port = server.server_port
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
