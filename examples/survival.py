# SPDX-License-Identifier: Apache-2.0
"""Survival of patients, beside Kaplan and Meier, and a patient who leaves.

The patients are drawn at random and are nobody. If you give a folder as the first
argument, the curves are drawn there (needs matplotlib).
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from expunge import Budget, PiecewiseExponential, verify

PATIENTS, MONTHS = 3000, np.linspace(0.0, 60.0, 121)
BREAKS = (6.0, 12.0, 24.0, 36.0)
Array = np.ndarray[Any, np.dtype[np.float64]]


def main() -> None:
    """Fit a model, compare its curves, and let a patient leave."""
    X, y = draw_patients(np.random.default_rng(0))
    people = [f"patient {i}" for i in range(PATIENTS)]
    model = PiecewiseExponential(breaks=BREAKS, alpha=1e-4, budget=Budget())
    model.fit(X, y, subjects=people)
    print(f"effects of treatment and age: {model.coef_[:2].round(2)}")
    curves = {}
    for name, arm in (("placebo", 0.0), ("treatment", 1.0)):
        own = X[:, 0] == arm
        steps = kaplan_meier(y[own], MONTHS)
        smooth = model.predict_survival(X[own], MONTHS).mean(axis=0)
        curves[name] = (smooth, steps)
        apart = np.abs(smooth - steps).max()
        print(f"{name}: after two years {smooth[48]:.0%} without an event, ", end="")
        print(f"{steps[48]:.0%} by Kaplan and Meier, nowhere {apart:.1%} apart")
    model.forget(["patient 17"])
    sound = verify(model.certificate_, model.record_).valid
    print(f"patient 17 left: {model.certificate_.status}, valid: {sound}")
    if len(sys.argv) > 1:
        draw(curves, Path(sys.argv[1]) / "survival.png")


def kaplan_meier(y: Array, times: Array) -> Array:
    """Return the share without an event until each time, by Kaplan and Meier."""
    at, counts = np.unique(y[y[:, 1] == 1.0, 0], return_counts=True)
    risk = len(y) - np.searchsorted(np.sort(y[:, 0]), at)
    left = np.append(1.0, np.cumprod(1.0 - counts / risk))
    return np.asarray(left[np.searchsorted(at, times, side="right")])


def draw_patients(rng: np.random.Generator) -> tuple[Array, Array]:
    """Return treatment and age, and until when each was seen and how that ended."""
    treatment = rng.integers(0, 2, PATIENTS).astype(float)
    age = rng.normal(size=PATIENTS)
    risk = np.exp(-0.7 * treatment + 0.4 * age)
    event = 30.0 * (rng.exponential(size=PATIENTS) / risk) ** 0.8
    study = rng.uniform(12.0, 60.0, PATIENTS)
    y = np.column_stack([np.minimum(event, study), event <= study])
    return np.column_stack([treatment, age]), y


def draw(curves: dict[str, tuple[Array, Array]], path: Path) -> None:
    """Draw both kinds of curves."""
    from expunge.display.plots import BLUE, ORANGE, make_figure, show_shares

    figure = make_figure(6.4, 4.4)
    axes = figure.subplots()
    for colour, (name, (smooth, steps)) in zip(
        (ORANGE, BLUE), curves.items(), strict=True
    ):
        axes.step(MONTHS, steps, where="post", color=colour, alpha=0.4)
        axes.plot(MONTHS, smooth, color=colour, label=name)
    axes.set(xlabel="months", ylabel="no event so far", ylim=(0.0, None))
    axes.set(title="Curves of the model; steps by Kaplan and Meier")
    show_shares(axes.yaxis)
    axes.legend(edgecolor="none")
    axes.grid(alpha=0.25)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
