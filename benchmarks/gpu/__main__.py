# SPDX-License-Identifier: Apache-2.0
"""Run the benchmarks of a device: parse, run, print.

They need torch and array-api-compat besides what expunge needs, and nothing else:
machines with a GPU often have no package index.
"""

import argparse
import sys
from collections.abc import Sequence

from .run import run
from .sizes import FULL, QUICK


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the device takes; fail if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="a small problem each")
    options = parser.parse_args(arguments)
    missed = 0
    for section in run(options.device, QUICK if options.quick else FULL):
        print(section, flush=True)
        missed += sum(not target.reached for target in section.targets)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
