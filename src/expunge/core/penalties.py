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
    Matrix,
    Vector,
    catch_lapack_errors,
    norm,
)
from .packing import stored


class Penalty(ABC):
    """A convex penalty; subclasses state kink, shrink and strong convexity."""

    __slots__ = ()

    smooth: ClassVar[bool] = False
    """Whether there is no kink."""
    separable: ClassVar[bool] = False
    """Whether shrink acts on each coefficient alone, with a step of its own."""

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

    def require_shape(self, n_features: int, outputs: int) -> None:
        """Raise InvalidInput for a single column, whose nuclear norm is its norm."""
        del n_features
        if outputs < 2:
            raise InvalidInput(
                "NuclearNorm needs a matrix of coefficients: use Multinomial or "
                "HalfSquared(outputs=k); for one output GroupLasso with one group "
                "is the same up to a factor"
            )
