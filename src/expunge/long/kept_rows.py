# SPDX-License-Identifier: Apache-2.0
"""FileRows: the rows of a model that lie in a long table, found through its index.

A request reads the person's rows by their positions and nothing else; only an answer
that needs the remaining rows makes a pass.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Vector
from ..core.objective import Objective
from ..core.rows import Rows, RowSource
from ..engines import Engine
from ..private_model.subjects import ROW
from ..private_model.training_rows import KeptRows, unknown_owners
from .people import find_all
from .raw_columns import RawColumns
from .stored_rows import StoredRows
from .table import LongTable


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
            found, missing = find_all(self._table.people, people)
        else:
            found, missing = self._find_rows(people)
        if missing:
            raise unknown_owners(missing, people)
        return found

    def take(self, places: Index) -> Rows:
        """Return the rows at these positions."""
        return self._rows().take(places)

    def count_people(self, gone: Index) -> int:
        """Return how many people own these rows: each leaves with all of them."""
        if self._table.people is None:
            return len(np.unique(gone))
        return self._table.people.count(gone)

    def remaining(self, gone: Index) -> RowSource:
        """Return the remaining rows but these, to be read by passes."""
        rows = self._rows(gone)
        return rows if self._engine is None else self._engine.place(rows)

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
        places = {name: int(name.removeprefix(ROW)) for name in names}
        n_places = len(self._table) + len(self._table.absent)
        missing = {
            name
            for name, place in places.items()
            if not 0 <= place < n_places or place in self._table.absent
        }
        found = sorted(place for name, place in places.items() if name not in missing)
        return np.array(found, dtype=np.intp), missing
