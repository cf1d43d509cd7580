# SPDX-License-Identifier: Apache-2.0
r"""Tune: choose among candidates by cross-validation, and forget the choice too.

    tune     solve every candidate on what each fold trains on, and choose
    retune   remove people from all of these models and from the validation rows, and
             refine the models that the choice hangs on until it is certified

A choice is certified if exact minimisers on the remaining rows would lead to it. That
answers the paper's Proposition 1: removal at a fixed alpha does not undo the choice of
alpha.

A model of a candidate and a fold is answered like any other: its state loses the rows,
a Newton step follows, the rows are looked at, and from the radius comes an interval of
its loss (``fold_fits.bound_loss``). Where intervals of candidates overlap, their models
go on along the chain that every removal has: a step with the Hessian they have; a new
Hessian, at their own answer; the solver.

One pass over the rows serves all models: a fold's rows train those of all other folds.
What a model trains on is the sum over all folds but its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, isinf
from typing import TypeAlias

import numpy as np

from ..core.arrays import Index, Vector, norm
from ..core.objective import Objective
from ..core.sums import largest_moves, predict_each, slopes_at_each
from ..core.values import Private, stored
from ..engines import Workers
from ..exceptions import CannotRemove, InvalidInput
from ..private_model.answers import REFUSALS
from ..promise.radius import best_radius
from ..promise.rounding import Rounding
from ..removal import Draft, Newton, State
from ..removal.newton import hessian_step, refresh_preconditioner
from ..removal.state import anchor_state, require_rest
from ..removal.sums import sum_rows
from .choice import Choice, Split, choose, pool_intervals
from .fold_fits import (
    FoldModel,
    FoldRunner,
    Held,
    bound_loss,
    fit_fold,
    fit_model,
    require_bounded,
    require_training,
    run_in_threads,
)

__all__ = ["Tuning", "require_training", "retune", "tune"]

FoldCandidate: TypeAlias = tuple[int, int]
"""A fold, and the position of a candidate."""

Step: TypeAlias = Callable[[FoldCandidate], tuple[State, Draft]]
Run: TypeAlias = Callable[..., Iterable[tuple[State, Draft] | None]]

NEWTON = Newton(certified=False)
# A step that leaves more than this share of the gradient calls for a costlier one. Slow
# progress will do: a new Hessian costs as much as twenty steps with an old one.
CONTRACTION = 0.5
# After so many rounds the solver is faster.
ROUNDS = 20
# Below this, a bound on the largest move of a predictor is as good as measuring it.
SMALL_MOVE = 0.5


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Tuning(Private):
    """The models behind a choice.

    Attributes
    ----------
    models
        For each fold each candidate on what the fold trains on: one matrix each.
    choice
        The chosen candidate, and what proves it.
    """

    models: tuple[tuple[FoldModel, ...], ...]
    choice: Choice

    @property
    def objectives(self) -> list[Objective]:
        """The candidates, in order of preference."""
        return [model.state.objective for model in self.models[0]]

    @property
    def start(self) -> Vector | None:
        """Where the chosen candidate's fit to all rows starts: amid its folds'."""
        answers = [models[self.choice.chosen].state.last for models in self.models]
        point: Vector = np.mean(answers, axis=0)
        return point


def tune(
    objectives: Sequence[Objective],
    split: Split,
    *,
    on_fitted: Callable[[], None] = lambda: None,
    engine: Workers | None = None,
) -> Tuning:
    """Return every candidate solved on every fold, and the choice.

    Parameters
    ----------
    objectives
        The candidates, in order of preference.
    split
        Rows by fold.
    on_fitted
        Called each time a candidate has been solved on a set of rows, from any thread.
    engine
        What runs the folds; threads of this process if not given.
    """
    require_training(split, InvalidInput)
    require_bounded(objectives)
    fit = partial(fit_fold, objectives, split, mechanism=NEWTON)
    runner = FoldRunner(engine, on_fitted)
    by_fold = runner.fit_each(fit, range(split.n_folds), at_once=True)
    return _settle(
        {
            (fold, candidate): model
            for fold, models in enumerate(by_fold)
            for candidate, model in enumerate(models)
        },
        split,
    )


def retune(tuning: Tuning, split: Split, *, gone: Index) -> Tuning:
    """Return the tuning without the rows at these positions; the given one stays.

    ``split`` still holds those rows. Where intervals stay too wide, or a model cannot
    be updated, the remaining rows are tuned from scratch. So whatever tuning again
    would certify or refuse, this does too.
    """
    gone = gone[split.rows.weight[gone] > 0.0]  # others never counted
    if not len(gone):
        return tuning
    after = split.without(gone)
    require_training(after, CannotRemove)
    removed, folds = split.rows.take(gone), split.folds_at(gone)
    with suppress(*REFUSALS):
        stepped, models = {}, {}
        for fold, before in enumerate(tuning.models):
            leaving = removed.take(folds != fold)
            for candidate, model in enumerate(before):
                key = fold, candidate
                if len(leaving):
                    state = model.state
                    change = state.sums.over(leaving, leaving=True)
                    require_rest(state, change)
                    stepped[key] = _step(state.replace(sums=state.sums - change))
                else:  # it trains on none of them, and is judged by fewer rows
                    held = Held.of(after.validation(fold))
                    models[key] = model.judged_on(held)
        updated = _settle(models | look(stepped, after), after)
        if updated.choice.certified:
            return updated
    return tune(tuning.objectives, after)


def _step(state: State) -> tuple[State, Draft]:
    """Return the Newton step from the anchor."""
    return NEWTON.step(refresh_preconditioner(state, dense=False))


def look(
    stepped: Mapping[FoldCandidate, tuple[State, Draft]], split: Split
) -> dict[FoldCandidate, FoldModel]:
    """Return the models, their gradients and losses measured on the rows."""
    models: dict[FoldCandidate, FoldModel] = {}
    if not stepped:
        return models
    keys, pairs = list(stepped), list(stepped.values())
    folds = np.array([fold for fold, _ in keys])
    loss = pairs[0][0].objective.loss
    thetas = np.array([draft.theta for _, draft in pairs])
    steps = thetas - np.array([state.anchor for state, _ in pairs])
    longest = [state.magnitude.row_norm for state, _ in pairs]
    moves = np.array(longest) * np.array(list(map(norm, steps)))
    far = moves > SMALL_MOVE
    moves[far] = 0.0
    slopes = np.zeros_like(thetas)
    held: list[Held] = []
    etas: dict[int, Vector] = {}  # of the rows by which each is judged
    for fold, rows in enumerate(split.by_fold()):
        held.append(Held.of(rows))
        own = np.flatnonzero(folds == fold)
        if len(own):
            own_etas = predict_each(loss, rows, thetas=thetas[own])
            etas |= dict(zip(own.tolist(), own_etas, strict=True))
        # Summed over the other folds, never by subtraction, where terms would cancel.
        others = folds != fold
        if others.any():
            slopes[others] += slopes_at_each(loss, rows, thetas=thetas[others])
        some = others & far
        if some.any():
            further = largest_moves(loss, rows, steps=steps[some])
            moves[some] = np.maximum(moves[some], further)
    for which, (key, (state, draft)) in enumerate(stepped.items()):
        scale, theta = state.penalty_weight, draft.theta
        quadratic = state.objective.quadratic_gradient(theta, scale=scale)
        draft = replace(
            draft,
            measured=slopes[which] + quadratic + draft.subgradient,
            moved=(steps[which], float(moves[which])),
        )
        # The gradient was added up fold by fold, after the rows of each.
        sums = state.sums.replace(roundings=state.sums.roundings + split.n_folds)
        judged = state.replace(sums=sums)
        radius = best_radius(judged, draft, remaining=split.rows).value
        interval = bound_loss(
            state, draft, radius=radius, held=held[key[0]], eta=etas[which]
        )
        models[key] = FoldModel(state, draft, radius, interval)
    return models


def _settle(models: dict[FoldCandidate, FoldModel], split: Split) -> Tuning:
    """Return the tuning with its choice, refining contenders until it is certified."""
    total, folds = split.rows.total_weight, range(split.n_folds)
    candidates = range(len(models) // split.n_folds)
    used = [fold for fold in folds if split.validation(fold).total_weight > 0.0]
    n_rounds = 0
    while True:
        ours = [[models[fold, each] for fold in folds] for each in candidates]
        losses = ([model.loss for model in each] for each in ours)
        errors = [pool_intervals(each, weight=total) for each in losses]
        zeros = [all(is_certified_zero(each[fold]) for fold in used) for each in ours]
        choice = choose(errors, zeros)
        rivals = {p: model for p, model in models.items() if p[1] in choice.contenders}
        left = {p: model for p, model in rivals.items() if not model.solved}
        hopeless = any(isinf(m.loss.high) for m in rivals.values() if m.solved)
        if choice.certified or hopeless or not left:
            break
        models = models | _refine(left, split, hurry=n_rounds >= ROUNDS)
        n_rounds += 1
    kept = (tuple(models[fold, each].kept() for each in candidates) for fold in folds)
    return Tuning(tuple(kept), choice)


def _refine(
    models: Mapping[FoldCandidate, FoldModel], split: Split, *, hurry: bool
) -> dict[FoldCandidate, FoldModel]:
    """Return models with closer answers: of those without a bound first, if any."""
    unbounded = {p: model for p, model in models.items() if isinf(model.loss.high)}
    left = unbounded or dict(models)
    closer: dict[FoldCandidate, FoldModel] = {}

    def further(key: FoldCandidate) -> tuple[State, Draft]:
        """Return a step from the answer, with the Hessian at the anchor."""
        state, draft = left[key].state, left[key].draft
        assert draft.measured is not None
        if state.cache is None:  # none of its rows left
            state = refresh_preconditioner(state, dense=False)
        minimum = hessian_step(state)(draft.theta, draft.measured - draft.subgradient)
        return state.replace(last=minimum.x), Draft(minimum.x, minimum.subgradient)

    def anchored(key: FoldCandidate) -> tuple[State, Draft]:
        """Return a step with all sums taken at the answer."""
        objective, theta = left[key].state.objective, left[key].draft.theta
        rows = split.training(key[0])
        sums = sum_rows(objective.loss, rows, theta=theta, moment=False)
        return _step(anchor_state(objective, sums.keeping(hessian=True)))

    def solved(key: FoldCandidate) -> FoldModel:
        fold, model = key[0], left[key]
        return fit_model(
            model.state.objective,
            split.training(fold),
            held=Held.of(split.validation(fold)),
            mechanism=NEWTON,
            start=model.draft.theta,
        )

    chain: list[tuple[Step, Run]] = [(further, map), (anchored, run_in_threads)]
    for step, run in [] if hurry else chain:
        tried = zip(left, run(partial(_try, step), left), strict=True)
        stepped = {key: pair for key, pair in tried if pair is not None}
        for key, model in look(stepped, split).items():
            # Strictly less, so that a gradient of zero counts as stuck.
            if _gradient_norm(model) < CONTRACTION * _gradient_norm(left[key]):
                closer[key] = model
                del left[key]
    return closer | dict(zip(left, run_in_threads(solved, left), strict=True))


def _try(step: Step, key: FoldCandidate) -> tuple[State, Draft] | None:
    """Return what a step leads to, or None if it is refused."""
    with suppress(*REFUSALS):
        return step(key)
    return None


def _gradient_norm(model: FoldModel) -> float:
    assert model.draft.measured is not None
    return norm(model.draft.measured)


def is_certified_zero(model: FoldModel) -> bool:
    """Return whether every penalised coefficient of the minimiser must be zero.

    Then the model is that of the intercept alone, the same for every alpha. A non-zero
    coefficient has a gradient of exactly the penalty's slope, and within the radius
    this gradient cannot grow that large.
    """
    state, draft = model.state, model.draft
    objective, end = state.objective, draft.theta.size - state.objective.n_free
    if objective.smooth or not objective.penalty.separable:
        return False
    if draft.measured is None or draft.theta[:end].any():
        return False
    if not isfinite(model.radius):
        return False
    gradient = draft.measured - draft.subgradient
    rounding, scale = Rounding(state), state.penalty_weight
    moved = norm(draft.theta - state.anchor)
    slack = rounding.shift.slopes(model.radius, far=moved)
    slack += scale * objective.quadratic * model.radius
    slack += rounding.gradient(draft, step=moved)
    worst = np.sign(gradient) * (np.abs(gradient) + slack)
    return not objective.shrink(worst, scale)[:end].any()
