# SPDX-License-Identifier: Apache-2.0
"""The solver: damped Newton and proximal Newton, which are one algorithm here.

Each step minimises a quadratic model of the smooth part plus the kink, then searches
along the way there until the objective falls. A model maps a point theta and the smooth
gradient g there to

    argmin_x  g'(x - theta) + (x - theta)'B(x - theta)/2 + scale alpha kink(x)

and a subgradient of the scaled kink at the answer (zero if there is no kink). Its
Hessian B is kept for as long as the steps contract (a chord) and computed again when
they do not: a Hessian costs tens of gradients.

The optimality residual |gradient + subgradient| is measured at the point that is
returned. The loop runs until it stops falling, so only rounding is left; the tolerance
is what ``require_converged`` insists on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from ..exceptions import InvalidInput, NotConverged, NotPositiveDefinite, Unsupported
from .arrays import UNIT_ROUNDOFF, Vector, norm
from .blocks import SymmetricMatrix
from .objective import Objective, add_quadratic
from .prox import Kink, Minimum, scaled_prox
from .rows import RowSource, block_sum, block_sums
from .sums import (
    gradient_term,
    hessian_terms,
    join_hessian,
    largest_hessian,
    loss_gradient,
    loss_hessian,
    norm_sums,
    slope_scale,
)
from .values import SMALLEST, Private

Model: TypeAlias = Callable[[Vector, Vector], Minimum]
TOLERANCE = 1e-10
STEP_TOLERANCE = 1e-6  # relative to 1 + |theta|
MAX_STEPS = 200
MAX_HALVINGS = 40
REFRESH_ABOVE = 0.1  # a chord must contract the residual by more than this
ARMIJO = 1e-4
LARGEST_HESSIAN = 2**32  # bytes: 23170 parameters


def scaled_kink(objective: Objective, scale: float = 1.0) -> Kink:
    """Return scale times alpha times the kink of the penalty."""

    def shrink(v: Vector, step: float | Vector) -> Vector:
        return objective.shrink(v, scale * step)

    def shrink_output(v: Vector, step: float | Vector) -> Vector:
        return objective.shrink(v, scale * step, outputs=1)

    return Kink(shrink, objective.penalty.separable, shrink_output)


def smooth_model(B: SymmetricMatrix) -> Model:
    """Return the model of a smooth objective: one Cholesky solve a step."""
    factor = B.cholesky()

    def argmin(theta: Vector, gradient: Vector) -> Minimum:
        return Minimum(theta - factor.solve(gradient), np.zeros_like(theta))

    return argmin


def proximal_model(
    B: SymmetricMatrix, kink: Kink, *, start: Vector | None = None
) -> Model:
    """Return the model with a kink: one B-norm prox a step.

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


class Fresh(NamedTuple):
    """A model made at a point, and whether its Hessian is the true one there."""

    model: Model
    exact: bool


def hessian_model(objective: Objective, rows: RowSource, *, theta: Vector) -> Fresh:
    """Return the model with the Hessian of these rows at theta.

    Where that is flat (if every row is beyond Huber's threshold), the largest Hessian
    the loss can have takes its place: its steps are short, and always descend.
    """
    hessian = loss_hessian(objective.loss, rows, theta=theta)
    return _model_with(objective, rows, hessian=hessian)


def _model_with(
    objective: Objective, rows: RowSource, *, hessian: SymmetricMatrix
) -> Fresh:
    """Return the model with this Hessian of sum w loss, or with the largest."""
    B = add_quadratic(objective, hessian / rows.total_weight)
    try:
        _require_curved_intercept(objective, B)
        return Fresh(_model(objective, B), exact=True)
    except NotPositiveDefinite:
        steepest = largest_hessian(objective.loss, rows) / rows.total_weight
        bound = add_quadratic(objective, steepest)
        return Fresh(_model(objective, bound), exact=False)


def _model(objective: Objective, B: SymmetricMatrix) -> Model:
    if objective.smooth:
        return smooth_model(B)
    return proximal_model(B, scaled_kink(objective))


def _require_curved_intercept(objective: Objective, B: SymmetricMatrix) -> None:
    """Raise if a parameter that nothing penalises has no curvature either."""
    if objective.n_free and not (B.diagonal[-objective.n_free :] > 0.0).all():
        raise NotPositiveDefinite("the intercept has no curvature here")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Solution(Private):
    """A point with the optimality residual measured there.

    Attributes
    ----------
    theta
        The parameters, (d k,).
    gradient
        Gradient of the smooth part at theta.
    subgradient
        A subgradient of alpha times the kink at theta; zero if smooth.
    step
        Length of the last step towards a model's minimiser. Where the objective
        falls for ever its gradient vanishes too, but its steps do not.
    n_steps, n_hessians
        Steps taken and Hessians computed on the way.
    """

    theta: Vector
    gradient: Vector
    subgradient: Vector
    step: float
    n_steps: int
    n_hessians: int

    @property
    def residual(self) -> float:
        """|gradient + subgradient|: zero exactly at the minimiser."""
        return norm(self.gradient + self.subgradient)


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """An iterate; its subgradient is unknown (None) after a shortened step."""

    theta: Vector
    value: float
    gradient: Vector
    subgradient: Vector | None

    @property
    def residual(self) -> float:
        if self.subgradient is None:
            return np.inf
        return norm(self.gradient + self.subgradient)


def minimise(
    objective: Objective,
    rows: RowSource,
    *,
    start: Vector | None = None,
    chord: Model | None = None,
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
        A model to use until it stops contracting, instead of a first Hessian.
    stop
        When to return the best point so far as it is.
    """
    _require_room(objective, rows)
    theta = choose_start(objective, rows, start=start)
    ready: Fresh | None = None
    if chord is None and stop.at < 0.0 < stop.after:
        here, ready = _begin(objective, rows, theta=theta)
    else:
        here = _evaluate(objective, rows, theta=theta)
    best, model, exact, step = here, chord, True, np.inf
    n_hessians, n_steps, stalled = 0, 0, 0
    while n_steps < stop.after and stalled < _patience(best):
        if best.residual <= stop.at:
            break
        fresh = model is None
        if model is None:
            model, exact = ready or hessian_model(objective, rows, theta=here.theta)
            ready, n_hessians = None, n_hessians + 1
        target = model(here.theta, here.gradient)
        # Only a step with the true Hessian says how near the minimiser is.
        step = norm(target.x - here.theta) if exact else np.inf
        there = _search(objective, rows, here=here, target=target)
        if there is None and fresh:
            break
        if there is not None and not exact:
            there = _stretch(objective, rows, here=here, there=there)
        n_steps += 1
        there = there or here
        if _is_slow(here, there):
            model = None
        stalled = 0 if _made_progress(here, there, best=best) else stalled + 1
        best = min(best, there, key=lambda point: point.residual)
        here = there
    best = here if np.isinf(best.residual) else best
    best = _find_subgradient(objective, rows, point=best)
    assert best.subgradient is not None
    return Solution(
        best.theta, best.gradient, best.subgradient, step, n_steps, n_hessians
    )


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
            "exist (for example, one class left beside an unpenalised intercept), or "
            "features may differ too much in scale: standardise them, or raise alpha "
            "or ridge"
        )


def _made_progress(here: _Point, there: _Point, *, best: _Point) -> bool:
    """Whether a step got somewhere: in residual or, far from the end, in value."""
    if there.residual <= 0.5 * best.residual or np.isinf(best.residual):
        return True
    fallen = here.value - there.value
    return best.residual > TOLERANCE and fallen > 1e-12 * abs(here.value)


def _is_slow(here: _Point, there: _Point) -> bool:
    """Whether the step contracted the residual too little to keep its Hessian."""
    if np.isinf(there.residual):
        return True
    return there.residual > max(REFRESH_ABOVE * here.residual, TOLERANCE)


def _patience(best: _Point) -> int:
    """Return how many steps without progress end the loop."""
    return 2 if best.residual <= TOLERANCE else 10


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


# A trial step may go so far that the loss overflows: then it is no improvement.
@np.errstate(over="ignore", invalid="ignore")
def _evaluate(
    objective: Objective,
    rows: RowSource,
    *,
    theta: Vector,
    subgradient: Vector | None = None,
) -> _Point:
    """Return objective and smooth gradient at theta: one pass over the rows."""
    sums = loss_gradient(objective.loss, rows, theta=theta)
    return _make_point(objective, rows, theta=theta, sums=sums, subgradient=subgradient)


def _make_point(
    objective: Objective,
    rows: RowSource,
    *,
    theta: Vector,
    sums: tuple[float, Vector],
    subgradient: Vector | None = None,
) -> _Point:
    """Return the point with these sums of w times loss and gradient."""
    total, (loss, gradient) = rows.total_weight, sums
    value = loss / total + objective.penalty_value(theta)
    quadratic = objective.quadratic_gradient(theta)
    if objective.smooth:
        subgradient = np.zeros_like(theta)
    return _Point(theta, value, gradient / total + quadratic, subgradient)


@np.errstate(over="ignore", invalid="ignore")
def _begin(
    objective: Objective, rows: RowSource, *, theta: Vector
) -> tuple[_Point, Fresh]:
    """Return the first point and its model: one pass, unless outputs are many."""
    loss = objective.loss
    first, *further = hessian_terms(loss, rows.n_columns, theta=theta)
    both = block_sums([gradient_term(loss, theta=theta), first], rows)
    value, gradient = both[0]
    more = [block_sum(term, rows)[0] for term in further]
    point = _make_point(objective, rows, theta=theta, sums=(value, gradient))
    hessian = join_hessian(loss, [both[1][0], *more])
    return point, _model_with(objective, rows, hessian=hessian)


def _search(
    objective: Objective, rows: RowSource, *, here: _Point, target: Minimum
) -> _Point | None:
    """Return the first point on the way to the target that falls enough."""
    way = target.x - here.theta
    slopes = here.gradient - objective.quadratic_gradient(here.theta)
    predicted = float(slopes @ way)
    predicted += objective.penalty_value(target.x) - objective.penalty_value(here.theta)
    slack = 64.0 * UNIT_ROUNDOFF * abs(here.value)
    length = 1.0
    for _ in range(MAX_HALVINGS):
        subgradient = target.subgradient if length == 1.0 else None
        theta = target.x if length == 1.0 else here.theta + length * way
        there = _evaluate(objective, rows, theta=theta, subgradient=subgradient)
        if there.value <= here.value + ARMIJO * length * predicted + slack:
            return there
        length *= 0.5
    return None


def _stretch(
    objective: Objective, rows: RowSource, *, here: _Point, there: _Point
) -> _Point:
    """Go on along a cautious step, doubling it for as long as the objective falls."""
    way = there.theta - here.theta
    for _ in range(MAX_HALVINGS):
        way = 2.0 * way
        beyond = _evaluate(objective, rows, theta=here.theta + way)
        if not beyond.value < there.value:
            break
        there = beyond
    return there


def _find_subgradient(
    objective: Objective, rows: RowSource, *, point: _Point
) -> _Point:
    """Return a point whose subgradient is known, by a proximal gradient step.

    Whatever its length, (v - z)/step is a subgradient at z = shrink(v, step), so
    that the residual stays a measured one.
    """
    if point.subgradient is not None:
        return point
    step = 1.0 / _curvature_scale(objective, rows)
    v = point.theta - step * point.gradient
    z = objective.shrink(v, step)
    return _evaluate(objective, rows, theta=z, subgradient=(v - z) / step)


def _curvature_scale(objective: Objective, rows: RowSource) -> float:
    """Return an upper bound on the curvature of the smooth part."""
    mean_square = norm_sums(rows)[0] / rows.total_weight
    scale = objective.loss.curvature_bound * mean_square + objective.quadratic
    return max(scale, SMALLEST**2)
