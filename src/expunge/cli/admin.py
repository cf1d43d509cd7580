# SPDX-License-Identifier: Apache-2.0
"""``expunge init``: a registry is made, or brought up to date.

``expunge restore``: the store comes back from a backup, and nobody with it.

``expunge rotate``: a new key takes over.

``expunge status``: models, requests, and releases that are still out there.

``expunge log``: what the ledger says, for reading or for handing over.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput
from .options import DONE, WRONG_INPUT, Failed, OnRegistry, require_file
from .output import (
    Table,
    counted,
    day,
    facts,
    left_in_words,
    model_json,
    paragraph,
    progress,
    release_json,
    request_json,
    say,
    say_json,
)

if TYPE_CHECKING:
    from ..ledger import Entry
    from ..registry import RegistryStatus, RequestStatus


ADVICE = (
    "A backup is a copy of the whole folder; with PostgreSQL, and a dump beside it. "
    "Whoever has one can read every model in it, and people who were forgotten since. "
    "Never copy one back over the folder: the journal in the folder knows who was "
    "forgotten after the backup, and expunge restore forgets them again."
)


@dataclass(frozen=True)
class Init(OnRegistry):
    """Make a registry, or bring an older one up to date.

    A registry keeps models, requests and the ledger: in SQLite within its folder, or
    in PostgreSQL. Keys are made on first use and stay in the folder.
    """

    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="EXPUNGE_STORE",
            help="A PostgreSQL database, postgresql+psycopg://...; SQLite unless said.",
        ),
    ] = None
    deadline_days: Annotated[
        int, typer.Option(min=1, help="How long a request may take by law.")
    ] = 30

    def perform(self) -> int:
        """Make it and say what to take care of."""
        from ..registry import Registry

        with Registry.create(
            self.registry, url=self.store, deadline_days=self.deadline_days
        ) as registry:
            status = registry.status()
        folder = self.registry
        if self.as_json:
            say_json(
                {"registry": str(folder), "store": status.store, "key": status.key}
            )
            return DONE
        places = [
            ("registry", folder),
            ("store", status.store),
            ("keys", f"{folder / 'keys'}: secret; without them nothing can go on"),
            ("public key", f"{folder / 'public.pem'}: publish it"),
            ("journal", f"{folder / 'journal'}: secret; what a backup would lack"),
        ]
        say(facts(places), "", paragraph(ADVICE))
        return DONE


@dataclass(frozen=True)
class Restore(OnRegistry):
    """Put the store back from a backup; forget again.

    People who were forgotten after the backup was made are in it. The journal in the
    registry's folder knows the requests; they are carried out again. If the journal
    itself is damaged and no copy of it is left, --journal writes it again from the
    database in use.
    """

    backup: Annotated[
        Path | None, typer.Argument(metavar="BACKUP", help="Folder of the backup.")
    ] = None
    journal: Annotated[
        bool,
        typer.Option("--journal", help="Rebuild the journal, without a backup."),
    ] = False

    def perform(self) -> int:
        """Restore and say where things stand."""
        if (self.backup is None) != self.journal:
            raise InvalidInput("give either the folder of a backup or --journal")
        if self.backup is None:
            return self._rebuild()
        require_file(self.backup)
        from ..registry import Registry

        with progress("forgetting again") as watch:
            restored = Registry.restore(self.registry, self.backup, on_progress=watch)
        with restored as registry:
            status = registry.status()
        if self.as_json:
            completed = {"n_completed": status.n_completed}
            say_json({"registry": str(self.registry), **completed})
        else:
            requests = counted(status.n_completed, "request is", "requests are")
            say(f"restored {self.registry}: {requests} completed")
        return DONE

    def _rebuild(self) -> int:
        """Write the journal from the database, and say what is lost."""
        from ..registry import rebuild_journal

        n_unnamed = rebuild_journal(self.registry)
        if self.as_json:
            say_json({"registry": str(self.registry), "n_unnamed": n_unnamed})
            return DONE
        say(f"the journal of {self.registry} is whole")
        if n_unnamed:
            requests = counted(n_unnamed, "completed request")
            say(
                f"it cannot say whom {requests} named: take a backup now, since older",
                "ones are refused, and see that these people are in no table you fit",
            )
        return DONE


class Key(StrEnum):
    """Which key."""

    signing = "signing"
    tags = "tags"


@dataclass(frozen=True)
class Rotate(OnRegistry):
    """Replace a key.

    Either the one that signs the ledger, or the one that hides people's ids. After
    the signing key was rotated, publish public.pem again: it says where in the ledger
    each key begins and ends, and by it what a stolen old key signs is refused.
    """

    key: Annotated[Key, typer.Argument(metavar="KEY", help="signing or tags.")]

    def perform(self) -> int:
        """Rotate it and say what to do next."""
        with self.opened() as registry:
            if self.key is Key.signing:
                registry.keys.rotate_signing_key()
            else:
                registry.keys.rotate_tag_key()
            key = registry.status().key
        if self.as_json:
            say_json({"rotated": self.key.value, "key": key})
        elif self.key is Key.signing:
            say(f"key {key} signs from now on; publish {self.registry / 'public.pem'}")
        else:
            say("ids are hidden by a new key from now on")
        return DONE


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
            found, receipt = (
                registry.requests.status(request),
                registry.requests.receipt(request),
            )
        if self.receipt is not None:
            if receipt is None:
                raise Failed(
                    f"request {request} is {found.stage}, not completed: there is no "
                    "receipt yet; run expunge forget --pending",
                    WRONG_INPUT,
                )
            self.receipt.write_text(receipt, encoding="utf-8")
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


def in_json(status: "RegistryStatus") -> dict[str, Any]:
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


def show(status: "RegistryStatus") -> None:
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


def models(status: "RegistryStatus") -> Table:
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


def pending(status: "RegistryStatus") -> Table:
    """Return requests that are not completed as a table, the first due first."""
    due = sorted(status.pending, key=lambda request: request.deadline)
    lines: list[tuple[str, ...]] = [
        (one.request, one.stage, day(one.deadline), one.error)
        for one in due[:MOST_LINES]
    ]
    if len(due) > MOST_LINES:
        lines.append((f"and {len(due) - MOST_LINES} more", "", "", ""))
    return Table(("request", "stage", "deadline (UTC)", "held up by"), tuple(lines))


def outstanding(status: "RegistryStatus") -> Table:
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


@dataclass(frozen=True)
class Log(OnRegistry):
    """Print the ledger, or export it.

    An export is a file that anybody can verify. Nobody is named in it. This changes
    nothing.
    """

    start: Annotated[
        int, typer.Option("--from", metavar="N", min=0, help="Begin at this entry.")
    ] = 0
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all entries and signed heads there."),
    ] = None

    def perform(self) -> int:
        """Print the entries, or export them."""
        with self.opened() as registry:
            if self.export is not None:
                return self._export(self.export, registry.ledger.export())
            entries = list(registry.ledger.entries(self.start))
        if self.as_json:
            say_json([entry.parts() for entry in entries])
        else:
            lines = tuple(line(entry) for entry in entries)
            Table(("entry", "day (UTC)", "what", "about"), lines).show()
        return DONE

    def _export(self, path: Path, lines: bytes) -> int:
        """Write the export and say how to check it."""
        path.write_bytes(lines)
        if self.as_json:
            say_json({"export": str(path)})
        else:
            key = self.registry / "public.pem"
            say(f"wrote {path}; check it with", f"  expunge verify {path} --key {key}")
        return DONE


def line(entry: "Entry") -> tuple[str, ...]:
    """Return an entry as cells of a table."""
    return str(entry.sequence), entry.day, entry.kind, about(entry.parts())


def about(parts: dict[str, object]) -> str:
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
        return f"{counted(n, 'request')} carried out again"
    return ""
