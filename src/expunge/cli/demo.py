# SPDX-License-Identifier: Apache-2.0
"""``expunge demo``: the whole story on bundled data, and a page that tells it.

``expunge bench``: the paper's experiments and the fair fight, from a checkout.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from textwrap import TextWrapper
from typing import Annotated, Any, TypeAlias

import typer

from .options import (
    DATA_MISSING,
    DOES_NOT_STAND,
    DONE,
    NOT_INSTALLED,
    WRONG_INPUT,
    Failed,
    Options,
)
from .output import WIDTH, progress, say, say_json

REPORT = "report.html"
# Room for the longest heading.
MARGIN = 12


@dataclass(frozen=True)
class Demo(Options):
    """Forget 150 people on bundled data, check the receipts, and write a report.

    It takes seconds and touches nothing but a folder of its own, in which everything
    is left to be looked at: the registry, a release, a receipt, the ledger, forgeries
    of both, and the report. It exits with 6 if anything is not as promised.
    """

    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="An empty or new folder; else a temporary one."
        ),
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Decides who asks.")] = 0
    show: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser.")
    ] = False

    def perform(self) -> int:
        """Play the story, write the report, and say where it is."""
        from ..demo.page import draw_plots, render_page
        from ..demo.run import DemoOptions, DemoOutput, run_demo

        folder = make_empty_folder(self.out)
        output = DemoOutput(say_nothing if self.as_json else say_under, progress)
        result = run_demo(folder, DemoOptions(self.seed), output=output)
        report = folder / REPORT
        page = render_page(result, draw_plots(result))
        report.write_text(page, encoding="utf-8")
        if self.as_json:
            say_json({"report": str(report), **result.to_json()})
        else:
            key, forged = folder / "public.pem", folder / "forged-receipt.json"
            say_under("Report", str(report))
            # Not wrapped: it is to be copied.
            say(f"{'Try':<{MARGIN}}expunge verify {forged} --key {key}")
        if self.show:
            import webbrowser

            webbrowser.open(report.resolve().as_uri())
        return DOES_NOT_STAND if result.find_failures() else DONE


def make_empty_folder(folder: Path | None) -> Path:
    """Return a folder with nothing in it, made if need be."""
    if folder is None:
        return Path(mkdtemp(prefix="expunge-demo-"))
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise Failed(
            f"{folder} is there and not an empty folder; name one that is empty or new",
            WRONG_INPUT,
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def say_under(heading: str, text: str) -> None:
    """Print a heading with a text beside it; paths stay whole, to be copied."""
    shape = TextWrapper(WIDTH, f"{heading:<{MARGIN}}", " " * MARGIN)
    shape.break_on_hyphens = shape.break_long_words = False
    say(shape.fill(text))


def say_nothing(heading: str, text: str) -> None:
    """Print nothing: the JSON has all of it."""


ROOT = Path(__file__).resolve().parents[3]

Watch: TypeAlias = Callable[[str, int, int], None]


class Word(StrEnum):
    """What can be run."""

    digits = "digits"
    mnist = "mnist"
    warfarin = "warfarin"
    svhn = "svhn"
    adult = "adult"
    all = "all"


@dataclass(frozen=True)
class Bench:
    """Run the paper's experiments and the fair fight; write results and a report.

    Finished pieces are kept in the output folder: the same command, given again,
    goes on where it was interrupted.
    """

    word: Annotated[
        Word, typer.Argument(metavar="SETTING", help="digits, mnist, ..., or all.")
    ]
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick", help="Everything (two hours), or a taste (two minutes)."
        ),
    ] = False
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of data; else $EXPUNGE_DATA, else OpenML."),
    ] = None
    out: Annotated[
        Path | None, typer.Option(help="Folder of results; else benchmarks/results.")
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="First of the seeds.")] = 0
    resume: Annotated[bool, typer.Option(help="Take finished pieces as they are.")] = (
        True
    )
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of tables.")
    ] = False
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where a failure came from.")
    ] = False

    def perform(self) -> int:
        """Run the experiments and print what they found."""
        experiments = harness()
        request = experiments.Request(
            word=self.word.value,
            scale="full" if self.full else "quick",
            out=self.out or ROOT / "benchmarks/results",
            data_dir=self.data_dir,
            seed=self.seed,
            resume=self.resume,
        )
        try:
            with watched() as watch:
                outcome = experiments.run(request, watch)
        except FileNotFoundError as error:
            raise Failed(str(error), DATA_MISSING) from error
        except ImportError as error:
            raise Failed(str(error), NOT_INSTALLED) from error
        for reason in outcome.missing:
            typer.echo(f"expunge: not run: {reason}", err=True)
        typer.echo(json.dumps(outcome.to_json()) if self.as_json else said(outcome))
        return DATA_MISSING if outcome.missing else DONE


def harness(root: Path = ROOT) -> Any:
    """Return the module that runs experiments; it lives in a checkout alone."""
    if not (root / "benchmarks/experiments/run.py").is_file():
        raise Failed(
            f"bench runs from a checkout of expunge, and {root} is none; clone the "
            "repository, run make there, and call .venv/bin/expunge bench",
            NOT_INSTALLED,
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    try:
        return import_module("benchmarks.experiments.run")
    except ModuleNotFoundError as error:
        raise Failed(
            f"bench needs {error.name}, which is not installed; run make in the "
            "checkout, or pip install expunge[bench]",
            NOT_INSTALLED,
        ) from error


def said(outcome: Any) -> str:
    """Return tables, files and, in a full run, which targets were missed."""
    verdict = import_module("benchmarks.report").verdict
    parts = [str(section) for section in outcome.sections]
    parts += [f"wrote {path}" for path in outcome.files]
    if outcome.targets:
        parts.append(verdict(outcome.targets))
    return "\n".join(parts)


@contextmanager
def watched() -> Iterator[Watch]:
    """Show a progress bar on stderr while pieces are measured."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = "{task.description}", BarColumn(), MofNCompleteColumn()
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("reading data", total=None)

        def watch(name: str, done: int, total: int) -> None:
            bar.update(task, description=name, completed=done, total=total)

        yield watch
