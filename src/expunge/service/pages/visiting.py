# SPDX-License-Identifier: Apache-2.0
"""Visitors: people who signed in, and forms that only they can send.

A session is a token with a short life, in a cookie that no script reads and no other
site makes a browser send. A form is taken only from a page of ours: the browser says
where it comes from, and the form holds a word that follows from the session's secret.
Programs may read the JSON of a page with a token in a header, and send no forms.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from fastapi import Depends
from fastapi import Request as Call
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from ...exceptions import InvalidInput
from ...registry.access import LONGEST_SESSION, MINUTE
from ...registry.context import now
from ..access import COOKIE, Caller, Doorkeeper, find_address, find_caller
from ..desk import Desk, Note
from ..problems import Refused
from ..settings import ServiceSettings

SIGN_IN = "/sign-in"
_FORM_TOKEN = b"expunge form\n"


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person at a page, or a program that reads its JSON.

    Parameters
    ----------
    caller
        Who it is.
    call
        What was asked for.
    form_token
        The word that this person's forms hold; empty for a program.
    """

    caller: Caller
    call: Call = field(repr=False)
    form_token: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """The name of the token with which the person signed in."""
        return self.caller.name

    def may(self, scope: str) -> bool:
        """Return whether the visitor has a scope."""
        return self.caller.may(scope)

    def may_any(self, scopes: Iterable[str]) -> bool:
        """Return whether the visitor has one of these scopes."""
        return any(map(self.caller.may, scopes))

    @property
    def desk(self) -> Desk:
        """The desk of the service."""
        desk: Desk = self.call.app.state.desk
        return desk

    async def note(self, action: str, target: str = "") -> None:
        """Write into the trail that the visitor acted."""
        await self.desk.record(Note(self.name, action, target))

    async def note_look(self, action: str, target: str) -> None:
        """Write into the trail that the visitor looked."""
        await self.desk.record_look(Note(self.name, action, target))


async def find_visitor(call: Call) -> Visitor:
    """Return who visits, by a header or by the cookie; send others to sign in."""
    if call.headers.get("authorization"):
        return Visitor(await find_caller(call), call)
    secret = read_cookie(call, COOKIE)
    keeper: Doorkeeper = call.app.state.doorkeeper
    caller = await keeper.find(secret, find_address(call)) if secret else None
    if caller is None:
        raise _unknown_visitor(call)
    call.state.caller = caller.token.id
    keeper.require_room(caller)
    await _prolong(call, caller)
    return Visitor(caller, call, make_form_token(secret))


def _unknown_visitor(call: Call) -> Refused:
    """Return the refusal of somebody who is not signed in."""
    if call.url.path.endswith(".json"):
        challenge = {"WWW-Authenticate": "Bearer"}
        return Refused(401, "sign in first, or send Authorization: Bearer", challenge)
    # After a form the page is asked for again, never the form.
    there = call.url.path if call.method == "GET" else "/"
    place = f"{SIGN_IN}?next={quote(there)}"
    return Refused(303, "sign in first", {"Location": place})


async def _prolong(call: Call, caller: Caller) -> None:
    """Let a session that is in use last, with a write a minute at most."""
    desk: Desk = call.app.state.desk
    minutes, token = desk.settings.session_minutes, caller.token
    end = min(now() + minutes * MINUTE, token.created + LONGEST_SESSION)
    if token.expires < end - MINUTE:

        def prolong() -> None:
            desk.registry.access.prolong(token.id, minutes=minutes)

        await run_in_threadpool(prolong)
        call.app.state.doorkeeper.forget()


def allow(*scopes: str) -> Callable[[Call], Any]:
    """Return a dependency that lets visitors in who have one of these scopes."""

    async def find_allowed(call: Call) -> Visitor:
        visitor = await find_visitor(call)
        if not visitor.may_any(scopes):
            raise Refused(
                403,
                f"this page needs the scope {' or '.join(scopes)}; ask the operator "
                "for a token with it",
            )
        return visitor

    return find_allowed


AnyVisitor = Annotated[Visitor, Depends(allow("request", "audit"))]
SendingVisitor = Annotated[Visitor, Depends(allow("request"))]
OperatingVisitor = Annotated[Visitor, Depends(allow("operate"))]
AuditingVisitor = Annotated[Visitor, Depends(allow("audit"))]
WatchingVisitor = Annotated[Visitor, Depends(allow("operate", "audit"))]
AdminVisitor = Annotated[Visitor, Depends(allow("admin"))]


@dataclass(frozen=True, slots=True)
class PostedForm:
    """What a form holds; it may name people, so it shows nothing of itself."""

    fields: Mapping[str, list[str]] = field(repr=False)

    def text(self, name: str) -> str:
        """Return the text of a field; empty if there is none."""
        return (self.every(name) or [""])[0]

    def every(self, name: str) -> list[str]:
        """Return all that was chosen under a name."""
        return [value.strip() for value in self.fields.get(name, [])]

    def number(self, name: str) -> int:
        """Return the whole number in a field, or raise InvalidInput."""
        text = self.text(name)
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise InvalidInput(f"{name} must be a whole number; write its digits")
        return int(text)


def make_form_token(secret: str) -> str:
    """Return the word that the forms of a session hold."""
    return sha256(_FORM_TOKEN + secret.encode()).hexdigest()


def require_own_page(call: Call) -> None:
    """Refuse a form that comes from a page of another site."""
    site = call.headers.get("sec-fetch-site")
    if site is not None:
        is_own = site in ("same-origin", "none")
    else:
        origin = urlsplit(call.headers.get("origin", ""))
        is_own = bool(origin.netloc) and origin.netloc == call.headers.get("host")
    if not is_own:
        raise Refused(403, "this form came from another site; open the page here")


async def read_form(call: Call) -> PostedForm:
    """Return the form that a page of ours sent."""
    require_own_page(call)
    fields: dict[str, list[str]] = {}
    async with call.form() as form:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                raise Refused(422, "this form takes no files")
            fields.setdefault(name, []).append(value)
    return PostedForm(fields)


async def read_signed_form(call: Call) -> PostedForm:
    """Return the form that somebody who is signed in sent."""
    form = await read_form(call)
    secret = read_cookie(call, COOKIE)
    wanted = make_form_token(secret)
    if not secret or not compare_digest(
        form.text("form_token").encode(), wanted.encode()
    ):
        raise Refused(403, "this form is from an earlier session; open the page again")
    return form


OpenForm = Annotated[PostedForm, Depends(read_form)]
SignedForm = Annotated[PostedForm, Depends(read_signed_form)]


def name_cookie(name: str, settings: ServiceSettings) -> str:
    """Return what a cookie is called in a browser.

    By the prefix it is of this host alone: a neighbouring one cannot plant a session.
    """
    return f"__Host-{name}" if settings.is_secure else name


def read_cookie(call: Call, name: str) -> str:
    """Return what the browser kept; empty if it did not."""
    return call.cookies.get(name_cookie(name, call.app.state.desk.settings), "")


def set_cookie(
    response: Response,
    name: str,
    *,
    value: str,
    settings: ServiceSettings,
    minutes: int | None = None,
) -> Response:
    """Let the browser keep something; return the response.

    Parameters
    ----------
    response
        What to answer.
    name, value
        Of the cookie; without a value the browser drops it.
    settings
        Whether https is demanded.
    minutes
        For a while, also on the way back from another site; None for a session.
    """
    seconds = None if minutes is None else 60 * minutes
    response.set_cookie(
        name_cookie(name, settings),
        value,
        max_age=seconds if value else 0,
        httponly=True,
        samesite="strict" if minutes is None else "lax",
        secure=settings.is_secure,
        path="/",
    )
    return response
