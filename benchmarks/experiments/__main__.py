# SPDX-License-Identifier: Apache-2.0
"""Run the experiments: parse, run, print."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from expunge.exceptions import MissingExtra

from ..data import DataNotFound
from ..report import verdict
from ..timing import progress
from .run import Request, run
from .settings import WORDS

RESULTS = Path(__file__).parents[1] / "results"


def parse(arguments: Sequence[str] | None = None) -> Request:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.experiments",
        description="Run the paper's experiments and the comparison; write results and "
        "a report. If a run is interrupted, the same command continues it.",
    )
    parser.add_argument("word", metavar="SETTING", choices=WORDS, help=", ".join(WORDS))
    parser.add_argument(
        "--full",
        dest="scale",
        action="store_const",
        const="full",
        default="quick",
        help="everything (two hours), not a sample (two minutes)",
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        help="folder of the data (default: $EXPUNGE_DATA, then OpenML)",
    )
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="folder of the results"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--no-resume",
        dest="resume",
        action="store_false",
        help="measure again what an earlier run has finished",
    )
    return Request(**vars(parser.parse_args(arguments)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiments and print what they found; 1 if a part could not run."""
    outcome = run(parse(arguments), lambda name, *_: progress(name))
    for section in outcome.sections:
        print(section)
    for path in outcome.files:
        print(f"wrote {path}")
    if outcome.targets:
        print(verdict(outcome.targets))
    for reason in outcome.missing:
        print(f"experiments: not run: {reason}", file=sys.stderr)
    return 1 if outcome.missing else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except (DataNotFound, MissingExtra) as error:
        raise SystemExit(f"experiments: {error}") from None
