# SPDX-License-Identifier: Apache-2.0
"""Restoring models whose rows stay in files, when these are no longer those they knew.

A restore forgets again who was forgotten since the backup, and reads their rows. A
rewrite may have dropped these since, and then nobody has them. Such a model cannot
forget, so nothing of it is kept: it is emptied, and must be fitted again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from sqlalchemy import Connection

from ...exceptions import InvalidInput
from ..answering.changes import Load, Move, read_moves
from ..answering.settling import Holding
from ..context import Context
from ..loaded_model import load_checkpoint
from ..storage import Checkpoints, releases_table
from ..storage.aside_table import is_aside


def require_files_there(
    context: Context, sealed: Checkpoints, *, names: Iterable[str]
) -> None:
    """Refuse to restore while files are missing that people must be looked up in.

    A disk that is not mounted must not cost a model. Files that changed are another
    matter: what they held is gone.
    """
    with context.store.read() as connection:
        lines = [releases_table.read_newest(connection, name) for name in names]
    for line in lines:
        if line.content is None:
            continue
        data = sealed.read(line.checkpoint)
        read_rows = partial(context.read_rows, line.name)
        files = load_checkpoint(line, data, read_rows=read_rows).files
        for number, file in enumerate(() if files is None else files.source.files):
            if files is not None and not Path(file.path).exists():
                raise InvalidInput(
                    f"file {number} of source {files.source.name!r} is missing, and "
                    "people who were forgotten since the backup must be looked up in "
                    "it; mount its disk. If it is gone for good, put any file in its "
                    "place: the model is then emptied. Nothing was restored"
                )


def find_unreadable(
    context: Context, connection: Connection, *, moves: Mapping[str, Move], load: Load
) -> set[str]:
    """Return the models of which rows that must leave can no longer be read."""
    lost = set()
    for name, move in moves.items():
        if is_aside(name) or load(name).files is None:
            continue
        try:
            read_moves(context, connection, moves={name: move}, load=load)
        except InvalidInput:
            lost.add(name)
    return lost


def without_models(moves: Mapping[str, Move], names: set[str]) -> dict[str, Move]:
    """Return moves without those of some models, and without the rows from there."""

    def comes(content: Holding) -> bool:
        return all(part.name not in names for part in content.parts)

    return {
        name: replace(
            move,
            entering={who: one for who, one in move.entering.items() if comes(one)},
        )
        for name, move in moves.items()
        if name not in names
    }
