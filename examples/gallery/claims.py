# SPDX-License-Identifier: Apache-2.0
"""
Claims of drivers, with exposures
=================================

Frequencies of claims by Poisson regression. The policies are drawn at random; each has
an exposure, the share of a year that it lasted. After a driver has left, are the
predicted means still those that are seen?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import StandardScaler

from expunge import Budget, PoissonRegressor
from expunge.display.plots import BLUE

rng = np.random.default_rng(0)
n = 20_000
X = np.column_stack([rng.uniform(18, 85, n), rng.integers(4, 13, n)]).astype(float)
years = np.clip(rng.beta(0.9, 0.8, n), 0.01, 1.0)
rate = 0.1 * np.exp(-0.02 * (X[:, 0] - 50.0) + 0.1 * (X[:, 1] - 7.0))
claims = rng.poisson(rate * years)
drivers = np.array([f"driver {i // 2}" for i in range(n)])
train = np.arange(n) % 4 != 0

model = PoissonRegressor(alpha=1e-4, preprocessing=StandardScaler(), budget=Budget())
model.fit(X[train], claims[train], subjects=drivers[train], exposure=years[train])
model.forget([str(drivers[np.argmax(claims * train)])])
print(model.certificate_.status)

# %%
# Other policies than those of the fit, in the order of their predicted frequencies and
# in ten groups of equal exposure. ``model.plot_means`` draws such a picture, too.

predicted = model.predict(X[~train])
order = np.argsort(predicted)
weights = years[~train][order]
edges = np.searchsorted(np.cumsum(weights), np.linspace(0, weights.sum(), 11)[1:-1])
groups = np.split(order, edges)
means = [np.average(predicted[each], weights=years[~train][each]) for each in groups]
seen = [claims[~train][each].sum() / years[~train][each].sum() for each in groups]

figure, axes = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
axes.plot([0.0, max(means)], [0.0, max(means)], color="grey", linewidth=0.8)
axes.plot(means, seen, "o", color=BLUE)
axes.set(xlabel="predicted claims a year", ylabel="seen claims a year")
axes.grid(alpha=0.25)
