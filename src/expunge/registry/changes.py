# SPDX-License-Identifier: Apache-2.0
"""Changes: a model before and after a batch, and rows that move in and out of it.

Everything is computed first, and the new checkpoint of a model is on disk before
anything refers to it. What a transaction then writes makes it current, writes the
release, supersedes those before it, and says where rows are now. What is deleted leaves
the number of its key behind, to be destroyed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TypeAlias

import numpy as np
from sqlalchemy import Connection

from ..core.rows import join_rows
from ..core.values import Private
from ..display.progress import OnProgress
from ..exceptions import ScheduleExhausted
from ..private_model.answers import REFUSALS
from ..private_model.people_model import PeopleModel
from ..private_model.snapshot import PublicModel
from ..private_model.training_rows import NO_ROWS, RowChange
from .context import Context, give_up_keys
from .loaded_model import (
    IN_FILES,
    LoadedModel,
    dump_checkpoint,
    dump_public,
    dump_rows,
    load_rows,
    places_of,
    read_from_files,
    with_fetch,
)
from .now import now
from .settle import Settlement
from .storage import people_table, releases_table
from .storage.keystore import count_made, mark_dead
from .storage.people_table import IN_USE, PersonRows

Load: TypeAlias = Callable[[str], LoadedModel]
Blobs: TypeAlias = dict[int, bytes]
"""Rows as they were before they were sealed, by the number of their key."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Move(Private):
    """What becomes of rows in one model.

    Attributes
    ----------
    steps
        Rows before and after; None before if they are new, and after if they go.
    """

    steps: list[tuple[PersonRows | None, PersonRows | None]] = field(
        default_factory=list
    )

    @property
    def leaving(self) -> list[PersonRows]:
        """Rows that the model no longer uses."""
        return [old for old, new in self.steps if old and _in_use(old, but=new)]

    @property
    def entering(self) -> list[tuple[PersonRows | None, PersonRows]]:
        """Rows that the model uses from now on, as they were and as they are."""
        return [(old, new) for old, new in self.steps if new and _in_use(new, but=old)]

    @property
    def changes_model(self) -> bool:
        """Whether the model needs a release."""
        return bool(self.leaving or self.entering)

    @property
    def subjects(self) -> set[int]:
        """Whose rows they are, as far as the store knows them."""
        return {one.subject for step in self.steps for one in step if one}


def _in_use(one: PersonRows, *, but: PersonRows | None) -> bool:
    """Return whether rows are in use on one side of a step and not on the other."""
    return one.place == IN_USE and (but is None or but.place != IN_USE)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Reading(Private):
    """All that must be read before changes can be made.

    Attributes
    ----------
    moves
        What becomes of rows, by model.
    models
        The models that change, by name.
    blobs
        The rows that leave models, and those that come back.
    in_files
        Those of them that lie in files, and not in the store.
    """

    moves: Mapping[str, Move]
    models: Mapping[str, LoadedModel]
    blobs: Blobs
    in_files: set[int]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Change(Private):
    """What a transaction must write of one model.

    Attributes
    ----------
    name
        Of the model.
    before, after
        The model, if it changes.
    deleted, said, inserted
        Rows that go, rows that are elsewhere now, and rows that come, sealed.
    """

    name: str
    before: LoadedModel | None
    after: LoadedModel | None
    deleted: Sequence[PersonRows] = ()
    said: Sequence[PersonRows] = ()
    inserted: Sequence[PersonRows] = ()

    @property
    def keys(self) -> list[int]:
        """The keys that were made for it."""
        state = [] if self.after is None else [self.after.key]
        return [*(one.key for one in self.inserted), *state]


def write_changes(connection: Connection, changes: Sequence[Change]) -> None:
    """Write changes, in an order in which no tag is deleted that is still needed."""
    deleted = [line for one in changes for line in one.deleted]
    replaced = [one.before.key for one in changes if one.before and one.after]
    mark_dead(connection, [*(line.key for line in deleted), *replaced])
    people_table.delete_rows(connection, deleted)
    for one in changes:
        people_table.say_where(connection, one.said)
        people_table.insert_rows(connection, one.inserted)
        if one.before is not None and one.after is not None:
            number, public = one.after.number, one.after.snapshot.public
            write_release(connection, one.name, number=number, public=public)
            after = {"key": one.after.key, "number": number}
            releases_table.advance_model(
                connection, one.name, before=one.before.key, after=after
            )
    count_made(connection, [key for one in changes for key in one.keys])
    gone = {line.subject for line in deleted}
    people_table.delete_unused_tags(connection, sorted(gone))


def sort_people(found: Iterable[PersonRows]) -> dict[int, list[PersonRows]]:
    """Return what the store holds of each person."""
    held: dict[int, dict[int, PersonRows]] = {}
    for one in found:
        held.setdefault(one.subject, {})[one.key] = one  # some are found twice
    return {who: list(rows.values()) for who, rows in held.items()}


def sort_moves(settlement: Settlement) -> dict[str, Move]:
    """Return what a settlement moves, by model.

    Rows that left a model and came back do not move: it needs no release.
    """
    moves: dict[str, Move] = {}
    for who, before in settlement.before.items():
        after = settlement.after[who]
        there = {one.key: one for one in after}
        steps = [(old, there.get(old.key)) for old in before]
        for old, new in (*steps, *((None, one) for one in after if not one.key)):
            if old is None or new is None or old.said != new.said:
                either = old or new
                assert either is not None
                moves.setdefault(either.model, Move()).steps.append((old, new))
    return moves


def read_moves(
    context: Context, *, moves: Mapping[str, Move], load: Load | None = None
) -> Reading:
    """Return all that must be read to carry out moves.

    ``load`` gets a model by name; by default one that may be released.
    """
    load = partial(require_release, context) if load is None else load
    models: dict[str, LoadedModel] = {}
    blobs: Blobs = {}
    in_files: set[int] = set()
    for name, move in sorted(moves.items()):
        if not move.changes_model:
            continue
        models[name] = load(name)
        back = [old for old, _ in move.entering if old is not None]
        found = [*move.leaving, *back]
        sealed = [*people_table.unseal_rows(context.keystore, found)]
        pairs = [*zip(found, sealed, strict=True)]
        in_files |= {one.key for one, data in pairs if data.startswith(IN_FILES)}
        data = read_from_files(models[name], sealed)
        blobs |= {one.key: blob for one, blob in zip(found, data, strict=True)}
    return Reading(moves, models, blobs, in_files)


def make_changes(
    context: Context, reading: Reading, *, on_progress: OnProgress
) -> list[Change]:
    """Return the changes; their checkpoints are written, to no effect."""
    changes: list[Change] = []
    n_steps = len(reading.moves) + 1
    for name in reading.moves:
        on_progress(len(changes), n_steps)
        if name in reading.models:
            changes.append(change_model(context, name, reading=reading))
        else:
            changes.append(change_apart(context, name, reading=reading))
    on_progress(len(changes), n_steps)
    return changes


def change_model(context: Context, name: str, *, reading: Reading) -> Change:
    """Return a model without the rows that leave, and with those that enter."""
    before, move = reading.models[name], reading.moves[name]
    leaving = sorted(move.leaving, key=lambda one: one.key)
    removed = [reading.blobs[one.key] for one in leaving]
    # Rows that enter come after all that ever were there.
    first, added, entering = before.private.n_samples, [], []
    for old, new in move.entering:
        rows, _ = load_rows([new.new if old is None else reading.blobs[old.key]])
        places = np.arange(first, first + len(rows))
        first += len(rows)
        added.append(rows)
        entering.append(replace(new, key=0, sealed=b"", new=dump_rows(rows, places)))
    left, gone = load_rows(removed) if removed else (None, NO_ROWS)
    change = RowChange(
        removed=left,
        added=reduce(join_rows, added) if added else None,
        gone=gone,
        n_subjects_removed=len({one.subject for one in leaving}),
        n_subjects_added=len({one.tag for one in entering}),
    )
    private = _change_rows(context, before, change=change)
    files = before.files
    if files is not None:
        files = replace(files, source=files.source.without(places_of(removed)))
    snapshot = before.snapshot.keep(private)
    after = _write_model(context, replace(before, snapshot=snapshot, files=files))
    rest = _change_rest(context, name, reading=reading, entering=entering)
    return replace(rest, before=before, after=after)


def change_apart(context: Context, name: str, *, reading: Reading) -> Change:
    """Return what becomes of rows that a model does not use, or used.

    Those that it used until now are sealed again: with the model they may be deleted
    before this is written.
    """
    return _change_rest(context, name, reading=reading)


def _change_rest(
    context: Context,
    name: str,
    *,
    reading: Reading,
    entering: Sequence[PersonRows] | None = None,
) -> Change:
    """Return what becomes of rows; ``entering`` are those that the model then uses."""
    deleted, said, new_rows = [], [], list(entering or ())
    for old, new in reading.moves[name].steps:
        if new is None or new.place == IN_USE:
            deleted += [] if old is None else [old]
        elif old is None:
            new_rows.append(new)
        elif old.key in reading.in_files or (entering is None and old.place == IN_USE):
            deleted.append(old)
            data = reading.blobs[old.key]
            # Deleted with a model, the last rows of a person take their number along.
            who = 0 if entering is None else old.subject
            new_rows.append(replace(new, key=0, subject=who, sealed=b"", new=data))
        else:
            said.append(new)
    sealed = people_table.seal_rows(context.keystore, new_rows)
    return Change(name, None, None, deleted, said, sealed)


def release_again(context: Context, name: str) -> Change:
    """Return a model with another release, about the same people.

    Its newest release was charged, and its parameters are lost.
    """
    before = require_release(context, name)
    return Change(name, before, _write_model(context, before))


def schedule_exhausted(name: str) -> ScheduleExhausted:
    """Return the error that a model may not be released any more."""
    return ScheduleExhausted(
        f"all planned releases of model {name!r} have been made; fit it again under a "
        "new budget, and the waiting requests will be applied to it"
    )


def require_release(
    context: Context, name: str, *, key: int | None = None
) -> LoadedModel:
    """Return a model; raise ScheduleExhausted if its budget allows no release."""
    loaded = context.load_model(name, key=key)
    if loaded.private.accountant.remaining() == 0:
        raise schedule_exhausted(name)
    return loaded


def _write_model(context: Context, unreleased: LoadedModel) -> LoadedModel:
    """Return a model with the release of its state, and write the checkpoint."""
    name, files = unreleased.name, unreleased.files
    read_rows = partial(context.read_rows, name)
    private = with_fetch(unreleased.private, read_rows, files=files)
    snapshot = unreleased.snapshot.release(private)
    return replace(
        unreleased,
        key=context.checkpoints.write(name, dump_checkpoint(snapshot, files=files)),
        number=unreleased.number + 1,
        snapshot=snapshot,
    )


def write_unreleased(context: Context, loaded: LoadedModel) -> None:
    """Write the next checkpoint of a model, and make it current; release nothing."""
    name = loaded.name
    data = dump_checkpoint(loaded.snapshot, files=loaded.files)
    written = context.checkpoints.write(name, data)
    context.cache.pop(name, None)
    made = [written]
    with give_up_keys(context, made) as is_done, context.log.batch() as connection:
        after = {"key": written, "number": loaded.number}
        mark_dead(connection, [loaded.key])
        releases_table.advance_model(connection, name, before=loaded.key, after=after)
        count_made(connection, made)
        is_done()


def _change_rows(
    context: Context, loaded: LoadedModel, *, change: RowChange
) -> PeopleModel:
    """Return a private model after a change; the one in memory is given up.

    It need not be copied: should anything fail, there is the one on disk.
    """
    context.cache.pop(loaded.name, None)
    try:
        private = loaded.private.change(change, overwrite=True)
    except REFUSALS:
        account = loaded.private.accountant  # which may have been charged since
        fresh = context.load_model(loaded.name).private
        fresh = replace(fresh, accountant=account).with_noise()
        private = fresh.change(change)
    if private.training_rows is not None and change.gone is not None:
        private.training_rows.erase(change.gone)
    return private


def write_release(
    connection: Connection, name: str, *, number: int, public: PublicModel
) -> None:
    """Write a release of a model, in place of the one before."""
    certificate = public.release.certificate
    releases_table.insert_release(
        connection,
        {
            "model": name,
            "number": number,
            "made": now(),
            "certificate": certificate.to_json(),
            "digest": certificate.digest(),
            "content": dump_public(public),
        },
    )
