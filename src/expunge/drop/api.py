# SPDX-License-Identifier: Apache-2.0
"""API: deletion lists are fetched from the platform, and answers sent to it.

    GET  /data/download   200 a ZIP of lists, or JSON: nothing new
                          202 being prepared, ask again after Retry-After
                          409 the last batch is not answered yet
    POST /data/upload     202 with the files accepted and rejected
    POST /data/amend      the same, to correct what was uploaded

429 asks to wait for Retry-After, here 30 seconds if it is missing; 500 and 503 are
tried again, and nothing else is. A file that was taken before is rejected as a
duplicate, so sending again does no harm. Nothing that the platform says is printed but
the names of files and its message.
"""

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from ssl import create_default_context
from time import sleep
from typing import Any
from urllib.parse import urlsplit

from ..disk import replace_file
from ..exceptions import ExpungeError, InvalidInput
from ..promise.noise import random_bytes
from .files import read_list

ADDRESS = "https://api.drop.privacy.ca.gov"
SANDBOX = f"{ADDRESS}/sandbox"
PAUSE = 30.0  # seconds, if the platform asks to wait and does not say how long
LONGEST = 600.0  # that it may ask for at once
ATTEMPTS = 6
LARGEST = 1 << 30  # bytes of an archive, and of what is in it
MEANINGS: Mapping[int, str] = {
    400: "nothing was accepted",
    401: "the API key is missing or wrong; make a new one in the broker's portal",
    403: "the account may not do this: see its registration, fees and lists",
    404: "there is no such address; check it",
    409: "the platform waits for something else first: after a download, upload an "
    "answer to every number of it; before an upload, download",
}
AGAIN = (429, 500, 503)


class DropError(ExpungeError):
    """The platform refused a call, or could not be reached.

    Attributes
    ----------
    code
        Of HTTP; 0 if there was no answer.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Which files the platform took, and why it did not take others, by name."""

    accepted: tuple[str, ...]
    rejected: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Answer:
    code: int
    headers: Mapping[str, str]
    body: bytes


class DropApi:
    """The platform, by a broker's key.

    Parameters
    ----------
    key
        From the broker's portal.
    address
        Where it is; the sandbox has one of its own.
    pause
        Waits for some seconds.
    """

    def __init__(
        self,
        key: str,
        address: str = ADDRESS,
        *,
        pause: Callable[[float], None] = sleep,
    ) -> None:
        parts = urlsplit(address)
        plain = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost")
        if not parts.hostname or not (plain or parts.scheme == "https"):
            raise InvalidInput(f"address {address!r}; give one that begins with https")
        if not key.strip() or not key.isprintable() or not key.isascii():
            raise InvalidInput("the API key is empty, or holds what no key holds")
        self._parts, self._key, self._pause = parts, key.strip(), pause

    def __repr__(self) -> str:
        return f"DropApi({self._parts.netloc})"

    def download(self, folder: Path, *, attempts: int = ATTEMPTS) -> list[Path]:
        """Write the lists of the next batch into a folder; none if nothing is new.

        Raises DropError with code 202 if the platform still prepares them after so many
        attempts.
        """
        accept = {"Accept": "application/zip, application/json"}
        answer = self._call("GET", "/data/download", headers=accept, attempts=attempts)
        if answer.code == 202:
            raise DropError(
                "the platform still prepares the lists; run the same command later", 202
            )
        if "zip" not in answer.headers.get("content-type", ""):
            return []
        return _unpack(answer.body, folder)

    def upload(self, files: Sequence[Path], *, amend: bool = False) -> Uploaded:
        """Send answers, or with ``amend`` corrections of answers."""
        mark = random_bytes(16).hex()
        parts = [_make_part(file, mark=mark) for file in files]
        body = b"".join(parts) + f"--{mark}--\r\n".encode()
        kind = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        path = "/data/amend" if amend else "/data/upload"
        answer = self._call("POST", path, headers=kind, body=body)
        try:
            said: dict[str, Any] = json.loads(answer.body)
            accepted = [_name_of(one) for one in said.get("accepted", ())]
            rejected = {_name_of(one): one["message"] for one in said["rejected"]}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise DropError(
                f"the platform answered {answer.code} without saying which files it "
                "took; see the broker's portal",
                answer.code,
            ) from None
        return Uploaded(tuple(accepted), rejected)

    def _call(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        attempts: int = ATTEMPTS,
    ) -> _Answer:
        """Return the answer to a call, asked again while the platform says so."""
        for left in reversed(range(attempts)):
            answer = self._ask(method, path, headers=headers, body=body)
            waits = answer.code in AGAIN or (method == "GET" and answer.code == 202)
            if not waits or not left:
                break
            self._pause(_read_pause(answer))
        if answer.code in (200, 202):
            return answer
        why = MEANINGS.get(answer.code, "try again later")
        raise DropError(
            f"the platform answered {answer.code}: {why}{_quote(answer.body)}",
            answer.code,
        )

    def _ask(
        self, method: str, path: str, *, headers: Mapping[str, str], body: bytes | None
    ) -> _Answer:
        host, port = str(self._parts.hostname), self._parts.port
        connection: HTTPConnection
        if self._parts.scheme == "http":
            connection = HTTPConnection(host, port, timeout=60)
        else:
            tls = create_default_context()
            connection = HTTPSConnection(host, port, timeout=60, context=tls)
        try:
            where = self._parts.path.rstrip("/") + path
            sent = {"X-API-KEY": self._key, **headers}
            connection.request(method, where, body, sent)
            found = connection.getresponse()
            data = found.read(LARGEST + 1)
        except (OSError, HTTPException) as error:
            raise DropError(
                f"{self._parts.netloc} did not answer ({type(error).__name__}); try "
                "again, or use the broker's portal: lists must be fetched in time by "
                "hand too",
                0,
            ) from error
        finally:
            connection.close()
        if len(data) > LARGEST:
            raise DropError("the platform sent more than a gigabyte; use its portal", 0)
        named = {name.lower(): value for name, value in found.getheaders()}
        return _Answer(found.status, named, data)


def _read_pause(answer: _Answer) -> float:
    """Return how long the platform asks to wait."""
    text = answer.headers.get("retry-after", "").strip()
    return min(float(text), LONGEST) if text.isdecimal() else PAUSE


def _quote(body: bytes) -> str:
    """Return the message of a refusal, if it has a short one."""
    try:
        said = json.loads(body)
        message = str(said.get("message") or "")
        each = [
            f"{_name_of(one)}: {one['message']}" for one in said.get("rejected", ())
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    text = "; ".join(filter(None, [message, *each]))
    return f" ({text[:500]})" if text.isprintable() and text else ""


def _name_of(one: Any) -> str:
    return str(one["fileName"] if isinstance(one, Mapping) else one)


def _make_part(file: Path, *, mark: str) -> bytes:
    """Return a file as a part of a form."""
    head = (
        f'--{mark}\r\nContent-Disposition: form-data; name="files"; '
        f'filename="{file.name}"\r\nContent-Type: text/csv\r\n\r\n'
    )
    return head.encode("ascii") + file.read_bytes() + b"\r\n"


def _unpack(archive: bytes, folder: Path) -> list[Path]:
    """Write the lists of an archive into a folder."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            if sum(one.file_size for one in opened.infolist()) > LARGEST:
                raise DropError("the archive holds more than a gigabyte", 0)
            found = {one.filename: opened.read(one) for one in opened.infolist()}
    except zipfile.BadZipFile:
        raise DropError(
            "the platform sent an archive that is damaged; download it again", 0
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, data in found.items():
        if Path(name).name != name or not name.endswith(".csv"):
            raise DropError(f"the archive holds {name[:80]!r}, which is no list", 0)
        path = folder / name
        if path.exists() and path.read_bytes() != data:
            raise DropError(f"{path} is there, and differs; give another folder", 0)
        replace_file(path, data)
        read_list(path)  # or say what is wrong with it
        written.append(path)
    return written
