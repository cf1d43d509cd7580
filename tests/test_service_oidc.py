# SPDX-License-Identifier: Apache-2.0
"""Sign-in by an identity provider, a real one at a socket; and what it may not do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import pytest
from fastapi.testclient import TestClient
from joserfc.jwk import RSAKey

from expunge.exceptions import InvalidInput
from expunge.registry import Registry
from expunge.service.settings import OidcSettings

from .oidc_provider import CLIENT, SECRET, TestProvider, make_provider_app
from .services import InProcess, serve_app, serve_in_process

NAME = "ada 4523540f1504 at 127.0.0.1"
SCOPES = {"privacy": ("operate",), "audit": ("audit",)}


@pytest.fixture(scope="module")
def provider_at() -> Iterator[TestProvider]:
    provider = TestProvider()
    with serve_app(make_provider_app(provider)) as address:
        provider.issuer = address
        yield provider


@pytest.fixture
def provider(provider_at: TestProvider) -> TestProvider:
    fresh = TestProvider()
    provider_at.claims, provider_at.changes = fresh.claims, {}
    provider_at.signer, provider_at.algorithm = None, "RS256"
    return provider_at


@contextmanager
def serve_with(
    registry: Registry, provider: TestProvider, **changes: Any
) -> Iterator[InProcess]:
    oidc = OidcSettings(provider.issuer, CLIENT, SECRET, SCOPES)
    with serve_in_process(
        registry, oidc=oidc, address="http://testserver", **changes
    ) as service:
        yield service


@pytest.fixture
def service(sqlite_registry: Registry, provider: TestProvider) -> Iterator[InProcess]:
    with serve_with(sqlite_registry, provider) as running:
        yield running


def leave(browser: TestClient, there: str = "/") -> str:
    """Go to the provider and be let in; return where it leads back to."""
    leaving = browser.get(f"/sign-in/oidc?next={there}", follow_redirects=False)
    assert leaving.status_code == 302
    return str(httpx2.get(leaving.headers["location"]).headers["location"])


def sign_in(service: InProcess) -> Any:
    """Go through the whole flow, as a browser does."""
    return service.http.get(leave(service.http))


def signed_in_as(service: InProcess) -> tuple[str, tuple[str, ...]]:
    """Go through the flow; return the name and the scopes of the session."""
    assert sign_in(service).status_code == 200
    token = service.registry.access.find(service.http.cookies["expunge_session"])
    assert token is not None
    return token.name, token.scopes


def test_a_person_is_let_in_by_a_group(service: InProcess) -> None:
    assert signed_in_as(service) == (NAME, ("operate",))


@pytest.mark.parametrize("claim", ["preferred_username", "email"])
def test_a_name_is_one_persons(
    service: InProcess, provider: TestProvider, claim: str
) -> None:
    provider.claims |= {"preferred_username": "", claim: "ada" * 30}
    names = set()
    for provider.changes in ({"sub": "17"}, {"sub": "18"}):
        names.add(signed_in_as(service)[0])
    assert len(names) == 2
    assert all(len(one) == 80 and one.endswith(" at 127.0.0.1") for one in names)


@pytest.mark.parametrize("subject", [None, ""])
def test_a_person_without_a_subject_is_refused(
    service: InProcess, provider: TestProvider, subject: str | None
) -> None:
    provider.changes = {"sub": subject}
    assert sign_in(service).status_code == 403


def test_several_groups_add_up(service: InProcess, provider: TestProvider) -> None:
    provider.claims["groups"] = ["audit", "privacy", "other"]
    assert signed_in_as(service)[1] == ("operate", "audit")


@pytest.mark.parametrize("groups", [[], ["other"], "other", None, 7, {}, "absent"])
def test_others_may_do_nothing(
    service: InProcess, provider: TestProvider, groups: Any
) -> None:
    provider.claims = {} if groups == "absent" else {"groups": groups}
    answer = sign_in(service)
    assert answer.status_code == 403 and "may do nothing here" in answer.text
    assert "expunge_session" not in service.http.cookies


@pytest.mark.parametrize(
    "lie",
    [
        {"iss": "http://127.0.0.1:9"},
        {"aud": "another"},
        {"aud": [CLIENT, "another"], "azp": "another"},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": 1_000_000_000},
        {"exp": None},
    ],
)
def test_claims_that_are_not_for_us_are_refused(
    service: InProcess, provider: TestProvider, lie: dict[str, Any]
) -> None:
    provider.changes = lie
    assert sign_in(service).status_code == 403
    assert "expunge_session" not in service.http.cookies


def test_a_token_signed_by_another_key_is_refused(
    service: InProcess, provider: TestProvider
) -> None:
    provider.signer = RSAKey.generate_key(2048)
    assert sign_in(service).status_code == 403


def test_what_the_provider_says_of_algorithms_does_not_count(
    service: InProcess, provider: TestProvider
) -> None:
    provider.algorithm = "none"
    assert sign_in(service).status_code == 403


def test_the_attempt_of_another_browser_is_refused(service: InProcess) -> None:
    browser = service.http
    back = leave(browser)
    kept = dict(browser.cookies)
    browser.cookies.clear()
    assert browser.get(back).status_code == 400  # nothing was begun here
    leave(browser)
    assert browser.get(back).status_code == 400  # another attempt was
    for name, value in kept.items():
        browser.cookies.set(name, value)
    place, _, query = back.partition("?")
    fields = dict(parse_qsl(query))
    for wrong in ({"state": "x"}, {"state": ""}):
        assert browser.get(f"{place}?{urlencode(fields | wrong)}").status_code == 400
    assert "expunge_session" not in browser.cookies


def test_without_a_code_nobody_is_let_in(service: InProcess) -> None:
    place, _, query = leave(service.http).partition("?")
    state = dict(parse_qsl(query))["state"]
    for said in ({"state": state}, {"state": state, "error": "access_denied"}):
        answer = service.http.get(f"{place}?{urlencode(said)}")
        assert answer.status_code in (400, 403)


@pytest.mark.parametrize("value", ["", "x", "e30=", "bnVsbA==.x.y", "W10=", "null"])
def test_a_bent_cookie_is_refused(service: InProcess, value: str) -> None:
    back = leave(service.http)
    service.http.cookies.clear()
    answer = service.http.get(back, headers={"Cookie": f"expunge_oidc={value}"})
    assert answer.status_code == 400


def test_a_provider_that_is_away_is_said_to_be(sqlite_registry: Registry) -> None:
    away = TestProvider(issuer="http://127.0.0.1:9")
    with serve_with(sqlite_registry, away) as service:
        answer = service.http.get("/sign-in/oidc")
        assert answer.status_code == 503 and "does not answer" in answer.text


def test_a_provider_of_another_name_is_refused(
    sqlite_registry: Registry, provider: TestProvider
) -> None:
    alias = TestProvider(issuer=provider.issuer.replace("127.0.0.1", "localhost"))
    with serve_with(sqlite_registry, alias) as service:
        for _ in range(2):
            answer = service.http.get("/sign-in/oidc")
            assert answer.status_code == 503 and "another issuer" in answer.text


def test_unsafe_settings_are_refused(sqlite_registry: Registry) -> None:
    for settings, word in (
        (OidcSettings("http://example.org", CLIENT, SECRET), "https"),
        (OidcSettings("https://x.org", CLIENT, SECRET, {"a": ("root",)}), "root"),
    ):
        with pytest.raises(InvalidInput, match=word):
            with serve_in_process(sqlite_registry, oidc=settings):
                pass


def test_a_browser_goes_there_and_back(service: InProcess) -> None:
    browser = service.http
    page = browser.get("/sign-in?next=/models").text
    assert "/sign-in/oidc?next=/models" in page
    back = leave(browser, "/models")
    signed_in = browser.get(back)
    assert signed_in.headers["refresh"] == "0; url=/models"
    assert browser.get("/models").status_code == 200
    assert browser.get("/settings").status_code == 403
    (line,) = service.registry.access.trail()
    assert (line.actor, line.action) == (NAME, "sign in")
    assert browser.get(back).status_code == 400  # the attempt was used


def test_what_a_browser_keeps_is_short_lived_and_its_own(
    sqlite_registry: Registry, provider: TestProvider
) -> None:
    with serve_with(sqlite_registry, provider, is_secure=True) as service:
        leaving = service.http.get("/sign-in/oidc", follow_redirects=False)
        asked = dict(parse_qsl(urlsplit(leaving.headers["location"]).query))
        kept = leaving.headers["set-cookie"].lower()
        assert kept.startswith("__host-expunge_oidc=")
        for word in ("max-age=600", "httponly", "samesite=lax", "secure", "path=/;"):
            assert word in kept
        assert asked["code_challenge_method"] == "S256" and asked["nonce"]


def test_without_a_provider_there_is_no_such_page(sqlite_registry: Registry) -> None:
    with serve_in_process(sqlite_registry) as service:
        assert service.http.get("/sign-in/oidc").status_code == 404
        assert "sign in at" not in service.http.get("/sign-in").text
