# SPDX-License-Identifier: Apache-2.0
"""Commands of a service: run it, who may call it, and whom it tells what happened."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..exceptions import needing
from .common import (
    DONE,
    UNEXPECTED,
    WRONG_INPUT,
    CommandFailed,
    CommonOptions,
    ConfirmOptions,
    RegistryOptions,
    TextTable,
    format_day,
    print_json,
    print_note,
    print_secret,
    print_text,
    require_file,
)

if TYPE_CHECKING:
    from ..registry import Delivery, Endpoint, Registry, Token
    from ..service.settings import ServiceSettings

DEV_WINDOW, DEMO_WINDOW = 10, 60
THIS_MACHINE = ("127.0.0.1", "::1", "localhost")
# What is shown of a delivery.
SHOWN = (
    *("id", "state", "form", "event", "subject"),
    *("host", "attempts", "last"),
)


@dataclass(frozen=True)
class ServeCommand(CommonOptions):
    """Serve a registry: an API, a dashboard, and the protocols of privacy desks.

    One process accepts requests, and applies them when their window closes. Several may
    serve one registry. It speaks http: put a TLS proxy in front of it. On SIGTERM
    it finishes the calls and the batch that it is working on.
    """

    registry: Annotated[
        Path | None,
        typer.Argument(
            metavar="REGISTRY",
            envvar="EXPUNGE_REGISTRY",
            help="Folder of the registry.",
        ),
    ] = None
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any.")] = 8300
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="EXPUNGE_CONFIG",
            help="Settings as TOML, see docs/operations.md.",
        ),
    ] = None
    window: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            help="How long requests are gathered before they are applied.",
        ),
    ] = None
    accept_only: Annotated[
        bool,
        typer.Option(
            "--accept-only",
            help="Only accept requests; another process applies them.",
        ),
    ] = False
    dev: Annotated[
        bool,
        typer.Option(
            "--dev",
            help="For a laptop: readable logs, windows of 10 seconds, no https, and a "
            "token that is printed once.",
        ),
    ] = False
    demo: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Serve an example in this folder instead, made on the first call, as "
            "with --dev and windows of a minute.",
        ),
    ] = None

    def perform(self) -> int:
        """Serve until the process is told to end."""
        with needing("service", "expunge serve"):
            from ..registry import Registry
            from ..service.app import listen, serve
        self._require_this_machine()
        with listen(self.host, self.port) as listener:
            folder = self._find_folder()
            port = listener.getsockname()[1]
            settings = self._choose_settings(f"http://{self.host}:{port}")
            with Registry.open(folder) as registry:
                if self.is_local:
                    print_sign_in(registry, settings.address)
                was_told = serve(
                    registry, settings, listener=listener, is_readable=self.is_local
                )
        if not was_told:
            raise CommandFailed(
                "a thread of the service ended, and it cannot work without; its log "
                "says where: start it again",
                UNEXPECTED,
            )
        return DONE

    @property
    def is_local(self) -> bool:
        """Whether this is for a laptop."""
        return self.dev or self.demo is not None

    def _require_this_machine(self) -> None:
        """Refuse to show others a service without https."""
        if self.is_local and self.host not in THIS_MACHINE:
            raise CommandFailed(
                f"--host {self.host} with --dev or --demo, which have no https; leave "
                "it out, or serve without them",
                WRONG_INPUT,
            )

    def _find_folder(self) -> Path:
        """Return the folder of the registry, which may be the example's."""
        if self.demo is not None:
            from ..demo.example import prepare_example

            window = DEMO_WINDOW if self.window is None else self.window
            return prepare_example(self.demo, print_note, window=window)
        if self.registry is None:
            raise CommandFailed(
                "no registry was named; give its folder, as in expunge serve "
                "expunge-registry, or --demo and a new folder for an example",
                WRONG_INPUT,
            )
        return self.registry

    def _choose_settings(self, address: str) -> "ServiceSettings":
        """Return the settings of the file, changed by options."""
        from ..service.settings import ServiceSettings, read_settings

        if self.config is None:
            settings = ServiceSettings(address=address)
        else:
            require_file(self.config)
            settings = read_settings(self.config)
        if self.is_local:
            window = DEV_WINDOW if self.demo is None else DEMO_WINDOW
            settings = replace(
                settings, address=address, is_secure=False, window=window
            )
        if self.window is not None:
            settings = replace(settings, window=self.window)
        return replace(settings, applies=settings.applies and not self.accept_only)


def print_sign_in(registry: "Registry", address: str) -> None:
    """Make a token that may do everything for a day, and print it."""
    _, secret = registry.access.create("dev", ["admin"], days=1)
    print_note(f"serving at {address}; Ctrl-C stops it")
    print_note("sign in with this token; it expires tomorrow and is not shown again:")
    print_text(secret)


def token_to_json(token: "Token") -> dict[str, Any]:
    """Return a token as JSON data, without its secret."""
    return {
        "id": token.id,
        "name": token.name,
        "scopes": list(token.scopes),
        "created": format_day(token.created),
        "expires": format_day(token.expires),
    }


@dataclass(frozen=True)
class TokenCreateCommand(RegistryOptions):
    """Make a token, and print it. It is not shown again.

    Scopes are request (send requests and see one's own), operate (answer requests and
    download releases), audit (see everything) and admin (all of it, and tokens).
    """

    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Who it is for; requests show it.")
    ]
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="SCOPE", help="May be repeated (default: request)."),
    ] = None
    days: Annotated[int, typer.Option(min=1, help="How long it is valid.")] = 90

    def perform(self) -> int:
        """Make the token and print its secret."""
        with self.open_registry() as registry:
            token, secret = registry.access.create(
                self.name, self.scope or ["request"], days=self.days
            )
        until = format_day(token.expires)
        note = f"token {token.id} is valid until {until}; it is not shown again"
        shown = token_to_json(token)
        print_secret(secret, shown, note=note, as_json=self.as_json)
        return DONE


@dataclass(frozen=True)
class TokenListCommand(RegistryOptions):
    """List the tokens that have not expired."""

    def perform(self) -> int:
        """Print the tokens."""
        with self.open_registry() as registry:
            tokens = registry.access.tokens()
        if self.as_json:
            print_json([token_to_json(one) for one in tokens])
            return DONE
        lines = [
            (one.id, " ".join(one.scopes), format_day(one.expires), one.name)
            for one in tokens
        ]
        TextTable(("id", "scopes", "expires", "name"), tuple(lines)).print()
        return DONE


@dataclass(frozen=True)
class TokenRevokeCommand(RegistryOptions, ConfirmOptions):
    """Revoke a token, so that it no longer works."""

    token: Annotated[str, typer.Argument(metavar="ID", help="Id of the token.")]

    def perform(self) -> int:
        """Revoke the token."""
        with self.open_registry() as registry:
            self.confirm(f"Revoke token {self.token}?")
            registry.access.revoke(self.token)
        print_note(f"token {self.token} is revoked")
        return DONE


def endpoint_to_json(endpoint: "Endpoint") -> dict[str, Any]:
    """Return an endpoint as JSON data, without its secret."""
    return asdict(endpoint) | {"created": format_day(endpoint.created)}


def delivery_to_json(delivery: "Delivery") -> dict[str, Any]:
    """Return a delivery as JSON data."""
    return {name: getattr(delivery, name) for name in SHOWN}


@dataclass(frozen=True)
class WebhookAddCommand(RegistryOptions):
    """Let a service call an address when something happens; print the secret.

    The secret signs each call and is not shown again. Events are request.completed,
    request.cancelled, request.overdue, release.made and release.recalled. The service
    calls only hosts that its settings allow.
    """

    url: Annotated[
        str, typer.Argument(metavar="URL", help="Such as https://example.org/hook.")
    ]
    event: Annotated[
        list[str] | None,
        typer.Option(metavar="EVENT", help="May be repeated (default: all)."),
    ] = None

    def perform(self) -> int:
        """Add the address and print its secret."""
        from ..registry.delivery import EVENTS

        with self.open_registry() as registry:
            endpoint, secret = registry.deliveries.add_endpoint(
                self.url, self.event or EVENTS
            )
        note = f"webhook {endpoint.id} is added; its secret is not shown again"
        shown = endpoint_to_json(endpoint)
        print_secret(secret, shown, note=note, as_json=self.as_json)
        return DONE


@dataclass(frozen=True)
class WebhookListCommand(RegistryOptions):
    """List the addresses that a service calls."""

    def perform(self) -> int:
        """Print the addresses."""
        with self.open_registry() as registry:
            endpoints = registry.deliveries.endpoints()
        if self.as_json:
            print_json([endpoint_to_json(one) for one in endpoints])
            return DONE
        lines = [(one.id, " ".join(one.events), one.url) for one in endpoints]
        TextTable(("id", "events", "address"), tuple(lines)).print()
        return DONE


@dataclass(frozen=True)
class WebhookRemoveCommand(RegistryOptions, ConfirmOptions):
    """Stop calling an address; calls that still wait are given up."""

    webhook: Annotated[str, typer.Argument(metavar="ID", help="Id of the webhook.")]

    def perform(self) -> int:
        """Remove the address."""
        with self.open_registry() as registry:
            self.confirm(f"Remove webhook {self.webhook}?")
            registry.deliveries.remove_endpoint(self.webhook)
        print_note(f"webhook {self.webhook} is removed")
        return DONE


@dataclass(frozen=True)
class WebhookDeliveriesCommand(RegistryOptions):
    """List what was told to others, newest first: webhooks and callbacks."""

    state: Annotated[
        Literal["waiting", "delivered", "given_up"] | None,
        typer.Option(help="Only deliveries in this state."),
    ] = None
    after: Annotated[
        str, typer.Option(metavar="PLACE", help="Where the previous page ended.")
    ] = ""
    most: Annotated[int, typer.Option(min=1, max=1000, help="How many to list.")] = 100

    def perform(self) -> int:
        """Print a page of deliveries."""
        with self.open_registry() as registry:
            page = registry.deliveries.page(
                self.state, after=self.after, most=self.most
            )
        if self.as_json:
            lines = [delivery_to_json(one) for one in page.lines]
            print_json({"deliveries": lines, "next": page.next})
            return DONE
        cells = [tuple(str(getattr(one, name)) for name in SHOWN) for one in page.lines]
        TextTable(SHOWN, tuple(cells)).print()
        if page.next:
            print_note(f"there are more: --after {page.next}")
        return DONE


@dataclass(frozen=True)
class WebhookReplayCommand(RegistryOptions):
    """Deliver something again, for instance after a receiver was repaired."""

    delivery: Annotated[
        str, typer.Argument(metavar="DELIVERY", help="Id of the delivery.")
    ]

    def perform(self) -> int:
        """Have the delivery sent again."""
        with self.open_registry() as registry:
            registry.deliveries.replay(self.delivery)
        print_note(f"delivery {self.delivery} is due now; the service sends it")
        return DONE
