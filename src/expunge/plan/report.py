# SPDX-License-Identifier: Apache-2.0
"""Report: the figures of a plan, and how a person reads them.

As a table of text, or as a plot if matplotlib is there; it is imported when asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from ..budget import Budget
from ..exceptions import MissingExtra
from ..private import Private
from .reach import Kind, Reach, round_counts
from .scores import Scored

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What each order of removal means.
WORDS: Mapping[str, str] = {
    "typical": "at random",
    "clustered": "a row's neighbours",
    "largest": "largest effects",
    "aligned": "effects in one direction",
    "opposed": "effects in one direction",
}
# Below this an R2 is as bad as any, and would flatten the rest of the plot.
LOWEST_R2 = -1.0
# Colours that stay apart for the colour-blind (Okabe and Ito).
STYLES: Mapping[Kind, tuple[str, str]] = {
    "typical": ("#0072B2", "o"),
    "worst": ("#D55E00", "v"),
    "clustered": ("#009E73", "s"),
}


@dataclass(frozen=True, slots=True, repr=False)
class PlanReport(Private):
    """What a contract allows on given rows. It prints by ``table`` alone.

    Attributes
    ----------
    budget, mechanism
        The contract, and the mechanism's name.
    n_samples, n_parameters
        n rows and d parameters.
    allowed
        The largest radius that fits: the radius budget less tau.
    reaches
        One for each kind of removal.
    metric
        "accuracy" or "R2": what ``score`` means.
    noise_free, noised
        The model without noise, and releases by sigma.
    ignored
        Removals that the noise would hide if nobody acted on them, whichever rows,
        by constants alone; None where constants bound nothing.
    risk
        Bound on the expected excess risk of any release the contract accepts after
        ``reaches``' largest count by the state alone; None likewise.
    not_covered
        What these figures are not, in sentences.
    """

    budget: Budget
    mechanism: str
    n_samples: int
    n_parameters: int
    allowed: float
    reaches: tuple[Reach, ...]
    metric: str
    noise_free: Scored
    noised: tuple[Scored, ...]
    ignored: int | None
    risk: float | None
    not_covered: tuple[str, ...]

    def __repr__(self) -> str:
        return "PlanReport(private; table() shows it)"

    def table(self) -> str:
        """Return the report as text for a person to read."""
        parts = [self._heading(), self._counts(), self._radii(), self._scores()]
        notes = "\n".join(
            fill(note, 80, initial_indent="- ", subsequent_indent="  ")
            for note in self.not_covered
        )
        return "\n\n".join([*parts, notes]) + "\n"

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Return radius by count and score by sigma as a figure; save it at ``path``.

        Needs matplotlib, the extra ``plots``.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingExtra(
                "a plot needs matplotlib, which is not installed; run "
                "pip install expunge[plots], or read table()"
            ) from error
        figure = Figure(figsize=(11.0, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_radii(left, self)
        _draw_scores(right, self)
        figure.suptitle(f"What the contract allows: {self._contract()}")
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _contract(self) -> str:
        joint = self.budget.releases
        claim = "each release" if joint is None else f"{joint} releases jointly"
        return (
            f"{self.mechanism}, epsilon={self.budget.epsilon:g}, "
            f"delta={self.budget.delta:g}, sigma={self.budget.sigma:g}, {claim}"
        )

    def _heading(self) -> str:
        return (
            f"Plan: {self._contract()}\n"
            f"{self.n_samples} rows, {self.n_parameters} parameters; a radius up to "
            f"{self.allowed:.3g} fits"
        )

    def _counts(self) -> str:
        lines = [("rows that may go", "without rows", "with rows", "one more")]
        for reach in self.reaches:
            counts = str(reach.without_rows), str(reach.with_rows)
            lines.append((_label(reach), *counts, reach.then))
        ignored = "no bound" if self.ignored is None else str(self.ignored)
        lines.append(("any, requests ignored", ignored, "", "by constants alone"))
        risk = "no bound" if self.risk is None else f"at most {self.risk:.3g}"
        return (
            f"{_aligned(lines, last_is_text=True)}\n"
            "Without the remaining rows one more is refused, for all to see; with them "
            "it is\nanswered as named and counting starts again from there.\n"
            f"Expected excess risk until then, by constants alone: {risk}"
        )

    def _radii(self) -> str:
        lines = [("rows removed", *(f"{each.kind} radius" for each in self.reaches))]
        tried = [dict(reach.tried) for reach in self.reaches]
        for count in round_counts(self.n_samples - 1):
            found = [radii.get(count) for radii in tried]
            if any(radius is not None for radius in found):
                lines.append((str(count), *map(_figure, found)))
        return _aligned(lines)

    def _scores(self) -> str:
        lines = [("sigma", self.metric, "lowest", "loss", "typical fit", "worst fit")]
        for each in (self.noise_free, *self.noised):
            scores = f"{each.score:.4f}", f"{each.lowest:.4f}", f"{each.loss:.4g}"
            counts = _figure(each.typical), _figure(each.worst)
            lines.append((f"{each.sigma:g}", *scores, *counts))
        return _aligned(lines)


def _label(reach: Reach) -> str:
    """Return the kind of removal in words."""
    return f"{reach.kind}: {WORDS[reach.order]}"


def _figure(value: float | None) -> str:
    """Return a number as the table shows it."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:.2e}" if isfinite(value) else "no bound"


def _aligned(lines: Sequence[tuple[str, ...]], *, last_is_text: bool = False) -> str:
    """Return lines of cells in columns, a rule below the first."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    final = len(widths) - 1

    def cell(i: int, text: str) -> str:
        left = i == 0 or (last_is_text and i == final)
        return text.ljust(widths[i]) if left else text.rjust(widths[i])

    drawn = ["  ".join(cell(i, text) for i, text in enumerate(line)) for line in lines]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join(line.rstrip() for line in [drawn[0], rule, *drawn[1:]])


def _draw_radii(axes: "Axes", report: PlanReport) -> None:
    """Draw radius by count for each kind, and what the contract allows."""
    for reach in report.reaches:
        finite = [pair for pair in reach.tried if isfinite(pair[1]) and pair[1] > 0.0]
        counts, radii = [n for n, _ in finite], [radius for _, radius in finite]
        colour, marker = STYLES[reach.kind]
        words = f"{_label(reach)}, {reach.without_rows} fit"
        axes.plot(counts, radii, color=colour, marker=marker, ms=3.5, label=words)
    axes.axhline(
        report.allowed, color="black", ls="--", label=f"allowed, {report.allowed:.3g}"
    )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="rows removed",
        ylabel="radius: bound on the distance to retraining",
        title="Radius after removals, by the state alone",
    )
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)


def _draw_scores(axes: "Axes", report: PlanReport) -> None:
    """Draw score by sigma beside the noise-free score."""
    sigmas = [each.sigma for each in report.noised]
    means = [each.score for each in report.noised]
    lowest = [each.lowest for each in report.noised]
    axes.plot(sigmas, means, color="#0072B2", marker="o", label="mean of the draws")
    axes.fill_between(
        sigmas, lowest, means, alpha=0.2, lw=0.0, label="down to the lowest"
    )
    free = report.noise_free.score
    axes.axhline(free, color="black", ls="--", label="without noise")
    axes.axvline(report.budget.sigma, color="#D55E00", ls=":", label="the contract")
    axes.set(
        xscale="log",
        xlabel="sigma: standard deviation of the noise",
        ylabel=report.metric,
        title=f"What noise costs: {report.metric} of a release",
    )
    if min(lowest) < LOWEST_R2:
        axes.set_ylim(bottom=LOWEST_R2)
    axes.legend(frameon=False, loc="lower left")
    axes.grid(alpha=0.25)
