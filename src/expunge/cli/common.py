# SPDX-License-Identifier: Apache-2.0
"""What commands share: options, exit codes, files, and how they print.

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
from pathlib import Path
from textwrap import fill
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..display.progress import OnNamedProgress, OnProgress, ProgressBar
from ..exceptions import InvalidInput, needing

if TYPE_CHECKING:
    from rich.console import Console

    from ..promise.certificate import Certificate
    from ..registry import (
        ForgottenInData,
        ModelStatus,
        Registry,
        ReleaseStatus,
        RequestStatus,
    )
    from ..tables import TrainingTable


FOLDER = Path("expunge-registry")
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


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Options of every command."""

    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, errors included.")
    ] = False
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of a failure.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class RegistryOptions(CommonOptions):
    """Options of every command that works on a registry."""

    registry: Annotated[
        Path,
        typer.Option(
            "--registry",
            "-r",
            metavar="FOLDER",
            envvar="EXPUNGE_REGISTRY",
            help="Folder of the registry.",
        ),
    ] = FOLDER

    def open_registry(self) -> "Registry":
        """Return the open registry, for use in a with statement."""
        from ..registry import Registry

        return Registry.open(self.registry)


@dataclass(frozen=True, kw_only=True)
class ConfirmOptions:
    """The option of every command that destroys something for good."""

    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask no question on a terminal.")
    ] = False

    def confirm(self, question: str) -> None:
        """Ask on a terminal whether to go on, and raise if not.

        Without a terminal nobody is there to answer, and the command goes on.
        """
        if self.yes or not is_terminal():
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


def read_file(path: Path) -> bytes:
    """Return the content of a file named on the command line."""
    require_file(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandFailed(
            f"{path} cannot be read ({error.strerror}); give another file",
            WRONG_INPUT,
        ) from None


def require_file(path: Path) -> None:
    """Raise if nothing is at this path."""
    if not path.exists():
        raise CommandFailed(f"{path} does not exist; check the path", DATA_MISSING)


def explain_forgotten(
    error: "ForgottenInData", table: "TrainingTable", *, advice: str
) -> InvalidInput:
    """Return the error about people in a table who were forgotten, with its lines."""
    assert table.file is not None
    people = format_count(error.n_people, "person", plural="people")
    return InvalidInput(
        f"{table.file.path}, {table.locate(error.rows)}: rows of {people} who were "
        f"forgotten, and would come back: leave them out with --without-forgotten, or "
        f"{advice}{explain_near(error)}"
    )


def explain_near(error: "ForgottenInData") -> str:
    """Return what to do about ids that are spelled almost as those who left."""
    if not error.n_near:
        return ""
    n = format_count(error.n_near, "person", plural="people")
    return (
        f"; {n} of them by an id that differs only in case, spacing, width or zeros: "
        "give --exact if these are others"
    )


WIDTH = 80
# Room for the longest heading of the demo.
HEADING_WIDTH = 12
# Enough of an id to recognise a typing error, and of a list to see what it holds.
ID_LENGTH, N_SHOWN_IDS = 40, 3


def print_text(*texts: str) -> None:
    """Print an answer to stdout."""
    for text in texts:
        typer.echo(text)


def print_note(text: str) -> None:
    """Print a remark to stderr: of interest to people, not to scripts."""
    typer.echo(text, err=True)


def print_json(value: Any) -> None:
    """Print one line of JSON; numbers that are not finite become null."""
    typer.echo(json.dumps(_replace_infinities(value), allow_nan=False))


def print_secret(
    secret: str, shown: Mapping[str, Any], *, note: str, as_json: bool
) -> None:
    """Print a secret that is shown once, with what it belongs to."""
    if as_json:
        print_json({**shown, "secret": secret})
        return
    print_text(secret)
    print_note(note)


def print_under(heading: str, text: str) -> None:
    """Print a wrapped text beside its heading."""
    indent = " " * HEADING_WIDTH
    print_text(wrap(text, first=f"{heading:<{HEADING_WIDTH}}", later=indent))


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


def format_ids(ids: Sequence[str]) -> str:
    """Return the first few ids that the operator typed, in ASCII and cut short."""
    shown = [
        ascii(one[:ID_LENGTH]) + "..." * (len(one) > ID_LENGTH)
        for one in ids[:N_SHOWN_IDS]
    ]
    rest = len(ids) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def format_count(n: int, noun: str, *, plural: str = "") -> str:
    """Return a number with its noun."""
    return f"{n} {noun if n == 1 else plural or noun + 's'}"


def align(lines: Sequence[tuple[str, ...]]) -> str:
    """Return lines of cells as text in aligned columns."""
    widths = measure_columns(lines)
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def measure_columns(lines: Sequence[tuple[str, ...]]) -> list[int]:
    """Return the width of each column."""
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


@dataclass(frozen=True, slots=True)
class TextTable:
    """Headings and lines of cells; the last column takes the room that is left."""

    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def print(self, console: "Console | None" = None) -> None:
        """Print it, folded to the width of a terminal, or one line each in a pipe."""
        if console is None and not sys.stdout.isatty():
            print_text(self.to_text())
            return
        with needing(COMMAND_EXTRAS, "a table on a terminal"):
            from rich import box
            from rich.console import Console
            from rich.table import Table
            from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
        widths = measure_columns((self.headings, *self.lines))
        for heading, width in zip(self.headings, widths, strict=True):
            table.add_column(heading, overflow="fold", no_wrap=width <= ID_LENGTH)
        for line in self.lines:
            table.add_row(*map(Text, line))
        (console or Console(highlight=False)).print(table)

    def to_text(self) -> str:
        """Return it in aligned columns, one line of text for each line."""
        return align((self.headings, *self.lines))


@contextmanager
def show_progress(label: str) -> Iterator[OnProgress]:
    """Show a progress bar on stderr, if that is a terminal, until all is done."""
    with ProgressBar(label, shown=sys.stderr.isatty(), stays=False) as bar:
        yield bar.report


@contextmanager
def show_pace(label: str, unit: str) -> Iterator[OnProgress]:
    """Show a progress bar that says how many of something it does a second."""
    watched = sys.stderr.isatty()
    with ProgressBar(label, shown=watched, stays=False, unit=unit) as bar:
        yield bar.report


@contextmanager
def show_named_progress(label: str) -> Iterator[OnNamedProgress]:
    """Show a progress bar whose label changes from step to step."""
    with ProgressBar(label, shown=sys.stderr.isatty(), stays=False) as bar:
        yield lambda label, done, total: bar.report(done, total, label=label)


def _replace_infinities(value: Any) -> Any:
    """Return JSON data with null for every number that is not finite."""
    if isinstance(value, dict):
        return {key: _replace_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_infinities(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def format_day(time: int) -> str:
    """Return the day of a time in UTC; a finer one shows how long an answer took."""
    from ..ledger.documents import day_of

    return day_of(time)


def describe_deadline(deadline: int) -> str:
    """Return a deadline as people say it: the day, and how many days are left."""
    from ..ledger.documents import days_between
    from ..registry.context import now

    today, day = format_day(now()), format_day(deadline)
    left = days_between(today, day)
    due = date.fromisoformat(day)
    year = "" if day[:4] == today[:4] else f" {day[:4]}"
    near = {0: "today", 1: "tomorrow"}.get(left, f"in {left} days")
    late = f"overdue by {format_count(-left, 'day')}"
    return f"by {due.day} {due:%B}{year}, {near if left >= 0 else late}"


def _format_optional_day(time: int | None) -> str | None:
    return None if time is None else format_day(time)


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


def warn_of_last_release(model: "ModelStatus") -> None:
    """Print a warning if the budget of a model that was fitted has no release left."""
    certificate = model.certificate
    if count_releases_left(certificate) == 0:
        releases = format_count(certificate.releases or 0, "release")
        print_note(
            f"warning: the budget allows {releases}, and this is the last one: no "
            f"request can be applied to {model.name}; fit it again with more --releases"
        )


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


def request_to_json(request: "RequestStatus") -> dict[str, Any]:
    """Return a request as JSON data."""
    return {
        "request": request.request,
        "right": request.right,
        "regime": request.regime,
        "stage": request.stage,
        "submitted": request.submitted,
        "accepted": format_day(request.accepted),
        "deadline": format_day(request.deadline),
        "completed": _format_optional_day(request.completed),
        "overdue": request.is_overdue,
        "outcome": request.outcome,
        "reason": request.reason,
        "n_subjects": request.n_subjects,
        "error": request.error,
    }


def release_to_json(release: "ReleaseStatus") -> dict[str, Any]:
    """Return a release as JSON data."""
    return {
        "model": release.model,
        "release": release.number,
        "made": format_day(release.made),
        "digest": release.digest,
        "superseded": _format_optional_day(release.superseded),
        "shipped": [
            {"day": format_day(time), "file": file} for time, file in release.shipped
        ],
        "withdrawn": _format_optional_day(release.withdrawn),
    }
