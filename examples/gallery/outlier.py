# SPDX-License-Identifier: Apache-2.0
"""
One person moves a line
=======================

A regression by squared errors follows whoever is far away. When that person leaves, the
line must go where it would have been, and not just a little in that direction. Huber's
loss listens less, so that there is less to forget.
"""

import matplotlib.pyplot as plt
import numpy as np

from expunge import Budget, LinearRegression
from expunge.display.plots import BLUE, ORANGE

rng = np.random.default_rng(0)
X = rng.uniform(0.0, 10.0, (60, 1))
y = 2.0 + 0.5 * X[:, 0] + rng.normal(0.0, 0.5, 60)
X[0], y[0] = 9.5, 30.0
people = [f"person {i}" for i in range(60)]

figure, panels = plt.subplots(
    1, 2, figsize=(8.4, 3.8), layout="constrained", sharey=True
)
grid = np.array([[0.0], [10.0]])
for axes, loss in zip(panels, ("half_squared", "huber"), strict=True):
    model = LinearRegression(alpha=1e-3, loss=loss, budget=Budget())
    before = model.fit(X, y, subjects=people).predict(grid)
    after = model.forget(["person 0"]).predict(grid)
    axes.plot(X[1:], y[1:], ".", color="grey")
    axes.plot(X[0], y[0], "x", color=ORANGE, markersize=10, markeredgewidth=2)
    axes.plot(grid, before, color=ORANGE, label="with person 0")
    axes.plot(grid, after, color=BLUE, label="after the request")
    axes.set(title=f'loss="{loss}"', xlabel="x")
    axes.grid(alpha=0.25)
    assert model.certificate_.status == "certified"
panels[0].set_ylabel("y")
panels[0].legend(frameon=False)

# %%
# The new line is that of a fit without the person, up to noise that nobody sees here.

alone = LinearRegression(alpha=1e-3, loss="huber", budget=Budget()).fit(X[1:], y[1:])
print(f"furthest apart: {np.abs(after - alone.predict(grid)).max():.4f}")
