# SPDX-License-Identifier: Apache-2.0
"""``expunge webhook``: whom a service tells what happened, and what became of that."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..common import (
    DONE,
    ConfirmOptions,
    RegistryOptions,
    TextTable,
    format_day,
    print_json,
    print_note,
    print_secret,
)

if TYPE_CHECKING:
    from ...registry import Delivery, Endpoint

SHOWN = (
    *("id", "state", "form", "event", "subject"),
    *("host", "attempts", "last"),
)


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
        from ...registry.delivery import EVENTS

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
    """Call an address no more; what it was to be told is given up."""

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
        typer.Option(help="Only those that are so far."),
    ] = None
    after: Annotated[
        str, typer.Option(metavar="PLACE", help="Where the page before this ended.")
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
