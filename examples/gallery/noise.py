# SPDX-License-Identifier: Apache-2.0
"""
What noise costs
================

The noise of a release has a standard deviation, sigma, that you fix in advance. The
default, 0.001, is hardly noticed; a model that keeps no rows needs more. Here five
releases are made with each sigma and scored on people who were not fitted.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from expunge import Budget, LogisticRegression
from expunge.display.plots import BLUE, ORANGE, show_shares

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
X /= np.linalg.norm(X, axis=1).max()  # noise moves a prediction by sigma |x|
sigmas = [0.001, 0.01, 0.1, 0.3, 1.0]

figure, axes = plt.subplots(figsize=(7.6, 4.0), layout="constrained")
for colour, alpha in ((BLUE, 1e-3), (ORANGE, 1e-1)):
    scores = [
        [
            LogisticRegression(alpha=alpha, budget=Budget(sigma=sigma))
            .fit(X[:400], y[:400])
            .score(X[400:], y[400:])
            for _ in range(5)
        ]
        for sigma in sigmas
    ]
    axes.plot(sigmas, scores, ".", color=colour, alpha=0.4)
    means = [float(np.mean(each)) for each in scores]
    axes.plot(sigmas, means, color=colour, label=f"alpha {alpha:g}")
axes.set(xscale="log", xlabel="sigma", ylabel="accuracy of releases")
show_shares(axes.yaxis)
axes.legend(frameon=False)
axes.grid(alpha=0.25)

# %%
# More alpha makes coefficients smaller, so that the same noise drowns more of them.
# ``advise(X, y)`` does this for a model and data like yours, times requests, and says
# which sigma to take.
