# SPDX-License-Identifier: Apache-2.0
"""Rewriting files of a source, so that they no longer hold people who left.

For each file, in this order: the new content is on disk beside it; the checkpoint of
every model that reads the file says that it has its old content or the new one; the new
one takes its place; the next checkpoints say that it has. Between any two of these a
crash leaves models that can read their rows, and the next rewrite goes on from there.

A row that another model still uses stays in the file. So does that of somebody who did
not leave: whose rows the registry keeps since they brought more, or sets aside.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np

from ...core.arrays import Index, Private
from ...display.progress import OnProgress
from ...exceptions import InvalidInput
from ...long.parquet import Identity, ParquetTable
from ...long.rewriting import draft_path, put_in_place, write_draft
from ...long.source import (
    Source,
    Version,
    find_versions,
    read_identity,
    refuse_changed,
)
from ..answering.changes import write_unreleased
from ..context import Context
from ..loaded_model import LoadedModel
from ..storage import releases_table
from .people import find_staying


def require_source(loaded: LoadedModel) -> Source:
    """Return where the rows of a model lie, or raise InvalidInput."""
    if loaded.files is None:
        raise InvalidInput(
            f"the rows of model {loaded.name!r} are kept in the registry, sealed: no "
            "files of it hold anybody"
        )
    return loaded.files.source


def find_files_to_rewrite(context: Context, name: str) -> list[int]:
    """Return the numbers of a model's files that hold, or may hold, people who left.

    Raises InvalidInput if a file is not as the model knows it: anybody may be in it.
    """
    source = require_source(context.load_model(name))
    find_versions(source)
    found = []
    for number in source.files_to_rewrite():
        reader = _find_reader(context, name, source=source, number=number)
        if reader is None:
            refuse_changed(source.name, f"file {number}")
        if not reader.settled or len(reader.unused):
            found.append(number)
    return found


def rewrite_source(context: Context, name: str, *, on_progress: OnProgress) -> int:
    """Rewrite the files that hold people who left a model; return how many.

    The lock is held.
    """
    source = require_source(context.load_model(name))
    numbers, n_written = find_files_to_rewrite(context, name), 0
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


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Reader(Private):
    """A model that reads a file.

    Attributes
    ----------
    name, number
        Of the model, and of the file among those that it reads.
    version, n_rows
        The content of the file, as the model knows it, and how many rows it had at the
        model's fit.
    unused
        Which rows of the file, as it now is, the model and its people do not need.
    settled
        Whether the model knows of no other content.
    """

    name: str
    number: int
    version: Version
    n_rows: int
    unused: Index
    settled: bool

    def drop(self, gone: Index, identity: Identity) -> Version:
        """Return the content without these rows of the file as it now is."""
        there = np.setdiff1d(np.arange(self.n_rows), self.version.dropped)
        dropped = np.union1d(self.version.dropped, there[gone]).astype(np.intp)
        return Version(identity, dropped)


def _find_readers(context: Context, path: Path) -> list[Reader]:
    """Return the models that read a file as it now is; others refuse it already."""
    found = []
    with context.store.read() as connection:
        names = [
            name
            for name in releases_table.model_names(connection)
            if releases_table.read_newest(connection, name).content is not None
        ]
    for name in names:
        files = context.load_model(name).files
        for number, file in enumerate(() if files is None else files.source.files):
            if files is not None and file.path == str(path):
                source = files.source
                found.append(_find_reader(context, name, source=source, number=number))
    return [one for one in found if one is not None]


def _find_reader(
    context: Context, name: str, *, source: Source, number: int
) -> Reader | None:
    """Return how a model reads a file as it now is; None if it refuses it."""
    file = source.files[number]
    path = Path(file.path)
    identity = read_identity(path)
    versions = [one for one in file.versions if one.identity == identity]
    if not versions:
        return None
    version = versions[-1]
    gone = np.setdiff1d(source.absent_in(number), version.dropped)
    unused = np.asarray(gone - np.searchsorted(version.dropped, gone))
    if len(unused) and source.columns.subject is not None:
        table = ParquetTable([path], source.columns, memory=source.memory)
        stay = find_staying(context, name, table=table, positions=unused)
        unused = np.setdiff1d(unused, stay)
    return Reader(name, number, version, file.n_rows, unused, len(file.versions) == 1)


def _rewrite_file(context: Context, path: Path, *, readers: Sequence[Reader]) -> bool:
    """Rewrite one file, if no model uses all its rows; return whether it was."""
    gone: Index = reduce(np.intersect1d, [one.unused for one in readers])
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
