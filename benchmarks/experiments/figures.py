# SPDX-License-Identifier: Apache-2.0
"""Figures: one measured number each, with all that is needed to trust it.

A piece of a run is a list of figures of one seed, measured on one machine. What
tables and plots show are spreads: mean and standard error over the seeds.
"""

import csv
import io
import math
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from typing import Any, TypeAlias

import numpy as np

import expunge

from ..environment import LIBRARIES, processor

SCHEMA = 1

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """What a figure is about: everything but who measured it, and how often.

    Attributes
    ----------
    experiment
        "curves", "comparison" or "errata".
    setting, alpha, stream
        The data with their model, its penalty, and the order of requests.
    contender
        What answered them.
    quantity
        What was measured, unit included: "seconds", "accuracy", "distance".
    removals
        How many rows had left by then.
    """

    experiment: str
    setting: str
    alpha: float
    stream: str
    contender: str
    quantity: str
    removals: int


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of one seed.

    ``repetitions`` counts the timings or the draws behind it; an ``interpolated``
    one was not measured at this place but between two neighbours.
    """

    place: Place
    value: float
    seed: int
    repetitions: int = 1
    interpolated: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """Where figures were measured."""

    processor: str
    processors: int
    system: str
    python: str
    versions: Mapping[str, str]

    @classmethod
    def this(cls) -> "Machine":
        """Return the machine and the libraries that run now."""
        return cls(
            processor(),
            os.cpu_count() or 1,
            platform.system(),
            platform.python_version(),
            {"expunge": expunge.__version__}
            | {name: version(name) for name in LIBRARIES},
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """A finished piece: its figures, and where they were measured."""

    name: str
    recipe: str
    machine: Machine
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard error over the seeds; the error is NaN for a single one."""

    mean: float
    error: float
    seeds: int
    interpolated: bool = False

    @classmethod
    def of(cls, figures: Iterable[Figure]) -> "Spread":
        """Return what one place's figures come to."""
        found = list(figures)
        values = np.array([figure.value for figure in found])
        interpolated = any(figure.interpolated for figure in found)
        if not np.isfinite(values).all():  # a spread of infinities is none
            return cls(float(values.max()), math.nan, len(values), interpolated)
        error = math.nan
        if len(values) > 1:
            error = float(values.std(ddof=1) / math.sqrt(len(values)))
        return cls(float(values.mean()), error, len(values), interpolated)


Spreads: TypeAlias = dict[Place, Spread]


def spreads(measured: Iterable[Measured]) -> Spreads:
    """Return the spread at every place that the pieces measured."""
    by_place: dict[Place, list[Figure]] = {}
    for piece in measured:
        for figure in piece.figures:
            by_place.setdefault(figure.place, []).append(figure)
    return {place: Spread.of(figures) for place, figures in by_place.items()}


def to_json(piece: Measured) -> Json:
    """Return a piece as plain values, infinities as words: JSON has none."""
    figures = [
        asdict(figure.place)
        | {
            "value": _word(figure.value),
            "seed": figure.seed,
            "repetitions": figure.repetitions,
            "interpolated": figure.interpolated,
        }
        for figure in piece.figures
    ]
    return {
        "schema": SCHEMA,
        "name": piece.name,
        "recipe": piece.recipe,
        "machine": asdict(piece.machine),
        "figures": figures,
    }


def from_json(raw: Json) -> Measured:
    """Return the piece again; ``float`` reads the words."""
    if raw.get("schema") != SCHEMA:
        raise ValueError(
            f"schema {raw.get('schema')!r} is not {SCHEMA}: the file is of another "
            "version of the experiments; run them again into an empty folder"
        )
    names = [field.name for field in fields(Place)]
    figures = tuple(
        Figure(
            Place(**{name: item[name] for name in names}),
            float(item["value"]),
            item["seed"],
            item["repetitions"],
            item["interpolated"],
        )
        for item in raw["figures"]
    )
    return Measured(raw["name"], raw["recipe"], Machine(**raw["machine"]), figures)


def to_csv(measured: Iterable[Measured]) -> str:
    """Return every figure as a line, machine and versions beside it."""
    text = io.StringIO()
    own = ("value", "seed", "repetitions", "interpolated")
    names = [field.name for field in fields(Place)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, *own, "processor", "python", "versions"])
    for piece in measured:
        machine = piece.machine
        libraries = " ".join(f"{k}={v}" for k, v in machine.versions.items())
        for figure in piece.figures:
            place = [getattr(figure.place, name) for name in names]
            values = [getattr(figure, name) for name in own]
            writer.writerow(
                [*place, *values, machine.processor, machine.python, libraries]
            )
    return text.getvalue()


def _word(value: float) -> float | str:
    """Return a number that JSON knows, or its name."""
    return value if math.isfinite(value) else str(value)
