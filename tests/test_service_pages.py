# SPDX-License-Identifier: Apache-2.0
"""Pages without a browser: what they show to whom, and what is noted."""

import re
from collections.abc import Iterator
from datetime import date, timedelta
from html import unescape
from typing import Any

import pytest

from expunge.ledger import Receipt
from expunge.ledger.packs import check_pack
from expunge.registry import Outcome, Registry, Request
from expunge.service.auth import COOKIE
from expunge.service.models import move_belief
from expunge.service.views import DeadlineBar
from expunge.service.windows import show_at
from tests.registries import now, queue_message, registry_at, set_clock, today
from tests.services import InProcess, apply_window, serve_in_process
from tests.visitors import answer_all, post, send, sign_in

ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def registry(sqlite_registry: Registry) -> Registry:
    return sqlite_registry


@pytest.fixture
def service(registry: Registry) -> Iterator[InProcess]:
    with serve_in_process(registry) as running:
        yield running


def listed(service: InProcess, place: str = "/") -> list[str]:
    """Return the requests that a page lists."""
    page = service.http.get(place).text
    rows = page.partition("<tbody>")[2]
    return re.findall(r'href="/requests/([0-9a-f]{32})"', rows)


def figures(service: InProcess) -> dict[str, int]:
    """Return how many requests the first page says are due."""
    page = service.http.get("/").text
    return {
        name: int(number)
        for name, number in re.findall(r"<dt>([^<]+)</dt><dd>(\d+)</dd>", page)
    }


def next_page(service: InProcess, place: str) -> str:
    """Return the address of the page that follows; empty after the last."""
    found = re.search('href="([^"]+)" rel="next"', service.http.get(place).text)
    return unescape(found[1]) if found else ""


class TestRequests:
    def test_senders_see_their_own(self, service: InProcess) -> None:
        mine, other = send(service, "request"), send(service, "operate")
        sign_in(service, "request")
        assert listed(service) == [mine]
        assert service.http.get(f"/requests/{mine}").status_code == 200
        assert service.http.get(f"/requests/{other}").status_code == 404
        unknown = service.http.get(f"/requests/{ID}")
        same = service.http.get(f"/requests/{other}").text.replace(other, ID)
        assert unknown.text == same  # word for word

    def test_known_and_unknown_people_look_alike(
        self, service: InProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = today() - timedelta(days=25)
        known, unknown = (
            send(service, people=[{"id": who}], submitted=str(asked))
            for who in ("person 3", "nobody")
        )

        def pages() -> tuple[str, ...]:
            texts = (
                service.http.get(f"/requests/{one}").text for one in (known, unknown)
            )
            return tuple(
                text.replace(one, ID).replace(one[:12], ID[:12])
                for one, text in zip((known, unknown), texts, strict=True)
            )

        sign_in(service, "request")
        first, second = pages()
        assert first == second
        window = service.registry.requests.status(known).window
        set_clock(monkeypatch, window.close)
        first, second = pages()
        assert first == second
        apply_window(service)  # answered in the store, and not shown yet
        assert pages() == (first, second)
        assert len(listed(service)) == figures(service)["Due within 7 days"] == 2
        set_clock(monkeypatch, today() + timedelta(days=1))
        sign_in(service, "request")
        assert listed(service) == []
        page = service.http.get(f"/requests/{unknown}").text
        assert "we found nothing under what you gave us" in page

    def test_receipts_of_others_need_audit(
        self, service: InProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        request = send(service)
        sign_in(service, "request")
        assert service.http.get(f"/requests/{request}/receipt").status_code == 404
        answer_all(service, monkeypatch)
        stored = service.registry.requests.receipt(request)
        for scope, code in (("request", 200), ("audit", 200), ("operate", 403)):
            sign_in(service, scope)
            answer = service.http.get(f"/requests/{request}/receipt")
            assert answer.status_code == code, scope
            assert (answer.text == stored) == (code == 200)
            page = service.http.get(f"/requests/{request}").text
            assert ("The operator states that request" in page) == (code == 200)

    def test_letters_and_evidence_are_for_those_who_may_see_them(
        self, service: InProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known = send(service)
        unknown = send(service, people=[{"id": "nobody"}])
        sign_in(service, "operate")

        def letters() -> list[str]:
            found = [
                service.http.get(f"/requests/{one}/letter") for one in (known, unknown)
            ]
            assert {one.status_code for one in found} == {200}
            return [
                one.text.replace(request, "ID")
                for one, request in zip(found, (known, unknown), strict=True)
            ]

        first, second = letters()
        assert first == second and "We have received your request" in first
        apply_window(service)  # answered in the store, and not shown yet
        assert letters() == [first, second]
        answer_all(service, monkeypatch)
        sign_in(service, "operate")
        path = f"/requests/{known}/letter"
        assert service.http.get(path).status_code == 403
        page = service.http.get(f"/requests/{known}").text
        assert f'href="{path}"' not in page
        assert service.http.get(f"/requests/{known}/evidence").status_code == 403
        sign_in(service, "admin")
        assert f'href="{path}"' in service.http.get(f"/requests/{known}").text
        done = service.http.get(f"{path}?language=de")
        assert "Der Einfluss Ihrer Daten" in done.text
        assert "attachment" in done.headers["Content-Disposition"]
        assert service.http.get(f"{path}?kind=sonnet").status_code == 422
        pack = service.http.get(f"/requests/{known}/evidence")
        assert check_pack(pack.content, service.registry.keys.public_pem()).valid

    def test_cancel_while_pending(
        self, service: InProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        request = send(service)
        sign_in(service, "audit")  # sees it, and may not act
        assert service.http.get(f"/requests/{request}").status_code == 200
        assert post(service, f"/requests/{request}/cancel").status_code == 403
        sign_in(service, "request")
        answer = post(service, f"/requests/{request}/cancel")
        assert answer.headers["location"].endswith("said=cancelled")
        page = service.http.get(f"/requests/{request}?said=cancelled").text
        assert "It was cancelled" in page and "will not be applied" in page
        late = send(service)
        answer_all(service, monkeypatch)
        sign_in(service, "request")
        assert post(service, f"/requests/{late}/cancel").status_code == 409

    def test_refuse_and_extend(self, service: InProcess) -> None:
        request, other = send(service), send(service)
        sign_in(service, "operate")
        told = today().isoformat()
        answer = post(
            service, f"/requests/{request}/extend", reason="complex", notified=told
        )
        assert answer.headers["location"].endswith("said=extended")
        bad = post(service, f"/requests/{other}/extend", reason="many", notified="x")
        assert bad.status_code == 422
        answer = post(service, f"/requests/{other}/refuse", reason="legal-duty")
        assert answer.headers["location"].endswith("said=refused")
        text = service.registry.requests.receipt(other)
        assert text is not None
        assert Receipt.from_json(text).entry.reason == "legal-duty"

    def test_looks_and_acts_are_in_the_trail(self, service: InProcess) -> None:
        request = send(service)
        sign_in(service, "operate")
        for _ in range(3):
            service.http.get(f"/requests/{request}")
        service.http.get("/models/all")
        post(service, "/models/all/release?format=safetensors")
        lines = [
            (line.actor, line.action, line.target)
            for line in service.registry.access.trail(0, 50)
        ]
        session = service.registry.access.find(service.http.cookies[COOKIE])
        assert session is not None
        assert lines == [
            ("operate desk", "sign in", session.id),
            ("operate desk", "look at requests", ""),
            ("operate desk", "look at request", request),
            ("operate desk", "download release", "all"),
        ]

    def test_filters(self, service: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
        old = send(service, submitted=str(today() - timedelta(days=60)))
        new = send(service)
        sign_in(service, "operate")

        assert listed(service, "/?state=&due=") == [old, new]  # the overdue one first
        assert listed(service, "/?due=overdue") == [old]
        assert listed(service, "/?state=pending&due=7d") == [old]
        assert listed(service, "/?state=completed") == []
        assert figures(service) == {"Overdue": 1, "Due within 7 days": 1}
        assert "overdue by" in service.http.get("/").text
        service.registry.requests.cancel(new)
        assert listed(service, "/?state=cancelled") == [new]
        assert service.http.get("/?state=x").status_code == 404
        for query, found in (("state=open", [old]), ("due=overdue", [old])):
            answer = service.call("GET", f"/api/v1/requests?{query}").json()
            assert [one["id"] for one in answer["requests"]] == found

    def test_pages_go_on_past_what_is_not_shown(
        self, service: InProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        requests = [send(service) for _ in range(7)]
        for one in sorted(requests)[:5]:
            service.registry.requests.cancel(one)
        sign_in(service, "request")
        assert listed(service, "/?limit=2") == sorted(requests)[5:]
        monkeypatch.setattr("expunge.service.requests.PAGE", 2)
        seen, place = [], "/?state=all"
        while place:
            seen += listed(service, place)
            place = next_page(service, place)
        assert seen == sorted(requests)

    def test_names_are_escaped(self, service: InProcess) -> None:
        name = "<script>alert(1)</script>"
        service.registry.access.create(name, ["request"])
        sign_in(service)
        page = service.http.get("/settings").text
        assert "&lt;script&gt;alert(1)" in page and name not in page


class TestModels:
    def test_release_leaves_and_is_recalled(self, service: InProcess) -> None:
        sign_in(service, "operate")
        data = post(service, "/models/all/release?format=safetensors")
        assert data.headers["content-disposition"].endswith('"all.safetensors"')
        assert len(data.content) > 500
        assert post(service, "/models/all/release?format=exe").status_code == 404
        recall = "All copies of 1 are taken back"
        assert recall not in service.http.get("/models/all").text
        service.registry.forget(["person 1"])
        page = service.http.get("/models/all").text
        assert recall in page and "all.safetensors" in page
        assert "1 to recall" in service.http.get("/models").text
        answer = post(service, "/models/all/releases/1/withdraw")
        assert answer.headers["location"].endswith("said=withdrawn")
        assert recall not in service.http.get("/models/all").text

    def test_nothing_of_the_rows_is_shown(self, service: InProcess) -> None:
        sign_in(service)
        shown = service.call("GET", "/api/v1/models/all").json()
        assert "radius" not in str(sorted(shown)) and "record" not in shown
        page = service.http.get("/models/all").text
        assert "is right at most 73.2 % of the time after" in page
        assert service.http.get("/models/none").status_code == 404

    def test_beliefs(self) -> None:
        ends = [move_belief(before, 3.0) for before in (0, 50, 100)]
        assert [(one.lowest, one.highest) for one in ends] == [
            (0.0, 0.0),
            (25.0, 75.0),
            (100.0, 100.0),
        ]


class TestLedger:
    def test_heads_are_compared(self, service: InProcess) -> None:
        sign_in(service, "audit")
        head = service.registry.ledger.head()
        assert head is not None
        receipt = service.registry.forget(["person 1"])
        assert "The heads fit together" in post(service, "/ledger", head=head).text
        assert "The receipt is valid" in post(service, "/ledger", head=receipt).text
        forged = head.replace('"root":"', '"root":"00')[: len(head) + 2]
        assert "is not valid" in post(service, "/ledger", head=forged).text
        swapped = re.sub('"root":"[0-9a-f]{64}"', f'"root":"{"0" * 64}"', head)
        answer = post(service, "/ledger", head=swapped)
        assert "The heads do not fit together" in answer.text

    def test_longer_head_is_another_ledger(
        self, service: InProcess, tmp_path: Any
    ) -> None:
        with registry_at(tmp_path / "other") as other:
            for i in range(3):
                other.forget([f"person {i}"])
            head = other.ledger.head()
        sign_in(service, "audit")
        answer = post(service, "/ledger", head=head)
        assert "entries were cut off, or the head is of another ledger" in answer.text

    def test_pages_of_entries(
        self, service: InProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("expunge.service.ledger.PAGE", 3)
        service.registry.forget(["person 1"])
        sign_in(service, "audit")
        seen: list[int] = []
        place = "/ledger"
        while place:
            page = service.http.get(place).text
            seen += map(int, re.findall(r'data-label="Entry">(\d+)', page))
            place = next_page(service, place)
        assert seen == list(reversed(range(service.registry.status().ledger_size)))


class TestSettings:
    def test_secret_is_shown_once(self, service: InProcess) -> None:
        sign_in(service)
        answer = post(
            service,
            "/settings/tokens",
            **{"name": "crm", "scopes[]": ["request"], "days": "7"},
        )
        (secret,) = re.findall(r"expunge_[\w-]{43}", answer.text)
        token = service.registry.access.find(secret)
        assert token is not None and token.name == "crm"
        assert answer.headers["cache-control"] == "no-store"
        assert secret not in service.http.get("/settings").text
        answer = post(service, f"/settings/tokens/{token.id}/revoke")
        assert answer.headers["location"].endswith("said=revoked")
        assert service.registry.access.find(secret) is None

    @pytest.mark.parametrize(
        "change",
        [{"name": ""}, {"scopes[]": []}, {"scopes[]": ["root"]}, {"days": "0"}],
    )
    def test_wrong_token_is_explained(
        self, service: InProcess, change: dict[str, Any]
    ) -> None:
        sign_in(service)
        fields = {"name": "crm", "scopes[]": ["request"], "days": "7"} | change
        answer = post(service, "/settings/tokens", **fields)
        assert answer.status_code == 422 and 'role="alert"' in answer.text

    def test_webhooks(self, service: InProcess) -> None:
        sign_in(service)
        url = "https://hooks.example.org/expunge"
        fields = {"url": url, "events[]": ["request.completed"]}
        answer = post(service, "/settings/webhooks", **fields)
        (secret,) = re.findall(r"whsec_[\w+/=]{44}", answer.text)
        page = service.http.get("/settings").text
        assert url in page and secret not in page
        (endpoint,) = service.registry.deliveries.endpoints()
        bad = post(service, "/settings/webhooks", url="http://x")
        assert bad.status_code == 422
        answer = post(service, f"/settings/webhooks/{endpoint.id}/remove")
        assert answer.headers["location"].endswith("said=removed")
        assert service.registry.deliveries.endpoints() == []


class TestDeliveries:
    def test_listed_without_addresses_and_sent_again(self, service: InProcess) -> None:
        deliveries = service.registry.deliveries
        endpoint, _ = deliveries.add_endpoint("https://hooks.example.org/secret-path")
        queue_message(service.registry, endpoint.id, ID)
        (claimed,) = deliveries.claim("hooks.example.org", now=now() + 1, most=1)
        deliveries.note({claimed.id: Outcome(500)}, now=now())
        sign_in(service, "operate")
        page = service.http.get("/deliveries").text
        assert "status 500" in page and "secret-path" not in page
        path = "/api/v1/deliveries"
        (line,) = service.call("GET", f"{path}?state=waiting").json()["deliveries"]
        assert (line["attempts"], line["request"]) == (1, ID)
        answer = post(service, f"/deliveries/{line['id']}/replay")
        assert answer.headers["location"].endswith("said=replayed")
        (line,) = service.call("GET", path).json()["deliveries"]
        assert line["attempts"] == 0
        assert post(service, "/deliveries/none/replay").status_code == 404
        assert post(service, f"/deliveries/msg_{ID}/replay").status_code == 422
        sign_in(service, "audit")
        assert post(service, f"/deliveries/{line['id']}/replay").status_code == 403


class TestDeadlines:
    def bar(
        self, registry: Registry, submitted: date, answered: int = 0
    ) -> DeadlineBar:
        (status,) = registry.requests.accept(
            [Request(("person 1",), submitted=submitted, regime="ccpa")]
        )
        return DeadlineBar.of(show_at(status, now()))

    @pytest.mark.parametrize(
        ("days", "tone", "text"),
        [
            (0, "calm", "45 days left"),
            (38, "soon", "7 days left"),
            (44, "soon", "1 day left"),
            (45, "soon", "due today"),
            (46, "late", "overdue by 1 day, since"),
        ],
    )
    def test_bar_and_words(
        self, registry: Registry, days: int, tone: str, text: str
    ) -> None:
        bar = self.bar(registry, today() - timedelta(days=days))
        assert bar.tone == tone and text in bar.text
        assert bar.share == pytest.approx(min(100, 100 * days / 45), abs=0.1)
        assert bar.days_left == 45 - days
