# SPDX-License-Identifier: Apache-2.0
"""Run the benchmarks: parse, run, print."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from threadpoolctl import threadpool_limits

from . import (
    adult,
    advice,
    aliases,
    audit,
    bins,
    categories,
    cluster,
    defaults,
    drop,
    environment,
    exact,
    looks,
    many,
    noise,
    radii,
    registry,
    release,
    requests,
    scaling,
    speed,
    startup,
    table,
    tables,
    tuning,
    warfarin,
)
from .data import DataNotFound
from .long_tables import run as long_tables
from .report import Section, Target, verdict
from .timing import progress
from .wide import run as wide

BENCHMARKS: dict[str, Callable[[Path | None], Iterator[Section]]] = {
    "environment": lambda data_dir: iter(()),
    "table": table.run,
    "speed": speed.run,
    "warfarin": warfarin.run,
    "scaling": scaling.run,
    "noise": noise.run,
    "requests": requests.run,
    "radii": radii.run,
    "release": release.run,
    "audit": audit.run,
    "adult": adult.run,
    "advice": advice.run,
    "defaults": defaults.run,
    "tables": tables.run,
    "looks": looks.run,
    "categories": categories.run,
    "bins": bins.run,
    "exact": exact.run,
    "tuning": tuning.run,
    "registry": registry.run,
    "many": many.run,
    "aliases": aliases.run,
    "drop": drop.run,
    "startup": startup.run,
    "wide": wide.run,
    "long-tables": long_tables.run,
    "cluster": cluster.run,
}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure what expunge claims; figures not reached are named.",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=BENCHMARKS,
        metavar="NAME",
        help=f"run this alone (repeatable): {', '.join(BENCHMARKS)}",
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        help="folder with mnist/ and warfarin/; otherwise EXPUNGE_DATA names it",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks asked for and print what they found."""
    options = parse(arguments)
    targets: list[Target] = []
    with threadpool_limits(limits=1):
        print(environment.describe(), flush=True)
        for name in options.only or BENCHMARKS:
            progress(name)
            for section in BENCHMARKS[name](options.data_dir):
                print(section, flush=True)
                targets += section.targets
    if targets:
        print(verdict(targets))
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except DataNotFound as error:
        raise SystemExit(f"benchmarks: {error}") from None
