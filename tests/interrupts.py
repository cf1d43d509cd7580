# SPDX-License-Identifier: Apache-2.0
"""Interrupts at chosen lines, as Ctrl-C or a worker's signal would come."""

import ctypes
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
    """Run an act, and interrupt it at a line; return whether that was reached.

    An interrupt in a handler that only passes leaves its exception behind as the one
    at hand, and tests that follow would find it as the cause of theirs (CPython 3.11).
    """
    before, reached = sys.exc_info()[1], False
    try:
        _traced(act, line)
    except KeyboardInterrupt:
        reached = True
    handled = None if before is None else ctypes.py_object(before)
    ctypes.pythonapi.PyErr_SetHandledException(handled)
    return reached


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
