# SPDX-License-Identifier: Apache-2.0
r"""Look: what trials learn from the rows, all of them in one pass.

Survey: one pass over the rows for the models of all folds and candidates.

A fold's rows train the models of all other folds and judge their own. Block by block,
one product with the rows gives the predictors of every model, and another one their
gradients: what a model trains on is the sum over all blocks but one, and what judges it
is that one.

Scores: a fold's validation error, and how far the true one may be from it.

With theta* within rho of theta, V the weighted sum of losses over the validation rows
and g its gradient in theta, convexity gives

    -|g| rho  <=  V(theta*) - V(theta)  <=  |g| rho + (k2/2) rho^2 sum w |x|^2,

and a bounded slope |V(theta*) - V(theta)| <= k1 rho sum w |x|. The gradient of the
sum is much shorter than the sum of the gradients: where a model fits, they cancel.
The same holds in the norm of the Hessian, with |g| and |x| in that of its inverse.

Sharpen: bring trials nearer to their minimisers, by the cheapest step that helps.

A chord step with the Hessian at hand; where the gradient does not shrink, Hessians
taken anew, for all folds together first and then for one trial alone; and where that
does not help either, the solver, which searches along its steps. A trial that was
solved is left alone, so that sharpening ends.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from math import inf, isfinite, sqrt
from typing import TypeAlias, TypeVar

import numpy as np

from ..core.arrays import UNDERFLOW, UNIT_ROUNDOFF, Matrix, Private, Vector, norm
from ..core.losses import Loss
from ..core.rows import Rows
from ..core.sums import largest_moves, slopes_at_each
from ..private_model.unlearn import REFUSALS
from ..promise.radius import inverse_norm, prediction_error, strong_convexity
from ..removal import Draft, State
from .choice import Interval, Split
from .fold_models import (
    FAR,
    Renewal,
    Trial,
    chord,
    renewed,
    renewed_alone,
    solved_again,
)
from .hessian_norm import (
    Reach,
    Sight,
    Yardstick,
    laid,
    largest_step,
    reach_of,
    shrinkage,
)

Place: TypeAlias = tuple[int, int]
"""A fold, and the position of a candidate."""

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Sighting(Private):
    """What the rows say of one model.

    Attributes
    ----------
    slopes
        Gradient of sum w loss over what it trains on.
    judged, judged_slopes
        Sum w loss over its fold's own rows, and the gradient.
    """

    slopes: Vector
    judged: float
    judged_slopes: Vector


def surveyed(
    loss: Loss, split: Split, places: Sequence[Place], thetas: Matrix
) -> list[Sighting]:
    """Return what the rows say of models at these places with these parameters."""
    folds = np.array([fold for fold, _ in places])

    def of_block(block: int) -> tuple[Matrix, Vector]:
        own = np.flatnonzero(folds == block)
        return slopes_at_each(loss, split.validation(block), thetas, valued=own)

    found = side_by_side(of_block, range(split.n_folds))
    slopes = np.array([gradients for gradients, _ in found])
    values = np.sum([value for _, value in found], axis=0)
    own = slopes[folds, np.arange(len(places))]
    # Summed over the other blocks, never by subtraction: nothing may cancel.
    slopes[folds, np.arange(len(places))] = 0.0
    rest = slopes.sum(axis=0)
    return [
        Sighting(slope, float(value), judged)
        for slope, value, judged in zip(rest, values, own, strict=True)
    ]


def moves(loss: Loss, split: Split, steps: Matrix) -> Vector:
    """Return how far each step moves any row's predictors."""
    found = side_by_side(
        lambda block: largest_moves(loss, split.validation(block), steps),
        range(split.n_folds),
    )
    largest: Vector = np.max(found, axis=0)
    return largest


def side_by_side(work: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
    """Return what each task gives, in order, worked on in threads."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(work, tasks))


# What rounding adds to a sum over folds.
SLACK = 1e-14


@dataclass(frozen=True, slots=True, repr=False)
class Judges(Private):
    """Sizes of the rows that judge a model: number, sums of w, w |x| and w |x|^2."""

    n_rows: int
    weight: float
    norm: float
    square: float


def judges_of(rows: Rows) -> Judges:
    """Return the sizes of a fold's own rows."""
    norms, weight = rows.norms(), rows.weight
    sizes = (float(weight @ norms), float(weight @ norms**2))
    return Judges(len(rows), rows.total_weight, *sizes)


def pooled(intervals: Sequence[Interval], weight: float) -> Interval:
    """Return where the mean over the rows of several folds must lie."""
    return Interval(
        low=max(
            sum(p.low for p in intervals) / weight * (1.0 - SLACK) - UNDERFLOW, 0.0
        ),
        value=sum(part.value for part in intervals) / weight,
        high=sum(part.high for part in intervals) / weight * (1.0 + SLACK) + UNDERFLOW,
    )


def scored(
    state: State, theta: Vector, reach: Reach, seen: Sighting, judges: Judges
) -> Interval:
    """Return where the sum over a model's judges must lie, rounding included.

    Parameters
    ----------
    state, theta
        The model: its state and its answer.
    reach
        How far the exact minimiser may be.
    seen
        What the judges say at the answer.
    judges
        Their sizes.
    """
    if judges.weight == 0.0:  # nobody is left in this fold
        return Interval(0.0, 0.0, 0.0)
    loss, value = state.objective.loss, seen.judged
    if not isfinite(reach.radius):
        return Interval(0.0, value, inf)
    ulps = 2.0 * UNIT_ROUNDOFF * (judges.n_rows + theta.size + 16)
    # Predictors are off by |x| times this, each in its own direction: nothing cancels.
    off, k2 = prediction_error(state, theta), loss.curvature_bound
    # A loss of curvature k2 that is never negative has slopes below sqrt(2 k2 loss),
    # so this is at least sum w |slope| |x|.
    hidden = UNDERFLOW * (judges.n_rows + judges.weight)
    steep = sqrt(2.0 * k2 * (value + hidden) * judges.square)
    steep += k2 * judges.square * off
    error = ulps * steep + k2 * judges.square * off
    gradient = norm(seen.judged_slopes) + error
    rounding = ulps * value + steep * off + hidden
    first = gradient * reach.radius
    second = judges.square * reach.radius * reach.radius
    if isfinite(reach.energy):
        z = reach.factor.solve(seen.judged_slopes)
        length = inverse_norm(state, seen.judged_slopes, floor=reach.floor, z=z)
        length += error / sqrt(reach.floor)
        first = min(first, reach.stretch * length * reach.energy)
        moved = reach.energy * reach.stretch
        second = min(second, moved * reach.leverage * moved)
    second *= 0.5 * k2
    bound = loss.slope_bound * judges.norm * reach.radius
    low = value - min(first, bound) - rounding
    return Interval(max(low, 0.0), value, value + min(first + second, bound) + rounding)


Trials: TypeAlias = Mapping[Place, Trial]

# Below this a bound on the largest move of a predictor is as good as a look at it.
SMALL_MOVE = 0.5


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Ground(Private):
    """Where trials are looked at.

    Attributes
    ----------
    split
        The rows that remain, by fold.
    judges
        Sizes of each fold's own rows.
    yardsticks
        For each candidate, what distances are measured by.
    """

    split: Split
    judges: tuple[Judges, ...]
    yardsticks: tuple[Yardstick, ...]

    @classmethod
    def of(cls, split: Split, yardsticks: Sequence[Yardstick]) -> "Ground":
        """Return the ground of these rows."""
        folds = map(split.validation, range(split.n_folds))
        return cls(split, tuple(map(judges_of, folds)), tuple(yardsticks))


def looked(
    trials: Trials, places: Collection[Place], ground: Ground
) -> dict[Place, Trial]:
    """Return the trials, those at these places with gradient, reach and score."""
    seen, order = dict(trials), sorted(places)
    if not order:
        return seen
    chosen = [trials[place] for place in order]
    loss = chosen[0].state.objective.loss
    thetas = np.array([trial.draft.theta for trial in chosen])
    sightings = surveyed(loss, ground.split, order, thetas)
    largest = _moves(chosen, order, ground)
    for place, trial, sighting, move in zip(
        order, chosen, sightings, largest, strict=True
    ):
        measured = replace(trial, draft=_measured(trial, sighting))
        seen[place] = _judged(measured, place, (sighting, float(move)), ground)
    return seen


def _measured(trial: Trial, seen: Sighting) -> Draft:
    """Return the draft with the gradient of G_U there."""
    state, draft = trial.state, trial.draft
    quadratic = state.scale * state.objective.quadratic_gradient(draft.theta)
    gradient = seen.slopes / state.anchor_weight + quadratic
    return replace(draft, measured=gradient + draft.subgradient)


def _judged(
    trial: Trial, place: Place, found: tuple[Sighting, float], ground: Ground
) -> Trial:
    """Return a trial that has looked at the rows with its reach and its score."""
    (fold, candidate), (seen, move) = place, found
    state, kappa = trial.state, trial.kappa
    yardstick, judges = ground.yardsticks[candidate], ground.judges[fold]
    if kappa is None:
        kappa = shrinkage(yardstick, state)
    sight = Sight(
        factor=trial.factor,
        move=move,
        floor=max(strong_convexity(state), kappa * yardstick.floor),
        spread=yardstick.spread / sqrt(kappa) if kappa else inf,
        leverage=yardstick.leverages[fold] / kappa if kappa else inf,
    )
    reach = reach_of(state, trial.draft, sight)
    score = scored(state, trial.draft.theta, reach, seen, judges)
    return replace(trial, kappa=kappa, reach=reach, score=score)


def _moves(trials: Sequence[Trial], places: Sequence[Place], ground: Ground) -> Vector:
    """Return how far each trial's step from its anchor moves a predictor."""
    steps = np.array([trial.draft.theta - trial.state.anchor for trial in trials])
    yardsticks = [ground.yardsticks[candidate] for _, candidate in places]
    found = np.array(list(map(largest_step, yardsticks, steps)))
    large = np.flatnonzero(found > SMALL_MOVE)
    if large.size:
        loss = trials[0].state.objective.loss
        found[large] = moves(loss, ground.split, steps[large])
    return found


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
