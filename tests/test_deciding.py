# SPDX-License-Identifier: Apache-2.0
"""Time to think: what a rule wants happens before a request is applied, and no later.

None of it shows to a sender: who is known waits as long as who is not.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from expunge.exceptions import (
    InvalidInput,
    NeedsDecision,
    RequestConflict,
    WindowOpen,
)
from expunge.registry import Decider, Registry, Request, RequestRule
from expunge.rights.standing import Right
from tests.registries import SECOND, ask, now, receipt_of, set_clock, today

from .services import InProcess, apply_window, serve_in_process
from .visitors import post, send, sign_in

PERSON, STRANGER = "person 3", "nobody"
BY = Decider("anna", via="command line", reason="she called")


def sent(registry: Registry, *people: str, right: Right = "erase") -> str:
    """Send a request, and return its id."""
    (status,) = registry.requests.accept([Request(people, right=right)], strangers=True)
    return status.request


def stage(registry: Registry, request: str) -> str:
    registry.requests.apply()
    return registry.requests.status(request).stage


class TestSteps:
    def test_each_is_wanted_before_the_next(self, registry: Registry) -> None:
        registry.rules.set("erase", RequestRule(identity=True, approval=True), by=BY)
        registry.rules.set("restrict", RequestRule(identity=True))
        request = sent(registry, PERSON)
        requests = registry.requests
        assert stage(registry, request) == "accepted"
        assert requests.status(request).waits_for == "a check of who asks, approval"
        with pytest.raises(RequestConflict, match="check that first"):
            requests.approve(request, by=BY)
        with pytest.raises(InvalidInput, match="method='shoe size'"):
            requests.check_identity(request, "shoe size")
        requests.check_identity(request, "account", by=BY)
        with pytest.raises(RequestConflict, match="needs no check"):
            requests.check_identity(request, "account", by=BY)
        assert stage(registry, request) == "accepted"
        status = requests.approve(request, by=BY)
        assert (status.identity, status.waits_for) == ("account", "")
        with pytest.raises(RequestConflict, match="no further"):
            requests.approve(request)
        assert stage(registry, request) == "completed"
        with pytest.raises(RequestConflict, match="is completed"):
            requests.approve(request)
        trail = registry.access.trail(0, 100)
        said = [(one.actor, one.action, one.target, one.via) for one in trail]
        assert said == [
            ("anna", "set rule", "erase", "command line"),
            ("unknown", "set rule", "restrict", ""),
            ("anna", "check identity", request, "command line"),
            ("anna", "approve request", request, "command line"),
        ]
        assert trail[-1].reason == "she called"
        assert [one.step for one in requests.decisions(request)] == [
            "identity",
            "approval",
        ]

    def test_a_rule_is_that_of_requests_which_come_later(
        self, sqlite_registry: Registry
    ) -> None:
        registry = sqlite_registry
        earlier = sent(registry, PERSON)
        registry.rules.set("erase", RequestRule(approval=True))
        later = sent(registry, "person 5")
        registry.rules.set("erase", RequestRule())
        assert stage(registry, earlier) == "completed"
        assert stage(registry, later) == "accepted"
        assert registry.rules.read() == {}
        with pytest.raises(NeedsDecision, match=f"{later} is kept, and waits for appr"):
            registry.requests.apply(only=[later])
        assert registry.requests.next_close() is None  # nothing that a worker could do
        registry.requests.refuse(later, "unfounded")  # which is an answer

    def test_what_cannot_be_a_rule_is_refused(self, sqlite_registry: Registry) -> None:
        rules = sqlite_registry.rules
        for name, rule, why in (
            ("erasure", RequestRule(), "give one of erase"),
            ("remove", RequestRule(approval=True), "only four eyes"),
            ("erase", RequestRule(grace_days=28), "give 0 to 27"),
            ("erase", RequestRule(grace_days=-1), "give 0 to 27"),
            ("erase", RequestRule(four_eyes=True), "before there are two"),
        ):
            with pytest.raises(InvalidInput, match=why):
                rules.set(name, rule)
        assert rules.read() == {}


class TestGrace:
    def test_is_over_before_the_deadline(
        self, sqlite_registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        registry = sqlite_registry
        registry.rules.set("erase", RequestRule(grace_days=14))
        request = sent(registry, PERSON)
        asked = Request(("person 5",), submitted=today() - timedelta(days=25))
        (late,) = registry.requests.accept([asked])
        assert stage(registry, request) == "accepted"
        with pytest.raises(WindowOpen, match="after its days of grace"):
            registry.forget([PERSON])
        with pytest.raises(WindowOpen, match="until its window closes"):
            ask(registry, "restrict", PERSON)  # nobody overtakes their own request
        registry.requests.cancel(registry.status().pending[-1].request)
        first = today()
        set_clock(monkeypatch, first + timedelta(days=7))
        assert stage(registry, late.request) == "completed"
        assert not receipt_of(registry, late.request).handling.extended
        assert stage(registry, request) == "accepted"
        set_clock(monkeypatch, first + timedelta(days=15))
        assert stage(registry, request) == "completed"

    def test_can_be_used_to_take_it_back(self, sqlite_registry: Registry) -> None:
        sqlite_registry.rules.set("erase", RequestRule(grace_days=3))
        request = sent(sqlite_registry, PERSON)
        sqlite_registry.requests.cancel(request)
        assert stage(sqlite_registry, request) == "cancelled"


class TestWaiting:
    def test_ends_by_a_word_or_as_the_deadline_nears(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        requests = registry.requests
        one, other = sent(registry, PERSON), sent(registry, "person 5")
        for day in (today(), today() + timedelta(days=40)):
            with pytest.raises(InvalidInput, match="cannot wait past it"):
                requests.wait(one, day)
        requests.wait(one, today() + timedelta(days=9), by=BY)
        assert requests.status(one).waits_for.startswith("its operator, until 20")
        requests.wait(other)
        assert {stage(registry, one), stage(registry, other)} == {"accepted"}
        requests.proceed(one, by=BY)
        assert stage(registry, one) == "completed"
        assert stage(registry, other) == "accepted"
        set_clock(monkeypatch, today() + timedelta(days=25))
        assert stage(registry, other) == "completed"

    def test_an_extended_request_waits(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        requests = registry.requests
        one, other = sent(registry, PERSON), sent(registry, "person 5")
        for request in (one, other):
            requests.extend(request, "complex", notified=today())
        assert {stage(registry, one), stage(registry, other)} == {"accepted"}
        assert requests.next_close() is None
        requests.proceed(one)
        assert stage(registry, one) == "completed"
        assert receipt_of(registry, one).handling.extended == "complex"
        set_clock(monkeypatch, today() + timedelta(days=60))
        assert stage(registry, other) == "accepted"
        set_clock(monkeypatch, today() + timedelta(days=87))
        assert stage(registry, other) == "completed"

    def test_an_erasure_waits_for_a_hold_alone(self, sqlite_registry: Registry) -> None:
        registry = sqlite_registry
        restricted = sent(registry, PERSON, "person 5", right="restrict")
        registry.requests.wait(restricted)
        with pytest.raises(WindowOpen, match="waits for its operator"):
            ask(registry, "lift", "person 5")
        registry.forget([PERSON])
        registry.requests.proceed(restricted)
        assert stage(registry, restricted) == "completed"
        assert registry.requests.find_models([PERSON]) == {PERSON: ()}


@pytest.fixture
def service(sqlite_registry: Registry) -> Iterator[InProcess]:
    with serve_in_process(sqlite_registry) as service:
        yield service


class TestOthers:
    def test_a_sender_sees_no_difference(
        self, service: InProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        registry = service.registry
        registry.rules.set(
            "erase", RequestRule(identity=True, approval=True, grace_days=2)
        )

        def show(request: str) -> dict[str, object]:
            answer = service.call("GET", f"/api/v1/requests/{request}", "request")
            return {**answer.json(), "id": ""}

        known, unknown = (
            send(service, people=[{"id": who}]) for who in (PERSON, STRANGER)
        )
        both = known, unknown
        seen = [show(known)]
        assert show(unknown) == seen[-1]
        assert (seen[-1]["state"], seen[-1]["waits_for"]) == ("pending", None)
        set_clock(monkeypatch, now() + 3 * 86400 * SECOND)
        apply_window(service)
        assert show(known) == show(unknown)
        assert show(known)["state"] == "in_progress"
        for request in both:
            waits = service.call("GET", f"/api/v1/requests/{request}", "operate").json()
            assert waits["waits_for"] == "a check of who asks, approval"
            sign_in(service, "operate")
            path = f"/requests/{request}"
            assert "I checked who asks" in service.http.get(path).text
            assert (
                post(service, f"{path}/identity", method="message").status_code == 303
            )
            page = service.http.get(path).text
            assert "it waits for approval" in page  # in the timeline
            assert "Approve the request" in page and "who asks was checked" in page
            answer = post(service, f"{path}/approve", why="she is a customer")
            assert answer.headers["Location"] == f"{path}?said=approved"
            assert "she is a customer" in service.http.get(path).text
        apply_window(service)
        assert show(known) == show(unknown)
        set_clock(monkeypatch, now() + 86400 * SECOND)
        assert [show(one)["outcome"] for one in both] == ["done", "nothing found"]

    def test_by_the_api(self, service: InProcess) -> None:
        path = "/api/v1/rules/erase"
        assert service.call("PUT", path, "operate", json={}).status_code == 403
        given = {"approval": True}
        assert service.call("PUT", path, "admin", json=given).status_code == 204
        known = service.call("GET", "/api/v1/rules", "operate").json()["rules"]
        assert known["erase"]["approval"] is True
        request = send(service)
        acts = ("wait", "proceed", "approve")
        for act in acts:
            path = f"/api/v1/requests/{request}/{act}"
            assert service.call("POST", path, "request").status_code == 403
            answer = service.call("POST", path, "operate")
            assert answer.status_code == 200, answer.text
        assert answer.json()["waits_for"] == ""
        apply_window(service)
        assert service.registry.requests.status(request).stage == "completed"

    def test_by_pages(self, service: InProcess) -> None:
        sign_in(service, "admin")
        fields = {"right": "erase", "approval": "true", "grace_days": "0"}
        answer = post(service, "/settings/rules", **fields)
        assert answer.headers["Location"] == "/settings?said=ruled"
        assert (
            '<td data-label="Approved by">one</td>'
            in service.http.get("/settings").text
        )
        request = send(service)
        assert "waits for approval" in service.http.get("/").text
        for act in ("wait", "proceed", "approve"):
            assert post(service, f"/requests/{request}/{act}").status_code == 303
