# SPDX-License-Identifier: Apache-2.0
"""Holdings of a tuned model: what every estimator keeps, and the models behind it.

A request goes to the fold models first. If the choice stays, the model that is released
is updated as any other; if it moves, the custody passes to the candidate that tuning
again would have chosen, solved on the rows that remain.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index
from ..core.rows import Rows
from ..private_model.holdings import Holdings
from ..private_model.labels import fewer
from ..private_model.unlearn import Custody, Scored, forget, refit
from ..promise.noise import Noise, noise_for, round_to_grid
from .choice import Choice, Rule, Split
from .tune import LooTuning, Tuning, loo_retune, loo_tune, retune, tune

Models = Tuning | LooTuning


@dataclass(frozen=True, slots=True, repr=False, eq=False, kw_only=True)
class TunedHoldings(Holdings):
    """What stays with the operator of a tuned model.

    Attributes
    ----------
    rule
        How the choice is made.
    bounds
        Where each fold begins among the rows kept, and where the last one ends.
    models
        The candidates' models and the choice among them.
    choice_noise
        What scores get before they are compared; None if they get none.
    chosen
        Position of the candidate in custody.
    """

    rule: Rule
    bounds: Index
    models: Models
    choice_noise: Noise | None
    chosen: int

    def answered(
        self,
        removed: Rows,
        gone: Index | None,
        n_subjects: int,
        *,
        spend: bool = False,
    ) -> Self:
        """Return the holdings without these rows, the choice made again."""
        if not len(removed):
            return self
        assert self.kept is not None and gone is not None
        labels = self.labels_after(removed, gone)
        if fewer(labels, self.labels):
            return replace(self, labels=labels)._tuned_again(gone, n_subjects)
        split = Split(self.in_classes(self.kept.rows), self.bounds)
        models = self._remodelled(split, gone)
        chosen = noised(models.choice, self.choice_noise, self.rule, self._next)
        if chosen == self.chosen:
            custody = forget(
                self.custody,
                self.in_classes(removed),
                partial(self.remaining, gone),
                n_subjects=n_subjects,
                spend=spend,
            )
        else:
            custody = refit(
                self.custody,
                self.rule.objectives[chosen],
                self.remaining(gone),
                n_subjects=n_subjects,
                start=models.deputies[chosen].anchor,
            )
        return replace(self, labels=labels)._with_choice(custody, models, chosen)

    @property
    def _next(self) -> int:
        """The number of the next release."""
        return self.custody.accountant.n_releases + 1

    def _tuned_again(self, gone: Index, n_subjects: int) -> Self:
        """Return the holdings tuned from nothing, since there are fewer classes."""
        assert self.kept is not None and self.labels is not None
        loss = self.labels.loss_like(self.custody.objective.loss)
        objectives = tuple(replace(one, loss=loss) for one in self.rule.objectives)
        rule = replace(self.rule, objectives=objectives)
        custody = replace(self.custody, objective=objectives[0])
        new = replace(self, rule=rule, custody=custody)
        split = Split(new.in_classes(self.kept.rows), self.bounds).without(gone)
        models = modelled(rule, split, lambda: None)
        chosen = noised(models.choice, self.choice_noise, rule, self._next)
        custody = refit(
            self.custody,
            objectives[chosen],
            new.remaining(gone),
            n_subjects=n_subjects,
            start=models.deputies[chosen].anchor,
        )
        return new._with_choice(custody, models, chosen)

    def _with_choice(self, custody: Custody, models: Models, chosen: int) -> Self:
        """Return the holdings with a custody, its account told of the choice."""
        custody = replace(
            custody,
            accountant=self.rule.account(custody.accountant, models.choice),
            choice=proof(models, self.rule, chosen),
        )
        return replace(self, custody=custody, models=models, chosen=chosen)

    def interchangeable(self, places: Sequence[int]) -> bool:
        """Whether it does not matter which of these equal rows goes: in one fold."""
        split = Split(self.kept.rows, self.bounds) if self.kept is not None else None
        return split is None or len(set(split.of_rows(np.array(places)))) == 1

    def _remodelled(self, split: Split, gone: Index) -> Models:
        """Return the candidates' models without these rows."""
        rule, models = self.rule, self.models
        if rule.method == "recomputed":
            alive = split.without(gone).rows.weight > 0.0
            # In their order, so that tuning again gives the same to the last bit.
            rest = Split(split.rows.take(alive), bounds_among(alive, self.bounds))
            return modelled(rule, rest, lambda: None)
        decide = rule.decide(at_fit=False)
        if isinstance(models, LooTuning):
            return loo_retune(models, split, gone, decide)
        return retune(models, split, gone, decide)


def modelled(rule: Rule, split: Split, tick: Callable[[], None]) -> Models:
    """Return every candidate's models, solved from nothing, and the choice."""
    decide = rule.decide(at_fit=True)
    if rule.n_folds is None:
        return loo_tune(rule.objectives, split, decide, tick)
    return tune(rule.objectives, split, decide, tick)


def proof(models: Models, rule: Rule, chosen: int) -> tuple[Scored, ...]:
    """Return each candidate's alpha with the ends of its interval, the chosen first."""
    choice = models.choice
    return tuple(
        (rule.objectives[p].alpha, choice.intervals[p].low, choice.intervals[p].high)
        for p in choice.distinct(chosen)
    )


def noised(choice: Choice, noise: Noise | None, rule: Rule, number: int) -> int:
    """Return what is chosen for a release, by scores with noise if the rule says so."""
    noise = noise_for(noise, number)
    if noise is None:
        return choice.chosen
    assert rule.budget is not None
    scores = np.array([interval.value for interval in choice.intervals])
    grid = rule.budget.for_choice().grid
    return int(np.argmin(round_to_grid(scores, grid) + noise.draw(scores.size)))


def bounds_among(alive: NDArray[np.bool], bounds: Index) -> Index:
    """Return where each fold begins once only these rows are left."""
    counts: Index = np.concatenate([[0], np.cumsum(alive)]).astype(np.intp)
    return counts[bounds]
