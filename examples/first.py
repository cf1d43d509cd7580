# SPDX-License-Identifier: Apache-2.0
"""Remove twenty people from a cancer model, compare with retraining, certify."""

import time
from dataclasses import replace

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from expunge import (
    L1,
    L2,
    Budget,
    Jackknife,
    Logistic,
    LogisticRegression,
    Newton,
    Objective,
    Retrain,
    Rows,
    State,
    learn,
    verify,
)
from expunge.removal import Mechanism

MECHANISMS: dict[str, Mechanism] = {
    "jackknife": Jackknife(),
    "newton": Newton(),
    "retrain": Retrain(),
}


def main() -> None:
    """Fit, forget by every mechanism, and print the distance to retraining."""
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    forgotten = np.random.default_rng(0).choice(len(X), 20, replace=False)
    print(
        f"{len(X)} people, {X.shape[1]} features; {len(forgotten)} ask to be forgotten."
    )
    smooth = Objective(Logistic(), L2(), alpha=1e-3, intercept=True)
    for objective in (smooth, replace(smooth, penalty=L1(), ridge=1e-3)):
        rows = objective.rows(X, 2.0 * y - 1.0)
        compare(learn(objective, rows), rows, forgotten)
    certify(X, y, forgotten)


def compare(summary: State, rows: Rows, forgotten: np.ndarray) -> None:
    """Print how near each mechanism comes to the model that never saw them."""
    remaining = rows.without(forgotten)
    target = learn(summary.objective, remaining).anchor
    moved = np.linalg.norm(target - summary.anchor)
    name = type(summary.objective.penalty).__name__
    print(f"\n{name}: forgetting them moves the model by {moved:.3g}")
    print(f"  {'mechanism':<10} {'distance to retraining':>23} {'time':>9}")
    for label, mechanism in MECHANISMS.items():
        state = mechanism.init(summary)
        begin = time.perf_counter()
        state = mechanism.update(state, rows.take(forgotten))
        _, draft = mechanism.step(state, remaining)
        elapsed = time.perf_counter() - begin
        error = np.linalg.norm(draft.theta - target)
        print(f"  {label:<10} {error:>23.2e} {1e3 * elapsed:>6.2f} ms")


def certify(X: np.ndarray, y: np.ndarray, forgotten: np.ndarray) -> None:
    """Forget them under a budget, and check the certificate of the release."""
    budget = Budget(epsilon=1.0, delta=1e-5, sigma=0.3)
    X = X / np.linalg.norm(X, axis=1).max()  # noise moves predictions by sigma |x|
    model = LogisticRegression(alpha=1e-3, budget=budget).fit(X, y)
    plain = LogisticRegression(alpha=1e-3).fit(X, y).score(X, y)
    model.forget(rows=forgotten.tolist())
    noised = model.score(X, y)
    print(f"\nReleased with noise: accuracy {noised:.3f}, without {plain:.3f}")
    print(verify(model.certificate_, model.record_).says)
    print("It says nothing about:")
    for sentence in model.certificate_.not_covered:
        print(f"  - {sentence}")


if __name__ == "__main__":
    main()
