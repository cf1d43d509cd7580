# SPDX-License-Identifier: Apache-2.0
"""The report: two plots of a demo, and the template ``page.html.j2`` filled with them.

Plots need matplotlib, which comes with ``expunge[plots]``. Without it the page has its
tables alone.
"""

import io
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from ..display import cards
from ..display.plots import BLUE, ORANGE, show_counts, show_shares
from ..exceptions import needing
from .run import DemoResult, Step, format_ratio, format_time, summarise

with needing("cli,registry,files", "the demo"):
    from jinja2 import Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TEMPLATE = "page.html.j2"
# How many rows the table of requests has.
N_SAMPLES = 6
# One grey that can be read on a light and on a dark page.
GREY = "#808080"
SETTINGS: dict[Any, Any] = {
    "font.size": 9.0,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), GREY),
    **dict.fromkeys(("xtick.color", "ytick.color", "grid.color"), GREY),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "expunge",  # equal results give equal plots
}
WIDTH, HEIGHT = 4.6, 2.8


def render_page(result: DemoResult, plots: dict[str, str]) -> str:
    """Return the report as one HTML page that fetches nothing.

    Parameters
    ----------
    result
        What was measured.
    plots
        Images as data, by name, from ``draw_plots``; may be empty.
    """
    steps = result.answers
    last = len(steps) - 1
    places = {round(i * last / (N_SAMPLES - 1)) for i in range(N_SAMPLES)}
    said: dict[str, list[str]] = {}
    for heading, sentence in summarise(result):
        said.setdefault(heading, []).append(f"{sentence[0].upper()}{sentence[1:]}.")
    return (
        make_environment()
        .get_template(TEMPLATE)
        .render(
            result=result,
            said=said,
            plots=plots,
            sampled_steps=[steps[place] for place in sorted(places)],
            cards=cards,
        )
    )


def make_environment() -> Environment:
    """Return a Jinja environment that escapes text and refuses unknown names."""
    environment = Environment(
        loader=PackageLoader("expunge.demo", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "percent": "{:.1%}".format,
        "figure": "{:.2g}".format,
        "time": format_time,
        "over": format_ratio,
    }
    return environment


def draw_plots(result: DemoResult) -> dict[str, str]:
    """Return each plot as an image in a URL, by name; nothing without matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return {}
    drawn = {}
    for name, draw in (("distance", draw_distance), ("accuracy", draw_accuracy)):
        with rc_context(SETTINGS):
            figure = Figure((WIDTH, HEIGHT), layout="constrained", facecolor="none")
            axes = figure.subplots()
            axes.set_facecolor("none")
            draw(axes, result)
            image = io.BytesIO()
            figure.savefig(image, format="svg", metadata={"Date": None})
        content = b64encode(image.getvalue()).decode("ascii")
        drawn[name] = f"data:image/svg+xml;base64,{content}"
    return drawn


def draw_distance(axes: "Axes", result: DemoResult) -> None:
    """Draw distance and radius over removals, below what the budget allows."""
    axes.axhline(result.radius_budget, color=GREY, ls="--", lw=1.2, label="budget")
    # The fit is itself a retraining: its distance is rounding, far below the rest.
    steps = (*result.requests, result.batch)
    _draw_steps(axes, steps, radius=(ORANGE, "certified radius", 7.0))
    _draw_steps(axes, steps, distance=(BLUE, "distance to retraining", 4.0))
    axes.set(yscale="log", xlabel="people forgotten", ylabel="distance of models")
    show_counts(axes.xaxis)
    _finish(axes)


def draw_accuracy(axes: "Axes", result: DemoResult) -> None:
    """Draw the accuracy of the released and of the retrained model."""
    retrained = ORANGE, "retrained, without noise", 7.0
    _draw_steps(axes, result.answers, retrained_accuracy=retrained)
    _draw_steps(axes, result.answers, accuracy=(BLUE, "released", 4.0))
    # Below ninety percent only if the releases are.
    axes.set_ylim(min(0.9, axes.get_ylim()[0]), 1.0)
    axes.set(xlabel="people forgotten", ylabel="accuracy")
    show_counts(axes.xaxis)
    show_shares(axes.yaxis)
    _finish(axes)


def _draw_steps(
    axes: "Axes", steps: tuple[Step, ...], **looks: tuple[str, str, float]
) -> None:
    """Draw an attribute of every step as a line, and of the batch as a square.

    A look is colour, label and size: squares that coincide must both be visible.
    """
    for name, (colour, label, size) in looks.items():
        *alone, batch = [(step.n_forgotten, getattr(step, name)) for step in steps]
        axes.plot(*zip(*alone, strict=True), color=colour, lw=1.4, label=label)
        axes.plot([batch[0]], [batch[1]], "s", color=colour, ms=size)


def _finish(axes: "Axes") -> None:
    """Name the lines above the axes, and say what a square means."""
    axes.plot([], [], "s", color=GREY, ms=5, label="after the batch")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.03, 1.0), ncols=2)
    axes.grid(axis="y")
