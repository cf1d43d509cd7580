# SPDX-License-Identifier: Apache-2.0
"""What a benchmark says: tables, and targets that are reached or MISSED."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from .timing import Measurement


@dataclass(frozen=True, slots=True)
class Target:
    """A figure with the interval it should lie in."""

    name: str
    value: float
    low: float = -inf
    high: float = inf

    @property
    def reached(self) -> bool:
        """Whether the figure lies where it should; NaN never does."""
        return self.low <= self.value <= self.high

    @property
    def goal(self) -> str:
        """The interval in words."""
        if self.high == inf:
            return f">= {number(self.low)}"
        if self.low == -inf:
            return f"<= {number(self.high)}"
        return f"{number(self.low)} to {number(self.high)}"

    @property
    def cells(self) -> tuple[str, ...]:
        """The target as a row of a table."""
        verdict = "reached" if self.reached else "MISSED"
        return self.name, number(self.value), self.goal, verdict


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headers."""

    headers: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def __str__(self) -> str:
        """Return the table with the first column left, the others right."""
        lines = [self.headers, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        body = [_line(cells, widths) for cells in lines]
        return "\n".join([body[0], _line(["-" * w for w in widths], widths), *body[1:]])


@dataclass(frozen=True, slots=True)
class Section:
    """One benchmark's answer: a title, tables, targets and what to know of them."""

    title: str
    tables: Sequence[Table] = ()
    targets: Sequence[Target] = ()
    notes: Sequence[str] = field(default=())

    def __str__(self) -> str:
        """Return the section as text for a terminal."""
        parts = [f"{self.title}\n{'=' * len(self.title)}"]
        parts += [str(table) for table in self.tables]
        if self.notes:
            parts.append("\n".join(f"- {note}" for note in self.notes))
        if self.targets:
            parts.append(str(targets_table(self.targets)))
        return "\n\n".join(parts) + "\n"


def targets_table(targets: Iterable[Target]) -> Table:
    """Return targets as a table: figure, goal, verdict."""
    headers = ("target", "measured", "goal", "verdict")
    return Table(headers, [target.cells for target in targets])


def timings_table(measurements: Iterable[Measurement], unit: str = "us") -> Table:
    """Return measurements as a table of medians and quartiles."""
    scale = {"us": 1e6, "ms": 1e3, "s": 1.0}[unit]
    rows = []
    for item in measurements:
        figures = (item.median, item.lower, item.upper)
        cells = tuple(number(scale * figure) for figure in figures)
        rows.append((item.name, *cells, str(item.n)))
    return Table((f"time [{unit}]", "median", "lower q.", "upper q.", "runs"), rows)


def verdict(targets: Sequence[Target]) -> str:
    """Return the last word: how many targets were reached, and which were not."""
    missed = [target for target in targets if not target.reached]
    head = f"{len(targets) - len(missed)} of {len(targets)} targets reached"
    if not missed:
        return head
    return f"{head}; MISSED:\n\n{targets_table(missed)}"


def number(value: float) -> str:
    """Return a figure in three digits, short enough for a column."""
    if value != 0.0 and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.2e}"
    if abs(value) >= 1000.0:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return one line of a table."""
    first = cells[0].ljust(widths[0])
    rest = (cell.rjust(w) for cell, w in zip(cells[1:], widths[1:], strict=True))
    return "  ".join([first, *rest]).rstrip()
