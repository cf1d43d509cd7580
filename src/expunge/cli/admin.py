# SPDX-License-Identifier: Apache-2.0
"""Commands that look after a registry: init, restore, rotate and log."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput, NoRegistry
from .common import (
    DONE,
    LOST,
    CommandFailed,
    ConfirmOptions,
    RegistryOptions,
    TextTable,
    format_count,
    format_pairs,
    print_json,
    print_note,
    print_text,
    require_file,
    show_progress,
    wrap,
)

if TYPE_CHECKING:
    from ..ledger import Entry
    from ..registry.recovery.losses import Losses

BACKUP_ADVICE = (
    "To back up, copy the whole folder; with PostgreSQL, dump the database as well. "
    "Anyone who has a backup can read every model in it, and people who were forgotten "
    "since. Never copy a backup over the folder: the journal in the folder knows who "
    "was forgotten after the backup, and expunge restore forgets them again."
)


@dataclass(frozen=True)
class InitCommand(RegistryOptions):
    """Create a registry.

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

        done = self._find_change()
        with Registry.create(
            self.registry,
            url=self.store,
            regime=self.regime,
            backup_days=self.backup_days,
        ) as registry:
            status = registry.status()
        folder = self.registry
        if self.as_json:
            made = {"registry": str(folder), "store": status.store, "key": status.key}
            print_json(made | {"change": done})
        elif done == "created":
            self._print_parts(status.store)
        else:
            print_text(f"{folder} is a registry already; nothing was changed")
            print_note("--regime and --backup-days count only when one is created")
        return DONE

    def _find_change(self) -> str:
        """Return what there is to do: "created" or "none"."""
        try:
            with self.open_registry():
                return "none"
        except NoRegistry:
            return "created"

    def _print_parts(self, store: str) -> None:
        """Print where everything is, and what to back up."""
        folder = self.registry
        parts = [
            ("registry", folder),
            ("store", store),
            ("keys", f"{folder / 'keys'}: secret; without them the registry is lost"),
            ("public key", f"{folder / 'public.pem'}: publish it"),
            (
                "journal",
                f"{folder / 'journal'}: secret; records what came after a backup",
            ),
        ]
        print_text(format_pairs(parts), "", wrap(BACKUP_ADVICE))


@dataclass(frozen=True)
class RestoreCommand(RegistryOptions, ConfirmOptions):
    """Restore the store from a backup, and forget again.

    A backup contains people who were forgotten after it was made. The journal in the
    registry's folder knows their requests, which are applied again. If the journal is
    damaged and you have no copy of it, --journal rebuilds it from the database in use;
    a journal that is sound stays as it is. Rows that were rectified or added after the
    backup, and newer tokens and aliases, are lost, and removed aliases are there again:
    it says which, with exit code 14.
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
            lost = {"lost": asdict(registry.losses)}
            print_json({"registry": str(self.registry), **completed, **lost})
        else:
            requests = format_count(
                status.n_completed, "request is", plural="requests are"
            )
            print_text(f"restored {self.registry}: {requests} completed")
            print_text(*describe_losses(registry.losses))
        if registry.losses:
            raise CommandFailed(
                "the store is restored and in use, without what came after the backup "
                "and is in no journal; send or make that again",
                LOST,
            )
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


def describe_losses(losses: "Losses") -> list[str]:
    """Return a line for each kind of thing that is lost, and what to do about it."""
    found = []
    if losses.rectifications:
        n = format_count(len(losses.rectifications), "rectification")
        found.append(
            f"lost: new rows of {n}; send them again, by expunge add if the request is "
            f"completed: {', '.join(losses.rectifications)}"
        )
    for name, n_added in losses.additions.items():
        times = format_count(n_added, "time")
        found.append(f"lost: rows added to {name} ({times}); add them again")
    if losses.tokens:
        n = format_count(len(losses.tokens), "token")
        found.append(f"lost: {n}; make others: {', '.join(losses.tokens)}")
    if losses.n_aliases:
        n = format_count(losses.n_aliases, "alias", plural="aliases")
        found.append(f"lost: {n}; import them again")
    if losses.n_returned:
        n = format_count(losses.n_returned, "alias", plural="aliases")
        found.append(f"lost: the removal of {n}; remove them again")
    return found


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
    from ..core.values import loads

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
