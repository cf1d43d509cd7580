# SPDX-License-Identifier: Apache-2.0
"""PipelineModel: a private model whose preprocessing forgets with it.

Its training rows are raw rows. A request changes exact statistics by what leaves and
what comes, so that what is learned is to the last bit what the rows after it give; then
sums over the features as they were at the anchor, of which the present features are a
linear map (``feature_maps``). The answer, its radius and its release are about the
present features: those of fitting the whole pipeline again. Rows are read only where
the answer does not fit the budget, or the features do not follow from those at the
anchor.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Any, ClassVar, Self

import numpy as np

from ..core.arrays import Index, Vector
from ..core.linalg import threads_for
from ..core.losses import Loss
from ..core.objective import Objective
from ..core.rows import Rows, RowSource, in_memory
from ..core.values import Private, replace_fields, stored
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
from ..private_model.labels import has_fewer_classes, recode_change
from ..private_model.model import (
    PrivateModel,
    count_request,
    resize_account,
    with_fewer_classes,
)
from ..private_model.training_rows import NO_ROWS, Remaining, RowChange
from ..promise.budget import Budget
from ..removal import Mechanism, State
from ..removal.state import is_matrix_free, lift_state
from ..removal.summary import summarise
from .balance import Balance, ClassSums, summarise_classes
from .columns import Recipe
from .feature_maps import Reference, drop_emptied, find_map
from .features import Features, FittedPreprocessing
from .learning import (
    drop_categories,
    learn,
    learn_again,
    learn_features,
    publish_columns,
)
from .statistics import Statistics, needs_order

Raw = Callable[[], RowSource]


@stored
@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class PipelineModel(PrivateModel):
    """A model with its preprocessing. Private.

    ``answer.state`` is about the features at the anchor, ``answer.draft`` about the
    present ones.

    Attributes
    ----------
    recipe, statistics, features
        What preprocessing does, what it learns from, and what it has learned.
    reference
        The features at the anchor.
    balance, class_sums
        With balanced classes, their weights and the sums over each; otherwise None.
    """

    recipe: Recipe
    statistics: Statistics
    features: Features
    reference: Reference
    balance: Balance | None = None
    class_sums: ClassSums | None = None

    keeps_raw_rows: ClassVar[bool] = True

    def change(
        self,
        change: RowChange,
        *,
        remaining: Remaining | None = None,
        spend: bool = False,
    ) -> Self:
        """Return the model after a request of raw rows, its preprocessing included."""
        if not (change.n_removed or change.n_added):
            return self
        clock = perf_counter()
        labels = self._labels_after(change)
        if has_fewer_classes(labels, self.labels):
            fewer = with_fewer_classes(replace(self, labels=labels))
            left = fewer._find_raw(change, remaining)
            assert left is not None
            return fewer.refit(fewer.objective, left(), change=change)
        seen = recode_change(change, self.labels, loss=self.objective.loss)
        after = count_request(self._learn_after(seen), change)
        after = replace_fields(after, labels=labels)
        raw = after._find_raw(change, remaining)
        found = self._update(after, seen, at_hand=raw is not None, spend=spend)
        if found is None:
            if raw is None:
                raise CannotRemove(
                    "these rows change a column so much that all rows must be read "
                    "again, and they are not kept; nothing was changed; fit with "
                    "keep_data=True, or declare categories"
                )
            return after._retrain(raw())._since(clock)
        base, sums, answer = found
        after = replace_fields(after, class_sums=sums)
        if raw is None or answer.fits(self.budget):
            return after._keep(answer, base)._since(clock)
        rows, again = raw(), MEASURED in self.answer.decisions
        better = improve_answer(
            self.agreement, answer, remaining=after.encode(rows), again=again
        )
        if better.state.gradient is answer.state.gradient:  # measured, not anchored
            return after._keep(better, base)._since(clock)
        return after._anchor(better, rows)._since(clock)

    def refit(
        self,
        objective: Objective,
        remaining: RowSource,
        *,
        change: RowChange,
        start: Vector | None = None,
    ) -> Self:
        """Return the model of a full fit to the raw rows that remain."""
        del start  # the features may be others
        clock = perf_counter()
        recipe, statistics, features = learn(self.recipe, remaining)
        model = replace(
            count_request(self, change),
            agreement=replace(self.agreement, objective=objective),
            recipe=recipe,
            statistics=statistics,
            features=features,
            balance=balance_of(recipe, remaining, loss=objective.loss),
        )
        return model._retrain(remaining)._since(clock)

    def reanchor(self, remaining: RowSource) -> Self:
        """Return the model with its sums rebuilt from the remaining rows."""
        present = self.answer
        if self.balance is not None:
            state = present.state.replace(weight=self.balance.total)
            present = replace(present, state=state)
        answer = anchor_answer(self.agreement, present, remaining=remaining)
        raw = self.raw_rows()
        assert raw is not None
        return self._anchor(answer, raw)

    def remaining_rows(self, gone: Index = NO_ROWS) -> RowSource | None:
        """Return the remaining rows but these, as the model sees them."""
        raw = self.raw_rows(gone)
        return None if raw is None else self.encode(raw)

    def raw_rows(self, gone: Index = NO_ROWS) -> RowSource | None:
        """Return the remaining raw rows but these; preprocessing counts every one."""
        raw = PrivateModel.remaining_rows(self, gone)
        return raw.gather() if isinstance(raw, Rows) else raw

    @property
    def public_parts(self) -> dict[str, Any]:
        """What predictions need besides the release."""
        described = self.recipe.described
        columns = publish_columns(self.recipe, self.statistics)
        fitted = None
        if self.recipe.given:
            fitted = FittedPreprocessing.of(described, columns, features=self.features)
        classes = None if self.labels is None else self.labels.classes
        return {
            "classes": classes,
            "declared": self.scope.declared,
            "preprocessing": fitted,
        }

    def _since(self, clock: float) -> Self:
        """Return the model with the time its request took."""
        return replace_fields(self, seconds=perf_counter() - clock)

    def encode(self, rows: RowSource) -> RowSource:
        """Return raw rows as the model sees them."""
        return encode_rows(
            rows, self.objective, features=self.features, balance=self.balance
        )

    def _learn_after(self, change: RowChange) -> Self:
        """Return the model with its preprocessing learned from the rows after it."""
        statistics = self.statistics
        if change.added is not None and len(change.added):
            statistics = statistics.including(np.asarray(change.added.X))
        if change.removed is not None and len(change.removed):
            statistics = statistics.without(np.asarray(change.removed.X))
        recipe = drop_categories(self.recipe, statistics)
        if recipe is self.recipe:
            features = learn_again(recipe, statistics, before=self.features)
        else:
            features = learn_features(recipe, statistics)
        self.objective.require_columns(len(features) + self.objective.intercept)
        return replace_fields(
            self,
            recipe=recipe,
            statistics=statistics,
            features=features,
            balance=None if self.balance is None else self.balance.after(change),
        )

    def _update(
        self, after: Self, change: RowChange, *, at_hand: bool, spend: bool
    ) -> tuple[State, ClassSums | None, Answer] | None:
        """Return the sums after a request, and the mechanism's answer.

        None if only the rows can tell.
        """
        mechanism, sums = self.agreement.mechanism, self.class_sums
        if not (_follows_features(mechanism) and self._follow_sums(after, change)):
            return None
        rows = _replace_rows(change, self.reference.encode_rows)
        weighed = rows if sums is None else _replace_rows(rows, sums.then.weigh)
        try:
            with threads_for(self.answer.state.block_size):
                base = mechanism.update(
                    self.answer.state, weighed.removed, added=weighed.added, spend=spend
                )
                present = base
                if sums is not None:
                    assert after.balance is not None
                    sums = sums.after(rows)
                    present = sums.combine(base, after.balance)
                state = after._lift(present)
                if state is None:
                    return None
                answer = answer_removal(self.agreement, state, rows=None)
                return base, sums, answer
        except REFUSALS:
            if spend or not at_hand:
                raise
            return None

    def _follow_sums(self, after: Self, change: RowChange) -> bool:
        """Whether the sums at the anchor can take in what a request changes."""
        if self.reference.holds_departed(after.statistics):
            return False
        sums, added = self.class_sums, change.added
        if sums is not None and after.balance and not sums.follows(after.balance):
            return False
        return added is None or self.reference.knows_gaps(np.asarray(added.X))

    def _lift(self, base: State) -> State | None:
        """Return the state of the present features, if they follow from the sums."""
        reference, statistics = self.reference, self.statistics
        outputs = self.objective.loss.outputs
        base = _settle(base, reference, statistics=statistics)
        if reference.plain and self.features.equals(reference.features):
            return base
        found = find_map(
            reference, self.features, statistics=statistics, outputs=outputs
        )
        return None if found is None else lift_state(base, found)

    def _find_raw(self, change: RowChange, remaining: Remaining | None) -> Raw | None:
        """Return how to get the raw rows after a request; None if nobody keeps them."""
        if remaining is not None:
            return lambda: self._with_current_labels(self._fetch(remaining))
        places = change.places
        if places is None or not self._has_rows(change):
            return None

        def raw() -> RowSource:
            rows = self.raw_rows(places)
            assert rows is not None
            seen = recode_change(change, self.labels, loss=self.objective.loss)
            return seen.append_to(rows)

        return raw

    def _retrain(self, raw: RowSource) -> Self:
        """Return the model of a full fit to these raw rows."""
        rows, start = self.encode(raw), self.answer.draft.theta
        size = rows.n_columns * self.objective.loss.outputs
        answer = retrain_answer(
            self.agreement, rows, start=start if start.size == size else None
        )
        return self._anchor(answer, raw)

    def _keep(self, answer: Answer, base: State) -> Self:
        """Return the model with an answer that was derived from these sums."""
        model, kept = resize_account(self, answer.draft.theta.size), answer.state
        last = answer.draft.theta
        if kept.features is not None:
            last = kept.features.lift(last)
        if self.balance is not None:  # these sums are under the weights at the anchor
            kept = base.answered(last)
        elif kept.features is not None:
            kept = base.replace(weight=kept.weight).answered(last)
        return replace_fields(model, answer=replace(answer, state=kept))

    def _anchor(self, answer: Answer, raw: RowSource) -> Self:
        """Return the model with an answer made from the remaining raw rows.

        Its features are those at the anchor from now on.
        """
        model = resize_account(self, answer.draft.theta.size)
        reference = Reference.of(
            self.features,
            self.statistics,
            recipe=self.recipe,
            intercept=self.objective.intercept,
        )
        answer, sums = anchor_at(
            self.agreement, answer, reference=reference, raw=raw, balance=self.balance
        )
        return replace_fields(
            model, answer=answer, reference=reference, class_sums=sums
        )


def _replace_rows(change: RowChange, encode: Callable[[Rows], Rows]) -> RowChange:
    """Return a request with its rows encoded."""
    removed, added = (
        None if rows is None else encode(rows)
        for rows in (change.removed, change.added)
    )
    return replace(change, removed=removed, added=added)


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


def require_following(mechanism: Mechanism) -> None:
    """Refuse a mechanism that cannot do without rows where features change."""
    if not _follows_features(mechanism):
        raise InvalidInput(
            f"mechanism={type(mechanism).__name__.lower()!r} with preprocessing and "
            "keep_data=False: every request changes what is learned, and without rows "
            "only 'newton' can follow; set mechanism='newton', or keep_data=True"
        )


def _follows_features(mechanism: Mechanism) -> bool:
    """Whether a mechanism can answer from the state of other features."""
    return getattr(mechanism, "follows_features", False)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RowEncoding(Private):
    """Makes the rows that a model sees of raw rows."""

    objective: Objective
    features: Features

    def __call__(self, raw: Rows) -> Rows:
        """Return the rows, intercept included."""
        encoded = self.features.encode(np.asarray(raw.X))
        return self.objective.rows(encoded, raw.y, raw.weight)


def encode_rows(
    raw: RowSource,
    objective: Objective,
    *,
    features: Features,
    balance: Balance | None,
) -> RowSource:
    """Return raw rows as a model sees them."""
    if balance is not None:
        raw = balance.weigh(in_memory(raw, "class_weight='balanced'"))
    width = len(features) + objective.intercept
    return raw.convert(RowEncoding(objective, features), n_columns=width)


def fit_pipeline(
    objective: Objective, raw: RowSource, *, recipe: Recipe, **options: Any
) -> PipelineModel:
    """Fit preprocessing and model to raw rows; options as ``PrivateModel.fit``.

    A start is used if it has as many parameters as the features call for.
    """
    recipe, statistics, features = learn(recipe, raw)
    balance = balance_of(recipe, raw, loss=objective.loss)
    rows = encode_rows(raw, objective, features=features, balance=balance)
    start = options.pop("start", None)
    if start is not None and start.size != rows.n_columns * objective.loss.outputs:
        start = None
    model = PrivateModel.fit(objective, rows, start=start, **options)
    reference = Reference.of(
        features, statistics, recipe=recipe, intercept=objective.intercept
    )
    answer, sums = anchor_at(
        model.agreement, model.answer, reference=reference, raw=raw, balance=balance
    )
    plain = {one.name: getattr(model, one.name) for one in fields(PrivateModel)}
    return PipelineModel(
        **plain | {"answer": answer},
        recipe=recipe,
        statistics=statistics,
        features=features,
        reference=reference,
        balance=balance,
        class_sums=sums,
    )


def balance_of(recipe: Recipe, raw: RowSource, *, loss: Loss) -> Balance | None:
    """Return the weights of balanced classes; None if classes are not balanced."""
    if not recipe.balanced:
        return None
    rows = in_memory(raw, "class_weight='balanced'")
    return Balance.of(rows, max(2, loss.outputs))


def anchor_at(
    agreement: Agreement,
    answer: Answer,
    *,
    reference: Reference,
    raw: RowSource,
    balance: Balance | None,
) -> tuple[Answer, ClassSums | None]:
    """Return the answer with its sums over the rows e of a reference.

    And, with balanced classes, the sums over each class.
    """
    if reference.plain and balance is None:
        return answer, None
    if is_matrix_free(agreement.mechanism):  # every request reads the rows again
        return answer, None
    outputs = agreement.objective.loss.outputs
    theta = reference.extend(answer.draft.theta.reshape(-1, outputs)).ravel()
    rows = raw.convert(reference.encode_rows, n_columns=reference.constant + 1)
    weighed = rows if balance is None else balance.weigh(in_memory(rows))
    objective = agreement.objective_for(weighed)
    summary = summarise(objective, weighed, theta=theta)
    sums = None
    if balance is not None:
        weight = weighed.total_weight
        parts = summarise_classes(
            objective,
            in_memory(rows),
            theta=theta,
            weight=weight,
            n_classes=len(balance.totals),
        )
        sums = ClassSums(parts, balance)
    return replace(answer, state=agreement.mechanism.init(summary)), sums


def _settle(base: State, reference: Reference, *, statistics: Statistics) -> State:
    """Return the state with an anchor without parameters of emptied categories."""
    outputs = base.objective.loss.outputs
    anchor, last = (
        drop_emptied(reference, theta.reshape(-1, outputs), statistics=statistics)
        for theta in (base.anchor, base.last)
    )
    pull = base.objective.quadratic_gradient(anchor.ravel())
    return base.replace(anchor=anchor.ravel(), last=last.ravel(), pull=pull)
