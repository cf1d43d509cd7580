# SPDX-License-Identifier: Apache-2.0
"""Controllers and fides are called back, over TLS, with what they may know by then."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from expunge.service.opendsr import make_composers, open_processor
from expunge.service.outbound import Outbox

from .opendsr_client import (
    Listener,
    Received,
    check_signed,
    identity,
    listening,
)
from .opendsr_keys import (
    DOMAIN,
    LOOPBACK,
    Wanted,
    authority,
    issue,
    make_key,
    write_pair,
)
from .opendsr_service import ADDRESS, Clock, Service, make_settings, serving

STATES = ["in_progress", "completed"]


@contextmanager
def listened(
    folder: Path, clock: Clock, *codes: int, **changes: Any
) -> Iterator[tuple[Service, Listener]]:
    """Run a service, and somebody who listens."""
    key, wanted = make_key("listener"), Wanted("localhost", ["localhost", LOOPBACK])
    (folder / "listener").mkdir()
    certificate, secret = write_pair(folder / "listener", key, issue(key, wanted))
    (folder / "authority.pem").write_bytes(authority())
    with listening(certificate, secret, *codes) as listener:
        settings = make_settings(
            folder,
            callback_hosts=("localhost",),
            callback_ports=(443, listener.port),
            callback_authorities=str(folder / "authority.pem"),
            allow_private=True,
            fides_address=listener.url(""),
            **changes,
        )
        with serving(folder, clock, settings) as service:
            yield service, listener


@contextmanager
def called_back(
    folder: Path, patch: pytest.MonkeyPatch, *codes: int
) -> Iterator[tuple[Service, Listener, Outbox]]:
    """Run a service, somebody who listens, and what calls them when the test says."""
    clock = Clock()
    clock.install(patch)
    with listened(folder, clock, *codes) as (service, listener):
        settings = service.settings
        assert settings.opendsr is not None
        processor = open_processor(settings.opendsr)
        outbox = Outbox(
            service.registry,
            settings.policy,
            windows=settings.windows,
            composers=make_composers(
                service.registry, processor, address=settings.address
            ),
        )
        yield service, listener, outbox


def turn(service: Service, outbox: Outbox) -> int:
    """Send what is due now; return how many were delivered."""
    outbox.queue_changes(service.clock.time)
    return outbox.send_due(service.clock.time)


def check(received: Received, folder: Path, edition: str = "OpenDSR") -> dict[str, Any]:
    """Return what a callback says, once its signature is checked."""
    certificate = x509.load_pem_x509_certificate(
        (folder / "certificate.pem").read_bytes()
    )
    check_signed(
        received.headers, received.raw, certificate=certificate, edition=edition
    )
    return received.said


@pytest.mark.parametrize("edition", ["OpenDSR", "OpenGDPR"])
def test_a_controller_is_told_each_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edition: str
) -> None:
    with called_back(tmp_path, monkeypatch) as (service, listener, outbox):
        desk = service.controller(edition=edition)
        url = listener.url("/opendsr?workspace=7")
        who = identity(ADDRESS)
        request = desk.file(who, status_callback_urls=[url, url]).said[
            "subject_request_id"
        ]
        assert turn(service, outbox) == 0  # pending is what the answer said
        service.close_window()
        assert turn(service, outbox) == 1
        service.clock.pass_minutes(1)
        assert turn(service, outbox) == 0  # it is applied, and not yet to be seen
        service.clock.pass_minutes(0.5)
        assert turn(service, outbox) == 1
        for state in STATES:
            received = listener.next()
            said = check(received, tmp_path, edition)
            assert received.path == "/opendsr?workspace=7"
            assert said["status_callback_url"] == url
            assert said["request_status"] == state
            shown = desk.show(request).said
            assert set(said) == set(shown) - {"api_version"} | {"status_callback_url"}
        assert said["results_count"] == 1
        assert said["results_url"] is None
        assert said["extensions"][DOMAIN]["outcome"] == "done"
        service.clock.pass_minutes(60)
        assert turn(service, outbox) == 0


def test_a_service_tells_by_itself(tmp_path: Path) -> None:
    running = {"applies": True, "window": 1}
    with listened(tmp_path, Clock(), **running) as (service, listener):
        url = listener.url("/x")
        service.controller().file(identity(ADDRESS), status_callback_urls=[url])
        said = check(listener.next(), tmp_path)
        while said["request_status"] != "completed":
            said = check(listener.next(), tmp_path)
        assert said["results_count"] == 1


def test_a_late_message_tells_what_could_be_seen_when_it_was_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with called_back(tmp_path, monkeypatch, 503) as (service, listener, outbox):
        desk = service.controller()
        desk.file(identity(ADDRESS), status_callback_urls=[listener.url("/x")])
        service.close_window()
        assert turn(service, outbox) == 0
        assert check(listener.next(), tmp_path)["results_count"] is None
        service.clock.pass_minutes(0.2)
        assert turn(service, outbox) == 1
        assert check(listener.next(), tmp_path)["request_status"] == "in_progress"


def test_cancelling_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with called_back(tmp_path, monkeypatch) as (service, listener, outbox):
        desk = service.controller()
        sent = desk.file(identity("a@b"), status_callback_urls=[listener.url("/x")])
        desk.cancel(sent.said["subject_request_id"])
        assert turn(service, outbox) == 1
        said = check(listener.next(), tmp_path)
        assert (said["request_status"], said["results_count"]) == ("cancelled", None)


def test_an_address_that_may_not_be_called_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with called_back(tmp_path, monkeypatch) as (service, listener, _):
        desk = service.controller()
        for url in (
            "https://elsewhere.example/ada@example.org",
            "https://localhost:1/",
            "ftp://localhost/",
            "https://user@localhost/",
        ):
            answer = desk.file(identity("a@b"), status_callback_urls=[url])
            assert answer.code == 400
            (error,) = answer.said["error"]["errors"]
            assert error["domain"] == "status_callback_urls"
            assert b"ada@" not in answer.raw
        assert listener.received.empty()


REPLY = {"reply_to": "/api/v1/request-task/callback", "reply_to_token": "a.jwe.token"}


def test_fides_is_told_the_end_alone_and_again_until_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with called_back(tmp_path, monkeypatch, 400) as (service, listener, outbox):
        desk = service.controller("fides")
        extensions = {"ethyca.com": REPLY}
        assert desk.file(identity(ADDRESS), extensions=extensions).code == 201
        service.close_window()
        assert turn(service, outbox) == 0
        assert listener.received.empty()
        service.clock.pass_minutes(1.5)
        assert turn(service, outbox) == 0  # it answers 400: its task does not wait yet
        service.clock.pass_minutes(0.1)
        assert turn(service, outbox) == 1
        for _ in range(2):
            received = listener.next()
            assert received.path == REPLY["reply_to"]
            assert received.headers["Authorization"] == "Bearer a.jwe.token"
            assert received.said == {"rows_masked": 1}


def test_fides_cannot_be_called_where_nobody_said_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    clock.install(monkeypatch)
    with serving(tmp_path, clock) as service:
        desk = service.controller()
        answer = desk.file(identity("a@b"), extensions={"ethyca.com": REPLY})
        assert answer.code == 400
        assert b"fides_address" in answer.raw
        assert b"jwe" not in answer.raw
