# SPDX-License-Identifier: Apache-2.0
"""Kept: the training rows of a model that keeps its data, with their owners.

Removed rows are overwritten with zeros where they lie, which costs as little as the
row is long and leaves none of its bytes; the gaps close when the remaining rows are
next gathered. The arrays are the model's own: the caller's are never written to.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .._typing import Index
from ..exceptions import UnknownSubject
from ..private import Private
from ..rows import Rows


class Kept(Private):
    """Rows in memory of their own, and which of them belong to whom."""

    __slots__ = ("alive", "owners", "places", "rows")

    def __init__(self, rows: Rows, owners: Sequence[str]) -> None:
        self.rows = Rows(rows.X.copy(), rows.y.copy(), rows.weight.copy())
        self.alive: NDArray[np.bool] = np.ones(len(rows), dtype=bool)
        self.owners = list(owners)
        self.places = _places(self.owners)

    def find(self, subjects: Iterable[object]) -> tuple[set[str], Index]:
        """Return these people and the positions of their rows; change nothing.

        Raises UnknownSubject if one of them is not there.
        """
        wanted = {str(subject) for subject in subjects}
        missing = wanted - self.places.keys()
        if missing:
            raise UnknownSubject(
                f"{len(missing)} of {len(wanted)} subject(s) are not in the model, or "
                f"no longer, {min(missing)!r} among them; nobody was removed"
            )
        positions = [place for name in sorted(wanted) for place in self.places[name]]
        return wanted, np.array(positions, dtype=np.intp)

    def remaining(self, gone: Index) -> Rows:
        """Return the rows that are left without these."""
        alive = self.alive.copy()
        alive[gone] = False
        return self.rows.take(alive)

    def strike(self, gone: Index) -> None:
        """Overwrite these rows, and forget whose they were."""
        self.alive[gone] = False
        self.rows.y[gone] = 0.0
        self.rows.weight[gone] = 0.0
        X = self.rows.X
        if sparse.issparse(X):
            for place in gone:
                entries = slice(X.indptr[place], X.indptr[place + 1])
                X.data[entries] = 0.0
                X.indices[entries] = 0
        else:
            X[gone] = 0.0
        for place in gone:
            name, self.owners[place] = self.owners[place], ""
            self.places[name].remove(int(place))
            if not self.places[name]:
                del self.places[name]


def _places(owners: Sequence[str]) -> dict[str, list[int]]:
    """Return the positions of each owner's rows."""
    places: dict[str, list[int]] = {}
    for place, owner in enumerate(owners):
        places.setdefault(owner, []).append(place)
    return places
