# SPDX-License-Identifier: Apache-2.0
"""Signing in with a token, and signing out.

The token that a person types makes a session: another token with the same name and
scopes, which ends after some minutes without use. The browser keeps that one alone.
"""

from typing import Annotated
from urllib.parse import quote, urlsplit

from fastapi import Query
from fastapi import Request as Call
from fastapi.responses import HTMLResponse, Response

from .auth import (
    SIGN_IN,
    Authenticator,
    CanRead,
    TheForm,
    begin_session,
    end_session,
    find_address,
    note_wrong_token,
)
from .rendering import go_to, render
from .routing import page_router

pages = page_router()
UNKNOWN = "This token is unknown or expired; ask the operator for another."


def read_next(text: str) -> str:
    """Return the page to go to after signing in: one of ours, or that of requests."""
    parts = urlsplit(text)
    # A browser takes what follows two slashes for another host.
    leaves = parts.netloc or parts.path.startswith("//") or "\\" in text
    is_own = text.startswith("/") and not leaves
    return quote(parts.path, safe="/%") if is_own else "/"  # as headers can hold it


@pages.get(SIGN_IN)
async def show_sign_in(
    call: Call, next: Annotated[str, Query(max_length=200)] = "/"
) -> Response:
    """Show the form to sign in."""
    return _show_form(call, next)


def _show_form(
    call: Call, there: str, *, problem: str = "", code: int = 200
) -> Response:
    oidc = call.app.state.intake.settings.oidc
    provider = oidc and urlsplit(oidc.issuer).hostname
    html = render(
        "sign_in", call, next=read_next(there), problem=problem, provider=provider
    )
    return HTMLResponse(html, code)


@pages.post(SIGN_IN)
async def sign_in(call: Call, form: TheForm) -> Response:
    """Begin a session for who shows a token."""
    authenticator: Authenticator = call.app.state.authenticator
    there = form.text("next")
    token = await authenticator.find(form.text("token"), find_address(call))
    if token is None:
        await note_wrong_token(call)
        return _show_form(call, there, problem=UNKNOWN, code=401)
    authenticator.check_rate(token)  # a session may call as often as a token
    return await begin_session(
        call,
        token.name,
        scopes=token.scopes,
        response=go_to(read_next(there)),
        owner=token.owner,
        decides=token.decides,
        until=token.expires,
    )


@pages.post("/sign-out")
async def sign_out(caller: CanRead) -> Response:
    """End a session."""
    return await end_session(caller, go_to(SIGN_IN, "signed-out"))
