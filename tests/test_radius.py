# SPDX-License-Identifier: Apache-2.0
"""Radii: no random case may break one, and broken ones must break."""

from dataclasses import replace
from itertools import islice
from math import inf
from typing import Any

import numpy as np
import pytest

from expunge import L2, HalfSquared, Jackknife, Logistic, Newton, Objective, learn
from expunge.core.arrays import Vector
from expunge.core.linalg import CgSolution
from expunge.core.sums import KINK_EDGES, kink_masses, largest_move, largest_norm
from expunge.promise import floor, radius
from expunge.promise.floor import inverse_norm, local_distance
from expunge.promise.radius import Radii, Radius, best_radius
from expunge.promise.rounding import Rounding
from expunge.removal import Draft, State, measure_gradient
from tests.evidence import Outcome, outcome
from tests.instances import (
    FITTING,
    LOSSES,
    Combination,
    labelled,
    lawful,
    learned,
    retrained,
)

GONE = np.arange(12)


def _outcomes(each: Combination, n_cases: int, first: int = 0) -> list[Outcome]:
    found = (outcome(each, seed) for seed in range(first, first + n_cases))
    return [case for case in found if case is not None]


@pytest.mark.parametrize("each", lawful(FITTING), ids=str)
def test_no_radius_is_below_the_true_error(each: Combination) -> None:
    cases = _outcomes(each, 3)
    assert cases
    assert [case.violated for case in cases if case.violated] == []


def _removed(
    mechanism: Jackknife | Newton, intercept: bool = False
) -> tuple[State, Draft, float]:
    """Return state, looked-at draft and true error of a plain logistic removal."""
    objective = Objective(Logistic(), L2(), 0.02, intercept=intercept)
    rows = objective.rows(*labelled("logistic", np.random.default_rng(2)))
    summary = learn(objective, rows)
    state = mechanism.update(mechanism.init(summary), rows.take(GONE))
    state, draft = mechanism.step(state)
    error = np.linalg.norm(draft.theta - retrained(summary, rows.without(GONE)))
    return (
        state,
        measure_gradient(state, draft, remaining=rows.without(GONE)),
        float(error),
    )


@pytest.mark.parametrize("mechanism", [Jackknife(), Newton()], ids=repr)
def test_radii_are_within_a_small_factor(mechanism: Jackknife | Newton) -> None:
    state, draft, error = _removed(mechanism)
    R = state.magnitude.row_norm
    # Measured here, the larger of the two mechanisms: 17, 70, 4.4 and 2.8.
    assert error <= Radii(state, draft).measured() <= 30.0 * error
    assert error <= Radii(state, draft, R).measured_local() <= 100.0 * error
    assert error <= Radii(state, draft).residual() <= 10.0 * error
    assert error <= Radii(state, draft).two_step() <= 4.0 * error


def test_a_free_intercept_is_certified_locally() -> None:
    state, draft, error = _removed(Newton(), intercept=True)
    assert Radii(state, draft).measured() == Radii(state, draft).residual() == inf
    assert error <= best_radius(state, draft).value < inf
    assert best_radius(state, draft).kind == "residual-local"
    blind = replace(draft, measured=None)
    assert error <= best_radius(state, blind).value < inf
    assert best_radius(state, blind).kind == "measured-local"


def test_the_cheapest_radius_that_is_enough_is_taken() -> None:
    state, draft, error = _removed(Newton())
    found = {radius.value: radius.kind for radius in _tried(state, draft)}
    assert [*found.values()] == ["residual", "measured", "measured-local", "two-step"]
    best = best_radius(state, draft)
    assert best.value == min(found) > error
    for value, kind in found.items():
        enough = best_radius(state, draft, enough=value)
        first = next(kind for each, kind in found.items() if each <= value)
        assert enough.kind == first, kind
        assert enough.value <= value


def _tried(state: State, draft: Draft) -> list[Radius]:
    """Return every radius without rows, in the order in which they are tried."""
    R = state.magnitude.row_norm
    return [
        Radius(Radii(state, draft).residual(), "residual"),
        Radius(Radii(state, draft).measured(), "measured"),
        Radius(Radii(state, draft, R).measured_local(), "measured-local"),
        Radius(Radii(state, draft).two_step(), "two-step"),
    ]


def test_a_promised_row_norm_makes_the_local_radius_larger() -> None:
    state, draft, _ = _removed(Newton(), intercept=True)
    own = best_radius(state, draft).value
    assert best_radius(state, draft, row_norm=state.magnitude.row_norm).value == own
    assert (
        best_radius(state, draft, row_norm=2.0 * state.magnitude.row_norm).value > own
    )


def test_squared_loss_needs_no_third_order_and_no_strong_convexity() -> None:
    objective = Objective(HalfSquared(), L2(), 0.02, intercept=True)
    rows = objective.rows(*labelled("half_squared", np.random.default_rng(3)))
    summary = learn(objective, rows)
    state, draft = Newton().step(
        Newton().update(Newton().init(summary), rows.take(GONE))
    )
    error = np.linalg.norm(draft.theta - retrained(summary, rows.without(GONE)))
    assert error <= best_radius(state, draft).value <= 1e-10


MUTANTS: dict[str, tuple[str, Any]] = {
    "no third-order term": ("third_order_bound", lambda *_: 0.0),
    "no residual": ("residual", lambda state, _: np.zeros(state.anchor.size)),
    "no growth": ("growth", lambda _: 0.0),
    "curvature that never jumps": ("KINK_EDGES", np.full(KINK_EDGES.size, inf)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attribute, value = MUTANTS[name]
    monkeypatch.setattr(radius, attribute, value)
    losses = ("huber",) if "jumps" in name else ("logistic", "multinomial")
    names = ("newton",) if name != "no residual" else ("jackknife",)
    chosen = [
        each for each in FITTING if each.loss in losses and each.mechanism in names
    ]
    cases = (outcome(each, seed) for each in chosen for seed in range(12))
    caught = islice((case for case in cases if case and case.violated), 3)
    assert len(list(caught)) == 3


def test_dropping_the_rounding_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # Squared loss: Newton is exact, so that rounding is all there is to bound.
    for error in ("residual", "gradient"):
        monkeypatch.setattr(Rounding, error, lambda *_, **__: 0.0)
    monkeypatch.setattr(Rounding, "product", 0.0)
    chosen = [
        each
        for each in FITTING
        if each.loss == "half_squared" and each.mechanism in ("newton", "retrain")
    ]
    cases = (outcome(each, seed) for each in chosen for seed in range(12))
    assert any(case.violated for case in cases if case)


@pytest.mark.parametrize("name", LOSSES)
def test_self_concordance_bounds_the_third_derivative(name: str) -> None:
    loss, labels = LOSSES[name]
    if not np.isfinite(loss.self_concordance):
        assert loss.curvature_jump > 0.0
        return
    rng, gap = np.random.default_rng(4), 1e-5
    eta = 3.0 * rng.normal(size=(500, loss.outputs))
    y = labels(rng, eta)
    u, v = (_unit(rng.normal(size=eta.shape)) for _ in range(2))

    def form(at: np.ndarray) -> np.ndarray:
        flat = at[:, 0] if loss.outputs == 1 else at
        curvature = loss.curvature(y, flat).reshape(len(at), loss.outputs, -1)
        return np.asarray(np.einsum("ijk,ij,ik->i", curvature, u, u))

    change = np.abs(form(eta + gap * v) - form(eta - gap * v)) / (2.0 * gap)
    most = loss.self_concordance * form(eta)
    assert (change <= most * (1.0 + 1e-8) + 1e-9).all()  # a difference is no derivative


def _unit(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


@pytest.mark.parametrize("name", ["huber", "squared_hinge"])
def test_curvature_jumps_at_the_stated_distance(name: str) -> None:
    loss, labels = LOSSES[name]
    rng = np.random.default_rng(5)
    eta = 2.0 * rng.normal(size=300)
    y = labels(rng, eta[:, None])
    distance, curvature = loss.kink_distance(y, eta), loss.curvature(y, eta)
    for sign in (-1.0, 1.0):
        before = loss.curvature(y, eta + sign * 0.999 * distance)
        assert np.array_equal(before, curvature)
    after = [loss.curvature(y, eta + sign * 1.001 * distance) for sign in (-1.0, 1.0)]
    jumps = np.abs(np.array(after) - curvature)
    assert (jumps.max(axis=0) == loss.curvature_jump).all()


def test_kink_masses_are_downdated() -> None:
    rows, summary = learned("huber", "l2", "mean")
    state = Newton().update(Newton().init(summary), rows.take(GONE))
    left = kink_masses(summary.objective.loss, rows.without(GONE), theta=summary.anchor)
    assert state.sums.kinks is not None
    assert np.allclose(state.sums.kinks, left, atol=1e-10)


def test_largest_norm_and_move() -> None:
    rows, summary = learned("multinomial", "l2", "mean")
    assert largest_norm(rows) == rows.norms().max() == summary.magnitude.row_norm
    step = np.random.default_rng(6).normal(size=summary.anchor.size)
    moves = np.linalg.norm(rows.dense() @ step.reshape(-1, 3), axis=1)
    assert np.isclose(
        largest_move(summary.objective.loss, rows, step=step), moves.max()
    )


def test_local_distance_solves_its_inequality() -> None:
    for R in (0.0, 1e-150, 0.5, 1.0, 40.0):
        for decrement in (0.0, 1e-200, 1e-9, 0.3, 0.999, 1.0, 7.0, inf, np.nan):
            distance = local_distance(decrement, R)
            if R * decrement < 1.0:
                assert distance >= decrement
                assert -np.expm1(-R * distance) == pytest.approx(R * decrement)
            else:
                assert distance == inf


def test_the_inverse_norm_holds_where_rounding_leaves_a_direction_flat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, _, _ = _removed(Newton())
    H = state.smooth_hessian().dense()
    v, least = np.arange(1.0, len(H) + 1.0), float(np.linalg.eigvalsh(H)[0])

    def stop_flat(product: Any, b: Vector, **named: Any) -> CgSolution:
        return CgSolution(np.zeros_like(b), 0, converged=False, flat=b)

    near = inverse_norm(Rounding(state), v, floor=least)
    monkeypatch.setattr(floor, "conjugate_gradients", stop_flat)
    bound = inverse_norm(Rounding(state), v, floor=least)
    exact = float(np.sqrt(v @ np.linalg.solve(H, v)))
    assert exact <= near < bound
    assert np.isclose(bound, np.linalg.norm(v) / np.sqrt(least))


def test_radius_shows_no_figure() -> None:
    state, draft, _ = _removed(Newton())
    assert repr(best_radius(state, draft)) == "Radius(private)"
    assert repr(state.magnitude) == "Magnitude(private)"


def test_states_without_matrices_are_certified_from_rows_alone() -> None:
    state, draft, error = _removed(Jackknife(certified=False))
    assert best_radius(state, draft).kind == "residual"
    assert best_radius(state, replace(draft, measured=None)).value == inf
    assert best_radius(state, draft).value >= error
