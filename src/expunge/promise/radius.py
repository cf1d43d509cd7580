# SPDX-License-Identifier: Apache-2.0
"""Radii: sound upper bounds on the distance to the retrained model.

Each starts from one computed residual, and none assumes anything about the mechanism.
With theta* = argmin G_U and grad G_U(theta_bar) = q(s) + T(s), s the step from the
anchor:

measured        (|q| + |T|) / mu_U: strong convexity, no rows needed.
measured-local  the same in the norm of H_U, for self-concordant losses; also where
                nothing penalises an intercept, and finite only if theta* exists. For
                other losses by how far the gradient may leave its linear model.
residual        |r| / mu_U with r the gradient measured on the remaining rows.
residual-local  the local bounds from r, for self-concordant losses by the largest move
                of a predictor.
two-step        |s2| + the radius of theta_bar + s2, s2 a further Newton step.

(The sixth kind, a-priori, knows constants alone: see ``capacity``.)

``Radii`` are those of one draft. What they rest on is computed from a certified state,
once and only if it is asked for: its ``rounding``, its ``floor``s and the third order;
all of it errs on the safe side. Notation as in ``removal.state``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import exp, expm1, inf, isfinite, sqrt

import numpy as np

from ..core.arrays import SAFETY, UNIT_ROUNDOFF, Vector, norm
from ..core.linalg import weighted_sum
from ..core.rows import RowSource
from ..core.sums import KINK_EDGES, hessian_lost, largest_move
from ..core.values import UNDERFLOW, Private, stored
from ..removal import Draft, State, residual
from .floor import (
    LEAST_SHARE,
    NumberFloor,
    approximate_solution,
    curvature_floor,
    intercept_form,
    local_radius,
    local_way,
    quick_floor,
    split_length,
    strong_convexity,
)
from .rounding import LIFTED, Rounding
from .verification import RadiusKind

NO_NUMBERS: Vector = np.empty(0)
# How often the way is widened on which rows may cross a kink, each time because half of
# the curvature is lost on it; what is left then; and how often for a fit elsewhere.
WIDENINGS, WIDENED, NEARER = 40, 2.0**-36, 3
# The first way of an answer that is looked at, over what its gradient leads to; and how
# much more doubt about the side of a kink leaves a fit elsewhere as much as it takes.
FURTHER, DOUBTS = 12.0, 3.0


@stored
@dataclass(frozen=True, slots=True, repr=False)
class Radius(Private):
    """A bound and how it was found. Private: it is a function of removed rows."""

    value: float
    kind: RadiusKind


@dataclass(frozen=True, repr=False, eq=False)
class Radii(Private):
    """All radii of an answer.

    Parameters
    ----------
    state, draft
        A certified state and the answer read from it.
    row_norm
        A bound on every row's norm promised in advance; if not given, the largest
        norm among the rows at the anchor.
    remaining
        The remaining rows, for the kinds that look at them; their gradient must
        have been measured by the draft's mechanism.
    known
        A floor of the state's Hessian, if it was found before, and its rounding.
    """

    state: State
    draft: Draft
    row_norm: float | None = None
    remaining: RowSource | None = None
    known: NumberFloor | None = None

    def best(self, enough: float = 0.0) -> Radius:
        """Return the smallest radius, and its kind.

        The kinds are tried from the cheapest to the dearest, up to the first that is
        not above ``enough``, what need not be improved.
        """
        best = Radius(inf, "residual")
        for kind, bound in self._kinds(enough):
            value = bound()
            if value < best.value:
                best = Radius(value, kind)
            if best.value <= enough:
                break
            # After a look beside a free intercept only what predictors do not move may
            # be less, and where that is not enough a step costs less.
            if bound == self.residual_local and self.modulus == 0.0 and enough > 0.0:
                most = self.rate * self.longest * self._lifted_length
                if inf > best.value > enough * exp(min(most, 700.0)):
                    break
        return best

    def _kinds(
        self, enough: float = 0.0
    ) -> Iterator[tuple[RadiusKind, Callable[[], float]]]:
        """Yield the kinds that can be computed, from the cheapest to the dearest."""
        sums, local = self.state.sums, self.residual_local
        looked = self.draft.measured is not None and sums.hessian is not None
        yield "residual", self.residual
        if sums.curvature is not None and self.state.objective.n_free:
            yield "residual-local", self.intercept
        if looked:
            yield "residual-local", partial(local, quick=True)
            yield "residual-local", local
        if sums.moment is not None:
            yield "measured", self.measured
            yield "measured-local", partial(self.measured_local, quick=True)
            yield "measured-local", self.measured_local
            if not isfinite(self.rate) and self.modulus == 0.0:
                yield "residual-local", partial(self.near, seen=True, quick=True)
                yield "measured-local", partial(self.near, quick=True)
                yield "residual-local", partial(self.near, seen=True)
                yield "measured-local", self.near
                yield "residual-local", partial(self.apart, enough=enough)
            yield "two-step", self.two_step
        if looked and self.remaining is not None:
            yield "residual-local", partial(local, quick=True, by_move=True)
            yield "residual-local", partial(local, by_move=True)

    @cached_property
    def rounding(self) -> Rounding:
        """What rounding may add."""
        known = None if self.known is None else self.known.rounding
        return Rounding(self.state) if known is None else known

    @cached_property
    def step(self) -> Vector:
        """s: from the anchor to the draft."""
        return self.draft.theta - self.state.anchor

    @cached_property
    def length(self) -> float:
        """|s|."""
        return norm(self.step)

    @cached_property
    def modulus(self) -> float:
        """mu_U: zero where nothing penalises some direction."""
        return strong_convexity(self.rounding)

    @cached_property
    def floor(self) -> NumberFloor:
        """A floor proved by a Cholesky factor, or mu_U."""
        if self.known is not None:
            return self.known
        return NumberFloor(curvature_floor(self.rounding), self.rounding)

    @cached_property
    def quick_floor(self) -> NumberFloor:
        """A floor that takes no factor, where outputs with free intercepts are apart.

        Where there is none it is zero.
        """
        return NumberFloor(quick_floor(self.rounding))

    @property
    def rate(self) -> float:
        """How fast curvature may fall: self-concordance, zero where it is constant."""
        loss = self.state.objective.loss
        constant = loss.third_bound == 0.0 and loss.curvature_jump == 0.0
        return 0.0 if constant else loss.self_concordance

    @property
    def longest(self) -> float:
        """R: a bound on the norm of a row."""
        own = self.state.magnitude.row_norm
        return own if self.row_norm is None else self.row_norm

    def residual(self) -> float:
        """Return |r| / mu_U from the gradient that the draft's mechanism measured."""
        if self.draft.measured is None or self.modulus == 0.0:
            return inf
        rounding = self.rounding.gradient(self.draft, step=self.length)
        return _over(norm(self.draft.measured) + rounding, self.modulus)

    def measured(self) -> float:
        """Return (|q| + |T| + rounding) / mu_U, or over the floor for squared loss."""
        floor = self.modulus
        if floor == 0.0 and self.state.objective.loss.third_bound == 0.0:
            floor = self.floor.smallest
        if floor == 0.0:
            return inf
        missed = third_order_bound(self.rounding, self.step)
        rounding = self.rounding.residual(self.draft, step=self.length)
        return _over(norm(self._residual) + missed + rounding, floor)

    def measured_local(self, *, quick: bool = False) -> float:
        """Return the local radius from q(s), for self-concordant losses.

        If ``quick``, by a floor of the curvature that needs no factor.
        """
        floor = self._floor(quick=quick)
        if floor is None:
            return inf
        root, b = sqrt(floor.smallest), self.rate * self.longest * self._lifted_length
        rounding = self.rounding.residual(self.draft, step=self.length) / root
        missed = min(
            growth(b) * hessian_form(self.rounding, self.step),
            third_order_bound(self.rounding, self.step) / root,
        )
        decrement = floor.dual_norm(self._residual) + rounding + missed
        return self._local(floor, decrement, b=b)

    def residual_local(self, *, quick: bool = False, by_move: bool = False) -> float:
        """Return the local radius from r.

        How far predictors move is bounded by the longest row, or, which takes another
        pass, by the largest move of one.
        """
        return self.distances(quick=quick, by_move=by_move)[0]

    def distances(
        self, *, quick: bool = False, by_move: bool = True
    ) -> tuple[float, float]:
        """Return the local radius from r, and the same bound in the norm of H_U.

        Infinite for a loss that is not self-concordant.
        """
        seen = self._seen(quick=quick, by_move=by_move)
        if seen is None:
            return inf, inf
        floor, decrement, b = seen
        fade = half_exponential(b)
        there = floor.faded(b, self.modulus)
        way = local_way(there, fade * decrement, rate=self.rate, R=self.longest)
        return self._local(floor, decrement, b=b), fade * way * SAFETY

    def _seen(
        self, *, quick: bool, by_move: bool
    ) -> tuple[NumberFloor, float, float] | None:
        """Return a floor, |r| in the norm of H_U^-1, and how far predictors moved."""
        floor, measured = self._floor(quick=quick), self.draft.measured
        if floor is None or measured is None:
            return None
        move = self.longest * self._lifted_length
        if by_move:
            move = self._moved
        rounding = self.rounding.gradient(self.draft, step=self.length)
        decrement = floor.dual_norm(measured) + rounding / sqrt(floor.smallest)
        return floor, decrement, self.rate * move * SAFETY

    def near(self, *, seen: bool = False, quick: bool = False) -> float:
        """Return the local radius of a loss that is not self-concordant.

        Where nothing penalises some direction: from the curvature at the anchor, and
        from what its jumps, or the third derivative, may take of it on a way of the
        radius. By r if the remaining rows were ``seen``, otherwise by q(s).
        """
        if not self.bend.growth < inf:
            return inf
        floor = (self.quick_floor if quick else self.floor).smallest
        return self.bend.distance(self._left(seen=seen), floor)

    def apart(self, *, enough: float = 0.0) -> float:
        """Return |r| over the curvature that no way of this length takes from the rows.

        What those have of the Hessian that a way may take across a kink, or that the
        step from the anchor has taken, is known as it is, and not by their mass alone.
        Not tried where it cannot be ``enough``.
        """
        if not self._sees_kinks:
            return inf
        left, floor = self._left(seen=True), self._start
        if enough and floor and left > enough * floor / LEAST_SHARE:
            return inf
        if enough and floor:  # by the one pass that tells of a fit, too
            way = _over(FURTHER * left, floor)
            radius = _over(left, self._kept(way, doubts=DOUBTS))
            return radius if radius <= way else inf
        way = _over(2.0 * left, floor) if floor else 0.0
        for _ in range(WIDENINGS):
            radius = _over(left, self._kept(way))
            if radius <= way or not radius < inf:
                return radius
            way = 2.0 * radius
        return inf

    def intercept(self) -> float:
        """Return the local radius of an answer that is its own anchor.

        Infinite for a loss that is not self-concordant, and where the rows do not hold
        the intercepts.
        """
        measured = self.draft.measured
        if measured is None or not isfinite(self.rate) or self.step.any():
            return inf
        form = intercept_form(self.rounding)
        if form is None:
            return inf
        rounding = self.rounding.gradient(self.draft, step=0.0) / sqrt(form.smallest)
        decrement = form.dual_norm(measured) + rounding
        return local_radius(form, decrement, rate=self.rate, R=self.longest)

    def enough(self, allowed: float) -> float:
        """Return about what share of the measured gradient leaves a radius allowed.

        Of an answer that is its own anchor. Zero where rounding alone is more, or
        nobody knows. Nothing rests on it: it says how far to solve.
        """
        measured = self.draft.measured
        size = 0.0 if measured is None else norm(measured)
        if measured is None or not size:
            return 0.0
        rounding = self.rounding.gradient(self.draft, step=0.0)
        if self.modulus > 0.0:
            return max(0.0, allowed * self.modulus - rounding) / size
        form = intercept_form(self.rounding)
        if form is None or not isfinite(self.rate):
            return 0.0
        # The local radius, solved for the gradient.
        root, reach = sqrt(form.smallest), self.rate * form.longest_row(self.longest)
        way = allowed * root
        decrement = -expm1(-reach * way) / reach if reach else way
        return max(0.0, decrement - rounding / root) / form.dual_norm(measured)

    def two_step(self) -> float:
        """Return |s2| plus the radius of theta_bar + s2, without a second pass.

        Smooth objectives only: a subgradient at theta_bar is none at theta_bar + s2.
        """
        state, measured = self.state, self.draft.measured
        k3 = state.objective.loss.third_bound
        if measured is None or not (state.objective.smooth and isfinite(k3)):
            return inf
        if state.features is not None:  # anchoring at the rows costs as little
            return inf
        s2 = -approximate_solution(state, measured)
        left, size = norm(measured + state.hessian_operator()(s2)), norm(s2)
        if k3:
            first = moment_forms(self.rounding, self.step)
            second = moment_forms(self.rounding, s2)
            left += _root_of_squares(k3 * second * (first + 0.5 * second))
        left += self.rounding.gradient(self.draft, step=self.length)
        left += self.rounding.matrix * size
        return size + _over(left, self.modulus)

    def of_a_fit(self, within: float, *, enough: float = 0.0) -> float:
        """Return a bound on the radius that a fit to the remaining rows gives itself.

        It is not made any smaller than ``enough``.

        For a solver that leaves a gradient r_B no larger than its rounding e_B, at a
        point that is ``within`` of this draft, radius + tau: then |r_B| + e_B <= 2 e_B.
        Each term of e_B is bounded at any such point, and what this state counts of
        rows and roundings is no less than what the fit counts. Strong convexity is the
        same in both. Without it, curvature falls by no more than e^-b over a way of b
        in predictors, and the floor that the fit finds is at least a share of the
        smallest eigenvalue (``floor.LEAST_SHARE``) less its error. How far predictors
        are from the anchor takes another pass, where the length of the step does not
        do. Derived in docs/radii.md, "Acceptance".
        """
        if not within < inf:
            return inf
        error = self.rounding.gradient_nearby(
            self.draft, step=self.length, within=within
        )
        if self.modulus > 0.0:
            return _over(2.0 * error, self.modulus)
        if not isfinite(self.rate):
            found = self._near_a_fit(error, within)
            if found <= enough:
                return found
            return min(found, self._apart_from_a_fit(error, within))
        far = self.longest * self._lifted_length
        found = self._of_a_fit_at(far, error, within=within, enough=enough)
        seen = self.draft.measured is not None and self.remaining is not None
        if found > enough and seen and self.rate:
            moved = self._moved
            closer = self._of_a_fit_at(moved, error, within=within, enough=enough)
            found = min(found, closer)
        return found

    def _of_a_fit_at(
        self, far: float, error: float, *, within: float, enough: float
    ) -> float:
        """Return ``of_a_fit`` of an answer whose predictors are so far from the anchor.

        ``error`` is e_B.
        """
        state, rounding = self.state, self.rounding
        further = max(1.0, state.row_growth) * within
        b = self.rate * (far + self.longest * further) * SAFETY
        if not b < 300.0:
            return inf
        if state.sums.hessian is None:
            form = intercept_form(rounding, way=self.length + within, b=b)
            if form is None or not form.smallest > 0.0:
                return inf
            decrement = 2.0 * error / sqrt(form.smallest)
            return local_radius(form, decrement, rate=self.rate, R=self.longest)
        off = rounding.floor_nearby(self.length + within)
        kept = max(0.0, 1.0 - rounding.weight / state.penalty_weight)

        def above(low: float) -> float:
            floor = (LEAST_SHARE * low * exp(-b) - off) * kept
            if not floor > 0.0:
                return inf
            decrement = 2.0 * error / sqrt(floor)
            found = NumberFloor(floor)
            return local_radius(found, decrement, rate=self.rate, R=self.longest)

        # The better one, if it is known already.
        quick = inf if "floor" in vars(self) else above(self.quick_floor.smallest)
        return quick if quick <= enough else above(self.floor.smallest)

    @cached_property
    def bend(self) -> "Bend":
        """How far the gradient may leave its linear model on a way from the draft."""
        if isfinite(self.rate) or self.modulus > 0.0 or self.state.sums.hessian is None:
            return Bend(NO_NUMBERS, NO_NUMBERS, growth=inf)
        return Bend.of(self.rounding, start=self._lifted_length)

    def _left(self, *, seen: bool) -> float:
        """Return a bound on the gradient at the draft, by r or by q(s) and T(s)."""
        measured = self.draft.measured
        if seen and measured is not None:
            rounding = self.rounding.gradient(self.draft, step=self.length)
            return norm(measured) + rounding
        if seen:
            return inf
        missed = third_order_bound(self.rounding, self.step)
        rounding = self.rounding.residual(self.draft, step=self.length)
        return norm(self._residual) + missed + rounding

    def _near_a_fit(self, error: float, within: float) -> float:
        """Return ``of_a_fit`` for a loss that is not self-concordant.

        What the fit leaves of the gradient is at most 2 ``error``, so that its point is
        as near as that tells, and its curvature and its rows' distances to kinks are
        ours, less what that way takes of them.
        """
        state, bend, rounding = self.state, self.bend, self.rounding
        known = 0.0 if "floor" in vars(self) else self.quick_floor.smallest
        floor = known or self.floor.smallest
        left = min(self._left(seen=True), self._left(seen=False)) + 2.0 * error
        within = min(within, bend.distance(left, floor))
        if not within < inf:
            return inf
        way = bend.start + within
        moved = rounding.predictor(norm(self.draft.theta) + within)
        there, doubtful = bend.after(way, moved)
        low = (
            LEAST_SHARE * (floor - bend.lost(way))
            - rounding.floor_nearby(way)
            - doubtful
        )
        low *= max(0.0, 1.0 - rounding.weight / state.penalty_weight)
        return there.distance(2.0 * error, low) * SAFETY

    @property
    def _sees_kinks(self) -> bool:
        """Whether rows beside a jump of the curvature can be looked at, and must be."""
        jumps = self.state.objective.loss.curvature_jump > 0.0
        return jumps and self.bend.growth < inf and self.remaining is not None

    @cached_property
    def _bare(self) -> State:
        """The state, of which every row beside a kink is told, if none was subtracted.

        Then no table need say what the Hessian may have of them.
        """
        sums = self.state.sums
        bare = sums if sums.subtracted else sums.replace(kinks=None)
        return self.state.replace(sums=bare)

    @cached_property
    def _start(self) -> float:
        """A floor of H_U with every row in it; zero where one is right at a kink."""
        kinks = self.state.sums.kinks
        return self.floor.smallest if kinks is not None and not kinks[0] else 0.0

    @cached_property
    def _floors(self) -> dict[tuple[float, float], float]:
        """What ``_kept`` has found."""
        return {}

    def _kept(self, way: float, *, doubts: float = 1.0) -> float:
        """Return a floor of H_U less what rows may lack of it on such a way.

        By rounding they may be beyond a kink that is ``doubts`` times as far as it is
        for a fit.
        """
        if (way, doubts) in self._floors:
            return self._floors[way, doubts]
        state, rows = self._bare, self.remaining
        assert rows is not None
        rounding, offset = self.rounding, state.offset
        before, shifted = 2.0 * rounding.predictor(state.anchor), 0.0
        if offset is not None:  # rows as they were summed have other lengths
            shifted = (norm(offset) + before) * state.magnitude.row_norm * SAFETY
        lost, n_lost = hessian_lost(
            state.objective.loss,
            rows,
            anchor=state.anchor,
            theta=self.draft.theta,
            way=way,
            doubts=(
                2.0 * doubts * rounding.predictor(self.draft.theta),
                before,
                shifted,
            ),
        )
        left = weighted_sum([(1.0, state.sums.loss_hessian), (-1.0, lost)])
        rest = state.replace(sums=state.sums.replace(hessian=left), cache=None)
        found = curvature_floor(Rounding(rest)) - self._subtracting(n_lost)
        self._floors[way, doubts] = found
        return found

    def _subtracting(self, n_rows: int) -> float:
        """Return the rounding of what so many rows had of H_U.

        Zeros of other blocks round nothing; LIFTED pays for a map of features.
        """
        count = n_rows + self.state.anchor.size + LIFTED
        return 4.0 * UNIT_ROUNDOFF * count * self.state.magnitude.hessian

    def _apart_from_a_fit(self, error: float, within: float) -> float:
        """Return ``of_a_fit`` by what a fit sees of rows beside kinks.

        Its point is as near as ``within``, or as our curvature and its gradient tell;
        rows that are farther from a kink than that and its own way have there what they
        have here.
        """
        left, state = self._left(seen=True) + 2.0 * error, self.state
        if not self._sees_kinks or not left < inf:
            return inf
        rounding, rows = self.rounding, self.remaining
        assert rows is not None
        share = max(0.0, 1.0 - rounding.weight / state.penalty_weight)
        known = [way for way, doubts in self._floors if doubts == DOUBTS]
        way = known[0] if known else min(within, _over(2.0 * left, self._start)) * 2.0
        for _ in range(NEARER):
            kept = self._kept(way, doubts=DOUBTS)
            near = _over(left, kept)
            near = min(within, near) if near <= way else within
            far = self._lifted_length + max(1.0, state.row_growth) * near
            off = rounding.floor_nearby(far) + self._subtracting(len(rows))
            found = (LEAST_SHARE * kept - off) * share
            radius = _over(2.0 * error, found)
            moved = 4.0 * rounding.predictor(near)
            needed = (near + 2.0 * radius + moved) * (1.0 + 1e-9)
            if needed <= way:
                # A fit widens its way while that takes half of what is left.
                whole = rounding.shift.trace(far) + rounding.largest_penalty_weight
                least = whole * (1.0 + state.objective.quadratic) * WIDENED
                there = rounding.predictor(norm(self.draft.theta) + near)
                safe = found > least and there < KINK_EDGES[1]
                return radius if safe else inf
            if not needed < inf:
                break
            way = 2.0 * needed
        return inf

    @cached_property
    def _residual(self) -> Vector:
        return residual(self.state, self.draft)

    @cached_property
    def _lifted_length(self) -> float:
        return norm(self.state.lift(self.step))

    @cached_property
    def _moved(self) -> float:
        """How far a remaining row's predictors are from those that were summed."""
        offset = self.state.offset
        more = 0.0 if offset is None else norm(offset)
        more += self.rounding.predictor(self.length)
        return (self._move + more * self.longest) * SAFETY

    @cached_property
    def _move(self) -> float:
        """How far the step moves a remaining row's predictors at most."""
        moved = self.draft.moved
        if moved is not None and np.array_equal(moved[0], self.step):
            return moved[1]
        if not self.step.any():  # an answer at the anchor moves no row: no need to look
            return 0.0
        assert self.remaining is not None
        loss = self.state.objective.loss
        return largest_move(loss, self.remaining, step=self.step)

    def _floor(self, *, quick: bool) -> NumberFloor | None:
        """Return a floor that a local radius can rest on, if there is one."""
        if not isfinite(self.rate):
            return None
        floor = self.quick_floor if quick else self.floor
        return floor if floor.smallest > 0.0 else None

    def _local(self, floor: NumberFloor, decrement: float, *, b: float) -> float:
        """Return the local radius at the draft, b away in predictor space."""
        there, decrement = floor.faded(b, self.modulus), half_exponential(b) * decrement
        return local_radius(there, decrement, rate=self.rate, R=self.longest)


def best_radius(
    state: State,
    draft: Draft,
    *,
    remaining: RowSource | None = None,
    row_norm: float | None = None,
    enough: float = 0.0,
) -> Radius:
    """Return the smallest of all ``Radii``, and its kind."""
    return Radii(state, draft, row_norm, remaining).best(enough)


def third_order_bound(rounding: Rounding, s: Vector) -> float:
    """Return a bound on |T(s)|, the gradient that the quadratic model misses.

    (k3/2) s'K_U s for a Lipschitz curvature, summed over outputs, or the root of a sum
    of squares if they do not interact; where it jumps by J, J sum w |x|^2 (|s| -
    distance/|x|)_+ over the remaining rows. All are about the features that were
    summed, times kappa if the features have changed.
    """
    state = rounding.state
    loss, lifted = state.objective.loss, state.lift(s)
    if loss.curvature_jump > 0.0:
        return Bend.of(rounding).over(norm(lifted) / state.row_growth)
    if not 0.0 < loss.third_bound < inf:
        return loss.third_bound
    forms = moment_forms(rounding, lifted)
    return _root_of_squares(0.5 * loss.third_bound * forms * forms)


@dataclass(frozen=True, slots=True, repr=False)
class Bend(Private):
    """How far the gradient may leave its linear model on a way of length a.

        sum_j masses_j min(a, max(start + a - edges_j, 0)) + growth (start + a/2) a

    bounds |T(s + D) - T(s)| for |D| = a and |s| at most ``start``: curvature jumps in
    rows with so much mass, these are no nearer to a kink than the edges, and curvature
    elsewhere is Lipschitz. In the present features; derived in docs/radii.md, "Kinks"
    and "Local bends".
    """

    masses: Vector
    edges: Vector
    growth: float = 0.0
    start: float = 0.0

    @classmethod
    def of(cls, rounding: Rounding, *, start: float = 0.0) -> "Bend":
        """Return that of a state, ``start`` as one of the features that were summed."""
        state, kappa = rounding.state, rounding.state.row_growth
        loss, sizes = state.objective.loss, state.magnitude
        if not loss.curvature_jump > 0.0:
            growth = loss.third_bound * kappa**3 * sizes.moment if sizes.moment else 0.0
            growth *= 1.0 + rounding.sums
            return cls(NO_NUMBERS, NO_NUMBERS, growth, start / kappa)
        assert state.sums.kinks is not None
        # Rounding may have counted a row one bin too far, and a bin's mass is a sum
        # that rows were subtracted from, like every other.
        edges = KINK_EDGES * (1.0 - 1e-12) - rounding.predictor(state.anchor)
        masses = state.sums.kinks.copy()
        masses[0] += rounding.sums * sizes.square_norm + rounding.underflow
        masses *= loss.curvature_jump * kappa**2
        return cls(masses, np.maximum(edges, 0.0) / kappa, 0.0, start / kappa)

    def over(self, way: float) -> float:
        """Return the bound."""
        reach = (self.start + way) * (1.0 + 4.0 * UNIT_ROUNDOFF)
        inside = np.minimum(way, np.maximum(reach - self.edges, 0.0))
        bent = self.growth * (self.start + 0.5 * way) * way if self.growth else 0.0
        return (float(self.masses @ inside) + bent) * SAFETY

    def over_each(self, ways: Vector) -> Vector:
        """Return the bound for each of several ways, of a curvature that jumps."""
        reach = (self.start + ways) * (1.0 + 4.0 * UNIT_ROUNDOFF)
        inside = np.maximum(reach[:, None] - self.edges, 0.0)
        bounds: Vector = np.minimum(ways[:, None], inside) @ self.masses * SAFETY
        return bounds

    def lost(self, way: float) -> float:
        """Return what the curvature may lose on so long a way from the anchor."""
        near = self.edges <= way * SAFETY
        return (float(self.masses[near].sum()) + self.growth * way) * SAFETY

    def after(self, way: float, moved: float) -> tuple["Bend", float]:
        """Return that of an anchor so far off, and its mass too near to tell.

        As others bin it, whose predictors are rounded by up to ``moved``.
        """
        if not self.masses.size:
            return replace(self, start=0.0), 0.0
        if not moved < KINK_EDGES[1]:
            return replace(self, start=0.0, growth=inf), inf
        left = (self.edges - (way + moved) * SAFETY) * (1.0 - 1e-12)
        bins = np.searchsorted(KINK_EDGES, np.maximum(left, 0.0), side="right") - 1
        edges = np.maximum(KINK_EDGES[bins] * (1.0 - 1e-12) - moved, 0.0)
        doubtful = float(self.masses[bins == 0].sum()) * SAFETY
        return Bend(self.masses, edges, self.growth), doubtful

    def distance(self, left: float, floor: float) -> float:
        """Return the least a with floor a >= left + bound, from above, or infinity.

        What is gained is concave in the way. So the minimiser is no farther than the
        first way on which it is no less than the gradient that is left.
        """
        if not (floor > 0.0 and left < inf and self.growth < inf):
            return inf
        floor, left = floor / SAFETY, left * SAFETY + UNDERFLOW
        if self.masses.size:
            turns = np.unique(np.maximum(self.edges - self.start, 0.0))
            gains = floor * turns - self.over_each(turns)
            after = int(np.argmax(gains >= left))
            if not after:  # at no way: the first of them is none
                return inf
            slope = np.diff(gains)[after - 1] / np.diff(turns)[after - 1]
            way = turns[after - 1] + (left - gains[after - 1]) / slope
        else:
            slope = floor - self.growth * self.start
            root = slope**2 - 2.0 * self.growth * left
            if not (slope > 0.0 and root >= 0.0):
                return inf
            way = 2.0 * left / (slope + sqrt(root))
        way = float(way) * SAFETY + UNDERFLOW
        return way if floor * way >= left + self.over(way) else inf


def moment_forms(rounding: Rounding, s: Vector) -> float | Vector:
    """Return sqrt(kappa s'K_U s), its rounding included, s a step as it was summed.

    One for each output, or a number for all of them together if they interact.
    """
    state = rounding.state
    assert state.sums.moment is not None
    size, s = split_length(s)
    loss, parts = state.objective.loss, s.reshape(-1, state.objective.loss.outputs)
    error = rounding.sums * state.magnitude.moment
    lost = (1.0 + state.magnitude.row_norm) * rounding.underflow
    if loss.outputs == 1 or not loss.independent:
        form = sum(float(part @ (state.sums.moment @ part)) for part in parts.T)
        return size * sqrt(state.row_growth * (max(form, 0.0) + (error + lost)))
    forms = np.maximum(np.einsum("ac,ac->c", parts, state.sums.moment @ parts), 0.0)
    forms += error * np.einsum("ac,ac->c", parts, parts) + lost
    roots: Vector = size * np.sqrt(state.row_growth * forms)
    return roots


def _root_of_squares(parts: float | Vector) -> float:
    """Return the norm of bounds on the parts of a vector; a number is that already."""
    return norm(parts) if isinstance(parts, np.ndarray) else parts


def hessian_form(rounding: Rounding, s: Vector) -> float:
    """Return |s| in the norm of the loss's part of H_U, its rounding included.

    If the features have changed, |A s + offset| <= |A s| + |offset|, each in the norm
    of the Hessian that was summed.
    """
    state, (size, s) = rounding.state, split_length(s)
    form = float(s @ (state.sums.loss_hessian @ s))
    length = size * sqrt(max(form, 0.0) + rounding.hessian)
    if state.offset is None:
        return length
    return length + sqrt(state.magnitude.hessian) * norm(state.offset)


def growth(b: float) -> float:
    """Return (e^b - 1 - b)/b, how much self-concordant curvature adds over a step.

    From above: e^b - 1 and b are nearly equal where b is small, and the rounding of
    the one is all the larger in their difference (docs/radii.md, "Local growth").
    """
    if b < 1e-5:
        return 0.5 * b * (1.0 + b)
    return (expm1(b) * (1.0 + 4.0 * UNIT_ROUNDOFF) - b) / b if b < 700.0 else inf


def half_exponential(b: float) -> float:
    """Return e^(b/2), infinite where it overflows."""
    return exp(0.5 * b) if b < 1400.0 else inf


def _over(residual_norm: float, floor: float) -> float:
    """Return residual_norm / floor from above, infinite where there is no floor."""
    if not (
        floor > 0.0 and residual_norm < inf
    ):  # nor where an ingredient is no number
        return inf
    return residual_norm / floor * SAFETY + UNDERFLOW
