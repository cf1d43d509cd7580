# SPDX-License-Identifier: Apache-2.0
"""Random removals against retraining, to break a radius if it can be broken.

A case draws everything that could break a bound: size, conditioning, heavy tails,
duplicated and weighted rows, a free or penalised intercept, a solver stopped early,
who is removed and in how many requests. The suite runs some of them, the benchmarks
all.
"""

from dataclasses import dataclass, replace

import numpy as np

from expunge import Objective, Rows, summarise
from expunge.core.arrays import Index, Matrix, Vector
from expunge.core.solver import Stop, minimise, require_converged
from expunge.exceptions import ExpungeError
from expunge.promise.radius import Radii
from expunge.removal import Draft, State, measure_gradient
from tests.instances import LOSSES, MECHANISMS, N_FEATURES, PENALTIES, Combination

WITHOUT_ROWS = ("measured", "measured-local")


@dataclass(frozen=True)
class Outcome:
    """True error of one removal, and every radius that claims to bound it."""

    error: float
    radii: dict[str, float]
    ill_conditioned: bool

    @property
    def violated(self) -> list[str]:
        """Kinds whose radius is below the true error (the oracle's own allowed)."""
        return [kind for kind, radius in self.radii.items() if radius < self.error]


def outcome(each: Combination, seed: int) -> Outcome | None:
    """Return what one random removal shows; None where there is no such model."""
    rng = np.random.default_rng([seed, *str(each).encode()])
    objective, hard = _objective(each, rng)
    rows = _rows(each, objective, rng, hard)
    gone = _victims(rows, objective, rng)
    try:
        summary = _fitted(objective, rows, rng)
        remaining = rows.without(gone)
        kept = remaining.total_weight / rows.total_weight
        target = minimise(objective.after(kept), remaining)
        require_converged(objective.after(kept), remaining, solution=target)
        state, draft = _answer(each, summary, rows, gone, rng)
    except ExpungeError:
        return None
    draft = (
        draft
        if draft.measured is not None
        else measure_gradient(state, draft, remaining=remaining)
    )
    error = float(np.linalg.norm(draft.theta - target.theta))
    # The oracle is a solver too: what it may be off by is not the radius's fault.
    doubt = target.residual / max(objective.after(kept).quadratic, 1e-12)
    return Outcome(max(0.0, error - doubt), _radii(state, draft, remaining), hard)


def _objective(each: Combination, rng: np.random.Generator) -> tuple[Objective, bool]:
    """Return an objective, from stiff to nearly flat."""
    mu = float(10.0 ** rng.uniform(-5.0, -1.0))
    intercept = bool(rng.random() < 0.5)
    penalize = intercept and bool(rng.random() < 0.5)
    penalty = PENALTIES[each.penalty]
    if each.penalty == "group_lasso" and penalize:
        penalize = False  # the table's groups cover the features alone
    return (
        Objective(
            LOSSES[each.loss][0],
            penalty,
            alpha=mu if penalty.smooth else float(10.0 ** rng.uniform(-3.5, -1.5)),
            ridge=0.0 if penalty.smooth else mu,
            scaling=each.scaling,
            intercept=intercept,
            penalize_intercept=penalize,
        ),
        mu < 1e-3,
    )


def _rows(
    each: Combination, objective: Objective, rng: np.random.Generator, hard: bool
) -> Rows:
    """Return rows of a random kind."""
    n_samples = int(rng.integers(40, 160))
    X = _design(rng, n_samples, hard)
    truth = rng.normal(size=(N_FEATURES, objective.loss.outputs))
    y = LOSSES[each.loss][1](rng, X @ truth)
    weight = rng.uniform(0.2, 3.0, size=n_samples) if rng.random() < 0.3 else None
    return objective.rows(X, y, weight)


def _design(rng: np.random.Generator, n_samples: int, hard: bool) -> Matrix:
    X = rng.normal(size=(n_samples, N_FEATURES))
    if hard:  # nearly of rank three
        basis = rng.normal(size=(3, N_FEATURES))
        X = rng.normal(size=(n_samples, 3)) @ basis + 1e-2 * X
    kind = rng.choice(["plain", "heavy", "copies", "small"])
    if kind == "heavy":
        X = X * rng.standard_t(2.0, size=(n_samples, 1))
    elif kind == "copies":
        X[n_samples // 2 :] = X[: n_samples - n_samples // 2]
    elif kind == "small":
        X = 0.05 * X
    return np.asarray(X)


def _victims(rows: Rows, objective: Objective, rng: np.random.Generator) -> Index:
    """Return whom to remove: at random, a cluster, one class or the worst fitted."""
    n_samples = len(rows)
    most = max(1, int(n_samples * rng.uniform(0.01, 0.5)))
    kind = rng.choice(["random", "cluster", "class", "loss"])
    if kind == "cluster":
        centre = rows.dense()[0]
        order = np.argsort(np.linalg.norm(rows.dense() - centre, axis=1))
    elif kind == "class":
        labels = rows.y if rows.y.ndim == 1 else rows.y[:, 0]
        order = np.argsort(labels, kind="stable")
    elif kind == "loss":
        theta = minimise(objective, rows, stop=Stop(3)).theta
        k = objective.loss.outputs
        eta = rows.dense() @ theta.reshape(-1, k)
        order = np.argsort(-objective.loss.value(rows.y, eta[:, 0] if k == 1 else eta))
    else:
        order = rng.permutation(n_samples)
    return np.asarray(order[:most], dtype=np.intp)


def _fitted(objective: Objective, rows: Rows, rng: np.random.Generator) -> State:
    """Return a summary, sometimes at a point where the solver stopped early."""
    steps = 4 if rng.random() < 0.2 else 200
    solution = minimise(objective, rows, stop=Stop(steps))
    return summarise(objective, rows, theta=solution.theta)


def _answer(
    each: Combination,
    summary: State,
    rows: Rows,
    gone: Index,
    rng: np.random.Generator,
) -> tuple[State, Draft]:
    """Remove in one batch or in several, and read the model."""
    mechanism = MECHANISMS[each.mechanism]
    state = mechanism.init(summary)
    for batch in np.array_split(gone, int(rng.integers(1, min(6, gone.size + 1)))):
        state = mechanism.update(state, rows.take(batch), overwrite=True)
    return mechanism.step(state, rows.without(gone))


def _radii(state: State, draft: Draft, remaining: Rows) -> dict[str, float]:
    """Return every radius that this state allows."""
    radii = Radii(state, draft, remaining=remaining)
    found = {"residual": radii.residual()}
    if state.sums.moment is not None:
        blind = Radii(state, replace(draft, measured=None))
        found |= {
            "measured": blind.measured(),
            "measured-local": blind.measured_local(),
            "quick": blind.measured_local(quick=True),
            "quick on rows": radii.residual_local(quick=True),
            "two-step": radii.two_step(),
            "residual-local": radii.residual_local(),
        }
    return found


def ratios(outcomes: list[Outcome], kind: str) -> Vector:
    """Return radius / error over the outcomes where both say something."""
    pairs = [(o.radii.get(kind, np.inf), o.error) for o in outcomes]
    found = [radius / error for radius, error in pairs if error > 1e-12]
    return np.array([ratio for ratio in found if np.isfinite(ratio)])
