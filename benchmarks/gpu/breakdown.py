# SPDX-License-Identifier: Apache-2.0
"""Where the time of a fit goes: pass by pass, and what is computed in memory."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from time import perf_counter

from expunge import Budget, Newton, Objective
from expunge.core.arrays import Vector
from expunge.core.linalg import Symmetric
from expunge.core.rows import Rows, RowSource, Terms, Value
from expunge.core.sums import gram_by_panels
from expunge.gpu import DeviceRows
from expunge.gpu.device import DeviceAlgebra, load_torch
from expunge.private_model.model import PrivateModel

from ..report import Table
from .problems import repeat, timed, wait

PANELS = (128, 256, 512, 1024)


class TimedRows(RowSource):
    """Rows that note how long each sum over them takes, once the device is done."""

    def __init__(self, rows: DeviceRows) -> None:
        self._rows = rows
        self.passes: list[tuple[str, float]] = []

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def n_columns(self) -> int:
        """The number of columns, intercept included."""
        return self._rows.n_columns

    @property
    def total_weight(self) -> float:
        """W: the sum of the weights."""
        return self._rows.total_weight

    @property
    def n_additions(self) -> int:
        """Through how many additions a term may pass."""
        return self._rows.n_additions

    def map_blocks(self, term: Callable[[Rows], Value]) -> Iterator[Value]:
        """Yield what a term makes of each block; nobody times it."""
        return self._rows.map_blocks(term)

    def algebra(self) -> AbstractContextManager[None]:
        """Return what factors matrices where the rows lie."""
        return self._rows.algebra()

    def recode(self, code: Callable[[Vector], Vector]) -> "TimedRows":
        """Return the rows with other labels."""
        return TimedRows(self._rows.recode(code))

    def sum_blocks(self, term: Callable[[Rows], Terms]) -> Terms:
        """Return a sum, and note its name and seconds."""
        wait(self._rows)
        clock = perf_counter()
        found = self._rows.sum_blocks(term)
        wait(self._rows)
        name = term.__qualname__.partition(".")[0]
        self.passes.append((name, perf_counter() - clock))
        return found


def break_down(objective: Objective, rows: DeviceRows) -> Table:
    """Return the passes of a certified fit in order, and the rest, in milliseconds."""
    watched = TimedRows(rows)
    budget = Budget(sigma=0.01)
    _, seconds = timed(
        lambda: PrivateModel.fit(objective, watched, mechanism=Newton(), budget=budget),
        rows,
    )
    lines = []
    for name, group in groupby(watched.passes, key=lambda one: one[0]):
        each = [spent for _, spent in group]
        lines.append((name, str(len(each)), *_milliseconds(sum(each), max(each))))
    rest = seconds - sum(spent for _, spent in watched.passes)
    lines.append(("what is not a pass, in memory", "", *_milliseconds(rest, rest)))
    lines.append(("certified fit", "", *_milliseconds(seconds, seconds)))
    return Table(("passes of a fit, in order", "number", "ms", "longest, ms"), lines)


def time_algebra(matrix: Symmetric, rows: DeviceRows, *, n: int) -> Table:
    """Return what a fit does with its matrix, in memory and there, in milliseconds."""
    there = DeviceAlgebra(load_torch().device(rows.device))
    lower = matrix.lower[0]
    factor, v = matrix.cholesky(), matrix.diagonal.copy()
    actions: dict[str, Callable[[], object]] = {
        "Cholesky on the device, there and back": lambda: there.factor(lower),
        "inverse on the device, there and back": lambda: there.invert(lower),
        "Cholesky": matrix.cholesky,
        "inverse of the factor": factor.inverse,
        "product with a vector": lambda: matrix @ v,
        "solution with the factor": lambda: factor.solve(v),
    }
    return _table("in memory but for the first two", actions, rows, n=n)


def bare_product(rows: DeviceRows, *, n: int) -> float:
    """Return the seconds of X'X alone for all rows, which lie there in float64."""
    torch, size = load_torch(), rows.block_rows
    kind = torch.float64
    X = torch.ones((size, rows.n_columns), dtype=kind, device=rows.device)
    return len(rows) / size * repeat("bare", lambda: X.T @ X, rows, n=n).median


def time_products(rows: DeviceRows, *, n: int) -> Table:
    """Return what the product of one block takes, by the width of its panels."""
    torch = load_torch()
    size, width = rows.block_rows, rows.n_columns
    X = torch.ones((size, width), dtype=torch.float64, device=rows.device)
    scale, narrow = X[:, 0].clone(), X.to(torch.float32)
    actions: dict[str, Callable[[], object]] = {
        "bare product": lambda: X.T @ X,
        "to float64": lambda: narrow.to(torch.float64),
        "scaled": lambda: X * scale[:, None],
        "predictors": lambda: X @ X[0],
    }
    for panel in PANELS:
        name = f"scaled and multiplied, panels of {panel}"
        actions[name] = partial(gram_by_panels, X, scale, panel=panel)
    return _table(f"one block of {size} rows", actions, rows, n=n)


def _table(
    title: str, actions: dict[str, Callable[[], object]], rows: RowSource, *, n: int
) -> Table:
    found = (repeat(name, action, rows, n=n) for name, action in actions.items())
    lines = [(each.name, *_milliseconds(each.median)) for each in found]
    return Table((title, "ms"), lines)


def _milliseconds(*seconds: float) -> Iterator[str]:
    return (f"{1e3 * one:.2f}" for one in seconds)
