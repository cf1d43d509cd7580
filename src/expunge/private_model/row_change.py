# SPDX-License-Identifier: Apache-2.0
"""RowChange: rows that leave a model and rows that come, as one request.

A person's correction is both at once: the old rows leave, the new ones come, and one
answer and one release follow.

*Places* number all rows that a model ever had, in order: those of the fit first, then
those that came, in the order in which they came. The remaining rows come in the order
of their places: first those from before the request, then the rows that it brings.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..core.arrays import Design, Index
from ..core.rows import Rows, RowSource
from ..core.sums import largest_norm
from ..core.values import Private
from ..exceptions import InvalidInput
from ..promise.accountant import Accountant, Added, Removed

Remaining: TypeAlias = RowSource | Callable[[], RowSource]
NO_ROWS: Index = np.array([], dtype=np.intp)


@dataclass(frozen=True, slots=True, repr=False, eq=False, kw_only=True)
class RowChange(Private):
    """Rows that leave and rows that come. Private.

    Attributes
    ----------
    removed, added
        The rows, as they are kept; None if there are none.
    gone
        The places of the removed rows, where the model keeps its rows or can fetch
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
    def places(self) -> Index | None:
        """The places of the removed rows: none if no row leaves, None if unknown."""
        return self.gone if self.n_removed else NO_ROWS

    def append_to(self, left: RowSource) -> RowSource:
        """Return rows that are left, followed by those that come."""
        if self.added is None or not len(self.added):
            return left
        if isinstance(left, Rows):
            return join_rows(left, self.added)
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


class ChangesRows:
    """Requests that only remove rows, or only add some; a mixin without fields."""

    __slots__ = ()

    def require_room(self) -> None:
        """Raise Unsupported if a model of this kind can take in no rows."""

    @abstractmethod
    def change(
        self,
        change: RowChange,
        *,
        remaining: Remaining | None = None,
        spend: bool = False,
    ) -> Self:
        """Return the model after a request, its answer made to fit the budget."""

    def forget(
        self,
        removed: Rows,
        *,
        gone: Index | None = None,
        remaining: Remaining | None = None,
        n_subjects: int = 1,
        spend: bool = False,
    ) -> Self:
        """Return the model without these rows, its answer made to fit the budget.

        Parameters
        ----------
        removed
            The rows to remove, as they are kept.
        gone
            Their places among the rows that the model keeps or can fetch.
        remaining
            All other rows, or a function that returns them, if the caller keeps them.
        n_subjects
            How many people the rows belong to.
        spend
            Overwrite the old state instead of copying it; the old model is lost, even
            if this raises.
        """
        change = RowChange(removed=removed, gone=gone, n_subjects_removed=n_subjects)
        return self.change(change, remaining=remaining, spend=spend)

    def add(
        self,
        added: Rows,
        *,
        remaining: Remaining | None = None,
        n_subjects: int = 1,
        spend: bool = False,
    ) -> Self:
        """Return the model with these rows too, its answer made to fit the budget.

        Parameters
        ----------
        added
            The rows to add, as they are kept.
        remaining
            All rows, these included, or a function that returns them, if the caller
            keeps them.
        n_subjects
            How many people the rows belong to.
        spend
            As ``forget`` takes it.
        """
        change = RowChange(added=added, n_subjects_added=n_subjects)
        return self.change(change, remaining=remaining, spend=spend)


def join_rows(first: Rows, second: Rows) -> Rows:
    """Return rows followed by others; what was absent stays so."""
    return Rows(
        join_designs(first.X, second.X),
        np.concatenate([first.y, second.y]),
        np.concatenate([first.weight, second.weight]),
        absent=first.absent,
    )


def join_designs(first: Design, second: Design) -> Design:
    """Return one design above another: sparse if the first is."""
    if not sparse.issparse(first):
        below = second.toarray() if sparse.issparse(second) else second
        return np.concatenate([np.asarray(first), np.asarray(below)])
    return sparse.csr_array(sparse.vstack([first, sparse.csr_array(second)]))


def extend_rows(room: Rows, added: Rows, *, place: int) -> Rows:
    """Return arrays whose first places are those of ``room``, then the added rows.

    Dense arrays keep places to spare, so that most additions copy the added rows alone.
    Sparse ones are copied.
    """
    y, weight = (
        _extend(old, new, place=place)
        for old, new in ((room.y, added.y), (room.weight, added.weight))
    )
    if sparse.issparse(room.X) or sparse.issparse(added.X):
        return Rows(join_designs(room.X[:place], added.X), y, weight)
    return Rows(_extend(room.X, np.asarray(added.X), place=place), y, weight)


def first_places(room: Rows, end: int) -> Rows:
    """Return the rows at the first places, not copied."""
    X = room.X if sparse.issparse(room.X) else room.X[:end]
    return Rows(X, room.y[:end], room.weight[:end])


def _extend(
    room: NDArray[np.float64], new: NDArray[np.float64], *, place: int
) -> NDArray[np.float64]:
    """Return an array with new entries at a place, longer by a quarter if need be."""
    end = place + len(new)
    if end > len(room):
        longer = np.zeros((end + end // 4, *room.shape[1:]))
        longer[:place] = room[:place]
        room = longer
    room[place:end] = new
    return room
