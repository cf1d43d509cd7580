# SPDX-License-Identifier: Apache-2.0
"""LongTable: a table that was looked through, and the rows of its model in it.

It owns the private folder with the index of people and the decoded rows. A row that a
model forgot is absent in all passes from then on. A table serves the model that was
fitted to it last: an earlier one would add rows that the later one forgot.

A request reads the person's rows by their positions, found through the index, and
nothing else; only an answer that needs the remaining rows makes a pass.
"""

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Vector
from ..core.objective import Objective
from ..core.rows import BLOCK_ROWS, Rows, RowSource
from ..core.values import Private
from ..disk import delete_scratch_folder, make_scratch_folder
from ..display.progress import OnProgress, be_silent
from ..engines import Engine
from ..exceptions import InvalidInput
from ..preprocessing.columns import Recipe
from ..preprocessing.description import Preprocessing
from ..private_model.subjects import ROW
from ..private_model.training_rows import KeptRows, unknown_owners
from ..promise.noise import SECRET_BYTES, random_bytes
from .file_arrays import DecodedTable, FileArray
from .first_pass import FirstPass, find_owners, look_through
from .parquet import ParquetTable
from .people import find_all
from .raw_columns import RawColumns, learn_recipe
from .raw_table import NUMBER, RawTable, require_positions, runs_of
from .stored_rows import StoredRows, sum_weights


class LongTable(Private):
    """Rows in files with their targets, weights and owners.

    Attributes
    ----------
    origin
        The files or arrays that it was opened from.
    facts
        What the first pass found.
    people
        The index of people; None if rows have no owners.
    header
        A table of raw columns without rows; None if columns are not raw.
    absent
        Sorted positions of the rows that were forgotten.
    """

    def __init__(
        self,
        table: RawTable,
        *,
        rows_at_once: int,
        owned: bool,
        cache: bool = True,
        folder: str | os.PathLike[str] | None = None,
        on_progress: OnProgress = be_silent,
    ) -> None:
        path = None if folder is None else Path(folder)
        private, lock = make_scratch_folder(path)
        self._finalizer = weakref.finalize(self, delete_scratch_folder, private, lock)
        key = random_bytes(SECRET_BYTES) if owned else None
        # Smaller steps keep what is decoded near the processor.
        step = min(rows_at_once, 8 * BLOCK_ROWS)
        try:
            self.facts, self.people = look_through(
                table, FirstPass(private, step, key, cache, on_progress)
            )
        except BaseException:
            self._finalizer()
            raise
        self._weights: FileArray | None = None
        if table.weighted:
            shape = (table.n_rows,)
            self._weights = FileArray(private / "weight", 0, NUMBER, shape)
        self._words, self.header = table.words, table.header
        self.origin = self._table = table
        if cache:
            table.close()
            self._table = DecodedTable(private, table, words=self.facts.words)
        self.absent: Index = np.empty(0, dtype=np.intp)
        self._targets = self.facts.classes
        self._lost_count = False
        self._owner: object = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the table."""
        self.close()

    def __len__(self) -> int:
        return self._table.n_rows - len(self.absent)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return self._table.names

    @property
    def weighted(self) -> bool:
        """Whether rows have weights."""
        return self._table.weighted

    @property
    def total_weight(self) -> float:
        """The sum of the weights of the rows that are left."""
        return sum_weights(self._table, self._weights, absent=self.absent)

    def count_targets(self) -> dict[Any, tuple[int, int]] | None:
        """Return how many rows each target has left, and how many with weight.

        None if there are too many targets for them to be classes.
        """
        if self._lost_count:
            raise InvalidInput(
                "a file changed while rows were forgotten, so nobody knows how many "
                "rows each class has left; open the table again"
            )
        return self._targets

    def read_owners(self) -> Iterator[tuple[int, Sequence[str], Index]]:
        """Yield who owns the rows of Parquet files, a batch at a time.

        For each batch its first position, people each once, and which of them owns each
        row.
        """
        assert isinstance(self.origin, ParquetTable)
        begin = 0
        for ids in self.origin.read_owners():
            yield begin, *find_owners(self.origin, ids, begin=begin)
            begin += len(ids)

    def close(self) -> None:
        """Delete the private folder; the table and its models make no further pass."""
        self._table.close()
        self._finalizer()

    def rows(
        self,
        objective: Objective,
        *,
        code: Callable[[NDArray[Any]], Vector] | None = None,
        gone: Index | None = None,
        encode: RawColumns | None = None,
    ) -> StoredRows:
        """Return the rows for an objective, but those at some positions.

        ``code`` makes labels of targets; without it they are labels already.
        ``encode`` makes raw rows of raw columns.
        """
        self._require_open()
        self._require_encoding(encode)
        if self.facts.short_rows and not objective.intercept:
            raise InvalidInput(
                "a row that is not zero is too short for a fit without an intercept; "
                "rescale its columns, or fit with an intercept"
            )
        absent = self.absent
        if gone is not None and len(gone):
            require_positions(gone, self._table.n_rows)
            absent = np.union1d(absent, gone).astype(np.intp)
        code = objective.loss.labels if code is None else code
        ones = objective.intercept and encode is None
        rows = StoredRows(self._table, code, ones, absent, 0.0)
        if encode is not None:
            rows = rows.convert(encode, n_columns=len(encode))
        else:
            objective.require_columns(rows.n_columns)
        total = sum_weights(self._table, self._weights, absent=absent)
        return replace(rows, total=total)

    def learn_recipe(self, described: Preprocessing) -> tuple[Recipe, RawColumns]:
        """Return how preprocessing reads the raw columns of the rows that are left."""
        self._require_open()
        assert self._words is not None
        rows = StoredRows(self._table, np.zeros_like, False, self.absent, 0.0)
        return learn_recipe(
            described, rows, names=self.names, words=self._words, gaps=self.facts.gaps
        )

    def claim(self, owner: object) -> None:
        """Note which model the table serves from now on."""
        self._owner = owner

    def require_owner(self, owner: object) -> None:
        """Raise InvalidInput if the table serves another model by now, or is closed."""
        self._require_open()
        if self._owner is not owner:
            raise InvalidInput(
                "another model was fitted to this table since, and it serves that one; "
                "nothing was changed; open the table again for each model that is to "
                "forget"
            )

    def erase(self, positions: Index) -> None:
        """Overwrite rows in the private folder, and leave them out of every pass.

        The files of the table itself stay as they are. Doing it twice changes nothing.
        """
        new = np.setdiff1d(positions, self.absent).astype(np.intp)
        try:
            targets = self._targets_without(new)
        except InvalidInput:  # the request itself must not fail for that
            self._lost_count, targets = True, None
        self._targets = targets
        self.absent = np.union1d(self.absent, new).astype(np.intp)
        if isinstance(self._table, DecodedTable):
            self._table.erase(positions)
        elif self._weights is not None:
            for position in np.unique(positions).tolist():
                self._weights.zero(position, position + 1)
        if self.people is not None:
            self.people.erase(positions)

    def _targets_without(self, new: Index) -> dict[Any, tuple[int, int]] | None:
        """Return the counts of targets without the rows at these positions."""
        if self._targets is None:
            return None
        counts = {target: list(both) for target, both in self._targets.items()}
        for begin, end in runs_of(new):
            raw = self._table.read(begin, end)
            weighted = np.ones(len(raw)) if raw.weight is None else raw.weight > 0.0
            for target, has in zip(raw.y.tolist(), weighted.tolist(), strict=True):
                counts[target][0] -= 1
                counts[target][1] -= int(has)
        return {target: (n, m) for target, (n, m) in counts.items() if n}

    def _require_encoding(self, encode: RawColumns | None) -> None:
        """Raise InvalidInput unless raw columns are encoded, and no others."""
        if (self._words is not None) == (encode is not None):
            return
        if encode is None:
            raise InvalidInput(
                "the table was opened with raw=True, and nothing encodes its columns; "
                "fit an estimator with preprocessing=..., or open it without raw=True"
            )
        raise InvalidInput(
            "preprocessing takes raw columns; open the table with raw=True"
        )

    def _require_open(self) -> None:
        """Raise InvalidInput if the table was closed."""
        if not self._finalizer.alive:
            raise InvalidInput("the table was closed; open it again")


class FileRows(KeptRows):
    """The rows of a model in a long table, which serves this model from now on.

    Parameters
    ----------
    table
        The table.
    objective
        The objective of the fit.
    code
        What makes the codes that rows keep of targets.
    encode
        What makes raw rows of raw columns; None if they are not raw.
    engine
        Where passes run; in this process if not given.
    """

    __slots__ = ("_code", "_encode", "_engine", "_objective", "_table")

    def __init__(
        self,
        table: LongTable,
        objective: Objective,
        *,
        code: Callable[[NDArray[Any]], Vector],
        encode: RawColumns | None = None,
        engine: Engine | None = None,
    ) -> None:
        self._table = table
        self._objective = objective
        self._code = code
        self._encode = encode
        self._engine = engine
        self.anonymous = table.people is None
        table.claim(self)

    def find(self, people: set[str]) -> Index:
        """Return the positions of these people's rows; change nothing.

        Raises UnknownSubject if one of them is not in the model.
        """
        self._table.require_owner(self)
        if self._table.people is not None:
            positions, missing = find_all(self._table.people, people)
        else:
            positions, missing = self._find_rows(people)
        if missing:
            raise unknown_owners(missing, people)
        return positions

    def take(self, positions: Index) -> Rows:
        """Return the rows at these positions."""
        return self._rows().take(positions)

    def count_people(self, gone: Index) -> int:
        """Return how many people own these rows: each leaves with all of them."""
        if self._table.people is None:
            return len(np.unique(gone))
        return self._table.people.count(gone)

    def remaining(self, gone: Index) -> RowSource:
        """Return the remaining rows but these, to be read by passes."""
        rows = self._rows(gone)
        return rows if self._engine is None else self._engine.put(rows)

    @property
    def has_many_gaps(self) -> bool:
        """Gaps stay: files are not written again."""
        return False

    def compact(self) -> "FileRows":
        """Return the rows as they are."""
        return self

    def erase(self, gone: Index) -> None:
        """Overwrite these rows in the table's private folder; never in its files."""
        self._table.require_owner(self)
        self._table.erase(gone)

    def _rows(self, gone: Index | None = None) -> StoredRows:
        """Return the rows of the table but those that left."""
        self._table.require_owner(self)
        return self._table.rows(
            self._objective, code=self._code, gone=gone, encode=self._encode
        )

    def _find_rows(self, names: set[str]) -> tuple[Index, set[str]]:
        """Return the positions that rows without owners are named by."""
        positions = {name: int(name.removeprefix(ROW)) for name in names}
        n_positions = len(self._table) + len(self._table.absent)
        missing = {
            name
            for name, position in positions.items()
            if not 0 <= position < n_positions or position in self._table.absent
        }
        found = sorted(
            position for name, position in positions.items() if name not in missing
        )
        return np.array(found, dtype=np.intp), missing
