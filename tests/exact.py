# SPDX-License-Identifier: Apache-2.0
"""Minimisers in extended precision, to judge answers in double precision by.

Everything is computed in ``numpy.longdouble``: on x86 its exponent has 15 bits, so that
numbers whose squares leave the range of doubles are ordinary here. A minimiser comes
with a bound on its own error, from the gradient measured at it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from expunge import (
    Gamma,
    GroupLasso,
    HalfSquared,
    Huber,
    Logistic,
    Multinomial,
    NegativeBinomial,
    NuclearNorm,
    Objective,
    OneVsRest,
    Pinball,
    Poisson,
    Rows,
    SquaredHinge,
    Tweedie,
)
from tests.strangers.visits import Visits

LD = np.longdouble
Array: TypeAlias = Any

SUITABLE = np.finfo(LD).maxexp > 8192 and np.finfo(LD).nmant >= 63
STEPS = 60
INNER = 400
HALVINGS = 60


@dataclass(frozen=True)
class Exact:
    """A minimiser, and how far it may be from the true one."""

    theta: Array
    doubt: Any


def exact_minimiser(objective: Objective, rows: Rows, start: Array) -> Exact:
    """Return the minimiser on these rows in extended precision."""
    problem = _Problem(objective, rows)
    best = None
    for theta in (np.asarray(start, dtype=LD), np.zeros(len(start), dtype=LD)):
        if not np.isfinite(theta).all():
            continue
        found = _solved(problem, theta)
        if best is None or found.doubt < best.doubt:
            best = found
        if best.doubt <= 1e-6 * length(best.theta):
            break
    assert best is not None
    return best


def exact_loss(objective: Objective, row: Rows, at: Exact) -> tuple[Any, Any]:
    """Return a row's loss at a minimiser, and how far it may be off."""
    problem = _Problem(objective, row)
    eta, reach = problem.eta(at.theta), length(problem.X) * at.doubt
    value, *ends = (
        _values(objective.loss, problem.y, eta + sign * reach)[0] for sign in (0, -1, 1)
    )
    doubt = max(abs(end - value) for end in ends)
    return value, doubt if np.isfinite(doubt) else LD(np.inf)


def length(v: Array) -> Any:
    """Return |v|, scaled before it is squared."""
    largest = np.max(np.abs(v), initial=LD(0))
    if not (largest > 0 and np.isfinite(largest)):
        return largest
    return largest * np.sqrt(np.sum((v / largest) ** 2))


class _Problem:
    """An objective on rows: values and derivatives in extended precision."""

    def __init__(self, objective: Objective, rows: Rows) -> None:
        self.objective, self.loss = objective, objective.loss
        self.k = objective.loss.outputs
        self.X = rows.dense().astype(LD)
        self.y = rows.y.astype(LD)
        weight = rows.weight.astype(LD)
        self.share = weight / weight.sum()
        self.alpha = LD(objective.alpha)
        self.mu = self.alpha * LD(objective.penalty.strong_convexity) + LD(
            objective.ridge
        )
        size = self.X.shape[1] * self.k
        self.diagonal = np.full(size, self.mu)
        self.free = objective.n_free
        if self.free:
            self.diagonal[-self.free :] = 0
        self.gauge = bool(self.free) and objective.loss.shift_invariant

    def eta(self, theta: Array) -> Array:
        return self.X @ theta.reshape(-1, self.k)

    def value(self, theta: Array) -> Any:
        loss = np.sum(self.share * _values(self.loss, self.y, self.eta(theta)))
        quadratic = np.sum(self.diagonal * theta**2) / 2 + self._gauged(theta) ** 2 / 2
        return loss + quadratic + self.alpha * self._kink(theta)

    def gradient(self, theta: Array) -> Array:
        slope, _ = derivatives(self.loss, self.y, self.eta(theta))
        lifted = (self.X.T @ (self.share[:, None] * slope)).ravel()
        gradient = lifted + self.diagonal * theta
        if self.gauge:
            gradient[-self.free :] += self._gauged(theta) / np.sqrt(LD(self.free))
        return gradient

    def hessian(self, theta: Array) -> Array:
        _, curvature = derivatives(self.loss, self.y, self.eta(theta))
        H = np.einsum("i,ia,icd,ib->acbd", self.share, self.X, curvature, self.X)
        size = theta.size
        H = H.reshape(size, size) + np.diag(self.diagonal)
        if self.gauge:
            H[-self.free :, -self.free :] += 1 / LD(self.free)
        return H

    def shrink(self, v: Array, step: Any) -> Array:
        """Return the prox of step alpha kink; step is one number."""
        end, penalty = v.size - self.free, self.objective.penalty
        part, out = v[:end].reshape(-1, self.k), v.copy()
        step = step * self.alpha
        if isinstance(penalty, GroupLasso):
            shrunk = np.zeros_like(part)
            for group in set(penalty.groups):
                here = np.asarray(penalty.groups) == group
                limit = step * np.sqrt(LD(here.sum() * self.k))
                size = length(part[here])
                if size > limit:
                    shrunk[here] = part[here] * (1 - limit / size)
        elif isinstance(penalty, NuclearNorm):
            shrunk = _shrink_singular(part, step)
        else:
            share = LD(getattr(penalty, "l1_ratio", 0.0 if penalty.smooth else 1.0))
            shrunk = part - np.clip(part, -step * share, step * share)
        out[:end] = shrunk.ravel()
        return out

    def _gauged(self, theta: Array) -> Any:
        if not self.gauge:
            return LD(0)
        return np.sum(theta[-self.free :]) / np.sqrt(LD(self.free))

    def _kink(self, theta: Array) -> Any:
        penalty = self.objective.penalty
        part = theta[: theta.size - self.free].reshape(-1, self.k)
        if penalty.smooth:
            return LD(0)
        if isinstance(penalty, GroupLasso):
            codes = np.asarray(penalty.groups)
            sizes = [(codes == group).sum() * self.k for group in set(codes)]
            norms = [length(part[codes == group]) for group in set(codes)]
            return sum(np.sqrt(LD(s)) * n for s, n in zip(sizes, norms, strict=True))
        if isinstance(penalty, NuclearNorm):
            return np.sum(_singular(part)[0])
        return LD(getattr(penalty, "l1_ratio", 1.0)) * np.sum(np.abs(part))


def _values(loss: Any, y: Array, eta: Array) -> Array:
    if isinstance(loss, HalfSquared):
        return np.sum((eta - y.reshape(eta.shape)) ** 2, axis=1) / 2
    if isinstance(loss, Multinomial):
        own = eta[np.arange(len(eta)), y.astype(int)]
        top = eta.max(axis=1)
        return top + np.log(np.exp(eta - top[:, None]).sum(axis=1)) - own
    if isinstance(loss, OneVsRest):
        signs = np.where(y[:, None] == np.arange(loss.classes), LD(1), LD(-1))
        each = _values(loss.binary, signs.ravel(), eta.reshape(-1, 1))
        return each.reshape(eta.shape).sum(axis=1)
    eta = eta[:, 0]
    if isinstance(loss, Huber):
        error = np.abs(eta - y)
        inside = np.minimum(error, LD(loss.threshold))
        return inside * (error - inside / 2)
    if isinstance(loss, SquaredHinge):
        return np.maximum(LD(0), 1 - y * eta) ** 2
    if isinstance(loss, Visits):
        return np.exp(eta) - y * eta
    if isinstance(loss, Pinball):
        h, q, e = LD(loss.width), LD(loss.quantile), y - eta
        return q * e + h * np.logaddexp(LD(0), -e / h)
    if isinstance(loss, Poisson | Gamma | Tweedie | NegativeBinomial):
        # With what only y and v decide left out as the package does.
        y, moved = _respond(loss, y, eta)
        if isinstance(loss, Poisson):
            return np.exp(moved) - y * eta
        if isinstance(loss, Gamma):
            return eta + y * np.exp(-moved)
        if isinstance(loss, Tweedie):
            a, b = 2 - LD(loss.power), LD(loss.power) - 1
            v = np.exp(moved - eta)
            first, second = np.expm1(a * eta) / a, np.expm1(-b * eta) / b
            return v**a * first + y * v**-b * second
        c = LD(loss.dispersion)
        z = moved + np.log(c)
        return y * np.logaddexp(LD(0), -z) + np.logaddexp(LD(0), z) / c
    assert isinstance(loss, Logistic)
    return np.logaddexp(LD(0), -y * eta)


def derivatives(loss: Any, y: Array, eta: Array) -> tuple[Array, Array]:
    """Return slopes (n, k) and curvatures (n, k, k)."""
    n, k = eta.shape
    eye = np.eye(k, dtype=LD)
    if isinstance(loss, HalfSquared):
        return eta - y.reshape(eta.shape), np.broadcast_to(eye, (n, k, k))
    if isinstance(loss, Multinomial):
        p = np.exp(eta - eta.max(axis=1)[:, None])
        p /= p.sum(axis=1)[:, None]
        own = eye[y.astype(int)]
        return p - own, p[:, :, None] * (eye - p[:, None, :])
    if isinstance(loss, OneVsRest):
        signs = np.where(y[:, None] == np.arange(k), LD(1), LD(-1))
        each = derivatives(loss.binary, signs.ravel(), eta.reshape(-1, 1))
        slope, curvature = (part.reshape(n, k) for part in each)
        return slope, curvature[:, :, None] * eye
    if isinstance(loss, Poisson | Gamma | Tweedie | NegativeBinomial):
        z, eta = _respond(loss, y, eta[:, 0])
        slope, curvature = _growing(loss, z[:, None], eta[:, None])
        return slope, curvature[:, :, None]
    z = y[:, None]
    if isinstance(loss, Pinball):
        h, q = LD(loss.width), LD(loss.quantile)
        share, rest = (1 / (1 + np.exp(s * (eta - z) / h)) for s in (-1, 1))
        return share - q, (share * rest / h)[:, :, None]
    if isinstance(loss, Huber):
        error, t = eta - z, LD(loss.threshold)
        inside = (np.abs(error) <= t).astype(LD)
        return np.clip(error, -t, t), inside[:, :, None]
    if isinstance(loss, SquaredHinge):
        short = np.maximum(LD(0), 1 - z * eta)
        return -2 * z * short, (2 * (short > 0).astype(LD))[:, :, None]
    if isinstance(loss, Visits):
        return np.exp(eta) - z, np.exp(eta)[:, :, None]
    assert isinstance(loss, Logistic)
    slope, curvature = _logistic(z, eta)
    return slope, curvature[:, :, None]


def _respond(loss: Any, y: Array, eta: Array) -> tuple[Array, Array]:
    """Return responses, and predictors with the offset of each row."""
    return (y[:, 0], eta + np.log(y[:, 1])) if loss.offset else (y, eta)


def _growing(loss: Any, y: Array, eta: Array) -> tuple[Array, Array]:
    """Return slopes and curvatures of losses with a log link."""
    if isinstance(loss, Poisson):
        return np.exp(eta) - y, np.exp(eta)
    if isinstance(loss, Gamma):
        return 1 - y * np.exp(-eta), y * np.exp(-eta)
    if isinstance(loss, Tweedie):
        a, b = 2 - LD(loss.power), LD(loss.power) - 1
        power, other = np.exp(a * eta), y * np.exp(-b * eta)
        return power - other, a * power + b * other
    c, mean = LD(loss.dispersion), np.exp(eta)
    return (mean - y) / (1 + c * mean), (1 + c * y) * mean / (1 + c * mean) ** 2


def _logistic(signs: Array, eta: Array) -> tuple[Array, Array]:
    away = np.exp(-np.abs(eta))
    p = np.where(signs * eta > 0, away / (1 + away), 1 / (1 + away))
    return -signs * p, away / (1 + away) ** 2


def _singular(part: Array) -> tuple[Array, Array]:
    """Return singular values and right vectors of a matrix of two columns."""
    a, b = length(part[:, 0]), length(part[:, 1])
    scale = max(a, b)
    if scale == 0:
        return np.zeros(2, dtype=LD), np.eye(2, dtype=LD)
    unit = part / scale
    c = np.sum(unit[:, 0] * unit[:, 1])
    a, b = np.sum(unit[:, 0] ** 2), np.sum(unit[:, 1] ** 2)
    angle = np.arctan2(2 * c, a - b) / 2
    V = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    turned = unit @ V
    return scale * np.sqrt(np.sum(turned**2, axis=0)), V


def _shrink_singular(part: Array, step: Any) -> Array:
    values, V = _singular(part)
    factor = np.array([1 - step / s if s > step else LD(0) for s in values])
    return ((part @ V) * factor) @ V.T


def _solve(H: Array, b: Array) -> Array:
    """Return H^-1 b by a Cholesky factor of H scaled to a unit diagonal."""
    scale = np.sqrt(np.maximum(np.diag(H), LD(0)))
    scale[scale == 0] = 1
    A = H / np.outer(scale, scale)
    n = len(A)
    L = np.zeros_like(A)
    for j in range(n):
        pivot = A[j, j] - np.sum(L[j, :j] ** 2)
        L[j, j] = np.sqrt(max(pivot, np.finfo(LD).eps))
        for i in range(j + 1, n):
            L[i, j] = (A[i, j] - np.sum(L[i, :j] * L[j, :j])) / L[j, j]
    x = b / scale
    for j in range(n):
        x[j] = (x[j] - np.sum(L[j, :j] * x[:j])) / L[j, j]
    for j in reversed(range(n)):
        x[j] = (x[j] - np.sum(L[j + 1 :, j] * x[j + 1 :])) / L[j, j]
    return x / scale


def _solved(problem: _Problem, theta: Array) -> Exact:
    """Return the end of damped (proximal) Newton steps, and its doubt."""
    smooth = problem.objective.penalty.smooth
    separable = problem.objective.penalty.separable
    doubt, best = LD(np.inf), theta
    for _ in range(STEPS):
        gradient, H = problem.gradient(theta), problem.hessian(theta)
        if smooth:
            target, nu = theta - _solve(H, gradient), np.zeros_like(theta)
        else:
            inner = _by_coordinates if separable else _by_steps
            target, nu = inner(problem, theta, gradient, H)
        landed = _doubt(problem, target, nu)
        if landed < doubt:
            doubt, best = landed, target
        if landed <= 1e-17 * length(target):
            break
        moved = _searched(problem, theta, target)
        if moved is None:
            break
        theta = moved
    return Exact(best, doubt)


def _doubt(problem: _Problem, theta: Array, nu: Array) -> Any:
    """Return a bound on the distance to the minimiser, by the gradient at theta."""
    left = length(problem.gradient(theta) + nu)
    if not problem.free and problem.mu > 0:
        return left / problem.mu
    # Not proven where curvature may fall on the way: twice the local bound.
    H = problem.hessian(theta)
    unit = np.max(np.abs(H))
    if not (np.isfinite(unit) and unit > 0):
        return LD(np.inf)
    least = np.linalg.eigvalsh((H / unit).astype(np.float64))[0]
    return 2 * left / (unit * LD(least)) if least > 1e-13 else LD(np.inf)


def _searched(problem: _Problem, here: Array, target: Array) -> Array | None:
    value, way, size = problem.value(here), target - here, LD(1)
    for _ in range(HALVINGS):
        there = here + size * way
        if problem.value(there) <= value:
            return there
        size /= 2
    return None


def _by_coordinates(
    problem: _Problem, theta: Array, gradient: Array, H: Array
) -> tuple[Array, Array]:
    """Return the model's minimiser under a separable kink, and a subgradient."""
    x, slope, nu = theta.copy(), gradient.copy(), np.zeros_like(theta)
    for _ in range(INNER):
        change = LD(0)
        for j in range(x.size):
            step = 1 / H[j, j] if H[j, j] > 0 else LD(1)
            v = x.copy()
            v[j] = x[j] - step * slope[j]
            new = problem.shrink(v, step)[j]
            nu[j] = (v[j] - new) / step
            moved = new - x[j]
            if moved != 0:
                slope = slope + moved * H[:, j]
                x[j] = new
                change = max(change, abs(moved))
        if change <= 1e-19 * np.max(np.abs(x)):
            break
    return x, nu


def _by_steps(
    problem: _Problem, theta: Array, gradient: Array, H: Array
) -> tuple[Array, Array]:
    """Return the model's minimiser under any kink, by accelerated steps."""
    top = np.max(np.sum(np.abs(H), axis=1))
    step = 1 / top if top > 0 else LD(1)
    shrink: Callable[[Array, Any], Array] = problem.shrink
    x, extra, momentum, nu = theta.copy(), theta.copy(), LD(1), np.zeros_like(theta)
    for _ in range(INNER):
        v = extra - step * (gradient + H @ (extra - theta))
        new = shrink(v, step)
        nu = (v - new) / step
        if np.sum((extra - new) * (new - x)) > 0:
            momentum = LD(1)
        after = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        extra = new + (momentum - 1) / after * (new - x)
        moved, x, momentum = length(new - x), new, after
        if moved <= 1e-19 * length(x):
            break
    return x, nu
