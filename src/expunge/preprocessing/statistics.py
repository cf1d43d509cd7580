# SPDX-License-Identifier: Apache-2.0
"""Statistics: what preprocessing learns from, kept so that rows can leave and come.

Sums are exact integers, so that a request gives to the last bit what counting the rows
after it gives. Extremes, medians, quantiles and the most frequent number are no
function of sums: for the columns that need one, the observed values are kept, sorted,
without their owners. Categories are counted.

Every row counts once: weights are for the model alone, as in a Pipeline of
scikit-learn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Matrix, Vector
from ..core.exact_sums import NOBODY_LEFT, STRANGERS, UNIT, ColumnSums
from ..core.values import Private, stored
from ..exceptions import CannotRemove, UnknownRows
from .columns import Recipe
from .description import (
    Bins,
    Group,
    OneHot,
    TargetMeans,
    WeighTerms,
    learns_ranks,
)

Counts = NDArray[np.int64]


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Statistics(Private):
    """Sums, counts and sorted values over raw rows.

    Attributes
    ----------
    n_rows
        Number of rows.
    summed
        Positions of the columns that are summed.
    sums
        Their exact sums.
    ordered
        Sorted observed values of the columns that need them, by position.
    counts
        Rows of each code of a column of categories, by position.
    terms, n_with
        Positions of the columns whose entries other than zero are counted, and how many
        rows have one.
    """

    n_rows: int
    summed: tuple[int, ...]
    sums: ColumnSums
    ordered: Mapping[str, Vector]
    counts: Mapping[str, Counts]
    terms: tuple[int, ...] = ()
    n_with: Counts = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def sum_index(self, column: int) -> int:
        """Return where the sums of a column are."""
        return self.summed.index(column)

    def has_gaps(self, column: int) -> bool:
        """Whether a value of this column is missing in some row."""
        return self.sums.powers[0][self.sum_index(column)] < self.sums.total

    def weight_of(self, column: int, codes: Sequence[int]) -> int:
        """Return the number of rows with these codes, in units of 2^-UNIT."""
        counts = self.counts[str(column)]
        return int(sum(counts[code] for code in codes)) << UNIT

    def including(self, raw: Matrix) -> "Statistics":
        """Return the statistics with these rows too, of categories that are known."""
        come = self._count_like(raw)
        return replace(
            self,
            n_rows=self.n_rows + len(raw),
            sums=self.sums.add(come.sums),
            ordered={
                name: np.insert(values, np.searchsorted(values, added), added)
                for name, values in self.ordered.items()
                for added in [come.ordered[name]]
            },
            counts={
                name: self.counts[name] + come.counts[name] for name in self.counts
            },
            n_with=self.n_with + come.n_with,
        )

    def without(self, raw: Matrix) -> "Statistics":
        """Return the statistics without these rows.

        Raises UnknownRows if they cannot all have been there, and CannotRemove if no
        row would be left.
        """
        if len(raw) >= self.n_rows:
            raise CannotRemove(NOBODY_LEFT)
        gone = self._count_like(raw)
        counts = {name: self.counts[name] - gone.counts[name] for name in self.counts}
        n_rows, n_with = self.n_rows - len(raw), self.n_with - gone.n_with
        without_any = n_rows - n_with
        if any((left < 0).any() for left in (*counts.values(), n_with, without_any)):
            raise UnknownRows(STRANGERS)
        return replace(
            self,
            n_rows=n_rows,
            sums=self.sums.subtract(gone.sums),
            ordered={
                name: _delete(values, gone.ordered[name])
                for name, values in self.ordered.items()
            },
            counts=counts,
            n_with=n_with,
        )

    def _count_like(self, raw: Matrix) -> "Statistics":
        """Return the same statistics of other rows."""
        sizes = {name: len(counts) for name, counts in self.counts.items()}
        return _count(
            raw,
            summed=self.summed,
            ordered=tuple(self.ordered),
            sizes=sizes,
            terms=self.terms,
        )


def count_rows(recipe: Recipe, raw: Matrix) -> Statistics:
    """Return the statistics of raw rows that this preprocessing learns from."""
    summed, ordered, terms, sizes = [], [], [], {}
    pairs = zip(recipe.groups, recipe.columns, strict=True)
    for index, (group, column) in enumerate(pairs):
        if column.kind == "category":
            sizes[str(index)] = max(column.codes, default=-1) + 1
            continue
        if isinstance(group.scale, WeighTerms):
            terms.append(index)
        elif group.fill is not None or group.scale is not None:
            summed.append(index)
        if needs_order(group):
            ordered.append(str(index))
    return _count(
        raw,
        summed=tuple(summed),
        ordered=tuple(ordered),
        sizes=sizes,
        terms=tuple(terms),
    )


def needs_order(group: Group) -> bool:
    """Whether sums do not tell what is learned of these columns of numbers."""
    if group.then and getattr(group.then[0], "needs_order", False):
        return True
    if isinstance(group.encode, OneHot | TargetMeans):
        return False
    if isinstance(group.encode, Bins):
        return True
    fill = None if group.fill is None else group.fill.strategy
    return learns_ranks(group.scale) or fill in ("median", "most_frequent")


def _count(
    raw: Matrix,
    *,
    summed: tuple[int, ...],
    ordered: tuple[str, ...],
    sizes: Mapping[str, int],
    terms: tuple[int, ...],
) -> Statistics:
    numbers = raw[:, list(summed)]
    codes = {name: _codes(raw[:, int(name)], sizes[name]) for name in sizes}
    return Statistics(
        n_rows=len(raw),
        summed=summed,
        sums=ColumnSums.of(numbers, None, highest=2),
        ordered={
            name: np.sort(column[~np.isnan(column)])
            for name in ordered
            for column in [raw[:, int(name)]]
        },
        counts={
            name: np.bincount(codes[name], minlength=size).astype(np.int64)
            for name, size in sizes.items()
        },
        terms=terms,
        n_with=np.count_nonzero(raw[:, list(terms)], axis=0).astype(np.int64),
    )


def _codes(column: Vector, size: int) -> Index:
    """Return the codes in a raw column; refuse those that nobody was fitted with."""
    if column.min(initial=0.0) < 0.0 or column.max(initial=0.0) >= size:
        raise UnknownRows(STRANGERS)
    return column.astype(np.intp)


def _delete(values: Vector, gone: Vector) -> Vector:
    """Return sorted values without these sorted ones, each of which must be there."""
    if not gone.size:
        return values
    indices = np.searchsorted(values, gone)
    # Of equal values, one place each.
    indices = indices + np.arange(len(gone)) - np.searchsorted(gone, gone)
    if indices[-1] >= len(values) or not (values[indices] == gone).all():
        raise UnknownRows(STRANGERS)
    return np.delete(values, indices)
