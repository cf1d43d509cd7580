# SPDX-License-Identifier: Apache-2.0
"""Restoring models whose rows stay in files, when these are no longer those they knew.

A restore forgets again who was forgotten since the backup, and reads their rows. A
rewrite may have dropped these since, and then nobody has them. Such a model cannot
forget, so nothing of it is kept: it is emptied, and must be fitted again.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from ...exceptions import InvalidInput
from ..changes import Load, Move, read_moves
from ..context import Context
from ..loaded_model import load_checkpoint
from ..storage import releases_table
from ..storage.people_table import IN_USE, PersonRows


def require_files_there(context: Context, *, names: Iterable[str]) -> None:
    """Refuse to restore while files are missing that people must be looked up in.

    A disk that is not mounted must not cost a model. Files that changed are another
    matter: what they held is gone.
    """
    with context.store.read() as connection:
        lines = [releases_table.read_newest(connection, name) for name in names]
    for line in lines:
        if line.content is None:
            continue
        data = context.checkpoints.read(line.name, line.key)
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
    context: Context, *, moves: Mapping[str, Move], load: Load
) -> set[str]:
    """Return the models of which rows that must leave can no longer be read."""
    lost = set()
    for name, move in moves.items():
        if not move.changes_model or load(name).files is None:
            continue
        try:
            read_moves(context, moves={name: move}, load=load)
        except InvalidInput:
            lost.add(name)
    return lost


def without_models(moves: Mapping[str, Move], names: set[str]) -> dict[str, Move]:
    """Return moves without rows that some models use, and without their return."""

    def rest(move: Move) -> Move:
        steps = [step for step in move.steps if not _is_used(step[0])]
        kept = [(old, None if _is_used(new) else new) for old, new in steps]
        return Move([step for step in kept if any(step)])

    return {name: rest(move) if name in names else move for name, move in moves.items()}


def _is_used(rows: PersonRows | None) -> bool:
    return rows is not None and rows.place == IN_USE
