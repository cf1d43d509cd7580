# SPDX-License-Identifier: Apache-2.0
"""The printed paper's errata, each with its effect measured where it can be.

Every row holds one quantity for the printed version and for ours. The printed
formulas and the generated problems are those of the tests, so that what is shown
here is what is tested there; ``docs/paper.md`` says what is wrong in words.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from scipy.stats import chi2

from expunge import L1, L2, HalfSquared, Jackknife, Logistic, Newton, Objective
from expunge.core.arrays import Vector
from expunge.core.sums import loss_hessian
from expunge.promise.budget import delta_of, mu_of
from expunge.promise.capacity import (
    CapacityPlan,
    deletion_capacity,
    excess_risk_bound,
    jackknife_radius,
    regularity_of,
)
from expunge.removal import state_size
from expunge.removal.jackknife import JackknifeCache
from tests import printed
from tests.cases import Removal, distance, logistic_data, removal, ridge_logistic

from .figures import Figure, Place

EPSILON, DELTA = 1.0, 1e-5
EXPERIMENT = "errata"


@dataclass(frozen=True, slots=True)
class Erratum:
    """A slip: its number, the quantity that shows it, and the quantity twice.

    ``measure`` returns the printed version's value and ours.
    """

    number: str
    quantity: str
    measure: Callable[[], tuple[float, float]]


# Slips whose effect is no number: a missing definition, a cost, a wrong claim.
WITHOUT_FIGURE = {
    "E12": "a cost: see the times of TA and Newton",
    "E17": "the hinge has no Hessian at its kink, squared loss no Lipschitz constant",
    "E13, E20": "a claim about an example: its gap is 1/n, and 1 in another",
}


def lasso(alpha: float = 0.02, ridge: float = 0.01) -> Objective:
    """Return logistic loss with L1 and a ridge."""
    return Objective(Logistic(), L1(), alpha=alpha, ridge=ridge)


def generate_removal(
    seed: int, objective: Objective, shape: tuple[int, int], n_removed: int
) -> Removal:
    """Return a removal from logistic data."""
    X, y = logistic_data(np.random.default_rng(seed), *shape)
    return removal(objective, X, y, n_removed)


def smooth_step() -> tuple[float, float]:
    """E1: error of the jackknife, in units of how far the model moves."""
    case = generate_removal(1, ridge_logistic(1e-2), (4000, 20), 256)
    theirs = printed.smooth_update(case.objective, case.rows, case.theta, case.removed)
    return _moves(case, theirs), _moves(case, case.answer(Jackknife()))


def proximal_start() -> tuple[float, float]:
    """E2: distance from the model with nobody removed."""
    case = generate_removal(2, lasso(), (2000, 30), 0)
    theirs = printed.proximal_update(
        case.objective, case.rows, case.theta, case.removed
    )
    return case.error(theirs), case.error(case.answer(Jackknife()))


def noise_constant() -> tuple[float, float]:
    """E3: true error over the bound that the noise is made for."""
    X = np.zeros((50, 1))
    X[0] = 0.1
    case = removal(ridge_logistic(0.1**2 / 50), X, np.ones(50), 1)
    error = case.error(case.answer(Jackknife()))
    theirs = printed.algorithm_radius(case.regularity, 1, 50)
    return error / theirs, error / jackknife_radius(
        case.regularity, 1, n_samples=50, residual=1e-10
    )


def variance() -> tuple[float, float]:
    """E4: delta at a distance of 10, promised 1e-5."""
    c = 10.0 * printed.classic_factor(EPSILON, DELTA)
    return delta_of(10.0 / sqrt(c), EPSILON), delta_of(10.0 / c, EPSILON)


def recursion() -> tuple[float, float]:
    """E5: delta after 50 removals, promised 1e-5."""
    n_removed = 50
    spread = sqrt(sum((2 * m + 1) ** 2 for m in range(n_removed)))
    mu = 1.0 / printed.classic_factor(EPSILON, DELTA)
    theirs = delta_of(n_removed**2 / spread * mu, EPSILON)
    return theirs, delta_of(mu_of(EPSILON, DELTA), EPSILON)


def realised_distance() -> tuple[float, float]:
    """E6, E15: delta between removals of the best and the worst fitted row."""
    X, y = logistic_data(np.random.default_rng(15), 200, 20)
    objective = ridge_logistic(0.1)
    rows = objective.rows(X, y)
    order = np.argsort(y * (X @ removal(objective, X, y, 0).theta))
    cases = [Removal(objective, rows, index) for index in (order[:1], order[-1:])]
    radii = [case.error(case.answer(Jackknife())) for case in cases]
    ratio = max(radii) / min(radii)
    # The likelihood ratio of N(0, I) and N(0, ratio^2 I) depends on the norm alone.
    edge = 2 * (20 * np.log(ratio) - EPSILON) / (1 - ratio**-2)
    apart = chi2.cdf(edge, 20) - np.exp(EPSILON) * chi2.cdf(edge / ratio**2, 20)
    sigma = max(radii) / mu_of(EPSILON, DELTA)
    return float(apart), max(delta_of(radius / sigma, EPSILON) for radius in radii)


def releases() -> tuple[float, float]:
    """E7: delta of 64 releases together, promised 1e-5."""
    mu = mu_of(EPSILON, DELTA)
    return delta_of(8.0 * mu, EPSILON), delta_of(8.0 * mu / sqrt(64), EPSILON)


def classic_factor() -> tuple[float, float]:
    """E8: delta at epsilon 10, promised 1e-5."""
    theirs = 1.0 / printed.classic_factor(10.0, DELTA)
    return delta_of(theirs, 10.0), delta_of(mu_of(10.0, DELTA), 10.0)


def capacity() -> tuple[float, float]:
    """E9: the risk that the capacity allows, in units of the risk permitted."""
    known = regularity_of(ridge_logistic(0.5), row_norm=1.0)
    C, L, M = known.hessian_bound, known.lipschitz, known.hessian_lipschitz
    mu, gamma = 0.5, 1.0
    A, B = (2 * C * mu + M * L) * L**2 / mu**3, 4 * L**2 / mu
    theirs = gamma * (1 / A + 1 / B)
    plan = CapacityPlan(known, 10_000, 50, EPSILON, DELTA)
    ours = excess_risk_bound(plan, deletion_capacity(plan, gamma))
    return theirs * (theirs * A + B) / gamma, ours / gamma


def curvature() -> tuple[float, float]:
    """E10: least curvature with fewer rows than features."""
    X, y = logistic_data(np.random.default_rng(10), 15, 20)
    least = []
    for ridge in (0.0, 0.5):
        objective = lasso(ridge=ridge)
        H = loss_hessian(Logistic(), objective.rows(X, y), theta=np.zeros(20)) / 15
        values = np.linalg.eigvalsh(H.dense() + ridge * np.eye(20))
        least.append(max(0.0, float(values[0])))
    return least[0], least[1]


def memory() -> tuple[float, float]:
    """E11: growth of what is kept when there are four times as many rows."""
    kept, stored = [], []
    for n_samples in (100, 400):
        case = generate_removal(11, ridge_logistic(0.1), (n_samples, 6), 5)
        mechanism = Jackknife()
        kept.append(state_size(mechanism.init(case.summary)))
        stored.append(case.rows.X.size)
    return stored[1] / stored[0], kept[1] / kept[0]


def lipschitz() -> tuple[float, float]:
    """E14: noise's least cost over the bound on it."""
    known = regularity_of(ridge_logistic(1e-3), row_norm=1.0)
    plan = CapacityPlan(known, n_samples=1000, n_parameters=5, epsilon=1.0, delta=1e-5)
    sigma = jackknife_radius(known, 100, n_samples=1000) / mu_of(1.0, 1e-5)
    least = 0.5 * 5 * known.strong_convexity * sigma**2
    spread = sqrt(5) / mu_of(1.0, 1e-5)
    theirs = printed.excess_risk(known, 100, 1000, spread)
    return least / theirs, least / excess_risk_bound(plan, 100)


def bounded_hessian() -> tuple[float, float]:
    """E16: the lemma's bound over the true error, squared loss."""
    X = np.random.default_rng(16).normal(size=(80, 3))
    case = removal(Objective(HalfSquared(), L2(), alpha=0.5), X, X @ np.ones(3), 8)
    error = case.error(case.answer(Jackknife()))
    literal = replace(case.regularity, curvature_bound=0.0, slope_bound=10.0)
    slopes = HalfSquared().slope(case.rows.y, X @ case.target)
    ours = replace(case.regularity, slope_bound=float(np.abs(slopes).max()))
    theirs = printed.lemma_radius(literal, 8, 80)
    return theirs / error, jackknife_radius(ours, 8, n_samples=80) / error


def model_of_the_proof() -> tuple[float, float]:
    """E18: error of psi_3's minimiser, in units of how far the model moves."""
    case = generate_removal(18, ridge_logistic(0.05), (400, 6), 40)
    mechanism = Jackknife()
    state = mechanism.update(mechanism.init(case.summary), case.removed)
    H = printed.hessian(case.objective, case.rows, case.theta)
    slope = state.smooth_gradient / state.anchor_weight
    theirs = printed.psi_3_minimiser(case.theta, slope, H)
    return _moves(case, theirs), _moves(case, case.answer(mechanism))


def batch_and_stream() -> tuple[float, float]:
    """E19: distance between 30 removals at once and one by one."""
    case = generate_removal(19, lasso(), (800, 12), 30)
    parts = case.objective, case.rows, case.theta, case.removed
    theirs = distance(printed.proximal_stream(*parts), printed.proximal_update(*parts))
    mechanism = Jackknife()
    state = mechanism.init(case.summary)
    for row in case.removed.blocks(1):
        state, draft = mechanism.step(mechanism.update(state, row))
    return theirs, distance(draft.theta, case.answer(mechanism))


def scaled_prox() -> tuple[float, float]:
    """E21: error with lambda as printed, in units of how far the model moves."""
    case = generate_removal(21, lasso(alpha=0.05, ridge=0.05), (900, 10), 300)
    mechanism = Jackknife()
    state = mechanism.update(mechanism.init(case.summary), case.removed)
    assert isinstance(state.cache, JackknifeCache) and state.cache.metric is not None
    H = state.cache.metric.dense()
    v = state.anchor - np.linalg.solve(H, state.smooth_gradient)
    theirs = printed.prox(case.objective, H / state.anchor_weight, v)
    return _moves(case, theirs), _moves(case, case.answer(mechanism))


def taylor_step() -> tuple[float, float]:
    """E22: error of TA, in units of how far the model moves."""
    case = generate_removal(22, ridge_logistic(1e-2), (2000, 20), 400)
    theirs = printed.taylor_update(
        case.objective, case.remaining, case.theta, case.removed
    )
    return _moves(case, theirs), _moves(case, case.answer(Newton()))


def inexact_learner() -> tuple[float, float]:
    """E23: delta with learners 20/n^2 off, promised 1e-5."""
    n = 50
    X, y = logistic_data(np.random.default_rng(23), n, 3)
    X /= np.linalg.norm(X, axis=1)[:, None]
    case = removal(ridge_logistic(1.0), X, y, 1)
    way = case.target - case.theta
    way *= 20.0 / n**2 / np.linalg.norm(way)
    stopped, other = case.theta - way, case.target + way
    theirs = printed.smooth_update(case.objective, case.rows, stopped, case.removed)
    classic = printed.classic_factor(EPSILON, DELTA)
    noise = printed.lemma_radius(case.regularity, 1, n) * classic
    summary, mechanism = case.anchored_at(stopped), Jackknife()
    residual = float(np.linalg.norm(summary.smooth_gradient) / n)  # alpha = 1
    state = mechanism.update(mechanism.init(summary), case.removed)
    ours = mechanism.step(state)[1].theta
    radius = jackknife_radius(case.regularity, 1, n_samples=n, residual=residual)
    sigma = (radius + float(np.linalg.norm(way))) / mu_of(EPSILON, DELTA)
    return (
        delta_of(distance(theirs, other) / noise, EPSILON),
        delta_of(distance(ours, other) / sigma, EPSILON),
    )


def _moves(case: Removal, theta: Vector) -> float:
    """Return the error in units of how far retraining moves the model."""
    return case.error(theta) / case.moved()


ERRATA = (
    Erratum("E1", "error of the smooth step / how far the model moves", smooth_step),
    Erratum("E2", "distance moved with nobody removed", proximal_start),
    Erratum("E3", "true error / bound that sizes the noise", noise_constant),
    Erratum("E4", "delta at a promise of 1e-5, distance 10", variance),
    Erratum("E5", "delta at a promise of 1e-5, 50 removals", recursion),
    Erratum("E6, E15", "delta between two rows' removals", realised_distance),
    Erratum("E7", "delta of 64 releases at a promise of 1e-5", releases),
    Erratum("E8", "delta at a promise of 1e-5, epsilon 10", classic_factor),
    Erratum("E9", "risk at capacity / risk allowed", capacity),
    Erratum("E10", "least curvature, 15 rows of 20 features", curvature),
    Erratum("E11", "memory at four times the rows", memory),
    Erratum("E14", "least cost of noise / bound on it", lipschitz),
    Erratum("E16", "bound / true error, squared loss", bounded_hessian),
    Erratum("E18", "error of psi_3 / how far the model moves", model_of_the_proof),
    Erratum("E19", "distance between batch and stream", batch_and_stream),
    Erratum("E21", "error of the prox / how far the model moves", scaled_prox),
    Erratum("E22", "error of TA / how far the model moves", taylor_step),
    Erratum("E23", "delta at a promise of 1e-5, learners 20/n^2 off", inexact_learner),
)


def measure_errata() -> Iterator[Figure]:
    """Yield the printed version's figure and ours, for each erratum."""
    for erratum in ERRATA:
        for contender, value in zip(
            ("printed", "ours"), erratum.measure(), strict=True
        ):
            quantity = f"{erratum.number}: {erratum.quantity}"
            place = Place(EXPERIMENT, "", 0.0, "", contender, quantity, 0)
            yield Figure(place, value, 0)
