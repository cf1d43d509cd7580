# SPDX-License-Identifier: Apache-2.0
r"""Losses of one row, as functions of the linear predictor.

A loss knows nothing of features, weights or coefficients. It maps labels ``y``
and predictors ``eta = X @ theta`` to values and derivatives in ``eta``. Both may lie
on a device: the functions that it calls are those of ``namespace(eta)``.

Shapes: ``eta`` is (n,) for a loss of one output and (n, k) for one of k; the
slope has the shape of ``eta``; the curvature is (n,) or (n, k, k).

What a certificate rests on are numbers that a loss states (docs/radii.md, "Losses"):
either bounds that hold for every label and predictor, or how fast its curvature grows
(``self_concordance``), or both. A number that does not exist is infinite, and what
needs it refuses. ``expunge.check_loss`` looks for a statement that is false.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import frexp, inf, isfinite, ldexp, sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from ..exceptions import InvalidInput, Unsupported
from .arrays import Matrix, Vector, beside, namespace, row_dots
from .values import LARGEST, SMALLEST, require_magnitude, stored


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
            product -= self.factor * row_dots(self.factor, change)[:, None]
        return product

    def traces(self) -> Vector:
        """Return the trace of each row's curvature, (n,)."""
        each = self.diagonal
        if self.factor is not None:
            each = each - self.factor**2
        return each if each.ndim == 1 else each.sum(axis=1)

    def total(self, weight: Vector) -> Matrix:
        """Return the weighted sum over the rows, (k, k)."""
        xp = namespace(weight)
        diagonal: Matrix = xp.diag(xp.reshape(weight @ self.diagonal, (-1,)))
        if self.factor is None:
            return diagonal
        return diagonal - self.factor.T @ (weight[:, None] * self.factor)


def expit(x: Vector) -> Vector:
    """Return 1 / (1 + exp(-x))."""
    if isinstance(x, np.ndarray):
        return special.expit(x)
    return 1.0 / (1.0 + namespace(x).exp(-x))


class Loss(ABC):
    """A loss of one output that is smooth, unless a class says otherwise.

    A subclass gives ``labels``, ``value``, ``slope`` and ``curvature``, and states
    what is known of them; see the module docstring for shapes. The slope must be as
    exact as its sum allows: off by no more than 8 u (|l'| + (2 / nu) l'') as a function
    of the predictor, u = 2^-53 and nu the ``self_concordance``, or by 8 u |l'| where
    that is zero or infinite. A curvature is relatively exact. So is a
    value or, if the curvature has no bound, it is off by no more than
    8 u (|l| + (|l'| + (2 / nu) l'') (1 + |eta|)).
    """

    __slots__ = ()

    @property
    def outputs(self) -> int:
        """How many predictors a row has."""
        return 1

    @property
    def shift_invariant(self) -> bool:
        """Whether a constant added to all predictors of a row changes nothing."""
        return False

    @property
    def margin(self) -> bool:
        """Whether it falls for ever as the predictors move to the label's side.

        Then rows of one class alone have no minimiser beside a free intercept. A loss
        of distances, which grows on both sides of the label, has one always.
        """
        return False

    @property
    def independent(self) -> bool:
        """Whether no output's slope depends on the predictor of another.

        Then a Hessian falls into blocks; and it is not ``shift_invariant``.
        """
        return True

    @property
    def equal_curvature(self) -> bool:
        """Whether the outputs are independent and all have the same curvature."""
        return self.outputs == 1

    @property
    def slope_bound(self) -> float:
        """Largest norm of the slope."""
        return inf

    @property
    def curvature_bound(self) -> float:
        """Largest eigenvalue of the curvature."""
        return inf

    @property
    def third_bound(self) -> float:
        """Lipschitz constant of the curvature, infinite where it jumps."""
        return inf

    @property
    def self_concordance(self) -> float:
        """nu: the largest third derivative over the second, along a unit direction.

        Along a way of length a the curvature changes by factors between e^(-nu a) and
        e^(nu a).
        """
        return inf

    @property
    def curvature_jump(self) -> float:
        """By how much the curvature may jump at a kink of the slope."""
        return 0.0

    @property
    def has_probabilities(self) -> bool:
        """Whether ``mean`` gives probabilities of classes."""
        return False

    @abstractmethod
    def labels(self, y: ArrayLike) -> Vector:
        """Return the labels as float64, or raise InvalidInput."""

    @abstractmethod
    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return the loss of each row, shape (n,)."""

    @abstractmethod
    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return the derivative in eta."""

    @abstractmethod
    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return the second derivative in eta."""

    def curvature_parts(self, y: Vector, eta: Vector) -> Curvature:
        """Return the second derivative in eta by its parts, O(k) numbers a row."""
        if self.outputs > 1:
            raise Unsupported(
                f"{type(self).__name__} has {self.outputs} outputs: give it "
                "curvature_parts, the curvature of each row by its parts"
            )
        return Curvature(self.curvature(y, eta))

    def kink_distance(self, y: Vector, eta: Vector) -> Vector:
        """Return how far each predictor is from a jump of the curvature."""
        del y
        where = {"dtype": eta.dtype, "device": eta.device}
        distance: Vector = namespace(eta).full((len(eta),), inf, **where)
        return distance

    def steepness(self, y: Vector, eta: Vector) -> Vector:
        """Return the curvatures of parabolas that touch the loss, nowhere below it.

        Of one output. A solver steps by them where the loss itself is flat.
        """
        del y
        steepness: Vector = namespace(eta).full_like(eta, self.curvature_bound)
        return steepness

    def mean(self, eta: Vector) -> Vector:
        """Return what is predicted of the label: the inverse link of each predictor.

        The expected response, of the shape of eta; of a binary loss with probabilities
        that of +1, and of one of classes that of each, (n, k).
        """
        return eta

    @property
    def has_identity_link(self) -> bool:
        """Whether ``mean`` is the predictor itself."""
        return type(self).mean is Loss.mean

    def for_classes(self, classes: int) -> "Loss":
        """Return the loss that tells so many classes apart, three or more."""
        return OneVsRest(classes, self)

    @property
    def has_offsets(self) -> bool:
        """Whether labels are (n, 2): responses beside the exponentials of offsets."""
        return False

    def with_offsets(self) -> "Loss":
        """Return the loss of such labels, for one that cannot subtract an offset."""
        raise Unsupported(
            f"{type(self).__name__} has no offsets; give one response a row"
        )

    def take_offsets(self, y: Vector, offset: Vector) -> Vector:
        """Return labels of responses whose predictors are moved by offsets.

        Of this loss where the predictor is what is predicted: there they are
        subtracted. Otherwise of the loss ``with_offsets``.
        """
        if self.outputs > 1 or not self.has_identity_link:
            self.with_offsets()  # refuses
        return y - offset

    def take_exposure(
        self, y: Vector, exposure: Vector
    ) -> tuple[Vector, Vector | None]:
        """Return responses for an exposure of one, and how often each row counts.

        None if an exposure changes nothing of that.
        """
        raise Unsupported(
            f"{type(self).__name__} predicts no rate, so rows have no exposure; leave "
            "it out, or give offset=..."
        )


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
class Logistic(Loss):
    """Logistic loss log(1 + exp(-y eta)) for labels -1 and +1."""

    margin: ClassVar[bool] = True
    has_probabilities: ClassVar[bool] = True
    slope_bound: ClassVar[float] = 1.0
    curvature_bound: ClassVar[float] = 0.25
    third_bound: ClassVar[float] = 1.0 / (6.0 * sqrt(3.0))
    self_concordance: ClassVar[float] = 1.0

    def labels(self, y: ArrayLike) -> Vector:
        """Return the labels, each -1 or +1."""
        return _signs(y)

    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return log(1 + exp(-y eta)) without overflow."""
        value: Vector = namespace(eta).logaddexp(0.0, -y * eta)
        return value

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return -y / (1 + exp(y eta))."""
        towards = -y
        return towards * expit(towards * eta)

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return p (1 - p), p the predicted probability; y does not enter."""
        return expit(eta) * expit(-eta)

    def mean(self, eta: Vector) -> Vector:
        """Return the probability of +1."""
        return np.asarray(expit(eta))


@stored
@dataclass(frozen=True, slots=True)
class HalfSquared(Loss):
    """Half squared error |eta - y|^2 / 2, for one output or several."""

    outputs: int = 1
    shift_invariant: ClassVar[bool] = False
    independent: ClassVar[bool] = True
    equal_curvature: ClassVar[bool] = True
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
        ones: Vector = namespace(eta).ones_like(eta)
        if self.outputs == 1:
            return ones
        curvature: Vector = ones[:, :, None] * beside(eta, np.eye(self.outputs))
        return curvature

    def curvature_parts(self, y: Vector, eta: Vector) -> Curvature:
        """Return ones."""
        return Curvature(namespace(eta).ones_like(eta))


@stored
@dataclass(frozen=True, slots=True)
class Huber(Loss):
    """Huber loss: quadratic to ``threshold``, linear beyond; curvature jumps there."""

    threshold: float = 1.35
    curvature_bound: ClassVar[float] = 1.0
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
        error = abs(eta - y)
        inside = namespace(eta).minimum(error, self.threshold)
        value: Vector = inside * (error - 0.5 * inside)
        return value

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return the error, clipped at the threshold."""
        slope: Vector = namespace(eta).clip(eta - y, -self.threshold, self.threshold)
        return slope

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return one inside the threshold and zero outside."""
        inside = abs(eta - y) <= self.threshold
        curvature: Vector = namespace(eta).astype(inside, eta.dtype)
        return curvature

    def steepness(self, y: Vector, eta: Vector) -> Vector:
        """Return one inside the threshold t and t/|e| outside."""
        far = namespace(eta).maximum(abs(eta - y), self.threshold)
        steepness: Vector = self.threshold / far
        return steepness

    def kink_distance(self, y: Vector, eta: Vector) -> Vector:
        """Return the distance of the error from the nearer threshold."""
        return abs(abs(eta - y) - self.threshold)


@stored
@dataclass(frozen=True, slots=True)
class SquaredHinge(Loss):
    """Squared hinge max(0, 1 - y eta)^2 (no half, as in LinearSVC), labels -1, +1."""

    margin: ClassVar[bool] = True
    curvature_bound: ClassVar[float] = 2.0
    curvature_jump: ClassVar[float] = 2.0

    def labels(self, y: ArrayLike) -> Vector:
        """Return the labels, each -1 or +1."""
        return _signs(y)

    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return the squared shortfall of the margin."""
        value: Vector = namespace(eta).maximum(0.0, 1.0 - y * eta) ** 2
        return value

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return -2 y max(0, 1 - y eta)."""
        slope: Vector = -2.0 * y * namespace(eta).maximum(0.0, 1.0 - y * eta)
        return slope

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return two inside the margin and zero outside."""
        curvature: Vector = 2.0 * namespace(eta).astype(y * eta < 1.0, eta.dtype)
        return curvature

    def kink_distance(self, y: Vector, eta: Vector) -> Vector:
        """Return the distance of the margin from one."""
        return abs(1.0 - y * eta)


# Beyond it, times any factor that a double holds, e^x is zero or infinite.
FAR = 1e30
# Dispersions for which a loss is computed as exactly as ``Loss`` says.
LEAST_DISPERSION, LARGEST_DISPERSION = 1e-6, 1e6
# A predictor whose exponential can be multiplied by any dispersion and exposure.
MODERATE = 500.0


class LogLink(Loss):
    r"""Half a deviance whose mean is e^eta, or v e^eta where rows have offsets ln v.

    With ``offset``, labels are (n, 2): the response beside v. The mean is computed as
    that product, so that no rounding depends on how large an offset is. What only y and
    v decide is left out.
    """

    __slots__ = ()

    offset: bool

    def mean(self, eta: Vector) -> Vector:
        """Return the expected response of a row with an offset of zero."""
        return np.asarray(np.exp(eta))

    def labels(self, y: ArrayLike) -> Vector:
        """Return responses in the domain of the loss, beside e^offset if there are."""
        numbers = require_finite(read_numbers(y, 1 + self.offset))
        responses, _ = self.split(numbers)
        self.require_responses(responses)
        large = responses[responses > LARGEST]
        if len(large):
            raise InvalidInput(
                f"response {large[0]:.3g} is beyond {LARGEST:g}; rescale all responses"
            )
        if self.offset:
            require_factors("exposure", numbers[:, 1])
        return numbers

    def require_responses(self, responses: Vector) -> None:
        """Raise InvalidInput for a response that the loss is not defined for."""
        negative = responses[responses < 0.0]
        if len(negative):
            raise InvalidInput(
                f"response {negative[0]:g} is negative; {type(self).__name__} takes "
                "counts or amounts from zero: correct it, or leave its row out"
            )

    def split(self, y: Vector) -> tuple[Vector, Any]:
        """Return the responses, and v."""
        if not self.offset:
            return y, 1.0
        # Rows that were erased have no exposure, and no weight.
        return y[:, 0], namespace(y).where(y[:, 1] > 0.0, y[:, 1], 1.0)

    @property
    def has_offsets(self) -> bool:
        """Whether labels are (n, 2)."""
        return self.offset

    def with_offsets(self) -> "LogLink":
        """Return the loss of labels (n, 2)."""
        changed: Any = replace(self, offset=True)  # type: ignore[type-var]
        loss: LogLink = changed
        return loss

    def take_offsets(self, y: Vector, offset: Vector) -> Vector:
        """Return the responses beside e^offset."""
        with np.errstate(over="ignore", under="ignore"):
            factor = np.exp(offset)
        require_factors("e^offset", factor)
        return np.column_stack([y, factor])

    def take_exposure(
        self, y: Vector, exposure: Vector
    ) -> tuple[Vector, Vector | None]:
        """Return y / v, and the weights that make of its loss that of y and v.

        But for what eta does not change, the loss of a mean v e^eta is that of e^eta
        times the weight.
        """
        # Before they are divided: an error shows the response that was given.
        self.require_responses(y)
        require_factors("exposure", exposure)
        return y / exposure, self.weigh_exposure(exposure)

    def weigh_exposure(self, exposure: Vector) -> Vector | None:
        """Return the weights of rows with these exposures; None if all are one."""
        raise InvalidInput(
            f"no weight of a row stands for its exposure with {type(self).__name__}; "
            "give offset=np.log(exposure)"
        )


def require_factors(name: str, values: Vector) -> None:
    """Raise InvalidInput unless all numbers are positive and their squares too."""
    bad = ~((values >= SMALLEST) & (values <= LARGEST))  # NaN is among them
    if bad.any():
        raise InvalidInput(
            f"{name} {values[bad][0]:.3g}; each must be a positive number from "
            f"{SMALLEST:g} to {LARGEST:g}: correct it, or leave its row out"
        )


@stored
@dataclass(frozen=True, slots=True)
class Poisson(LogLink):
    """Half the Poisson deviance, m - y eta with the mean m, for counts from zero."""

    offset: bool = False
    # l''' = l'', and neither has a bound.
    self_concordance: ClassVar[float] = 1.0

    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return m - y eta."""
        y, v = self.split(y)
        value: Vector = v * namespace(eta).exp(eta) - y * eta
        return value

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return m - y."""
        y, v = self.split(y)
        slope: Vector = v * namespace(eta).exp(eta) - y
        return slope

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return m."""
        _, v = self.split(y)
        curvature: Vector = v * namespace(eta).exp(eta)
        return curvature

    def weigh_exposure(self, exposure: Vector) -> Vector:
        """Return the exposures."""
        return exposure


@stored
@dataclass(frozen=True, slots=True)
class Gamma(LogLink):
    """Half the Gamma deviance, eta + y / m with the mean m, for amounts above zero."""

    offset: bool = False
    # l''' = -l''.
    self_concordance: ClassVar[float] = 1.0

    def require_responses(self, responses: Vector) -> None:
        """Raise InvalidInput for a response that is not positive."""
        low = responses[responses < SMALLEST]
        if len(low):
            raise InvalidInput(
                f"response {low[0]:g} is not positive; Gamma takes amounts from "
                f"{SMALLEST:g}: leave its row out, or use Tweedie, which takes zero"
            )

    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return eta + y / m."""
        return eta + self.curvature(y, eta)

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return 1 - y / m."""
        return 1.0 - self.curvature(y, eta)

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return y / m."""
        y, v = self.split(y)
        curvature: Vector = (y / v) * namespace(eta).exp(-eta)
        return curvature

    def weigh_exposure(self, exposure: Vector) -> None:
        """Return None: a mean of amounts is as certain as one amount."""


@stored
@dataclass(frozen=True, slots=True)
class Tweedie(LogLink):
    """Half the Tweedie deviance of ``power`` p, 1 < p < 2, for amounts from zero.

    m^(2-p) / (2-p) + y m^(1-p) / (p-1) with the mean m, less its value at m = v: many
    responses are exactly zero, and the others amounts.
    """

    power: float
    offset: bool = False

    def __post_init__(self) -> None:
        """Refuse a power that is not between those of Poisson and Gamma."""
        if not 1.0 < self.power < 2.0:
            raise InvalidInput(
                f"power={self.power}; it must lie between 1, which is Poisson, and 2, "
                "which is Gamma"
            )

    @property
    def self_concordance(self) -> float:
        """The larger of a = 2 - p and b = p - 1.

        The slope is A - B with A and B positive, the curvature a A + b B, and what
        follows a^2 A - b^2 B.
        """
        return max(self.power - 1.0, 2.0 - self.power)

    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return v^a (e^(a eta) - 1) / a + y v^-b (e^(-b eta) - 1) / b.

        With a = 2 - p, b = p - 1. By ``expm1``: near p = 1 the second term is large and
        hardly changes.
        """
        (y, v), xp = self.split(y), namespace(eta)
        a, b = 2.0 - self.power, self.power - 1.0
        value: Vector = v**a * xp.expm1(a * eta) / a
        return value + _times(y * v**-b, xp.expm1(-b * eta) / b)

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return m^(2-p) - y m^(1-p)."""
        power, other = self._powers(y, eta)
        return power - other

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return (2-p) m^(2-p) + (p-1) y m^(1-p)."""
        power, other = self._powers(y, eta)
        return (2.0 - self.power) * power + (self.power - 1.0) * other

    def weigh_exposure(self, exposure: Vector) -> Vector:
        """Return v^(2-p)."""
        weight: Vector = exposure ** (2.0 - self.power)
        return weight

    def _powers(self, y: Vector, eta: Vector) -> tuple[Vector, Vector]:
        """Return m^(2-p) and y m^(1-p)."""
        (y, v), a, b = self.split(y), 2.0 - self.power, self.power - 1.0
        return v**a * _exp_times(a, eta), _times(y * v**-b, _exp_times(-b, eta))


def _times(y: Vector, other: Vector) -> Vector:
    """Return a product that is zero where y is, even if the other is infinite."""
    product: Vector = y * namespace(y).where(y > 0.0, other, 0.0)
    return product


def _exp_times(factor: float, eta: Vector) -> Vector:
    """Return e^(factor eta), as exact as an exponential of a number that is exact.

    Rounding the product would multiply it by as many roundings as it is large.
    """
    xp = namespace(eta)
    eta = xp.clip(eta, -FAR, FAR)
    product = factor * eta
    lost = _lost_of_product(factor, eta, rounded=product)
    power: Vector = xp.exp(product) * (1.0 + lost)
    return power


def _lost_of_product(factor: float, x: Vector, *, rounded: Vector) -> Vector:
    """Return factor x less its rounded product, for x no larger than ``FAR``.

    Both are split into parts whose products are exact (Dekker, *A floating-point
    technique for extending the available precision*, Numerische Mathematik 18, 1971).
    """
    xp = namespace(x)
    high = xp.astype(xp.astype(x, xp.float32), x.dtype)
    exponent = frexp(factor)[1]  # a factor may be no number of 32 bits
    upper = ldexp(float(np.float32(ldexp(factor, -exponent))), exponent)
    low, lower = x - high, factor - upper
    lost: Vector = (upper * high - rounded) + upper * low + lower * high + lower * low
    return lost


@stored
@dataclass(frozen=True, slots=True)
class NegativeBinomial(LogLink):
    """Negative binomial loss of a declared ``dispersion`` a, for counts from zero.

    (y + 1/a) ln(1 + a m) - y ln(a m) with the mean m; the variance is m + a m^2.
    l'' = (y + 1/a) p (1 - p) with p = a m / (1 + a m), as of a logistic loss. So where
    the ``largest`` count that a row may have is declared, all derivatives have bounds.
    """

    dispersion: float
    offset: bool = False
    largest: float | None = None
    self_concordance: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        """Refuse a dispersion of which no count shows anything, or no largest count."""
        if self.largest is not None:
            if not (isfinite(self.largest) and self.largest > 0.0):
                raise InvalidInput(f"largest={self.largest}; it must be positive")
            require_magnitude("largest", self.largest)
        if not LEAST_DISPERSION <= self.dispersion <= LARGEST_DISPERSION:
            raise InvalidInput(
                f"dispersion={self.dispersion}; it must lie between "
                f"{LEAST_DISPERSION:g}, where Poisson does as well, and "
                f"{LARGEST_DISPERSION:g}"
            )

    @property
    def slope_bound(self) -> float:
        """max(y, 1/a): the slope is p / a - y (1 - p)."""
        return max(self._largest, 1.0 / self.dispersion)

    @property
    def curvature_bound(self) -> float:
        """(y + 1/a) / 4."""
        return 0.25 * (self._largest + 1.0 / self.dispersion)

    @property
    def third_bound(self) -> float:
        """(y + 1/a) / (6 sqrt 3), where p is 1/2 +- 1/sqrt 12."""
        return (self._largest + 1.0 / self.dispersion) / (6.0 * sqrt(3.0))

    @property
    def _largest(self) -> float:
        return inf if self.largest is None else float(self.largest)

    def require_responses(self, responses: Vector) -> None:
        """Raise InvalidInput for a count below zero or beyond the largest declared."""
        LogLink.require_responses(self, responses)
        beyond = responses[responses > self._largest]
        if len(beyond):
            raise InvalidInput(
                f"response {beyond[0]:g} is beyond largest={self.largest:g}, which was "
                "declared for all rows that ever come: correct it, or leave its row out"
            )

    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return y ln(1 + 1/(a m)) + ln(1 + a m) / a, which both are positive."""
        y, v = self.split(y)
        xp, a = namespace(eta), self.dispersion
        scale = beside(eta, np.asarray(a)) * v
        # Far out the sum of predictor and logarithm, which do not cancel there.
        far, odds = eta + xp.log(scale), scale * xp.exp(xp.clip(eta, None, MODERATE))
        above = xp.where(eta > MODERATE, far, xp.log1p(odds))
        inverse = xp.exp(xp.clip(-eta, None, MODERATE)) / scale
        below = xp.where(eta < -MODERATE, -far, xp.log1p(inverse))
        value: Vector = y * below + above / a
        return value

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return (m - y) / (1 + a m)."""
        y, v, small, size = self._parts(y, eta)
        xp = namespace(eta)
        slope: Vector = xp.where(eta > 0.0, v - y * small, v * small - y) / size
        return slope

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return (1 + a y) m / (1 + a m)^2."""
        y, v, small, size = self._parts(y, eta)
        curvature: Vector = (1.0 + self.dispersion * y) * (v * small / size / size)
        return curvature

    def _parts(self, y: Vector, eta: Vector) -> tuple[Vector, Any, Vector, Vector]:
        """Return y, v, e^-|eta| and 1 + a m, this times e^-eta if eta is positive."""
        y, v = self.split(y)
        xp, a = namespace(eta), self.dispersion
        small = xp.exp(-abs(eta))
        size = xp.where(eta > 0.0, small + a * v, 1.0 + a * v * small)
        return y, v, small, size


@stored
@dataclass(frozen=True, slots=True)
class Pinball(Loss):
    """Pinball loss of a ``quantile`` q, smoothed by a logistic kernel of a ``width`` h.

    q e + h ln(1 + exp(-e/h)) with e = y - eta. The width is in the unit of y; as it
    goes to zero the loss becomes max(q e, (q - 1) e), which has a kink.
    """

    quantile: float = 0.5
    width: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a quantile outside (0, 1), and a width that is no positive number."""
        if not 0.0 < self.quantile < 1.0:
            raise InvalidInput(f"quantile={self.quantile}; it must lie between 0 and 1")
        require_magnitude("quantile", self.quantile)
        if not (isfinite(self.width) and self.width > 0.0):
            raise InvalidInput(f"width={self.width}; it must be positive")
        require_magnitude("width", self.width)

    @property
    def slope_bound(self) -> float:
        """The steeper side's."""
        return max(self.quantile, 1.0 - self.quantile)

    @property
    def curvature_bound(self) -> float:
        """That of a logistic loss, over the width."""
        return 0.25 / self.width

    @property
    def third_bound(self) -> float:
        """That of a logistic loss, over the squared width."""
        return 1.0 / (6.0 * sqrt(3.0)) / self.width / self.width

    @property
    def self_concordance(self) -> float:
        """That of a logistic loss, over the width."""
        return 1.0 / self.width

    def labels(self, y: ArrayLike) -> Vector:
        """Return the targets: finite numbers."""
        return _targets(y, 1)

    def value(self, y: Vector, eta: Vector) -> Vector:
        """Return h (q ln(1 + e^-z) + (1 - q) ln(1 + e^z)), z = (eta - y) / h."""
        z, xp = (eta - y) / self.width, namespace(eta)
        above = self.quantile * xp.logaddexp(0.0, -z)
        value: Vector = above + (1.0 - self.quantile) * xp.logaddexp(0.0, z)
        return self.width * value

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return 1 / (1 + e^-z) - q."""
        z, lost = self._distance(y, eta)
        share, rest = expit(z), expit(-z)
        change = lost * share * rest
        if self.quantile > 0.5:  # what is near one has fewer digits
            return (1.0 - self.quantile) - (rest - change)
        return (share + change) - self.quantile

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return 1 / (1 + e^-z) / (1 + e^z) / h."""
        z, lost = self._distance(y, eta)
        share, rest = expit(z), expit(-z)
        return share * rest * (1.0 + lost * (rest - share)) / self.width

    def steepness(self, y: Vector, eta: Vector) -> Vector:
        """Return tanh(z/2) / (2 z h): the touching parabola of a logistic loss.

        Jaakkola and Jordan, *Bayesian parameter estimation via variational methods*,
        Statistics and Computing 10 (2000).
        """
        z, xp = (eta - y) / self.width, namespace(eta)
        far = xp.maximum(abs(z), 1e-4)  # nearer it is 1/4 to 1e-9, which is added
        steepness: Vector = (xp.tanh(0.5 * far) / (2.0 * far) + 1e-9) / self.width
        return steepness

    def _distance(self, y: Vector, eta: Vector) -> tuple[Vector, Vector]:
        """Return z, and what its difference and its quotient lost.

        Far from a target they would multiply a small slope by as many roundings as z
        is large. The difference's is found as Knuth's two-sum does.
        """
        xp, error = namespace(eta), eta - y
        back = error - eta
        lost = (eta - (error - back)) - (y + back)
        z = xp.clip(error / self.width, -FAR, FAR)
        product = self.width * z
        lost = (
            lost + (error - product) - _lost_of_product(self.width, z, rounded=product)
        )
        return z, xp.where(abs(z) < FAR, lost / self.width, 0.0)


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
class Multinomial(Loss):
    """Cross-entropy of the softmax over ``classes`` classes, labels 0 .. k-1.

    All k columns are kept: adding a constant to a row's predictors changes
    nothing, so the coefficients are pinned down by the penalty alone.
    """

    classes: int
    shift_invariant: ClassVar[bool] = True
    independent: ClassVar[bool] = False
    equal_curvature: ClassVar[bool] = False
    margin: ClassVar[bool] = True
    has_probabilities: ClassVar[bool] = True
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
        xp = namespace(eta)
        shifted = eta - xp.max(eta, axis=1, keepdims=True)
        own = shifted[_own_entries(y)]
        value: Vector = xp.log(xp.exp(shifted).sum(axis=1)) - own
        return value

    def slope(self, y: Vector, eta: Vector) -> Vector:
        """Return p - e_y."""
        slope = _softmax(eta)
        slope[_own_entries(y)] -= 1.0
        return slope

    def curvature(self, y: Vector, eta: Vector) -> Vector:
        """Return diag(p) - p p' for each row."""
        p = _softmax(eta)
        unit = beside(p, np.eye(self.classes))
        curvature: Vector = p[:, :, None] * (unit - p[:, None, :])
        return curvature

    def curvature_parts(self, y: Vector, eta: Vector) -> Curvature:
        """Return p twice."""
        p = _softmax(eta)
        return Curvature(p, p)

    def mean(self, eta: Vector) -> Vector:
        """Return the probability of each class."""
        return _softmax(eta)

    def for_classes(self, classes: int) -> "Multinomial":
        """Return the softmax over so many classes."""
        return Multinomial(classes)


def _own_entries(y: Vector) -> tuple[Vector, Vector]:
    """Return where in a table of rows and classes each row's own class is."""
    xp = namespace(y)
    return xp.arange(len(y), device=y.device), xp.astype(y, xp.int64)


def _softmax(eta: Matrix) -> Matrix:
    """Return each row's probabilities, without overflow."""
    xp = namespace(eta)
    p: Matrix = xp.exp(eta - xp.max(eta, axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p


@stored
@dataclass(frozen=True, slots=True)
class OneVsRest(Loss):
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

    @property
    def has_probabilities(self) -> bool:
        """As the binary loss."""
        return self.binary.has_probabilities

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
        curvature: Vector = diagonal[:, :, None] * beside(eta, np.eye(self.classes))
        return curvature

    def curvature_parts(self, y: Vector, eta: Vector) -> Curvature:
        """Return the binary curvatures."""
        return Curvature(self._each(self.binary.curvature, y, eta))

    def kink_distance(self, y: Vector, eta: Vector) -> Vector:
        """Return the smallest distance of an output from its kink."""
        each = self._each(self.binary.kink_distance, y, eta)
        nearest: Vector = namespace(eta).min(each, axis=1)
        return nearest

    def mean(self, eta: Vector) -> Vector:
        """Return the probabilities of the classes, which add up to one, or scores."""
        each = self.binary.mean(eta.ravel()).reshape(eta.shape)
        if not self.has_probabilities:
            return each
        normed: Vector = each / each.sum(axis=1, keepdims=True)
        return normed

    def for_classes(self, classes: int) -> "OneVsRest":
        """Return the same for so many classes."""
        return OneVsRest(classes, self.binary)

    def _each(
        self, function: Callable[[Vector, Vector], Vector], y: Vector, eta: Vector
    ) -> Matrix:
        """Return a function of the binary loss at every output, (n, k)."""
        own = y[:, None] == beside(y, np.arange(self.classes))
        signs = 2.0 * namespace(eta).astype(own, eta.dtype) - 1.0
        # Raveled: a binary loss is defined for vectors.
        return function(signs.ravel(), eta.ravel()).reshape(eta.shape)
