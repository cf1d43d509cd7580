# SPDX-License-Identifier: Apache-2.0
r"""Tune: choose among candidates by cross-validation, and forget the choice too.

    tune     solve every candidate on every fold and on all rows, and choose
    retune   remove people from all of these models and from the validation rows;
             look; sharpen the contenders until the choice is certified

A choice is certified when it is the one that exact minimisers on the remaining rows
would lead to: the answer to the paper's Proposition 1, by which a removal at a fixed
alpha leaves the choice of alpha behind.

Tuning by leave-one-out: one model for each candidate, and no fold.

What leaving out a row does to a model is one more removal, so that the state of all
rows gives every leave-one-out error in closed form, with a bar. The bar grows with the
distance from the anchor: contenders are anchored anew, at their minimisers, until the
bars tell them apart.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from math import isinf

from ..core.arrays import Index, Private, Vector
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.solver import minimise, require_converged
from ..exceptions import CannotRemove, ExpungeError, InvalidInput, NotConverged
from ..private_model.unlearn import REFUSALS
from ..removal import State
from ..removal.state import initial_state, keep_sums
from ..removal.summary import summarise
from .choice import Choice, Decide, Interval, Split
from .evaluate import (
    Attempt,
    Ground,
    Place,
    Trials,
    looked,
    pooled,
    sharpened,
    side_by_side,
)
from .fold_models import Cell, Trial, dropped, solved, stepped, vanishes
from .hessian_norm import Yardstick, laid
from .loo import leave_one_out

# Two rounds or three are the rule, ten were seen when the worst fifth is removed. What
# takes longer is sooner tuned anew.
ROUNDS = 15


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Tuning(Private):
    """The models behind a choice.

    Attributes
    ----------
    folds
        For each fold, a cell for each candidate: trained on all other folds.
    deputies
        For each candidate, the state of its model of all rows, which waits for the
        choice to fall on it.
    yardsticks
        For each candidate, what distances are measured by.
    choice
        Which candidate, and why.
    """

    folds: tuple[tuple[Cell, ...], ...]
    deputies: tuple[State, ...]
    yardsticks: tuple[Yardstick, ...]
    choice: Choice


def tune(
    objectives: Sequence[Objective],
    split: Split,
    decide: Decide,
    tick: Callable[[], None],
) -> Tuning:
    """Return every candidate solved on every fold, and the choice.

    Parameters
    ----------
    objectives
        The candidates, in order of preference.
    split
        Rows by fold.
    decide
        How the choice is made from intervals.
    tick
        Called whenever a candidate is solved on a set of rows, from any thread.
    """
    require_training(split, InvalidInput)
    everyone, blocks = split.gathered(None), split.blocks()
    deputies: list[Trial] = []
    for objective in objectives:
        start = deputies[-1].draft.theta if deputies else None
        deputies.append(solved(objective, everyone, start))
        tick()
    yardsticks = side_by_side(lambda deputy: laid(deputy.state, blocks), deputies)

    def solve(fold: int) -> list[Trial]:
        rows, trials = split.gathered(fold), []
        for objective, deputy in zip(objectives, deputies, strict=True):
            try:
                trials.append(solved(objective, rows, deputy.draft.theta))
            except NotConverged as error:
                raise NotConverged(
                    f"without fold {fold + 1} of {split.n_folds}, at alpha="
                    f"{objective.alpha:g}: {error}; fewer folds leave more to train on"
                ) from error
            tick()
        return trials

    found = side_by_side(solve, range(split.n_folds))
    trials = _by_place(found)
    states = tuple(deputy.state for deputy in deputies)
    return _chosen(Attempt(trials, Ground.of(split, yardsticks), states), decide)


def retune(tuning: Tuning, split: Split, gone: Index, decide: Decide) -> Tuning:
    """Return the tuning without the rows at these places; the old one stands.

    ``split`` still holds them. Where intervals stay too wide, or a model cannot be
    updated, the remaining rows are tuned anew: what tuning again certifies or answers
    is certified and answered here too.
    """
    gone = gone[split.rows.weight[gone] > 0.0]  # others never counted
    if not len(gone):
        return tuning
    after = split.without(gone)
    require_training(after, CannotRemove)
    with suppress(*REFUSALS):
        updated = _chosen(_without(tuning, split, gone), decide)
        if updated.choice.certified:
            return updated
    objectives = [state.objective for state in tuning.deputies]
    return tune(objectives, after, decide, lambda: None)


def _without(tuning: Tuning, split: Split, gone: Index) -> Attempt:
    """Return every model without these rows, by one step each."""
    after = split.without(gone)
    removed, of_fold = split.rows.take(gone), split.of_rows(gone)

    def drop(fold: int) -> list[Trial]:
        leaving = removed.take(of_fold != fold)
        cells = tuning.folds[fold]
        return [stepped(dropped(cell.state, leaving), "before") for cell in cells]

    trials = _by_place(side_by_side(drop, range(split.n_folds)))
    deputies = tuple(dropped(state, removed) for state in tuning.deputies)
    return Attempt(trials, Ground.of(after, tuning.yardsticks), deputies)


def _by_place(found: Sequence[Sequence[Trial]]) -> dict[Place, Trial]:
    """Return the trials of each fold by fold and candidate."""
    return {
        (fold, candidate): trial
        for fold, trials in enumerate(found)
        for candidate, trial in enumerate(trials)
    }


def _chosen(attempt: Attempt, decide: Decide) -> Tuning:
    """Return the tuning with its choice made, contenders sharpened until it stands."""
    trials = looked(attempt.trials, attempt.trials.keys(), attempt.ground)
    attempt = Attempt(trials, attempt.ground, attempt.deputies)
    for _ in range(ROUNDS):
        choice = decide(_errors(attempt), _twins(attempt))
        if choice.certified or _hopeless(attempt.trials, choice):
            break
        attempt = sharpened(attempt, choice.contenders)
    return Tuning(
        folds=tuple(
            tuple(attempt.trials[place].at_rest() for place in places)
            for places in _places(attempt)
        ),
        deputies=attempt.deputies,
        yardsticks=attempt.ground.yardsticks,
        choice=choice,
    )


def _hopeless(trials: Trials, choice: Choice) -> bool:
    """Whether all contenders are as good as they get, or one is and not good enough."""
    ours = [trials[place] for place in trials if place[1] in choice.contenders]
    done = [trial for trial in ours if trial.solved]
    return len(done) == len(ours) or any(isinf(trial.bar) for trial in done)


def _places(attempt: Attempt) -> list[list[Place]]:
    """Return the places of each fold, in order of the candidates."""
    candidates = range(len(attempt.deputies))
    folds = range(attempt.ground.split.n_folds)
    return [[(fold, candidate) for candidate in candidates] for fold in folds]


def _errors(attempt: Attempt) -> list[Interval]:
    """Return each candidate's mean loss over the validation rows of all folds."""
    total = attempt.ground.split.rows.total_weight
    errors = []
    for places in zip(*_places(attempt), strict=True):
        scores = (attempt.trials[place].score for place in places)
        errors.append(pooled([score for score in scores if score is not None], total))
    return errors


def _twins(attempt: Attempt) -> list[bool]:
    """Return which candidates are certified to be all zeros in every fold."""
    judged = [judges.weight > 0.0 for judges in attempt.ground.judges]
    return [
        all(vanishes(attempt.trials[place]) for place in places if judged[place[0]])
        for places in zip(*_places(attempt), strict=True)
    ]


def require_training(split: Split, error: type[ExpungeError]) -> None:
    """Refuse folds that leave nobody to train on."""
    total = split.rows.total_weight
    for fold in range(split.n_folds):
        if not total - split.validation(fold).total_weight > 1e-12 * total:
            raise error(
                "everyone is in one fold (as one sample or one person always is), so "
                "that nobody is left to train on; tune on more people, or with another "
                "fold_key"
            )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LooTuning(Private):
    """The models behind a choice by leave-one-out.

    Attributes
    ----------
    deputies
        For each candidate, the state of its model of all rows, moment included.
    choice
        Which candidate, and why.
    """

    deputies: tuple[State, ...]
    choice: Choice


def loo_tune(
    objectives: Sequence[Objective],
    split: Split,
    decide: Decide,
    tick: Callable[[], None],
) -> LooTuning:
    """Return every candidate solved on all rows, and the choice; see ``tune``."""
    rows = split.gathered(None)
    if len(rows) < 2:
        raise InvalidInput(
            f"n_samples={len(rows)}: to leave one out takes at least two rows with "
            "weight; tune on more"
        )
    states: list[State] = []
    for objective in objectives:
        states.append(_anchored(objective, rows, states[-1].anchor if states else None))
        tick()
    return _chosen_left_out(states, [True] * len(states), rows, decide)


def loo_retune(
    tuning: LooTuning, split: Split, gone: Index, decide: Decide
) -> LooTuning:
    """Return the tuning without the rows at these places; the old one stands."""
    gone = gone[split.rows.weight[gone] > 0.0]  # others never counted
    if not len(gone):
        return tuning
    removed, rows = split.rows.take(gone), split.without(gone).gathered(None)
    if len(rows) < 2:
        raise CannotRemove(
            "one row with weight would be left, and to leave one out takes two; delete "
            "the model instead"
        )
    with ThreadPoolExecutor() as pool:
        states = list(pool.map(lambda state: dropped(state, removed), tuning.deputies))
    return _chosen_left_out(states, [False] * len(states), rows, decide)


def _chosen_left_out(
    states: list[State], solved: list[bool], rows: Rows, decide: Decide
) -> LooTuning:
    """Return the choice, contenders anchored anew until it stands or all are."""
    with ThreadPoolExecutor() as pool:
        errors = list(pool.map(lambda state: _error(state, rows), states))
        while True:
            choice = decide(errors, [False] * len(states))
            still = [place for place in choice.contenders if not solved[place]]
            if choice.certified or not still:
                return LooTuning(tuple(states), choice)

            def settle(place: int) -> State:
                state = states[place]
                return _anchored(state.objective, rows, state.anchor)

            for place, state in zip(still, pool.map(settle, still), strict=True):
                states[place], solved[place] = state, True
                errors[place] = _error(state, rows)


def _anchored(objective: Objective, rows: Rows, start: Vector | None) -> State:
    """Return the state at the minimiser on these rows, with its moment."""
    solution = minimise(objective, rows, start=start)
    require_converged(objective, rows, solution)
    summary = summarise(
        objective, rows, solution.theta, subgradient=solution.subgradient
    )
    return keep_sums(initial_state(summary), summary, moment=True)


def _error(state: State, rows: Rows) -> Interval:
    """Return where the leave-one-out error must lie."""
    left = leave_one_out(state, rows)
    return Interval(max(0.0, left.value - left.bar), left.value, left.value + left.bar)
