# SPDX-License-Identifier: Apache-2.0
"""What to change where a first fit cannot be certified: found by trying it.

A new contract before any release may rest on radii. A later refusal may not: whatever
it said would be a function of who left (docs/radii.md, "Acceptance"). So these changes
are tried once, at the first fit, each by a fit of its own, and the first that works is
named, its number on the ladder 1, 2, 5, 10, ...
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from math import ceil, log10
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from ..core.losses import Huber
from ..core.rows import Rows
from ..core.sums import column_sizes
from ..exceptions import ExpungeError
from ..private_model.model import PrivateModel
from ..promise.budget import LARGEST_SIGMA, SIGMA_WITHOUT_ROWS, Budget
from .parameters import ALPHA
from .rows import Prepared

STEPS = (1, 2, 5)
# Noise as large as this, or so many times what was asked for, is tried first of all.
SMALL_SIGMA, FEW_TIMES = SIGMA_WITHOUT_ROWS, 10.0
LARGEST_CHANGE = 9  # steps of the ladder, a factor of a thousand
# Standardised columns have a size of one; targets have as many thresholds of Huber's.
SCALED, FAR = 2.0, 10.0
NORMAL = 1.4826  # a standard deviation over a median distance


class Remedy(NamedTuple):
    """A parameter of the estimator, or of its budget, and a value that works."""

    name: str
    value: Any

    def __str__(self) -> str:
        """Return it as an argument of the estimator."""
        if self.name in ("sigma", "tau"):
            return f"budget=Budget({self.name}={self.value:g})"
        if isinstance(self.value, float):
            return f"{self.name}={self.value:g}"
        return f"{self.name}={self.value!r}"


def find_change(
    estimator: Any,
    prepared: Prepared,
    *,
    budget: Budget,
    attempt: Callable[[Any], PrivateModel],
    columns_differ: bool,
) -> Remedy | None:
    """Return the first change with which a fit is certified; None if none is.

    Parameters
    ----------
    estimator, prepared
        What could not be fitted.
    budget
        Its budget, with a sigma.
    attempt
        Fits a changed estimator to the same data, or raises.
    columns_differ
        Whether some columns are far larger than others.
    """

    def fit(change: Remedy) -> PrivateModel | None:
        other = clone(estimator).set_params(verbose=False, budget=budget)
        if change.name in ("sigma", "tau"):
            changed = replace(budget, **{change.name: change.value})
            other.set_params(budget=changed)
        else:
            other.set_params(**{change.name: change.value})
        with suppress(ExpungeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return attempt(other)
        return None

    def works(change: Remedy) -> bool:
        return fit(change) is not None

    for change in _candidates(
        estimator, prepared, budget=budget, fit=fit, columns_differ=columns_differ
    ):
        if works(change):
            return change
    for name, values in _ladders(estimator):
        found = _least([Remedy(name, value) for value in values], fit)
        if found is not None:
            return found
    noise = _less_strict(budget, fit)
    return noise if noise is not None and works(noise) else None


def ladder(least: float) -> float:
    """Return the least number on the ladder 1, 2, 5, 10, ... that is no smaller."""
    power = ceil(log10(least)) - 1
    steps = [float(f"{m}e{k}") for k in (power, power + 1) for m in STEPS]
    return next(step for step in steps if step >= least)


def _candidates(
    estimator: Any,
    prepared: Prepared,
    *,
    budget: Budget,
    fit: Callable[[Remedy], PrivateModel | None],
    columns_differ: bool,
) -> Iterator[Remedy]:
    """Yield changes in the order in which they are to be tried."""
    threshold = _wider_threshold(estimator, prepared)
    if threshold is not None:
        yield Remedy("loss", threshold)
    scaler = Remedy("preprocessing", StandardScaler())
    scales = _may_scale(estimator, prepared)
    if scales and columns_differ:
        yield scaler
    noise = _less_strict(budget, fit)
    if noise is not None:
        few = FEW_TIMES * budget.deviation
        if noise.name == "tau" or noise.value <= max(SMALL_SIGMA, few):
            yield noise
    if scales and not columns_differ:
        yield scaler
    if estimator.fit_intercept and not estimator.penalize_intercept:
        yield Remedy("penalize_intercept", True)


def _less_strict(
    budget: Budget, fit: Callable[[Remedy], PrivateModel | None]
) -> Remedy | None:
    """Return which noise hides what rounding leaves; None if none does.

    Without matrices the solver stops where noise hides the rest, so that its radius
    with other noise says nothing: then the ladder is searched.
    """
    if budget.tau is not None:
        loose = fit(Remedy("tau", 0.999 * budget.radius_budget(1)))
        return None if loose is None else Remedy("tau", ladder(_radius(loose)))
    sigma, size = budget.deviation, 1
    loose = fit(Remedy("sigma", LARGEST_SIGMA))
    if loose is None:
        return None
    if loose.terms.mechanism.keeps_matrices:
        size = loose.answer.draft.theta.size
        least = _radius(loose) / budget.solver_error(size) * sigma
        return Remedy("sigma", ladder(max(least, sigma)))
    steps, most = [ladder(sigma * (1.0 + 1e-9))], max(SMALL_SIGMA, FEW_TIMES * sigma)
    while steps[-1] < most:
        steps.append(ladder(steps[-1] * (1.0 + 1e-9)))
    return _least([Remedy("sigma", step) for step in steps], fit)


def _radius(model: PrivateModel) -> float:
    return model.answer.stated_radius


def _least(
    changes: Sequence[Remedy], fit: Callable[[Remedy], PrivateModel | None]
) -> Remedy | None:
    """Return the first change that works, where all after it do; None if none does."""
    if not changes or fit(changes[-1]) is None:
        return None
    low, high = -1, len(changes) - 1  # the last works
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fit(changes[middle]) is None else (low, middle)
    return changes[high]


def _ladders(estimator: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield how strongly to penalise, from the least change to the largest."""
    given = estimator.get_params(deep=False)
    if "alphas" in given:
        kept = sorted(map(float, given["alphas"]))
        yield "alphas", [tuple(kept[n:]) for n in range(1, len(kept))]
    elif given.get("C") is not None:
        yield "C", [1.0 / step for step in _climb(1.0 / float(given["C"]))]
    else:
        alpha = given.get("alpha")
        yield "alpha", _climb(ALPHA if alpha is None else float(alpha))


def _climb(value: float) -> list[float]:
    """Return the next steps of the ladder above a value."""
    steps = [ladder(value * (1.0 + 1e-9))]
    while len(steps) < LARGEST_CHANGE:
        steps.append(ladder(steps[-1] * (1.0 + 1e-9)))
    return steps


def _wider_threshold(estimator: Any, prepared: Prepared) -> Huber | None:
    """Return Huber's loss with a threshold in the units of the targets, if it has none.

    Where nearly all rows are beyond the threshold the curvature is that of a few.
    """
    loss = prepared.objective.loss
    if not isinstance(loss, Huber) or not isinstance(prepared.rows, Rows):
        return None
    y = prepared.rows.y
    spread = NORMAL * float(np.median(np.abs(y - np.median(y))))
    if not spread > FAR * loss.threshold:
        return None
    return Huber(threshold=ladder(Huber().threshold * spread))


def _may_scale(estimator: Any, prepared: Prepared) -> bool:
    """Return whether a scaler can come first, and would change the columns."""
    rows, intercept = prepared.rows, prepared.objective.intercept
    if (
        estimator.preprocessing is not None
        or not isinstance(rows, Rows)
        or sparse.issparse(rows.X)
        or prepared.placed is not None
        or (estimator.budget is not None and estimator.budget.row_norm is not None)
    ):
        return False
    sizes = column_sizes(rows)
    features = sizes[:-1] if intercept else sizes
    inside = (features <= SCALED) & (features * SCALED >= 1.0)
    return not bool(inside.all())
