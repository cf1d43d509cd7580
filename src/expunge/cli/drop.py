# SPDX-License-Identifier: Apache-2.0
"""``expunge drop``: California's deletion lists, from download to upload."""

import os
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput
from .options import FOLDER, Folder, Yes, open_registry, require_file
from .output import (
    DUE,
    CommandFailed,
    Result,
    confirm,
    format_count,
    format_pairs,
    show_named_progress,
)

if TYPE_CHECKING:
    from ..drop import DropApi

KEY = "EXPUNGE_DROP_KEY"
ANSWERS = Path("drop-answers")
DAYS = 45  # between two downloads, and from a download to its answer

Column = Annotated[str | None, typer.Option(metavar="COLUMN")]
Sandbox = Annotated[
    bool, typer.Option("--sandbox", help="Call the platform's sandbox.")
]
Address = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Call another address than the platform's."),
]


def drop_import(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A CSV, Parquet or Arrow file.")
    ],
    *,
    person: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the people's ids.")
    ] = "person",
    email: Column = None,
    phone: Column = None,
    maid: Column = None,
    ctvid: Column = None,
    first: Column = None,
    last: Column = None,
    birth: Column = None,
    zip_code: Annotated[str | None, typer.Option("--zip", metavar="COLUMN")] = None,
    vin: Column = None,
    registry: Folder = FOLDER,
) -> Result:
    """Let people be found by the hashed identifiers of California's lists.

    Name the columns that you have: email; phone; maid (advertising id); ctvid
    (television); first, last, birth and zip; first, last and vin. Only hashes are kept,
    sealed like aliases. A fit then knows that it can compare these people with the
    lists.
    """
    from ..drop import import_identifiers, read_identifiers

    require_file(file)
    named = {
        **{"email": email, "phone": phone, "maid": maid, "ctvid": ctvid},
        **{"first": first, "last": last, "birth": birth, "zip": zip_code, "vin": vin},
    }
    columns = {name: column for name, column in named.items() if column is not None}
    rows = read_identifiers(file, columns, person=person)
    with (
        open_registry(registry) as opened,
        show_named_progress("importing") as report,
    ):
        n = import_identifiers(opened, rows, on_progress=report)
    return Result({"n_identifiers": n}, f"{format_count(n, 'identifier')} known")


def drop_match(
    files: Annotated[
        list[Path], typer.Argument(metavar="LIST...", help="Lists, as downloaded.")
    ],
    *,
    to: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where to write the answers.")
    ] = ANSWERS,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.0, help="How long to wait for other processes."
        ),
    ] = 30.0,
    yes: Yes = False,
    registry: Folder = FOLDER,
) -> Result:
    """Erase the people on deletion lists as one batch, and write the answers.

    Whoever is found is erased under the law drop, and answered 3, or 2 where rows must
    stay. An identifier of several people is answered 4: nobody is erased by it, and you
    opt all of them out of sale and sharing. The others are answered 5 and kept out of
    later fits. A list of withdrawn identifiers ends that. Run again, a list gets the
    same answers; what changed since is written as an amendment.
    """
    from ..drop import match_lists, read_list
    from ..drop.files import CODES, REMOVED, keep_answers

    for file in files:
        require_file(file)
    lists = [read_list(file) for file in files]
    n_listed = sum(len(one.listed) for one in lists if one.name != REMOVED)
    n = format_count(n_listed, "identifier")
    confirm(f"Erase the people behind {n}, as far as they are known?", yes=yes)
    with (
        open_registry(registry) as opened,
        show_named_progress("matching") as report,
    ):
        matched = match_lists(opened, lists, wait=wait, on_progress=report)
    written: dict[str, str] = {}
    for one in lists:
        answers = {
            listed.item: matched.answers[listed.item]
            for listed in one.listed
            if one.name != REMOVED and listed.item in matched.answers
        }
        if answers and len(answers) == len(one.listed):
            written[one.file] = str(keep_answers(to, one, answers=answers))
    every = [*matched.answers.values()]
    counts = {word: every.count(code) for code, word in CODES.items()}
    data: dict[str, Any] = {
        **{word.replace(" ", "_"): count for word, count in counts.items()},
        "waiting": len(matched.waiting),
        "lifted": matched.n_lifted,
        "files": written,
    }
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    text = [said or "nothing to answer", *written.values()]
    notes = []
    if matched.n_lifted:
        notes.append(
            f"{matched.n_lifted} withdrawn identifiers keep nobody out any more; those "
            "who were erased by them stay out under their ids until you readmit them"
        )
    if counts["opted out"]:
        notes.append(
            "opt the people behind identifiers answered 4 out of sale and sharing; "
            "nobody was erased by these"
        )
    error: Exception | None = None
    if matched.waiting:
        n_wait = format_count(len(matched.waiting), "request")
        notes.append(
            f"{n_wait} could not be applied, so lists that need them have no answer "
            "yet; run the same command again"
        )
        error = matched.failure
    return Result(data, text, notes, error=error)


def drop_download(
    *,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to put them.")] = (
        Path("drop-lists")
    ),
    sandbox: Sandbox = False,
    address: Address = None,
) -> Result:
    """Fetch the next deletion lists from the platform.

    Your API key is read from the environment variable EXPUNGE_DROP_KEY. The command
    waits while the platform prepares the lists. It refuses the next batch until every
    number of the last one is answered.
    """
    paths = _open_api(address, sandbox=sandbox).download(to)
    files = [str(path) for path in paths]
    return Result({"files": files}, files or "nothing new")


def drop_upload(
    files: Annotated[
        list[Path], typer.Argument(metavar="ANSWER...", help="Answers to lists.")
    ],
    *,
    amend: Annotated[
        bool, typer.Option("--amend", help="Correct answers that were uploaded before.")
    ] = False,
    sandbox: Sandbox = False,
    address: Address = None,
) -> Result:
    """Send answers to deletion lists to the platform.

    Your API key is read from the environment variable EXPUNGE_DROP_KEY.
    """
    from ..drop.files import read_answers

    for file in files:
        require_file(file)
        read_answers(file)  # or refuse what is none
    sent = _open_api(address, sandbox=sandbox).upload(files, amend=amend)
    data = {"accepted": [*sent.accepted], "rejected": dict(sent.rejected)}
    error = None
    if sent.rejected:
        each = "; ".join(f"{name}: {why}" for name, why in sent.rejected.items())
        error = InvalidInput(
            f"the platform did not take {format_count(len(sent.rejected), 'file')}: "
            f"{each[:500]}"
        )
    return Result(data, [*sent.accepted], error=error)


def drop_status(*, registry: Folder = FOLDER) -> Result:
    """Show by when lists must be answered and fetched.

    Lists are fetched at least every 45 days, and answered within 45 days of that.
    Exits with 10 if a day is past, for a job that warns you.
    """
    from ..registry import PageWanted

    with open_registry(registry) as opened:
        last = opened.exclusions.last_day()
        page = opened.requests.page(PageWanted(("accepted", "applied"), sender="drop"))
    if not last:
        raise InvalidInput("no list was matched here yet; see expunge drop match")
    due = date.fromisoformat(last) + timedelta(days=DAYS)
    waiting = f"{len(page.lines)}{' or more' if page.next else ''}"
    data = {"downloaded": last, "due": due.isoformat(), "waiting": len(page.lines)}
    pairs = [
        ("newest list", last),
        ("requests that wait", waiting),
        ("answer it by", due),
        ("fetch the next by", due),
    ]
    error = None
    if due < date.today():
        error = CommandFailed(f"lists were to be fetched by {due}; fetch them now", DUE)
    return Result(data, format_pairs(pairs), error=error)


def _open_api(address: str | None, *, sandbox: bool) -> "DropApi":
    """Return the platform, by the key of the environment."""
    from ..drop import DropApi
    from ..drop.api import ADDRESS, SANDBOX

    key = os.environ.get(KEY, "")
    if not key:
        raise InvalidInput(f"no API key; put that of your broker's portal into {KEY}")
    return DropApi(key, address or (SANDBOX if sandbox else ADDRESS))
