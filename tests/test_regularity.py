# SPDX-License-Identifier: Apache-2.0
"""A-priori bounds hold against retraining, and refuse what they cannot bound."""

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from expunge import (
    L1,
    L2,
    HalfSquared,
    Huber,
    Jackknife,
    Logistic,
    Multinomial,
    Newton,
    Objective,
)
from expunge.core.objective import Scaling
from expunge.exceptions import InvalidInput, Unsupported
from expunge.promise.capacity import (
    Regularity,
    drift_radius,
    jackknife_radius,
    newton_radius,
    regularity_of,
)
from tests import printed
from tests.cases import Removal, distance, forgotten, signs

KNOWN = Regularity(1.0, 0.25, 0.1, row_norm=2.0, strong_convexity=0.5)
# What retraining and proximal solves leave of rounding.
ROUNDING = 1e-9


def random_case(rng: np.random.Generator, scaling: Scaling, ridge: float) -> Removal:
    """Return a small problem of any scale, with the worst or any rows removed."""
    n, d = int(rng.integers(4, 30)), int(rng.integers(1, 4))
    X = rng.normal(size=(n, d))
    if rng.random() < 0.5:
        X /= np.linalg.norm(X, axis=1)[:, None]  # where the row norm is no slack
    scale = 10.0 ** rng.uniform(-1.5, 0.5)
    X *= scale
    y = signs(rng, X @ rng.normal(size=d) / scale)
    alpha = float(scale**2 * 10.0 ** rng.uniform(-2, 2))
    if ridge:
        objective = Objective(Logistic(), L1(), alpha / 20, ridge * alpha, scaling)
    else:
        objective = Objective(Logistic(), L2(), alpha, scaling=scaling)
    rows = objective.rows(X, y)
    order = rng.permutation(n) if rng.random() < 0.5 else np.argsort(y)
    return Removal(objective, rows, order[: int(rng.integers(1, n))])


def violations(case: Removal, share: float, rng: np.random.Generator) -> list[str]:
    """Return which bounds fail when the learner stops at some distance."""
    stopped = case.theta + share * rng.normal(size=case.theta.size)
    if not case.objective.smooth:
        stopped = case.theta  # a kink's residual needs the minimiser's subgradient
    summary = case.anchored_at(stopped)
    residual = ROUNDING
    if case.objective.smooth:
        residual += float(np.linalg.norm(summary.smooth_gradient)) / len(case.rows)
    sizes = {"n_samples": len(case.rows), "residual": residual}
    bounds = {
        "drift": (drift_radius, stopped),
        "jackknife": (jackknife_radius, forgotten(Jackknife(), summary, case.removed)),
        "newton": (newton_radius, forgotten(Newton(), summary, case.removed)),
    }
    return [
        name
        for name, (bound, theta) in bounds.items()
        if not case.error(theta)
        <= bound(case.regularity, len(case.removed), **sizes) + ROUNDING
    ]


@pytest.mark.parametrize("scaling", ["mean", "sum"])
@pytest.mark.parametrize("ridge", [0.0, 1.0], ids=["l2", "l1"])
def test_bounds_hold_in_random_cases(
    scaling: Scaling, ridge: float, rng: np.random.Generator
) -> None:
    failed = []
    for trial in range(100):
        case = random_case(rng, scaling, ridge)
        share = 0.0 if trial % 2 else float(10.0 ** rng.uniform(-6, 0))
        failed += violations(case, share, rng)
    assert failed == []


def test_literal_constants_fail_in_random_cases(rng: np.random.Generator) -> None:
    """The same search finds the printed bounds wanting, so it could find ours."""
    failed = 0
    for _ in range(100):
        case = random_case(rng, "mean", 0.0)
        sizes = len(case.removed), len(case.rows)
        error = case.error(case.answer(Jackknife()))
        failed += error > printed.lemma_radius(case.regularity, *sizes) + ROUNDING
    assert failed >= 10


def test_jackknife_bound_is_nearly_attained() -> None:
    """One target against all others, and a ridge that outweighs the rows."""
    y = np.full(50, 1.0)
    y[:5] = -1.0
    objective = Objective(HalfSquared(), L2(), alpha=100.0)
    case = Removal(objective, objective.rows(np.ones((50, 1)), y), np.arange(5))
    slopes = np.abs(HalfSquared().slope(y, np.full(50, case.target[0])))
    known = replace(case.regularity, slope_bound=float(slopes.max()))
    error = case.error(case.answer(Jackknife()))
    bound = jackknife_radius(known, 5, n_samples=50)
    assert 0.95 * bound < error <= bound


def test_weights_count_as_rows(rng: np.random.Generator) -> None:
    X = rng.normal(size=(20, 2))
    y = signs(rng, X[:, 0])
    weight = rng.integers(1, 5, size=20).astype(np.float64)
    objective = Objective(Logistic(), L2(), alpha=0.3)
    case = Removal(objective, objective.rows(X, y, weight), np.arange(4))
    removed, total = case.removed.total_weight, case.rows.total_weight
    drift = drift_radius(case.regularity, removed, n_samples=total)
    radius = jackknife_radius(case.regularity, removed, n_samples=total)
    assert case.moved() <= drift
    assert case.error(case.answer(Jackknife())) <= radius


def test_constants_of_an_objective() -> None:
    objective = Objective(Logistic(), L2(), alpha=0.2, ridge=0.1)
    known = regularity_of(objective, row_norm=2.0)
    assert known.strong_convexity == pytest.approx(0.3)
    assert known.lipschitz == 4.0
    assert known.hessian_bound == pytest.approx(0.25 * 4 + 0.3)
    assert known.hessian_lipschitz == pytest.approx(8 / (6 * 3**0.5))
    assert regularity_of(replace(objective, loss=Multinomial(3)), 1.0).outputs == 3


def test_constants_bound_rows_at_the_minimiser(rng: np.random.Generator) -> None:
    for _ in range(20):
        case = random_case(rng, "mean", 0.0)
        known, loss, X, y = case.regularity, Logistic(), case.rows.X, case.rows.y
        slope = loss.slope(y, X @ case.target)[:, None] * case.rows.dense()
        slope = slope + known.strong_convexity * case.target
        assert np.linalg.norm(slope, axis=1).max() <= known.lipschitz
        for row in case.rows.blocks(1):
            here, there = rng.normal(size=(2, case.theta.size))
            H, G = (printed.hessian(case.objective, row, at) for at in (here, there))
            assert np.linalg.norm(H, 2) <= known.hessian_bound
            change = known.hessian_lipschitz * distance(here, there)
            assert np.linalg.norm(H - G, 2) <= change


def test_bounds_grow_from_nothing() -> None:
    assert (
        drift_radius(KNOWN, 0, n_samples=10)
        == jackknife_radius(KNOWN, 0, n_samples=10)
        == 0.0
    )
    assert (
        newton_radius(KNOWN, 0, n_samples=10)
        == 0.0
        < newton_radius(KNOWN, 1, n_samples=10)
    )
    assert newton_radius(KNOWN, 1, n_samples=10) < jackknife_radius(
        KNOWN, 1, n_samples=10
    )
    assert jackknife_radius(KNOWN, 1, n_samples=10) < jackknife_radius(
        KNOWN, 1, n_samples=10, residual=1e-3
    )


@pytest.mark.parametrize("bound", [drift_radius, jackknife_radius, newton_radius])
def test_what_cannot_be_bounded_is_refused(bound: Callable[..., float]) -> None:
    with pytest.raises(Unsupported, match="slope is unbounded"):
        bound(replace(KNOWN, slope_bound=inf), 1, n_samples=10)
    with pytest.raises(Unsupported, match="ridge > 0"):
        bound(replace(KNOWN, strong_convexity=0.0), 1, n_samples=10)
    for n_removed in (10, 11, -1):
        with pytest.raises(InvalidInput, match="rows removed"):
            bound(KNOWN, n_removed, n_samples=10)
    for residual in (-1.0, nan, inf):
        with pytest.raises(InvalidInput, match="residual"):
            bound(KNOWN, 1, n_samples=10, residual=residual)


def test_jumping_curvature_is_refused_where_it_matters() -> None:
    known = regularity_of(Objective(Huber(), L2(), alpha=1.0), row_norm=1.0)
    assert drift_radius(known, 1, n_samples=10) == pytest.approx(0.27)
    for bound in (jackknife_radius, newton_radius):
        with pytest.raises(Unsupported, match="curvature jumps"):
            bound(known, 1, n_samples=10)


def test_free_intercept_has_no_strong_convexity() -> None:
    objective = Objective(HalfSquared(), L2(), alpha=1.0, intercept=True)
    assert regularity_of(objective, 1.0).strong_convexity == 0.0
    pinned = replace(objective, penalize_intercept=True)
    assert regularity_of(pinned, 1.0).strong_convexity == 1.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("row_norm", 0.0),
        ("row_norm", inf),
        ("slope_bound", nan),
        ("third_bound", -1.0),
        ("strong_convexity", -1.0),
        ("strong_convexity", inf),
    ],
)
def test_constants_outside_their_domain_are_refused(field: str, value: float) -> None:
    constants = {name: getattr(KNOWN, name) for name in Regularity.__slots__}
    with pytest.raises(InvalidInput):
        Regularity(**{**constants, field: value})
