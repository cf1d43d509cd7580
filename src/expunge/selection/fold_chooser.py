# SPDX-License-Identifier: Apache-2.0
"""FoldChooser: chooses a model's objective by cross-validation, and forgets with it.

A request goes to the models of the folds first. If the choice stays, the released model
is updated like any other. If it moves, the candidate that tuning again would have
chosen is solved on the rows that remain.

Where the encoding learns from rows, each fold learns its own from the rows that it
trains on, as tuning again would. A removal changes every row of every fold that way, so
that the models of the folds are fitted again at each request; so are models that are
too wide for matrices.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index, Vector
from ..core.losses import Loss
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.values import stored
from ..exceptions import CannotRemove, Unsupported
from ..private_model.composition import Chooser, Encoding
from ..private_model.training_rows import TrainingRows
from ..promise.accountant import Accountant
from ..promise.verification import Scored
from ..removal.matrix_free import choose_mechanism
from .choice import Rule, Split, folds_of
from .fold_fits import THIS_PROCESS, ChosenByFolds, FoldRunner, tune_folds
from .tune import Tuning, require_training, retune, tune


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FoldChooser(Chooser):
    """The choice among candidates, with the models behind it. Private.

    Attributes
    ----------
    rule
        How the choice is made.
    bounds
        Where each fold begins among the training rows, and where the last one ends.
    models
        The candidates' models and the choice among them; the choice alone if models
        are fitted again at each request.
    """

    rule: Rule
    bounds: Index
    models: Tuning | ChosenByFolds

    needs_rows: ClassVar[bool] = True

    @classmethod
    def of(
        cls,
        rule: Rule,
        split: Split,
        *,
        encoding: Encoding,
        runner: FoldRunner = THIS_PROCESS,
    ) -> Self:
        """Return the choice among candidates fitted to these rows from the start."""
        mechanism = choose_mechanism(rule.objectives[0], split.rows)
        by_folds = encoding.changes or not mechanism.keeps_matrices
        return cls(
            rule,
            split.bounds,
            _tune(rule, split, encoding=encoding if by_folds else None, runner=runner),
        )

    def after(
        self,
        rows: Callable[[], Rows],
        gone: Index | None,
        *,
        loss: Loss | None,
        encoding: Encoding,
    ) -> tuple["FoldChooser", Objective | None]:
        """Return the chooser without some rows, and the objective if it moved."""
        assert gone is not None
        rule, before = self.rule, self.models
        by_folds = encoding if isinstance(before, ChosenByFolds) else None
        split = Split(rows(), self.bounds)
        rest = split.without(gone)
        if loss is not None:
            objectives = tuple(replace(one, loss=loss) for one in rule.objectives)
            rule = replace(rule, objectives=objectives)
            models = _tune(rule, rest, encoding=by_folds)
        elif by_folds is not None:
            require_training(rest, CannotRemove)
            models = _tune(rule, rest, encoding=by_folds)
        elif rule.method == "recomputed":
            alive = rest.rows.weight > 0.0
            # In their order, so that tuning again gives the same to the last bit.
            left = Split(split.rows.take(alive), bounds_among(alive, self.bounds))
            models = _tune(rule, left, encoding=None)
        else:
            assert isinstance(before, Tuning)
            models = retune(before, split, gone=gone)
        after = replace(self, rule=rule, models=models)
        moved = loss is not None or models.choice.chosen != before.choice.chosen
        return after, after.objective if moved else None

    @property
    def objective(self) -> Objective:
        """The chosen candidate."""
        return self.rule.objectives[self.models.choice.chosen]

    @property
    def start(self) -> Vector | None:
        """Where the solver may start with the chosen candidate."""
        return self.models.start

    @property
    def scores(self) -> tuple[Scored, ...]:
        """Each candidate's alpha and the ends of its interval, the chosen first."""
        choice, objectives = self.models.choice, self.rule.objectives
        return tuple(
            (objectives[p].alpha, choice.intervals[p].low, choice.intervals[p].high)
            for p in choice.distinct()
        )

    def count_in(self, account: Accountant) -> Accountant:
        """Return the account after the present choice."""
        return self.rule.account(account, self.models.choice)

    def compact(self, alive: NDArray[np.bool]) -> Self:
        """Return the chooser for the rows that are left, without gaps."""
        return replace(self, bounds=bounds_among(alive, self.bounds))

    def interchangeable(self, positions: Sequence[int]) -> bool:
        """Whether these equal rows are in one fold."""
        folds = np.searchsorted(self.bounds, np.array(positions), side="right")
        return len(set(folds.tolist())) == 1

    def require_addable(self) -> None:
        """Raise Unsupported: every fold would have to learn rows that come."""
        raise Unsupported(
            "a tuned model cannot be added to: each fold keeps sums over its own rows, "
            "which can only lose some; nothing was added; fit again with the new rows, "
            "or fit a model with a fixed alpha, which can be added to"
        )

    def require_anchorable(self) -> None:
        """Raise Unsupported: the folds have anchors of their own."""
        raise Unsupported(
            "a tuned model keeps a state for every candidate and fold; fit it again to "
            "get rid of their anchors"
        )


def _tune(
    rule: Rule,
    split: Split,
    *,
    encoding: Encoding | None,
    runner: FoldRunner = THIS_PROCESS,
) -> Tuning | ChosenByFolds:
    """Return every candidate's models, solved from the start, and the choice.

    With an encoding they are fitted fold by fold, and not kept.
    """
    if encoding is not None:
        return tune_folds(rule, split, encoding=encoding, runner=runner)
    return tune(
        rule.objectives, split, on_fitted=runner.on_fitted, engine=runner.engine
    )


def bounds_among(alive: NDArray[np.bool], bounds: Index) -> Index:
    """Return where each fold begins once only these rows are left."""
    counts: Index = np.concatenate([[0], np.cumsum(alive)]).astype(np.intp)
    return counts[bounds]


def sort_by_fold(
    rule: Rule, rows: Rows, *, owners: Sequence[str]
) -> tuple[TrainingRows, Index]:
    """Return the rows with their owners, fold after fold, and where each begins."""
    folds = folds_of(owners, rule.key, n_folds=rule.n_folds)
    order = np.argsort(folds, kind="stable")
    kept = TrainingRows(rows.take(order), [owners[position] for position in order])
    return kept, Split.of(kept.rows, folds[order], n_folds=rule.n_folds).bounds
