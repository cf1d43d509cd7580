# SPDX-License-Identifier: Apache-2.0
"""Timing: medians and quartiles of what is run side by side.

Ratios are only fair between things timed in the same minute on the same machine,
so rivals take turns in one loop. Garbage collection is off while a clock runs, as
in ``timeit``; everything else a caller would pay for is inside the clock.
"""

import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

Result = TypeVar("Result")
Action: TypeAlias = Callable[[], object]
Clock: TypeAlias = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds that something took: median and quartiles of n runs."""

    name: str
    median: float
    lower: float
    upper: float
    n: int

    @classmethod
    def of(cls, name: str, seconds: Sequence[float]) -> "Measurement":
        """Return the summary of these timings."""
        lower, median, upper = np.quantile(seconds, [0.25, 0.5, 0.75])
        return cls(name, float(median), float(lower), float(upper), len(seconds))

    def per(self, count: int) -> "Measurement":
        """Return the share of one of ``count`` items done in each run."""
        parts = (self.median / count, self.lower / count, self.upper / count)
        return Measurement(self.name, *parts, self.n)

    def over(self, other: "Measurement") -> float:
        """Return how many times the other's median this median is."""
        return self.median / other.median


@contextmanager
def collection_off() -> Iterator[None]:
    """Keep the garbage collector from running inside a timed loop."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def time_call(
    action: Callable[[], Result], clock: Clock = time.perf_counter
) -> tuple[Result, float]:
    """Return what one call returns and how long it took by this clock."""
    begin = clock()
    result = action()
    return result, clock() - begin


def take_turns(
    actions: Mapping[str, Action], repeats: int, *, warm_up: int = 1
) -> dict[str, Measurement]:
    """Time each action ``repeats`` times, in turn, and return them by name."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    with collection_off():
        for turn in range(-warm_up, repeats):
            for name, action in actions.items():
                _, elapsed = time_call(action)
                if turn >= 0:
                    seconds[name].append(elapsed)
    return {name: Measurement.of(name, taken) for name, taken in seconds.items()}


def progress(message: str) -> None:
    """Say on stderr what is being worked on."""
    print(f"  ... {message}", file=sys.stderr, flush=True)
