# SPDX-License-Identifier: Apache-2.0
"""Who may: tokens, their scopes, and how often they may call.

A program sends its token as a bearer, or as the password of HTTP Basic. A person who
signed in has a session, which is a token too, in a cookie. A token is looked up by its
hash and remembered for a moment, so a revoked one may work for two seconds more in
other processes.
"""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from starlette.concurrency import run_in_threadpool

from ..registry import Registry, Token
from .problems import Refused

COOKIE = "expunge_session"
REMEMBERED = 2.0  # seconds
MOST_REMEMBERED = 10_000
MOST_ATTEMPTS = 30  # wrong tokens from one address in a minute

bearer = HTTPBearer(
    auto_error=False, description="A token, from `expunge token create`."
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call.

    Parameters
    ----------
    token
        What was shown.
    """

    token: Token

    @property
    def name(self) -> str:
        """The sender of requests that come with this token."""
        return self.token.name

    def may(self, scope: str) -> bool:
        """Return whether the token has a scope, or one that includes it."""
        return self.token.may(scope)

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


class Doorkeeper:
    """Finds out who calls, and how often.

    Parameters
    ----------
    registry
        With the tokens.
    rate
        Calls that a token may make in a minute.
    """

    def __init__(self, registry: Registry, rate: int) -> None:
        self._registry = registry
        self._rate = RateLimitItemPerMinute(rate)
        self._attempts = RateLimitItemPerMinute(MOST_ATTEMPTS)
        self._limiter = MovingWindowRateLimiter(MemoryStorage())
        self._known: dict[str, tuple[float, Token]] = {}

    async def find(self, secret: str, address: str) -> Caller | None:
        """Return who has a secret; None if it is not, or no longer, valid."""
        known = self._known.get(secret)
        if known is not None and monotonic() < known[0] + REMEMBERED:
            return Caller(known[1])
        token = await run_in_threadpool(self._registry.access.find, secret)
        if token is None:
            self._known.pop(secret, None)
            # Only now: many callers may share an address with one who guesses.
            self._require_patience(address)
            return None
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[secret] = monotonic(), token
        return Caller(token)

    def forget(self) -> None:
        """Look every token up again, since one was revoked."""
        self._known.clear()

    def require_room(self, caller: Caller) -> None:
        """Count a call, and refuse one too many."""
        if not self._limiter.hit(self._rate, "calls", caller.token.id):
            raise Refused(
                429,
                f"more than {self._rate.amount} calls in a minute; wait, and send "
                "several requests in one batch",
                {"Retry-After": "60"},
            )

    def _require_patience(self, address: str) -> None:
        """Refuse an address that tries many tokens."""
        if not self._limiter.hit(self._attempts, "attempts", address):
            raise Refused(429, "too many wrong tokens; wait", {"Retry-After": "60"})


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


def find_address(request: Request) -> str:
    """Return where a call comes from."""
    return "" if request.client is None else request.client.host


async def find_caller(request: Request) -> Caller:
    """Return who calls by a header; refuse anybody else."""
    # Of several headers a proxy before us may have checked another one.
    shown = request.headers.getlist("authorization")
    secret = read_secret(shown[0]) if len(shown) == 1 else ""
    keeper: Doorkeeper = request.app.state.doorkeeper
    caller = await keeper.find(secret, find_address(request)) if secret else None
    if caller is None:
        raise Refused(
            401,
            "no token, or one that is unknown or expired; send Authorization: Bearer",
            {"WWW-Authenticate": "Bearer"},
        )
    request.state.caller = caller.token.id
    keeper.require_room(caller)
    return caller


Shown = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


def require(*scopes: str) -> Callable[[Request, Shown], Awaitable[Caller]]:
    """Return a dependency that lets callers in who have one of these scopes."""

    async def find_allowed(request: Request, shown: Shown) -> Caller:
        caller = await find_caller(request)
        if not any(map(caller.may, scopes)):
            raise Refused(
                403,
                f"this needs a token with the scope {' or '.join(scopes)}; ask the "
                "operator for one",
            )
        return caller

    return find_allowed


Sender = Annotated[Caller, Depends(require("request"))]
Reader = Annotated[Caller, Depends(require("request", "audit"))]
Operator = Annotated[Caller, Depends(require("operate"))]
Auditor = Annotated[Caller, Depends(require("audit"))]
Watcher = Annotated[Caller, Depends(require("operate", "audit"))]
Admin = Annotated[Caller, Depends(require("admin"))]
