# SPDX-License-Identifier: Apache-2.0
"""Mistakes that somebody could make where rows come into a model."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from .replacing import put

CHANGES = "removal.changes"
USERS = ("removal.newton", "removal.mechanisms", "preprocessing.balance")


def weigh_newcomers_alike() -> None:
    """Let every row that comes have the weight one."""
    real = import_module(f"expunge.{CHANGES}").apply_rows

    def apply_rows(state: Any, removed: Any, *, added: Any, apply: Any) -> Any:
        if added is not None:
            added = replace(added, weight=np.ones(len(added.weight)))
        return real(state, removed, added=added, apply=apply)

    for place in ("removal.newton", "removal.mechanisms", "removal.matrix_free"):
        put(place, "apply_rows", apply_rows)


def keep_the_moment() -> None:
    """Leave rows that come out of what bounds the third-order term."""
    real = import_module(f"expunge.{CHANGES}").change_matrices

    def change_matrices(state: Any, change: Any, **more: Any) -> Any:
        after = real(state, change, **more)
        if change.sign < 0:
            return after
        return after.replace(moment=state.moment, kinks=state.kinks)

    for place in USERS:
        put(place, "change_matrices", change_matrices)


def keep_the_longest_row() -> None:
    """Let the longest row be that of the anchor, however long those are that come."""

    def keep(before: Any, after: Any) -> Any:
        return replace(after, row_norm=before.row_norm)

    _put_scales(keep)


def keep_the_sizes() -> None:
    """Let sizes be those of the anchor, but for the longest row."""

    def keep(before: Any, after: Any) -> Any:
        return replace(before, row_norm=after.row_norm)

    _put_scales(keep)


def keep_the_trace() -> None:
    """Let the rows that come add nothing to the largest eigenvalue."""
    real = import_module("expunge.removal.matrix_free")._apply

    def apply(state: Any, change: Any, **more: Any) -> Any:
        return real(state, change, **more).replace(gram_norm=state.gram_norm)

    put("removal.matrix_free", "_apply", apply)


def _put_scales(keep: Any) -> None:
    real = import_module(f"expunge.{CHANGES}").grow_scales

    def grow_scales(state: Any, change: Any) -> Any:
        return keep(state.scales, real(state, change))

    for place in (CHANGES, "removal.mechanisms"):
        put(place, "grow_scales", grow_scales)


def ignore_new_gaps() -> None:
    """Take in values that are missing where none was missing at the anchor."""
    put("preprocessing.feature_maps:Reference", "knows_gaps", lambda self, raw: True)
