# SPDX-License-Identifier: Apache-2.0
"""A sustained stream of certified requests, beside the machine's limit.

MNIST 3 vs 8 (11982 x 784), logistic loss, L2, alpha 1e-3, sigma 0.5: requests one after
another, through the estimator, each with its release under secure noise. Blocks of
requests take turns with blocks of bare products of the same size (dsymv). Then rows
that come and rows that are corrected, beside removals. Then removals beside busy
neighbours, with as many threads of BLAS as there are cores.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from os import cpu_count
from pathlib import Path

import numpy as np
from scipy.linalg import blas
from threadpoolctl import threadpool_limits

from expunge import L2, Budget, Logistic, LogisticRegression, Newton, Objective
from expunge.linear_model.base import private_model, set_snapshot, snapshot_of
from expunge.linear_model.rows import read_addition
from expunge.private_model.model import PrivateModel
from expunge.private_model.snapshot import replace_places

from .data import Dataset, mnist_3_vs_8
from .report import Section, Target, timings_table
from .stream import request_order
from .timing import Action, Measurement, collection_off, progress, time_call

ALPHA, SIGMA = 1e-3, 0.5
BLOCKS, BLOCK = 20, 30
NEIGHBOURS = 2
BUSY = "while True:\n    pass"
PRODUCT = "bare dsymv"


def take_blocks(actions: dict[str, Action]) -> dict[str, list[float]]:
    """Time blocks of each action in turn: each keeps its own data in the cache."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    with collection_off():
        for _ in range(BLOCKS):
            for name, action in actions.items():
                seconds[name] += [time_call(action)[1] for _ in range(BLOCK)]
    return seconds


def bare_product(size: int) -> Action:
    """Return the product that nothing of this size can do without."""
    rng = np.random.default_rng(0)
    matrix = np.asfortranarray(rng.normal(size=(size, size)))
    return partial(blas.dsymv, 1.0, matrix, rng.normal(size=size), lower=1)


def estimator_stream(dataset: Dataset, *, keep_data: bool) -> Action:
    """Return what sends the next request to a fitted estimator."""
    model = LogisticRegression(
        alpha=ALPHA,
        fit_intercept=False,
        budget=Budget(sigma=SIGMA),
        keep_data=keep_data,
    )
    people = range(len(dataset)) if keep_data else None
    model.fit(dataset.X, dataset.y, subjects=people)
    order = iter(request_order(len(dataset)).tolist())

    def by_id() -> None:
        model.forget([next(order)])

    def by_row() -> None:
        row = next(order)
        model.forget(X=dataset.X[row : row + 1], y=dataset.y[row : row + 1])

    return by_id if keep_data else by_row


def growing_model(dataset: Dataset) -> LogisticRegression:
    """Return a model of the first rows, with people; the others may come."""
    n_first = len(dataset) - BLOCKS * BLOCK
    model = LogisticRegression(
        alpha=ALPHA, fit_intercept=False, budget=Budget(sigma=SIGMA)
    )
    X, y = dataset.X[:n_first], dataset.y[:n_first]
    return model.fit(X, y, subjects=range(n_first))


def addition_stream(dataset: Dataset) -> Action:
    """Return what adds the next row to a fitted estimator."""
    model = growing_model(dataset)
    order = iter(range(len(dataset) - BLOCKS * BLOCK, len(dataset)))

    def add() -> None:
        row = next(order)
        own = slice(row, row + 1)
        model.add(dataset.X[own], dataset.y[own], subjects=[row])

    return add


def correction_stream(dataset: Dataset) -> Action:
    """Return what replaces the next person's row, in one request and one release."""
    model = growing_model(dataset)
    order = iter(request_order(len(dataset) - BLOCKS * BLOCK).tolist())

    def correct() -> None:
        row = next(order)
        own = slice(row, row + 1)
        added = read_addition(
            model,
            snapshot_of(model),
            0.9 * dataset.X[own],
            dataset.y[own],
            sample_weight=None,
        )
        private = private_model(model)
        assert private.training_rows is not None
        gone = private.training_rows.find({str(row)})
        after = replace_places(private, gone, added=added, owners=[str(row)])
        set_snapshot(model, snapshot_of(model).release(after))

    return correct


def removal_stream(dataset: Dataset) -> Action:
    """Return what removes the next row from a private model, and finds its radius."""
    objective = Objective(Logistic(), L2(), alpha=ALPHA)
    rows = objective.rows(dataset.X, dataset.y)
    budget = Budget(sigma=SIGMA)
    models = [PrivateModel.fit(objective, rows, mechanism=Newton(), budget=budget)]
    order = iter(request_order(len(dataset)).tolist())

    def remove() -> None:
        row = next(order)
        models[0] = models[0].forget(rows.take(slice(row, row + 1)))

    return remove


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield the stream of requests, alone and beside neighbours."""
    dataset = mnist_3_vs_8(data_dir)
    size = dataset.X.shape[1]
    yield alone(dataset, size)
    yield growing(dataset, size)
    yield beside_neighbours(dataset, size)


def alone(dataset: Dataset, size: int) -> Section:
    """Time requests on a machine that does nothing else."""
    goals: dict[str, tuple[float, Callable[[], Action]]] = {
        "removal with its radius": (12.0, partial(removal_stream, dataset)),
        "request, no rows kept": (
            25.0,
            partial(estimator_stream, dataset, keep_data=False),
        ),
        "request, rows kept": (
            25.0,
            partial(estimator_stream, dataset, keep_data=True),
        ),
    }
    rows, targets, notes = [], [], []
    for name, (most, make) in goals.items():
        progress(f"{BLOCKS * BLOCK} times a {name}")
        seconds = take_blocks({name: make(), PRODUCT: bare_product(size)})
        times = {one: Measurement.of(one, taken) for one, taken in seconds.items()}
        rows += [times[name], times[PRODUCT]]
        ratio = times[name].over(times[PRODUCT])
        targets.append(Target(f"{name} / {PRODUCT}", ratio, high=most))
        rate = len(seconds[name]) / sum(seconds[name])
        if name != "removal with its radius":
            targets.append(Target(f"{name}, a second", rate, low=1000))
        notes.append(f"{name}: {rate:.0f} a second on average, folding included")
    return Section(
        f"A stream of certified requests, d = {size}",
        [timings_table(rows)],
        targets,
        notes,
    )


def growing(dataset: Dataset, size: int) -> Section:
    """Time rows that come, and corrections, in turns with removals."""
    progress(f"{BLOCKS * BLOCK} additions and corrections")
    actions = {
        "removal": estimator_stream(dataset, keep_data=True),
        "addition": addition_stream(dataset),
        "correction": correction_stream(dataset),
    }
    seconds = take_blocks(actions)
    times = {name: Measurement.of(name, taken) for name, taken in seconds.items()}
    ratios = {name: times[name].over(times["removal"]) for name in times}
    means = {
        name: np.mean(seconds[name]) / np.mean(seconds["removal"]) for name in times
    }
    return Section(
        f"Rows that come, beside rows that leave, d = {size}",
        [timings_table(list(times.values()))],
        [
            Target("addition / removal", ratios["addition"], high=1.2),
            Target("correction / removal", ratios["correction"], high=2.5),
        ],
        [
            "a correction removes a person's row and adds another, in one release",
            f"by means: addition {means['addition']:.2f} times a removal, correction "
            f"{means['correction']:.2f} times",
        ],
    )


@contextmanager
def neighbours(n_busy: int) -> Iterator[None]:
    """Keep so many processes busy with something else."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(n_busy)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def beside_neighbours(dataset: Dataset, size: int) -> Section:
    """Time requests with all threads allowed, with and without busy neighbours."""
    progress(f"requests beside {NEIGHBOURS} busy neighbours")
    cores = cpu_count() or 1
    rows: list[Measurement] = []
    means: dict[str, float] = {}
    request = estimator_stream(dataset, keep_data=False)
    actions: dict[str, Action] = {"request": request, PRODUCT: bare_product(size)}
    with threadpool_limits(limits=cores, user_api="blas"):
        for place, n_busy in (("alone", 0), ("beside neighbours", NEIGHBOURS)):
            with neighbours(n_busy):
                seconds = take_blocks(actions)
            for name, taken in seconds.items():
                means[f"{name}, {place}"] = float(np.mean(taken))
                rows.append(Measurement.of(f"{name}, {place}", taken))
    slower = {
        name: means[f"{name}, beside neighbours"] / means[f"{name}, alone"]
        for name in actions
    }
    # Each gets a part of the processors: whatever they share fairly is no loss.
    fair = max(1.0, (NEIGHBOURS + 1) / cores)
    return Section(
        f"The same with {cores} threads of BLAS, beside {NEIGHBOURS} busy neighbours",
        [timings_table(rows)],
        [
            Target(
                "request: mean beside neighbours / alone",
                slower["request"],
                high=2.0 * fair,
            )
        ],
        [
            f"a {PRODUCT} on {cores} threads takes {slower[PRODUCT]:.1f} times as long "
            "beside neighbours, on average",
            f"{fair:.2g} times is what sharing the processors costs anyone",
        ],
    )
