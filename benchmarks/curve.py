# SPDX-License-Identifier: Apache-2.0
"""Plots of cross-validation errors with their bars, written to ``benchmarks/out``."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from expunge.display.plots import make_figure
from expunge.linear_model.tuned import Curve

from .plot import OUT


class Panel(NamedTuple):
    """A curve with what was chosen on it."""

    title: str
    curve: Curve
    chosen: float


def draw_curves(panels: Sequence[Panel], folder: Path = OUT) -> Path:
    """Draw the curves over one another and return the file's path."""
    figure = make_figure(7.0, 4.2)
    axis = figure.subplots()
    for panel in panels:
        curve = panel.curve
        relative = curve.errors - curve.errors.min()
        bars = np.array([curve.errors - curve.low, curve.high - curve.errors])
        line = axis.errorbar(curve.alphas, relative, yerr=bars, capsize=3, marker="o")
        line.set_label(f"{panel.title}: alpha {panel.chosen:g}")
        at = relative[curve.alphas == panel.chosen]
        axis.plot([panel.chosen], at, "*", markersize=16, color=line[0].get_color())
    axis.set_xscale("log")
    axis.set_xlabel("alpha")
    axis.set_ylabel("cross-validation error above its minimum")
    axis.grid(True, alpha=0.3)
    axis.legend()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tuning.svg"
    figure.savefig(path)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
