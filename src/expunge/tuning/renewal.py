# SPDX-License-Identifier: Apache-2.0
r"""Renewal: the Hessians of all folds anew, for little more than the price of one.

The models of one candidate on different folds share most of their rows and lie close
together. At a point between them the sums over each fold's own rows are taken once:
those of what a fold trains on are the sums over all folds but its own. Five folds cost
one pass over the rows instead of four. Each goes on from its own answer, by chord
steps with a Hessian that is somewhat off its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..mechanisms import State
from ..private import Private
from ..rows import Rows
from ..summary import merged, summarise
from ..unlearn import REFUSALS
from .cells import Trial, anchored, moved, stepped

# Beyond this change of the Hessian on the way to an answer, a step from the new anchor
# is better than one from the answer.
FAR = 4.0


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Renewal(Private):
    """One candidate's models, anchored at one point.

    Attributes
    ----------
    trials
        One for each fold, not yet looked at; None where the Hessian of what it trains
        on has no inverse there.
    deputy
        The state of all rows.
    """

    trials: tuple[Trial | None, ...]
    deputy: State


def renewed(trials: Sequence[Trial], blocks: Sequence[Rows]) -> Renewal:
    """Return one candidate's trials anchored anew, at the mean of their answers.

    ``blocks`` are the rows that are left in each fold.
    """
    state = trials[0].state
    objective = state.objective.after(state.kept)
    point = np.mean([trial.draft.theta for trial in trials], axis=0)
    summaries = {
        fold: summarise(objective, rows, point, moment=False)
        for fold, rows in enumerate(blocks)
        if len(rows)
    }

    def of_fold(fold: int) -> Trial | None:
        others = [part for other, part in summaries.items() if other != fold]
        state, trial = anchored(merged(others)), trials[fold]
        try:
            if trial.stretch > FAR:
                return stepped(state, "shared")
            return moved(trial, state, "shared")
        except REFUSALS:
            return None

    fresh = tuple(map(of_fold, range(len(trials))))
    return Renewal(fresh, anchored(merged(list(summaries.values()))))
