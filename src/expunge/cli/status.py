# SPDX-License-Identifier: Apache-2.0
"""``expunge status``: models, requests, and releases that are still out there."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput
from .exits import DONE, WRONG_INPUT, Failed
from .options import OnRegistry
from .printing import Table, counted, facts, say, say_json
from .words import day, left_in_words, model_json, release_json, request_json

if TYPE_CHECKING:
    from ..registry import RequestStatus
    from ..registry import Status as Whole

# More would push everything else off the screen; JSON holds all of them.
MOST_LINES = 20


@dataclass(frozen=True)
class Status(OnRegistry):
    """Say where models and requests stand. This changes nothing."""

    request: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="One request, by its 32 hexadecimal digits."),
    ] = None
    receipt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the receipt of --request there."),
    ] = None

    def perform(self) -> int:
        """Print the whole, or one request."""
        if self.request is not None:
            return self._one(self.request)
        if self.receipt is not None:
            raise InvalidInput("--receipt belongs to one --request; name that too")
        with self.opened() as registry:
            status = registry.status()
        if self.as_json:
            say_json(in_json(status))
        else:
            show(status)
        return DONE

    def _one(self, request: str) -> int:
        """Print one request, and write its receipt if that was asked for."""
        with self.opened() as registry:
            found, receipt = registry.request(request), registry.receipt(request)
        if self.receipt is not None:
            if receipt is None:
                raise Failed(
                    f"request {request} is {found.stage}, not completed: there is no "
                    "receipt yet; run expunge forget --pending",
                    WRONG_INPUT,
                )
            self.receipt.write_text(receipt, encoding="ascii")
        if self.as_json:
            say_json(request_json(found) | {"receipt": receipt})
        else:
            say(facts(in_words(found)))
        return DONE


def in_words(found: "RequestStatus") -> list[tuple[str, object]]:
    """Return a request as names and values."""
    lines: list[tuple[str, object]] = [
        ("request", found.request),
        ("stage", found.stage),
        ("people", found.n_subjects),
        ("accepted", f"{day(found.accepted)} UTC"),
        ("deadline", f"{day(found.deadline)} UTC"),
    ]
    if found.completed is not None:
        lines.append(("completed", f"{day(found.completed)} UTC"))
    if found.error:
        lines.append(("held up by", found.error))
    return lines


def in_json(status: "Whole") -> dict[str, Any]:
    """Return the whole as JSON data."""
    return {
        "models": [model_json(model) for model in status.models],
        "pending": [request_json(request) for request in status.pending],
        "outstanding": [release_json(release) for release in status.outstanding],
        "n_requests": status.n_requests,
        "n_completed": status.n_completed,
        "ledger_size": status.ledger_size,
        "key": status.key,
        "store": status.store,
    }


def show(status: "Whole") -> None:
    """Print the whole: a line of figures, then a table for each thing there is."""
    say(
        f"{counted(status.n_requests, 'request')}, {status.n_completed} completed; "
        f"{counted(status.ledger_size, 'entry', 'entries')} in the ledger; "
        f"{status.store}",
        f"signed by key {status.key}",
    )
    if not status.models:
        say("", "no model yet; begin with expunge fit")
        return
    say("")
    models(status).show()
    if status.pending:
        say("", f"{counted(len(status.pending), 'request')} accepted, not completed:")
        pending(status).show()
    if status.outstanding:
        say("", "out of date and still out there; take them back, then release")
        say("NAME --withdraw N:")
        outstanding(status).show()


def models(status: "Whole") -> Table:
    """Return the models as a table."""
    return Table(
        ("release", "made (UTC)", "status", "people", "left", "model"),
        tuple(
            (
                str(model.number),
                day(model.made),
                model.certificate.status,
                str(model.n_people or "none"),
                left_in_words(model.certificate),
                model.name,
            )
            for model in status.models
        ),
    )


def pending(status: "Whole") -> Table:
    """Return requests that are not completed as a table, the first due first."""
    due = sorted(status.pending, key=lambda request: request.deadline)
    lines: list[tuple[str, ...]] = [
        (one.request, one.stage, day(one.deadline), one.error)
        for one in due[:MOST_LINES]
    ]
    if len(due) > MOST_LINES:
        lines.append((f"and {len(due) - MOST_LINES} more", "", "", ""))
    return Table(("request", "stage", "deadline (UTC)", "held up by"), tuple(lines))


def outstanding(status: "Whole") -> Table:
    """Return releases to take back as a table."""
    return Table(
        ("release", "superseded (UTC)", "model", "files"),
        tuple(
            (
                str(release.number),
                "" if release.superseded is None else day(release.superseded),
                release.model,
                ", ".join(file for _, file in release.shipped),
            )
            for release in status.outstanding
        ),
    )
