# SPDX-License-Identifier: Apache-2.0
"""How long a removal takes, beside retraining and beside the machine's limit.

MNIST 3 vs 8 (11982 x 784), logistic loss, L2, alpha 1e-3. Everything is a ratio
of medians measured in this run, each rival in turn with what it is compared with.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import sleep

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from expunge import L2, Jackknife, Logistic, Newton, Objective, Rows, State, summarise
from expunge.core.linalg import Symmetric
from expunge.core.solver import minimise
from expunge.private_model.model import PrivateModel
from expunge.promise.budget import Budget
from expunge.promise.noise import SecureNoise, make_noise
from expunge.removal import Mechanism

from . import blas_calls
from .data import Dataset, mnist_3_vs_8
from .report import Section, Table, Target, number, timings_table
from .rivals import (
    Contest,
    compete,
    factor_and_invert,
    factor_and_solve,
    fresh_hessian,
    retrainings,
)
from .stream import Stream, request_order
from .timing import Action, Measurement, collection_off, progress, take_turns, time_call

REQUESTS = 300
RETRAININGS = 5
BLOCKS = 10
BATCH = 5000
BATCHES = 7
ALPHA = 1e-3

NEWTON = "Newton removal"
BARE = "the BLAS calls it makes"


@dataclass(frozen=True, slots=True)
class Bench:
    """The fitted model that every measurement starts from."""

    dataset: Dataset
    rows: Rows
    summary: State
    order: NDArray[np.intp]

    def stream(self, mechanism: Mechanism, *, measured: bool = False) -> Stream:
        """Return a fresh stream of requests."""
        return Stream(
            mechanism, self.summary, self.dataset, self.order, measured=measured
        )


def prepare(data_dir: Path | None) -> Bench:
    """Read the data and fit the model."""
    dataset = mnist_3_vs_8(data_dir)
    objective = Objective(Logistic(), L2(), alpha=ALPHA)
    rows = objective.rows(dataset.X, dataset.y)
    progress("fitting all rows")
    summary = summarise(objective, rows, theta=minimise(objective, rows).theta)
    return Bench(dataset, rows, summary, request_order(len(dataset)))


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield removals, then retraining, batches and the limit of the machine."""
    bench = prepare(data_dir)
    jackknife, section = jackknife_limit(bench)
    yield section
    newton, section = newton_limit(bench)
    yield section
    yield certified_removals(bench, jackknife, newton)
    yield against_retraining(bench, jackknife)
    yield against_fresh_hessian(bench, jackknife)
    yield in_batches(bench, jackknife, newton)


def jackknife_limit(bench: Bench) -> tuple[Measurement, Section]:
    """Time Jackknife removals, each followed by one bare product of the same size."""
    progress(f"{REQUESTS} Jackknife removals")
    stream = bench.stream(Jackknife(certified=False))
    known = stream.state.preconditioner
    assert isinstance(known, Symmetric)
    inverse, vector = known.lower[0], bench.summary.sums.gradient
    times = take_turns(
        {
            "Jackknife removal": stream,
            "bare dsymv": partial(blas.dsymv, 1.0, inverse, vector, lower=1),
        },
        REQUESTS,
    )
    removal = times["Jackknife removal"]
    ratio = removal.over(times["bare dsymv"])
    return removal, Section(
        "Jackknife(certified=False), from a raw row to coefficients",
        [timings_table(times.values())],
        [Target("Jackknife removal / one bare dsymv", ratio, high=1.5)],
    )


def newton_limit(bench: Bench) -> tuple[Measurement, Section]:
    """Time Newton removals, and in turn with them the bare BLAS calls they make.

    Blocks of removals alternate with blocks of replayed calls: one by one, each
    would find its matrices driven out of the cache by the other's.
    """
    progress(f"{REQUESTS} Newton removals, and their BLAS calls")
    stream = bench.stream(Newton(certified=False))
    seconds: dict[str, list[float]] = {NEWTON: [], BARE: []}
    counts: Counter[str] = Counter()
    with collection_off():
        for _ in range(BLOCKS):
            seconds[NEWTON] += time_block(stream)
            with blas_calls.record_calls() as calls:
                stream()
            counts += blas_calls.tally(calls)
            bare = blas_calls.on_scratch(calls)
            seconds[BARE] += time_block(partial(blas_calls.play, bare))
    times = {name: Measurement.of(name, taken) for name, taken in seconds.items()}
    removal = times[NEWTON]
    made = ", ".join(f"{n / BLOCKS:.1f} {name}" for name, n in counts.items())
    return removal, Section(
        "Newton(certified=False), from a raw row to coefficients",
        [timings_table(times.values())],
        [Target(f"{NEWTON} / {BARE}", removal.over(times[BARE]), high=2.0)],
        [
            f"calls a removal, on average: {made}; recorded with their arguments at "
            f"{BLOCKS} requests along the stream and played back bare",
        ],
    )


def time_block(action: Action) -> list[float]:
    """Return the times of one block of runs, after two to warm up."""
    return [time_call(action)[1] for _ in range(2 + REQUESTS // BLOCKS)][2:]


def certified_removals(
    bench: Bench, jackknife: Measurement, newton: Measurement
) -> Section:
    """Time removals that keep what a certificate needs, residual included."""
    progress(f"{REQUESTS} certified removals of each kind")
    streams = [bench.stream(Jackknife()), bench.stream(Newton())]
    measured = [
        bench.stream(Jackknife(), measured=True),
        bench.stream(Newton(), measured=True),
    ]
    actions: list[Action] = [*streams, *measured, *(item.read for item in streams)]
    kinds = ("removal", "removal, residual computed", "noise-free read alone")
    names = [f"{name} {kind}" for kind in kinds for name in ("Jackknife()", "Newton()")]
    times: dict[str, Measurement] = {}
    for name, action in zip(names, actions, strict=True):
        times |= take_turns({name: action}, REQUESTS)
    releases = time_releases(bench)
    certified = times["Newton() removal"]
    same_kind = certified.over(times["Jackknife() removal"])
    return Section(
        "Certified removals beside the bare ones",
        [timings_table([jackknife, newton, *times.values(), *releases.values()])],
        [
            Target(
                "Newton(certified=False) / Jackknife(certified=False)",
                newton.over(jackknife),
                high=20,
            ),
        ],
        [
            f"Newton() is {certified.over(jackknife):.1f} times as slow as "
            f"Jackknife(certified=False), and {same_kind:.1f} times as Jackknife()",
        ],
    )


def time_releases(bench: Bench) -> dict[str, Measurement]:
    """Time certified releases after a removal, noise drawn ahead of need."""
    progress(f"{REQUESTS // 2} certified releases of each kind")
    budget = Budget(sigma=0.5, allow_seeded=True)
    objective, size = bench.summary.objective, bench.summary.anchor.size
    times: dict[str, Measurement] = {}
    for seed, kind in ((None, "secure noise"), (0, "seeded noise")):
        noise = make_noise(budget, seed)
        model = PrivateModel.fit(
            objective, bench.rows, mechanism=Newton(), budget=budget
        )
        requests, waits = [], []
        for row in bench.order[: REQUESTS // 2].tolist():
            if isinstance(noise, SecureNoise):
                noise.prepare(size)
                sleep(5e-3)
            removed = bench.rows.take(slice(row, row + 1))
            model, taken = time_call(partial(model.forget, removed, overwrite=True))
            requests.append(taken)
            (model, _, _), taken = time_call(partial(model.release, noise))
            waits.append(taken)
        name = f"Newton(), certified release alone, {kind}"
        times[name] = Measurement.of(name, waits)
    name = "Newton(), removal with its radius"
    return {name: Measurement.of(name, requests)} | times


def against_retraining(bench: Bench, jackknife: Measurement) -> Section:
    """Time every competent way of retraining without one row."""
    objective, requests = bench.summary.objective, bench.order[:RETRAININGS]
    contests = compete(retrainings(bench.summary), objective, bench.rows, requests)
    headers = ("retraining without one row", "start", "ms", "reached", "runs", "ratio")
    lines = [
        (*contest.cells, number(contest.time.over(jackknife)))
        for contest in contests.values()
    ]
    fastest = _fastest(list(contests.values()))
    newton_cg = contests["scikit-learn newton-cg"].time
    best = f"fastest competent cold retraining ({fastest.rival.name}) / Jackknife"
    return Section(
        "Against retraining",
        [Table(headers, lines)],
        [
            Target("newton-cg / Jackknife", newton_cg.over(jackknife), low=5000),
            Target(best, fastest.time.over(jackknife), low=5000),
        ],
        [
            "reached: largest norm of the gradient at the answer, in float64; "
            "competent is 1e-10 or less",
            "a warm start uses the old model, the last line its Hessian too: faster "
            "than any cold one, but it still reads all rows",
        ],
    )


def _fastest(contests: list[Contest]) -> Contest:
    """Return the fastest cold retraining that solved the problem."""
    able = [contest for contest in contests if contest.rival.cold and contest.competent]
    return min(able, key=lambda contest: contest.time.median)


def against_fresh_hessian(bench: Bench, jackknife: Measurement) -> Section:
    """Time the paper's TA: the Hessian of the remaining rows, made and factored."""
    progress("Newton with a fresh Hessian")
    theta, gradient = bench.summary.anchor, bench.summary.sums.gradient
    rest = bench.rows.without(bench.order[:1])
    times = take_turns(
        {
            "weights, dsyrk, Cholesky, inverse": lambda: factor_and_invert(
                fresh_hessian(rest, theta, ALPHA), gradient
            ),
            "weights, dsyrk, Cholesky, solve": lambda: factor_and_solve(
                fresh_hessian(rest, theta, ALPHA), gradient
            ),
        },
        2 * RETRAININGS,
    )
    printed, competent = (time.over(jackknife) for time in times.values())
    return Section(
        "Against the paper's TA (a fresh Hessian for each request)",
        [timings_table(times.values(), "ms")],
        [Target("TA, recomputed and inverted / Jackknife", printed, low=3000)],
        [
            f"with a solve instead of the inverse, TA / Jackknife is {competent:.0f}",
            "the gradient of the remaining rows is given to TA, not timed",
        ],
    )


def in_batches(bench: Bench, jackknife: Measurement, newton: Measurement) -> Section:
    """Time the removal of thousands of rows at once."""
    progress(f"batches of {BATCH} removals")
    batch = bench.order[:BATCH]
    names: dict[str, Mechanism] = {
        "Jackknife(certified=False), a row": Jackknife(certified=False),
        "Newton(certified=False), a row": Newton(certified=False),
    }
    streams = {name: bench.stream(mechanism) for name, mechanism in names.items()}
    times = take_turns(
        {name: partial(stream.forget_batch, batch) for name, stream in streams.items()},
        BATCHES,
    )
    shares = [times[name].per(BATCH) for name in names]
    singles = (jackknife, newton)
    return Section(
        f"{BATCH} removals in one batch",
        [timings_table(shares)],
        [
            Target(
                f"{single.name}: row of a batch / single", share.over(single), high=0.2
            )
            for share, single in zip(shares, singles, strict=True)
        ],
    )
