# SPDX-License-Identifier: Apache-2.0
"""Run the experiments: pieces in order, then results, plots and one report."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from threadpoolctl import threadpool_limits

from expunge.display.progress import OnNamedProgress
from expunge.exceptions import MissingExtra

from ..data import DataNotFound
from ..report import Section, Target
from . import html
from .figures import SCHEMA, Machine, Measured, from_json, to_csv, to_json
from .pieces import measure, read_finished, write_whole
from .plan import Bench, errata_piece, pieces
from .plots import draw_plots, save_plots, svg
from .results import Results
from .scale import SCALES
from .settings import Source, choose_settings
from .tables import all_sections


@dataclass(frozen=True, slots=True)
class Request:
    """What to run, and where results go.

    Attributes
    ----------
    word
        A setting, or "all".
    scale
        "quick" or "full".
    out
        The folder of pieces and results.
    data_dir
        Where data are looked for first.
    seed
        The first seed; the others follow.
    resume
        Whether pieces found finished are taken as they are.
    """

    word: str
    scale: str
    out: Path
    data_dir: Path | None = None
    seed: int = 0
    resume: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found, what it could not run and why, and the files it wrote."""

    sections: Sequence[Section]
    missing: Sequence[str]
    files: Sequence[Path]

    @property
    def targets(self) -> list[Target]:
        """All targets, reached or not."""
        return [target for section in self.sections for target in section.targets]


def run(request: Request, watch: OnNamedProgress) -> Outcome:
    """Measure what is not yet measured, write everything up and return it."""
    ready, missing = find_ready(request)
    todo = [errata_piece()]
    todo += [piece for bench in ready for piece in pieces(bench, request.seed)]
    measured: list[Measured] = []
    with threadpool_limits(limits=1):
        for number, piece in enumerate(todo):
            watch(piece.name, number, len(todo))
            measured += measure([piece], request.out, resume=request.resume)
    watch("results, plots and report", len(todo), len(todo))
    return write_outcome(measured, missing, request)


def find_ready(request: Request) -> tuple[list[Bench], list[str]]:
    """Return the settings whose data are at hand, and what the others lack.

    A setting asked for by name must be there; "all" means all that can be run.
    """
    scale = SCALES[request.scale]
    source = Source(request.data_dir, request.out / "features")
    ready, missing = [], []
    for setting in choose_settings(request.word, scale):
        bench = Bench(setting, scale, source)
        todo = pieces(bench, request.seed)
        if request.resume and all(read_finished(piece, request.out) for piece in todo):
            ready.append(bench)  # its data are not needed again
            continue
        try:
            _ = bench.split
            ready.append(bench)
        except (DataNotFound, MissingExtra) as error:
            missing.append(f"{setting.name}: {error}")
    if not ready:
        raise DataNotFound("nothing could be run. " + "; ".join(missing))
    return ready, missing


def write_outcome(
    measured: Sequence[Measured], missing: Sequence[str], request: Request
) -> Outcome:
    """Write results.json, results.csv, the plots and report.html."""
    out, results = request.out, Results.of(measured)
    found = all_sections(results, request.scale)
    content = {"schema": SCHEMA, "scale": request.scale, "missing": list(missing)}
    pieces_json = [to_json(piece) for piece in measured]
    write_whole(out / "results.json", json.dumps(content | {"pieces": pieces_json}))
    write_whole(out / "results.csv", to_csv(measured))
    plots = draw_plots(results)
    files = [out / "results.json", out / "results.csv"]
    files += save_plots(plots, out / "plots", "")
    inline = {name: svg(figure) for name, figure in plots.items()}
    heading = f"expunge: experiments, {request.scale} run"
    report = html.page(heading, found, inline, machines(measured))
    write_whole(out / "report.html", report)
    return Outcome(found, missing, [*files, out / "report.html"])


def machines(measured: Sequence[Measured]) -> list[Machine]:
    """Return the machines that measured, each once."""
    found: list[Machine] = []
    for piece in measured:
        if piece.machine not in found:
            found.append(piece.machine)
    return found


def read(path: Path) -> tuple[list[Measured], str]:
    """Return the pieces and the scale of a results.json."""
    raw = json.loads(path.read_text())
    return [from_json(piece) for piece in raw["pieces"]], raw["scale"]
