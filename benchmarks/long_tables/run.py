# SPDX-License-Identifier: Apache-2.0
"""Fit and forget out of core: passes against decoding, and the memory of it all.

Each table is measured in a process of its own, which tells its peak memory; a quarter
and a half of it too, which tells whether memory grows with the rows. The first pass,
which checks rows and tags people, is counted apart. ``EXPUNGE_LONG_ROWS`` names how
many rows the tables have: 20000000 for the figures in full. ``EXPUNGE_LONG_FOLDER``
names a folder on a disk with room for them.
"""

import os
import resource
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from expunge.core.losses import Logistic
from expunge.core.objective import Objective
from expunge.core.penalties import L2
from expunge.core.sums import loss_gradient, loss_hessian
from expunge.linear_model import LogisticRegression
from expunge.linear_model.base import private_model
from expunge.long import open_parquet
from expunge.promise.budget import Budget
from expunge.removal.state import summarise

from ..report import Section, Table, Target, number
from ..timing import progress
from .data import LongShape, decode_table, read_rows, write_table

ROWS, COLUMNS, ALPHA = 200_000, 50, 1e-3
REQUESTS = 20
RUNS, SHORT = 3, 10.0
LARGEST_RATIO, LARGEST_PEAK, LARGEST_EXPONENT = 3.0, 1.5 * 2**30, 0.1


class LongFigures(NamedTuple):
    """Seconds and bytes of one table, read in one way.

    A request is measured in a model of the table and in one of rows in memory. To
    anchor a model again takes a Newton step and new sums: three passes.
    """

    shape: LongShape
    cache: bool
    decode: float
    passes: dict[str, float]
    first_pass: float
    fit: float
    anchor: float
    request: float
    request_in_memory: float
    peak: float

    @property
    def worst_ratio(self) -> float:
        """The dearest pass over decoding alone."""
        return max(self.passes.values()) / self.decode


def run(data_dir: Path | None = None, n_rows: int | None = None) -> Iterator[Section]:
    """Yield what passes, fits and requests cost on long tables."""
    del data_dir
    if n_rows is None:
        n_rows = int(os.environ.get("EXPUNGE_LONG_ROWS", ROWS))
    place = os.environ.get("EXPUNGE_LONG_FOLDER")
    figures = []
    for dtype in ("float32", "float64"):
        shape = LongShape(n_rows, COLUMNS, dtype)
        with tempfile.TemporaryDirectory(dir=place) as folder:
            progress(f"writing {shape}")
            paths = write_table(Path(folder), shape)
            figures += measure_parts(paths, shape)
    yield make_section(figures)


def measure_parts(paths: Sequence[Path], shape: LongShape) -> list[LongFigures]:
    """Return the figures of a quarter, a half and all of a table, read in both ways."""
    found = []
    for n_files in (len(paths) // 4, len(paths) // 2, len(paths)):
        part = shape._replace(n_rows=shape.n_rows * n_files // len(paths))
        for cache in (True, False):
            progress(f"passes over {part}, {_name(cache)}")
            found.append(measure_apart(paths[:n_files], part, cache=cache))
    return found


def measure_apart(
    paths: Sequence[Path], shape: LongShape, *, cache: bool
) -> LongFigures:
    """Return the figures of a table, found in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure_table, paths, shape, cache=cache).result()


def measure_table(
    paths: Sequence[Path], shape: LongShape, *, cache: bool
) -> LongFigures:
    """Decode, look through, pass over, fit and forget; return what that takes."""
    next(pq.ParquetFile(paths[0]).iter_batches(10))  # what starts once
    decode = _time(lambda: decode_table(paths, shape.n_columns))
    objective = Objective(Logistic(), L2(), ALPHA, intercept=True)
    loss, theta = objective.loss, np.full(shape.n_columns + 1, 0.01)
    clock = process_time()
    names = [f"x{j}" for j in range(shape.n_columns)]
    table = open_parquet(
        paths,
        target="label",
        subject="id",
        features=names,
        cache=cache,
        folder=paths[0].parent,
    )
    first_pass = process_time() - clock
    with table:
        rows = table.rows(objective, code=_signs)
        passes = {
            "gradient": _time(lambda: loss_gradient(loss, rows, theta=theta)),
            "Hessian": _time(lambda: loss_hessian(loss, rows, theta=theta)),
            "summary": _time(lambda: summarise(objective, rows, theta=theta)),
        }
        budget = Budget(sigma=0.1, releases=2 * REQUESTS)
        model = LogisticRegression(alpha=ALPHA, budget=budget)
        clock = process_time()
        model.fit(table)
        fit = process_time() - clock
        request = _time_requests(model, range(shape.n_rows))
        anchor = _time_anchor(model)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    X, y, owners = read_rows(paths[0], shape.n_columns)
    model.fit(X, y, subjects=owners)
    held = _time_requests(model, np.unique(owners).tolist())
    return LongFigures(
        shape, cache, decode, passes, first_pass, fit, anchor, request, held, peak
    )


def make_section(figures: list[LongFigures]) -> Section:
    """Return the figures as tables, with what they should be."""
    asked = ("fit", "re-anchor", "request", "in memory")
    headers = ("table", "first pass", *figures[0].passes, *asked, "peak")
    units = [
        (
            f"{one.shape}, {_name(one.cache)} [decodings]",
            number(one.first_pass / one.decode),
            *(number(seconds / one.decode) for seconds in one.passes.values()),
            number(one.fit / one.decode),
            number(one.anchor / one.decode),
            f"{number(1e3 * one.request)} ms",
            f"{number(1e3 * one.request_in_memory)} ms",
            f"{number(one.peak / 2**20)} MiB",
        )
        for one in figures
    ]
    targets = []
    for one in figures:
        name = f"{one.shape}, {_name(one.cache)}"
        ratio = one.worst_ratio
        targets.append(Target(f"dearest pass, {name}", ratio, high=LARGEST_RATIO))
        peak = one.peak / 2**30
        targets.append(Target(f"peak GiB, {name}", peak, high=LARGEST_PEAK / 2**30))
    for cache in (True, False):
        grown = _growth([one for one in figures if one.cache is cache])
        name = f"peak grows with rows to the power of, {_name(cache)}"
        targets.append(Target(name, grown, high=LARGEST_EXPONENT))
    notes = [f"{one.shape}: decoding takes {number(one.decode)} s" for one in figures]
    return Section("long tables", [Table(headers, units)], targets, notes)


def _growth(figures: list[LongFigures]) -> float:
    """Return the largest exponent with which peaks grow, from one length to another."""
    grown = [
        np.log(more.peak / less.peak) / np.log(more.shape.n_rows / less.shape.n_rows)
        for less, more in pairwise(figures)
        if more.shape.n_rows > less.shape.n_rows
    ]
    return float(max(grown))


def _time_anchor(model: LogisticRegression) -> float:
    """Return the seconds that new sums over all rows take a fitted model."""
    private = private_model(model)
    rows = private.remaining_rows()
    assert rows is not None
    return _time(lambda: private.reanchor(rows))


def _time_requests(model: LogisticRegression, people: Iterable[int]) -> float:
    """Return the seconds that forgetting a person took, for some who have rows."""
    found: list[float] = []
    for person in people:
        clock = perf_counter()
        try:
            model.forget(subjects=[person])
        except KeyError:
            continue
        found.append(perf_counter() - clock)
        if len(found) == REQUESTS:
            break
    return float(np.median(found))


def _signs(y: np.ndarray) -> np.ndarray:
    """Return -1 and +1 for the labels 0 and 1."""
    return np.where(y > 0, 1.0, -1.0)


def _name(cache: bool) -> str:
    return "decoded once" if cache else "decoded in each pass"


def _time(action: Callable[[], object]) -> float:
    """Return how many seconds something takes: the least of some runs, if short.

    Seconds of the processor, reading included: those of the clock are the neighbours'.
    """
    found: list[float] = []
    while not found or (len(found) < RUNS and sum(found) < SHORT):
        clock = process_time()
        action()
        found.append(process_time() - clock)
    return min(found)
