# SPDX-License-Identifier: Apache-2.0
"""Commands of a service: run it, who may call it, and whom it tells what happened."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..exceptions import needing
from .options import FOLDER, Folder, Yes, note, open_registry, operator, require_file
from .output import (
    UNEXPECTED,
    WRONG_INPUT,
    CommandFailed,
    Result,
    TextTable,
    confirm,
    format_day,
    print_note,
)

if TYPE_CHECKING:
    from ..registry import Endpoint, Token

DEV_WINDOW, DEMO_WINDOW = 10, 60
THIS_MACHINE = ("127.0.0.1", "::1", "localhost")
# What is shown of a delivery.
SHOWN = (
    *("id", "state", "form", "event", "subject"),
    *("host", "attempts", "last"),
)


def serve(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="REGISTRY",
            envvar="EXPUNGE_REGISTRY",
            help="Folder of the registry.",
        ),
    ] = None,
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port; 0 for any.")
    ] = 8300,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="EXPUNGE_CONFIG",
            help="Settings as TOML, see docs/operations.md.",
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            help="How long requests are gathered before they are applied.",
        ),
    ] = None,
    accept_only: Annotated[
        bool,
        typer.Option(
            "--accept-only",
            help="Only accept requests; another process applies them.",
        ),
    ] = False,
    dev: Annotated[
        bool,
        typer.Option(
            "--dev",
            help="For a laptop: readable logs, windows of 10 seconds, no https, and a "
            "token that is printed once.",
        ),
    ] = False,
    demo: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Serve an example in this folder instead, made on the first call, as "
            "with --dev and windows of a minute.",
        ),
    ] = None,
) -> Result:
    """Serve a registry: an API, a dashboard, and the protocols of privacy desks.

    One process accepts requests, and applies them when their window closes. Several may
    serve one registry. It speaks http: put a TLS proxy in front of it. On SIGTERM
    it finishes the calls and the batch that it is working on.
    """
    with needing("service", "expunge serve"):
        from ..registry import Registry
        from ..service.app import listen, serve
        from ..service.settings import ServiceSettings, read_settings

    is_local = dev or demo is not None
    if is_local and host not in THIS_MACHINE:
        raise CommandFailed(
            f"--host {host} with --dev or --demo, which have no https; leave "
            "it out, or serve without them",
            WRONG_INPUT,
        )
    with listen(host, port) as listener:
        if demo is not None:
            from ..demo.example import prepare_example

            seconds = DEMO_WINDOW if window is None else window
            folder = prepare_example(demo, print_note, window=seconds)
        if folder is None:
            raise CommandFailed(
                "no registry was named; give its folder, as in expunge serve "
                "expunge-registry, or --demo and a new folder for an example",
                WRONG_INPUT,
            )
        address = f"http://{host}:{listener.getsockname()[1]}"
        settings = ServiceSettings(address=address)
        if config is not None:
            require_file(config)
            settings = read_settings(config)
        if is_local:
            settings = replace(
                settings,
                address=address,
                is_secure=False,
                window=DEV_WINDOW if demo is None else DEMO_WINDOW,
            )
        if window is not None:
            settings = replace(settings, window=window)
        settings = replace(settings, applies=settings.applies and not accept_only)
        with Registry.open(folder) as registry:
            if is_local:
                _, secret = registry.access.create("dev", ["admin"], days=1)
                print_note(f"serving at {address}; Ctrl-C stops it")
                print_note(
                    "sign in with this token; it expires tomorrow and is not shown "
                    "again:"
                )
                typer.echo(secret)
            was_told = serve(
                registry, settings, listener=listener, is_readable=is_local
            )
    if not was_told:
        raise CommandFailed(
            "a thread of the service ended, and it cannot work without; its log "
            "says where: start it again",
            UNEXPECTED,
        )
    return Result()


def token_to_json(token: "Token") -> dict[str, Any]:
    """Return a token as JSON data, without its secret."""
    return {
        "id": token.id,
        "name": token.name,
        "scopes": list(token.scopes),
        "created": format_day(token.created),
        "expires": format_day(token.expires),
        "owner": token.owner,
        "decides": token.decides,
    }


def token_create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Who it is for; requests show it.")
    ],
    *,
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="SCOPE", help="May be repeated (default: request)."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="How long it is valid.")] = 90,
    owner: Annotated[
        str,
        typer.Option(
            metavar="PERSON",
            help="Whose it is, by the name that they sign in with; only then it counts "
            "where two people must decide.",
        ),
    ] = "",
    registry: Folder = FOLDER,
) -> Result:
    """Make a token, and print it. It is not shown again.

    Scopes are request (send requests and see one's own), operate (answer requests and
    download releases), audit (see everything) and admin (all of it, and tokens).
    """
    with open_registry(registry) as opened:
        token, secret = opened.access.create(
            name,
            scope or ["request"],
            days=days,
            owner=owner,
            shown=operator().shown,
        )
        note(opened, "create token", token.id)
    until = format_day(token.expires)
    notes = [f"token {token.id} is valid until {until}; it is not shown again"]
    if owner and not token.decides:
        notes.append(
            "where two people must decide it does not count yet: two others run "
            f"expunge token trust {token.id}"
        )
    return Result(token_to_json(token) | {"secret": secret}, secret, notes)


def token_trust(
    token: Annotated[str, typer.Argument(metavar="ID", help="Id of the token.")],
    *,
    registry: Folder = FOLDER,
) -> Result:
    """Let a new token count where two people must decide; two must do this.

    Needed for a token that was made while anything wants two people. Each of the two
    shows their own in the environment, as EXPUNGE_TOKEN.
    """
    with open_registry(registry) as opened:
        opened.rules.trust_token(token, by=operator())
    return Result({"trusted": token}, f"token {token} counts from now on")


def token_list(*, registry: Folder = FOLDER) -> Result:
    """List the tokens that have not expired."""
    with open_registry(registry) as opened:
        tokens = opened.access.tokens()
    rows = [
        (
            token.id,
            " ".join(token.scopes),
            format_day(token.expires),
            token.owner,
            token.name,
        )
        for token in tokens
    ]
    return Result(
        [token_to_json(token) for token in tokens],
        TextTable(("id", "scopes", "expires", "owner", "name"), rows),
    )


def token_revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="Id of the token.")],
    *,
    yes: Yes = False,
    registry: Folder = FOLDER,
) -> Result:
    """Revoke a token, so that it no longer works."""
    with open_registry(registry) as opened:
        confirm(f"Revoke token {token}?", yes=yes)
        opened.access.revoke(token)
        note(opened, "revoke token", token)
    return Result({"revoked": token}, warnings=[f"token {token} is revoked"])


def endpoint_to_json(endpoint: "Endpoint") -> dict[str, Any]:
    """Return an endpoint as JSON data, without its secret."""
    return asdict(endpoint) | {"created": format_day(endpoint.created)}


def webhook_add(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Such as https://example.org/hook.")
    ],
    *,
    event: Annotated[
        list[str] | None,
        typer.Option(metavar="EVENT", help="May be repeated (default: all)."),
    ] = None,
    registry: Folder = FOLDER,
) -> Result:
    """Let a service call an address when something happens; print the secret.

    The secret signs each call and is not shown again. Events are request.completed,
    request.cancelled, request.overdue, release.made and release.recalled. The service
    calls only hosts that its settings allow.
    """
    from ..registry.deliveries import EVENTS

    with open_registry(registry) as opened:
        endpoint, secret = opened.deliveries.add_endpoint(url, event or EVENTS)
        note(opened, "add webhook", endpoint.id)
    said = f"webhook {endpoint.id} is added; its secret is not shown again"
    return Result(endpoint_to_json(endpoint) | {"secret": secret}, secret, [said])


def webhook_list(*, registry: Folder = FOLDER) -> Result:
    """List the addresses that a service calls."""
    with open_registry(registry) as opened:
        endpoints = opened.deliveries.endpoints()
    rows = [(hook.id, " ".join(hook.events), hook.url) for hook in endpoints]
    return Result(
        [endpoint_to_json(endpoint) for endpoint in endpoints],
        TextTable(("id", "events", "address"), rows),
    )


def webhook_remove(
    webhook: Annotated[str, typer.Argument(metavar="ID", help="Id of the webhook.")],
    *,
    yes: Yes = False,
    registry: Folder = FOLDER,
) -> Result:
    """Stop calling an address; calls that still wait are given up."""
    with open_registry(registry) as opened:
        confirm(f"Remove webhook {webhook}?", yes=yes)
        opened.deliveries.remove_endpoint(webhook)
        note(opened, "remove webhook", webhook)
    return Result({"removed": webhook}, warnings=[f"webhook {webhook} is removed"])


def webhook_deliveries(
    *,
    state: Annotated[
        Literal["waiting", "delivered", "given_up"] | None,
        typer.Option(help="Only deliveries in this state."),
    ] = None,
    after: Annotated[
        str, typer.Option(metavar="PLACE", help="Where the previous page ended.")
    ] = "",
    most: Annotated[int, typer.Option(min=1, max=1000, help="How many to list.")] = 100,
    registry: Folder = FOLDER,
) -> Result:
    """List what was told to others, newest first: webhooks and callbacks."""
    with open_registry(registry) as opened:
        page = opened.deliveries.page(state, after=after, most=most)
    shown = [{name: getattr(sent, name) for name in SHOWN} for sent in page.lines]
    rows = [tuple(map(str, delivery.values())) for delivery in shown]
    more = [f"there are more: --after {page.next}"] if page.next else []
    data = {"deliveries": shown, "next": page.next}
    return Result(data, TextTable(SHOWN, rows), more)


def webhook_replay(
    delivery: Annotated[
        str, typer.Argument(metavar="DELIVERY", help="Id of the delivery.")
    ],
    *,
    registry: Folder = FOLDER,
) -> Result:
    """Deliver something again, for instance after a receiver was repaired."""
    with open_registry(registry) as opened:
        opened.deliveries.replay(delivery)
    note = f"delivery {delivery} is due now; the service sends it"
    return Result({"replayed": delivery}, warnings=[note])
