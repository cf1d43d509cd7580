# SPDX-License-Identifier: Apache-2.0
r"""Evaluate candidate fits on the rows: their gradients, and bounds on their losses.

*Evaluate*: one pass over the rows serves the models of all folds and candidates. A
fold's rows train the models of all other folds and validate their own. Fold by fold,
one product with the rows gives every model's predictors and another one the gradients;
what a model trains on is the sum over all folds but its own.

*Bounds*: with theta* within rho of theta, V the weighted sum of losses over the
validation rows and g its gradient in theta, convexity gives

    -|g| rho  <=  V(theta*) - V(theta)  <=  |g| rho + (k2/2) rho^2 sum w |x|^2,

and a bounded slope gives |V(theta*) - V(theta)| <= k1 rho sum w |x|. The gradient of
the sum is much shorter than the sum of the gradients, which cancel where a model fits.
The same holds in the norm of the Hessian, with |g| and |x| in that of its inverse. And
the first-order term g.(theta* - theta) is known in part: by the Newton step, up to |g|
times the error of that step.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, sqrt
from typing import TypeAlias

import numpy as np

from ..core.arrays import SAFETY, UNIT_ROUNDOFF, Matrix, Vector, norm
from ..core.losses import Loss
from ..core.rows import Rows
from ..core.sums import largest_moves, slopes_at_each
from ..core.values import UNDERFLOW, Private
from ..promise.bounds import matrix_error, prediction_error
from ..promise.radius import strong_convexity
from ..removal import Draft, State
from .choice import ErrorInterval, Split
from .fold_models import CandidateFit
from .hessian_norm import (
    DistanceBound,
    FoldGeometry,
    HessianNorm,
    bound_distance,
    largest_predictor_move,
    remaining_share,
)

Place: TypeAlias = tuple[int, int]
"""A fold, and the position of a candidate."""

Fits: TypeAlias = Mapping[Place, CandidateFit]

# Below this, a bound on the largest move of a predictor is as good as measuring it.
SMALL_MOVE = 0.5


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
        sizes = map(ValidationSizes.of, split.by_fold())
        return cls(split, tuple(sizes), tuple(hessian_norms))

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
            error=matrix_error(state),
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
            loss, folds = fits[0].state.objective.loss, [fold for fold, _ in places]
            found = measure_moves(loss, self.split, steps=steps[large])
            # What a model does not train on is no part of its Hessian.
            found[np.array(folds)[large], np.arange(large.size)] = 0.0
            moves[large] = np.max(found, axis=0)
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


def measure_moves(loss: Loss, split: Split, *, steps: Matrix) -> Matrix:
    """Return how far each step moves the predictors of a row of each fold."""
    folds = split.by_fold()
    return np.array([largest_moves(loss, rows, steps=steps) for rows in folds])


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
    fall, spread = 0.0, inf
    if isfinite(distance.local_radius):
        geometry = distance.geometry
        length = geometry.inverse_norm(state, slopes, z=geometry.factor.solve(slopes))
        size = length.length + error / sqrt(geometry.floor)
        first = min(first, distance.norm_ratio * size * distance.local_radius)
        moved = distance.local_radius * distance.norm_ratio
        second = min(second, moved * geometry.leverage * moved)
        fall, spread = _along_step(distance, slopes, length=size, error=error)
    second *= 0.5 * k2
    bound = loss.slope_bound * sizes.norm * distance.radius
    least = max(-min(first, bound), fall - spread)
    most = min(bound, min(first, fall + spread) + second)
    low, high = value + least - rounding, value + most + rounding
    middle = min(max(value + fall, low, 0.0), high)
    return ErrorInterval(max(low, 0.0), middle, high)


def _along_step(
    distance: DistanceBound, slopes: Vector, *, length: float, error: float
) -> tuple[float, float]:
    """Return g.D as the Newton step estimates it, and how far that may be off.

    ``slopes`` are g up to ``error``, and ``length`` bounds |g| in the norm of H_U^-1.
    """
    if not isfinite(distance.step_error):
        return 0.0, inf
    step = distance.step
    ulps = 2.0 * UNIT_ROUNDOFF * (step.size + 2)
    spread = length * distance.step_error + error * distance.radius
    spread += ulps * norm(slopes) * norm(step) + UNDERFLOW
    return float(slopes @ step), spread * SAFETY
