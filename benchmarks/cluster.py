# SPDX-License-Identifier: Apache-2.0
"""A pass over a long table by two workers of a Dask cluster, against one.

Both clusters are up all the time and take turns, so that a busy machine slows both. A
ratio is that of two passes next to each other; its spread is that of the rounds.
"""

import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from expunge.core.losses import HalfSquared
from expunge.core.objective import Objective
from expunge.core.penalties import L2
from expunge.core.sums import loss_hessian
from expunge.engines import read_engine
from expunge.long import open_parquet

from .long_tables.data import LongShape, write_table
from .report import Section, Table, Target
from .timing import Measurement, progress, time_call

ROWS, COLUMNS, ROUNDS = 600_000, 50, 9
EXPECTED = 1.6  # on two quiet cores
OBJECTIVE = Objective(HalfSquared(), L2(), 1e-3)


def run(
    data_dir: Path | None = None, n_rows: int = ROWS, rounds: int = ROUNDS
) -> Iterator[Section]:
    """Yield how much faster two workers are than one."""
    del data_dir
    shape = LongShape(n_rows, COLUMNS, "float64")
    with tempfile.TemporaryDirectory() as folder:
        progress(f"writing {shape}")
        paths = write_table(Path(folder), shape)
        with (
            open_parquet(paths, target="label", subject="id") as table,
            _cluster(1) as one,
            _cluster(2) as two,
        ):
            rows: Any = table.rows(OBJECTIVE)
            theta = np.full(rows.n_columns, 0.01)
            sources = [rows, _on(rows, one), _on(rows, two)]
            passes = [_make_pass(source, theta) for source in sources]
            yield _compare(shape, passes, rounds)


def _on(rows: Any, client: Any) -> Any:
    workers: Any = read_engine(client)
    return workers.put(rows)


def _make_pass(rows: Any, theta: Any) -> Callable[[], object]:
    return lambda: loss_hessian(OBJECTIVE.loss, rows, theta=theta)


def _cluster(n_workers: int) -> Any:
    """Return a client of so many workers, in processes of their own."""
    distributed: Any = import_module("distributed")
    return distributed.Client(
        n_workers=n_workers,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        host="127.0.0.1",
        set_as_default=False,
    )


def _compare(
    shape: LongShape, passes: list[Callable[[], object]], rounds: int
) -> Section:
    """Return the seconds of passes in turns, and what two workers gain."""
    names = ("this process", "one worker", "two workers")
    for one in passes:
        one()
    seconds = np.array([[time_call(one)[1] for one in passes] for _ in range(rounds)])
    found = [Measurement.of(*each) for each in zip(names, seconds.T, strict=True)]
    ratio = Measurement.of("ratio", (seconds[:, 1] / seconds[:, 2]).tolist())
    return Section(
        f"A Hessian pass on a Dask cluster: {shape}",
        [
            Table(
                ("a pass by", "ms", "quartiles"),
                [
                    (
                        each.name,
                        f"{1e3 * each.median:.0f}",
                        f"{1e3 * each.lower:.0f} to {1e3 * each.upper:.0f}",
                    )
                    for each in found
                ],
            )
        ],
        [Target("two workers against one", ratio.median, low=EXPECTED)],
        [f"quartiles of the ratio {ratio.lower:.2f} to {ratio.upper:.2f}, n={rounds}"],
    )
