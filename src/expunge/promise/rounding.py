# SPDX-License-Identifier: Apache-2.0
"""Rounding: what floating-point arithmetic can add to what a radius is made of.

A radius is a bound only if it counts what its own computation loses. ``Rounding`` has
all that a state tells of it, each figure computed once; ``Shift`` says by how much sums
over rows change where predictors do, which is how one rounding makes another. All err
on the safe side, are in the units of the sums, and are derived in docs/radii.md,
"Rounding". Notation as in ``removal.state``.
"""

from dataclasses import dataclass
from functools import cached_property
from math import expm1, inf, isfinite, sqrt

from ..core.arrays import UNIT_ROUNDOFF, Vector, norm
from ..core.linalg import MOST_RECENT
from ..core.losses import Loss
from ..core.sums import KINK_EDGES
from ..core.values import SMALLEST, UNDERFLOW, Private
from ..removal import Draft, State
from ..removal.sums import Magnitude

# Roundings of a predictor where the features have changed: of both rows and the map.
LIFTED = 64
STEEPEST = 700.0  # beyond it e^x is no float


@dataclass(frozen=True, slots=True, repr=False)
class Shift(Private):
    """How much sums over rows change as predictors move.

    By a bound that holds for every predictor, where the loss has one. Otherwise by its
    growth: along a way of length a, curvature changes by factors between e^(-nu a) and
    e^(nu a). ``move`` and ``far`` are over |x|: how far predictors move, from how far
    from the anchor.
    """

    loss: Loss
    sizes: Magnitude

    @property
    def is_bounded(self) -> bool:
        """Whether curvature and its change are bounded for every predictor."""
        bounds = self.loss.curvature_bound, self.loss.third_bound
        return all(map(isfinite, bounds))

    def slopes(self, move: float, *, far: float = 0.0) -> float:
        """Return a bound on the sum of w |x| times how far a slope moves."""
        if isfinite(self.loss.curvature_bound):
            return self.loss.curvature_bound * self.sizes.square_norm * move
        rate = self.loss.self_concordance * self.sizes.row_norm
        if not isfinite(rate):
            return inf
        # At a rate of zero, or one so small that it underflows, it is the move itself.
        ratio = _expm1(rate * move) / rate if rate else move
        return self._hessian * self._factor(far) * max(move, ratio)

    def hessian(self, move: float, *, far: float = 0.0) -> float:
        """Return a bound on how far the loss's Hessian moves, in its largest norm."""
        if isfinite(self.loss.third_bound):
            return self.loss.third_bound * self.sizes.moment * move
        rate = self.loss.self_concordance * self.sizes.row_norm
        return self._hessian * self._factor(far) * _expm1(rate * move)

    def trace(self, far: float) -> float:
        """Return a bound on the trace of the loss's Hessian so far from the anchor."""
        loss, sizes = self.loss, self.sizes
        if not isfinite(loss.curvature_bound):
            return self._hessian * self._factor(far)
        most = loss.outputs * loss.curvature_bound * sizes.square_norm
        if not isfinite(loss.third_bound):
            return most
        return min(
            most, sizes.hessian + loss.outputs * loss.third_bound * sizes.moment * far
        )

    def steepest(self, far: float) -> float:
        """Return a bound on the largest eigenvalue of the loss's Hessian there."""
        if isfinite(self.loss.curvature_bound):
            return self.loss.curvature_bound * self.sizes.square_norm
        return self.trace(far)

    def curvature(self, far: float) -> float:
        """Return a bound on the sum of w tr C there."""
        if isfinite(self.loss.curvature_bound):
            return self.loss.outputs * self.loss.curvature_bound * self.sizes.weight
        return self._curvature * self._factor(far)

    def cancelling(self, far: float) -> float:
        """Return a bound on the sum of w |x| (A + B - |A - B|), slopes being A - B.

        Where curvature grows no faster than nu, A + B is at most |l'| + 2 l'' / nu.
        """
        nu, sizes = self.loss.self_concordance, self.sizes
        if not 0.0 < nu < inf:
            return 0.0
        # By Cauchy and Schwarz: rows need not have a column of ones.
        if isfinite(self.loss.curvature_bound):
            typical = sqrt(sizes.weight * sizes.square_norm)
            return 2.0 / nu * self.loss.curvature_bound * typical
        return 2.0 / nu * sqrt(self._curvature * self._hessian) * self._factor(far)

    def _factor(self, far: float) -> float:
        """Return the most by which curvature may have grown."""
        return 1.0 + _expm1(self.loss.self_concordance * self.sizes.row_norm * far)

    @property
    def _hessian(self) -> float:
        # A curvature that underflows may grow.
        return self.sizes.hessian + UNDERFLOW * (1.0 + self.sizes.square_norm)

    @property
    def _curvature(self) -> float:
        return self.sizes.curvature + UNDERFLOW * (1.0 + self.sizes.weight)


def _expm1(x: float) -> float:
    """Return e^x - 1; infinite where it is no float, or x no number."""
    return expm1(x) if x < STEEPEST else inf


@dataclass(frozen=True, repr=False, eq=False)
class Rounding(Private):
    """What rounding may add to sums, predictors, matrices and gradients of a state."""

    state: State

    @cached_property
    def shift(self) -> Shift:
        """How rounded predictors change sums."""
        return Shift(self.state.objective.loss, self.state.magnitude)

    @cached_property
    def count(self) -> float:
        """How many roundings a term of a sum passes through at most.

        Those that the sums count, whatever the order of the additions, and its own.
        Without matrices nothing is multiplied by them, and a row counts its entries.
        """
        sums, outputs = self.state.sums, self.state.objective.loss.outputs
        bare = sums.hessian is None and sums.moment is None
        return sums.roundings + 2.0 * outputs * self._width(summed=bare) + 16.0

    @cached_property
    def sums(self) -> float:
        """Of a sum over the rows, over the sum of its terms' sizes."""
        return 2.0 * UNIT_ROUNDOFF * self.count

    @cached_property
    def weight(self) -> float:
        """Of P, and of a weighted sum of numbers of size one.

        Weights are found by adding those of the rows that come and subtracting those of
        the rows that leave: what was ever summed may be several times the weight at the
        anchor.
        """
        return self.sums * self.state.magnitude.weight

    @cached_property
    def underflow(self) -> float:
        """What products below the smallest normal number can hide from a sum.

        Of gradients, Hessians and masses near kinks alike: in each term a factor of at
        most |x|^2, and perhaps the weight, is multiplied by what was lost.
        """
        reach = 1.0 + self.state.magnitude.row_norm
        return UNDERFLOW * self.count * reach**2 * (1.0 + self.state.magnitude.weight)

    def predictor(self, theta: Vector | float, *, summed: bool = False) -> float:
        """Return by how much a predictor at theta may move, over |x|.

        Of any row, or of one that was ``summed`` in the state: those have few entries
        if they are sparse, and neither a product with zero nor adding zero rounds.
        Products that underflow move it too, if x is not zero: then |x| is not tiny.
        ``theta`` may be its length.
        """
        state = self.state
        size = theta if isinstance(theta, float) else norm(theta)
        width = self._width(summed=summed)
        if state.offset is not None:
            width += LIFTED + state.offset.size
            size = state.row_growth * (state.row_growth * size + norm(state.offset))
        return (width + 2) * (UNIT_ROUNDOFF * size + UNDERFLOW / SMALLEST)

    @cached_property
    def anchor(self) -> float:
        """Of a predictor at the anchor, over |x|.

        Twice as much where rows have left: their predictors were computed again, and
        what was subtracted need not be what had been added.
        """
        moved = self.predictor(self.state.anchor, summed=True)
        return 2.0 * moved if self.state.sums.subtracted else moved

    @cached_property
    def joint(self) -> float:
        """Of a row's slope or curvature, absolutely, where outputs interact.

        A probability of nearly one is rounded by all additions over the classes; twice
        as much where rows have left.
        """
        loss = self.state.objective.loss
        once = 0.0 if loss.independent else (loss.outputs + 2) * UNIT_ROUNDOFF
        return 2.0 * once if self.state.sums.subtracted else once

    @cached_property
    def hessian(self) -> float:
        """Of the kept Hessian, in its largest norm."""
        loss, sizes, moved = self.shift.loss, self.state.magnitude, self.anchor
        error = self.sums * sizes.hessian + self.joint * sizes.square_norm
        error += self.underflow
        if loss.curvature_jump > 0.0:
            # Rows that rounding moves across a kink lie in the first bin, and so does
            # the mass of those it may have moved as they left; if it moves them
            # further, nothing is known.
            kinks = self.state.sums.kinks
            near = 0.0 if kinks is None else float(kinks[0])
            jump = loss.curvature_jump * self.state.row_growth**2 * near
            return error + jump if moved < KINK_EDGES[1] else inf
        return error + self.shift.hessian(moved)

    @cached_property
    def product(self) -> float:
        """Of a product with H_U as kept, over the vector's norm."""
        objective, size = self.state.objective, self.state.anchor.size
        length = self.state.magnitude.hessian
        length += self.state.penalty_weight * (objective.quadratic + 1.0) * sqrt(size)
        # Twice, for the triangle and for the recent rows beside it.
        return 2.0 * (size + MOST_RECENT + 4) * UNIT_ROUNDOFF * length

    @property
    def matrix(self) -> float:
        """Of a product with the true H_U, over the vector's norm."""
        return self.hessian + self.product

    def gradient(self, draft: Draft, *, step: float) -> float:
        """Return that of a gradient over the rows, at a step from the anchor."""
        far, size = self._far(step), norm(draft.theta)
        error = self._sum_of_slopes(far) + self.shift.slopes(self.anchor)
        error += self.shift.slopes(self.predictor(size, summed=True), far=far)
        error += self._gauge(size + norm(self.state.anchor))
        return error + self._rest(draft)

    def residual(self, draft: Draft, *, step: float) -> float:
        """Return that of q, and of what bounds T, at a step from the anchor."""
        if self.state.offset is not None:
            step += self.state.row_growth * norm(self.state.offset)
        return self.gradient(draft, step=0.0) + self.matrix * step

    def gradient_nearby(self, draft: Draft, *, step: float, within: float) -> float:
        """Return a bound on the error of the gradient of a fit so near the draft.

        A fit counts its point twice, as answer and as anchor.
        """
        objective, far = self.state.objective, self._far(step + within)
        size = norm(draft.theta) + within
        moved = self.predictor(size, summed=True)
        error = self._sum_of_slopes(far) + 2.0 * self.shift.slopes(moved, far=far)
        error += self._gauge(2.0 * size) + self._rest(draft)
        # Gradient and subgradient change by no more than the curvature times the way,
        # and the subgradient once more by the gradient at the draft.
        trace, gauge = self.shift.trace(far), float(objective.loss.shift_invariant)
        quadratic = self.largest_penalty_weight * (objective.quadratic + gauge)
        curved = 2.0 * self.shift.steepest(far) + trace + 4.0 * quadratic
        weights = 1.0 / self.state.anchor_weight + 1.0 / self.state.penalty_weight
        share = 16.0 * UNIT_ROUNDOFF + self.weight * weights
        steeper = max(0.0, trace - self.state.magnitude.hessian) * norm(draft.theta)
        return error + share * curved * within + 16.0 * UNIT_ROUNDOFF * steeper

    def floor_nearby(self, way: float) -> float:
        """Return a bound on what a fit so far from the anchor takes off its floor.

        Without what rows near kinks take (``radius.Bend``).
        """
        far, quadratic = self._far(way), self.state.objective.quadratic
        trace, size = self.shift.trace(far), self.state.anchor.size
        moved = self.anchor + self.predictor(way, summed=True)
        whole = self.largest_penalty_weight * (quadratic * size + 1.0) + trace
        test = 4.0 * UNIT_ROUNDOFF * (self.state.block_size + 2) * whole
        jumps = self.state.objective.loss.curvature_jump > 0.0
        bent = 0.0 if jumps else self.shift.hessian(moved, far=far)
        error = self.sums * trace + self.joint * self.state.magnitude.square_norm
        return error + self.underflow + bent + test

    def curvature(self, *, further: float = 0.0) -> float:
        """Return that of a summed curvature of predictors, at parameters further off.

        The sum of w |x| over what was ever summed is at most the root of its weight
        times the sum of w |x|^2.
        """
        loss, sizes = self.shift.loss, self.state.magnitude
        moved, far = self.anchor, 0.0
        if further:
            moved, far = (
                moved + self.predictor(further, summed=True),
                self._far(further),
            )
        if self.shift.is_bounded:
            typical = sqrt(sizes.weight * sizes.square_norm)
            error = self.weight * loss.curvature_bound + self.joint * sizes.weight
            return error + loss.third_bound * moved * typical + self.underflow
        grown = _expm1(loss.self_concordance * sizes.row_norm * moved)
        return self.shift.curvature(far) * (self.sums + grown) + self.underflow

    @property
    def largest_penalty_weight(self) -> float:
        """The largest P since the anchor, of which the quadratic was a multiple."""
        return max(self.state.anchor_weight, self.state.penalty_weight)

    def _width(self, *, summed: bool) -> float:
        """Return the most entries of any row, or of one that was ``summed``."""
        width = float(self.state.anchor.size // self.state.objective.loss.outputs)
        return min(width, self.state.magnitude.n_entries) if summed else width

    def _far(self, step: float) -> float:
        """Return how far predictors are from those at the anchor, over |x|."""
        offset = 0.0 if self.state.offset is None else norm(self.state.offset)
        return step + offset + self.anchor if step or offset else 0.0

    def _sum_of_slopes(self, far: float) -> float:
        """Return that of a sum of w l' x, predictors taken for exact."""
        sizes = self.state.magnitude
        slope = sizes.slope + self.shift.slopes(far)
        cancelling = 8.0 * UNIT_ROUNDOFF * self.shift.cancelling(far)
        joint = self.joint * sqrt(sizes.weight * sizes.square_norm)
        return self.sums * slope + joint + cancelling + self.underflow

    def _gauge(self, size: float) -> float:
        """Return that of the gauge's gradient at parameters of this length."""
        loss = self.shift.loss
        if not (self.state.objective.n_free and loss.shift_invariant):
            return 0.0
        most = self.largest_penalty_weight
        return (loss.outputs + 4) * UNIT_ROUNDOFF * most * size

    def _rest(self, draft: Draft) -> float:
        """Return what adding up gradient, H s, quadratic and subgradient loses."""
        state, objective, theta = self.state, self.state.objective, draft.theta
        kink = 0.0 if objective.smooth else norm(draft.subgradient)
        # P is above the anchor's where rows were added, and multiplies the quadratic.
        factor = self.largest_penalty_weight
        parts = kink + factor * norm(objective.quadratic_gradient(state.anchor))
        parts += (state.magnitude.hessian + factor * objective.quadratic) * norm(theta)
        quadratic = norm(objective.quadratic_gradient(theta))
        drift = self.weight * (quadratic + kink / state.penalty_weight)
        return 16.0 * UNIT_ROUNDOFF * parts + drift
