# SPDX-License-Identifier: Apache-2.0
"""Commands that look after a registry: init, rules, restore, rotate, log."""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput, NoRegistry
from .options import FOLDER, Folder, Yes, note, open_registry, operator, require_file
from .output import (
    LOST,
    CommandFailed,
    Result,
    TextTable,
    confirm,
    format_count,
    format_pairs,
    show_progress,
    wrap,
)

if TYPE_CHECKING:
    from ..registry.recovery.losses import Losses

BACKUP_ADVICE = (
    "To back up, copy the whole folder; with PostgreSQL, dump the database as well. "
    "Anyone who has a backup can read every model in it, and people who were forgotten "
    "since. Never copy a backup over the folder: the journal in the folder knows who "
    "was forgotten after the backup, and expunge restore forgets them again."
)

NO_HEAD_FILE = (
    "the last signed head is kept in the folder alone: if the whole folder is put back "
    "to an earlier day nobody notices, and people come back; keep it on another disk "
    "(expunge init --head-file PATH)"
)


def init(
    *,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="EXPUNGE_STORE",
            help="A PostgreSQL database, postgresql://user@host/database (default: "
            "SQLite).",
        ),
    ] = None,
    regime: Annotated[
        str,
        typer.Option(
            metavar="LAW",
            help="The law that gives deadlines, such as gdpr, uk-gdpr or ccpa.",
        ),
    ] = "gdpr",
    backup_days: Annotated[
        int | None,
        typer.Option(
            metavar="DAYS",
            min=0,
            help="For how many days backups hold what was deleted; receipts state it.",
        ),
    ] = None,
    head_file: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Keep the last signed head here: a file, or a folder of head files, "
            "on another disk. For a registry that exists, too.",
        ),
    ] = None,
    recipient: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="To whom data of people are passed on; receipts name them. May be "
            "repeated.",
        ),
    ] = None,
    excluded_days: Annotated[
        int | None,
        typer.Option(
            metavar="DAYS",
            min=0,
            help="For how many days people who left are kept out of later fits; "
            "receipts state it (default: for good).",
        ),
    ] = None,
    registry: Folder = FOLDER,
) -> Result:
    """Create a registry.

    A registry keeps models, requests and the ledger, either in SQLite inside its folder
    or in PostgreSQL. Keys are created on first use and stay in the folder.
    """
    from ..registry import Registry

    try:
        with open_registry(registry):
            change = "none"
    except NoRegistry:
        change = "created"
    with Registry.create(
        registry,
        url=store,
        regime=regime,
        backup_days=backup_days,
        head_file=head_file,
        recipients=recipient or (),
        excluded_days=excluded_days,
    ) as opened:
        status = opened.status()
    data = {"registry": str(registry), "store": status.store, "key": status.key}
    data |= {"change": change, "head_file": status.head_file}
    unkept = [] if status.head_file else [NO_HEAD_FILE]
    if change == "created":
        journal = f"{registry / 'journal'}: secret; records what came after a backup"
        parts = [
            ("registry", registry),
            ("store", status.store),
            ("keys", f"{registry / 'keys'}: secret; without them the registry is lost"),
            ("public key", f"{registry / 'public.pem'}: publish it"),
            ("journal", journal),
        ]
        return Result(data, [format_pairs(parts), "", wrap(BACKUP_ADVICE)], unkept)
    if head_file is not None:
        return Result(data, f"{registry} keeps its last signed head in {head_file}")
    text = f"{registry} is a registry already; nothing was changed"
    note = "options other than --head-file count only when one is created"
    return Result(data, text, [note, *unkept])


def compact(
    *,
    days: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="How old a backup may be that is restored (default: --backup-days).",
        ),
    ] = None,
    yes: Yes = False,
    registry: Folder = FOLDER,
) -> Result:
    """Shorten the journal to what backups that still exist may need.

    Older backups are refused from then on. The tags of people who were forgotten stay,
    so that nobody is fitted again by oversight.
    """
    confirm(f"Drop what older backups of {registry} would need?", yes=yes)
    with open_registry(registry) as opened:
        n_bytes = opened.compact_journal(days)
        note(opened, "compact journal")
    text = f"the journal of {registry} is {n_bytes} bytes shorter"
    return Result({"registry": str(registry), "n_bytes": n_bytes}, text)


def restore(
    backup: Annotated[
        Path | None, typer.Argument(metavar="BACKUP", help="Folder of the backup.")
    ] = None,
    *,
    journal: Annotated[
        bool,
        typer.Option("--journal", help="Rebuild the journal, without a backup."),
    ] = False,
    accept_mark: Annotated[
        bool,
        typer.Option(
            "--accept-mark",
            help="Go on though the head file is lost, or has a newer head.",
        ),
    ] = False,
    yes: Yes = False,
    registry: Folder = FOLDER,
) -> Result:
    """Restore the store from a backup, and forget again.

    A backup contains people who were forgotten after it was made. The journal in the
    registry's folder knows their requests, which are applied again. If the journal is
    damaged and you have no copy of it, --journal rebuilds it from the database in use;
    a journal that is sound stays as it is. Rows that were rectified or added after the
    backup, and newer tokens and aliases, are lost, and removed aliases are there again:
    it says which, with exit code 14.

    If the head file is lost for good, or says that there was more than journal and
    backup have, --accept-mark goes on from what there is, with or without a backup. The
    ledger gets an entry that says so. Whoever was forgotten after that is in the models
    again: forget them again.
    """
    if journal and (accept_mark or backup is not None):
        raise InvalidInput("--journal rebuilds the journal, and takes nothing else")
    if backup is None and not (journal or accept_mark):
        raise InvalidInput(
            "give the folder of a backup, --journal to rebuild the journal, or "
            "--accept-mark to go on though the head file is lost or has a newer head"
        )
    if journal:
        return _rebuild_journal(registry)
    if backup is None:
        return _accept_mark(registry, yes=yes)
    require_file(backup)
    confirm(f"Replace the store of {registry} by that of {backup}?", yes=yes)
    from ..registry import Registry

    with show_progress("forgetting again") as report:
        restored = Registry.restore(
            registry, backup, accept_mark=accept_mark, on_progress=report
        )
    with restored:
        n_completed = restored.status().n_completed
    losses = restored.losses
    requests = format_count(n_completed, "request is", plural="requests are")
    error = CommandFailed(
        "the store is restored and in use, without what came after the backup "
        "and is in no journal; send or make that again",
        LOST,
    )
    return Result(
        {
            "registry": str(registry),
            "n_completed": n_completed,
            "lost": asdict(losses),
        },
        [f"restored {registry}: {requests} completed", *describe_losses(losses)],
        error=error if losses else None,
    )


def _accept_mark(folder: Path, *, yes: bool) -> Result:
    """Go on from the ledger as it is."""
    from ..registry import Registry

    confirm(f"Go on from the ledger of {folder}, as its last day has it?", yes=yes)
    with Registry.restore(folder, accept_mark=True) as opened:
        size = opened.status().ledger_size
    text = f"the ledger of {folder} goes on, with {size} entries"
    note = "whoever was forgotten after its last day must be forgotten again"
    return Result({"registry": str(folder), "ledger_size": size}, text, [note])


def _rebuild_journal(folder: Path) -> Result:
    """Rebuild the journal from the database, and say what is lost."""
    from ..registry import rebuild_journal

    n_unnamed = rebuild_journal(folder)
    text = [f"rebuilt the journal of {folder}"]
    if n_unnamed is None:
        text = [f"the journal of {folder} is sound; nothing to rebuild"]
    if n_unnamed:
        requests = format_count(n_unnamed, "completed request")
        unnamed = (
            f"It no longer says who {requests} named. Make a backup now, because "
            "older ones are refused, and check that these people are not in any "
            "table you fit."
        )
        text.append(wrap(unnamed))
    rebuilt = {"rebuilt": n_unnamed is not None, "n_unnamed": n_unnamed or 0}
    return Result({"registry": str(folder)} | rebuilt, text)


def describe_losses(losses: "Losses") -> list[str]:
    """Return a line for each kind of thing that is lost, and what to do about it."""
    lost = []
    if losses.rectifications:
        n = format_count(len(losses.rectifications), "rectification")
        lost.append(
            f"lost: new rows of {n}; send them again, by expunge add if the request is "
            f"completed: {', '.join(losses.rectifications)}"
        )
    for name, n_added in losses.additions.items():
        times = format_count(n_added, "time")
        lost.append(f"lost: rows added to {name} ({times}); add them again")
    if losses.tokens:
        n = format_count(len(losses.tokens), "token")
        lost.append(f"lost: {n}; make others: {', '.join(losses.tokens)}")
    if losses.n_aliases:
        n = format_count(losses.n_aliases, "alias", plural="aliases")
        lost.append(f"lost: {n}; import them again")
    if losses.n_returned:
        n = format_count(losses.n_returned, "alias", plural="aliases")
        lost.append(f"lost: the removal of {n}; remove them again")
    return lost


class KeyKind(StrEnum):
    """Which key to replace."""

    signing = "signing"
    tags = "tags"


def rotate(
    key: Annotated[KeyKind, typer.Argument(metavar="KEY", help="signing or tags.")],
    *,
    registry: Folder = FOLDER,
) -> Result:
    """Replace a key.

    Either the key that signs the ledger, or the key that hides people's ids. After you
    rotate the signing key, publish public.pem again: it states where in the ledger each
    key starts and ends, so that whatever a stolen old key signs is refused.
    """
    with open_registry(registry) as opened:
        if key is KeyKind.signing:
            opened.keys.rotate_signing_key()
        else:
            opened.keys.rotate_tag_key()
        note(opened, "rotate key", key.value)
        signs = opened.status().key
    text = "a new key hides ids from now on"
    if key is KeyKind.signing:
        public = registry / "public.pem"
        text = f"key {signs} signs from now on; publish {public}"
    return Result({"rotated": key.value, "key": signs}, text)


def rules(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="RIGHT",
            help="A right; or remove (a model) or withdraw (a release), which know "
            "--four-eyes alone.",
        ),
    ] = None,
    *,
    identity: Annotated[
        bool | None,
        typer.Option(
            "--identity/--no-identity", help="It must be checked who asks, or not."
        ),
    ] = None,
    approval: Annotated[
        bool | None,
        typer.Option(
            "--approval/--no-approval", help="Somebody must approve it, or not."
        ),
    ] = None,
    four_eyes: Annotated[
        bool | None,
        typer.Option(
            "--four-eyes/--no-four-eyes",
            help="Two different people must approve it, or not.",
        ),
    ] = None,
    grace: Annotated[
        int | None,
        typer.Option(
            metavar="DAYS",
            min=0,
            help="It is applied after so many days, and can be taken back until then.",
        ),
    ] = None,
    registry: Folder = FOLDER,
) -> Result:
    """Show or set what requests pass before they are applied, by right.

    A rule holds for requests that come after it was set. Without one, requests are
    applied at once, or at the end of their window. To let a rule want two people no
    longer, two must set it; each shows a token that says whose it is, in the
    environment as EXPUNGE_TOKEN.
    """
    from ..registry import RequestRule

    given = {
        "identity": identity,
        "approval": approval,
        "four_eyes": four_eyes,
        "grace_days": grace,
    }
    chosen: dict[str, Any] = {
        key: value for key, value in given.items() if value is not None
    }
    if chosen and name is None:
        raise InvalidInput("name the right whose rule is to be set, such as erase")
    with open_registry(registry) as opened:
        if name is not None and chosen:
            rule = replace(opened.rules.read().get(name, RequestRule()), **chosen)
            opened.rules.set(name, rule, by=operator())
        found = opened.rules.read()
    shown = {one: asdict(rule) for one, rule in found.items()}
    if name is not None:
        shown = {name: asdict(found.get(name, RequestRule()))}
    rows = [
        (one, *(str(value) if value else "-" for value in rule.values()))
        for one, rule in shown.items()
    ]
    table = TextTable(("right", "identity", "approval", "four eyes", "grace"), rows)
    return Result(shown, table if rows else "no rules: requests wait for nobody")


def trail(
    *,
    who: Annotated[
        str, typer.Option(metavar="NAME", help="Only what this one did.")
    ] = "",
    what: Annotated[
        str, typer.Option(metavar="ACTION", help="Only this, such as 'sign in'.")
    ] = "",
    of: Annotated[
        str, typer.Option(metavar="TARGET", help="Only of this, such as a request.")
    ] = "",
    since: Annotated[
        str | None, typer.Option(metavar="DAY", help="Only from this day on.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DAY", help="Only up to this day.")
    ] = None,
    most: Annotated[int, typer.Option(metavar="N", min=1, help="How many lines.")] = 50,
    registry: Folder = FOLDER,
) -> Result:
    """Print who looked and who acted, the newest first.

    The access log of the service, of the dashboard and of this command line. It names
    no person whose data a model could hold. This changes nothing.
    """
    from ..registry import TrailWanted
    from ..rights import parse_day

    wanted = TrailWanted(
        actor=who,
        action=what,
        target=of,
        since=None if since is None else parse_day(since),
        until=None if until is None else parse_day(until),
        most=most,
    )
    with open_registry(registry) as opened:
        lines = opened.access.read_trail(wanted)
        verdict = opened.access.check_trail()
    data = [asdict(line) | {"time": format_moment(line.time)} for line in lines]
    rows = [
        (
            format_moment(line.time),
            line.actor,
            line.action,
            line.target or "-",
            line.via or "-",
            line.reason or "-",
        )
        for line in lines
    ]
    columns = ("when (UTC)", "who", "what", "of", "by", "why")
    warnings = [] if verdict.valid else [verdict.says]
    return Result(data, TextTable(columns, rows), warnings)


def format_moment(time: int) -> str:
    """Return a moment in UTC, to the second."""
    return datetime.fromtimestamp(time // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def log(
    *,
    start: Annotated[
        int, typer.Option("--from", metavar="N", min=0, help="Start at this entry.")
    ] = 0,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write all entries and signed heads to a file."
        ),
    ] = None,
    registry: Folder = FOLDER,
) -> Result:
    """Print the ledger, or export it to a file that anyone can verify.

    The ledger names nobody. This changes nothing.
    """
    from ..core.values import loads

    with open_registry(registry) as opened:
        if export is not None:
            export.write_bytes(opened.ledger.export())
            key = registry / "public.pem"
            check = f"  expunge verify {export} --key {key}"
            return Result(
                {"export": str(export)}, [f"wrote {export}; check it with", check]
            )
        entries = list(opened.ledger.entries(start))
    data: list[dict[str, Any]] = [loads(entry.to_json(), "Entry") for entry in entries]
    rows = [
        (str(entry.sequence), entry.day, entry.kind, describe_subject(parts))
        for entry, parts in zip(entries, data, strict=True)
    ]
    return Result(data, TextTable(("entry", "day (UTC)", "what", "about"), rows))


def describe_subject(parts: dict[str, Any]) -> str:
    """Return what an entry is about, from the fields that it has."""
    if "request" in parts:
        return str(parts["request"])
    if "model" in parts:
        superseded = parts.get("certificates")
        more = f": {len(superseded)}" if isinstance(superseded, tuple) else ""
        return f"{parts['model']}{more}"
    if "n_replayed" in parts:
        return f"{format_count(parts['n_replayed'], 'request')} applied again"
    return ""
