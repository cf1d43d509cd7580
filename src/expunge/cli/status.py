# SPDX-License-Identifier: Apache-2.0
"""The command ``status``, and ``clock confirm`` for a clock that it warns of."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput
from ..rights.standing import describe_outcome
from .common import (
    DONE,
    DUE,
    NEAR_MISS,
    WRONG_INPUT,
    CommandFailed,
    ConfirmOptions,
    RegistryOptions,
    TextTable,
    describe_deadline,
    describe_releases_left,
    format_count,
    format_day,
    format_pairs,
    model_to_json,
    print_json,
    print_text,
    release_to_json,
    request_to_json,
    wrap,
)

if TYPE_CHECKING:
    from ..registry import RegistryStatus, RequestStatus

# More pending requests would push everything else off the screen; JSON has them all.
MOST_PENDING = 20


@dataclass(frozen=True)
class StatusCommand(RegistryOptions):
    """Show models, requests and outdated releases. This changes nothing."""

    request: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="One request, by its 32 hexadecimal digits."),
    ] = None
    receipt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the receipt of --request to a file."),
    ] = None
    overdue: Annotated[
        bool,
        typer.Option(
            "--overdue",
            help="Only requests whose deadline is past; the exit code is 10 if there "
            "are any.",
        ),
    ] = False
    due: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="Only requests due within a span such as 7d or 2w, overdue ones "
            "included; the exit code is 10 if there are any.",
        ),
    ] = None

    near: Annotated[
        bool,
        typer.Option(
            "--near",
            help="Only requests that may mean somebody else: a person is held, or was "
            "when it was answered, whose id is spelled almost so; the exit code is 20 "
            "if there are any.",
        ),
    ] = False

    def perform(self) -> int:
        """Print the status of the registry, or of some requests."""
        if self.near:
            return self._print_near()
        if self.request is not None:
            return self._print_request(self.request)
        if self.overdue or self.due is not None:
            return self._print_due()
        if self.receipt is not None:
            raise InvalidInput("--receipt needs --request; say which request")
        with self.open_registry() as registry:
            status = registry.status()
        if self.as_json:
            print_json(status_to_json(status))
        else:
            print_status(status)
        return DONE

    def _print_near(self) -> int:
        """Print the requests that may mean somebody else, for a job that warns."""
        with self.open_registry() as registry:
            found = sorted(registry.requests.near_misses())
        if self.as_json:
            print_json(found)
        elif found:
            print_text(*found)
        else:
            print_text("no request is a near miss")
        return NEAR_MISS if found else DONE

    def _print_due(self) -> int:
        """Print the requests that are overdue or due soon, for a job that warns."""
        from ..registry.context import today
        from ..rights.calendar import parse_span

        if self.overdue and self.due is not None:
            raise InvalidInput("--overdue with --due; give only one of them")
        span = timedelta(days=-1) if self.due is None else parse_span(self.due)
        last = today() + span
        with self.open_registry() as registry:
            pending = registry.status().pending
        found = [one for one in pending if one.is_due(last)]
        if self.as_json:
            print_json([request_to_json(one) for one in found])
        elif found:
            tabulate_pending(found).print()
        else:
            print_text("no request is overdue" if self.overdue else "no request is due")
        return DUE if found else DONE

    def _print_request(self, request: str) -> int:
        """Print one request, and write its receipt if you asked for it."""
        with self.open_registry() as registry:
            found = registry.requests.status(request)
            receipt = registry.requests.receipt(request)
        if self.receipt is not None:
            if receipt is None:
                raise CommandFailed(
                    f"request {request} is {found.stage}, not completed: there is no "
                    "receipt yet; run expunge forget --pending",
                    WRONG_INPUT,
                )
            self.receipt.write_text(receipt, encoding="utf-8")
        if self.as_json:
            nested = None if receipt is None else json.loads(receipt)
            print_json(request_to_json(found) | {"receipt": nested})
        else:
            print_text(format_pairs(describe_request(found)))
        return DONE


@dataclass(frozen=True)
class ClockConfirmCommand(RegistryOptions, ConfirmOptions):
    """Say that the machine's clock is right, so that what is due may end.

    If a registry was idle for more than 30 days, or its clock jumped, no hold ends and
    nothing expires until you say so. Look at the day first: rows whose hold has ended
    by then are destroyed with the next request, and cannot come back.
    """

    def perform(self) -> int:
        """Confirm the day, and print it."""
        with self.open_registry() as registry:
            before = registry.status().clock
            self.confirm(f"Is it {before.today} (UTC) today?")
            clock = registry.confirm_clock()
        if self.as_json:
            print_json(asdict(clock))
        else:
            print_text(f"the clock is believed: it is {clock.today} (UTC)")
        return DONE


def describe_request(request: "RequestStatus") -> list[tuple[str, object]]:
    """Return a request as names and values."""
    lines: list[tuple[str, object]] = [
        ("request", request.request),
        ("right", f"{request.right} ({request.regime})"),
        ("stage", request.stage),
        ("people", request.n_subjects),
        ("submitted", request.submitted),
        ("accepted", f"{format_day(request.accepted)} UTC"),
    ]
    if request.is_open:
        lines.append(("deadline", describe_deadline(request.deadline)))
    else:
        lines.append(("deadline", f"{format_day(request.deadline)} UTC"))
        if request.completed is not None:
            lines.append(("completed", f"{format_day(request.completed)} UTC"))
    if request.outcome:
        lines.append(("outcome", describe_outcome(request.outcome, request.reason)))
    if request.error:
        lines.append(("held up by", request.error))
    return lines


def describe_set_aside(status: "RegistryStatus") -> str:
    """Return how many people have rows sealed apart; nothing if nobody has."""
    apart = status.set_aside
    if not apart.n_restricted and not apart.n_held:
        return ""
    ends = f", the first until {apart.first_end}" if apart.first_end else ""
    return f"sealed apart: {apart.n_restricted} restricted, {apart.n_held} held{ends}"


def status_to_json(status: "RegistryStatus") -> dict[str, Any]:
    """Return the status of a registry as JSON data."""
    return {
        "models": [model_to_json(model) for model in status.models],
        "pending": [request_to_json(request) for request in status.pending],
        "outstanding": [release_to_json(release) for release in status.outstanding],
        "set_aside": asdict(status.set_aside),
        "n_requests": status.n_requests,
        "n_completed": status.n_completed,
        "ledger_size": status.ledger_size,
        "key": status.key,
        "store": status.store,
        "clock": asdict(status.clock),
    }


def print_status(status: "RegistryStatus") -> None:
    """Print a line of figures, then a table for each kind of thing."""
    requests = format_count(status.n_requests, "request")
    late = sum(one.is_overdue for one in status.pending)
    overdue = f", {late} overdue" if late else ""
    entries = format_count(status.ledger_size, "entry", plural="entries")
    print_text(
        f"{requests}, {status.n_completed} completed{overdue}; "
        f"{entries} in the ledger; {status.store}",
        f"signed by key {status.key}",
    )
    if status.clock.warning:
        print_text(wrap(f"warning: {status.clock.warning}"))
    print_text("")
    if status.models:
        tabulate_models(status).print()
    elif status.ledger_size:
        print_text("no model; fit one with expunge fit")
    else:
        print_text("no model yet; start with expunge fit")
    apart = describe_set_aside(status)
    if apart:
        print_text("", apart)
    if status.pending:
        pending = format_count(len(status.pending), "request")
        print_text("", f"{pending} accepted, not completed:")
        tabulate_pending(status.pending).print()
    if status.outstanding:
        print_text("", "outdated releases still in use; replace every copy, then run")
        print_text("expunge release NAME --withdraw N:")
        tabulate_outstanding(status).print()


def tabulate_models(status: "RegistryStatus") -> TextTable:
    """Return the models as a table."""
    return TextTable(
        ("release", "made (UTC)", "status", "people", "releases left", "model"),
        tuple(
            (
                str(model.number),
                format_day(model.made),
                model.certificate.status,
                str(model.n_people or "none"),
                describe_releases_left(model.certificate),
                model.name,
            )
            for model in status.models
        ),
    )


def tabulate_pending(requests: "Sequence[RequestStatus]") -> TextTable:
    """Return the requests not completed as a table, the earliest deadline first."""
    pending = sorted(requests, key=lambda request: request.deadline)
    lines: list[tuple[str, ...]] = [
        (one.request, one.right, one.stage, describe_deadline(one.deadline), one.error)
        for one in pending[:MOST_PENDING]
    ]
    if len(pending) > MOST_PENDING:
        lines.append((f"and {len(pending) - MOST_PENDING} more", "", "", "", ""))
    headings = ("request", "right", "stage", "deadline", "held up by")
    return TextTable(headings, tuple(lines))


def tabulate_outstanding(status: "RegistryStatus") -> TextTable:
    """Return the outdated releases that are still in use as a table."""
    return TextTable(
        ("release", "superseded (UTC)", "model", "files"),
        tuple(
            (
                str(release.number),
                "" if release.superseded is None else format_day(release.superseded),
                release.model,
                ", ".join(file for _, file in release.shipped),
            )
            for release in status.outstanding
        ),
    )
