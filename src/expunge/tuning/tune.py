# SPDX-License-Identifier: Apache-2.0
r"""Tune: choose among candidates by cross-validation, and forget the choice too.

    tune     solve every candidate on every fold and on all rows, and choose
    retune   remove people from all of these models and from the validation rows;
             look; sharpen the contenders until the choice is certified

A choice is certified when it is the one that exact minimisers on the remaining rows
would lead to: the answer to the paper's Proposition 1, by which a removal at a fixed
alpha leaves the choice of alpha behind.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TypeVar

from .._typing import Index
from ..exceptions import CannotRemove, NotConverged
from ..mechanisms import State
from ..objective import Objective
from ..private import Private
from .cells import (
    Cell,
    Training,
    at_rest,
    dropped,
    looked,
    renewed_alone,
    sharpened,
    solved,
    solved_cell,
    vanishes,
    without,
)
from .choice import Choice, Decide, Interval
from .folds import Split
from .renewal import FAR, Renewal, renewed
from .scores import pooled, scored
from .yardstick import Yardstick, laid

Task = TypeVar("Task")
Result = TypeVar("Result")

# Two rounds or three are the rule, ten were seen when the worst fifth is removed.
ROUNDS = 30
# Of the yardstick's Hessian so little may be left before it is laid anew.
WORN = 0.1


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
    require_training(split)
    everyone, blocks = split.gathered(None), split.blocks()
    deputies: list[Cell] = []
    for objective in objectives:
        start = deputies[-1].draft.theta if deputies else None
        deputies.append(solved_cell(objective, everyone, start))
        tick()
    yardsticks = side_by_side(lambda cell: laid(cell.state, blocks), deputies)

    def solve(fold: int) -> tuple[Cell, ...]:
        rows, cells = _training(split, fold), []
        for objective, deputy in zip(objectives, deputies, strict=True):
            start = deputy.draft.theta
            try:
                cells.append(solved_cell(objective, rows.gathered(), start))
            except NotConverged as error:
                raise NotConverged(
                    f"without fold {fold + 1} of {split.n_folds}, at alpha="
                    f"{objective.alpha:g}: {error}; fewer folds leave more to train on"
                ) from error
            tick()
        return tuple(looked(cells, range(len(cells)), yardsticks, rows))

    folds = side_by_side(solve, range(split.n_folds))
    states = tuple(cell.state for cell in deputies)
    nothing = Choice(0, False, (), ())
    tuning = Tuning(tuple(folds), states, tuple(yardsticks), nothing)
    return _chosen(tuning, split, decide)


def retune(tuning: Tuning, split: Split, gone: Index, decide: Decide) -> Tuning:
    """Return the tuning without the rows at these places; the old one stands.

    ``split`` still holds them.
    """
    after = split.without(gone)
    require_training(after)
    removed, of_fold = split.rows.take(gone), split.of_rows(gone)

    def drop(fold: int) -> tuple[Cell, ...]:
        rows, leaving = _training(after, fold), removed.take(of_fold != fold)
        cells = [without(cell, leaving, rows) for cell in tuning.folds[fold]]
        return tuple(looked(cells, range(len(cells)), tuning.yardsticks, rows))

    def drop_deputies() -> tuple[State, ...]:
        return tuple(dropped(state, removed) for state in tuning.deputies)

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(drop_deputies)
        folds = tuple(pool.map(drop, range(split.n_folds)))
        deputies = waiting.result()
    return _chosen(replace(tuning, folds=folds, deputies=deputies), after, decide)


def _chosen(tuning: Tuning, split: Split, decide: Decide) -> Tuning:
    """Return the tuning with its choice made, contenders sharpened until it stands."""
    for _ in range(ROUNDS):
        choice = decide(_errors(tuning, split), _twins(tuning, split))
        tuning = replace(tuning, choice=choice)
        if choice.certified or _exhausted(tuning):
            break
        tuning = _sharpened(tuning, split)
    folds = tuple(tuple(map(at_rest, cells)) for cells in tuning.folds)
    return replace(tuning, folds=folds)


def _exhausted(tuning: Tuning) -> bool:
    """Whether every contender is as good as it gets."""
    contenders = tuning.choice.contenders
    return all(cells[place].solved for cells in tuning.folds for place in contenders)


def _sharpened(tuning: Tuning, split: Split) -> Tuning:
    """Return the tuning with its contenders nearer to their minimisers.

    By a chord step; where the gradient does not shrink, with Hessians taken anew, for
    all folds together first and then for each cell alone; and where that does not help
    either, to the end by the solver.
    """
    contenders = tuning.choice.contenders

    def chord(fold: int) -> tuple[Cell, ...]:
        cells, rows = tuning.folds[fold], _training(split, fold)
        near = [p for p in contenders if not _far(cells[p]) and not cells[p].solved]
        return tuple(sharpened(cells, near, tuning.yardsticks, rows))

    folds = tuple(side_by_side(chord, range(split.n_folds)))
    stuck = [
        [p for p in contenders if new[p] is old[p] and not new[p].solved]
        for new, old in zip(folds, tuning.folds, strict=True)
    ]
    tuning, stuck = _renewed(replace(tuning, folds=folds), stuck, split)

    def alone(fold: int) -> tuple[Cell, ...]:
        cells, rows = tuning.folds[fold], _training(split, fold)
        return tuple(renewed_alone(cells, stuck[fold], tuning.yardsticks, rows))

    return replace(tuning, folds=tuple(side_by_side(alone, range(split.n_folds))))


def _far(cell: Cell) -> bool:
    """Whether the Hessian may have changed too much since the anchor for a chord."""
    return cell.anchorage == "before" and cell.reach.stretch > FAR


def _renewed(
    tuning: Tuning, stuck: list[list[int]], split: Split
) -> tuple[Tuning, list[list[int]]]:
    """Return the tuning with shared Hessians, and what stays stuck in each fold.

    Candidates that are stuck at an anchor from before the request are anchored anew in
    all folds. Where that was done already, it would not help again.
    """
    old = {
        place
        for cells, places in zip(tuning.folds, stuck, strict=True)
        for place in places
        if cells[place].anchorage == "before"
    }
    which, blocks = sorted(old), split.blocks()
    if not which:
        return tuning, stuck

    def renew(place: int) -> tuple[Renewal, Yardstick]:
        cells = [of_fold[place] for of_fold in tuning.folds]
        renewal, yardstick = renewed(cells, blocks), tuning.yardsticks[place]
        if min(cell.kappa or 0.0 for cell in cells) < WORN:
            yardstick = laid(renewal.deputy, blocks)
        return renewal, yardstick

    fresh = dict(zip(which, side_by_side(renew, which), strict=True))
    deputies, yardsticks = list(tuning.deputies), list(tuning.yardsticks)
    for place, (renewal, yardstick) in fresh.items():
        deputies[place], yardsticks[place] = renewal.deputy, yardstick

    def look(fold: int) -> tuple[Cell, ...]:
        rows, cells = _training(split, fold), list(tuning.folds[fold])
        for place, (renewal, _) in fresh.items():
            if cells[place].solved:
                cells[place] = replace(cells[place], kappa=None)
            else:
                cells[place] = renewal.cells[fold] or solved(cells[place], rows)
        return tuple(looked(cells, which, yardsticks, rows))

    tuning = replace(
        tuning,
        folds=tuple(side_by_side(look, range(split.n_folds))),
        deputies=tuple(deputies),
        yardsticks=tuple(yardsticks),
    )
    return tuning, [[p for p in places if p not in old] for places in stuck]


def _errors(tuning: Tuning, split: Split) -> list[Interval]:
    """Return each candidate's mean loss over the validation rows of all folds."""

    def score(fold: int) -> list[Interval]:
        rows = split.validation(fold)
        return scored(tuning.folds[fold], tuning.yardsticks, rows, fold)

    total = split.rows.total_weight
    scores = side_by_side(score, range(split.n_folds))
    return [pooled(of_folds, total) for of_folds in zip(*scores, strict=True)]


def _twins(tuning: Tuning, split: Split) -> list[bool]:
    """Return which candidates are certified to be all zeros in every fold."""
    counted = [
        cells
        for fold, cells in enumerate(tuning.folds)
        if split.validation(fold).total_weight > 0.0
    ]
    return [all(map(vanishes, of_folds)) for of_folds in zip(*counted, strict=True)]


def _training(split: Split, fold: int) -> Training:
    return Training(split.training(fold), cache(partial(split.gathered, fold)))


def require_training(split: Split) -> None:
    """Refuse folds that leave nobody to train on."""
    total = split.rows.total_weight
    for fold in range(split.n_folds):
        if not total - split.validation(fold).total_weight > 1e-12 * total:
            raise CannotRemove(
                "everyone is in one fold (as one sample or one person always is), so "
                "that nobody is left to train on; tune on more people, or with another "
                "fold_key"
            )


def side_by_side(work: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
    """Return what each task gives, in order, worked on in threads."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(work, tasks))
