# SPDX-License-Identifier: Apache-2.0
"""The remaining rows, for contenders that must look at them on every request.

A dense design is kept without gaps: the last row moves into the place of a removed
one, so that a request costs O(d) here and no contender pays for copying all rows.
"""

from typing import Any

import numpy as np
from scipy import sparse

from expunge import Rows
from expunge.core.arrays import Index
from expunge.exceptions import UnknownRows


class Remaining:
    """The rows of a problem that no request has removed yet, in any order."""

    def __init__(self, train: Rows) -> None:
        X: Any = train.X.copy()
        self._rows = Rows(X, train.y.copy(), train.weight.copy())
        self._place = np.arange(len(train))  # of a person; -1 once removed
        self._person = np.arange(len(train))  # at a place
        self._left = len(train)

    @property
    def rows(self) -> Rows:
        """What remains: a view, valid until the next request."""
        return self._rows.take(slice(0, self._left))

    @property
    def people(self) -> Index:
        """Positions in the training set of those who remain, in order."""
        return np.sort(self._person[: self._left])

    def remove(self, removed: Index) -> Rows:
        """Take out the rows at these positions of the training set; return them."""
        places = self._place[removed]
        if (places < 0).any() or len(np.unique(places)) != len(places):
            raise UnknownRows(
                f"{len(removed)} rows are to be removed, and some were removed before "
                "or are named twice; ask for each once"
            )
        gone = self._rows.take(places)
        if sparse.issparse(self._rows.X):
            self._compress(removed)
        else:
            for person in removed.tolist():
                self._fill(person)
        return gone

    def _fill(self, person: int) -> None:
        """Move the last row into the place of this person's."""
        self._left -= 1
        place, last = int(self._place[person]), self._left
        arrays: list[Any] = [self._rows.X, self._rows.y, self._rows.weight]
        for array in [*arrays, self._person]:
            array[place] = array[last]
        self._place[self._person[place]] = place
        self._place[person] = -1

    def _compress(self, removed: Index) -> None:
        """Copy what is left: sparse rows differ in length."""
        people = np.delete(self._person[: self._left], self._place[removed])
        self._rows = self._rows.without(self._place[removed])
        self._left = len(people)
        self._person = people
        self._place[:] = -1
        self._place[people] = np.arange(len(people))


def row_bytes(rows: Rows) -> int:
    """Return the bytes that rows take in memory."""
    sparse_design = sparse.issparse(rows.X)
    X: Any = rows.X
    design = [X.data, X.indices, X.indptr] if sparse_design else [X]
    return sum(int(part.nbytes) for part in [*design, rows.y, rows.weight])
