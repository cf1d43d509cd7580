# SPDX-License-Identifier: Apache-2.0
"""Who is let in to pages, for how long, and which forms are taken."""

import re
from collections.abc import Iterator

import pytest

from expunge.registry import Registry
from expunge.service.auth import COOKIE, make_form_token
from expunge.service.requests import read_person_line
from expunge.service.signin import read_next
from tests.registries import LONGEST_SESSION, MINUTE, now, set_clock, today
from tests.services import InProcess, serve_in_process
from tests.visitors import OURS, post, sign_in

ID = "0123456789abcdef0123456789abcdef"
PAGES = {
    "/": ("request", "operate", "audit", "admin"),
    "/requests/new": ("request", "operate", "admin"),
    "/models": ("operate", "audit", "admin"),
    "/models/all": ("operate", "audit", "admin"),
    "/ledger": ("audit", "admin"),
    "/deliveries": ("operate", "audit", "admin"),
    "/trail": ("audit", "admin"),
    "/settings": ("admin",),
}
HTML = {"text/html; charset=utf-8"}


@pytest.fixture
def registry(sqlite_registry: Registry) -> Registry:
    return sqlite_registry


@pytest.fixture
def service(registry: Registry) -> Iterator[InProcess]:
    with serve_in_process(registry) as running:
        yield running


class TestVisitors:
    @pytest.mark.parametrize("path", PAGES)
    def test_strangers_are_sent_to_sign_in(self, service: InProcess, path: str) -> None:
        answer = service.http.get(path, follow_redirects=False)
        assert answer.status_code == 303
        assert answer.headers["location"] == f"/sign-in?next={path}"

    @pytest.mark.parametrize("scope", ["request", "operate", "audit", "admin"])
    def test_scopes_open_pages(self, service: InProcess, scope: str) -> None:
        sign_in(service, scope)
        header = service.http.get("/").text
        for path, scopes in PAGES.items():
            allowed = scope in scopes
            answer = service.http.get(path)
            assert answer.status_code == (200 if allowed else 403), path
            assert {answer.headers["content-type"]} == HTML
            assert answer.headers["cache-control"] == "no-store"
            if path.count("/") == 1:
                assert (f'href="{path}"' in header) == (allowed or path == "/")

    @pytest.mark.parametrize(
        ("path", "field"),
        [
            ("/", "requests"),
            ("/models", "models"),
            ("/models/all", "certificate"),
            ("/deliveries", "deliveries"),
            ("/trail", "lines"),
        ],
    )
    def test_a_page_is_a_document_of_the_api(
        self, service: InProcess, path: str, field: str
    ) -> None:
        sign_in(service)
        there = "/requests" if path == "/" else path
        assert field in service.call("GET", f"/api/v1{there}").json()
        assert service.http.get(path).headers["content-type"] in HTML
        assert service.http.get(f"{path.rstrip('/')}.json").status_code == 404

    def test_a_session_opens_pages_alone(self, service: InProcess) -> None:
        sign_in(service)
        assert service.http.get("/models").status_code == 200
        assert service.http.get("/api/v1/models").status_code == 401
        assert service.http.get("/metrics").status_code == 401

    def test_wrong_token_is_refused(self, service: InProcess) -> None:
        answer = sign_in(service, token="expunge_" + "A" * 43)
        assert answer.status_code == 401 and "unknown or expired" in answer.text
        assert COOKIE not in service.http.cookies

    def test_signing_in_is_a_call(self, registry: Registry) -> None:
        with serve_in_process(registry, rate=2) as service:
            codes = [sign_in(service).status_code for _ in range(3)]
        assert codes == [200, 200, 429]

    def test_session_is_not_the_token(self, service: InProcess) -> None:
        answer = sign_in(service)
        secret = service.http.cookies[COOKIE]
        assert secret != service.tokens["admin"]
        set_cookie = answer.history[0].headers["set-cookie"].lower()
        assert "httponly" in set_cookie and "samesite=strict" in set_cookie

    def test_cookie_needs_https_where_the_service_has_it(
        self, registry: Registry
    ) -> None:
        with serve_in_process(registry, is_secure=True) as service:
            answer = sign_in(service)
            first = answer.history[0] if answer.history else answer
            name, _, rest = first.headers["set-cookie"].partition("=")
            assert name == f"__Host-{COOKIE}"  # no other host may set such a cookie
            assert "; secure" in rest.lower() and "domain" not in rest.lower()
            kept = rest.partition(";")[0]
            for given, place in ((COOKIE, "/sign-in"), (name, "/models")):
                service.http.cookies.clear()
                page = service.http.get(
                    "/models", headers={"Cookie": f"{given}={kept}"}
                )
                assert page.url.path == place

    def test_session_ends_by_signing_out(self, service: InProcess) -> None:
        sign_in(service)
        secret = service.http.cookies[COOKIE]
        assert post(service, "/sign-out").headers["location"].startswith("/sign-in")
        assert service.registry.access.find(secret) is None

    def test_session_ends_without_use_and_lasts_with_it(
        self, service: InProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sign_in(service)
        secret, start = service.http.cookies[COOKIE], now()
        for minutes in range(20, 100, 20):  # in use, beyond the first half hour
            set_clock(monkeypatch, start + minutes * MINUTE)
            service.http.app.state.authenticator.forget()  # type: ignore[attr-defined]
            assert service.http.get("/").url.path == "/"
        set_clock(monkeypatch, start + 130 * MINUTE)
        assert service.registry.access.find(secret) is None

    def test_session_ends_at_last(
        self, service: InProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sign_in(service)
        (kept,) = (service.http.cookies[COOKIE],)
        token = service.registry.access.find(kept)
        assert token is not None
        at = now() + LONGEST_SESSION - MINUTE
        set_clock(monkeypatch, at)
        service.registry.access.prolong(token.id, minutes=30)
        set_clock(monkeypatch, at + 2 * MINUTE)
        service.http.app.state.authenticator.forget()  # type: ignore[attr-defined]
        assert service.registry.access.find(kept) is None
        assert service.http.get("/").url.path == "/sign-in"

    def test_session_ends_with_the_token_that_was_shown(
        self, service: InProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = service.registry.access.find(service.tokens["admin"])
        assert token is not None

        def set_to(at: int) -> None:
            set_clock(monkeypatch, at)
            service.http.app.state.authenticator.forget()  # type: ignore[attr-defined]

        set_to(token.expires - 50 * MINUTE)
        sign_in(service)
        for left in (30, 10):  # in use
            set_to(token.expires - left * MINUTE)
            assert service.http.get("/").url.path == "/"
        session = service.registry.access.find(service.http.cookies[COOKIE])
        assert session is not None and session.expires == token.expires

    def test_a_session_makes_no_longer_one(
        self, service: InProcess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sign_in(service)
        first = service.http.cookies[COOKIE]
        sign_in(service, token=first)
        second = service.http.cookies[COOKIE]
        set_clock(monkeypatch, now() + 20 * MINUTE)
        service.http.app.state.authenticator.forget()  # type: ignore[attr-defined]
        assert service.http.get("/").url.path == "/"
        old, new = map(service.registry.access.find, (first, second))
        assert old is not None and new is not None and new.expires <= old.expires

    @pytest.mark.parametrize(
        "there",
        [
            "//evil.example",
            "https://evil.example/",
            "/\\evil.example",
            "////evil.example",
            "",
            "evil",
        ],
    )
    def test_signing_in_leads_to_us_alone(self, there: str) -> None:
        assert read_next(there) == "/"
        assert read_next("/models/all") == "/models/all"

    def test_a_page_to_go_to_fits_a_header(self) -> None:
        assert read_next("/models/\u20ac; \r\n") == "/models/%E2%82%AC%3B%20"
        assert read_next("/models/%E2%82%AC") == "/models/%E2%82%AC"


def apart_from_the_form(page: str) -> tuple[str, str]:
    """Return what a page gives back to who typed it, and all else that it says."""
    typed = re.findall(r"<textarea.*?</textarea>", page, re.DOTALL)
    return "".join(typed), re.sub(r"<textarea.*?</textarea>", "", page, flags=re.DOTALL)


class TestForms:
    def test_need_the_word_of_the_session(self, service: InProcess) -> None:
        sign_in(service)
        fields = {"people": "person 3", "right": "erase", "id": ID}
        for word in ("", "0" * 64):
            given = fields | {"form_token": word}
            answer = service.http.post("/requests/new", data=given, headers=OURS)
            assert answer.status_code == 403
        assert service.registry.requests.statuses([ID]) == {}

    @pytest.mark.parametrize(
        "headers",
        [
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {},
        ],
    )
    def test_of_other_sites_are_refused(
        self, service: InProcess, headers: dict[str, str]
    ) -> None:
        given = {"token": service.tokens["admin"]}
        answer = service.http.post("/sign-in", data=given, headers=headers)
        assert answer.status_code == 403 and "set-cookie" not in answer.headers

    def test_of_an_old_browser_are_taken_by_their_origin(
        self, service: InProcess
    ) -> None:
        given = {"token": service.tokens["admin"]}
        origin = {"Origin": "http://testserver"}
        assert service.http.post("/sign-in", data=given, headers=origin).is_success

    def test_a_token_in_a_header_sends_no_form(self, service: InProcess) -> None:
        service.http.cookies.clear()
        body = {"people": "person 3", "right": "erase"}
        answer = service.call("POST", "/requests/new", data=body, headers=OURS)
        assert answer.status_code == 403
        # Without a session there is no word that fits, not even one that follows.
        body["form_token"] = make_form_token("")
        answer = service.call("POST", "/requests/new", data=body, headers=OURS)
        assert answer.status_code == 403

    def test_policy_forbids_inline_code(self, service: InProcess) -> None:
        policy = service.http.get("/sign-in").headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy

    def test_file_a_request_once(self, service: InProcess) -> None:
        sign_in(service, "request")
        fields = {"people": "person 3\nemail:ada@example.org", "id": ID, "each": "one"}
        fields |= {"right": "erase", "submitted": today().isoformat()}
        for _ in range(2):
            answer = post(service, "/requests/new", **fields)
            assert answer.headers["location"] == f"/requests/{ID}?said=accepted"
        found = service.registry.requests.statuses([ID])[ID]
        assert (found.n_subjects, found.sender) == (2, "request desk")

    @pytest.mark.parametrize(
        "change",
        [{"people": "email:no address"}, {"submitted": "soon"}, {"right": "own"}],
    )
    def test_what_is_wrong_is_said_without_the_people(
        self, service: InProcess, change: dict[str, str]
    ) -> None:
        sign_in(service, "request")
        fields = {"people": "Ada Lovelace", "right": "erase", "submitted": ""}
        answer = post(service, "/requests/new", **fields | change)
        assert answer.status_code == 422
        assert 'role="alert"' in answer.text
        typed, shown = apart_from_the_form(answer.text)
        assert (fields | change)["people"] in typed
        assert "Ada" not in shown and "no address" not in shown

    def test_a_person_on_a_line(self) -> None:
        assert read_person_line("person 3") == {"id": "person 3"}
        assert read_person_line("Smith, John: 3") == {"id": "Smith, John: 3"}
        assert read_person_line("id:a:b") == {"id": "a:b"}
        line = "email:ada@example.org, phone:+44 1"
        assert read_person_line(line) == {"email": "ada@example.org", "phone": "+44 1"}

    def test_a_line_with_a_kind_twice_is_refused(self, service: InProcess) -> None:
        sign_in(service, "request")
        fields = {"people": "email:ada@example.org, email:eve@example.org"}
        answer = post(service, "/requests/new", **fields, right="erase", submitted="")
        assert answer.status_code == 422 and "a kind twice" in answer.text
        assert "eve@" not in apart_from_the_form(answer.text)[1]

    def test_only_operators_are_offered_to_end_a_hold(self, service: InProcess) -> None:
        for scope, offered in (("request", False), ("operate", True)):
            sign_in(service, scope)
            assert ("end-hold" in service.http.get("/requests/new").text) is offered
        sign_in(service, "request")
        fields = {"people": "person 3", "right": "end-hold", "submitted": ""}
        assert post(service, "/requests/new", **fields).status_code == 403
