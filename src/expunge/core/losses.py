# SPDX-License-Identifier: Apache-2.0
r"""Losses of one row, as functions of the linear predictor.

A loss knows nothing of features, weights or coefficients. It maps labels ``y``
and predictors ``eta = X @ theta`` to values and derivatives in ``eta``.

Shapes: ``eta`` is (n,) for a loss of one output and (n, k) for one of k; the
slope has the shape of ``eta``; the curvature is (n,) or (n, k, k).

The three bounds hold for every label and predictor, in the Euclidean norm of
the predictor: ``slope_bound`` on \|l'\|, ``curvature_bound`` on the largest
eigenvalue of l'' and ``third_bound`` on the Lipschitz constant of l''. A bound
that does not exist is infinite, and what needs it must refuse.
"""

from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from ..exceptions import InvalidInput
from .arrays import Matrix, Vector
from .values import LARGEST, require_magnitude, stored


class Curvature(NamedTuple):
    """The curvature of each row, diag(diagonal) - factor factor'.

    Both parts have the shape of eta; without a factor the outputs do not interact.
    """

    diagonal: Vector
    factor: Vector | None = None

    def times(self, change: Vector) -> Vector:
        """Return each row's curvature times a change of its predictors."""
        product = self.diagonal * change
        if self.factor is not None:
            along = np.einsum("ij,ij->i", self.factor, change)
            product -= self.factor * along[:, None]
        return product

    def total(self, weight: Vector) -> Matrix:
        """Return the weighted sum over the rows, (k, k)."""
        diagonal = np.atleast_1d(weight @ self.diagonal)
        if self.factor is None:
            return np.diag(diagonal)
        return np.diag(diagonal) - self.factor.T @ (weight[:, None] * self.factor)


class Loss(Protocol):
    """What a loss must state; see the module docstring for shapes."""

    @property
    def outputs(self) -> int:
        """How many predictors a row has."""

    @property
    def shift_invariant(self) -> bool:
        """Whether a constant added to all predictors of a row changes nothing."""

    @property
    def margin(self) -> bool:
        """Whether it falls for ever as the predictors move to the label's side.

        Then rows of one class alone have no minimiser beside a free intercept. A loss
        of distances, which grows on both sides of the label, has one always.
        """

    @property
    def independent(self) -> bool:
        """Whether no output's slope depends on the predictor of another.

        Then a Hessian falls into blocks; and it is not ``shift_invariant``.
        """

    @property
    def equal_curvature(self) -> bool:
        """Whether the outputs are independent and all have the same curvature."""

    @property
    def slope_bound(self) -> float:
        """Largest norm of the slope."""

    @property
    def curvature_bound(self) -> float:
        """Largest eigenvalue of the curvature."""

    @property
    def third_bound(self) -> float:
        """Lipschitz constant of the curvature, infinite where it jumps."""

    @property
    def self_concordance(self) -> float:
        """Largest third derivative over second, along one unit direction."""

    @property
    def curvature_jump(self) -> float:
        """By how much the curvature may jump at a kink of the slope."""

    def labels(self, y: ArrayLike) -> Vector:
        """Return the labels as float64, or raise InvalidInput."""

    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return the loss of each row, shape (n,)."""

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return the derivative in eta."""

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return the second derivative in eta."""

    def curvature_parts(self, y: Vector, eta: Vector) -> Curvature:
        """Return the second derivative in eta by its parts, O(k) numbers a row."""

    def kink_distance(self, y: Vector, eta: Vector) -> Vector:
        """Return how far each predictor is from a jump of the curvature."""


class _OneOutput:
    """A loss of one predictor."""

    __slots__ = ()

    outputs: ClassVar[int] = 1
    shift_invariant: ClassVar[bool] = False
    independent: ClassVar[bool] = True
    equal_curvature: ClassVar[bool] = True

    def curvature_parts(self: Loss, y: Vector, eta: Vector) -> Curvature:
        """Return the curvature, one number a row."""
        return Curvature(self.curvature(y, eta))


class SmoothLoss:
    """A loss whose curvature never jumps."""

    __slots__ = ()

    curvature_jump: ClassVar[float] = 0.0

    def kink_distance(self, y: Vector, eta: Vector) -> Vector:
        """Return infinity for each row."""
        del y
        return np.full(len(eta), inf)


def read_numbers(y: ArrayLike, outputs: int) -> Vector:
    """Return labels as float64 of shape (n,) or (n, outputs)."""
    try:
        numbers: NDArray[Any] = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"labels must be numbers: {error}") from error
    expected = "(n,)" if outputs == 1 else f"(n, {outputs})"
    if numbers.ndim != (1 if outputs == 1 else 2) or (
        numbers.ndim == 2 and numbers.shape[1] != outputs
    ):
        raise InvalidInput(
            f"labels have shape {numbers.shape}; this loss needs {expected}"
        )
    return numbers


def require_finite(numbers: Vector) -> Vector:
    """Return the labels if none is NaN or infinite."""
    if not np.isfinite(numbers).all():
        raise InvalidInput("labels hold NaN or infinity; drop or impute those rows")
    return numbers


def _targets(y: ArrayLike, outputs: int) -> Vector:
    """Return finite targets that can be squared."""
    targets = require_finite(read_numbers(y, outputs))
    beyond = targets[np.abs(targets) > LARGEST]
    if len(beyond):
        raise InvalidInput(
            f"target {beyond[0]:.3g} is beyond {LARGEST:g}; rescale all targets"
        )
    return targets


def _signs(y: ArrayLike) -> Vector:
    """Return labels that are all -1 or +1."""
    signs = read_numbers(y, 1)
    outside = signs[np.abs(signs) != 1.0]  # NaN is among them
    if len(outside):
        raise InvalidInput(
            f"label {outside[0]:g} is neither -1 nor +1; code the two "
            "classes as -1 and +1"
        )
    return signs


@stored
@dataclass(frozen=True, slots=True)
class Logistic(_OneOutput, SmoothLoss):
    """Logistic loss log(1 + exp(-y eta)) for labels -1 and +1."""

    margin: ClassVar[bool] = True
    slope_bound: ClassVar[float] = 1.0
    curvature_bound: ClassVar[float] = 0.25
    third_bound: ClassVar[float] = 1.0 / (6.0 * sqrt(3.0))
    self_concordance: ClassVar[float] = 1.0

    def labels(self, y: ArrayLike) -> Vector:
        """Return the labels, each -1 or +1."""
        return _signs(y)

    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return log(1 + exp(-y eta)) without overflow."""
        return np.logaddexp(0.0, -y * eta)

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return -y / (1 + exp(y eta))."""
        towards = -y
        return towards * expit(towards * eta)

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return p (1 - p), p the predicted probability; y does not enter."""
        return expit(eta) * expit(-eta)


@stored
@dataclass(frozen=True, slots=True)
class HalfSquared(SmoothLoss):
    """Half squared error |eta - y|^2 / 2, for one output or several."""

    outputs: int = 1
    shift_invariant: ClassVar[bool] = False
    independent: ClassVar[bool] = True
    equal_curvature: ClassVar[bool] = True
    margin: ClassVar[bool] = False
    slope_bound: ClassVar[float] = inf
    curvature_bound: ClassVar[float] = 1.0
    third_bound: ClassVar[float] = 0.0
    self_concordance: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        """Refuse fewer outputs than one."""
        if self.outputs < 1:
            raise InvalidInput(f"outputs={self.outputs}; a model needs at least one")

    def labels(self, y: ArrayLike) -> Vector:
        """Return the targets: finite numbers, (n,) or (n, outputs)."""
        return _targets(y, self.outputs)

    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return half the squared norm of the error."""
        squares = (eta - y) ** 2
        return 0.5 * (squares if squares.ndim == 1 else squares.sum(axis=1))

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return the error."""
        return eta - y

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return one, or the identity for each row."""
        if self.outputs == 1:
            return np.ones(len(eta))
        return np.tile(np.eye(self.outputs), (len(eta), 1, 1))

    def curvature_parts(self, y: Vector, eta: Vector) -> Curvature:
        """Return ones."""
        return Curvature(np.ones_like(eta))


@stored
@dataclass(frozen=True, slots=True)
class Huber(_OneOutput):
    """Huber loss: quadratic to ``threshold``, linear beyond; curvature jumps there."""

    threshold: float = 1.35
    margin: ClassVar[bool] = False
    curvature_bound: ClassVar[float] = 1.0
    third_bound: ClassVar[float] = inf
    self_concordance: ClassVar[float] = inf
    curvature_jump: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        """Refuse a threshold that is not a positive number."""
        if not (isfinite(self.threshold) and self.threshold > 0.0):
            raise InvalidInput(f"threshold={self.threshold}; it must be positive")
        require_magnitude("threshold", self.threshold)

    @property
    def slope_bound(self) -> float:
        """The threshold: beyond it the slope is constant."""
        return self.threshold

    def labels(self, y: ArrayLike) -> Vector:
        """Return the targets: finite numbers."""
        return _targets(y, 1)

    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return e^2/2 inside the threshold t and t|e| - t^2/2 outside."""
        error = np.abs(eta - y)
        inside = np.minimum(error, self.threshold)
        return inside * (error - 0.5 * inside)

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return the error, clipped at the threshold."""
        return np.clip(eta - y, -self.threshold, self.threshold)

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return one inside the threshold and zero outside."""
        return (np.abs(eta - y) <= self.threshold).astype(np.float64)

    def kink_distance(self, y: Vector, eta: Vector) -> Vector:
        """Return the distance of the error from the nearer threshold."""
        return np.abs(np.abs(eta - y) - self.threshold)


@stored
@dataclass(frozen=True, slots=True)
class SquaredHinge(_OneOutput):
    """Squared hinge max(0, 1 - y eta)^2 (no half, as in LinearSVC), labels -1, +1."""

    margin: ClassVar[bool] = True
    slope_bound: ClassVar[float] = inf
    curvature_bound: ClassVar[float] = 2.0
    third_bound: ClassVar[float] = inf
    self_concordance: ClassVar[float] = inf
    curvature_jump: ClassVar[float] = 2.0

    def labels(self, y: ArrayLike) -> Vector:
        """Return the labels, each -1 or +1."""
        return _signs(y)

    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return the squared shortfall of the margin."""
        return np.maximum(0.0, 1.0 - y * eta) ** 2

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return -2 y max(0, 1 - y eta)."""
        return -2.0 * y * np.maximum(0.0, 1.0 - y * eta)

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return two inside the margin and zero outside."""
        return np.where(y * eta < 1.0, 2.0, 0.0)

    def kink_distance(self, y: Vector, eta: Vector) -> Vector:
        """Return the distance of the margin from one."""
        return np.abs(1.0 - y * eta)
