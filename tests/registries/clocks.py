# SPDX-License-Identifier: Apache-2.0
"""What time it is for registries, as a test wants it."""

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from time import sleep

import pytest

from expunge.registry import now as now_module
from expunge.registry.access import LONGEST_SESSION
from expunge.registry.deliveries import PATIENCE
from expunge.registry.now import now
from expunge.registry.window import Window

SECOND = 1000
MINUTE, DAY = 60 * SECOND, 86_400 * SECOND

__all__ = [
    "DAY",
    "LONGEST_SESSION",
    "MINUTE",
    "PATIENCE",
    "SECOND",
    "Window",
    "now",
    "run_clock",
    "set_clock",
    "today",
]


def today() -> date:
    """Return the machine's day; it is not about to end while a test is under way."""
    while (moment := datetime.now(UTC)).time() >= time(23, 59):
        sleep(1.0)
    return moment.date()


def set_clock(patch: pytest.MonkeyPatch, to: date | int) -> None:
    """Let it be noon of a day for all registries, or a time in milliseconds."""
    if isinstance(to, date):
        noon = datetime(to.year, to.month, to.day, 12, tzinfo=UTC)
        to = round(noon.timestamp()) * SECOND
    run_clock(patch, lambda: to)


def run_clock(patch: pytest.MonkeyPatch, tell: Callable[[], int]) -> None:
    """Let all registries take the time from a function, in milliseconds since 1970."""
    patch.setattr(now_module, "time_ns", lambda: tell() * 10**6)
