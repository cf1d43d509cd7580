# SPDX-License-Identifier: Apache-2.0
"""
A band of quantiles
===================

Two quantile regressions give a band that should hold eight of ten values. Ten people
with the largest values leave, and the upper line follows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import StandardScaler

from expunge import Budget, QuantileRegressor
from expunge.display.plots import BLUE, ORANGE

rng = np.random.default_rng(0)
X = rng.uniform(0.0, 10.0, (800, 1))
y = 5.0 + X[:, 0] + rng.normal(size=800) * (0.5 + 0.3 * X[:, 0])
people = [f"tenant {i}" for i in range(800)]
leavers = [people[i] for i in np.argsort(y - X[:, 0])[-10:]]
grid = np.linspace(0.0, 10.0, 50)[:, None]

figure, axes = plt.subplots(figsize=(7.6, 4.2), layout="constrained")
axes.plot(X, y, ".", color="lightgrey", markersize=4)
for quantile in (0.1, 0.9):
    model = QuantileRegressor(
        quantile=quantile,
        width=0.5,
        alpha=1e-4,
        preprocessing=StandardScaler(),
        budget=Budget(),
    )
    model.fit(X, y, subjects=people)
    name = "before" if quantile == 0.1 else None
    axes.plot(grid, model.predict(grid), color=ORANGE, label=name)
    model.forget(leavers)
    name = "after ten people left" if quantile == 0.1 else None
    axes.plot(grid, model.predict(grid), "--", color=BLUE, label=name)
    print(f"below the {quantile:g} line: {np.mean(y <= model.predict(X)):.3f}")
axes.set(xlabel="x", ylabel="y")
axes.legend(frameon=False)
axes.grid(alpha=0.25)
