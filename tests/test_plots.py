# SPDX-License-Identifier: Apache-2.0
"""Plots: axes count in whole numbers, and accuracy ends at 100 %."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks import plot as benchmark_plot
from benchmarks.comparison.measure import PROMISED
from benchmarks.experiments import plots as experiment_plots
from benchmarks.experiments.figures import Spread
from benchmarks.experiments.results import Line, Results
from expunge import Budget
from expunge.demo import page
from expunge.display.plots import end_at_one, make_figure, show_counts, show_shares
from expunge.exceptions import MissingExtra
from expunge.plan import Advice, SigmaTrial

pytest.importorskip("matplotlib")

COUNTED = ("rows removed", "people removed", "people forgotten", "rows", "features")
SHARES = re.compile("accuracy")


def shown_labels(axis: Any) -> list[str]:
    """Return the labels of the ticks inside the view."""
    low, high = sorted(axis.get_view_interval())
    axis.axes.figure.draw_without_rendering()
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    inside = [tick for tick in ticks if low <= tick.get_loc() <= high]
    return [text for tick in inside if (text := tick.label1.get_text())]


def require_good_axes(axes: Any) -> int:
    """Check a plot's axes; return how many of them the rules are about."""
    checked = 0
    if axes.get_xlabel() in COUNTED:
        labels = shown_labels(axes.xaxis)
        assert len(labels) >= 2 and all(re.fullmatch(r"\d+", text) for text in labels)
        checked += 1
    if SHARES.search(axes.get_ylabel()):
        labels = shown_labels(axes.yaxis)
        assert len(labels) >= 2
        assert all(re.fullmatch(r"\d+(\.\d+)? %", text) for text in labels)
        assert axes.get_ylim()[1] <= 1.0
        checked += 1
    return checked


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("most", [2, 3, 7, 12, 60, 999, 12345])
def test_counts_have_whole_numbers(scale: str, most: int) -> None:
    axes = make_figure(5.0, 3.0).subplots()
    axes.plot([1, most], [0.0, 1.0])
    axes.set(xscale=scale, xlabel="rows removed")
    show_counts(axes.xaxis)
    assert require_good_axes(axes) == 1
    labels = shown_labels(axes.xaxis)
    assert len(labels) <= 12 and len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    ("values", "top"),
    [
        ([1.0, 1.0], 1.0),
        ([0.5, 1.0], 1.0),
        ([0.9999, 0.9998], 1.0),
        ([0.2, 0.3], 0.305),
    ],
)
def test_shares_end_at_100_percent(values: list[float], top: float) -> None:
    axes = make_figure(5.0, 3.0).subplots()
    (line,) = axes.plot([0, 1], values)
    axes.set_ylabel("accuracy")
    show_shares(axes.yaxis)
    assert axes.get_ylim()[1] == pytest.approx(top)
    assert axes.get_ylim()[0] < min(values) or top == 1.0
    assert require_good_axes(axes) == 1
    assert not line.get_clip_on()


def test_a_line_that_leaves_the_axes_is_clipped() -> None:
    axes = make_figure(5.0, 3.0).subplots()
    (line,) = axes.plot([0, 1], [-30.0, 1.0])
    axes.set_ylim(bottom=-1.0)
    end_at_one(axes.yaxis)
    assert axes.get_ylim() == (-1.0, 1.0) and line.get_clip_on()


def test_a_plot_without_matplotlib_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"expunge\[plots\]"):
        make_figure(1.0, 1.0)


def test_axes_of_advice() -> None:
    trials = tuple(
        SigmaTrial(
            sigma=sigma,
            score=score,
            changed=0.1 * sigma,
            seconds=0.1,
            looks=None,
            label_guess=0.9 - 0.05 * sigma,
            at_random=(most, most // 2),
            at_worst=most // 9,
        )
        for sigma, score, most in ((0.1, 0.99, 30), (1.0, 0.98, 99), (5.0, -2.0, 99))
    )
    for metric, checked in (("accuracy", 1), ("R2", 0)):
        advice = Advice(
            budget=Budget(sigma=1.0),
            max_seconds=1.0,
            max_loss=0.01,
            requests=100,
            rows_kept=False,
            metric=metric,
            noise_free=0.99,
            changed_anyway=0.0,
            trials=trials,
            uncertified=(),
            tried=99,
            owner="person",
        )
        scores, _, guesses, leaving = advice.plot().axes
        require_good_axes(guesses)
        assert require_good_axes(scores) == checked
        assert scores.get_ylim()[1] <= 1.0
        assert leaving.get_ylabel() == "people"
        labels = shown_labels(leaving.yaxis)
        assert len(labels) >= 2 and all(re.fullmatch(r"\d+", text) for text in labels)


@dataclass(frozen=True)
class Step:
    """What the demo draws of a request."""

    n_forgotten: int
    radius: float = 1e-3
    distance: float = 1e-4


@dataclass(frozen=True)
class Demo:
    """What the demo draws of its result."""

    steps: tuple[Step, ...]
    radius_budget: float = 1e-2
    noise: float = 1e-1

    @property
    def measured(self) -> tuple[tuple[int, float], ...]:
        return tuple((step.n_forgotten, step.distance) for step in self.steps)


@pytest.mark.parametrize("n_people", [2, 3, 20])
def test_axes_of_the_demo(n_people: int) -> None:
    result: Any = Demo(tuple(Step(i) for i in range(n_people + 1)))
    axes = make_figure(page.WIDTH, page.HEIGHT).subplots()
    page.draw_distance(axes, result)
    assert require_good_axes(axes) == 1


def experiment_lines() -> Iterator[tuple[Line, dict[int, Spread]]]:
    """Yield made-up lines, some of them at 100 %."""
    for contender, score in (("RT", 1.0), ("ours", 0.997)):
        for experiment, quantity in (
            ("comparison", PROMISED),
            ("curves", "accuracy"),
            ("curves", "cumulative seconds"),
        ):
            line = Line(experiment, "digits", 1e-3, "random", contender, quantity)
            yield line, {n: Spread(score, 0.01, 3) for n in (0, 1, 3, 30)}


def test_axes_of_the_experiments() -> None:
    drawn = experiment_plots.draw_plots(Results(dict(experiment_lines())))
    found = {name: sum(map(require_good_axes, drawn[name].axes)) for name in drawn}
    assert found == {"promise-digits": 2, "curves-digits": 3}


@dataclass(frozen=True)
class Timed:
    """A line of the benchmarks."""

    name: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]


def test_axes_of_the_benchmarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = []

    def keep(*size: float) -> Any:
        figures.append(make_figure(*size))
        return figures[-1]

    monkeypatch.setattr(benchmark_plot, "make_figure", keep)
    line = Timed("a", (1000, 30000), (1e-3, 1e-2))
    few = Timed("b", (10, 20, 40), (1e-3, 2e-3, 3e-3))
    benchmark_plot.draw({"rows": [line], "features": [few]}, tmp_path)
    assert sum(map(require_good_axes, figures[0].axes)) == 2


def test_a_notebook_shows_a_figure() -> None:
    figure: Any = make_figure(2.0, 1.0)
    figure.subplots().plot([0, 1], [0, 1])
    assert figure._repr_png_().startswith(b"\x89PNG")
