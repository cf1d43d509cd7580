# SPDX-License-Identifier: Apache-2.0
"""Plots of a run, as SVG and PNG; matplotlib comes with ``expunge[plots]``."""

import io
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from expunge.display.plots import make_figure, show_counts, show_shares

from ..comparison.measure import PROMISE, PROMISED
from .pieces import write_whole
from .results import Line, Results
from .tables import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Enough to tell a dozen lines apart in print and for the colour-blind (Okabe and Ito).
COLOURS = (
    *("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7"),
    *("#E69F00", "#56B4E9", "#999999", "#882255", "#117733"),
)
# The setting whose plot a newcomer sees first, where it was run.
ON_TOP = "mnist"
MARKERS = "osD^vP*X<>ph"


def draw_plots(results: Results) -> dict[str, "Figure"]:
    """Return every plot that the results have lines for, by name."""
    plots: dict[str, Figure] = {}
    compared = sorted(
        results.models("comparison"), key=lambda model: model[0] != ON_TOP
    )
    for setting, alpha, stream in compared:
        if stream == "random":
            plots[f"promise-{setting}"] = promise_plot(results, setting, alpha)
    for setting in dict.fromkeys(model[0] for model in results.models("curves")):
        plots[f"curves-{setting}"] = curves_plot(results, setting)
    return plots


def promise_plot(results: Results, setting: str, alpha: float) -> "Figure":
    """Draw accuracy under the promise against removals, for every contender."""
    figure = make_figure(8.0, 5.0)
    axis = figure.subplots()
    head = {"experiment": "comparison", "setting": setting, "stream": "random"}
    _draw(axis, results, results.having(**head, quantity=PROMISED))
    axis.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    axis.set_xscale("symlog", linthresh=1.0)
    show_counts(axis.xaxis)
    show_shares(axis.yaxis)
    axis.set_xlabel("people removed")
    axis.set_ylabel("test accuracy of what may be published")
    axis.set_title(
        f"{title(setting)}, alpha {alpha:g}: what is left of the model when it must\n"
        f"keep epsilon {PROMISE.epsilon:g}, delta {PROMISE.delta:g} after removals",
        fontsize="medium",
    )
    return figure


def curves_plot(results: Results, setting: str) -> "Figure":
    """Draw cumulative seconds and accuracy, a row of panels for each alpha."""
    models = [model for model in results.models("curves") if model[0] == setting]
    alphas = list(dict.fromkeys(alpha for _, alpha, _ in models))
    streams = list(dict.fromkeys(stream for _, _, stream in models))
    figure = make_figure(4.0 * 2 * len(streams), 3.0 * len(alphas))
    axes = figure.subplots(len(alphas), 2 * len(streams), squeeze=False)
    for row, alpha in enumerate(alphas):
        for column, stream in enumerate(streams):
            head = {"experiment": "curves", "setting": setting, "alpha": alpha}
            for side, quantity in enumerate(("cumulative seconds", "accuracy")):
                axis = axes[row][2 * column + side]
                lines = results.having(**head, stream=stream, quantity=quantity)
                _draw(axis, results, lines)
                axis.set_title(f"{stream} requests, alpha {alpha:g}", fontsize="small")
                axis.set_ylabel(quantity, fontsize="small")
                axis.set_xlabel("people removed", fontsize="small")
                show_counts(axis.xaxis)
                if quantity == "cumulative seconds":
                    axis.set_yscale("log")
                else:
                    show_shares(axis.yaxis)
    axes[0][0].legend(fontsize="small")
    figure.suptitle(f"{title(setting)} (dashed: timed at the marks, interpolated)")
    return figure


def svg(figure: "Figure") -> str:
    """Return a plot as SVG without a date, so that equal figures are equal files."""
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.hashsalt": "expunge", "svg.fonttype": "path"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def save_plots(
    plots: Mapping[str, "Figure"], folder: Path, prefix: str
) -> Iterator[Path]:
    """Write each plot as SVG and PNG and yield their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in plots.items():
        path = folder / f"{prefix}{name}.svg"
        write_whole(path, svg(figure))
        yield path
        figure.savefig(path.with_suffix(".png"), dpi=120)
        yield path.with_suffix(".png")


def _draw(axis: "Axes", results: Results, lines: list[Line]) -> None:
    """Draw lines with bars of one standard error; equal ones are one line."""
    names: dict[tuple[float, ...], list[Line]] = {}
    for line in lines:
        means = [round(spread.mean, 9) for spread in results.lines[line].values()]
        names.setdefault((*results.lines[line], *means), []).append(line)
    for i, same in enumerate(names.values()):
        points = sorted(results.lines[same[0]].items())
        spreads = [spread for _, spread in points]
        errors = [spread.error if isfinite(spread.error) else 0.0 for spread in spreads]
        axis.errorbar(
            [removals for removals, _ in points],
            [spread.mean for spread in spreads],
            yerr=errors,
            label=", ".join(line.contender for line in same),
            color=COLOURS[i % len(COLOURS)],
            marker=MARKERS[i % len(MARKERS)],
            linestyle="--" if any(s.interpolated for s in spreads) else "-",
            markersize=3.5,
            linewidth=1.2,
            capsize=2,
        )
    axis.grid(True, alpha=0.3)
