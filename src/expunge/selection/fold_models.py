# SPDX-License-Identifier: Apache-2.0
r"""Cells: one removable model for each candidate, on one set of training rows.

Between requests a cell is a state with one d x d matrix, the Hessian of the remaining
rows, and its last answer. While a request is answered it is a *trial*: a state with a
factor of that Hessian, an answer that was looked at, how far the exact minimiser may
be, and where the validation error must lie.

Renewal: the Hessians of all folds anew, for little more than the price of one.

The models of one candidate on different folds share most of their rows and lie close
together. At a point between them the sums over each fold's own rows are taken once:
those of what a fold trains on are the sums over all folds but its own. Five folds cost
one pass over the rows instead of four. Each goes on from its own answer, by chord
steps with a Hessian that is somewhat off its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal, TypeAlias

import numpy as np

from ..core.arrays import Private, Vector, catch_lapack_errors, norm
from ..core.linalg import Cholesky
from ..core.objective import Objective
from ..core.prox import Minimum
from ..core.rows import Rows
from ..core.solver import Model, minimise, require_converged
from ..private_model.unlearn import REFUSALS
from ..promise.radius import gradient_error
from ..removal import Draft, State
from ..removal.state import (
    count_remaining,
    drop_gradient,
    drop_matrices,
    initial_state,
    keep_sums,
    kink_model,
    make_answer,
    smooth_minimum,
)
from ..removal.summary import Summary, merge_summaries, summarise
from .choice import Interval
from .hessian_norm import Reach

Anchorage: TypeAlias = Literal["before", "shared", "own", "solved"]
"""Where a trial's Hessian was taken, the dearer the later.

Before the request; at a point amid the answers of all folds; at an answer of its own;
at the minimiser, by the solver.
"""


# How many answers a step looks back at.
DEPTH = 4


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Cell(Private):
    """One candidate's model on one set of rows, between requests."""

    state: State
    draft: Draft


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Trial(Private):
    """A cell while a request is answered.

    Attributes
    ----------
    state, draft
        The removal's state, and its answer.
    factor
        Of H_U.
    anchorage
        Where the Hessian was taken.
    kappa
        With H_U >= kappa H_A for the yardstick's H_A; None until it is looked for.
    past
        Answers before this one, with the gradients measured there.
    reach, score
        How far the minimiser may be, and where the sum of validation losses must lie;
        None until the rows have been looked at.
    """

    state: State
    draft: Draft
    factor: Cholesky
    anchorage: Anchorage
    kappa: float | None = None
    reach: Reach | None = None
    score: Interval | None = None
    past: tuple[tuple[Vector, Vector], ...] = ()

    @property
    def solved(self) -> bool:
        """Whether the answer is as good as the solver gets it."""
        return self.anchorage == "solved"

    @property
    def bar(self) -> float:
        """How far the sum of validation losses may be from what was computed."""
        assert self.score is not None
        return self.score.bar

    @property
    def stretch(self) -> float:
        """By how much the Hessian may have changed since the anchor."""
        assert self.reach is not None
        return self.reach.stretch

    @property
    def steepness(self) -> float:
        """Norm of the measured gradient, in units of the rows that remain."""
        assert self.draft.measured is not None
        return norm(self.draft.measured) / self.state.kept

    def at_rest(self) -> Cell:
        """Return the cell that is kept between requests."""
        return Cell(self.state, self.draft)


def solved(objective: Objective, rows: Rows, start: Vector | None) -> Trial:
    """Return the trial anchored at the minimiser on these rows."""
    solution = minimise(objective, rows, start=start)
    require_converged(objective, rows, solution)
    theta, subgradient = solution.theta, solution.subgradient
    summary = summarise(objective, rows, theta, subgradient=subgradient, moment=False)
    measured = solution.gradient + solution.subgradient
    draft, state = Draft(summary.theta, subgradient, measured), anchored(summary)
    return Trial(state, draft, state.smooth_hessian().cholesky(spend=True), "solved")


def solved_again(trial: Cell | Trial, rows: Rows) -> Trial:
    """Return the model solved on the rows that remain, by steps that are searched."""
    objective = trial.state.objective.after(trial.state.kept)
    try:
        return solved(objective, rows, trial.draft.theta)
    except REFUSALS:
        return solved(objective, rows, None)


def anchored(summary: Summary) -> State:
    """Return the state of a summary, with a Hessian and no moment."""
    return keep_sums(initial_state(summary), summary, moment=False)


def dropped(state: State, removed: Rows) -> State:
    """Return the state without these rows; the old one stands."""
    if not len(removed):
        return state
    weight, n_rows = count_remaining(state, removed)
    gradient = drop_gradient(state, removed)
    lighter = state.replace(weight=weight, n_rows=n_rows, gradient=gradient)
    return drop_matrices(lighter, removed, spend=False)


def stepped(state: State, anchorage: Anchorage) -> Trial:
    """Return the trial whose answer minimises the state's model around its anchor."""
    factor = state.smooth_hessian().cholesky(spend=True)
    minimum = _model(state, factor)(state.anchor, state.smooth_gradient)
    state, draft = make_answer(state, minimum)
    return Trial(state, draft, factor, anchorage)


def moved(trial: Trial, state: State, anchorage: Anchorage) -> Trial:
    """Return the trial at another anchor, a state of the same rows, with its answer."""
    # G_U is in units of the weight at the anchor, and so are its derivatives.
    unit, draft = 1.0 / trial.state.kept, trial.draft
    measured = None if draft.measured is None else unit * draft.measured
    draft = Draft(draft.theta, unit * draft.subgradient, measured)
    factor = state.smooth_hessian().cholesky(spend=True)
    return Trial(state.replace(last=draft.theta), draft, factor, anchorage)


def chord(trial: Trial) -> Trial:
    """Return the trial a step further by the Hessian that it has.

    Where earlier steps were measured with the same Hessian, what they say of the true
    one is taken in (Anderson's extrapolation); a kink allows no such mixture.
    """
    draft, theta = trial.draft, trial.draft.theta
    assert draft.measured is not None
    gradient, past = draft.measured - draft.subgradient, trial.past
    if past and trial.state.objective.smooth:
        steps = np.array([theta - before for before, _ in past])
        changes = np.array([gradient - before for _, before in past])
        with catch_lapack_errors():
            mixture = np.linalg.lstsq(changes.T, gradient, rcond=1e-12)[0]
        theta, gradient = theta - mixture @ steps, gradient - mixture @ changes
    minimum = _model(trial.state, trial.factor)(theta, gradient)
    return replace(
        trial,
        draft=Draft(minimum.x, minimum.subgradient),
        past=(*past, (draft.theta, draft.measured))[-DEPTH:],
        reach=None,
        score=None,
    )


def renewed_alone(trial: Trial, parts: Sequence[Rows]) -> Trial:
    """Return the trial anchored at its own answer, and a step further from there.

    ``parts`` are together what it trains on.
    """
    objective, theta = trial.state.objective.after(trial.state.kept), trial.draft.theta
    sums = [summarise(objective, rows, theta, moment=False) for rows in parts]
    return stepped(anchored(merge_summaries(sums)), "own")


def vanishes(trial: Trial) -> bool:
    """Whether every penalised coefficient of the minimiser is certified to be zero.

    Then it is the model of the intercept alone, the same for every alpha. A
    coefficient that is not zero has a gradient of exactly the penalty's slope, and
    within the radius the gradient of this one cannot grow that large.
    """
    state, draft, reach = trial.state, trial.draft, trial.reach
    objective, end = state.objective, draft.theta.size - state.objective.n_free
    if objective.smooth or not objective.penalty.separable:
        return False
    if draft.measured is None or draft.theta[:end].any():
        return False
    if reach is None or not isfinite(reach.radius):
        return False
    gradient = draft.measured - draft.subgradient
    steepness = objective.loss.curvature_bound * state.scales.square_norm
    distance = norm(draft.theta - state.anchor)
    slack = (steepness + objective.quadratic) * reach.radius
    slack += gradient_error(state, draft, step=distance)
    worst = np.sign(gradient) * (np.abs(gradient) + slack)
    return not objective.shrink(worst, state.scale)[:end].any()


def _model(state: State, factor: Cholesky) -> Model:
    """Return the quadratic model of G_U with the Hessian H_U."""
    if not state.objective.smooth:
        return kink_model(state, state.smooth_hessian())

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        return smooth_minimum(theta - factor.solve(gradient))

    return argmin


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
        state, trial = anchored(merge_summaries(others)), trials[fold]
        try:
            if trial.stretch > FAR:
                return stepped(state, "shared")
            return moved(trial, state, "shared")
        except REFUSALS:
            return None

    fresh = tuple(map(of_fold, range(len(trials))))
    return Renewal(fresh, anchored(merge_summaries(list(summaries.values()))))
