# SPDX-License-Identifier: Apache-2.0
"""The plan of a run: which pieces there are, and what each one measures."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path

from ..comparison import measure, schedule
from ..comparison.contenders import CONTENDERS
from ..comparison.protocol import Problem
from ..comparison.streams import STREAMS
from . import curves, errata, extractors, settings
from .figures import SCHEMA, Figure
from .pieces import Piece
from .scale import Scale
from .settings import Setting, Source, Split, thin

# The paper's two orders of requests; "biased" is its adaptive one.
PAPER_STREAMS = ("random", "biased")
ON_CURVES = ("RT", "TA", "IJ", "Newton", "printed")


@dataclass(frozen=True)
class Bench:
    """A setting at a scale; its data are read when first needed, and once."""

    setting: Setting
    scale: Scale
    source: Source

    @cached_property
    def split(self) -> Split:
        """Training and test rows, as many as the scale takes."""
        return thin(self.setting.load(self.source), self.scale.rows)

    def problem(self, alpha: float) -> Problem:
        """Return the problem at an alpha."""
        return self.setting.problem(self.split, alpha)

    def curves(self, alpha: float, stream: str, seed: int) -> list[Figure]:
        """Measure the paper's curves."""
        problem, removals = self.problem(alpha), self.setting.requests(self.scale)
        order = STREAMS[stream](problem, seed, removals)
        points = curves.points(removals, self.scale.points)
        run = curves.Run(problem, order, stream, seed, points, self.setting.sigma)
        chosen = [item for item in CONTENDERS if item.name in ON_CURVES]
        return curves.measure_curves(chosen, run)

    def compare(self, stream: str, seed: int) -> list[Figure]:
        """Compare all contenders at the first alpha."""
        scale, removals = self.scale, self.setting.requests(self.scale)
        problem = self.problem(scale.alphas[0])
        order = STREAMS[stream](problem, seed, removals)
        checkpoints = measure.checkpoints_up_to(scale.checkpoints, removals)
        run = measure.ComparisonRun(
            problem, order, stream, seed, checkpoints, scale.draws
        )
        return measure.compare(schedule.schedule_all(CONTENDERS), run)


def rules() -> str:
    """Return a digest of the code that decides how figures are measured."""
    modules = (curves, measure, schedule, settings)
    sources = [Path(str(module.__file__)).read_bytes() for module in modules]
    return sha256(b"".join(sources)).hexdigest()[:16]


def pieces(bench: Bench, first_seed: int) -> Iterator[Piece]:
    """Yield the pieces of a setting, seed by seed."""
    setting, scale = bench.setting, bench.scale
    recipe = f"schema {SCHEMA}, rules {rules()}, {scale}"
    for seed in range(first_seed, first_seed + scale.seeds):
        where = f"{scale.name}/{setting.name}"
        for alpha in scale.alphas[: setting.alphas]:
            for stream in PAPER_STREAMS:
                name = f"{where}/curves-{alpha:g}-{stream}-{seed}"
                make = partial(bench.curves, alpha, stream, seed)
                yield Piece(name, recipe, make)
        if seed == first_seed and setting.name.startswith("svhn-"):
            extractor = partial(extractors.measure_extractor, setting, bench.source)
            yield Piece(f"{where}/extractor", f"schema {SCHEMA}", extractor)
        for stream in scale.streams if setting.name in scale.comparisons else ():
            name = f"{where}/comparison-{stream.replace(' ', '-')}-{seed}"
            yield Piece(name, recipe, partial(bench.compare, stream, seed))


def errata_piece() -> Piece:
    """Return the piece that measures the printed paper's slips."""
    return Piece("errata", f"schema {SCHEMA}", lambda: list(errata.measure_errata()))
