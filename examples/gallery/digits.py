# SPDX-License-Identifier: Apache-2.0
"""
What a model of digits looks like
=================================

The coefficients of a model, as images: where ink speaks for a digit. Forty
people who wrote a three leave. What changes is what only they had brought.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from expunge import Budget, LogisticRegression

X, y = load_digits(n_class=5, return_X_y=True)
X = X[:800] / 16.0
y = y[:800]
writers = [f"writer {i}" for i in range(len(y))]
model = LogisticRegression(alpha=1e-3, budget=Budget())
model.fit(X, y, subjects=writers)
before = model.coef_.copy()
model.forget([writers[i] for i in np.flatnonzero(y == 3)[:40]])
change = model.coef_ - before

figure, panels = plt.subplots(2, 5, figsize=(7.6, 3.2), layout="constrained")
for line, images in zip(panels, (before, change), strict=True):
    largest = np.abs(images).max()
    for axes, image in zip(line, images, strict=True):
        axes.imshow(image.reshape(8, 8), cmap="RdBu", vmin=-largest, vmax=largest)
        axes.set_xticks([])
        axes.set_yticks([])
panels[0, 0].set_ylabel("before")
panels[1, 0].set_ylabel("change")
for digit in range(5):
    panels[0, digit].set_title(str(digit))
print(f"accuracy of the release: {model.score(X, y):.3f}")
