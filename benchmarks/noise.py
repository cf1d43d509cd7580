# SPDX-License-Identifier: Apache-2.0
"""How long a release waits for its noise, and how long it takes to draw.

Secure noise for 784 parameters, sigma 0.1. Between requests a background thread
draws vectors ahead: the wait of a request that finds one, of one that finds none, and
the rate that requests without a pause can keep up. Then the draw itself, from tables
and by OpenDP, in turns.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from expunge.core.arrays import Vector
from expunge.promise.budget import Budget
from expunge.promise.noise import (
    OpenDpSampler,
    SecureNoise,
    pool_size,
    random_bytes,
)
from expunge.promise.sampler import TableSampler

from .report import Section, Target, timings_table
from .timing import Action, Measurement, collection_off, progress, take_turns, time_call

PARAMETERS = 784
SIZES = {784: 40, 7840: 8}  # parameters: draws of each sampler
FASTER = 30.0
POOL = pool_size(PARAMETERS)
WARM, COLD, IN_A_ROW = 500, 50, 300
TARGET = 2.0  # milliseconds


def secure() -> SecureNoise:
    """Return a source of noise with nothing drawn yet."""
    budget = Budget()
    return SecureNoise(budget.sigma, budget.grid)


def wait_until_full(noise: SecureNoise) -> None:
    """Wait, off the clock, until the background thread has nothing to do."""
    while 2 * noise.ready <= POOL:
        time.sleep(1e-3)


def warm() -> list[float]:
    """Time requests that find the pool full, one after another."""
    noise, seconds = secure(), []
    noise.prepare(PARAMETERS)
    with collection_off():
        for _ in range(WARM):
            wait_until_full(noise)
            seconds.append(time_call(partial(noise.draw, PARAMETERS))[1])
    return seconds


def cold() -> list[float]:
    """Time the first request of a source that was not prepared."""
    seconds = []
    for _ in range(COLD):
        noise = secure()
        with collection_off():
            seconds.append(time_call(partial(noise.draw, PARAMETERS))[1])
        wait_until_full(noise)  # or the next one would share the processor with it
    return seconds


def in_a_row() -> float:
    """Return the time of one request when each follows the last at once."""
    noise = secure()
    for _ in range(POOL + 1):
        noise.draw(PARAMETERS)
    _, taken = time_call(lambda: [noise.draw(PARAMETERS) for _ in range(IN_A_ROW)])
    wait_until_full(noise)
    return taken / IN_A_ROW


def draws() -> Section:
    """Return the time of a draw from tables and of one by OpenDP."""
    budget = Budget()
    scale = budget.sigma / budget.grid
    samplers: dict[str, Callable[[int], Vector]] = {
        "tables": TableSampler(scale, random_bytes),
        "opendp": OpenDpSampler(scale),
    }
    rows, targets = [], []
    for size, repeats in SIZES.items():
        actions: dict[str, Action] = {
            f"{name}, d = {size}": partial(sampler, size)
            for name, sampler in samplers.items()
        }
        table, opendp = take_turns(actions, repeats).values()
        rows += [table, opendp]
        ratio = opendp.over(table)
        targets.append(Target(f"opendp / tables, d = {size}", ratio, low=FASTER))
    return Section("Drawing secure noise", [timings_table(rows, "ms")], targets)


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield the wait for noise, and what it takes to draw it."""
    del data_dir
    progress(f"secure noise, d = {PARAMETERS}")
    waits = warm()
    full = Measurement.of("a vector is ready", waits)
    empty = Measurement.of("the first, not prepared", cold())
    each = in_a_row()
    late, slowest = (1e3 * float(np.quantile(waits, q)) for q in (0.99, 1.0))
    yield Section(
        f"Wait of a release for secure noise, d = {PARAMETERS}",
        [timings_table([full, empty], "ms")],
        [
            Target("wait when a vector is ready [ms]", 1e3 * full.median, high=TARGET),
            Target("the same, 99 of 100 [ms]", late, high=TARGET),
        ],
        [
            f"without a pause {1.0 / each:.0f} releases a second, {1e3 * each:.1f} ms "
            "each",
            f"the slowest of {WARM} with a vector ready waited {slowest:.3g} ms",
            f"{POOL} vectors are kept ahead; a burst of so many finds one each",
        ],
    )
    yield draws()
