# SPDX-License-Identifier: Apache-2.0
"""Client: a service of expunge from another Python program.

It needs nothing but the standard library. Every method is one call; what comes back is
the JSON document that the API describes.

    client = Client("https://expunge.example.org", token)
    sent = client.send([{"email": "ada@example.org"}])
    done = client.wait(sent["id"])
    receipt = client.receipt(sent["id"])
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ssl import SSLContext, create_default_context
from time import monotonic, sleep
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from .exceptions import ExpungeError, InvalidInput

Json: TypeAlias = dict[str, Any]
Person: TypeAlias = Mapping[str, str]
"""Identifiers of a person, by kind."""

PREFIX = "/api/v1"
TIMEOUT = 60.0
PAUSE = 1.0  # seconds between two looks


class ServiceError(ExpungeError):
    """The service refused a call, or could not be reached.

    Attributes
    ----------
    code
        Of HTTP; 0 if there was no answer.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Client:
    """A service, under a token.

    Parameters
    ----------
    address
        Where the service is.
    token
        From ``expunge token create``.
    tls
        Which certificates are trusted; those of the system by default.
    """

    def __init__(
        self, address: str, token: str, *, tls: SSLContext | None = None
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(
                f"address {address!r}; give one such as https://expunge.example.org"
            )
        self._parts = parts
        self._token = token
        self._tls = tls

    def __repr__(self) -> str:
        return f"Client({self._parts.scheme}://{self._parts.netloc})"

    def send(self, people: Sequence[Person], **fields: Any) -> Json:
        """Send a request about people; ``fields`` are those of the API.

        Give ``id`` to send it again safely.
        """
        body = {"people": [dict(one) for one in people], **fields}
        return self._call("POST", "/requests", body=json.dumps(body).encode())

    def send_batch(self, requests: Iterable[Mapping[str, Any]]) -> list[Json]:
        """Send many requests, all or none."""
        body = "".join(json.dumps(one) + "\n" for one in requests).encode()
        answer = self._call(
            "POST", "/requests/batch", body=body, kind="application/x-ndjson"
        )
        return list(answer["requests"])

    def request(self, request: str) -> Json:
        """Return a request as it is now."""
        return self._call("GET", f"/requests/{quote(request, safe='')}")

    def requests(self, **wanted: str | int) -> Iterator[Json]:
        """Yield requests by deadline; ``state`` and ``due`` choose some."""
        cursor: str | None = ""
        while cursor is not None:
            query = urlencode({**wanted, **({"cursor": cursor} if cursor else {})})
            page = self._call("GET", f"/requests?{query}")
            yield from page["requests"]
            cursor = page["next"]

    def cancel(self, request: str) -> Json:
        """Cancel a request that is pending."""
        return self._call("DELETE", f"/requests/{quote(request, safe='')}")

    def wait(self, request: str, *, seconds: float = 3600.0) -> Json:
        """Return a request once it is answered or cancelled."""
        end = monotonic() + seconds
        while True:
            found = self.request(request)
            if found["state"] in ("completed", "cancelled"):
                return found
            if monotonic() > end:
                raise ServiceError(
                    f"request {request} is {found['state']} after {seconds:g} seconds; "
                    f"its answer is due at {found['window']['answer']}",
                    0,
                )
            sleep(PAUSE)

    def receipt(self, request: str) -> str:
        """Return the receipt of a request, byte for byte."""
        path = f"/requests/{quote(request, safe='')}/receipt"
        return self._fetch("GET", path).decode()

    def keys(self) -> str:
        """Return the public keys by which receipts are checked."""
        return self._fetch("GET", "/keys").decode()

    def recommend(self, model: str, items: Sequence[str], *, k: int = 10) -> list[str]:
        """Return what a recommender offers to somebody who has these items."""
        path = f"/models/{quote(model, safe='')}/recommendations"
        wanted = json.dumps({"items": [*items], "k": k}).encode()
        return list(self._call("POST", path, body=wanted)["items"])

    def get(self, path: str) -> Json:
        """Return any other document of the API, such as ``/models``."""
        return self._call("GET", path)

    def _call(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        kind: str = "application/json",
    ) -> Json:
        answer: Json = json.loads(self._fetch(method, path, body=body, kind=kind))
        return answer

    def _fetch(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        kind: str = "application/json",
    ) -> bytes:
        """Make a call and return the body of its answer."""
        headers = {"Authorization": f"Bearer {self._token}"}
        if body is not None:
            headers["Content-Type"] = kind
        connection = self._connect()
        try:
            connection.request(
                method, self._parts.path.rstrip("/") + PREFIX + path, body, headers
            )
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, HTTPException) as error:
            raise ServiceError(
                f"{self._parts.netloc} did not answer ({type(error).__name__}); check "
                "the address, and send the same again",
                0,
            ) from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise ServiceError(_explain(answer.status, data), answer.status)
        return data

    def _connect(self) -> HTTPConnection:
        host = str(self._parts.hostname)
        if self._parts.scheme == "http":
            return HTTPConnection(host, self._parts.port, timeout=TIMEOUT)
        tls = self._tls or create_default_context()
        return HTTPSConnection(host, self._parts.port, timeout=TIMEOUT, context=tls)


def _explain(code: int, data: bytes) -> str:
    """Return what a problem says."""
    try:
        problem = json.loads(data)
        fields = "".join(
            f"; {one['field']}: {one['reason']}" for one in problem.get("errors") or ()
        )
        return f"{problem['title']}: {problem['detail']}{fields}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"the service answered with code {code}"
