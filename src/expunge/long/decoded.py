# SPDX-License-Identifier: Apache-2.0
"""A table decoded once into a private folder, from which later passes read.

Features lie there as float32 if the files hold nothing wider, else as float64; targets
and weights as float64. The folder is private state: a removal overwrites the rows in
it, and closing the table deletes it.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index
from ..exceptions import InvalidInput
from .npy import FileArray
from .raw_table import NUMBER, RawRows, RawTable, runs_of


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
