# SPDX-License-Identifier: Apache-2.0
"""Routes of the service itself: status, window, trail, tokens."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi import Request as Call
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from ...ledger.documents import day_of
from ...registry import Token, TrailLine
from ...registry.access import SCOPES
from ..access import Admin, Auditor, Reader, Watcher
from ..desk import Note
from .documents import (
    PROBLEMS,
    StatusOut,
    Strict,
    StrictRoute,
    TheDesk,
    WindowOut,
    answer_json,
)

router = APIRouter(route_class=StrictRoute, tags=["service"], responses=PROBLEMS)


Scope = Annotated[str, Field(pattern=f"^({'|'.join(SCOPES)})$")]


class TokenIn(Strict):
    """A token to make."""

    name: str = Field(min_length=1, max_length=80, examples=["consent desk"])
    scopes: list[Scope] = Field(min_length=1, max_length=4, examples=[["request"]])
    days: int = Field(90, ge=1, le=3650)


class TokenOut(BaseModel):
    """A token, without its secret."""

    id: str
    name: str
    scopes: list[str]
    created: str
    expires: str

    @classmethod
    def of(cls, token: Token) -> "TokenOut":
        """Return a token as a document."""
        return cls(
            id=token.id,
            name=token.name,
            scopes=list(token.scopes),
            created=day_of(token.created),
            expires=day_of(token.expires),
        )


class NewTokenOut(TokenOut):
    """A new token, with its secret, which is shown once."""

    secret: str


class TokensOut(BaseModel):
    """All tokens that did not expire."""

    tokens: list[TokenOut]


class TrailLineOut(BaseModel):
    """Who did what."""

    sequence: int
    day: str
    actor: str
    action: str
    target: str

    @classmethod
    def of(cls, line: TrailLine) -> "TrailLineOut":
        """Return a line of the trail as a document."""
        return cls(
            sequence=line.sequence,
            day=day_of(line.time),
            actor=line.actor,
            action=line.action,
            target=line.target,
        )


class TrailOut(BaseModel):
    """Lines of the trail, in order."""

    lines: list[TrailLineOut]


@router.get("/window", response_model=WindowOut)
def show_window(caller: Reader, *, desk: TheDesk) -> Response:
    """Show the window that a request sent now would belong to."""
    return answer_json(WindowOut.of(desk.current_window()))


@router.get("/status", response_model=StatusOut)
def show_status(caller: Watcher, *, desk: TheDesk) -> Response:
    """Show the registry at this moment. No person is in it."""
    status = desk.registry.status()
    found = StatusOut(
        n_requests=status.n_requests,
        n_completed=status.n_completed,
        n_pending=len(status.pending),
        n_overdue=sum(one.is_overdue for one in status.pending),
        n_restricted=status.set_aside.n_restricted,
        n_held=status.set_aside.n_held,
        ledger_size=status.ledger_size,
        key=status.key,
        store=status.store,
        models=[one.name for one in status.models],
        window=WindowOut.of(desk.current_window()),
    )
    return answer_json(found)


@router.get("/trail", response_model=TrailOut)
def list_trail(
    caller: Auditor,
    *,
    desk: TheDesk,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List who looked and who acted."""
    lines = desk.registry.access.trail(after, limit)
    return answer_json(TrailOut(lines=[TrailLineOut.of(one) for one in lines]))


@router.get("/tokens", response_model=TokensOut)
def list_tokens(caller: Admin, *, desk: TheDesk) -> Response:
    """List the tokens."""
    tokens = [TokenOut.of(one) for one in desk.registry.access.tokens()]
    return answer_json(TokensOut(tokens=tokens))


@router.post("/tokens", status_code=201, response_model=NewTokenOut)
async def create_token(given: TokenIn, caller: Admin, *, desk: TheDesk) -> Response:
    """Make a token. Its secret is shown once, in this answer."""

    def create() -> tuple[Token, str]:
        return desk.registry.access.create(given.name, given.scopes, days=given.days)

    token, secret = await run_in_threadpool(create)
    await desk.record(Note(caller.name, "create token", token.id))
    shown = TokenOut.of(token).model_dump()
    return answer_json(NewTokenOut(**shown, secret=secret), 201)


@router.delete("/tokens/{token}", status_code=204)
async def revoke_token(
    token: str, caller: Admin, *, desk: TheDesk, call: Call
) -> Response:
    """Revoke a token."""
    await run_in_threadpool(desk.registry.access.revoke, token)
    call.app.state.doorkeeper.forget()
    await desk.record(Note(caller.name, "revoke token", token))
    return Response(status_code=204)
