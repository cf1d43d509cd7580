# SPDX-License-Identifier: Apache-2.0
"""Pieces of a run: each is one file once it is finished, and is not run again.

A file appears whole or not at all: it is written beside its place and renamed.
It names its recipe, so that a piece made by other rules is not mistaken for this one.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .figures import Figure, Machine, Measured, from_json, to_json


@dataclass(frozen=True, slots=True)
class Piece:
    """Something to measure: its name, the rules it follows, and how.

    ``make`` returns the figures, all of one seed.
    """

    name: str
    recipe: str
    make: Callable[[], list[Figure]]


def path_of(piece: Piece, folder: Path) -> Path:
    """Return where the finished piece lies."""
    return folder / "pieces" / f"{piece.name}.json"


def read_finished(piece: Piece, folder: Path) -> Measured | None:
    """Return the piece if it was made before, by the same recipe."""
    path = path_of(piece, folder)
    if not path.is_file():
        return None
    try:
        found = from_json(json.loads(path.read_text()))
    except (ValueError, KeyError, TypeError):  # of another version, or damaged
        return None
    return found if found.recipe == piece.recipe else None


def measure(
    pieces: Iterable[Piece], folder: Path, *, resume: bool = True
) -> Iterator[Measured]:
    """Yield each piece in order: found if finished, else made and kept."""
    machine = Machine.this()
    for piece in pieces:
        found = read_finished(piece, folder) if resume else None
        if found is None:
            figures = tuple(piece.make())
            found = Measured(piece.name, piece.recipe, machine, figures)
            write_whole(path_of(piece, folder), json.dumps(to_json(found), indent=1))
        yield found


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
