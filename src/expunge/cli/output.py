# SPDX-License-Identifier: Apache-2.0
"""Printing: text that stays aligned in a terminal and plain in a pipe.

Words: what the registry's values are called when they are printed.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    Watch: TypeAlias = Callable[[int, int], None]
    from ..promise.certificate import Certificate
    from ..registry import ModelStatus, ReleaseStatus, RequestStatus


WIDTH = 80
# Enough of an id to recognise a slip, and of a list to see what kind it is.
ID_LENGTH, FEW = 40, 3


def say(*texts: str) -> None:
    """Print to stdout: what was asked for."""
    for text in texts:
        typer.echo(text)


def note(text: str) -> None:
    """Print to stderr: what a person should know and a script need not."""
    typer.echo(text, err=True)


def say_json(value: Any) -> None:
    """Print one line of JSON; what is not a finite number is null."""
    typer.echo(json.dumps(_finite(value), allow_nan=False))


def paragraph(text: str) -> str:
    """Return a text wrapped."""
    return _wrapped(text)


def points(texts: Iterable[str]) -> str:
    """Return sentences as a list, each wrapped."""
    return "\n".join(_wrapped(text, "- ", "  ") for text in texts)


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Return names and values in two columns, without a rule."""
    lines = [(name, str(value)) for name, value in pairs]
    width = max((len(name) for name, _ in lines), default=0)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in lines)


def some(ids: Sequence[str]) -> str:
    """Return the first few of what the operator typed, spelled in ASCII, cut short."""
    cut = [ascii(one[:ID_LENGTH]) + "..." * (len(one) > ID_LENGTH) for one in ids[:FEW]]
    rest = len(ids) - len(cut)
    return ", ".join(cut) + (f" and {rest} more" if rest else "")


def counted(n: int, one: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{n} {one if n == 1 else many or one + 's'}"


@dataclass(frozen=True, slots=True)
class Table:
    """Headings and lines of cells; the last column takes what room is left."""

    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def show(self, console: "Console | None" = None) -> None:
        """Print it: folded to the width of a terminal, or one line each in a pipe."""
        if console is None and not sys.stdout.isatty():
            say(self.plain())
            return
        from rich import box
        from rich.console import Console
        from rich.table import Table as Drawn
        from rich.text import Text

        drawn = Drawn(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
        for heading, width in zip(self.headings, self.widths, strict=True):
            drawn.add_column(heading, overflow="fold", no_wrap=width <= ID_LENGTH)
        for line in self.lines:
            drawn.add_row(*map(Text, line))
        (console or Console(highlight=False)).print(drawn)

    def plain(self) -> str:
        """Return it aligned, a line of text for each line."""
        widths = self.widths  # once: each is a look at all lines
        return "\n".join(
            "  ".join(map(str.ljust, line, widths)).rstrip()
            for line in (self.headings, *self.lines)
        )

    @property
    def widths(self) -> list[int]:
        """The width of each column."""
        columns = zip(self.headings, *self.lines, strict=True)
        return [max(map(len, column)) for column in columns]


@contextmanager
def progress(label: str) -> Iterator["Watch"]:
    """Show a bar on stderr while something is done, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = "{task.description}", BarColumn(), MofNCompleteColumn()
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _wrapped(text: str, first: str = "", later: str = "") -> str:
    """Return a text in lines; paths and hashes are not broken, so as to be copied."""
    return fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _finite(value: Any) -> Any:
    """Return JSON data with null for every infinity."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def day(time: int) -> str:
    """Return the day of a time, in UTC: a finer one tells how long an answer took."""
    from ..ledger.documents import day_of

    return day_of(time)


def day_if_any(time: int | None) -> str | None:
    """Return the day of a time, or None for None."""
    return None if time is None else day(time)


def promise(certificate: "Certificate") -> str:
    """Return in a few words what a certificate promises."""
    if certificate.status == "radius-only":
        return "none: no claim is made"
    about = "each release"
    if certificate.releases is not None:
        about = f"{certificate.releases} releases together"
    return (
        f"epsilon {certificate.epsilon:g}, delta {certificate.delta:g} for {about}, "
        f"by noise of {certificate.sigma:g}"
    )


def left(certificate: "Certificate") -> int | None:
    """Return how many releases the contract has left; None if it sets no number."""
    if certificate.releases is None:
        return None
    return certificate.releases - certificate.n_releases


def left_in_words(certificate: "Certificate") -> str:
    """Return how many releases are left, for a table."""
    number = left(certificate)
    return "any number" if number is None else str(number)


def model_json(model: "ModelStatus") -> dict[str, Any]:
    """Return a model as JSON data."""
    from ..promise.canonical import loads

    return {
        "name": model.name,
        "estimator": model.estimator,
        "release": model.number,
        "made": day(model.made),
        "n_people": model.n_people,
        "releases_left": left(model.certificate),
        "certificate": loads(model.certificate.to_json(), "Certificate"),
    }


def request_json(request: "RequestStatus") -> dict[str, Any]:
    """Return a request as JSON data."""
    return {
        "request": request.request,
        "stage": request.stage,
        "accepted": day(request.accepted),
        "deadline": day(request.deadline),
        "completed": day_if_any(request.completed),
        "n_subjects": request.n_subjects,
        "error": request.error,
    }


def release_json(release: "ReleaseStatus") -> dict[str, Any]:
    """Return a release as JSON data."""
    return {
        "model": release.model,
        "release": release.number,
        "made": day(release.made),
        "digest": release.digest,
        "superseded": day_if_any(release.superseded),
        "shipped": [{"day": day(time), "file": file} for time, file in release.shipped],
        "withdrawn": day_if_any(release.withdrawn),
    }
