# SPDX-License-Identifier: Apache-2.0
"""The service is an OpenDSR processor to a controller that knows the protocol alone."""

import json
from base64 import b64decode
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from expunge.ledger import check_receipt
from expunge.rights import Identifier
from expunge.service.opendsr.signing import Processor

from .opendsr_client import (
    Answered,
    Controller,
    bearer,
    check_signed,
    identity,
    make_request,
    trust,
)
from .opendsr_conversation import FILE, record
from .opendsr_keys import DOMAIN, authority
from .opendsr_service import ADDRESS, CUSTOMER, KNOWN, Clock, Service, serving

EDITIONS = ("OpenDSR", "OpenGDPR")


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def service(
    patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    clock = Clock()
    clock.install(patch)
    with serving(tmp_path_factory.mktemp("service"), clock) as service:
        yield service


@pytest.fixture
def desk(service: Service) -> Controller:
    return service.controller()


def errors(answer: Answered) -> list[dict[str, str]]:
    """Return what an error object says, once its form is checked."""
    error = answer.said["error"]
    assert error["code"] == answer.code
    assert error["message"] == error["errors"][0]["message"]
    for one in error["errors"]:
        assert set(one) == {"domain", "reason", "message"}
    found: list[dict[str, str]] = error["errors"]
    return found


@pytest.mark.parametrize("edition", EDITIONS)
def test_discovery_tells_what_is_understood(service: Service, edition: str) -> None:
    answer = service.controller(edition=edition).discover()
    assert answer.code == 200
    said = answer.said
    assert said["api_version"] == {"OpenDSR": "2.0", "OpenGDPR": "1.0"}[edition]
    assert said["supported_subject_request_types"] == ["erasure"]
    forms = {one["identity_format"] for one in said["supported_identities"]}
    assert forms == {"raw", "sha256"}


def test_discovery_needs_no_token_and_checks_one_that_comes(service: Service) -> None:
    nobody = Controller(service.port, authority(), DOMAIN, "")
    assert nobody.discover().code == 200
    wrong = Controller(service.port, authority(), DOMAIN, bearer("expunge_wrong"))
    assert wrong.discover().code == 401


@pytest.mark.parametrize("edition", EDITIONS)
def test_a_request_goes_from_pending_to_completed(
    service: Service, edition: str
) -> None:
    desk = service.controller(edition=edition)
    stranger = identity(f"{uuid4().hex}@example.org")
    body = make_request(stranger, edition=edition)
    service.clock.pass_minutes(3.21)
    window = service.settings.windows.at(service.clock.time)
    answer = desk.post(body)
    assert answer.code == 201
    said, request = answer.said, json.loads(body)["subject_request_id"]
    assert b64decode(said["encoded_request"]) == body
    assert said["controller_id"] == "desk"
    assert said["subject_request_id"] == request
    states = [desk.show(request).said]
    service.close_window()
    states.append(desk.show(request).said)
    service.clock.time = window.answer - 1
    states.append(desk.show(request).said)
    service.clock.time = window.answer
    states.append(desk.show_alias(request).said)
    assert [one["request_status"] for one in states] == [
        "pending",
        "in_progress",
        "in_progress",
        "completed",
    ]
    assert [one["results_count"] for one in states] == [None, None, None, 0]
    assert {one["results_url"] for one in states} == {None}
    moments = {one["expected_completion_time"] for one in states}
    assert moments == {said["expected_completion_time"]}
    assert said["received_time"].endswith(":00Z")  # the window's, not the clock's


def test_addresses_may_end_in_a_slash(service: Service) -> None:
    desk = service.controller()
    body = make_request(identity(f"{uuid4().hex}@example.org"))
    answer = desk.send("POST", f"{desk.collection}/", body)
    assert answer.code == 201
    request = json.loads(body)["subject_request_id"]
    assert desk.send("GET", f"{desk.collection}/{request}/").code == 200


def test_a_known_person_is_erased_and_a_receipt_says_so(service: Service) -> None:
    desk = service.controller("eraser", password=True)
    request = desk.file(
        identity(ADDRESS.upper()), identity(CUSTOMER, "ios_advertising_id")
    ).said["subject_request_id"]
    service.reach_answer()
    said = desk.show(request).said
    assert (said["request_status"], said["results_count"]) == ("completed", 1)
    more = said["extensions"][DOMAIN]
    assert (more["outcome"], more["reason"]) == ("done", "")
    assert set(more["certificates"]) == {"all", "half"}
    assert service.registry.requests.find_models([KNOWN]) == {KNOWN: ()}
    receipt = desk.send("GET", more["receipt_url"].removeprefix(f"https://{DOMAIN}"))
    assert receipt.code == 200
    assert check_receipt(receipt.raw, service.registry.keys.public_pem()).valid
    assert receipt.said["entry"]["certificates"] == more["certificates"]
    assert receipt.said["entry"]["n_subjects"] == 1


def test_customers_numbers_are_ids_of_the_models(service: Service) -> None:
    desk = service.controller()
    who = identity("person 9", "controller_customer_id")
    request = desk.file(who, regulation="ccpa").said["subject_request_id"]
    service.reach_answer()
    assert desk.show(request).said["results_count"] == 1
    status = service.registry.requests.status(request.replace("-", ""))
    assert (status.regime, status.submitted) == ("ccpa", "2026-01-02")


def test_the_same_request_again_is_answered_the_same(service: Service) -> None:
    desk = service.controller()
    service.registry.aliases.add([("person 11", Identifier("email", "b@c"))])
    body = make_request(identity("b@c"))
    first = desk.post(body)
    service.clock.pass_minutes(1)
    assert desk.post(body).raw == first.raw
    service.reach_answer()
    # The alias went with its person, and the request is still the same.
    again = desk.post(body)
    assert (again.code, again.raw) == (201, first.raw)


def test_the_same_id_with_another_body_is_a_conflict(
    service: Service, desk: Controller
) -> None:
    request = desk.file(identity("x@example.org")).said["subject_request_id"]
    other = desk.file(identity("y@example.org"), subject_request_id=request)
    assert other.code == 409
    assert errors(other)[0]["reason"] == "conflict"
    theirs = service.controller("other")
    body = make_request(identity("x@example.org"), subject_request_id=request)
    assert theirs.post(body).code == 409


def test_requests_of_others_are_not_known(service: Service, desk: Controller) -> None:
    request = desk.file(identity("x@example.org")).said["subject_request_id"]
    theirs = service.controller("other")
    unknown = theirs.show(str(uuid4()))
    assert unknown.code == 404
    for answer in (theirs.show(request), theirs.cancel(request), desk.show("x")):
        assert (answer.code, answer.raw) == (404, unknown.raw)
    # The name is what counts: a token that follows another sees its requests.
    assert service.controller("desk").show(request).code == 200


@pytest.mark.parametrize("edition", EDITIONS)
def test_a_pending_request_can_be_cancelled(service: Service, edition: str) -> None:
    desk = service.controller(edition=edition)
    accepted = desk.file(identity("x@example.org")).said
    request = accepted["subject_request_id"]
    answer = desk.cancel(request)
    assert answer.code == 202
    said = answer.said
    assert said["received_time"] == accepted["received_time"]
    assert said["controller_id"] == "desk"
    assert desk.show(request).said["request_status"] == "cancelled"
    assert desk.cancel(request).code == 202  # the answer may have been lost
    service.reach_answer()
    assert desk.show(request).said["request_status"] == "cancelled"


def test_a_request_that_is_worked_on_cannot_be_cancelled(
    service: Service, desk: Controller
) -> None:
    request = desk.file(identity("x@example.org")).said["subject_request_id"]
    service.close_window()
    answer = desk.cancel(request)
    assert answer.code == 400
    assert errors(answer)[0]["reason"] == "not-pending"


def test_strangers_and_known_people_are_answered_alike(service: Service) -> None:
    desk = service.controller()
    shown: list[list[Any]] = []
    for who in ("person 20", "nobody 20"):
        said = desk.file(identity(who, "controller_customer_id")).said
        pending = desk.show(said["subject_request_id"]).said
        assert len(said.pop("encoded_request")) > 0
        del said["processor_signature"]
        for one in (said, pending):
            del one["subject_request_id"]
        shown.append([said, pending])
    assert shown[0] == shown[1]


@pytest.mark.parametrize("secret", ["", "Bearer x", "Basic x", "Basic eDp4", "Digest"])
def test_a_token_is_needed(service: Service, secret: str) -> None:
    nobody = Controller(service.port, authority(), DOMAIN, "")
    nobody.discover()
    nobody.credentials = secret
    for answer in (
        nobody.file(identity("x@example.org")),
        nobody.show(str(uuid4())),
        nobody.cancel(str(uuid4())),
    ):
        assert answer.code == 401
        assert errors(answer)[0]["reason"] == "unauthorised"
        assert "www-authenticate" in answer.headers


def test_who_has_no_token_causes_one_signature(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed: list[bytes] = []
    sign = Processor.sign

    def count(self: Processor, body: bytes) -> str:
        signed.append(body)
        return sign(self, body)

    monkeypatch.setattr(Processor, "sign", count)
    nobody = Controller(service.port, authority(), DOMAIN, "")
    for _ in range(3):
        assert nobody.discover().code == 200
        assert nobody.file(identity("x@example.org")).code == 401
        assert nobody.show(str(uuid4())).code == 401
    assert len(signed) == len(set(signed)) <= 2


def test_a_token_without_the_scope_is_refused(service: Service) -> None:
    _, secret = service.registry.access.create("auditor", ["audit"])
    auditor = Controller(service.port, authority(), DOMAIN, bearer(secret))
    assert auditor.file(identity("x@example.org")).code == 403


def test_what_is_wrong_is_told_without_the_identity(desk: Controller) -> None:
    secret = "ada.lovelace"
    wrong = desk.file(identity(secret), identity(secret, "email", "md5"), regulation="")
    assert wrong.code == 400
    assert {one["domain"] for one in errors(wrong)} == {
        "regulation",
        "subject_identities",
    }
    assert secret.encode() not in wrong.raw
    for kind in ("access", "portability"):
        refused = desk.file(identity("a@b"), subject_request_type=kind)
        assert refused.code == 400
        assert "erasure is, see discovery" in errors(refused)[0]["message"]


def test_a_refused_request_is_completed_with_its_reason(service: Service) -> None:
    desk = service.controller()
    request = desk.file(identity("x@example.org")).said["subject_request_id"]
    service.registry.requests.refuse(request.replace("-", ""), "unidentified")
    service.reach_answer()
    said = desk.show(request).said
    assert (said["request_status"], said["results_count"]) == ("completed", 0)
    more = said["extensions"][DOMAIN]
    assert (more["outcome"], more["reason"]) == ("refused", "unidentified")


def test_the_recorded_conversation_is_what_is_said() -> None:
    recorded = json.loads(FILE.read_text())
    assert record(recorded) == recorded


def test_the_recorded_signatures_are_good() -> None:
    recorded = json.loads(FILE.read_text())
    pem, issuer = recorded["certificate"].encode(), recorded["authority"].encode()
    certificate = trust(pem, issuer, domain=recorded["domain"])
    answers = [one["answer"] for one in recorded["exchanges"]]
    for answer in (*answers, recorded["callback"]):
        body = answer["body"].encode()
        headers = answer["headers"]
        check_signed(headers, body, certificate=certificate, edition="OpenDSR")
