# SPDX-License-Identifier: Apache-2.0
"""Run cases in several processes until enough is checked."""

import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from unittest.mock import patch
from zlib import crc32

import numpy as np

from expunge import ExpungeError
from expunge.core import linalg

from .judge import Checker, Tally

# Which module attacks what: its attack(rng, checker), or the function after the colon.
KINDS: Mapping[str, str] = {
    "core": "core",
    "parity": "parity",
    "looks": "looks",
    "streams": "streams",
    "targets": "targets",
    "responses": "responses",
    "survival": "survival",
    "adopted": "adopted",
    "lifted": "lifted",
    "wide": "wide",
    "pipelines-mean": "pipelines:attack_mean",
    "pipelines-sum": "pipelines:attack_sum",
    "bins": "pipelines:attack_bins",
    "curves": "pipelines:attack_curves",
    "means": "pipelines:attack_means",
    "splits": "splits",
    "inputs": "inputs",
    "tuned": "tuned",
    "registry": "registries",
    "classes": "classes",
    "balanced": "worlds:attack_balanced",
    "cards": "worlds:attack_cards",
    "interrupts": "interrupts",
    "threads": "threads",
    "claims": "claims",
    "exact": "exact",
    "long": "engines:attack_long",
    "dask": "engines:attack_dask",
    "device": "engines:attack_device",
}

Attack = Callable[[np.random.Generator, Checker], None]

SHOWN = 20  # violations of a kind that are printed
TELL = 30.0  # seconds between lines of progress
SLICE = 5.0  # seconds of one kind, before the next one's turn
CASES = 100_000  # more than a slice has time for


@dataclass(frozen=True)
class Limits:
    """When to stop: after so many seconds in all, or checks of each kind."""

    seconds: float
    checks: int | None = None


def attack_of(kind: str) -> Attack:
    """Return the function that attacks this kind."""
    module, _, name = KINDS[kind].partition(":")
    found: Attack = getattr(import_module(f"{__package__}.{module}"), name or "attack")
    return found


def case(kind: str, seed: int, number: int, tally: Tally | None = None) -> Tally:
    """Return the tally of one case, which depends on these numbers alone."""
    tally = Tally() if tally is None else tally
    rng = np.random.default_rng([seed, crc32(kind.encode()), number])
    checker = Checker(f"--only {kind} --seed {seed} --case {number}", tally)
    tally.cases += 1
    # In every other case even small matrices keep recent rows beside them.
    large = 1 if number % 2 else linalg.LARGE
    with (
        warnings.catch_warnings(),
        patch.object(linalg, "LARGE", large),
        checker.note_refusals((ExpungeError,)),
    ):
        warnings.simplefilter("ignore")
        attack_of(kind)(rng, checker)
    return tally


def some_cases(
    kind: str, seed: int, numbers: range, seconds: float
) -> tuple[Tally, float]:
    """Return the tally of as many cases as there is time for, and the time it took."""
    tally, begun = Tally(), time.monotonic()
    for number in numbers:
        if time.monotonic() - begun > seconds:
            break
        case(kind, seed, number, tally)
    return tally, time.monotonic() - begun


class Schedule:
    """Whose turn it is: the kind with the least time so far that needs checks.

    Parameters
    ----------
    kinds
        All of them.
    limits
        When to stop.
    """

    def __init__(self, kinds: Sequence[str], limits: Limits) -> None:
        self.tallies = {kind: Tally() for kind in kinds}
        self._spent = dict.fromkeys(kinds, 0.0)
        self._slices = dict.fromkeys(kinds, 0)
        self._limits, self._end = limits, time.monotonic() + limits.seconds

    def turn(self) -> tuple[str, range, float] | None:
        """Return a kind, its next cases and how long; None when it is time to stop."""
        left, enough = self._end - time.monotonic(), self._limits.checks
        wanting = [
            kind
            for kind, tally in self.tallies.items()
            if enough is None or tally.checks < enough
        ]
        if left <= 0.0 or not wanting:
            return None
        kind = min(wanting, key=self._spent.__getitem__)
        first = self._slices[kind] * CASES
        self._slices[kind] += 1
        self._spent[kind] += SLICE  # an estimate until it is measured
        return kind, range(first, first + CASES), min(SLICE, left)

    def take(self, kind: str, tally: Tally, seconds: float) -> None:
        """Add the result of one slice of time."""
        self.tallies[kind].add(tally)
        self._spent[kind] += seconds - SLICE


def run(
    kinds: Sequence[str], seed: int, processes: int, limits: Limits
) -> dict[str, Tally]:
    """Return the tallies of all kinds, each given its share of the time."""
    schedule, told = Schedule(kinds, limits), time.monotonic()
    running: dict[Future[tuple[Tally, float]], str] = {}
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        while True:
            while len(running) < processes and (turn := schedule.turn()) is not None:
                kind, numbers, seconds = turn
                running[pool.submit(some_cases, kind, seed, numbers, seconds)] = kind
            if not running:
                return schedule.tallies
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                kind, (tally, seconds) = running.pop(future), future.result()
                schedule.take(kind, tally, seconds)
                for violation in tally.violations[:SHOWN]:  # now: a later case may hang
                    print(violation, file=sys.stderr, flush=True)
            if time.monotonic() - told > TELL:
                told = time.monotonic()
                busy = ", ".join(sorted(set(running.values())))
                print(
                    f"{summary(schedule.tallies)}; at work: {busy}",
                    file=sys.stderr,
                    flush=True,
                )


def summary(tallies: Mapping[str, Tally]) -> str:
    """Return how many checks there were, and how many failed."""
    total = sum(tally.checks for tally in tallies.values())
    found = sum(len(tally.violations) for tally in tallies.values())
    return f"{total} checks, {found} violations"


def table(tallies: Mapping[str, Tally]) -> str:
    """Return what was found, a line for each kind, then every violation."""
    head = f"{'kind':16}{'cases':>8}{'checks':>9}{'undecided':>11}{'worst':>9}"
    lines = [f"{head}{'violations':>12}  refusals, decisions"]
    for kind, tally in tallies.items():
        told = ", ".join(f"{name} {n}" for name, n in tally.refusals.most_common(6))
        reached = ", ".join(f"{name} {n}" for name, n in tally.decisions.most_common(6))
        lines.append(
            f"{kind:16}{tally.cases:8}{tally.checks:9}{tally.undecided:11}"
            f"{tally.worst:9.4f}{len(tally.violations):12}  {told}; {reached}"
        )
    lines.append(summary(tallies))
    for tally in tallies.values():
        lines += tally.violations[:SHOWN]
    return "\n".join(lines)
