# SPDX-License-Identifier: Apache-2.0
"""The service itself: status, window, access log, tokens, webhooks and deliveries.

A secret is shown once, in the answer that made it.
"""

from dataclasses import asdict
from typing import Annotated, Any, Literal, Self, TypeAlias, get_args
from urllib.parse import urlencode

from fastapi import Path, Query, Response
from pydantic import BaseModel, Field, model_validator
from starlette.concurrency import run_in_threadpool

from ..exceptions import OneAgreed
from ..registry import Endpoint, RequestRule, Token, TrailWanted
from ..registry.access import SCOPES
from ..registry.decisions import ACTS
from ..registry.deliveries import EVENTS
from ..rights.standing import Right
from .auth import Caller, CanAdmin, CanAudit, CanOperate, CanRead, CanWatch
from .documents import Day, DayOf, MomentOf, Shown, Strict, WindowOut
from .rendering import answer_agreed, go_to, show_page
from .routing import page_router, program_router

api, pages = program_router("service"), page_router()
Scope = Annotated[str, Field(pattern=f"^({'|'.join(SCOPES)})$")]
Ruled: TypeAlias = Literal[Right, "remove", "withdraw"]
Event = Annotated[str, Field(pattern=f"^({'|'.join(EVENTS)})$")]
# Errors quote an id, so it must look like one.
DeliveryId = Annotated[str, Path(pattern="^msg_[0-9a-f]{32}$")]
WebhookId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
DeliveryState: TypeAlias = Literal["waiting", "delivered", "given_up"]
PAGE = 50  # deliveries on a page for people


class StatusOut(BaseModel):
    """The registry at one moment."""

    n_requests: int
    n_completed: int
    n_pending: int
    n_overdue: int
    n_restricted: int
    n_held: int
    ledger_size: int
    key: str
    store: str
    models: list[str]
    unsigned: str = Field(
        description="Why no receipt can be signed now; empty if they can be."
    )
    window: WindowOut


class TokenIn(Strict):
    """A token to make."""

    name: str = Field(min_length=1, max_length=80, examples=["consent desk"])
    scopes: list[Scope] = Field(min_length=1, max_length=4, examples=[["request"]])
    days: int = Field(90, ge=1, le=3650)
    owner: str = Field(
        "",
        max_length=80,
        description="The person whom it belongs to, by the name that they sign in "
        "with; only then it counts where two people must decide.",
    )


class TokenOut(Shown):
    """A token, without its secret."""

    id: str
    name: str
    scopes: list[str]
    created: DayOf
    expires: DayOf
    owner: str
    decides: bool = Field(description="Whether it counts where two people must decide.")


class RuleIn(Strict):
    """What requests for a right pass before they are applied."""

    identity: bool = Field(False, description="It is checked who asks.")
    approval: bool = Field(False, description="An operator approves it.")
    four_eyes: bool = Field(False, description="Two different people approve it.")
    grace_days: int = Field(
        0, ge=0, le=366, description="It is applied after so many days."
    )


class NamedRuleIn(RuleIn):
    """The same with the right, as the form sends it."""

    right: Ruled


class RulesOut(BaseModel):
    """The rules of all rights and acts that have one."""

    rules: dict[str, RuleIn]


class NewTokenOut(TokenOut):
    """A new token, with its secret, which is shown once."""

    secret: str


class TokensOut(Shown):
    """All tokens that did not expire."""

    tokens: list[TokenOut]


class WebhookIn(Strict):
    """An address of ours to tell what happens."""

    url: str = Field(max_length=2048, examples=["https://hooks.example.org/expunge"])
    events: list[Event] = Field(min_length=1, examples=[["request.completed"]])


class WebhookOut(Shown):
    """A webhook, without its secret."""

    id: str
    url: str
    events: list[str]


class NewWebhookOut(WebhookOut):
    """A new webhook, with its secret, which is shown once."""

    secret: str


class WebhooksOut(Shown):
    """All webhooks."""

    webhooks: list[WebhookOut]


class DeliveryOut(Shown):
    """Something that is sent to others; of the address only the host."""

    id: str
    form: str
    event: str
    subject: str
    request: str
    host: str
    state: DeliveryState
    attempts: int
    due: MomentOf | None = Field(description="The next attempt, of one that waits.")
    last: str = Field(description="What the last attempt came to.")

    @model_validator(mode="after")
    def _drop_last_attempt(self) -> Self:
        if self.state != "waiting":
            self.due = None
        return self


class DeliveriesOut(Shown):
    """Deliveries, the newest first."""

    deliveries: list[DeliveryOut]
    next: str | None = Field(description="Cursor of the next page; null on the last.")


class TrailLineOut(Shown):
    """Who did what, when, by which way in, and why."""

    sequence: int
    time: MomentOf
    actor: str
    action: str
    target: str
    via: str = Field(examples=["API"])
    reason: str


class TrailOut(Shown):
    """Lines of the access log, the newest first."""

    lines: list[TrailLineOut]
    next: int | None = Field(description="`before` of the next page; null on the last.")


class TrailAsked(BaseModel):
    """Which lines of the access log to list."""

    actor: str = Field("", max_length=200)
    action: str = Field("", max_length=200)
    target: str = Field("", max_length=200, description="Such as a request.")
    since: Day | None = None
    until: Day | None = None
    before: int | None = Field(None, ge=0, le=2**53, description="`next` of a page.")
    limit: int = Field(100, ge=1, le=1000)


@api.get("/window", response_model=WindowOut)
async def show_window(caller: CanRead) -> Any:
    """Show the window that a request sent now would belong to."""
    return caller.intake.current_window()


@api.get("/status", response_model=StatusOut)
def show_status(caller: CanWatch) -> StatusOut:
    """Show the registry at this moment. No person is in it."""
    status = caller.registry.status()
    return StatusOut(
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
        unsigned=status.unsigned,
        window=WindowOut.model_validate(caller.intake.current_window()),
    )


@api.get("/trail", response_model=TrailOut)
@pages.get("/trail")
def list_trail(asked: Annotated[TrailAsked, Query()], caller: CanAudit) -> Any:
    """List who looked and who acted, the newest first."""
    given = asked.model_dump()
    most = given.pop("limit")
    lines = caller.registry.access.read_trail(TrailWanted(**given, most=most))
    last = lines[-1].sequence if len(lines) == most else 0
    document = TrailOut.model_validate({"lines": lines, "next": last or None})
    if not caller.is_at_page:
        return document
    kept = {name: value for name, value in given.items() if value}
    more = f"/trail?{urlencode(kept | {'before': last})}" if last else ""
    return show_page(caller, "trail", page=document, asked=asked, next=more)


@api.get("/deliveries", response_model=DeliveriesOut)
@pages.get("/deliveries")
def list_deliveries(
    caller: CanWatch,
    *,
    state: DeliveryState | None = None,
    cursor: Annotated[str, Query(max_length=100)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = PAGE,
) -> Any:
    """List callbacks and webhooks with their attempts, the newest first."""
    page = caller.registry.deliveries.page(state, after=cursor, most=limit)
    document = DeliveriesOut.model_validate(
        {"deliveries": page.lines, "next": page.next or None}
    )
    if not caller.is_at_page:
        return document
    query = urlencode({"state": state or "", "cursor": page.next})
    more = f"/deliveries?{query}" if page.next else ""
    return show_page(caller, "deliveries", page=document, state=state or "", next=more)


@api.post("/deliveries/{delivery}/replay", status_code=204)
@pages.post("/deliveries/{delivery}/replay")
async def replay_delivery(delivery: DeliveryId, caller: CanOperate) -> Response:
    """Send a delivery again."""
    await run_in_threadpool(caller.registry.deliveries.replay, delivery)
    await caller.note("replay delivery", delivery)
    if caller.is_at_page:
        return go_to("/deliveries", "replayed")
    return Response(status_code=204)


def show_settings_page(
    caller: Caller,
    *,
    new_token: NewTokenOut | None = None,
    new_webhook: NewWebhookOut | None = None,
) -> Response:
    """Return the page of the settings; a secret only if it was just made."""
    registry, settings = caller.registry, caller.intake.settings
    tokens = TokensOut.model_validate({"tokens": registry.access.tokens()})
    return show_page(
        caller,
        "settings",
        page=tokens,
        webhooks=list(map(WebhookOut.model_validate, registry.deliveries.endpoints())),
        settings=settings,
        window=WindowOut.model_validate(caller.intake.current_window()),
        keys=registry.keys.public_pem(),
        events=EVENTS,
        rules=registry.rules.read(),
        ruled=get_args(Right) + ACTS,
        new_token=new_token,
        new_webhook=new_webhook,
    )


@pages.get("/settings")
def show_settings(caller: CanAdmin) -> Response:
    """Show the settings."""
    return show_settings_page(caller)


@api.get("/tokens", response_model=TokensOut)
def list_tokens(caller: CanAdmin) -> Any:
    """List the tokens."""
    return {"tokens": caller.registry.access.tokens()}


@api.post("/tokens", status_code=201, response_model=NewTokenOut)
@pages.post("/settings/tokens")
async def create_token(given: TokenIn, caller: CanAdmin) -> Any:
    """Make a token. Its secret is shown once, in this answer."""

    def create() -> tuple[Token, str]:
        access = caller.registry.access
        return access.create(
            given.name,
            given.scopes,
            days=given.days,
            owner=given.owner,
            shown=caller.secret,
        )

    token, secret = await run_in_threadpool(create)
    await caller.note("create token", token.id)
    new = NewTokenOut.model_validate(asdict(token) | {"secret": secret})
    if caller.is_at_page:
        return await run_in_threadpool(show_settings_page, caller, new_token=new)
    return new


@api.delete("/tokens/{token}", status_code=204)
@pages.post("/settings/tokens/{token}/revoke")
async def revoke_token(token: str, caller: CanAdmin) -> Response:
    """Revoke a token."""
    await run_in_threadpool(caller.registry.access.revoke, token)
    caller.call.app.state.authenticator.forget()
    await caller.note("revoke token", token)
    if caller.is_at_page:
        return go_to("/settings", "revoked")
    return Response(status_code=204)


@api.post("/tokens/{token}/trust", status_code=204)
@pages.post("/settings/tokens/{token}/trust")
async def trust_token(token: str, caller: CanAdmin) -> Response:
    """Let a token count where two people must decide; two people must do this."""

    def trust() -> None:
        caller.registry.rules.trust_token(token, by=caller.decides())

    try:
        await run_in_threadpool(trust)
    except OneAgreed as error:
        return answer_agreed(caller, "/settings", error=error)
    caller.call.app.state.authenticator.forget()
    if caller.is_at_page:
        return go_to("/settings", "trusted")
    return Response(status_code=204)


@api.get("/rules", response_model=RulesOut)
def list_rules(caller: CanWatch) -> Any:
    """List what requests pass before they are applied, by right."""
    rules = caller.registry.rules.read()
    return {"rules": {name: asdict(rule) for name, rule in rules.items()}}


@api.put("/rules/{right}", status_code=204)
async def set_rule(right: Ruled, given: RuleIn, *, caller: CanAdmin) -> Response:
    """Set the rule of a right, or of an act, for what comes from now on.

    Where the rule before wants two people and this one does not, two must send this:
    the first gets 202.
    """
    return await _set_rule(caller, right, given=given)


@pages.post("/settings/rules")
async def post_rule(given: NamedRuleIn, caller: CanAdmin) -> Response:
    """Set a rule by a form."""
    fields = given.model_dump(exclude={"right"})
    return await _set_rule(caller, given.right, given=RuleIn(**fields))


async def _set_rule(caller: Caller, right: str, *, given: RuleIn) -> Response:
    def put() -> None:
        rule = RequestRule(**given.model_dump())
        caller.registry.rules.set(right, rule, by=caller.decides())

    try:
        await run_in_threadpool(put)
    except OneAgreed as error:
        return answer_agreed(caller, "/settings", error=error)
    if caller.is_at_page:
        return go_to("/settings", "ruled")
    return Response(status_code=204)


@api.get("/webhooks", response_model=WebhooksOut)
def list_webhooks(caller: CanAdmin) -> Any:
    """List the addresses of ours that are told what happens."""
    return {"webhooks": caller.registry.deliveries.endpoints()}


@api.post("/webhooks", status_code=201, response_model=NewWebhookOut)
@pages.post("/settings/webhooks")
async def add_webhook(given: WebhookIn, caller: CanAdmin) -> Any:
    """Add a webhook. Its secret is shown once, in this answer."""

    def add() -> tuple[Endpoint, str]:
        return caller.registry.deliveries.add_endpoint(given.url, given.events)

    endpoint, secret = await run_in_threadpool(add)
    await caller.note("add webhook", endpoint.id)
    new = NewWebhookOut.model_validate(asdict(endpoint) | {"secret": secret})
    if caller.is_at_page:
        return await run_in_threadpool(show_settings_page, caller, new_webhook=new)
    return new


@api.delete("/webhooks/{webhook}", status_code=204)
@pages.post("/settings/webhooks/{webhook}/remove")
async def remove_webhook(webhook: WebhookId, caller: CanAdmin) -> Response:
    """Remove a webhook."""
    await run_in_threadpool(caller.registry.deliveries.remove_endpoint, webhook)
    await caller.note("remove webhook", webhook)
    if caller.is_at_page:
        return go_to("/settings", "removed")
    return Response(status_code=204)
