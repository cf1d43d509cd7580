# SPDX-License-Identifier: Apache-2.0
"""The report: draw a demo result as SVG plots, and fill the template ``page.html.j2``.

Plots need matplotlib, which comes with ``expunge[plots]``. Without it the page has its
tables alone. Matplotlib writes a colour into every shape; here each colour stands for a
variable of the page's style sheet and is replaced by it, so that a plot turns dark with
its page.
"""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ..display import cards
from ..display.plots import show_counts, show_shares
from ..exceptions import needing
from . import values
from .values import DemoResult, Step, TreeNode, format_milliseconds, format_ratio

with needing("cli,registry,files", "the demo"):
    from jinja2 import Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TEMPLATE = "page.html.j2"
# How many rows the table of requests has.
N_SAMPLES = 6

# Placeholder colours: matplotlib needs some, the style sheet decides which.
INK, MUTED, LINE, PAPER = "#010101", "#020202", "#030303", "#040404"
BLUE, ORANGE, GREEN = "#050505", "#060606", "#070707"
COLOURS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    PAPER: "var(--card)",
    BLUE: "var(--blue)",
    ORANGE: "var(--orange)",
    GREEN: "var(--green)",
}
SETTINGS: dict[Any, Any] = {
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "expunge",
}
# No date and no address: equal results give equal plots, and nothing is fetched.
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
WIDTH = 4.6

Draw: TypeAlias = Callable[["Axes", DemoResult], None]

PROLOGUE = re.compile(r".*?<svg[^>]*viewBox=\"([^\"]*)\"[^>]*>", re.DOTALL)
FONT = re.compile(r"font: (?:\w+ )*?([\d.]+px) [^;\"]*")
IDS = re.compile(r"(id=\"|url\(#|xlink:href=\"#)")


def render_page(result: DemoResult, plots: Mapping[str, str]) -> str:
    """Return the report as one HTML page that fetches nothing.

    Parameters
    ----------
    result
        What was measured.
    plots
        SVG texts by name, from ``draw_plots``; may be empty.
    """
    return (
        make_environment()
        .get_template(TEMPLATE)
        .render(
            result=result,
            plots=plots,
            nodes=list(result.tree.walk()),
            sampled_steps=sample_steps(result.answers),
            values=values,
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
        "percent": values.format_percent,
        "milliseconds": values.format_milliseconds,
        "figure": "{:.2g}".format,
    }
    return environment


def sample_steps(steps: Sequence[Step]) -> list[Step]:
    """Return a few steps, evenly spread, including the first and the last."""
    last = len(steps) - 1
    places = {round(i * last / (N_SAMPLES - 1)) for i in range(N_SAMPLES)}
    return [steps[place] for place in sorted(places)]


def draw_plots(result: DemoResult) -> dict[str, str]:
    """Return each plot as SVG by name; nothing without matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return {}
    drawn = {}
    for name, (height, draw) in PLOTS.items():
        with rc_context(SETTINGS):
            figure = Figure((WIDTH, height), layout="constrained", facecolor="none")
            axes = figure.subplots()
            axes.set_facecolor("none")
            draw(axes, result)
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata=NO_METADATA)
        drawn[name] = inline_svg(text.getvalue(), name)
    return drawn


def inline_svg(svg: str, name: str) -> str:
    """Return matplotlib's SVG as part of a page, with the page's colours and fonts.

    Every id gets the plot's name as a prefix, since ids must be unique on a page.
    """
    opening = f'<svg viewBox="\\1" role="img" aria-labelledby="{name}-caption">'
    svg = PROLOGUE.sub(opening, svg, count=1)
    svg = IDS.sub(rf"\g<1>{name}-", svg).replace("xlink:href", "href")
    svg = FONT.sub(r"font-size: \1", svg)
    for placeholder, variable in COLOURS.items():
        svg = svg.replace(placeholder, variable)
    return svg.strip()


def draw_distance(axes: "Axes", result: DemoResult) -> None:
    """Draw distance and radius over removals, below what the budget allows."""
    axes.axhline(result.radius_budget, color=INK, ls="--", lw=1.2, label="budget")
    # The fit is itself a retraining: its distance is rounding, far below the rest.
    requests = replace(result, steps=result.requests)
    _draw_steps(axes, requests, name="radius", look=(ORANGE, "certified radius", 7.0))
    _draw_steps(
        axes, requests, name="distance", look=(BLUE, "distance to retraining", 4.0)
    )
    axes.set(yscale="log", xlabel="people forgotten", ylabel="distance of models")
    show_counts(axes.xaxis)
    axes.grid(axis="y")
    _draw_legend(axes)


def draw_accuracy(axes: "Axes", result: DemoResult) -> None:
    """Draw the accuracy of the released and of the retrained model."""
    retrained = (ORANGE, "retrained, without noise", 7.0)
    _draw_steps(axes, result, name="retrained_accuracy", look=retrained)
    _draw_steps(axes, result, name="accuracy", look=(BLUE, "released", 4.0))
    # Below ninety percent only if the releases are.
    axes.set_ylim(min(0.9, axes.get_ylim()[0]), 1.0)
    axes.set(xlabel="people forgotten", ylabel="accuracy")
    show_counts(axes.xaxis)
    show_shares(axes.yaxis)
    axes.grid(axis="y")
    _draw_legend(axes)


def _draw_steps(
    axes: "Axes", result: DemoResult, *, name: str, look: tuple[str, str, float]
) -> None:
    """Draw one attribute of every step as a line, and of the batch as a square.

    ``look`` is colour, label and size: squares that coincide must both be visible.
    """
    colour, label, size = look
    gone = [step.n_forgotten for step in result.steps]
    values = [getattr(step, name) for step in result.steps]
    axes.plot(gone, values, color=colour, lw=1.4, label=label)
    batch = result.batch
    axes.plot([batch.n_forgotten], [getattr(batch, name)], "s", color=colour, ms=size)


def _draw_legend(axes: "Axes") -> None:
    """Name the lines above the axes, and say what a square means."""
    axes.plot([], [], "s", color=MUTED, ms=5, label="after the batch")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.03, 1.0), ncols=2)


def draw_times(axes: "Axes", result: DemoResult) -> None:
    """Draw the time for one person, measured in four ways."""
    times = result.timings
    bars = {
        "whole request,\non its own": (times.alone, BLUE),
        f"whole request,\nin a batch of {result.n_batch}": (times.in_batch, BLUE),
        "removal alone": (times.removal, GREEN),
        "scikit-learn's\nfit alone": (times.retraining, ORANGE),
    }
    longest = max(seconds for seconds, _ in bars.values())
    for place, (seconds, colour) in enumerate(bars.values()):
        axes.barh(place, 1e3 * seconds, color=colour, height=0.62)
        label = format_milliseconds(seconds)
        if seconds != times.retraining:
            label += f" ({format_ratio(seconds, times.retraining)} x fit)"
        axes.text(1e3 * (seconds + 0.015 * longest), place, label, va="center")
    axes.set_yticks(range(len(bars)), labels=list(bars))
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel="milliseconds for one person", xlim=(0.0, 1.45e3 * longest))
    axes.invert_yaxis()
    axes.grid(axis="x")


def draw_timeline(axes: "Axes", result: DemoResult) -> None:
    """Draw the stages of one request as a timeline."""
    end = max(stage.stop for stage in result.timeline)
    for place, stage in enumerate(result.timeline):
        length = stage.stop - stage.start
        bar: dict[str, Any] = {"left": 1e3 * stage.start, "height": 0.62, "color": BLUE}
        axes.barh(place, 1e3 * length, **bar)
        beside = stage.stop < 0.75 * end
        x = stage.stop + 0.015 * end if beside else stage.start - 0.015 * end
        side = "left" if beside else "right"
        axes.text(1e3 * x, place, format_milliseconds(length), va="center", ha=side)
    axes.set_yticks(
        range(len(result.timeline)), labels=[s.name for s in result.timeline]
    )
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel="milliseconds since the request was made", xlim=(0.0, 1.02e3 * end))
    axes.invert_yaxis()
    axes.grid(axis="x")


def draw_tree(axes: "Axes", result: DemoResult) -> None:
    """Draw the end of the ledger, with the path of the proof in colour."""
    nodes = list(result.tree.walk())
    for node in nodes:
        for child in node.children:
            on_path = child.role in ("path", "entry")
            colour, width = (BLUE, 1.8) if on_path else (MUTED, 0.8)
            xs, ys = (node.x, child.x), (node.depth, child.depth)
            axes.plot(xs, ys, color=colour, lw=width, zorder=1)
    for node in nodes:
        _draw_node(axes, node)
    right, bottom = max(n.x for n in nodes), max(n.depth for n in nodes)
    axes.set(xlim=(-0.6, right + 0.6), ylim=(bottom + 0.9, -0.4))
    axes.set_axis_off()


def _draw_node(axes: "Axes", node: TreeNode) -> None:
    """Draw a node as a box with the start of its hash, and its entries below."""
    colour = {"entry": BLUE, "path": BLUE, "proof": ORANGE, "plain": MUTED}[node.role]
    filled = node.role in ("entry", "proof")
    face, ink = (colour, PAPER) if filled else (PAPER, INK)
    box: dict[str, Any] = {"boxstyle": "round,pad=0.3", "fc": face, "ec": colour}
    middle: dict[str, Any] = {"ha": "center", "va": "center", "in_layout": False}
    place = node.x, node.depth
    axes.text(*place, node.digest[:4], size=7.5, color=ink, bbox=box, **middle)
    if not node.children:
        single = node.stop - node.start == 1
        below = str(node.start) if single else f"{node.start}-{node.stop - 1}"
        axes.text(node.x, node.depth + 0.55, below, size=7.0, **middle)


# Height in inches and drawing function, by the name that the page uses.
PLOTS: Mapping[str, tuple[float, Draw]] = {
    "distance": (3.1, draw_distance),
    "accuracy": (2.6, draw_accuracy),
    "times": (2.3, draw_times),
    "timeline": (2.4, draw_timeline),
    "tree": (3.9, draw_tree),
}
