# SPDX-License-Identifier: Apache-2.0
"""``expunge demo``: the whole story on bundled data, and a page that tells it."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from textwrap import TextWrapper
from typing import Annotated

import typer

from .exits import DOES_NOT_STAND, DONE, WRONG_INPUT, Failed
from .options import Options
from .printing import WIDTH, progress, say, say_json

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
        from .report.page import page
        from .report.plots import drawings
        from .report.telling import Script, Voice, told

        folder = fresh(self.out)
        speak = silent if self.as_json else line
        story = told(folder, Script(self.seed), Voice(speak, progress))
        report = folder / REPORT
        report.write_text(page(story, drawings(story)), encoding="utf-8")
        if self.as_json:
            say_json({"report": str(report), **story.to_json()})
        else:
            key, forged = folder / "public.pem", folder / "forged-receipt.json"
            line("Report", str(report))
            # Not wrapped: it is to be copied.
            say(f"{'Try':<{MARGIN}}expunge verify {forged} --key {key}")
        if self.show:
            import webbrowser

            webbrowser.open(report.resolve().as_uri())
        return DOES_NOT_STAND if story.failures() else DONE


def fresh(folder: Path | None) -> Path:
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


def line(heading: str, text: str) -> None:
    """Print a heading with a text beside it; paths stay whole, to be copied."""
    shape = TextWrapper(WIDTH, f"{heading:<{MARGIN}}", " " * MARGIN)
    shape.break_on_hyphens = shape.break_long_words = False
    say(shape.fill(text))


def silent(heading: str, text: str) -> None:
    """Print nothing: the JSON has all of it."""
