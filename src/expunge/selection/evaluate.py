# SPDX-License-Identifier: Apache-2.0
r"""Evaluate candidate fits on the rows, and refine those that decide the choice.

*Evaluate*: one pass over the rows serves the models of all folds and candidates. A
fold's rows train the models of all other folds and validate their own. Fold by fold,
one product with the rows gives every model's predictors and another one the gradients;
what a model trains on is the sum over all folds but its own.

*Bounds*: with theta* within rho of theta, V the weighted sum of losses over the
validation rows and g its gradient in theta, convexity gives

    -|g| rho  <=  V(theta*) - V(theta)  <=  |g| rho + (k2/2) rho^2 sum w |x|^2,

and a bounded slope gives |V(theta*) - V(theta)| <= k1 rho sum w |x|. The gradient of
the sum is much shorter than the sum of the gradients, which cancel where a model fits.
The same holds in the norm of the Hessian, with |g| and |x| in that of its inverse.

*Refine*: take the cheapest step that helps. First a chord step with the Hessian at
hand. Where the gradient does not shrink, or the answer is far from its anchor, a new
Hessian: for all folds together, as often as that helps, then for one fit alone. Where
that does not help either, the solver, which searches along its steps. A solved fit is
left alone, so refining ends.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from math import inf, isfinite, isinf, sqrt
from typing import TypeAlias, TypeVar

import numpy as np

from ..core.arrays import UNIT_ROUNDOFF, Matrix, Vector, norm
from ..core.losses import Loss
from ..core.rows import Rows
from ..core.sums import largest_moves, slopes_at_each
from ..core.values import UNDERFLOW, Private
from ..private_model.answers import REFUSALS
from ..promise.bounds import prediction_error
from ..promise.radius import inverse_norm, strong_convexity
from ..removal import Draft, State
from .choice import ErrorInterval, Split
from .fold_models import (
    CandidateFit,
    SharedAnchor,
    average_answers,
    reanchor_alone,
    reanchor_together,
    solve_again,
    step_from_answer,
)
from .hessian_norm import (
    DistanceBound,
    FoldGeometry,
    HessianNorm,
    bound_distance,
    largest_predictor_move,
    measure_hessian_norm,
    remaining_share,
)

Place: TypeAlias = tuple[int, int]
"""A fold, and the position of a candidate."""

Fits: TypeAlias = Mapping[Place, CandidateFit]

Task = TypeVar("Task")
Result = TypeVar("Result")

# Below this, a bound on the largest move of a predictor is as good as measuring it.
SMALL_MOVE = 0.5
# A step that leaves more than this share of the gradient calls for a costlier one.
CONTRACTION = 0.5
# The same for a step of all folds together, which costs less.
SHARED_CONTRACTION = 0.75
# Fits are refined if their error bound exceeds this share of the widest one.
WIDE = 0.1
# If norms change by more than this between anchor and answer, or predictors by more,
# a Hessian nearby is worth a pass.
FAR = 4.0
FAR_MOVE = 2.8
# If norms may have changed by more than this, a bound takes a Hessian at the answer.
LOST = 20.0
# Below this share of H_A, the Hessian norm is measured again.
WORN = 0.02


def run_in_threads(
    work: Callable[[Task], Result], tasks: Iterable[Task]
) -> list[Result]:
    """Return the result of each task, in order, computed in threads."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(work, tasks))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ModelSums(Private):
    """Sums over the rows at one model.

    Attributes
    ----------
    gradient
        Gradient of sum w loss over the rows it trains on.
    validation_loss, validation_gradient
        Sum w loss over its fold's own rows, and the gradient.
    """

    gradient: Vector
    validation_loss: float
    validation_gradient: Vector


@dataclass(frozen=True, slots=True, repr=False)
class ValidationSizes(Private):
    """Sizes of a fold's own rows: number, and sums of w, w |x| and w |x|^2."""

    n_rows: int
    weight: float
    norm: float
    square: float

    @classmethod
    def of(cls, rows: Rows) -> "ValidationSizes":
        """Return the sizes of these rows."""
        norms, weight = rows.norms(), rows.weight
        sizes = (float(weight @ norms), float(weight @ norms**2))
        return cls(len(rows), rows.total_weight, *sizes)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Evaluator(Private):
    """What candidate fits are evaluated on.

    Attributes
    ----------
    split
        The rows that remain, by fold.
    sizes
        Sizes of each fold's own rows.
    hessian_norms
        For each candidate, the norm that distances are measured in.
    """

    split: Split
    sizes: tuple[ValidationSizes, ...]
    hessian_norms: tuple[HessianNorm, ...]

    @classmethod
    def of(cls, split: Split, hessian_norms: Sequence[HessianNorm]) -> "Evaluator":
        """Return the evaluator of these rows."""
        folds = map(split.validation, range(split.n_folds))
        return cls(split, tuple(map(ValidationSizes.of, folds)), tuple(hessian_norms))

    def evaluate(
        self, fits: Fits, places: Collection[Place]
    ) -> dict[Place, CandidateFit]:
        """Return the fits; those at ``places`` get a gradient and their bounds."""
        evaluated, order = dict(fits), sorted(places)
        if not order:
            return evaluated
        chosen = [fits[place] for place in order]
        loss = chosen[0].state.objective.loss
        thetas = np.array([fit.draft.theta for fit in chosen])
        sums = sum_over_rows(loss, self.split, places=order, thetas=thetas)
        moves = self._predictor_moves(chosen, order)
        for place, fit, seen, move in zip(order, chosen, sums, moves, strict=True):
            measured = replace(fit, draft=_with_gradient(fit, seen))
            evaluated[place] = self._bound(measured, place, sums=seen, move=float(move))
        return evaluated

    def _bound(
        self, fit: CandidateFit, place: Place, *, sums: ModelSums, move: float
    ) -> CandidateFit:
        """Return a fit that has its gradient with its distance and loss bounds."""
        fold, candidate = place
        state, kappa = fit.state, fit.kappa
        hessian_norm = self.hessian_norms[candidate]
        if kappa is None:
            kappa = remaining_share(hessian_norm, state)
        geometry = FoldGeometry(
            factor=fit.factor,
            move=move,
            floor=max(strong_convexity(state), kappa * hessian_norm.floor),
            longest_row=hessian_norm.longest_row / sqrt(kappa) if kappa else inf,
            leverage=hessian_norm.leverages[fold] / kappa if kappa else inf,
        )
        distance = bound_distance(state, fit.draft, geometry=geometry)
        loss = bound_validation_loss(
            state,
            fit.draft.theta,
            distance=distance,
            sums=sums,
            sizes=self.sizes[fold],
        )
        return replace(fit, kappa=kappa, distance=distance, loss=loss)

    def _predictor_moves(
        self, fits: Sequence[CandidateFit], places: Sequence[Place]
    ) -> Vector:
        """Return how far each fit's step from its anchor moves a predictor."""
        steps = np.array([fit.draft.theta - fit.state.anchor for fit in fits])
        norms = [self.hessian_norms[candidate] for _, candidate in places]
        moves = np.array(list(map(largest_predictor_move, norms, steps)))
        large = np.flatnonzero(moves > SMALL_MOVE)
        if large.size:
            loss = fits[0].state.objective.loss
            moves[large] = _measure_moves(loss, self.split, steps=steps[large])
        return moves


def sum_over_rows(
    loss: Loss, split: Split, *, places: Sequence[Place], thetas: Matrix
) -> list[ModelSums]:
    """Return the sums over the rows at models with these places and parameters."""
    folds = np.array([fold for fold, _ in places])

    def sum_over_fold(fold: int) -> tuple[Matrix, Vector]:
        own = np.flatnonzero(folds == fold)
        return slopes_at_each(loss, split.validation(fold), thetas=thetas, valued=own)

    found = [sum_over_fold(fold) for fold in range(split.n_folds)]
    gradients = np.array([gradient for gradient, _ in found])
    values = np.sum([value for _, value in found], axis=0)
    own = gradients[folds, np.arange(len(places))]
    # Summed over the other folds, never by subtraction, in which terms would cancel.
    gradients[folds, np.arange(len(places))] = 0.0
    rest = gradients.sum(axis=0)
    return [
        ModelSums(gradient, float(value), validation)
        for gradient, value, validation in zip(rest, values, own, strict=True)
    ]


def _measure_moves(loss: Loss, split: Split, *, steps: Matrix) -> Vector:
    """Return how far each step moves any row's predictors."""
    folds = map(split.validation, range(split.n_folds))
    found = [largest_moves(loss, rows, steps=steps) for rows in folds]
    largest: Vector = np.max(found, axis=0)
    return largest


def _with_gradient(fit: CandidateFit, sums: ModelSums) -> Draft:
    """Return the fit's draft with the gradient of G_U there."""
    state, draft = fit.state, fit.draft
    quadratic = state.scale * state.objective.quadratic_gradient(draft.theta)
    gradient = sums.gradient / state.anchor_weight + quadratic
    return replace(draft, measured=gradient + draft.subgradient)


def bound_validation_loss(
    state: State,
    theta: Vector,
    *,
    distance: DistanceBound,
    sums: ModelSums,
    sizes: ValidationSizes,
) -> ErrorInterval:
    """Return bounds on the sum of validation losses, rounding included.

    Parameters
    ----------
    state, theta
        The model: its state and its answer.
    distance
        How far the exact minimiser can be.
    sums
        Sums over the rows at the answer.
    sizes
        Sizes of the validation rows.
    """
    if sizes.weight == 0.0:  # nobody is left in this fold
        return ErrorInterval(0.0, 0.0, 0.0)
    loss, value, slopes = (
        state.objective.loss,
        sums.validation_loss,
        sums.validation_gradient,
    )
    if not isfinite(distance.radius):
        return ErrorInterval(0.0, value, inf)
    ulps = 2.0 * UNIT_ROUNDOFF * (sizes.n_rows + theta.size + 16)
    # Predictors are off by |x| times this, each in its own direction: nothing cancels.
    off, k2 = prediction_error(state, theta), loss.curvature_bound
    # A non-negative loss of curvature k2 has slopes below sqrt(2 k2 loss), so this is
    # at least sum w |slope| |x|.
    hidden = UNDERFLOW * (sizes.n_rows + sizes.weight)
    steep = sqrt(2.0 * k2 * (value + hidden) * sizes.square)
    steep += k2 * sizes.square * off
    error = ulps * steep + k2 * sizes.square * off
    rounding = ulps * value + steep * off + hidden
    first = (norm(slopes) + error) * distance.radius
    second = sizes.square * distance.radius * distance.radius
    if isfinite(distance.local_radius):
        z = distance.factor.solve(slopes)
        length = inverse_norm(state, slopes, floor=distance.floor, z=z)
        length += error / sqrt(distance.floor)
        first = min(first, distance.norm_ratio * length * distance.local_radius)
        moved = distance.local_radius * distance.norm_ratio
        second = min(second, moved * distance.leverage * moved)
    second *= 0.5 * k2
    bound = loss.slope_bound * sizes.norm * distance.radius
    low = value - min(first, bound) - rounding
    high = value + min(first + second, bound) + rounding
    return ErrorInterval(max(low, 0.0), value, high)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TuningAttempt(Private):
    """All fits of a request, what evaluates them, and each candidate's full fit."""

    fits: Fits
    evaluator: Evaluator
    full_fits: tuple[State, ...]

    def with_candidates(
        self, candidates: Collection[int], other: "TuningAttempt"
    ) -> "TuningAttempt":
        """Return the attempt with another one's models of these candidates."""
        taken = [place in candidates for place in range(len(self.full_fits))]
        full_fits = zip(taken, self.full_fits, other.full_fits, strict=True)
        ours, theirs = self.evaluator.hessian_norms, other.evaluator.hessian_norms
        norms = zip(taken, ours, theirs, strict=True)
        return TuningAttempt(
            {p: (other if taken[p[1]] else self).fits[p] for p in self.fits},
            replace(
                self.evaluator,
                hessian_norms=tuple(b if other_one else a for other_one, a, b in norms),
            ),
            tuple(b if other_one else a for other_one, a, b in full_fits),
        )


def refine(attempt: TuningAttempt, candidates: Collection[int]) -> TuningAttempt:
    """Return the attempt with fits of these candidates closer to their minimisers.

    Only those with the widest error bounds: if one bound is infinite, others can wait.
    """
    fits = attempt.fits
    open_ones = [p for p in fits if p[1] in candidates and not fits[p].solved]
    widest = max((fits[place].error_bound for place in open_ones), default=0.0)
    open_ones = [p for p in open_ones if fits[p].error_bound >= WIDE * widest]
    far = [place for place in open_ones if fits[place].norm_ratio > FAR]
    first = {place[1] for place in far if fits[place].origin == "before"}
    attempt = _reanchor_together(attempt, sorted(first))
    later = [place for place in far if place[1] not in first]
    attempt, again = _reanchor_if_shorter(attempt, _moved_together(attempt, later))
    alone = [place for place in open_ones if place[1] not in first.union(again)]
    fits = attempt.fits
    lost = [place for place in alone if _is_lost(fits[place])]
    near = [place for place in alone if place not in lost]
    after = _step_if_shorter(
        attempt, near, step=lambda place: step_from_answer(fits[place])
    )
    stuck = [place for place in near if after[place] is fits[place]]
    again = _stuck_together(attempt, stuck)
    attempt = _reanchor_together(replace(attempt, fits=after), again)
    rest = [place for place in [*lost, *stuck] if place[1] not in again]
    return replace(attempt, fits=_reanchor_or_solve(attempt, rest))


def _is_worn(fit: CandidateFit) -> bool:
    """Return whether the Hessian norm has too little to do with the fit's Hessian."""
    return (fit.kappa or 0.0) < WORN


def _is_lost(fit: CandidateFit) -> bool:
    """Return whether the fit is so far from its Hessian that no step gives a bound."""
    return LOST < fit.norm_ratio and isinf(fit.error_bound) and fit.origin != "before"


def _moved_together(attempt: TuningAttempt, far: Sequence[Place]) -> list[int]:
    """Return the candidates of which several folds moved far from their common anchor.

    In the same direction, that is: if only their answers lie far apart, a common anchor
    cannot be near all of them.
    """
    fits, split = attempt.fits, attempt.evaluator.split
    shared = [p for p in far if fits[p].origin == "shared"]
    called = []
    for candidate, count in Counter(place[1] for place in shared).items():
        ours = [fits[fold, candidate] for fold in range(split.n_folds)]
        state = next(fit.state for fit in ours if fit.origin == "shared")
        step = average_answers(ours) - state.anchor
        move = _measure_moves(state.objective.loss, split, steps=step[None, :])
        if count > 1 and move[0] > FAR_MOVE:
            called.append(candidate)
    return called


def _reanchor_if_shorter(
    attempt: TuningAttempt, candidates: Sequence[int]
) -> tuple[TuningAttempt, list[int]]:
    """Return the attempt with a common new anchor where that shrinks the gradients.

    And for which of the candidates it does; the others stay as they are.
    """
    if not candidates:
        return attempt, []
    after = _reanchor_together(attempt, candidates)
    folds = range(attempt.evaluator.split.n_folds)

    def length(which: TuningAttempt, candidate: int) -> float:
        return sum(which.fits[fold, candidate].gradient_norm for fold in folds)

    better = [
        candidate
        for candidate in candidates
        if length(after, candidate) < SHARED_CONTRACTION * length(attempt, candidate)
    ]
    return attempt.with_candidates(better, after), better


def _stuck_together(attempt: TuningAttempt, stuck: Sequence[Place]) -> list[int]:
    """Return the candidates for which the Hessians of before the request fail twice."""
    old = [place for place in stuck if attempt.fits[place].origin == "before"]
    counts = Counter(candidate for _, candidate in old)
    return sorted(candidate for candidate, count in counts.items() if count > 1)


def _reanchor_together(
    attempt: TuningAttempt, candidates: Sequence[int]
) -> TuningAttempt:
    """Return the attempt with these candidates' folds at a common new anchor."""
    fits, evaluator = attempt.fits, attempt.evaluator
    if not candidates:
        return attempt
    split = evaluator.split
    folds, remaining = range(split.n_folds), split.remaining_by_fold()

    def reanchor(candidate: int) -> tuple[SharedAnchor, HessianNorm]:
        ours = [fits[fold, candidate] for fold in folds]
        anchor = reanchor_together(ours, remaining)
        if any(map(_is_worn, ours)):
            return anchor, measure_hessian_norm(anchor.full_fit, remaining)
        return anchor, evaluator.hessian_norms[candidate]

    anchors = dict(zip(candidates, run_in_threads(reanchor, candidates), strict=True))
    full_fits, hessian_norms = list(attempt.full_fits), list(evaluator.hessian_norms)
    after, training = dict(fits), cache(split.training)
    for candidate, (anchor, hessian_norm) in anchors.items():
        full_fits[candidate], hessian_norms[candidate] = anchor.full_fit, hessian_norm
        for fold in folds:
            fit, new = fits[fold, candidate], anchor.fits[fold]
            if fit.solved:
                after[fold, candidate] = replace(fit, kappa=None)
            else:
                new = new or solve_again(fit, training(fold))
                after[fold, candidate] = new
    evaluator = replace(evaluator, hessian_norms=tuple(hessian_norms))
    places = [(fold, candidate) for fold in folds for candidate in candidates]
    evaluated = evaluator.evaluate(after, places)
    return TuningAttempt(evaluated, evaluator, tuple(full_fits))


def _reanchor_or_solve(attempt: TuningAttempt, stuck: Sequence[Place]) -> Fits:
    """Return the fits, each stuck one re-anchored alone or, failing that, solved."""
    fits, split = attempt.fits, attempt.evaluator.split

    def reanchor(place: Place) -> CandidateFit:
        return reanchor_alone(fits[place], split.training_views(place[0]))

    def solve(place: Place) -> CandidateFit:
        return solve_again(fits[place], split.training(place[0]))

    after = _step_if_shorter(attempt, stuck, step=reanchor)
    left = [place for place in stuck if after[place] is fits[place]]
    after |= zip(left, run_in_threads(solve, left), strict=True)
    return attempt.evaluator.evaluate(after, left)


def _step_if_shorter(
    attempt: TuningAttempt,
    places: Sequence[Place],
    *,
    step: Callable[[Place], CandidateFit],
) -> dict[Place, CandidateFit]:
    """Return the fits, those at ``places`` after a step if it shrinks the gradient."""
    fits = attempt.fits

    def try_step(place: Place) -> CandidateFit:
        with suppress(*REFUSALS):
            return step(place)
        return fits[place]

    tried = dict(fits)
    tried |= zip(places, run_in_threads(try_step, places), strict=True)
    stepped = [place for place in places if tried[place] is not fits[place]]
    tried = attempt.evaluator.evaluate(tried, stepped)
    for place in stepped:
        # Strictly less, so that a gradient of zero counts as stuck.
        if not tried[place].gradient_norm < CONTRACTION * fits[place].gradient_norm:
            tried[place] = fits[place]
    return tried
