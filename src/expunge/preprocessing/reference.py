# SPDX-License-Identifier: Apache-2.0
r"""How the features of the remaining rows follow from those at the anchor.

A ``Reference`` has the features at the anchor. Sums are kept over its rows

    e = (features at the anchor, a flag for each column with gaps, 1),

the flags for columns in which a number was missing without an indicator among the
features. With centre c, scale s and offset o, then (0) and now, a number is now

    r e_j + t,    r = s_0 / s,    t = o + (c_0 - c) / s - r o_0,

and where it is missing, what fills it now: that is off by a constant times the flag. A
flag of categories is now the sum of flags at the anchor that it is made of, so scaled.
Categories that nobody has left are dropped by their exact count, never by value.

``find_map`` returns None where the features do not follow so: a category that shared a
feature has one of its own again, or scales differ by more than a thousand, where
rounding would show. Then the rows must be read again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.arrays import Index, Matrix, Vector
from ..core.feature_map import FeatureMap
from ..core.rows import Rows
from ..core.values import Private, stored
from .columns import Recipe
from .description import learns_extremes
from .features import Features, Layout
from .learning import find_ranked
from .statistics import Statistics

MOST_ROW_GROWTH = 1e3
FEW = 256  # rows that a dense matrix is smaller and faster for


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Reference(Private):
    """The features at the anchor, and what else the sums are over.

    Attributes
    ----------
    features
        At the anchor, without their names: those of emptied categories must go.
    gaps
        Columns of numbers with a flag of their own for missing values.
    intercept
        Whether the model has an intercept; the constant is there in any case, last.
    exact
        Extremes, medians, quantiles and modes among the features: values that somebody
        has.
    """

    features: Features
    gaps: tuple[int, ...]
    intercept: bool
    exact: Mapping[str, Vector]

    @classmethod
    def of(
        cls,
        features: Features,
        statistics: Statistics,
        *,
        recipe: Recipe,
        intercept: bool,
    ) -> "Reference":
        """Return the reference for features that these rows have now.

        ``intercept`` says whether the model has one.
        """
        layout = features.layout
        flagged = set(layout.columns[layout.indicators].tolist())
        gaps = [
            column
            for column in dict.fromkeys(layout.columns[layout.numbers].tolist())
            if column in statistics.summed
            and statistics.has_gaps(column)
            and column not in flagged
        ]
        # Names would keep the categories of those who leave.
        nameless = replace(layout, names=("",) * len(layout))
        kept, exact = (
            replace(features, layout=nameless),
            _find_exact(recipe, statistics),
        )
        return cls(kept, tuple(gaps), intercept, exact)

    def with_edges(self, edges: Mapping[str, Vector]) -> "Reference":
        """Return the reference with bins that end elsewhere, as many as before."""
        layout = replace(self.features.layout, edges=edges)
        return replace(self, features=replace(self.features, layout=layout))

    def holds_departed(self, statistics: Statistics) -> bool:
        """Whether a value among these features left with the last who had it.

        Then the features must go, and the rows be read for new sums: nothing of those
        who left may stay.
        """
        return any(
            not np.isin(values, statistics.ordered[name]).all()
            for name, values in self.exact.items()
        )

    def knows_gaps(self, raw: Matrix) -> bool:
        """Whether each value that is missing in these rows has a flag among the sums.

        Without one, what fills it now would not follow from what filled it then.
        """
        layout = self.features.layout
        flagged = {*self.gaps, *layout.columns[layout.indicators].tolist()}
        numbers = set(layout.columns[layout.numbers].tolist()) - flagged
        return not np.isnan(raw[:, sorted(numbers)]).any()

    @property
    def plain(self) -> bool:
        """Whether the sums are over the model's own rows."""
        return self.intercept and not self.gaps

    @property
    def constant(self) -> int:
        """Where the constant is."""
        return len(self.features) + len(self.gaps)

    def encode(self, raw: Matrix) -> Matrix:
        """Return the rows e."""
        flags = np.isnan(raw[:, list(self.gaps)]).astype(np.float64)
        ones = np.ones((len(raw), 1))
        return np.hstack([self.features.encode(raw), flags, ones])

    def encode_rows(self, rows: Rows) -> Rows:
        """Return raw rows as the rows e: dense if they are few, or only numbers."""
        if self.features.has_categories and len(rows) > FEW:
            return self.split_rows(rows)
        return replace(rows, X=self.encode(rows.dense()))

    def split_rows(self, rows: Rows) -> Rows:
        """Return raw rows as the rows e, split."""
        raw = rows.dense()
        flags = [np.isnan(raw[:, gap]) for gap in self.gaps]
        X: Any = self.features.split(raw, [*flags, 1.0])
        return replace(rows, X=X)

    def extend(self, theta: Matrix) -> Matrix:
        """Return parameters of the model, (features, outputs), as those of e."""
        n_features = len(self.features)
        extended = np.zeros((self.constant + 1, theta.shape[1]))
        extended[:n_features] = theta[:n_features]
        if self.intercept:
            extended[-1] = theta[-1]
        return extended


def _find_exact(recipe: Recipe, statistics: Statistics) -> dict[str, Vector]:
    """Return the values of each column that its features are made of."""
    exact = {}
    for index, group in enumerate(recipe.groups):
        values = statistics.ordered.get(str(index))
        if values is None or not values.size:
            continue
        held = [values[:0]]
        if learns_extremes(group.scale):
            held.append(values[[0, -1]])
        fill = None if group.fill is None else group.fill.strategy
        if fill == "median" and len(values) % 2:
            held.append(values[[len(values) // 2]])
        if fill == "most_frequent":
            found, counts = np.unique(values, return_counts=True)
            held.append(found[[np.argmax(counts)]])
        held.append(np.array(find_ranked(group, statistics, index=index)))
        exact[str(index)] = np.concatenate(held)
    return exact


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _Pieces(Private):
    """Which features at the anchor the present ones are made of, one line each.

    Attributes
    ----------
    then, now
        Position of a feature at the anchor, and of one that it is part of now.
    share
        One over the number of parts of the latter.
    """

    then: Index
    now: Index
    share: Vector


def find_map(
    reference: Reference, now: Features, *, statistics: Statistics, outputs: int
) -> FeatureMap | None:
    """Return how rows of the present features follow from those at the anchor.

    Parameters
    ----------
    reference, now
        The features then and now.
    statistics
        Of the remaining rows.
    outputs
        Of the loss.
    """
    pieces = _find_pieces(reference.features.layout, now.layout, statistics=statistics)
    if pieces is None:
        return None
    then, constant, width = reference.features, reference.constant, len(now)
    ratio = then.scale[pieces.then] / now.scale[pieces.now]
    shift = now.offset + (_centre_then(then, pieces) - now.centre) / now.scale
    shift -= np.bincount(pieces.now, ratio * then.offset[pieces.then], width)
    at, to, entries = _correct_gaps(reference, now, pieces=pieces, shift=shift)
    # A gap's flag may itself be a scaled feature: its offset counts to the constant.
    scaled = at < len(then)
    extra = entries[scaled] * then.offset[at[scaled]]
    shift -= np.bincount(to[scaled], extra, width)
    last = [width] if reference.intercept else []
    columns = np.concatenate([pieces.now, to, last]).astype(np.intp)
    order = np.argsort(columns, kind="stable")
    ones = np.ones(len(last))
    found = FeatureMap(
        rows=np.concatenate([pieces.then, at, [constant] * len(last)])[order].astype(
            np.intp
        ),
        columns=columns[order],
        values=np.concatenate([ratio, entries, ones])[order],
        shift=shift,
        size=constant + 1,
        intercept=reference.intercept,
        main=np.concatenate([ratio > 0.0, np.zeros(len(at)), ones])[order] > 0.0,
        share=np.concatenate([pieces.share, np.zeros(len(at)), ones])[order],
        outputs=outputs,
    )
    return found if found.row_growth < MOST_ROW_GROWTH else None


def drop_emptied(
    reference: Reference, theta: Matrix, *, statistics: Statistics
) -> Matrix:
    """Return parameters of e without those of categories that no row has any more.

    Such a feature is the same in all remaining rows, its offset: moved to the constant,
    nothing changes for any of them.
    """
    then = reference.features
    emptied = _find_emptied(then.layout, statistics)
    if not emptied:
        return theta
    settled = theta.copy()
    settled[-1] += then.offset[emptied] @ theta[emptied]
    settled[emptied] = 0.0
    return settled


def _find_emptied(layout: Layout, statistics: Statistics) -> list[int]:
    """Return the indices of flags and indicators that no row has any more."""
    emptied = [
        int(index)
        for index in layout.indicators
        if not statistics.has_gaps(int(layout.columns[index]))
    ]
    table = layout.flags
    for column, first, last in zip(
        table.columns.tolist(), table.first, table.last, strict=True
    ):
        if str(column) in layout.edges:  # no range is empty while edges stay
            continue
        indices = table.indices[first + 1 : last]
        hits = statistics.counts[str(column)][: len(indices)]
        if not hits[indices[: len(hits)] >= 0].all():
            present = set(indices[: len(hits)][hits > 0].tolist())
            emptied += sorted(set(indices.tolist()) - present - {-1})
    return emptied


def _find_pieces(
    then: Layout, now: Layout, *, statistics: Statistics
) -> _Pieces | None:
    """Return the parts of every feature; None if one is not made of features then."""
    if now.equals(then):
        every = np.arange(len(now))
        return _Pieces(every, every, np.ones(len(now)))
    if not now.has_bins_of(then):
        return None
    parts: list[int] = []
    whole: list[int] = []
    share: list[float] = []
    for (column, codes), index in now.keys.items():
        same = then.keys.get((column, codes))
        found = [same] if same is not None else []
        if same is None and codes:
            present = np.flatnonzero(statistics.counts[str(column)]).tolist()
            found = _find_union(then, column, codes=codes, alive=set(present))
        if not found:
            return None
        parts += found
        whole += [index] * len(found)
        share += [1.0 / len(found)] * len(found)
    return _Pieces(np.array(parts), np.array(whole), np.array(share))


def _find_union(
    then: Layout, column: int, *, codes: tuple[int, ...], alive: set[int]
) -> list[int]:
    """Return the flags at the anchor that a flag is the sum of; none if there are not.

    Codes that no row has any more do not count.
    """
    wanted, found, covered = set(codes) & alive, [], set()
    for index in np.flatnonzero(then.columns == column).tolist():
        theirs = set(then.codes[index] or ()) & alive
        if theirs and theirs <= wanted:
            found.append(index)
            covered |= theirs
    return found if covered == wanted else []


def _centre_then(then: Features, pieces: _Pieces) -> Vector:
    """Return the centre that each present feature's number had; zero for flags."""
    centre = np.zeros(int(pieces.now.max()) + 1)
    centre[pieces.now] = then.centre[pieces.then]
    return centre


def _correct_gaps(
    reference: Reference, now: Features, *, pieces: _Pieces, shift: Vector
) -> tuple[Index, Index, Vector]:
    """Return entries of A for gaps: where, of which feature, how much.

    A gap is now filled with ``missing``; r e + t would give another number there.
    """
    then = reference.features
    indices = {column: len(then) + k for k, column in enumerate(reference.gaps)}
    for index in then.layout.indicators.tolist():
        indices[int(then.layout.columns[index])] = index
    at: list[int] = []
    to: list[int] = []
    entries: list[float] = []
    source = dict(zip(pieces.now.tolist(), pieces.then.tolist(), strict=True))
    for index in now.layout.numbers.tolist():
        flag = indices.get(int(now.layout.columns[index]))
        if flag is None:
            continue
        part = source[index]
        ratio = then.scale[part] / now.scale[index]
        entry = now.missing[index] - (ratio * then.missing[part] + shift[index])
        # The flag itself, or a feature that is it over a scale.
        entry *= then.scale[flag] if flag < len(then) else 1.0
        at.append(flag)
        to.append(index)
        entries.append(float(entry))
    return np.array(at, np.intp), np.array(to, np.intp), np.array(entries)
