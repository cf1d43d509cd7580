# SPDX-License-Identifier: Apache-2.0
"""What certified releases are worth: test accuracy beside that of retraining.

MNIST 3 vs 8 and Warfarin, epsilon 1, delta 1e-5. Noise is seeded, and the
certificates say so. Accuracies of noised models are means over draws.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from expunge import L1, L2, Logistic, Newton, Objective, Rows
from expunge.core.solver import minimise
from expunge.private_model.model import PrivateModel
from expunge.promise.budget import Budget
from expunge.promise.noise import SeededNoise, round_to_grid
from expunge.promise.verification import verify

from .data import Dataset, mnist_3_vs_8, warfarin
from .report import Section, Table, Target, number
from .stream import request_order
from .timing import progress

DRAWS = 50
SINGLE = 5000
JOINT = 1000
N_TRAIN = 4422


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield streams of certified releases."""
    yield stream_without_rows(data_dir)
    yield joint_with_rows(data_dir)
    yield sparse_with_rows(data_dir)


def accuracy(theta: NDArray[np.float64], test: Rows) -> float:
    """Return the share of test rows on the right side."""
    return float(np.mean(np.where(test.dense() @ theta > 0.0, 1.0, -1.0) == test.y))


def noised_accuracy(model: PrivateModel, test: Rows) -> float:
    """Return the mean accuracy of what releases of this model look like."""
    budget, theta = model.budget, model.answer.draft.theta
    assert budget is not None
    centre = round_to_grid(theta, budget.grid)
    noises = (SeededNoise(budget.deviation, budget.grid, seed) for seed in range(DRAWS))
    return float(
        np.mean([accuracy(centre + noise.draw(theta.size), test) for noise in noises])
    )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Stream:
    """A stream of requests, each answered by a verified release."""

    model: PrivateModel
    n_certified: int
    decisions: Counter[str]
    seconds: float


def answer_requests(
    model: PrivateModel, rows: Rows, order: NDArray[np.intp], *, keep_rows: bool
) -> Stream:
    """Remove the rows in this order, releasing after each, and verify every paper."""
    budget = model.budget
    assert budget is not None
    noise, decisions = SeededNoise(budget.deviation, budget.grid, 0), Counter[str]()
    model, _, _ = model.release(noise)
    n_certified, begin_clock = 0, perf_counter()
    for done, row in enumerate(order.tolist()):
        remaining = partial(rows.without, order[: done + 1]) if keep_rows else None
        removed = rows.take(slice(row, row + 1))
        model = model.forget(removed, remaining=remaining, overwrite=not keep_rows)
        model, public, record = model.release(noise)
        decisions[record.decisions[0]] += 1
        valid = verify(public.certificate, record).valid
        n_certified += valid and public.certificate.status == "certified"
    return Stream(model, n_certified, decisions, perf_counter() - begin_clock)


def describe_stream(
    stream: Stream, rows: Rows, test: Rows, order: NDArray[np.intp]
) -> Table:
    """Return the stream beside retraining as a table."""
    model = stream.model
    kept = 1.0 - len(order) / len(rows)
    retrained = minimise(model.objective.after(kept), rows.without(order)).theta
    lines = [
        ("retrained, no noise", f"{accuracy(retrained, test):.4f}"),
        ("ours, no noise", f"{accuracy(model.answer.draft.theta, test):.4f}"),
        (f"released, mean of {DRAWS} draws", f"{noised_accuracy(model, test):.4f}"),
        ("releases certified and verified", f"{stream.n_certified} of {len(order)}"),
        *((f"decisions: {name}", str(n)) for name, n in stream.decisions.items()),
        ("time of a request [ms]", number(1e3 * stream.seconds / len(order))),
    ]
    return Table(("last release", "test accuracy"), lines)


def split(objective: Objective, train: Dataset, test: Dataset) -> tuple[Rows, Rows]:
    """Return training and test rows."""
    return objective.rows(train.X, train.y), objective.rows(test.X, test.y)


def mnist(data_dir: Path | None) -> tuple[Objective, Rows, Rows]:
    """Return the objective of the MNIST streams, with training and test rows."""
    objective = Objective(Logistic(), L2(), alpha=1e-3)
    train, test = mnist_3_vs_8(data_dir), mnist_3_vs_8(data_dir, test=True)
    return objective, *split(objective, train, test)


def stream_without_rows(data_dir: Path | None) -> Section:
    """Return 5000 single requests answered from the state alone."""
    progress(f"{SINGLE} certified releases without rows")
    objective, rows, held_out = mnist(data_dir)
    budget = Budget(sigma=0.5, allow_seeded=True)
    order = request_order(len(rows))[:SINGLE]
    model = PrivateModel.fit(objective, rows, mechanism=Newton(), budget=budget)
    stream = answer_requests(model, rows, order, keep_rows=False)
    return Section(
        f"MNIST, Newton, no rows kept, {SINGLE} of {len(rows)} removed one by one",
        [describe_stream(stream, rows, held_out, order)],
        [
            Target("releases certified", stream.n_certified, low=SINGLE),
            Target(
                "mean accuracy of the last release",
                noised_accuracy(stream.model, held_out),
                low=0.945,
            ),
        ],
        ["sigma 0.5, (1, 1e-5) for each release on its own"],
    )


def joint_with_rows(data_dir: Path | None) -> Section:
    """Return 1000 releases under one joint promise, rows at hand."""
    progress(f"{JOINT} releases under one promise")
    objective, rows, held_out = mnist(data_dir)
    budget = Budget(sigma=0.1, releases=JOINT, allow_seeded=True)
    order = request_order(len(rows))[: JOINT - 1]  # the fit is released too
    model = PrivateModel.fit(objective, rows, mechanism=Newton(), budget=budget)
    stream = answer_requests(model, rows, order, keep_rows=True)
    return Section(
        f"MNIST, Newton, rows kept, {JOINT} releases jointly",
        [describe_stream(stream, rows, held_out, order)],
        [
            Target("releases certified", stream.n_certified, low=len(order)),
            loss_in_points(stream, rows, held_out, order, 0.2),
        ],
        ["sigma 0.1, (1, 1e-5) for all releases together"],
    )


def sparse_with_rows(data_dir: Path | None) -> Section:
    """Return 1000 removals from a sparse Warfarin model, rows at hand."""
    progress("1000 releases of a sparse model")
    objective = Objective(Logistic(), L1(), alpha=4e-4, ridge=1e-4, intercept=True)
    patients = unit_rows(warfarin(data_dir))
    index = np.random.default_rng(1).permutation(len(patients))
    parts = (index[:N_TRAIN], index[N_TRAIN:])
    train, test = (Dataset(patients.X[part], patients.y[part]) for part in parts)
    rows, held_out = split(objective, train, test)
    budget = Budget(sigma=0.1, allow_seeded=True)
    order = request_order(len(rows))[:1000]
    model = PrivateModel.fit(objective, rows, mechanism=Newton(), budget=budget)
    stream = answer_requests(model, rows, order, keep_rows=True)
    return Section(
        f"Warfarin, L1, rows kept, 1000 of {len(rows)} removed one by one",
        [describe_stream(stream, rows, held_out, order)],
        [
            Target("releases certified", stream.n_certified, low=len(order)),
            loss_in_points(stream, rows, held_out, order, 0.5),
        ],
        [
            "sigma 0.1, (1, 1e-5) for each release on its own",
            "rows divided by their norm, like MNIST's: noise moves a predictor by "
            "sigma |x|, so that rows as encoded (norm 7) would lose 4 points",
        ],
    )


def unit_rows(dataset: Dataset) -> Dataset:
    """Return the dataset with each row divided by its norm."""
    norms = np.linalg.norm(dataset.X, axis=1, keepdims=True)
    return Dataset(dataset.X / norms, dataset.y)


def loss_in_points(
    stream: Stream, rows: Rows, test: Rows, order: NDArray[np.intp], allowed: float
) -> Target:
    """Return what the released model loses against retraining, in points."""
    kept = 1.0 - len(order) / len(rows)
    objective = stream.model.objective.after(kept)
    retrained = accuracy(minimise(objective, rows.without(order)).theta, test)
    lost = 100.0 * (retrained - noised_accuracy(stream.model, test))
    return Target("points of accuracy lost to noise and removal", lost, high=allowed)
