# SPDX-License-Identifier: Apache-2.0
"""The command that shows expunge at work, on bundled data."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer

from .common import (
    DONE,
    HEADING_WIDTH,
    NOT_VALID,
    WRONG_INPUT,
    CommandFailed,
    CommonOptions,
    print_json,
    print_text,
    print_under,
    show_progress,
)

REPORT = "report.html"


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
        return NOT_VALID if result.find_failures() else DONE


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
