# SPDX-License-Identifier: Apache-2.0
"""Mutants of the registry: rows that come back changed, or that never left."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from .replacing import put


def lift_without_labels() -> None:
    """Give all rows that come back the same label."""
    _change_lifted(lambda rows: replace(rows, y=np.ones_like(rows.y)))


def lift_without_weights() -> None:
    """Let rows that come back weigh as much as any other."""
    _change_lifted(lambda rows: replace(rows, weight=np.ones_like(rows.weight)))


def keep_rectified_rows() -> None:
    """Bring new rows in, and leave the old ones where they are."""
    settling = import_module("expunge.registry.settling")
    real = settling._move_content

    def move_content(name: str, content: Any, *, asked: Any, fits: Any) -> Any:
        moved = real(name, content, asked=asked, fits=fits)
        if asked.right != "rectify" or moved is None or moved[1] is content:
            return moved
        to, after = moved
        return to, replace(after, parts=(*content.parts, *after.parts))

    put("registry.settling", "_move_content", move_content)


def _change_lifted(change: Any) -> None:
    """Change rows on their way from where they were set aside into a model."""
    changes = import_module("expunge.registry.changes")
    real = changes._place_entering

    def place_entering(name: str, reading: Any, *, first: int) -> Any:
        found = []
        for who, rows, places, new in real(name, reading, first=first):
            parts = reading.moves[name].entering[who].parts
            if any(part.name.startswith("~") for part in parts):
                rows, new = change(rows), change(new)
            found.append((who, rows, places, new))
        return found

    put("registry.changes", "_place_entering", place_entering)
