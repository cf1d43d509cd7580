# SPDX-License-Identifier: Apache-2.0
"""Sign-in by an identity provider: OpenID Connect, code flow with PKCE.

The browser keeps what belongs to an attempt, in a cookie of ten minutes: the state, the
nonce and the verifier, so any process can finish what another began. What a person may
do here follows from one claim of theirs, by the operator's settings.

A browser that comes back from another site sends no strict cookie with the page that it
is led to. So the way ends at a page of ours that leads on by itself.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from hmac import compare_digest
from typing import Annotated, Any
from urllib.parse import urlsplit

from authlib.common.errors import AuthlibBaseError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from fastapi import APIRouter, Query
from fastapi import Request as Call
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from httpx2 import AsyncClient, HTTPError
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from ..exceptions import InvalidInput
from ..promise.noise import random_bytes
from ..registry.access import LONGEST_NAME, SCOPES
from .auth import begin_session, read_cookie, set_cookie
from .problems import Refused
from .rendering import NO_STORE, render
from .routing import page_router
from .settings import OidcSettings
from .signin import read_next

CALLBACK = "/sign-in/oidc/callback"
COOKIE = "expunge_oidc"
MINUTES = 10
WORD_BYTES = 32
ALGORITHMS = ["RS256", "PS256", "ES256", "EdDSA"]
TIMEOUT = 10.0
LEEWAY = 60  # seconds by which clocks may differ
SHOWN = ("preferred_username", "email")  # of a name, for people to read
SUBJECT_DIGITS = 12
AGAIN = "the sign-in did not succeed; begin again"
NEXT = "expunge_next"


@dataclass(frozen=True, slots=True, repr=False)
class SignInAttempt:
    """What a browser keeps of a sign-in under way."""

    state: str
    nonce: str
    verifier: str

    def to_cookie(self) -> str:
        """Return it as the value of a cookie."""
        return urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()

    @classmethod
    def from_cookie(cls, value: str) -> "SignInAttempt":
        """Return the attempt in a cookie; refuse what is none."""
        try:
            fields = json.loads(urlsafe_b64decode(value.encode()))
            return cls(*(str(fields[name]) for name in cls.__slots__))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Refused(400, AGAIN) from None


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A person whom the provider vouches for, and what they may do here."""

    name: str
    scopes: tuple[str, ...]


class Provider:
    """An identity provider.

    Parameters
    ----------
    settings
        Of the provider.
    address
        Under which browsers reach this service.
    """

    def __init__(self, settings: OidcSettings, address: str) -> None:
        _require_safe(settings)
        self._settings = settings
        self._callback = address.rstrip("/") + CALLBACK
        self._known: dict[str, Any] = {}

    @cached_property
    def name(self) -> str:
        """The provider's host."""
        return str(urlsplit(self._settings.issuer).hostname)

    async def begin(self) -> tuple[str, SignInAttempt]:
        """Return where to send the browser, and what it must keep."""
        attempt = SignInAttempt(*(_make_word() for _ in range(3)))
        places = await self._discover()
        async with self._connect() as client:
            url, _ = client.create_authorization_url(
                places["authorization_endpoint"],
                state=attempt.state,
                nonce=attempt.nonce,
                code_verifier=attempt.verifier,
            )
        return str(url), attempt

    async def finish(
        self, query: Mapping[str, str], attempt: SignInAttempt
    ) -> SignedIn:
        """Return who signed in, once the browser comes back."""
        state = query.get("state", "")
        if not compare_digest(state.encode(), attempt.state.encode()):
            raise Refused(400, AGAIN)
        if not query.get("code"):
            raise Refused(403, AGAIN)
        try:
            claims = await self._fetch_claims(query["code"], attempt)
        except (AuthlibBaseError, JoseError, HTTPError, KeyError, ValueError):
            raise Refused(403, AGAIN) from None
        return self._admit(claims)

    async def _fetch_claims(self, code: str, attempt: SignInAttempt) -> dict[str, Any]:
        """Return the claims of a person, checked."""
        places = await self._discover()
        async with self._connect() as client:
            token = await client.fetch_token(
                places["token_endpoint"],
                code=code,
                grant_type="authorization_code",
                code_verifier=attempt.verifier,
            )
            keys = KeySet.import_key_set(
                (await client.request("GET", places["jwks_uri"], withhold_token=True))
                .raise_for_status()
                .json()
            )
        found = jwt.decode(token["id_token"], keys, algorithms=ALGORITHMS)
        checks = jwt.JWTClaimsRegistry(
            leeway=LEEWAY,
            iss={"essential": True, "value": self._settings.issuer},
            aud={"essential": True, "value": self._settings.client_id},
            azp={"value": self._settings.client_id},  # if others may hear it too
            nonce={"essential": True, "value": attempt.nonce},
            exp={"essential": True},
            sub={"essential": True},
        )
        checks.validate(found.claims)
        return dict(found.claims)

    def _admit(self, claims: Mapping[str, Any]) -> SignedIn:
        """Return what a person may do; refuse somebody who may do nothing."""
        held = claims.get(self._settings.claim) or []
        values = held if isinstance(held, list) else [held]
        allowed = {
            scope
            for value in values
            for scope in self._settings.scopes.get(str(value), ())
        }
        scopes = tuple(one for one in SCOPES if one in allowed)
        if not scopes:
            raise Refused(
                403,
                f"you are signed in at {self.name} and may do nothing here; ask the "
                f"operator for a {self._settings.claim} that is in the settings",
            )
        return SignedIn(_make_name(claims, self.name), scopes)

    async def _discover(self) -> dict[str, Any]:
        """Return where the provider's endpoints are; it is asked once."""
        if not self._known:
            place = self._settings.issuer.rstrip("/")
            try:
                async with AsyncClient(timeout=TIMEOUT) as client:
                    answer = await client.get(
                        f"{place}/.well-known/openid-configuration"
                    )
                found = answer.raise_for_status().json()
            except (HTTPError, ValueError):
                raise Refused(503, f"{self.name} does not answer; try later") from None
            if found.get("issuer") != self._settings.issuer:
                raise Refused(
                    503, f"{self.name} names another issuer; check the settings"
                )
            self._known = dict(found)
        return self._known

    def _connect(self) -> AsyncOAuth2Client:
        return AsyncOAuth2Client(
            self._settings.client_id,
            self._settings.client_secret,
            scope="openid profile email",
            redirect_uri=self._callback,
            code_challenge_method="S256",
            timeout=TIMEOUT,
        )


def _make_word() -> str:
    return urlsafe_b64encode(random_bytes(WORD_BYTES)).decode().rstrip("=")


def _make_name(claims: Mapping[str, Any], provider: str) -> str:
    """Return the name of a person's sessions, which nobody else has.

    People may share a user name or change it, and see the requests of their name. So
    the subject is in it, the one claim that tells people apart.
    """
    subject = sha256(str(claims["sub"]).encode()).hexdigest()[:SUBJECT_DIGITS]
    end = f" {subject} at {provider}"[: LONGEST_NAME - 1]
    shown = next((str(claims[one]) for one in SHOWN if claims.get(one)), "")
    text = "".join(one for one in shown if one.isprintable()).strip()
    return (text[: LONGEST_NAME - len(end)] + end).strip()


def _require_safe(settings: OidcSettings) -> None:
    """Refuse a provider that cannot be trusted, and scopes that do not exist."""
    parts = urlsplit(settings.issuer)
    is_here = parts.hostname in ("127.0.0.1", "::1", "localhost")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_here):
        raise InvalidInput(
            f"the issuer {settings.issuer!r} is not reached by https; give one that is"
        )
    for value, scopes in settings.scopes.items():
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown:
            raise InvalidInput(
                f"the {settings.claim} {value!r} has the scope {unknown[0]!r}; there "
                f"are {', '.join(SCOPES)}"
            )


def make_provider_router(settings: OidcSettings, address: str) -> APIRouter:
    """Return the routes of a provider.

    Parameters
    ----------
    settings
        Of the provider.
    address
        Under which browsers reach this service.
    """
    provider = Provider(settings, address)
    router = page_router()

    @router.get("/sign-in/oidc")
    async def leave_for_provider(
        call: Call, next: Annotated[str, Query(max_length=200)] = "/"
    ) -> Response:
        """Send the browser to the provider."""
        url, attempt = await provider.begin()
        response = RedirectResponse(url, 303, headers=NO_STORE)
        return keep(response, call, values=(attempt.to_cookie(), read_next(next)))

    @router.get(CALLBACK)
    async def return_from_provider(call: Call) -> Response:
        """Begin a session for who comes back from the provider."""
        attempt = SignInAttempt.from_cookie(read_cookie(call, COOKIE))
        person = await provider.finish(dict(call.query_params), attempt)
        there = read_next(read_cookie(call, NEXT))
        html = render("signed_in", call, next=there, name=person.name)
        lead = {**NO_STORE, "Refresh": f"0; url={there}"}
        response = HTMLResponse(html, headers=lead)
        keep(response, call, values=("", ""))
        return await begin_session(
            call, person.name, scopes=person.scopes, response=response
        )

    return router


def keep(response: Response, call: Call, *, values: tuple[str, str]) -> Response:
    """Let the browser keep an attempt, and where it leads, until it comes back."""
    settings = call.app.state.intake.settings
    for name, value in zip((COOKIE, NEXT), values, strict=True):
        set_cookie(response, name, value=value, settings=settings, minutes=MINUTES)
    return response
