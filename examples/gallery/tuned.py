# SPDX-License-Identifier: Apache-2.0
"""
A choice that forgets
=====================

Removal at a fixed alpha leaves people's influence on the choice of alpha. A tuned
estimator keeps the errors of its cross-validation up to date, and chooses again.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from expunge import Budget, TunedClassifier
from expunge.display.plots import BLUE, ORANGE

X, y = load_breast_cancer(return_X_y=True)
X, y = StandardScaler().fit_transform(X)[:300, :10], y[:300]
people = [f"patient {i}" for i in range(len(y))]
model = TunedClassifier(fold_key="an example", folds=3, budget=Budget())
model.fit(X, y, subjects=people)
curves = [(ORANGE, "before", model.curve_, model.alpha_)]

# %%
# Those fifteen leave whom the model fits worst.

probability = model.predict_proba(X)[np.arange(len(y)), y]
model.forget([people[i] for i in np.argsort(probability)[:15]])
curves.append((BLUE, "after 15 people left", model.curve_, model.alpha_))
print(model.certificate_.selection)

figure, axes = plt.subplots(figsize=(7.6, 4.2), layout="constrained")
for colour, name, curve, alpha in curves:
    axes.plot(curve.alphas, curve.errors, "o-", color=colour, label=name)
    axes.axvline(alpha, color=colour, linestyle=":")
axes.set(xscale="log", xlabel="alpha", ylabel="error of the cross-validation")
axes.legend(frameon=False)
axes.grid(alpha=0.25)
