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
from math import inf, isfinite, isinf
from typing import TypeAlias

import numpy as np

from ..core.arrays import Index, Vector, norm
from ..core.objective import Objective
from ..core.rows import Rows
from ..core.sums import largest_moves, predict_each, slopes_at_each
from ..core.values import Private, stored
from ..engines import Workers
from ..exceptions import CannotRemove, InvalidInput
from ..private_model.answers import REFUSALS
from ..promise.floor import NumberFloor
from ..promise.radius import Radii
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
from .metric import Metric

__all__ = ["Tuning", "require_training", "retune", "tune"]

FoldCandidate: TypeAlias = tuple[int, int]
"""A fold, and the position of a candidate."""

Stepped: TypeAlias = tuple[State, Draft, Metric]
Step: TypeAlias = Callable[[FoldCandidate], Stepped]
Run: TypeAlias = Callable[..., Iterable[Stepped | None]]

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
        held=[Held.of(rows) for rows in split.by_fold()],
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
    held = [Held.of(rows) for rows in after.by_fold()]
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
                    rest = _factored(state.replace(sums=state.sums - change))
                    metric = model.metric.without(change, before=state, state=rest)
                    stepped[key] = *NEWTON.step(rest), metric
                else:  # it trains on none of them, and is judged by fewer rows
                    models[key] = model.judged_on(held[fold])
        updated = _settle(models | look(stepped, after, held=held), after, held=held)
        if updated.choice.certified:
            return updated
    return tune(tuning.objectives, after)


def _factored(state: State) -> State:
    """Return the state with a factor of its Hessian."""
    return refresh_preconditioner(state, dense=False)


def look(
    stepped: Mapping[FoldCandidate, Stepped], split: Split, *, held: Sequence[Held]
) -> dict[FoldCandidate, FoldModel]:
    """Return the models, their gradients and losses measured on the rows.

    ``held`` are the rows of each fold.
    """
    models: dict[FoldCandidate, FoldModel] = {}
    if not stepped:
        return models
    keys, found = list(stepped), list(stepped.values())
    folds = np.array([fold for fold, _ in keys])
    loss = found[0][0].objective.loss
    thetas = np.array([draft.theta for _, draft, _ in found])
    steps = thetas - np.array([state.anchor for state, _, _ in found])
    longest = [state.magnitude.row_norm for state, _, _ in found]
    moves = np.array(longest) * np.array(list(map(norm, steps)))
    far = moves > SMALL_MOVE
    moves[far] = 0.0
    slopes = np.zeros_like(thetas)
    etas: dict[int, Vector] = {}  # of the rows by which each is judged
    for fold, (rows, _) in enumerate(held):
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
    for which, (key, (state, draft, metric)) in enumerate(stepped.items()):
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
        known = metric.norm_at(judged)
        radius, way = bound_distance(judged, draft, known=known, remaining=split.rows)
        interval = bound_loss(
            state,
            draft,
            radius=radius,
            way=way,
            metric=metric,
            held=held[key[0]],
            eta=etas[which],
            known=known,
        )
        models[key] = FoldModel(state, draft, radius, way, metric, interval)
    return models


def bound_distance(
    state: State, draft: Draft, *, known: NumberFloor, remaining: Rows
) -> tuple[float, float]:
    """Return how far a minimiser may be, also in the norm of the Hessian."""
    radii = Radii(state, draft, remaining=remaining, known=known)
    if isfinite(radii.rate):
        radius, way = radii.distances()
        return min(radius, radii.residual()), way
    return radii.best().value, inf


def _settle(
    models: dict[FoldCandidate, FoldModel], split: Split, *, held: Sequence[Held]
) -> Tuning:
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
        hurry = n_rounds >= ROUNDS
        models = models | _refine(left, split, held=held, hurry=hurry)
        n_rounds += 1
    kept = (tuple(models[fold, each].kept() for each in candidates) for fold in folds)
    return Tuning(tuple(kept), choice)


def _refine(
    models: Mapping[FoldCandidate, FoldModel],
    split: Split,
    *,
    held: Sequence[Held],
    hurry: bool,
) -> dict[FoldCandidate, FoldModel]:
    """Return models with closer answers: of those without a bound first, if any."""
    unbounded = {p: model for p, model in models.items() if isinf(model.loss.high)}
    left = unbounded or dict(models)
    closer: dict[FoldCandidate, FoldModel] = {}

    def further(key: FoldCandidate) -> Stepped:
        """Return a step from the answer, with the Hessian at the anchor."""
        state, draft = left[key].state, left[key].draft
        assert draft.measured is not None
        if state.cache is None:  # none of its rows left
            state = _factored(state)
        minimum = hessian_step(state)(draft.theta, draft.measured - draft.subgradient)
        further = Draft(minimum.x, minimum.subgradient)
        return state.replace(last=minimum.x), further, left[key].metric

    def anchored(key: FoldCandidate) -> Stepped:
        """Return a step with all sums taken at the answer."""
        objective, theta = left[key].state.objective, left[key].draft.theta
        rows = split.training(key[0])
        sums = sum_rows(objective.loss, rows, theta=theta, moment=False)
        state = _factored(anchor_state(objective, sums.keeping(hessian=True)))
        metric = left[key].metric.at(state, moved=_predictor_move(left[key]))
        if metric is None:
            metric = Metric.measure(state, rows, held=held[key[0]].rows)
        return *NEWTON.step(state), metric

    def solved(key: FoldCandidate) -> FoldModel:
        fold, model = key[0], left[key]
        return fit_model(
            model.state.objective,
            split.training(fold),
            held=held[fold],
            mechanism=NEWTON,
            start=model.draft.theta,
        )

    chain: list[tuple[Step, Run]] = [(further, map), (anchored, run_in_threads)]
    for step, run in [] if hurry else chain:
        tried = zip(left, run(partial(_try, step), left), strict=True)
        stepped = {key: pair for key, pair in tried if pair is not None}
        for key, model in look(stepped, split, held=held).items():
            # Strictly less, so that a gradient of zero counts as stuck.
            if _gradient_norm(model) < CONTRACTION * _gradient_norm(left[key]):
                closer[key] = model
                del left[key]
    return closer | dict(zip(left, run_in_threads(solved, left), strict=True))


def _try(step: Step, key: FoldCandidate) -> Stepped | None:
    """Return what a step leads to, or None if it is refused."""
    with suppress(*REFUSALS):
        return step(key)
    return None


def _predictor_move(model: FoldModel) -> float:
    """Return how far the predictors of its rows are from those at the anchor."""
    if model.draft.moved is None:
        return inf
    step = model.draft.theta - model.state.anchor
    rounded = Rounding(model.state).predictor(norm(step))
    return model.draft.moved[1] + rounded * model.state.magnitude.row_norm


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
