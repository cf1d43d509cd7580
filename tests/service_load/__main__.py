# SPDX-License-Identifier: Apache-2.0
"""Put a service under load, kill it, spy on it, or send it nonsense."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from tests.stores import STORES

from .fuzzing import print_fuzzing
from .kills import print_kills
from .load import print_load
from .probing import print_probed
from .spying import print_spying
from .working import print_work

PARTS: dict[str, Callable[[Any], int]] = {
    "load": print_load,
    "kill": print_kills,
    "oracle": print_spying,
    "probe": print_probed,
    "work": print_work,
    "fuzz": print_fuzzing,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that are asked for; return 1 if anything does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.service_load", description=__doc__
    )
    add = parser.add_argument
    add("part", choices=PARTS)
    add("--store", choices=STORES, default="sqlite")
    add("--count", type=int, help="requests, kills or cases; by default many")
    add("--people", type=int, default=5000, help="in the model")
    add("--window", type=int, default=10, help="seconds")
    add("--seed", type=int, default=0)
    add("--extras", default="none", help="faults to look for, see serving.py")
    options = parser.parse_args(arguments)
    return PARTS[options.part](options)


if __name__ == "__main__":
    raise SystemExit(main())
