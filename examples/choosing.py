# SPDX-License-Identifier: Apache-2.0
"""Draw plots that help to choose a mechanism, alpha and sigma.

    python examples/choosing.py [file.png]

Needs matplotlib (expunge[plots]). Without a file name it only prints the figures.
"""

import sys
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from expunge import (
    L2,
    Budget,
    Jackknife,
    Logistic,
    Newton,
    Objective,
    Rows,
    learn,
)
from expunge.display.plots import make_figure, show_counts, show_shares
from expunge.promise.radius import best_radius
from expunge.removal import Mechanism

COUNTS = (1, 3, 10, 30, 100)
ALPHAS = (1e-3, 1e-2, 1e-1)
SIGMAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
MECHANISMS: dict[str, Mechanism] = {
    "jackknife": Jackknife(),
    "newton": Newton(),
}
Curve = dict[str, list[float]]


def rows_of(alpha: float) -> tuple[Objective, Rows, Rows]:
    """Return an objective with training and test rows, scaled to norm one at most."""
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    X /= np.linalg.norm(X, axis=1).max()
    objective = Objective(Logistic(), L2(), alpha)
    rows = objective.rows(X, 2.0 * y - 1.0)
    order = np.random.default_rng(0).permutation(len(X))
    return objective, rows.take(order[:400]), rows.take(order[400:])


def errors_and_radii(alpha: float) -> tuple[Curve, Curve]:
    """Return true errors and radii of each mechanism over how many are removed."""
    objective, rows, _ = rows_of(alpha)
    summary = learn(objective, rows)
    errors: Curve = {name: [] for name in MECHANISMS}
    radii: Curve = {name: [] for name in MECHANISMS}
    for count in COUNTS:
        gone = np.arange(count)
        target = learn(objective, rows.without(gone)).anchor
        for name, mechanism in MECHANISMS.items():
            state = mechanism.update(mechanism.init(summary), rows.take(gone))
            state, draft = mechanism.step(state)
            errors[name].append(float(np.linalg.norm(draft.theta - target)))
            radii[name].append(best_radius(state, draft).value)
    return errors, radii


def accuracy_over_sigma(alpha: float) -> list[float]:
    """Return test accuracy of noised models, the mean over draws, for each sigma."""
    objective, rows, test = rows_of(alpha)
    theta = learn(objective, rows).anchor
    noise = np.random.default_rng(1).standard_normal((200, theta.size))

    def accuracy(sigma: float) -> float:
        eta: NDArray[np.float64] = test.dense() @ (theta + sigma * noise).T
        return float(np.mean(np.sign(eta) == test.y[:, None]))

    return [accuracy(sigma) for sigma in SIGMAS]


def main() -> None:
    """Print the figures, and draw them if a file is named."""
    curves = {alpha: errors_and_radii(alpha) for alpha in ALPHAS}
    scores = {alpha: accuracy_over_sigma(alpha) for alpha in ALPHAS}
    for alpha, (errors, radii) in curves.items():
        print(f"alpha {alpha:g}: error (radius) after removing {COUNTS[-1]} of 400")
        for name in MECHANISMS:
            print(f"  {name:<10} {errors[name][-1]:.1e} ({radii[name][-1]:.1e})")
        best = ", ".join(f"{score:.3f}" for score in scores[alpha])
        print(f"  accuracy at sigma {SIGMAS}: {best}")
    if len(sys.argv) > 1:
        draw(sys.argv[1], curves[1e-2], scores)


def draw(
    path: str, curve: tuple[Curve, Curve], scores: dict[float, list[float]]
) -> None:
    """Draw errors with radii, the budget that sigma buys, and accuracy over sigma."""
    figure = make_figure(11.0, 4.2)
    left, right = figure.subplots(1, 2)
    errors, radii = curve
    for name in MECHANISMS:
        (line,) = left.plot(COUNTS, errors[name], "o-", label=f"{name}, true error")
        left.plot(COUNTS, radii[name], "s--", color=line.get_color(), alpha=0.6)
    budget = Budget(sigma=0.3)
    for sigma in (0.03, 0.3):
        limit = replace(budget, sigma=sigma).radius_budget(30)
        left.axhline(limit, color="grey", linewidth=0.8)
        left.text(1.0, limit, f" fits at sigma {sigma:g}", va="bottom", color="grey")
    left.set(xscale="log", yscale="log", xlabel="people removed, of 400")
    left.set(ylabel="distance to retraining", title="Error (solid), radius (dashed)")
    show_counts(left.xaxis)
    left.legend(loc="lower right")
    for alpha, score in scores.items():
        right.plot(SIGMAS, score, "o-", label=f"alpha {alpha:g}")
    right.set(xscale="log", xlabel="sigma", ylabel="test accuracy, mean of 200 draws")
    right.set_title("What noise costs: less alpha, larger coefficients")
    show_shares(right.yaxis)
    right.legend(loc="lower left")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
