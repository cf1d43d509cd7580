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
from ..ids import ROW, is_row_name
from ..private import Private
from ..rows import Rows


class Kept(Private):
    """Rows in memory of their own, and which of them belong to whom.

    Attributes
    ----------
    rows, alive
        The rows at the fit, and which of them are left.
    owners, places
        Whose row each is, and where each person's rows lie.
    asked
        People some of whose rows are gone, and some not.
    """

    __slots__ = ("alive", "asked", "owners", "places", "rows")

    def __init__(
        self, rows: Rows, owners: Sequence[str], asked: Iterable[str] = ()
    ) -> None:
        self.rows = Rows(rows.X.copy(), rows.y.copy(), rows.weight.copy())
        self.alive: NDArray[np.bool] = np.ones(len(rows), dtype=bool)
        self.owners = list(owners)
        self.places = _places(self.owners)
        self.asked = set(asked)

    @property
    def anonymous(self) -> bool:
        """Whether the rows are nobody's: the model was fitted without subjects."""
        return is_row_name(next(iter(self.places), ""))

    def find(self, people: set[str]) -> Index:
        """Return the positions of these people's rows; change nothing.

        Raises UnknownSubject if one of them is not there.
        """
        missing = people - self.places.keys()
        if missing:
            raise unknown_owners(missing, people)
        positions = [place for name in sorted(people) for place in self.places[name]]
        return np.array(positions, dtype=np.intp)

    def count_people(self, gone: Index) -> int:
        """Return how many people ask for the first time by these rows."""
        return len({self.owners[place] for place in gone} - self.asked)

    def remaining(self, gone: Index) -> Rows:
        """Return the rows that are left without these."""
        alive = self.alive.copy()
        alive[gone] = False
        return self.rows.take(alive)

    def strike(self, gone: Index) -> None:
        """Overwrite these rows, and forget whose they were.

        Interrupted, it can be done again; once done, doing it again changes nothing.
        """
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
        for name in {self.owners[place] for place in gone} & self.places.keys():
            left = [place for place in self.places[name] if self.alive[place]]
            if left:
                self.places[name] = left
                self.asked.add(name)
            else:
                self.asked.discard(name)
                del self.places[name]
        for place in gone:
            self.owners[place] = ""


def unknown_owners(missing: set[str], people: set[str]) -> UnknownSubject:
    """Return the error of a request for people, or rows, who are not there."""
    first = min(missing)
    what = "row(s)" if is_row_name(first) else "subject(s)"
    return UnknownSubject(
        f"{len(missing)} of {len(people)} {what} are not in the model, or no longer, "
        f"{first.lstrip(ROW)!r} among them; nobody was removed"
    )


def _places(owners: Sequence[str]) -> dict[str, list[int]]:
    """Return the positions of each owner's rows."""
    places: dict[str, list[int]] = {}
    for place, owner in enumerate(owners):
        places.setdefault(owner, []).append(place)
    return places
