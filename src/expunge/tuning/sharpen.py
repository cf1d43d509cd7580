# SPDX-License-Identifier: Apache-2.0
"""Sharpen: bring trials nearer to their minimisers, by the cheapest step that helps.

A chord step with the Hessian at hand; where the gradient does not shrink, Hessians
taken anew, for all folds together first and then for one trial alone; and where that
does not help either, the solver, which searches along its steps. A trial that was
solved is left alone, so that sharpening ends.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from ..mechanisms import State
from ..private import Private
from ..unlearn import REFUSALS
from .cells import Trial, chord, renewed_alone, solved_again
from .look import Ground, Trials, looked
from .renewal import FAR, Renewal, renewed
from .survey import Place, side_by_side
from .yardstick import Yardstick, laid

# A step that leaves more than this of the gradient calls for a dearer one.
CONTRACTION = 0.5
# Of the widest bar, where it is worth while to narrow another one too.
WIDE = 0.1
# Of the yardstick's Hessian so little may be left before it is laid anew.
WORN = 0.02


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Attempt(Private):
    """All trials of a request, where they are looked at, and models of all rows."""

    trials: Trials
    ground: Ground
    deputies: tuple[State, ...]


def sharpened(attempt: Attempt, candidates: Collection[int]) -> Attempt:
    """Return the attempt with the trials of these candidates nearer to the truth.

    Those that are known worst, that is: where one trial's bar is infinite, others can
    wait.
    """
    trials, ground = attempt.trials, attempt.ground
    still = [p for p in trials if p[1] in candidates and not trials[p].solved]
    widest = max((trials[place].bar for place in still), default=0.0)
    still = [place for place in still if trials[place].bar >= WIDE * widest]
    far = [place for place in still if _far(trials[place])]
    attempt = _shared(attempt, sorted({candidate for _, candidate in far}))
    near = [place for place in still if place[1] not in {c for _, c in far}]
    trials, ground = attempt.trials, attempt.ground
    after = _kept_if_shrunk(trials, near, ground, lambda place: chord(trials[place]))
    stuck = [place for place in near if after[place] is trials[place]]
    attempt = replace(attempt, trials=after)
    return replace(attempt, trials=_alone(attempt, stuck))


def _worn(trial: Trial) -> bool:
    """Whether the yardstick's Hessian has too little to do with the trial's."""
    return (trial.kappa or 0.0) < WORN


def _far(trial: Trial) -> bool:
    """Whether the Hessian may have changed too much since the anchor for a chord."""
    return trial.anchorage == "before" and trial.stretch > FAR


def _shared(attempt: Attempt, which: Sequence[int]) -> Attempt:
    """Return the attempt with Hessians anew for these candidates, shared by the folds.

    Once in a request: the folds' answers do not come closer to each other.
    """
    trials, ground = attempt.trials, attempt.ground
    if not which:
        return attempt
    folds, blocks = range(ground.split.n_folds), ground.split.blocks()

    def renew(candidate: int) -> tuple[Renewal, Yardstick]:
        ours = [trials[fold, candidate] for fold in folds]
        renewal, yardstick = renewed(ours, blocks), ground.yardsticks[candidate]
        if any(map(_worn, ours)):
            yardstick = laid(renewal.deputy, blocks)
        return renewal, yardstick

    fresh = dict(zip(which, side_by_side(renew, which), strict=True))
    deputies, yardsticks = list(attempt.deputies), list(ground.yardsticks)
    after, gathered = dict(trials), cache(ground.split.gathered)
    for candidate, (renewal, yardstick) in fresh.items():
        deputies[candidate], yardsticks[candidate] = renewal.deputy, yardstick
        for fold in folds:
            trial, new = trials[fold, candidate], renewal.trials[fold]
            if trial.solved:
                after[fold, candidate] = replace(trial, kappa=None)
            else:
                new = new or solved_again(trial, gathered(fold))
                after[fold, candidate] = new
    ground = replace(ground, yardsticks=tuple(yardsticks))
    places = [(fold, candidate) for fold in folds for candidate in which]
    return Attempt(looked(after, places, ground), ground, tuple(deputies))


def _alone(attempt: Attempt, stuck: Sequence[Place]) -> Trials:
    """Return the trials, the stuck ones anchored anew each for itself, or solved."""
    trials, ground = attempt.trials, attempt.ground
    split = ground.split

    def renew(place: Place) -> Trial:
        return renewed_alone(trials[place], split.training(place[0]))

    def solve(place: Place) -> Trial:
        return solved_again(trials[place], split.gathered(place[0]))

    after = _kept_if_shrunk(trials, stuck, ground, renew)
    left = [place for place in stuck if after[place] is trials[place]]
    after |= zip(left, side_by_side(solve, left), strict=True)
    return looked(after, left, ground)


def _kept_if_shrunk(
    trials: Trials,
    places: Sequence[Place],
    ground: Ground,
    step: Callable[[Place], Trial],
) -> dict[Place, Trial]:
    """Return the trials, those at these places stepped on where it helps enough."""

    def attempt(place: Place) -> Trial:
        with suppress(*REFUSALS):
            return step(place)
        return trials[place]

    tried = dict(trials)
    tried |= zip(places, side_by_side(attempt, places), strict=True)
    gone_on = [place for place in places if tried[place] is not trials[place]]
    tried = looked(tried, gone_on, ground)
    for place in gone_on:
        # Strictly less, so that a gradient of zero counts as stuck.
        if not tried[place].steepness < CONTRACTION * trials[place].steepness:
            tried[place] = trials[place]
    return tried
