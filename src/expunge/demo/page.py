# SPDX-License-Identifier: Apache-2.0
"""The report: the plot of a demo, and the template ``page.html.j2`` filled with it.

The plot needs matplotlib, which comes with ``expunge[plots]``. Without it the page has
its table alone.
"""

import io
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from ..display import cards
from ..display.plots import BLUE, ORANGE, show_counts
from ..exceptions import needing
from .run import DemoResult, format_share, format_time, summarise

with needing("cli,registry,files", "the demo"):
    from jinja2 import Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TEMPLATE = "page.html.j2"
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
WIDTH, HEIGHT = 6.4, 3.4


def render_page(result: DemoResult, plot: str) -> str:
    """Return the report as one HTML page that fetches nothing.

    Parameters
    ----------
    result
        What was measured.
    plot
        An image as data, from ``draw_plot``; may be empty.
    """
    said: dict[str, list[str]] = {}
    for heading, sentence in summarise(result):
        said.setdefault(heading, []).append(f"{sentence[0].upper()}{sentence[1:]}.")
    return (
        make_environment()
        .get_template(TEMPLATE)
        .render(result=result, said=said, plot=plot, cards=cards)
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
        "share": format_share,
    }
    return environment


def draw_plot(result: DemoResult) -> str:
    """Return the plot as an image in a URL; nothing without matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return ""
    with rc_context(SETTINGS):
        figure = Figure((WIDTH, HEIGHT), layout="constrained", facecolor="none")
        axes = figure.subplots()
        axes.set_facecolor("none")
        draw_distance(axes, result)
        image = io.BytesIO()
        figure.savefig(image, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{b64encode(image.getvalue()).decode('ascii')}"


def draw_distance(axes: "Axes", result: DemoResult) -> None:
    """Draw distances under their certified radii, below budget and noise."""
    thick: Any = {"lw": 6.0, "alpha": 0.35, "label": "length of the noise"}
    axes.axhline(result.noise, color=GREY, **thick)
    axes.axhline(result.radius_budget, color=GREY, ls="--", lw=1.2, label="budget")
    radii = [(step.n_forgotten, step.radius) for step in result.steps]
    bars: Any = {"ms": 9.0, "mew": 2.0, "label": "certified radius"}
    axes.plot(*zip(*radii, strict=True), "_", color=ORANGE, **bars)
    dots: Any = {"ms": 4.5, "label": "distance to retraining"}
    axes.plot(*zip(*result.measured, strict=True), "o", color=BLUE, **dots)
    axes.set(yscale="log", xlabel="people forgotten", ylabel="distance of models")
    show_counts(axes.xaxis)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.03, 1.0), ncols=2)
    axes.grid(axis="y")
