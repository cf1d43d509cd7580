# SPDX-License-Identifier: Apache-2.0
r"""Fold models: each candidate's removable model on what one fold trains on.

Between requests a fold model is a state with one d x d matrix, the Hessian of the
remaining rows, and its last answer. During a request it is a *candidate fit*: a factor
of that Hessian, an answer whose gradient was measured, and bounds on the distance to
the exact minimiser and on the validation loss.

An answer improves by chord steps, which reuse the Hessian at hand. Where the Hessian is
too far off, the fit is re-anchored: for all folds together, or alone. Folds share most
of their rows and their models lie close together, so the sums over each fold's own rows
are taken once, at the mean of the answers, and a fold adds up those of all other folds.
Five folds cost one pass over the rows instead of four.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal, TypeAlias

import numpy as np

from ..core.arrays import Index, Matrix, Vector, norm
from ..core.blocks import SymmetricFactor
from ..core.objective import Objective
from ..core.prox import Minimum, anderson_mixture
from ..core.rows import BLOCK_ROWS, Rows
from ..core.solver import Model, require_converged
from ..core.sums import curvature_rows_at_each, slopes_at_each
from ..core.values import Private, stored
from ..private_model.answers import REFUSALS
from ..promise.bounds import gradient_error
from ..removal import Draft, State
from ..removal.changes import (
    SignedRows,
    change_gradient,
    change_matrices,
    count_after,
)
from ..removal.state import (
    initial_state,
    keep_sums,
    kink_model,
    make_answer,
    smooth_minimum,
)
from ..removal.summary import Summary, find_minimiser, merge_summaries, summarise
from .choice import ErrorInterval
from .hessian_norm import DistanceBound

HessianOrigin: TypeAlias = Literal["before", "shared", "own", "solved"]
"""Where a fit's Hessian was computed, from cheapest to most expensive.

Before the request; at a point amid the answers of all folds; at the fit's own answer;
at the minimiser, by the solver.
"""

NONE: Index = np.zeros(0, dtype=np.intp)
# Earlier answers that a chord step takes into account.
HISTORY = 4


@stored
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FoldModel(Private):
    """One candidate's model on one fold's training rows, between requests.

    Attributes
    ----------
    state, draft
        The removal's state, and its answer.
    kappa
        With H_U >= kappa H_A, H_A that of the Hessian norm; None if it is not known.
    """

    state: State
    draft: Draft
    kappa: float | None = None


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CandidateFit(Private):
    """One candidate's model on one set of rows, during a request.

    Attributes
    ----------
    state, draft
        The removal's state, and its answer.
    factor
        Factor of H_U.
    origin
        Where the Hessian was computed.
    kappa
        With H_U >= kappa H_A, H_A that of the Hessian norm; None until computed.
    distance, loss
        Bounds on the distance to the minimiser, and on the sum of validation losses;
        None until the fit has been evaluated on the rows.
    history
        Earlier answers, with the gradients measured there.
    """

    state: State
    draft: Draft
    factor: SymmetricFactor
    origin: HessianOrigin
    kappa: float | None = None
    distance: DistanceBound | None = None
    loss: ErrorInterval | None = None
    history: tuple[tuple[Vector, Vector], ...] = ()

    @property
    def solved(self) -> bool:
        """Whether the answer is as good as the solver can make it."""
        return self.origin == "solved"

    @property
    def error_bound(self) -> float:
        """How far the sum of validation losses can be from its computed value."""
        assert self.loss is not None
        return self.loss.error_bound

    @property
    def norm_ratio(self) -> float:
        """How much norms may have changed between the anchor and the answer."""
        assert self.distance is not None
        return self.distance.norm_ratio

    @property
    def gradient_norm(self) -> float:
        """Norm of the measured gradient, relative to the rows that remain."""
        assert self.draft.measured is not None
        return norm(self.draft.measured) / self.state.kept

    def to_model(self) -> FoldModel:
        """Return what is kept between requests."""
        return FoldModel(self.state, self.draft, self.kappa)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SharedAnchor(Private):
    """One candidate's models, anchored at one point.

    Attributes
    ----------
    fits
        One for each fold, not yet evaluated; None where the Hessian of the training
        rows has no inverse there.
    full_fit
        The state of all rows.
    """

    fits: tuple[CandidateFit | None, ...]
    full_fit: State


def solve(objective: Objective, rows: Rows, *, start: Vector | None) -> CandidateFit:
    """Return the fit anchored at the minimiser on these rows."""
    solution = find_minimiser(objective, rows, start=start)
    require_converged(objective, rows, solution=solution)
    theta, subgradient = solution.theta, solution.subgradient
    summary = summarise(
        objective, rows, theta=theta, subgradient=subgradient, moment=False
    )
    measured = solution.gradient + solution.subgradient
    draft, state = Draft(summary.theta, subgradient, measured), make_state(summary)
    factor = state.smooth_hessian().cholesky(spend=True)
    return CandidateFit(state, draft, factor, "solved")


def solve_again(fit: CandidateFit, rows: Rows) -> CandidateFit:
    """Return the model solved on the remaining rows, from its answer if that works."""
    objective = fit.state.objective.after(fit.state.kept)
    try:
        return solve(objective, rows, start=fit.draft.theta)
    except REFUSALS:
        return solve(objective, rows, start=None)


def make_state(summary: Summary) -> State:
    """Return the state of a summary, with a Hessian and no moment."""
    return keep_sums(initial_state(summary), summary, moment=False)


def drop_rows(state: State, removed: Rows) -> State:
    """Return the state without these rows; the given one stays as it is."""
    if not len(removed):
        return state
    change = SignedRows(removed, -1)
    return change_matrices(change_gradient(state, change), change, spend=False)


def drop_from_each(states: Sequence[State], removed: Rows) -> list[State]:
    """Return several states of one loss without these rows; see ``drop_rows``.

    One product with the rows serves all of them. The states keep no moment.
    """
    loss = states[0].objective.loss
    # The rows of several outputs become so many more: sums over them are cheaper. And
    # more rows than a block holds should not be scaled all at once.
    if not 0 < len(removed) <= BLOCK_ROWS or loss.outputs > 1:
        return [drop_rows(state, removed) for state in states]
    thetas = np.array([state.anchor for state in states])
    slopes, _ = slopes_at_each(loss, removed, thetas=thetas, valued=NONE)
    roots = curvature_rows_at_each(loss, removed, thetas=thetas)
    return [
        _drop_sums(state, removed, slopes=slope, root=root)
        for state, slope, root in zip(states, slopes, roots, strict=True)
    ]


def _drop_sums(state: State, removed: Rows, *, slopes: Vector, root: Matrix) -> State:
    """Return the state less these slopes and root'root, sums over removed rows."""
    weight, n_rows = count_after(state, SignedRows(removed, -1))
    share = 1.0 / state.anchor_weight
    return state.replace(
        weight=weight,
        n_rows=n_rows,
        gradient=state.gradient - share * slopes,
        hessian=state.loss_hessian.update(-share, root),
        n_updates=state.n_updates + 1,
    )


def step_from_anchor(state: State, origin: HessianOrigin) -> CandidateFit:
    """Return the fit whose answer minimises the state's model around its anchor."""
    factor = state.smooth_hessian().cholesky(spend=True)
    minimum = _quadratic_model(state, factor)(state.anchor, state.smooth_gradient)
    state, draft = make_answer(state, minimum)
    return CandidateFit(state, draft, factor, origin)


def step_from_answer(fit: CandidateFit) -> CandidateFit:
    """Return the fit after a chord step with the Hessian it has.

    Earlier steps with the same Hessian say something about the true one, which
    Anderson's extrapolation uses. A kink does not allow such mixtures.
    """
    draft, theta = fit.draft, fit.draft.theta
    assert draft.measured is not None
    gradient, history = draft.measured - draft.subgradient, fit.history
    if history and fit.state.objective.smooth:
        steps = np.array([theta - before for before, _ in history])
        changes = np.array([gradient - before for _, before in history])
        mixture = anderson_mixture(gradient, changes)
        theta, gradient = theta - mixture @ steps, gradient - mixture @ changes
    minimum = _quadratic_model(fit.state, fit.factor)(theta, gradient)
    return replace(
        fit,
        draft=Draft(minimum.x, minimum.subgradient),
        history=(*history, (draft.theta, draft.measured))[-HISTORY:],
        distance=None,
        loss=None,
    )


def reanchor_alone(fit: CandidateFit, parts: Sequence[Rows]) -> CandidateFit:
    """Return the fit anchored at its own answer, and a step further from there.

    ``parts`` together are the rows it trains on.
    """
    objective, theta = fit.state.objective.after(fit.state.kept), fit.draft.theta
    sums = [summarise(objective, rows, theta=theta, moment=False) for rows in parts]
    return step_from_anchor(make_state(merge_summaries(sums)), "own")


def reanchor_together(
    fits: Sequence[CandidateFit], folds: Sequence[Rows]
) -> SharedAnchor:
    """Return one candidate's fits, all anchored at the mean of their answers.

    ``folds`` are the rows of each fold; those that left have weight zero.
    """
    state = fits[0].state
    objective = state.objective.after(state.kept)
    point = average_answers(fits)
    summaries = {
        fold: summarise(objective, rows, theta=point, moment=False)
        for fold, rows in enumerate(folds)
        if rows.total_weight > 0.0
    }

    def reanchor(fold: int) -> CandidateFit | None:
        others = [part for other, part in summaries.items() if other != fold]
        state, fit = make_state(merge_summaries(others)), fits[fold]
        try:
            return step_from_answer(_move_anchor(fit, state))
        except REFUSALS:
            return None

    fresh = tuple(map(reanchor, range(len(fits))))
    return SharedAnchor(fresh, make_state(merge_summaries(list(summaries.values()))))


def average_answers(fits: Sequence[CandidateFit | FoldModel]) -> Vector:
    """Return the mean of the fits' answers."""
    point: Vector = np.mean([fit.draft.theta for fit in fits], axis=0)
    return point


def _move_anchor(fit: CandidateFit, state: State) -> CandidateFit:
    """Return the fit with its answer, at the anchor of a state of the same rows."""
    # G_U and its derivatives are in units of the weight at the anchor.
    unit, draft = 1.0 / fit.state.kept, fit.draft
    measured = None if draft.measured is None else unit * draft.measured
    draft = Draft(draft.theta, unit * draft.subgradient, measured)
    factor = state.smooth_hessian().cholesky(spend=True)
    return CandidateFit(state.answered(draft.theta), draft, factor, "shared")


def is_certified_zero(fit: CandidateFit) -> bool:
    """Return whether every penalised coefficient of the minimiser must be zero.

    Then the model is that of the intercept alone, the same for every alpha. A non-zero
    coefficient has a gradient of exactly the penalty's slope, and within the radius
    this gradient cannot grow that large.
    """
    state, draft, distance = fit.state, fit.draft, fit.distance
    objective, end = state.objective, draft.theta.size - state.objective.n_free
    if objective.smooth or not objective.penalty.separable:
        return False
    if draft.measured is None or draft.theta[:end].any():
        return False
    if distance is None or not isfinite(distance.radius):
        return False
    gradient = draft.measured - draft.subgradient
    steepness = objective.loss.curvature_bound * state.scales.square_norm
    slack = (steepness + objective.quadratic) * distance.radius
    slack += gradient_error(state, draft, step=norm(draft.theta - state.anchor))
    worst = np.sign(gradient) * (np.abs(gradient) + slack)
    return not objective.shrink(worst, state.scale)[:end].any()


def _quadratic_model(state: State, factor: SymmetricFactor) -> Model:
    """Return the quadratic model of G_U with the Hessian H_U."""
    if not state.objective.smooth:
        return kink_model(state, state.smooth_hessian())

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        return smooth_minimum(theta - factor.solve(gradient))

    return argmin
