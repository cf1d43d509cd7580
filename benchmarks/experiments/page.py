# SPDX-License-Identifier: Apache-2.0
"""The page of results, and the small file that the tests compare with.

    python -m benchmarks.experiments.page FOLDER

reads FOLDER/results.json. A full run becomes docs/results.md with its plots, a quick
one docs/results-quick.json. No figure on the page is typed by hand.
"""

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..comparison.measure import PROMISE, PROMISED
from ..report import Section, Table, number, targets_table
from .curves import NOTHING
from .figures import SCHEMA, Json, Machine, Measured, Spread
from .pieces import write_whole
from .plots import draw_plots, svg
from .results import Head, Line, Results
from .run import machines, read
from .settings import SETTINGS
from .tables import PAPER_RATIOS, TARGET_ALPHA, all_sections, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Points of accuracy that count as a minimal cost.
POINT = 1.0
# Of bitmaps on the page.
DPI = 70
DOCS = Path(__file__).parents[2] / "docs"
INTRODUCTION = """# Results

The paper's experiments, and a comparison of all ways to forget. `python -m
benchmarks.experiments all --full` runs them, `python -m benchmarks.experiments.page`
writes this page, and nobody types a figure. [How to run them](bench.md); [what the
paper prints and what we do](paper.md). A machine may do other work at the same time:
compare times within a line of a table, where they were taken one after another, not
between lines.
"""


def markdown(measured: Sequence[Measured], scale: str, images: Sequence[str]) -> str:
    """Return the page of a run."""
    results = Results.of(measured)
    parts = [INTRODUCTION, *map(about, machines(measured))]
    parts += [f"![{name}](images/{name})" for name in images[:1]]
    parts.append("## What agrees with the paper, and what does not\n")
    parts.append("\n".join(f"- {line}" for line in findings(results)))
    parts += [section(item) for item in all_sections(results, scale)]
    parts.append("## Plots\n")
    parts += [f"![{name}](images/{name})" for name in images[1:]]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def about(machine: Machine) -> str:
    """Return a sentence about a machine."""
    libraries = ", ".join(f"{name} {value}" for name, value in machine.versions.items())
    return (
        f"Measured on {machine.processor}, {machine.processors} visible, one thread; "
        f"Python {machine.python} on {machine.system}; {libraries}."
    )


def section(found: Section) -> str:
    """Return a section in Markdown."""
    parts = [f"## {found.title}", *map(table, found.tables)]
    parts.append("\n".join(f"- {note}" for note in found.notes))
    if found.targets:
        parts.append(table(targets_table(found.targets)))
    return "\n\n".join(part for part in parts if part)


def table(found: Table) -> str:
    """Return a table in Markdown."""
    rule = ("---", *("---:" for _ in found.headers[1:]))
    rows = (found.headers, rule, *found.rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def findings(results: Results) -> Iterator[str]:
    """Yield what was found about each claim of the paper, with its figures."""
    for setting, alpha, stream in results.models("curves"):
        if alpha == TARGET_ALPHA:
            head = ("curves", setting, alpha, stream)
            if stream == "random":
                yield from speed_findings(results, head)
            yield from accuracy_findings(results, head)
            yield from error_findings(results, head)
    for setting, alpha, stream in results.models("comparison"):
        if stream == "random":
            yield from promise_findings(results, ("comparison", setting, alpha, stream))


def speed_findings(results: Results, head: Head) -> Iterator[str]:
    """Yield how many times faster IJ is than the others, beside the paper's figure."""
    printed = PAPER_RATIOS.get(head[1].partition("-")[0], (None, None))
    jackknife = results.seconds(head, "IJ")
    for name, theirs in zip(("RT", "TA"), printed, strict=True):
        seconds = results.seconds(head, name)
        if theirs is None or math.isnan(seconds):
            continue
        ratio = seconds / jackknife
        verdict = "agrees" if ratio >= theirs else "does not agree"
        yield (
            f"{title(head[1])}: IJ is {number(ratio)} times faster than {name}, the "
            f"paper says {number(theirs)}: {verdict}. Ours are {number(1e3 * seconds)} "
            f"and {number(1e3 * jackknife)} ms on one thread; the paper trained "
            "on a GPU"
        )


def accuracy_findings(results: Results, head: Head) -> Iterator[str]:
    """Yield what IJ's removals cost in test accuracy."""
    found = [results.end(head, name, "accuracy") for name in ("IJ", "TA", "RT")]
    if any(spread is None for spread in found):
        return
    ours, newton, oracle = (100.0 * spread.mean for spread in found if spread)
    figures = (
        f"{title(head[1])}, {head[3]} requests: accuracies end at {oracle:.2f} % for "
        f"retraining, {ours:.2f} % for noise-free IJ and {newton:.2f} % for TA"
    )
    if abs(oracle - ours) < POINT:
        yield f"{figures}: agrees with a minimal cost of IJ"
    elif abs(oracle - newton) < abs(oracle - ours):
        yield (
            f"{figures}: does not agree with a minimal cost of IJ. TA, whose Hessian "
            "is that of the remaining rows, is nearer"
        )
    else:
        yield f"{figures}: does not agree with a minimal cost of IJ, nor is TA nearer"


def error_findings(results: Results, head: Head) -> Iterator[str]:
    """Yield how the printed algorithm fares beside doing nothing."""
    names = ("printed", "IJ", NOTHING)
    found = [results.end(head, name, "distance") for name in names]
    if any(spread is None for spread in found):
        return
    theirs, ours, nothing = (spread.mean for spread in found if spread)
    verdict = "worse than no removal" if theirs > nothing else "better than no removal"
    smooth = SETTINGS[head[1]].objective(head[2]).smooth
    reason = (
        "it leaves the regulariser's share of the removed rows in place (E1)"
        if smooth
        else "its prox starts at the model, and has the full lambda (E2, E21)"
    )
    here = ", here no nearer," if ours > theirs else ""
    yield (
        f"{title(head[1])}, {head[3]} requests: the algorithm as printed ends "
        f"{number(theirs)} from retraining, {verdict} ({number(nothing)}); corrected"
        f"{here} {number(ours)}. As printed {reason}"
    )


def promise_findings(results: Results, head: Head) -> Iterator[str]:
    """Yield what the paper's own noise leaves of a model, beside a measured one's."""
    names = ("IJ a-priori", "IJ", "Newton", "Newton+polish")
    noises = [results.end(head, name, "noise") for name in names]
    scores = [results.end(head, name, PROMISED) for name in names]
    told = [
        f"{name} needs sigma {number(noise.mean)} and keeps {100.0 * score.mean:.1f} %"
        for name, noise, score in zip(names, noises, scores, strict=True)
        if noise is not None and score is not None
    ]
    if told:
        yield (
            f"{title(head[1])}, under epsilon {PROMISE.epsilon:g} and delta "
            f"{PROMISE.delta:g}: {'; '.join(told)}. Constants alone, the paper's "
            "guarantee even when corrected, ask for noise in which nothing is left; "
            "radii measured at the model do not"
        )


def quick_file(measured: Sequence[Measured]) -> Json:
    """Return what the tables of a quick run show: every line's last spread."""
    lines = []
    for line, points in Results.of(measured).lines.items():
        spread = points[max(points)]
        figures = {
            "mean": round_figure(spread.mean),
            "error": round_figure(spread.error),
        }
        lines.append({"line": list(line), **figures, "seeds": spread.seeds})
    machine = machines(measured)[0]
    return {
        "schema": SCHEMA,
        "processor": machine.processor,
        "python": machine.python,
        "versions": dict(machine.versions),
        "spreads": lines,
    }


def round_figure(value: float) -> float | str:
    """Return a figure in nine digits; infinities and NaN by name."""
    return float(f"{value:.9g}") if math.isfinite(value) else str(value)


def quick_spreads(raw: Json) -> dict[Line, Spread]:
    """Return the spreads of such a file."""
    return {
        Line(*item["line"]): Spread(
            float(item["mean"]), float(item["error"]), item["seeds"]
        )
        for item in raw["spreads"]
    }


def main(folder: Path, docs: Path = DOCS) -> Path:
    """Write what a run's results are for, and return the file."""
    measured, scale = read(folder / "results.json")
    if scale == "quick":
        path = docs / "results-quick.json"
        text = json.dumps(quick_file(measured)).replace('{"line"', '\n{"line"')
        write_whole(path, text + "\n")
        return path
    shown = list(write_pictures(draw_plots(Results.of(measured)), docs / "images"))
    path = docs / "results.md"
    write_whole(path, markdown(measured, scale, shown))
    return path


def write_pictures(plots: Mapping[str, "Figure"], folder: Path) -> Iterator[str]:
    """Write the plots of the page and yield their names.

    Many panels make a large SVG: those are shown as small bitmaps, and sharp in the
    run's own folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in plots.items():
        path = folder / f"results-{name}.svg"
        if len(figure.axes) == 1:
            write_whole(path, svg(figure))
        else:
            path = path.with_suffix(".png")
            figure.savefig(path, dpi=DPI)
        yield path.name


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))
