# SPDX-License-Identifier: Apache-2.0
"""Random removals at the ends of the range of floats, judged in extended precision.

A case draws rows, weights, targets, alpha and ridge over hundreds of orders of
magnitude. What comes back must be one of our errors, or radii that hold.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from expunge import (
    HalfSquared,
    Huber,
    Multinomial,
    Objective,
    OneVsRest,
    Rows,
    SquaredHinge,
    learn,
)
from expunge.core.arrays import Matrix, Vector
from expunge.core.losses import Loss
from expunge.core.penalties import GroupLasso
from expunge.exceptions import ExpungeError
from expunge.promise.radius import Radii
from expunge.removal import Draft, State, measure_gradient
from expunge.selection.choice import Split
from expunge.selection.tune import Tuning, retune, tune
from tests.exact import LD, exact_loss, exact_minimiser, length
from tests.instances import FITTING, LOSSES, MECHANISMS, PENALTIES, Combination

# Where something may begin or cease to be representable.
CORNERS = (-170, -163, -154, -110, -103, -100, -60, -51, -50, -49, -25, 0)
NARROW: dict[str, Loss] = {
    "multinomial": Multinomial(2),
    "multi_output": HalfSquared(outputs=2),
    "one_vs_rest": OneVsRest(2),
    "squared_classes": OneVsRest(2, HalfSquared()),
    "hinge_classes": OneVsRest(2, SquaredHinge()),
}
EXPONENTS = tuple(sorted({*CORNERS, *(-corner for corner in CORNERS)}))


# Of cross-validation, under whose scaling candidates mean the same on every fold.
TUNABLE = [
    each for each in FITTING if each.mechanism == "newton" and each.scaling == "mean"
]


@dataclass(frozen=True)
class Verdict:
    """What a case showed: an error of ours, or radii beside the true distance."""

    refused: str
    checks: int
    violations: tuple[str, ...]


Judge: TypeAlias = Callable[[Combination, np.random.Generator], Verdict]


def verdict(seed: int) -> Verdict:
    """Return what one random case shows of the radii of a removal."""
    return _verdict(np.random.default_rng([seed, 163]), FITTING, _judged)


def _verdict(
    rng: np.random.Generator, choices: Sequence[Combination], judged: Judge
) -> Verdict:
    """Return what one of these shows; a warning is an error that is not ours."""
    each = choices[int(rng.integers(len(choices)))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return judged(each, rng)
        except ExpungeError as error:
            return Verdict(type(error).__name__, 0, ())
        except Exception as error:
            return Verdict("", 0, (f"{each}: {type(error).__name__}: {error}",))


def _judged(each: Combination, rng: np.random.Generator) -> Verdict:
    objective = _objective(each, rng)
    rows = _rows(each, objective, rng)
    gone = rng.permutation(len(rows))[: int(rng.integers(0, len(rows) // 2))]
    remaining = rows.without(gone)
    mechanism = MECHANISMS[each.mechanism]
    summary = learn(objective, rows)
    state = mechanism.update(mechanism.init(summary), rows.take(gone))
    state, draft = mechanism.step(state, remaining)
    if draft.measured is None:
        draft = measure_gradient(state, draft, remaining=remaining)
    radii = _radii(state, draft, remaining)
    target = _target(objective, rows, remaining)
    with np.errstate(all="ignore"):
        oracle = exact_minimiser(target, remaining, draft.theta)
        gap = length(draft.theta.astype(LD) - oracle.theta) - oracle.doubt
    if not np.isfinite(oracle.doubt):
        return Verdict("", 0, ())
    broken = [
        f"{each} {kind}: radius {r:.3g} < {gap:.3g}" for kind, r in radii if r < gap
    ]
    return Verdict("", len(radii), tuple(broken))


def _target(objective: Objective, rows: Rows, remaining: Rows) -> Objective:
    """Return what the remaining rows are fitted to, its factors not rounded."""
    if objective.scaling == "mean":
        return objective
    kept = LD(remaining.total_weight) / LD(rows.total_weight)
    lighter = replace(objective, scaling="mean")
    object.__setattr__(lighter, "alpha", LD(objective.alpha) / kept)
    object.__setattr__(lighter, "ridge", LD(objective.ridge) / kept)
    return lighter


def _radii(state: State, draft: Draft, remaining: Rows) -> list[tuple[str, float]]:
    radii = Radii(state, draft, remaining=remaining)
    found = [("residual", radii.residual())]
    if state.sums.moment is not None:
        blind = Radii(state, replace(draft, measured=None))
        found += [
            ("measured", blind.measured()),
            ("measured-local", blind.measured_local()),
            ("two-step", radii.two_step()),
            ("residual-local", radii.residual_local()),
        ]
    return found


def _power(rng: np.random.Generator) -> float:
    """Return a power of ten: a corner, somewhere between, or near one."""
    kind = rng.random()
    if kind < 0.1:
        return float(10.0 ** (float(rng.choice(EXPONENTS)) + 0.3 * rng.normal()))
    if kind < 0.3:
        return float(10.0 ** (float(rng.choice([-50.0, 50.0])) + 0.3 * rng.normal()))
    if kind < 0.6:
        return float(10.0 ** rng.uniform(-50.0, 50.0))
    return float(10.0 ** rng.uniform(-3.0, 1.0))


def _objective(each: Combination, rng: np.random.Generator) -> Objective:
    loss, penalty = LOSSES[each.loss][0], PENALTIES[each.penalty]
    intercept = bool(rng.random() < 0.4)
    penalize = intercept and bool(rng.random() < 0.7)
    if isinstance(penalty, GroupLasso):
        penalty, penalize = GroupLasso([0, 0, 1]), False
    if isinstance(loss, Huber) and rng.random() < 0.5:
        loss = Huber(_power(rng))
    if each.penalty == "nuclear_norm":  # the oracle's matrices have two columns
        loss = NARROW[each.loss]
    return Objective(
        loss,
        penalty,
        alpha=_power(rng),
        ridge=_power(rng) if rng.random() < (0.2 if penalty.smooth else 0.8) else 0.0,
        scaling=each.scaling,
        intercept=intercept,
        penalize_intercept=penalize,
    )


def _rows(each: Combination, objective: Objective, rng: np.random.Generator) -> Rows:
    n_samples = int(rng.integers(6, 14))
    X = _design(rng, n_samples, objective)
    k = objective.loss.outputs
    y = LOSSES[each.loss][1](rng, rng.normal(size=(n_samples, k)))
    if each.loss in ("half_squared", "huber", "multi_output"):
        y = y * (_power(rng) if rng.random() < 0.5 else 1.0)
    elif each.penalty == "nuclear_norm":
        y = y % 2
    weight = None
    if rng.random() < 0.4:
        weight = rng.uniform(0.2, 3.0, size=n_samples)
        if rng.random() < 0.5:
            weight[rng.integers(n_samples)] = 0.0
        if rng.random() < 0.5:
            weight[rng.integers(n_samples)] *= _power(rng)
        if rng.random() < 0.5:
            weight *= _power(rng)
    return objective.rows(X, y, weight)


def _design(rng: np.random.Generator, n_samples: int, objective: Objective) -> Matrix:
    X: Vector = rng.normal(size=(n_samples, 3))
    kind = rng.choice(["whole", "curved", "steep", "row", "column", "entry", "plain"])
    if kind == "whole":
        X *= _power(rng)
    elif kind == "curved":  # as steep as the penalty: where neither vanishes
        X *= np.sqrt(objective.quadratic or objective.alpha) * 10.0 ** rng.uniform(
            -2, 2
        )
    elif kind == "steep":  # gradients as long as the penalty's at a theta of one
        X *= (objective.quadratic or objective.alpha) * 10.0 ** rng.uniform(-2, 2)
    elif kind == "row":
        X[rng.integers(n_samples)] *= _power(rng)
    elif kind == "column":
        X[:, rng.integers(3)] *= _power(rng)
    elif kind == "entry":
        X[rng.integers(n_samples), rng.integers(3)] = float(
            rng.choice([5e-324, 1e-310, 1e-200, 1e-20, 0.0])
        )
    if rng.random() < 0.1:
        X[rng.integers(n_samples)] = 0.0
    return X


def interval_verdict(seed: int) -> Verdict:
    """Return what one random case shows of intervals of cross-validation errors."""
    return _verdict(np.random.default_rng([seed, 5]), TUNABLE, _intervals_judged)


def _intervals_judged(each: Combination, rng: np.random.Generator) -> Verdict:
    """Judge a choice among two candidates, after a removal too."""
    first = _objective(each, rng)
    objectives = (replace(first, alpha=3.0 * first.alpha), first)
    rows = _rows(each, first, rng)
    split = Split.of(rows, np.sort(np.arange(len(rows)) % 2), n_folds=2)
    tuning = tune(objectives, split)
    broken = _intervals_broken(objectives, split, tuning)
    gone = np.array([int(rng.integers(len(rows)))])
    after = split.without(gone)
    tuning = retune(tuning, split, gone=gone)
    broken += _intervals_broken(objectives, after, tuning)
    return Verdict("", 4, tuple(f"{each} {line}" for line in broken))


def _intervals_broken(
    objectives: Sequence[Objective], split: Split, tuning: Tuning
) -> list[str]:
    """Return which intervals do not hold the exact error."""
    broken = []
    for objective, interval in zip(objectives, tuning.choice.intervals, strict=True):
        total = slack = LD(0)
        for fold in range(2):
            rest, judges = split.training(fold), split.validation(fold)
            start = np.zeros(rest.X.shape[1] * objective.loss.outputs)
            with np.errstate(all="ignore"):
                oracle = exact_minimiser(objective, rest, start)
                for place in range(len(judges)):
                    own = judges.take(np.array([place]))
                    value, doubt = exact_loss(objective, own, oracle)
                    total += LD(own.weight[0]) * value
                    slack += LD(own.weight[0]) * doubt
        weight = LD(split.rows.total_weight)
        low, high = (total - slack) / weight, (total + slack) / weight
        if high < interval.low or low > interval.high:
            broken.append(f"[{interval.low}, {interval.high}] misses {low} to {high}")
    return broken
