# SPDX-License-Identifier: Apache-2.0
"""Attack every promise with random problems and an independent oracle."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.thorough import VARIABLE

from .engines import available
from .running import KINDS, Limits, case, run, table

ROOT = Path(__file__).parents[2]
# Tests of what holds for every combination, or at any seed: alone they take a part.
LAWS = (
    *("tests/laws", "tests/test_radius.py"),
    *("tests/test_range.py", "tests/test_registry_machine.py"),
)


def hold_laws(processes: int) -> int:
    """Hold every combination against every law; return 1 if one fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(processes), *LAWS]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {VARIABLE: "1"})
    return int(done.returncode != 0)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    add = parser.add_argument
    add(
        "--minutes",
        type=float,
        default=10.0,
        help="how long to run, all kinds together",
    )
    add("--checks", type=int, help="stop a kind after so many checks")
    add("--seed", type=int, default=1, help="seed of all problems and requests")
    add("--processes", type=int, default=2, help="number of processes")
    add("--kinds", nargs="+", choices=KINDS, default=KINDS, help="what to attack")
    add("--only", choices=KINDS, help="one kind, as a violation names it")
    add("--case", type=int, help="one case of --only, as a violation names it")
    add("--mutants", nargs="*", help="break the package on purpose; all, or by name")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack as long as asked; return 1 if a check fails."""
    options = parse(arguments)
    if options.mutants is not None:
        from .mutants import hunt

        return hunt(options.mutants, options.seed)
    kinds = [options.only] if options.only else list(filter(available, options.kinds))
    if options.case is not None:
        tally = case(kinds[0], options.seed, options.case)
        print(table({kinds[0]: tally}))
        return int(bool(tally.violations))
    # First, and in time of their own: they are all of them or nothing.
    everything = not options.only and options.kinds is KINDS
    broken = hold_laws(options.processes) if everything else 0
    limits = Limits(60.0 * options.minutes, options.checks)
    begun = time.monotonic()
    tallies = run(kinds, options.seed, options.processes, limits)
    print(table(tallies))
    print(f"{time.monotonic() - begun:.0f} s on {options.processes} processes")
    return int(broken or any(tally.violations for tally in tallies.values()))


if __name__ == "__main__":
    raise SystemExit(main())
