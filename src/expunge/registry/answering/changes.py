# SPDX-License-Identifier: Apache-2.0
"""Changes: a model before and after a batch, and rows that move in and out of it.

Everything is computed first, and the new checkpoint of a model is on disk before
anything refers to it. What a transaction then writes makes it current, writes the
release, supersedes those before it, and moves or deletes the rows, with the keys that
open them. Rows that are set aside go through the same steps, without a release.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TypeAlias

import numpy as np
from sqlalchemy import Connection

from ...core.arrays import Index
from ...core.rows import Rows, join_rows
from ...core.values import Private
from ...display.progress import OnProgress
from ...exceptions import ScheduleExhausted
from ...private_model.answers import REFUSALS
from ...private_model.model import PrivateModel
from ...private_model.snapshot import PublicModel
from ...private_model.training_rows import NO_ROWS, RowChange
from ..context import Context, now
from ..loaded_model import (
    LoadedModel,
    dump_checkpoint,
    dump_public,
    dump_rows,
    join_parts,
    load_rows,
    places_of,
    read_from_files,
    split_parts,
    with_fetch,
)
from ..storage import aside_table, people_table, releases_table
from ..storage.aside_table import Aside, AsideFile, is_aside
from ..storage.people_table import (
    NO_KEYS,
    PageKeys,
    Pages,
    RemainingKeys,
    SealedPeople,
    SealedRows,
    Who,
    sort_rows,
)
from .settling import Holding, Holdings, Part, Settlement

NOBODY = SealedPeople([], {}, NO_KEYS)
Load: TypeAlias = Callable[[str], LoadedModel]
Blobs: TypeAlias = dict[tuple[str, int], bytes]
"""Rows as they were sealed, by the name they are under and the person's number."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Move(Private):
    """What leaves a name and what comes under it.

    Attributes
    ----------
    leaving
        Rows to delete.
    entering
        What to store of each person.
    restated
        Of rows that stay set aside, what is known of them now.
    pages
        The unsealed pages of the rows that leave.
    """

    leaving: list[SealedRows] = field(default_factory=list)
    entering: dict[Who, Holding] = field(default_factory=dict)
    restated: dict[int, Aside] = field(default_factory=dict)
    pages: Pages = field(default_factory=dict)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Reading(Private):
    """All that must be read before changes can be made.

    Attributes
    ----------
    moves
        What moves, by name.
    models, files
        The models that change, and the checkpoints of rows set aside, by name.
    blobs
        The rows that leave.
    """

    moves: Mapping[str, Move]
    models: Mapping[str, LoadedModel]
    files: Mapping[str, AsideFile]
    blobs: Blobs


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Change(Private):
    """A model before and after, with what a transaction must write."""

    before: LoadedModel
    after: LoadedModel
    keys: RemainingKeys
    entering: SealedPeople = NOBODY

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.before.name

    def delete(self, connection: Connection) -> None:
        """Delete what leaves, and write the release."""
        number, public = self.after.number, self.after.snapshot.public
        people_table.delete_rows(connection, self.name, remaining=self.keys)
        write_release(connection, self.name, number=number, public=public)

    def insert(self, connection: Connection) -> None:
        """Insert what enters, and make the checkpoint current."""
        people_table.insert_sealed(connection, self.name, sealed=self.entering)
        after = {"checkpoint": self.after.checkpoint, "number": self.after.number}
        releases_table.advance_model(
            connection, self.name, generation=self.before.generation, after=after
        )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class AsideChange(Private):
    """Rows set aside, before and after, with what a transaction must write."""

    before: AsideFile
    checkpoint: str
    keys: RemainingKeys
    entering: SealedPeople
    asides: Mapping[int, Aside]

    after: None = None

    @property
    def name(self) -> str:
        """The name under which the rows are stored."""
        return self.before.name

    def delete(self, connection: Connection) -> None:
        """Delete what leaves."""
        if not self.before.exists:
            aside_table.insert_file(connection, self.before, created=now())
        gone = [one.subject for one in self.keys.removed]
        aside_table.delete_asides(connection, self.name, subjects=gone)
        people_table.delete_rows(connection, self.name, remaining=self.keys)

    def insert(self, connection: Connection) -> None:
        """Insert what enters, and make the checkpoint current."""
        people_table.insert_sealed(connection, self.name, sealed=self.entering)
        for subject, aside in self.asides.items():
            aside_table.write_aside(connection, self.name, subject=subject, aside=aside)
        after = {"checkpoint": self.checkpoint, "number": 0}
        releases_table.advance_model(
            connection, self.name, generation=self.before.generation, after=after
        )


AnyChange: TypeAlias = Change | AsideChange


def write_changes(connection: Connection, changes: Sequence[AnyChange]) -> None:
    """Write changes, in an order in which no tag is deleted that is still needed."""
    for change in changes:
        change.delete(connection)
    for change in changes:
        change.insert(connection)
    gone = {one.subject for change in changes for one in change.keys.removed}
    people_table.delete_unused_tags(connection, sorted(gone))


def read_holdings(
    connection: Connection, found: Sequence[tuple[str, SealedRows]]
) -> dict[int, Holdings]:
    """Return what the store holds of each person, from the rows that were found."""
    apart = {one.subject for name, one in found if is_aside(name)}
    asides = aside_table.read_asides(connection, sorted(apart)) if apart else {}
    contents: dict[int, Holdings] = {}
    for name, one in found:
        aside, parts = asides.get((name, one.subject)), (Part(name, one),)
        contents.setdefault(one.subject, {})[name] = (
            Holding("in use", parts)
            if aside is None
            else Holding(aside.place, parts, aside)
        )
    return contents


def sort_moves(settlement: Settlement) -> dict[str, Move]:
    """Return what a settlement moves, by name.

    Rows that left a model and came back do not move: it needs no release.
    """
    moves: dict[str, Move] = {}
    for name, subject, before, after in settlement.changed():
        same = before is not None and after is not None and before.parts == after.parts
        if same and not is_aside(name):
            continue  # such as a restriction that was lifted at once
        move = moves.setdefault(name, Move())
        if same and after is not None:
            move.restated[subject] = after.aside
            continue
        if before is not None:
            (part,) = before.parts
            assert part.found is not None
            move.leaving.append(part.found)
        if after is not None:
            move.entering[subject] = after
    return moves


def read_moves(
    context: Context,
    connection: Connection,
    *,
    moves: Mapping[str, Move],
    load: Load | None = None,
) -> Reading:
    """Return all that must be read to carry out moves.

    ``load`` gets a model by name; by default one that may be released.
    """
    load = partial(require_release, context) if load is None else load
    models: dict[str, LoadedModel] = {}
    files: dict[str, AsideFile] = {}
    opened: dict[str, Move] = {}
    blobs: Blobs = {}
    for name, move in sorted(moves.items()):
        page_keys: PageKeys
        if is_aside(name):
            files[name] = aside_table.read_file(
                connection, context.checkpoints, model=aside_table.model_of(name)
            )
            page_keys = files[name].page_keys
        else:
            models[name] = load(name)
            page_keys = models[name].page_keys
        found = sort_rows(move.leaving)
        pages = people_table.read_pages(
            connection, name, found=found, page_keys=page_keys
        )
        opened[name] = replace(move, leaving=found, pages=pages)
        data: Iterable[bytes] = people_table.unseal_rows(name, found, pages=pages)
        if name in models:
            data = read_from_files(models[name], data)
        blobs |= {
            (name, one.subject): blob for one, blob in zip(found, data, strict=True)
        }
    return Reading(opened, models, files, blobs)


def make_changes(
    context: Context, reading: Reading, *, on_progress: OnProgress
) -> list[AnyChange]:
    """Return the changes; their checkpoints are written, to no effect."""
    changes: list[AnyChange] = []
    n_steps = len(reading.models) + 1
    for name in reading.models:
        on_progress(len(changes), n_steps)
        changes.append(change_model(context, name, reading=reading))
    on_progress(len(changes), n_steps)
    return changes + change_asides(context, reading)


def change_asides(context: Context, reading: Reading) -> list[AnyChange]:
    """Return the changes of rows set aside; their checkpoints are written."""
    return [_change_aside(context, name, reading=reading) for name in reading.files]


def change_model(context: Context, name: str, *, reading: Reading) -> Change:
    """Return a model without the rows that leave, and with those that enter."""
    before, move = reading.models[name], reading.moves[name]
    keys = people_table.keys_without(
        name, move.leaving, pages=move.pages, page_keys=before.page_keys
    )
    # People who bring more rows keep their places: only the seal is another.
    staying = {
        part.found.subject
        for content in move.entering.values()
        for part in content.parts
        if part.name == name and part.found is not None
    }
    gone = [one for one in move.leaving if one.subject not in staying]
    removed = [reading.blobs[name, one.subject] for one in gone]
    entering = _place_entering(name, reading, first=before.private.n_samples)
    sealed = people_table.seal_people(
        name,
        [(who, dump_rows(rows, places)) for who, rows, places, _ in entering],
        first_page=len(before.page_keys),
    )
    change = _make_change(removed, [new for _, _, _, new in entering])
    private = _change_rows(context, before, change=change)
    page_keys = np.concatenate([keys.page_keys, sealed.page_keys])
    files = before.files
    if files is not None:  # those who stay with more rows have all of them sealed
        left = places_of(reading.blobs[name, one.subject] for one in move.leaving)
        files = replace(files, source=files.source.without(left))
    after = replace(
        before, snapshot=before.snapshot.keep(private), page_keys=page_keys, files=files
    )
    return Change(before, _write_model(context, after), keys, sealed)


def _place_entering(
    name: str, reading: Reading, *, first: int
) -> list[tuple[Who, Rows, Index, Rows]]:
    """Return for each person who they are, all rows, their places, and the new rows.

    New rows get places from ``first`` on.
    """
    found = []
    for who, content in reading.moves[name].entering.items():
        kept = [part for part in content.parts if part.name == name]
        new = replace(
            content, parts=tuple(part for part in content.parts if part not in kept)
        )
        rows, _ = load_rows(_open_parts(new, reading.blobs))
        places = np.arange(first, first + len(rows))
        first += len(rows)
        if not kept:
            found.append((who, rows, places, rows))
            continue
        old = replace(content, parts=tuple(kept))
        before, at = load_rows(_open_parts(old, reading.blobs))
        both = np.concatenate([at, places])
        found.append((who, join_rows(before, rows), both, rows))
    return found


def _make_change(removed: Sequence[bytes], added: Sequence[Rows]) -> RowChange:
    """Return rows that leave, as they were sealed, and rows that come, as one."""
    left, gone = load_rows(removed) if removed else (None, NO_ROWS)
    return RowChange(
        removed=left,
        added=reduce(join_rows, added) if added else None,
        gone=gone,
        n_subjects_removed=len(removed),
        n_subjects_added=len(added),
    )


def _change_aside(context: Context, name: str, *, reading: Reading) -> AsideChange:
    """Return rows set aside without those that leave, and with those that enter."""
    before, move = reading.files[name], reading.moves[name]
    keys = people_table.keys_without(
        name, move.leaving, pages=move.pages, page_keys=before.page_keys
    )
    members = [
        (subject, join_parts(_open_parts(content, reading.blobs, every=True)))
        for subject, content in move.entering.items()
    ]
    sealed = people_table.seal_people(name, members, first_page=len(before.page_keys))
    page_keys = np.concatenate([keys.page_keys, sealed.page_keys])
    written = context.checkpoints.write(
        name, before.generation + 1, parts=[memoryview(page_keys.tobytes())]
    )
    asides = {
        who: one.aside for who, one in move.entering.items() if isinstance(who, int)
    }
    return AsideChange(before, written, keys, sealed, asides | move.restated)


def _open_parts(content: Holding, blobs: Blobs, *, every: bool = False) -> list[bytes]:
    """Return the rows of a person; of rows set aside the newest, or ``every`` one."""

    def open_part(part: Part) -> list[bytes]:
        if part.found is None:
            return [part.new]
        data = blobs[part.name, part.found.subject]
        if not is_aside(part.name):
            return [data]
        return split_parts(data) if every else split_parts(data)[-1:]

    return [data for part in content.parts for data in open_part(part)]


def release_again(context: Context, name: str) -> Change:
    """Return a model with another release, about the same people.

    Its newest release was charged, and its parameters are lost.
    """
    before = require_release(context, name)
    keys = RemainingKeys([], {}, before.page_keys)
    return Change(before, _write_model(context, before), keys)


def schedule_exhausted(name: str) -> ScheduleExhausted:
    """Return the error that a model may not be released any more."""
    return ScheduleExhausted(
        f"all planned releases of model {name!r} have been made; fit it again under a "
        "new budget, and the waiting requests will be applied to it"
    )


def require_release(context: Context, name: str) -> LoadedModel:
    """Return a model; raise ScheduleExhausted if its budget allows no release."""
    loaded = context.load_model(name)
    if loaded.private.accountant.remaining() == 0:
        raise schedule_exhausted(name)
    return loaded


def _write_model(context: Context, unreleased: LoadedModel) -> LoadedModel:
    """Return a model with the release of its state, and write the checkpoint."""
    name, page_keys, files = unreleased.name, unreleased.page_keys, unreleased.files
    private = with_fetch(
        unreleased.private,
        partial(context.read_rows, name),
        page_keys=page_keys,
        files=files,
    )
    snapshot = unreleased.snapshot.release(private)
    data = dump_checkpoint(snapshot, page_keys, files=files)
    generation = unreleased.generation + 1
    return replace(
        unreleased,
        generation=generation,
        checkpoint=context.checkpoints.write(name, generation, parts=data),
        number=unreleased.number + 1,
        snapshot=snapshot,
    )


def write_unreleased(context: Context, loaded: LoadedModel) -> None:
    """Write the next checkpoint of a model, and make it current; release nothing."""
    name = loaded.name
    data = dump_checkpoint(loaded.snapshot, loaded.page_keys, files=loaded.files)
    written = context.checkpoints.write(name, loaded.generation + 1, parts=data)
    context.cache.pop(name, None)
    with context.log.batch() as connection:
        after = {"checkpoint": written, "number": loaded.number}
        releases_table.advance_model(
            connection, name, generation=loaded.generation, after=after
        )


def _change_rows(
    context: Context, loaded: LoadedModel, *, change: RowChange
) -> PrivateModel:
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
