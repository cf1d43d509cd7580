# SPDX-License-Identifier: Apache-2.0
r"""Penalties on the coefficients, split into a quadratic and a kink.

Every penalty is ``value(theta) = strong_convexity/2 |theta|^2 + kink(theta)``
with a convex kink. The quadratic joins the smooth part of the objective; the
kink enters only through ``shrink``, its proximal operator,

    shrink(v, step) = argmin_x |x - v|^2 / 2 + step * kink(x).

A smooth penalty is one without a kink. ``theta`` is the (n_features, outputs)
matrix of penalised coefficients; elementwise penalties take any shape.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..exceptions import InvalidInput
from .arrays import (
    LARGEST_SQUARE,
    LEAST_SQUARE,
    Index,
    Matrix,
    Vector,
    catch_lapack_errors,
    norm,
)
from .values import stored

# Singular values below this share of the largest are zero up to rounding.
RANK_ROUNDING = 1e-13


# So many coefficients may join a small problem at once, or twice as many as it has.
NEWCOMERS = 64


@dataclass(frozen=True, slots=True, eq=False)
class WorkingSet:
    """A small problem inside a large one: some columns, or a space that they span.

    Attributes
    ----------
    penalty
        The penalty of the small problem.
    columns
        The columns in play.
    basis
        Orthonormal columns, (n_features, q), in place of single columns.
    """

    penalty: "Penalty"
    columns: Index
    basis: Matrix | None = None

    def restrict(self, theta: Matrix) -> Matrix:
        """Return the coefficients of the small problem."""
        return theta[self.columns] if self.basis is None else self.basis.T @ theta

    def extend(self, theta: Matrix, n_features: int) -> Matrix:
        """Return coefficients of the small problem as those of the large one."""
        if self.basis is not None:
            return self.basis @ theta
        whole = np.zeros((n_features, theta.shape[1]))
        whole[self.columns] = theta
        return whole


def span(parts: Sequence[Matrix]) -> Matrix:
    """Return an orthonormal basis of what the columns of several matrices span."""
    sized = [part / norm(part) for part in parts if part.any()]
    if not sized:
        return np.eye(len(parts[0]), 1)
    with catch_lapack_errors():
        basis, values, _ = np.linalg.svd(np.hstack(sized), full_matrices=False)
    return basis[:, values > RANK_ROUNDING * values[0]]


def _join(present: NDArray[Any], excess: Vector) -> Index:
    """Return which parts are in play: those present, and the worst that should be.

    At least one: a problem without coefficients is none.
    """
    wanted = np.flatnonzero((excess > 0.0) & ~present)
    if not wanted.size and not present.any():
        wanted = np.argsort(-excess, kind="stable")[:1]
    most = max(NEWCOMERS, 2 * int(present.sum()))
    worst = wanted[np.argsort(-excess[wanted], kind="stable")[:most]]
    return np.union1d(np.flatnonzero(present), worst).astype(np.intp)


class Penalty(ABC):
    """A convex penalty; subclasses state kink, shrink and strong convexity."""

    __slots__ = ()

    smooth: ClassVar[bool] = False
    """Whether there is no kink."""
    separable: ClassVar[bool] = False
    """Whether shrink acts on each coefficient alone, with a step of its own."""
    spans: ClassVar[bool] = False
    """Whether it keeps the rank small, and not single coefficients at zero."""

    @property
    @abstractmethod
    def strong_convexity(self) -> float:
        """The factor of |theta|^2 / 2 in the penalty."""

    @abstractmethod
    def kink(self, theta: Matrix) -> float:
        """Return the penalty less its quadratic."""

    @abstractmethod
    def shrink(self, v: Matrix, step: float | Vector) -> Matrix:
        """Return the proximal operator of step times the kink."""

    @abstractmethod
    def subgradient(self, theta: Matrix, near: Matrix) -> Matrix:
        """Return the subgradient of the kink at theta that is nearest to ``near``."""

    @abstractmethod
    def working_set(self, theta: Matrix, gradient: Matrix) -> "WorkingSet":
        """Return the small problem that theta lies in, with what should join it.

        ``gradient`` is that of the smooth part over the factor of the kink: where it is
        longer than the kink is steep, a coefficient of zero is not optimal.
        """

    def require_shape(self, n_features: int, outputs: int) -> None:
        """Raise InvalidInput unless the penalty fits such a matrix."""
        del n_features, outputs


@stored
@dataclass(frozen=True, slots=True)
class L2(Penalty):
    """Ridge penalty |theta|^2 / 2."""

    smooth: ClassVar[bool] = True
    separable: ClassVar[bool] = True

    @property
    def strong_convexity(self) -> float:
        """One."""
        return 1.0

    def kink(self, theta: Matrix) -> float:
        """Return zero: the quadratic is all there is."""
        del theta
        return 0.0

    def shrink(self, v: Matrix, step: float | Vector) -> Matrix:
        """Return v: nothing is left beside the quadratic."""
        del step
        return v

    def subgradient(self, theta: Matrix, near: Matrix) -> Matrix:
        """Return zero: there is no kink."""
        del near
        return np.zeros_like(theta)

    def working_set(self, theta: Matrix, gradient: Matrix) -> WorkingSet:
        """Return all columns: nothing keeps a coefficient at zero."""
        del gradient
        return WorkingSet(self, np.arange(len(theta)))


def soft_threshold(v: Matrix, step: float | Vector) -> Matrix:
    """Return v moved towards zero by step, and zero where it would cross."""
    return v - np.clip(v, -step, step)


@stored
@dataclass(frozen=True, slots=True)
class L1(Penalty):
    """Lasso penalty: the sum of absolute values."""

    separable: ClassVar[bool] = True

    @property
    def strong_convexity(self) -> float:
        """Zero: the penalty is piecewise linear."""
        return 0.0

    def kink(self, theta: Matrix) -> float:
        """Return the sum of absolute values."""
        return float(np.abs(theta).sum())

    def shrink(self, v: Matrix, step: float | Vector) -> Matrix:
        """Return the soft threshold of v at step."""
        return soft_threshold(v, step)

    def subgradient(self, theta: Matrix, near: Matrix) -> Matrix:
        """Return the signs, and what lies between them where theta is zero."""
        return np.where(theta != 0.0, np.sign(theta), np.clip(near, -1.0, 1.0))

    def working_set(self, theta: Matrix, gradient: Matrix) -> WorkingSet:
        """Return the columns with a coefficient, or with a gradient above one."""
        excess = np.max(np.abs(gradient), axis=1) - 1.0
        return WorkingSet(self, _join(np.any(theta != 0.0, axis=1), excess))


@stored
@dataclass(frozen=True, slots=True)
class ElasticNet(Penalty):
    """Elastic net l1_ratio |theta|_1 + (1 - l1_ratio) |theta|^2 / 2."""

    l1_ratio: float = 0.5
    separable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse the ends, which are L2 and L1."""
        if not 0.0 < self.l1_ratio < 1.0:
            raise InvalidInput(
                f"l1_ratio={self.l1_ratio}; it must lie between 0 and 1, whose ends "
                "are L2() and L1()"
            )

    @property
    def strong_convexity(self) -> float:
        """The share of the ridge."""
        return 1.0 - self.l1_ratio

    def kink(self, theta: Matrix) -> float:
        """Return the L1 share."""
        return self.l1_ratio * float(np.abs(theta).sum())

    def shrink(self, v: Matrix, step: float | Vector) -> Matrix:
        """Return the soft threshold of the L1 share."""
        return soft_threshold(v, step * self.l1_ratio)

    def subgradient(self, theta: Matrix, near: Matrix) -> Matrix:
        """Return that of the L1 share."""
        return self.l1_ratio * L1().subgradient(theta, near / self.l1_ratio)

    def working_set(self, theta: Matrix, gradient: Matrix) -> WorkingSet:
        """Return that of the L1 share."""
        columns = L1().working_set(theta, gradient / self.l1_ratio).columns
        return WorkingSet(self, columns)


@stored
@dataclass(frozen=True, slots=True, init=False)
class GroupLasso(Penalty):
    """Sum over groups of sqrt(size) times the group's Euclidean norm.

    Parameters
    ----------
    groups
        The group of each feature, as integers 0 .. n_groups-1 without gaps. A
        feature's coefficients for all outputs belong to its group.
    """

    groups: tuple[int, ...]

    def __init__(self, groups: Sequence[int] | NDArray[np.integer[Any]]) -> None:
        codes = tuple(int(group) for group in groups)
        if set(codes) != set(range(len(set(codes)))) or not codes:
            raise InvalidInput(
                "groups must be numbered 0, 1, 2, ... without gaps; give one number "
                "for each feature"
            )
        object.__setattr__(self, "groups", codes)

    @property
    def strong_convexity(self) -> float:
        """Zero: a norm is linear along rays."""
        return 0.0

    def kink(self, theta: Matrix) -> float:
        """Return the weighted sum of group norms."""
        norms, weights = self._norms(theta)
        return float(weights @ norms)

    def shrink(self, v: Matrix, step: float | Vector) -> Matrix:
        """Return each group shortened by step times its weight."""
        norms, weights = self._norms(v)
        threshold = step * weights
        longer = norms > threshold
        factor = np.where(longer, 1.0 - threshold / np.where(longer, norms, 1.0), 0.0)
        shrunk: Matrix = v * factor[np.asarray(self.groups)][:, None]
        return shrunk

    def subgradient(self, theta: Matrix, near: Matrix) -> Matrix:
        """Return each group's direction, and for a group of zeros a shorter vector."""
        (norms, weights), (reach, _) = self._norms(theta), self._norms(near)
        longer = reach > weights
        factor = np.where(longer, weights / np.where(longer, reach, 1.0), 1.0)
        there = norms > 0.0
        direction = np.where(there, weights / np.where(there, norms, 1.0), 0.0)
        groups = np.asarray(self.groups)
        inside: Matrix = near * np.where(there, 0.0, factor)[groups][:, None]
        outside: Matrix = theta * direction[groups][:, None]
        return outside + inside

    def working_set(self, theta: Matrix, gradient: Matrix) -> WorkingSet:
        """Return the columns of groups with a coefficient, or with a long gradient."""
        (norms, weights), (steep, _) = self._norms(theta), self._norms(gradient)
        excess, codes = steep - weights, np.asarray(self.groups)
        joined = _join(norms > 0.0, excess)
        columns = np.flatnonzero(np.isin(codes, joined))
        return WorkingSet(GroupLasso(np.searchsorted(joined, codes[columns])), columns)

    def _norms(self, theta: Matrix) -> tuple[Vector, Vector]:
        """Return each group's norm and its weight sqrt(size)."""
        codes = np.asarray(self.groups)
        squares = np.bincount(codes, weights=np.einsum("ij,ij->i", theta, theta))
        sizes = np.bincount(codes) * theta.shape[1]
        norms = np.sqrt(squares)
        # A square that underflows would make a group look shorter than its threshold.
        odd = (squares <= LEAST_SQUARE) | ~(squares < LARGEST_SQUARE)
        if odd.any() and theta[odd[codes]].any():
            for group in np.flatnonzero(odd):
                norms[group] = norm(theta[codes == group])
        return norms, np.sqrt(sizes)

    def require_shape(self, n_features: int, outputs: int) -> None:
        """Raise InvalidInput unless there is one group number for each feature."""
        del outputs
        if len(self.groups) != n_features:
            raise InvalidInput(
                f"GroupLasso numbers {len(self.groups)} features and the model "
                f"penalises {n_features}; give one group number for each "
                "feature"
            )


@stored
@dataclass(frozen=True, slots=True)
class NuclearNorm(Penalty):
    """Sum of the singular values of the (n_features, outputs) matrix."""

    spans: ClassVar[bool] = True

    @property
    def strong_convexity(self) -> float:
        """Zero: a norm is linear along rays."""
        return 0.0

    def kink(self, theta: Matrix) -> float:
        """Return the sum of singular values."""
        with catch_lapack_errors():
            return float(np.linalg.svd(theta, compute_uv=False).sum())

    def shrink(self, v: Matrix, step: float | Vector) -> Matrix:
        """Return v with its singular values soft-thresholded."""
        with catch_lapack_errors():
            left, values, right = np.linalg.svd(v, full_matrices=False)
        shrunk: Matrix = (left * np.maximum(values - step, 0.0)) @ right
        return shrunk

    def subgradient(self, theta: Matrix, near: Matrix) -> Matrix:
        """Return U V', and beside it a matrix of singular values up to one."""
        with catch_lapack_errors():
            left, values, right = np.linalg.svd(theta, full_matrices=False)
            rank = int(np.count_nonzero(values > RANK_ROUNDING * values[0]))
            left, right = left[:, :rank], right[:rank]
            beside = near - left @ (left.T @ near)
            beside = beside - (beside @ right.T) @ right
            outer, size, inner = np.linalg.svd(beside, full_matrices=False)
        clipped: Matrix = (outer * np.minimum(size, 1.0)) @ inner
        spanned: Matrix = left @ right
        return spanned + clipped

    def working_set(self, theta: Matrix, gradient: Matrix) -> WorkingSet:
        """Return the space that the columns of theta and of the gradient span."""
        return WorkingSet(self, np.arange(0), span([theta, gradient]))

    def require_shape(self, n_features: int, outputs: int) -> None:
        """Raise InvalidInput for a single column, whose nuclear norm is its norm."""
        del n_features
        if outputs < 2:
            raise InvalidInput(
                "NuclearNorm needs a matrix of coefficients: use Multinomial or "
                "HalfSquared(outputs=k); for one output GroupLasso with one group "
                "is the same up to a factor"
            )
