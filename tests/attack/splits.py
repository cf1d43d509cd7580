# SPDX-License-Identifier: Apache-2.0
"""Attack split rows: sums, and what removals leave of them, within their rounding.

The tables are awkward where categories are: one level, a level of one person, levels
without a feature, flags that a scaler shifted, numbers far from zero. In some weights
follow a large one that are lost beside it, one after the other.
"""

from contextlib import ExitStack
from unittest.mock import patch

import numpy as np

from expunge import L2, HalfSquared, Logistic, Objective
from expunge.core import rows as core_rows
from expunge.core import split
from expunge.core.rows import Rows
from expunge.promise.rounding import Rounding
from expunge.removal import Draft, State
from expunge.removal.state import anchor_state
from expunge.removal.sums import sum_rows
from tests.splits import Drawn, draw_features, write_out

from .draws import Generator, chance, pick
from .judge import Checker
from .losses import Array

U = 2.0**-53


def attack(rng: Generator, checker: Checker) -> None:
    """Sum split rows, take some away, and compare with sums in more precision."""
    scaled = pick(rng, "numbers", "flags")
    n_rows = int(rng.integers(1, 40)) if chance(rng, 0.95) else 12_000
    drawn = Drawn(int(rng.integers(2**31)), n_rows, scaled, int(rng.integers(3)))
    with ExitStack() as stack:
        # Blocks that are short, or all rows; and a machine without tabmat.
        short = max(1 << int(rng.integers(2, 17)), n_rows // 16)
        stack.enter_context(patch.object(core_rows, "SPLIT_ROWS", short))
        if chance(rng, 0.4):
            stack.enter_context(patch.object(split, "_find_tabmat", lambda: None))
        _attack(rng, checker, drawn)


def _attack(rng: Generator, checker: Checker, drawn: Drawn) -> None:
    features, raw = draw_features(drawn)
    X = features.split(raw, [1.0])
    dense = np.hstack([write_out(features, raw), np.ones((len(raw), 1))])
    n, d = dense.shape
    squared = chance(rng, 0.3)
    loss = HalfSquared() if squared else Logistic()
    y = np.ones(n) if chance(rng, 0.5) else np.where(rng.random(n) < 0.5, 1.0, -1.0)
    y = rng.normal(size=n) if squared else y
    theta = rng.normal(size=d) * 10.0 ** rng.uniform(-3.0, 1.0)
    weight = rng.random(n) + 0.1
    if chance(rng, 0.5):
        theta = np.zeros(d)
        weight = np.full(n, 0.9 * U)
        weight[0] = 1.0
    objective = Objective(loss, L2(), alpha=1e-2, intercept=True)
    rows = objective.rows(X, y, weight)
    state = anchor_state(objective, sum_rows(loss, rows, theta=theta))
    off = Rounding(state).predictor(theta, summed=True)
    error = np.abs((X @ theta) - _exact(dense) @ _exact(theta))
    lengths = np.linalg.norm(dense, axis=1)
    good = (error <= off * lengths).all()
    checker.check(bool(good), f"a predictor is further off, {drawn}")
    _compare(checker, state, (dense, y, weight), f"sums over {drawn}")
    gone = rng.random(n) < (0.02 if chance(rng, 0.5) else 0.3)
    gone[rng.integers(n)] = True
    if weight[gone].sum() > 0.5 * weight.sum() or gone.all():
        return
    # As a request brings them: dense, encoded by themselves.
    alone = np.vstack([features.encode(row[None]) for row in raw[gone]])
    leaving = objective.rows(alone, y[gone], weight[gone])
    sums = state.sums - state.sums.over(leaving, leaving=True)
    after = state.replace(sums=sums)
    stay = ~gone
    _compare(checker, after, (dense[stay], y[stay], weight[stay]), f"left of {drawn}")
    remaining = Rows(rows.X, rows.y, np.where(gone, 0.0, weight), np.flatnonzero(gone))
    again = sum_rows(loss, remaining, theta=theta)
    enough = sums.roundings >= again.roundings
    checker.check(enough, f"a pass after a request counts more, {drawn}")


def _compare(
    checker: Checker, state: State, rows: tuple[Array, Array, Array], what: str
) -> None:
    """Check gradient, Hessian, moment and weight against sums in more precision."""
    X, y, w = map(_exact, rows)
    theta = _exact(state.anchor)
    eta = X @ theta
    if isinstance(state.objective.loss, HalfSquared):
        slope, curvature = eta - y, np.ones_like(eta)
    else:
        share = 1.0 / (1.0 + np.exp(y * eta))
        slope, curvature = -y * share, share * (1.0 - share)
    rounding, sums = Rounding(state), state.sums
    draft = Draft(state.anchor, np.zeros_like(state.anchor))
    gradient = np.abs(sums.gradient - X.T @ (w * slope))
    norms = np.sqrt((X * X).sum(axis=1))
    assert sums.hessian is not None and sums.moment is not None
    hessian = np.abs(sums.hessian.dense() - (X.T * (w * curvature)) @ X)
    moment = np.abs(sums.moment.dense() - (X.T * (w * norms)) @ X)
    sizes = state.magnitude
    errors = {
        "gradient": (gradient, rounding.gradient(draft, step=0.0)),
        "Hessian": (hessian, rounding.hessian),
        "moment": (moment, rounding.sums * sizes.moment + rounding.underflow),
        "weight": (abs(sums.weight - w.sum()), rounding.weight),
    }
    for name, (error, bound) in errors.items():
        size = float(np.sqrt(np.square(error).sum()))
        checker.check(size <= bound, f"{name} of {what}: {size:.3g} > {bound:.3g}")


def _exact(numbers: Array) -> Array:
    return numbers.astype(np.longdouble)
