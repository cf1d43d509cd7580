# SPDX-License-Identifier: Apache-2.0
"""
Does it change anything for others?
===================================

Twenty people leave, one at a time. ``compare_releases`` scores each release beside the
one before it, on rows that were never fitted, and counts decisions that differ.
"""

import copy

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.preprocessing import StandardScaler

from expunge import Budget, LogisticRegression, compare_releases
from expunge.display.plots import BLUE, ORANGE

X, y = make_classification(6000, 20, n_informative=8, random_state=0)
people = [f"person {i}" for i in range(3000)]
figure, axes = plt.subplots(figsize=(7.6, 4.0), layout="constrained")
for colour, sigma in ((BLUE, None), (ORANGE, 0.1)):
    model = LogisticRegression(
        alpha=1e-3, preprocessing=StandardScaler(), budget=Budget(sigma=sigma)
    )
    model.fit(X[:3000], y[:3000], subjects=people)
    changed = []
    for i in range(20):
        before = copy.deepcopy(model)
        model.forget([people[i]])
        found = compare_releases(before, model, X[3000:], y[3000:])
        changed.append(found.n_changed or 0)
    name = "the default, 0.001" if sigma is None else f"{sigma:g}"
    axes.step(range(1, 21), changed, where="mid", color=colour, label=f"sigma {name}")
    print(f"sigma {name}: accuracy {model.score(X[3000:], y[3000:]):.3f}")
axes.set(xlabel="request", ylabel="decisions that differ, of 3,000", ylim=(-0.5, None))
axes.set_xticks(np.arange(1, 21, 2))
axes.legend(frameon=False)
axes.grid(alpha=0.25)
