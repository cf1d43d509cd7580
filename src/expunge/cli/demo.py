# SPDX-License-Identifier: Apache-2.0
"""The command that shows expunge at work, on people who are made up."""

import sys
from pathlib import Path
from shutil import which
from tempfile import mkdtemp
from typing import Annotated

import typer

from .output import (
    DONE,
    NOT_VALID,
    WRONG_INPUT,
    CommandFailed,
    Result,
    show_progress,
    wrap,
)

REPORT = "report.html"
# Room for the longest heading.
HEADING_WIDTH = 14


def demo(
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="An empty or new folder (default: a temporary one)."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Decides who asks to be forgotten.")
    ] = 0,
    show: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser.")
    ] = False,
) -> Result:
    """Forget 20 of 50,000 people, check the receipts, and write a report.

    The people are made up. It takes less than a minute and touches nothing but a
    folder of its own. There it leaves the table, the registry, a release, a receipt,
    the ledger, tampered copies of both, and the report. It exits with 6 if anything did
    not come out as promised.
    """
    from ..demo.page import draw_plot, render_page
    from ..demo.run import run_demo, summarise

    if out is None:
        folder = Path(mkdtemp(prefix="expunge-demo-"))
    elif out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise CommandFailed(
            f"{out} exists and is not an empty folder; give one that is empty or new",
            WRONG_INPUT,
        )
    else:
        folder = out
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    result = run_demo(folder, show_progress, seed=seed)
    report = folder / REPORT
    report.write_text(render_page(result, draw_plot(result)), encoding="utf-8")
    said = [*summarise(result), ("Report", str(report))]
    key, tampered = folder / "public.pem", folder / "forged-receipt.json"
    text = [put_under(heading, line) for heading, line in said]
    # Not wrapped, so that it can be copied.
    program = "expunge" if which("expunge") else f"{sys.executable} -m expunge"
    text.append(f"{'Try':<{HEADING_WIDTH}}{program} verify {tampered} --key {key}")
    if show:
        import webbrowser

        webbrowser.open(report.resolve().as_uri())
    return Result(
        {"report": str(report), **result.to_json()},
        text,
        code=NOT_VALID if result.find_failures() else DONE,
    )


def put_under(heading: str, text: str) -> str:
    """Return a wrapped text beside its heading."""
    return wrap(text, first=f"{heading:<{HEADING_WIDTH}}", later=" " * HEADING_WIDTH)
