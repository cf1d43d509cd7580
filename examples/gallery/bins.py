# SPDX-License-Identifier: Apache-2.0
"""
A bent effect, in bins that forget
==================================

A linear model of a number is a straight line. ``Bins`` gives each range of the number a
coefficient of its own. Where ranges end is learnt from the rows, and forgets with them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.preprocessing import StandardScaler

from expunge import Bins, Budget, LogisticRegression
from expunge.display.plots import BLUE, GREEN, ORANGE, show_shares


def risk(age: np.ndarray) -> np.ndarray:
    """Return the chance of a claim: high for the young, rising slowly."""
    return 0.1 + 0.5 * np.exp(-(((age - 22.0) / 8.0) ** 2)) + 0.004 * (age - 18.0)


rng = np.random.default_rng(0)
age = rng.uniform(18.0, 90.0, (4000, 1))
claimed = (rng.random(4000) < risk(age[:, 0])).astype(int)
people = [f"driver {i}" for i in range(4000)]

grid = np.linspace(18.0, 90.0, 300)[:, None]
figure, axes = plt.subplots(figsize=(7.6, 4.0), layout="constrained")
axes.plot(grid, risk(grid), color=GREEN, label="the truth")
for colour, name, step in (
    (ORANGE, "a line", StandardScaler()),
    (BLUE, "sixteen bins", Bins(n_bins=16, quantum=1)),
):
    model = LogisticRegression(
        alpha=1e-4, preprocessing=make_column_transformer((step, [0])), budget=Budget()
    )
    model.fit(age, claimed, subjects=people).forget(["driver 17"])
    axes.plot(grid, model.predict_proba(grid)[:, 1], color=colour, label=name)
    print(f"{name}: {model.certificate_.status}")
axes.set(xlabel="age", ylabel="chance of a claim")
show_shares(axes.yaxis)
axes.legend(frameon=False)
axes.grid(alpha=0.25)
