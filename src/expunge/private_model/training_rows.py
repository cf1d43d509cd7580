# SPDX-License-Identifier: Apache-2.0
"""The rows that are in a model, with their owners, and how a request changes them.

*Places* number all rows that a model ever had, in order: those of the fit first, then
those that came, in the order in which they came. The remaining rows come in the order
of their positions: first those from before a request, then the rows that it brings.

A ``RowChange`` is rows that leave and rows that come, as one request. A person's
correction is both at once: the old rows leave, the new ones come, and one answer and
one release follow.

``TrainingRows`` keeps the rows with their owners. Removed rows are overwritten with
zeros in place, at a cost that depends on the row alone. Requests that look at the
remaining rows get the same arrays, with weight zero where a row is gone; the gaps close
when there are many, and when the model is saved. The arrays belong to the model alone:
who makes ``TrainingRows`` hands them over, and must not pass on those of a caller.

They change in place, because a copy for each request would cost more than the removal.
``row_digests`` tells which rows there are where they are not kept.

``MirroredRows`` have a copy on a device. People are found, and rows read and saved, in
memory; passes over the remaining rows run over the copy. What leaves is overwritten in
both.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.arrays import Index
from ..core.packing import Arrays, pack
from ..core.rows import Rows, RowSource, extend_rows, first_rows
from ..core.sums import largest_norm
from ..core.values import Private
from ..engines import DeviceEngine
from ..exceptions import InvalidInput, UnknownSubject, Unsupported
from ..gpu import DeviceRows
from ..promise.accountant import Accountant, Added, Removed
from .subjects import ROW, is_row_name

Remaining: TypeAlias = RowSource | Callable[[], RowSource]
NO_ROWS: Index = np.array([], dtype=np.intp)
# Gaps are closed when they are more than one row in so many.
GAPS = 4


@dataclass(frozen=True, slots=True, repr=False, eq=False, kw_only=True)
class RowChange(Private):
    """Rows that leave and rows that come. Private.

    Attributes
    ----------
    removed, added
        The rows, as they are kept; None if there are none.
    gone
        The positions of the removed rows, where the model keeps its rows or can fetch
        them; None if nobody knows.
    n_subjects_removed, n_subjects_added
        How many people lost rows for the first time, and how many brought rows.
    """

    removed: Rows | None = None
    added: Rows | None = None
    gone: Index | None = None
    n_subjects_removed: int = 0
    n_subjects_added: int = 0

    @property
    def n_removed(self) -> int:
        """How many rows leave."""
        return 0 if self.removed is None else len(self.removed)

    @property
    def n_added(self) -> int:
        """How many rows come."""
        return 0 if self.added is None else len(self.added)

    @property
    def positions(self) -> Index | None:
        """The positions of the removed rows: none if no row leaves, None if unknown."""
        return self.gone if self.n_removed else NO_ROWS

    def append_to(self, left: RowSource) -> RowSource:
        """Return rows that are left, followed by those that come."""
        if self.added is None or not len(self.added):
            return left
        return left.followed_by(self.added)

    def count_in(self, account: Accountant) -> Accountant:
        """Return the account after this request, before its release."""
        if self.n_removed:
            account = account.compose(Removed(self.n_subjects_removed))
        if self.n_added:
            account = account.compose(Added(self.n_subjects_added))
        return account

    def require_lengths(self, row_norm: float | None) -> None:
        """Raise InvalidInput if a row that comes is longer than was declared."""
        if row_norm is None or self.added is None:
            return
        if largest_norm(self.added) > row_norm:
            raise InvalidInput(
                f"a row to add is longer than the budget's row_norm={row_norm:g} "
                "(intercept included); nothing was changed; clip or scale it as the "
                "rows of the fit were"
            )


class KeptRows(Private, ABC):
    """Rows that a model can find, read and erase, wherever they lie.

    Attributes
    ----------
    anonymous
        Whether the rows have no owners: the model was fitted without subjects.
    """

    __slots__ = ("anonymous",)
    anonymous: bool

    @abstractmethod
    def find(self, people: set[str]) -> Index:
        """Return the positions of these people's rows, or raise UnknownSubject."""

    @abstractmethod
    def take(self, positions: Index) -> Rows:
        """Return the rows at these positions."""

    @abstractmethod
    def count_people(self, gone: Index) -> int:
        """Return how many people lose rows for the first time with these."""

    @abstractmethod
    def remaining(self, gone: Index) -> RowSource:
        """Return the remaining rows but these."""

    @property
    @abstractmethod
    def has_many_gaps(self) -> bool:
        """Whether so many rows are gone that passes over the gaps cost too much."""

    @abstractmethod
    def compact(self) -> "KeptRows":
        """Return the remaining rows, without gaps where that is possible."""

    @abstractmethod
    def erase(self, gone: Index) -> None:
        """Overwrite these rows, and delete their owners."""


class TrainingRows(KeptRows):
    """The rows of a model, and who owns each of them.

    Attributes
    ----------
    rows, alive
        The rows at the fit and those that came since, and which of them are left.
    owners, positions
        The owner of each row, and the positions of each person's rows.
    partly_removed
        People some of whose rows, but not all, are removed.
    anonymous
        Whether the rows have no owners: the model was fitted without subjects.
    """

    __slots__ = ("_buffer", "alive", "owners", "partly_removed", "positions", "rows")

    def __init__(
        self, rows: Rows, owners: Sequence[str], partly_removed: Iterable[str] = ()
    ) -> None:
        self.rows = rows
        self._buffer = rows  # the same, with room to spare once rows have come
        self.alive: NDArray[np.bool] = np.ones(len(rows), dtype=bool)
        self.owners = list(owners)
        self.positions = positions_of_owners(self.owners)
        self.partly_removed = set(partly_removed)
        self.anonymous = is_row_name(next(iter(self.positions), ""))

    def find(self, people: set[str]) -> Index:
        """Return the positions of these people's rows; change nothing.

        Raises UnknownSubject if one of them is not in the model.
        """
        # Subtracting the keys would walk through all of them.
        missing = {name for name in people if name not in self.positions}
        if missing:
            raise unknown_owners(missing, people)
        positions = [
            position for name in sorted(people) for position in self.positions[name]
        ]
        return np.array(positions, dtype=np.intp)

    def take(self, positions: Index) -> Rows:
        """Return the rows at these positions."""
        return self.rows.take(positions)

    def find_similar(self, wanted: Rows) -> Index:
        """Return the positions of rows that look like one of these.

        One product with the rows tells most others apart, and costs a fraction of their
        digests, which decide. It may miss a row whose product overflows.
        """
        direction = np.cos(np.arange(self.rows.n_columns))
        found, near = self.rows.X @ direction, wanted.X @ direction
        slack = 1e-9 * wanted.norms() * np.sqrt(direction.size)
        order = np.argsort(found)
        begins = np.searchsorted(found, near - slack, side="left", sorter=order)
        ends = np.searchsorted(found, near + slack, side="right", sorter=order)
        positions = [order[begin:end] for begin, end in zip(begins, ends, strict=True)]
        similar = np.zeros(len(self.alive), dtype=bool)
        similar[np.concatenate(positions)] = True
        return np.flatnonzero(similar & self.alive)

    def count_people(self, gone: Index) -> int:
        """Return how many people lose rows for the first time with these."""
        return len({self.owners[position] for position in gone} - self.partly_removed)

    def remaining(self, gone: Index) -> RowSource:
        """Return the remaining rows but these, in the arrays of all.

        The arrays change with the next erasure: ``Rows.gather`` copies what must stay.
        """
        alive, weight = self.alive.copy(), self.rows.weight.copy()
        alive[gone] = False
        weight[gone] = 0.0
        absent = np.flatnonzero(~alive)
        return Rows(
            self.rows.X, self.rows.y, weight, absent=absent if absent.size else None
        )

    @property
    def has_many_gaps(self) -> bool:
        """Whether so many rows are gone that passes over the gaps cost too much."""
        n_gaps = len(self.alive) - int(np.count_nonzero(self.alive))
        return GAPS * n_gaps > len(self.alive)

    def compact(self) -> "TrainingRows":
        """Return the remaining rows, without gaps."""
        if self.alive.all():
            return self
        owners = [o for o, a in zip(self.owners, self.alive, strict=True) if a]
        return TrainingRows(self.rows.take(self.alive), owners, self.partly_removed)

    def erase(self, gone: Index) -> None:
        """Overwrite these rows, and delete their owners.

        You can call it again after an interrupt, with the same effect.
        """
        self.alive[gone] = False
        self.rows.y[gone] = 0.0
        self.rows.weight[gone] = 0.0
        X = self.rows.X
        if sparse.issparse(X):
            for position in gone:
                entries = slice(X.indptr[position], X.indptr[position + 1])
                X.data[entries] = 0.0
                # In order, each once: SciPy must not tidy up in the arrays of all rows.
                X.indices[entries] = np.arange(entries.stop - entries.start)
        else:
            X[gone] = 0.0
        for name in {
            self.owners[position] for position in gone
        } & self.positions.keys():
            left = [
                position for position in self.positions[name] if self.alive[position]
            ]
            if left:
                self.positions[name] = left
                self.partly_removed.add(name)
            else:
                self.partly_removed.discard(name)
                del self.positions[name]
        for position in gone:
            self.owners[position] = ""

    def append(self, added: Rows, owners: Sequence[str], *, position: int) -> None:
        """Put rows at this position and after it, the first that is free.

        You can call it again after an interrupt, with the same effect.
        """
        end = position + len(added)
        self._buffer = extend_rows(self._buffer, added, position=position)
        self.rows = first_rows(self._buffer, end)
        self.alive = np.concatenate([self.alive[:position], np.ones(len(added), bool)])
        self.owners[position:] = owners
        for name, theirs in positions_of_owners(owners).items():
            old = [one for one in self.positions.get(name, ()) if one < position]
            self.positions[name] = [*old, *(position + one for one in theirs)]
        self.anonymous = is_row_name(next(iter(self.positions), ""))

    def replace(
        self, gone: Index, added: Rows, *, owners: Sequence[str], position: int
    ) -> None:
        """Erase rows, and put others at this position; see ``erase`` and ``append``."""
        self.erase(gone)
        self.append(added, owners, position=position)

    def dump(self, path: str, arrays: Arrays) -> Any:
        """Return the remaining rows as JSON data, with their arrays beside it."""
        left = self.compact()
        return pack(
            (left.rows, left.owners, sorted(left.partly_removed)), path, arrays=arrays
        )


class MirroredRows(TrainingRows):
    """Rows and their owners in memory, with a copy on a device.

    Parameters
    ----------
    rows, owners, partly_removed
        As of ``TrainingRows``.
    engine
        Puts a copy on the device, when there is none.
    mirror
        The copy, if there is one.
    """

    __slots__ = ("_engine", "_mirror")

    def __init__(
        self,
        rows: Rows,
        owners: Sequence[str],
        partly_removed: Iterable[str] = (),
        *,
        engine: DeviceEngine,
        mirror: DeviceRows | None = None,
    ) -> None:
        super().__init__(rows, owners, partly_removed)
        self._engine = engine
        self._mirror = mirror

    def remaining(self, gone: Index) -> RowSource:
        """Return the remaining rows but these, on the device."""
        if self._mirror is None:
            self._mirror = self._engine.put(super().remaining(NO_ROWS))
        return self._mirror.without(gone)

    def compact(self) -> "TrainingRows":
        """Return the remaining rows, without gaps; the next pass copies them."""
        left = super().compact()
        if left is self:
            return self
        return MirroredRows(
            left.rows, left.owners, left.partly_removed, engine=self._engine
        )

    def erase(self, gone: Index) -> None:
        """Overwrite these rows in memory and on the device, and delete their owners."""
        super().erase(gone)
        if self._mirror is not None:
            self._mirror = self._mirror.erase_rows(gone)

    def append(self, added: Rows, owners: Sequence[str], *, position: int) -> None:
        """Put rows at this position and after it; the next pass copies all of them."""
        self._mirror = None
        super().append(added, owners, position=position)


def require_in_memory(kept: KeptRows) -> TrainingRows:
    """Return rows that are kept in memory, or raise Unsupported."""
    if isinstance(kept, TrainingRows):
        return kept
    raise Unsupported(
        "the rows of this model lie in the files of a long table: it can forget people "
        "by their ids, or rows by their positions if they have no owners, and be "
        "released and shipped, but not this; to do it, fit the model to rows in memory"
    )


def unknown_owners(missing: set[str], people: set[str]) -> UnknownSubject:
    """Return the error for people, or rows, that are not in the model."""
    first = min(missing)
    what, names = ("rows", "positions") if is_row_name(first) else ("people", "ids")
    return UnknownSubject(
        f"not, or no longer, in the model: {len(missing)} of {len(people)} {what}, for "
        f"example {first.lstrip(ROW)!r}; nobody was removed; check the {names}"
    )


def positions_of_owners(owners: Sequence[str]) -> dict[str, list[int]]:
    """Return the positions of each owner's rows."""
    positions: dict[str, list[int]] = {}
    for position, owner in enumerate(owners):
        positions.setdefault(owner, []).append(position)
    return positions
