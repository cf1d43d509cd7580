# SPDX-License-Identifier: Apache-2.0
"""Strike a registry in every way that we know of, and see that nothing is lost.

Its processes, its server and its power are killed, its locks are lost, its journals
damaged, its disks filled; and nobody who was forgotten comes back.
"""

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.stores import STORES

from .calls import can_record
from .columns import KINDS, Column, tallies
from .sabotage import SABOTAGES
from .trial import N_STEPS, Course, Tally

Results = dict[str, Tally]
REPORTS = 60.0  # seconds between lines of progress in a file
DETAILS = re.compile(r"/\S+|[0-9a-f]{8,}|asks-[\d-]+|stays-\d+|\(.*\)|\d+")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    add = parser.add_argument
    add("--store", choices=STORES, action="append", help="where; both if not given")
    for name, kind in KINDS.items():
        add(f"--{name}", type=int, default=0, help=f"{kind.what}, in each store")
    add("--only", choices=KINDS, action="append", help="strikes of this kind")
    add("--seed", type=int, default=0, help="of stories and moments")
    add("--steps", type=int, default=N_STEPS, help="of a story")
    add("--jobs", type=int, default=1, help="kinds that run at the same time")
    add("--keep-going", action="store_true", help="count violations, do not stop")
    add("--sabotage", choices=SABOTAGES, help="break the registry on purpose")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Strike as often as asked; return 1 if anything does not hold."""
    options = parse(arguments)
    if options.power_losses and not can_record():
        raise SystemExit(
            "a power loss needs a record of calls, and strace is not there or not "
            "allowed: apt install strace, or leave --power-losses away"
        )
    columns = list(_columns(options))
    progress = Progress()
    results: Results = {str(column): Tally() for column in columns}
    for column, tally in tallies(columns, options.jobs):
        results[str(column)] = tally
        progress.say(", ".join(_counts(columns, results)))
    progress.say("")
    print(*tables(results), sep="\n\n", end="\n\n")
    print(totals(results))
    for name, tally in results.items():
        for complaint in summary(tally.complaints):
            print(f"{name}: {complaint}")
    return int(any(tally.complaints for tally in results.values()))


def _columns(options: argparse.Namespace) -> Iterator[Column]:
    """Yield what to strike, where, and how often."""
    for name, kind in KINDS.items():
        n_strikes = getattr(options, name.replace("-", "_"))
        if not n_strikes or (options.only and name not in options.only):
            continue
        course = Course(n_strikes, options.seed, options.steps, options.keep_going)
        for store in options.store or STORES:
            if store in kind.stores:
                yield Column(store, name, course, SABOTAGES.get(options.sabotage))


def tables(results: Results) -> Iterator[str]:
    """Yield for each kind what was struck when, with a column for each store."""
    for kind in dict.fromkeys(name.partition(", ")[2] for name in results):
        yield table(
            {name: results[name] for name in results if name.endswith(f", {kind}")}
        )


def table(results: Results) -> str:
    """Return what was struck when, one column for each kind of strike."""
    tallies = list(results.values())
    lines: dict[str, list[int]] = {}
    for phase in sorted({phase for tally in tallies for phase in tally.strikes}):
        lines[phase] = [tally.strikes[phase] for tally in tallies]
    lines["strikes"] = [tally.n_strikes for tally in tallies]
    for stage in sorted({stage for tally in tallies for stage in tally.found}):
        lines[f"then found: {stage}"] = [tally.found[stage] for tally in tallies]
    lines["requests"] = [tally.n_requests for tally in tallies]
    lines["stories"] = [tally.n_stories for tally in tallies]
    lines["violations"] = [len(tally.complaints) for tally in tallies]
    width = max(map(len, lines))
    written = ["  ".join(["struck while".ljust(width), *results])]
    for name, figures in lines.items():
        cells = [f"{n:{len(head)}}" for n, head in zip(figures, results, strict=True)]
        written.append("  ".join([name.ljust(width), *cells]))
    return "\n".join(written)


def totals(results: Results) -> str:
    """Return in a sentence what there was in all."""
    counts: Counter[str] = Counter()
    for name, tally in results.items():
        counts[name.partition(", ")[2].replace("-", " ")] += tally.n_strikes
    said = ", ".join(f"{n} {kind}" for kind, n in counts.items())
    return (
        f"{said}: {sum(len(tally.complaints) for tally in results.values())} violations"
    )


def summary(complaints: Sequence[str]) -> list[str]:
    """Return the first of all complaints that differ in details alone, and a count."""
    kinds: dict[str, list[str]] = {}
    for complaint in complaints:
        kinds.setdefault(DETAILS.sub("...", complaint.partition("\n")[0]), []).append(
            complaint
        )
    return [
        f"{first} ({len(rest)} more like this)" if rest else first
        for first, *rest in kinds.values()
    ]


def _counts(columns: Sequence[Column], results: Results) -> Iterator[str]:
    for column in columns:
        done = results[str(column)].n_strikes
        if 0 < done < column.course.n_strikes:
            yield f"{column}: {done} of {column.course.n_strikes}"


class Progress:
    """Says how far everything is: all the time on a terminal, else now and then."""

    def __init__(self) -> None:
        self._due = time.monotonic() + REPORTS

    def say(self, text: str) -> None:
        """Say it, if it is time to."""
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() > self._due:
            self._due = time.monotonic() + REPORTS
            print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
