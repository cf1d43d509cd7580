# SPDX-License-Identifier: Apache-2.0
"""Sign-in by an identity provider: OpenID Connect, code flow with PKCE, by Authlib.

The browser keeps what belongs to an attempt, in a signed cookie of ten minutes: the
state, the nonce and the verifier, so any process can finish what another began. What a
person may do here follows from one claim of theirs, by the operator's settings.

A browser that comes back from another site sends no strict cookie with the page that it
is led to. So the way ends at a page of ours that leads on by itself.

Only a service whose settings have a provider imports this.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any
from urllib.parse import urlsplit

from authlib.common.errors import AuthlibBaseError
from authlib.integrations.base_client.errors import MismatchingStateError
from authlib.integrations.starlette_client import OAuth
from fastapi import FastAPI, Query
from fastapi import Request as Call
from fastapi.responses import HTMLResponse, Response
from httpx2 import HTTPError
from joserfc.errors import JoseError
from starlette.middleware.sessions import SessionMiddleware

from ..exceptions import InvalidInput
from ..registry.access import LONGEST_NAME, SCOPES
from .auth import begin_session, name_cookie
from .problems import Refused
from .rendering import NO_STORE, render
from .routing import page_router
from .settings import OidcSettings, ServiceSettings
from .signin import read_next

CALLBACK = "/sign-in/oidc/callback"
COOKIE = "expunge_oidc"
SECONDS = 600  # for which a browser keeps an attempt
ALGORITHMS = ["RS256", "PS256", "ES256", "EdDSA"]
TIMEOUT = 10.0
LEEWAY = 60  # seconds by which clocks may differ
SHOWN = ("preferred_username", "email")  # of a name, for people to read
SUBJECT_DIGITS = 12
AGAIN = "the sign-in did not succeed; begin again"
NEXT = "next"


def add_provider(app: FastAPI, settings: ServiceSettings) -> None:
    """Let people sign in to an application at the provider of its settings."""
    assert settings.oidc is not None
    oidc, pages = settings.oidc, page_router()
    _require_safe(oidc)
    issuer, name = oidc.issuer.rstrip("/"), str(urlsplit(oidc.issuer).hostname)
    client = OAuth().register(
        "provider",
        client_id=oidc.client_id,
        client_secret=oidc.client_secret,
        server_metadata_url=f"{issuer}/.well-known/openid-configuration",
        client_kwargs={
            "scope": "openid profile email",
            "code_challenge_method": "S256",
            "timeout": TIMEOUT,
        },
    )

    async def discover() -> None:
        """Ask the provider once where its endpoints are."""
        try:
            found = await client.load_server_metadata()
        except (HTTPError, ValueError, TypeError):
            raise Refused(503, f"{name} does not answer; try later") from None
        if found.get("issuer") != oidc.issuer:
            found.clear()
            raise Refused(503, f"{name} names another issuer; check the settings")
        found["id_token_signing_alg_values_supported"] = ALGORITHMS

    async def find_claims(call: Call) -> Mapping[str, Any]:
        """Return the claims of a person who comes back, checked."""
        wanted = {"iss": oidc.issuer, "aud": oidc.client_id}
        options = {
            name: {"essential": True, "value": value} for name, value in wanted.items()
        }
        try:
            token = await client.authorize_access_token(
                call, claims_options=options, leeway=LEEWAY
            )
        except MismatchingStateError:
            raise Refused(400, AGAIN) from None
        except (AuthlibBaseError, JoseError, HTTPError, LookupError, ValueError):
            raise Refused(403, AGAIN) from None
        claims: Mapping[str, Any] = token.get("userinfo") or {}
        if not claims.get("sub"):
            raise Refused(403, AGAIN)
        return claims

    @pages.get("/sign-in/oidc")
    async def leave_for_provider(
        call: Call, next: Annotated[str, Query(max_length=200)] = "/"
    ) -> Response:
        """Send the browser to the provider."""
        await discover()
        call.session[NEXT] = read_next(next)
        callback = settings.address.rstrip("/") + CALLBACK
        response: Response = await client.authorize_redirect(call, callback)
        return response

    @pages.get(CALLBACK)
    async def return_from_provider(call: Call) -> Response:
        """Begin a session for who comes back from the provider."""
        await discover()
        there = read_next(call.session.get(NEXT, "/"))
        claims = await find_claims(call)
        call.session.clear()
        scopes, who = (
            _find_scopes(claims, oidc, provider=name),
            _make_name(claims, name),
        )
        html = render("signed_in", call, next=there, name=who)
        response = HTMLResponse(
            html, headers={**NO_STORE, "Refresh": f"0; url={there}"}
        )
        owner = _list_names(claims, name)
        return await begin_session(
            call, who, scopes=scopes, response=response, owner=owner
        )

    app.include_router(pages)
    app.add_middleware(
        SessionMiddleware,
        # What it signs is of use to the browser alone that has it.
        secret_key=sha256(b"expunge oidc\n" + oidc.client_secret.encode()).hexdigest(),
        session_cookie=name_cookie(COOKIE, settings),
        max_age=SECONDS,
        https_only=settings.is_secure,
    )


def _find_scopes(
    claims: Mapping[str, Any], settings: OidcSettings, *, provider: str
) -> tuple[str, ...]:
    """Return what a person may do; refuse somebody who may do nothing."""
    held = claims.get(settings.claim) or []
    values = held if isinstance(held, list) else [held]
    allowed = {
        scope for value in values for scope in settings.scopes.get(str(value), ())
    }
    scopes = tuple(one for one in SCOPES if one in allowed)
    if not scopes:
        raise Refused(
            403,
            f"you are signed in at {provider} and may do nothing here; ask the "
            f"operator for a {settings.claim} that is in the settings",
        )
    return scopes


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


def _list_names(claims: Mapping[str, Any], provider: str) -> str:
    """Return every name that a person goes by there: tokens may be made for any.

    The subject is one that they cannot change.
    """
    names = [str(claims[one]) for one in SHOWN if claims.get(one)]
    subject = sha256(str(claims["sub"]).encode()).hexdigest()
    return "|".join(one.replace("|", "") for one in (f"{subject} {provider}", *names))


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
