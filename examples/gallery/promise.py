# SPDX-License-Identifier: Apache-2.0
"""
The promise in one picture
==========================

People leave a model one by one. After each, the model is compared with one that is
fitted without them: the distance is what removal got wrong. An operator never knows it,
because nobody refits for every request. What the operator computes instead is the
*radius*, a bound on that distance. If it is below the limit that the budget fixed in
advance, noise hides the difference, and the release is certified.

Distances and radii depend on who left, so that in a real registry nobody sees them.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from expunge import L2, Budget, Logistic, Newton, Objective, learn
from expunge.display.plots import BLUE, GREEN, ORANGE
from expunge.promise.radius import best_radius

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
X /= np.linalg.norm(X, axis=1).max()
objective = Objective(Logistic(), L2(), alpha=1e-2)
rows = objective.rows(X, 2.0 * y - 1.0)
budget = Budget(epsilon=1.0, delta=1e-5, sigma=0.1)

# %%
# A removal subtracts the rows of a person from the sums that the model is made of, and
# takes one step. It reads no other row. For the picture the model is fitted again each
# time, too, and the distance taken.

state = Newton().init(learn(objective, rows))
leavers = np.random.default_rng(0).choice(len(X), 40, replace=False)
distances, radii, stays = [], [], []
for count in range(1, len(leavers) + 1):
    state = Newton().update(state, rows.take(leavers[count - 1 : count]))
    state, draft = Newton().step(state)
    retrained = learn(objective, rows.without(leavers[:count])).anchor
    distances.append(float(np.linalg.norm(draft.theta - retrained)))
    radii.append(best_radius(state, draft).value)
    stays.append(float(np.linalg.norm(state.anchor - retrained)))
assert all(d <= r for d, r in zip(distances, radii, strict=True))

# %%
# The upper line is what would be left in the model if nothing were done.

limit = budget.radius_budget(X.shape[1])
people = np.arange(1, len(leavers) + 1)
figure, axes = plt.subplots(figsize=(7.6, 4.3), layout="constrained")
axes.plot(people, stays, color="grey", label="if nobody is removed")
axes.axhline(limit, color=ORANGE, label="what the noise hides, fixed in advance")
axes.plot(people, radii, color=BLUE, label="certified radius")
axes.plot(people, distances, ".", color=GREEN, label="distance to retraining")
axes.fill_between(people, distances, radii, color=BLUE, alpha=0.12)
axes.set(yscale="log", xlabel="people who left, of 569", xlim=(1, len(people)))
axes.set(ylabel="distance between models")
figure.legend(frameon=False, loc="outside upper center", ncols=2)
axes.grid(alpha=0.25)
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=150)
