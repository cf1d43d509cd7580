# SPDX-License-Identifier: Apache-2.0
"""Commands that show expunge at work: ``demo`` on bundled data, ``bench`` on more."""

import sys
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any

import typer

from .common import (
    DATA_MISSING,
    DOES_NOT_STAND,
    DONE,
    HEADING_WIDTH,
    NOT_INSTALLED,
    WRONG_INPUT,
    CommandFailed,
    CommonOptions,
    print_json,
    print_note,
    print_text,
    print_under,
    show_named_progress,
    show_progress,
)

REPORT = "report.html"
CHECKOUT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class DemoCommand(CommonOptions):
    """Forget 150 people on bundled data, check the receipts, and write a report.

    It takes seconds and touches nothing but a folder of its own. There it leaves the
    registry, a release, a receipt, the ledger, tampered copies of both, and the report.
    It exits with 6 if anything did not come out as promised.
    """

    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="An empty or new folder (default: a temporary one)."
        ),
    ] = None
    seed: Annotated[
        int, typer.Option(min=0, help="Decides who asks to be forgotten.")
    ] = 0
    show: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser.")
    ] = False

    def perform(self) -> int:
        """Run the demo, write the report, and print where it is."""
        from ..demo.page import draw_plots, render_page
        from ..demo.run import DemoOptions, DemoOutput, run_demo

        folder = make_empty_folder(self.out)
        say = print_nothing if self.as_json else print_under
        output = DemoOutput(say, show_progress)
        result = run_demo(folder, DemoOptions(self.seed), output=output)
        report = folder / REPORT
        page = render_page(result, draw_plots(result))
        report.write_text(page, encoding="utf-8")
        if self.as_json:
            print_json({"report": str(report), **result.to_json()})
        else:
            key, tampered = folder / "public.pem", folder / "forged-receipt.json"
            print_under("Report", str(report))
            # Not wrapped, so that it can be copied.
            print_text(f"{'Try':<{HEADING_WIDTH}}expunge verify {tampered} --key {key}")
        if self.show:
            import webbrowser

            webbrowser.open(report.resolve().as_uri())
        return DOES_NOT_STAND if result.find_failures() else DONE


def make_empty_folder(folder: Path | None) -> Path:
    """Return an empty folder, created if need be; a temporary one for None."""
    if folder is None:
        return Path(mkdtemp(prefix="expunge-demo-"))
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise CommandFailed(
            f"{folder} exists and is not an empty folder; give one that is empty or "
            "new",
            WRONG_INPUT,
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def print_nothing(heading: str, text: str) -> None:
    """Print nothing: the JSON holds everything."""


class BenchSetting(StrEnum):
    """What can be run."""

    digits = "digits"
    mnist = "mnist"
    warfarin = "warfarin"
    svhn = "svhn"
    adult = "adult"
    all = "all"


@dataclass(frozen=True)
class BenchCommand(CommonOptions):
    """Run the paper's experiments and the comparison; write results and a report.

    Finished pieces are kept in the output folder. If a run is interrupted, the same
    command continues it.
    """

    setting: Annotated[
        BenchSetting,
        typer.Argument(metavar="SETTING", help="digits, mnist, ..., or all."),
    ]
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick", help="Everything (two hours), or a sample (two minutes)."
        ),
    ] = False
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of the data (default: $EXPUNGE_DATA, then OpenML)."),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the results (default: benchmarks/results)."),
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0
    resume: Annotated[bool, typer.Option(help="Reuse finished pieces.")] = True

    def perform(self) -> int:
        """Run the experiments and print what they found."""
        experiments = import_experiments()
        request = experiments.Request(
            word=self.setting.value,
            scale="full" if self.full else "quick",
            out=self.out or CHECKOUT / "benchmarks/results",
            data_dir=self.data_dir,
            seed=self.seed,
            resume=self.resume,
        )
        try:
            with show_named_progress("reading data") as report:
                outcome = experiments.run(request, report)
        except FileNotFoundError as error:
            raise CommandFailed(str(error), DATA_MISSING) from error
        except ImportError as error:
            raise CommandFailed(str(error), NOT_INSTALLED) from error
        for reason in outcome.missing:
            print_note(f"expunge: not run: {reason}")
        if self.as_json:
            print_json(outcome.to_json())
        else:
            print_text(describe_outcome(outcome))
        return DATA_MISSING if outcome.missing else DONE


def import_experiments(checkout: Path = CHECKOUT) -> Any:
    """Return the module that runs experiments, which only a checkout has."""
    if not (checkout / "benchmarks/experiments/run.py").is_file():
        raise CommandFailed(
            f"bench needs a checkout of expunge, and {checkout} is not one; clone the "
            "repository, run make there, and call .venv/bin/expunge bench",
            NOT_INSTALLED,
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    try:
        return import_module("benchmarks.experiments.run")
    except ModuleNotFoundError as error:
        raise CommandFailed(
            f"bench needs {error.name}, which is not installed; run make in the "
            "checkout, or pip install expunge[bench]",
            NOT_INSTALLED,
        ) from error


def describe_outcome(outcome: Any) -> str:
    """Return the tables and files, and in a full run which targets were missed."""
    verdict = import_module("benchmarks.report").verdict
    parts = [str(section) for section in outcome.sections]
    parts += [f"wrote {path}" for path in outcome.files]
    if outcome.targets:
        parts.append(verdict(outcome.targets))
    return "\n".join(parts)
