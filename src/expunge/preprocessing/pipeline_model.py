# SPDX-License-Identifier: Apache-2.0
"""PipelineModel: a private model whose preprocessing forgets with it.

Its training rows are raw rows. A request subtracts them from exact statistics, so that
what is learned is to the last bit what the remaining rows give; then from sums over the
features as they were at the anchor, of which the present features are a linear map
(``feature_maps``). The answer, its radius and its release are about the present
features: those of fitting the whole pipeline again. Rows are read only where the answer
does not fit the budget, or the features do not follow from those at the anchor.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from time import perf_counter
from typing import Any, Self

import numpy as np

from ..core.arrays import Index, Matrix, Vector, replace_fields
from ..core.objective import Objective, Rows
from ..core.packing import stored
from ..exceptions import CannotRemove, InvalidInput
from ..private_model.answers import (
    MEASURED,
    REFUSALS,
    Agreement,
    Answer,
    anchor_answer,
    answer_removal,
    improve_answer,
    retrain_answer,
)
from ..private_model.labels import has_fewer_classes
from ..private_model.model import NO_ROWS, PrivateModel, Remaining
from ..promise.budget import Budget
from ..removal import Mechanism, State
from ..removal.lift import lift_state
from ..removal.summary import summarise
from .columns import Column, Recipe, read_columns
from .description import Preprocessing
from .feature_maps import Reference, drop_emptied, find_map
from .features import Features
from .fitted import FittedPreprocessing
from .learning import find_most_frequent, learn_again, learn_features
from .statistics import Statistics, count_rows, needs_order

Raw = Callable[[], Rows]


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False, kw_only=True)
class PipelineModel(PrivateModel):
    """A model with its preprocessing. Private.

    ``answer.state`` is about the features at the anchor, ``answer.draft`` about the
    present ones.

    Attributes
    ----------
    described
        What preprocessing does.
    columns, statistics, features
        How columns are read, what is learned from, and what is learned.
    reference
        The features at the anchor.
    """

    described: Preprocessing
    columns: tuple[Column, ...]
    statistics: Statistics
    features: Features
    reference: Reference

    def forget(
        self,
        removed: Rows,
        *,
        gone: Index | None = None,
        remaining: Remaining | None = None,
        n_subjects: int = 1,
        spend: bool = False,
    ) -> Self:
        """Return the model without these raw rows, its preprocessing included."""
        if not len(removed):
            return self
        clock = perf_counter()
        labels = self._labels_without(removed, gone)
        after = self._learn_without(removed)._count_request(len(removed), n_subjects)
        after = replace_fields(after, labels=labels)
        if has_fewer_classes(labels, self.labels):
            after = after._with_fewer_classes()
            raw = after._find_raw(gone, remaining)
            assert raw is not None
            return after._retrain(raw())._since(clock)
        raw = after._find_raw(gone, remaining)
        found = self._remove(after, removed, at_hand=raw is not None, spend=spend)
        if found is None:
            if raw is None:
                raise CannotRemove(
                    "without these rows a column changes so much that the remaining "
                    "rows must be read again, and they are not kept; fit with "
                    "keep_data=True, or declare categories"
                )
            return after._retrain(raw())._since(clock)
        base, answer = found
        if raw is None or answer.fits(self.budget):
            return after._keep(answer, base)._since(clock)
        rows, again = raw(), MEASURED in self.answer.decisions
        encoded = after._encode(rows)
        answer = improve_answer(self.agreement, answer, remaining=encoded, again=again)
        return after._keep(answer, base, raw=rows)._since(clock)

    def refit(
        self,
        objective: Objective,
        remaining: Rows,
        *,
        n_subjects: int,
        start: Vector | None = None,
    ) -> Self:
        """Refuse: rows do not come without their preprocessing here."""
        raise NotImplementedError("a pipeline learns from raw rows; see forget")

    def reanchor(self, remaining: Rows) -> Self:
        """Return the model with its sums rebuilt from the remaining rows."""
        present = replace(self.answer, state=self._present_state())
        answer = anchor_answer(self.agreement, present, remaining=remaining)
        raw = PrivateModel.remaining_rows(self)
        assert raw is not None
        return self._keep(answer, self.answer.state, raw=raw)

    def remaining_rows(self, gone: Index = NO_ROWS) -> Rows | None:
        """Return the remaining rows but these, as the model sees them."""
        raw = PrivateModel.remaining_rows(self, gone)
        return None if raw is None else self._encode(raw)

    def read_rows(self, X: Any) -> Matrix:
        """Return the rows of a table as they are kept: raw rows."""
        return read_columns(self.columns, X)

    def public_parts(self) -> dict[str, Any]:
        """Return what predictions need besides the release."""
        columns = publish_columns(self.described, self.columns, self.statistics)
        fitted = FittedPreprocessing(self.described, columns, self.features)
        return PrivateModel.public_parts(self) | {"preprocessing": fitted}

    def _since(self, clock: float) -> Self:
        """Return the model with the time its request took."""
        return replace_fields(self, seconds=perf_counter() - clock)

    def _encode(self, raw: Rows) -> Rows:
        """Return raw rows as the model sees them."""
        encoded = self.features.encode(np.asarray(raw.X))
        return self.objective.rows(encoded, raw.y, raw.weight)

    def _learn_without(self, removed: Rows) -> Self:
        """Return the model with its preprocessing learned without these rows."""
        statistics = self.statistics.without(np.asarray(removed.X), removed.weight)
        columns = drop_categories(self.described, self.columns, statistics)
        if columns == self.columns:
            features = learn_again(
                self.described, columns, statistics, before=self.features
            )
        else:
            features = learn_features(self.described, columns, statistics)
        return replace_fields(
            self, statistics=statistics, columns=columns, features=features
        )

    def _remove(
        self, after: Self, removed: Rows, *, at_hand: bool, spend: bool
    ) -> tuple[State, Answer] | None:
        """Return the sums without these rows, and the mechanism's answer.

        None if only the rows can tell.
        """
        mechanism = self.agreement.mechanism
        if not getattr(mechanism, "follows_features", False):
            return None
        e = self.reference.encode(np.asarray(removed.X))
        coded = self._with_current_labels(removed)
        try:
            base = mechanism.update(
                self.answer.state, Rows(e, coded.y, coded.weight), spend=spend
            )
            state = after._lift(base)
            if state is None:
                return None
            return base, answer_removal(self.agreement, state, rows=None)
        except REFUSALS:
            if spend or not at_hand:
                raise
            return None

    def _lift(self, base: State) -> State | None:
        """Return the state of the present features, if they follow from the sums."""
        reference, statistics = self.reference, self.statistics
        outputs = self.objective.loss.outputs
        settle = partial(_settle, reference, statistics=statistics, outputs=outputs)
        base = base.replace(anchor=settle(base.anchor), last=settle(base.last))
        if reference.plain and self.features.equals(reference.features):
            return base
        found = find_map(
            reference, self.features, statistics=statistics, outputs=outputs
        )
        return None if found is None else lift_state(base, found)

    def _present_state(self) -> State:
        """Return the state of the present features."""
        state = self._lift(self.answer.state)
        assert state is not None
        return state

    def _find_raw(self, gone: Index | None, remaining: Remaining | None) -> Raw | None:
        """Return how to get the remaining raw rows; None if nobody keeps them."""
        if remaining is not None:
            return lambda: self._with_current_labels(self._fetch(remaining))
        if gone is None or (self.training_rows or self.fetch) is None:
            return None

        def raw() -> Rows:
            rows = PrivateModel.remaining_rows(self, gone)
            assert rows is not None
            return rows

        return raw

    def _with_fewer_classes(self) -> Self:
        """Return the model with the objective for the classes that are left."""
        assert self.labels is not None
        loss = self.labels.loss_like(self.objective.loss)
        objective = replace(self.objective, loss=loss)
        agreement = replace(self.agreement, objective=objective)
        return replace_fields(self, agreement=agreement)

    def _retrain(self, raw: Rows) -> Self:
        """Return the model of a full fit to these raw rows."""
        rows, start = self._encode(raw), self.answer.draft.theta
        size = rows.X.shape[1] * self.objective.loss.outputs
        answer = retrain_answer(
            self.agreement, rows, start=start if start.size == size else None
        )
        return self._keep(answer, self.answer.state, raw=raw)

    def _keep(self, answer: Answer, base: State, *, raw: Rows | None = None) -> Self:
        """Return the model with an answer, and the sums behind the next one.

        Parameters
        ----------
        answer
            With the state of the present features.
        base
            The sums over the features at the anchor; they stay if the answer's state
            was derived from them.
        raw
            The remaining raw rows, if the answer was made from them.
        """
        model = self._resize(answer.draft.theta.size)
        if answer.state.features is not None:
            last = answer.state.features.lift(answer.draft.theta)
            kept = base.replace(weight=answer.state.weight).answered(last)
            return replace_fields(model, answer=replace(answer, state=kept))
        reference = Reference.of(
            self.features, self.statistics, intercept=self.objective.intercept
        )
        if not reference.plain:
            assert raw is not None
            answer = anchor_at(self.agreement, answer, reference=reference, raw=raw)
        return replace_fields(model, answer=answer, reference=reference)


def require_pipeline(recipe: Recipe, budget: Budget | None, *, keep_data: bool) -> None:
    """Refuse what cannot be promised of a model with preprocessing."""
    if budget is not None and budget.row_norm is not None:
        raise InvalidInput(
            f"row_norm={budget.row_norm:g} with preprocessing: how long a row is "
            "depends on what is learned; leave row_norm out"
        )
    for group in recipe.described.groups:
        if not keep_data and needs_order(group):
            raise InvalidInput(
                "keep_data=False, and the preprocessing of "
                f"{', '.join(map(repr, group.columns[:4]))} needs extremes, a median "
                "or the most frequent value, which take the values themselves; set "
                "keep_data=True, or use StandardScaler and the mean"
            )


def fit_pipeline(
    recipe: Recipe,
    objective: Objective,
    raw: Rows,
    *,
    weighted: bool,
    mechanism: Mechanism,
    budget: Budget | None,
    start: Vector | None,
) -> PipelineModel:
    """Fit preprocessing and model to raw rows."""
    X, described, columns = np.asarray(raw.X), recipe.described, recipe.columns
    weight = raw.weight if weighted else None
    statistics = count_rows(described, columns, raw=X, weight=weight)
    features = learn_features(described, columns, statistics)
    rows = objective.rows(features.encode(X), raw.y, raw.weight)
    model = PrivateModel.fit(
        objective, rows, mechanism=mechanism, budget=budget, start=start
    )
    reference = Reference.of(features, statistics, intercept=objective.intercept)
    answer = model.answer
    if not reference.plain:
        answer = anchor_at(model.agreement, answer, reference=reference, raw=raw)
    plain = {one.name: getattr(model, one.name) for one in fields(PrivateModel)}
    return PipelineModel(
        **plain | {"answer": answer},
        described=described,
        columns=columns,
        statistics=statistics,
        features=features,
        reference=reference,
    )


def anchor_at(
    agreement: Agreement, answer: Answer, *, reference: Reference, raw: Rows
) -> Answer:
    """Return the answer with its sums over the rows e of a reference."""
    outputs = agreement.objective.loss.outputs
    theta = reference.extend(answer.draft.theta.reshape(-1, outputs)).ravel()
    rows = Rows(reference.encode(np.asarray(raw.X)), raw.y, raw.weight)
    summary = summarise(agreement.objective_for(rows), rows, theta=theta)
    return replace(answer, state=agreement.mechanism.init(summary))


def drop_categories(
    described: Preprocessing, columns: tuple[Column, ...], statistics: Statistics
) -> tuple[Column, ...]:
    """Return the columns without categories that nobody has any more.

    A missing value is a category too; declared ones stay.
    """
    groups = [group for group in described.groups for _ in group.columns]
    left = []
    for place, (group, column) in enumerate(zip(groups, columns, strict=True)):
        counts = statistics.counts.get(str(place))
        declared = getattr(group.encode, "categories", None) is not None
        if counts is None or declared or counts[list(column.codes)].all():
            left.append(column)
            continue
        present = set(np.flatnonzero(counts).tolist())
        if group.fill is not None and None in column.categories:
            # What is missing later has the code of the most frequent category.
            present.add(column.codes[column.categories.index(None)])
        left.append(column.keep(present))
    return tuple(left)


def publish_columns(
    described: Preprocessing, columns: tuple[Column, ...], statistics: Statistics
) -> tuple[Column, ...]:
    """Return the columns as predictions read them.

    A missing category is read as the most frequent one, if that fills it: then nothing
    says whether one was missing in the rows.
    """
    groups = [group for group in described.groups for _ in group.columns]
    published = []
    for place, (group, column) in enumerate(zip(groups, columns, strict=True)):
        fill = None if group.fill is None else group.fill.strategy
        if column.kind == "category" and fill == "most_frequent":
            pairs = zip(column.categories, column.codes, strict=True)
            codes = {key: (code,) for key, code in pairs}
            most = find_most_frequent(codes, statistics.counts[str(place)])
            known = {code for key, (code,) in codes.items() if key is not None}
            column = replace(column.keep(known), filled=most)
        published.append(column)
    return tuple(published)


def _settle(
    reference: Reference, theta: Vector, *, statistics: Statistics, outputs: int
) -> Vector:
    """Return parameters of e without those of emptied categories."""
    matrix = theta.reshape(-1, outputs)
    return drop_emptied(reference, matrix, statistics=statistics).ravel()
