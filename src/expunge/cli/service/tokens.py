# SPDX-License-Identifier: Apache-2.0
"""``expunge token``: who may call a service, and what they may do there."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

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
    from ...registry import Token


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
        str, typer.Argument(metavar="NAME", help="Whose it is; requests show it.")
    ]
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="SCOPE", help="May be repeated (default: request)."),
    ] = None
    days: Annotated[int, typer.Option(min=1, help="How long it is good for.")] = 90

    def perform(self) -> int:
        """Make the token and print its secret."""
        with self.open_registry() as registry:
            token, secret = registry.access.create(
                self.name, self.scope or ["request"], days=self.days
            )
        until = format_day(token.expires)
        note = f"token {token.id} is good until {until}; it is not shown again"
        shown = token_to_json(token)
        print_secret(secret, shown, note=note, as_json=self.as_json)
        return DONE


@dataclass(frozen=True)
class TokenListCommand(RegistryOptions):
    """List the tokens that did not expire."""

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
    """Make a token useless from now on."""

    token: Annotated[str, typer.Argument(metavar="ID", help="Id of the token.")]

    def perform(self) -> int:
        """Revoke the token."""
        with self.open_registry() as registry:
            self.confirm(f"Revoke token {self.token}?")
            registry.access.revoke(self.token)
        print_note(f"token {self.token} is revoked")
        return DONE
