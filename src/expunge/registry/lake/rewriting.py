# SPDX-License-Identifier: Apache-2.0
"""Rewriting files of a source, so that they no longer hold people who left.

For each file, in this order: the new content is on disk beside it; the checkpoint of
every model that reads the file says that it has its old content or the new one; the new
one takes its place; the next checkpoints say that it has. Between any two of these a
crash leaves models that can read their rows, and the next rewrite goes on from there.

A row goes if its owner left: if the registry holds nothing of them, in any model or set
aside. Rows of people who are restricted or held, who brought more rows or whose rows
were corrected stay in the file, though the model reads them there no more. So does a
row that another model still reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np

from ...core.arrays import Index
from ...core.values import Private
from ...display.progress import OnProgress
from ...exceptions import InvalidInput
from ...ledger import subject_tags
from ...long.parquet import Identity
from ...long.rewriting import draft_path, put_in_place, read_owners_at, write_draft
from ...long.source import (
    Source,
    Version,
    find_versions,
    read_identity,
    refuse_changed,
)
from ..answering.changes import write_unreleased
from ..context import Context
from ..keys import read_tag_keys
from ..loaded_model import LoadedModel
from ..storage import people_table, releases_table


def require_source(loaded: LoadedModel) -> Source:
    """Return where the rows of a model lie, or raise InvalidInput."""
    if loaded.files is None:
        raise InvalidInput(
            f"the rows of model {loaded.name!r} are kept in the registry, sealed: "
            "it has no files to look at"
        )
    return loaded.files.source


def rewrite_source(context: Context, name: str, *, on_progress: OnProgress) -> int:
    """Rewrite the files that hold people who left a model; return how many.

    The lock is held.
    """
    source = require_source(context.load_model(name))
    find_versions(source)
    numbers, n_written = source.files_to_rewrite(), 0
    for done, number in enumerate(numbers):
        on_progress(done, len(numbers))
        path = Path(source.files[number].path)
        readers = _find_readers(context, path)
        if name not in [one.name for one in readers]:
            refuse_changed(source.name, f"file {number}")
        # The one that was asked for is the last to be settled: another call finds it.
        readers.sort(key=lambda one: one.name == name)
        n_written += _rewrite_file(context, path, readers=readers)
    on_progress(len(numbers), len(numbers))
    return n_written


def count_holding(context: Context, name: str) -> int:
    """Return how many files of a model hold people who left; the lock is held.

    Raises InvalidInput if a file is not as the model knows it: anybody may be in it.
    """
    source = require_source(context.load_model(name))
    find_versions(source)
    n_files = 0
    for number in source.files_to_rewrite():
        path = Path(source.files[number].path)
        mine = [one for one in _find_readers(context, path) if one.name == name]
        if not mine:
            refuse_changed(source.name, f"file {number}")
        n_files += bool(len(_find_left(context, path, reader=mine[0])))
    return n_files


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Reader(Private):
    """A model that reads a file.

    Attributes
    ----------
    name, number
        Of the model, and of the file among those that it reads.
    version, absent
        The content of the file, as the model knows it, and which of its rows are
        absent, numbered as of the model's fit.
    settled
        Whether the model knows of no other content.
    subject
        The column with the owners of rows; None if they have none.
    """

    name: str
    number: int
    version: Version
    absent: Index
    settled: bool
    subject: str | None

    @property
    def unused(self) -> Index:
        """Which rows of the file, as it now is, the model does not use."""
        gone = np.setdiff1d(self.absent, self.version.dropped)
        return np.asarray(gone - np.searchsorted(self.version.dropped, gone))

    def drop(self, gone: Index, identity: Identity) -> Version:
        """Return the content without these rows of the file as it now is."""
        before = self.version.dropped
        # Of a row that lies at r now, as many before it were dropped as lay at r or
        # earlier when each of these had its turn.
        n_before = np.searchsorted(before - np.arange(len(before)), gone, side="right")
        dropped = np.union1d(before, gone + n_before).astype(np.intp)
        return Version(identity, dropped)


def _find_readers(context: Context, path: Path) -> list[Reader]:
    """Return the models that read a file as it now is; others refuse it already."""
    identity, found = read_identity(path), []
    with context.store.read() as connection:
        names = [
            name
            for name in releases_table.model_names(connection)
            if releases_table.read_newest(connection, name).content is not None
        ]
    for name in names:
        files = context.load_model(name).files
        if files is None:
            continue
        for number, file in enumerate(files.source.files):
            versions = [one for one in file.versions if one.identity == identity]
            if file.path == str(path) and versions:
                absent = files.source.absent_in(number)
                settled = len(file.versions) == 1
                known = (versions[-1], absent, settled, files.source.columns.subject)
                found.append(Reader(name, number, *known))
    return found


def _find_left(context: Context, path: Path, *, reader: Reader) -> Index:
    """Return rows of a file that a model does not use, of people who left."""
    rows = reader.unused
    if reader.subject is None or not len(rows):
        return rows[:0]
    keys = read_tag_keys(context.paths)
    owners = read_owners_at(path, reader.subject, rows=rows)
    tags = {owner: subject_tags(owner, keys) for owner in dict.fromkeys(owners)}
    with context.store.read() as connection:
        every = [tag for theirs in tags.values() for tag in theirs]
        held = people_table.models_by_tag(connection, every)
    left = [held.keys().isdisjoint(tags[owner]) for owner in owners]
    return np.asarray(rows[np.array(left, dtype=bool)])


def _rewrite_file(context: Context, path: Path, *, readers: Sequence[Reader]) -> bool:
    """Rewrite one file, if it holds people who left; return whether it was."""
    left = _find_left(context, path, reader=readers[-1])
    gone: Index = reduce(np.intersect1d, [left, *(one.unused for one in readers)])
    if not len(gone):
        for one in readers:
            if not one.settled:
                _note_versions(context, one, versions=(one.version,))
        draft_path(path).unlink(missing_ok=True)
        return False
    identity = write_draft(path, gone)
    if read_identity(path) != readers[0].version.identity:
        draft_path(path).unlink(missing_ok=True)
        refuse_changed("which is rewritten", "a file")
    after = [one.drop(gone, identity) for one in readers]
    for one, new in zip(readers, after, strict=True):
        _note_versions(context, one, versions=(one.version, new))
    put_in_place(path)
    for one, new in zip(readers, after, strict=True):
        _note_versions(context, one, versions=(new,))
    return True


def _note_versions(
    context: Context, reader: Reader, *, versions: tuple[Version, ...]
) -> None:
    """Write down which contents a file may have; nothing is released."""
    loaded = context.load_model(reader.name)
    assert loaded.files is not None
    source = loaded.files.source
    known = list(source.files)
    known[reader.number] = replace(known[reader.number], versions=versions)
    files = replace(loaded.files, source=replace(source, files=tuple(known)))
    write_unreleased(context, replace(loaded, files=files))
    context.destroy_old_checkpoints()
