# SPDX-License-Identifier: Apache-2.0
"""Signing in with an identity provider: there and back.

A browser that comes back from another site sends no strict cookie with the page that it
is led to. So the way ends at a page of ours that leads on by itself.
"""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import Request as Call
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from ..desk import Desk
from ..oidc import CALLBACK, COOKIE, MINUTES, Provider, SignInAttempt
from ..settings import OidcSettings
from .rendering import NO_STORE, PageRoute, render
from .signin import begin_session, read_next
from .visiting import read_cookie, set_cookie

NEXT = "expunge_next"


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
    router = APIRouter(route_class=PageRoute, include_in_schema=False)

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
    desk: Desk = call.app.state.desk
    for name, value in zip((COOKIE, NEXT), values, strict=True):
        set_cookie(response, name, value=value, settings=desk.settings, minutes=MINUTES)
    return response
