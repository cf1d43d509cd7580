# SPDX-License-Identifier: Apache-2.0
"""Sign-in by an identity provider, a real one at a socket; and what it may not do."""

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from joserfc.jwk import RSAKey

from expunge.exceptions import InvalidInput
from expunge.registry import Registry
from expunge.service.oidc import Provider, SignedIn, SignInAttempt
from expunge.service.problems import Refused
from expunge.service.settings import OidcSettings

from .oidc_provider import CLIENT, SECRET, TestProvider, make_provider_app
from .services import serve_app, serve_in_process

NAME = "ada 4523540f1504 at 127.0.0.1"
SCOPES = {"privacy": ("operate",), "audit": ("audit",)}


@pytest.fixture
def provider() -> Iterator[TestProvider]:
    provider = TestProvider()
    with serve_app(make_provider_app(provider)) as address:
        provider.issuer = address
        yield provider


def make(provider: TestProvider) -> Provider:
    settings = OidcSettings(provider.issuer, CLIENT, SECRET, SCOPES)
    return Provider(settings, "http://127.0.0.1:1")


def sign_in(
    provider: TestProvider, change: Any = lambda query, attempt: (query, attempt)
) -> SignedIn:
    """Go through the whole flow, as a browser does."""

    async def go() -> SignedIn:
        ours = make(provider)
        url, attempt = await ours.begin()
        async with httpx2.AsyncClient() as browser:
            back = await browser.get(url)
        query = dict(parse_qsl(urlsplit(back.headers["location"]).query))
        kept = SignInAttempt.from_cookie(attempt.to_cookie())
        return await ours.finish(*change(query, kept))

    return asyncio.run(go())


def test_a_person_is_let_in_by_a_group(provider: TestProvider) -> None:
    assert sign_in(provider) == SignedIn(NAME, ("operate",))


@pytest.mark.parametrize("claim", ["preferred_username", "email"])
def test_a_name_is_one_persons(provider: TestProvider, claim: str) -> None:
    provider.claims |= {"preferred_username": "", claim: "ada" * 30}
    names = set()
    for provider.changes in ({"sub": "17"}, {"sub": "18"}):
        names.add(sign_in(provider).name)
    assert len(names) == 2
    assert all(len(one) == 80 and one.endswith(" at 127.0.0.1") for one in names)


def test_a_person_without_a_subject_is_refused(provider: TestProvider) -> None:
    provider.changes = {"sub": None}
    with pytest.raises(Refused):
        sign_in(provider)


def test_several_groups_add_up(provider: TestProvider) -> None:
    provider.claims["groups"] = ["audit", "privacy", "other"]
    assert sign_in(provider).scopes == ("operate", "audit")


@pytest.mark.parametrize("groups", [[], ["other"], "other", None, 7, {}, "absent"])
def test_others_may_do_nothing(provider: TestProvider, groups: Any) -> None:
    provider.claims = {} if groups == "absent" else {"groups": groups}
    with pytest.raises(Refused, match="may do nothing here"):
        sign_in(provider)


@pytest.mark.parametrize(
    "lie",
    [
        {"iss": "http://127.0.0.1:9"},
        {"aud": "another"},
        {"aud": [CLIENT, "another"], "azp": "another"},
        {"nonce": "another"},
        {"exp": 1_000_000_000},
    ],
)
def test_claims_that_are_not_for_us_are_refused(
    provider: TestProvider, lie: dict[str, Any]
) -> None:
    provider.changes = lie
    with pytest.raises(Refused) as refusal:
        sign_in(provider)
    assert refusal.value.status_code == 403


def test_a_token_signed_by_another_key_is_refused(provider: TestProvider) -> None:
    provider.signer = RSAKey.generate_key(2048)
    with pytest.raises(Refused):
        sign_in(provider)


def test_a_state_or_verifier_of_another_browser_is_refused(
    provider: TestProvider,
) -> None:
    with pytest.raises(Refused):
        sign_in(provider, lambda query, kept: (query | {"state": "x"}, kept))
    with pytest.raises(Refused):
        sign_in(provider, lambda query, kept: (query, replace(kept, verifier="y" * 43)))
    with pytest.raises(Refused):
        sign_in(provider, lambda query, kept: ({"state": kept.state}, kept))


DEEP = b64encode(b"[" * 10_000).decode()


@pytest.mark.parametrize("value", ["", "x", "e30=", "bnVsbA==", "W10=", "é", DEEP])
def test_a_bent_cookie_is_refused(value: str) -> None:
    with pytest.raises(Refused):
        SignInAttempt.from_cookie(value)


def test_a_provider_that_is_away_is_said_to_be() -> None:
    with pytest.raises(Refused, match="does not answer"):
        asyncio.run(make(TestProvider(issuer="http://127.0.0.1:9")).begin())


def test_unsafe_settings_are_refused() -> None:
    with pytest.raises(InvalidInput, match="https"):
        Provider(OidcSettings("http://example.org", CLIENT, SECRET), "")
    bad = OidcSettings("https://example.org", CLIENT, SECRET, {"a": ("root",)})
    with pytest.raises(InvalidInput, match="root"):
        Provider(bad, "")


def test_a_browser_goes_there_and_back(
    provider: TestProvider, sqlite_registry: Registry
) -> None:
    oidc = OidcSettings(provider.issuer, CLIENT, SECRET, SCOPES)
    with serve_in_process(
        sqlite_registry, oidc=oidc, address="http://testserver"
    ) as service:
        browser = service.http
        page = browser.get("/sign-in?next=/models").text
        assert "/sign-in/oidc?next=/models" in page
        leaving = browser.get("/sign-in/oidc?next=/models", follow_redirects=False)
        back = httpx2.get(leaving.headers["location"]).headers["location"]
        signed_in = browser.get(back)
        assert signed_in.headers["refresh"] == "0; url=/models"
        assert browser.get("/models").status_code == 200
        assert browser.get("/settings").status_code == 403
        (line,) = sqlite_registry.access.trail()
        assert (line.actor, line.action) == (NAME, "sign in")
        again = browser.get(back)
        assert again.status_code == 400  # the attempt was used


def test_without_a_provider_there_is_no_such_page(sqlite_registry: Registry) -> None:
    with serve_in_process(sqlite_registry) as service:
        assert service.http.get("/sign-in/oidc").status_code == 404
        assert "sign in at" not in service.http.get("/sign-in").text
