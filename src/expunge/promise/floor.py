# SPDX-License-Identifier: Apache-2.0
r"""Floors: norms that are below that of the Hessian, from which radii follow.

A ``Floor`` is a norm N with N(D) <= |D|_H on steps D, H the Hessian H_U of the smooth
part, and says three things of it, each on the safe side:

    smallest             N(D)^2 >= smallest |D|^2
    dual_norm(v)         no less than |v| in the norm of H^-1
    longest_row(R)       E with |x'D| <= E N(D) for every row of length R

There are two. ``NumberFloor`` is a number: the penalty's curvature mu_U where it acts
on everything, an eigenvalue that a Cholesky factor proves (``curvature_floor``), or one
that a column of the Hessian tells (``quick_floor``); where H_U is kept, a dual norm is
computed with it (``inverse_norm``).

``Form`` is for free intercepts without matrices. Let M = sum w C over the remaining
rows at the answer, C the curvature of a row's k predictors, and N = sum w C x', the
coupling with the coefficients V. The Hessian of the loss is positive semidefinite, and
so is its Schur complement; the penalty adds A = P (alpha_2 + ridge) to each
coefficient. Hence

    H >= A |V|^2 + |b + M^+ N V|^2_M ,

a form of two numbers once |M^+ N| is known. With e the smallest eigenvalue of M and
K = M^+ N, and tr = A + e (1 + |K|^2),

    smallest        2 A e / (tr + sqrt(tr^2 - 4 A e))
    dual norm^2     |r_v - N'M^+ r_b|^2 / A + r_b'M^+ r_b
    longest row     E^2 <= (|x| + |K|)^2 / A + 1 / e .

Outputs that do not interact have one e and one mean row xbar = N / e each, known
exactly. For outputs that do, N is too large to keep, and the Cauchy-Schwarz inequality
bounds it: |M^+ N v|^2 <= v'H v / e <= k2 g |v|^2 / e, g the largest eigenvalue of the
sum of w x x', or the sum of w |x|^2, which is no less. For softmax M is flat along the
sum of the outputs, where the gauge stands in with curvature P; e is the smaller of the
two, which is sound because M^+ N is orthogonal to that direction.

All sums of a form belong to the answer itself: a matrix-free answer is its own anchor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, expm1, inf, isfinite, log1p, sqrt
from typing import NamedTuple, Protocol

import numpy as np

from ..core.arrays import (
    SAFETY,
    UNIT_ROUNDOFF,
    Matrix,
    Vector,
    catch_lapack_errors,
    norm,
    row_norms,
)
from ..core.linalg import Inverse, Symmetric, conjugate_gradients
from ..core.values import UNDERFLOW, Private
from ..exceptions import NotPositiveDefinite
from ..removal import State
from .rounding import Rounding

# Of the smallest eigenvalue as guessed, what the Cholesky test is tried with; and what
# each is at least of the one before.
LEAST_SHARE = 0.8
SHARES = (0.995, 0.98, 0.9, *(LEAST_SHARE**k for k in range(1, 124)))
LANCZOS = 21  # steps at most
NEAR = 5e-3  # how far the value may be from an eigenvalue, relatively: it is nearer
NEAR_SOLUTION = 1e-10  # what a solution may leave of the right side
# Of e, what pays for the rounding of a mean row: (a + h)^2 >= (1 - t) a^2 - h^2 / t.
SHARE = 1e-6


class Floor(Protocol):
    """A norm below that of H_U; see the module docstring."""

    @property
    def smallest(self) -> float:
        """What N(D)^2 is over |D|^2 at least."""

    def dual_norm(self, v: Vector) -> float:
        """Return a bound on |v| in the norm of H_U^-1."""

    def longest_row(self, R: float) -> float:
        """Return the most that |x'D| may be over N(D), for |x| at most R."""


@dataclass(frozen=True, slots=True, repr=False)
class NumberFloor(Private):
    """|D|_H >= sqrt(smallest) |D|.

    With ``rounding``, whose state has H_U, a dual norm is computed by products with it.
    ``row`` bounds every row in the norm of H_U^-1, where it was measured.
    """

    smallest: float
    rounding: Rounding | None = None
    row: float = inf

    def dual_norm(self, v: Vector) -> float:
        """Return a bound on |v| in the norm of H_U^-1."""
        if self.rounding is None:
            return norm(v) / sqrt(self.smallest)
        return inverse_norm(self.rounding, v, floor=self.smallest)

    def longest_row(self, R: float) -> float:
        """Return R over the root, or what was measured."""
        return min(R / sqrt(self.smallest), self.row)

    def faded(self, b: float, modulus: float) -> "NumberFloor":
        """Return the floor where curvature may have fallen by e^-b, yet not below."""
        if not b < 700.0:
            return NumberFloor(modulus)
        smallest = max(modulus, self.smallest * exp(-b))
        return NumberFloor(smallest, row=self.row * exp(0.5 * b) * SAFETY)


def local_radius(floor: Floor, decrement: float, *, rate: float, R: float) -> float:
    """Return -ln(1 - c E lambda) / (c E) over the root of the smallest.

    The one local radius (docs/radii.md, Theorem 6): ``decrement`` is lambda, a bound on
    the gradient in the norm of the inverse of the Hessian there; ``rate`` is c, the
    loss's self-concordance, and E the longest row in the norm of the floor.
    """
    smallest = floor.smallest
    if not smallest > 0.0:
        return inf
    way = local_way(floor, decrement, rate=rate, R=R)
    return way / sqrt(smallest) * SAFETY + UNDERFLOW


def local_way(floor: Floor, decrement: float, *, rate: float, R: float) -> float:
    """Return the same bound in the norm of the Hessian there."""
    if not (floor.smallest > 0.0 and isfinite(decrement) and isfinite(rate)):
        return inf
    reach = rate * floor.longest_row(R) * SAFETY
    return local_distance(decrement * SAFETY + UNDERFLOW, reach)


def local_distance(decrement: float, R: float) -> float:
    """Return -ln(1 - R decrement) / R, a bound on the distance to the minimiser.

    Let D be the way from theta to theta*, decrement a bound on the dual norm of the
    gradient at theta, and let the curvature fall by no more than e^(-R |D| t) on the
    first part t of that way. The gradient vanishes at theta* and is monotone, so

        decrement |D| >= |D|^2 int_0^1 e^(-R |D| t) dt = |D| (1 - e^(-R |D|)) / R,

    which is the bound, solved for |D|. If R decrement < 1, theta* exists; otherwise
    nothing is known and the bound is infinite. At R = 0 it is the decrement itself.
    Losses whose third derivative is at most c times the second behave like this, R
    being c times the norm of the longest row: Bach, *Self-concordant analysis for
    logistic regression*, Electronic Journal of Statistics 4 (2010); Sun and Tran-Dinh,
    *Generalized self-concordant functions*, Mathematical Programming 178 (2019).
    """
    reach = R * decrement
    if not reach < 1.0:
        return inf
    # As a factor of what it is near zero: R times a small decrement may underflow.
    return decrement * (-log1p(-reach) / reach if reach else 1.0)


def penalised_curvature(rounding: Rounding) -> float:
    """Return A = P mu, the curvature of what is penalised, from below."""
    state = rounding.state
    P = state.penalty_weight
    return max(0.0, P - rounding.weight) * state.objective.quadratic


def strong_convexity(rounding: Rounding) -> float:
    """Return mu_U = P mu: zero where nothing penalises some direction."""
    free = rounding.state.objective.n_free
    return 0.0 if free else penalised_curvature(rounding)


def curvature_floor(rounding: Rounding) -> float:
    """Return a lower bound on the smallest eigenvalue of H_U.

    mu_U where everything is penalised. Otherwise a shift t for which H_U - t I has
    a Cholesky factor, less the error of that test: an eigenvalue solve would cost
    twenty times as much.
    """
    state, modulus = rounding.state, strong_convexity(rounding)
    if modulus > 0.0:
        return modulus
    H = state.smooth_hessian()
    trace = float(np.abs(H.diagonal).sum())
    error = rounding.hessian + 2.0 * UNIT_ROUNDOFF * (H.size + 2) * trace
    guess = _smallest_eigenvalue(state, H)
    for share in SHARES:
        shift = share * guess
        if not shift > error:
            break
        try:
            H.add_diagonal(np.full(H.size, -shift)).cholesky(overwrite=True)
        except NotPositiveDefinite:
            continue
        # Of P, by which H_U holds the quadratic, rounding may be a share.
        doubt = rounding.weight / state.penalty_weight
        return (shift - error) * max(0.0, 1.0 - doubt)
    return 0.0


def _smallest_eigenvalue(state: State, H: Symmetric) -> float:
    """Return a guess at the smallest eigenvalue of H_U; nothing rests on it.

    From above, by Lanczos steps with the inverse (Golub and Van Loan, *Matrix
    Computations*, chapter 10).
    """
    solve: Callable[[Vector], Vector]
    known = state.preconditioner
    if known is None:
        try:
            solve = H.cholesky().solve
        except NotPositiveDefinite:
            return 0.0
    else:
        solve = known.__matmul__
    v, before = np.ones(H.size) / sqrt(H.size), np.zeros(H.size)
    beta = largest = 0.0
    alphas, betas = np.zeros(LANCZOS), np.zeros(LANCZOS)
    for n in range(LANCZOS):
        w = solve(v) - beta * before
        alphas[n] = v @ w
        w -= alphas[n] * v
        before, beta = v, norm(w)
        betas[n] = beta
        if not beta < inf:
            return 0.0
        if n % 3 == 2 or not beta > 0.0:
            with catch_lapack_errors():
                off = np.diag(betas[:n], -1)
                values, vectors = np.linalg.eigh(np.diag(alphas[: n + 1]) + off)
            largest = float(values[-1])
            if not beta * abs(vectors[-1, -1]) > NEAR * largest:
                break
        v = w / beta
    return 1.0 / largest if largest > 0.0 else 0.0


def quick_floor(rounding: Rounding) -> float:
    """Return a lower bound on the smallest eigenvalue of H_U in O(d k), or zero.

    For outputs that do not interact, each with a free intercept. Let (g, e) be
    the intercept's column of an output's Hessian of the loss, and A = P mu. A sum of
    squares is at least its part along one column, so that the output's block of H_U is
    at least A |v|^2 + e (b + g.v / e)^2 for coefficients v and an intercept b. Of this,
    eigenvalues are A and two of sum A + e + |g|^2/e and product A e, the smaller of
    which falls with |g| and grows with e (docs/radii.md, "Several outputs"). The
    test of ``curvature_floor`` may find more, at a thousand times the work.
    """
    state = rounding.state
    if state.sums.hessian is None:
        return 0.0
    if state.sums.hessian.outputs != state.objective.n_free:
        return 0.0
    A, error = penalised_curvature(rounding), rounding.matrix
    columns = state.sums.hessian.last_rows
    e = columns[:, -1] - error
    g = row_norms(columns[:, :-1]) * SAFETY + error
    if not (e > 0.0).all():
        return 0.0
    return form_floor(A, e=e, coupling=g / e * SAFETY)


def known_floor(state: State) -> float:
    """Return a floor of the curvature that costs no factor: zero if there is none.

    Nor is one for a single output beside a free intercept: solved to rounding, which
    costs little there, a batch equals a stream.
    """
    rounding, loss = Rounding(state), state.objective.loss
    known = strong_convexity(rounding)
    return known or (quick_floor(rounding) if loss.outputs > 1 else 0.0)


def inverse_norm(rounding: Rounding, v: Vector, *, floor: float) -> float:
    """Return an upper bound on |v| in the norm of H_U^-1.

    |v|^2 <= v'z + |v - H_U z| |v| / floor for *any* z, so that it does not matter how
    well z solves H_U z = v.
    """
    size, unit = split_length(v)
    if size == 0.0 or floor <= 0.0:
        return inf if size else 0.0
    state = rounding.state
    z = approximate_solution(state, unit)
    left = norm(unit - state.hessian_operator()(z)) + rounding.matrix * norm(z)
    square = max(float(unit @ z), 0.0) + left / floor
    return size * min(sqrt(square), 1.0 / sqrt(floor)) * SAFETY


def approximate_solution(state: State, v: Vector) -> Vector:
    """Return some z near H_U^-1 v; nothing sound rests on how near."""
    inverse = state.preconditioner
    if isinstance(inverse, Inverse):  # by a factor of this very matrix
        return inverse @ v
    if inverse is not None:
        precondition = inverse.__matmul__
    else:
        diagonal = state.smooth_hessian().diagonal
        scale = 1.0 / np.maximum(diagonal, 1e-12 * float(diagonal.max()))

        def precondition(r: Vector) -> Vector:
            return scale * r

    operator, enough = state.hessian_operator(), NEAR_SOLUTION * norm(v)
    return conjugate_gradients(
        operator, v, precondition=precondition, enough=enough, max_steps=30
    ).x


def split_length(v: Vector) -> tuple[float, Vector]:
    """Return |v| and v / |v|, whose squares cannot underflow; zero stays zero."""
    size = norm(v)
    return size, v / size if size else v


class Form(NamedTuple):
    """The form that is below the Hessian: A |v|^2 + e |b + K v|^2.

    ``e`` and ``coupling``, a bound on |K|, have an entry for each output that is
    apart; ``K`` holds the mean row of each where it is known.
    """

    A: float
    e: Vector
    coupling: Vector
    K: Matrix | None
    outputs: int

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue."""
        return form_floor(self.A, e=self.e, coupling=self.coupling)

    def dual_norm(self, v: Vector) -> float:
        """Return the norm of a gradient in the inverse of the form, from above."""
        gradient = v.reshape(-1, self.outputs)
        slopes, free = gradient[:-1], gradient[-1]
        if self.K is None:
            along = norm(slopes) + float(self.coupling[0]) * norm(free)
        else:
            along = norm(slopes - self.K * free)
        # A product of squares may be less than the smallest number.
        return norm(np.append(free / np.sqrt(self.e), along / sqrt(self.A))) * SAFETY

    def longest_row(self, R: float) -> float:
        """Return the root of (R + coupling)^2 / A + 1 / e."""
        squares = (R + self.coupling) ** 2 / self.A + 1.0 / self.e
        return sqrt(float(np.max(squares))) * SAFETY


def form_floor(A: float, *, e: Vector, coupling: Vector) -> float:
    """Return the smallest eigenvalue of A |v|^2 + e |b + K v|^2, |K| <= coupling.

    The smallest over several e and coupling.
    """
    trace, product = A + e * (1.0 + coupling**2), A * e
    root = np.sqrt(np.maximum(trace**2 - 4.0 * product, 0.0))
    return float(np.min(2.0 * product / (trace + root))) / SAFETY


def intercept_form(
    rounding: Rounding, *, way: float = 0.0, b: float = 0.0
) -> Form | None:
    """Return the form at an anchor that is the answer; None if rows hold too little.

    Or one that a fit may find ``way`` from the anchor, whose rows' curvatures are
    others by factors between e^-b and e^b: so e by no less, and the mean row of an
    output by no more than (e^2b - 1) R. It takes its own rounding off e, and finds it
    as far off at first.
    """
    sums = rounding.state.sums
    if sums.curvature is None:
        return None
    find = _joint_form if sums.intercept_columns is None else _separate_forms
    return find(rounding, way=way, b=b)


def _separate_forms(rounding: Rounding, *, way: float, b: float) -> Form | None:
    """Return A, e, |xbar| and, at the anchor, xbar of each output."""
    state, error = rounding.state, rounding.curvature()
    sizes, intercept_columns = state.magnitude, state.sums.intercept_columns
    assert intercept_columns is not None
    e = intercept_columns[-1] - error
    if not (e > 0.0).all():
        return None
    mean = intercept_columns[:-1] / intercept_columns[-1]
    # Of as many squares as there are columns a sum may lose more than SAFETY adds.
    rounded = (1.0 + (len(mean) + 4) * UNIT_ROUNDOFF) * SAFETY
    coupling = np.sqrt(np.einsum("ij,ij->j", mean, mean)) * rounded
    # A row's length, in a mean over the rows of what rounding may change.
    typical = sizes.row_norm
    if rounding.shift.is_bounded:
        typical = sqrt(sizes.square_norm / state.anchor_weight)

    def form(
        e: Vector, coupling: Vector, *, K: Matrix | None, error: float
    ) -> Form | None:
        if not (e > 0.0).all():
            return None
        # How far rounding may have moved a mean row.
        doubt = error * (2.0 + 2.0 * typical + coupling) / e
        A = penalised_curvature(rounding) - float(np.max(e * doubt**2)) / SHARE
        if not A > 0.0:
            return None
        return Form(A, (1.0 - SHARE) * e, coupling, K, state.objective.loss.outputs)

    found = form(e, coupling, K=mean, error=error)
    if found is None or not way:
        return found
    e, R, there = found.e * exp(-b), sizes.row_norm, rounding.curvature(further=way)
    coupling = coupling + expm1(2.0 * b) * R
    coupling = (
        coupling + 4.0 * there * (1.0 + R + coupling) / e
    )  # as computed, both times
    return form(e - 2.0 * there, coupling, K=None, error=there)


def _joint_form(rounding: Rounding, *, way: float, b: float) -> Form | None:
    """Return A, the smallest curvature of the outputs, and a bound on |M^+ N|."""
    state, k = rounding.state, rounding.state.objective.loss.outputs
    assert state.sums.curvature is not None
    # Along the sum of the outputs nothing else may have any curvature.
    gauge = max(0.0, state.penalty_weight - rounding.weight)
    gauge *= float(state.objective.loss.shift_invariant)
    with catch_lapack_errors():
        e = float(np.linalg.eigvalsh(state.sums.curvature + gauge / k)[0])

    def error(way: float) -> float:
        size = max(state.magnitude.weight, rounding.shift.curvature(way)) + gauge
        solved = 4.0 * k * UNIT_ROUNDOFF * size
        return 2.0 * k * (rounding.curvature(further=way) + solved)

    def form(e: float, wider: float = 1.0) -> Form | None:
        A, sizes = penalised_curvature(rounding), state.magnitude
        if not (e > 0.0 and A > 0.0):
            return None
        spread = sizes.hessian
        if isfinite(state.objective.loss.curvature_bound):
            spread = state.objective.loss.curvature_bound * sizes.gram
        coupling = sqrt(wider * spread * (1.0 + rounding.sums) / e) * SAFETY
        return Form(A, np.array([e]), np.array([coupling]), None, k)

    found = form(e - error(0.0))
    if found is None or not way:
        return found
    # What bounds the spread is rounded otherwise where other rows are summed.
    wider = 1.0 + 4.0 * rounding.sums + 1e-9
    return form(float(found.e[0]) * exp(-b) - 2.0 * error(way), wider)
