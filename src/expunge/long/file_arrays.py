# SPDX-License-Identifier: Apache-2.0
"""Arrays in files as tables: NumPy files, and the private folder of decoded rows.

Files are read by position and not mapped: pages of a mapped file count as memory of the
process until the system takes them back.

A table may be decoded once into a private folder, from which later passes read.
Features lie there as float32 if the files hold nothing wider, else as float64; targets
and weights as float64. The folder is private state: a removal overwrites the rows in
it, and closing the table deletes it.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from ..core.arrays import Index
from ..exceptions import InvalidInput
from .raw_table import NUMBER, RawRows, RawTable, runs_of


@dataclass(frozen=True, slots=True)
class FileArray:
    """An array in a file, C-ordered, read by rows.

    Attributes
    ----------
    path, offset
        The file, and where in it the array begins.
    dtype, shape
        What it holds.
    """

    path: Path
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """The size of a row."""
        return self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))

    def read(self, begin: int, end: int) -> NDArray[Any]:
        """Return the rows from one position to another."""
        rows = np.empty((end - begin, *self.shape[1:]), dtype=self.dtype)
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.offset + begin * self.row_bytes)
            view, done = memoryview(rows.data).cast("B"), 0
            while done < rows.nbytes:
                n_bytes = file.readinto(view[done:])
                if not n_bytes:
                    raise InvalidInput(
                        "a file is shorter than when the table was opened; restore it, "
                        "or open the table and fit again"
                    )
                done += n_bytes
        return rows

    def zero(self, begin: int, end: int) -> None:
        """Overwrite the rows from one position to another with zeros, on disk."""
        self.write(begin, bytes((end - begin) * self.row_bytes))

    def write(self, begin: int, content: bytes) -> None:
        """Overwrite rows from a position on, on disk."""
        with self.path.open("r+b", buffering=0) as file:
            file.seek(self.offset + begin * self.row_bytes)
            file.write(content)


def open_array(given: Any, name: str) -> Any:
    """Return an array in a file, given by its path or mapped; another one as it is."""
    if isinstance(given, np.memmap) and given.flags.c_contiguous and given.filename:
        path = Path(os.fsdecode(given.filename))
        # A view begins further on than the map that it is of.
        root = given
        while isinstance(root.base, np.memmap):
            root = root.base
        inside = given.ctypes.data - root.ctypes.data
        return FileArray(path, root.offset + inside, given.dtype, given.shape)
    if not isinstance(given, str | os.PathLike):
        return np.asarray(given)
    path = Path(given)
    try:
        with path.open("rb") as file:
            version = npy_format.read_magic(file)
            read = getattr(npy_format, f"read_array_header_{version[0]}_0")
            shape, turned, dtype = read(file)
            offset = file.tell()
    except (OSError, ValueError, AttributeError):
        raise InvalidInput(
            f"the file for {name} is not a .npy file; write it with np.save"
        ) from None
    if dtype.hasobject or (turned and len(shape) > 1):
        raise InvalidInput(
            f"the file for {name} must hold a C-ordered array of plain values; write "
            "it with np.save(path, np.ascontiguousarray(array))"
        )
    return FileArray(path, offset, dtype, shape)


class NpyTable(RawTable):
    """Features in a .npy file, with arrays of targets, weights and owners."""

    def __init__(
        self, features: Any, target: Any, *, weight: Any, subject: Any
    ) -> None:
        if not isinstance(features, np.memmap | str | os.PathLike):
            raise InvalidInput(
                f"the features are in memory, in a {type(features).__name__}; pass "
                "them to fit(X, y, subjects=...), or write them with np.save and give "
                "the file"
            )
        self._X = open_array(features, "features")
        self._y = open_array(target, "target")
        self._weight = None if weight is None else open_array(weight, "weight")
        self._subjects = None if subject is None else open_array(subject, "subject")
        if len(self._X.shape) != 2 or self._X.dtype.kind not in "fiub":
            raise InvalidInput(
                f"features have shape {self._X.shape} and dtype {self._X.dtype}; give "
                "a matrix of numbers"
            )
        self.n_rows, width = self._X.shape
        for name, column in self._columns().items():
            if column is not None and column.shape != (self.n_rows,):
                raise InvalidInput(
                    f"{name} has shape {column.shape} and features have {self.n_rows} "
                    "rows; give one value for each row"
                )
        self.names = tuple(f"x{index}" for index in range(width))
        self.dtype = np.dtype(np.float32 if self._X.dtype == np.float32 else np.float64)
        self.weighted = weight is not None
        self._identities = self._look()

    def read(self, begin: int, end: int, *, subjects: bool = False) -> RawRows:
        """Return the rows from one position to another."""
        if begin == 0:
            self.require_unchanged()
        part = slice(begin, min(end, self.n_rows))
        X = _read(self._X, part).astype(self.dtype, copy=False)
        y, weight = _read(self._y, part), None
        if self._weight is not None:
            weight = _read(self._weight, part).astype(np.float64)
        owners = None
        if subjects and self._subjects is not None:
            owners = _read(self._subjects, part)
        return RawRows(X, y, weight, owners)

    def require_unchanged(self) -> None:
        """Raise InvalidInput if a file is not what it was when it was opened."""
        if self._look() != self._identities:
            raise InvalidInput(
                "a file changed, or is gone, since the table was opened: passes over "
                "it would not add the same rows; restore it, or open the table and fit "
                "again"
            )

    def close(self) -> None:
        """Do nothing: files are open only while they are read."""

    def locate(self, position: int) -> str:
        """Return the number of the row."""
        return f"file 0, row {position}"

    def _columns(self) -> dict[str, Any]:
        """Return the arrays with a value for each row."""
        return {"target": self._y, "weight": self._weight, "subject": self._subjects}

    def _look(self) -> list[tuple[int, int] | None]:
        """Return size and time of each file; None for one that is gone."""
        found: list[tuple[int, int] | None] = []
        for column in (self._X, *self._columns().values()):
            if isinstance(column, FileArray):
                try:
                    status = column.path.stat()
                    found.append((status.st_size, status.st_mtime_ns))
                except FileNotFoundError:
                    found.append(None)
        return found


def _read(array: Any, part: slice) -> NDArray[Any]:
    """Return rows of an array, wherever it lies."""
    if isinstance(array, FileArray):
        return array.read(part.start, part.stop)
    some: NDArray[Any] = array[part]
    return some


class DecodedTable(RawTable):
    """Rows in plain arrays on disk, overwritten where they were removed."""

    def __init__(
        self, folder: Path, table: RawTable, *, words: NDArray[Any] | None
    ) -> None:
        self.n_rows, self.names = table.n_rows, table.names
        self.dtype, self.weighted = table.dtype, table.weighted
        shape = (self.n_rows,)
        self._X = FileArray(
            folder / "features", 0, self.dtype, (*shape, self.n_features)
        )
        self._y = FileArray(folder / "target", 0, NUMBER, shape)
        self._weight = FileArray(folder / "weight", 0, NUMBER, shape)
        self._words = words

    def read(self, begin: int, end: int, *, subjects: bool = False) -> RawRows:
        """Return the rows from one position to another, without their owners."""
        assert not subjects, "owners are in the index of people"
        weight = self._weight.read(begin, end) if self.weighted else None
        y = self._y.read(begin, end)
        if self._words is not None:
            y = self._words[y.astype(np.intp)]
        return RawRows(self._X.read(begin, end), y, weight)

    def require_unchanged(self) -> None:
        """Trust the private folder: nobody else writes there."""

    def close(self) -> None:
        """Do nothing: files are open only while they are read."""

    def locate(self, position: int) -> str:
        """Return the number of the row."""
        return f"row {position}"

    def erase(self, positions: Index) -> None:
        """Overwrite the rows at these positions; doing it twice changes nothing."""
        for begin, end in runs_of(np.unique(positions)):
            self._X.zero(begin, end)
            self._y.zero(begin, end)
            if self.weighted:
                self._weight.zero(begin, end)


class DecodedWriter:
    """Writes rows into a private folder as the first pass decodes them.

    Weights are always written, where there are any: their sum is asked for often.
    """

    def __init__(self, folder: Path, table: RawTable, *, features: bool) -> None:
        self._table = table
        self._features = features
        if features:
            _require_room(folder, table)
        names = ("features", "target") if features else ()
        weights = ("weight",) if table.weighted else ()
        self._files = {n: (folder / n).open("xb") for n in (*names, *weights)}

    def add(self, raw: RawRows, y: NDArray[np.float64]) -> None:
        """Write the next rows, with their targets as numbers."""
        if self._features:
            X = np.ascontiguousarray(raw.X, dtype=self._table.dtype)
            self._files["features"].write(X)
            self._files["target"].write(np.ascontiguousarray(y))
        if raw.weight is not None:
            self._files["weight"].write(np.ascontiguousarray(raw.weight))

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


def _require_room(folder: Path, table: RawTable) -> None:
    """Raise InvalidInput if the disk has no room for the decoded table."""
    row = table.dtype.itemsize * table.n_features + 16
    needed, free = row * table.n_rows, shutil.disk_usage(folder).free
    if needed > free:
        raise InvalidInput(
            f"decoding the table takes {needed / 2**30:.2f} GiB of disk and "
            f"{free / 2**30:.2f} GiB are free; name a folder on a larger disk with "
            "folder=..., or pass cache=False to decode the files in every pass"
        )
