# SPDX-License-Identifier: Apache-2.0
"""TunedModel: a private model that also keeps the models behind its choice.

A request goes to the fold models first. If the choice stays, the released model is
updated like any other. If it moves, the candidate that tuning again would have chosen
is solved on the rows that remain.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index
from ..core.rows import Rows, RowSource
from ..core.values import NOT_STORED, stored
from ..exceptions import CannotRemove, Unsupported
from ..private_model.labels import has_fewer_classes
from ..private_model.model import PrivateModel, require_rows
from ..private_model.training_rows import (
    Remaining,
    RowChange,
    TrainingRows,
    require_in_memory,
)
from ..promise.accountant import Accountant
from ..promise.budget import Budget
from ..promise.noise import Noise, make_noise, noise_for, round_to_grid
from ..promise.verification import Scored
from ..removal.matrix_free import choose_mechanism
from ..removal.state import is_matrix_free
from .choice import Choice, Rule, Split, folds_of
from .fold_fits import ALONE, ChosenByFolds, Crew, tune_folds
from .tune import (
    LooTuning,
    Tuning,
    loo_retune,
    loo_tune,
    require_training,
    retune,
    tune,
)

Models = Tuning | LooTuning | ChosenByFolds


class ChoosingModel:
    """What models with a choice behind them share; a mixin without fields."""

    __slots__ = ()

    def require_room(self) -> None:
        """Raise Unsupported: every fold would have to learn rows that come."""
        raise Unsupported(
            "a tuned model cannot be added to: each fold keeps sums over its own rows, "
            "which can only lose some; nothing was added; fit again with the new rows, "
            "or fit a model with a fixed alpha, which can be added to"
        )

    def with_noise(self: Any) -> Any:
        """Return the model with noise that no release of its account has had."""
        choices = None
        if self.rule.method == "noised":
            assert self.budget is not None
            choices = make_choice_noise(self.budget, self.seed)
        return replace(self, noise=self._fresh_noise(), choice_noise=choices)

    def compact(self: Any) -> Any:
        """Return the model with its training rows gathered, without gaps."""
        assert self.training_rows is not None
        bounds = bounds_among(self.training_rows.alive, self.bounds)
        return replace(PrivateModel.compact(self), bounds=bounds)

    def interchangeable(self: Any, places: Sequence[int]) -> bool:
        """Whether it does not matter which of these equal rows goes: in one fold."""
        assert self.training_rows is not None
        split = Split(self.training_rows.rows, self.bounds)
        return len(set(split.folds_at(np.array(places)))) == 1

    def _charge_choice(self: Any, account: Accountant) -> Accountant:
        """Return the account after a choice like the last one."""
        charged: Accountant = self.rule.account(account, self.models.choice)
        return charged

    def _scores(self: Any) -> tuple[Scored, ...]:
        """Return each candidate's alpha and the ends of its interval, chosen first."""
        choice, objectives = self.models.choice, self.rule.objectives
        return tuple(
            (objectives[p].alpha, choice.intervals[p].low, choice.intervals[p].high)
            for p in choice.distinct(self.chosen)
        )

    def _with_choice(self: Any, models: Any, chosen: int) -> Any:
        """Return the model with a choice, and its account told of it."""
        account = self.rule.account(self.accountant, models.choice)
        return replace(self, accountant=account, models=models, chosen=chosen)


@stored
@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class TunedModel(ChoosingModel, PrivateModel):
    """A model with every candidate's models, and the choice among them. Private.

    Attributes
    ----------
    rule
        How the choice is made.
    bounds
        Where each fold begins among the training rows, and where the last one ends.
    models
        The candidates' models and the choice among them.
    chosen
        Position of the candidate that is released.
    choice_noise
        What scores get before they are compared; None if they get none.
    """

    rule: Rule
    bounds: Index
    models: Models
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
        """Return the model without some rows, the choice made again."""
        del remaining  # it keeps its rows
        if change.n_added:
            self.require_room()
        if not change.n_removed:
            return self
        gone = change.gone
        assert self.training_rows is not None and gone is not None
        labels = self._labels_after(change)
        if has_fewer_classes(labels, self.labels):
            return replace(self, labels=labels)._tune_again(change)
        models = self._update_models(self._split(), gone)
        chosen = choose_for_release(models.choice, self, rule=self.rule)
        if chosen == self.chosen:
            left = partial(require_rows, self, gone)
            after = PrivateModel.change(self, change, remaining=left, spend=spend)
        else:
            after = self.refit(
                self.rule.objectives[chosen],
                require_rows(self, gone),
                change=change,
                start=models.start_of(chosen),
            )
        chosen_model: Self = replace(after, labels=labels)._with_choice(models, chosen)
        return chosen_model

    def reanchor(self, remaining: RowSource) -> Self:
        """Refuse: there is a state for every candidate and fold."""
        raise Unsupported(
            "a tuned model keeps a state for every candidate and fold; fit it again to "
            "get rid of their anchors"
        )

    def _tune_again(self, change: RowChange) -> Self:
        """Return the model tuned from the start, since there are fewer classes."""
        gone = change.gone
        assert gone is not None
        assert self.training_rows is not None and self.labels is not None
        loss = self.labels.loss_like(self.objective.loss)
        objectives = tuple(replace(one, loss=loss) for one in self.rule.objectives)
        rule = replace(self.rule, objectives=objectives)
        agreement = replace(self.agreement, objective=objectives[0])
        new = replace(self, rule=rule, agreement=agreement)
        rest = new._split().without(gone)
        models = fit_models(rule, rest, by_folds=self._by_folds)
        chosen = choose_for_release(models.choice, self, rule=rule)
        after = new.refit(
            objectives[chosen],
            require_rows(new, gone),
            change=change,
            start=models.start_of(chosen),
        )
        chosen_model: Self = after._with_choice(models, chosen)
        return chosen_model

    @property
    def _by_folds(self) -> bool:
        """Whether folds are fitted again at each request, as settled at the fit."""
        return isinstance(self.models, ChosenByFolds)

    def _split(self) -> Split:
        """Return the training rows by fold, with labels for the objective."""
        assert self.training_rows is not None
        rows = require_in_memory(self.training_rows).rows
        return Split(self._with_current_labels(rows), self.bounds)

    def _update_models(self, split: Split, gone: Index) -> Models:
        """Return the candidates' models without these rows."""
        rule, models = self.rule, self.models
        if rule.method == "recomputed":
            alive = split.without(gone).rows.weight > 0.0
            # In their order, so that tuning again gives the same to the last bit.
            rest = Split(split.rows.take(alive), bounds_among(alive, self.bounds))
            return fit_models(rule, rest, by_folds=self._by_folds)
        choose = rule.chooser(at_fit=False)
        if isinstance(models, ChosenByFolds):
            rest = split.without(gone)
            require_training(rest, CannotRemove)
            return tune_folds(rule, rest, choose=choose)
        if isinstance(models, LooTuning):
            return loo_retune(models, split, gone=gone, choose=choose)
        return retune(models, split, gone=gone, choose=choose)


def make_tuned(
    model: PrivateModel, rule: Rule, *, bounds: Index, models: Models, chosen: int
) -> TunedModel:
    """Return the fit of the chosen candidate with the models behind the choice."""
    account = rule.account(model.accountant, models.choice)
    plain = {one.name: getattr(model, one.name) for one in fields(PrivateModel)}
    return TunedModel(
        **plain | {"accountant": account},
        rule=rule,
        bounds=bounds,
        models=models,
        chosen=chosen,
    )


def fit_models(
    rule: Rule,
    split: Split,
    *,
    by_folds: bool,
    crew: Crew = ALONE,
) -> Models:
    """Return every candidate's models, solved from the start, and the choice.

    ``by_folds`` keeps no matrices: see ``needs_folds``, which decides at the first fit.
    """
    choose = rule.chooser(at_fit=True)
    if by_folds:
        return tune_folds(rule, split, choose=choose, crew=crew)
    how: Any = {"choose": choose, "on_solved": crew.tick, "engine": crew.engine}
    find = loo_tune if rule.n_folds is None else tune
    return find(rule.objectives, split, **how)


def needs_folds(rule: Rule, rows: Rows) -> bool:
    """Return whether models of these rows are too wide for a matrix a candidate."""
    return is_matrix_free(choose_mechanism(rule.objectives[0], rows))


def choose_for_release(choice: Choice, model: Any, *, rule: Rule) -> int:
    """Return what the next release chooses, by noised scores if the rule says so."""
    number = model.accountant.n_releases + 1
    return choose_with_noise(choice, noise_for(model.choice_noise, number), rule=rule)


def choose_with_noise(choice: Choice, noise: Noise | None, *, rule: Rule) -> int:
    """Return the candidate with the smallest score, after noise if there is any."""
    if noise is None:
        return choice.chosen
    assert rule.budget is not None
    scores = np.array([interval.value for interval in choice.intervals])
    grid = rule.budget.for_choice().grid
    return int(np.argmin(round_to_grid(scores, grid) + noise.draw(scores.size)))


def make_choice_noise(budget: Budget, seed: int | None) -> Noise:
    """Return the noise of choices: never the sequence that releases get."""
    return make_noise(budget.for_choice(), None if seed is None else seed + 1)


def bounds_among(alive: NDArray[np.bool], bounds: Index) -> Index:
    """Return where each fold begins once only these rows are left."""
    counts: Index = np.concatenate([[0], np.cumsum(alive)]).astype(np.intp)
    return counts[bounds]


def sort_by_fold(
    rule: Rule, rows: Rows, *, owners: Sequence[str]
) -> tuple[TrainingRows, Index]:
    """Return the rows with their owners, fold after fold, and where each begins."""
    n_folds = rule.n_folds or 1
    folds = folds_of(owners, rule.key, n_folds=n_folds)
    order = np.argsort(folds, kind="stable")
    kept = TrainingRows(rows.take(order), [owners[place] for place in order])
    return kept, Split.of(kept.rows, folds[order], n_folds=n_folds).bounds
