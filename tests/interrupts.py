# SPDX-License-Identifier: Apache-2.0
"""Interrupts at chosen lines, as Ctrl-C or a worker's signal would come."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import expunge

Step = Callable[[], object]

# Its real folder: a checkout may be called expunge too, with an environment inside.
PACKAGE = str(Path(expunge.__file__).parent) + os.sep


def count_lines(act: Step) -> int:
    """Return how many lines of the package an act runs through."""
    return _traced(act, None)


def interrupt(act: Step, line: int) -> bool:
    """Run an act, and interrupt it at a line; return whether that was reached."""
    try:
        _traced(act, line)
    except KeyboardInterrupt:
        return True
    return False


def _traced(act: Step, stop: int | None) -> int:
    """Run an act line by line, raising KeyboardInterrupt at one of them."""
    seen = 0

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == stop:
                raise KeyboardInterrupt
        return local

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        return local if frame.f_code.co_filename.startswith(PACKAGE) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return seen
