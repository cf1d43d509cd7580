# SPDX-License-Identifier: Apache-2.0
"""Check a loss of your own: whether what it computes and states is true.

A certificate believes a loss: that its slope and curvature are derivatives, and that
bounds and growth are what it states. Nothing can prove that by trying, and a mistake
mostly shows. Points are the same at every call; nothing is drawn.
"""

from collections.abc import Callable
from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..exceptions import InvalidInput
from .arrays import Matrix, Vector
from .losses import Loss

N_POINTS = 3000
# Labels to try: a loss takes those that it understands.
LABELS = (-100.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 7.0, 100.0, 1e4)
# Between two points of a difference, and how far they may be for a change of curvature.
GAP, NEAREST_MOVE, FARTHEST_MOVE = 1e-5, 1e-4, 8.0
# Relative errors of differences, and of what is compared with a stated bound.
ROUGH, SLACK = 1e-5, 1e-6
# A curvature below this share of the largest may be nothing but rounding.
VISIBLE = 1e-9

Finding = tuple[Any, str]  # where something is wrong, and what


def check_loss(loss: Loss, y: ArrayLike | None = None) -> None:
    """Raise InvalidInput if something that a loss computes or states is false.

    Derivatives are compared with differences; convexity, the stated bounds and the
    stated growth are looked at over many labels, predictors and moves; and ``mean`` is
    held against the slope. What passes is not proved: the proof is yours.

    Parameters
    ----------
    loss
        An object of a class derived from ``Loss``.
    y
        Labels to try; if not given, numbers or codes that the loss accepts.
    """
    if not isinstance(loss, Loss):
        raise InvalidInput(f"{loss!r} is no loss; derive its class from expunge.Loss")
    labels = _find_labels(loss) if y is None else loss.labels(y)
    points = _Points(loss, labels)
    with np.errstate(over="ignore", invalid="ignore"):
        for check in CHECKS:
            points.report(*check(points))
        for stated in STATED:
            for finding in stated(points):
                points.report(*finding)


def _find_labels(loss: Loss) -> Vector:
    """Return the labels that a loss takes, of those we know to try."""
    k = loss.outputs
    tried: list[Any] = [[label] for label in LABELS]
    tried += [[float(code)] for code in range(3, k)]
    if k > 1:
        tried += [[[label] * k] for label in LABELS] + [[list(range(k))]]
    found = []
    for one in tried:
        try:
            found.append(loss.labels(one))
        except ValueError:  # InvalidInput is one
            continue
    if not found:
        raise InvalidInput(
            f"{type(loss).__name__} takes none of the labels that we know to try; pass "
            "some as y"
        )
    return np.concatenate(found)


class _Points:
    """A loss at many labels and predictors, from near zero to far out."""

    def __init__(self, loss: Loss, labels: Vector) -> None:
        k = loss.outputs
        self.loss, self.name = loss, type(loss).__name__
        self.y = labels[np.arange(N_POINTS) % len(labels)]
        spread = 2.0 * _spread(k + 3) - 1.0
        # As many of each size, from a hundredth to the farthest.
        size = 10.0 ** (1.74 * spread[:, k] - 0.26)
        self.eta = self._flat(spread[:, :k] * size[:, None])
        turned = np.roll(spread[:, :k], 7, axis=0)
        turned[::5] = np.eye(k)[np.arange(len(turned[::5])) % k]
        ahead = np.roll(turned, 3, axis=0) * [(-1.0) ** i for i in range(k)]
        if k > 1:  # from one output to another, where softmax is curved most
            pair = np.eye(k) - np.roll(np.eye(k), 1, axis=0)
            turned[1::2] = ahead[1::2] = pair[np.arange(N_POINTS // 2) % k]
        self.u, self.v = _unit(turned), _unit(ahead)
        least, most = np.log10(NEAREST_MOVE), np.log10(FARTHEST_MOVE)
        self.move = 10.0 ** (least + (most - least) * 0.5 * (1.0 + spread[:, k + 1]))

    def _flat(self, eta: Matrix) -> Vector:
        """Return predictors as the loss has them: (n,) for one output."""
        return eta[:, 0] if self.loss.outputs == 1 else eta

    def at(self, way: Matrix | float) -> Vector:
        """Return the predictors, moved."""
        return self.eta if isinstance(way, float) else self.eta + self._flat(way)

    def slopes(self, way: Matrix | float = 0.0) -> Matrix:
        """Return slopes after a move, (n, k)."""
        return self.loss.slope(self.y, self.at(way)).reshape(N_POINTS, -1)

    def curvatures(self, way: Matrix | float = 0.0) -> Matrix:
        """Return curvatures after a move, (n, k, k)."""
        k = self.loss.outputs
        found = self.loss.curvature(self.y, self.at(way))
        return np.asarray(found.reshape(N_POINTS, k, k))

    def smooth(self, reach: float | Vector) -> NDArray[np.bool]:
        """Return where no kink is so near."""
        distance = self.loss.kink_distance(self.y, self.eta)
        return np.asarray(distance > reach)

    def report(self, wrong: Any, what: str) -> None:
        """Raise if something is wrong anywhere, and say where."""
        if not wrong.any():
            return
        first = int(np.argmax(wrong))
        raise InvalidInput(
            f"{self.name}: {what} (for example at label {self.y[first]} and predictor "
            f"{self.eta[first]})"
        )


def _spread(columns: int) -> Matrix:
    """Return points that fill the unit cube evenly: multiples of irrational numbers."""
    primes = [p for p in range(2, 40 * columns) if all(p % q for q in range(2, p))]
    ways = np.sqrt(np.array(primes[:columns], dtype=np.float64))
    found: Matrix = np.outer(np.arange(1, N_POINTS + 1), ways) % 1.0
    return found


def _unit(vectors: Matrix) -> Matrix:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0.0, lengths, 1.0))


def _are_finite(C: Matrix) -> NDArray[np.bool]:
    return np.asarray(np.isfinite(C).all(axis=(1, 2)))


def _form(curvature: Matrix, u: Matrix) -> Vector:
    """Return u'Cu of each row."""
    return np.asarray(np.einsum("ijk,ij,ik->i", curvature, u, u))


def _differs(computed: Vector, expected: Vector, *, noise: Vector) -> NDArray[np.bool]:
    """Return where two finite numbers are further apart than differences explain."""
    finite = np.isfinite(computed) & np.isfinite(expected) & np.isfinite(noise)
    apart = np.abs(computed - expected) > ROUGH * np.abs(expected) + noise
    return np.asarray(finite & apart)


def _check_shapes(at: _Points) -> Finding:
    n, k = N_POINTS, at.loss.outputs
    wanted: dict[str, tuple[Callable[..., Vector], tuple[int, ...]]] = {
        "value": (at.loss.value, (n,)),
        "slope": (at.loss.slope, at.eta.shape),
        "curvature": (at.loss.curvature, (n,) if k == 1 else (n, k, k)),
    }
    changed = False
    for name, (function, shape) in wanted.items():
        y, eta = at.y.copy(), at.eta.copy()
        values = np.asarray(function(y, eta))
        changed |= not (np.array_equal(y, at.y) and np.array_equal(eta, at.eta))
        if values.shape != shape:
            raise InvalidInput(
                f"{at.name}: {name} has shape {values.shape} for {n} rows; it must "
                f"have {shape}"
            )
        wrong = np.isnan(values).reshape(n, -1).any(axis=1)
        at.report(wrong, f"{name} is no number")
        some = slice(5, 6)
        alone = function(at.y[some].copy(), at.eta[some].copy())
        same = np.allclose(alone, values[some], rtol=1e-12, atol=0.0)
        lonely = np.full(n, not (same or not np.isfinite(values[some]).all()))
        at.report(lonely, f"{name} of a row depends on the rows beside it")
    return np.full(n, changed), "it writes into the labels or predictors given to it"


def _check_slope(at: _Points) -> Finding:
    way = GAP * at.u
    ahead, behind = (at.loss.value(at.y, at.at(sign * way)) for sign in (1.0, -1.0))
    expected = (ahead - behind) / (2.0 * GAP)
    computed = np.einsum("ij,ij->i", at.slopes(), at.u)
    bent = np.abs(_form(at.curvatures(), at.u))
    noise = 1e-9 * np.abs(ahead) + GAP * (bent + at.loss.curvature_jump) + 1e-9
    return _differs(
        computed, expected, noise=noise
    ), "slope is not the derivative of value"


def _check_curvature(at: _Points) -> Finding:
    way = GAP * at.u
    change = at.slopes(way) - at.slopes(-way)
    expected = np.einsum("ij,ij->i", change, at.u) / (2.0 * GAP)
    computed, size = _form(at.curvatures(), at.u), np.abs(at.slopes()).sum(axis=1)
    wrong = _differs(computed, expected, noise=1e-9 * size + 1e-9)
    wrong &= at.smooth(2.0 * GAP)
    return wrong, "curvature is not the derivative of slope"


def _check_convexity(at: _Points) -> Finding:
    C = at.curvatures()
    C = np.where(_are_finite(C)[:, None, None], C, 0.0)
    size = np.abs(C).max(axis=(1, 2))
    uneven = np.abs(C - C.transpose(0, 2, 1)).max(axis=(1, 2)) > 1e-12 * size
    at.report(uneven, "curvature is not symmetric")
    smallest = np.linalg.eigvalsh(C)[:, 0]
    return smallest < -1e-12 * size - 1e-15, "it is not convex: curvature is negative"


def _check_parts(at: _Points) -> Finding:
    parts, C = at.loss.curvature_parts(at.y, at.eta), at.curvatures()
    if at.loss.independent != (parts.factor is None):
        raise InvalidInput(
            f"{at.name}: independent is {at.loss.independent}, and curvature_parts "
            f"{'have no' if parts.factor is None else 'have a'} factor that ties "
            "outputs together"
        )
    made = parts.diagonal.reshape(N_POINTS, -1)[:, :, None] * np.eye(at.loss.outputs)
    if parts.factor is not None:
        made = made - parts.factor[:, :, None] * parts.factor[:, None, :]
    apart = np.abs(made - C).max(axis=(1, 2))
    size = np.abs(parts.diagonal.reshape(N_POINTS, -1)).max(axis=1)
    wrong = np.isfinite(apart) & (apart > 1e-9 * size)
    return wrong, "curvature_parts do not make up curvature"


def _check_bounds(at: _Points) -> list[Finding]:
    """Hold slope and curvature against their bounds."""
    k1, k2 = at.loss.slope_bound, at.loss.curvature_bound
    slope = np.linalg.norm(at.slopes(), axis=1)
    largest = np.abs(at.curvatures()).max(axis=(1, 2))
    finite = np.isfinite(largest)
    C = np.where(finite[:, None, None], at.curvatures(), 0.0)
    steep = np.where(finite, np.linalg.eigvalsh(C)[:, -1], inf)
    return [
        (slope > k1 * (1.0 + SLACK), f"slope exceeds slope_bound={k1:.6g}"),
        (steep > k2 * (1.0 + SLACK), f"curvature exceeds curvature_bound={k2:.6g}"),
    ]


def _check_change(at: _Points) -> list[Finding]:
    """Hold changes of curvature against Lipschitz constant, growth and jump."""
    loss, way = at.loss, at.move[:, None] * at.v
    k3, nu, jump = loss.third_bound, loss.self_concordance, loss.curvature_jump
    before, after = at.curvatures(), at.curvatures(way)
    finite = _are_finite(before) & _are_finite(after)
    change = np.where(finite[:, None, None], after - before, 0.0)
    size = np.abs(np.linalg.eigvalsh(0.5 * (change + change.transpose(0, 2, 1))))
    moved, noise = size.max(axis=1), 1e-12 * np.abs(before).max(axis=(1, 2))
    findings: list[Finding] = []
    if isfinite(k3):
        wrong = finite & (moved > k3 * at.move * (1.0 + SLACK) + noise)
        findings += [
            (wrong, f"curvature changes faster than third_bound={k3:.6g} allows")
        ]
    if isfinite(nu):
        near, far = _form(before, at.u), _form(after, at.u)
        least = VISIBLE * np.nanmax(np.where(np.isfinite(near), near, 0.0))
        least = min(least, VISIBLE * max(1.0, loss.curvature_bound))
        seen = finite & (np.minimum(near, far) > 0.0) & (np.maximum(near, far) > least)
        grown = np.abs(np.log(np.where(seen, far / near, 1.0)))
        wrong = grown > nu * at.move * (1.0 + SLACK) + SLACK
        wrong &= np.minimum(near, far) > 1e-3 * least
        text = f"curvature grows faster than self_concordance={nu:.6g} allows"
        findings += [(wrong, text)]
    if jump > 0.0:
        still = at.smooth(at.move) & (moved > noise)
        findings += [
            (still, "curvature changes though kink_distance says that no kink is near"),
            (moved > jump * (1.0 + SLACK), f"curvature jumps by more than {jump:.6g}"),
        ]
    return findings


def _check_outputs(at: _Points) -> list[Finding]:
    """Hold what is stated of several outputs against what they do."""
    loss, k = at.loss, at.loss.outputs
    shifted = loss.value(at.y, at.eta + 1.0) - loss.value(at.y, at.eta)
    felt = np.abs(shifted) > 1e-9 * (1.0 + np.abs(loss.value(at.y, at.eta)))
    findings: list[Finding] = []
    if loss.shift_invariant:
        text = "shift_invariant, yet a constant added to all predictors changes it"
        findings += [(felt, text)]
    if k > 1 and loss.independent:
        away = at.curvatures() * (1.0 - np.eye(k))
        tied = np.nanmax(np.abs(away), axis=(1, 2)) > 0.0
        findings += [(tied, "independent, yet curvature ties outputs together")]
    if k > 1 and loss.equal_curvature:
        diagonal = np.einsum("ijj->ij", at.curvatures())
        uneven = np.ptp(diagonal, axis=1) > 1e-12 * np.abs(diagonal).max(axis=1)
        findings += [(uneven, "equal_curvature, yet outputs have different curvatures")]
    return findings


def _check_mean(at: _Points) -> list[Finding]:
    """Hold the inverse link against the slope."""
    loss, mean = at.loss, np.asarray(at.loss.mean(at.eta))
    if mean.shape != at.eta.shape:
        raise InvalidInput(
            f"{at.name}: mean has shape {mean.shape}; it must be that of the "
            f"predictors, {at.eta.shape}"
        )
    kinds = set(np.unique(at.y))
    codes = kinds <= {-1.0, 1.0} or kinds <= set(range(max(2, loss.outputs)))
    if loss.has_probabilities:
        wrong = ~((mean >= 0.0) & (mean <= 1.0)).reshape(N_POINTS, -1).all(axis=1)
        findings: list[Finding] = [(wrong, "mean is no probability")]
        if loss.outputs > 1:
            total = np.abs(mean.sum(axis=1) - 1.0) > 1e-9
            return [*findings, (total, "mean does not add up to one")]
        ones = np.ones(N_POINTS)
        slope = mean * loss.slope(ones, at.eta)
        slope += (1.0 - mean) * loss.slope(-ones, at.eta)
        text = "mean is no probability of +1 under which the loss is smallest here"
        return [*findings, (np.abs(slope) > 1e-9, text)]
    if codes or loss.outputs > 1 or at.y.ndim > 1:
        return []
    # A response that is what was predicted pulls nowhere, or everywhere alike.
    slope = loss.slope(mean, at.eta)
    scale = 1.0 + np.abs(mean) + np.abs(at.curvatures()[:, 0, 0])
    finite = np.isfinite(slope) & np.isfinite(scale)
    usual = float(np.median(slope[finite]))
    wrong = finite & (np.abs(slope - usual) > 1e-9 * scale)
    return [(wrong, "mean is not the inverse link: it is not what the slope asks for")]


CHECKS = (_check_shapes, _check_slope, _check_curvature, _check_convexity, _check_parts)
STATED = (_check_bounds, _check_change, _check_outputs, _check_mean)
