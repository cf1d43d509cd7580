# SPDX-License-Identifier: Apache-2.0
"""TunedPipelineModel: preprocessing, model and choice that forget together.

Preprocessing is learned in each fold from the rows that the fold trains on, as tuning
again would. A removal changes every row of every fold that way, so that the fold models
are fitted again from the remaining rows at each request; the released model is updated
like any other if the choice stays.
"""

from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Self

from ..core.arrays import Index
from ..core.rows import RowSource
from ..core.values import NOT_STORED, stored
from ..exceptions import CannotRemove, Unsupported
from ..preprocessing.pipeline_model import PipelineModel
from ..private_model.labels import Labels, has_fewer_classes
from ..private_model.model import with_fewer_classes
from ..private_model.training_rows import Remaining, RowChange, require_in_memory
from ..promise.noise import Noise
from .choice import Rule, Split
from .fold_fits import ChosenByFolds, tune_folds
from .tune import require_training
from .tuned_model import ChoosingModel, choose_for_release


@stored
@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class TunedPipelineModel(ChoosingModel, PipelineModel):
    """A pipeline with a choice behind it; attributes as in TunedModel. Private."""

    rule: Rule
    bounds: Index
    models: ChosenByFolds
    chosen: int
    choice_noise: Noise | None = field(default=None, metadata=NOT_STORED)

    needs_training_rows: ClassVar[bool] = True

    def change(
        self,
        change: RowChange,
        *,
        remaining: Remaining | None = None,
        spend: bool = False,
    ) -> Self:
        """Return the model without some raw rows, the choice made again."""
        del remaining  # it keeps its rows
        if change.n_added:
            self.require_room()
        if not change.n_removed:
            return self
        gone = change.gone
        assert self.training_rows is not None and gone is not None
        labels = self._labels_after(change)
        model = self
        if has_fewer_classes(labels, self.labels):
            model = self._with_fewer_candidates(labels)
        models = model._tune_without(gone)
        chosen = choose_for_release(models.choice, self, rule=model.rule)
        if chosen == self.chosen and model is self:
            after = PipelineModel.change(self, change, spend=spend)
        else:
            raw = model.raw_rows(gone)
            assert raw is not None
            objective = model.rule.objectives[chosen]
            after = model.refit(objective, raw, change=change)
        kept: Self = replace(after, labels=labels)._with_choice(models, chosen)
        return kept

    def reanchor(self, remaining: RowSource) -> Self:
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
        kept = require_in_memory(self.training_rows)
        rows = self._with_current_labels(kept.rows)
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
