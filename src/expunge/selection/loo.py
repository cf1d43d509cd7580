# SPDX-License-Identifier: Apache-2.0
r"""Leave-one-out cross-validation without n fits, and bounds on its error.

Leaving a row out is removing it. A removal's state therefore answers for each of the n
rows at once, by one Newton step each (``loo_problems``), and a bound m on the error of
the row's predictor (``loo_bounds``) bounds the error of its loss,

    |l(t_i) - l(t*_i)| <= min(k1 m, |l'(t_i)| m + (k2/2) m^2),  m >= |t_i - t*_i| .

Rows with wide bounds are treated again, in two stages:

refine  the 512 rows that widen the mean's bound most. Their gradients are measured on
        all other rows and their steps repeated, by products of the design with as many
        models as there are rows to refine. A step's quadratic model is that of
        ``loo_problems`` with the measured gradient in place of the anchor's, so the
        bound has no T_i, and b is the measured largest move of a predictor.
refit   32 rows at most that no step from the anchor can serve, because they determine
        the model almost alone. Fresh sums at the refit bound its own error.

Losses and bounds are noise-free functions of every row and therefore private.
"""

from dataclasses import dataclass, replace
from math import inf, isfinite

import numpy as np

from ..core.arrays import (
    SAFETY,
    UNIT_ROUNDOFF,
    Index,
    Matrix,
    Vector,
    row_norms,
    transpose,
)
from ..core.rows import BLOCK_ROWS, Rows
from ..core.sums import largest_norm
from ..core.values import UNDERFLOW, Private
from ..exceptions import InvalidInput
from ..private_model.answers import REFUSALS
from ..promise.bounds import gradient_error, prediction_error
from ..removal import Draft, State
from ..removal.mechanisms import retrain
from ..removal.state import initial_state, keep_sums
from ..removal.summary import summarise
from .loo_bounds import (
    RowGeometry,
    distance_from_moves,
    distance_near_kinks,
    inverse_squares,
    local_terms,
    measure_geometry,
    predictor_error_bounds,
)
from .loo_problems import (
    LeftOutRows,
    LooModels,
    SharedTerms,
    hessian_products,
    left_out_rows,
    residual_rounding,
    row_products,
    share_terms,
    solve_models,
)

# Rows refined at most, and the bound over one plus the loss that needs no refining.
MOST_REFINED = 512
NARROW = 1e-10
# Rows refitted at most, and the bound over one plus the loss that calls for a refit.
MOST_REFITTED = 32
WIDE = 1e-2
# Refining usually ends by itself after three or four steps; more cost little.
REFINING_STEPS = 24
# The share of a gradient that a refining step must fall below.
SHORTER = 0.8
# Stands for an infinite bound where rows are ranked by weight times bound.
HUGE = 1e200


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LooResult(Private):
    """The loss of each row at the model fitted without it, with error bounds.

    Attributes
    ----------
    losses
        Loss of each row at the approximate model without it, (n,).
    error_bounds
        |losses_i - loss at the exact one| <= error_bounds_i; infinite where nothing is
        known.
    weight
        The rows' weights.
    """

    losses: Vector
    error_bounds: Vector
    weight: Vector

    @property
    def value(self) -> float:
        """The weighted mean of the losses: the leave-one-out error."""
        return float(self.weight @ self.losses) / float(self.weight.sum())

    @property
    def error_bound(self) -> float:
        """How far ``value`` can be off: the mean of the bounds, plus rounding."""
        counted = self.weight > 0.0  # zero times an infinite bound is not a number
        weight = self.weight[counted]
        rounding = 4.0 * (weight.size + 4) * UNIT_ROUNDOFF
        bounds = (1.0 + rounding) * self.error_bounds[counted]
        bounds = bounds + rounding * np.abs(self.losses[counted])
        return float((weight / weight.sum()) @ bounds) + UNDERFLOW


def leave_one_out(
    state: State, rows: Rows, *, row_norm: float | None = None
) -> LooResult:
    """Return the loss of every remaining row at the model without it.

    Parameters
    ----------
    state
        A certified state, with Hessian and moment; it may have any anchor, and rows
        may have been removed from it already.
    rows
        Exactly the rows that remain.
    row_norm
        A bound on every row's norm declared in advance; if not given, the largest norm
        among the rows.
    """
    shared = share_terms(state, rows)
    geometry = measure_geometry(shared, rows, row_norm=_row_norm(rows, row_norm))
    problem = _LooProblem(shared, geometry, rows)
    places = np.arange(len(rows))
    blocks = [
        problem.solve(places[begin : begin + BLOCK_ROWS])
        for begin in range(0, len(rows), BLOCK_ROWS)
    ]
    found = LooResult(
        losses=np.concatenate([block.losses for block in blocks]),
        error_bounds=np.concatenate([block.error_bounds for block in blocks]),
        weight=rows.weight,
    )
    worst = _widest(found, most=MOST_REFINED, enough=NARROW)
    if worst.size:
        found = _replace_if_narrower(found, worst, others=problem.refine(worst))
    worst = _widest(found, most=MOST_REFITTED, enough=WIDE)
    if worst.size:
        found = _replace_if_narrower(found, worst, others=problem.refit(worst))
    return found


def _row_norm(rows: Rows, declared: float | None) -> float:
    """Return a bound on every row's norm: the declared one, if it holds."""
    largest = largest_norm(rows)
    if declared is not None and largest > declared:
        raise InvalidInput(
            f"a row is longer than row_norm={declared:g} (intercept included); declare "
            "a larger one, or omit row_norm"
        )
    return largest if declared is None else declared


def _widest(found: LooResult, *, most: int, enough: float) -> Index:
    """Return the rows that widen the mean's bound most, unless theirs is enough."""
    bounds = np.where(found.weight > 0.0, np.minimum(found.error_bounds, HUGE), 0.0)
    order = np.argsort(-found.weight * bounds, kind="stable")[:most]
    return order[bounds[order] > enough * (1.0 + found.losses[order])]


def _replace_if_narrower(
    found: LooResult, index: Index, *, others: LooResult
) -> LooResult:
    """Return what was found, with the rows at ``index`` replaced if bounds fall."""
    better = others.error_bounds < found.error_bounds[index]
    losses, bounds = found.losses.copy(), found.error_bounds.copy()
    losses[index[better]] = others.losses[better]
    bounds[index[better]] = others.error_bounds[better]
    return LooResult(losses, bounds, found.weight)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _LooProblem(Private):
    """Rows to leave out, and three ways to do so, from cheap to expensive."""

    shared: SharedTerms
    geometry: RowGeometry
    rows: Rows

    def solve(self, index: Index) -> LooResult:
        """Return losses and bounds of some rows, from the state's sums alone."""
        shared, geometry = self.shared, self.geometry
        gone = left_out_rows(shared.state, self.rows, index=index)
        models = solve_models(shared, gone)
        errors = predictor_error_bounds(shared, geometry, gone=gone, models=models)
        return self._bound_losses(index, step=models.step, errors=errors)

    def refine(self, index: Index) -> LooResult:
        """Return losses and bounds of some rows, with gradients measured on all."""
        gone = left_out_rows(self.shared.state, self.rows, index=index)
        models = solve_models(self.shared, gone)
        models = refine_models(self.shared, self.rows, gone=gone, models=models)
        errors = self._measured_errors(gone, models)
        return self._bound_losses(index, step=models.step, errors=errors)

    def refit(self, index: Index) -> LooResult:
        """Return losses and bounds of a few rows, each by a fit without it."""
        models, errors = zip(
            *(self._refit_without(int(place)) for place in index), strict=True
        )
        step = np.array(models) - self.shared.state.anchor
        return self._bound_losses(index, step=step, errors=np.array(errors))

    def _measured_errors(self, gone: LeftOutRows, models: LooModels) -> Vector:
        """Return bounds on |x_i.(theta_i - theta*)| from measured gradients."""
        shared, geometry = self.shared, self.geometry
        loss = shared.state.objective.loss
        with np.errstate(all="ignore"):  # an infinite ingredient: an infinite bound
            terms = local_terms(shared, geometry, gone=gone, models=models)
            own = np.sqrt(geometry.squares[gone.index])
            if loss.curvature_jump > 0.0:
                distance = distance_near_kinks(
                    shared, geometry, gone=gone, S=models.step, terms=terms
                )
            elif isfinite(loss.self_concordance):
                b = loss.self_concordance * self._largest_moves(gone, models.step)
                longest = loss.self_concordance * geometry.longest
                distance = distance_from_moves(terms, b, longest=longest)
            else:
                distance = np.full(len(own), inf)
            bound = own * distance
        return np.where(np.isnan(bound), inf, bound) * SAFETY + UNDERFLOW

    def _largest_moves(self, gone: LeftOutRows, S: Matrix) -> Vector:
        """Return the largest move of a predictor among the rows not left out."""
        state, rows, largest = self.shared.state, self.rows, np.zeros(len(S))
        for begin in range(0, len(rows), BLOCK_ROWS):
            block = rows.take(slice(begin, begin + BLOCK_ROWS))
            others = np.arange(begin, begin + len(block))[:, None] != gone.index
            moves = np.abs(block.X @ S.T) * others
            np.maximum(largest, moves.max(axis=0), out=largest)
        longest = S[np.argmax(row_norms(S))]
        rounding = prediction_error(state, longest) * state.scales.row_norm
        return (largest + rounding) * SAFETY

    def _refit_without(self, place: int) -> tuple[Vector, float]:
        """Return the model fitted without one row, and its predictor's error bound.

        The bound is infinite where there is no such model, or none can be certified.
        """
        state, rows = self.shared.state, self.rows
        rest = rows.without(np.array([place]))
        lighter = state.replace(weight=rest.total_weight, n_rows=len(rest))
        try:
            objective = state.objective.after(lighter.kept)
            solution = retrain(objective, rest, start=state.last)
            summary = summarise(
                objective, rest, theta=solution.theta, subgradient=solution.subgradient
            )
            fresh = keep_sums(initial_state(summary), summary, moment=True)
            shared = share_terms(fresh, rest)
        except REFUSALS:
            return state.anchor, inf
        geometry = measure_geometry(shared, rest, row_norm=self.geometry.row_norm)
        X = rows.take(np.array([place])).dense()
        square = inverse_squares(shared, X, floor=geometry.floor)
        geometry = replace(geometry, squares=np.append(geometry.squares, square))
        # A removal that takes nothing away, of a row that is not among the rest.
        nothing, one = np.zeros(1), np.ones(1)
        step, subgradient = np.zeros((1, X.shape[1])), solution.subgradient[None, :]
        gradient, index = fresh.smooth_gradient[None, :], np.array([len(rest)])
        gone = LeftOutRows(index, X, nothing, nothing, one, nothing, gradient)
        rounding = residual_rounding(shared, step, subgradient=subgradient)
        models = LooModels(step, subgradient, gradient + subgradient, rounding)
        errors = predictor_error_bounds(shared, geometry, gone=gone, models=models)
        return solution.theta, float(errors[0])

    def _bound_losses(self, index: Index, *, step: Matrix, errors: Vector) -> LooResult:
        """Return the rows' losses at anchor + step, given their predictors' errors."""
        state, some = self.shared.state, self.rows.take(index)
        loss, X, theta = state.objective.loss, some.dense(), state.anchor + step
        t = row_products(X, theta)
        longest = theta[np.argmax(row_norms(theta))]
        rounding = prediction_error(state, longest)
        rounding += prediction_error(state, state.anchor)
        off = errors + row_norms(X) * rounding
        losses, slope = loss.value(some.y, t), np.abs(loss.slope(some.y, t))
        # fmin ignores zero times infinity.
        with np.errstate(invalid="ignore", over="ignore"):
            bounds = slope * off + 0.5 * loss.curvature_bound * off**2
            bounds = np.fmin(bounds, loss.slope_bound * off)
        # A few roundings of the loss's value, and of a margin.
        bounds += 8.0 * UNIT_ROUNDOFF * (losses + slope * (1.0 + np.abs(t))) + UNDERFLOW
        return LooResult(losses, bounds, some.weight)


def refine_models(
    shared: SharedTerms, rows: Rows, *, gone: LeftOutRows, models: LooModels
) -> LooModels:
    """Return the models after steps with measured gradients, which are their residuals.

    A step is kept if it shortens the gradient. A row is finished when no step does, or
    when only rounding is left.
    """
    best = _measure_gradients(shared, rows, gone=gone, models=models)
    going = np.flatnonzero(row_norms(best.residual) > best.rounding)
    for _ in range(REFINING_STEPS):
        if not going.size:
            break
        some, before = gone.take(going), best.take(going)
        slope = before.residual - before.subgradient
        here = slope - hessian_products(shared.state, some, S=before.step)
        tried = solve_models(shared, replace(some, gradient=here))
        tried = _measure_gradients(shared, rows, gone=some, models=tried)
        better = row_norms(tried.residual) < SHORTER * row_norms(before.residual)
        best = best.replace_at(going[better], tried.take(np.flatnonzero(better)))
        going = going[better & (row_norms(tried.residual) > tried.rounding)]
    return best


def _measure_gradients(
    shared: SharedTerms, rows: Rows, *, gone: LeftOutRows, models: LooModels
) -> LooModels:
    """Return the models with their gradients on the remaining rows as residuals."""
    state, loss = shared.state, shared.state.objective.loss
    theta = state.anchor + models.step
    total = np.zeros_like(theta)
    for block in rows.blocks(BLOCK_ROWS):
        y = np.repeat(block.y, len(theta))
        slope = loss.slope(y, (block.X @ theta.T).ravel()).reshape(len(block), -1)
        total += (transpose(block.X) @ (block.weight[:, None] * slope)).T
    own = loss.slope(gone.y, row_products(gone.X, theta)) * gone.share
    diagonal, _ = state.objective.quadratic_form(state.anchor.size)
    quadratic = gone.scale[:, None] * (diagonal * theta)
    slopes = total / state.anchor_weight - own[:, None] * gone.X
    largest = Draft(np.abs(theta).max(axis=0), np.abs(models.subgradient).max(axis=0))
    # Twice: a row's slope is computed again to be subtracted.
    rounding = 2.0 * gradient_error(
        shared.lighter, largest, step=float(row_norms(models.step).max())
    )
    residual = slopes + quadratic + models.subgradient
    return replace(models, residual=residual, rounding=np.full(len(theta), rounding))
