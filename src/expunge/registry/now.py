# SPDX-License-Identifier: Apache-2.0
"""Now: the time and the day, as registries take them."""

from collections.abc import Callable
from contextvars import ContextVar
from datetime import date
from time import time_ns

from ..ledger.documents import day_of

CLOCK: ContextVar[Callable[[], int]] = ContextVar("clock")
"""Tells registries the time where it is set, as for the days of an example."""


def now() -> int:
    """Return the time in milliseconds since 1970."""
    clock = CLOCK.get(None)
    return time_ns() // 1_000_000 if clock is None else clock()


def today() -> date:
    """Return the day it is now in UTC."""
    return date.fromisoformat(day_of(now()))
