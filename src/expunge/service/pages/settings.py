# SPDX-License-Identifier: Apache-2.0
"""Settings: tokens, webhooks, the window and the keys.

A secret is shown once, in the answer to the form that made it.
"""

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from ...exceptions import ExpungeError
from ...registry import Endpoint, Token
from ...registry.access import SCOPES
from ...registry.delivery import EVENTS
from ..api.documents import WindowOut
from ..api.status import NewTokenOut, TokenOut
from ..desk import Desk
from ..problems import describe_error
from .rendering import PageRoute, go_to, show_page
from .visiting import AdminVisitor, SignedForm, Visitor

router = APIRouter(route_class=PageRoute, include_in_schema=False)


class EndpointOut(BaseModel):
    """A webhook of ours, without its secret."""

    id: str
    url: str
    events: list[str]

    @classmethod
    def of(cls, endpoint: Endpoint) -> "EndpointOut":
        """Return a webhook as a document."""
        return cls(id=endpoint.id, url=endpoint.url, events=list(endpoint.events))


class NewEndpointOut(EndpointOut):
    """A new webhook, with its secret, which is shown once."""

    secret: str


class SettingsPage(BaseModel):
    """What the operator chose, and who may use the service."""

    address: str
    window_seconds: int
    window: WindowOut
    applies: bool
    callback_hosts: list[str]
    keys: str
    scopes: list[str]
    tokens: list[TokenOut]
    endpoints: list[EndpointOut]
    events: list[str] = list(EVENTS)
    new_token: NewTokenOut | None = None
    new_endpoint: NewEndpointOut | None = None


def read_settings_page(desk: Desk) -> SettingsPage:
    """Return the settings, without any secret."""
    registry, settings = desk.registry, desk.settings
    return SettingsPage(
        address=settings.address,
        window_seconds=settings.window,
        window=WindowOut.of(desk.current_window()),
        applies=settings.applies,
        callback_hosts=list(settings.callback_hosts),
        keys=registry.keys.public_pem(),
        scopes=list(SCOPES),
        tokens=[TokenOut.of(one) for one in registry.access.tokens()],
        endpoints=[EndpointOut.of(one) for one in registry.deliveries.endpoints()],
    )


@router.get("/settings")
@router.get("/settings.json")
async def show_settings(visitor: AdminVisitor) -> Response:
    """Show the settings."""
    page = await run_in_threadpool(read_settings_page, visitor.desk)
    return show_page(visitor, page, template="settings")


@router.post("/settings/tokens")
async def create_token(visitor: AdminVisitor, form: SignedForm) -> Response:
    """Make a token, and show its secret once."""

    def create() -> tuple[Token, str]:
        access = visitor.desk.registry.access
        days = form.number("days")
        return access.create(form.text("name"), form.every("scopes"), days=days)

    try:
        token, secret = await run_in_threadpool(create)
    except ExpungeError as error:
        return await _show_problem(visitor, error)
    await visitor.note("create token", token.id)
    shown = NewTokenOut(**TokenOut.of(token).model_dump(), secret=secret)
    return await _show_new(visitor, {"new_token": shown})


@router.post("/settings/tokens/{token}/revoke")
async def revoke_token(
    token: str, visitor: AdminVisitor, *, form: SignedForm
) -> Response:
    """Revoke a token."""
    await run_in_threadpool(visitor.desk.registry.access.revoke, token)
    visitor.call.app.state.doorkeeper.forget()
    await visitor.note("revoke token", token)
    return go_to("/settings", "revoked")


@router.post("/settings/webhooks")
async def add_webhook(visitor: AdminVisitor, form: SignedForm) -> Response:
    """Add a webhook, and show its secret once."""

    def add() -> tuple[Endpoint, str]:
        deliveries = visitor.desk.registry.deliveries
        return deliveries.add_endpoint(form.text("url"), form.every("events"))

    try:
        endpoint, secret = await run_in_threadpool(add)
    except ExpungeError as error:
        return await _show_problem(visitor, error)
    await visitor.note("add webhook", endpoint.id)
    shown = NewEndpointOut(**EndpointOut.of(endpoint).model_dump(), secret=secret)
    return await _show_new(visitor, {"new_endpoint": shown})


@router.post("/settings/webhooks/{endpoint}/remove")
async def remove_webhook(
    endpoint: str, visitor: AdminVisitor, *, form: SignedForm
) -> Response:
    """Remove a webhook."""
    deliveries = visitor.desk.registry.deliveries
    await run_in_threadpool(deliveries.remove_endpoint, endpoint)
    await visitor.note("remove webhook", endpoint)
    return go_to("/settings", "removed")


async def _show_new(visitor: Visitor, new: dict[str, BaseModel]) -> Response:
    """Show the settings with a secret that was just made."""
    page = await run_in_threadpool(read_settings_page, visitor.desk)
    return show_page(visitor, page.model_copy(update=new), template="settings")


async def _show_problem(visitor: Visitor, error: ExpungeError) -> Response:
    """Show the settings with what was wrong in a form."""
    code, text = describe_error(error)
    page = await run_in_threadpool(read_settings_page, visitor.desk)
    return show_page(visitor, page, template="settings", code=code, problem=text)
