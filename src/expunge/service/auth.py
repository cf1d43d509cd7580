# SPDX-License-Identifier: Apache-2.0
"""Authentication: tokens and sessions, their scopes, their rates, and forms.

A program sends its token as a bearer, or as the password of HTTP Basic. A person who
signed in has a session, which is a token with a short life, in a cookie that no script
reads and no other site makes a browser send. The cookie counts at the addresses of
pages alone, and there each form must come from a page of ours: the browser says where
it comes from, and the form holds a word that follows from the session's secret.

A token is looked up by its hash and remembered for a moment, so a revoked one may work
for two seconds more in other processes.
"""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from time import monotonic
from typing import Annotated
from urllib.parse import quote, urlsplit

from fastapi import Depends
from fastapi import Request as Call
from fastapi.responses import Response
from fastapi.security import HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from ..exceptions import InvalidInput
from ..registry import Decider, Registry, Token
from ..registry.access import LONGEST_SESSION, MINUTE
from ..registry.now import now
from ..registry.trail import Note
from .intake import Intake
from .problems import Refused
from .settings import ServiceSettings
from .spreadsheets import decode_spreadsheet

COOKIE = "expunge_session"
SIGN_IN = "/sign-in"
REMEMBERED = 2.0  # seconds
MOST_REMEMBERED = 10_000
MOST_ATTEMPTS = 30  # wrong tokens from one address in a minute
FORM_TOKEN = "form_token"
CONFIRMATION = "confirmed"  # the box that is ticked before what cannot be undone
_FORM_TOKEN = b"expunge form\n"
TAKE_FILES = ("/requests/upload",)

bearer = HTTPBearer(
    auto_error=False, description="A token, from `expunge token create`."
)


class Authenticator:
    """Finds out whose a token is, and how often it may call."""

    def __init__(self, registry: Registry, rate: int) -> None:
        self._registry = registry
        self._rate = RateLimitItemPerMinute(rate)
        self._attempts = RateLimitItemPerMinute(MOST_ATTEMPTS)
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._known: dict[str, tuple[float, Token]] = {}

    async def find(self, secret: str, address: str) -> Token | None:
        """Return the token of a secret; None if it is not, or no longer, valid."""
        known = self._known.get(secret)
        if known is not None and monotonic() < known[0] + REMEMBERED:
            return known[1]
        token = await run_in_threadpool(self._registry.access.find, secret)
        if token is None:
            self._known.pop(secret, None)
            # Only now: many callers may share an address with one who guesses.
            if not self._limiter.hit(self._attempts, "attempts", address):
                raise Refused(429, "too many wrong tokens; wait", {"Retry-After": "60"})
            return None
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[secret] = monotonic(), token
        return token

    def forget(self) -> None:
        """Look every token up again, since one was revoked."""
        self._known.clear()

    def check_rate(self, token: Token) -> None:
        """Count a call, and refuse one too many."""
        if not self._limiter.hit(self._rate, "calls", token.id):
            raise Refused(
                429,
                f"more than {self._rate.amount} calls in a minute; wait, and send "
                "several requests in one batch",
                {"Retry-After": "60"},
            )


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call: a program with a token, or a person with a session.

    Parameters
    ----------
    token
        What was shown.
    call
        What was asked for.
    secret
        Of the token or session.
    form_token
        The word that this person's forms hold; empty for a program.
    """

    token: Token
    call: Call = field(repr=False)
    secret: str = field(repr=False)
    form_token: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """The sender of requests that come with this token."""
        return self.token.name

    def may(self, scope: str) -> bool:
        """Return whether the token has a scope, or one that includes it."""
        return self.token.may(scope)

    def may_any(self, scopes: Iterable[str]) -> bool:
        """Return whether the token has one of these scopes."""
        return any(map(self.may, scopes))

    @property
    def sees_all(self) -> bool:
        """Whether requests of other senders are shown."""
        return self.may("operate") or self.may("audit")

    @property
    def sender(self) -> str | None:
        """Whose requests are shown; None for all."""
        return None if self.sees_all else self.name

    def sees_answer(self, sender: str) -> bool:
        """Return whether the answer to a request is shown.

        That nobody was found is for its sender, and for auditors.
        """
        return sender == self.name or self.may("audit")

    @property
    def is_at_page(self) -> bool:
        """Whether the answer is a page for people, not a document for programs."""
        return is_page(self.call)

    @property
    def intake(self) -> Intake:
        """Where requests come in."""
        intake: Intake = self.call.app.state.intake
        return intake

    @property
    def registry(self) -> Registry:
        """What is served."""
        return self.intake.registry

    def decides(self, why: str = "") -> Decider:
        """Return the caller as somebody who decides something."""
        via = "page" if self.is_at_page else "API"
        return Decider(self.name, self.secret, via, why)

    async def note(self, action: str, target: str = "") -> None:
        """Write into the access log that somebody acted; on return it is on disk."""
        await self.intake.record(self._note(action, target))

    async def note_look(self, action: str, target: str = "") -> None:
        """Write into the access log that somebody looked, once in ten minutes."""
        await self.intake.record_look(self._note(action, target))

    def _note(self, action: str, target: str) -> Note:
        return Note(self.name, action, target, "page" if self.is_at_page else "API")


def is_page(call: Call) -> bool:
    """Return whether a call is to the address of a page; its route says so."""
    return bool(getattr(call.state, "is_page", False))


def read_secret(authorization: str) -> str:
    """Return the token in a header, as a bearer or a password, or nothing."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            text = b64decode(value.strip(), validate=True).decode()
        except (NotBase64, UnicodeDecodeError):
            return ""
        return text.partition(":")[2]
    return ""


def find_address(call: Call) -> str:
    """Return where a call comes from."""
    return "" if call.client is None else call.client.host


async def find_caller(call: Call, *scopes: str) -> Caller:
    """Return who calls, with one of these scopes if there are any; or refuse."""
    shown, session = call.headers.getlist("authorization"), ""
    if is_page(call) and not shown:
        secret = session = read_cookie(call, COOKIE)
    else:
        # Of several headers a proxy before us may have checked another one.
        secret = read_secret(shown[0]) if len(shown) == 1 else ""
    authenticator: Authenticator = call.app.state.authenticator
    token = await authenticator.find(secret, find_address(call)) if secret else None
    if token is None:
        if secret and not session:
            await note_wrong_token(call)
        raise _stranger(call, has_header=bool(shown))
    call.state.caller = token.id
    authenticator.check_rate(token)
    if session:
        await _prolong(call, token)
    if is_page(call) and call.method != "GET":
        _require_signed(call, session)
    word = make_form_token(session) if session else ""
    caller = Caller(token, call, secret, word)
    if scopes and not caller.may_any(scopes):
        raise Refused(
            403,
            f"this needs a token with the scope {' or '.join(scopes)}; ask the "
            "operator for one",
        )
    if is_page(call) and call.method != "GET":
        _require_tick(call)
    return caller


def _require_tick(call: Call) -> None:
    """Refuse a form for what cannot be undone whose box was not ticked."""
    form: PostedForm = call.state.form
    if call.state.wants_tick and not form.text(CONFIRMATION):
        raise Refused(422, "this cannot be undone; tick the box first")


async def note_wrong_token(call: Call) -> None:
    """Write into the access log that somebody showed a token that is none.

    Once in ten minutes from an address, so that who guesses fills no disk.
    """
    intake: Intake = call.app.state.intake
    via = "page" if is_page(call) else "API"
    note = Note("unknown", "show a wrong token", find_address(call), via)
    await intake.record_look(note)


def _stranger(call: Call, *, has_header: bool) -> Refused:
    """Return the refusal of somebody without a token or a session."""
    if is_page(call) and not has_header:
        # After a form the page is asked for again, never the form.
        there = call.url.path if call.method == "GET" else "/"
        return Refused(
            303, "sign in first", {"Location": f"{SIGN_IN}?next={quote(there)}"}
        )
    return Refused(
        401,
        "no token, or one that is unknown or expired; send Authorization: Bearer",
        {"WWW-Authenticate": "Bearer"},
    )


async def _prolong(call: Call, token: Token) -> None:
    """Let a session that is in use last, with a write a minute at most."""
    intake: Intake = call.app.state.intake
    minutes = intake.settings.session_minutes
    end = min(now() + minutes * MINUTE, token.created + LONGEST_SESSION)
    if token.expires < end - MINUTE:

        def prolong() -> None:
            intake.registry.access.prolong(token.id, minutes=minutes)

        await run_in_threadpool(prolong)
        call.app.state.authenticator.forget()


Shown = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


def require(*scopes: str) -> Callable[[Call, Shown], Awaitable[Caller]]:
    """Return a dependency that lets callers in who have one of these scopes."""

    async def find_allowed(call: Call, shown: Shown) -> Caller:
        return await find_caller(call, *scopes)

    return find_allowed


CanSend = Annotated[Caller, Depends(require("request"))]
CanRead = Annotated[Caller, Depends(require("request", "audit"))]
CanOperate = Annotated[Caller, Depends(require("operate"))]
CanAudit = Annotated[Caller, Depends(require("audit"))]
CanWatch = Annotated[Caller, Depends(require("operate", "audit"))]
CanAdmin = Annotated[Caller, Depends(require("admin"))]


@dataclass(frozen=True, slots=True)
class PostedForm:
    """What a form holds; it may name people, so it shows nothing of itself."""

    fields: Mapping[str, Sequence[str]] = field(repr=False)

    def text(self, name: str) -> str:
        """Return the text of a field, without spaces around it; maybe empty."""
        return next(iter(self.fields.get(name, ())), "").strip()


async def read_form(call: Call) -> PostedForm:
    """Return the form that a page of ours sent."""
    site = call.headers.get("sec-fetch-site")
    if site is not None:
        is_own = site in ("same-origin", "none")
    else:
        origin = urlsplit(call.headers.get("origin", ""))
        is_own = bool(origin.netloc) and origin.netloc == call.headers.get("host")
    if not is_own:
        raise Refused(403, "this form came from another site; open the page here")
    fields: dict[str, list[str]] = {}
    async with call.form() as form:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                value = await _read_file(call, value)
            fields.setdefault(name, []).append(value)
    return PostedForm(fields)


async def _read_file(call: Call, file: UploadFile) -> str:
    """Return the text of a file, where a form takes one."""
    if call.url.path not in TAKE_FILES:
        raise Refused(422, "this form takes no files")
    return decode_spreadsheet(await file.read())


async def find_form(call: Call) -> PostedForm:
    """Return the form that the route has read."""
    form: PostedForm = call.state.form
    return form


TheForm = Annotated[PostedForm, Depends(find_form)]


def make_form_token(secret: str) -> str:
    """Return the word that the forms of a session hold."""
    return sha256(_FORM_TOKEN + secret.encode()).hexdigest()


def _require_signed(call: Call, secret: str) -> None:
    """Refuse a form that does not hold the word of its sender's session."""
    form: PostedForm = call.state.form
    said = form.text(FORM_TOKEN).encode()
    if not secret or not compare_digest(said, make_form_token(secret).encode()):
        raise Refused(403, "this form is from an earlier session; open the page again")


async def begin_session(
    call: Call,
    name: str,
    *,
    scopes: Sequence[str],
    response: Response,
    owner: str,
    decides: bool = True,
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
    owner, decides
        Of the token that was shown, or as the identity provider vouches for them.
    until
        When the token expires that was shown.
    """
    intake: Intake = call.app.state.intake

    def create() -> tuple[Token, str]:
        return intake.registry.access.create_session(
            name,
            scopes,
            minutes=intake.settings.session_minutes,
            until=until,
            owner=owner,
            decides=decides,
        )

    session, secret = await run_in_threadpool(create)
    await intake.record(Note(name, "sign in", session.id, "page"))
    return set_cookie(response, COOKIE, value=secret, settings=intake.settings)


async def end_session(caller: Caller, response: Response) -> Response:
    """Revoke a session, and let the browser drop it."""
    try:
        await run_in_threadpool(caller.registry.access.revoke, caller.token.id)
    except InvalidInput:
        pass  # it ended meanwhile
    caller.call.app.state.authenticator.forget()
    await caller.note("sign out", caller.token.id)
    return set_cookie(response, COOKIE, value="", settings=caller.intake.settings)


def name_cookie(name: str, settings: ServiceSettings) -> str:
    """Return what a cookie is called in a browser.

    By the prefix it is of this host alone: a neighbouring one cannot plant a session.
    """
    return f"__Host-{name}" if settings.is_secure else name


def read_cookie(call: Call, name: str) -> str:
    """Return what the browser kept; empty if it did not."""
    return call.cookies.get(name_cookie(name, call.app.state.intake.settings), "")


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
