# SPDX-License-Identifier: Apache-2.0
"""What the paper claims and we keep: one test a row of docs/paper.md.

Where the printed text is wrong, the row points to an erratum instead, tested in
``test_paper_removal`` and ``test_paper_promise``.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from expunge import (
    L1,
    GroupLasso,
    Jackknife,
    Logistic,
    Newton,
    Objective,
    Retrain,
    residual,
)
from expunge.core.arrays import Matrix, Vector
from expunge.core.linalg import Symmetric
from expunge.core.objective import add_quadratic
from expunge.core.prox import scaled_prox
from expunge.core.solver import scaled_kink
from expunge.exceptions import CannotRemove, InvalidInput
from expunge.promise.budget import delta_of, mu_of
from expunge.promise.capacity import (
    CapacityPlan,
    deletion_capacity,
    drift_radius,
    excess_risk_bound,
    jackknife_radius,
    newton_radius,
    regularity_of,
)
from expunge.removal import Mechanism, measure_gradient
from tests.cases import Removal, distance, logistic_data, removal, ridge_logistic

UNIT = regularity_of(ridge_logistic(0.5), row_norm=1.0)


def smooth_case(n_removed: int = 20, alpha: float = 0.1) -> Removal:
    X, y = logistic_data(np.random.default_rng(3), 300, 6)
    return removal(ridge_logistic(alpha), X, y, n_removed)


def kinked_case(n_removed: int = 20) -> Removal:
    X, y = logistic_data(np.random.default_rng(4), 300, 6)
    return removal(Objective(Logistic(), L1(), alpha=0.02, ridge=0.1), X, y, n_removed)


def objective_1(X: Matrix, y: Vector, theta: Vector, alpha: float) -> float:
    """Equation (1), or (2) on fewer rows, for the logistic loss and L2."""
    losses = np.log1p(np.exp(-y * (X @ theta)))
    return float(losses.mean() + 0.5 * alpha * theta @ theta)


def lowest(X: Matrix, y: Vector, theta: Vector, alpha: float) -> bool:
    """Whether no small step in any direction lowers equation (1) at theta."""
    here = objective_1(X, y, theta, alpha)
    steps = 1e-4 * np.vstack([np.eye(theta.size), -np.eye(theta.size)])
    return all(objective_1(X, y, theta + step, alpha) > here for step in steps)


def test_equation_1_is_what_learning_minimises() -> None:
    case = smooth_case()
    assert lowest(case.rows.dense(), case.rows.y, case.theta, 0.1)
    assert not lowest(case.rows.dense(), case.rows.y, case.theta + 1e-3, 0.1)


def test_equation_2_is_what_removal_aims_at() -> None:
    case = smooth_case()
    X, y = case.remaining.dense(), case.remaining.y
    mechanism = Retrain()
    state = mechanism.update(mechanism.init(case.summary), case.removed)
    retrained = mechanism.step(state, case.remaining)[1].theta
    assert lowest(X, y, retrained, 0.1)
    assert not lowest(X, y, case.theta, 0.1)
    summed = removal(
        replace(case.objective, scaling="sum"), case.rows.dense(), case.rows.y, 20
    )
    assert lowest(X, y, summed.target, 0.1 * 300 / 280)  # what "sum" keeps: alpha n


def test_definition_1_is_read_in_both_directions() -> None:
    mu, epsilon = 0.8, 0.5

    def beyond(near: float, far: float) -> float:
        def excess(x: float) -> float:
            gap = norm.pdf(x, near) - np.exp(epsilon) * norm.pdf(x, far)
            return max(0.0, float(gap))

        return float(quad(excess, -12.0, 12.0, points=[-1.0, 1.5], limit=200)[0])

    assert beyond(0.0, mu) == pytest.approx(delta_of(mu, epsilon), rel=1e-6)
    assert beyond(mu, 0.0) == pytest.approx(delta_of(mu, epsilon), rel=1e-6)


@pytest.mark.parametrize("penalty", [L1(), GroupLasso([0, 0, 1, 1])])
def test_equation_3_is_the_scaled_prox(penalty: L1 | GroupLasso) -> None:
    rng = np.random.default_rng(30)
    root, v = rng.normal(size=(6, 4)), rng.normal(size=4)
    H = root.T @ root
    objective = Objective(Logistic(), penalty, alpha=0.8)

    def value(x: Vector) -> float:
        gap = float((v - x) @ H @ (v - x))
        return 0.5 * gap + 0.8 * penalty.kink(x[:, None])

    x = scaled_prox(
        Symmetric.from_dense(H), H @ v, kink=scaled_kink(objective), start=v
    ).x
    for step in rng.normal(size=(200, 4)) * 10.0 ** rng.uniform(-5, 0, size=(200, 1)):
        assert value(x + step) >= value(x)


def test_algorithm_input_is_checked() -> None:
    case = smooth_case()
    mechanism = Jackknife()
    state = mechanism.init(case.summary)
    with pytest.raises(CannotRemove):
        mechanism.update(state, case.rows)
    narrow = ridge_logistic(0.1).rows(np.ones((1, 3)), np.ones(1))
    with pytest.raises(InvalidInput, match="columns"):
        mechanism.update(state, narrow)


def test_algorithm_sets_the_hessian_of_all_rows() -> None:
    case = smooth_case()
    X, eta = case.rows.dense(), case.rows.dense() @ case.theta
    weight = 1.0 / (2.0 + np.exp(eta) + np.exp(-eta))
    H_loss = (X * weight[:, None]).T @ X / 300
    H_f = H_loss + 0.1 * np.eye(6)
    sums = case.summary.sums
    np.testing.assert_allclose(sums.loss_hessian.dense() / 300, H_loss, atol=1e-12)
    ours = add_quadratic(case.objective, sums.loss_hessian / sums.weight)
    np.testing.assert_allclose(ours.dense(), H_f, atol=1e-12)


@pytest.mark.parametrize("mechanism", [Jackknife(), Newton()])
@pytest.mark.parametrize("case", [smooth_case(0), kinked_case(0)], ids=["l2", "l1"])
def test_algorithm_starts_at_the_fitted_model(
    mechanism: Mechanism, case: Removal
) -> None:
    assert distance(case.answer(mechanism), case.theta) < 1e-9


def test_algorithm_returns_no_noise_free_model_in_words() -> None:
    case = smooth_case()
    mechanism = Jackknife()
    state, draft = mechanism.step(mechanism.init(case.summary))
    assert not any(character.isdigit() for character in f"{state!r}{draft!r}")


def test_assumption_1_constants_hold_for_every_row() -> None:
    rng, case = np.random.default_rng(31), smooth_case()
    known, X = case.regularity, case.rows.dense()
    for theta in rng.normal(size=(20, 6)):
        curvature = Logistic().curvature(case.rows.y, X @ theta)
        largest = curvature * np.linalg.norm(X, axis=1) ** 2 + 0.1
        assert 0.1 <= largest.max() <= known.hessian_bound
    slope = Logistic().slope(case.rows.y, X @ case.target)[:, None] * X
    rows = np.linalg.norm(slope + 0.1 * case.target, axis=1)
    assert rows.max() <= known.lipschitz


def test_assumption_2_needs_a_ridge_beside_the_kink() -> None:
    case = kinked_case()
    assert case.regularity.strong_convexity == 0.1
    bare = replace(case.objective, ridge=0.0)
    assert regularity_of(bare, 1.0).strong_convexity == 0.0


@pytest.mark.parametrize("case", [smooth_case(), kinked_case()], ids=["l2", "l1"])
def test_lemma_1_both_inequalities(case: Removal) -> None:
    known = case.regularity
    assert 0.0 < case.moved() <= drift_radius(known, 20, n_samples=300)
    error = case.error(case.answer(Jackknife()))
    assert error < 0.3 * case.moved()
    assert error <= jackknife_radius(known, 20, n_samples=300)


def test_lemma_1_rate_is_quadratic_in_the_share() -> None:
    halves = [jackknife_radius(UNIT, m, n_samples=1000) for m in (20, 40)]
    assert halves[1] == pytest.approx(4 * halves[0])
    X, y = logistic_data(np.random.default_rng(5), 500, 3)
    errors = []
    for copies in (1, 4):  # the same rows removed from four times the data
        rest = np.tile(X[10:], (copies, 1)), np.tile(y[10:], copies)
        data = np.vstack([X[:10], rest[0]]), np.append(y[:10], rest[1])
        case = removal(ridge_logistic(0.1), *data, 10)
        errors.append(case.error(case.answer(Jackknife())))
    assert errors[0] / errors[1] == pytest.approx(16.0, rel=0.25)


def test_theorem_1_noise_makes_the_worlds_close() -> None:
    case = smooth_case(5, alpha=0.5)
    radius = jackknife_radius(case.regularity, 5, n_samples=300)
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-3)):
        sigma = radius / mu_of(epsilon, delta)
        gap = case.error(case.answer(Jackknife()))
        assert delta_of(gap / sigma, epsilon) < delta
        assert delta_of(radius / sigma, epsilon) == pytest.approx(delta, rel=1e-9)


def test_theorem_1_risk_has_the_printed_rates() -> None:
    plan = CapacityPlan(UNIT, 10**6, 10, epsilon=1.0, delta=1e-5)
    learned = excess_risk_bound(plan, 0)
    assert learned == pytest.approx(
        excess_risk_bound(replace(plan, n_samples=10**5), 0) / 10
    )
    one, two = (excess_risk_bound(plan, m) - learned for m in (1, 2))
    assert two == pytest.approx(2 * one, rel=1e-4)  # m L^2 / (mu n) leads at first


def test_capacity_is_a_maximum_over_removals() -> None:
    plan = CapacityPlan(UNIT, 5000, 10, epsilon=1.0, delta=1e-5)
    costs = [excess_risk_bound(plan, m) for m in range(0, 5000, 50)]
    assert costs == sorted(costs)
    capacity = deletion_capacity(plan, gamma=0.5)
    assert (
        excess_risk_bound(plan, capacity) <= 0.5 < excess_risk_bound(plan, capacity + 1)
    )


def test_capacity_is_a_share_of_the_rows() -> None:
    capacities = [
        deletion_capacity(CapacityPlan(UNIT, n, 10, 1.0, 1e-5), gamma=0.5)
        for n in (10**4, 10**5, 10**6)
    ]
    shares = [m / 10.0**k for m, k in zip(capacities, (4, 5, 6), strict=True)]
    assert shares[0] < 1.0
    assert shares == pytest.approx([shares[-1]] * 3, rel=0.05)


def test_capacity_falls_with_the_fourth_root_of_the_dimension() -> None:
    capacities = [
        deletion_capacity(CapacityPlan(UNIT, 10**8, d, 1.0, 1e-5), gamma=0.5)
        for d in (10**9, 16 * 10**9)
    ]
    # Sixteen times the parameters halve it; privacy alone would quarter it.
    assert capacities[0] / capacities[1] == pytest.approx(2.0, rel=0.02)


def test_remark_newton_serves_kinks() -> None:
    case = kinked_case(60)
    newton, jackknife = (case.error(case.answer(m)) for m in (Newton(), Jackknife()))
    assert newton < 0.2 * jackknife
    assert newton <= newton_radius(case.regularity, 60, n_samples=300)


@pytest.mark.parametrize("case", [smooth_case(), kinked_case()], ids=["l2", "l1"])
def test_appendix_comparison_lemma_bounds_by_the_gradient(case: Removal) -> None:
    mechanism = Jackknife()
    state = mechanism.update(mechanism.init(case.summary), case.removed)
    state, draft = mechanism.step(state)
    draft = measure_gradient(state, draft, remaining=case.remaining)
    assert draft.measured is not None
    mu = case.remaining.total_weight * case.objective.quadratic
    assert 0.0 < case.error(draft.theta) <= np.linalg.norm(draft.measured) / mu + 1e-12


def test_appendix_learning_lemma_is_the_cost_of_nobody() -> None:
    plan = CapacityPlan(UNIT, 500, 10, epsilon=1.0, delta=1e-5)
    cited = 4 * UNIT.lipschitz**2 / (UNIT.strong_convexity * 500)
    assert excess_risk_bound(plan, 0) == pytest.approx(cited / 8)


def test_appendix_psi_1_to_3_are_our_models() -> None:
    case = kinked_case()
    for mechanism in (Jackknife(), Newton()):
        state = mechanism.update(mechanism.init(case.summary), case.removed)
        draft = mechanism.step(state)[1]
        metric = getattr(state.cache, "metric", None)
        B = state.smooth_hessian() if metric is None else metric
        s = draft.theta - state.anchor
        model = state.smooth_gradient + B @ s + draft.subgradient
        # psi_3 or psi_2 is minimised exactly.
        assert np.linalg.norm(model) < 1e-12 * len(case.rows)
        left = residual(state, draft)
        stale = state.smooth_hessian() @ s - B @ s
        np.testing.assert_allclose(left, stale, atol=1e-10)  # grad (psi_2 - psi_3)


@pytest.mark.parametrize("mechanism", [Jackknife(), Newton()])
@pytest.mark.parametrize("case", [smooth_case(), kinked_case()], ids=["l2", "l1"])
def test_appendix_batch_equals_stream(mechanism: Mechanism, case: Removal) -> None:
    state = mechanism.init(case.summary)
    for row in case.removed.blocks(1):
        state, draft = mechanism.step(mechanism.update(state, row))
    assert distance(draft.theta, case.answer(mechanism)) < 1e-10
