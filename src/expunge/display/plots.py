# SPDX-License-Identifier: Apache-2.0
"""Plots: figures of matplotlib whose axes count in whole numbers and end at 100 %.

Matplotlib comes with ``expunge[plots]`` and is imported when a plot is drawn. Call the
functions on axes after everything is drawn and every scale is set.
"""

import io
from typing import TYPE_CHECKING

import numpy as np

from ..exceptions import needing

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Colours that stay apart for the colour-blind (Okabe and Ito).
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
# Shares that hardly differ are not blown up to fill the axis.
LEAST_SPAN = 0.01
# Values are near one if less of the axis than this would separate them from it.
NEAR = 0.25


def make_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of this size in inches, or say how to get one."""
    with needing("plots", "a plot"):
        from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """A figure that a notebook shows although pyplot does not know it."""

        def _repr_png_(self) -> bytes:
            image = io.BytesIO()
            self.savefig(image, format="png")
            return image.getvalue()

    return ShownFigure(figsize=(width, height), layout="constrained")


def show_counts(axis: "Axis") -> None:
    """Let an axis that counts have whole numbers as ticks, written out."""
    with needing("plots", "a plot"):
        from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    low, high = axis.get_view_interval()
    if axis.get_scale() == "linear":
        axis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    elif axis.get_scale() == "log":
        wide = high > 100.0 * low
        steps = (1.0,) if wide else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(lambda n, _: f"{n:.0f}" if n == int(n) else "")
    axis.set_minor_formatter(NullFormatter())


def show_shares(axis: "Axis") -> None:
    """Let an axis show shares in percent, and end at 100 %."""
    end_at_one(axis)
    axis.set_major_formatter(lambda share, _: f"{round(100.0 * share, 6):g} %")


def write_plainly(text: str) -> str:
    """Return a name that matplotlib draws as it is, not as a formula."""
    return text.replace("$", r"\$")


def end_at_one(axis: "Axis") -> None:
    """Let an axis end at one where drawn values come near it, never above.

    Lines inside the axes may touch their edge without losing half of their width.
    """
    axes = axis.axes
    name = "x" if axis is axes.xaxis else "y"
    low, high = axis.get_view_interval()
    span = max(high - low, LEAST_SPAN)
    high = 1.0 if high + NEAR * span >= 1.0 else high
    low = min(low, high - LEAST_SPAN)
    axes.set(**{f"{name}lim": (low, high)})
    for line in axes.lines:
        values = np.asarray(line.get_data()[name == "y"], dtype=float)
        if np.all((low <= values) & (values <= high)):
            line.set_clip_on(False)
