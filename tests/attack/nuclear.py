# SPDX-License-Identifier: Apache-2.0
r"""The oracle for the nuclear norm: Newton steps on the factors of the coefficients.

With coefficients P Q', the nuclear norm is the least (|P|^2 + |Q|^2) / 2, so that the
objective in (P, Q) is smooth; at a stationary point P'P = Q'Q = B, and P B^-1 Q' is the
polar factor of P Q'. That plus any W beside it with singular values up to one is a
subgradient, and the distance of zero to it bounds the error as for other penalties.
The rank is guessed from a proximal gradient descent; a wrong guess leaves a residual,
and shows.
"""

from dataclasses import replace

import numpy as np

from expunge import NuclearNorm

from .losses import Array
from .oracle import LONG, Aim, Optimum, Point, Problem, Sample, distance_bound, solve
from .oracle import minimise as minimise_plain

__all__ = ["PENALTY", "minimise", "minimise_plain"]
PENALTY = NuclearNorm()
EPS = float(np.finfo(LONG).eps)
DESCENTS, DESCENT = 4, 400
STEPS = 12
SHARES = (1e-10, 1e-6, 1e-3, 0.05)  # of the largest singular value: what counts as zero
GOOD = 1e-14  # of the length of the point, an error that need not be smaller


def minimise(aim: Aim, sample: Sample, first_weight: LONG, start: Array) -> Optimum:
    """Return the minimiser; aim's alpha is the factor of the nuclear norm."""
    # What is smooth: the ridge takes the place of a penalty.
    smooth = replace(aim, alpha=aim.ridge, ridge=0.0, l1_ratio=0.0)
    problem = Problem(smooth, sample, first_weight)
    factor = first_weight / sample.total if aim.scaling == "sum" else LONG(1)
    alpha = factor * LONG(aim.alpha)
    best = Optimum(np.zeros(problem.size, dtype=LONG), np.inf)
    theta = np.array(start, float)
    with np.errstate(all="ignore"):
        for _ in range(DESCENTS):
            for rank in _ranks(problem, theta):
                found = Factored(problem, alpha, theta, rank).solve()
                if found.error < best.error:
                    best = found
            size = float(np.sqrt((best.theta**2).sum()))
            if best.error <= GOOD * max(size, 1e-3):
                break
            theta = _descend(problem, float(alpha), theta)
    return best


def _ranks(problem: Problem, theta: Array) -> list[int]:
    """Return the ranks that the coefficients may have."""
    table = theta[: problem.size - problem.n_free].reshape(-1, problem.k)
    values = np.linalg.svd(table, compute_uv=False)
    return sorted({int((values > share * values[0]).sum()) for share in SHARES} | {0})


def _descend(problem: Problem, alpha: float, theta: Array) -> Array:
    """Return the point after some accelerated proximal gradient steps, in doubles."""
    parts, end = problem.parts[np.dtype(float)], problem.size - problem.n_free
    scaled = parts["X"] * np.sqrt(parts["share"])[:, None]
    steep = problem.loss.largest_curvature * float(np.linalg.norm(scaled, 2)) ** 2
    step = 1.0 / (steep + problem.quadratic + bool(problem.n_free))
    here, ahead, speed = theta, theta, 1.0
    for _ in range(DESCENT):
        moved = ahead - step * Point(problem, ahead).gradient
        if not np.isfinite(moved).all():
            return theta
        U, s, V = np.linalg.svd(moved[:end].reshape(-1, problem.k), full_matrices=False)
        moved[:end] = ((U * np.maximum(s - step * alpha, 0.0)) @ V).ravel()
        faster = (1.0 + np.sqrt(1.0 + 4.0 * speed * speed)) / 2.0
        if (ahead - moved) @ (moved - here) > 0.0:
            faster = 1.0
        ahead = moved + (speed - 1.0) / faster * (moved - here)
        here, speed = moved, faster
    return here


class Factored:
    """A point as factors of a rank, and free intercepts.

    Parameters
    ----------
    problem, alpha
        What is smooth, and the factor of the nuclear norm.
    theta
        Where to start.
    rank
        Of the coefficients.
    """

    def __init__(self, problem: Problem, alpha: LONG, theta: Array, rank: int) -> None:
        self.problem, self.alpha, self.rank = problem, alpha, rank
        self.end = problem.size - problem.n_free
        table = theta[: self.end].reshape(-1, problem.k)
        U, s, V = np.linalg.svd(table, full_matrices=False)
        root = np.sqrt(s[:rank])
        factors = ((U[:, :rank] * root).ravel(), (V[:rank].T * root).ravel())
        self.v = np.concatenate([*factors, theta[self.end :]]).astype(LONG)

    def split(self, v: Array) -> tuple[Array, Array, Point]:
        """Return the factors, and the point that they make."""
        width, k, rank = self.end // self.problem.k, self.problem.k, self.rank
        P = v[: width * rank].reshape(width, rank)
        Q = v[width * rank : (width + k) * rank].reshape(k, rank)
        free = v[(width + k) * rank :]
        theta = np.concatenate([(P @ Q.T).ravel(), free])
        return P, Q, Point(self.problem, theta)

    def gradient(self, v: Array) -> Array:
        """Return the gradient in the factors and the intercepts."""
        P, Q, point = self.split(v)
        G = point.gradient[: self.end].reshape(len(P), -1)
        parts = (G @ Q + self.alpha * P, G.T @ P + self.alpha * Q)
        rest = point.gradient[self.end :]
        return np.concatenate([*(part.ravel() for part in parts), rest])

    def hessian(self, v: Array) -> Array:
        """Return the Hessian in the factors, with turns of both held."""
        P, Q, point = self.split(v)
        (width, rank), k, free = P.shape, len(Q), self.problem.n_free
        one, other = width * rank, k * rank
        J = np.zeros((self.problem.size, v.size), dtype=LONG)
        J[: self.end, :one] = np.kron(np.eye(width), Q)
        for c in range(k):
            J[c : self.end : k, one + c * rank : one + (c + 1) * rank] = P
        J[self.end :, one + other :] = np.eye(free)
        H = J.T @ point.hessian() @ J
        H[np.diag_indices(one + other)] += self.alpha
        G = point.gradient[: self.end].reshape(width, k)
        cross = np.kron(G, np.eye(rank)).astype(LONG)
        H[:one, one : one + other] += cross
        H[one : one + other, :one] += cross.T
        for a in range(rank):
            for b in range(a):
                turn = np.zeros((rank, rank))
                turn[a, b], turn[b, a] = 1.0, -1.0
                z = np.concatenate([(P @ turn).ravel(), (Q @ turn).ravel()])
                H[: one + other, : one + other] += np.outer(z, z)
        return H

    def solve(self) -> Optimum:
        """Return the point after Newton steps, with a bound on its error."""
        v, slope = self.v, self.gradient(self.v)
        for _ in range(STEPS if v.size else 0):
            step = solve(self.hessian(v), slope)
            if not np.isfinite(step).all():
                break
            for halvings in range(8):
                moved = v - step / 2**halvings
                after = self.gradient(moved)
                if (after**2).sum() < (slope**2).sum():
                    break
            else:
                break
            v, slope = moved, after
        return self.bounded(v)

    def bounded(self, v: Array) -> Optimum:
        """Return the point with the distance of zero to a subgradient, over a floor."""
        P, Q, point = self.split(v)
        G = point.gradient[: self.end].reshape(len(P), -1)
        wanted, polar, doubt = -G / self.alpha, 0.0 * G, 0.0
        beside = wanted
        if self.rank:
            B, C = P.T @ P, Q.T @ Q
            least = float(np.linalg.eigvalsh(B.astype(float))[0])
            if not least > 1e-12 * float(np.trace(B)):
                return Optimum(point.theta, np.inf)
            polar = P @ _inverse(B) @ Q.T
            beside = beside - P @ (_inverse(B) @ (P.T @ beside))
            beside = beside - ((beside @ Q) @ _inverse(C)) @ Q.T
            # The factors are those of a point so near, and of a turn so small.
            doubt = float(np.sqrt(((B - C) ** 2).sum())) / least
            doubt += 256.0 * EPS * float(np.trace(B)) / least
        if not np.isfinite(beside.astype(float)).all():
            return Optimum(point.theta, np.inf)
        size = float(np.linalg.norm(beside.astype(float), 2)) * (1.0 + 1e-14)
        beside = beside / LONG(max(1.0, size))
        residual = np.array(point.gradient)
        residual[: self.end] += self.alpha * (polar + beside).ravel()
        length = float(np.sqrt((point.theta**2).sum()))
        pull = float(np.sqrt((residual**2).sum())) + point.rounding
        pull += 8.0 * float(self.alpha) * doubt + 64.0 * EPS * float(self.alpha)
        return Optimum(point.theta, distance_bound(point, pull) + doubt * length)


def _inverse(B: Array) -> Array:
    """Return the inverse of a small matrix in extended precision."""
    columns = [solve(B, column) for column in np.eye(len(B), dtype=LONG)]
    return np.column_stack(columns)
