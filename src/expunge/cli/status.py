# SPDX-License-Identifier: Apache-2.0
"""The command ``status``, and ``clock confirm`` for a clock that it warns of."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput
from ..rights.standing import describe_outcome
from .options import FOLDER, Folder, Yes, note, open_registry
from .output import (
    DONE,
    DUE,
    NEAR_MISS,
    WRONG_INPUT,
    CommandFailed,
    Result,
    TextTable,
    confirm,
    describe_deadline,
    describe_releases_left,
    format_count,
    format_day,
    format_pairs,
    model_to_json,
    release_to_json,
    wrap,
)

if TYPE_CHECKING:
    from ..registry import RegistryStatus, RequestStatus

# More pending requests would push everything else off the screen; JSON has them all.
MOST_PENDING = 20


def status(
    *,
    request: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="One request, by its 32 hexadecimal digits."),
    ] = None,
    receipt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the receipt of --request to a file."),
    ] = None,
    overdue: Annotated[
        bool,
        typer.Option(
            "--overdue",
            help="Only requests whose deadline is past; the exit code is 10 if there "
            "are any.",
        ),
    ] = False,
    due: Annotated[
        str | None,
        typer.Option(
            metavar="SPAN",
            help="Only requests due within a span such as 7d or 2w, overdue ones "
            "included; the exit code is 10 if there are any.",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Only requests with this reference, such as a ticket."
        ),
    ] = None,
    near: Annotated[
        bool,
        typer.Option(
            "--near",
            help="Only requests that may mean somebody else: a person is held, or was "
            "when it was answered, whose id is spelled almost so; the exit code is 20 "
            "if there are any.",
        ),
    ] = False,
    registry: Folder = FOLDER,
) -> Result:
    """Show models, requests and outdated releases. This changes nothing."""
    if reference is not None:
        with open_registry(registry) as opened:
            named = opened.requests.find_reference(reference)
        return Result(named, named or ["no request has this reference"])
    if near:
        with open_registry(registry) as opened:
            misses = sorted(opened.requests.near_misses())
        text = misses or ["no request is a near miss"]
        return Result(misses, text, code=NEAR_MISS if misses else DONE)
    if request is not None:
        return _show_request(registry, request, file=receipt)
    if overdue or due is not None:
        return _show_due(registry, due, overdue=overdue)
    if receipt is not None:
        raise InvalidInput("--receipt needs --request; say which request")
    with open_registry(registry) as opened:
        found = opened.status()
    data = {
        "models": [model_to_json(model) for model in found.models],
        "pending": [waiting.to_json() for waiting in found.pending],
        "outstanding": [release_to_json(release) for release in found.outstanding],
        "set_aside": asdict(found.set_aside),
        "n_requests": found.n_requests,
        "n_completed": found.n_completed,
        "ledger_size": found.ledger_size,
        "key": found.key,
        "store": found.store,
        "clock": asdict(found.clock),
    }
    return Result(data, describe_status(found))


def _show_request(folder: Path, request: str, *, file: Path | None) -> Result:
    """Show one request, and write its receipt if you asked for it."""
    with open_registry(folder) as opened:
        found = opened.requests.status(request)
        receipt = opened.requests.receipt(request)
    if file is not None:
        if receipt is None:
            raise CommandFailed(
                f"request {request} is {found.stage}, not completed: there is no "
                "receipt yet; run expunge forget --pending",
                WRONG_INPUT,
            )
        file.write_text(receipt, encoding="utf-8")
    nested = None if receipt is None else json.loads(receipt)
    pairs: list[tuple[str, object]] = [
        ("request", found.request),
        ("right", f"{found.right} ({found.regime})"),
        ("stage", found.stage),
        ("people", found.n_subjects),
        ("submitted", found.submitted),
        ("accepted", f"{format_day(found.accepted)} UTC"),
    ]
    if found.is_open:
        pairs.append(("deadline", describe_deadline(found.deadline)))
    else:
        pairs.append(("deadline", f"{format_day(found.deadline)} UTC"))
        if found.completed is not None:
            pairs.append(("completed", f"{format_day(found.completed)} UTC"))
    if found.outcome:
        pairs.append(("outcome", describe_outcome(found.outcome, found.reason)))
    if found.waits_for:
        pairs.append(("waits for", found.waits_for))
    if found.error:
        pairs.append(("held up by", found.error))
    data = found.to_json() | {"receipt": nested}
    return Result(data, format_pairs(pairs))


def _show_due(folder: Path, due: str | None, *, overdue: bool) -> Result:
    """Show the requests that are overdue or due soon, for a job that warns."""
    from ..registry.now import today
    from ..rights.calendar import parse_span

    if overdue and due is not None:
        raise InvalidInput("--overdue with --due; give only one of them")
    span = timedelta(days=-1) if due is None else parse_span(due)
    last = today() + span
    with open_registry(folder) as opened:
        pending = opened.status().pending
    found = [waiting for waiting in pending if waiting.is_due(last)]
    text: str | TextTable = tabulate_pending(found)
    if not found:
        text = "no request is overdue" if overdue else "no request is due"
    data = [waiting.to_json() for waiting in found]
    return Result(data, text, code=DUE if found else DONE)


def clock_confirm(*, yes: Yes = False, registry: Folder = FOLDER) -> Result:
    """Say that the machine's clock is right, so that what is due may end.

    If a registry was idle for more than 30 days, or its clock jumped, no hold ends and
    nothing expires until you say so. Look at the day first: rows whose hold has ended
    by then are destroyed with the next request, and cannot come back.
    """
    with open_registry(registry) as opened:
        confirm(f"Is it {opened.status().clock.today} (UTC) today?", yes=yes)
        clock = opened.confirm_clock()
        note(opened, "confirm clock")
    return Result(asdict(clock), f"the clock is believed: it is {clock.today} (UTC)")


def describe_set_aside(status: "RegistryStatus") -> str:
    """Return how many people have rows sealed apart; nothing if nobody has."""
    apart = status.set_aside
    if not apart.n_restricted and not apart.n_held:
        return ""
    ends = f", the first until {apart.first_end}" if apart.first_end else ""
    return f"sealed apart: {apart.n_restricted} restricted, {apart.n_held} held{ends}"


def describe_status(status: "RegistryStatus") -> list[str | TextTable]:
    """Return a line of figures, then a table for each kind of thing."""
    requests = format_count(status.n_requests, "request")
    late = sum(request.is_overdue for request in status.pending)
    overdue = f", {late} overdue" if late else ""
    entries = format_count(status.ledger_size, "entry", plural="entries")
    parts: list[Any] = [
        f"{requests}, {status.n_completed} completed{overdue}; "
        f"{entries} in the ledger; {status.store}",
        f"signed by key {status.key}",
    ]
    if status.clock.warning:
        parts.append(wrap(f"warning: {status.clock.warning}"))
    if status.unsigned:
        parts.append(wrap(f"warning: {status.unsigned}"))
    parts.append("")
    if status.models:
        models = [
            (
                str(model.number),
                format_day(model.made),
                model.certificate.status,
                str(model.n_people or "none"),
                describe_releases_left(model.certificate),
                model.name,
            )
            for model in status.models
        ]
        headings = (
            "release",
            "made (UTC)",
            "status",
            "people",
            "releases left",
            "model",
        )
        parts.append(TextTable(headings, models))
    elif status.ledger_size:
        parts.append("no model; fit one with expunge fit")
    else:
        parts.append("no model yet; start with expunge fit")
    apart = describe_set_aside(status)
    if apart:
        parts += ["", apart]
    if status.pending:
        pending = format_count(len(status.pending), "request")
        parts += ["", f"{pending} accepted, not completed:"]
        parts.append(tabulate_pending(status.pending))
    if status.outstanding:
        releases = [
            (
                str(release.number),
                "" if release.superseded is None else format_day(release.superseded),
                release.model,
                ", ".join(file for _, file in release.shipped),
            )
            for release in status.outstanding
        ]
        old = ("release", "superseded (UTC)", "model", "files")
        parts += ["", "outdated releases still in use; replace every copy, then run"]
        parts += ["expunge release NAME --withdraw N:", TextTable(old, releases)]
    return parts


def tabulate_pending(requests: "Sequence[RequestStatus]") -> TextTable:
    """Return the requests not completed as a table, the earliest deadline first."""
    pending = sorted(requests, key=lambda request: request.deadline)
    rows: list[tuple[str, ...]] = [
        (
            request.request,
            request.right,
            request.stage,
            describe_deadline(request.deadline),
            request.error,
        )
        for request in pending[:MOST_PENDING]
    ]
    if len(pending) > MOST_PENDING:
        rows.append((f"and {len(pending) - MOST_PENDING} more", "", "", "", ""))
    return TextTable(("request", "right", "stage", "deadline", "held up by"), rows)
