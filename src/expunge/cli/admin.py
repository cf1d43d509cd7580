# SPDX-License-Identifier: Apache-2.0
"""Commands that look after a registry: init, restore, rotate, status and log."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput
from .common import (
    DONE,
    DUE,
    WRONG_INPUT,
    CommandFailed,
    ConfirmOptions,
    RegistryOptions,
    TextTable,
    describe_deadline,
    describe_outcome,
    describe_releases_left,
    describe_set_aside,
    format_count,
    format_day,
    format_pairs,
    model_to_json,
    print_json,
    print_text,
    release_to_json,
    request_to_json,
    require_file,
    show_progress,
    wrap,
)

if TYPE_CHECKING:
    from ..ledger import Entry
    from ..registry import RegistryStatus, RequestStatus

BACKUP_ADVICE = (
    "To back up, copy the whole folder; with PostgreSQL, dump the database as well. "
    "Anyone who has a backup can read every model in it, and people who were forgotten "
    "since. Never copy a backup over the folder: the journal in the folder knows who "
    "was forgotten after the backup, and expunge restore forgets them again."
)
# More pending requests would push everything else off the screen; JSON has them all.
MOST_PENDING = 20


@dataclass(frozen=True)
class InitCommand(RegistryOptions):
    """Create a registry, or upgrade an older one.

    A registry keeps models, requests and the ledger, either in SQLite inside its folder
    or in PostgreSQL. Keys are created on first use and stay in the folder.
    """

    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="EXPUNGE_STORE",
            help="A PostgreSQL database, postgresql://user@host/database (default: "
            "SQLite).",
        ),
    ] = None
    regime: Annotated[
        str,
        typer.Option(
            metavar="LAW",
            help="The law that gives deadlines: gdpr, uk-gdpr or ccpa.",
        ),
    ] = "gdpr"
    backup_days: Annotated[
        int | None,
        typer.Option(
            metavar="DAYS",
            min=0,
            help="For how many days backups hold what was deleted; receipts state it.",
        ),
    ] = None

    def perform(self) -> int:
        """Create the registry and print what to take care of."""
        from ..registry import Registry

        with Registry.create(
            self.registry,
            url=self.store,
            regime=self.regime,
            backup_days=self.backup_days,
        ) as registry:
            status = registry.status()
        folder = self.registry
        if self.as_json:
            print_json(
                {"registry": str(folder), "store": status.store, "key": status.key}
            )
            return DONE
        parts = [
            ("registry", folder),
            ("store", status.store),
            ("keys", f"{folder / 'keys'}: secret; without them the registry is lost"),
            ("public key", f"{folder / 'public.pem'}: publish it"),
            (
                "journal",
                f"{folder / 'journal'}: secret; records what came after a backup",
            ),
        ]
        print_text(format_pairs(parts), "", wrap(BACKUP_ADVICE))
        return DONE


@dataclass(frozen=True)
class RestoreCommand(RegistryOptions, ConfirmOptions):
    """Restore the store from a backup, and forget again.

    A backup contains people who were forgotten after it was made. The journal in the
    registry's folder knows their requests, which are applied again. If the journal is
    damaged and you have no copy of it, --journal rebuilds it from the database in use;
    a journal that is sound stays as it is.
    """

    backup: Annotated[
        Path | None, typer.Argument(metavar="BACKUP", help="Folder of the backup.")
    ] = None
    journal: Annotated[
        bool,
        typer.Option("--journal", help="Rebuild the journal, without a backup."),
    ] = False

    def perform(self) -> int:
        """Restore, and print how many requests are completed."""
        if (self.backup is None) != self.journal:
            raise InvalidInput(
                "give either the folder of a backup, or --journal to rebuild the "
                "journal"
            )
        if self.backup is None:
            return self._rebuild_journal()
        require_file(self.backup)
        self.confirm(f"Replace the store of {self.registry} by that of {self.backup}?")
        from ..registry import Registry

        with show_progress("forgetting again") as report:
            restored = Registry.restore(self.registry, self.backup, on_progress=report)
        with restored as registry:
            status = registry.status()
        if self.as_json:
            completed = {"n_completed": status.n_completed}
            print_json({"registry": str(self.registry), **completed})
        else:
            requests = format_count(
                status.n_completed, "request is", plural="requests are"
            )
            print_text(f"restored {self.registry}: {requests} completed")
        return DONE

    def _rebuild_journal(self) -> int:
        """Rebuild the journal from the database, and print what is lost."""
        from ..registry import rebuild_journal

        n_unnamed = rebuild_journal(self.registry)
        rebuilt = n_unnamed is not None
        if self.as_json:
            lost = {"rebuilt": rebuilt, "n_unnamed": n_unnamed or 0}
            print_json({"registry": str(self.registry), **lost})
        elif rebuilt:
            print_text(f"rebuilt the journal of {self.registry}")
        else:
            print_text(f"the journal of {self.registry} is sound; nothing to rebuild")
        if n_unnamed and not self.as_json:
            requests = format_count(n_unnamed, "completed request")
            text = (
                f"It no longer says who {requests} named. Make a backup now, because "
                "older ones are refused, and check that these people are not in any "
                "table you fit."
            )
            print_text(wrap(text))
        return DONE


class KeyKind(StrEnum):
    """Which key to replace."""

    signing = "signing"
    tags = "tags"


@dataclass(frozen=True)
class RotateCommand(RegistryOptions):
    """Replace a key.

    Either the key that signs the ledger, or the key that hides people's ids. After you
    rotate the signing key, publish public.pem again: it states where in the ledger each
    key starts and ends, so that whatever a stolen old key signs is refused.
    """

    key: Annotated[KeyKind, typer.Argument(metavar="KEY", help="signing or tags.")]

    def perform(self) -> int:
        """Rotate the key and print what to do next."""
        with self.open_registry() as registry:
            if self.key is KeyKind.signing:
                registry.keys.rotate_signing_key()
            else:
                registry.keys.rotate_tag_key()
            key = registry.status().key
        if self.as_json:
            print_json({"rotated": self.key.value, "key": key})
        elif self.key is KeyKind.signing:
            public = self.registry / "public.pem"
            print_text(f"key {key} signs from now on; publish {public}")
        else:
            print_text("a new key hides ids from now on")
        return DONE


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

    def perform(self) -> int:
        """Print the status of the registry, or of some requests."""
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


@dataclass(frozen=True)
class LogCommand(RegistryOptions):
    """Print the ledger, or export it to a file that anyone can verify.

    The ledger names nobody. This changes nothing.
    """

    start: Annotated[
        int, typer.Option("--from", metavar="N", min=0, help="Start at this entry.")
    ] = 0
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write all entries and signed heads to a file."
        ),
    ] = None

    def perform(self) -> int:
        """Print the entries, or export them."""
        with self.open_registry() as registry:
            if self.export is not None:
                return self._write_export(self.export, registry.ledger.export())
            entries = list(registry.ledger.entries(self.start))
        if self.as_json:
            print_json([entry_to_json(entry) for entry in entries])
        else:
            lines = tuple(entry_to_cells(entry) for entry in entries)
            TextTable(("entry", "day (UTC)", "what", "about"), lines).print()
        return DONE

    def _write_export(self, path: Path, lines: bytes) -> int:
        """Write the export and print how to check it."""
        path.write_bytes(lines)
        if self.as_json:
            print_json({"export": str(path)})
        else:
            key = self.registry / "public.pem"
            print_text(
                f"wrote {path}; check it with", f"  expunge verify {path} --key {key}"
            )
        return DONE


def entry_to_json(entry: "Entry") -> dict[str, Any]:
    """Return an entry as JSON data."""
    from ..core.json_text import loads

    return loads(entry.to_json(), "Entry")


def entry_to_cells(entry: "Entry") -> tuple[str, ...]:
    """Return an entry as cells of a table."""
    parts = entry_to_json(entry)
    return str(entry.sequence), entry.day, entry.kind, describe_subject(parts)


def describe_subject(parts: dict[str, object]) -> str:
    """Return what an entry is about, from the fields that it has."""
    if "request" in parts:
        return str(parts["request"])
    if "model" in parts:
        superseded = parts.get("certificates")
        more = f": {len(superseded)}" if isinstance(superseded, tuple) else ""
        return f"{parts['model']}{more}"
    if "n_replayed" in parts:
        n = parts["n_replayed"]
        assert isinstance(n, int)
        return f"{format_count(n, 'request')} applied again"
    return ""
