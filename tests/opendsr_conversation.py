# SPDX-License-Identifier: Apache-2.0
"""A conversation in OpenDSR as test vectors: fixed key, ids and times.

    python -m tests.opendsr_conversation

renews ``docs/opendsr-conversation.json``. Signatures of RSA with PKCS #1 v1.5 are the
same each time, so a test holds the service to every byte of it. The key in it is there
to be read, and signs nothing else.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from expunge.registry import Delivery
from expunge.service.opendsr import make_composers, open_processor
from expunge.service.settings import OpenDsrSettings
from expunge.service.windows import show_at

from .opendsr_client import identity, make_request
from .opendsr_keys import DOMAIN, Wanted, authority, issue, make_key, to_pem, write_pair
from .opendsr_service import MINUTE, Clock, Service, make_settings, serving

FILE = Path(__file__).parents[1] / "docs" / "opendsr-conversation.json"
FIRST = "a7551968-d5d6-44b2-9831-815ac9017798"
SECOND = "3fa1e0c2-6b7d-4e58-8c9a-0d1e2f3a4b5c"
HEADERS = ("cache-control", "content-type")
NOTE = (
    "Test vectors for OpenDSR as expunge speaks it. The key is public: it signs these "
    "answers and nothing else."
)


class Step(NamedTuple):
    """One call: when, in minutes after noon, and what is sent."""

    minutes: float
    method: str
    path: str
    body: bytes = b""


def list_steps() -> list[Step]:
    """Return the calls of the conversation."""
    first = make_request(identity("ada@example.org"), subject_request_id=FIRST)
    changed = make_request(identity("eve@example.org"), subject_request_id=FIRST)
    second = make_request(
        identity("A-7", "ios_advertising_id"),
        subject_request_id=SECOND,
        regulation="ccpa",
    )
    access = make_request(identity("ada@example.org"), subject_request_type="access")
    one, other = f"/v2/requests/{FIRST}", f"/v2/requests/{SECOND}"
    return [
        Step(0, "GET", "/v2/discovery"),
        Step(1, "POST", "/v2/requests", first),
        Step(2, "POST", "/v2/requests", first),
        Step(2, "POST", "/v2/requests", changed),
        Step(2, "POST", "/v2/requests", _fix_id(access)),
        Step(3, "GET", one),
        Step(4, "POST", "/v2/requests", second),
        Step(5, "DELETE", other),
        Step(5, "GET", other),
        Step(15, "GET", one),
        Step(15, "DELETE", one),
        Step(16.5, "GET", one),
        Step(16.5, "GET", "/v2/requests/00000000-0000-4000-8000-000000000000"),
    ]


def _fix_id(body: bytes) -> bytes:
    fields = json.loads(body) | {"subject_request_id": SECOND}
    return json.dumps(fields).encode()


def record(old: dict[str, Any]) -> dict[str, Any]:
    """Return the conversation, with key and certificate of an earlier one."""
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder, clock = Path(name), Clock()
        clock.install(patch)
        key = load_pem_private_key(old["key"].encode(), password=None)
        assert isinstance(key, rsa.RSAPrivateKey)
        pair = write_pair(folder, key, old["certificate"].encode())
        settings = make_settings(folder, opendsr=OpenDsrSettings(DOMAIN, *pair))
        with serving(folder, clock, settings, knows_people=False) as service:
            exchanges = [_play(service, step) for step in _list_with_batch(service)]
            callback = _compose_callback(service)
    return {
        **old,
        "note": NOTE,
        "domain": DOMAIN,
        "exchanges": exchanges,
        "callback": callback,
    }


def _compose_callback(service: Service) -> dict[str, Any]:
    """Return what the controller is told of the first request in the end."""
    settings, request = service.settings, FIRST.replace("-", "")
    assert settings.opendsr is not None
    composers = make_composers(
        service.registry, open_processor(settings.opendsr), address=settings.address
    )
    url = "https://controller.example/opendsr"
    told = Delivery(
        id="",
        form="opendsr",
        event="completed",
        subject=request,
        host="controller.example",
        state="waiting",
        attempts=0,
        last="",
        since=service.clock.time,
        due=service.clock.time,
        url=url,
    )
    status = service.registry.requests.status(request)
    shown = show_at(status, service.clock.time)
    message = composers["opendsr"](told, shown)
    headers = {name.lower(): value for name, value in sorted(message.headers.items())}
    return {"url": url, "headers": headers, "body": message.body.decode()}


def _list_with_batch(service: Service) -> Iterator[Step]:
    """Yield the calls, each at its time; the batch is applied when the window ends."""
    noon = service.clock.time
    for step in list_steps():
        time = noon + round(step.minutes * MINUTE)
        if service.clock.time < service.settings.windows.at(noon).close <= time:
            service.close_window()
        service.clock.time = time
        yield step


def _play(service: Service, step: Step) -> dict[str, Any]:
    """Make one call, and return it with its answer."""
    controller = service.controller("mparticle")
    answer = controller.send(step.method, step.path, step.body or None)
    kept = {
        name: value
        for name, value in sorted(answer.headers.items())
        if name in HEADERS or name.startswith("x-opendsr-")
    }
    return {
        "minutes_after_noon": step.minutes,
        "request": {
            "method": step.method,
            "path": step.path,
            "body": step.body.decode() or None,
        },
        "answer": {
            "status": answer.code,
            "headers": kept,
            "body": answer.raw.decode(),
        },
    }


def main() -> None:
    """Renew the file."""
    if FILE.exists():
        old = json.loads(FILE.read_text())
    else:
        key = make_key("vectors")
        certificate = issue(key, Wanted(days=(-300, 36500)))
        old = {
            "key": to_pem(key).decode(),
            "certificate": certificate.decode(),
            "authority": authority().decode(),
        }
    FILE.write_text(json.dumps(record(old), indent=1) + "\n")


if __name__ == "__main__":
    main()
