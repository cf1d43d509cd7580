# SPDX-License-Identifier: Apache-2.0
"""Phases: what a registry is doing, so that a strike can be told from another.

A process can also be slowed down in them, so that another one overtakes it.
"""

import random
import time
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from tests.registries import wrap

from .client import Line
from .story import FITS, REQUESTS

# Points of what a registry does, and what they belong to.
OF_REQUESTS = (
    ("accepting", "accepting"),
    ("catching up", "catching up"),
    ("applying a batch", "computing"),
    ("adding rows", "computing"),
    ("writing a checkpoint", "writing a checkpoint"),
    ("committing", "committing"),
    ("committing rows that were added", "committing"),
    ("erasing", "erasing"),
    ("destroying keys", "destroying keys"),
    ("stating", "entering the ledger"),
)
OF_RESTORING = (
    ("reading a backup", "reading a backup"),
    ("replacing the database", "replacing the database"),
    ("replacing files", "replacing files"),
    ("bringing a backup up", "bringing a backup up"),
)
OF_COMMANDS = (
    ("writing the journal", "writing the journal"),
    ("writing keys", "writing keys"),
    ("sealing new rows", "sealing new rows"),
    ("taking a model in", "taking a model in"),
    ("removing a model", "removing a model"),
    ("reanchoring", "reanchoring"),
    ("putting what is shipped in place", "writing what is shipped"),
    ("making a signing key", "making a signing key"),
    ("making a tag key", "making a tag key"),
    ("stating a signing key", "changing keys"),
    ("tidying keys after a change", "tidying keys"),
)
PHASES = (*OF_REQUESTS, *OF_COMMANDS, *OF_RESTORING)
NAMES = ("opening", *dict.fromkeys(phase for _, phase in OF_REQUESTS))

# Of requests that bring rows.
OF_ROWS = ("sealing new rows", "writing keys")
ENDING = ("erasing", "destroying keys", "entering the ledger", "writing the journal")
RESTORING = tuple(phase for _, phase in OF_RESTORING)
OF_STEPS = {
    "forget": NAMES,
    **dict.fromkeys(REQUESTS[1:], (*NAMES, *OF_ROWS)),
    **dict.fromkeys(FITS, ("taking a model in", "writing keys", *ENDING)),
    "add": (*NAMES[3:], "writing keys"),
    "cancel": ("writing the journal", "writing keys", "destroying keys"),
    "refuse": ("writing the journal", *NAMES[6:]),
    "extend": ("writing the journal", "entering the ledger"),
    "remove": ("removing a model", "writing keys", *ENDING[:3]),
    "reanchor": ("reanchoring", "writing a checkpoint", "writing keys", "erasing"),
    "ship": ("writing the journal", "writing what is shipped"),
    "withdraw": ("entering the ledger",),
    "rotate signing key": (
        "making a signing key",
        "changing keys",
        "writing the journal",
        "tidying keys",
    ),
    "rotate tag key": ("making a tag key",),
    "readmit": ("writing the journal",),
    "look": ("opening",),
    "back up": ("opening",),
    "restore": (*RESTORING, *RESTORING, *ENDING),
}
"""By what a step does, in which phases it is worth while to strike."""

PAUSED = "paused while "
SHARE_OF_PAUSES = 0.15
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.15


def put(place: Any, name: str, value: object) -> None:
    """Put something else in the place of a function, in this process."""
    setattr(place, name, value)


def announce(line: Line) -> None:
    """Have the phases of this process noted, from now on."""
    for point, phase in PHASES:
        wrap(point, partial(_noted, line=line, phase=phase))


def dawdle(line: Line, seed: int) -> None:
    """Pause now and then, before or after a phase."""
    chance = random.Random(seed)
    for point, phase in PHASES:
        wrap(point, partial(_pausing, line=line, phase=phase, chance=chance))


def _noted(
    function: Callable[..., Any], *, line: Line, phase: str
) -> Callable[..., Any]:
    @wraps(function)
    def noted(*arguments: Any, **named: Any) -> Any:
        with line.at(phase):
            return function(*arguments, **named)

    return noted


def _pausing(
    function: Callable[..., Any], *, line: Line, phase: str, chance: random.Random
) -> Callable[..., Any]:
    def perhaps_pause() -> None:
        if chance.random() < SHARE_OF_PAUSES:
            with line.at(PAUSED + phase):
                time.sleep(chance.uniform(SHORTEST_PAUSE, LONGEST_PAUSE))

    @wraps(function)
    def pausing(*arguments: Any, **named: Any) -> Any:
        perhaps_pause()
        answer = function(*arguments, **named)
        perhaps_pause()
        return answer

    return pausing
