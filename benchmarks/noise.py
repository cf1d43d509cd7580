# SPDX-License-Identifier: Apache-2.0
"""How long a release waits for its noise.

Secure noise for 784 parameters, sigma 0.1. Between requests a background thread draws
the next vector: the wait of a request that finds it, of one that finds none, and the
rate that requests without a pause can keep up.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from expunge.promise.budget import Budget
from expunge.promise.noise import SecureNoise

from .report import Section, Target, timings_table
from .timing import Measurement, collection_off, progress, time_call

PARAMETERS = 784
WARM, COLD, IN_A_ROW = 500, 50, 300
PAUSE = 5e-3  # seconds, in which a vector is drawn many times over
TARGET = 2.0  # milliseconds


def secure() -> SecureNoise:
    """Return a source of noise with nothing drawn yet."""
    budget = Budget(sigma=0.1)
    return SecureNoise(budget.deviation, budget.grid)


def warm() -> list[float]:
    """Time requests that find a vector, one after another."""
    noise, seconds = secure(), []
    noise.prepare(PARAMETERS)
    with collection_off():
        for _ in range(WARM):
            time.sleep(PAUSE)
            seconds.append(time_call(partial(noise.draw, PARAMETERS))[1])
    return seconds


def cold() -> list[float]:
    """Time the first request of a source that was not prepared."""
    seconds = []
    for _ in range(COLD):
        noise = secure()
        with collection_off():
            seconds.append(time_call(partial(noise.draw, PARAMETERS))[1])
        time.sleep(PAUSE)  # or the next one would share the processor with it
    return seconds


def in_a_row() -> float:
    """Return the time of one request when each follows the last at once."""
    noise = secure()
    noise.draw(PARAMETERS)
    _, taken = time_call(lambda: [noise.draw(PARAMETERS) for _ in range(IN_A_ROW)])
    return taken / IN_A_ROW


def run(data_dir: Path | None = None) -> Iterator[Section]:
    """Yield the wait for noise."""
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
        ],
    )
