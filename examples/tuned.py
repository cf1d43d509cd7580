# SPDX-License-Identifier: Apache-2.0
"""Removal at a fixed alpha leaves people's influence on alpha; tuned estimators do not.

First the paper's Proposition 1 in numbers: n - 1 people say -1 and one says 5n. Then
the same on tumours: without the people who fit worst another alpha is best. If you
give a folder as the first argument, the two curves are drawn there (needs matplotlib).
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from expunge import LinearRegression
from expunge.display.plots import make_figure
from expunge.linear_model.tuned import Curve, TunedClassifier, TunedRegressor

STIFF, FREE = 1e6, 1e-6  # hardly a model at all, and the plain mean


def main() -> None:
    """Show the problem and the solution, twice."""
    proposition()
    before, after = tumours()
    if len(sys.argv) > 1:
        draw(before, after, Path(sys.argv[1]) / "tuned.svg")


def proposition() -> None:
    """Tune a mean on an outlier, forget it, and compare with tuning again."""
    print(
        "Proposition 1: n - 1 people say -1, one says 5n and then asks to be forgotten"
    )
    print(f"{'n':>6} {'alpha':>8} {'fixed alpha':>12} {'tuned':>9} {'tuned again':>12}")
    for n in (8, 64, 512):
        X, z = np.ones((n, 1)), np.full(n, -1.0)
        z[0] = 5.0 * n
        model = TunedRegressor(
            alphas=(STIFF, FREE), fold_key="an example", fit_intercept=False
        )
        alpha = model.fit(X, z).alpha_
        fixed = LinearRegression(alpha=alpha, fit_intercept=False).fit(X, z)
        again = TunedRegressor(**model.get_params()).fit(X[1:], z[1:])
        model.forget(rows=[0])
        fixed.forget(rows=[0])
        answers = [each.coef_[0] for each in (fixed, model, again)]
        moved = f"{alpha:.0e}"
        print(
            f"{n:6d} {moved:>8} {answers[0]:12.3f} {answers[1]:9.3f} {answers[2]:12.3f}"
        )


def tumours() -> tuple[Curve, Curve]:
    """Forget the people whom a tuned model fits worst."""
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    people = range(len(y))
    model = TunedClassifier(fold_key="an example").fit(X, y, subjects=people)
    before, first = model.curve_, model.alpha_
    probability = model.predict_proba(X)[np.arange(len(y)), y]
    worst = np.argsort(probability)[:15].tolist()
    model.forget(worst)
    rest = np.setdiff1d(people, worst)
    again = TunedClassifier(fold_key="an example")
    again.fit(X[rest], y[rest], subjects=rest.tolist())
    print(f"\nTumours: alpha {first:g}; without the 15 who fit worst {model.alpha_:g}")
    print(f"tuned again on the others: {again.alpha_:g}")
    print(f"selection: {model.certificate_.selection}")
    return before, model.curve_


def draw(before: Curve, after: Curve, path: Path) -> None:
    """Draw the errors with their bars, each above its minimum."""
    figure = make_figure(7.0, 4.2)
    axis = figure.subplots()
    for curve, label in ((before, "before"), (after, "after")):
        bars = np.array([curve.errors - curve.low, curve.high - curve.errors])
        above = curve.errors - curve.errors.min()
        axis.errorbar(curve.alphas, above, bars, marker="o", capsize=3, label=label)
    axis.set_xscale("log")
    axis.set_xlabel("alpha")
    axis.set_ylabel("cross-validation error above its minimum")
    axis.legend()
    figure.savefig(path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
