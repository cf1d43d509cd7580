# SPDX-License-Identifier: Apache-2.0
"""Commands on a request that waits: cancel, refuse, extend."""

from dataclasses import dataclass
from typing import Annotated

import typer

from .common import (
    DONE,
    ConfirmOptions,
    RegistryOptions,
    describe_deadline,
    print_json,
    print_text,
    request_to_json,
)


@dataclass(frozen=True)
class CancelCommand(RegistryOptions, ConfirmOptions):
    """Take back a request that waits. It will not be applied, and gets no receipt."""

    request: Annotated[
        str, typer.Argument(metavar="REQUEST", help="Id of the request.")
    ]

    def perform(self) -> int:
        """Cancel the request."""
        with self.open_registry() as registry:
            self.confirm(f"Cancel request {self.request}?")
            status = registry.requests.cancel(self.request)
        if self.as_json:
            print_json(request_to_json(status))
        else:
            print_text(f"request {self.request} is cancelled")
        return DONE


@dataclass(frozen=True)
class RefuseCommand(RegistryOptions, ConfirmOptions):
    """Answer a request that waits with a refusal, and print the receipt.

    The reason is one of these codes, and is public: legal-duty, public-interest,
    research, legal-claims, unidentified, unfounded, not-applicable.
    """

    request: Annotated[
        str, typer.Argument(metavar="REQUEST", help="Id of the request.")
    ]
    reason: Annotated[str, typer.Option(metavar="CODE", help="Why it is refused.")]

    def perform(self) -> int:
        """Refuse the request and print its receipt."""
        with self.open_registry() as registry:
            self.confirm(f"Refuse request {self.request} ({self.reason})?")
            print_text(registry.requests.refuse(self.request, self.reason))
        return DONE


@dataclass(frozen=True)
class ExtendCommand(RegistryOptions, ConfirmOptions):
    """Extend the deadline of a request, once, as its law allows.

    The person must have been told, with the reason, by the first deadline. The
    extension is entered in the ledger.
    """

    request: Annotated[
        str, typer.Argument(metavar="REQUEST", help="Id of the request.")
    ]
    reason: Annotated[
        str,
        typer.Option(metavar="CODE", help="complex: it is; many: there are many."),
    ]
    notified: Annotated[
        str, typer.Option(metavar="DAY", help="The day on which the person was told.")
    ]

    def perform(self) -> int:
        """Extend the deadline and print the new one."""
        with self.open_registry() as registry:
            self.confirm(f"Extend the deadline of request {self.request}?")
            status = registry.requests.extend(
                self.request, self.reason, notified=self.notified
            )
        if self.as_json:
            print_json(request_to_json(status))
        else:
            print_text(
                f"request {self.request} is due {describe_deadline(status.deadline)}"
            )
        return DONE
