# SPDX-License-Identifier: Apache-2.0
"""Signing in with a token, and signing out.

The token that a person types makes a session: another token with the same name and
scopes, which ends after some minutes without use. The browser keeps that one alone.
"""

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Query
from fastapi import Request as Call
from fastapi.responses import HTMLResponse, Response
from starlette.concurrency import run_in_threadpool

from ...exceptions import InvalidInput
from ...registry import Token
from ..access import COOKIE, Doorkeeper, find_address
from ..desk import Note
from .rendering import NO_STORE, PageRoute, go_to, render
from .visiting import OpenForm, SignedForm, find_visitor, set_cookie

router = APIRouter(route_class=PageRoute, include_in_schema=False)
UNKNOWN = "This token is unknown or expired; ask the operator for another."


def read_next(text: str) -> str:
    """Return the page to go to after signing in: one of ours, or the queue."""
    parts = urlsplit(text)
    # A browser takes what follows two slashes for another host.
    leaves = parts.netloc or parts.path.startswith("//") or "\\" in text
    is_own = text.startswith("/") and not leaves
    return quote(parts.path, safe="/%") if is_own else "/"  # as headers can hold it


@router.get("/sign-in")
async def show_sign_in(
    call: Call, next: Annotated[str, Query(max_length=200)] = "/"
) -> Response:
    """Show the form to sign in."""
    return _show_form(call, next)


def _show_form(
    call: Call, there: str, *, problem: str = "", code: int = 200
) -> Response:
    oidc = call.app.state.desk.settings.oidc
    html = render(
        "sign_in",
        call,
        next=read_next(there),
        problem=problem,
        provider=oidc and urlsplit(oidc.issuer).hostname,
    )
    return HTMLResponse(html, code, headers=NO_STORE)


@router.post("/sign-in")
async def sign_in(call: Call, form: OpenForm) -> Response:
    """Begin a session for who shows a token."""
    keeper: Doorkeeper = call.app.state.doorkeeper
    there = form.text("next")
    caller = await keeper.find(form.text("token"), find_address(call))
    if caller is None:
        return _show_form(call, there, problem=UNKNOWN, code=401)
    keeper.require_room(caller)  # a session may call as often as a token
    response = go_to(read_next(there))
    token = caller.token
    return await begin_session(
        call, token.name, scopes=token.scopes, response=response, until=token.expires
    )


async def begin_session(
    call: Call,
    name: str,
    *,
    scopes: Sequence[str],
    response: Response,
    until: int | None = None,
) -> Response:
    """Make a session for somebody, and let the browser keep it.

    Parameters
    ----------
    call
        Which signs in.
    name, scopes
        Of the person.
    response
        What to answer.
    until
        When the token expires that was shown.
    """
    desk = call.app.state.desk
    minutes = desk.settings.session_minutes

    def create() -> tuple[Token, str]:
        made: tuple[Token, str] = desk.registry.access.create_session(
            name, scopes, minutes=minutes, until=until
        )
        return made

    session, secret = await run_in_threadpool(create)
    await desk.record(Note(name, "sign in", session.id))
    return set_cookie(response, COOKIE, value=secret, settings=desk.settings)


@router.post("/sign-out")
async def sign_out(call: Call, form: SignedForm) -> Response:
    """End a session."""
    visitor = await find_visitor(call)
    try:
        access = visitor.desk.registry.access
        await run_in_threadpool(access.revoke, visitor.caller.token.id)
    except InvalidInput:
        pass  # it ended meanwhile
    call.app.state.doorkeeper.forget()
    await visitor.note("sign out", visitor.caller.token.id)
    response = go_to("/sign-in", "signed-out")
    return set_cookie(response, COOKIE, value="", settings=visitor.desk.settings)
