# SPDX-License-Identifier: Apache-2.0
"""Plots of time against size, written to ``benchmarks/out``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from expunge.display.plots import make_figure, show_counts

OUT = Path(__file__).parent / "out"


class Line(Protocol):
    """What can be drawn: a name and times at sizes."""

    @property
    def name(self) -> str:
        """What the line shows."""

    @property
    def sizes(self) -> Sequence[int]:
        """Where it was measured."""

    @property
    def seconds(self) -> Sequence[float]:
        """What was measured."""


def draw(panels: Mapping[str, Sequence[Line]], folder: Path = OUT) -> Path:
    """Draw one panel for each size that was varied and return the file's path."""
    figure = make_figure(10.0, 4.2)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (size, lines) in zip(axes, panels.items(), strict=True):
        for line in lines:
            axis.loglog(line.sizes, line.seconds, marker="o", label=line.name)
        axis.set_xlabel(size)
        show_counts(axis.xaxis)
        axis.grid(True, which="major", alpha=0.3)
    axes[0].set_ylabel("seconds a removal")
    axes[0].legend()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "scaling.png"
    figure.savefig(path, dpi=150)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
