# SPDX-License-Identifier: Apache-2.0
"""How the cost of a removal grows: with the square of d, and not with n.

Generated logistic data, rows of unit norm, L2 with alpha 1e-3. Times are medians
of single requests; exponents are slopes of log time against log size. A bare dsymv
of the same size stands beside them: when the matrix outgrows a cache its time
grows faster than d^2, and so does everything made of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy.linalg import blas

from benchmarks.rescaled import Rescaled
from expunge import (
    L1,
    L2,
    Jackknife,
    Logistic,
    Newton,
    Objective,
    Retrain,
    State,
    summarise,
)
from expunge.core.solver import Stop, minimise
from expunge.removal import Mechanism, state_size

from .data import Dataset
from .plot import draw
from .report import Section, Table, Target, number
from .stream import Stream, request_order
from .timing import Measurement, progress, take_turns

WIDTHS = (64, 128, 256, 512, 1024, 2048, 4096)
UPPER_WIDTHS = 1024
HEIGHTS = (1_000, 10_000, 100_000, 1_000_000)
WIDTH = 64
REQUESTS = 200
VECTORS = 16
MECHANISMS: dict[str, Mechanism] = {
    "Jackknife(certified=False)": Jackknife(certified=False),
    "Jackknife()": Jackknife(),
    "Newton()": Newton(),
}
DSYMV = "bare dsymv"


@dataclass(frozen=True, slots=True)
class Series:
    """Seconds against a size, for one thing that was timed."""

    name: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    def exponent(self, smallest: int = 0) -> float:
        """Return the slope of log time against log size from a size on."""
        points = [
            (size, taken)
            for size, taken in zip(self.sizes, self.seconds, strict=True)
            if size >= smallest
        ]
        logs = np.log(np.array(points))
        return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def generate_dataset(n_rows: int, n_features: int) -> Dataset:
    """Return rows of unit norm with labels drawn from a logistic model."""
    rng = np.random.default_rng([n_rows, n_features])
    X = rng.standard_normal((n_rows, n_features))
    X /= np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
    eta = X @ rng.standard_normal(n_features)
    return Dataset(X, np.where(rng.logistic(size=n_rows) < eta, 1.0, -1.0))


def fit_summary(dataset: Dataset, objective: Objective) -> State:
    """Return the summary near the minimiser: three Newton steps."""
    rows = objective.rows(dataset.X, dataset.y)
    solution = minimise(objective, rows, stop=Stop(3))
    return summarise(objective, rows, theta=solution.theta)


def measure(n_rows: int, n_features: int) -> dict[str, Measurement]:
    """Time removals of every mechanism, each beside a bare product."""
    progress(f"n = {n_rows}, d = {n_features}")
    dataset = generate_dataset(n_rows, n_features)
    summary = fit_summary(dataset, Objective(Logistic(), L2(), alpha=1e-3))
    order = request_order(n_rows)
    repeats = int(np.clip(REQUESTS * 1024 / n_features, 20, REQUESTS))
    matrix, vector = summary.sums.loss_hessian.lower[0], summary.sums.gradient
    times = take_turns(
        {DSYMV: partial(blas.dsymv, 1.0, matrix, vector, lower=1)}, repeats
    )
    for name, mechanism in MECHANISMS.items():
        stream = Stream(mechanism, summary, dataset, order)
        times |= take_turns({name: stream}, repeats, warm_up=2)
    return times


def series(
    sizes: Sequence[int], measured: Sequence[dict[str, Measurement]]
) -> list[Series]:
    """Return one series for each thing that was timed at every size."""
    return [
        Series(name, tuple(sizes), tuple(times[name].median for times in measured))
        for name in measured[0]
    ]


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield times against d, times against n, and the size of a state."""
    del data_dir
    by_width = series(WIDTHS, [measure(max(2 * d, 1024), d) for d in WIDTHS])
    yield against_width(by_width)
    by_height = series(HEIGHTS, [measure(n, WIDTH) for n in HEIGHTS])
    path = draw({"d": by_width, "n": by_height})
    yield against_height(by_height, path)
    yield memory()


def against_width(by_width: Sequence[Series]) -> Section:
    """Return times against d with the exponent of its upper range."""
    targets = [
        Target(f"{item.name}: exponent of d", item.exponent(UPPER_WIDTHS), 1.7, 2.3)
        for item in by_width
        if item.name != DSYMV
    ]
    limit, fastest, *_ = by_width
    return Section(
        "Time of one removal against d [us]",
        [_table("d", by_width)],
        targets,
        [
            f"exponents over d >= {UPPER_WIDTHS}; that of a bare dsymv, the machine's "
            f"own, is {limit.exponent(UPPER_WIDTHS):.2f}",
            f"at d = {limit.sizes[-1]} a Jackknife(certified=False) removal takes "
            f"{fastest.seconds[-1] / limit.seconds[-1]:.2f} bare dsymv",
            "rows: n = max(2 d, 1024)",
        ],
    )


def against_height(by_height: Sequence[Series], path: Path) -> Section:
    """Return times against n, which should not change them."""
    targets = [
        Target(f"{item.name}: exponent of n", item.exponent(), -0.1, 0.1)
        for item in by_height
        if item.name != DSYMV
    ]
    title = f"Time of one removal against n, d = {WIDTH} [us]"
    return Section(title, [_table("n", by_height)], targets, [f"plot: {path}"])


def memory() -> Section:
    """Return the size of every mechanism's state at two heights."""
    d, heights = 128, (500, 5_000)
    mechanisms: dict[str, Mechanism] = {
        "Jackknife(certified=False)": Jackknife(certified=False),
        "Jackknife()": Jackknife(),
        "Newton()": Newton(),
        "Rescaled()": Rescaled(),
        "Retrain()": Retrain(),
    }
    lines, largest, changes = [], 0.0, 0
    for penalty in (L2(), L1()):
        objective = Objective(Logistic(), penalty, alpha=1e-3, ridge=1e-4)
        summaries = [fit_summary(generate_dataset(n, d), objective) for n in heights]
        for name, mechanism in mechanisms.items():
            sizes = [state_size(mechanism.init(summary)) for summary in summaries]
            changes += sizes[0] != sizes[1]
            largest = max(largest, (max(sizes) - VECTORS * d) / d**2)
            cells = (f"{size / d**2:.3f}" for size in sizes)
            lines.append((f"{name}, {type(penalty).__name__}", *cells))
    headers = (f"state, d = {d}, in units of d^2", *(f"n = {n}" for n in heights))
    return Section(
        "Memory of a state (float64 numbers)",
        [Table(headers, lines)],
        [
            Target(f"largest (size - {VECTORS} d) / d^2", largest, high=4.0),
            Target("states whose size depends on n", changes, high=0),
        ],
    )


def _table(size: str, measured: Sequence[Series]) -> Table:
    """Return a table with a line for each size."""
    headers = (size, *(item.name for item in measured))
    lines = [
        (str(at), *(number(1e6 * item.seconds[i]) for item in measured))
        for i, at in enumerate(measured[0].sizes)
    ]
    return Table(headers, lines)
