# SPDX-License-Identifier: Apache-2.0
"""How much of what only repeats a run does: a part in `make test`, all in the rigs.

A part has each kind of what is tried. The rest is more seeds, more moments, longer
runs: `make attack` and `make crash` set the variable and run the tests that ask here.
"""

import os
from typing import TypeVar

VARIABLE = "EXPUNGE_THOROUGH"
THOROUGH = os.environ.get(VARIABLE) == "1"

Much = TypeVar("Much")


def either(part: Much, *, thorough: Much) -> Much:
    """Return what a run takes: the part, unless it shall be thorough."""
    return thorough if THOROUGH else part
