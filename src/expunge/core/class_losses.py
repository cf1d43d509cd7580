# SPDX-License-Identifier: Apache-2.0
"""Losses of classes: softmax over all of them, or each against the rest.

Labels are class codes 0 .. k-1 and every class has a predictor; see ``losses``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..exceptions import InvalidInput
from .arrays import Matrix, Vector
from .losses import (
    Curvature,
    Logistic,
    Loss,
    SmoothLoss,
    read_numbers,
    require_finite,
)
from .values import stored

LOGISTIC = Logistic()


def _codes(y: ArrayLike, classes: int) -> Vector:
    """Return labels that are all class codes 0 .. classes-1."""
    codes = require_finite(read_numbers(y, 1))
    outside = (codes != np.floor(codes)) | (codes < 0) | (codes >= classes)
    if outside.any():
        raise InvalidInput(
            f"label {codes[outside][0]:g} is not a class code from 0 to {classes - 1}; "
            "number the classes from 0"
        )
    return codes


def _require_classes(classes: int) -> None:
    if classes < 2:
        raise InvalidInput(f"classes={classes}; there must be at least two")


@stored
@dataclass(frozen=True, slots=True)
class Multinomial(SmoothLoss):
    """Cross-entropy of the softmax over ``classes`` classes, labels 0 .. k-1.

    All k columns are kept: adding a constant to a row's predictors changes
    nothing, so the coefficients are pinned down by the penalty alone.
    """

    classes: int
    shift_invariant: ClassVar[bool] = True
    independent: ClassVar[bool] = False
    equal_curvature: ClassVar[bool] = False
    margin: ClassVar[bool] = True
    slope_bound: ClassVar[float] = sqrt(2.0)
    curvature_bound: ClassVar[float] = 0.5
    # The third central moment of a variable of unit norm under a distribution
    # on k points is largest on two points: (sqrt 2)^3 / (6 sqrt 3).
    third_bound: ClassVar[float] = sqrt(2.0) / (3.0 * sqrt(3.0))
    # A unit direction spreads at most sqrt 2 between two classes.
    self_concordance: ClassVar[float] = sqrt(2.0)

    def __post_init__(self) -> None:
        """Refuse fewer classes than two."""
        _require_classes(self.classes)

    @property
    def outputs(self) -> int:
        """One predictor a class."""
        return self.classes

    def labels(self, y: ArrayLike) -> Vector:
        """Return the class codes 0 .. k-1 as float64."""
        return _codes(y, self.classes)

    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return minus the log probability of the row's class."""
        shifted = eta - eta.max(axis=1, keepdims=True)
        own = shifted[np.arange(len(eta)), y.astype(np.intp)]
        value: Vector = np.log(np.exp(shifted).sum(axis=1)) - own
        return value

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return p - e_y."""
        slope = _softmax(eta)
        slope[np.arange(len(eta)), y.astype(np.intp)] -= 1.0
        return slope

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return diag(p) - p p' for each row."""
        p = _softmax(eta)
        curvature: Vector = p[:, :, None] * (np.eye(self.classes) - p[:, None, :])
        return curvature

    def curvature_parts(self, y: Vector, eta: Vector) -> Curvature:
        """Return p twice."""
        p = _softmax(eta)
        return Curvature(p, p)


def _softmax(eta: Matrix) -> Matrix:
    """Return each row's probabilities, without overflow."""
    p: Matrix = np.exp(eta - eta.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p


@stored
@dataclass(frozen=True, slots=True)
class OneVsRest:
    """Sum of a binary loss for each of ``classes`` classes against the rest.

    Labels 0 .. k-1; ``binary`` gets +1 for a row's own class and -1 for the others.
    The outputs do not interact, so that its minimiser is k binary models side by side,
    penalised and released together. For the same reason the bounds are those of one:
    a third derivative along a unit direction sums |u_j|^3 <= u_j^2, and a row that
    moves by a crosses kinks by the distance of a to a box, which holds the ball of the
    smallest kink distance.
    """

    classes: int
    binary: Loss = LOGISTIC
    shift_invariant: ClassVar[bool] = False
    independent: ClassVar[bool] = True
    equal_curvature: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse fewer classes than two, and a loss of several outputs."""
        _require_classes(self.classes)
        if self.binary.outputs != 1:
            raise InvalidInput(
                f"binary={self.binary!r}; give a loss of one output, which "
                "tells each class from the rest"
            )

    @property
    def outputs(self) -> int:
        """One predictor a class."""
        return self.classes

    @property
    def margin(self) -> bool:
        """As the binary loss."""
        return self.binary.margin

    @property
    def slope_bound(self) -> float:
        """Each output's slope is bounded."""
        return sqrt(self.classes) * self.binary.slope_bound

    @property
    def curvature_bound(self) -> float:
        """As the binary loss: the curvature is a diagonal."""
        return self.binary.curvature_bound

    @property
    def third_bound(self) -> float:
        """As the binary loss."""
        return self.binary.third_bound

    @property
    def self_concordance(self) -> float:
        """As the binary loss."""
        return self.binary.self_concordance

    @property
    def curvature_jump(self) -> float:
        """As the binary loss."""
        return self.binary.curvature_jump

    def labels(self, y: ArrayLike) -> Vector:
        """Return the class codes 0 .. k-1 as float64."""
        return _codes(y, self.classes)

    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return the sum of the binary losses."""
        losses: Vector = self._each(self.binary.value, y, eta).sum(axis=1)
        return losses

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return the slope of each binary loss."""
        return self._each(self.binary.slope, y, eta)

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return the binary curvatures on the diagonal."""
        diagonal = self.curvature_parts(y, eta).diagonal
        curvature: Vector = diagonal[:, :, None] * np.eye(self.classes)
        return curvature

    def curvature_parts(self, y: Vector, eta: Vector) -> Curvature:
        """Return the binary curvatures."""
        return Curvature(self._each(self.binary.curvature, y, eta))

    def kink_distance(self, y: Vector, eta: Vector) -> Vector:
        """Return the smallest distance of an output from its kink."""
        nearest: Vector = self._each(self.binary.kink_distance, y, eta).min(axis=1)
        return nearest

    def _each(
        self, function: Callable[[Vector, Vector], Vector], y: Vector, eta: Vector
    ) -> Matrix:
        """Return a function of the binary loss at every output, (n, k)."""
        signs = np.where(y[:, None] == np.arange(self.classes), 1.0, -1.0)
        # Raveled: a binary loss is defined for vectors.
        return function(signs.ravel(), eta.ravel()).reshape(eta.shape)
