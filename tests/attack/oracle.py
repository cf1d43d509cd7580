# SPDX-License-Identifier: Apache-2.0
r"""The oracle: a minimiser in extended precision, with a bound on its own error.

It minimises, over rows with weights w and W their sum,

    (1/W) sum w_i loss(y_i, x_i.theta) + alpha (W0/W or 1) penalty(theta)
    + ridge (W0/W or 1) |theta|^2 / 2,

W0 the weight at the *first* fit and the factor W0/W under "sum" scaling. Newton steps
on the coordinates that are not zero find the point; the distance of zero to the
subdifferential, over a modulus of strong convexity, then bounds how far the minimiser
can be. How the point was found does not matter, so any start will do. If no modulus is
found the bound is infinite, and nothing is checked.
"""

from dataclasses import dataclass
from functools import cached_property
from math import exp, inf, isfinite
from typing import Any, Literal

import numpy as np

from .losses import Array, Loss

LONG = np.longdouble
MAX_STEPS = 100
PATIENCE = 4  # steps that may fail to reduce the residual to a quarter


@dataclass(frozen=True)
class Aim:
    """What is minimised, without the rows.

    Attributes
    ----------
    loss
        The loss of a row.
    alpha, l1_ratio, groups
        Factor of the penalty; its share of L1; the group of each feature for the group
        lasso, which takes the place of both.
    ridge
        Factor of |theta|^2 / 2 beside the penalty.
    scaling
        Whether alpha and ridge stay ("mean") or their products with the weight ("sum").
    intercept, free
        Whether there is an intercept, and whether it is unpenalised.
    """

    loss: Loss
    alpha: float
    l1_ratio: float = 0.0
    groups: tuple[int, ...] | None = None
    ridge: float = 0.0
    scaling: Literal["mean", "sum"] = "mean"
    intercept: bool = True
    free: bool = True


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows, labels as the loss expects them, and weights."""

    X: Array
    y: Array
    weight: Array

    def take(self, index: Array) -> "Sample":
        """Return the rows at these positions, or where a mask is true."""
        return Sample(self.X[index], self.y[index], self.weight[index])

    @property
    def total(self) -> LONG:
        """The sum of the weights."""
        return LONG(self.weight.astype(LONG).sum())


@dataclass(frozen=True, eq=False)
class Optimum:
    """A point, and how far the minimiser may be from it."""

    theta: Array
    error: float

    def distance(self, theta: Array) -> float:
        """Return how far some parameters are from the point; infinite if misshapen."""
        if theta.shape != self.theta.shape:
            return inf
        return float(np.sqrt(((self.theta - theta.astype(LONG)) ** 2).sum()))


def minimise(
    aim: Aim,
    sample: Sample,
    first_weight: LONG | None = None,
    start: Array | None = None,
) -> Optimum:
    """Return the minimiser; the weight at the first fit is this sample's by default."""
    problem = Problem(
        aim, sample, sample.total if first_weight is None else first_weight
    )
    theta = np.zeros(problem.size) if start is None else np.array(start, float)
    if theta.size != problem.size or not np.isfinite(theta).all():
        theta = np.zeros(problem.size)
    with np.errstate(all="ignore"):
        point = descend(Point(problem, theta))
        point = descend(Point(problem, point.theta.astype(LONG)))
        return Optimum(point.theta, error_bound(point))


class Problem:
    """An aim on rows, in doubles and in extended precision.

    Parameters
    ----------
    aim, sample
        What is minimised on what.
    first_weight
        The weight at the first fit.
    """

    def __init__(self, aim: Aim, sample: Sample, first_weight: LONG) -> None:
        there = sample.weight > 0.0
        X = np.asarray(sample.X, float)[there]
        if aim.intercept:
            X = np.hstack([X, np.ones((len(X), 1))])
        self.loss, self.k = aim.loss, aim.loss.outputs
        weight = sample.weight[there].astype(LONG)
        factor = first_weight / weight.sum() if aim.scaling == "sum" else LONG(1)
        self.size = X.shape[1] * self.k
        self.n_free = self.k if aim.intercept and aim.free else 0
        self.grouped = aim.groups is not None
        long = self._penalty(aim, factor) | {
            "X": X.astype(LONG),
            "coded": aim.loss.coded(sample.y[there]).astype(LONG),
            "share": weight / weight.sum(),
        }
        short = {name: part.astype(float) for name, part in long.items()}
        self.parts = {np.dtype(LONG): long, np.dtype(float): short}
        self.quadratic = float(long["diagonal"][0]) if self.size > self.n_free else 0.0
        self.kinked = len(long["strength"]) > 0
        self.lengths = np.sqrt((long["X"] ** 2).sum(axis=1)).astype(float)

    def _penalty(self, aim: Aim, factor: LONG) -> dict[str, Array]:
        """Return the quadratic's diagonal, the gauge, and the kinks' groups."""
        end = self.size - self.n_free
        smooth = LONG(0) if self.grouped else 1 - LONG(aim.l1_ratio)
        diagonal = np.full(
            self.size, factor * (LONG(aim.alpha) * smooth + LONG(aim.ridge))
        )
        diagonal[end:] = 0
        gauge = np.zeros(self.size, dtype=LONG)
        if self.n_free and self.loss.name == "softmax":
            gauge[end:] = 1 / np.sqrt(LONG(self.k))
        group = np.arange(end)
        if aim.groups is not None:
            group = np.repeat(np.array(aim.groups), self.k)
        member = np.zeros((int(group.max(initial=-1)) + 1, self.size), dtype=LONG)
        member[group, np.arange(end)] = 1
        ratio = LONG(1) if self.grouped else LONG(aim.l1_ratio)
        strength = factor * LONG(aim.alpha) * ratio * np.sqrt(member.sum(axis=1))
        kinked = strength > 0
        return {
            "diagonal": diagonal,
            "gauge": gauge,
            "member": member[kinked],
            "strength": strength[kinked],
        }


class Point:
    """A problem at some parameters, each figure computed once.

    Parameters
    ----------
    problem
        What is minimised.
    theta
        The parameters; their precision is that of every figure.
    """

    def __init__(self, problem: Problem, theta: Array) -> None:
        self.problem, self.theta = problem, theta
        self._parts = problem.parts[theta.dtype]

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["_parts"][name]

    def at(self, theta: Array) -> "Point":
        """Return another point of the same problem."""
        return Point(self.problem, theta)

    @cached_property
    def eta(self) -> Array:
        """The predictors, (n, k)."""
        return np.asarray(self.X @ self.theta.reshape(-1, self.problem.k))

    @cached_property
    def slopes(self) -> Array:
        """The slopes, (n, k)."""
        return self.problem.loss.slopes(self.coded, self.eta)

    @cached_property
    def norms(self) -> Array:
        """The norm of each group."""
        return np.asarray(np.sqrt(self.member @ self.theta**2))

    @cached_property
    def value(self) -> Any:
        """The objective."""
        theta = self.theta
        total = self.share @ self.problem.loss.values(self.coded, self.eta)
        total += ((self.diagonal * theta) @ theta + (self.gauge @ theta) ** 2) / 2
        return total + self.strength @ self.norms if self.problem.kinked else total

    @cached_property
    def gradient(self) -> Array:
        """The gradient of the smooth part."""
        mean = (self.X.T @ (self.slopes * self.share[:, None])).ravel()
        mean += self.diagonal * self.theta
        return np.asarray(mean + (self.gauge @ self.theta) * self.gauge)

    @cached_property
    def over(self) -> Array:
        """The kinks' strengths over the norms, zero where groups are zero."""
        there = self.norms > 0
        return np.where(there, self.strength / np.where(there, self.norms, 1), 0)

    @cached_property
    def held(self) -> Array:
        """Which parameters are held at zero by a kink."""
        return np.asarray((self.norms == 0) @ self.member > 0)

    @cached_property
    def residual(self) -> Array:
        """The element of the subdifferential that is nearest to zero."""
        if not self.problem.kinked:
            return self.gradient
        pull = self.gradient + (self.over @ self.member) * self.theta
        size = np.sqrt(self.member @ self.gradient**2)
        left = np.where(size > self.strength, 1 - self.strength / size, 0)
        return np.asarray(
            np.where(self.held, (left @ self.member) * self.gradient, pull)
        )

    @cached_property
    def size(self) -> float:
        """The length of the residual."""
        return float(np.sqrt((self.residual**2).sum()))

    @cached_property
    def rounding(self) -> float:
        """What the residual may be off by, for the rounding of its sums."""
        problem, lengths = self.problem, self.problem.lengths
        short = problem.parts[np.dtype(float)]
        theta = float(np.sqrt((self.theta**2).sum()))
        slopes = np.abs(self.slopes).astype(float).sum(axis=1)
        sums = float(short["share"] @ (lengths * slopes))
        bent: Any = problem.loss.largest_curvature
        if not isfinite(bent):  # what it is here, twice; slopes are a difference too
            curvature = problem.loss.curvatures(self.coded, self.eta).astype(float)
            bent = 4.0 * curvature.sum(axis=1)
            sums += float(short["share"] @ (lengths * bent))
        if problem.loss.offset:
            moved = np.abs(short["coded"][:, 1])
            sums += float(short["share"] @ (bent * lengths * moved))
        sums += float(short["share"] @ (bent * lengths**2)) * theta
        pinned = float(short["gauge"].max())
        sums += (problem.quadratic + pinned) * theta + float(short["strength"].sum())
        unit = float(np.finfo(self.theta.dtype).eps)
        return float(unit * (len(lengths) + 4 * problem.size + 32) * sums)

    def hessian(self, rows: Array | None = None) -> Array:
        """Return the Hessian of the smooth part, over some rows if given."""
        problem, X = self.problem, self.X
        curvature = problem.loss.curvatures(self.coded, self.eta)
        share = self.share if rows is None else self.share * rows
        H = np.zeros((problem.size, problem.size), dtype=self.theta.dtype)
        k = problem.k
        if curvature.ndim == 2:
            for c in range(k):
                H[c::k, c::k] = (X.T * (share * curvature[:, c])) @ X
        else:
            for c in range(k):
                for e in range(c + 1):
                    H[c::k, e::k] = (X.T * (share * curvature[:, c, e])) @ X
                    H[e::k, c::k] = H[c::k, e::k].T
        H[np.diag_indices(problem.size)] += self.diagonal
        return np.asarray(H + np.outer(self.gauge, self.gauge))

    def bent(self) -> Array:
        """Return the derivative of the kinks' gradient where groups are not zero."""
        if not self.problem.grouped:
            return np.zeros((self.problem.size, self.problem.size))
        there = np.where(self.norms > 0, self.norms, 1)
        units = self.member * self.theta / there[:, None]
        return np.asarray(
            np.diag(self.over @ self.member) - (units.T * self.over) @ units
        )


def error_bound(point: Point) -> float:
    """Return a bound on the distance from a point to the minimiser."""
    return distance_bound(point, point.size + point.rounding)


def distance_bound(point: Point, pull: float) -> float:
    """Return the bound for a residual of at most this length."""
    problem = point.problem
    if not isfinite(pull):
        return inf
    everywhere = problem.quadratic if not problem.n_free else 0.0
    bound = pull / everywhere if everywhere > 0.0 else inf
    short = Point(problem, point.theta.astype(float))
    return min(bound, _local_bound(short, pull))


def _local_bound(point: Point, pull: float) -> float:
    """Return the bound from the curvature around a point."""
    floor = around = smallest_eigenvalue(point.hessian())
    concordance = point.problem.loss.concordance
    longest = float(point.problem.lengths.max())
    for _ in range(3):
        if floor <= 0.0:
            return inf
        reach = 2.0 * pull / floor
        if isfinite(concordance):
            moved = concordance * longest * reach
            floor = around * exp(-moved) if moved < 700.0 else 0.0
        else:
            floor = smallest_eigenvalue(point.hessian(_far_from_kinks(point, reach)))
        if floor > 0.0 and pull / floor <= reach:
            return pull / floor
    return inf


def _far_from_kinks(point: Point, reach: float) -> Array:
    """Return one for rows whose curvature does not jump within this distance."""
    away = point.problem.loss.kink_distances(point.coded, point.eta)
    slack = 1e-12 * (1.0 + np.abs(point.eta)[:, 0])
    return np.asarray((away > point.problem.lengths * reach + slack).astype(float))


def smallest_eigenvalue(H: Array) -> float:
    """Return a lower bound on the smallest eigenvalue of a matrix of doubles."""
    if not np.isfinite(H).all():
        return 0.0
    slack = 64.0 * len(H) * float(np.finfo(float).eps)
    plain = _lowest(H) - slack * float(np.trace(H))
    scale = np.sqrt(np.diag(H))
    if plain > 0.0 or not (scale > 0.0).all():
        return plain
    share = _lowest(H / scale / scale[:, None]) - slack * len(H)
    return max(plain, share * float(np.min(scale)) ** 2)


def _lowest(H: Array) -> float:
    """Return the smallest eigenvalue as computed, minus infinity where it is not."""
    try:
        return float(np.linalg.eigvalsh(H)[0])
    except np.linalg.LinAlgError:
        return -inf


def descend(point: Point) -> Point:
    """Return the minimiser as far as this precision finds it."""
    best, smallest, stalled = point, inf, 0
    for _ in range(MAX_STEPS):
        stalled = 0 if point.size < 0.25 * smallest else stalled + 1
        if point.size < smallest:
            best, smallest = point, point.size
        if point.size <= 0.02 * point.rounding or stalled > PATIENCE:
            break
        awake = _wake(point)
        if awake is not None:
            point, smallest, stalled = awake, inf, 0
        point = _search(point, _step(point, exact=stalled > 1))
    return best


def _wake(point: Point) -> Point | None:
    """Return the point with the zero group that pulls hardest moved away from zero.

    None while what is not held at zero pulls harder.
    """
    problem = point.problem
    if not problem.kinked:
        return None
    sizes = np.sqrt(point.member @ point.gradient**2)
    excess = np.where(point.norms == 0, sizes - point.strength, 0)
    hardest = int(np.argmax(excess))
    moving = point.residual[~point.held]
    if not excess[hardest] > np.sqrt((moving**2).sum()):
        return None
    group = point.member[hardest] > 0
    bent: Any = problem.loss.largest_curvature
    if not isfinite(bent):
        bent = problem.loss.curvatures(point.coded, point.eta).sum(axis=1)
    bent = (bent * problem.lengths**2).astype(float)
    squares = float(problem.parts[np.dtype(float)]["share"] @ bent)
    curvature = squares + problem.quadratic
    theta = point.theta.copy()
    share = excess[hardest] / sizes[hardest]
    theta[group] = -share * point.gradient[group] / curvature
    return point.at(theta)


def _step(point: Point, *, exact: bool) -> Array:
    """Return the Newton step on the parameters that are not held at zero."""
    theta = point.theta
    free = ~point.held if point.problem.kinked else np.ones(theta.size, dtype=bool)
    seen = point if exact else Point(point.problem, theta.astype(float))
    H = (seen.hessian() + seen.bent())[np.ix_(free, free)]
    step = np.zeros_like(theta)
    step[free] = -solve(H, point.residual[free])
    return step


def _search(point: Point, step: Array) -> Point:
    """Return the first point along the step, halved, that is no worse."""
    if not np.isfinite(step).all():
        return point
    for halvings in range(0, 40, 2):
        theta = point.theta + step / 2**halvings
        if point.problem.kinked:
            crossed = (point.member @ (point.theta * theta) <= 0) & (point.norms > 0)
            theta = np.where(crossed @ point.member > 0, 0, theta)
        moved = point.at(theta)
        if moved.size < 0.5 * point.size or moved.value < point.value:
            return moved
    return point


def solve(H: Array, gradient: Array) -> Array:
    """Return H^-1 gradient, scaled to a unit diagonal, refined once."""
    scale = np.sqrt(np.maximum(np.diag(H), np.finfo(float).tiny))
    equal, right = H / scale / scale[:, None], gradient / scale
    if H.dtype == LONG:
        return np.asarray(_long_solution(equal, right) / scale)
    length = float(np.sqrt((right**2).sum()))
    if not isfinite(length) or length == 0.0:
        return np.zeros_like(gradient)
    unit = (right / length).astype(float)
    try:
        answer = np.linalg.solve(equal, unit)
        answer = answer + np.linalg.solve(equal, unit - equal @ answer)
    except np.linalg.LinAlgError:
        return np.asarray(gradient / scale / scale)
    return np.asarray(answer.astype(gradient.dtype) * length / scale)


def _long_solution(H: Array, right: Array) -> Array:
    """Return H^-1 right by Gaussian elimination with pivots, refined twice."""
    answer = _eliminate(H, right)
    for _ in range(2):
        answer = answer + _eliminate(H, right - H @ answer)
    return answer


def _eliminate(H: Array, right: Array) -> Array:
    """Return the solution by Gaussian elimination with partial pivoting."""
    A = np.column_stack([H, right])
    size = len(H)
    for j in range(size):
        pivot = j + int(np.argmax(np.abs(A[j:, j])))
        if A[pivot, j] == 0:
            return np.full(size, np.nan, dtype=A.dtype)
        A[[j, pivot]] = A[[pivot, j]]
        A[j + 1 :] -= np.outer(A[j + 1 :, j] / A[j, j], A[j])
    answer = np.zeros(size, dtype=A.dtype)
    for j in reversed(range(size)):
        answer[j] = (A[j, -1] - A[j, j + 1 : size] @ answer[j + 1 :]) / A[j, j]
    return answer
