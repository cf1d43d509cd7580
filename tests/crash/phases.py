# SPDX-License-Identifier: Apache-2.0
"""Phases: what a registry is doing, so that a strike can be told from another.

A process can also be slowed down in them, so that another one overtakes it.
"""

import random
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from expunge.files import export
from expunge.private_model.model import PrivateModel
from expunge.registry import keys, models
from expunge.registry.answering import (
    accepting,
    adding,
    cancelling,
    completion,
    worker,
)
from expunge.registry.recovery import restore
from expunge.registry.storage import Checkpoints, Journal, Store, vault

from .client import Line
from .story import FITS, REQUESTS

# Where each function is looked up when it is called, and what it does.
OF_REQUESTS: tuple[tuple[Any, str, str], ...] = (
    (accepting, "_accept_new", "accepting"),
    (worker, "replay_journal", "catching up"),
    (worker, "apply_batch", "computing"),
    (adding, "make_changes", "computing"),
    (Checkpoints, "write", "writing a checkpoint"),
    (worker, "commit_changes", "committing"),
    (adding, "commit_changes", "committing"),
    (Store, "erase_deleted", "erasing"),
    (Checkpoints, "destroy_old", "destroying keys"),
    (completion, "write_statement", "entering the ledger"),
)
OF_COMMANDS: tuple[tuple[Any, str, str], ...] = (
    (Journal, "append", "writing the journal"),
    (vault, "replace_file", "writing the vault"),
    (accepting, "seal_new_rows", "sealing new rows"),
    (completion, "destroy_pending_keys", "destroying keys of new rows"),
    (cancelling, "destroy_pending_keys", "destroying keys of new rows"),
    (models, "store_model", "taking a model in"),
    (models, "delete_model", "removing a model"),
    (PrivateModel, "reanchor", "reanchoring"),
    (export, "put_in_place", "writing what is shipped"),
    (keys, "open_signing_key", "making a signing key"),
    (keys, "open_tag_key", "making a tag key"),
    (keys, "write_statement", "changing keys"),
    (keys, "tidy_keys", "tidying keys"),
    (restore, "_read_continuation", "reading a backup"),
    (restore, "replace_database", "replacing the database"),
    (restore, "replace_file", "replacing files"),
    (restore, "_write_continuation", "bringing a backup up"),
)
PHASES = (*OF_REQUESTS, *OF_COMMANDS)
NAMES = ("opening", *dict.fromkeys(phase for _, _, phase in OF_REQUESTS))

# Of requests that bring rows.
OF_ROWS = ("sealing new rows", "destroying keys of new rows")
ENDING = ("erasing", "destroying keys", "entering the ledger", "writing the journal")
RESTORING = tuple(phase for place, _, phase in PHASES if place is restore)
OF_STEPS = {
    "forget": NAMES,
    **dict.fromkeys(REQUESTS[1:], (*NAMES, *OF_ROWS)),
    **dict.fromkeys(FITS, ("taking a model in", "writing the vault", *ENDING)),
    "add": (*NAMES[3:], "writing the vault"),
    "cancel": (
        "writing the journal",
        "writing the vault",
        "destroying keys of new rows",
    ),
    "refuse": ("writing the journal", *NAMES[6:]),
    "extend": ("writing the journal", "entering the ledger"),
    "remove": ("removing a model", "writing the vault", *ENDING[:3]),
    "reanchor": ("reanchoring", "writing a checkpoint", "writing the vault", "erasing"),
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
    for place, name, phase in PHASES:
        put(place, name, _noted(getattr(place, name), line, phase))


def dawdle(line: Line, seed: int) -> None:
    """Pause now and then, before or after a phase."""
    chance = random.Random(seed)
    for place, name, phase in PHASES:
        put(place, name, _pausing(getattr(place, name), line, phase, chance))


def _noted(function: Callable[..., Any], line: Line, phase: str) -> Callable[..., Any]:
    @wraps(function)
    def noted(*arguments: Any, **named: Any) -> Any:
        with line.at(phase):
            return function(*arguments, **named)

    return noted


def _pausing(
    function: Callable[..., Any], line: Line, phase: str, chance: random.Random
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
