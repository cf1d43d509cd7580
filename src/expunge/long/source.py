# SPDX-License-Identifier: Apache-2.0
"""Source: where the rows of a model lie in Parquet files, as a value that is kept.

A row has the position that it had at the fit, for ever. Rows that left the model are
absent. A rewrite of a file may drop them from it; the others keep their positions,
though they lie elsewhere in the file by then. A file being rewritten may have either
of two contents, the one before and the one after, and both can be read: a crash in
between leaves nothing to repair.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..core.arrays import Index
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.values import Private, stored
from ..exceptions import InvalidInput, Unsupported
from ..private_model.labels import Labels
from .parquet import Columns, Identity, ParquetTable, import_arrow_errors
from .raw_table import RawRows, RawTable
from .stored_rows import StoredRows, TargetCoding
from .table import LongTable


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Version(Private):
    """One content of a file.

    Attributes
    ----------
    identity
        What tells that the file has this content.
    dropped
        Which rows it lacks: sorted numbers of rows of the file at the fit, from 0.
    """

    identity: Identity
    dropped: Index


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SourceFile(Private):
    """A file, how many rows it had at the fit, and its content.

    While it is rewritten it may have one of two contents: the one before comes first.
    """

    path: str
    n_rows: int
    versions: tuple[Version, ...]


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Source(Private):
    """The files that a model's rows are read from.

    Attributes
    ----------
    name
        How the source is called in public. Paths are private.
    files, columns
        The files in their order, and which columns are what.
    memory
        A ceiling on the rows in memory, in bytes.
    passes
        Whether all rows may be read again, or only those of people who leave.
    absent
        Sorted positions of the rows that left the model.
    """

    name: str
    files: tuple[SourceFile, ...]
    columns: Columns
    memory: int
    passes: bool
    absent: Index

    @property
    def n_rows(self) -> int:
        """How many rows the files had at the fit."""
        return sum(file.n_rows for file in self.files)

    @property
    def begins(self) -> Index:
        """The first position of each file, and the end of the last one."""
        return np.cumsum([0, *(file.n_rows for file in self.files)])

    def without(self, positions: Index) -> "Source":
        """Return the source with more rows absent; those of no file do not count."""
        inside = positions[positions < self.n_rows]
        absent = np.union1d(self.absent, inside).astype(np.intp)
        return replace(self, absent=absent)

    def absent_in(self, number: int) -> Index:
        """Return which rows of a file are absent, numbered from 0 as of the fit."""
        begin, end = self.begins[number : number + 2]
        some = slice(*np.searchsorted(self.absent, [begin, end]))
        return np.asarray(self.absent[some] - begin)

    def files_to_rewrite(self) -> list[int]:
        """Return the numbers of files that may hold rows of people who left."""
        return [
            number
            for number, file in enumerate(self.files)
            if len(file.versions) > 1
            or not np.array_equal(file.versions[0].dropped, self.absent_in(number))
        ]

    def rows(
        self, objective: Objective, labels: Labels | None, *, gone: Index
    ) -> StoredRows:
        """Return the rows but those that are absent and those at these positions.

        Weights, where there are any, are read for their sum.
        """
        rows = self._see(objective, labels, absent=self.without(gone).absent)
        if not rows.table.weighted:
            return replace(rows, total=float(len(rows)))

        def weigh(block: Rows) -> tuple[float]:
            return (float(np.add.reduce(block.weight)),)

        return replace(rows, total=rows.sum_blocks(weigh)[0])

    def take(
        self, objective: Objective, labels: Labels | None, *, positions: Index
    ) -> Rows:
        """Return the rows at these positions."""
        rows = self._see(objective, labels, absent=self.absent)
        if np.isin(positions, self.absent).any():
            raise InvalidInput(
                f"rows of source {self.name!r} that left the model were asked for; the "
                "registry contradicts itself: restore it from a backup"
            )
        try:
            taken = rows.take(positions)
            rows.require_unchanged()
            return taken
        finally:
            rows.table.close()

    def _see(
        self, objective: Objective, labels: Labels | None, *, absent: Index
    ) -> StoredRows:
        code = TargetCoding(objective.loss, None if labels is None else labels.coding)
        return StoredRows(SourceTable(self), code, objective.intercept, absent, 0.0)


class SourceTable(RawTable):
    """The rows of a source at their positions, with nothing where a row was dropped."""

    def __init__(self, source: Source) -> None:
        found = find_versions(source)
        paths = [Path(file.path) for file in source.files]
        self._name = source.name
        with self._explain():
            table = ParquetTable(paths, source.columns, memory=source.memory)
        if table.identities != [version.identity for version in found]:
            refuse_changed(source.name, "a file")
        parts = [
            begin + version.dropped
            for begin, version in zip(source.begins[:-1], found, strict=True)
        ]
        self._table = table
        self._dropped: Index = np.concatenate([np.empty(0, np.intp), *parts])
        self.n_rows, self.names = source.n_rows, table.names
        self.dtype, self.weighted = table.dtype, table.weighted

    def read(self, begin: int, end: int, *, subjects: bool = False) -> RawRows:
        """Return the rows from one position to another; what was dropped is zero."""
        before, until = np.searchsorted(self._dropped, [begin, end]).tolist()
        first, last = begin - before, end - until
        with self._explain():
            if not self._table.n_rows:
                raw = self._no_rows()
            elif first == last:  # one that is there shows what targets are like
                other = min(first, self._table.n_rows - 1)
                raw = self._table.read(other, other + 1, subjects=subjects)
                raw = _rows_at(raw, np.empty(0, np.intp))
            else:
                raw = self._table.read(first, last, subjects=subjects)
        if before == until:
            return raw
        there = np.ones(end - begin, dtype=bool)
        there[self._dropped[before:until] - begin] = False
        return _spread(raw, there)

    def read_design(self, begin: int, end: int, *, intercept: bool) -> RawRows:
        """Return the rows as passes use them; what was dropped is zero."""
        before, until = np.searchsorted(self._dropped, [begin, end]).tolist()
        if before != until:
            return super().read_design(begin, end, intercept=intercept)
        with self._explain():
            return self._table.read_design(
                begin - before, end - until, intercept=intercept
            )

    def require_unchanged(self) -> None:
        """Raise InvalidInput if a file is not what it was when it was opened."""
        with self._explain():
            self._table.require_unchanged()

    def locate(self, position: int) -> str:
        """Return where the row is, in words."""
        return f"row {position} of source {self._name!r}"

    def close(self) -> None:
        """Close the file that is open."""
        self._table.close()

    def _no_rows(self) -> RawRows:
        """Return what files hold from which every row was dropped."""
        none = np.empty(0)
        X = np.empty((0, self.n_features), dtype=self.dtype)
        return RawRows(X, none, none if self.weighted else None)

    @contextmanager
    def _explain(self) -> Iterator[None]:
        """Say of a file that cannot be read of which source it is."""
        unreadable: tuple[type[Exception], ...] = (OSError, *import_arrow_errors())
        try:
            yield
        except unreadable:
            refuse_changed(self._name, "a file")


def find_versions(source: Source) -> list[Version]:
    """Return the content that each file has; raise InvalidInput for any other."""
    found = []
    for number, file in enumerate(source.files):
        identity = read_identity(Path(file.path))
        versions = [v for v in file.versions if v.identity == identity]
        if not versions:
            refuse_changed(source.name, f"file {number}")
        found.append(versions[-1])
    return found


def read_identity(path: Path) -> Identity | None:
    """Return what tells the content of a file; None if it cannot be read."""
    try:
        return Identity.of(path)
    except OSError:
        return None


def refuse_changed(name: str, what: str) -> NoReturn:
    """Raise InvalidInput for a file that is not as the model knows it."""
    raise InvalidInput(
        f"{what} of source {name!r} changed, is gone, or cannot be read: its rows are "
        "no longer those that the model was fitted to; nothing was changed; put the "
        "file back as it was, with its time, or fit the model again"
    )


def make_source(table: LongTable, name: str, *, passes: bool) -> Source:
    """Return where the rows of a table lie, to be kept after the table is closed."""
    files = table.origin
    if not isinstance(files, ParquetTable):
        raise Unsupported(
            "a registry can leave the rows of Parquet files where they are, and no "
            "others; write the arrays to Parquet, or read them into memory"
        )
    if table.header is not None:
        raise Unsupported(
            "a registry cannot leave raw columns (raw=True) where they are yet: give "
            "columns that are encoded already, or fit to rows in memory"
        )
    return Source(
        name,
        tuple(
            SourceFile(
                str(path.resolve()), n_rows, (Version(identity, table.absent[:0]),)
            )
            for path, n_rows, identity in zip(
                files.paths, files.rows_by_file, files.identities, strict=True
            )
        ),
        files.columns,
        files.memory,
        passes,
        table.absent,
    )


def _rows_at(raw: RawRows, at: Index) -> RawRows:
    weight = None if raw.weight is None else raw.weight[at]
    owners = None if raw.subjects is None else raw.subjects[at]
    return RawRows(raw.X[at], raw.y[at], weight, owners)


def _spread(raw: RawRows, there: Any) -> RawRows:
    """Return rows at the positions where they are, and nothing at the others."""

    def spread(values: Any, shape: Sequence[int] = ()) -> Any:
        wide = np.zeros((len(there), *shape), dtype=values.dtype)
        wide[there] = values
        return wide

    return RawRows(
        spread(raw.X, raw.X.shape[1:]),
        spread(raw.y),
        None if raw.weight is None else spread(raw.weight),
        None if raw.subjects is None else spread(raw.subjects),
    )
