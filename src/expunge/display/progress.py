# SPDX-License-Identifier: Apache-2.0
"""Progress: one bar for terminals and notebooks, off unless somebody asks for it.

A notebook is saved with what its cells showed, so a bar must not depend on who left: it
counts steps that are known in advance. It shows no time, and whether it is drawn
depends on no time either. It never counts steps of a solver or passes over rows, since
a request that had to read the rows would differ from one that had not.

A bar with a ``unit`` is for what nobody's leaving changes, such as the first look
through a table. In a terminal, and nowhere else, it shows how many it does a second and
how long it will take.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import escape
from time import monotonic
from typing import Any, Self, TypeAlias

# Called with how many steps are done, and out of how many.
OnProgress: TypeAlias = Callable[[int, int], None]
# The same, after the name of the step that comes next.
OnNamedProgress: TypeAlias = Callable[[str, int, int], None]

WIDTH = 30


def be_silent(done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True, repr=False)
class DrawnBar:
    """How a bar looks at one moment, in a terminal and in a notebook."""

    label: str
    done: int
    total: int
    pace: str = ""

    @property
    def percent(self) -> int:
        """How much of it is filled."""
        return 100 * self.done // max(self.total, 1)

    def __repr__(self) -> str:
        filled = WIDTH * self.done // max(self.total, 1)
        bar = "#" * filled + "." * (WIDTH - filled)
        return f"{self.label} [{bar}] {self.done}/{self.total}{self.pace}"

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self.done}" max="{max(self.total, 1)}"></progress>'
        return f"<div>{escape(self.label)} {bar} {self.done}/{self.total}</div>"


class ProgressBar:
    """A bar, drawn on standard error or in the output of a notebook's cell.

    Use it in a with statement. It may be called from several threads.

    Parameters
    ----------
    label
        What is being done; no figure that depends on rows.
    total
        How many steps there are, where ``count`` counts them.
    shown
        Whether to draw it.
    stays
        Whether it stays to be seen in a terminal when all is done.
    unit
        What is counted, to show how many a second; empty to show no time.
    """

    def __init__(
        self,
        label: str,
        total: int = 0,
        *,
        shown: bool,
        stays: bool = True,
        unit: str = "",
    ) -> None:
        self.label, self.total = label, total
        self.unit, self._begin = unit, monotonic()
        self.shown, self.stays = shown, stays
        self.done = 0
        self._drawn: DrawnBar | None = None
        self._width = 0
        self._cell: Any = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        """Draw it, if its steps are known."""
        if self.total:
            self.report(0, self.total)
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the cursor at the start of a line."""
        if self._width:
            sys.stderr.write("\n" if self.stays else f"\r{' ' * self._width}\r")
            sys.stderr.flush()

    def count(self) -> None:
        """Count one more step."""
        if self.shown:
            with self._lock:
                self.done += 1
                self._draw()

    def report(self, done: int, total: int, *, label: str | None = None) -> None:
        """Show how many steps are done and out of how many, and what comes next."""
        if self.shown:
            with self._lock:
                self.label = self.label if label is None else label
                self.done, self.total = done, total
                self._draw()

    def _describe_pace(self) -> str:
        """Return how many a second, and how long it will take."""
        seconds = monotonic() - self._begin
        if not (self.unit and self.done and seconds > 0.0):
            return ""
        pace = self.done / seconds
        left = (self.total - self.done) / pace
        return f", {pace:,.0f} {self.unit} a second, {left:.0f} s left"

    def _draw(self) -> None:
        """Draw the bar over the last one, if there is something new to see."""
        bar, last = DrawnBar(self.label, self.done, self.total), self._drawn
        if last is not None and (bar.label, bar.percent) == (last.label, last.percent):
            return
        self._drawn = bar
        display = _find_notebook()
        if display is None:
            text = repr(replace(bar, pace=self._describe_pace()))
            sys.stderr.write(f"\r{text.ljust(self._width)}")
            sys.stderr.flush()
            self._width = max(self._width, len(text))
        elif self._cell is None:
            self._cell = display(bar, display_id=True)
        else:
            self._cell.update(bar)  # replaced, so that the last one alone is saved


def is_watched() -> bool:
    """Whether somebody would see a bar: on a terminal, or in a notebook."""
    return sys.stderr.isatty() or _find_notebook() is not None


def _find_notebook() -> Any:
    """Return what shows a value below a notebook's cell; None outside a notebook."""
    # Never imported for this: in a notebook it is loaded.
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    return ipython.display.display
