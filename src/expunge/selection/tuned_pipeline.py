# SPDX-License-Identifier: Apache-2.0
"""TunedPipelineModel: preprocessing, model and choice that forget together.

Preprocessing is learned in each fold from the rows that the fold trains on, as tuning
again would. A removal changes every row of every fold that way, so that the fold models
are fitted again from the remaining rows at each request; the released model is updated
like any other if the choice stays.

A candidate's error is bounded from the certified distance r of its fit to the exact
minimiser: for a row x with weight w, the loss there changes by at most
w (|slope| |x| r + k2 |x|^2 r^2 / 2), k2 the bound on the curvature.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Self

import numpy as np

from ..core.arrays import SAFETY, UNIT_ROUNDOFF, Index, Private, Vector, norm
from ..core.objective import Objective, Rows
from ..core.packing import NOT_STORED, stored
from ..core.sums import loss_gradient, row_sizes
from ..exceptions import CannotRemove, InvalidInput, Unsupported
from ..preprocessing.columns import Recipe
from ..preprocessing.pipeline_model import PipelineModel, balance_of, learn
from ..private_model.answers import Agreement, retrain_answer
from ..private_model.labels import Labels, has_fewer_classes
from ..private_model.model import Remaining, with_fewer_classes
from ..promise.noise import Noise
from ..promise.radius import Radius
from ..removal import Draft, Newton
from .choice import Choice, Chooser, ErrorInterval, Rule, Split, pool_intervals
from .tune import require_training
from .tuned_model import ChoosingModel, choose_for_release


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ChosenByFolds(Private):
    """The choice, without models: they are fitted again at each request."""

    choice: Choice


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False, kw_only=True)
class TunedPipelineModel(ChoosingModel, PipelineModel):
    """A pipeline with a choice behind it; attributes as in TunedModel. Private."""

    rule: Rule
    bounds: Index
    models: ChosenByFolds
    chosen: int
    choice_noise: Noise | None = field(default=None, metadata=NOT_STORED)

    needs_training_rows: ClassVar[bool] = True

    def forget(
        self,
        removed: Rows,
        *,
        gone: Index | None = None,
        remaining: Remaining | None = None,
        n_subjects: int = 1,
        spend: bool = False,
    ) -> Self:
        """Return the model without these raw rows, the choice made again."""
        if not len(removed):
            return self
        assert self.training_rows is not None and gone is not None
        labels = self._labels_without(removed, gone)
        model = self
        if has_fewer_classes(labels, self.labels):
            model = self._with_fewer_candidates(labels)
        models = model._tune_without(gone)
        chosen = choose_for_release(models.choice, self, rule=model.rule)
        if chosen == self.chosen and model is self:
            after = PipelineModel.forget(
                self, removed, gone=gone, n_subjects=n_subjects, spend=spend
            )
        else:
            raw = model.raw_rows(gone)
            assert raw is not None
            objective = model.rule.objectives[chosen]
            after = model.refit(objective, raw, n_subjects=n_subjects)
        kept: Self = replace(after, labels=labels)._with_choice(models, chosen)
        return kept

    def reanchor(self, remaining: Rows) -> Self:
        """Refuse, as every model with a choice does."""
        raise Unsupported(
            "a tuned model makes its choice from all rows at each request; fit it "
            "again to get rid of its anchor"
        )

    def _with_fewer_candidates(self, labels: Labels | None) -> Self:
        """Return the model with candidates for the classes that are left."""
        model = with_fewer_classes(replace(self, labels=labels))
        loss = model.objective.loss
        objectives = tuple(replace(one, loss=loss) for one in self.rule.objectives)
        return replace(model, rule=replace(self.rule, objectives=objectives))

    def _tune_without(self, gone: Index) -> ChosenByFolds:
        """Return the choice that the rows without these lead to."""
        assert self.training_rows is not None
        rows = self._with_current_labels(self.training_rows.rows)
        split = Split(rows, self.bounds).without(gone)
        require_training(split, CannotRemove)
        choose = self.rule.chooser(at_fit=False)
        return tune_folds(self.rule, split, recipe=self.recipe, choose=choose)


def make_tuned_pipeline(
    model: PipelineModel,
    rule: Rule,
    *,
    bounds: Index,
    models: ChosenByFolds,
    chosen: int,
) -> TunedPipelineModel:
    """Return the fit of the chosen candidate with the choice behind it."""
    account = rule.account(model.accountant, models.choice)
    plain = {one.name: getattr(model, one.name) for one in fields(PipelineModel)}
    return TunedPipelineModel(
        **plain | {"accountant": account},
        rule=rule,
        bounds=bounds,
        models=models,
        chosen=chosen,
    )


def tune_folds(
    rule: Rule,
    split: Split,
    *,
    recipe: Recipe,
    choose: Chooser,
    tick: Callable[[], None] = lambda: None,
) -> ChosenByFolds:
    """Return the choice among the candidates, each fold with its own preprocessing.

    Parameters
    ----------
    rule
        Candidates and folds.
    split
        Raw rows by fold; those of weight zero are gone.
    recipe
        What preprocessing does.
    choose
        Makes the choice from intervals.
    tick
        Called when a candidate has been fitted to a fold.
    """
    if rule.n_folds is None:
        raise Unsupported(
            "folds='loo' with preprocessing, which would be learned again without each "
            "row; give a number of folds"
        )
    require_training(split, InvalidInput)
    sums: list[list[ErrorInterval]] = [[] for _ in rule.objectives]
    for fold in range(split.n_folds):
        held = split.validation(fold)
        held = held.take(held.weight > 0.0)
        training = split.training(fold)
        X, (_, _, features) = np.asarray(training.X), learn(recipe, training)
        start, loss = None, rule.objectives[0].loss
        balance = balance_of(recipe, training, loss=loss)
        weighed = training if balance is None else balance.weigh(training)
        for place, objective in enumerate(rule.objectives):
            rows = objective.rows(features.encode(X), training.y, weighed.weight)
            draft, radius = _fit_candidate(objective, rows, start=start)
            start = draft.theta
            seen = features.encode(np.asarray(held.X))
            tested = objective.rows(seen, held.y, held.weight) if len(held) else None
            sums[place].append(
                bound_loss(objective, tested, draft=draft, radius=radius)
            )
            tick()
    total = split.rows.total_weight
    pooled = [pool_intervals(parts, weight=total) for parts in sums]
    return ChosenByFolds(choose(pooled, [False] * len(pooled)))


def _fit_candidate(
    objective: Objective, rows: Rows, *, start: Vector | None
) -> tuple[Draft, Radius]:
    """Return the fit of a candidate, and how far it may be from the minimiser."""
    agreement = Agreement(objective, Newton(), None, rows.total_weight)
    answer = retrain_answer(agreement, rows, start=start)
    return answer.draft, answer.radius


def bound_loss(
    objective: Objective, rows: Rows | None, *, draft: Draft, radius: Radius
) -> ErrorInterval:
    """Return bounds on the sum of losses that the exact minimiser has on these rows."""
    if rows is None:
        return ErrorInterval(0.0, 0.0, 0.0)
    loss, theta, r = objective.loss, draft.theta, radius.value
    value, _ = loss_gradient(loss, rows, theta=theta)
    slope, square, _, _ = row_sizes(loss, rows, theta=theta)
    width = slope * r + 0.5 * loss.curvature_bound * square * r * r
    count = len(rows) + theta.size + 16
    # Of the sum, and of every predictor in it.
    rounding = 4.0 * UNIT_ROUNDOFF * count * (value + slope * norm(theta) + slope)
    width = (width + rounding) * SAFETY
    return ErrorInterval(max(value - width, 0.0), value, value + width)
