# SPDX-License-Identifier: Apache-2.0
"""What commands say: answers, errors and their exit codes, questions, progress.

A command returns a ``Result``, and ``print_result`` turns it into text or JSON.
Answers go to stdout, remarks and progress to stderr. Tables fit the width of a terminal
and have one line per row in a pipe.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from math import isfinite
from textwrap import fill
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import typer

from ..display.progress import OnNamedProgress, OnProgress, ProgressBar
from ..exceptions import needing

if TYPE_CHECKING:
    from ..promise.certificate import Certificate
    from ..registry import ModelStatus, ReleaseStatus

# What the commands need together; one of them may need less.
COMMAND_EXTRAS = "cli,registry,files"

DONE = 0
UNEXPECTED = 1
WRONG_INPUT = 2
DATA_MISSING = 3
NOT_INSTALLED = 4
BUSY = 5
NOT_VALID = 6
UNKNOWN = 7
STORE_FAILED = 8
SPENT = 9
DUE = 10
PARTLY = 11
REFUSED = 12
LATE = 13
LOST = 14
NEAR_MISS = 20
INTERRUPTED = 130

MEANINGS: Mapping[int, str] = MappingProxyType(
    {
        DONE: "done",
        UNEXPECTED: "a bug in expunge",
        WRONG_INPUT: "the command line or its input is wrong",
        DATA_MISSING: "a file, the data or the registry is missing",
        NOT_INSTALLED: "an extra is missing",
        BUSY: "busy: accepted requests are kept, but not applied yet",
        NOT_VALID: "a check failed (verify, audit, demo)",
        UNKNOWN: "unknown person or request",
        STORE_FAILED: "the store failed: full, read-only, gone, too old or damaged",
        SPENT: "the budget is exhausted",
        DUE: "requests are overdue, or due soon (status --overdue, --due)",
        PARTLY: "answered, but a request could be fulfilled only in part",
        REFUSED: "answered, but a request was refused",
        LATE: "answered, but after a deadline",
        LOST: "restored, but what came after the backup must be sent again",
        NEAR_MISS: "somebody is held whose id is spelled almost so (forget, request; "
        "status --near)",
        INTERRUPTED: "interrupted, or not confirmed; finished work is kept",
    }
)

# Keyed by class name, because importing every error that did not happen would take
# longer than most commands. The nearest base class listed here counts.
CODES: Mapping[str, int] = MappingProxyType(
    {
        "ExpungeError": WRONG_INPUT,
        "NoRegistry": DATA_MISSING,
        "NothingSaved": DATA_MISSING,
        "FileNotFoundError": DATA_MISSING,
        "MissingExtra": NOT_INSTALLED,
        "Busy": BUSY,
        "WindowOpen": BUSY,
        "NeedsDecision": BUSY,
        "Unforeseen": BUSY,
        "UnknownSubject": UNKNOWN,
        "UnknownRequest": UNKNOWN,
        "OSError": STORE_FAILED,
        "OtherSchema": STORE_FAILED,
        "NeedsRestore": STORE_FAILED,
        "StoreFailed": STORE_FAILED,
        "LedgerCorrupt": STORE_FAILED,
        "UnusableKey": STORE_FAILED,
        "CapacityExceeded": SPENT,
        "ScheduleExhausted": SPENT,
    }
)


class CommandFailed(Exception):
    """A command failed for a reason that the user can fix; it has an exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def find_exit_code(error: Exception) -> int:
    """Return the exit code for an error; an unexpected error is a bug."""
    if isinstance(error, CommandFailed):
        return error.code
    names = (kind.__name__ for kind in type(error).__mro__)
    return next((CODES[name] for name in names if name in CODES), UNEXPECTED)


def explain(error: Exception) -> str:
    """Return an error in one line: what happened, the value, what to do."""
    # Spaces within a line stay: two ids may differ in them alone.
    text = " ".join(filter(None, map(str.strip, str(error).splitlines())))
    if find_exit_code(error) == UNEXPECTED:
        kind = type(error).__name__
        return f"{kind}: {text}; this is a bug in expunge, --debug shows where"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; fix that and try again"
    return text


WIDTH = 80
# Columns up to this width are not folded: ids, hashes and days stay whole.
UNFOLDED = 40


@dataclass(frozen=True, slots=True)
class TextTable:
    """Headings and rows of cells; the last column takes the room that is left."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Result:
    """What a command returns: what it has to say, and how it ends.

    Parameters
    ----------
    data
        What ``--json`` prints. If it is None the text is printed with ``--json`` too:
        a receipt is JSON already, spelled as it was signed.
    text
        What is printed otherwise, part by part.
    notes
        Remarks for people, printed to stderr unless the answer is JSON.
    warnings
        What is printed to stderr in any case.
    code
        The exit code.
    error
        What went wrong although there is an result. It is printed last, and the exit
        code is that of the error.
    """

    data: Any = None
    text: str | TextTable | Sequence[str | TextTable] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    code: int = DONE
    error: Exception | None = None


def print_result(result: Result, *, as_json: bool) -> None:
    """Print what a command returned; JSON is one line, where infinities are null."""
    if as_json and result.data is not None:
        typer.echo(json.dumps(_replace_infinities(result.data), allow_nan=False))
    else:
        text = result.text
        for part in [text] if isinstance(text, str | TextTable) else text:
            if isinstance(part, str):
                typer.echo(part)
            elif not sys.stdout.isatty():
                typer.echo(align((part.headings, *part.rows)))
            else:
                _print_folded(part)
        for note in result.notes:
            print_note(note)
    for warning in result.warnings:
        print_note(warning)


def _replace_infinities(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_infinities(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _print_folded(table: TextTable) -> None:
    """Print a table folded to the width of the terminal."""
    with needing(COMMAND_EXTRAS, "a table on a terminal"):
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in zip(table.headings, *table.rows, strict=True):
        whole = max(map(len, column)) <= UNFOLDED
        drawn.add_column(column[0], overflow="fold", no_wrap=whole)
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    Console(highlight=False).print(drawn)


def print_error(text: str, code: int, *, as_json: bool) -> None:
    """Print to stderr what went wrong."""
    as_data = json.dumps({"error": text, "code": code})
    typer.echo(as_data if as_json else f"expunge: {text}", err=True)


def print_note(text: str) -> None:
    """Print a remark to stderr: of interest to people, not to scripts."""
    typer.echo(text, err=True)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal whether to destroy something for good, and raise if not.

    Without a terminal nobody is there to answer, and the command goes on.
    """
    if yes or not is_terminal():
        return
    try:
        agreed = typer.confirm(f"{question} This cannot be undone.", err=True)
    except typer.Abort:
        print_note("")  # the answer did not end the line
        agreed = False
    if not agreed:
        raise CommandFailed("not confirmed; nothing was changed", INTERRUPTED)


def is_terminal() -> bool:
    """Return whether a person sees a question and can answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def show_progress(label: str, *, unit: str = "") -> Iterator[OnProgress]:
    """Show a progress bar on stderr, if that is a terminal, until all is done.

    With a unit it says how many of these it does a second.
    """
    shown = sys.stderr.isatty()
    with ProgressBar(label, shown=shown, stays=False, unit=unit) as bar:
        yield bar.report


@contextmanager
def show_named_progress(label: str) -> Iterator[OnNamedProgress]:
    """Show a progress bar whose label changes from step to step."""
    with ProgressBar(label, shown=sys.stderr.isatty(), stays=False) as bar:
        yield lambda label, done, total: bar.report(done, total, label=label)


def wrap(text: str, *, first: str = "", later: str = "") -> str:
    """Return a text in lines; paths and hashes stay whole, so they can be copied."""
    return fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        break_on_hyphens=False,
        break_long_words=False,
    )


def format_list(texts: Iterable[str]) -> str:
    """Return sentences as a bulleted list, each wrapped."""
    return "\n".join(wrap(text, first="- ", later="  ") for text in texts)


def format_pairs(pairs: Iterable[tuple[str, object]]) -> str:
    """Return names and values in two aligned columns."""
    return align([(name, str(value)) for name, value in pairs])


def align(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows of cells as text in aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def format_count(n: int, noun: str, *, plural: str = "") -> str:
    """Return a number with its noun."""
    return f"{n} {noun if n == 1 else plural or noun + 's'}"


def format_people(n: int) -> str:
    """Return how many people there are."""
    return format_count(n, "person", plural="people")


def format_day(time: int) -> str:
    """Return the day of a time in UTC; a finer one shows how long an answer took."""
    from ..ledger.documents import day_of

    return day_of(time)


def describe_deadline(deadline: int) -> str:
    """Return a deadline as people say it: the day, and how many days are left."""
    from ..ledger.documents import days_between
    from ..registry.now import now

    today, day = format_day(now()), format_day(deadline)
    left = days_between(today, day)
    due = date.fromisoformat(day)
    year = "" if day[:4] == today[:4] else f" {day[:4]}"
    near = {0: "today", 1: "tomorrow"}.get(left, f"in {left} days")
    late = f"overdue by {format_count(-left, 'day')}"
    return f"by {due.day} {due:%B}{year}, {near if left >= 0 else late}"


def describe_promise(certificate: "Certificate") -> str:
    """Return in a few words what a certificate promises."""
    if certificate.status == "no promise":
        return "none: nothing is promised"
    if certificate.status == "exact":
        return "exact: the numbers of retraining, to the last bit"
    about = "each release"
    if certificate.releases is not None:
        releases = format_count(certificate.releases, "release")
        about = f"{releases}{' together' if certificate.releases > 1 else ''}"
    return (
        f"epsilon {certificate.epsilon:g}, delta {certificate.delta:g} for {about}, "
        f"with noise of sigma {certificate.sigma:g}"
    )


def count_releases_left(certificate: "Certificate") -> int | None:
    """Return how many releases the budget has left; None if it sets no number."""
    if certificate.releases is None:
        return None
    return certificate.releases - certificate.n_releases


def describe_releases_left(certificate: "Certificate") -> str:
    """Return how many releases are left, for a table."""
    number = count_releases_left(certificate)
    return "any number" if number is None else str(number)


def model_to_json(model: "ModelStatus") -> dict[str, Any]:
    """Return a model as JSON data."""
    from ..core.values import loads

    return {
        "name": model.name,
        "estimator": model.estimator,
        "release": model.number,
        "made": format_day(model.made),
        "n_people": model.n_people,
        "releases_left": count_releases_left(model.certificate),
        "certificate": loads(model.certificate.to_json(), "Certificate"),
    }


def release_to_json(release: "ReleaseStatus") -> dict[str, Any]:
    """Return a release as JSON data."""
    old, gone = release.superseded, release.withdrawn
    return {
        "model": release.model,
        "release": release.number,
        "made": format_day(release.made),
        "digest": release.digest,
        "superseded": None if old is None else format_day(old),
        "shipped": [
            {"day": format_day(time), "file": file} for time, file in release.shipped
        ],
        "withdrawn": None if gone is None else format_day(gone),
    }
