# SPDX-License-Identifier: Apache-2.0
"""Parquet files as one table, decoded a batch at a time.

``ParquetFile.iter_batches`` frees each batch; ``Dataset.to_batches`` would not. Column
chunks are read through a small buffer, so that memory does not grow with the size of
row groups. Every pass first checks that the files are the ones of the first pass.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from ..core.values import stored
from ..exceptions import InvalidInput, needing
from .raw_columns import Words
from .raw_table import NUMBER, RawRows, RawTable, rows_at_once

BUFFER_BYTES = 1 << 16
MAGIC_BYTES = 8  # the length of the footer, and the magic word


@stored
@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a table are what.

    Attributes
    ----------
    target, subject, weight
        The column with the labels, with the owners of rows, with their weights.
    features
        The columns that the model sees; None for all that are left.
    """

    target: str
    subject: str | None = None
    weight: str | None = None
    features: Sequence[str] | None = None


@stored
@dataclass(frozen=True, slots=True)
class Identity:
    """What tells whether a file changed: its size, its time, and its footer."""

    size: int
    changed_ns: int
    footer: bytes

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return the identity of a Parquet file."""
        status = path.stat()
        with path.open("rb") as file:
            file.seek(max(0, status.st_size - MAGIC_BYTES))
            tail = file.read(MAGIC_BYTES)
            length = int.from_bytes(tail[:4], "little") + MAGIC_BYTES
            file.seek(max(0, status.st_size - length))
            footer = sha256(file.read(length)).digest()
        return cls(status.st_size, status.st_mtime_ns, footer)


class ParquetTable(RawTable):
    """The rows of one or several Parquet files of one schema."""

    def __init__(
        self,
        paths: Sequence[Path],
        columns: Columns,
        *,
        memory: int,
        raw: bool = False,
    ) -> None:
        self._paths = list(paths)
        self.memory = memory
        self._identities = _identify(self._paths)
        self._cursor: _Cursor | None = None
        schema = _require_equal_schemas(self._paths)
        self._columns = require_columns(schema.names, columns)
        self.names = tuple(self._columns.features or ())
        self.dtype = NUMBER if raw else _dtype_of(schema, self.names)
        if raw:
            self.words = Words(_word_columns(schema, self.names))
            self.header = schema.empty_table().select(list(self.names))
        self.weighted = columns.weight is not None
        # Besides the features, at most a target, a weight and a subject.
        self.batch_rows = rows_at_once(memory, n_columns=self.n_features + 3)
        begins, groups = [0], []
        for number, path in enumerate(self._paths):
            with _open(path) as file:
                for group in range(file.metadata.num_row_groups):
                    n_rows = file.metadata.row_group(group).num_rows
                    groups.append((number, group))
                    begins.append(begins[-1] + n_rows)
        self._groups, self._begins = groups, begins
        self.n_rows = begins[-1]

    @property
    def paths(self) -> list[Path]:
        """The files."""
        return list(self._paths)

    @property
    def identities(self) -> list[Identity]:
        """What told, when the table was opened, the content of each file."""
        return list(self._identities)

    @property
    def columns(self) -> Columns:
        """Which columns are what."""
        return self._columns

    @property
    def rows_by_file(self) -> list[int]:
        """How many rows each file has."""
        counts = [0] * len(self._paths)
        for (number, _), begin, end in zip(
            self._groups, self._begins, self._begins[1:], strict=False
        ):
            counts[number] += end - begin
        return counts

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: where the rows lie, and no open file."""
        return vars(self) | {"_cursor": None}

    def read(self, begin: int, end: int, *, subjects: bool = False) -> RawRows:
        """Return the rows from one position to another.

        Reading on from where the last call ended costs no second look at a row group.
        """
        columns = self._read_columns(begin, end, subjects=subjects)
        return self._collect(columns, dtype=self.dtype, ones=0)

    def read_design(self, begin: int, end: int, *, intercept: bool) -> RawRows:
        """Return the rows as passes use them, filled in once."""
        columns = self._read_columns(begin, end, subjects=False)
        return self._collect(columns, dtype=NUMBER, ones=int(intercept))

    def _read_columns(self, begin: int, end: int, *, subjects: bool) -> dict[str, Any]:
        """Return the columns from one position to another."""
        # Taken while it is in use: another thread makes its own.
        cursor, self._cursor = self._cursor, None
        if begin == 0 or cursor is None or not cursor.can_go_to(begin, subjects):
            if cursor is not None:
                cursor.close()
            self.require_unchanged()
            cursor = _Cursor(self, begin, subjects=subjects)
        columns = cursor.take(begin, end)
        self._cursor = cursor
        return columns

    def require_unchanged(self) -> None:
        """Raise InvalidInput if a file is not what it was when it was opened."""
        for number, (path, identity) in enumerate(
            zip(self._paths, self._identities, strict=True)
        ):
            try:
                same = Identity.of(path) == identity
            except FileNotFoundError:
                same = False
            if not same:
                raise InvalidInput(
                    f"file {number} changed, or is gone, since the table was opened: "
                    "passes over it would not add the same rows; nothing was changed "
                    "in the model; restore the file, or open the table and fit again"
                )

    def locate(self, position: int) -> str:
        """Return the number of the file and of the row in it, from 0."""
        index = self.group_at(position)
        number = self._groups[index][0]
        first = next(i for i, (file, _) in enumerate(self._groups) if file == number)
        return f"file {number}, row {position - self._begins[first]}"

    def group_at(self, position: int) -> int:
        """Return which row group, of all files, holds this position."""
        return max(0, bisect_right(self._begins, position) - 1)

    def close(self) -> None:
        """Close the file that is open."""
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def read_owners(self) -> Iterator[NDArray[Any]]:
        """Yield the owners of all rows, a batch at a time; read nothing else."""
        subject = self._columns.subject
        assert subject is not None
        self.require_unchanged()
        for batch in self.batches(0, [subject]):
            yield to_numpy(batch.column(0))
        self.require_unchanged()

    def read_whole(self) -> tuple[Any, dict[str, NDArray[Any]]]:
        """Return the features as an Arrow table, and the other columns as arrays."""
        pa: Any = import_module("pyarrow")
        names = self.column_names(subjects=self._columns.subject is not None)
        self.require_unchanged()
        parts = []
        for path in self._paths:
            with _open(path) as file:
                parts.append(file.read(columns=names))
        self.require_unchanged()
        whole = pa.concat_tables(parts)
        others = names[self.n_features :]
        arrays = {
            name: np.concatenate([to_numpy(part) for part in whole[name].chunks])
            for name in others
        }
        return whole.select(list(self.names)), arrays

    def batches(self, position: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield batches of columns from the row group of a position on."""
        for number, group in self._groups[self.group_at(position) :]:
            with _open(self._paths[number]) as file:
                yield from file.iter_batches(
                    self.batch_rows, [group], columns=columns, use_threads=False
                )

    def column_names(self, *, subjects: bool) -> list[str]:
        """Return the columns to read, features first."""
        more = [self._columns.target, self._columns.weight]
        if subjects:
            more.append(self._columns.subject)
        return [*self.names, *(name for name in more if name is not None)]

    def begin_of(self, position: int) -> int:
        """Return the first position in the row group of a position."""
        return self._begins[self.group_at(position)]

    def _collect(
        self, columns: dict[str, Any], *, dtype: np.dtype[Any], ones: int
    ) -> RawRows:
        """Return columns of equal length as rows, followed by columns of ones."""
        target, weight = self._columns.target, self._columns.weight
        X = np.empty((len(columns[target]), self.n_features + ones), dtype=dtype)
        for index, name in enumerate(self.names):
            values = columns[name]
            if self.words is not None and name in self.words:
                values = self.words.code(name, values)
            X[:, index] = values
        X[:, self.n_features :] = 1.0
        weights = None if weight is None else columns[weight].astype(np.float64)
        subject = self._columns.subject
        owners = None if subject is None else columns.get(subject)
        return RawRows(X, columns[target], weights, owners)


class _Cursor:
    """A position in the files from which to read on."""

    def __init__(self, table: ParquetTable, position: int, *, subjects: bool) -> None:
        self._table = table
        self._subjects = subjects
        self._position = table.begin_of(position)
        names = table.column_names(subjects=subjects)
        self._batches = table.batches(position, names)
        self._batch: dict[str, NDArray[Any]] = {}
        self._used = self._length = 0

    def can_go_to(self, position: int, subjects: bool) -> bool:
        """Whether reading on leads to a position without a detour."""
        if subjects != self._subjects or position < self._position:
            return False
        return self._table.begin_of(position) <= self._position

    def take(self, begin: int, end: int) -> dict[str, Any]:
        """Return the columns from one position, here or further on, to another."""
        while self._position < begin:
            self._advance(begin - self._position)
        parts = []
        while self._position < end:
            parts.append(self._advance(end - self._position))
        if len(parts) == 1:
            return parts[0]
        return {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }

    def close(self) -> None:
        """Close the file that is open."""
        self._batch = {}
        self._batches.close()  # type: ignore[attr-defined]

    def _advance(self, n_rows: int) -> dict[str, NDArray[Any]]:
        """Return the next rows of the present batch, at most so many."""
        if self._used == self._length:
            batch = next(self._batches, None)
            if batch is None:
                raise InvalidInput(
                    "the files hold fewer rows than when the table was opened; open it "
                    "again"
                )
            self._batch = {
                name: to_numpy(column)
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            self._used, self._length = 0, batch.num_rows
        begin, self._used = self._used, min(self._used + n_rows, self._length)
        self._position += self._used - begin
        return {
            name: values[begin : self._used] for name, values in self._batch.items()
        }


def import_parquet() -> Any:
    """Import and return pyarrow.parquet."""
    with needing("cli", "reading Parquet files"):
        return import_module("pyarrow.parquet")


def import_arrow_errors() -> tuple[type[Exception], ...]:
    """Return what pyarrow raises for a file that it cannot read."""
    pa: Any = import_module("pyarrow")
    return (pa.ArrowException,)


def find_files(paths: str | os.PathLike[str] | Sequence[Any]) -> list[Path]:
    """Return the Parquet files that paths name: files, and those in folders by name."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    files: list[Path] = []
    for path in map(Path, given):
        inside = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        if not inside:
            raise InvalidInput(
                "a folder holds no file that ends in .parquet; check its path, or name "
                "the files"
            )
        files += inside
    if not files:
        raise InvalidInput("no files were given; name a Parquet file or a folder")
    for number, path in enumerate(files):
        if not path.is_file():
            raise InvalidInput(f"file {number} does not exist; check the paths")
    if len({path.resolve() for path in files}) < len(files):
        raise InvalidInput(
            "a file was given twice, perhaps once by its folder; its rows would count "
            "twice: give each file once"
        )
    return files


def read_names(path: Path) -> list[str]:
    """Return the names of the columns of a Parquet file."""
    schema = _require_equal_schemas([path])
    return list(schema.names)


def _open(path: Path) -> Any:
    """Open a Parquet file that is read through a buffer."""
    parquet = import_parquet()
    return parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False)


def _identify(paths: Sequence[Path]) -> list[Identity]:
    """Return what tells the content of each file."""
    identities = []
    for number, path in enumerate(paths):
        try:
            identities.append(Identity.of(path))
        except OSError as error:
            _refuse_unreadable(number, error)
    return identities


def _refuse_unreadable(number: int, error: Any) -> NoReturn:
    """Raise InvalidInput for a file that the system does not let us read."""
    raise InvalidInput(
        f"file {number} cannot be read ({error.strerror}); check that it is there and "
        "that this user may read it"
    ) from None


def _require_equal_schemas(paths: Sequence[Path]) -> Any:
    """Return the schema of the files, or raise InvalidInput if there are several."""
    pa: Any = import_module("pyarrow")
    first = None
    for number, path in enumerate(paths):
        try:
            with _open(path) as file:
                schema = file.schema_arrow.remove_metadata()
        except (pa.ArrowInvalid, OSError) as error:
            if getattr(error, "errno", None):  # it would name the file
                _refuse_unreadable(number, error)
            raise InvalidInput(
                f"file {number} is not a Parquet file: {error}"
            ) from None
        first = schema if first is None else first
        if not schema.equals(first):
            raise InvalidInput(
                f"file {number} has other columns, or columns of other types, than "
                "file 0; write all files with one schema"
            )
    return first


def require_columns(names: Sequence[str], columns: Columns) -> Columns:
    """Return the columns with the features named, or raise InvalidInput."""
    given = [columns.target, columns.subject, columns.weight]
    special = [name for name in given if name is not None]
    features = columns.features
    if features is None:
        features = [name for name in names if name not in special]
    wanted = [*features, *special]
    for name in wanted:
        if name not in names:
            some = ", ".join(map(repr, names[:20]))
            raise InvalidInput(f"no column {name!r} in the table; it has {some}")
        if names.count(name) > 1 or wanted.count(name) > 1:
            raise InvalidInput(
                f"column {name!r} is named twice; give each column one name and one use"
            )
    if not features:
        raise InvalidInput("no features are left; name at least one column")
    return Columns(columns.target, columns.subject, columns.weight, tuple(features))


def _dtype_of(schema: Any, names: Sequence[str]) -> np.dtype[Any]:
    """Return float32 if no feature is wider, else float64; refuse other things."""
    types: Any = import_module("pyarrow.types")
    kinds = [schema.field(name).type for name in names]
    for name, kind in zip(names, kinds, strict=True):
        number = types.is_floating(kind) or types.is_integer(kind)
        if not (number or types.is_boolean(kind)):
            raise InvalidInput(
                f"column {name!r} holds {kind}; features must be numbers: encode it, "
                "or leave it out with features=[...]"
            )
    narrow = all(types.is_float32(kind) for kind in kinds)
    return np.dtype(np.float32 if narrow else np.float64)


def _word_columns(schema: Any, names: Sequence[str]) -> list[str]:
    """Return the columns that hold words; refuse what is neither word nor number."""
    types: Any = import_module("pyarrow.types")
    words = []
    for name in names:
        kind = schema.field(name).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        text = types.is_string(kind) or types.is_large_string(kind)
        if text or types.is_boolean(kind):
            words.append(name)
        elif not (types.is_floating(kind) or types.is_integer(kind)):
            raise InvalidInput(
                f"column {name!r} holds {kind}; features must be numbers or words: "
                "leave it out with features=[...]"
            )
    return words


def to_numpy(column: Any) -> NDArray[Any]:
    """Return a column as an array; missing numbers are NaN, missing words None."""
    if hasattr(column, "dictionary_decode"):
        column = column.dictionary_decode()
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values
