# SPDX-License-Identifier: Apache-2.0
r"""Report of a plan: what a budget allows on given rows, as text, plot and card.

    how many    rows can be removed before the radius no longer fits: at random, in a
                cluster, or in the hardest order found
    how good    the release is under the budget's noise, and under a tenth to ten times
                as much

A plot needs matplotlib. The figures depend on the rows, so a card in a notebook, which
is saved, shows them only where the rows were declared public or held out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from ..core.values import Private
from ..display.cards import Card, Cells
from ..display.plots import (
    BLUE,
    GREEN,
    ORANGE,
    end_at_one,
    make_figure,
    show_counts,
    show_shares,
)
from ..promise.budget import Budget
from .removals import KINDS, Kind, ReleaseScore, RemovalLimit, round_counts

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
STYLES: Mapping[Kind, tuple[str, str]] = {
    "typical": (BLUE, "o"),
    "worst": (ORANGE, "v"),
    "clustered": (GREEN, "s"),
}


@dataclass(frozen=True, slots=True, repr=False)
class PlanReport(Private):
    """What a budget allows on given rows. ``table`` and ``plot`` show it.

    So does its card in a notebook, where the rows are public.

    Attributes
    ----------
    budget, mechanism
        The budget, and the mechanism's name.
    n_samples, n_parameters
        n rows and d parameters.
    allowed
        The largest radius that fits: the radius budget less tau.
    limits
        One for each kind of removal.
    metric
        "accuracy" or "R2": what ``score`` means.
    noise_free, noised
        Scores of the model without noise, and of releases by sigma.
    ignored
        How many requests the noise would hide if they were ignored, for any rows, from
        constants alone; None where constants give no bound.
    risk
        Bound on the expected excess risk of any release the budget accepts, up to the
        largest count without rows; None likewise.
    not_covered
        What these figures do not say, in sentences.
    public
        Whether the rows were declared public or held out.
    """

    budget: Budget
    mechanism: str
    n_samples: int
    n_parameters: int
    allowed: float
    limits: tuple[RemovalLimit, ...]
    metric: str
    noise_free: ReleaseScore
    noised: tuple[ReleaseScore, ...]
    ignored: int | None
    risk: float | None
    not_covered: tuple[str, ...]
    public: bool = False

    def __repr__(self) -> str:
        return "PlanReport(private; table() shows it)"

    def table(self) -> str:
        """Return the report as text."""
        parts = [self._heading(), self._counts(), self._radii(), self._scores()]
        return "\n\n".join([*parts, list_sentences(self.not_covered)]) + "\n"

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Return radius by count and score by sigma as a figure; save it at ``path``.

        Needs matplotlib: install the extra ``plots``.
        """
        figure = make_figure(11.0, 4.6)
        left, right = figure.subplots(1, 2)
        _draw_radii(left, self)
        _draw_scores(right, self)
        figure.suptitle(f"What the budget allows: {self._terms()}")
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _repr_html_(self) -> str:
        """Return the card; the figures of private rows are not on it."""
        hidden = "Private: these figures depend on rows. table() and plot() show them."
        tables = (self._count_lines(), self._score_lines()) if self.public else ()
        return Card(
            "Plan",
            self._summary() if self.public else hidden,
            facts=(("budget", self._terms()),),
            tables=tables,
            folded=(("What a plan does not say", self.not_covered),),
        ).to_html()

    def _summary(self) -> str:
        """Return the figures that matter most in a sentence."""
        typical, worst = (self.limits[KINDS.index(k)] for k in ("typical", "worst"))
        scores = [s.score for s in self.noised if s.sigma == self.budget.sigma]
        noise = "".join(
            f"; noise takes the {self.metric} from {self.noise_free.score:.3f} to "
            f"{score:.3f}"
            for score in scores[:1]
        )
        return (
            f"Of {self.n_samples} rows, {typical.without_rows} may leave at random and "
            f"{worst.without_rows} in the hardest order found before the others are "
            f"read again{noise}."
        )

    def _terms(self) -> str:
        joint = self.budget.releases
        claim = "each release" if joint is None else f"{joint} releases jointly"
        return (
            f"{self.mechanism}, epsilon={self.budget.epsilon:g}, "
            f"delta={self.budget.delta:g}, sigma={self.budget.sigma:g}, {claim}"
        )

    def _heading(self) -> str:
        return (
            f"Plan: {self._terms()}\n"
            f"{self.n_samples} rows, {self.n_parameters} parameters; a radius up to "
            f"{self.allowed:.3g} fits"
        )

    def _counts(self) -> str:
        risk = "no bound" if self.risk is None else f"at most {self.risk:.3g}"
        return (
            f"{align_columns(self._count_lines(), last_is_text=True)}\n"
            "Without the remaining rows one more is refused, visibly. With them it is "
            "answered\nas stated, and counting starts again from there.\n"
            f"Expected excess risk until then, by constants alone: {risk}"
        )

    def _count_lines(self) -> Cells:
        lines = [("rows that may go", "without rows", "with rows", "one more")]
        for limit in self.limits:
            counts = str(limit.without_rows), str(limit.with_rows)
            lines.append((_label(limit), *counts, limit.then))
        ignored = "no bound" if self.ignored is None else str(self.ignored)
        lines.append(("any, requests ignored", ignored, "", "by constants alone"))
        return tuple(lines)

    def _radii(self) -> str:
        lines = [("rows removed", *(f"{each.kind} radius" for each in self.limits))]
        tried = [dict(limit.tried) for limit in self.limits]
        for count in round_counts(self.n_samples - 1):
            found = [radii.get(count) for radii in tried]
            if any(radius is not None for radius in found):
                lines.append((str(count), *map(_figure, found)))
        return align_columns(lines)

    def _scores(self) -> str:
        return align_columns(self._score_lines())

    def _score_lines(self) -> Cells:
        lines = [("sigma", self.metric, "lowest", "loss", "typical fit", "worst fit")]
        for each in (self.noise_free, *self.noised):
            scores = f"{each.score:.4f}", f"{each.lowest:.4f}", f"{each.loss:.4g}"
            counts = _figure(each.typical), _figure(each.worst)
            lines.append((f"{each.sigma:g}", *scores, *counts))
        return tuple(lines)


def _label(limit: RemovalLimit) -> str:
    """Return the kind of removal in words."""
    return f"{limit.kind}: {WORDS[limit.order]}"


def _figure(value: float | None) -> str:
    """Return a number as the table shows it."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    return f"{value:.2e}" if isfinite(value) else "no bound"


def list_sentences(sentences: Iterable[str]) -> str:
    """Return sentences as a list; a number stays beside its sign."""
    lines = (
        fill(one.replace(" %", "_%"), 80, initial_indent="- ", subsequent_indent="  ")
        for one in sentences
    )
    return "\n".join(lines).replace("_%", " %")


def align_columns(
    lines: Sequence[tuple[str, ...]], *, last_is_text: bool = False
) -> str:
    """Return lines of cells in columns, with a rule below the first."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    final = len(widths) - 1

    def cell(i: int, text: str) -> str:
        left = i == 0 or (last_is_text and i == final)
        return text.ljust(widths[i]) if left else text.rjust(widths[i])

    drawn = ["  ".join(cell(i, text) for i, text in enumerate(line)) for line in lines]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join(line.rstrip() for line in [drawn[0], rule, *drawn[1:]])


def _draw_radii(axes: "Axes", report: PlanReport) -> None:
    """Draw radius by count for each kind, and the largest radius that fits."""
    for limit in report.limits:
        finite = [pair for pair in limit.tried if isfinite(pair[1]) and pair[1] > 0.0]
        counts, radii = [n for n, _ in finite], [radius for _, radius in finite]
        colour, marker = STYLES[limit.kind]
        words = f"{_label(limit)}, {limit.without_rows} fit"
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
    show_counts(axes.xaxis)
    axes.legend(edgecolor="none", framealpha=0.7)
    axes.grid(alpha=0.25)


def _draw_scores(axes: "Axes", report: PlanReport) -> None:
    """Draw score by sigma beside the noise-free score."""
    sigmas = [each.sigma for each in report.noised]
    means = [each.score for each in report.noised]
    lowest = [each.lowest for each in report.noised]
    axes.plot(sigmas, means, color=BLUE, marker="o", label="mean of the draws")
    axes.fill_between(
        sigmas, lowest, means, alpha=0.2, lw=0.0, label="down to the lowest"
    )
    free = report.noise_free.score
    axes.axhline(free, color="black", ls="--", label="without noise")
    axes.axvline(report.budget.sigma, color=ORANGE, ls=":", label="the budget")
    axes.set(
        xscale="log",
        xlabel="sigma: standard deviation of the noise",
        ylabel=report.metric,
        title=f"What noise costs: {report.metric} of a release",
    )
    if min(lowest) < LOWEST_R2:
        axes.set_ylim(bottom=LOWEST_R2)
    (show_shares if report.metric == "accuracy" else end_at_one)(axes.yaxis)
    axes.legend(frameon=False, loc="lower left")
    axes.grid(alpha=0.25)
