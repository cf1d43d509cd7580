# SPDX-License-Identifier: Apache-2.0
"""Learned: preprocessing that forgets with its model.

The rows that are kept are raw. A request changes exact statistics by what leaves and
what comes, so that what is learned is to the last bit what the rows after it give; then
sums over the features as they were at the anchor, of which the present features are a
linear map (``reference``). The answer, its radius and its release are about the
present features: those of fitting the whole pipeline again. Rows are read only where
the answer does not fit the budget, or the features do not follow from those at the
anchor.

Where an edge between bins moves, the rows that lie in another range now are replaced
in the sums: minus their old encoding, plus their new one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from ..core.arrays import Vector
from ..core.objective import Objective
from ..core.rows import Rows, RowSource
from ..core.values import Private, stored
from ..private_model.composition import EncodedRequest, Encoding
from ..private_model.training_rows import RowChange
from ..promise.scope import Scope
from ..removal import State
from ..removal.state import lift_state
from .bins import find_bins
from .columns import Recipe, extend_table, find_categories, sort_categories, take_values
from .description import OneHot, TargetMeans
from .encoder import describe_encoder
from .features import Features, FittedPreprocessing
from .learning import (
    drop_categories,
    learn,
    learn_again,
    learn_features,
    publish_columns,
)
from .reference import FEW, Reference, drop_emptied, find_map
from .statistics import Statistics

# Where more than this share of the rows would be replaced, all are read.
MOST_CROSSING = 0.1


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class EncodeRows(Private):
    """Makes the rows that a head sees of raw rows; it may run in another process."""

    objective: Objective
    features: Features

    def __call__(self, raw: Rows) -> Rows:
        """Return the rows, intercept included."""
        features, objective = self.features, self.objective
        X: Any
        if features.has_categories:
            X = features.split(raw.dense(), [1.0] * objective.intercept)
        else:
            X = features.encode(raw.dense())
        return replace(raw, X=objective.design(X))


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Learned(Encoding):
    """Preprocessing with what it learned. Private.

    Attributes
    ----------
    recipe, statistics, features
        What preprocessing does, what it learns from, and what it has learned.
    reference
        The features at the anchor.
    """

    recipe: Recipe
    statistics: Statistics
    features: Features
    reference: Reference

    @classmethod
    def of(cls, recipe: Recipe, rows: RowSource, *, intercept: bool) -> Self:
        """Return what preprocessing learns from raw rows."""
        recipe, statistics, features = learn(recipe, rows)
        reference = Reference.of(
            features, statistics, recipe=recipe, intercept=intercept
        )
        return cls(recipe, statistics, features, reference)

    def fit_again(self, rows: RowSource, objective: Objective) -> Self:
        """Return the same preprocessing, fitted to these raw rows alone."""
        return self.of(self.recipe, rows, intercept=objective.intercept)

    def encode(self, rows: RowSource, objective: Objective) -> RowSource:
        """Return raw rows as the head sees them."""
        width = len(self.features) + objective.intercept
        objective.require_columns(width)
        encode = EncodeRows(objective, self.features)
        split = self.features.has_categories
        return rows.convert(encode, n_columns=width, split=split)

    def summed(self, rows: RowSource, objective: Objective) -> RowSource:
        """Return raw rows as the rows e of the reference."""
        del objective
        width = self.reference.constant + 1
        reference = self.reference
        split = reference.features.has_categories
        encode = reference.split_rows if split else reference.encode_rows
        return rows.convert(encode, n_columns=width, split=split)

    def extend(self, theta: Vector, objective: Objective) -> Vector:
        """Return parameters of the features as those of e."""
        outputs = objective.loss.outputs
        return self.reference.extend(theta.reshape(-1, outputs)).ravel()

    def anchored(self, objective: Objective) -> Self:
        """Return the preprocessing with its present features as the reference."""
        reference = Reference.of(
            self.features,
            self.statistics,
            recipe=self.recipe,
            intercept=objective.intercept,
        )
        return replace(self, reference=reference)

    @property
    def plain(self) -> bool:
        """Whether the rows e are those that the head sees."""
        return self.reference.plain

    def after(
        self,
        change: RowChange,
        objective: Objective,
        *,
        rows: Callable[[], RowSource] | None = None,
    ) -> EncodedRequest:
        """Return what a request of raw rows leads to."""
        del objective
        statistics, reference = self.statistics, self.reference
        # A category without rows, undeclared, waits for the first that have it.
        has_come = False
        if change.n_added:
            has_come = drop_categories(self.recipe, statistics) is not self.recipe
        if change.added is not None and len(change.added):
            statistics = statistics.including(change.added.dense())
        if change.removed is not None and len(change.removed):
            statistics = statistics.without(change.removed.dense())
        recipe = drop_categories(self.recipe, statistics)
        if recipe is self.recipe and not has_come:
            features = learn_again(recipe, statistics, before=self.features)
        else:
            features = learn_features(recipe, statistics)
        follows = (
            not has_come
            and not reference.holds_departed(statistics)
            and (change.added is None or reference.knows_gaps(change.added.dense()))
        )
        crossing: Rows | None = None
        if follows and not features.layout.has_bins_of(self.features.layout):
            crossing = self._find_crossing(features, change, rows=rows)
            follows = crossing is not None
        seen = None
        if crossing is not None:
            reference = reference.with_edges(features.layout.edges)
            gone, come = crossing, reference.encode_rows(crossing)
            if change.removed is not None and len(change.removed):
                gone = change.removed.followed_by(crossing)
            if change.added is not None and len(change.added):
                first = self.reference.encode(change.added.dense())
                come = replace(change.added, X=first).followed_by(come)
            gone = self.reference.encode_rows(gone)
            seen = replace(change, removed=gone, added=come)
        elif follows:
            seen = replace_rows(change, reference.encode_rows)
        after = Learned(recipe, statistics, features, reference)
        same = reference.plain and features.equals(reference.features)
        return EncodedRequest(after, seen, after._lift, keeps_sums=same)

    def _find_crossing(
        self,
        features: Features,
        change: RowChange,
        *,
        rows: Callable[[], RowSource] | None,
    ) -> Rows | None:
        """Return the remaining rows that lie in another range now; None if too many.

        None too where ranges come or go. Rows that come are among them, as if they had
        come before the edges moved.
        """
        then, now = self.features.layout, features.layout
        if rows is None or now.bins != then.bins:
            return None
        held = rows()
        if not isinstance(held, Rows):
            return None
        raw = held.dense()
        crossing = np.zeros(len(raw), dtype=bool)
        for name, edges in now.edges.items():
            if not np.array_equal(edges, then.edges[name]):
                x = raw[:, int(name)]
                crossing |= find_bins(edges, x) != find_bins(then.edges[name], x)
        if held.absent is not None:
            crossing[held.absent] = False
        most = FEW if change.n_added else MOST_CROSSING * len(held)
        if crossing.sum() > most or change.n_added > FEW:
            return None
        return Rows(raw[crossing], held.y[crossing], held.weight[crossing])

    def carry(self, theta: Vector, before: Encoding, *, outputs: int) -> Vector:
        """Return parameters under the encoding before as a start under this one.

        A bin has those of the bin in which its end was, and what is new has zeros.
        """
        if not isinstance(before, Learned):
            return theta
        then, now = before.features.layout, self.features.layout
        # Where a class came or went too, they are of more or fewer outputs.
        fitting = [outputs * (len(then) + ones) for ones in (0, 1)]
        if now.equals(then) or theta.size not in fitting:
            return theta
        old = theta.reshape(-1, outputs)
        places = [then.place_of(key, now) for key in now.keys]
        rest = old[len(then) :]  # the intercept's
        found = [old[j] if j is not None else 0.0 * old[0] for j in places]
        return np.vstack([*found, *rest]).ravel()

    @property
    def learned(self) -> Self:
        """The whole of it."""
        return self

    def with_learned(self, learned: Encoding) -> Encoding:
        """Return the other."""
        return learned

    def with_categories_of(self, recipe: Recipe, X: Any) -> Self:
        """Return it with a place for each new category among rows to be added.

        Columns whose categories were declared stay as they are.

        Parameters
        ----------
        recipe
            The recipe, with the sources of its columns in this table.
        X
            The table.
        """
        counts, grown = dict(self.statistics.counts), list(self.recipe.columns)
        sources = [column.source for column in recipe.columns]
        table = extend_table(X, recipe.described.made)
        for index, group in enumerate(self.recipe.groups):
            column, name = grown[index], str(index)
            if not isinstance(group.encode, OneHot | TargetMeans):
                continue
            if isinstance(group.encode, OneHot) and group.encode.categories:
                continue
            values = take_values(table, sources[index], column.part)
            found = set(find_categories(values, column.source)[0])
            if column.filled is not None and None in found:
                found = (found - {None}) | {column.filled}
            new = found - set(column.categories)
            if not new:
                continue
            code_of = dict(zip(column.categories, column.codes, strict=True))
            categories = sort_categories(new | {*code_of}, column.source)
            first = len(counts[name])
            code_of |= {
                key: first + place
                for place, key in enumerate(key for key in categories if key in new)
            }
            codes = tuple(code_of[key] for key in categories)
            grown[index] = replace(column, categories=categories, codes=codes)
            counts[name] = np.pad(counts[name], (0, len(new)))
        if all(new is old for new, old in zip(grown, self.recipe.columns, strict=True)):
            return self
        return replace(
            self,
            recipe=replace(self.recipe, columns=tuple(grown)),
            statistics=replace(self.statistics, counts=counts),
        )

    def _lift(self, sums: State) -> State | None:
        """Return the state of the present features, if they follow from the sums."""
        reference, statistics = self.reference, self.statistics
        outputs = sums.objective.loss.outputs
        anchor, last = (
            drop_emptied(
                reference, theta.reshape(-1, outputs), statistics=statistics
            ).ravel()
            for theta in (sums.anchor, sums.last)
        )
        sums = sums.replace(sums=sums.sums.replace(theta=anchor), last=last)
        if reference.plain and self.features.equals(reference.features):
            return sums
        found = find_map(
            reference, self.features, statistics=statistics, outputs=outputs
        )
        return None if found is None else lift_state(sums, found)

    @property
    def public(self) -> FittedPreprocessing:
        """What was learned, as predictions need it."""
        columns = publish_columns(self.recipe, self.statistics)
        return FittedPreprocessing.of(
            self.recipe.described, columns, features=self.features
        )

    def state_in(self, scope: Scope) -> Scope:
        """Return what certificates state, preprocessing included."""
        described = self.recipe.described
        return replace(
            scope,
            preprocessed=True,
            columns_guessed=described.guessed,
            quanta_guessed=described.quanta_guessed,
            means_public=any(
                isinstance(group.encode, TargetMeans) for group in described.groups
            ),
            encoder=", ".join(
                describe_encoder(one.encoder, one.bits) for one in described.made
            ),
        )


def without_gaps(rows: RowSource) -> RowSource:
    """Return rows with nothing absent: what learns from rows counts every one."""
    gaps = isinstance(rows, Rows) and rows.absent is not None
    return rows.gather() if isinstance(rows, Rows) and gaps else rows


def replace_rows(change: RowChange, encode: Callable[[Rows], Rows]) -> RowChange:
    """Return a request with its rows encoded."""
    removed, added = (
        None if rows is None else encode(rows)
        for rows in (change.removed, change.added)
    )
    return replace(change, removed=removed, added=added)
