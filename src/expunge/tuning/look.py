# SPDX-License-Identifier: Apache-2.0
"""Look: what trials learn from the rows, all of them in one pass."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import TypeAlias

import numpy as np

from .._typing import Vector
from ..mechanisms import Draft
from ..private import Private
from ..radius.ingredients import strong_convexity
from .cells import Trial
from .folds import Split
from .scores import Judges, judges_of, scored
from .survey import Place, Sighting, moves, surveyed
from .yardstick import Sight, Yardstick, largest_step, reach_of, shrinkage

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
