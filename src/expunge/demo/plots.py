# SPDX-License-Identifier: Apache-2.0
"""Plots of a story, as SVG for one page.

Matplotlib comes with ``expunge[plots]`` and is imported when drawings are wanted.

SVG as matplotlib writes it, made a part of a page.

Matplotlib writes colours into every shape. Here each is a stand-in, replaced by a
variable of the style sheet afterwards, so that a drawing turns dark with its page.
"""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from .values import Node, Story, milliseconds, ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Stand-ins: matplotlib wants a colour, the style sheet decides which.
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
PROLOGUE = re.compile(r".*?<svg[^>]*viewBox=\"([^\"]*)\"[^>]*>", re.DOTALL)
FONT = re.compile(r"font: (?:\w+ )*?([\d.]+px) [^;\"]*")
IDS = re.compile(r"(id=\"|url\(#|xlink:href=\"#)")


def inlined(svg: str, name: str) -> str:
    """Return an SVG file as a part of a page: its colours, its fonts, ids of its own.

    Parameters
    ----------
    svg
        As matplotlib writes it.
    name
        Goes before every id, which must be unique on the page.
    """
    opening = f'<svg viewBox="\\1" role="img" aria-labelledby="{name}-caption">'
    svg = PROLOGUE.sub(opening, svg, count=1)
    svg = IDS.sub(rf"\g<1>{name}-", svg).replace("xlink:href", "href")
    svg = FONT.sub(r"font-size: \1", svg)
    for stand_in, variable in COLOURS.items():
        svg = svg.replace(stand_in, variable)
    return svg.strip()


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
# No date and no address: equal stories give equal drawings, and nothing is fetched.
NOTHING = dict.fromkeys(("Date", "Creator", "Format", "Type"))
WIDTH = 4.6

Draw: TypeAlias = Callable[["Axes", Story], None]


def drawings(story: Story) -> dict[str, str]:
    """Return each plot as SVG by name; none of them without matplotlib."""
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
            draw(axes, story)
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata=NOTHING)
        drawn[name] = inlined(text.getvalue(), name)
    return drawn


def draw_distance(axes: "Axes", story: Story) -> None:
    """Draw distance and radius over removals, below what the contract allows."""
    axes.axhline(
        story.budget, color=INK, ls="--", lw=1.2, label="budget of the contract"
    )
    # The fit is retraining itself: its distance is rounding, far below the rest.
    requests = replace(story, steps=story.requests)
    _draw_answers(axes, requests, "radius", (ORANGE, "certified radius", 7.0))
    _draw_answers(axes, requests, "distance", (BLUE, "distance to retraining", 4.0))
    axes.set(yscale="log", xlabel="people forgotten", ylabel="distance of models")
    axes.grid(axis="y")
    _legend(axes)


def draw_accuracy(axes: "Axes", story: Story) -> None:
    """Draw the accuracy of what is released and of what retraining gives."""
    retrained = (ORANGE, "retrained, without noise", 7.0)
    _draw_answers(axes, story, "retrained_accuracy", retrained)
    _draw_answers(axes, story, "accuracy", (BLUE, "released", 4.0))
    # Below ninety percent only if the releases are.
    axes.set_ylim(min(0.9, axes.get_ylim()[0]), 1.0)
    axes.yaxis.set_major_formatter(lambda share, _: f"{100.0 * share:.0f}")
    axes.set(xlabel="people forgotten", ylabel="accuracy, %")
    axes.grid(axis="y")
    _legend(axes)


def _draw_answers(
    axes: "Axes", story: Story, name: str, look: tuple[str, str, float]
) -> None:
    """Draw a figure of every step as a line, and of the batch as a square.

    ``look`` is colour, label and size: squares that coincide must both be seen.
    """
    colour, label, size = look
    gone = [step.n_forgotten for step in story.steps]
    values = [getattr(step, name) for step in story.steps]
    axes.plot(gone, values, color=colour, lw=1.4, label=label)
    batch = story.batch
    axes.plot([batch.n_forgotten], [getattr(batch, name)], "s", color=colour, ms=size)


def _legend(axes: "Axes") -> None:
    """Name the lines above the axes, and what a square is."""
    axes.plot([], [], "s", color=MUTED, ms=5, label="after the batch")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.03, 1.0), ncols=2)


def draw_times(axes: "Axes", story: Story) -> None:
    """Draw what one person costs, by every way that was timed."""
    times = story.typical
    bars = {
        "whole request,\nanswered alone": (times.alone, BLUE),
        f"whole request,\nin a batch of {story.n_batch}": (times.in_batch, BLUE),
        "removal alone": (times.removal, GREEN),
        "scikit-learn's\nfit alone": (times.retraining, ORANGE),
    }
    longest = max(seconds for seconds, _ in bars.values())
    for place, (seconds, colour) in enumerate(bars.values()):
        axes.barh(place, 1e3 * seconds, color=colour, height=0.62)
        said = milliseconds(seconds)
        if seconds != times.retraining:
            said += f" ({ratio(seconds, times.retraining)} x fit)"
        axes.text(1e3 * (seconds + 0.015 * longest), place, said, va="center")
    axes.set_yticks(range(len(bars)), labels=list(bars))
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel="milliseconds for one person", xlim=(0.0, 1.45e3 * longest))
    axes.invert_yaxis()
    axes.grid(axis="x")


def draw_life(axes: "Axes", story: Story) -> None:
    """Draw the stages of one request as a timeline."""
    end = max(stage.stop for stage in story.life)
    for place, stage in enumerate(story.life):
        length = stage.stop - stage.start
        bar: dict[str, Any] = {"left": 1e3 * stage.start, "height": 0.62, "color": BLUE}
        axes.barh(place, 1e3 * length, **bar)
        beside = stage.stop < 0.75 * end
        x = stage.stop + 0.015 * end if beside else stage.start - 0.015 * end
        side = "left" if beside else "right"
        axes.text(1e3 * x, place, milliseconds(length), va="center", ha=side)
    axes.set_yticks(range(len(story.life)), labels=[s.name for s in story.life])
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel="milliseconds since the request was made", xlim=(0.0, 1.02e3 * end))
    axes.invert_yaxis()
    axes.grid(axis="x")


def draw_tree(axes: "Axes", story: Story) -> None:
    """Draw the end of the ledger, the way of the proof in colour."""
    nodes = list(story.tree.walk())
    for node in nodes:
        for child in node.children:
            way = child.role in ("path", "entry")
            colour, width = (BLUE, 1.8) if way else (MUTED, 0.8)
            xs, ys = (node.x, child.x), (node.depth, child.depth)
            axes.plot(xs, ys, color=colour, lw=width, zorder=1)
    for node in nodes:
        _draw_node(axes, node)
    right, bottom = max(n.x for n in nodes), max(n.depth for n in nodes)
    axes.set(xlim=(-0.6, right + 0.6), ylim=(bottom + 0.9, -0.4))
    axes.set_axis_off()


def _draw_node(axes: "Axes", node: Node) -> None:
    """Draw a node as a box with the beginning of its hash, entries named below."""
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


# Height in inches and who draws, by the name under which the page shows it.
PLOTS: Mapping[str, tuple[float, Draw]] = {
    "distance": (3.1, draw_distance),
    "accuracy": (2.6, draw_accuracy),
    "times": (2.3, draw_times),
    "life": (2.4, draw_life),
    "tree": (3.9, draw_tree),
}
