# SPDX-License-Identifier: Apache-2.0
r"""The solver: damped Newton and proximal Newton, which are one algorithm here.

Each step minimises a quadratic model of the smooth part plus the kink, then searches
along the way there until the objective falls. A step rule maps a point theta and the
smooth gradient g there to

    argmin_x  g'(x - theta) + (x - theta)'B(x - theta)/2 + scale alpha kink(x)

and a subgradient of the scaled kink at the answer (zero if there is no kink).

``minimise`` has B as a matrix, and keeps it for as long as the steps contract, or for
the few that are left to the end (a chord): a Hessian costs tens of gradients. It runs
until the optimality residual, |gradient + subgradient| measured at the point that is
returned, stops falling, so that only rounding is left; the tolerance is what
``require_converged`` insists on.

``minimise_by_products`` has B by its products, one pass over the rows each, and the
true one at each point, since the pass that measures a point tells its curvature. A
system is solved to a share of the gradient that falls with it, and no further than is
needed in the end (Eisenstat and Walker, *Choosing the forcing terms in an inexact
Newton method*, SIAM J. Sci. Comput. 17, 1996).

``minimise_on_support`` is for a kink beside too many columns for a matrix. It keeps
most coefficients at zero (or the rank small), and the minimiser is that of a small
problem: the columns with a coefficient, those of whole groups, or for the nuclear norm
the space that the coefficients span. Each round has ``minimise`` fit the small problem,
then measures the gradient over *all* columns. What breaks optimality there joins the
next round. Nearly all the time goes into Hessians of small problems: while nothing
joins, a round takes over that of the round before, and so does a request that of the
last answer.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, isfinite, sqrt
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from ..exceptions import InvalidInput, NotConverged, NotPositiveDefinite, Unsupported
from .arrays import UNIT_ROUNDOFF, Matrix, Vector, norm
from .linalg import Cholesky, Linear, Operator, Symmetric
from .measurement import Point, evaluate, make_point, measure
from .objective import Objective, add_quadratic
from .penalties import WorkingSet, span
from .preconditioner import Curved, Preconditioner, make_preconditioner
from .prox import Kink, Minimum, scaled_prox
from .rows import Rows, RowSource, block_sum, block_sums, in_memory
from .split import SplitMatrix
from .sums import (
    gradient_term,
    hessian_terms,
    join_hessian,
    largest_hessian,
    loss_hessian,
    slope_scale,
)
from .values import SMALLEST, Private

StepRule: TypeAlias = Callable[[Vector, Vector], Minimum]
TOLERANCE = 1e-10
STEP_TOLERANCE = 1e-6  # relative to 1 + |theta|
MAX_STEPS = 200
MAX_DOUBLINGS = 40
SHORTEST = 2.0**-40
HARDLY = 1e-6  # of the value: more than it rounds, and less than it should fall
REFRESH_ABOVE = 0.1  # a chord must contract the residual by more than this
CHORD_STEPS = 10  # or end within so many: together they cost less than a Hessian
ARMIJO = 1e-4
SHORT = 0.3  # of a step, below which it was cut
PATIENT_STEPS = 10  # steps in a row that make no progress far from the end
LARGEST_HESSIAN = 2**32  # bytes: 23170 parameters
MAX_PRODUCTS = 200
MANY = 1024  # parameters, beyond which steps by a Hessian cost more than passes
NEAR_GOAL = 10.0  # times the goal
LOOSEST_SYSTEM = 0.1  # of the gradient may be left of a step's system
MAX_ROUNDS = 40
LOOSEST_ROUND = 0.01  # of the residual may be left of a round
PATIENT_ROUNDS = 3  # rounds in a row that do not halve the residual
AHEAD = 1.1  # columns join that would if their gradient were so many times as long


def scaled_kink(objective: Objective, scale: float = 1.0) -> Kink:
    """Return scale times alpha times the kink of the penalty."""

    def shrink(v: Vector, step: float | Vector) -> Vector:
        return objective.shrink(v, scale * step)

    def shrink_output(v: Vector, step: float | Vector) -> Vector:
        return objective.shrink(v, scale * step, outputs=1)

    return Kink(shrink, objective.penalty.separable, shrink_output)


def smooth_step(curvature: Cholesky | Operator) -> StepRule:
    """Return the rule of a smooth objective: one solution a step."""

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        return Minimum(theta - curvature.solve(gradient), np.zeros_like(theta))

    return argmin


def proximal_step(B: Symmetric, kink: Kink, *, start: Vector | None = None) -> StepRule:
    """Return the rule with a kink: one B-norm prox a step.

    The prox looks for its answer near ``start``, or near theta if not given.
    """

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        near = theta if start is None else start
        return scaled_prox(B, B @ theta - gradient, kink=kink, start=near)

    return argmin


class Stop(NamedTuple):
    """When a solver may stop early: after so many steps, or at such a residual."""

    after: int = MAX_STEPS
    at: float = -1.0


NOT_BEFORE_THE_END = Stop()


class NewtonModel(NamedTuple):
    """A step rule made at a point, and whether its Hessian is the true one there."""

    step: StepRule
    exact: bool


def hessian_model(
    objective: Objective, rows: RowSource, *, theta: Vector
) -> NewtonModel:
    """Return the model with the Hessian of these rows at theta.

    Where that is flat (if every row is beyond Huber's threshold), that of parabolas
    above the loss takes its place: its steps always descend.
    """
    hessian = loss_hessian(objective.loss, rows, theta=theta)
    return _model_with(objective, rows, theta=theta, hessian=hessian)


def _cautious_model(
    objective: Objective, rows: RowSource, *, theta: Vector
) -> NewtonModel:
    """Return the model of parabolas above the loss of each row."""
    steepest = largest_hessian(objective.loss, rows, theta=theta) / rows.total_weight
    bound = add_quadratic(objective, steepest)
    return NewtonModel(_step_with(objective, bound), exact=False)


def _model_with(
    objective: Objective, rows: RowSource, *, theta: Vector, hessian: Symmetric
) -> NewtonModel:
    """Return the model with this Hessian of sum w loss at theta, or a cautious one."""
    B = add_quadratic(objective, hessian / rows.total_weight)
    try:
        if objective.n_free and not (B.diagonal[-objective.n_free :] > 0.0).all():
            raise NotPositiveDefinite("the intercept has no curvature here")
        return NewtonModel(_step_with(objective, B), exact=True)
    except NotPositiveDefinite:
        if isfinite(objective.loss.curvature_bound):
            return _cautious_model(objective, rows, theta=theta)
        # No Hessian is the largest: any that is larger descends. B was overwritten.
        B = add_quadratic(objective, hessian / rows.total_weight)
        largest = max(float(B.diagonal.max()), SMALLEST)
        bound = B.add_diagonal(np.full(B.size, largest))
        return NewtonModel(_step_with(objective, bound), exact=False)


def _step_with(objective: Objective, B: Symmetric) -> StepRule:
    """Return the rule with B, whose memory it takes over."""
    if objective.smooth:
        return smooth_step(B.cholesky(overwrite=True))
    return proximal_step(B, scaled_kink(objective))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Solution(Private):
    """A point with the optimality residual measured there.

    Attributes
    ----------
    at
        The point; its subgradient is known.
    step
        Length of the last step towards a model's minimiser. Where the objective
        falls for ever its gradient vanishes too, but its steps do not. Infinite where
        nobody knows.
    n_steps, n_hessians
        Steps taken and Hessians computed on the way.
    short_cut
        What leads on from near the point without a look at the rows, if it was made.
    """

    at: Point
    step: float
    n_steps: int
    n_hessians: int = 0
    short_cut: "ShortCut | None" = None

    @property
    def theta(self) -> Vector:
        """The parameters, (d k,)."""
        return self.at.theta

    @property
    def gradient(self) -> Vector:
        """Gradient of the smooth part at theta."""
        return self.at.gradient

    @property
    def subgradient(self) -> Vector:
        """A subgradient of alpha times the kink at theta; zero if smooth."""
        assert self.at.subgradient is not None
        return self.at.subgradient

    @property
    def residual(self) -> float:
        """|gradient + subgradient|: zero exactly at the minimiser."""
        return self.at.residual


class _Passes(NamedTuple):
    """How a solver looks at rows.

    ``look`` returns the point at theta, with a subgradient if one is handed over;
    ``model`` the model at a point, ``anywhere`` whether that costs no pass. Beside
    kinks ``cautious`` is the model after a step that had to be cut.
    """

    look: Callable[[Vector, Vector | None], Point]
    model: Callable[[Point], NewtonModel]
    anywhere: bool
    cautious: Callable[[Point], NewtonModel] | None = None


def _descend(
    objective: Objective,
    start: Point,
    *,
    passes: _Passes,
    model: NewtonModel | None = None,
    fresh: bool = False,
    stop: Stop = NOT_BEFORE_THE_END,
) -> Solution:
    """Return the best point on the way down, from a model given or made here.

    ``fresh`` says that the given model was made at the start.
    """
    here = best = start.with_subgradient(objective)
    n_steps, n_hessians, stalled, step = 0, int(fresh), 0, np.inf
    while n_steps < stop.after and best.residual > stop.at:
        # Where a step costs many passes, or at the end, patience is short.
        short = passes.anywhere or best.residual <= TOLERANCE
        if stalled >= (2 if short else PATIENT_STEPS):
            break
        if model is None:
            model, fresh = passes.model(here), True
            n_hessians += not passes.anywhere
        target = model.step(here.theta, here.gradient)
        # Only a step with the true Hessian says how near the minimiser is.
        step = norm(target.x - here.theta) if model.exact else np.inf
        there = _search(
            objective, passes, here=here, target=target, least=best.residual
        )
        if there is None and fresh:
            if not model.exact or passes.cautious is None:
                break
            model, n_steps = passes.cautious(here), n_steps + 1
            continue  # nearly flat: the way is no number of the objective's size
        if there is not None and not model.exact:
            there = _extend(passes, here=here, there=there)
        n_steps += 1
        there = here if there is None else there.with_subgradient(objective)
        slow = there.residual > max(REFRESH_ABOVE * here.residual, TOLERANCE)
        if slow and 0.0 < there.residual < here.residual:
            n_left = min(CHORD_STEPS, stop.after - n_steps)
            rate = there.residual / here.residual
            slow = rate**n_left * there.residual > stop.at
        cut = model.exact and norm(there.theta - here.theta) < SHORT * step
        model, fresh = None if slow or passes.anywhere else model, False
        if cut and passes.cautious is not None and there.residual > TOLERANCE:
            model, fresh = passes.cautious(there), True
        # Strictly: half of a residual of zero is zero, and nothing is left to descend.
        progress = there.residual < 0.5 * best.residual
        fallen = here.value - there.value
        progress |= best.residual > TOLERANCE and fallen > 1e-12 * abs(here.value)
        stalled = 0 if progress else stalled + 1
        best = min(best, there, key=lambda point: point.residual)
        here = there
    return Solution(best, step, n_steps, n_hessians)


def _search(
    objective: Objective,
    passes: _Passes,
    *,
    here: Point,
    target: Minimum,
    least: float,
) -> Point | None:
    """Return the first point on the way to the target that falls enough.

    ``least`` is the smallest residual so far.
    """
    way = target.x - here.theta
    slopes = here.gradient - objective.quadratic_gradient(here.theta)
    predicted = float(slopes @ way)
    predicted += objective.penalty_value(target.x) - objective.penalty_value(here.theta)
    slack = 64.0 * UNIT_ROUNDOFF * abs(here.value)
    whole = there = passes.look(target.x, target.subgradient)
    # Near the end the value rounds by more than it falls; the residual still tells.
    hardly = HARDLY * abs(here.value)
    if there.residual <= 0.5 * here.residual and there.value <= here.value + hardly:
        return there
    length = 1.0
    while not there.value <= here.value + ARMIJO * length * predicted + slack:
        length *= 0.5
        if length < SHORTEST:
            # Not to be taken again and again: the value would rise and fall for ever.
            return whole if whole.residual <= 0.5 * least else None
        there = passes.look(here.theta + length * way, None)
    return there


def _extend(passes: _Passes, *, here: Point, there: Point) -> Point:
    """Go on along a cautious step, doubling it for as long as the objective falls."""
    way = there.theta - here.theta
    for _ in range(MAX_DOUBLINGS):
        way = 2.0 * way
        beyond = passes.look(here.theta + way, None)
        if not beyond.value < there.value:
            break
        there = beyond
    return there


def minimise(
    objective: Objective,
    rows: RowSource,
    *,
    start: Vector | None = None,
    chord: StepRule | None = None,
    stop: Stop = NOT_BEFORE_THE_END,
) -> Solution:
    """Return the minimiser of the objective on these rows, with its residual.

    Parameters
    ----------
    objective, rows
        What to minimise.
    start
        Where to begin; zero if not given.
    chord
        A step rule to use until it stops contracting, instead of a first Hessian.
    stop
        When to return the best point so far as it is.
    """
    _require_room(objective, rows)
    theta = choose_start(objective, rows, start=start)

    def look(theta: Vector, subgradient: Vector | None) -> Point:
        return evaluate(objective, rows, theta=theta, subgradient=subgradient)

    def model(here: Point) -> NewtonModel:
        return hessian_model(objective, rows, theta=here.theta)

    def cautious(here: Point) -> NewtonModel:
        return _cautious_model(objective, rows, theta=here.theta)

    # Losses of distances that grow no faster than these are nearly flat far out.
    loss = objective.loss
    flat = loss.curvature_jump > 0.0 or (isfinite(loss.slope_bound) and not loss.margin)
    passes = _Passes(look, model, anywhere=False, cautious=cautious if flat else None)
    if chord is None and stop.at < 0.0 < stop.after:
        here, model_at_start = _begin(objective, rows, theta=theta)
        return _descend(
            objective, here, passes=passes, model=model_at_start, fresh=True, stop=stop
        )
    model_of_chord = None if chord is None else NewtonModel(chord, exact=True)
    here = look(theta, None)
    return _descend(objective, here, passes=passes, model=model_of_chord, stop=stop)


@np.errstate(over="ignore", invalid="ignore")
def _begin(
    objective: Objective, rows: RowSource, *, theta: Vector
) -> tuple[Point, NewtonModel]:
    """Return the first point and its model: one pass, unless outputs are many."""
    loss = objective.loss
    first, *further = hessian_terms(loss, rows.n_columns, theta=theta)
    both = block_sums([gradient_term(loss, theta=theta), first], rows)
    value, gradient = both[0]
    more = [block_sum(term, rows)[0] for term in further]
    point = make_point(objective, rows, theta=theta, sums=(value, gradient))
    hessian = join_hessian(loss, [both[1][0], *more])
    return point, _model_with(objective, rows, theta=theta, hessian=hessian)


def require_converged(
    objective: Objective, rows: RowSource, *, solution: Solution
) -> None:
    """Raise NotConverged unless the residual is at tolerance, or at rounding."""
    theta, residual = solution.theta, solution.residual
    size = norm(theta)
    goal = TOLERANCE
    if residual > goal:
        slopes = slope_scale(objective.loss, rows, theta=theta) / rows.total_weight
        goal = 64.0 * UNIT_ROUNDOFF * (slopes + objective.quadratic * size)
    if not (residual <= goal and solution.step <= STEP_TOLERANCE * (1.0 + size)):
        # No figure: after a removal each would be one of the removed rows.
        raise NotConverged(
            "the solver stopped before its residual was small; a minimiser may not "
            "exist (for example, one class left, or no count above zero, beside an "
            "unpenalised intercept), or features may differ too much in scale: "
            "standardise them, or "
            f"{objective.stricter}"
        )


def choose_start(
    objective: Objective, rows: RowSource, *, start: Vector | None
) -> Vector:
    """Return the start, or zeros of the right length."""
    size = rows.n_columns * objective.loss.outputs
    if not rows.total_weight > 0.0:
        raise InvalidInput(
            "no rows with positive weight, so there is nothing to fit; check the rows "
            "and sample_weight"
        )
    if rows.total_weight < SMALLEST:
        raise InvalidInput(
            f"the weights sum to less than {SMALLEST:g}; multiply all of them by the "
            "same factor"
        )
    if start is None:
        return np.zeros(size)
    if start.shape != (size,):
        raise InvalidInput(f"start has shape {start.shape}; the model has ({size},)")
    return start


def hessian_bytes(objective: Objective, n_columns: int) -> int:
    """Return the size of a Hessian: blocks where the outputs do not interact."""
    size = n_columns * objective.loss.outputs
    return 8 * size * (n_columns if objective.loss.independent else size)


def _require_room(objective: Objective, rows: RowSource) -> None:
    """Raise Unsupported for a Hessian that is too large."""
    loss, width = objective.loss, rows.n_columns
    n_bytes = hessian_bytes(objective, width)
    if n_bytes > LARGEST_HESSIAN:
        raise Unsupported(
            f"{width * loss.outputs} parameters ({width} columns x {loss.outputs} "
            f"outputs) need a Hessian of {n_bytes / 2**30:.1f} GiB, and a state "
            f"holds up to four; the limit is {LARGEST_HESSIAN / 2**30:g} GiB each: "
            "reduce the features, or use mechanism='matrix-free', which keeps the rows"
        )


def minimise_wide(
    objective: Objective,
    rows: RowSource,
    *,
    start: Point,
    goal: float,
    short_cut: "ShortCut | None" = None,
) -> Solution:
    """Return a point whose residual is at most ``goal``, or where it stops falling.

    Parameters
    ----------
    objective, rows
        What to minimise, without a Hessian of all columns.
    start
        A point measured on these rows.
    goal
        The norm of the gradient to reach, with the subgradient that is nearest.
    short_cut
        One made earlier, from these rows or more.
    """
    if objective.smooth:
        assert not isinstance(short_cut, SmallProblem)
        return minimise_by_products(
            objective, rows, start=start, goal=goal, preconditioner=short_cut
        )
    assert not isinstance(short_cut, Preconditioner)
    return minimise_on_support(
        objective, rows, start=start, goal=goal, previous=short_cut
    )


def minimise_by_products(
    objective: Objective,
    rows: RowSource,
    *,
    start: Point,
    goal: float,
    preconditioner: Preconditioner | None = None,
) -> Solution:
    """Return a point of a smooth objective as ``minimise_wide`` does."""
    made = preconditioner or make_preconditioner(objective, rows, at=start)
    total = rows.total_weight

    def look(theta: Vector, subgradient: Vector | None) -> Point:
        del subgradient
        return measure(objective, rows, theta=theta)

    def precondition(here: Point) -> Linear:
        nonlocal made
        assert here.seen is not None
        made = made.near(objective, rows, at=here)
        return made.at(objective, Curved.of(here.seen, total))

    def enough(gradient: Vector) -> float:
        size = norm(gradient)
        # Near the goal a step leaves what its system does, and little else.
        share = 0.8 if size < NEAR_GOAL * goal else 0.3
        return max(min(LOOSEST_SYSTEM, sqrt(size)) * size, share * goal)

    def model(here: Point) -> NewtonModel:
        hessian = here.hessian
        assert hessian is not None

        def product(v: Vector) -> Vector:
            return (hessian @ v) / total + objective.quadratic_gradient(v)

        curvature = Operator(product, precondition(here), enough, MAX_PRODUCTS)
        return NewtonModel(smooth_step(curvature), exact=True)

    passes = _Passes(look, model, anywhere=True)
    solution = _descend(objective, start, passes=passes, stop=Stop(at=goal))
    return replace(solution, short_cut=made)


def find_minimiser(
    objective: Objective, rows: RowSource, *, start: Vector | None = None
) -> Solution:
    """Return the minimiser, found by products where there are many parameters.

    A Hessian of several outputs costs as much as hundreds of passes. What asks for one
    afterwards computes it once, at the minimiser, and not at every step.
    """
    size = rows.n_columns * objective.loss.outputs
    if size <= MANY or not objective.smooth:
        return minimise(objective, rows, start=start)
    at = measure(objective, rows, theta=choose_start(objective, rows, start=start))
    solution = minimise_by_products(objective, rows, start=at, goal=0.5 * TOLERANCE)
    if solution.residual > TOLERANCE:
        return minimise(objective, rows, start=solution.theta)
    assert solution.short_cut is not None and solution.at.seen is not None
    curved = Curved.of(solution.at.seen, rows.total_weight)
    there = solution.short_cut.advance(
        objective, solution.theta, gradient=solution.gradient, curved=curved
    )
    # Without what is as long as the rows, or as large as a matrix.
    bare = replace(solution.at, seen=None, hessian=None)
    return replace(solution, at=bare, step=norm(there - solution.theta), short_cut=None)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SmallProblem(Private):
    """The coefficients in play, and a step rule whose Hessian is at hand.

    ``rows`` are those of the solver in terms of these coefficients; None once it is
    done.
    """

    objective: Objective
    small: WorkingSet
    rows: Rows | None
    step: StepRule | None
    largest_eigenvalue: ClassVar[float] = inf

    def advance(
        self, objective: Objective, theta: Vector, *, gradient: Vector, curved: Curved
    ) -> Vector:
        """Return the minimiser of the small problem's model."""
        del curved
        assert self.step is not None
        inside = self.step(
            restrict(objective, self.small, v=theta),
            restrict(objective, self.small, v=gradient),
        )
        return extend(objective, self.small, v=inside.x, size=theta.size)


# What leads from near a minimiser to nearer, without a look at the rows.
ShortCut: TypeAlias = Preconditioner | SmallProblem


def minimise_on_support(
    objective: Objective,
    rows: RowSource,
    *,
    start: Point,
    goal: float,
    previous: SmallProblem | None = None,
) -> Solution:
    """Return a point of an objective with a kink as ``minimise_wide`` does."""
    problem: SmallProblem | None = None
    here = before = best = start.with_subgradient(objective)
    n_steps = stalled = n_hessians = 0
    while best.residual > goal and n_steps < MAX_ROUNDS and stalled < PATIENT_ROUNDS:
        small = _choose_small(objective, rows, here=here, before=before)
        if problem is None or not _holds(problem.small, small):
            problem = _pose_small(
                objective, rows, here=here, small=small, previous=previous
            )
        before = here
        # While the small problem is not the right one, its minimiser is not either.
        enough = max(0.3 * goal, LOOSEST_ROUND * here.residual)
        inner, reduced, step = problem.objective, problem.rows, problem.step
        assert reduced is not None
        inside = restrict(objective, problem.small, v=here.theta)
        if step is None:
            step = hessian_model(inner, reduced, theta=inside).step
            n_hessians += 1
        inner_solution = minimise(
            inner, reduced, start=inside, chord=step, stop=Stop(at=enough)
        )
        # A rule that was given up, or took more steps than two, led too slowly.
        slow = inner_solution.n_hessians > 0 or inner_solution.n_steps > 2
        problem = replace(problem, step=None if slow else step)
        size = here.theta.size
        theta = extend(objective, problem.small, v=inner_solution.theta, size=size)
        here = measure(objective, rows, theta=theta).with_subgradient(objective)
        stalled = 0 if here.residual < 0.5 * best.residual else stalled + 1
        best = min(best, here, key=lambda point: point.residual)
        n_steps += 1
        n_hessians += inner_solution.n_hessians
    if problem is None:
        return Solution(best, inf, n_steps, n_hessians, previous)
    step = problem.step
    if step is None:  # none leads on: make one at the answer
        assert problem.rows is not None
        inside = restrict(objective, problem.small, v=best.theta)
        step = hessian_model(problem.objective, problem.rows, theta=inside).step
    done = replace(problem, rows=None, step=step)
    return Solution(best, inf, n_steps, n_hessians, done)


def restrict(objective: Objective, small: WorkingSet, *, v: Vector) -> Vector:
    """Return the part of v in the small problem, with that of free intercepts."""
    end = v.size - objective.n_free
    table = v[:end].reshape(-1, objective.loss.outputs)
    return np.concatenate([small.restrict(table).ravel(), v[end:]])


def extend(objective: Objective, small: WorkingSet, *, v: Vector, size: int) -> Vector:
    """Return a vector of the small problem as one of the large."""
    outputs, end = objective.loss.outputs, v.size - objective.n_free
    width = (size - objective.n_free) // outputs
    table = small.extend(v[:end].reshape(-1, outputs), width)
    return np.concatenate([table.ravel(), v[end:]])


def _choose_small(
    objective: Objective, rows: RowSource, *, here: Point, before: Point
) -> WorkingSet:
    """Return the small problem that the next round solves.

    A space is spanned by the coefficients, by the residual after the preconditioner,
    and by the coefficients of the round before: with these three a sequence of small
    problems converges like conjugate gradients (Knyazev, *Toward the optimal
    preconditioned eigensolver*, SIAM J. Sci. Comput. 23, 2001).
    """
    if not objective.penalty.spans:
        return _choose_columns(objective, here=here)
    theta, gradient = (_table(objective, v) for v in (here.theta, here.gradient))
    made = make_preconditioner(objective, rows, at=here)
    assert here.seen is not None and here.subgradient is not None
    inverse = made.at(objective, Curved.of(here.seen, rows.total_weight))
    way = inverse(here.gradient + here.subgradient)
    parts = [theta, _table(objective, way), _table(objective, before.theta), gradient]
    return WorkingSet(objective.penalty, np.arange(0), span(parts))


def _choose_columns(
    objective: Objective, *, here: Point, ahead: float = 1.0
) -> WorkingSet:
    """Return the columns in play, as if gradients were so many times as long."""
    theta, gradient = (_table(objective, v) for v in (here.theta, here.gradient))
    return objective.penalty.working_set(theta, gradient * (ahead / objective.alpha))


def _table(objective: Objective, v: Vector) -> Matrix:
    """Return the penalised part of a vector as a matrix of coefficients."""
    return v[: v.size - objective.n_free].reshape(-1, objective.loss.outputs)


def _holds(small: WorkingSet, wanted: WorkingSet) -> bool:
    """Whether a small problem has all that is wanted, and not much more."""
    if small.basis is not None or wanted.basis is not None:
        return False
    if len(small.columns) > 2 * len(wanted.columns):
        return False
    return bool(np.isin(wanted.columns, small.columns).all())


def _pose_small(
    objective: Objective,
    rows: RowSource,
    *,
    here: Point,
    small: WorkingSet,
    previous: SmallProblem | None,
) -> SmallProblem:
    """Return the small problem, or the previous one if that will do, with its model."""
    if previous is not None and _holds(previous.small, small):
        inner = replace(objective, penalty=previous.small.penalty)
        if inner == previous.objective:  # or else its kink is another
            reduced = _reduce(rows, previous.small, free=objective.n_free > 0)
            return SmallProblem(inner, previous.small, reduced, previous.step)
    if small.basis is None:  # what is about to join spares the next round a Hessian
        small = _choose_columns(objective, here=here, ahead=AHEAD)
    inner = replace(objective, penalty=small.penalty)
    reduced = _reduce(rows, small, free=objective.n_free > 0)
    return SmallProblem(inner, small, reduced, None)


def _reduce(rows: RowSource, small: WorkingSet, *, free: bool) -> Rows:
    """Return the rows in terms of the small problem's columns."""
    rows = in_memory(rows, "a penalty with a kink, without matrices,")
    X: Any = rows.X
    if small.basis is not None:
        if isinstance(X, SplitMatrix):
            X = X.columns(np.arange(len(small.basis)))
        spanned: Matrix = X[:, : len(small.basis)] @ small.basis
        columns = [spanned, np.ones((len(spanned), 1))] if free else [spanned]
        return replace(rows, X=np.ascontiguousarray(np.hstack(columns)))
    last = [X.shape[1] - 1] if free else []
    some = np.concatenate([small.columns, np.array(last, dtype=np.intp)])
    reduced: Any = X.columns(some) if isinstance(X, SplitMatrix) else X[:, some]
    if not sparse.issparse(reduced):
        reduced = np.ascontiguousarray(reduced)
    return replace(rows, X=reduced)
