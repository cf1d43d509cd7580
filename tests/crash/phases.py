# SPDX-License-Identifier: Apache-2.0
"""Phases: what a registry is doing, so that a kill can be told from another."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from expunge.registry import accepting, applying, completing, working
from expunge.stores import Checkpoints, Store

from .client import Line

# Where each function is looked up when it is called, and what it does.
PHASES: tuple[tuple[Any, str, str], ...] = (
    (accepting, "_taken_in", "accepting"),
    (working, "catch_up", "catching up"),
    (working, "apply_batch", "computing"),
    (Checkpoints, "write", "writing a checkpoint"),
    (applying, "commit", "committing"),
    (Store, "erase", "erasing"),
    (Checkpoints, "settle", "destroying keys"),
    (completing, "conclude", "entering the ledger"),
)
NAMES = ("opening", *(phase for _, _, phase in PHASES))


def announce(line: Line) -> None:
    """Have the phases of this process noted, from now on."""
    for place, name, phase in PHASES:
        setattr(place, name, _noted(getattr(place, name), line, phase))


def _noted(function: Callable[..., Any], line: Line, phase: str) -> Callable[..., Any]:
    @wraps(function)
    def noted(*arguments: Any, **named: Any) -> Any:
        with line.at(phase):
            return function(*arguments, **named)

    return noted
