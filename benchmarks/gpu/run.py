# SPDX-License-Identifier: Apache-2.0
"""Time a fit with matrices and a head without on a device, and count their passes.

The processor of the machine gets a tenth of the rows, and its figures are multiplied:
a pass is linear in the rows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from expunge import Budget, MatrixFree, Newton, Objective
from expunge.core.arrays import Index, Vector
from expunge.core.measurement import measure
from expunge.core.rows import RowSource
from expunge.core.solver import minimise
from expunge.core.sums import loss_gradient, loss_hessian
from expunge.gpu import DeviceRows
from expunge.private_model.model import PrivateModel

from ..report import Section, Table, Target
from .breakdown import bare_product, break_down, time_algebra, time_products
from .problems import (
    in_memory,
    make_objective,
    make_rows,
    peak_memory,
    repeat,
    timed,
)
from .sizes import FULL, DeviceSizes, Shape

FIT_OVER_HESSIANS = 3.0
REQUEST_PASSES = 30
PASS_SECONDS = 1.8e-3
PEOPLE = 5


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds by name, in order."""

    place: str
    seconds: dict[str, float]


def run(device: str, sizes: DeviceSizes = FULL) -> Iterator[Section]:
    """Yield what the device takes, and the processor beside it."""
    yield run_table(sizes.table, device, sizes)
    yield run_head(sizes.head, device, sizes)


def run_table(shape: Shape, device: str, sizes: DeviceSizes) -> Section:
    """Return the fit of a long table against its Hessian passes alone."""
    rows, objective = make_rows(shape, device), make_objective(shape)
    peak_memory(rows)
    there = _table_passes(objective, rows, sizes)
    solution, solve_seconds = timed(lambda: minimise(objective, rows), rows)
    fit = partial(_fit_table, objective, rows)
    model, seconds = fit(), repeat("fit", fit, rows, n=sizes.repeats).median
    memory = peak_memory(rows)
    bare = bare_product(rows, n=sizes.repeats)
    # The summary of a certified fit has a Hessian and a moment, one such pass each.
    n_hessians = solution.n_hessians + 2
    alone = n_hessians * there.seconds["Hessian"]
    there.seconds["solver alone"] = solve_seconds
    there.seconds["certified fit"] = seconds
    here = _table_passes(objective, in_memory(rows, sizes.share), sizes)
    return Section(
        f"Long table on {rows.device}: {shape}",
        [
            _table([there, _scaled(here, sizes.share)]),
            break_down(objective, rows),
            time_algebra(model.answer.state.sums.loss_hessian, rows, n=sizes.repeats),
            time_products(rows, n=sizes.repeats),
        ],
        [
            Target(
                "fit over its Hessian passes", seconds / alone, high=FIT_OVER_HESSIANS
            ),
            Target(
                "fit over as many bare products in float64",
                seconds / (n_hessians * bare),
                high=FIT_OVER_HESSIANS,
            ),
        ],
        [
            f"{n_hessians} Hessian passes, {solution.n_steps} steps; {memory:.2f} GiB",
            f"certified: {model.answer.radius.kind}, fits: "
            f"{model.answer.fits(model.budget)}",
        ],
    )


def run_head(shape: Shape, device: str, sizes: DeviceSizes) -> Section:
    """Return fit and requests of a softmax head, without matrices."""
    rows, objective = make_rows(shape, device), make_objective(shape)
    peak_memory(rows)
    there = _head_passes(objective, rows, sizes)
    model, seconds = timed(lambda: _fit_head(objective, rows), rows)
    there.seconds["certified fit"] = seconds
    requests, certified = _requests(model, rows)
    there.seconds["certified request"] = float(np.median(requests))
    memory = peak_memory(rows)
    some = in_memory(rows, sizes.share)
    here = _head_passes(objective, some, sizes)
    here.seconds["certified fit"] = timed(lambda: _fit_head(objective, some), some)[1]
    one = there.seconds["measurement"]
    return Section(
        f"Softmax head on {rows.device}: {shape}",
        [_table([there, _scaled(here, sizes.share)])],
        [
            Target(
                f"one request over a pass of {PASS_SECONDS * 1e3:g} ms",
                max(requests) / PASS_SECONDS,
                high=REQUEST_PASSES,
            ),
            Target("requests that are certified", certified, low=PEOPLE),
        ],
        [
            f"in measured passes: a fit {seconds / one:.0f}, a request "
            f"{float(np.median(requests)) / one:.1f} to {max(requests) / one:.1f}",
            f"{model.answer.n_steps} steps; {memory:.2f} GiB on the device",
        ],
    )


def _fit_table(objective: Objective, rows: RowSource) -> PrivateModel:
    return PrivateModel.fit(
        objective, rows, mechanism=Newton(), budget=Budget(sigma=0.01)
    )


def _fit_head(objective: Objective, rows: RowSource) -> PrivateModel:
    return PrivateModel.fit(
        objective, rows, mechanism=MatrixFree(), budget=Budget(sigma=1e-4)
    )


def _requests(model: PrivateModel, rows: DeviceRows) -> tuple[list[float], int]:
    """Return the seconds of requests, one person each, and how many are certified."""
    seconds, certified, left = [], 0, rows
    for place in range(PEOPLE):
        gone = np.arange(10 * place, 10 * place + 10)
        (model, left), spent = timed(partial(_forget, model, left, gone=gone), rows)
        seconds.append(spent)
        certified += model.answer.fits(model.budget)
    return seconds, certified


def _forget(
    model: PrivateModel, rows: DeviceRows, *, gone: Index
) -> tuple[PrivateModel, DeviceRows]:
    """Return the model without these rows, and the rows that are left."""
    left = rows.without(gone)
    return model.forget(rows.take(gone), remaining=left), left


def _table_passes(objective: Objective, rows: RowSource, sizes: DeviceSizes) -> Figures:
    theta = _somewhere(rows.n_columns)
    loss = objective.loss
    return _figures(
        rows,
        {
            "gradient": lambda: loss_gradient(loss, rows, theta=theta),
            "Hessian": lambda: loss_hessian(loss, rows, theta=theta),
        },
        sizes,
    )


def _head_passes(objective: Objective, rows: RowSource, sizes: DeviceSizes) -> Figures:
    theta = _somewhere(rows.n_columns * objective.loss.outputs)
    hessian = measure(objective, rows, theta=theta).hessian
    assert hessian is not None
    return _figures(
        rows,
        {
            "measurement": lambda: measure(objective, rows, theta=theta),
            "Hessian product": lambda: hessian @ theta,
        },
        sizes,
    )


def _figures(
    rows: RowSource, actions: dict[str, Callable[[], object]], sizes: DeviceSizes
) -> Figures:
    place = rows.device if isinstance(rows, DeviceRows) else "memory"
    found = (
        repeat(name, action, rows, n=sizes.repeats) for name, action in actions.items()
    )
    return Figures(place, {each.name: each.median for each in found})


def _somewhere(size: int) -> Vector:
    return np.asarray(np.cos(np.arange(size)) / np.sqrt(size))


def _scaled(figures: Figures, share: int) -> Figures:
    """Return what all rows would have taken."""
    scaled = {name: share * value for name, value in figures.seconds.items()}
    return Figures(f"{figures.place} (1/{share} of the rows, times {share})", scaled)


def _table(places: list[Figures]) -> Table:
    """Return seconds in milliseconds, a column for each place."""
    first = places[0]
    rows = [
        (
            name,
            *(
                f"{1e3 * place.seconds[name]:.2f}" if name in place.seconds else ""
                for place in places
            ),
        )
        for name in first.seconds
    ]
    return Table(("milliseconds", *(place.place for place in places)), rows)
