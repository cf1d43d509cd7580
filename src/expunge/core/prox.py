# SPDX-License-Identifier: Apache-2.0
"""The proximal operator of a kink in the norm of a matrix B.

    scaled_prox = argmin_x  x'Bx/2 - b'x + kink(x),

the paper's prox at v = B^-1 b, written so that B is never inverted. The answer comes
with a subgradient of the kink *at* x, taken from the last application of its shrink
operator: for z = shrink(v, t), (v - z)/t is a subgradient at z. The residual
B x - b + subgradient is therefore computed, never assumed.

Separable kinks (L1, elastic net) are solved on the support of the start: check
optimality, correct the support, and fall back on coordinate descent if that does not
settle. Others (group, nuclear norm) use ADMM with B factored once. ADMM is a
fixed-point iteration of a non-expansive map, sped up by Anderson's extrapolation: each
step combines the last few images so that the combined change is smallest (Walker and
Ni, SIAM J. Numer. Anal. 49, 2011). An extrapolation that makes the change larger is
dropped for the plain step, which cannot.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from ..exceptions import NotPositiveDefinite
from .arrays import UNIT_ROUNDOFF, Matrix, Vector, catch_lapack_errors, norm
from .linalg import NOT_IN_TRAINING_DATA, Symmetric
from .values import SMALLEST

Shrink: TypeAlias = Callable[[Vector, float | Vector], Vector]
SUPPORT_TRIES = 12
SWEEPS = 500
PATIENT_SWEEPS = 50  # that do not halve the residual, and nothing will
# What is less curved than the shortest row counts as flat.
FLAT = SMALLEST**2
# Largest relative rounding error in B x at which x still counts as a solution.
MEANINGFUL = 1e-6
# What is added to a flat matrix, as a part of its diagonal.
LIFT = 1e-8
MEMORY = 20
MAX_STEPS = 5000
CHECK_EVERY = 5
PATIENCE = 300


def find_fixed_point(
    advance: Callable[[Vector], Vector],
    start: Vector,
    *,
    stop: Callable[[Vector], bool],
) -> Vector:
    """Return a point that ``advance`` leaves (nearly) where it is.

    ``stop`` is asked every few steps; without its consent the iteration ends when
    the change has not shrunk for a while, with the best point seen.
    """
    here = start
    points: list[Vector] = []
    images: list[Vector] = []
    best, safe, least, since = start, start, np.inf, 0
    for n_steps in range(MAX_STEPS):
        if n_steps % CHECK_EVERY == 0 and stop(here):
            return here
        image = advance(here)
        change = norm(image - here)
        since = 0 if change < 0.99 * least else since + 1
        if change < least:
            best, safe, least = here, image, change
        if since >= PATIENCE:
            break
        if change > 2.0 * least:
            # The extrapolation went astray. One plain step from the best point
            # cannot, since the map brings no two points further apart.
            points, images = [], []
            here = safe
            continue
        points, images = [*points, here][-MEMORY:], [*images, image][-MEMORY:]
        here = _extrapolate(points, images)
    return best


def _extrapolate(points: list[Vector], images: list[Vector]) -> Vector:
    """Return the affine combination of images whose change is smallest."""
    if len(images) == 1:
        return images[0]
    image = np.array(images)
    change = image - np.array(points)
    changes = np.diff(change, axis=0)
    mixture = anderson_mixture(change[-1], changes)
    extrapolated: Vector = image[-1] - mixture @ np.diff(image, axis=0)
    return extrapolated


def anderson_mixture(change: Vector, differences: Matrix) -> Vector:
    """Return the c for which |change - c @ differences| is smallest.

    ``differences`` are those of earlier changes, a row each. The same mixture of the
    points' differences is what Anderson's method subtracts.
    """
    with catch_lapack_errors():
        solution = np.linalg.lstsq(differences.T, change, rcond=1e-12)
    return np.asarray(solution[0], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Kink:
    """A non-smooth convex function, by its proximal operator.

    Attributes
    ----------
    shrink, separable
        The operator, and whether it acts on each coefficient alone.
    shrink_output
        If so, the operator on the coefficients of one output.
    """

    shrink: Shrink
    separable: bool
    shrink_output: Shrink | None = None

    def of_one_output(self) -> "Kink":
        """Return a separable kink of the coefficients of one output."""
        assert self.separable and self.shrink_output is not None
        return Kink(self.shrink_output, separable=True)


class Minimum(NamedTuple):
    """A point and a subgradient of the kink at that point."""

    x: Vector
    subgradient: Vector


def scaled_prox(B: Symmetric, b: Vector, *, kink: Kink, start: Vector) -> Minimum:
    """Return the minimiser of x'Bx/2 - b'x + kink(x), B positive semidefinite.

    If neither B nor the kink ties the outputs together, each is a problem of its own.
    """
    if not kink.separable:
        return _solve_by_admm(B, b, kink=kink, start=start)
    if len(B.per_output) > 1:
        kink = kink.of_one_output()
    minima = [
        _solve_by_support(block, right, kink=kink, start=near)
        for block, right, near in zip(
            B.per_output, B.split(b), B.split(start), strict=True
        )
    ]
    return Minimum(
        B.join([m.x for m in minima]), B.join([m.subgradient for m in minima])
    )


def model_residual(B: Symmetric, b: Vector, *, minimum: Minimum) -> float:
    """Return |B x - b + subgradient|, the distance from optimality."""
    return norm(B @ minimum.x - b + minimum.subgradient)


def _rounding_level(B: Symmetric, b: Vector, *, x: Vector) -> float:
    """Return the residual at which rounding in B x - b takes over."""
    scale = norm(b) + B.triangle_norm * norm(x)
    return UNIT_ROUNDOFF * (B.size + 8) * scale


def _gradient_step(
    B: Symmetric, b: Vector, *, kink: Kink, x: Vector, step: Vector
) -> Minimum:
    """Take one proximal gradient step from x and keep its subgradient."""
    v = x - step * (B @ x - b)
    z = kink.shrink(v, step)
    return Minimum(z, (v - z) / step)


def _read_slopes(kink: Kink, x: Vector, *, step: Vector) -> Minimum:
    """Return x with the kink's slopes on its support, read off a short shrink.

    A full step from a point that is not optimal would spoil its support.
    """
    return Minimum(x, (x - kink.shrink(x, step)) / step)


def _coordinate_steps(B: Symmetric) -> Vector:
    """Return 1/B_jj, bounded where a column has no curvature."""
    diagonal = B.diagonal
    return 1.0 / np.maximum(diagonal, 1e-12 * max(float(diagonal.max()), FLAT))


def _solve_on_support(B: Symmetric, b: Vector, *, at: Minimum) -> Vector:
    """Solve exactly on the support of ``at``, its subgradient held fixed."""
    x = np.zeros_like(b)
    support = np.flatnonzero(at.x)
    if support.size:
        part, right = B.submatrix(support), (b - at.subgradient)[support]
        solution = part.cholesky().solve(right)
        # Where the support is flat but for rounding, that leads anywhere.
        unit = np.sqrt(part.diagonal)
        rounding = UNIT_ROUNDOFF * (support.size + 8) * norm(unit * solution)
        if rounding > MEANINGFUL * norm(right / unit):
            raise NotPositiveDefinite("the support is flat, but for rounding")
        x[support] = solution
    return x


def _try_supports(
    B: Symmetric, b: Vector, *, kink: Kink, at: Minimum, tries: int
) -> tuple[Minimum, bool]:
    """Solve on the support of ``at`` and correct it; return if it was optimal."""
    step = _coordinate_steps(B)
    for _ in range(tries):
        try:
            x = _solve_on_support(B, b, at=at)
        except NotPositiveDefinite:  # a support too large to be the answer's
            return at, False
        at = _gradient_step(B, b, kink=kink, x=x, step=step)
        if model_residual(B, b, minimum=at) <= _rounding_level(B, b, x=at.x):
            return at, True
    return at, False


def _solve_by_support(B: Symmetric, b: Vector, *, kink: Kink, start: Vector) -> Minimum:
    """Separable kinks: the support of the start, then coordinate descent."""
    step = _coordinate_steps(B)
    guess = _read_slopes(kink, start, step=1e-3 * step)
    at, optimal = _try_supports(B, b, kink=kink, at=guess, tries=SUPPORT_TRIES)
    if optimal:
        return at
    _require_semidefinite(B)
    x, least = at.x, np.inf
    for n in range(1, SWEEPS + 1):
        x = _orthant_minimum(B, b, at=sweep_coordinates(B, b, kink=kink, start=x))
        at, optimal = _try_supports(
            B, b, kink=kink, at=_gradient_step(B, b, kink=kink, x=x, step=step), tries=1
        )
        if optimal:
            return at
        if n % PATIENT_SWEEPS == 0:
            before, least = least, model_residual(B, b, minimum=at)
            if least > 0.5 * before:
                break
    # On a flat direction no support solve settles: the sweeps' own answer stands,
    # and the caller sees in the residual how good it is.
    return sweep_coordinates(B, b, kink=kink, start=x)


def _require_semidefinite(B: Symmetric) -> None:
    """Raise NotPositiveDefinite where sweeps would fall for ever."""
    lift = np.full(B.size, 1e-10 * float(np.abs(B.diagonal).max()) + 1e-300)
    try:
        B.add_diagonal(lift).cholesky()
    except NotPositiveDefinite as error:
        raise NotPositiveDefinite(NOT_IN_TRAINING_DATA) from error


def sweep_coordinates(B: Symmetric, b: Vector, *, kink: Kink, start: Vector) -> Minimum:
    """Return the start after exact minimisation over each coordinate in turn."""
    dense, step = B.dense(), _coordinate_steps(B)
    x, subgradient = start.copy(), np.zeros_like(start)
    gradient = dense @ x - b
    for j in range(x.size):
        v = x - step * gradient
        new = kink.shrink(v, step)[j]
        subgradient[j] = (v[j] - new) / step[j]
        if new != x[j]:
            gradient += (new - x[j]) * dense[j]
            x[j] = new
    return Minimum(x, subgradient)


def _orthant_minimum(B: Symmetric, b: Vector, *, at: Minimum) -> Vector:
    """Return the minimiser over the support of ``at`` with its signs kept.

    Sweeps crawl where B is badly conditioned; this does not. Each round heads for
    the solution on the support, stops where a coefficient reaches zero and drops
    it, so the objective never rises and an orthant is never visited twice.
    """
    for _ in range(at.x.size):
        try:
            way = _solve_on_support(B, b, at=at) - at.x
        except NotPositiveDefinite:
            way = _descend_on_support(B, b, at=at)
        with np.errstate(divide="ignore", invalid="ignore"):
            crossings = np.where(at.x * way < 0.0, -at.x / way, np.inf)
        length = min(1.0, float(crossings.min()))
        x = at.x + length * way
        x[crossings <= length] = 0.0
        if _rises(B, b - at.subgradient, before=at.x, after=x):
            return at.x  # rounding decided on the way: its directions are nearly flat
        if length == 1.0:
            return x
        at = at._replace(x=x)
    return at.x


def _descend_on_support(B: Symmetric, b: Vector, *, at: Minimum) -> Vector:
    """Return a way down on a support that is flat, by a matrix that is not.

    It is above B, so the whole way leads down; a long one ends where a coefficient
    reaches zero, and the support gets smaller.
    """
    way, support = np.zeros_like(b), np.flatnonzero(at.x)
    part = B.submatrix(support)
    slope = (B @ at.x - b + at.subgradient)[support]
    lifted = part.add_diagonal(LIFT * part.diagonal + LIFT * FLAT)
    way[support] = -lifted.cholesky().solve(slope)
    return way


def _rises(B: Symmetric, right: Vector, *, before: Vector, after: Vector) -> bool:
    """Whether x'Bx/2 - right'x is higher after a step than before it."""
    step = after - before
    slope = 0.5 * (B @ (before + after)) - right
    return float(slope @ step) > 0.0


def _solve_by_admm(B: Symmetric, b: Vector, *, kink: Kink, start: Vector) -> Minimum:
    """Any kink: alternate a solve with B + rho I and a shrink at 1/rho.

    B is decomposed once. rho = sqrt(smallest largest) suits most answers; where it
    does not settle (an answer at or near zero), larger and smaller ones are tried.
    """
    with catch_lapack_errors():
        spectra = [np.linalg.eigh(block.dense()) for block in B.blocks]
    largest = max(FLAT, *(float(values[-1]) for values, _ in spectra))
    least = min(float(values[0]) for values, _ in spectra)
    if least < -1e-10 * largest:
        raise NotPositiveDefinite(NOT_IN_TRAINING_DATA)
    smallest = max(least, 1e-8 * largest)
    # One block may serve all outputs.
    spectra = [spectra[i % len(spectra)] for i in range(len(B.per_output))]
    minima: list[Minimum] = []
    for rho in (np.sqrt(smallest * largest), largest, smallest):
        at = minima[-1].x if minima else start
        minima.append(
            _run_admm(
                B,
                b,
                kink=kink,
                start=at,
                resolvent=_Resolvent(B, spectra, float(rho)),
            )
        )
        if model_residual(B, b, minimum=minima[-1]) <= 10.0 * _rounding_level(
            B, b, x=minima[-1].x
        ):
            return minima[-1]
    return min(minima, key=lambda minimum: model_residual(B, b, minimum=minimum))


class _Resolvent(NamedTuple):
    """(B + rho I)^-1 by the eigenvalues and vectors of B's blocks."""

    B: Symmetric
    spectra: Sequence[tuple[Vector, Matrix]]
    rho: float

    def __matmul__(self, v: Vector) -> Vector:
        return self.B.join(
            [
                vectors @ ((vectors.T @ part) / (values + self.rho))
                for (values, vectors), part in zip(
                    self.spectra, self.B.split(v), strict=True
                )
            ]
        )


def _run_admm(
    B: Symmetric, b: Vector, *, kink: Kink, start: Vector, resolvent: _Resolvent
) -> Minimum:
    """Run ADMM at one rho.

    One vector v carries the iteration: z = shrink(v), dual = v - z. It is
    extrapolated by Anderson's method, without which a condition number of 1e7
    takes 1e5 steps.
    """
    rho = resolvent.rho

    def split(v: Vector) -> Minimum:
        z = kink.shrink(v, 1.0 / rho)
        return Minimum(z, rho * (v - z))

    def advance(v: Vector) -> Vector:
        z = split(v).x
        return v - z + resolvent @ (b + rho * (2.0 * z - v))

    def stop(v: Vector) -> bool:
        at = split(v)
        return model_residual(B, b, minimum=at) <= _rounding_level(B, b, x=at.x)

    return split(find_fixed_point(advance, start + (b - B @ start) / rho, stop=stop))
